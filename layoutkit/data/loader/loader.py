"""`sampled_batcher`: what a Batcher is asked for.

Knows arguments by their names; what they mean is known by `settings.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Never

from ...collator import Collator
from ...converter import Converter
from .batcher import Batcher
from .config import Arguments, check_names, make_config


def sampled_batcher(
    sources: Any,
    *,
    batch_size: int,
    sampler: Any = "linear",
    num_batches: int | None = None,
    drop_last: bool = False,
    seed: int = 0,
    epoch: int = 0,
    shard: tuple[int, int] | str | None = None,
    get: Any = None,
    processor: Callable[..., Any] | None = None,
    size: tuple[int, int] | None = None,
    fit: str | None = None,
    input_dims: Any = None,
    batch_dims: Callable[[int], Any] | None = None,
    dtype: Any = None,
    layout: Any = None,
    convert: Converter | None = None,
    scale: Any = None,
    mean: Any = None,
    std: Any = None,
    clip: Any = None,
    collate: Collator | None = None,
    offset: Any = None,
    flip: Any = None,
    on_error: str = "drop",
    refill: bool = False,
    timeout: float | None = None,
    retries: int = 3,
    prefetch: int = 2,
    num_workers: int | None = None,
    progress: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int = 10 * 2**30,
    max_record_bytes: int | None = None,
    **unknown: Never,
) -> Batcher:
    """Batches of the records of an index, got and processed on threads ahead of time.

    >>> import numpy as np
    >>> source = {"x": np.arange(10.0).reshape(5, 2), "y": ["cat", "dog", "cat", "dog", "cat"]}
    >>> with sampled_batcher(source, batch_size=2) as batches:
    ...     for x, y in batches:
    ...         print(y.input, x.forward_get("bf").tolist())
    [0 1] [[0.0, 1.0], [2.0, 3.0]]
    [0 1] [[4.0, 5.0], [6.0, 7.0]]
    [0] [[8.0, 9.0]]

    Parameters
    ----------
    sources : Index, what open_index takes, or a list of these
        The first one says how many records there are, and has their labels and targets.
    batch_size : int
        Records in a batch.
    sampler : str, Sampler, or a list with one for each source
        The order of the records: "linear", "shuffle" and others, see `sampler`. Other sources need
        as many records as the first, or a kind that draws.
    num_batches : int, optional
        Batches in an epoch, if not all.
    drop_last : bool
        Leave out the records at an epoch's end that fill no batch, as the kinds `even_...` do.
    seed, epoch : int
        Another seed or epoch, another order.
    shard : (rank, world) or "auto", optional
        Of the one order of all records, the batches of one of `world` processes: as many as any
        other has, of the same sizes. Each step takes `world` batches from where the one before
        ended; fewer than `world` records at the end are left out. A state is that of all ranks, and
        any number of them goes on from it. "auto" asks torch.distributed, JAX or RANK and
        WORLD_SIZE, and counts the workers of a DataLoader.
    get : callable, or a list with one for each source
        Reads a Record. By default its array, or the bytes of its file.
    processor : callable, optional
        Called as ``processor(*results, out=out)`` with a result of each source. Returns the
        record's array, or (array, target), or None to refuse the record. `out` is the row of the
        batch to fill, where the shape of a record is given, else None. Bytes are a vector of uint8.
    size : (int, int), optional
        Height and width of pictures: files are decoded into uint8 `bhwc` by a `pictures.Decoder`.
    fit : "cover", "pad" or "stretch", optional
        How pictures become that size, as `pictures.fit` says; by default "cover".
    input_dims : tuple of int, optional
        The shape of one record.
    batch_dims : callable, optional
        Gives the shape of a record in batch k of the epoch.
    dtype : dtype, optional
        By default float32 where the shape is given, else that of a batch's first record.
    layout : str or (str, str), optional
        Of the rows and so of the batch's input, or of input and target; by default `b` and `bf`.
    convert : Converter, optional
        Makes the batch's input of the rows: ``Converter("bhwc->bchw", scale=1 / 255)``.
    scale, mean, std, clip : optional
        In place of `convert`, the formula of its keywords, in the layout of the rows.
    collate : Collator, optional
        Makes the batch's input of results of any size: ``Collator("hwc->bchw", h=224, w=224)``.
        Then `out` is always None, and results are copied, except records of an array.
    offset : "random" or dict by axis, optional
        Where the Collator's windows begin: anywhere inside of a result or, if it is smaller, so
        that all of it is in the window (which takes a `fill`). Of a dict the values are "random" or
        an int for all, such as ``{"h": 0, "w": "random"}``. In the middle by default.
    flip : "random" or dict by axis, optional
        "random" turns every second window, by chance, around along `w`; ``{"h": "random"}`` along
        another axis, and ``{"w": True}`` all of them.
    on_error : "drop" or "raise"
        A record that fails is left out and reported, or ends the loop with a DataError. Where none
        can be used, the loop ends with one in any case.
    refill : bool
        Take further records of the epoch in place of those left out.
    timeout : float, optional
        Seconds that a record may take.
    retries : int
        How often remote files are tried again.
    prefetch : int
        Batches begun ahead of the one handed out last.
    num_workers : int, optional
        Threads, by default up to 4; 0 works in the caller's own, when it asks.
    progress : bool
        Show a progress bar with records per second and drops.
    cache_dir, cache_size
        A folder for whole remote files, and the bytes it may hold.
    max_record_bytes : int, optional
        The bytes that are read of a record; one with more fails. By default as many as the index
        says, and 1 GiB where it says nothing.

    What is random is a function of `seed`, epoch and the record's place in its whole source: any
    number of threads and partitions, and a loop that goes on from a state, draw the same.

    Raises
    ------
    DataError, ShapeError, DtypeError, PatternError, ArgumentError
        An argument is wrong, there is none of that name (and it may have another one in other
        libraries), or sources do not fit together.
    """
    check_names(unknown, [field.name for field in fields(Arguments)])
    args = Arguments(
        sources=sources, batch_size=batch_size, sampler=sampler, num_batches=num_batches,
        drop_last=drop_last, seed=seed, shard=shard, get=get, processor=processor, size=size,
        fit=fit, input_dims=input_dims, batch_dims=batch_dims, dtype=dtype, layout=layout,
        convert=convert, scale=scale, mean=mean, std=std, clip=clip, collate=collate,
        offset=offset, flip=flip, on_error=on_error, refill=refill, timeout=timeout,
        retries=retries, prefetch=prefetch, num_workers=num_workers, progress=progress,
        cache_dir=cache_dir, cache_size=cache_size, max_record_bytes=max_record_bytes,
    )  # fmt: skip
    return Batcher(make_config(args), epoch)

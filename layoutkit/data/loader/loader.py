"""`sampled_batcher`, the function that creates a Batcher."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Never

from ...collator import Collator
from ...converter import Converter
from .batcher import Batcher
from .config import CACHE_SIZE, Arguments, check_names, make_config


def sampled_batcher(
    sources: Any,
    *,
    batch_size: int,
    missing: str | int = "error",
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
    collate: Collator | Sequence[Collator] | str | None = None,
    offset: Any = None,
    flip: Any = None,
    crop: Any = None,
    on_error: str = "drop",
    refill: bool = False,
    timeout: float | None = None,
    retries: int = 3,
    prefetch: int = 2,
    num_workers: int | None = None,
    progress: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int = CACHE_SIZE,
    max_record_bytes: int | None = None,
    **unknown: Never,
) -> Batcher:
    """Return a Batcher, whose threads read and process the records of its sources ahead.

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
    sources : Index, argument of open_index, or a list of these
        The first source defines the number of records, their labels and targets.
    batch_size : int
        The number of records in a batch.
    missing : "error", "drop" or -1
        The handling of records without a label, as for `open_index`.
    sampler : str, Sampler, or a list with one for each source
        The order of the records: "sequential" (or "linear"), "shuffle" and others, see `sampler`.
        Other sources need as many records as the first, or a kind that draws.
    num_batches : int, optional
        The number of batches in an epoch; by default all.
    drop_last : bool
        Omit the records at an epoch's end that do not fill a batch, as the kinds `even-...` do.
    seed, epoch : int
        The random order is a function of both.
    shard : (rank, world) or "auto", optional
        Yield the batches of one of `world` processes (ranks) that share one order of all records.
        Each step consumes `world` batches of equal size, one for each rank; fewer than `world`
        records at the end are omitted. The state is equal on all ranks, and any number of ranks can
        resume from it. "auto" reads rank and world from torch.distributed, JAX, or the variables
        RANK and WORLD_SIZE, and counts each worker of a DataLoader as a rank.
    get : callable, or a list with one for each source
        Called with a Record; returns its data. By default its array, or the bytes of its file.
    processor : callable, optional
        Called as ``processor(*results, out=out)`` with a result of each source. Returns the
        record's array, or (array, target), or None to refuse the record. `out` is the row of the
        batch to fill, if the shape of a record is specified, else None. Bytes become a vector of
        uint8.
    size : (int, int), optional
        Height and width of images: files are decoded into uint8 `bhwc` by an `images.Decoder`.
    fit : "cover", "pad" or "stretch", optional
        The way images are fitted to that size, see `images.fit`; by default "cover".
    input_dims : tuple of int, optional
        The shape of one record.
    batch_dims : callable, optional
        Returns the shape of a record in batch k of the epoch.
    dtype : dtype, optional
        By default float32 if the shape is specified, else the most frequent in the first batch.
    layout : str or (str, str), optional
        The layout of the rows of a batch, or of the rows and the targets. By default `b` for one
        axis, `bf` for two.
    convert : Converter, optional
        Converts the rows to the batch's input: ``Converter("bhwc->bchw", scale=1 / 255)``.
    scale, mean, std, clip : optional
        In place of `convert`, the constants of a formula, which keeps the layout of the rows.
    collate : Collator, list of Collators, or "ragged", optional
        Makes the batch's input from results of any size: ``Collator("hwc->bchw", h=224, w=224)``.
        Then `out` is always None, and results are copied, except records of an array. A list makes
        several inputs of the same results, such as two random crops of each image. "ragged"
        joins results that differ in length, such as bytes or tokens: the input is a `Ragged`.
    offset : "random" or dict by axis, optional
        The start of the Collator's windows: random inside a result or, if the result is smaller,
        such that the window contains all of it (this needs a `fill`). The values of a dict are
        "random" or an int for all records, such as ``{"h": 0, "w": "random"}``. By default windows
        are centered.
    flip : "random" or dict by axis, optional
        "random" flips windows along `w` with probability 1/2; ``{"h": "random"}`` flips along
        another axis, and ``{"w": True}`` flips all windows.
    crop : "random" or dict, optional
        With a Collator that resizes two axes: a random part of each result is resized, of 8 % to
        all of its area and an aspect ratio of 3/4 to 4/3. The bounds of a dict are as in
        ``{"scale": (0.3, 1), "ratio": (1, 1)}``. By default all of a result is resized.
    on_error : "drop" or "raise"
        Drop and report a record that fails, or end the loop with a DataError. If no record can be
        used, the loop ends with a DataError in any case.
    refill : bool
        Read further records of the epoch in place of dropped ones.
    timeout : float, optional
        The seconds that a record may take.
    retries : int
        The number of retries for remote files.
    prefetch : int
        The number of batches started ahead of the one yielded last.
    num_workers : int, optional
        The number of threads, by default up to 4; with 0, the caller's thread does all work.
    progress : bool
        Show a progress bar with records per second and dropped records.
    cache_dir, cache_size
        A folder that caches complete remote files, and its maximum number of bytes.
    max_record_bytes : int, optional
        The largest size of a record; a larger one fails. By default the size in the index, or
        1 GiB if the index does not have one.

    Notes
    -----
    Random values are a function of `seed`, epoch and the position of a record in its whole source:
    any number of threads and partitions, and a resumed loop, draw the same values.

    Raises
    ------
    DataError, ShapeError, DtypeError, PatternError, ArgumentError
        An argument is invalid, a keyword does not exist (the message names its equivalent for
        keywords of other libraries), or sources do not fit together.
    """
    check_names(unknown, [field.name for field in fields(Arguments)])
    args = Arguments(
        sources=sources, missing=missing, batch_size=batch_size, sampler=sampler,
        num_batches=num_batches, drop_last=drop_last, seed=seed, shard=shard, get=get,
        processor=processor, size=size, fit=fit, input_dims=input_dims, batch_dims=batch_dims,
        dtype=dtype, layout=layout, convert=convert, scale=scale, mean=mean, std=std, clip=clip,
        collate=collate, offset=offset, flip=flip, crop=crop, on_error=on_error, refill=refill,
        timeout=timeout, retries=retries, prefetch=prefetch, num_workers=num_workers,
        progress=progress, cache_dir=cache_dir, cache_size=cache_size,
        max_record_bytes=max_record_bytes,
    )  # fmt: skip
    return Batcher(make_config(args), epoch)

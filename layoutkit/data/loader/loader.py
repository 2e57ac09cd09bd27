"""`sampled_batcher`, the function that creates a Batcher, and its error for unknown keywords.

Crops, flips and formulas are arguments of a Collator or a Converter: the error shows the one to
give, with the values of the caller. A table has the keywords of other libraries.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Never

import numpy as np

from ..._utils.spelling import find_similar
from ..._utils.validation import check_bool, check_choice, check_int, show
from ...collator import Collator
from ...converter import Converter
from ...layout.parsing import parse_layout
from ...planning.keywords import find_topic_cure
from ..errors import NoSuchArgument, no_such_argument
from ..io.ram_cache import RamCache
from .batcher import Batcher
from .collate import RAGGED
from .config import (
    CACHE_SIZE,
    LoaderConfig,
    find_field_names,
    make_cache,
    make_pipeline,
    make_reader,
    make_sources,
    open_fields,
    open_indexes,
    parse_cache,
    parse_getters,
    parse_workers,
    prepare_streams,
)
from .epochs import parse_epochs
from .jpeg_rows import CHUNK_SECONDS
from .processing import complete_processing, parse_processing, resize_by_batch


def sampled_batcher(
    sources: Any,
    *,
    batch_size: int,
    missing: str | int = "error",
    sampler: Any = None,
    weights: Any = None,
    shuffle: int | None = None,
    num_batches: int | None = None,
    drop_last: bool = False,
    seed: int | None = None,
    epoch: int = 0,
    shard: tuple[int, int] | str | None = None,
    get: Any = None,
    processor: Callable[..., Any] | Mapping[str, Callable[..., Any]] | None = None,
    size: tuple[int, int] | None = None,
    fit: str | None = None,
    input_dims: Any = None,
    dtype: Any = None,
    layout: Any = None,
    convert: Converter | None = None,
    collate: Collator | Sequence[Collator] | Mapping[str, Collator | str] | str | None = None,
    framework: str | None = None,
    pin_memory: bool = False,
    on_error: str = "drop",
    refill: bool = False,
    timeout: float | None = None,
    retries: int = 3,
    prefetch: int = 2,
    num_workers: int | None = None,
    progress: bool = False,
    cache: RamCache | str | None = None,
    cache_bytes: int | str | None = None,
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
    sources : Index, argument of open_index, or a list or dict of these
        The first source defines the number of records, their labels and targets. A dict has a
        source for each field of `collate`, if that is a dict, too. A generator, or a function that
        returns one for each epoch, is a stream: its records are read in order.
    batch_size : int
        The number of records in a batch.
    missing : "error", "drop" or -1
        The handling of records without a label, as for `open_index`.
    sampler : str, Sampler, sequence of int, or a list with one for each source
        The order of the records: "sequential" (or "linear"), "shuffle" and others, see `sampler`;
        or the positions of the records of an epoch, such as ``[3, 1, 1]``, or a torch Sampler of
        positions. By default "sequential", or "weighted" with `weights`.
        Other sources need as many records as the first, or a kind that draws.
    weights : array of (records,) numbers, or mapping from label to number, optional
        The relative probability of each record, or of each label, for the sampler "weighted", which
        draws records with replacement: an epoch may have a record twice, and others not at all.
    shuffle : int, optional
        Of a stream: the number of records in a buffer from which the next record is drawn. It costs
        the memory of these records. For other sources, give ``sampler="shuffle"``.
    num_batches : int, optional
        The number of batches in an epoch; by default all.
    drop_last : bool
        Omit the records at an epoch's end that do not fill a batch, as the kinds `even-...` do.
    seed : int, optional
        The random order, crops and flips are functions of the seed and the epoch. By default 0, or
        the seed of a Sampler that is given.
    epoch : int
        The first epoch.
    shard : (rank, world) or "auto", optional
        Yield the batches of one of `world` processes (ranks) that share one order of all records.
        Each step consumes `world` batches of equal size, one for each rank; fewer than `world`
        records at the end are omitted. The state is equal on all ranks, and any number of ranks can
        resume from it. "auto" reads rank and world from torch.distributed, JAX, or the variables
        RANK and WORLD_SIZE, and counts each worker of a DataLoader as a rank.
    get : callable, or a list with one for each source
        Called with a Record; returns its data. By default its array, or the bytes of its file.
    processor : callable, or dict of callables for a dict of sources, optional
        Called with a result of each source, and by keyword with ``out=`` if it has this parameter.
        Returns the record's array, or (array, target), or None to refuse the record. `out` is the
        row of the batch to fill, if the shape of a record is specified, else None. Bytes become a
        vector of uint8. A transform of torchvision or albumentations is called with the decoded
        image.
    size : (int, int), optional
        Height and width of images: files are decoded into uint8 `bhwc` by an `images.Decoder`.
    fit : "cover", "pad" or "stretch", optional
        The way images are fitted to that size, see `images.fit`; by default "cover".
    input_dims : tuple of int, or callable, optional
        The shape of one record, or a function that returns it for batch k of the epoch.
    dtype : dtype, optional
        By default float32 if the shape is specified, else the most frequent in the first batch.
        A record whose integers it cannot hold fails.
    layout : str or (str, str), optional
        The layout of the rows of a batch, or of the rows and the targets. By default `b` for one
        axis, `bf` for two.
    convert : Converter, optional
        Converts the rows to the batch's input: ``Converter("bhwc->bchw", scale=1 / 255)``.
    collate : Collator, list or dict of Collators, or "ragged", optional
        Makes the batch's input from results of any size: ``Collator("hwc->bchw", h=224, w=224)``.
        Its own seed draws its crops and flips, by default the `seed` of this call; two that differ
        are an error. Then `out` is always None, and results are copied, except records of an array.
        A list makes several inputs of the same results, such as two random crops of each image.
        "ragged" joins results that differ in length, such as bytes or tokens: the input is a
        `Ragged`.

        A dict, such as ``{"image": Collator(...), "mask": Collator(...), "boxes": "ragged"}``, is
        for results that are dicts with these keys, from a processor or a dict of sources; so is
        the input, without their other keys. The windows of a record's fields are the same along
        axes of the same name: the first Collator that draws, or the first one with windows, places
        all of them, and `batch.placements` maps boxes and points.
    framework : "numpy", "torch" or "jax", optional
        The library of input and target: its arrays replace Views and share the memory of the
        batch; classes are int64. JAX has 32 bits without x64, and copies to its default
        device if that is no CPU. By default "torch" if a Collator is a `layoutkit.torch.Collator`.
        States of another framework can be loaded.
    pin_memory : bool
        With tensors of torch: the threads that make batches copy input and target to page-locked
        memory, so that ``batch.to("cuda", non_blocking=True)`` does not wait for its copies. It
        has no effect without CUDA, which a warning says.
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
    cache : "ram" or RamCache, optional
        Keep records in memory after they are read and, if images, decoded and resized to `size`:
        later epochs read them from there. A `processor` that is not of layoutkit runs in every
        epoch. Batches and states are the same as without a cache; a `get` is called once for a
        record that is kept. Threads and forked children share it; a RamCache, with other processes.
    cache_bytes : int or str, optional
        The most bytes of the cache, such as "4 GiB"; by default half of the available
        memory. If there are more records, the same ones are kept in every run with this limit.
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
    if unknown:
        *known, _ = inspect.signature(sampled_batcher).parameters
        raise _unknown_keyword(
            unknown, known, sources=sources, size=size, input_dims=input_dims, layout=layout,
            convert=convert, collate=collate,
        )  # fmt: skip
    processing = parse_processing(
        processor, size=size, fit=fit, input_dims=input_dims, dtype=dtype, layout=layout,
        convert=convert, collate=collate,
    ).with_framework(framework).with_pinned_memory(pin_memory)  # fmt: skip
    batch_size = check_int("batch_size", batch_size, 1)
    names = find_field_names(sources, processing.fields)
    indexes = open_fields(sources, missing) if names else open_indexes(sources, missing)
    indexes, part = prepare_streams(indexes, shuffle, shard)
    processing = complete_processing(
        processing,
        indexes,
        has_getter=get is not None or indexes[0].kind == "stream",
        has_size=size is not None,
        names=names,
    )
    samplers, length = parse_epochs(
        indexes, sampler, weights=weights, batch_size=batch_size, num_batches=num_batches,
        drop_last=drop_last, seed=seed, shard=part, refill=refill, names=names,
    )  # fmt: skip
    processing = processing.with_seeds(seed, samplers[0].plan.seed)
    workers, seconds = parse_workers(num_workers, timeout)
    strict = check_choice("on_error", on_error, ("drop", "raise")) == "raise"
    reader = make_reader(retries, cache_dir, cache_size, max_record_bytes)
    getters = parse_getters(get, len(indexes))
    by_batch = resize_by_batch(processing)
    shared = parse_cache(cache, cache_bytes)
    if shared is None:
        kept, opened = None, make_sources(indexes, samplers, getters, reader)
        steps, owns_results = by_batch, by_batch.keeps_results
    else:
        steps, decoders = processing.split_decoding()
        kept = make_cache(shared, shared is not cache, indexes, getters, decoders, steps)
        opened = make_sources(indexes, samplers, getters, reader, decoders, kept)
        owns_results = get is None and None not in decoders
    pipeline = make_pipeline(opened, steps, seconds, strict, workers, owns_results)
    config = LoaderConfig(
        sources=opened,
        dims=steps.dims,
        pipeline=pipeline,
        factories=processing.make_factories(indexes[0]),
        pixels=by_batch.pixel_options,
        cache=kept,
        reader=reader,
        length=length,
        prefetch=check_int("prefetch", prefetch),
        num_workers=workers,
        progress=check_bool("progress", progress),
        chunk_seconds=CHUNK_SECONDS if pipeline.opens_some else None,
    )
    return Batcher(config, epoch)


# ---- Keywords that do not exist --------------------------------------------------------------

_LABELS = 'the labels with the source: {"x": paths, "y": labels}'
_CLASSES = "open_index(source, classes=[...]) as the source"
_CROPS = 'collate=Collator("hwc->bchw", h=224, w=224, '
_RESIZES = _CROPS + 'resize="bilinear", '
# Equivalents of the keywords of PyTorch, Keras, tf.data, grain, DALI and MXNet.
_ARGUMENT_HINTS = {
    "antialias": _RESIZES + "antialias=False)",
    "augment": "processor=layoutkit.images.Augmenter(...), or crops and flips of a Collator",
    "epochs": "a loop for each epoch: every `for batch in batches` is the next one",
    "batch_sampler": "sampler= and batch_size=, the order and the size of batches",
    "casting": 'convert=Converter("bhwc->bhwc", dtype="uint8", casting="saturate")',
    "channels": 'collate=Collator("hwc->bchw", h=224, w=224, channels=(2, 1, 0))',
    "class_names": _CLASSES,
    "classes": _CLASSES,
    "collate_fn": "processor=, which makes a row from a record; collate= joins rows of many sizes",
    "columns": "open_index(source, columns={'image': ..., 'label': ...}) as the source",
    "copy": "omit it: every batch has memory of its own",
    "device": 'framework="torch" and batch.to("cuda"), or layoutkit.torch.feed(batches, pattern, '
    'device="cuda"), which converts there',
    "drop_remainder": "drop_last=True",
    "fill": 'collate=Collator("hwc->bchw", h=224, w=224, fill=0)',
    "interpolation": _RESIZES[:-2] + ")",
    "labels": _LABELS,
    "generator": "seed=; an order is a function of seed, epoch and position",
    "image_size": "size=, (height, width) of images",
    "memory": 'collate=Collator("hwc->bchw", h=224, w=224, memory="bhwc")',
    "max_workers": "num_workers=, the number of threads",
    "multiprocessing_context": "num_workers=, the number of threads",
    "num_epochs": "a loop for each epoch: every `for batch in batches` is the next one",
    "num_parts": "open_index(source, partition=p, partitions=P) as the source",
    "num_replicas": "shard=(rank, world)",
    "num_shards": "shard=(rank, world)",
    "num_threads": "num_workers=, the number of threads",
    "pad_to": 'collate=Collator("hwc->bchw", h=640, w=640, fill=0)',
    "persistent_workers": "omit it: threads live until close(), over all epochs",
    "prefetch_buffer_size": "prefetch=, in batches",
    "prefetch_batches": "prefetch=, in batches",
    "prefetch_size": "prefetch=, in batches",
    "prefetch_factor": "prefetch=, in batches, for all threads together",
    "rand_crop": _CROPS + 'offset="random")',
    "rand_mirror": _CROPS + 'flip="random")',
    "random_crop": _CROPS + 'offset="random")',
    "random_flip": _CROPS + 'flip="random")',
    "random_state": "seed=; an order is a function of seed, epoch and position",
    "rank": "shard=(rank, world)",
    "resize": 'collate=Collator("hwc->bchw", h=224, w=224, resize="bilinear"), or size=',
    "repeat": "a loop for each epoch: every `for batch in batches` is the next one",
    "short_side": _RESIZES + "short_side=256)",
    "shuffle_buffer_size": 'sampler="shuffle", which needs no buffer, or shuffle= for a stream',
    "subset": "index[positions] as the source",
    "target_size": "size=, (height, width) of images",
    "target_transform": "processor=, a function that returns (data, target)",
    "train": "one of the parts train, val = index.split(0.8, seed=0) as the source",
    "transform": "processor=, a function of the data of a record, or a transform of torchvision",
    "use_multiprocessing": "num_workers=, the number of threads",
    "validation_split": "one of the parts train, val = index.split(0.8, seed=0) as the source",
    "worker_init_fn": "num_workers=, the number of threads of this process",
    "workers": "num_workers=, the number of threads",
    "world": "shard=(rank, world)",
    "world_size": "shard=(rank, world)",
}
_DRAWN = ("offset", "flip", "crop")  # arguments of a Collator only
_OF_STEPS = (*_DRAWN, "scale", "mean", "std", "clip")
_DEFAULT_LAYOUTS = {1: "b", 2: "bf"}  # of rows by rank; others are images in the examples


def _unknown_keyword(
    unknown: Mapping[str, Any], known: Collection[str], **call: Any
) -> NoSuchArgument:
    """Return the error for the first unknown keyword.

    `call` has sources, size, input_dims, layout, convert and collate as the caller gave them.
    """
    name, value = next(iter(unknown.items()))
    is_near = find_similar(name, known) is not None
    close = None if is_near else find_similar(name, _ARGUMENT_HINTS)
    steps = {name: value for name, value in unknown.items() if name in _OF_STEPS}
    if name in steps:
        cure = "give " + _step_text(steps, call)
    elif name == "batch_dims":
        function = getattr(value, "__name__", "")
        shown = function if function.isidentifier() else "..."  # not the name of a lambda
        cure = f"give input_dims={shown}, which is called with the number of a batch"
    elif (mode := _find_mode(name, value)) is not None:
        cure = "give " + _reader_text(mode, call["size"])
    elif name in _ARGUMENT_HINTS:
        cure = _format_hint(_ARGUMENT_HINTS[name])
    elif close is not None:
        return NoSuchArgument(
            f"sampled_batcher has no {name}=, nor {close}=; {_format_hint(_ARGUMENT_HINTS[close])}"
        )
    else:
        text = None if is_near else find_topic_cure("Collator", name, value)
        if text is None:
            return no_such_argument("sampled_batcher", name, known)
        cure = f"give collate=Collator(...), in whose words {text}"
    return NoSuchArgument(f"sampled_batcher has no {name}=; {cure}")


def _find_mode(name: str, value: Any) -> str | None:
    from ...images.reading import MODES, find_mode  # lazy: only errors need it

    if name == "mode":
        return value if isinstance(value, str) and value in MODES else None
    return find_mode(name, value)


def _reader_text(mode: str, size: Any) -> str:
    """Return the argument that decodes images in a mode."""
    if size is None or mode == "unchanged":
        return f'processor=images.Reader(mode="{mode}")'
    resize = ', resize="nearest"' if mode == "index" else ""
    return f'processor=images.Decoder({show(size)}, mode="{mode}"{resize}) in place of size='


def _format_hint(hint: str) -> str:
    return hint if hint.startswith("omit") else f"give {hint}"


def _step_text(steps: Mapping[str, Any], call: Mapping[str, Any]) -> str:
    """Return the argument of a call that has these arguments of a Collator or Converter."""
    collate, convert = call["collate"], call["convert"]
    if isinstance(collate, str) and collate == RAGGED:
        return 'a processor that converts results, which collate="ragged" joins as they are'
    if isinstance(collate, list | tuple):
        texts = ", ".join(_collator_text(collator, steps, call) for collator in collate)
        return f"collate=[{texts}]"
    if collate is not None or any(name in _DRAWN for name in steps):
        return f"collate={_collator_text(collate, steps, call)}"
    if isinstance(convert, Converter):
        return f"convert={_call_text('Converter', convert.pattern, {**convert.keywords, **steps})}"
    layout = _layout_of_rows(call)
    return f"convert={_call_text('Converter', f'{layout}->{layout}', steps)}"


def _collator_text(collator: Any, steps: Mapping[str, Any], call: Mapping[str, Any]) -> str:
    if isinstance(collator, Collator):
        windows = collator.windows
        options = {**windows.keywords(), **windows.sizes, **steps}
        return _call_text("Collator", collator.pattern, options)
    size = call["size"]
    is_pair = isinstance(size, list | tuple) and len(size) == 2
    sizes = dict(zip("hw", size if is_pair else (224, 224), strict=True))
    resize = {"resize": "bilinear"} if "crop" in steps else {}
    return _call_text("Collator", "hwc->bchw", {**sizes, **resize, **steps})


def _layout_of_rows(call: Mapping[str, Any]) -> str:
    """Return the layout of the rows of a call; guess it from their rank if there is none."""
    layout = call["layout"]
    layout = layout[0] if isinstance(layout, list | tuple) else layout
    if layout is not None:
        return str(parse_layout(layout))
    if call["size"] is not None:
        return "bhwc"
    dims, source = call["input_dims"], call["sources"]
    if dims is not None and not callable(dims):
        return _DEFAULT_LAYOUTS.get(1 + np.size(dims), "bhwc")
    data = source.get("x") if isinstance(source, Mapping) else source
    return _DEFAULT_LAYOUTS.get(getattr(data, "ndim", 2), "bhwc")


def _call_text(function: str, pattern: str, options: Mapping[str, Any]) -> str:
    shown = [f'"{pattern}"', *(f"{name}={_code(value)}" for name, value in options.items())]
    return f"{function}({', '.join(shown)})"


def _code(value: Any) -> str:
    """Return Python code of a number, text, array, or a container of these."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_code(key)}: {_code(item)}" for key, item in value.items()) + "}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_code, value))}{',' * (len(value) == 1)})"
    if isinstance(value, list):
        return f"[{', '.join(map(_code, value))}]"
    as_list = getattr(value, "tolist", None)
    return repr(as_list() if as_list else value)

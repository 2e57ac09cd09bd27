"""Validation of the arguments of `sampled_batcher`, which become a `LoaderConfig`.

Also: the samplers of all sources, the Decoder for `size=`, the CollateStep for `collate=`, and
hints for keyword names of other libraries.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np

from ..._utils.random import make_key
from ..._utils.validation import check_bool, check_choice, check_int
from ...collator import Collator
from ...errors import ArgumentError, DataError
from ...layout.parsing import parse_layout, with_batch_axis
from ...layout.pattern import as_shape, check_rank
from ...planning.batch.arguments import CropArgs
from ...planning.batch.random import parse_crops
from ...planning.keywords import batch_cure
from ...planning.resize import FIT_MODES
from ...spec import as_dtype, as_result_dtype
from ...threads.limits import get_num_threads
from ..errors import NoSuchArgument, no_such_argument
from ..formats import is_image_name
from ..io.cache import DiskCache
from ..io.reader import Reader
from ..labels import check_missing
from ..samplers import Sampler, sampler
from ..samplers.sampling import find_kind, full_batch_kind
from ..sources import Index, PartsIndex, open_index
from ..sources.items import ItemProcessor
from .batch import ViewFactory, check_convert, default_layout
from .chunk import RecordPipeline, RecordSource
from .collate import RAGGED, BatchStep, CollateStep, MultiCollateStep, RaggedStep
from .distributed import Shard, check_shardable, parse_shard


@dataclass(frozen=True)
class Arguments:
    """The arguments of `sampled_batcher`, which documents them, before validation."""

    sources: Any
    missing: Any
    batch_size: Any
    sampler: Any
    num_batches: Any
    drop_last: Any
    seed: Any
    shard: Any
    get: Any
    processor: Any
    size: Any
    fit: Any
    input_dims: Any
    batch_dims: Any
    dtype: Any
    layout: Any
    convert: Any
    collate: Any
    offset: Any
    flip: Any
    crop: Any
    scale: Any
    mean: Any
    std: Any
    clip: Any
    on_error: Any
    refill: Any
    timeout: Any
    retries: Any
    prefetch: Any
    num_workers: Any
    progress: Any
    cache_dir: Any
    cache_size: Any
    max_record_bytes: Any

    @property
    def constants(self) -> dict[str, Any]:
        """The constants of a formula that are not None."""
        constants = {"scale": self.scale, "mean": self.mean, "std": self.std, "clip": self.clip}
        return {name: value for name, value in constants.items() if value is not None}


def make_samplers(
    indexes: Sequence[Index], spec: Any, drop_last: Any, size: int, num_batches: Any, seed: Any
) -> list[Sampler]:
    """Return a sampler for each index; raise DataError if a sampler does not fit its index."""
    if isinstance(spec, list | tuple) and not any(isinstance(kind, str | Sampler) for kind in spec):
        find_kind(spec)  # raises: it is a list of positions
    specs = _full_batch_sampler(spec) if check_bool("drop_last", drop_last) else spec
    kinds = specs if isinstance(specs, list | tuple) else [specs] * len(indexes)
    if len(kinds) != len(indexes):
        raise DataError(
            f"there are {len(kinds)} samplers for {len(indexes)} sources; give one for each"
        )
    return [
        _adopt_sampler(kind, index, size, num_batches)
        if isinstance(kind, Sampler)
        else sampler(kind, index, batch_size=size, num_batches=num_batches, seed=seed)
        for kind, index in zip(kinds, indexes, strict=True)
    ]


def _full_batch_sampler(spec: Any) -> Any:
    """Return the kind, or list of kinds, with the order of `spec` and only full batches."""
    if isinstance(spec, list | tuple):
        return [_full_batch_sampler(item) for item in spec]
    if not isinstance(spec, Sampler):
        return full_batch_kind(spec)
    if spec.plan.even or spec.plan.draws:
        return spec
    kind = full_batch_kind(spec.plan.kind)
    raise DataError(f"drop_last=True does not change an existing sampler; make it of kind {kind!r}")


def _adopt_sampler(sampler: Sampler, index: Index, size: int, num_batches: Any) -> Sampler:
    """Return a copy of the caller's sampler with the batch size and number of batches set."""
    plan = sampler.plan
    if plan.material is not index and getattr(plan.item, "__self__", None) is not index:
        raise DataError(
            "the sampler was made for another index; give sampled_batcher the Index object that "
            "the sampler was made for"
        )
    if plan.batch_size not in (None, size):
        raise DataError(
            f"batch_size={size}, but the sampler has batch_size={plan.batch_size}; "
            "omit the sampler's"
        )
    requested = plan.num_batches if num_batches is None else check_int("num_batches", num_batches)
    if requested is None and plan.draws:
        requested = -(-plan.count // size)
    return sampler.with_plan(batch_size=size, num_batches=requested)


def without_end(sampler: Sampler) -> Sampler:
    """Return the sampler without an end if it draws records: the Batcher counts the batches."""
    return sampler.with_plan(num_batches=None) if sampler.plan.draws else sampler


def check_lengths(sources: Sequence[RecordSource], max_batches: int | None, size: int) -> None:
    """Raise DataError unless all sources have as many records per epoch as the first one."""
    first_count = sources[0].order(0).size if max_batches is None else max_batches * size
    for number, source in enumerate(sources[1:], 1):
        count = source.order(0).size
        if source.sampler.plan.draws or None in (first_count, count) or first_count == count:
            continue
        raise DataError(
            f"the first source gives {first_count} records an epoch, but source {number} gives "
            f"{count}; the numbers must be equal, or source {number} needs a sampler that draws"
        )


_IMAGE_LAYOUT = "bhwc"


def with_decoder(args: Arguments) -> Arguments:
    """Return the arguments with a Decoder as the processor, if `size` is set.

    Raises
    ------
    DataError
        Another argument contradicts the result of the Decoder.
    """
    if args.size is None:
        if args.fit is not None:
            raise DataError(f"fit={args.fit!r} has no effect without size; give size as well")
        return args
    fixes = dict.fromkeys(
        ("processor", "input_dims", "batch_dims"), "An images.Decoder can be passed as processor="
    )
    fixes["dtype"] = "To get floats, give scale=, mean= and std=, or convert="
    for name, fix in fixes.items():
        if getattr(args, name) is not None:
            raise DataError(
                f"size= decodes images into uint8 (height, width, 3), which {name}= contradicts; "
                f"give one of them. {fix}"
            )
    # A lazy import: only size= needs it.
    from ...images import Decoder

    fit = "cover" if args.fit is None else check_choice("fit", args.fit, FIT_MODES, ArgumentError)
    decoder = Decoder(args.size, fit)
    if args.collate is not None:
        return replace(args, processor=decoder)  # the Collator crops the decoded images
    return replace(
        args,
        processor=decoder,
        input_dims=decoder.input_dims,
        dtype=np.uint8,
        layout=_image_layouts(args.layout),
    )


def with_image_reader(args: Arguments, indexes: Sequence[Index]) -> Arguments:
    """Return the arguments, with a processor that decodes images if a Collator receives them.

    Raise DataError if batches would hold undecoded images, whose bytes differ in length, or if
    `size` is set for several sources, which one Decoder cannot combine.
    """
    if args.size is not None and len(indexes) > 1:
        raise DataError(
            f"size= decodes the images of one source, but there are {len(indexes)}; give a "
            "processor that combines the results of all of them"
        )
    if args.collate == RAGGED:
        return args
    index = indexes[0]
    is_raw = args.get is None and args.processor is None
    if not is_raw or isinstance(index, PartsIndex) or index.in_memory or not len(index):
        return args
    name = index[0].url
    is_image = name is not None and is_image_name(name)
    if not is_image and not index.has_images:
        return args
    if args.collate is not None:
        from ...images import Reader  # lazy: few Batchers decode images

        return replace(args, processor=Reader())
    content = "is an image" if is_image else "has images"
    raise DataError(
        f"{name} {content}, but encoded bytes are not a row of a batch; decode images with "
        "size=(height, width), or process the bytes with processor="
    )


def _is_reader(processor: Any) -> bool:
    """Return True for an `images.Reader`, which does not use the memory of its results again."""
    if processor is None:
        return False
    from ...images import Reader

    return type(processor) is Reader


def split_decoder(args: Arguments) -> tuple[Arguments, Collator | None]:
    """Return arguments whose processor decodes images, and the Collator that resizes them.

    A call for all images of a batch takes a quarter of the time of calls for each image. Return the
    arguments unchanged, and None, unless the processor is a Decoder that fills rows of bytes.
    """
    if args.processor is None or args.collate is not None or args.input_dims is None:
        return args, None
    from ...images import Decoder, Reader

    decoder = args.processor
    if type(decoder) is not Decoder or decoder.library is not None:
        return args, None
    has_rows = _parse_shape(args.input_dims) == decoder.input_dims
    if not has_rows or args.dtype is None or as_dtype(args.dtype) != np.uint8:
        return args, None
    return replace(args, processor=Reader(decoder.min_size)), decoder.collator()


def _image_layouts(layout: Any) -> Any:
    """Return the layout argument, with the layout of images filled in."""
    pair = _layout_pair(layout)
    if pair[0] not in (None, _IMAGE_LAYOUT):
        raise DataError(
            f"layout={layout!r}, but decoded images are {_IMAGE_LAYOUT}; a batch converts "
            f"them to any other: batch.input.forward_get({pair[0]!r})"
        )
    return _IMAGE_LAYOUT, pair[1]


def with_spare_threads(collator: Collator, workers: int) -> Collator:
    """Return the Collator with the threads that the workers leave, unless it has a number.

    Workers read the next records while a batch is made.
    """
    if not workers or collator.windows.convert.threads is not None:
        return collator
    threads = max(1, get_num_threads() - workers)
    return Collator(collator.pattern, **collator.windows.keywords(), threads=threads)


def make_batch_step(
    args: Arguments, resizer: Collator | None, workers: int, seed: int
) -> BatchStep | None:
    """Return the step that makes batches of results of any size; None if results are rows.

    `resizer` is the Collator for `size=`.

    Raises
    ------
    ArgumentError
        `offset`, `flip` or `crop` is malformed, or "random" has no axis to apply to.
    """
    if args.collate == RAGGED:
        return RaggedStep()
    if args.collate is None and resizer is None:
        return None
    collators = [resizer] if args.collate is None else _as_tuple(args.collate)
    # The windows of each Collator are at random places of their own.
    seeds = [seed, *(make_key("collate", seed, number) for number in range(1, len(collators)))]
    steps = tuple(
        _make_collate_step(args, with_spare_threads(collator, workers), seed_)
        for collator, seed_ in zip(collators, seeds, strict=True)
    )
    return MultiCollateStep(steps) if isinstance(args.collate, list | tuple) else steps[0]


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _make_collate_step(args: Arguments, collator: Collator, seed: int) -> CollateStep:
    options = collator.windows
    axes = options.crop_axes(options.convert.pattern.left.ndim - 1)
    crops = {name: getattr(args, name) for name in CropArgs._fields}
    own = {name: value for name, value in options.crops.keywords().items() if name in crops}
    merged = crops | own | {name: value for name, value in crops.items() if value is not None}
    return CollateStep(collator, parse_crops(axes, **merged, seed=seed))


_NOT_FOR_RAGGED = (
    "size", "input_dims", "batch_dims", "dtype", "convert", "scale", "mean", "std", "clip",
    "offset", "flip", "crop",
)  # fmt: skip


def check_collate(args: Arguments) -> None:
    """Raise DataError if a Collator does not accept single results, or options conflict.

    Raise ArgumentError for `offset`, `flip` or `crop` without a Collator.
    """
    if args.collate is None:
        for name in ("offset", "flip", "crop"):
            if getattr(args, name) is not None:
                raise ArgumentError(
                    f"{name}={getattr(args, name)!r} applies to the windows of a Collator; give "
                    "collate=layoutkit.Collator(...) as well"
                )
        return
    if isinstance(args.collate, str) and args.collate == RAGGED:
        options = {name: getattr(args, name) for name in _NOT_FOR_RAGGED}
        for name, value in {**options, "layout": _layout_pair(args.layout)[0]}.items():
            if value is not None:
                raise DataError(
                    f'collate="ragged" joins results as they are, so {name}={value!r} has no '
                    "effect; convert results in the processor"
                )
        return
    collators = _as_tuple(args.collate)
    if not collators:
        raise DataError("collate is an empty list; give one Collator or more")
    for collator in collators:
        _check_collator(args, collator)


def _check_collator(args: Arguments, collator: Any) -> None:
    if not isinstance(collator, Collator):
        raise DataError(
            f'collate is {collator!r}; give a Collator("hwc->bchw", h=224, w=224, ...), a list of '
            'them, or "ragged"'
        )
    if collator.windows.whole:
        raise DataError(
            f'collate needs one array of all samples ("{collator.pattern}"), but results are '
            "separate samples; remove b on the left of its pattern"
        )
    target = collator.windows.convert.pattern.target
    if "b" not in target.groups or target.names or "..." in str(target):
        raise DataError(
            f'batches of collate="{collator.pattern}" are {target}, but a batch is a View, whose '
            "layout has one letter per axis, including b; correct the right side of the pattern"
        )
    fix_size = "the Collator accepts results of any size; omit it"
    fix_collator = "give it to the Collator"
    fixes = {
        "input_dims": fix_size,
        "batch_dims": fix_size,
        "dtype": fix_collator,
        "convert": fix_collator,
    }
    for name, fix in {**fixes, **dict.fromkeys(args.constants, fix_collator)}.items():
        if getattr(args, name) is not None:
            raise DataError(f"pass either collate or {name}, not both; {fix}")
    layout, _ = _layout_pair(args.layout)
    if layout is not None and str(layout) != collated_layout(collator):
        raise DataError(
            f'layout={layout!r}, but batches of collate="{collator.pattern}" are '
            f"{collated_layout(collator)}; give that layout, or omit it"
        )


def collated_layout(collator: Collator) -> str:
    """Return the layout of a Collator's batches."""
    return str(collator.windows.convert.pattern.target)


_MAX_WORKERS = 4
_MOST_WORKERS = 4096  # threads that a caller may ask for; each has a stack
CACHE_SIZE = 10 * 2**30  # bytes of files in `cache_dir`, by default
# Bases of samplers whose order depends on the batch size.
_SLICED = ("batchwise_shuffled_sequential", "random_slice")

Shape = tuple[int, ...]


class ViewFactories(NamedTuple):
    """The factories of Views of a batch's arrays. `inputs` has one for each Collator, or one."""

    inputs: tuple[ViewFactory, ...]
    target: ViewFactory
    labels: ViewFactory


@dataclass(frozen=True)
class LoaderConfig:
    """The validated configuration of a Batcher, or of another BatchLoop.

    max_batches : int       batches in an epoch, if the sampler draws records; else None
    dims : callable         returns the shape of a record in batch k; None if it is not specified
    view_factories          None if the loop makes the Views itself
    shard : Shard           the part of each step that belongs to this process; None: all of it
    chunk_seconds : float   the time for which a thread draws records, if each is known to be
                            expensive
    """

    sources: tuple[RecordSource, ...]
    pipeline: RecordPipeline
    reader: Reader
    batch_size: int
    prefetch: int
    num_workers: int
    max_batches: int | None = None
    dims: Callable[[int], Shape | None] = lambda _: None
    view_factories: Any = None  # ViewFactories
    refill: bool = False
    progress: bool = False
    shard: Shard | None = None
    chunk_seconds: float | None = None

    @property
    def draws(self) -> bool:
        """True if the sampler draws records, so that its order has no end."""
        return self.max_batches is not None

    @property
    def has_one_spec(self) -> bool:
        """True if the first batch decides the shape and dtype of all records.

        Batches of one record, and batches of a sampler by length, decide for themselves.
        """
        is_by_length = any(source.sampler.plan.base == "even_sequences" for source in self.sources)
        has_equal_rows = self.pipeline.processor is None and self.sources[0].direct
        return self.batch_size > 1 and not is_by_length and not has_equal_rows

    @property
    def identity(self) -> dict[str, int | str]:
        """The entries of a state that must be equal for loading it."""
        plans = [source.sampler.plan for source in self.sources]
        return {
            "kind": "+".join(plan.kind for plan in plans),
            "seed": "+".join(str(plan.seed) for plan in plans) if len(plans) > 1 else plans[0].seed,
            "batch_size": self.batch_size,
            "partition": plans[0].partition,
        }

    @property
    def allows_other_batch_size(self) -> bool:
        """True if a state of another batch size can be loaded: the order does not depend on it."""
        plans = [source.sampler.plan for source in self.sources]
        return self.shard is not None and not any(plan.base in _SLICED for plan in plans)


def make_config(args: Arguments) -> LoaderConfig:
    """Return the configuration for these arguments.

    Raises
    ------
    DataError, ShapeError, DtypeError, PatternError
        An argument is invalid, or two contradict each other.
    """
    args = replace(args, layout=_with_batch_axes(args.layout))
    check_collate(args)
    args = with_decoder(args)
    size = check_int("batch_size", args.batch_size, 1)
    _check_callable("processor", args.processor)
    dims = _parse_dims(args.input_dims, args.batch_dims)
    layouts = _row_layouts(args)
    _check_ranks(args.input_dims, layouts[0])
    indexes = _open_indexes(args.sources, args.missing)
    args = with_image_reader(args, indexes)
    _check_processor(args.processor, len(indexes))
    if len(indexes) > 1 and args.processor is None:
        raise DataError(
            f"{len(indexes)} sources need a processor that joins their results; files that follow "
            'one another are one source by wildcards: "p*.rec", "p{0..7}.tar"; arrays of one '
            "source are Dataset({'input': arrays})"
        )
    shard, samplers = _make_shard(args, indexes, size)
    workers, timeout = parse_workers(args.num_workers, args.timeout)
    args, resizer = split_decoder(args)
    batch_step = make_batch_step(args, resizer, workers, samplers[0].plan.seed)
    strict = check_choice("on_error", args.on_error, ("drop", "raise")) == "raise"
    refill = check_bool("refill", args.refill)
    max_batches = samplers[0].plan.num_batches if samplers[0].plan.draws else None
    if shard is not None and max_batches is not None:
        max_batches = -(-max_batches // shard.world) * shard.world
    if refill and samplers[0].plan.base == "even_sequences":
        raise DataError("refill=True would mix sequences of different lengths in a batch; omit it")
    reader = _make_reader(args)
    sources = tuple(
        RecordSource(index, without_end(sampler), get, index.getter(reader))
        for index, sampler, get in zip(
            indexes, samplers, _parse_getters(args.get, indexes), strict=True
        )
    )
    check_lengths(sources, max_batches, size)
    return LoaderConfig(
        sources=sources,
        pipeline=RecordPipeline(
            sources,
            _with_targets(args.processor, sources),
            _parse_dtype(args.dtype),
            timeout,
            strict,
            batch_step,
            owns_results=_is_reader(args.processor),
        ),
        reader=reader,
        batch_size=size,
        max_batches=max_batches,
        dims=dims,
        view_factories=_make_view_factories(args, layouts, indexes[0]),
        refill=refill,
        prefetch=check_int("prefetch", args.prefetch),
        num_workers=workers,
        progress=check_bool("progress", args.progress),
        shard=shard,
    )


def _with_targets(processor: Any, sources: Sequence[RecordSource]) -> Any:
    """Return the processor; for items of one source, one that keeps their targets."""
    is_pair = len(sources) == 1 and sources[0].gives_targets
    return processor if processor is None or not is_pair else ItemProcessor(processor)


def _make_shard(
    args: Arguments, indexes: list[Index], size: int
) -> tuple[Shard | None, list[Sampler]]:
    """Return the shard, and a sampler for each index, which orders the records of all shards."""
    shard = parse_shard(args.shard)
    num_batches = args.num_batches
    if shard is not None and num_batches is not None:
        num_batches = check_int("num_batches", num_batches) * shard.world
    samplers = make_samplers(indexes, args.sampler, args.drop_last, size, num_batches, args.seed)
    if shard is not None:
        check_shardable(indexes, samplers, args.refill)
    return shard, samplers


def _make_view_factories(
    args: Arguments, layouts: tuple[str | None, str | None], index: Index
) -> ViewFactories:
    conversion = {"convert": args.convert, "constants": args.constants}
    is_list = isinstance(args.collate, list | tuple)
    names = [collated_layout(collator) for collator in args.collate] if is_list else layouts[:1]
    return ViewFactories(
        tuple(ViewFactory(name, "the input of a batch", **conversion) for name in names),
        ViewFactory(layouts[1], "the target of a batch"),
        ViewFactory("b", "the labels of a batch", index.labels or None),
    )


def _open_indexes(sources: Any, missing: Any) -> list[Index]:
    is_list = isinstance(sources, list | tuple)
    if is_list and any(isinstance(source, Index) for source in sources):
        return [_open_or_take(source, missing) for source in sources]
    opened = _open_or_take(sources, missing)
    return opened if isinstance(opened, list) else [opened]


def _open_or_take(source: Any, missing: Any) -> Any:
    if not isinstance(source, Index):
        return open_index(source, missing=missing)
    if check_missing(missing) != "error":
        raise DataError(
            f"missing={missing!r}, but the source is an Index, whose labels have been read; give "
            "it to open_index"
        )
    return source


def _parse_getters(getters: Any, indexes: Sequence[Index]) -> list[Any]:
    getter_list = list(getters) if isinstance(getters, list | tuple) else [getters] * len(indexes)
    if len(getter_list) != len(indexes):
        raise DataError(
            f"there are {len(getter_list)} getters for {len(indexes)} sources; give one for each"
        )
    for get in getter_list:
        _check_callable("get", get)
    return getter_list


def _parse_dims(input_dims: Any, batch_dims: Any) -> Callable[[int], Shape | None]:
    """Return a function that maps the number of a batch to the shape of its records."""
    if input_dims is not None and batch_dims is not None:
        raise DataError("pass either input_dims or batch_dims, not both")
    if batch_dims is not None:
        _check_callable("batch_dims", batch_dims)
        return lambda number: _parse_shape(batch_dims(number))
    shape = None if input_dims is None else _parse_shape(input_dims)
    return lambda _: shape


def _parse_shape(dims: Any) -> Shape:
    return as_shape((int(dims),) if isinstance(dims, int | np.integer) else dims)


def _with_batch_axes(layout: Any) -> Any:
    """Return a layout, or a tuple of them, in which the batch axis n is called b."""
    if isinstance(layout, list | tuple):
        return tuple(map(_with_batch_axes, layout))
    return None if layout is None else str(with_batch_axis(parse_layout(layout)))


def _layout_pair(layout: Any) -> tuple[str | None, str | None]:
    """Return the layouts of the input and of the target, as they were given."""
    pair = layout if isinstance(layout, list | tuple) else (layout, None)
    if len(pair) != 2:
        raise DataError(f"layout has {len(pair)} parts; give one for the input, or (input, target)")
    return pair[0], pair[1]


def _row_layouts(args: Arguments) -> tuple[str | None, str | None]:
    """Return the layouts of the rows and of their targets."""
    pair = _layout_pair(args.layout)
    for layout_ in pair:
        if layout_ is not None and parse_layout(layout_).groups[0] != "b":
            raise DataError(
                f"layout {layout_!r} does not begin with b; batches are filled row by row"
            )
    if args.collate == RAGGED:
        return None, pair[1]
    if args.collate is not None:
        return collated_layout(_as_tuple(args.collate)[0]), pair[1]
    check_convert(args.convert, pair[0], args.constants)
    if args.convert is None:
        return pair[0], pair[1]
    left = with_batch_axis(args.convert.options.pattern.source)
    if left.groups[0] != "b":
        raise DataError(f"convert needs {left}, but rows begin with b; begin its pattern with b")
    return str(left), pair[1]


def _check_ranks(input_dims: Any, layout: str | None) -> None:
    """Raise if the layout of the input does not fit the shape of records."""
    if input_dims is None:
        return
    shape = (1, *_parse_shape(input_dims))
    check_rank(parse_layout(layout or default_layout(len(shape), "the input of a batch")), shape)


def parse_workers(num_workers: Any, timeout: Any = None) -> tuple[int, float | None]:
    """Return the number of threads, and the timeout of a record in seconds (or None)."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = (
        min(_MAX_WORKERS, cpus) if num_workers is None else check_int("num_workers", num_workers)
    )
    if workers > _MOST_WORKERS:
        raise DataError(f"num_workers={workers}; give at most {_MOST_WORKERS} threads")
    if timeout is None:
        return workers, None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise DataError(f"timeout={timeout!r}; it must be a number of seconds above 0, or None")
    if not workers:
        raise DataError(
            f"timeout={timeout} needs threads, since the caller's thread cannot be interrupted; "
            "give num_workers of at least 1"
        )
    return workers, timeout


def _make_reader(args: Arguments) -> Reader:
    size = check_int("cache_size", args.cache_size)
    folder = args.cache_dir
    if folder is None and size != CACHE_SIZE:
        raise DataError(f"cache_size={size} limits the folder cache_dir=; give that folder, too")
    if not isinstance(folder, str | os.PathLike | None):
        raise DataError(f"cache_dir={folder!r}; it must be the path of a folder, or None")
    cache = None if folder is None else DiskCache.at(folder, size)
    max_bytes = args.max_record_bytes
    max_bytes = None if max_bytes is None else check_int("max_record_bytes", max_bytes)
    return Reader(check_int("retries", args.retries), cache, max_bytes)


def _parse_dtype(dtype: Any) -> Any:
    return None if dtype is None else as_result_dtype(dtype)


def _check_callable(name: str, value: Any) -> None:
    if value is not None and not callable(value):
        raise DataError(f"{name} is {value!r}, which is not callable; give a function")


def _check_processor(processor: Any, sources: int) -> None:
    """Raise DataError if a function cannot be called as `processor(*results, out=out)`."""
    if processor is None:
        return
    try:
        inspect.signature(processor).bind(*[None] * sources, out=None)
    except TypeError as error:
        raise DataError(
            f"processor is called as processor({', '.join(['data'] * sources)}, out=row), where "
            f"row is None without input_dims; {processor!r} does not accept that: {error}"
        ) from None
    except ValueError:  # a builtin without a signature
        pass


_LABELS = 'the labels with the source: {"x": paths, "y": labels}'
_OF_COLLATOR = 'collate=Collator("hwc->bchw", h=224, w=224, resize="bilinear", '
# Equivalents of the keywords of PyTorch, Keras, tf.data, grain, DALI and MXNet.
_ARGUMENT_HINTS = {
    "antialias": _OF_COLLATOR + "antialias=False)",
    "augment": "processor=layoutkit.images.Augmenter(...), or crop= and flip= with collate=",
    "epochs": "a loop for each epoch: every `for batch in batches` is the next one",
    "batch_sampler": "sampler= and batch_size=, the order and the size of batches",
    "casting": 'convert=Converter("bhwc->bhwc", dtype="uint8", casting="saturate")',
    "channels": 'collate=Collator("hwc->bchw", h=224, w=224, channels=(2, 1, 0))',
    "class_names": _LABELS,
    "classes": _LABELS,
    "collate_fn": "processor=, which makes a row from a record; collate= joins rows of many sizes",
    "crop": 'collate=Collator("hwc->bchw", h=224, w=224), and offset="random"',
    "copy": "nothing: every batch has memory of its own",
    "device": 'batch.input.forward_get(layout, dtype, device="cuda"), which copies to the GPU',
    "drop_remainder": "drop_last=True",
    "fill": 'collate=Collator("hwc->bchw", h=224, w=224, fill=0)',
    "interpolation": _OF_COLLATOR[:-2] + ")",
    "labels": _LABELS,
    "generator": "seed=; an order is a function of seed, epoch and position",
    "image_size": "size=, (height, width) of images",
    "memory": 'collate=Collator("hwc->bchw", h=224, w=224, memory="bhwc")',
    "multiprocessing_context": "num_workers=, the number of threads",
    "num_epochs": "a loop for each epoch: every `for batch in batches` is the next one",
    "num_parts": "open_index(source, partition=p, partitions=P) as the source",
    "num_replicas": "shard=(rank, world)",
    "num_shards": "shard=(rank, world)",
    "num_threads": "num_workers=, the number of threads",
    "pad_to": 'collate=Collator("hwc->bchw", h=640, w=640, fill=0)',
    "persistent_workers": "nothing: threads live until close(), over all epochs",
    "pin_memory": 'batch.input.forward_get(layout, dtype, device="cuda"), which pins memory',
    "prefetch_buffer_size": "prefetch=, in batches",
    "prefetch_factor": "prefetch=, in batches, for all threads together",
    "rand_crop": 'offset="random", of the windows that collate= crops',
    "rand_mirror": 'flip="random", of the windows that collate= crops',
    "random_crop": 'offset="random", of the windows that collate= crops',
    "random_flip": 'flip="random", of the windows that collate= crops',
    "random_state": "seed=; an order is a function of seed, epoch and position",
    "rank": "shard=(rank, world)",
    "resize": 'collate=Collator("hwc->bchw", h=224, w=224, resize="bilinear"), or size=',
    "repeat": "a loop for each epoch: every `for batch in batches` is the next one",
    "short_side": _OF_COLLATOR + "short_side=256)",
    "shuffle": 'sampler="shuffle", each record once in random order',
    "shuffle_buffer_size": 'sampler="shuffle", which needs no buffer',
    "target_size": "size=, (height, width) of images",
    "transform": "processor=, called with the data of a record and out=",
    "use_multiprocessing": "num_workers=, the number of threads",
    "weights": 'sampler=layoutkit.data.sampler("label-distribution", index, weights=...)',
    "worker_init_fn": "num_workers=, the number of threads of this process",
    "workers": "num_workers=, the number of threads",
    "world_size": "shard=(rank, world)",
}


def check_names(keywords: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise NoSuchArgument for the first unknown keyword; the message names its equivalent."""
    for name, value in keywords.items():
        close = get_close_matches(name, _ARGUMENT_HINTS, 1, 0.85)
        if close and name not in _ARGUMENT_HINTS and not get_close_matches(name, known, 1, 0.85):
            raise NoSuchArgument(
                f"sampled_batcher has no {name}=, nor {close[0]}=; give {_ARGUMENT_HINTS[close[0]]}"
            )
        if name in _ARGUMENT_HINTS:
            raise NoSuchArgument(f"sampled_batcher has no {name}=; give {_ARGUMENT_HINTS[name]}")
        cure = None if get_close_matches(name, known, 1, 0.85) else batch_cure(name, value)
        if cure is not None:
            raise NoSuchArgument(
                f"sampled_batcher has no {name}=; give collate=Collator(...), in whose words {cure}"
            )
        raise no_such_argument("sampled_batcher", name, known)

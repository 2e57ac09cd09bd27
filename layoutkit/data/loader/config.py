"""The arguments of `sampled_batcher`, checked, and what is made of them.

Beside `arguments.py` it alone knows all of them; the others take what it makes of them.

The arguments of `sampled_batcher` as they were given.

The orders of a Batcher: a sampler for each of its sources.

Knows samplers and what was asked of them; what is made of records is not known here.

Words for the arguments of `sampled_batcher` that other libraries use, and what they are here.

Knows names; what an argument does is not known here.

The keywords of `sampled_batcher` for pictures: what `size` and `fit` stand for.

Knows the arguments, and that bytes of pictures make no batch; a Decoder makes pixels of them.

The keywords of `sampled_batcher` for results of any size: `collate`, `offset` and `flip`.

Knows the arguments, and what a Collator can cut; what is drawn is known by `joining.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np

from ..._utils.validation import as_count, as_flag, as_int, as_word
from ...collator import Collator
from ...errors import ArgumentError, DataError
from ...layout.parsing import parse_layout
from ...layout.pattern import as_shape, axis_name, check_rank
from ...spec import as_dtype, check_movable
from ..errors import NoSuchArgument, no_such_argument
from ..formats import PICTURES, suffix_of
from ..io.cache import DiskCache
from ..io.reader import Reader
from ..samplers import Sampler, sampler
from ..samplers.sampling import full_batch_kind
from ..sources import Index, PartsIndex, open_index
from .batch import Viewer, check_convert, default_layout
from .chunk import Feed, Work
from .collate import RANDOM, Joining
from .distributed import Shard, check_shared, shard_of


@dataclass(frozen=True)
class Arguments:
    """The arguments of `sampled_batcher`, which says what they mean; nothing is checked yet."""

    sources: Any
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
        """Those of a formula that are given."""
        found = {"scale": self.scale, "mean": self.mean, "std": self.std, "clip": self.clip}
        return {name: value for name, value in found.items() if value is not None}


def samplers_of(
    indexes: Sequence[Index], given: Any, drop_last: Any, size: int, num_batches: Any, seed: Any
) -> list[Sampler]:
    """A sampler for each index; DataError where one cannot be had, or is for something else."""
    named = _full(given) if as_flag("drop_last", drop_last) else given
    kinds = named if isinstance(named, list | tuple) else [named] * len(indexes)
    if len(kinds) != len(indexes):
        raise DataError(f"there are {len(kinds)} samplers for {len(indexes)} sources; give as many")
    return [
        _adopted(kind, index, size, num_batches)
        if isinstance(kind, Sampler)
        else sampler(kind, index, batch_size=size, num_batches=num_batches, seed=seed)
        for kind, index in zip(kinds, indexes, strict=True)
    ]


def _full(given: Any) -> Any:
    """The sampler of this kind, or of each of a list, of which all batches are full."""
    if isinstance(given, list | tuple):
        return [_full(each) for each in given]
    if not isinstance(given, Sampler):
        return full_batch_kind(given)
    if given.plan.even or given.plan.draws:
        return given
    kind = full_batch_kind(given.plan.kind)
    raise DataError(f"drop_last=True, but the sampler is made already; make it of kind {kind!r}")


def _adopted(given: Sampler, index: Index, size: int, num_batches: Any) -> Sampler:
    """A copy of the caller's sampler that has our batch size."""
    plan = given.plan
    if plan.material is not index and getattr(plan.item, "__self__", None) is not index:
        raise DataError(
            "the sampler is over another index; give sampled_batcher the very Index that the "
            "sampler was made for"
        )
    if plan.batch_size not in (None, size):
        raise DataError(
            f"batch_size={size}, but the sampler has batch_size={plan.batch_size}; leave the "
            "sampler's out"
        )
    asked = plan.num_batches if num_batches is None else as_count("num_batches", num_batches)
    if asked is None and plan.draws:
        asked = -(-plan.count // size)
    return given.with_plan(batch_size=size, num_batches=asked)


def endless(sampler: Sampler) -> Sampler:
    """A sampler that draws goes on without end: how many batches are made, the Batcher counts."""
    return sampler.with_plan(num_batches=None) if sampler.plan.draws else sampler


def check_lengths(feeds: Sequence[Feed], limit: int | None, size: int) -> None:
    """DataError unless all sources last as long as the first one."""
    first = feeds[0].order(0).size if limit is None else limit * size
    for number, feed in enumerate(feeds[1:], 1):
        other = feed.order(0).size
        if feed.sampler.plan.draws or None in (first, other) or first == other:
            continue
        raise DataError(
            f"the first source gives {first} records an epoch, but source {number} gives {other}; "
            f"they must give as many, or source {number} needs a sampler that draws"
        )


_LAYOUT = "bhwc"


def with_decoder(given: Arguments) -> Arguments:
    """The arguments with a Decoder as the processor, where a size of pictures is given.

    Raises
    ------
    DataError
        Another argument says otherwise what a record becomes.
    """
    if given.size is None:
        if given.fit is not None:
            raise DataError(f"fit={given.fit!r} says how pictures become one size; give size, too")
        return given
    fixes = dict.fromkeys(
        ("processor", "input_dims", "batch_dims"), "A pictures.Decoder is a processor, too"
    )
    fixes["dtype"] = "Floats are made by scale=, mean= and std=, or by convert=, of each batch"
    for name, fix in fixes.items():
        if getattr(given, name) is not None:
            raise DataError(
                f"size= decodes pictures into uint8 (height, width, 3), and {name}= says otherwise "
                f"what a record becomes; give one of them. {fix}"
            )
    # Here, as its module is for pictures, and few records are.
    from ...images import Decoder

    decoder = Decoder(given.size, given.fit or "cover")
    if given.collate is not None:
        return replace(given, processor=decoder)  # which cuts windows of what is decoded
    return replace(
        given,
        processor=decoder,
        input_dims=decoder.input_dims,
        dtype=np.uint8,
        layout=_layout(given.layout),
    )


def check_decoded(given: Arguments, indexes: Sequence[Index]) -> None:
    """Raise DataError where batches would be of the bytes of pictures, each of another length.

    Or where there are several sources of pictures, which are no row either.
    """
    if given.size is not None and len(indexes) > 1:
        raise DataError(
            f"size= decodes the pictures of one source, and there are {len(indexes)}; give a "
            "processor that makes a row of what all of them have"
        )
    index = indexes[0]
    read = given.get is None and given.processor is None
    if not read or isinstance(index, PartsIndex) or index.in_memory or not len(index):
        return
    name = index[0].url
    is_picture = name is not None and suffix_of(name) in PICTURES
    if not is_picture and not index.of_pictures:
        return
    is_one = "is a picture" if is_picture else "has pictures"
    if given.collate is not None:
        raise DataError(
            f"{name} {is_one}, and collate takes pixels; processor=lambda data, out: "
            "layoutkit.images.read(data) decodes it"
        )
    raise DataError(
        f"{name} {is_one}, whose bytes are no row of a batch; size=(height, width) decodes "
        "pictures, and processor= takes bytes"
    )


def _layout(layout: Any) -> Any:
    """What layouts are given, with that of pictures where there is none."""
    pair = tuple(layout) if isinstance(layout, list | tuple) else (layout, None)
    if pair[0] not in (None, _LAYOUT):
        raise DataError(
            f"layout={layout!r}, but pictures are {_LAYOUT}, as they are decoded; a batch gives "
            f"them in any other: batch.input.forward_get({pair[0]!r})"
        )
    return (_LAYOUT, *pair[1:])


_MIRRORED = ("w", "width")  # along which flip="random" turns


def joining_of(given: Arguments, seed: Any) -> Joining | None:
    """What makes batches of results, None where they are rows of one size.

    Raises
    ------
    ArgumentError
        `offset` or `flip` is not of its form, or there is nothing to draw from.
    """
    collator = given.collate
    if collator is None:
        return None
    windows = collator.windows
    axes = windows.completed(windows.task.pattern.left.ndim - 1)
    places = axes.places()
    if windows.channels is not None:
        del places["c"]
    cut = [name for name, at in places.items() if axes.windowed[at] is not None]
    offset = _offsets(given.offset, [*places], cut, collator.pattern)
    return Joining(collator, offset, _flips(given.flip, [*places], collator.pattern), seed)


def check_collate(given: Arguments) -> None:
    """Raise unless a Collator takes results one by one, and nothing else says what batches are.

    Raises DataError, and ArgumentError for what is said of windows that nobody cuts.
    """
    collator = given.collate
    if collator is None:
        for name in ("offset", "flip"):
            if getattr(given, name) is not None:
                raise ArgumentError(
                    f"{name}={getattr(given, name)!r} is of the windows that a Collator cuts; give "
                    "collate=layoutkit.Collator(...), too"
                )
        return
    if not isinstance(collator, Collator):
        raise DataError(f'collate is {collator!r}; give a Collator("hwc->bchw", h=224, w=224, ...)')
    if collator.windows.whole:
        raise DataError(
            f'collate takes one array in "{collator.pattern}", but results come one by one; leave '
            "b away on the left of its pattern"
        )
    to = collator.windows.task.pattern.target
    if "b" not in to.groups or to.names or "..." in str(to):
        raise DataError(
            f'batches of collate="{collator.pattern}" are {to}, but a batch is a View, whose '
            "layout is one letter an axis, b one of its own; say so on the right of the pattern"
        )
    fixed = "it makes a batch of results of any size; leave that away"
    made = "give it to the Collator"
    fixes = {"input_dims": fixed, "batch_dims": fixed, "dtype": made, "convert": made}
    for name, fix in {**fixes, **dict.fromkeys(given.constants, made)}.items():
        if getattr(given, name) is not None:
            raise DataError(f"collate and {name} are two answers to one question; {fix}")
    layout = given.layout[0] if isinstance(given.layout, list | tuple) else given.layout
    if layout is not None and str(layout) != collated_layout(collator):
        raise DataError(
            f'layout={layout!r}, but batches of collate="{collator.pattern}" are '
            f"{collated_layout(collator)}; give that, or leave it out"
        )


def collated_layout(collator: Collator) -> str:
    """The layout of the batches of a Collator."""
    return str(collator.windows.task.pattern.target)


def _offsets(given: Any, names: list[str], cut: list[str], pattern: str) -> dict[str, Any]:
    """Where windows begin, by axis; a word for all is one for each axis that has a window."""
    asked: dict[str, Any] = (
        dict.fromkeys(cut, RANDOM) if given == RANDOM else _by_axis("offset", given, names)
    )
    for name, value in asked.items():
        number = as_int(value)
        if number is not None:
            asked[name] = number
            continue
        _check_random(f"offset[{name!r}]", value, "or a whole number")
        if name not in cut:
            raise _no_window(f"offset={given!r}", pattern, [name])
        asked[name] = RANDOM
    if given == RANDOM and not asked:
        raise _no_window(f"offset={given!r}", pattern, names or ["h", "w"])
    return asked


def _flips(given: Any, names: list[str], pattern: str) -> dict[str, Any]:
    """Which axes are reversed."""
    if given == RANDOM:
        given = {name: RANDOM for name in names if name in _MIRRORED}
        if not given:
            raise ArgumentError(
                f'flip="random" turns around along w, and "{pattern}" has no such axis; name one '
                f'of {", ".join(names) or "its own"}, as in flip={{"h": "random"}}'
            )
    if isinstance(given, str) and axis_name(given) in names:
        given = {given: True}
    asked = _by_axis("flip", given, names)
    for name, value in asked.items():
        if not isinstance(value, bool | np.bool_):
            _check_random(f"flip[{name!r}]", value, "or True or False")
            asked[name] = RANDOM
    return asked


def _by_axis(what: str, given: Any, names: list[str]) -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, str):
        _check_random(what, given, "or a dict by axis")
    if not isinstance(given, Mapping):
        raise ArgumentError(
            f'{what}={given!r}; it is "random", or a dict such as {{"w": "random"}}'
        )
    found = {axis_name(name): value for name, value in given.items()}
    for name in found:
        if name not in names:
            raise ArgumentError(
                f"{what}={given!r}, but {name!r} is no axis that windows are cut along; these are "
                f"{', '.join(names)}"
            )
    return found


def _check_random(what: str, value: Any, others: str) -> None:
    if isinstance(value, str) and value == RANDOM:
        return
    close = isinstance(value, str) and get_close_matches(value.lower(), [RANDOM, "rand"], 1, 0.5)
    hint = '; did you mean "random"?' if close else ""
    raise ArgumentError(f'{what} is {value!r}; it is "random", {others}{hint}')


def _no_window(what: str, pattern: str, names: list[str]) -> ArgumentError:
    sizes = ", ".join(f"{name}=224" for name in names)
    return ArgumentError(
        f'{what} draws where windows begin, but Collator("{pattern}") has no window along '
        f"{', '.join(names)}: all of it is taken; give it one, as in {sizes}"
    )


_MOST_WORKERS = 4
_SLICED = ("batchwise_shuffled_sequential", "random_slice")  # orders of slices of that size

Shape = tuple[int, ...]


class Viewers(NamedTuple):
    """What makes Views of a batch's arrays."""

    input: Viewer
    target: Viewer
    labels: Viewer


@dataclass(frozen=True)
class Settings:
    """What a Batcher works with.

    limit : int       batches in an epoch of a kind that draws; None: the epoch ends by itself
    dims : callable   the shape of a record in batch k, or None
    shard : Shard     which records of each step are ours; None: all
    """

    feeds: tuple[Feed, ...]
    work: Work
    reader: Reader
    batch_size: int
    limit: int | None
    dims: Callable[[int], Shape | None]
    viewers: Viewers
    refill: bool
    prefetch: int
    num_workers: int
    progress: bool
    shard: Shard | None

    @property
    def draws(self) -> bool:
        """Whether the order has no end of its own."""
        return self.limit is not None

    @property
    def identity(self) -> dict[str, int | str]:
        """What a state must agree with."""
        plans = [feed.sampler.plan for feed in self.feeds]
        return {
            "kind": "+".join(plan.kind for plan in plans),
            "seed": "+".join(str(plan.seed) for plan in plans) if len(plans) > 1 else plans[0].seed,
            "batch_size": self.batch_size,
            "partition": plans[0].partition,
        }

    @property
    def resizes(self) -> bool:
        """Whether a state may be of another batch size: ranks share an order that has none."""
        plans = [feed.sampler.plan for feed in self.feeds]
        return self.shard is not None and not any(plan.base in _SLICED for plan in plans)


def settings_of(given: Arguments) -> Settings:
    """What a Batcher works with, made of these arguments.

    Raises
    ------
    DataError, ShapeError, DtypeError, PatternError
        An argument is wrong, or two do not fit together.
    """
    check_collate(given)
    given = with_decoder(given)
    size = as_count("batch_size", given.batch_size, 1)
    _check_callable("processor", given.processor)
    dims, layouts = _dims(given.input_dims, given.batch_dims), _layouts(given)
    _check_ranks(given.input_dims, layouts[0])
    indexes = _indexes(given.sources)
    check_decoded(given, indexes)
    if len(indexes) > 1 and given.processor is None:
        raise DataError(f"{len(indexes)} sources need a processor that joins their results")
    shard, samplers = _shared(given, indexes, size)
    workers, timeout = workers_of(given.num_workers, given.timeout)
    join = joining_of(given, samplers[0].plan.seed)
    strict = as_word("on_error", given.on_error, ("drop", "raise")) == "raise"
    refill = as_flag("refill", given.refill)
    limit = samplers[0].plan.num_batches if samplers[0].plan.draws else None
    if shard is not None and limit is not None:
        limit = -(-limit // shard.world) * shard.world
    if refill and samplers[0].plan.base == "even_sequences":
        raise DataError("refill=True would put sequences of other lengths into a batch; leave it")
    reader = _reader(given)
    feeds = tuple(
        Feed(index, endless(each), get, index.getter(reader))
        for index, each, get in zip(indexes, samplers, _getters(given.get, indexes), strict=True)
    )
    check_lengths(feeds, limit, size)
    return Settings(
        feeds=feeds,
        work=Work(feeds, given.processor, _dtype(given.dtype), timeout, strict, join),
        reader=reader,
        batch_size=size,
        limit=limit,
        dims=dims,
        viewers=_viewers(given, layouts, indexes[0]),
        refill=refill,
        prefetch=as_count("prefetch", given.prefetch),
        num_workers=workers,
        progress=as_flag("progress", given.progress),
        shard=shard,
    )


def _shared(
    given: Arguments, indexes: list[Index], size: int
) -> tuple[Shard | None, list[Sampler]]:
    """Which records of each step are ours, and the order of all of them for each index."""
    shard, turns = shard_of(given.shard), given.num_batches
    if shard is not None and turns is not None:
        turns = as_count("num_batches", turns) * shard.world
    samplers = samplers_of(indexes, given.sampler, given.drop_last, size, turns, given.seed)
    if shard is not None:
        check_shared(indexes, samplers, given.refill)
    return shard, samplers


def _viewers(given: Arguments, layouts: tuple[str | None, str | None], index: Index) -> Viewers:
    prepared = {"convert": given.convert, "constants": given.constants}
    return Viewers(
        Viewer(layouts[0], "the input of a batch", **prepared),
        Viewer(layouts[1], "the target of a batch"),
        Viewer("b", "the labels of a batch", index.labels or None),
    )


def _indexes(sources: Any) -> list[Index]:
    listed = sources if isinstance(sources, list | tuple) else [sources]
    if not listed:
        raise DataError("sources is empty; give at least one")
    return [each if isinstance(each, Index) else open_index(each) for each in listed]


def _getters(getters: Any, indexes: Sequence[Index]) -> list[Any]:
    listed = list(getters) if isinstance(getters, list | tuple) else [getters] * len(indexes)
    if len(listed) != len(indexes):
        raise DataError(f"there are {len(listed)} getters for {len(indexes)} sources; give as many")
    for get in listed:
        _check_callable("get", get)
    return listed


def _dims(input_dims: Any, batch_dims: Any) -> Callable[[int], Shape | None]:
    """The shape of a record by the number of its batch."""
    if input_dims is not None and batch_dims is not None:
        raise DataError("input_dims and batch_dims are two answers to one question; give one")
    if batch_dims is not None:
        _check_callable("batch_dims", batch_dims)
        return lambda number: _shape(batch_dims(number))
    shape = None if input_dims is None else _shape(input_dims)
    return lambda _: shape


def _shape(dims: Any) -> Shape:
    return as_shape((int(dims),) if isinstance(dims, int | np.integer) else dims)


def _layouts(given: Arguments) -> tuple[str | None, str | None]:
    """Those of the rows that are made, and of their targets."""
    layout = given.layout
    pair = layout if isinstance(layout, list | tuple) else (layout, None)
    if len(pair) != 2:
        raise DataError(f"layout has {len(pair)} parts; give one of the input, or (input, target)")
    for each in pair:
        if each is not None and parse_layout(each).groups[0] != "b":
            raise DataError(f"layout {each!r} does not begin with b; batches are made row by row")
    if given.collate is not None:
        return collated_layout(given.collate), pair[1]
    check_convert(given.convert, pair[0], given.constants)
    if given.convert is None:
        return pair[0], pair[1]
    left = given.convert.task.pattern.source
    if left.groups[0] != "b":
        raise DataError(f"convert takes {left}, which does not begin with b as rows do; begin so")
    return str(left), pair[1]


def _check_ranks(input_dims: Any, layout: str | None) -> None:
    """Raise where the layout of the input cannot be that of records of a given shape."""
    if input_dims is None:
        return
    shape = (1, *_shape(input_dims))
    check_rank(parse_layout(layout or default_layout(len(shape), "the input of a batch")), shape)


def workers_of(number: Any, timeout: Any = None) -> tuple[int, float | None]:
    """How many threads there are to be, and the seconds that a record may take."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(_MOST_WORKERS, cpus) if number is None else as_count("num_workers", number)
    if timeout is None:
        return workers, None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise DataError(f"timeout={timeout!r}; it is a number of seconds above 0, or None")
    if not workers:
        raise DataError(
            f"timeout={timeout} needs threads, as nobody can interrupt the caller's own; give "
            "num_workers of at least 1"
        )
    return workers, timeout


def _reader(given: Arguments) -> Reader:
    size, folder = as_count("cache_size", given.cache_size), given.cache_dir
    if not isinstance(folder, str | os.PathLike | None):
        raise DataError(f"cache_dir={folder!r}; it is the path of a folder, or None")
    cache = None if folder is None else DiskCache.at(folder, size)
    most = given.max_record_bytes
    most = None if most is None else as_count("max_record_bytes", most)
    return Reader(as_count("retries", given.retries), cache, most)


def _dtype(dtype: Any) -> Any:
    if dtype is None:
        return None
    found = as_dtype(dtype)
    check_movable(found)
    return found


def _check_callable(name: str, value: Any) -> None:
    if value is not None and not callable(value):
        raise DataError(f"{name} is {value!r}, which cannot be called; give a function")


# What somebody who comes from PyTorch, Keras, tf.data, grain, DALI or MXNet tries first.
_ELSEWHERE = {
    "batch_sampler": "sampler= and batch_size=, which name an order and where it is cut",
    "collate_fn": "processor=, which makes a row of a record; collate= joins rows of many sizes",
    "crop": 'collate=Collator("hwc->bchw", h=224, w=224), and offset="random"',
    "drop_remainder": "drop_last=True",
    "generator": "seed=; an order is a function of seed, epoch and position",
    "image_size": "size=, (height, width) of pictures",
    "multiprocessing_context": "num_workers=, which are threads",
    "num_epochs": "a loop for each: every `for batch in batches` is the next epoch",
    "num_parts": "open_index(source, partition=p, partitions=P) as the source",
    "num_replicas": "shard=(rank, world)",
    "num_shards": "shard=(rank, world)",
    "num_threads": "num_workers=, which are threads",
    "persistent_workers": "nothing: threads live until close(), over all epochs",
    "pin_memory": 'batch.input.forward_get(layout, dtype, device="cuda"), which sees to it',
    "prefetch_buffer_size": "prefetch=, in batches",
    "prefetch_factor": "prefetch=, in batches, however many threads there are",
    "rand_crop": 'offset="random", of the windows that collate= cuts',
    "rand_mirror": 'flip="random", of the windows that collate= cuts',
    "random_crop": 'offset="random", of the windows that collate= cuts',
    "random_flip": 'flip="random", of the windows that collate= cuts',
    "random_state": "seed=; an order is a function of seed, epoch and position",
    "rank": "shard=(rank, world)",
    "repeat": "a loop for each: every `for batch in batches` is the next epoch",
    "shuffle": 'sampler="shuffle", each record once in random order',
    "shuffle_buffer_size": 'sampler="shuffle", which needs no buffer',
    "target_size": "size=, (height, width) of pictures",
    "transform": "processor=, called with what was read and out=",
    "use_multiprocessing": "num_workers=, which are threads",
    "weights": 'sampler=layoutkit.data.sampler("label-distribution", index, weights=...)',
    "worker_init_fn": "num_workers=, which are threads of this process",
    "workers": "num_workers=, which are threads",
    "world_size": "shard=(rank, world)",
}


def check_names(names: Iterable[str], known: Collection[str]) -> None:
    """Raise NoSuchArgument for names of arguments that there are not, with what they are here."""
    for name in names:
        if name in _ELSEWHERE:
            raise NoSuchArgument(f"sampled_batcher has no {name}=; give {_ELSEWHERE[name]}")
        raise no_such_argument("sampled_batcher", name, known)

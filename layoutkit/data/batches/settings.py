"""The arguments of `sampled_batcher`, checked, and what is made of them.

Beside `arguments.py` it alone knows all of them; the others take what it makes of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...axes import as_shape, check_rank, parse_layout
from ...checks import as_count, as_flag, as_word
from ...errors import DataError
from ...spec import as_dtype, check_movable
from ..indexes import Index, open_index
from ..reading.cache import DiskCache
from ..reading.reader import Reader
from ..samplers import Sampler
from .arguments import Arguments
from .chunks import Work
from .collating import check_collate, collated_layout, joining_of
from .feeds import Feed
from .orders import check_lengths, endless, samplers_of
from .photographs import check_decoded, with_decoder
from .preparing import check_convert
from .shards import Shard, check_shared, shard_of
from .viewers import Viewer, default_layout

__all__ = ["Settings", "settings_of", "workers_of"]

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

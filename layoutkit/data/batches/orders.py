"""The orders of a Batcher: a sampler for each of its sources.

Knows samplers and what was asked of them; what is made of records is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...checks import as_count, as_flag
from ...errors import DataError
from ..indexes import Index
from ..samplers import Sampler, sampler
from ..samplers.kinds import full_batches
from .feeds import Feed

__all__ = ["check_lengths", "endless", "samplers_of"]


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
        return full_batches(given)
    if given.plan.even or given.plan.draws:
        return given
    kind = full_batches(given.plan.kind)
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

"""The order and the length of epochs: a sampler for each source, and this process's part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..._utils.validation import check_bool, check_int, show
from ..._utils.warnings import warn
from ...errors import DataError
from ..samplers import Sampler, sampler
from ..samplers.orders import Order
from ..samplers.sampling import full_batch_kind, sample_full_batches
from ..samplers.weighted import spread_weights
from ..sources import Index, StreamIndex
from .distributed import Shard, check_shardable


@dataclass(frozen=True)
class EpochLength:
    """The number of records and batches of an epoch, and the shard of this process."""

    batch_size: int  # records in a batch of one process
    # Of all processes, if the sampler draws records; None: until the order ends.
    max_batches: int | None = None
    makes_full_batches: bool = False  # True: the last batch is not shorter
    refill: bool = False  # True: records drawn in place of dropped ones make an epoch longer
    shard: Shard | None = None  # the part of each step for this process; None: all of it

    @property
    def draws(self) -> bool:
        """True if the sampler draws records, so that its order has no end."""
        return self.max_batches is not None

    def num_records(self, order: Order) -> int | None:
        """Return the number of records of an order, for all processes; None if unknown."""
        return order.size if self.max_batches is None else self.max_batches * self.batch_size

    def num_batches(self, order: Order) -> int | None:
        """Return the number of batches of this process; None if unknown."""
        if self.shard is not None:
            records = self.num_records(order) or 0
            return self.shard.num_steps(records, self.batch_size, self.makes_full_batches)
        return order.num_batches if self.max_batches is None else self.max_batches

    def last_position(self, order: Order) -> int | None:
        """Return the largest position that a state can have; None if there is no bound."""
        return None if self.refill and self.draws else self.num_records(order)

    def is_complete(self, order: Order, place: int, batches: int) -> bool:
        """Return True if no batch follows a place, at the end of `batches` batches of an epoch."""
        records = self.num_records(order)
        if not place or records is None:
            return False
        if self.shard is not None:
            start, stop = self.shard_range(self.shard, order, place)
            return start == stop
        return place >= records if self.max_batches is None else batches >= self.max_batches

    def next_range(self, order: Order, start: int) -> tuple[int, int]:
        """Return the first and the end position of this process's batch in the step at `start`."""
        if self.refill:
            return start, start + self.batch_size
        if self.shard is None:
            return start, order.cut(start)
        return self.shard_range(self.shard, order, start)

    def end_of(self, start: int, taken: int) -> int:
        """Return the end of the step in which this process took records from `start` on."""
        return start + taken if self.shard is None else self.shard.advance(start, taken)

    def shard_range(self, shard: Shard, order: Order, start: int) -> tuple[int, int]:
        """Return the first and the end position of the batch of `shard` in the step at `start`."""
        records = self.num_records(order) or 0
        return shard.own_range(start, records, self.batch_size, self.makes_full_batches)


def parse_epochs(
    indexes: Sequence[Index],
    spec: Any,
    *,
    weights: Any = None,
    batch_size: int,
    num_batches: Any,
    drop_last: Any,
    seed: Any,
    shard: Shard | None,
    refill: Any,
    names: Sequence[str] | None = None,
) -> tuple[list[Sampler], EpochLength]:
    """Return a sampler for each index, which orders the records of all processes, and the length.

    `names` are the fields that the sources are, if the caller gave a dict of sources.

    Raises
    ------
    DataError
        An argument is invalid, or a sampler does not fit its index or these arguments.

    Warns if an epoch has no batch, as the records are too few for a full one.
    """
    check_bool("refill", refill)
    part = shard
    if part is not None and num_batches is not None:
        num_batches = check_int("num_batches", num_batches) * part.world
    samplers = make_samplers(indexes, spec, weights, drop_last, batch_size, num_batches, seed)
    if part is not None:
        check_shardable(indexes, samplers, refill)
    plan = samplers[0].plan
    if refill and plan.base == "even_sequences":
        raise DataError("refill=True would mix sequences of different lengths in a batch; omit it")
    max_batches = plan.num_batches if plan.draws else None
    if part is not None and max_batches is not None:
        max_batches = -(-max_batches // part.world) * part.world
    length = EpochLength(batch_size, max_batches, bool(plan.even or plan.draws), refill, part)
    samplers = [_remove_end(each) for each in samplers]
    order = samplers[0].order(0)
    _check_lengths(samplers, length.num_records(order), names)
    _check_batches(plan.count, order, length)
    return samplers, length


def make_samplers(
    indexes: Sequence[Index],
    spec: Any,
    weights: Any,
    drop_last: Any,
    size: int,
    num_batches: Any,
    seed: Any,
) -> list[Sampler]:
    """Return a sampler for each index; raise DataError if a sampler does not fit its index."""
    full = check_bool("drop_last", drop_last)
    if spec is None:
        spec = "linear" if weights is None else "weighted"
    if isinstance(indexes[0], StreamIndex) and spec in ("linear", "sequential"):
        spec = "stream"
    kinds = list(spec) if _are_several(spec) else [spec] * len(indexes)
    if len(kinds) != len(indexes):
        raise DataError(
            f"there are {len(kinds)} samplers for {len(indexes)} sources; give one for each"
        )
    if isinstance(weights, Mapping):
        weights = spread_weights(weights, indexes[0])
    options = {
        "batch_size": size,
        "num_batches": num_batches,
        "seed": 0 if seed is None else seed,
        "weights": weights,
    }
    make = sample_full_batches if full else sampler
    return [
        _adopt_sampler(_check_full(kind, full), index, size, num_batches, seed, weights)
        if isinstance(kind, Sampler)
        else make(kind, index, **options)
        for kind, index in zip(kinds, indexes, strict=True)
    ]


def _are_several(spec: Any) -> bool:
    """Return True for a list of samplers, False for one, also for one that is a list of ints."""
    if not isinstance(spec, list | tuple):
        return False
    return any(
        isinstance(item, str | Sampler) or hasattr(item, "__iter__") or callable(item)
        for item in spec
    )


def _check_full(sampler: Sampler, full: bool) -> Sampler:
    """Return the caller's sampler; raise DataError if it must omit a short batch and does not."""
    if full and not (sampler.plan.even or sampler.plan.draws):
        kind = full_batch_kind(sampler.plan.kind)
        raise DataError(
            f"drop_last=True does not change an existing sampler; make it of kind {kind!r}"
        )
    return sampler


def _adopt_sampler(
    sampler: Sampler, index: Index, size: int, num_batches: Any, seed: Any, weights: Any
) -> Sampler:
    """Return a copy of the caller's sampler with the batch size and number of batches set."""
    plan = sampler.plan
    if weights is not None:
        raise DataError(
            "weights= does not change an existing sampler; give them to the function sampler(...)"
        )
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
    if seed is not None and plan.seed != seed:
        raise DataError(
            f"seed={show(seed)}, but the sampler has seed={plan.seed}; omit one of them"
        )
    requested = plan.num_batches if num_batches is None else check_int("num_batches", num_batches)
    if requested is None and plan.draws:
        requested = -(-plan.count // size)
    return sampler.with_plan(batch_size=size, num_batches=requested)


def _remove_end(sampler: Sampler) -> Sampler:
    """Return a sampler that draws records without its end, because the Batcher counts batches."""
    return sampler.with_plan(num_batches=None) if sampler.plan.draws else sampler


def _check_lengths(
    samplers: Sequence[Sampler], first_count: int | None, names: Sequence[str] | None
) -> None:
    """Raise DataError unless all sources have equal numbers of records per epoch."""
    for number, other in enumerate(samplers[1:], 1):
        count = other.order(0).size
        if other.plan.draws or None in (first_count, count) or first_count == count:
            continue
        first, second = ("the first source", f"source {number}")
        cure = f"or {second} needs a sampler that draws"
        if names is not None:
            first, second = (f"the field {name}" for name in (names[0], names[number]))
            cure = "as record i of all fields is one record"
        raise DataError(
            f"{first} gives {first_count} records an epoch, but {second} gives {count}; the "
            f"numbers must be equal, {cure}"
        )


def _check_batches(records: int, order: Order, length: EpochLength) -> None:
    """Warn if the records of the source are too few for a batch."""
    world = 1 if length.shard is None else length.shard.world
    least = world * (length.batch_size if length.makes_full_batches else 1)
    if length.draws or order.size is None or not 0 < records < least:
        return
    processes = f"{world} processes"
    if length.makes_full_batches:
        per_process = f" for each of {processes}" if world > 1 else ""
        reason = f"batch_size={length.batch_size}{per_process}, and only full batches are made"
        cure = "reduce batch_size, or omit drop_last=True"
    else:
        reason, cure = processes, "use fewer processes"
    warn(f"epochs have no batch: {records} records are fewer than {reason}; {cure}")

"""The order of one epoch: which record stands in which place, and where batches end.

    order.size                   places in the epoch; None when endless, or not known yet
    order.num_batches            batches in the epoch; None likewise, and without a batch size
    order.at(place)              the record in a place
    order.between(start, stop)   those of several places; fewer where the epoch ends
    order.numbers_in(start, stop)   their numbers
    order.walk(place)            all from a place on, one by one
    order.batches(place)         all from a place on, batch by batch
    order.cut(place)             where the batch that a place is in ends
    order.marks(place)           integers that help to find the place again without a replay

Places count from 0. Every place is computed on its own, so none needs those before it; only the
orders of part files must know how many lines the files before it have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...memory import Array
from ..permutation import key_of

__all__ = ["AHEAD", "Order", "SamplingPlan", "ceil_div", "ends"]

# Places that are computed at once: for fewer, the calls of NumPy cost more than the numbers. Who
# goes on gets twice as many each time, up to the most; a first item is not to wait for those.
AHEAD, MOST_AHEAD = 512, 8192


@dataclass(frozen=True)
class SamplingPlan:
    """What a sampler is asked for, checked: all that its orders need besides the epoch.

    base : str                   the kind whose order it is; even_shuffled_sequential's is
                                 permutation
    count : int                  records to choose from; for part files, files
    batch_size, num_batches      as they come; None where there are none
    item : callable              the record of a number; None when the numbers are asked for
    members : int64 array        the numbers to choose from; None: 0 .. count-1
    even : bool                  what fills no batch is left out
    draws : bool                 has no end of its own
    material                     what one kind needs: groups, weights, part files
    partition : str              which records of the whole there are to choose from
    """

    kind: str
    base: str
    seed: int
    count: int
    batch_size: int | None
    num_batches: int | None
    item: Callable[[int], Any] | None
    members: Array | None
    even: bool
    draws: bool
    material: Any
    partition: str = "0 of 1"

    @property
    def identity(self) -> dict[str, int | str]:
        """What the states of two samplers must agree in."""
        return {
            "kind": self.kind,
            "seed": self.seed,
            "batch_size": self.batch_size or 0,
            "partition": self.partition,
        }


Plan = SamplingPlan  # its name in pickles of earlier versions


class Order:
    """The order of one epoch; the kinds differ in `_numbers`."""

    def __init__(self, plan: SamplingPlan, epoch: int) -> None:
        self.plan = plan
        self.key = key_of(plan.base, plan.seed, epoch)
        self._ahead: tuple[int, Array] = (0, np.arange(0))
        self._reach = AHEAD

    @property
    def size(self) -> int | None:
        """The number of places; None when endless."""
        plan, batch = self.plan, self.plan.batch_size
        whole = None if plan.draws else plan.count
        if whole is not None and plan.even and batch:
            whole -= whole % batch
        if plan.num_batches is None or batch is None:
            return whole
        asked = plan.num_batches * batch
        return asked if whole is None else min(asked, whole)

    @property
    def num_batches(self) -> int | None:
        """The number of batches; None when endless or without a batch size."""
        size, batch = self.size, self.plan.batch_size
        return None if size is None or batch is None else -(-size // batch)

    def cut(self, place: int) -> int:
        """The place behind the batch that `place` is in."""
        batch = self.plan.batch_size or 1
        stop, size = (place // batch + 1) * batch, self.size
        return stop if size is None else min(stop, size)

    def between(self, start: int, stop: int) -> Any:
        """The records in places start .. stop-1: a list, or an int64 array of numbers."""
        numbers = self.numbers_in(start, stop)
        item = self.plan.item
        return numbers if item is None else [item(number) for number in numbers.tolist()]

    def numbers_in(self, start: int, stop: int) -> Array:
        """The numbers of the records in places start .. stop-1, as far as there are any."""
        size = self.size
        stop = stop if size is None else min(stop, size)
        if stop - start > MOST_AHEAD:
            return self._chosen(start, stop)
        first, ahead = self._ahead  # once, as other threads may put another
        if start < first or stop > first + len(ahead):
            goes_on = first <= start <= first + len(ahead) > 0
            self._reach = min(2 * self._reach, MOST_AHEAD) if goes_on else AHEAD
            end = start + max(self._reach, stop - start)
            end = end if size is None else min(end, size)
            first, ahead = self._ahead = start, self._chosen(start, end)
        return ahead[start - first : max(0, stop - first)].copy()

    def at(self, place: int) -> Any:
        """The record in a place of the epoch."""
        return self._item(int(self.numbers_in(place, place + 1)[0]))

    def walk(self, place: int) -> Iterator[Any]:
        """The records from a place to the epoch's end."""
        while numbers := self.numbers_in(place, place + AHEAD).tolist():
            yield from map(self._item, numbers)
            place += len(numbers)

    def batches(self, place: int) -> Iterator[tuple[Any, int]]:
        """The batches from a place to the epoch's end, each with the place behind it."""
        while len(batch := self.between(place, self.cut(place))):
            place += len(batch)
            yield batch, place

    def marks(self, place: int) -> dict[str, int]:
        """What helps to begin at a place: nothing, where every place is computed on its own."""
        return {}

    def _item(self, number: int) -> Any:
        return number if self.plan.item is None else self.plan.item(number)

    def _chosen(self, start: int, stop: int) -> Array:
        if stop <= start:
            return np.arange(0)
        chosen = self._numbers(np.arange(start, stop, dtype=np.uint64)).astype(np.int64)
        return chosen if self.plan.members is None else self.plan.members[chosen]

    def _numbers(self, places: Array) -> Array:
        """The numbers in these places, among 0 .. count-1."""
        raise NotImplementedError


def ceil_div(n: int, size: int) -> int:
    """n / size, rounded up."""
    return -(-n // size)


def ends(lengths: Sequence[int] | Array) -> Array:
    """0 and the sums of the first 1, 2, ... lengths."""
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)

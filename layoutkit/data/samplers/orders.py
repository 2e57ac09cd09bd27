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

Each record once, in order or shuffled, and independent draws.

Knows numbers only.

Batches of neighbours: fixed slices in random order, and runs that begin anywhere.

Knows numbers only.

Batches of sequences of one length.

Knows groups of numbers; the sequences themselves are not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...memory import Array
from ..random import drawn, hashed, key_of, shuffled, unshuffled

if TYPE_CHECKING:
    from ..sources import Groups


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


class Linear(Order):
    """0, 1, 2, ..."""

    def _numbers(self, places: Array) -> Array:
        return places


class Permutation(Order):
    """Each once, in random order, without a list of them."""

    def _numbers(self, places: Array) -> Array:
        return shuffled(self.key, places, self.plan.count)  # type: ignore[no-any-return]


class Uniform(Order):
    """Any of them in each place, independently of the others."""

    def _numbers(self, places: Array) -> Array:
        return drawn(self.key, places, self.plan.count)  # type: ignore[no-any-return]


class Batchwise(Order):
    """The slices kb:(k+1)b in random order.

    Only the last slice can be short. The inverse permutation says in which turn it comes, and
    all places behind it are moved by what it lacks.
    """

    def __init__(self, plan: SamplingPlan, epoch: int) -> None:
        super().__init__(plan, epoch)
        self._width = plan.batch_size or 1
        self._slices = ceil_div(plan.count, self._width)
        self._rest = plan.count % self._width
        # The turn of the short slice; behind all others when there is none.
        self._short = (
            unshuffled(self.key, self._slices - 1, self._slices) if self._rest else self._slices
        )

    @property
    def size(self) -> int:
        """The number of places in as many turns as are asked for."""
        turns = self.num_batches
        if self.plan.even or turns <= self._short:
            return turns * self._width
        return (turns - 1) * self._width + self._rest

    @property
    def num_batches(self) -> int:
        """The number of turns."""
        turns = self.plan.count // self._width if self.plan.even else self._slices
        return turns if self.plan.num_batches is None else self.plan.num_batches

    def cut(self, place: int) -> int:
        """The place behind the slice that `place` is in."""
        turn, row = (int(x[0]) for x in self._split(np.array([place], np.uint64)))
        short = turn == self._short and not self.plan.even
        return place - row + (self._rest if short else self._width)

    def _split(self, places: Array) -> tuple[Array, Array]:
        """The turn of each place, and its row there."""
        if self.plan.even or not self._rest:
            return places // self._width, places % self._width
        behind = (places >= self._short * self._width + self._rest).astype(np.uint64)
        moved = places - behind * self._rest
        return moved // self._width + behind, moved % self._width

    def _numbers(self, places: Array) -> Array:
        turns, rows = self._split(places)
        if self.plan.even:
            turns = turns + (turns >= self._short)  # the short slice has no turn
        return shuffled(self.key, turns, self._slices) * self._width + rows  # type: ignore[no-any-return]


class RandomSlice(Order):
    """Runs of neighbours, each of which begins anywhere that leaves room for it."""

    def _numbers(self, places: Array) -> Array:
        width = self.plan.batch_size or 1
        starts = drawn(self.key, places // width, self.plan.count - width + 1)
        return starts + places % width  # type: ignore[no-any-return]


class EvenSequences(Order):
    """Each sequence once, those of a batch of one length; the lengths take turns.

    The only order with a table: one entry for each batch of the epoch.
    """

    def __init__(self, plan: SamplingPlan, epoch: int) -> None:
        super().__init__(plan, epoch)
        groups: Groups = plan.material
        self._groups = groups
        self._rows_key = key_of(plan.base, plan.seed, epoch, "records")
        width = plan.batch_size or 1
        batches = -(-groups.counts // width)
        group = np.repeat(np.arange(len(batches)), batches)
        lap = np.arange(len(group)) - np.repeat(ends(batches)[:-1], batches)
        turn = shuffled(self.key, group.astype(np.uint64), len(batches))
        schedule = np.lexsort((turn, lap))[: plan.num_batches]
        self._group, self._first = group[schedule], lap[schedule] * width
        self._ends = ends(np.minimum(width, groups.counts[self._group] - self._first))

    @property
    def size(self) -> int:
        """The number of places."""
        return int(self._ends[-1])

    @property
    def num_batches(self) -> int:
        """The number of batches."""
        return len(self._group)

    def cut(self, place: int) -> int:
        """The place behind the batch that `place` is in."""
        last = len(self._ends) - 1
        return int(self._ends[min(last, int(np.searchsorted(self._ends, place, side="right")))])

    def _numbers(self, places: Array) -> Array:
        spots = places.astype(np.int64)
        batch = np.searchsorted(self._ends, spots, side="right") - 1
        group = self._group[batch]
        rows = self._first[batch] + spots - self._ends[batch]
        keys = hashed(self._rows_key, group.astype(np.uint64))
        counts = self._groups.counts[group].astype(np.uint64)
        moved = shuffled(keys, rows.astype(np.uint64), counts).astype(np.int64)
        chosen: Array = self._groups.members[self._groups.starts[group] + moved]
        return chosen

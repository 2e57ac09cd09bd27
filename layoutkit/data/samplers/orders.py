"""The order of one epoch: the record at each position, and the ends of batches.

    order.size                      number of positions; None if endless or not known yet
    order.num_batches               number of batches; None if endless, not known yet, or without a
                                    batch size
    order.at(position)              the record at a position
    order.between(start, stop)      the records at positions start .. stop-1, up to the epoch's end
    order.numbers_in(start, stop)   the numbers of these records
    order.walk(position)            an iterator over the records from a position on
    order.batches(position)         an iterator over the batches from a position on
    order.cut(position)             the end of the batch that contains a position
    order.marks(position)           integers that let a resumed loop skip the replay

Positions count from 0. Each position is computed independently of all others; only the orders of
part files must know the number of lines of the files before it.

The classes: Linear, Permutation, FunctionOrder and Uniform visit single records; Batchwise and
RandomSlice visit runs of neighboring records; ChunkShuffle visits the records of some chunks at a
time; EvenSequences makes batches of sequences of equal length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._utils.errors import prefix_errors
from ..._utils.indexing import normalize_indices
from ..._utils.random import draw_below, hash64, make_key, permute_index, unpermute_index
from ...errors import DataError
from ...memory import Array

if TYPE_CHECKING:
    from ..sources import Groups


# The number of positions computed at once. Below LOOKAHEAD the overhead of the NumPy calls exceeds
# the computation. Sequential access doubles the number up to MAX_LOOKAHEAD; the first item does not
# wait for that many.
LOOKAHEAD = 512
MAX_LOOKAHEAD = 8192


@dataclass(frozen=True)
class SamplingPlan:
    """The validated options of a sampler: all that its orders need except the epoch."""

    kind: str
    base: str  # the kind in the hash key: permutation for even-shuffled-sequential
    seed: int
    count: int  # of records to choose from; for part files, of files
    batch_size: int | None = None
    num_batches: int | None = None
    item: Callable[[int], Any] | None = None  # maps a number to a record; None: yield numbers
    members: Array | None = None  # int64, the numbers to choose from; None: 0 .. count-1
    even: bool = False  # omit the records that do not fill a batch
    draws: bool = False  # independent draws, which have no natural end
    material: Any = None  # data of one kind: groups, weights or part files
    partition: str = "0 of 1"  # the part of the whole source that the records belong to

    @property
    def identity(self) -> dict[str, int | str]:
        """The entries in which a loaded state must agree with the sampler."""
        return {
            "kind": self.kind,
            "seed": self.seed,
            "batch_size": self.batch_size or 0,
            "partition": self.partition,
        }


class Order:
    """The order of one epoch; each kind implements `_numbers`."""

    first_lookahead = LOOKAHEAD  # positions computed for an access that continues no other one

    def __init__(self, plan: SamplingPlan, epoch: int) -> None:
        self.plan = plan
        self.key = make_key(plan.base, plan.seed, epoch)
        self._computed: tuple[int, Array] = (0, np.arange(0))
        self._lookahead = self.first_lookahead

    @property
    def size(self) -> int | None:
        """The number of positions; None if endless."""
        plan = self.plan
        batch = plan.batch_size
        count = None if plan.draws else plan.count
        if count is not None and plan.even and batch:
            count -= count % batch
        if plan.num_batches is None or batch is None:
            return count
        requested = plan.num_batches * batch
        return requested if count is None else min(requested, count)

    @property
    def num_batches(self) -> int | None:
        """The number of batches; None if endless or without a batch size."""
        size = self.size
        batch = self.plan.batch_size
        return None if size is None or batch is None else -(-size // batch)

    def cut(self, position: int) -> int:
        batch = self.plan.batch_size or 1
        stop = (position // batch + 1) * batch
        size = self.size
        return stop if size is None else min(stop, size)

    def between(self, start: int, stop: int) -> Any:
        """Return the records at positions start .. stop-1: a list, or an int64 array of numbers."""
        numbers = self.numbers_in(start, stop)
        item = self.plan.item
        return numbers if item is None else [item(number) for number in numbers.tolist()]

    def numbers_in(self, start: int, stop: int) -> Array:
        """Return the record numbers at positions start .. stop-1, up to the epoch's end."""
        size = self.size
        stop = stop if size is None else min(stop, size)
        if stop - start > MAX_LOOKAHEAD:
            return self._compute(start, stop)
        first, numbers = self._computed  # one read, since other threads may replace it
        if start < first or stop > first + len(numbers):
            is_sequential = first <= start <= first + len(numbers) > 0
            self._lookahead = (
                min(2 * self._lookahead, MAX_LOOKAHEAD) if is_sequential else self.first_lookahead
            )
            end = start + max(self._lookahead, stop - start)
            end = end if size is None else min(end, size)
            first, numbers = self._computed = start, self._compute(start, end)
        return numbers[start - first : max(0, stop - first)].copy()

    def at(self, position: int) -> Any:
        """Return the record at a position of the epoch."""
        return self._item(int(self.numbers_in(position, position + 1)[0]))

    def walk(self, position: int) -> Iterator[Any]:
        """Yield the records from a position to the epoch's end."""
        while numbers := self.numbers_in(position, position + LOOKAHEAD).tolist():
            yield from map(self._item, numbers)
            position += len(numbers)

    def batches(self, position: int) -> Iterator[tuple[Any, int]]:
        """Yield (batch, end position) from a position to the epoch's end."""
        while len(batch := self.between(position, self.cut(position))):
            position += len(batch)
            yield batch, position

    def close(self) -> None:
        """Close files and iterators that the order reads; it may begin again."""

    def marks(self, position: int) -> dict[str, int]:
        """Return integers that speed up a resume: none, since positions are independent."""
        return {}

    def _item(self, number: int) -> Any:
        return number if self.plan.item is None else self.plan.item(number)

    def _compute(self, start: int, stop: int) -> Array:
        if stop <= start:
            return np.arange(0)
        numbers = self._numbers(np.arange(start, stop, dtype=np.uint64)).astype(np.int64)
        return numbers if self.plan.members is None else self.plan.members[numbers]

    def _numbers(self, positions: Array) -> Array:
        """Return the numbers at these positions, in the range 0 .. count-1."""
        raise NotImplementedError


def ceil_div(n: int, size: int) -> int:
    """Return n / size, rounded up."""
    return -(-n // size)


def cumulative_ends(lengths: Sequence[int] | Array) -> Array:
    """Return 0 followed by the cumulative sums of `lengths`."""
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)


class Linear(Order):
    """The order 0, 1, 2, ..."""

    def _numbers(self, positions: Array) -> Array:
        return positions


class PermutedOrder(Order):
    """Each record once, in random order, computed without a table."""

    def _numbers(self, positions: Array) -> Array:
        return permute_index(self.key, positions, self.plan.count)


class FunctionOrder(Linear):
    """The positions that ``function(count, seed, epoch)`` returns; it is the plan's `material`."""

    def __init__(self, plan: SamplingPlan, epoch: int) -> None:
        positions = plan.material(plan.count, plan.seed, epoch)
        with prefix_errors(f"sampler {plan.kind}, epoch {epoch}: ", DataError):
            members = normalize_indices(positions, plan.count, "records", DataError)
        super().__init__(replace(plan, count=len(members), members=members), epoch)


class Uniform(Order):
    """A uniform draw at each position, independent of all others."""

    def _numbers(self, positions: Array) -> Array:
        return draw_below(self.key, positions, self.plan.count)


class Batchwise(Order):
    """The slices kb:(k+1)b in random order.

    Only the last slice can be short. The inverse permutation gives its turn; all positions after
    it are shifted by the number of missing records.
    """

    def __init__(self, plan: SamplingPlan, epoch: int) -> None:
        super().__init__(plan, epoch)
        self._width = plan.batch_size or 1
        self._slices = ceil_div(plan.count, self._width)
        self._remainder = plan.count % self._width
        # The turn of the short slice; the number of slices if there is no short one.
        self._short = (
            unpermute_index(self.key, self._slices - 1, self._slices)
            if self._remainder
            else self._slices
        )

    @property
    def size(self) -> int:
        turns = self.num_batches
        if self.plan.even or turns <= self._short:
            return turns * self._width
        return (turns - 1) * self._width + self._remainder

    @property
    def num_batches(self) -> int:
        turns = self.plan.count // self._width if self.plan.even else self._slices
        return turns if self.plan.num_batches is None else self.plan.num_batches

    def cut(self, position: int) -> int:
        turn, row = (int(x[0]) for x in self._split(np.array([position], np.uint64)))
        short = turn == self._short and not self.plan.even
        return position - row + (self._remainder if short else self._width)

    def _split(self, positions: Array) -> tuple[Array, Array]:
        """Return the turn of each position, and its row within the slice."""
        if self.plan.even or not self._remainder:
            return positions // self._width, positions % self._width
        is_past_short = (positions >= self._short * self._width + self._remainder).astype(np.uint64)
        shifted = positions - is_past_short * self._remainder
        return shifted // self._width + is_past_short, shifted % self._width

    def _numbers(self, positions: Array) -> Array:
        turns, rows = self._split(positions)
        if self.plan.even:
            turns = turns + (turns >= self._short)  # the short slice has no turn
        return permute_index(self.key, turns, self._slices) * self._width + rows


class ChunkShuffle(Order):
    """Each record once: chunks in random order, and the records of a window of chunks shuffled.

    A window is a number of chunks that are next to each other in the order, so a reader that caches
    a window decodes every chunk once. Only the last chunk of the source can be short.
    """

    def __init__(self, plan: SamplingPlan, epoch: int) -> None:
        super().__init__(plan, epoch)
        self._rows, self._width = plan.material  # of a chunk; chunks of a window
        self._chunks = ceil_div(plan.count, self._rows)
        self._missing = -plan.count % self._rows  # records that the short chunk lacks
        # The turn of the short chunk; the number of chunks if there is no short one.
        self._short = (
            unpermute_index(self.key, self._chunks - 1, self._chunks)
            if self._missing
            else self._chunks
        )
        self._rows_key = make_key(plan.base, plan.seed, epoch, "rows")

    def _numbers(self, positions: Array) -> Array:
        if not len(positions):
            return positions
        rows, width, chunks = (np.uint64(n) for n in (self._rows, self._width, self._chunks))
        missing = np.uint64(self._missing)
        short_window, short_turn = divmod(int(self._short), self._width)
        end = (short_window + 1) * self._width * self._rows - self._missing
        # As if the short chunk were complete: the windows after its own begin later.
        padded = positions + (positions >= end) * missing
        window = padded // (width * rows)
        first = window * width
        start = first * rows - (window > short_window) * missing
        is_short = window == short_window
        size = np.minimum(width, chunks - first) * rows - is_short * missing
        place = permute_index(hash64(self._rows_key, window), positions - start, size)
        is_behind = is_short & (place >= short_turn * self._rows + self._rows - self._missing)
        place = place + is_behind * missing
        turn = first + place // rows
        return permute_index(self.key, turn, self._chunks) * rows + place % rows


class RandomSlice(Order):
    """Runs of neighboring records, each with a random start that leaves room for a full batch."""

    def _numbers(self, positions: Array) -> Array:
        width = self.plan.batch_size or 1
        starts = draw_below(self.key, positions // width, self.plan.count - width + 1)
        return starts + positions % width


class EvenSequences(Order):
    """Each sequence once; all sequences of a batch have the same length, and lengths alternate.

    This is the only order that stores a table: one entry per batch of the epoch.
    """

    def __init__(self, plan: SamplingPlan, epoch: int) -> None:
        super().__init__(plan, epoch)
        groups: Groups = plan.material
        self._groups = groups
        self._records_key = make_key(plan.base, plan.seed, epoch, "records")
        width = plan.batch_size or 1
        batches = -(-groups.counts // width)
        group = np.repeat(np.arange(len(batches)), batches)
        lap = np.arange(len(group)) - np.repeat(cumulative_ends(batches)[:-1], batches)
        turn = permute_index(self.key, group.astype(np.uint64), len(batches))
        schedule = np.lexsort((turn, lap))[: plan.num_batches]
        self._group = group[schedule]
        self._first = lap[schedule] * width
        self._ends = cumulative_ends(np.minimum(width, groups.counts[self._group] - self._first))

    @property
    def size(self) -> int:
        return int(self._ends[-1])

    @property
    def num_batches(self) -> int:
        return len(self._group)

    def cut(self, position: int) -> int:
        last = len(self._ends) - 1
        return int(self._ends[min(last, int(np.searchsorted(self._ends, position, side="right")))])

    def _numbers(self, positions: Array) -> Array:
        spots = positions.astype(np.int64)
        batch = np.searchsorted(self._ends, spots, side="right") - 1
        group = self._group[batch]
        rows = self._first[batch] + spots - self._ends[batch]
        keys = hash64(self._records_key, group.astype(np.uint64))
        counts = self._groups.counts[group].astype(np.uint64)
        shuffled_rows = permute_index(keys, rows.astype(np.uint64), counts).astype(np.int64)
        return self._groups.members[self._groups.starts[group] + shuffled_rows]

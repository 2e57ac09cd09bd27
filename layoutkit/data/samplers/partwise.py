"""Orders of part files, whose numbers of lines are known only once they are opened.

To locate a position, the order counts the lines of the files before it; each file is opened once.
A state therefore stores two more integers: the turn of a file and the position where it begins.
With these an order resumes without opening any other file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._utils.random import hash64, make_key, permute_index
from ...errors import DataError
from .orders import LOOKAHEAD, Order, SamplingPlan, ceil_div

if TYPE_CHECKING:
    from ...memory import Array
    from ..records import Record
    from ..sources import PartsIndex


class PartLinear(Order):
    """The files one after the other, with their lines in order."""

    shuffled_files = False
    shuffled_lines = False

    def __init__(self, plan: SamplingPlan, epoch: int, turn: int = 0, start: int = 0) -> None:
        super().__init__(plan, epoch)
        self._index: PartsIndex = plan.material
        self._lines_key = make_key(plan.base, plan.seed, epoch, "records")
        self._turn = turn
        self._starts = [start]  # start positions of the files from this turn on

    @property
    def size(self) -> int | None:
        """The number of positions; None until every file has been opened."""
        total = self._index.known_count
        if total is None:
            return None
        limit = self._limit
        return total if limit is None else min(limit, total)

    def between(self, start: int, stop: int) -> list[Record]:
        """Return the records at positions start .. stop-1, which may span several files."""
        records: list[Record] = []
        while start < stop and (located := self._locate(start, stop)):
            part, lines = located
            records += [self._index.line(part, line) for line in lines.tolist()]
            start += len(lines)
        return records

    def at(self, position: int) -> Record:
        return self.between(position, position + 1)[0]

    def walk(self, position: int) -> Iterator[Record]:
        """Yield the records from a position on; each file is opened when its first line is due."""
        while located := self._locate(position, position + LOOKAHEAD):
            part, lines = located
            for line in lines.tolist():
                yield self._index.line(part, line)
            position += len(lines)

    def cut(self, position: int) -> int:
        """Return the end of the batch that contains `position`, as if the files were endless."""
        batch = self.plan.batch_size or 1
        return (position // batch + 1) * batch

    def marks(self, position: int) -> dict[str, int]:
        k = bisect_right(self._starts, position) - 1
        if k < 0:
            return {"part": 0, "part_start": 0}
        return {"part": self._turn + k, "part_start": self._starts[k]}

    @property
    def _limit(self) -> int | None:
        plan = self.plan
        return None if plan.num_batches is None else plan.num_batches * (plan.batch_size or 1)

    def _locate(self, position: int, stop: int) -> tuple[int, Array] | None:
        """Return the file that contains `position` and its lines up to `stop`; None at the end."""
        if self._limit is not None:
            stop = min(stop, self._limit)
        if position >= stop:
            return None
        if position < self._starts[0]:
            self._turn = 0
            self._starts = [0]
        while position >= self._starts[-1] and self._turn + len(self._starts) <= self.plan.count:
            lines = self._index.line_count(self._part(self._turn + len(self._starts) - 1))
            self._starts.append(self._starts[-1] + lines)
        if position >= self._starts[-1]:
            self._check_end(self._starts[-1])
            return None
        k = bisect_right(self._starts, position) - 1
        start, end = self._starts[k : k + 2]
        part = self._part(self._turn + k)
        return part, self._lines(part, position - start, min(stop, end) - start, end - start)

    def _check_end(self, total: int) -> None:
        """Raise if the files have no records, or fewer batches than `num_batches`."""
        if not total:
            len(self._index)  # raises DataError
        requested = self.plan.num_batches
        width = self.plan.batch_size or 1
        if requested is not None and ceil_div(total, width) < requested:
            raise DataError(
                f"num_batches={requested}, but the part files have {total} records, which make "
                f"{ceil_div(total, width)} batches of {width}; reduce num_batches"
            )

    def _part(self, turn: int) -> int:
        if not self.shuffled_files:
            return turn
        return int(permute_index(self.key, turn, self.plan.count))

    def _lines(self, part: int, start: int, stop: int, count: int) -> Array:
        rows = np.arange(start, stop, dtype=np.uint64)
        if not self.shuffled_lines:
            return rows
        return permute_index(hash64(self._lines_key, part), rows, count)


class PartLinearPermutation(PartLinear):
    """The files one after the other, with the lines of each in random order."""

    shuffled_lines = True


class PartPermutationPermutation(PartLinearPermutation):
    """The files in random order, with the lines of each in random order."""

    shuffled_files = True


def order_from_state(order: Any, plan: SamplingPlan, epoch: int, state: Mapping[str, Any]) -> Order:
    """Return the order of part files that resumes at a state; DataError if it is invalid."""
    part = state["part"]
    start = state["part_start"]
    if part > plan.count or start > state["position"]:
        raise DataError(
            f"the state names part {part} from {start} on, but there are {plan.count} part files"
        )
    return order(plan, epoch, part, start)

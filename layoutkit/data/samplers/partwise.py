"""Orders of part files, whose numbers of lines are known only when they are opened.

A place is found by counting the lines of the files before it, each of which is opened once. A
state therefore carries two marks, the turn of a file and the place where it begins, and with
them an order starts right there: no other file is opened.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DataError
from ..random import hashed, key_of, shuffled
from .orders import AHEAD, Order, SamplingPlan, ceil_div

if TYPE_CHECKING:
    from ...memory import Array
    from ..records import Record
    from ..sources import PartsIndex

__all__ = ["PartLinear", "PartLinearPermutation", "PartPermutationPermutation", "from_marks"]


class PartLinear(Order):
    """File after file, and their lines in order."""

    shuffled_files = False
    shuffled_lines = False

    def __init__(self, plan: SamplingPlan, epoch: int, turn: int = 0, start: int = 0) -> None:
        super().__init__(plan, epoch)
        self._index: PartsIndex = plan.material
        self._lines_key = key_of(plan.base, plan.seed, epoch, "records")
        self._turn = turn
        self._starts = [start]  # where the files of this turn, the next one, ... begin

    @property
    def size(self) -> int | None:
        """The number of places; None until every file has been opened."""
        total = self._index.known_count
        if total is None:
            return None
        limit = self._limit
        return total if limit is None else min(limit, total)

    def between(self, start: int, stop: int) -> list[Record]:
        """The records in places start .. stop-1, from as many files as that takes."""
        records: list[Record] = []
        while start < stop and (found := self._found(start, stop)):
            part, lines = found
            records += [self._index.line(part, line) for line in lines.tolist()]
            start += len(lines)
        return records

    def at(self, place: int) -> Record:
        """The record in a place of the epoch."""
        return self.between(place, place + 1)[0]

    def walk(self, place: int) -> Iterator[Record]:
        """The records from a place on; a file is opened when its first line is asked for."""
        while found := self._found(place, place + AHEAD):
            part, lines = found
            for line in lines.tolist():
                yield self._index.line(part, line)
            place += len(lines)

    def cut(self, place: int) -> int:
        """The place behind the batch that `place` is in, were the files endless."""
        batch = self.plan.batch_size or 1
        return (place // batch + 1) * batch

    def marks(self, place: int) -> dict[str, int]:
        """The turn of the file that a place is in, and where that file begins."""
        known = bisect_right(self._starts, place) - 1
        if known < 0:
            return {"part": 0, "part_start": 0}
        return {"part": self._turn + known, "part_start": self._starts[known]}

    @property
    def _limit(self) -> int | None:
        plan = self.plan
        return None if plan.num_batches is None else plan.num_batches * (plan.batch_size or 1)

    def _found(self, place: int, stop: int) -> tuple[int, Array] | None:
        """The file that a place is in, and its lines from there to `stop`; None at the end."""
        if self._limit is not None:
            stop = min(stop, self._limit)
        if place >= stop:
            return None
        if place < self._starts[0]:
            self._turn, self._starts = 0, [0]
        while place >= self._starts[-1] and self._turn + len(self._starts) <= self.plan.count:
            lines = self._index.line_count(self._part(self._turn + len(self._starts) - 1))
            self._starts.append(self._starts[-1] + lines)
        if place >= self._starts[-1]:
            self._check_end(self._starts[-1])
            return None
        known = bisect_right(self._starts, place) - 1
        start, end = self._starts[known : known + 2]
        part = self._part(self._turn + known)
        return part, self._lines(part, place - start, min(stop, end) - start, end - start)

    def _check_end(self, total: int) -> None:
        """Raise where the files have fewer batches than were asked for."""
        asked, width = self.plan.num_batches, self.plan.batch_size or 1
        if asked is not None and ceil_div(total, width) < asked:
            raise DataError(
                f"num_batches={asked}, but the part files have {total} records, which make "
                f"{ceil_div(total, width)} batches of {width}; ask for no more"
            )

    def _part(self, turn: int) -> int:
        if not self.shuffled_files:
            return turn
        return int(shuffled(self.key, turn, self.plan.count))

    def _lines(self, part: int, start: int, stop: int, count: int) -> Array:
        rows = np.arange(start, stop, dtype=np.uint64)
        if not self.shuffled_lines:
            return rows
        moved: Any = shuffled(hashed(self._lines_key, part), rows, count)
        return moved  # type: ignore[no-any-return]


class PartLinearPermutation(PartLinear):
    """File after file, and the lines of each in random order."""

    shuffled_lines = True


class PartPermutationPermutation(PartLinearPermutation):
    """Files in random order, and the lines of each, too."""

    shuffled_files = True


def from_marks(order: Any, plan: SamplingPlan, epoch: int, state: Mapping[str, Any]) -> Order:
    """The order of part files that begins at the marks of a state; DataError for wrong marks."""
    part, start = state["part"], state["part_start"]
    if part > plan.count or start > state["position"]:
        raise DataError(f"part {part} from {start} on is no place in {plan.count} part files")
    return order(plan, epoch, part, start)  # type: ignore[no-any-return]

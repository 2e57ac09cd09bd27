"""The sheet of a batch of windows: what kernels/cpu/lay.py reads and writes, as NumPy arrays."""

from __future__ import annotations

from itertools import accumulate as added
from itertools import pairwise
from struct import Struct

import numpy as np

from ..kernels.cpu import tables as t
from ..memory import Array, address
from ..planning.cuts import Said
from .kinds import Known
from .parts import Sources

__all__ = ["Sheet"]

_EACH_TIME = Struct(f"{t.EACH_TIME}q").pack_into
HEADER = object.__basicsize__  # bytes of an object before what is NumPy's


class Sheet:
    """A sheet for so many samples of a rank, all in one array, which is used again."""

    def __init__(self, count: int, rank: int, longest: int) -> None:
        row = t.ROW + 4 * rank
        head = t.SHEET + t.LISTS * rank
        ends = list(added((head, count, count * row, count * t.ENTRY, count, count * longest)))
        self.words = np.zeros(ends[-1], np.int64)
        self.address = address(self.words)
        self.longest, self._rank = longest, rank
        parts = [self.words[first:last] for first, last in pairwise([0, *ends])]
        self.head, self._objects, rows, table, self.states, _ = parts
        self.rows, self.table = rows.reshape(count, row), table.reshape(count, t.ENTRY)
        self.head[[t.COUNT, t.AXES, t.HEADER]] = count, rank, HEADER
        begins = [self.address + 8 * end for end in ends]
        self._objects_at, *written = begins[:-1]
        self.head[[t.ROWS, t.TABLE, t.STATES, t.ARENA]] = written
        self._is_said = False  # of windows
        self._write_objects = Struct(f"{count}q").pack_into

    def of_axes(self, which: int) -> Array:
        """What is said of each axis in the head, such as its size in a window."""
        first = t.SHEET + which * self._rank
        return self.head[first : first + self._rank]

    def of_windows(self, which: int) -> Array:
        """What is known of each axis of all windows, such as where they begin."""
        first = t.ROW + which * self._rank
        return self.rows[:, first : first + self._rank]

    def describe(
        self, sources: Sources, known: Known, corners: Said, flips: Said, out: tuple[int, int]
    ) -> None:
        """Write what is another in each batch. The arrays that it tells of have to live on."""
        kinds = len(known.kinds), known.address
        if sources.places is None:
            self._write_objects(self._objects.data, 0, *map(id, sources.arrays))
            samples = self._objects_at, id(sources.dtype), 0, 0, 0, 0
        else:
            starts, sizes, strides = map(address, sources.places)
            form = 8 * self._rank if len(sources.places.sizes) > 1 else 0
            samples = 0, 0, starts, sizes, strides, form
        _EACH_TIME(self.head.data, 0, *samples, *out, *kinds, 0, 0)
        if not (corners or flips or self._is_said):
            return
        head, rank = self.head, self._rank
        head[t.SHEET : t.SHEET + t.WINDOW * rank] = 0
        self._is_said = bool(corners or flips)
        for first, values in (t.CORNERS, corners), (t.FLIPS, flips):
            for axis, value in values.items():
                at = t.SHEET + first * rank + axis
                head[at] = address(value)
                head[at + rank] = value.strides[0] if value.ndim else 0

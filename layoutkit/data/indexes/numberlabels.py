"""The labels of records that are numbers: any number of them a record.

Knows numbers; where they come from only the kinds of index know.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import DataError
from ...memory import Array

__all__ = ["NumberLabels", "ranked", "spread"]


class NumberLabels:
    """The labels of n records, as float32: 4 bytes a label, where all records have as many.

    width : int or None     how many each record has, those left aside that have none; None where
                            they differ
    are_classes : bool      whether each is one integral label
    """

    def __init__(self, widths: Array, values: Array) -> None:
        """`widths` says how many each record has; `values` are all of them, record by record."""
        given = widths[widths > 0]
        self._starts: Array | None = None
        self.width: int | None = int(given[0]) if len(given) else 0
        if (given != self.width).any():
            self.width = None
            self._starts = np.concatenate(([0], np.cumsum(widths, dtype=np.int64)))
        self.are_classes = self.width in (0, 1) and bool(_is_whole(values).all())
        self._without: frozenset[int] = frozenset()
        if self.width and len(given) < len(widths):  # those without have a row all the same
            self._without = frozenset(np.flatnonzero(widths == 0).tolist())
            rows = np.full((len(widths), self.width), np.nan, np.float32)
            rows[widths > 0] = values.reshape(-1, self.width)
            values = rows
        self._values = np.ascontiguousarray(values, np.float32)
        if self.width is not None:
            self._values = self._values.reshape(len(widths), self.width)

    def chosen(self, rows: slice) -> NumberLabels:
        """Those of some records; width and are_classes stay those of all."""
        part = object.__new__(NumberLabels)
        part.width, part.are_classes = self.width, self.are_classes
        part._starts, part._without = None, frozenset()
        if self._starts is None:
            part._values = self._values[rows].copy()
            if self._without:
                places = enumerate(range(len(self._values))[rows])
                part._without = frozenset(n for n, place in places if place in self._without)
            return part
        starts, widths = self._starts[:-1][rows], np.diff(self._starts)[rows]
        part._starts = np.concatenate(([0], np.cumsum(widths)))
        part._values = self._values[spread(starts, widths)]
        return part

    def rows(self, numbers: Array) -> Array:
        """float32 (n,), or (n, width) for more than one; NaN for a record without.

        Raises DataError where records differ in how many they have.
        """
        if self._starts is not None:
            raise DataError("records differ in how many labels they have, which are no array then")
        found: Array = self._values[numbers]
        return found[:, 0] if self.width == 1 else found

    def tuples(self, numbers: Array) -> list[tuple[float, ...]]:
        """The labels of records as they are."""
        if self._starts is None:
            found = [*map(tuple, self._values[numbers].tolist())]
            if self._without:
                pairs = zip(numbers.tolist(), found, strict=True)
                return [() if number in self._without else row for number, row in pairs]
            return found
        ends = zip(self._starts[numbers].tolist(), self._starts[numbers + 1].tolist(), strict=True)
        return [tuple(self._values[start:end].tolist()) for start, end in ends]

    def classes(self) -> tuple[list[int], Array]:
        """The integral labels of records that have one, sorted, and each record's rank.

        It is -1 for records that have none, several, or one that is not integral.
        """
        values = self._single()
        whole = _is_whole(values)
        codes = np.full(len(values), -1, np.int32)
        labels, codes[whole] = ranked(values[whole].astype(np.int64))
        return labels, codes

    def _single(self) -> Any:
        """The label of each record that has one; NaN for the others."""
        if self.width == 1:
            return self._values[:, 0]
        if self._starts is None:
            return np.full(len(self._values), np.nan, np.float32)
        found = np.full(len(self._starts) - 1, np.nan, np.float32)
        alone = np.flatnonzero(np.diff(self._starts) == 1)
        found[alone] = self._values[self._starts[alone]]
        return found


def ranked(numbers: Array) -> tuple[list[int], Array]:
    """The numbers that there are, sorted, and the rank of each."""
    low, high = int(numbers.min(initial=0)), int(numbers.max(initial=0))
    if high - low > 4 * len(numbers):
        labels, codes = np.unique(numbers, return_inverse=True)
        return labels.tolist(), codes
    # Several times faster than to sort them all.
    there = np.zeros(high - low + 1, bool)
    there[numbers - low] = True
    return (np.flatnonzero(there) + low).tolist(), (np.cumsum(there) - 1)[numbers - low]


def spread(starts: Array, widths: Array) -> Array:
    """start, start + 1, ... start + width - 1 of each, one after the other."""
    first: Array = np.repeat(starts - (np.cumsum(widths) - widths), widths)
    return first + np.arange(len(first))


def _is_whole(values: Array) -> Any:
    """Which labels are whole numbers of which int64 has room."""
    with np.errstate(invalid="ignore"):
        return (np.abs(values) < 2.0**62) & (values == np.floor(values))

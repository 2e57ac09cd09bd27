"""One source of a Batcher: its records in its sampler's order, and what is got for each.

Knows an Index and a Sampler by their public names, and that arrays need not be got one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...memory import Array
from ..indexes import Index, PartsIndex
from ..records import Record
from ..samplers import Sampler
from ..samplers.order import Order
from .joining import Places

__all__ = ["Feed", "Numbers", "rows_of"]

# Which records: their numbers in the index or, of part files, the records themselves.
Numbers = Array | list[Record]


class Feed:
    """The records of an index, in a sampler's order, and the function that reads them.

    `get` is None where `things` already are what the user's function would be given: rows of an
    array.
    """

    def __init__(
        self, index: Index, sampler: Sampler, get: Callable[[Any], Any] | None, read: Any
    ) -> None:
        self.index, self.sampler = index, sampler
        self.in_parts = isinstance(index, PartsIndex)
        self.direct = get is None and index.in_memory
        self.get: Callable[[Any], Any] | None = None if self.direct else get or read

    def order(self, epoch: int, marks: Any = None) -> Order:
        """The order of an epoch; drawing kinds go on without end."""
        return self.sampler.order(epoch, marks)

    def take(self, order: Order, start: int, stop: int) -> Numbers:
        """The records in places start .. stop-1; fewer where the epoch ends."""
        if self.in_parts:
            return order.between(start, stop)  # type: ignore[no-any-return]
        return order.numbers_in(start, stop)

    def things(self, numbers: Numbers) -> Sequence[Any]:
        """What `get` takes, for each of these records."""
        return rows_of(self.gathered(numbers)) if self.direct else self.records(numbers)

    def gathered(self, numbers: Any) -> Array:
        """The rows of an array, copied at once."""
        return self.index.rows(numbers)

    def records(self, numbers: Numbers) -> list[Record]:
        """The records themselves."""
        if isinstance(numbers, list):
            return numbers
        return self.index.records(numbers)

    @property
    def source(self) -> Array:
        """The array of which all records are rows, those of other partitions too."""
        return self.index.source

    def places(self, numbers: Numbers) -> Places:
        """Where these records stand in the whole source, of which an index may be a partition."""
        if isinstance(numbers, list):
            names = [str(record.url).rpartition("/")[2] for record in numbers]
            return Places(np.array([record.position for record in numbers], np.int64), names)
        return Places(self.index.partition.place(numbers))

    def ranks(self, numbers: Any) -> Array | None:
        """The rank of each record's label, -1 for none; None where the source has no labels."""
        return self.index.ranks(numbers)

    def targets(self, numbers: Any) -> Array | None:
        """What the source gives as targets besides labels."""
        return self.index.targets(numbers)


def rows_of(block: Array) -> list[Any]:
    """A window on each row; also of rows that are single numbers."""
    if block.ndim > 1:
        return list(block)
    return [block[row, ...] for row in range(len(block))]

"""Which records a partition holds.

Knows arithmetic, and nothing of records.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Partition"]


class Partition(NamedTuple):
    """Number `part` of `parts`: records part, part + parts, part + 2 parts, ... of the whole."""

    part: int
    parts: int

    @property
    def rows(self) -> slice:
        """The records here, as a slice of the whole."""
        return slice(self.part, None, self.parts)

    def __str__(self) -> str:
        return f"{self.part} of {self.parts}"

    def count(self, whole: int) -> int:
        """How many of `whole` records are here."""
        return len(range(self.part, whole, self.parts))

    def place(self, number: Any) -> Any:
        """Where record `number` of this partition stands in the whole; an array of them, too."""
        return self.part + number * self.parts

"""`NullSpace`: no data at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import SpaceError
from .base import Space
from .checks import Leaf, describe

__all__ = ["NullSpace"]


@dataclass(frozen=True)
class NullSpace(Space):
    """What asks for no data: its only batch is None, its source is ''.

    >>> NullSpace().format_as(None, NullSpace()) is None
    True
    """

    family = "null"
    dtype = None

    def get_total_dimension(self) -> int:
        """Zero."""
        return 0

    def get_origin(self) -> None:
        """Nothing."""

    def with_dtype(self, dtype: Any) -> NullSpace:
        """This space: what has no data has no dtype."""
        return self

    def arrays_in(self, batch: Any) -> list[Leaf]:
        """No array; SpaceError unless the batch is None."""
        if batch is not None:
            raise SpaceError(f"NullSpace() holds no data, but the batch is {describe(batch)}")
        return []

    def _origin_batch(self, n: int, dtype: Any) -> None:
        return None

    def symbolic_batch(self, n: int, dtype: Any, library: Any) -> None:
        """None."""
        return

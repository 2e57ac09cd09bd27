"""Each record once, in order or shuffled, and independent draws.

Knows numbers only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..permutation import drawn, shuffled
from .order import Order

if TYPE_CHECKING:
    from ...memory import Array

__all__ = ["Linear", "Permutation", "Uniform"]


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

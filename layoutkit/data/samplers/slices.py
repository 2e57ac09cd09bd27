"""Batches of neighbours: fixed slices in random order, and runs that begin anywhere.

Knows numbers only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..permutation import drawn, shuffled, unshuffled
from .order import Order, SamplingPlan, ceil_div

if TYPE_CHECKING:
    from ...memory import Array

__all__ = ["Batchwise", "RandomSlice"]


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

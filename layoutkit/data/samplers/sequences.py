"""Batches of sequences of one length.

Knows groups of numbers; the sequences themselves are not known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..permutation import hashed, key_of, shuffled
from .order import Order, SamplingPlan, ends

if TYPE_CHECKING:
    from ...memory import Array
    from ..indexes import Groups

__all__ = ["EvenSequences"]


class EvenSequences(Order):
    """Each sequence once, those of a batch of one length; the lengths take turns.

    The only order with a table: one entry for each batch of the epoch.
    """

    def __init__(self, plan: SamplingPlan, epoch: int) -> None:
        super().__init__(plan, epoch)
        groups: Groups = plan.material
        self._groups = groups
        self._rows_key = key_of(plan.base, plan.seed, epoch, "records")
        width = plan.batch_size or 1
        batches = -(-groups.counts // width)
        group = np.repeat(np.arange(len(batches)), batches)
        lap = np.arange(len(group)) - np.repeat(ends(batches)[:-1], batches)
        turn = shuffled(self.key, group.astype(np.uint64), len(batches))
        schedule = np.lexsort((turn, lap))[: plan.num_batches]
        self._group, self._first = group[schedule], lap[schedule] * width
        self._ends = ends(np.minimum(width, groups.counts[self._group] - self._first))

    @property
    def size(self) -> int:
        """The number of places."""
        return int(self._ends[-1])

    @property
    def num_batches(self) -> int:
        """The number of batches."""
        return len(self._group)

    def cut(self, place: int) -> int:
        """The place behind the batch that `place` is in."""
        last = len(self._ends) - 1
        return int(self._ends[min(last, int(np.searchsorted(self._ends, place, side="right")))])

    def _numbers(self, places: Array) -> Array:
        spots = places.astype(np.int64)
        batch = np.searchsorted(self._ends, spots, side="right") - 1
        group = self._group[batch]
        rows = self._first[batch] + spots - self._ends[batch]
        keys = hashed(self._rows_key, group.astype(np.uint64))
        counts = self._groups.counts[group].astype(np.uint64)
        moved = shuffled(keys, rows.astype(np.uint64), counts).astype(np.int64)
        chosen: Array = self._groups.members[self._groups.starts[group] + moved]
        return chosen

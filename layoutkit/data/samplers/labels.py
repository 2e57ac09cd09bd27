"""Orders that choose a label first, and then one of its records.

Labels are integer ranks here, and records are integer numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..._utils.random import draw_below, hash64, make_key, permute_index
from .orders import Order, SamplingPlan

if TYPE_CHECKING:
    from ...memory import Array
    from ..sources import Groups

_ALL = 1 << 64


@dataclass(frozen=True)
class LabelTable:
    """The labels that have records, and the members of each."""

    groups: Groups

    @classmethod
    def of(cls, groups: Groups) -> LabelTable:
        """Return the table of the labels that have records."""
        kept = np.flatnonzero(groups.counts)
        return cls(
            groups._replace(
                starts=groups.starts[kept].astype(np.uint64),
                counts=groups.counts[kept].astype(np.uint64),
            )
        )

    @property
    def num_labels(self) -> int:
        """The number of labels to choose from."""
        return len(self.groups.counts)

    def members(self, labels: Array, rows: Array) -> Array:
        """Return the record in row `rows[i]` of label `labels[i]`, for each i."""
        return self.groups.members[self.groups.starts[labels] + rows]


class _LabelDraw(Order):
    """An order that draws a label, then one of its records, independently at each position."""

    def __init__(self, plan: SamplingPlan, epoch: int) -> None:
        super().__init__(plan, epoch)
        self._table: LabelTable = plan.material
        self._records_key = make_key(plan.base, plan.seed, epoch, "records")

    def _numbers(self, positions: Array) -> Array:
        labels = self._labels(positions)
        counts = self._table.groups.counts[labels]
        return self._table.members(labels, draw_below(self._records_key, positions, counts))

    def _labels(self, positions: Array) -> Array:
        raise NotImplementedError


class LabelUniform(_LabelDraw):
    """Draws in which all labels are equally likely."""

    def _labels(self, positions: Array) -> Array:
        return draw_below(self.key, positions, self._table.num_labels)


class LabelPermutation(Order):
    """Cycles that visit every label once, in random order; the records of a label are shuffled.

    In cycle c, a label with `count` records gives element c % count of its permutation number
    c // count.
    """

    def __init__(self, plan: SamplingPlan, epoch: int) -> None:
        super().__init__(plan, epoch)
        self._table: LabelTable = plan.material
        self._records_key = make_key(plan.base, plan.seed, epoch, "records")

    def _numbers(self, positions: Array) -> Array:
        number = self._table.num_labels
        cycles = positions // number
        slots = positions % number
        labels = permute_index(hash64(self.key, cycles), slots, number)
        counts = self._table.groups.counts[labels]
        keys = hash64(hash64(self._records_key, labels), cycles // counts)
        return self._table.members(labels, permute_index(keys, cycles % counts, counts))

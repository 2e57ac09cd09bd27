"""Orders that choose a label first, and then one of its records.

Labels are integer ranks here, and records are integer numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._utils.random import draw_below, hash64, make_key, permute_index
from .orders import Order, SamplingPlan

if TYPE_CHECKING:
    from fractions import Fraction

    from ...memory import Array
    from ..sources import Groups

_ALL = 1 << 64


@dataclass(frozen=True)
class LabelTable:
    """The labels that have records: the members of each and, for weighted draws, their limits.

    `limits` divides 0 .. 2^64 by weight: a hash below limits[0] selects label 0, and so on. The
    limits are computed exactly, so the order does not depend on the rounding of the machine.
    """

    groups: Groups
    limits: Array | None = None

    @classmethod
    def of(cls, groups: Groups, weights: Sequence[Fraction] | None = None) -> LabelTable:
        """Return the table of labels that have records and, if weights are passed, a weight > 0."""
        kept = [
            rank
            for rank, count in enumerate(groups.counts)
            if count and (weights is None or weights[rank] > 0)
        ]
        chosen = groups._replace(
            starts=groups.starts[kept].astype(np.uint64),
            counts=groups.counts[kept].astype(np.uint64),
        )
        return cls(chosen, None if weights is None else _limits([weights[k] for k in kept]))

    @property
    def num_labels(self) -> int:
        """The number of labels to choose from."""
        return len(self.groups.counts)

    def members(self, labels: Array, rows: Array) -> Array:
        """Return the record in row `rows[i]` of label `labels[i]`, for each i."""
        return self.groups.members[self.groups.starts[labels] + rows]


def _limits(weights: Sequence[Fraction]) -> Array:
    sums = list(accumulate(weights))
    inner = [int(part * _ALL / sums[-1]) for part in sums[:-1]]
    return np.array(inner, dtype=np.uint64)


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


class LabelDistribution(_LabelDraw):
    """Draws in which the probability of a label is proportional to its weight."""

    def _labels(self, positions: Array) -> Array:
        limits: Any = self._table.limits
        return np.searchsorted(limits, hash64(self.key, positions), side="right")


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

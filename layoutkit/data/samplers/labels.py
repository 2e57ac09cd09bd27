"""Orders that choose a label first, and then one of its records.

Knows ranks and groups of numbers; labels and records themselves are not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from ..random import drawn, hashed, key_of, shuffled
from .orders import Order, SamplingPlan

if TYPE_CHECKING:
    from fractions import Fraction

    from ...memory import Array
    from ..sources import Groups

__all__ = ["LabelDistribution", "LabelPermutation", "LabelUniform", "Labelled"]

_ALL = 1 << 64


@dataclass(frozen=True)
class Labelled:
    """The labels that have records here: their members and, where asked for, their limits.

    `limits` divides 0 .. 2^64 by weight: a hash below limits[0] is label 0, and so on. They are
    exact, so that no machine's rounding can change an order.
    """

    groups: Groups
    limits: Array | None = None

    @classmethod
    def of(cls, groups: Groups, weights: Sequence[Fraction] | None = None) -> Labelled:
        """The labels with records and, if there are weights, a positive one."""
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
    def number(self) -> int:
        """How many labels there are to choose from."""
        return len(self.groups.counts)

    def members(self, labels: Array, rows: Array) -> Array:
        """The records that are in these rows of these labels."""
        chosen: Array = self.groups.members[self.groups.starts[labels] + rows]
        return chosen


def _limits(weights: Sequence[Fraction]) -> Array:
    sums = list(accumulate(weights))
    inner = [int(part * _ALL / sums[-1]) for part in sums[:-1]]
    return np.array(inner, dtype=np.uint64)


class _Drawn(Order):
    """A label, then one of its records, both drawn anew for each place."""

    def __init__(self, plan: SamplingPlan, epoch: int) -> None:
        super().__init__(plan, epoch)
        self._labelled: Labelled = plan.material
        self._rows_key = key_of(plan.base, plan.seed, epoch, "records")

    def _numbers(self, places: Array) -> Array:
        labels = self._labels(places)
        counts = self._labelled.groups.counts[labels]
        return self._labelled.members(labels, drawn(self._rows_key, places, counts))

    def _labels(self, places: Array) -> Array:
        raise NotImplementedError


class LabelUniform(_Drawn):
    """Each label as likely as the others."""

    def _labels(self, places: Array) -> Array:
        return drawn(self.key, places, self._labelled.number)  # type: ignore[no-any-return]


class LabelDistribution(_Drawn):
    """Each label as likely as its weight says."""

    def _labels(self, places: Array) -> Array:
        limits: Any = self._labelled.limits
        ranks: Array = np.searchsorted(limits, hashed(self.key, places), side="right")
        return ranks


class LabelPermutation(Order):
    """In each cycle every label once, in random order; each label's records shuffled.

    A label comes once in a cycle, so in cycle c it gives its record number c, modulo its count,
    of the permutation number c // count.
    """

    def __init__(self, plan: SamplingPlan, epoch: int) -> None:
        super().__init__(plan, epoch)
        self._labelled: Labelled = plan.material
        self._rows_key = key_of(plan.base, plan.seed, epoch, "records")

    def _numbers(self, places: Array) -> Array:
        number = self._labelled.number
        cycles, slots = places // number, places % number
        labels = shuffled(hashed(self.key, cycles), slots, number)
        counts = self._labelled.groups.counts[labels]
        keys = hashed(hashed(self._rows_key, labels), cycles // counts)
        return self._labelled.members(labels, shuffled(keys, cycles % counts, counts))

"""`weighted`: records that are drawn with replacement, by a weight of each record or label."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from ..._utils.indexing import as_array
from ..._utils.random import draw_below
from ..._utils.validation import as_fraction, type_name, with_article
from ...errors import DataError
from ...memory import Array
from ..sources import Index
from .orders import Order


class Weighted(Order):
    """A draw at each position, independent of all others, that is proportional to weights."""

    def _numbers(self, positions: Array) -> Array:
        sums: Array = self.plan.material
        return np.searchsorted(sums, draw_below(self.key, positions, int(sums[-1])), side="right")


# Bits of the sum of all weights: the weight of a record is rounded to 2^-61 of the sum. There is a
# bit left for sums that are larger because their weights were rounded.
_SUM_BITS = 62


def sum_weights(weights: Any, index: Any, count: int) -> Array:
    """Return the cumulative weights of `count` records: integers, so every machine draws equally.

    Raises
    ------
    DataError
        The weights are neither numbers of the records nor of the labels of `index`, one is invalid,
        or all are 0.
    """
    if isinstance(weights, Mapping):
        each = spread_weights(weights, index)
    else:
        each = _read_weights(weights, count)
    if not each.any():
        raise DataError("weighted has nothing to draw from: no record has a positive weight")
    scaled = np.ldexp(each, -int(np.frexp(each.max())[1]))  # their sum cannot overflow
    bits = math.frexp(math.fsum(scaled.tolist()))[1]  # fsum is exact, in any order
    return np.cumsum(np.rint(np.ldexp(scaled, _SUM_BITS - bits)).astype(np.uint64))


def _read_weights(weights: Any, count: int) -> Array:
    """Return one weight for each record as float64, (count,)."""
    values = as_array(weights)
    if values is None or values.ndim != 1 or values.dtype.kind not in "iuf":
        raise DataError(
            f"weights is {with_article(type_name(weights))}; give a list or array of one number "
            "for each record, or {label: number}"
        )
    if len(values) != count:
        raise DataError(
            f"weights has {len(values)} numbers, but there are {count} records; give one for each"
        )
    numbers = values.astype(np.float64)
    wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if wrong.size:
        raise DataError(
            f"the weight of record {wrong[0]} is {values[wrong[0]]}; it must be a finite number, 0 "
            "or more"
        )
    return numbers


def spread_weights(weights: Mapping[Any, Any], index: Any) -> Array:
    """Return the weight of each record, (records,) float64: its label's, divided by their number.

    Raises
    ------
    DataError
        A label has no valid weight, or is unknown.
    """
    if not isinstance(index, Index) or not index.labels:
        raise DataError(
            "weights is a mapping from labels, but the source has none; give a number for each "
            "record"
        )
    unknown = [label for label in weights if label not in index.label_index]
    if unknown:
        raise DataError(f"weights has {unknown[0]!r}, but no record has that label; omit it")
    weights = copy.copy(weights)  # looking up a missing key adds it to a defaultdict
    exact = [_read_weight(weights, label) for label in index.labels]
    if not any(exact):
        raise DataError("every weight is 0; at least one must be positive")
    counts = np.maximum(index.groups.counts, 1)
    shares = np.array([float(weight / max(exact)) for weight in exact]) / counts
    codes = index.ranks(np.arange(len(index)))
    # -1, no label, has the weight 0.
    return np.append(shares, 0.0)[codes]


def _read_weight(weights: Mapping[Any, Any], label: Any) -> Fraction:
    try:
        weight = weights[label]
    except KeyError:
        raise DataError(f"weights has no weight for label {label!r}; give it 0 or more") from None
    exact = as_fraction(weight)
    if exact is None or exact < 0:
        raise DataError(
            f"the weight of {label!r} is {weight!r}; it must be a finite number, 0 or more"
        )
    return exact

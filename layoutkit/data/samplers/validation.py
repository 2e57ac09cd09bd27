"""From the arguments of a sampler to a SamplingPlan; whatever does not fit is said here.

Knows what indexes, numbers and lengths have in common; knows no order but by its Kind.
"""

from __future__ import annotations

import copy
import math
import numbers
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ...checks import as_count, kind_text
from ...errors import DataError
from ..indexes import Index, PartsIndex, grouped
from ..indexes.partition import Partition
from .kinds import Kind
from .labels import Labelled
from .order import SamplingPlan, ceil_div

__all__ = ["check_turns", "plan_of"]

# Positions are 64-bit integers with a sign, in states and in arrays.
_MAX = (1 << 63) - 1


class Chosen(NamedTuple):
    """What is sampled: see SamplingPlan."""

    number: int
    item: Any = None
    members: Any = None
    material: Any = None


def plan_of(
    kind: Kind, index: Any, batch_size: Any, num_batches: Any, label: Any, weights: Any, seed: Any
) -> SamplingPlan:
    """The SamplingPlan of these arguments.

    Raises
    ------
    DataError
        An argument is wrong, means nothing for this kind, or cannot be had.
    """
    batch = None if batch_size is None else _bounded("batch_size", batch_size, 1)
    batches = None if num_batches is None else _bounded("num_batches", num_batches, 0)
    _check_words(kind, label, weights)
    chosen = _chosen(kind, index, label, weights)
    batch = _width(kind, chosen, batch, batches)
    plan = SamplingPlan(
        kind.name,
        kind.base,
        as_count("seed", seed, None),
        chosen.number,
        batch,
        _turns(kind, chosen, batch, batches),
        chosen.item,
        chosen.members,
        kind.even,
        kind.draws,
        chosen.material,
        str(getattr(index, "partition", Partition(0, 1))),
    )
    check_turns(kind, plan)
    return plan


def _check_words(kind: Kind, label: Any, weights: Any) -> None:
    if label is not None and not kind.one_label:
        raise DataError(
            f"label={label!r} means nothing for {kind.name}; linear, permutation and "
            "uniform take it"
        )
    if weights is not None and not kind.weighted:
        raise DataError(f"weights mean nothing for {kind.name}; label-distribution takes them")
    if weights is None and kind.weighted:
        raise DataError("label-distribution needs weights={label: number}")


def _bounded(name: str, value: Any, least: int) -> int:
    number = as_count(name, value, least)
    if number > _MAX:
        raise DataError(f"{name} is {number}; it is at most {_MAX}")
    return number


def _chosen(kind: Kind, index: Any, label: Any, weights: Any) -> Chosen:
    """What a kind samples of an index, a number or anything with a length."""
    if kind.parts != isinstance(index, PartsIndex):
        takes = "takes part files only" if kind.parts else "takes no part files"
        raise DataError(
            f"{kind.name} {takes}; part-linear, part-linear-permutation and "
            "part-permutation-permutation take them, and nothing else"
        )
    if isinstance(index, PartsIndex):
        return Chosen(len(index.parts), material=index)
    item = index.record if isinstance(index, Index) else None
    if kind.base == "even_sequences":
        return _sequences(index, item)
    if item is None:
        if kind.labelled or label is not None:
            raise DataError(f"{kind.name} needs an Index with labels, not {_named(index)}")
        return Chosen(_length(index))
    if kind.labelled:
        return _labelled(kind, index, weights)
    if label is not None:
        return Chosen(index.item_count(label), item, index.members(label))
    return Chosen(len(index), item)


def _named(index: Any) -> str:
    return f"{index!r}" if isinstance(index, int) else f"a {kind_text(index)}"


def _length(index: Any) -> int:
    if isinstance(index, numbers.Integral):
        count = as_count("index", index)
    else:
        try:
            count = len(index)
        except DataError:
            raise
        except TypeError:
            raise DataError(
                f"{_named(index)} is no Index, no number and has no length; nothing to sample"
            ) from None
    return _bounded("the number of records", count, 0)


def _labelled(kind: Kind, index: Index, weights: Any) -> Chosen:
    if not index.labels:
        raise DataError(f"{kind.name} needs labels, and this {index.kind} index has none")
    ranked = None if weights is None else _ranked(weights, index)
    labelled = Labelled.of(index.groups, ranked)
    if not labelled.number:
        raise DataError(f"{kind.name} has nothing to draw from: no label it may take has records")
    return Chosen(len(index), index.record, material=labelled)


def _ranked(weights: Any, index: Index) -> list[Fraction]:
    """The weight of each label of the index."""
    if not isinstance(weights, Mapping):
        raise DataError(f"weights is a {kind_text(weights)}; give {{label: number}}")
    unknown = [label for label in weights if label not in index.label_index]
    if unknown:
        raise DataError(f"weights has {unknown[0]!r}, but no record has that label")
    given = copy.copy(weights)  # asking a defaultdict adds to it
    ranked = [_weight(given, label) for label in index.labels]
    if not any(ranked):
        raise DataError("every weight is 0; at least one must be positive")
    return ranked


def _weight(weights: Mapping[Any, Any], label: Any) -> Fraction:
    try:
        weight = weights[label]
    except KeyError:
        raise DataError(f"weights has nothing for label {label!r}; give it 0 or more") from None
    exact = _exact(weight)
    if exact is None or exact < 0:
        raise DataError(f"the weight of {label!r} is {weight!r}; it is a finite number, 0 or more")
    return exact


def _exact(number: Any) -> Fraction | None:
    """A number without rounding; None for what is no finite number."""
    if isinstance(number, numbers.Integral):
        return Fraction(int(number))  # fractions of NumPy's integers overflow
    if isinstance(number, Fraction):
        return number
    finite = isinstance(number, numbers.Real) and math.isfinite(number)
    return Fraction(float(number)) if finite else None


def _sequences(index: Any, item: Any) -> Chosen:
    """The sequences by length."""
    if isinstance(index, numbers.Integral):
        raise DataError(f"even_sequences needs sequences, whose lengths it asks, not {index!r}")
    count = _length(index)
    lengths = [_sequence_length(index, number) for number in range(count)]
    _, codes = np.unique(np.array(lengths, dtype=np.int64), return_inverse=True)
    groups = grouped(codes, int(codes.max(initial=-1)) + 1)
    return Chosen(count, item, material=groups)


def _sequence_length(index: Any, number: int) -> int:
    try:
        sequence = index[number]
    except (TypeError, KeyError):
        raise DataError(
            f"even_sequences takes sequences one by one, and a {kind_text(index)} has no "
            f"[{number}]; give a list"
        ) from None
    if isinstance(index, Index) and sequence.array is None:
        if sequence.length is None:
            raise DataError(
                f"even_sequences needs the length of each record, and record {number} has none"
            )
        return sequence.length  # type: ignore[no-any-return]
    try:
        return len(sequence.array if isinstance(index, Index) else sequence)
    except DataError:
        raise
    except TypeError:
        raise DataError(f"even_sequences needs sequences, and number {number} is none") from None


def _width(kind: Kind, chosen: Chosen, batch: int | None, batches: int | None) -> int | None:
    """The batch size: as given, or from the number of batches."""
    if batch is None and batches is not None:
        if kind.draws:
            raise DataError(f"num_batches={batches} of {kind.name} needs a batch_size, too")
        count = chosen.material.item_count() if kind.parts else chosen.number
        batch = max(1, count // max(1, batches) if kind.even else ceil_div(count, max(1, batches)))
    if batch is None and kind.sliced:
        raise DataError(f"{kind.name} needs a batch_size, as its order is made of batches")
    if kind.draws and not chosen.number:
        raise DataError(f"{kind.name} has nothing to draw from: there are no records")
    if kind.name == "random_slice" and batch and batch > chosen.number:
        raise DataError(f"batch_size={batch}, but there are {chosen.number} records to slice")
    return batch


def _turns(kind: Kind, chosen: Chosen, batch: int | None, batches: int | None) -> int | None:
    """The number of batches of kinds that draw; of the others the number asked for, or None."""
    if kind.draws and batch:
        turns = ceil_div(chosen.number, batch) if batches is None else batches
        _bounded("the number of places, num_batches * batch_size,", turns * batch, 0)
        return turns
    return batches


def check_turns(kind: Kind, plan: SamplingPlan) -> None:
    """Raise unless as many batches as are asked for can be had; parts may say so only later."""
    if plan.num_batches is None or plan.draws:
        return
    can = kind.order(replace(plan, num_batches=None), 0).num_batches
    if can is not None and plan.num_batches > can:
        raise DataError(
            f"num_batches={plan.num_batches}, but {kind.name} can give {can} batches of "
            f"{plan.batch_size}; ask for no more, or for smaller ones"
        )

"""A Sampler: the order of records, epoch by epoch.

Knows epochs and states; which record stands in which place is known by the orders.

The kinds of samplers: a table of their names, orders and what they take.

A new kind is an Order in a module of its own and a row in KINDS. Knows what is special about each
kind, and leaves it to `validation.py` to hold arguments against it.

From the arguments of a sampler to a SamplingPlan; whatever does not fit is said here.

Knows what indexes, numbers and lengths have in common; knows no order but by its Kind.
"""

from __future__ import annotations

import copy
import math
import numbers
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ..._utils.validation import as_count, kind_text
from ...errors import DataError
from ..errors import NoLength
from ..iteration import EpochIterator, Epochs
from ..sources import Index, PartsIndex, grouped
from ..sources.base import Partition
from . import labels, orders, partwise
from .labels import Labelled
from .orders import Order, SamplingPlan, ceil_div
from .partwise import from_marks


class Kind(NamedTuple):
    """What is special about a kind.

    base       the kind whose order it is: what its random numbers are drawn by
    order      the class of that order
    even       leaves out what fills no batch
    draws      has no end of its own
    labelled   chooses labels
    weighted   by weights
    parts      takes part files, and nothing else
    one_label  can be restricted to one
    sliced     means nothing without a batch size
    """

    name: str
    base: str
    order: type[Order]
    even: bool = False
    draws: bool = False
    labelled: bool = False
    weighted: bool = False
    parts: bool = False
    one_label: bool = False
    sliced: bool = False


_BATCHWISE = "batchwise_shuffled_sequential"
KINDS = {
    kind.name: kind
    for kind in (
        Kind("linear", "linear", orders.Linear, one_label=True),
        Kind("permutation", "permutation", orders.Permutation, one_label=True),
        Kind(_BATCHWISE, _BATCHWISE, orders.Batchwise, sliced=True),
        Kind("even_sequential", "linear", orders.Linear, even=True, sliced=True),
        Kind("even_shuffled_sequential", "permutation", orders.Permutation, even=True, sliced=True),
        Kind(f"even_{_BATCHWISE}", _BATCHWISE, orders.Batchwise, even=True, sliced=True),
        Kind("even_sequences", "even_sequences", orders.EvenSequences, even=True, sliced=True),
        Kind("uniform", "uniform", orders.Uniform, draws=True, one_label=True),
        Kind("random_slice", "random_slice", orders.RandomSlice, draws=True, sliced=True),
        Kind("label-uniform", "label-uniform", labels.LabelUniform, draws=True, labelled=True),
        Kind(
            "label-distribution",
            "label-distribution",
            labels.LabelDistribution,
            draws=True,
            labelled=True,
            weighted=True,
        ),
        Kind(
            "label-permutation",
            "label-permutation",
            labels.LabelPermutation,
            draws=True,
            labelled=True,
        ),
        Kind("part-linear", "part-linear", partwise.PartLinear, parts=True),
        Kind(
            "part-linear-permutation",
            "part-linear-permutation",
            partwise.PartLinearPermutation,
            parts=True,
        ),
        Kind(
            "part-permutation-permutation",
            "part-permutation-permutation",
            partwise.PartPermutationPermutation,
            parts=True,
        ),
    )
}
OTHER_NAMES = {
    "sequential": "linear",
    "shuffle": "permutation",
    "shuffled_sequential": "permutation",
    "random_uniform": "uniform",
}


def kind_of(name: Any) -> Kind:
    """The kind of this name or other name; DataError where there is none."""
    known = isinstance(name, str) and KINDS.get(OTHER_NAMES.get(name, name))
    if not known:
        raise DataError(
            f"no sampler is called {name!r}; there are {', '.join([*KINDS, *OTHER_NAMES])}"
        )
    return known


def full_batches(name: Any) -> str:
    """The name of the kind whose order this one's is, less what fills no batch.

    >>> full_batches("shuffle"), full_batches("uniform")
    ('even_shuffled_sequential', 'uniform')

    Raises DataError for the kinds of part files, which have none.
    """
    kind = kind_of(name)
    if kind.even or kind.draws:
        return kind.name
    for other in KINDS.values():
        if other.even and other.base == kind.base:
            return other.name
    raise DataError(
        f"drop_last=True, but {kind.name} does not know how many records there are before every "
        "part is opened; look at batch.count"
    )


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


def sampler(
    kind: str,
    index: Any,
    *,
    batch_size: int | None = None,
    num_batches: int | None = None,
    label: Any = None,
    weights: Mapping[Any, float] | None = None,
    seed: int = 0,
    epoch: int = 0,
) -> Sampler:
    """In which order records come: a pure function of kind, seed, epoch and position.

    >>> list(sampler("linear", 3))
    [0, 1, 2]
    >>> shuffled = sampler("permutation", 10, batch_size=4)
    >>> [len(batch) for batch in shuffled.batches()]
    [4, 4, 2]
    >>> sorted(shuffled), shuffled.epoch
    ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 2)

    Parameters
    ----------
    kind : str
        linear, permutation, uniform, batchwise_shuffled_sequential, random_slice, even_...,
        label-..., part-...; an unknown one raises an error that lists them.
    index : Index, int or anything with a length
        What is sampled: an Index gives Records, a number or a length gives ints.
    batch_size, num_batches : int, optional
        Of an epoch. Kinds that draw at random have no end of their own: they need both, or take
        as many batches as hold all records. Without either they are endless.
    label : optional
        Sample records with this label only.
    weights : mapping from label to number
        For label-distribution: how likely each label is, in any unit.
    seed, epoch : int
        Another seed or epoch, another order.

    Raises
    ------
    DataError
        An argument is wrong, means nothing for this kind, or asks for what cannot be had.
    """
    chosen = kind_of(kind)
    plan = plan_of(chosen, index, batch_size, num_batches, label, weights, seed)
    return Sampler(chosen, plan, epoch)


class Sampler(Epochs[Any]):
    """The order of records, epoch by epoch; made by `sampler`.

    For those who read ahead, `order(epoch)` is the order of any epoch, an `Order` that gives the
    record of any place, and `plan` is what was asked for.
    """

    def __init__(self, kind: Kind, plan: SamplingPlan, epoch: int) -> None:
        super().__init__(epoch)
        self._kind = kind
        self._plan = plan
        self._kept: tuple[int, Order] | None = None

    @property
    def batch_size(self) -> int | None:
        """Records in a full batch; None when there are no batches."""
        return self._plan.batch_size

    @property
    def num_batches(self) -> int | None:
        """Batches in this epoch; None when endless, without batch size, or not known yet."""
        return self.order(self._epoch).num_batches

    @property
    def unvisited(self) -> int | None:
        """How many records this epoch leaves out; None where that is chance, or not known yet."""
        size = self.order(self._epoch).size
        if self._plan.draws or size is None:
            return None
        return (
            int(self._plan.material.item_count() if self._kind.parts else self._plan.count) - size
        )

    def __len__(self) -> int:
        size = self.order(self._epoch).size
        if size is None:
            why = "is endless" if self._plan.draws else "has no length until every part is opened"
            raise NoLength(f"{self._plan.kind} {why}; its items can be iterated")
        return size

    def batches(self) -> Batches:
        """The same order in batches: lists of Records, or int64 arrays of numbers.

        An iterable with the sampler's own epoch and state; a place inside a batch, which a loop
        over single records can leave, gives the rest of that batch first.

        Raises
        ------
        DataError
            There is no batch size.
        """
        if self.batch_size is None:
            raise DataError("batches() needs a batch_size; give one to sampler()")
        return Batches(self)

    @property
    def plan(self) -> SamplingPlan:
        """What this sampler was asked for, checked: all that its orders need besides the epoch."""
        return self._plan

    def order(self, epoch: int, marks: Mapping[str, Any] | None = None) -> Order:
        """The order of an epoch; `marks` of a state let that of part files start in the middle."""
        if self._kept and self._kept[0] == epoch and marks is None:
            return self._kept[1]
        if marks is not None and self._kind.parts:
            return from_marks(self._kind.order, self._plan, epoch, marks)
        return self._kind.order(self._plan, epoch)

    def with_plan(self, **changes: Any) -> Sampler:
        """A sampler of the same kind at epoch 0, whose plan differs in some fields.

        Raises
        ------
        DataError
            The batches that it asks for cannot be had.
        """
        plan = replace(self._plan, **changes)
        check_turns(self._kind, plan)
        return Sampler(self._kind, plan, 0)

    def __repr__(self) -> str:
        return f"<{self._plan.kind} sampler, seed {self._plan.seed}, epoch {self._epoch}>"

    def _steps(self, epoch: int, position: int) -> Iterator[tuple[Any, int]]:
        for item in self._keep(epoch).walk(position):
            position += 1
            yield item, position

    def _batch_steps(self, epoch: int, position: int) -> Iterator[tuple[Any, int]]:
        return self._keep(epoch).batches(position)

    def _keep(self, epoch: int) -> Order:
        order = self.order(epoch)
        self._kept = epoch, order
        return order

    def _identity(self) -> dict[str, int | str]:
        return self._plan.identity

    def _records(self) -> int:
        return self._plan.count

    def _end(self, epoch: int) -> int | None:
        return self.order(epoch).size

    def _marks(self, position: int) -> dict[str, int]:
        return self.order(self._epoch).marks(position) if self._kind.parts else {}

    def _take(self, epoch: int, position: int, state: Mapping[str, Any]) -> int:
        self._kept = epoch, self.order(epoch, state)
        return position

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_kept": None}


class Batches:
    """A sampler's order in batches; its epoch and state are the sampler's."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self.set_epoch = sampler.set_epoch
        self.state_dict = sampler.state_dict
        self.load_state_dict = sampler.load_state_dict

    @property
    def epoch(self) -> int:
        """The sampler's epoch."""
        return self._sampler.epoch

    def __iter__(self) -> EpochIterator[Any]:
        return self._sampler._begin(self._sampler._batch_steps)

    def __len__(self) -> int:
        number = self._sampler.num_batches
        if number is None:
            raise NoLength("the number of batches is not known until every part is opened")
        return number

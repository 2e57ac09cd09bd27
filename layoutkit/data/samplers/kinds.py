"""The kinds of samplers: a table of their names, orders and what they take.

A new kind is an Order in a module of its own and a row in KINDS. Knows what is special about each
kind, and leaves it to `validation.py` to hold arguments against it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...errors import DataError
from . import labels, partwise, sequences, slices, walks
from .order import Order

__all__ = ["KINDS", "OTHER_NAMES", "Kind", "full_batches", "kind_of"]


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
        Kind("linear", "linear", walks.Linear, one_label=True),
        Kind("permutation", "permutation", walks.Permutation, one_label=True),
        Kind(_BATCHWISE, _BATCHWISE, slices.Batchwise, sliced=True),
        Kind("even_sequential", "linear", walks.Linear, even=True, sliced=True),
        Kind("even_shuffled_sequential", "permutation", walks.Permutation, even=True, sliced=True),
        Kind(f"even_{_BATCHWISE}", _BATCHWISE, slices.Batchwise, even=True, sliced=True),
        Kind("even_sequences", "even_sequences", sequences.EvenSequences, even=True, sliced=True),
        Kind("uniform", "uniform", walks.Uniform, draws=True, one_label=True),
        Kind("random_slice", "random_slice", slices.RandomSlice, draws=True, sliced=True),
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

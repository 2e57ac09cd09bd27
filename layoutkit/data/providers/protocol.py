"""The data provider's interface: batches of one size, whose arrays have names.

Knows names, shapes and slices; where batches come from is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from ..._utils.validation import kind_text
from ...backends.base import NUMPY
from ...backends.dispatch import adapter_of
from ...errors import DataError, ShapeError
from ...layout.parsing import parse_layout
from ...memory import Array
from ...spec import check_cast

__all__ = ["Named", "Provider", "get_named", "load"]

_View = TypeVar("_View")
Named = list[tuple[str, tuple[int, ...]]]


@runtime_checkable
class Provider(Protocol):
    """Batches of `batch_size` rows each, as Views with names, of which some are data, some labels.

    `for batch in provider` is an epoch. The last batch may hold fewer samples than it has rows:
    `count_samples` tells how many are real.
    """

    @property
    def batch_size(self) -> int:
        """The rows of every batch."""

    @property
    def provide_data(self) -> Named:
        """(name, shape) of the data of every batch."""

    @property
    def provide_label(self) -> Named:
        """(name, shape) of the labels of every batch."""

    def __iter__(self) -> Iterator[Any]:
        """An epoch of batches."""

    def count_samples(self, batch: Any) -> int:
        """How many rows of the batch are real; they are the first ones."""

    def get_data(self, batch: Any) -> list[Any]:
        """The data as Views, in the order of `provide_data`."""

    def get_label(self, batch: Any) -> list[Any]:
        """The labels as Views, in the order of `provide_label`."""

    def get(self, batch: Any, name: str) -> Any:
        """The View of a name, of the data or of the labels."""

    def load_data(self, batch: Any, targets: Sequence[Any]) -> None:
        """Copy the data into arrays, whole or in slices of rows."""

    def load_label(self, batch: Any, targets: Sequence[Any]) -> None:
        """Copy the labels into arrays, whole or in slices of rows."""


def get_named(names: Sequence[str], views: Sequence[_View], name: str) -> _View:
    """The view of a name; DataError, with the names there are, where there is none."""
    if name not in names:
        there = ", ".join(repr(each) for each in names)
        raise DataError(f"{name!r} is not provided; there are {there}")
    return views[names.index(name)]


def load(named: Named, views: Sequence[Any], targets: Sequence[Any]) -> None:
    """Copy each view into its targets: an array, or a list of (slice, array).

    Everything is checked before anything is written. Raises DataError, ShapeError, DtypeError.
    """
    if not isinstance(targets, list | tuple) or len(targets) != len(named):
        there = ", ".join(name for name, _ in named) or "nothing"
        found = len(targets) if isinstance(targets, list | tuple) else f"a {kind_text(targets)}"
        raise DataError(f"targets are {found}, but one is due for each of: {there}")
    moves = [
        move
        for (name, _), view, target in zip(named, views, targets, strict=True)
        for move in _moves(name, view, target)
    ]
    for rows, memory, _ in moves:
        memory[...] = rows
    for _, _, target in moves:
        adapter = adapter_of(target)
        if adapter is not None:
            adapter.written(target)


def _moves(name: str, view: Any, target: Any) -> Iterator[tuple[Array, Array, Any]]:
    """(rows, memory that takes them, whose it is), checked."""
    base, axis = view.input, parse_layout(view.layout).groups.index("b")
    pairs = target if isinstance(target, list | tuple) else [(slice(None), target)]
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], slice):
            raise DataError(
                f"a target of {name} is {kind_text(pair)}; give an array for the whole batch, or a "
                "list of (slice, array)"
            )
        part, array = pair
        rows = base[(slice(None),) * axis + (_checked(part, base.shape[axis], name),)]
        yield rows, _memory(array, rows, name), array


def _checked(part: slice, size: int, name: str) -> slice:
    """The slice, if it is a range of rows of the batch; DataError otherwise."""
    start = 0 if part.start is None else part.start
    stop = size if part.stop is None else part.stop
    ints = all(isinstance(n, int | np.integer) for n in (start, stop))
    if part.step not in (None, 1) or not ints or not 0 <= start <= stop <= size:
        raise DataError(
            f"a target of {name} takes {part}, which is no range of the {size} rows of a batch; "
            f"give a slice(start, stop) with 0 <= start <= stop <= {size}"
        )
    return slice(start, stop)


def _memory(array: Any, rows: Array, name: str) -> Array:
    """The memory of a target that can take the rows."""
    adapter, what = adapter_of(array) or NUMPY, f"the target of {name}"
    memory = adapter.arrive(array, what)
    if memory.shape != rows.shape:
        raise ShapeError(
            f"a target of {name} has shape {memory.shape}, but its rows of the batch have "
            f"{rows.shape}; give that shape"
        )
    if not memory.flags.writeable:
        raise DataError(f"a target of {name} is read-only; give a writeable array")
    check_cast(rows.dtype, memory.dtype, "same_kind")
    return memory

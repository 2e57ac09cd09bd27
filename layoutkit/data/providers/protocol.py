"""The data provider interface: batches of one size whose arrays have names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from ..._utils.validation import describe_type, type_name
from ...backends.base import NUMPY
from ...backends.dispatch import get_adapter
from ...errors import DataError, ShapeError
from ...layout.parsing import parse_layout
from ...memory import Array
from ...spec import check_cast

_View = TypeVar("_View")
Named = list[tuple[str, tuple[int, ...]]]


@runtime_checkable
class Provider(Protocol):
    """A source of batches of `batch_size` rows each: named Views of data and of labels.

    `for batch in provider` is an epoch. The last batch may hold fewer samples than rows:
    `count_samples` returns the number of valid rows.
    """

    @property
    def batch_size(self) -> int:
        """The number of rows of every batch."""

    @property
    def provide_data(self) -> Named:
        """(name, shape) of the data of every batch."""

    @property
    def provide_label(self) -> Named:
        """(name, shape) of the labels of every batch."""

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over an epoch of batches."""

    def count_samples(self, batch: Any) -> int:
        """Return the number of valid rows of the batch, which come first."""

    def get_data(self, batch: Any) -> list[Any]:
        """Return the data as Views, in the order of `provide_data`."""

    def get_label(self, batch: Any) -> list[Any]:
        """Return the labels as Views, in the order of `provide_label`."""

    def get(self, batch: Any, name: str) -> Any:
        """Return the View with this name, of the data or of the labels."""

    def load_data(self, batch: Any, targets: Sequence[Any]) -> None:
        """Copy the data into arrays, complete or in slices of rows."""

    def load_label(self, batch: Any, targets: Sequence[Any]) -> None:
        """Copy the labels into arrays, complete or in slices of rows."""


def find_view(names: Sequence[str], views: Sequence[_View], name: str) -> _View:
    """Return the view with this name; raise DataError, listing all names, if there is none."""
    if name not in names:
        known_names = ", ".join(repr(known) for known in names)
        raise DataError(f"{name!r} is not provided; there are {known_names}")
    return views[names.index(name)]


def copy_to_targets(named: Named, views: Sequence[Any], targets: Sequence[Any]) -> None:
    """Copy each view into its targets: an array, or a list of (slice, array).

    Everything is checked before anything is written. Raises DataError, ShapeError, DtypeError.
    """
    if not isinstance(targets, list | tuple) or len(targets) != len(named):
        expected = ", ".join(name for name, _ in named) or "nothing"
        actual = len(targets) if isinstance(targets, list | tuple) else describe_type(targets)
        raise DataError(f"targets are {actual}, but there must be one for each of: {expected}")
    copies = [
        copy
        for (name, _), view, target in zip(named, views, targets, strict=True)
        for copy in _iter_copies(name, view, target)
    ]
    for rows, memory, _ in copies:
        memory[...] = rows
    for _, _, target in copies:
        adapter = get_adapter(target)
        if adapter is not None:
            adapter.written(target)


def _iter_copies(name: str, view: Any, target: Any) -> Iterator[tuple[Array, Array, Any]]:
    """Yield validated (rows, memory to write, target array) triples."""
    base = view.input
    axis = parse_layout(view.layout).groups.index("b")
    pairs = target if isinstance(target, list | tuple) else [(slice(None), target)]
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], slice):
            raise DataError(
                f"a target of {name} is {type_name(pair)}; give an array for the whole batch, or a "
                "list of (slice, array)"
            )
        part, array = pair
        rows = base[(slice(None),) * axis + (_check_rows(part, base.shape[axis], name),)]
        yield rows, _target_memory(array, rows, name), array


def _check_rows(part: slice, size: int, name: str) -> slice:
    """Return the slice if it is a range of rows of the batch; raise DataError otherwise."""
    start = 0 if part.start is None else part.start
    stop = size if part.stop is None else part.stop
    are_ints = all(isinstance(n, int | np.integer) for n in (start, stop))
    if part.step not in (None, 1) or not are_ints or not 0 <= start <= stop <= size:
        raise DataError(
            f"a target of {name} has {part}, which is not a range of the {size} rows of a batch; "
            f"give a slice(start, stop) with 0 <= start <= stop <= {size}"
        )
    return slice(start, stop)


def _target_memory(array: Any, rows: Array, name: str) -> Array:
    adapter, arg_name = get_adapter(array) or NUMPY, f"the target of {name}"
    memory = adapter.to_numpy(array, arg_name)
    if memory.shape != rows.shape:
        raise ShapeError(
            f"a target of {name} has shape {memory.shape}, but its rows of the batch have "
            f"{rows.shape}; give that shape"
        )
    if not memory.flags.writeable:
        raise DataError(f"a target of {name} is read-only; give a writeable array")
    check_cast(rows.dtype, memory.dtype, "same_kind")
    return memory

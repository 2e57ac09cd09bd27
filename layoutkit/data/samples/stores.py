"""What a Sample keeps: data that can be selected from, read and written, and is not read before.

    Window    a selection of a source
    Rows      a list of arrays

Those of datasets that have no length are in `unbounded.py`, mini-batches in `minibatches.py`.

Knows nothing of fields, layouts and Samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from ...arrays.rows import take
from ...errors import DataError
from ...memory import Array
from ...spec import DType
from ..protocolerrors import NoLength, OutOfRange
from .keys import expand, field_names, kinds_of, place_of
from .selections import Selection
from .sources import ArraySource, Source
from .values import as_elements

__all__ = ["Length", "Rows", "Store", "Window"]

Length = int | float | None  # math.inf: no end; None: unknown, to be iterated only


class Store:
    """Data behind a Sample. What a kind of data cannot do is a DataError."""

    writable = False
    blocked = False  # whether its elements are Datasets: mini-batches
    unbounded = False  # whether it has no length, and is known only from its elements
    is_array = True  # whether all of it can be one array

    def length(self) -> Length:
        """How many elements the first axis has."""
        raise NotImplementedError

    def extent(self) -> Length:
        """How many samples there are: of mini-batches, those in all of them."""
        return self.length()

    @property
    def rank(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the data."""
        self._cannot("has no shape")

    @property
    def dtype(self) -> DType:
        """The dtype of the data."""
        self._cannot("has no dtype")

    def read(self, locked: bool) -> Any:
        """The data; where it is the source's own memory, read-only if `locked`."""
        self._cannot("cannot be read as a whole")

    def write(self, value: Any) -> None:
        """Write a number or array; raises before anything is written."""
        self._cannot("is read-only")

    def update(self, change: Callable[[Any, Any], Any], value: Any) -> None:
        """Write what `change` makes of the data and a value."""
        self.write(change(np.asarray(self.read(True)), value))

    def select(self, key: Any) -> Store:
        """What a key selects."""
        raise NotImplementedError

    def lying(self) -> Array | None:
        """The array in the source's memory that the elements are rows of, if there is one."""
        return None

    def take(self, places: Array) -> Array:
        """The elements at some places, in memory of their own."""
        found = np.asarray(self.select(places).read(True))
        return found if found.flags.owndata else found.copy()

    def steps(self) -> Iterator[Store]:
        """The elements, one after the other."""
        length = self.length()
        return (self.select(at) for at in range(int(length or 0)))

    def fields(self) -> dict[str, Store]:
        """The fields that the data itself has; may read an element."""
        return {}

    def same(self, other: Store) -> bool:
        """Whether both are the same elements in the same memory."""
        return False

    def _cannot(self, what: str) -> NoReturn:
        raise DataError(f"{self} {what}; {self._instead}")

    _instead = "select the part that you need"


class Window(Store):
    """A selection of a source."""

    def __init__(self, source: Source, selection: Selection | None = None) -> None:
        self.source = source
        self.selection = Selection.whole(source.shape) if selection is None else selection

    def length(self) -> int:
        """The size of the first axis; DataError (also a TypeError) without one."""
        if not self.shape:
            raise NoLength("a single element has no length; it is of shape ()")
        return self.shape[0]

    def extent(self) -> Length:
        """The same, or None without an axis."""
        return self.shape[0] if self.shape else None

    @property
    def shape(self) -> tuple[int, ...]:
        """Known without reading."""
        return self.selection.shape

    @property
    def dtype(self) -> DType:
        """The source's."""
        return self.source.dtype

    @property
    def writable(self) -> bool:  # type: ignore[override]
        """Whether the source is."""
        return self.source.writable

    def read(self, locked: bool) -> Any:
        """A view of the source where NumPy has one; a scalar for one element."""
        found = self.source.read(self.selection)
        if found.ndim == 0:
            return found[()]
        lent = found.base is not None
        if not isinstance(self.source, ArraySource):
            # What is like an array may give its own memory, though no base says so.
            lent, locked = True, locked or not self.source.writable
        if locked and lent:
            found = found.view()
            found.flags.writeable = False
        return found

    def write(self, value: Any) -> None:
        """Write through to the source."""
        self.source.write(self.selection, as_elements(value, self.dtype, self.shape))

    def select(self, key: Any) -> Store:
        """Another window on the same source."""
        names = field_names(key)
        if names is None:
            return Window(self.source, self.selection.select(key))
        if not set([names] if isinstance(names, str) else names) <= set(self.dtype.names or ()):
            raise OutOfRange(f"data of {self.dtype} has no fields {names!r}; select by position")
        source = self.source.fields(names)
        return Window(source, self.selection.with_axes(source.shape[len(self.source.shape) :]))

    def lying(self) -> Array | None:
        """The view of an array that the elements are."""
        listed = any(isinstance(selector, np.ndarray) for selector in self.selection.selectors)
        if listed or self.selection.rest or not isinstance(self.source, ArraySource):
            return None
        found: Array = self.read(True)
        return found

    def take(self, places: Array) -> Array:
        """The elements at some places; of a view, in pooled memory."""
        found = self.lying()
        return super().take(places) if found is None else take(found, 0, places)

    def same(self, other: Store) -> bool:
        """Whether both are the same selection of the same memory."""
        same = isinstance(other, Window) and self.source.same(other.source)
        return same and self.selection.same(other.selection)  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return f"data of shape {self.shape} and {self.dtype}"


class Rows(Store):
    """A list of arrays, which may differ in length."""

    is_array = False
    _instead = "its data is a list; use len(), or select a row"

    def __init__(self, rows: Sequence[Store]) -> None:
        self.rows = list(rows)

    def length(self) -> int:
        """The number of arrays."""
        return len(self.rows)

    @property
    def rank(self) -> int:
        """One more than that of the rows, where they agree."""
        ranks = {row.rank for row in self.rows}
        return 1 + ranks.pop() if len(ranks) == 1 else 0

    @property
    def writable(self) -> bool:  # type: ignore[override]
        """Whether all rows are."""
        return all(row.writable for row in self.rows)

    def read(self, locked: bool) -> Any:
        """A list of what the rows are."""
        return [row.read(locked) for row in self.rows]

    def write(self, value: Any) -> None:
        """A number for all rows, or a list with something for each."""
        pairs = self._pairs(value)
        # Copies, since what is written to one row may be a view of another.
        found = [as_elements(part, row.dtype, row.shape).copy() for row, part in pairs]
        for row, part in zip(self.rows, found, strict=True):
            row.write(part)

    def update(self, change: Callable[[Any, Any], Any], value: Any) -> None:
        """The same, for what is computed."""
        self.write([change(row.read(True), part) for row, part in self._pairs(value)])

    def select(self, key: Any) -> Store:
        """A row, or a list of some; `rows[i, j]` is `rows[i][j]`."""
        parts = key if isinstance(key, tuple) else (key,)
        first = kinds_of(parts)[0]
        if len(parts) > 1 and first == "int":
            return self.select(parts[0]).select(parts[1:])
        if len(parts) > 1 or first == "other":
            raise OutOfRange(
                f"{self} does not take the key {key!r}; its rows may differ in length: give an "
                "int, a slice, a list or a mask, or select within a row"
            )
        (part,) = expand(parts, (len(self.rows),))
        if isinstance(part, int):
            return self.rows[place_of(part, len(self.rows))]
        if isinstance(part, slice):
            return Rows(self.rows[part])
        return Rows([self.rows[place_of(int(at), len(self.rows))] for at in part])  # type: ignore[union-attr]

    def same(self, other: Store) -> bool:
        """Whether they are the same rows."""
        if not isinstance(other, Rows) or len(self.rows) != len(other.rows):
            return False
        return all(a.same(b) for a, b in zip(self.rows, other.rows, strict=True))

    def _pairs(self, value: Any) -> list[tuple[Store, Any]]:
        """Each row and what is written to it."""
        if not isinstance(value, list | tuple):
            value = [value] * len(self.rows)
        if len(value) != len(self.rows):
            raise DataError(
                f"{len(value)} values are written to {self}; give one for each row, or a number"
            )
        return list(zip(self.rows, value, strict=True))

    def __str__(self) -> str:
        return f"a list of {len(self.rows)} arrays"

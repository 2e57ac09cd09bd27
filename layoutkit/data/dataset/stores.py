"""Stores: data that is selected lazily, then read or written.

    SelectionStore    a selection of an array source
    Rows              a list of arrays

Stores without a length are in `stream.py`, mini-batches in `minibatches.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from ..._utils.indexing import normalize_index, normalize_indices
from ..._utils.validation import show
from ...backends.indexing import take
from ...errors import DataError
from ...memory import Array
from ...spec import DType
from ..errors import NoLength, OutOfRange
from .array_sources import ArraySource, Source
from .indexing import Selection, expand, field_names, key_types
from .values import as_elements

Length = int | float | None  # math.inf: infinite; None: unknown, sequential access only


class Store:
    """The base class of the data of a Sample. Unsupported operations raise DataError."""

    writable = False
    blocked = False  # True if its elements are mini-batches, which are Datasets
    unbounded = False  # True if the length is infinite or unknown
    is_array = True  # True if all of the data can be one array

    def length(self) -> Length:
        """Return the size of the first axis."""
        raise NotImplementedError

    def num_samples(self) -> Length:
        """Return the number of samples; for mini-batches, the total over all of them."""
        return self.length()

    @property
    def rank(self) -> int:
        """The number of axes."""
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
        """Return the data; a view of the source's memory is read-only if `locked`."""
        self._cannot("cannot be read as a whole")

    def write(self, value: Any) -> None:
        """Write a number or array; raise errors before writing."""
        self._cannot("is read-only")

    def update(self, change: Callable[[Any, Any], Any], value: Any) -> None:
        """Replace the data by `change(data, value)`."""
        self.write(change(np.asarray(self.read(True)), value))

    def select(self, key: Any) -> Store:
        """Return the store of the elements that `key` selects."""
        raise NotImplementedError

    def backing_array(self) -> Array | None:
        """Return a view of the source's memory whose rows are the elements, or None."""
        return None

    def take(self, positions: Array) -> Array:
        """Return a copy of the elements at some positions."""
        rows = np.asarray(self.select(positions).read(True))
        return rows if rows.flags.owndata else rows.copy()

    def iter_elements(self) -> Iterator[Store]:
        """Return an iterator over the elements."""
        length = self.length()
        return (self.select(index) for index in range(int(length or 0)))

    def fields(self) -> dict[str, Store]:
        """Return the fields that the data itself defines; this may read an element."""
        return {}

    def is_same(self, other: Store) -> bool:
        """Return True if both select the same elements of the same memory."""
        return False

    def _cannot(self, reason: str) -> NoReturn:
        raise DataError(f"{self} {reason}; {self._instead}")

    _instead = "select the part that you need"


class SelectionStore(Store):
    """A selection of a source."""

    def __init__(self, source: Source, selection: Selection | None = None) -> None:
        self.source = source
        self.selection = Selection.full(source.shape) if selection is None else selection

    def length(self) -> int:
        """Return the size of the first axis; raise DataError (also a TypeError) for a 0-d array."""
        if not self.shape:
            raise NoLength("a single element has no length; its shape is ()")
        return self.shape[0]

    def num_samples(self) -> Length:
        return self.shape[0] if self.shape else None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the selection, known without reading."""
        return self.selection.shape

    @property
    def dtype(self) -> DType:
        return self.source.dtype

    @property
    def writable(self) -> bool:  # type: ignore[override]
        return self.source.writable

    def read(self, locked: bool) -> Any:
        """Return the selected elements, as a view if possible; a scalar for a 0-d selection."""
        result = self.source.read(self.selection)
        if result.ndim == 0:
            return result[()]
        is_view = result.base is not None
        if not isinstance(self.source, ArraySource):
            # An array-like may return its own memory, although `base` is None.
            is_view = True
            locked = locked or not self.source.writable
        if locked and is_view:
            result = result.view()
            result.flags.writeable = False
        return result

    def write(self, value: Any) -> None:
        self.source.write(self.selection, as_elements(value, self.dtype, self.shape))

    def select(self, key: Any) -> Store:
        names = field_names(key)
        if names is None:
            return SelectionStore(self.source, self.selection.select(key))
        if not set([names] if isinstance(names, str) else names) <= set(self.dtype.names or ()):
            raise OutOfRange(f"data of {self.dtype} has no fields {show(names)}; select by index")
        source = self.source.fields(names)
        return SelectionStore(
            source, self.selection.with_axes(source.shape[len(self.source.shape) :])
        )

    def backing_array(self) -> Array | None:
        has_list = any(isinstance(selector, np.ndarray) for selector in self.selection.selectors)
        if has_list or self.selection.rest or not isinstance(self.source, ArraySource):
            return None
        return self.read(True)

    def take(self, positions: Array) -> Array:
        """Return a copy of the elements at some positions, in pooled memory if they are a view."""
        rows = self.backing_array()
        return super().take(positions) if rows is None else take(rows, 0, positions)

    def is_same(self, other: Store) -> bool:
        is_same = isinstance(other, SelectionStore) and self.source.is_same(other.source)
        return is_same and self.selection.is_same(other.selection)  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return f"data of shape {self.shape} and {self.dtype}"


class Rows(Store):
    """A list of arrays, which may differ in length."""

    is_array = False
    _instead = "its data is a list; use len(), or select a row"

    def __init__(self, rows: Sequence[Store]) -> None:
        self.rows = list(rows)

    def length(self) -> int:
        return len(self.rows)

    @property
    def rank(self) -> int:
        """One more than the rank of the rows; 0 if their ranks differ."""
        ranks = {row.rank for row in self.rows}
        return 1 + ranks.pop() if len(ranks) == 1 else 0

    @property
    def writable(self) -> bool:  # type: ignore[override]
        return all(row.writable for row in self.rows)

    def read(self, locked: bool) -> Any:
        return [row.read(locked) for row in self.rows]

    def write(self, value: Any) -> None:
        pairs = self._pairs(value)
        # Copies, because the value for one row may be a view of another row.
        converted = [as_elements(part, row.dtype, row.shape).copy() for row, part in pairs]
        for row, part in zip(self.rows, converted, strict=True):
            row.write(part)

    def update(self, change: Callable[[Any, Any], Any], value: Any) -> None:
        """Replace each row by `change(row, part)`; `part` is a number or one item of a list."""
        self.write([change(row.read(True), part) for row, part in self._pairs(value)])

    def select(self, key: Any) -> Store:
        """Return a row, or a list of rows; `rows[i, j]` is `rows[i][j]`."""
        parts = key if isinstance(key, tuple) else (key,)
        first = key_types(parts)[0]
        if len(parts) > 1 and first == "int":
            return self.select(parts[0]).select(parts[1:])
        if len(parts) > 1 or first == "other":
            raise OutOfRange(
                f"{self} does not support the key {key!r}; its rows may differ in length: give an "
                "int, a slice, a list or a mask, or select within a row"
            )
        (part,) = expand(parts, (len(self.rows),))
        if isinstance(part, int):
            return self.rows[normalize_index(part, len(self.rows), "rows", OutOfRange)]
        if isinstance(part, slice):
            return Rows(self.rows[part])
        positions = normalize_indices(part, len(self.rows), "rows", OutOfRange)
        return Rows([self.rows[i] for i in positions])

    def is_same(self, other: Store) -> bool:
        if not isinstance(other, Rows) or len(self.rows) != len(other.rows):
            return False
        return all(a.is_same(b) for a, b in zip(self.rows, other.rows, strict=True))

    def _pairs(self, value: Any) -> list[tuple[Store, Any]]:
        if not isinstance(value, list | tuple):
            value = [value] * len(self.rows)
        if len(value) != len(self.rows):
            raise DataError(
                f"{len(value)} values are written to {self}; give one for each row, or a number"
            )
        return list(zip(self.rows, value, strict=True))

    def __str__(self) -> str:
        return f"a list of {len(self.rows)} arrays"

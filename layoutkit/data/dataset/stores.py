"""Stores: data that is selected lazily, then read or written.

    Window    a selection of a source
    Rows      a list of arrays

Stores without a length are in `stream.py`, mini-batches in `minibatches.py`.

A source (ArraySource, ArrayLikeSource, FileSource) holds the elements: a NumPy array, an object
that is indexed like an array, or an array in a file. A source is never copied, and reads only the
elements of a Selection (see `indexing.py`). Files are memory-mapped, or read on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from ..._utils.errors import as_data_errors
from ..._utils.indexing import normalize_index, normalize_indices
from ..._utils.validation import type_name
from ...backends.dispatch import as_array, get_adapter
from ...backends.indexing import take
from ...errors import DataError, DtypeError, LayoutkitError, ShapeError
from ...layout.pattern import as_shape
from ...memory import Array
from ...spec import DType, as_dtype, can_cast, dtype_kind
from ..errors import NoLength, OutOfRange
from ..io.npy import StoredArray
from .indexing import Selection, Selector, expand, field_names, key_types


class Source(Protocol):
    """The holder of the elements: an array, an array-like or a file."""

    shape: tuple[int, ...]
    dtype: DType
    writable: bool

    def read(self, selection: Selection) -> Array:
        """Return the selected elements: a view of the source's memory if possible."""

    def write(self, selection: Selection, value: Array) -> None:
        """Write a validated value to the selected elements."""

    def fields(self, names: Any) -> Source:
        """Return the source of some fields of a structured dtype."""

    def is_same(self, other: Source) -> bool:
        """Return True if both sources use the same memory."""


class ArraySource:
    """A source that is a NumPy array."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.shape = array.shape
        self.dtype = array.dtype
        self.writable = array.flags.writeable

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if not self.writable:  # pickles of arrays do not store the flag
            self.array = self.array.view()
            self.array.flags.writeable = False

    def read(self, selection: Selection) -> Array:
        """Return the selected elements: a view if NumPy can make one, else a copy."""
        view, key = self._view_and_key(selection.selectors)
        result = view if key is None else view[key]
        for parts in selection.rest:
            result = np.asarray(result[parts])
        return result

    def write(self, selection: Selection, value: Array) -> None:
        view, key = self._view_and_key(selection.selectors)
        if selection.rest:
            positions = list(selection.positions())
            if key is not None:
                positions[len(key) - 1] = key[-1][positions[len(key) - 1]]
            view = _with_axis(view)
            key = tuple(positions)
        if key is None:
            view[...] = value  # NumPy handles overlap
        else:
            view[key] = value.copy() if np.may_share_memory(view, value) else value

    def fields(self, names: Any) -> Source:
        """Return the source of the fields `names`, in the same memory."""
        return ArraySource(self.array[names])

    def is_same(self, other: Source) -> bool:
        """Return True if both use the same memory with the same shape, strides and dtype."""
        if not isinstance(other, ArraySource):
            return False
        a = self.array
        b = other.array
        return a is b or a.__array_interface__ == b.__array_interface__

    def _view_and_key(self, selectors: Sequence[Selector]) -> tuple[Array, Any]:
        """Return the view by all selectors but the array of indices, and a key with that array."""
        key = tuple(_as_key(selector) for selector in selectors)
        view = self.array[(*key, ...)]
        kept = [selector for selector in selectors if not isinstance(selector, int)]
        for axis, selector in enumerate(kept):
            if isinstance(selector, np.ndarray):
                return view, (slice(None),) * axis + (selector,)
        return view, None


class ArrayLikeSource:
    """A source that wraps an object with shape, dtype and indexing, such as an HDF5 dataset.

    The object receives only keys that most libraries support: ints, forward slices, and one list of
    increasing indices; never an int with a list, because libraries interpret that differently.
    """

    def __init__(self, like: Any) -> None:
        self.like = like
        self.shape = as_shape(like.shape)
        self.dtype = as_dtype(like.dtype)
        self.writable = hasattr(type(like), "__setitem__")

    def read(self, selection: Selection) -> Array:
        """Return the selected elements in the order of the key; read few other elements."""
        if not selection.rest:
            return self._read(selection.selectors)
        selectors, positions = selection.bounding_selectors()
        return np.asarray(_with_axis(self._read(selectors))[positions])

    def write(self, selection: Selection, value: Array) -> None:
        """Write the selected elements; if no key selects them, rewrite a region around them."""
        if not selection.rest:
            self._write(selection.selectors, value)
            return
        selectors, positions = selection.bounding_selectors()
        current = np.array(self._read(selectors))
        _with_axis(current)[positions] = value
        self._write(selectors, current)

    def fields(self, names: Any) -> Source:
        """Raise DataError, because array-likes differ in how they select fields."""
        raise DataError(
            f"{names!r} does not select fields of a {type_name(self.like)}; read the data "
            "first: sample()[...]"
        )

    def is_same(self, other: Source) -> bool:
        """Return True if both wrap the same object."""
        return isinstance(other, ArrayLikeSource) and self.like is other.like

    def _read(self, selectors: Sequence[Selector]) -> Array:
        request = _ArrayLikeKey(selectors, self.shape)
        current = np.asarray(self.like[request.key])
        if current.size != request.size:
            raise DataError(
                f"a {type_name(self.like)} of shape {self.shape} returned shape {current.shape} "
                f"for {request.key!r}; it must interpret keys as NumPy does"
            )
        return request.to_selection_order(current)

    def _write(self, selectors: Sequence[Selector], value: Array) -> None:
        request = _ArrayLikeKey(selectors, self.shape)
        self.like[request.key] = request.to_key_order(np.broadcast_to(value, request.shape))


def _with_axis(array: Array) -> Array:
    """Return the array; reshape a 0-d array to shape (1,)."""
    return array if array.ndim else array.reshape(1)


class _ArrayLikeKey:
    """A key of ints, forward slices and at most one increasing list, made from selectors.

    `shape` is the shape of the selection; `size` is the number of elements that the key selects.
    """

    def __init__(self, selectors: Sequence[Selector], shape: tuple[int, ...]) -> None:
        self._has_list = any(isinstance(selector, np.ndarray) for selector in selectors)
        self._axis_keys = [self._axis_key(selector) for selector in selectors]
        self._full_shape = tuple(1 if isinstance(s, int) else len(s) for s in selectors)
        self.shape = tuple(len(s) for s in selectors if not isinstance(s, int))
        self.size = prod(axis_key.size for axis_key in self._axis_keys)
        key = [axis_key.part for axis_key in self._axis_keys]
        while len(key) > 1 and isinstance(selectors[len(key) - 1], range):
            if selectors[len(key) - 1] != range(shape[len(key) - 1]):
                break
            key.pop()  # full trailing axes can be omitted
        self.key = key[0] if len(key) == 1 else tuple(key)

    def to_selection_order(self, array: Array) -> Array:
        array = array.reshape([axis_key.size for axis_key in self._axis_keys])
        for axis, axis_key in enumerate(self._axis_keys):
            if axis_key.order is not None:
                array = array[(slice(None),) * axis + (axis_key.order,)]
        return array.reshape(self.shape)

    def to_key_order(self, value: Array) -> Array:
        """Return a value for the selection in key order; the last of repeated elements counts."""
        value = value.reshape(self._full_shape)
        for axis, axis_key in enumerate(self._axis_keys):
            if axis_key.inverse is not None:
                value = value[(slice(None),) * axis + (axis_key.inverse,)]
        shape = [key.size for key in self._axis_keys if not isinstance(key.part, int)]
        return np.ascontiguousarray(value).reshape(shape)

    def _axis_key(self, selector: Selector) -> _AxisKey:
        if isinstance(selector, int):
            return _AxisKey(slice(selector, selector + 1) if self._has_list else selector, 1)
        if isinstance(selector, range):
            if selector.step > 0 or not selector:
                return _AxisKey(_as_key(selector), len(selector))
            backward = slice(None, None, -1)
            return _AxisKey(_as_key(selector[::-1]), len(selector), backward, backward)
        unique, order = np.unique(selector, return_inverse=True)
        last_positions = np.zeros(len(unique), np.intp)
        last_positions[order] = np.arange(len(selector))
        return _AxisKey(unique, len(unique), order, last_positions)


class _AxisKey(NamedTuple):
    """The part of a key for one axis, and the indices that reorder elements along the axis."""

    part: Any
    size: int
    order: Any = None  # from key order to selection order; None: equal orders
    inverse: Any = None  # from selection order to key order


def _as_key(selector: Selector) -> Any:
    """Return a selector as a part of a NumPy key; a full slice for an array of indices."""
    if isinstance(selector, range):
        if not selector:
            return slice(0, 0)
        stop = selector.stop if selector.stop >= 0 else None
        step = None if selector.step == 1 else selector.step
        return slice(selector.start, stop, step)
    return slice(None) if isinstance(selector, np.ndarray) else selector


_NUMERIC = "buifc"


def as_elements(value: Any, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Return a number or array cast to `dtype`, ready to be broadcast to `shape`.

    Raises
    ------
    DtypeError
        The cast is not "same_kind", or an int does not fit. Python numbers get the dtype of
        the data, as in NumPy.
    ShapeError
        The value cannot be broadcast to the shape.
    """
    array = _number(value, dtype) if type(value) in (bool, int, float, complex) else _array(value)
    if not _can_cast(array.dtype, dtype):
        raise DtypeError(
            f"a value of dtype {array.dtype} cannot be written to data of {dtype} with a same_kind "
            f'cast; cast it first: value.astype("{dtype}")'
        )
    if not _broadcasts(array.shape, shape):
        raise ShapeError(
            f"a value of shape {array.shape} cannot be broadcast to data of shape {shape}; give a "
            "value that NumPy broadcasts to it"
        )
    surplus = max(array.ndim - len(shape), 0)
    return array.reshape(array.shape[surplus:]).astype(dtype, copy=False)


def equal(a: Any, b: Any) -> bool:
    """Return True if two arrays, or two lists of arrays, have equal shapes and elements."""
    if isinstance(a, list) or isinstance(b, list):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    try:
        return np.array_equal(a, b)
    except TypeError:  # NumPy does not compare some dtypes, such as dates and structures
        return False


@contextmanager
def translate_numpy_errors(name: str, data: Any, value: Any) -> Iterator[None]:
    """Convert the errors that NumPy raises for an operator into layoutkit's errors."""
    try:
        yield
    except LayoutkitError:
        raise
    except (TypeError, OverflowError) as error:
        raise DtypeError(f"{name} of {data} and {value!r}: {error}") from None
    except ValueError as error:
        raise ShapeError(f"{name} of {data} and a {type_name(value)}: {error}") from None


def _number(value: Any, dtype: DType) -> Array:
    """Return a Python number as an array, of `dtype` if that kind includes it, as in NumPy."""
    value_kind = {bool: "b", int: "i", float: "f", complex: "c"}[type(value)]
    kind = dtype_kind(dtype)
    fits = kind in _NUMERIC and _NUMERIC.index(
        "u" if value_kind == "i" else value_kind
    ) <= _NUMERIC.index(kind)
    if not fits:
        return np.asarray(value)
    try:
        return np.array(value, dtype)
    except OverflowError:
        raise DtypeError(
            f"{value} is out of the range of {dtype}; write a number that fits"
        ) from None


def _array(value: Any) -> Array:
    if get_adapter(value) is not None:
        return as_array(value, "the value")
    try:
        return np.asarray(value)
    except ValueError:  # nested lists of different lengths
        raise ShapeError("the value is not an array: its rows differ in length") from None


def _can_cast(source: DType, target: DType) -> bool:
    if dtype_kind(source) in _NUMERIC and dtype_kind(target) in _NUMERIC:
        return can_cast(source, target, "same_kind")
    return np.can_cast(source, target, "same_kind")


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Return True if NumPy can assign `shape` to `target`; surplus leading axes have size 1."""
    surplus = max(len(shape) - len(target), 0)
    pairs = zip(reversed(shape[surplus:]), reversed(target), strict=False)
    return all(size == 1 for size in shape[:surplus]) and all(a in (1, b) for a, b in pairs)


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
            raise OutOfRange(f"data of {self.dtype} has no fields {names!r}; select by index")
        source = self.source.fields(names)
        return SelectionStore(
            source, self.selection.with_axes(source.shape[len(self.source.shape) :])
        )

    def backing_array(self) -> Array | None:
        has_list = any(isinstance(selector, np.ndarray) for selector in self.selection.selectors)
        if has_list or self.selection.rest or not isinstance(self.source, ArraySource):
            return None
        view: Array = self.read(True)
        return view

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


class FileSource(ArraySource):
    """A source that is an array in a `.npy` file or in a member of a `.npz` archive.

    The file is memory-mapped: a read touches only the selection, and writes go to the file if
    `writable`. A compressed member is read completely on first use, and cached. Members are never
    written to.

    Raises DataError if the file cannot be opened, or cannot be written to although `writable` is
    True.
    """

    def __init__(self, path: Path, member: str | None = None, writable: bool = False) -> None:
        with as_data_errors(str(path)):
            self._set_stored(StoredArray(path, member), writable)

    @classmethod
    def of(cls, stored: StoredArray, writable: bool) -> FileSource:
        """Return the source of an array whose header has been read."""
        source = cls.__new__(cls)
        source._set_stored(stored, writable)
        return source

    @cached_property
    def array(self) -> Array:  # type: ignore[override]
        """The array, memory-mapped if possible."""
        with as_data_errors(str(self.stored.path)):
            array = self.stored.memmap(self.writable)
        array.flags.writeable = self.writable
        return array

    def is_same(self, other: Any) -> bool:
        own = (self.stored.path, self.stored.member)
        return isinstance(other, FileSource) and own == (other.stored.path, other.stored.member)

    def _set_stored(self, stored: StoredArray, writable: bool) -> None:
        self.stored = stored
        self.shape = stored.shape
        self.dtype = stored.dtype
        self.writable = writable and stored.member is None
        if self.writable:
            self.array  # noqa: B018 - raises now if the file is not writable

    def __reduce__(self) -> Any:
        return FileSource, (self.stored.path, self.stored.member, self.writable)

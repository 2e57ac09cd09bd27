"""Array sources: the holders of elements, which read and write selections.

    ArraySource       a NumPy array
    ArrayLikeSource   an object that is indexed like an array
    FileSource        an array in a file, memory-mapped or read on first use

A source is never copied, and reads only the elements of a Selection (see `indexing.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..._utils.errors import as_data_errors
from ..._utils.validation import describe_type, show
from ...errors import DataError
from ...layout.pattern import as_shape
from ...memory import Array
from ...spec import DType, as_dtype
from ..io.npy import StoredArray
from .indexing import Selection, Selector


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
            f"{show(names)} does not select fields of {describe_type(self.like)}; read the data "
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
                f"{describe_type(self.like)} of shape {self.shape} returned shape {current.shape} "
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

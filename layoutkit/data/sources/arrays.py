"""Arrays whose first axis counts records, and the files that hold them.

Knows arrays, and Datasets by their public names; formats of files are known by `formats.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from typing import Any

import numpy as np

from ...backends.dispatch import adapter_of, as_array
from ...backends.indexing import take
from ...errors import DataError, LayoutkitError, ShapeError
from ...memory import Array
from ..formats import explained, is_frame, open_arrays, rows_of
from ..io.npy import StoredArray
from ..io.zarr import ChunkedArray, read_zarr
from ..records import Record, records_of
from .base import Index, Partition

__all__ = ["TensorIndex", "open_tensor"]


def open_tensor(source: Any, kind: str, partition: Partition) -> Index:
    """The index that an array, a mapping of x and y, or a file of these is."""
    loaded = source
    if isinstance(source, str):
        loaded = read_zarr(source) if kind == "zarr" else open_arrays(source)
    x, y = _pair(loaded, source if isinstance(source, str) else "the source")
    return TensorIndex(x, y, kind, partition)


class TensorIndex(Index):
    """The records along the first axis of x; y has their labels, or their targets."""

    def __init__(self, x: Any, y: Any, kind: str, partition: Partition) -> None:
        self._partition = partition
        self._x = x
        self._count = partition.count(_count(x))
        labels, codes, self._y = _labelled(y)
        here = None if codes is None else codes[partition.rows]
        super().__init__(kind, None, labels, here)

    def __len__(self) -> int:
        return self._count

    def record(self, number: int) -> Record:
        """A window on a row of x, where x gives one, with its label."""
        code = -1 if self._codes is None else int(self._codes[number])
        label = None if code < 0 else self.labels[code]
        return Record(
            array=_row(self._x, self._partition.place(number)),
            label=label,
            labels=() if code < 0 else (self.labels[code],),
            position=number,
        )

    def records(self, numbers: Array) -> list[Record]:
        """Column by column, several times faster than record by record."""
        places = self._partition.place(numbers).tolist()
        names = [*self.labels, None]
        codes = [-1] * len(numbers) if self._codes is None else self._codes[numbers].tolist()
        x = self._x
        if isinstance(x, ChunkedArray):  # chunk by chunk
            x, places = x.take(np.array(places, np.intp)), range(len(places))
        plain = isinstance(x, np.ndarray)
        return records_of(
            repeat(None),
            repeat(None),
            repeat(None),
            [x[place, ...] if plain else _row(x, place) for place in places],
            [names[code] for code in codes],
            [() if code < 0 else (names[code],) for code in codes],
            numbers.tolist(),
        )

    @property
    def in_memory(self) -> bool:  # type: ignore[override]
        """Whether `rows` gives them: they are those of a NumPy array."""
        return isinstance(self._x, np.ndarray)

    def rows(self, numbers: Array) -> Array:
        """Copied at once."""
        return take(self._x, 0, self._partition.place(numbers))

    @property
    def source(self) -> Array:
        """The array itself, with the records of all partitions."""
        found: Array = self._x
        return found

    def targets(self, numbers: Array) -> Array | None:
        """What belongs to the records in y, where that is no labels."""
        if self._y is None:
            return None
        places = self._partition.place(numbers)
        if isinstance(self._y, np.ndarray):
            return take(self._y, 0, places)
        if isinstance(self._y, ChunkedArray):
            return self._y.take(places)
        return np.stack([_row(self._y, place) for place in places.tolist()])


def _row(array: Any, place: int) -> Any:
    """The record in a place: a window where the array gives one, 0-d for a single number."""
    if isinstance(array, np.ndarray):
        return array[place, ...]
    row = array[place]
    return row() if callable(row) else np.asarray(row)


def _labelled(y: Any) -> tuple[list[Any], Array | None, Any]:
    """The labels, the rank of each record's, and the targets where y is no labels."""
    if y is None:
        return [], None, None
    if not _are_labels(y):
        return [], None, y
    labels, codes = np.unique(_read(y), return_inverse=True)
    return labels.tolist(), codes, None


def _are_labels(y: Any) -> bool:
    """Whether y is one integer or string for each record; only objects are read for it."""
    about = y[:0]() if hasattr(y, "_iter_fields") else y
    if isinstance(about, list):  # rows that may differ in length
        return False
    kind = getattr(getattr(about, "dtype", None), "kind", "")
    if len(about.shape) != 1 or kind != "O":
        return len(about.shape) == 1 and kind in [*"iuUST"]
    return _are_strings(_read(y))


def _count(array: Any) -> int:
    """The size of the first axis; what is like an array need not have a len()."""
    return len(array) if hasattr(array, "_iter_fields") else int(array.shape[0])


def _read(array: Any) -> Array:
    """All of it, as NumPy's."""
    return np.asarray(array() if hasattr(array, "_iter_fields") else array[:])


def _pair(loaded: Any, name: str) -> tuple[Any, Any]:
    """x and y of what was given; DataError where they do not fit."""
    if hasattr(loaded, "_iter_fields"):  # a Dataset
        loaded = _fields(loaded)
    if not isinstance(loaded, Mapping):
        return _array(loaded, name), None
    if "x" not in loaded or not {*loaded} <= {"x", "y"}:
        raise DataError(
            f"{name} has {', '.join(map(str, loaded)) or 'no arrays'}; an index takes x and, for "
            "labels or targets, y"
        )
    x, y = _array(loaded["x"], "x"), loaded.get("y")
    if y is None:
        return x, None
    y = _array(y, "y")
    if _count(x) != _count(y):
        raise DataError(f"x has {_count(x)} records and y {_count(y)}; they must be as many")
    return x, y


def _fields(dataset: Any) -> Any:
    names = {name for name, _ in dataset._iter_fields()}
    if "input" not in names:
        return {"x": dataset}
    return {"x": dataset.input, **({"y": dataset.target} if "target" in names else {})}


def _array(value: Any, name: str) -> Any:
    """An array or array-like with a first axis."""
    if hasattr(value, "_iter_fields"):
        return value
    if isinstance(value, StoredArray):
        value = _in_memory(value)
    if is_frame(value):
        value = rows_of(value, name)
    if isinstance(value, list | tuple) or not hasattr(value, "shape"):
        try:
            value = np.asarray(value)
        except ValueError as error:
            raise DataError(f"{name} is no array: {error}") from error
    if isinstance(value, np.ndarray) or adapter_of(value):
        try:
            value = as_array(value, name)
        except LayoutkitError as error:  # a masked array, or one on another device
            raise DataError(str(error)) from error
        if value.dtype == object and not _are_strings(value):
            raise DataError(f"{name} is no array of numbers or strings; give one with a dtype")
    if not len(value.shape):
        raise ShapeError(f"{name} has no axes; the first axis of an array counts records")
    return value


def _in_memory(stored: StoredArray) -> Array:
    """A file mapped, but what is in an archive read: it lies there so that gathering is slow."""
    with explained(str(stored.path)):
        return stored.mapped() if stored.member is None else stored.loaded()


def _are_strings(array: Array) -> bool:
    return array.ndim == 1 and all(isinstance(element, str) for element in array)

"""Sources of arrays whose first axis counts records, of Datasets, and of files of arrays."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from itertools import repeat
from typing import Any

import numpy as np

from ..._utils.errors import as_data_errors
from ..._utils.validation import show
from ...backends.dispatch import as_array, get_adapter
from ...backends.indexing import take
from ...errors import DataError, LayoutkitError, ShapeError
from ...memory import Array
from ..errors import check_has_records
from ..formats import (
    FIELD_PAIRS,
    FORMATS,
    frame_to_array,
    is_dataframe,
    open_arrays,
)
from ..io.npy import StoredArray
from ..io.zarr import ChunkedArray
from ..labels import (
    Labels,
    Missing,
    column_values,
    fill_targets,
    is_missing,
    read_labels,
)
from ..ragged import Ragged
from ..records import Record, records_of
from .base import Index, Partition
from .items import ItemsIndex, is_item_source


def open_tensor(source: Any, kind: str, partition: Partition, missing: Missing = "error") -> Index:
    """Open an array, a mapping of x and y, a Dataset, or a file of arrays."""
    loaded = source
    if isinstance(source, str):
        row = None if kind == "tensor" else FORMATS.find(kind)
        loaded = open_arrays(source, row and row.read)
        if isinstance(loaded, Index):
            return loaded[partition.rows] if partition.parts > 1 else loaded
        if is_item_source(loaded):
            return ItemsIndex(loaded, "items", partition)
    name = source if isinstance(source, str) else "the source"
    x, labels = _parts(loaded, name)
    check_has_records(_count(x), name, "the size of its first axis, which counts records, is 0")
    kind = "zarr" if kind == "zarr" else "tensor"
    return TensorIndex(x, labels, kind, partition, missing)


class TensorIndex(Index):
    """The records along the first axis of x, with their labels or targets."""

    def __init__(
        self, x: Any, labels: Labels, kind: str, partition: Partition, missing: Missing
    ) -> None:
        kept, labels = labels.select(missing, "record {} of the source has no label".format)
        if kept is not None:
            self.skipped = _count(x) - len(kept)
            if isinstance(x, np.ndarray):
                x = x[kept]
                kept = None
        self._kept = kept  # the rows of x that are records, None for all
        self._partition = partition
        self._x = x
        self._y = labels.targets
        self._count = partition.count(_count(x) if kept is None else len(kept))
        own = None if labels.codes is None else labels.codes[partition.rows]
        super().__init__(kind, None, labels.names, own)
        self.differing_shapes = _find_differing_shapes(x)
        if isinstance(x, ChunkedArray):
            self.chunk_window = x.slab, x.window

    def __len__(self) -> int:
        return self._count

    def _place(self, numbers: Any) -> Any:
        """Return the row of x of a record; also for arrays."""
        places = self._partition.place(numbers)
        return places if self._kept is None else self._kept[places]

    def record(self, number: int) -> Record:
        label, labels = self._label_at(number)
        array = _row(self._x, int(self._place(number)))
        return Record(array=array, label=label, labels=labels, position=number)

    def records(self, numbers: Array) -> list[Record]:
        """Return records column by column, several times faster than record by record."""
        places = self._place(numbers).tolist()
        labels = self._labels_at(numbers)
        x = self._x
        if isinstance(x, ChunkedArray):  # chunk by chunk
            x = x.take(np.array(places, np.intp))
            places = range(len(places))
        is_numpy = isinstance(x, np.ndarray)
        return records_of(
            repeat(None),
            repeat(None),
            repeat(None),
            [x[place, ...] if is_numpy else _row(x, place) for place in places],
            labels,
            [() if label is None else (label,) for label in labels],
            numbers.tolist(),
        )

    @property
    def in_memory(self) -> bool:  # type: ignore[override]
        """True if the records are rows of a NumPy array."""
        return isinstance(self._x, np.ndarray)

    def rows(self, numbers: Array) -> Array:
        return take(self._x, 0, self._partition.place(numbers))

    def array_rows(self, numbers: Array) -> tuple[Array, Array]:
        return self._x, self._partition.place(numbers)

    def targets(self, numbers: Array) -> Array | None:
        if self._y is None:
            return None
        places = self._partition.place(numbers)
        if isinstance(self._y, np.ndarray):
            return take(self._y, 0, places)
        if isinstance(self._y, ChunkedArray):
            return self._y.take(places)
        return np.stack([_row(self._y, place) for place in places.tolist()])


def _find_differing_shapes(x: Any) -> tuple[Any, Any] | None:
    """Return two shapes of the arrays of a list or Ragged; None if all are equal."""
    if not isinstance(x, list | Ragged):
        return None
    if isinstance(x, list):
        shapes = [row.shape for row in x]
    else:
        shapes = [(length, *x.data.shape[1:]) for length in np.unique(np.diff(x.offsets)).tolist()]
    different = [*dict.fromkeys(shapes)]
    return None if len(different) < 2 else (different[0], different[1])


def _row(array: Any, place: int) -> Any:
    """Return a row, as a view if possible; a single number as a 0-d array."""
    if isinstance(array, np.ndarray):
        return array[place, ...]
    row = array[place]
    return row() if callable(row) else np.asarray(row)


def labels_of(y: Any, name: str, classes: Any = None) -> Labels:
    """Return the labels of records: classes, or targets if y is numbers that are no classes.

    With `classes`, y contains positions in them, or -1 for no label.
    """
    if y is None:
        return Labels([])
    if classes is not None:
        return _labels_in_classes(read_array(_as_array(y, name)), _as_array(classes, "classes"))
    values = _single_values(y, name)
    if values is None:
        are_objects = getattr(getattr(y, "dtype", None), "kind", "") == "O"
        rows = [*y] if isinstance(y, list | tuple) or are_objects else []
        if any(map(is_missing, rows)):
            return _labels_of_rows(rows, name)
    labels = Labels([]) if values is None else read_labels(values, name)
    is_target = values is None or labels.targets is values
    # Targets remain what they are: rows, or lazy arrays.
    return Labels([], None, _as_array(y, name)) if is_target else labels


def _labels_of_rows(rows: list[Any], name: str) -> Labels:
    """Return targets of several numbers each, -1 for missing ones."""
    unlabeled = np.fromiter(map(is_missing, rows), bool, len(rows))
    present = _as_array([row for row, gap in zip(rows, unlabeled, strict=True) if not gap], name)
    return Labels([], None, fill_targets(present, unlabeled), unlabeled)


_LABEL_KINDS = "biufcUSTOmM"  # of dtypes whose elements can be labels


def _single_values(y: Any, name: str) -> Any:
    """Return the values of y, an array or list, if there is one for each record, else None."""
    if isinstance(y, list | tuple):
        if any(isinstance(value, list | tuple) or getattr(value, "ndim", 0) for value in y):
            return None
        # Arrays of no axes, such as scalars of torch, are hashed by identity.
        is_scalar = [hasattr(value, "ndim") and not isinstance(value, np.generic) for value in y]
        pairs = zip(y, is_scalar, strict=True)
        return [value.item() if scalar else value for value, scalar in pairs]
    if hasattr(y, "to_pylist"):  # a column of pyarrow
        return _single_values(y.to_pylist(), name)
    if hasattr(y, "_iter_fields"):
        head = y[:0]()
        return None if isinstance(head, list) or head.ndim != 1 else np.asarray(y())
    if len(getattr(y, "shape", ())) != 1:
        return None
    if isinstance(y, np.ma.MaskedArray):
        values = y.data.astype(object)
        values[np.ma.getmaskarray(y)] = None
        y = values
    elif hasattr(y, "to_numpy"):
        y = column_values(y)
        if isinstance(y, list):
            return _single_values(y, name)
    elif getattr(getattr(y, "dtype", None), "kind", "") != "O":
        y = _as_array(y, name)
    values = read_array(y)
    if values.dtype == object:
        return _single_values(values.tolist(), name)
    return values if values.dtype.kind in _LABEL_KINDS else None


def _labels_in_classes(codes: Array, classes: Any) -> Labels:
    """Return the labels; raise DataError unless the codes are -1 or positions of classes."""
    names = read_array(classes).tolist()
    is_valid = codes.ndim == 1 and codes.dtype.kind in "iu"
    if not is_valid or (codes.size and not -1 <= codes.min() <= codes.max() < len(names)):
        raise DataError(
            f"there are {len(names)} classes, but the target does not consist of their positions "
            f"0 to {len(names) - 1}; correct it, or remove the classes"
        )
    return Labels(names, codes, None, codes < 0)


def _count(array: Any) -> int:
    """Return the size of the first axis; an array-like may not have `len`."""
    has_length = isinstance(array, Ragged | list) or hasattr(array, "_iter_fields")
    return len(array) if has_length else int(array.shape[0])


def read_array(array: Any) -> Array:
    """Return all elements as a NumPy array."""
    return np.asarray(array() if hasattr(array, "_iter_fields") else array[:])


def _parts(loaded: Any, name: str) -> tuple[Any, Labels]:
    """Return the input and the labels of a source; DataError if they do not match."""
    if hasattr(loaded, "_iter_fields"):  # a Dataset
        loaded = _fields(loaded)
    if not isinstance(loaded, Mapping):
        return _as_records(loaded, name), Labels([])
    x_name, y_name = field_pair(loaded, name, _OTHER_NAMES)
    x = _as_records(loaded[x_name], x_name)
    labels = labels_of(loaded.get(y_name), y_name, loaded.get("classes"))
    check_lengths(x_name, _count(x), y_name, labels)
    return x, labels


def check_lengths(x_name: str, count: int, y_name: str, labels: Labels) -> None:
    """Raise DataError unless there are as many labels as records, or none."""
    own = labels.targets if labels.codes is None else labels.codes
    if own is not None and _count(own) != count:
        raise DataError(
            f"{x_name} has {count} records and {y_name} {_count(own)}; give one label per record"
        )


# Arrays that may be beside the input and the target: names of records, and of the classes.
_OTHER_NAMES = {"name", "classes"}


def field_pair(
    arrays: Mapping[str, Any], name: str, others: Collection[str] = ()
) -> tuple[str, str]:
    """Return the names of the input and of the labels or targets, which may be missing.

    `others` may be in the mapping as well.

    Raises
    ------
    DataError
        The names do not tell which array is the input, or an array would be omitted.
    """
    for x, y in FIELD_PAIRS:
        if x in arrays and {*arrays} <= {x, y, *others}:
            return x, y
    targets = {y for _, y in FIELD_PAIRS}
    if len(arrays) == 1 and targets.isdisjoint(arrays):
        return next(iter(arrays)), "y"
    names = {name for pair in FIELD_PAIRS for name in pair}
    fields = ", ".join(f"{key!r}: Collator(...)" for key in arrays)
    raise DataError(
        f"{name} has {', '.join(map(str, arrays)) or 'no arrays'}; an index needs x and, for "
        'labels or targets, y (or input and target); give a mapping of these: {"x": ..., "y": ...}'
        + f"; for a batch of each, give collate={{{fields}}}"
        * names.isdisjoint(arrays)
    )


def _fields(dataset: Any) -> Mapping[str, Any]:
    """Return the fields of a Dataset; its data as x if that is not the data of a field."""
    fields = dict(dataset._iter_fields())
    if dataset._data_owner() is dataset and not any(x in fields for x, _ in FIELD_PAIRS):
        return {"x": dataset, "y": next((fields[y] for _, y in FIELD_PAIRS if y in fields), None)}
    return fields


def _as_records(value: Any, name: str) -> Any:
    """Return an array or array-like with a first axis, a Ragged, or a list of arrays of any sizes.

    Raises DataError for other values, such as lists of text and numbers.
    """
    try:
        return _as_array(value, name)
    except DataError:
        rows = _read_rows(value)
        if rows is None:
            raise
        return rows


def _read_rows(value: Any) -> list[Array] | None:
    """Return the elements of a list or array of objects as arrays; None if they are others."""
    is_of_objects = isinstance(value, np.ndarray) and value.dtype.hasobject and value.ndim == 1
    if not is_of_objects and not isinstance(value, list | tuple):
        return None
    try:
        rows = [np.asarray(x) if isinstance(x, list | tuple) else as_array(x) for x in value]
    except (LayoutkitError, ValueError):
        return None
    are_numbers = all(row.ndim and row.dtype.kind not in "OUS" for row in rows)
    return rows if are_numbers else None


def _as_array(value: Any, name: str) -> Any:
    """Return an array or array-like with a first axis, or a Ragged."""
    if hasattr(value, "_iter_fields") or isinstance(value, Ragged):
        return value
    if isinstance(value, StoredArray):
        value = _map_or_load(value)
    if is_dataframe(value):
        value = frame_to_array(value, name)
    if isinstance(value, list | tuple) or not hasattr(value, "shape"):
        value = _read_values(value, name)
    if isinstance(value, np.ndarray) or get_adapter(value):
        try:
            value = as_array(value, name)
        except LayoutkitError as error:  # a masked array, or one on another device
            raise DataError(str(error)) from error
        if value.dtype == object and not _are_strings(value):
            raise DataError(f"{name} is not an array of numbers or strings; give one with a dtype")
    if not len(value.shape):
        raise ShapeError(f"{name} has no axes; the first axis of an array counts records")
    return value


def _read_values(values: Any, name: str) -> Array:
    """Return an object without a shape, such as a list, as an array; raise if it is no array."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(
            f"{name} is not an array: its rows differ in size; give rows of one size"
        ) from error
    if isinstance(values, str | os.PathLike):
        raise DataError(
            f"{name} is {show(values)}, but a path is a source by itself, as in "
            f"open_index({str(values)!r}); give {name} an array or list with a value for each "
            "record, such as a list of paths"
        )
    if not array.ndim:
        raise DataError(
            f"{name} is {show(values)}; give an array with a row for each record, "
            f"{'the path of a file or folder, ' * (name == 'the source')}or a list of paths"
        )
    return array


def _map_or_load(stored: StoredArray) -> Array:
    """Map a file; load a member of an archive, as gathering from an archive is slow."""
    with as_data_errors(str(stored.path)):
        return stored.memmap() if stored.member is None else stored.loaded()


def _are_strings(array: Array) -> bool:
    return array.ndim == 1 and all(isinstance(element, str) for element in array)

"""Parquet files: a column of images or arrays, and one of labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from itertools import repeat
from typing import Any

import numpy as np

from ...errors import DataError
from ...memory import Array
from ..io.parquet import ParquetShard, RowGroups, open_shard, read_column
from ..io.reader import Reader
from ..labels import (
    FILE_COLUMNS,
    Columns,
    LabelColumns,
    Missing,
    check_columns,
    find_columns,
    is_label_column,
    is_missing,
    label_columns,
    rank_classes,
)
from ..records import Label, Record
from .base import Partition
from .ranged import RangedIndex, RecordColumns, Versions, expand_shards, number_files


def open_parquet(
    path: str,
    kind: str,
    partition: Partition,
    columns: Mapping[str, Any] | None = None,
    missing: Missing = "error",
) -> RangedIndex:
    """Open a Parquet file, or several by wildcards or braces."""
    return ParquetIndex(kind, expand_shards(path), partition, columns, missing)


class ParquetIndex(RangedIndex):
    """Rows of Parquet files. Only pyarrow knows their location, so records have no offset."""

    _pickled_caches = RangedIndex._pickled_caches | {"_shards", "_found", "_starts"}

    def __init__(
        self,
        kind: str,
        files: list[str],
        partition: Partition,
        columns: Mapping[str, Any] | None,
        missing: Missing,
    ) -> None:
        self._files = files
        self._given_columns = check_columns(columns)
        self._missing = missing
        self._row_labels: dict[int, tuple[Label, ...]] = {}  # of rows that may have several
        super().__init__(kind, files, partition, self._columns, _no_byte_range, _no_byte_range)

    def getter(self, reader: Reader) -> Callable[[Record], Any]:
        """Return a function that reads a row's bytes or array; row groups are cached."""
        return partial(self._row, RowGroups(self._field.name, reader))

    @property
    def has_images(self) -> bool:  # type: ignore[override]
        return _content_kind(self._field.type) == "bytes"

    def _extents(self, numbers: Array) -> tuple[Any, Any]:
        return repeat(None), repeat(None)

    @cached_property
    def _shards(self) -> list[ParquetShard]:
        return [open_shard(file) for file in self._files]

    @cached_property
    def _found(self) -> list[Columns]:
        """The columns of each file; all have records of one type."""
        shards = self._shards
        positions = [_find(shard, self._given_columns) for shard in shards]
        first = shards[0].schema.field(positions[0].image)
        for shard, columns in zip(shards, positions, strict=True):
            own = shard.schema.field(columns.image)
            if own != first:
                raise DataError(
                    f"{shard.url}: {own.name} is {own.type}, "
                    f"but {first.name} is {first.type} in {shards[0].url}"
                )
        return positions

    @property
    def _field(self) -> Any:
        return self._shards[0].schema.field(self._found[0].image)

    @cached_property
    def _starts(self) -> Array:
        """The first row of each file in the whole source, and the number of rows."""
        return np.cumsum([0, *(shard.rows for shard in self._shards)])

    def _columns(self, versions: Versions) -> RecordColumns:
        shards = self._shards
        count = int(self._starts[-1])
        file = number_files([shard.rows for shard in shards])
        rows, labels = self._labels()
        if rows is not None and labels.codes is not None:
            count = len(rows)
            names: dict[int, tuple[Label, ...]] = {}
            for row, code in zip(rows.tolist(), labels.codes.tolist(), strict=True):
                names[row] = (*names.get(row, ()), *labels.names[code : code + 1])
            self._row_labels = names
            file = None if file is None else file[rows]
        unknown = np.broadcast_to(np.int64(-1), count)
        columns = RecordColumns(self._files, file, unknown, unknown, rows, *labels)
        columns = columns._replace(found="the number of rows is 0")
        return columns.labeled(self._missing, partial(self._describe_unlabeled, rows))

    def _labels_of(self, numbers: Array, classes: list[Label | None]) -> list[tuple[Any, ...]]:
        positions = self._data_columns.positions
        if not self._row_labels or positions is None:
            return super()._labels_of(numbers, classes)
        return [self._row_labels[row] for row in positions[numbers].tolist()]

    def _labels(self) -> tuple[Array | None, LabelColumns]:
        """Return the row of each record, None if it is a record's number, and the labels."""
        pairs = zip(self._shards, self._found, strict=True)
        names = [[shard.schema.names[place] for place in own.labels] for shard, own in pairs]
        if not any(names):
            return None, LabelColumns()
        if len({*map(len, names)}) > 1:
            raise DataError(
                f"{self._files[0]} and the files after it differ in their columns of labels; give "
                "files of one schema, or columns={'label': ...}"
            )
        values = [
            row
            for shard, own in zip(self._shards, names, strict=True)
            for row in zip(*(read_column(shard, name) for name in own), strict=True)
        ]
        rows = None
        if len(names[0]) == 1:
            flat = [value for (value,) in values]
        else:
            rows, flat = _records_of_rows(values)
        try:
            return rows, label_columns(flat, is_labeled=True)
        except ValueError as error:
            place, text = error.args
            shard, row = self._locate(place if rows is None else rows[place])
            raise DataError(f"{shard.url}, row {row}: in {names[0][0]}, {text}") from error

    def _describe_unlabeled(self, rows: Array | None, number: int) -> str:
        shard, row = self._locate(number if rows is None else int(rows[number]))
        return f"{shard.url}, row {row} has no label"

    def _row(self, groups: RowGroups, record: Record) -> Any:
        return groups.row(*self._locate(record.position or 0))

    def _locate(self, row: int) -> tuple[ParquetShard, int]:
        """Return the file of a row of the whole source, and the row's number in the file."""
        number = int(np.searchsorted(self._starts, row, "right")) - 1
        return self._shards[number], row - int(self._starts[number])


def _records_of_rows(rows: list[tuple[Any, ...]]) -> tuple[Array | None, list[Any]]:
    """Return the row and label of each record of rows with several labels: one for each label.

    Labels that are no classes are the target of their row: the rows are then None.
    """
    present = [[value for value in row if not is_missing(value)] for row in rows]
    if rank_classes([*{value for row in present for value in row}]) is None:
        return None, [list(row) if own else None for row, own in zip(rows, present, strict=True)]
    labels = [own or [None] for own in present]
    numbers = np.repeat(np.arange(len(rows)), [*map(len, labels)])
    return numbers, [label for own in labels for label in own]


def _find(shard: ParquetShard, given: Mapping[str, Any]) -> Columns:
    """Return the columns of records and labels; raise DataError if one cannot hold records."""
    schema = shard.schema
    content = [field.name for field in schema if _content_kind(field.type) is not None]
    has_file_column = any(name in FILE_COLUMNS for name in content)
    positions = find_columns(
        schema.names, given, shard.url, content=content if has_file_column else None
    )
    if not positions.labels and "label" not in given:
        _check_folders(shard.url)
    field = schema.field(positions.image)
    if _content_kind(field.type) is None:
        raise DataError(
            f"{shard.url}: {field.name} is {field.type}; records are of bytes, of a struct with "
            "bytes, or of lists of a fixed size; where a column has the paths of files, open the "
            "data frame: open_index(pandas.read_parquet(...))"
        )
    return positions


def _check_folders(url: str) -> None:
    """Raise DataError if a folder of a partitioned data set contains the label of its rows."""
    for folder in url.split("/")[:-1]:
        name, equals, _ = folder.partition("=")
        if equals and is_label_column(name):
            raise DataError(
                f"{url} has no column {name}, which only its folder {folder} states; write the "
                "files without partition columns, so that each has its column"
            )


def _content_kind(dtype: Any) -> str | None:
    """Return "bytes" or "array" for the type of a column; None for other types."""
    from pyarrow import types

    if types.is_dictionary(dtype):
        dtype = dtype.value_type
    if types.is_struct(dtype):
        names = [dtype.field(number).name for number in range(dtype.num_fields)]
        dtype = dtype.field(names.index("bytes")).type if "bytes" in names else None
        only_paths = dtype is not None and types.is_null(dtype) and "path" in names
        return "bytes" if dtype is not None and (only_paths or _are_bytes(dtype)) else None
    if _are_bytes(dtype):
        return "bytes"
    if getattr(dtype, "extension_name", "") == "arrow.fixed_shape_tensor":
        return "array"
    inner = dtype
    while types.is_fixed_size_list(inner):
        inner = inner.value_type
    is_number = types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner)
    return "array" if is_number and inner is not dtype else None


def _are_bytes(dtype: Any) -> bool:
    from pyarrow import types

    kinds = types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary
    return any(is_kind(dtype) for is_kind in kinds)


def _no_byte_range(*_: Any) -> Any:
    raise DataError("a row of a Parquet file is not a range of bytes")

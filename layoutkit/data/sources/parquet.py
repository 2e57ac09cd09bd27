"""Parquet files: a column of images or arrays, and one of labels."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from itertools import repeat
from typing import Any

import numpy as np

from ...errors import DataError
from ...memory import Array
from ..io.filesystem import local_path, parent_folder
from ..io.parquet import ParquetShard, RowGroups, open_shard, read_column
from ..io.reader import Reader
from ..records import Record
from .base import Partition
from .ranged import LabelColumns, RangedIndex, RecordColumns, Versions, expand_shards, label_columns

_IMAGE = "image"
_LABEL = "label"


def open_parquet(
    path: str, kind: str, partition: Partition, column: str | None = None, label: str | None = None
) -> RangedIndex:
    """Open a Parquet file, or several by wildcards or braces."""
    files = expand_shards(path)
    index = ParquetIndex(kind, files, partition, column or _IMAGE, label)
    if all(local_path(file) is not None for file in files):
        len(index)  # loads local files now, so that their errors are raised here
    return index


class ParquetIndex(RangedIndex):
    """Rows of Parquet files. Only pyarrow knows their location, so records have no offset."""

    def __init__(
        self, kind: str, files: list[str], partition: Partition, column: str, label: str | None
    ) -> None:
        self._files = files
        self._column = column
        self._label = label
        load = self._columns
        super().__init__(
            kind, parent_folder(files[0]), partition, load, _no_byte_range, _no_byte_range
        )

    def getter(self, reader: Reader) -> Callable[[Record], Any]:
        """Return a function that reads a row's bytes or array; row groups are cached."""
        return partial(self._row, RowGroups(self._column, reader))

    @property
    def has_images(self) -> bool:  # type: ignore[override]
        """True if rows are bytes rather than arrays."""
        return _content_kind(self._shards[0].schema.field(self._column).type) == "bytes"

    def _extents(self, numbers: Array) -> tuple[Any, Any]:
        return repeat(None), repeat(None)

    @cached_property
    def _shards(self) -> list[ParquetShard]:
        shards = [open_shard(file) for file in self._files]
        for shard in shards:
            _check(shard, self._column, self._label)
            if shard.schema.field(self._column) != shards[0].schema.field(self._column):
                raise DataError(
                    f"{shard.url}: {self._column} is {shard.schema.field(self._column).type}, but "
                    f"{shards[0].schema.field(self._column).type} in {shards[0].url}"
                )
        return shards

    @cached_property
    def _starts(self) -> Array:
        """The first row of each file in the whole source, and the number of rows."""
        return np.cumsum([0, *(shard.rows for shard in self._shards)])

    def _columns(self, versions: Versions) -> RecordColumns:
        shards = self._shards
        count = int(self._starts[-1])
        file = None
        if len(shards) > 1:
            file = np.repeat(np.arange(len(shards), dtype=np.int32), [s.rows for s in shards])
        unknown = np.broadcast_to(np.int64(-1), count)
        columns = RecordColumns(self._files, file, unknown, unknown, None, *self._labels())
        return columns._replace(found="the number of rows is 0")

    def _labels(self) -> LabelColumns:
        name = self._label or _LABEL
        if name not in self._shards[0].schema.names:
            return LabelColumns()
        values = [value for shard in self._shards for value in read_column(shard, name)]
        try:
            return label_columns(values)
        except ValueError as error:
            row, text = error.args
            shard, row = self._locate(row)
            raise DataError(f"{shard.url}, row {row}: in {name}, {text}") from error

    def _row(self, groups: RowGroups, record: Record) -> Any:
        return groups.row(*self._locate(record.position or 0))

    def _locate(self, row: int) -> tuple[ParquetShard, int]:
        """Return the file of a row of the whole source, and the row's number in the file."""
        number = int(np.searchsorted(self._starts, row, "right")) - 1
        return self._shards[number], row - int(self._starts[number])


def _check(shard: ParquetShard, column: str, label: str | None) -> None:
    """Raise DataError if a column is missing, or cannot hold records."""
    for option, name in (("column", column), ("label", label)):
        if name is not None and name not in shard.schema.names:
            names = ", ".join(shard.schema.names) or "none"
            raise DataError(f"{shard.url} has no column {name}; give {option}= one of {names}")
    dtype = shard.schema.field(column).type
    if _content_kind(dtype) is None:
        raise DataError(
            f"{shard.url}: {column} is {dtype}; records are of bytes, of a struct with bytes, or "
            "of lists of a fixed size"
        )


def _content_kind(dtype: Any) -> str | None:
    """Return "bytes" or "array" for the type of a column; None for other types."""
    from pyarrow import types

    if types.is_struct(dtype):
        names = [dtype.field(number).name for number in range(dtype.num_fields)]
        dtype = dtype.field(names.index("bytes")).type if "bytes" in names else None
        return "bytes" if dtype is not None and _are_bytes(dtype) else None
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

    return bool(
        types.is_binary(dtype) or types.is_large_binary(dtype) or types.is_fixed_size_binary(dtype)
    )


def _no_byte_range(*_: Any) -> Any:
    raise DataError("a row of a Parquet file is not a range of bytes")

"""Columns of Parquet files, read with pyarrow row group by row group.

A row group is the smallest unit that can be read. The cache of row groups, from which neighboring
rows are read, holds at most 256 MiB, or one row group if that is larger.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np

from ..._utils import fork
from ..._utils.errors import as_data_errors, explain_missing
from ...errors import DataError
from ...memory import Array
from .filesystem import is_url, join_path, parent_folder
from .reader import RangeFile, Reader
from .responses import FileVersion

MAX_CACHE_BYTES = 1 << 28  # of cached row groups; one is cached whatever its size


class ParquetShard(NamedTuple):
    """A file whose footer pyarrow has read.

    starts      the first row of each row group, followed by the number of rows
    """

    url: str
    version: FileVersion | None
    metadata: Any
    schema: Any
    starts: Array

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.starts[-1])


def open_shard(url: str) -> ParquetShard:
    """Read the footer of a file; DataError if it is not Parquet, or pyarrow is missing."""
    with RangeFile(url) as source, as_data_errors(url):
        file = _library().ParquetFile(source)
        metadata = file.metadata
        counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        if min(counts, default=0) < 0 or sum(counts) != metadata.num_rows:
            raise ValueError(f"row groups have {counts} rows, the footer says {metadata.num_rows}")
        starts = np.cumsum([0, *counts], dtype=np.int64)
        return ParquetShard(url, source.version, metadata, file.schema_arrow, starts)


def read_column(shard: ParquetShard, name: str) -> list[Any]:
    """Return all values of a column, as Python objects."""
    with RangeFile(shard.url, version=shard.version) as source, as_data_errors(shard.url):
        file = _library().ParquetFile(source, metadata=shard.metadata)
        values: list[Any] = file.read([name], use_threads=False).column(0).to_pylist()
        if len(values) != shard.rows:
            raise ValueError(f"column {name} has {len(values)} rows, but the file has {shard.rows}")
    return values


class RowGroups:
    """A thread-safe reader of single rows of one column of many files, with a cache."""

    def __init__(self, column: str, reader: Reader) -> None:
        self._column = column
        self._reader = reader
        self.reinit()
        fork.reinit_after_fork(self)

    def row(self, shard: ParquetShard, row: int) -> Any:
        """Return the value of a row: bytes or a NumPy array; DataError if it is null.

        A struct without bytes has a path, relative to the folder of the Parquet file.
        """
        group = int(np.searchsorted(shard.starts, row, "right")) - 1
        column = self._read_group(shard, group)
        with as_data_errors(shard.url):
            scalar = column[row - int(shard.starts[group])]
            value = _value(scalar) if scalar.is_valid else None
        return self._read_file_of(shard, row, scalar) if value is None else value

    def _read_file_of(self, shard: ParquetShard, row: int, scalar: Any) -> bytes:
        """Read the file that a value without bytes names; DataError if it is not in the folder."""
        value = scalar.as_py()
        path = value.get("path") if isinstance(value, dict) else None
        place = f"{shard.url}, row {row}: column {self._column}"
        if not isinstance(path, str) or not path:
            raise DataError(f"{place} is null")
        folder = parent_folder(shard.url)
        parts = path.replace("\\", "/").split("/")
        if is_url(path) or os.path.isabs(path) or ":" in parts[0] or {"", ".."} & {*parts}:
            raise DataError(
                f"{place} has no bytes but the path {path!r}, which is not inside the folder "
                f"{folder}; open the files themselves: open_index({{'x': paths, 'y': labels}})"
            )
        try:
            return self._reader.read(join_path(folder, path))
        except DataError as error:
            raise DataError(f"{place} has no bytes but the path {path!r}: {error}") from error

    def _read_group(self, shard: ParquetShard, group: int) -> Any:
        """Return the column of a row group; threads that need it at once share one read."""
        key = shard.url, group
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
            group_lock = self._group_locks.setdefault(key, threading.Lock())
        with group_lock:
            with self._lock:
                if key in self._cache:
                    return self._cache[key]
            column = self._read(shard, group)
            with self._lock:
                self._cache[key] = column
                self._group_locks.pop(key, None)
                while (
                    len(self._cache) > 1
                    and sum(c.nbytes for c in self._cache.values()) > MAX_CACHE_BYTES
                ):
                    self._cache.popitem(last=False)
        return column

    def _read(self, shard: ParquetShard, group: int) -> Any:
        source = RangeFile(shard.url, self._reader, shard.version)
        with source, as_data_errors(shard.url):
            file = _library().ParquetFile(source, metadata=shard.metadata)
            return file.read_row_group(group, [self._column], use_threads=False).column(0)

    def reinit(self) -> None:
        """Make a new cache and new locks; after a fork, a thread of the parent may hold the old."""
        self._lock = threading.Lock()
        self._cache: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self._group_locks: dict[tuple[str, int], threading.Lock] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the cache."""
        return {"_column": self._column, "_reader": self._reader}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.reinit()
        fork.reinit_after_fork(self)


def _value(scalar: Any) -> Any:
    """Return the value of a scalar: bytes, or an array of a fixed shape; None for null."""
    import pyarrow as pa

    if isinstance(scalar, pa.DictionaryScalar):
        scalar = scalar.value
    if isinstance(scalar, pa.StructScalar):
        scalar = scalar["bytes"]
    if isinstance(scalar, pa.FixedShapeTensorScalar):
        return scalar.to_numpy()
    if not isinstance(scalar, pa.FixedSizeListScalar):
        return scalar.as_py()
    shape = []
    items = scalar.values
    while isinstance(items, pa.FixedSizeListArray):
        shape.append(items.type.list_size)
        items = items.flatten()
    if items.null_count:
        return None
    return items.to_numpy(zero_copy_only=False).reshape(scalar.type.list_size, *shape)


def _library() -> Any:
    with explain_missing("Parquet files need pyarrow", "parquet", DataError):
        import pyarrow.parquet
    return pyarrow.parquet

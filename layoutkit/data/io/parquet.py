"""Columns of Parquet files, through pyarrow: what a column may hold, and its rows.

A row group is the least that can be read. It is read once, and kept while its neighbours are asked
for, up to a few hundred megabytes of them.

Knows columns and row groups; the format is pyarrow's business, and who wants a row is not known.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError
from ...memory import Array
from .reader import RangeFile, Reader

__all__ = ["ParquetShard", "RowGroups", "column_in", "opened_shard"]

MOST_KEPT = 1 << 28  # bytes of row groups; one is kept whatever it has


class ParquetShard(NamedTuple):
    """A file of which pyarrow has read the footer.

    starts      the row that each row group begins with, and one behind the last
    """

    url: str
    size: int
    metadata: Any
    schema: Any
    starts: Array

    @property
    def rows(self) -> int:
        """How many there are."""
        return int(self.starts[-1])


def opened_shard(url: str) -> ParquetShard:
    """The footer of a file; DataError where it is none of Parquet, or pyarrow is missing."""
    with RangeFile(url) as source, _reading(url):
        found = _library().ParquetFile(source)
        metadata = found.metadata
        counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        if min(counts, default=0) < 0 or sum(counts) != metadata.num_rows:
            raise ValueError(f"its row groups have {counts} rows, and it {metadata.num_rows}")
        starts = np.cumsum([0, *counts], dtype=np.int64)
        return ParquetShard(url, source.size, metadata, found.schema_arrow, starts)


def column_in(shard: ParquetShard, name: str) -> list[Any]:
    """All of a column, as Python's own values."""
    with RangeFile(shard.url, size=shard.size) as source, _reading(shard.url):
        found = _library().ParquetFile(source, metadata=shard.metadata)
        values: list[Any] = found.read([name], use_threads=False).column(0).to_pylist()
        if len(values) != shard.rows:
            raise ValueError(f"{name} has {len(values)} rows, and it {shard.rows}")
    return values


class RowGroups:
    """Rows of one column of some files; safe from many threads."""

    def __init__(self, column: str, reader: Reader) -> None:
        self._column, self._reader = column, reader
        self._renew()

    def row(self, shard: ParquetShard, row: int) -> Any:
        """bytes, or a NumPy array, as the column has it; DataError where there is nothing."""
        group = int(np.searchsorted(shard.starts, row, "right")) - 1
        column = self._group(shard, group)
        with _reading(shard.url):
            value = column[row - int(shard.starts[group])]
            found = _value(value) if value.is_valid else None
        if found is None:
            raise DataError(f"{shard.url}, row {row}: there is nothing in {self._column}")
        return found

    def _group(self, shard: ParquetShard, group: int) -> Any:
        """A column of a row group; who wants the same meanwhile waits for it."""
        if self._process != os.getpid():  # after a fork, a lock may be that of a thread left behind
            self._renew()
        key = shard.url, group
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            turn = self._turns.setdefault(key, threading.Lock())
        with turn:
            with self._lock:
                if key in self._kept:
                    return self._kept[key]
            found = self._read(shard, group)
            with self._lock:
                self._kept[key] = found
                self._turns.pop(key, None)
                while (
                    len(self._kept) > 1 and sum(c.nbytes for c in self._kept.values()) > MOST_KEPT
                ):
                    self._kept.popitem(last=False)
        return found

    def _read(self, shard: ParquetShard, group: int) -> Any:
        source = RangeFile(shard.url, self._reader, shard.size)
        with source, _reading(shard.url):
            file = _library().ParquetFile(source, metadata=shard.metadata)
            return file.read_row_group(group, [self._column], use_threads=False).column(0)

    def _nbytes(self) -> int:
        return sum(column.nbytes for column in self._kept.values())

    def _renew(self) -> None:
        self._process, self._lock = os.getpid(), threading.Lock()
        self._kept: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self._turns: dict[tuple[str, int], threading.Lock] = {}

    def __getstate__(self) -> dict[str, Any]:
        """What it is of, without what it keeps."""
        return {"_column": self._column, "_reader": self._reader}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._renew()


def _value(value: Any) -> Any:
    """What one cell holds: bytes, or an array of a fixed shape; None where that is missing."""
    import pyarrow as pa

    if isinstance(value, pa.StructScalar):
        value = value["bytes"]
    if isinstance(value, pa.FixedShapeTensorScalar):
        return value.to_numpy()
    if not isinstance(value, pa.FixedSizeListScalar):
        return value.as_py()
    shape, items = [], value.values
    while isinstance(items, pa.FixedSizeListArray):
        shape.append(items.type.list_size)
        items = items.flatten()
    if items.null_count:
        return None
    return items.to_numpy(zero_copy_only=False).reshape(value.type.list_size, *shape)


def _library() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise DataError("Parquet files need pyarrow; pip install 'layoutkit[parquet]'") from None
    return pyarrow.parquet


@contextmanager
def _reading(url: str) -> Iterator[None]:
    """DataError for whatever pyarrow raises, most of which are OSErrors and ValueErrors."""
    try:
        yield
    except (DataError, MemoryError):
        raise
    except Exception as error:
        words = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(f"{url} cannot be read as Parquet: {words}") from error

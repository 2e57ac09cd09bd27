"""Parquet files: a column of pictures or arrays, and one of labels.

Knows rows and which columns are asked for; how they are read `parquetfiles.py` knows.
"""

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
from .ranged import Columns, Labelled, RangedIndex, labelled, shards_of

__all__ = ["open_parquet"]

_IMAGE, _LABEL = "image", "label"


def open_parquet(
    path: str, kind: str, partition: Partition, column: str | None = None, label: str | None = None
) -> RangedIndex:
    """The index of a Parquet file, or of several by wildcards or braces."""
    files = shards_of(path)
    found = ParquetIndex(kind, files, partition, column or _IMAGE, label)
    if all(local_path(file) is not None for file in files):
        len(found)  # what is wrong with them is raised here
    return found


class ParquetIndex(RangedIndex):
    """Rows of Parquet files; where they lie only pyarrow knows, so their records have no offset."""

    def __init__(
        self, kind: str, files: list[str], partition: Partition, column: str, label: str | None
    ) -> None:
        self._files, self._column, self._label = files, column, label
        load = self._columns
        super().__init__(kind, parent_folder(files[0]), partition, load, _never, _never)

    def getter(self, reader: Reader) -> Callable[[Record], Any]:
        """What gives a row's bytes or array; row groups are kept while neighbours are asked for."""
        return partial(self._row, RowGroups(self._column, reader))

    @property
    def of_pictures(self) -> bool:  # type: ignore[override]
        """Whether rows are bytes, and not arrays."""
        return _holds(self._shards[0].schema.field(self._column).type) == "bytes"

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
        """The row of the whole source that each file begins with."""
        return np.cumsum([0, *(shard.rows for shard in self._shards)])

    def _columns(self) -> Columns:
        shards, count = self._shards, int(self._starts[-1])
        file = None
        if len(shards) > 1:
            file = np.repeat(np.arange(len(shards), dtype=np.int32), [s.rows for s in shards])
        nowhere = np.broadcast_to(np.int64(-1), count)
        return Columns(self._files, file, nowhere, nowhere, None, *self._labels())

    def _labels(self) -> Labelled:
        name = self._label or _LABEL
        if name not in self._shards[0].schema.names:
            return Labelled()
        values = [value for shard in self._shards for value in read_column(shard, name)]
        try:
            return labelled(values)
        except ValueError as error:
            place, words = error.args
            shard, row = self._at(place)
            raise DataError(f"{shard.url}, row {row}: in {name}, {words}") from error

    def _row(self, groups: RowGroups, record: Record) -> Any:
        return groups.row(*self._at(record.position or 0))

    def _at(self, place: int) -> tuple[ParquetShard, int]:
        """The file of a row of the whole source, and its row there."""
        number = int(np.searchsorted(self._starts, place, "right")) - 1
        return self._shards[number], place - int(self._starts[number])


def _check(shard: ParquetShard, column: str, label: str | None) -> None:
    """DataError where a file lacks a column, or its rows are nothing that a record can be."""
    for option, name in (("column", column), ("label", label)):
        if name is not None and name not in shard.schema.names:
            there = ", ".join(shard.schema.names) or "none"
            raise DataError(f"{shard.url} has no column {name}; give {option}= one of {there}")
    kind = shard.schema.field(column).type
    if _holds(kind) is None:
        raise DataError(
            f"{shard.url}: {column} is {kind}; records are of bytes, of a struct with bytes, or of "
            "lists of a fixed size"
        )


def _holds(kind: Any) -> str | None:
    """ "bytes" or "array", by the type of a column; None for neither."""
    from pyarrow import types

    if types.is_struct(kind):
        names = [kind.field(number).name for number in range(kind.num_fields)]
        kind = kind.field(names.index("bytes")).type if "bytes" in names else None
        return "bytes" if kind is not None and _are_bytes(kind) else None
    if _are_bytes(kind):
        return "bytes"
    if getattr(kind, "extension_name", "") == "arrow.fixed_shape_tensor":
        return "array"
    inner = kind
    while types.is_fixed_size_list(inner):
        inner = inner.value_type
    plain = types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner)
    return "array" if plain and inner is not kind else None


def _are_bytes(kind: Any) -> bool:
    from pyarrow import types

    return bool(
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    )


def _never(*_: Any) -> Any:
    raise DataError("a row of a Parquet file is no range of bytes")

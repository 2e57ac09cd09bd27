"""Columns of Parquet files, read with pyarrow row group by row group.

A row group is the smallest unit that can be read. The cache of row groups, from which neighboring
rows are read, holds at most 256 MiB, or one row group if that is larger.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np

from ..._utils import fork
from ..._utils.errors import as_data_errors, explain_missing
from ..._utils.validation import show
from ...errors import DataError
from ...memory import Array
from .filesystem import is_url, join_path, parent_folder
from .reader import RangeFile, Reader
from .responses import FileVersion

MAX_CACHE_BYTES = 1 << 28  # of cached row groups; one is cached whatever its size


class ParquetShard(NamedTuple):
    """A file whose footer pyarrow has read.

    starts      the first row of each row group, followed by the number of rows
    folders     the columns that the names of folders state
    """

    url: str
    version: FileVersion | None
    metadata: Any
    schema: Any
    starts: Array
    folders: Mapping[str, str | None]

    @property
    def names(self) -> list[str]:
        """The names of the columns of the file, and of its folders where it has no such column."""
        own = self.schema.names
        return [*own, *(name for name in self.folders if name not in own)]

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
        folders = folder_values(url)
        return ParquetShard(url, source.version, metadata, file.schema_arrow, starts, folders)


def folder_values(url: str) -> dict[str, str | None]:
    """Return the columns that names of folders state, as Hive writes them: label=cat/x.parquet.

    The folder of missing values gives None.
    """
    values: dict[str, str | None] = {}
    for folder in url.split("/")[:-1]:
        name, equals, text = folder.partition("=")
        if equals:
            with as_data_errors(url, ValueError):
                value = unquote(text, errors="strict")
            values[name] = None if value == _MISSING_FOLDER else value
    return values


_MISSING_FOLDER = "__HIVE_DEFAULT_PARTITION__"


def infer_folder_type(texts: Iterable[str | None]) -> type[str] | type[int]:
    """Return int if all texts are integers of 32 bits, else str, as pyarrow does."""
    are_ints = all(
        text is None or (_INT.fullmatch(text) and -(1 << 31) <= int(text) < 1 << 31)
        for text in texts
    )
    return int if are_ints else str


_INT = re.compile("-?[0-9]{1,40}")


def read_column(shard: ParquetShard, name: str) -> list[Any]:
    """Return all values of a column, as Python objects."""
    with RangeFile(shard.url, version=shard.version) as source, as_data_errors(shard.url):
        file = _library().ParquetFile(source, metadata=shard.metadata)
        values: list[Any] = file.read([name], use_threads=False).column(0).to_pylist()
        if len(values) != shard.rows:
            raise ValueError(f"column {name} has {len(values)} rows, but the file has {shard.rows}")
    return values


def read_class_names(shard: ParquetShard, column: str) -> list[str] | None:
    """Return the names of the classes that a column numbers; None if the file declares none.

    Columns of other types than integers have no numbers of classes.

    The `datasets` library declares them (ClassLabel) in the metadata of the schema.

    Raises
    ------
    DataError
        The metadata is damaged, or has no list of different names.
    """
    from pyarrow import types

    schema = shard.schema
    if column not in schema.names or not types.is_integer(schema.field(column).type):
        return None
    feature = _read_features(shard).get(column)
    if feature is None or not _is_feature(feature, "ClassLabel"):
        return None
    names = feature.get("names")
    are_names = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not are_names or not names or len({*names}) < len(names):
        fault = f"has {show(names)} for {column}, which is no list of different names of classes"
        raise DataError(_describe_metadata(shard, fault))
    return names


def read_image_columns(shard: ParquetShard) -> list[str]:
    """Return the names of the columns that `datasets` declares as images (Image).

    Raises DataError if the metadata is damaged.
    """
    features = _read_features(shard)
    return [name for name in shard.schema.names if _is_feature(features.get(name), "Image")]


def _read_features(shard: ParquetShard) -> Mapping[str, Any]:
    """Return the declarations of `datasets` by column; raise DataError if they are damaged."""
    text = (shard.schema.metadata or {}).get(b"huggingface")
    if text is None:
        return {}
    try:
        features: Mapping[str, Any] = json.loads(text)["info"]["features"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise DataError(_describe_metadata(shard, "is damaged")) from error
    if not isinstance(features, Mapping):
        raise DataError(_describe_metadata(shard, "is damaged"))
    return features


def _is_feature(feature: Any, kind: str) -> bool:
    return isinstance(feature, Mapping) and feature.get("_type") == kind


def _describe_metadata(shard: ParquetShard, fault: str) -> str:
    return (
        f'{shard.url}: the metadata "huggingface" of its schema {fault}; write the file again '
        "without it: table.replace_schema_metadata()"
    )


class RowGroups:
    """A thread-safe reader of single rows of one column of many files, with a cache.

    Parameters
    ----------
    column : str
        The name of the column.
    reader : Reader
        Reads the files.
    number : int, optional
        The number of the image that is read of a list of images, negative from its end.
    """

    def __init__(self, column: str, reader: Reader, number: int | None = None) -> None:
        self._column = column
        self._reader = reader
        self._number = number
        self.reinit()
        fork.reinit_after_fork(self)

    def row(self, shard: ParquetShard, row: int) -> Any:
        """Return the value of a row: bytes or a NumPy array; of images in a list, one or a list.

        A struct without bytes has a path, relative to the folder of the Parquet file.

        Raises
        ------
        DataError
            A value is null, a list has no image of this number, or a file cannot be read.
        """
        group = int(np.searchsorted(shard.starts, row, "right")) - 1
        column = self._read_group(shard, group)
        place = f"{shard.url}, row {row}: column {self._column}"
        with as_data_errors(shard.url):
            scalar = column[row - int(shard.starts[group])]
            items = scalar.values if scalar.is_valid and is_image_list(scalar.type) else None
        if items is None:
            return self._content(shard, scalar, place)
        number = self._number
        if number is None:
            return [self._content(shard, x, f"{place}, image {i}") for i, x in enumerate(items)]
        if not -len(items) <= number < len(items):
            raise DataError(
                f"{place} has no image {number}: its list has {len(items)}, numbered from 0"
            )
        return self._content(shard, items[number], f"{place}, image {number}")

    def _content(self, shard: ParquetShard, scalar: Any, place: str) -> Any:
        with as_data_errors(shard.url):
            value = _value(scalar) if scalar.is_valid else None
        return self._read_file_of(shard, scalar, place) if value is None else value

    def _read_file_of(self, shard: ParquetShard, scalar: Any, place: str) -> bytes:
        """Read the file that a value without bytes names; DataError if it is not in the folder."""
        value = scalar.as_py()
        path = value.get("path") if isinstance(value, dict) else None
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
        return {"_column": self._column, "_reader": self._reader, "_number": self._number}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.reinit()
        fork.reinit_after_fork(self)


def content_kind(dtype: Any) -> str | None:
    """Return "bytes", "images" (lists of bytes) or "array" for the type of a column, else None."""
    from pyarrow import types

    if types.is_dictionary(dtype):
        dtype = dtype.value_type
    if _are_images(dtype):
        return "bytes"
    if is_image_list(dtype):
        return "images"
    if getattr(dtype, "extension_name", "") == "arrow.fixed_shape_tensor":
        return "array"
    inner = dtype
    while types.is_fixed_size_list(inner):
        inner = inner.value_type
    is_number = types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner)
    return "array" if is_number and inner is not dtype else None


def is_image_list(dtype: Any) -> bool:
    """Return True for the type of lists of bytes, or of structs with bytes."""
    from pyarrow import types

    kinds = types.is_list, types.is_large_list, types.is_fixed_size_list
    return any(is_kind(dtype) for is_kind in kinds) and _are_images(dtype.value_type)


def _are_images(dtype: Any) -> bool:
    """Return True for bytes, and for structs that have bytes, or a path and only null as bytes."""
    from pyarrow import types

    if types.is_struct(dtype):
        names = [dtype.field(number).name for number in range(dtype.num_fields)]
        if "bytes" not in names:
            return False
        dtype = dtype.field(names.index("bytes")).type
        if types.is_null(dtype):
            return "path" in names
    kinds = types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary
    return any(is_kind(dtype) for is_kind in kinds)


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

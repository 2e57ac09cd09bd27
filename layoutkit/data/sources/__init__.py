"""Which records there are.

open_index(source)      an Index: a sequence of Record, by number and by label

base.py          what every index can do
dispatch.py      which kind takes a source
table.py         csv and tsv files
directory.py     a folder, whose sub-folders are labels
partfiles.py     a folder of part files, whose lines are records
tensor.py        arrays, and the files that hold them
ranged.py        containers: records that are ranges of bytes in files
recordfile.py    RecordIO files
listfiles.py     .idx and .lst, which lie beside them
tarfiles.py      tar archives in WebDataset's layout
parquet.py       Parquet files
tfrecord.py      TFRecord files
shards.py        several files by one name
numberlabels.py  labels that are numbers
labelcolumns.py  labels of any kind

Which kind of index takes a source.

Knows the kinds, and suffixes by way of `formats.py`; what is in a source is not looked at here.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..._utils.validation import as_count, kind_text
from ...errors import DataError
from ..formats import ARRAYS, CONTAINERS, TABLES, container_of, suffix_of
from ..io.filesystem import is_url
from ..io.zarr import is_store
from .arrays import open_tensor
from .base import Groups, Index, Partition, as_schemes, grouped
from .directory import DirectoryIndex
from .parquet import open_parquet
from .partfiles import PartsIndex
from .recordio import open_record_file
from .table import open_table
from .tfrecord import open_tfrecord
from .webdataset import open_tar

__all__ = ["Groups", "Index", "PartsIndex", "grouped", "open_index"]


def open_index(
    source: Any,
    *,
    kind: str | None = None,
    partition: int = 0,
    partitions: int = 1,
    schemes: Sequence[str] = (),
    index: str | os.PathLike[str] | None = None,
    list: str | os.PathLike[str] | None = None,  # noqa: A002  # what the file is called
    columns: Mapping[str, Any] | None = None,
    column: str | None = None,
    label: str | None = None,
) -> Any:
    """Which records a source has.

    >>> index = open_index({"x": [[1.0, 2.0], [3.0, 4.0]], "y": ["cat", "dog"]})
    >>> index.labels, index[1].array
    (['cat', 'dog'], array([3., 4.]))

    Parameters
    ----------
    source : str, path, array, mapping, Dataset, or a list of these
        A csv or tsv file, a folder whose sub-folders are labels, a URL of a folder of part
        files, an array, ``{"x": array, "y": labels}``, a .npy, .npz, .safetensors or .pt file, a
        .zarr store of an array or of x and y, or a container of records: .rec, .tar, .parquet or
        .tfrecord. Containers may be several files, by wildcards and braces:
        ``"train-{000..119}.tar"``. A list gives a list of Indexes.
    kind : str, optional
        What the source is, where its name does not say so: "csv", "tsv", "directory", "parts",
        "tensor", "zarr", "image", "raw", "tar", "parquet" or "tfrecord". "image" and "raw" are
        RecordIO files: of image records, which is what .rec means, or of anything, as it is.
    partition, partitions : int
        Take only the records i with ``i % partitions == partition``; of part files, the files.
    schemes : tuple of str
        What a table may name besides files at its own scheme and web servers: "s3", or "file" for
        local files in a table that lies at a URL.
    index : path, optional
        Where the records of a .rec begin: by default the .idx beside it, where there is one. Its
        lines give the order; records that it does not name are left out.
    list : path, optional
        A .lst whose labels replace those of a .rec, by the ids of its records.
    columns : mapping, optional
        Of a .tar: which members are the picture and the label, by their suffixes, as in
        ``{"image": ("jpg", "png"), "label": "json:class"}``. By default the first of jpg, jpeg,
        png, webp and npy, and a whole number in cls, or else the text in txt.
    column, label : str, optional
        Of a .parquet: the column of bytes or lists of a fixed size, by default "image", and that of
        labels, by default "label" where there is one.

    Raises
    ------
    DataError
        The source cannot be opened, or is not what its kind asks for.
    """
    number = as_count("partitions", partitions, 1)
    part = as_count("partition", partition)
    if part >= number:
        raise DataError(f"partition={part}, but partitions={number}; they count from 0")
    allowed = as_schemes(schemes)
    given: dict[str, Any] = {"index": _path("index", index), "list": _path("list", list)}
    given |= {"columns": columns, "column": column, "label": label}
    if isinstance(source, builtins.list | tuple):
        more: Any = {"kind": kind, "partition": part, "partitions": number, "schemes": allowed}
        return [open_index(each, **more, **given) for each in source]
    path = os.fspath(source) if isinstance(source, str | os.PathLike) else None
    named = _checked(kind) or _guessed(source, path)
    if path is None and named != "tensor":
        raise DataError(f"kind={kind!r} takes a path or URL, not a {kind_text(source)}")
    opener, keywords = _OPENERS[named]
    asked = {name: value for name, value in given.items() if name in keywords}
    for name in given.keys() - asked.keys():
        if given[name] is not None:
            fitting = ", ".join(kind for kind, row in _OPENERS.items() if name in row.keywords)
            raise DataError(f"{name}= is for an index of kind {fitting}; {source!r} is {named}")
    if opener is open_table:
        asked["schemes"] = allowed
    return opener(source if path is None else path, named, Partition(part, number), **asked)


class _Row(NamedTuple):
    """Who opens a kind of source, and the keywords that are for it."""

    opener: Callable[..., Index]
    keywords: tuple[str, ...] = ()


_OPENERS = {
    **{suffix[1:]: _Row(open_table) for suffix in TABLES},
    "directory": _Row(DirectoryIndex),
    "parts": _Row(PartsIndex),
    "tensor": _Row(open_tensor),
    "zarr": _Row(open_tensor),
    "image": _Row(open_record_file, ("index", "list")),
    "raw": _Row(open_record_file, ("index", "list")),
    "tar": _Row(open_tar, ("columns",)),
    "parquet": _Row(open_parquet, ("column", "label")),
    "tfrecord": _Row(open_tfrecord),
}


def _path(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str | os.PathLike):
        raise DataError(f"{name}={value!r}; it is the path of a file, or None")
    return None if value is None else os.fspath(value)


def _checked(kind: Any) -> str | None:
    if kind is not None and (not isinstance(kind, str) or kind not in _OPENERS):
        raise DataError(f"no index is called {kind!r}; there are {', '.join(_OPENERS)}")
    return kind


def _guessed(source: Any, path: str | None) -> str:
    if path is None:
        return "tensor"
    suffix = suffix_of(path)
    if "\0" in path:
        raise DataError(f"{path!r} has a null character, which no name of a file has")
    if is_store(path):
        return "zarr"
    if not is_url(path) and os.path.isdir(path):  # noqa: PTH112  # no error for too long a name
        return "directory"
    if suffix in TABLES:
        return suffix[1:]
    if suffix in ARRAYS:
        return "tensor"
    container = container_of(path)
    if container is not None:
        return container
    if is_url(path):
        return "parts"
    there = os.path.exists(path)  # noqa: PTH110  # as above
    found = "nothing is known of its kind" if there else "there is no such file"
    raise DataError(
        f"{path} is no index: {found}; an index is a folder, the URL of a folder of part files, or "
        f"a file: {', '.join([*TABLES, *ARRAYS, *CONTAINERS])}"
    )

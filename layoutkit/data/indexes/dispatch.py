"""Which kind of index takes a source.

Knows the kinds, and suffixes by way of `formats.py`; what is in a source is not looked at here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ...checks import as_count, kind_text
from ...errors import DataError
from ..formats import ARRAYS, TABLES, suffix_of
from ..reading.urls import is_url
from .base import Index
from .directory import DirectoryIndex
from .naming import as_schemes
from .partfiles import PartsIndex
from .partition import Partition
from .table import open_table
from .tensor import open_tensor

__all__ = ["open_index"]


def open_index(
    source: Any,
    *,
    kind: str | None = None,
    partition: int = 0,
    partitions: int = 1,
    schemes: Sequence[str] = (),
) -> Any:
    """Which records a source has.

    >>> index = open_index({"x": [[1.0, 2.0], [3.0, 4.0]], "y": ["cat", "dog"]})
    >>> index.labels, index[1].array
    (['cat', 'dog'], array([3., 4.]))

    Parameters
    ----------
    source : str, path, array, mapping, Dataset, or a list of these
        A csv or tsv file, a folder whose sub-folders are labels, a URL of a folder of part
        files, an array, ``{"x": array, "y": labels}``, or a .npy, .npz, .safetensors or .pt
        file. A list gives a list of Indexes.
    kind : "csv", "tsv", "directory", "parts" or "tensor", optional
        What the source is, where its name does not say so.
    partition, partitions : int
        Take only the records i with ``i % partitions == partition``; of part files, the files.
    schemes : tuple of str
        What a table may name besides files at its own scheme and web servers: "s3", or "file" for
        local files in a table that lies at a URL.

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
    if isinstance(source, list | tuple):
        more: Any = {"kind": kind, "partition": part, "partitions": number, "schemes": allowed}
        return [open_index(each, **more) for each in source]
    path = os.fspath(source) if isinstance(source, str | os.PathLike) else None
    named = _checked(kind) or _guessed(source, path)
    if path is None and named != "tensor":
        raise DataError(f"kind={kind!r} takes a path or URL, not a {kind_text(source)}")
    opener: Callable[..., Index] = _OPENERS[named]
    given = (source if path is None else path, named, Partition(part, number))
    return opener(*given, allowed) if opener is open_table else opener(*given)


_OPENERS: dict[str, Callable[..., Index]] = {
    **{suffix[1:]: open_table for suffix in TABLES},
    "directory": DirectoryIndex,
    "parts": PartsIndex,
    "tensor": open_tensor,
}


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
    if not is_url(path) and os.path.isdir(path):  # noqa: PTH112  # no error for too long a name
        return "directory"
    if suffix in TABLES:
        return suffix[1:]
    if suffix in ARRAYS:
        return "tensor"
    if is_url(path):
        return "parts"
    there = os.path.exists(path)  # noqa: PTH110  # as above
    found = "nothing is known of its kind" if there else "there is no such file"
    raise DataError(
        f"{path} is no index: {found}; an index is a folder, the URL of a folder of part files, or "
        f"a file: {', '.join([*TABLES, *ARRAYS])}"
    )

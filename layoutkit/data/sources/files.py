"""A list of files, with labels or targets in a list of their own. The files are not opened."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import DataError
from ...memory import Array
from ..errors import check_has_records
from ..formats import FIELD_PAIRS, is_dataframe, is_image_name
from ..io.filesystem import expand_pattern, has_wildcards, is_url
from ..records import Record
from .arrays import field_pair, split_labels
from .base import Index, Partition

# Columns of a data frame, in the order in which they are looked for.
_PATH_COLUMNS = ("filename", "path", "file", "filepath", "image")
_LABEL_COLUMNS = ("label", "labels", "target", "class", "y")


class FilesIndex(Index):
    """The files of a list, in its order."""

    def __init__(self, source: Any, kind: str, partition: Partition) -> None:
        paths, y = _paths_and_labels(source)
        check_has_records(len(paths), "the source", "the list of files is empty")
        labels, codes, self._targets = split_labels(y)
        self._partition = partition
        self._paths = paths[partition.rows]
        super().__init__(kind, None, labels, None if codes is None else codes[partition.rows])

    def __len__(self) -> int:
        return len(self._paths)

    def record(self, number: int) -> Record:
        """Return a file, with its label."""
        code = -1 if self._codes is None else int(self._codes[number])
        label = None if code < 0 else self.labels[code]
        labels = () if label is None else (label,)
        return Record(url=self._paths[number], label=label, labels=labels, position=number)

    def targets(self, numbers: Array) -> Array | None:
        """Return the rows of y, if it does not contain labels."""
        if self._targets is None:
            return None
        rows: Array = np.asarray(self._targets)[self._partition.place(numbers)]
        return rows


def is_file_list(source: Any) -> bool:
    """Return True for paths of files, alone or with labels: a list, a glob, a mapping or a frame.

    A list of text is a list of paths if the first one exists or has the suffix of an image.
    """
    if isinstance(source, str):
        exists = has_wildcards(source) or is_url(source) or os.path.isfile(source)  # noqa: PTH113
        return is_image_name(source) and exists
    if is_dataframe(source):
        return len(source.shape) == 2 and _path_column(source) is not None
    paths: Any = source
    if isinstance(source, Mapping):
        paths = next((source[x] for x, _ in FIELD_PAIRS if x in source), None)
    paths = paths.to_numpy() if is_dataframe(paths) else paths
    if not isinstance(paths, list | tuple | np.ndarray) or np.ndim(paths[:1]) != 1:
        return False
    first = paths[0] if len(paths) else None
    if isinstance(first, os.PathLike):
        return True
    return isinstance(first, str) and (is_image_name(first) or os.path.isfile(first))  # noqa: PTH113


def _paths_and_labels(source: Any) -> tuple[list[str], Any]:
    """Return the paths, and labels or targets as an array; DataError if they do not match."""
    y = None
    if isinstance(source, str):
        paths: Any = _expand(source) if has_wildcards(source) else [source]
    elif is_dataframe(source):
        paths, y = _columns(source)
    elif isinstance(source, Mapping):
        x_name, y_name = field_pair(source, "the source")
        paths, y = source[x_name], source.get(y_name)
    else:
        paths = source
    paths = [_as_path(path, number) for number, path in enumerate(paths)]
    if y is None:
        return paths, None
    y = np.asarray(y.to_numpy() if is_dataframe(y) else y)
    if not y.ndim or len(y) != len(paths):
        raise DataError(
            f"there are {len(paths)} files and {len(y) if y.ndim else 'one'} labels; give one "
            "label for each file"
        )
    return paths, y


def _expand(pattern: str) -> list[str]:
    """Return the files that match a pattern, sorted."""
    paths = [path for path in expand_pattern(pattern) if os.path.isfile(path)]  # noqa: PTH113
    if not paths:
        raise DataError(f"{pattern} names no file; correct it, or give a folder")
    return paths


def _as_path(path: Any, number: int) -> str:
    if not isinstance(path, str | os.PathLike):
        raise DataError(f"file {number} is {path!r}; give the path of a file")
    return str(os.fspath(path))


def _path_column(frame: Any) -> str | None:
    names = [str(name) for name in getattr(frame, "columns", ())]
    return next((name for name in _PATH_COLUMNS if name in names), None)


def _columns(frame: Any) -> tuple[Sequence[Any], Any]:
    """Return the column of paths, and that of labels or None."""
    path = _path_column(frame)
    others = [str(name) for name in frame.columns if str(name) != path]
    label = next((name for name in _LABEL_COLUMNS if name in others), None)
    if label is None and len(others) == 1:
        label = others[0]
    labels = None if label is None else np.asarray(frame[label].to_numpy())
    return list(frame[path].to_numpy()), labels

"""Files of one record each, listed with their labels or targets. They are not opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...errors import DataError
from ...memory import Array
from ..errors import check_has_records
from ..formats import FIELD_PAIRS, is_dataframe, is_image_name
from ..io.filesystem import expand_pattern, has_wildcards, is_url, join_path
from ..labels import Labels, Missing
from ..records import Record
from .arrays import check_lengths, field_pair, labels_of, read_array
from .base import Index, Partition


def open_files(
    source: Any, kind: str, partition: Partition, missing: Missing = "error"
) -> FilesIndex:
    """Open a list of files, a glob, or a mapping of files and labels."""
    paths, labels = _paths_and_labels(source)
    check_has_records(len(paths), "the source", "the list of files is empty")
    return FilesIndex(
        kind, None, paths, labels, partition, missing, lambda row: f"{paths[row]} has no label"
    )


class FilesIndex(Index):
    """Files of one record each, by their paths below a folder; `describe` returns a clause."""

    def __init__(
        self,
        kind: str,
        folder: str | None,
        paths: list[str],
        labels: Labels,
        partition: Partition,
        missing: Missing,
        describe: Callable[[int], str],
    ) -> None:
        kept, labels = labels.select(missing, describe)
        if kept is not None:
            self.skipped = len(paths) - len(kept)
            paths = [paths[row] for row in kept.tolist()]
        self._partition = partition
        self._targets = None if labels.targets is None else read_array(labels.targets)
        self._paths = paths[partition.rows]
        own = None if labels.codes is None else labels.codes[partition.rows]
        super().__init__(kind, folder, labels.names, own)

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def stems(self) -> list[str]:
        """The names of the files, without folders and suffixes."""
        return [path.rpartition("/")[2].rpartition(".")[0] for path in self._paths]

    def record(self, number: int) -> Record:
        label, labels = self._label_at(number)
        url = join_path(self.url_prefix, self._paths[number])
        return Record(url=url, label=label, labels=labels, position=number)

    def targets(self, numbers: Array) -> Array | None:
        if self._targets is None:
            return None
        return self._targets[self._partition.place(numbers)]


def is_file_list(source: Any) -> bool:
    """Return True for paths of files, alone or with labels: a list, a glob or a mapping.

    A list of text is a list of paths if the first one exists or has the suffix of an image.
    """
    if is_dataframe(source):
        return False
    if isinstance(source, str):
        exists = has_wildcards(source) or is_url(source) or os.path.isfile(source)
        return is_image_name(source) and exists
    paths: Any = source
    if isinstance(source, Mapping):
        paths = next((source[x] for x, _ in FIELD_PAIRS if x in source), None)
    paths = paths.to_numpy() if is_dataframe(paths) else paths
    if not isinstance(paths, list | tuple | np.ndarray) or np.ndim(paths[:1]) != 1:
        return False
    first = paths[0] if len(paths) else None
    if isinstance(first, os.PathLike):
        return True
    return isinstance(first, str) and (is_image_name(first) or os.path.isfile(first))


def _paths_and_labels(source: Any) -> tuple[list[str], Labels]:
    """Return the paths, and their labels or targets; DataError if they do not match."""
    x_name = "the list"
    labels = Labels([])
    if isinstance(source, str):
        paths: Any = _expand(source) if has_wildcards(source) else [source]
    elif isinstance(source, Mapping):
        x_name, y_name = field_pair(source, "the source")
        paths = source[x_name]
        labels = labels_of(source.get(y_name), y_name)
        check_lengths(x_name, len(paths), y_name, labels)
    else:
        paths = source
    files = [as_path(path, number) for number, path in enumerate(paths)]
    for number, path in enumerate(files):
        if has_wildcards(path) and not is_url(path) and not os.path.lexists(path):
            raise DataError(
                f"file {number} is the pattern {path!r}, but a list has files; give those of each "
                f"pattern, as in sorted(glob.glob({path!r})), or one pattern as the source"
            )
    return files, labels


def _expand(pattern: str) -> list[str]:
    paths = [path for path in expand_pattern(pattern) if os.path.isfile(path)]
    if not paths:
        raise DataError(f"{pattern} names no file; correct it, or give a folder")
    return paths


def as_path(path: Any, number: int) -> str:
    """Return the text of a path; raise DataError, with its number in a list, for another object."""
    if not isinstance(path, str | os.PathLike):
        raise DataError(f"file {number} is {path!r}; give the path of a file")
    return str(os.fspath(path))

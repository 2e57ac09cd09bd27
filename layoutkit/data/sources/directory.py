"""A folder of files, labelled by the folder's direct sub-folders. The files are not opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..._utils.errors import as_data_errors
from ...errors import DataError
from ..errors import check_has_records
from ..formats import container_kind, lowercase_suffix
from ..io.filesystem import is_url, join_path
from ..labels import Missing, order_classes, select_labelled
from ..records import Record
from .base import Index, Partition


class DirectoryIndex(Index):
    """The files in a folder and below it, sorted by name at each level, without hidden ones."""

    def __init__(
        self, folder: str, kind: str, partition: Partition, missing: Missing = "error"
    ) -> None:
        if is_url(folder) or not Path(folder).is_dir():
            raise DataError(f"{folder} is not a local folder; kind='parts' accepts folders at URLs")
        with as_data_errors(folder, OSError):
            paths = list(_walk(folder, "", ()))
        check_has_records(len(paths), folder, "there are no files in it or its sub-folders")
        _check_content(folder, paths)
        labels = order_classes(path.partition("/")[0] for path in paths if "/" in path)
        ranks = {label: rank for rank, label in enumerate(labels)}
        codes = np.array([ranks[path.partition("/")[0]] if "/" in path else -1 for path in paths])
        kept = select_labelled(
            codes < 0 if labels else None,
            missing,
            lambda row: (
                f"{join_path(folder, paths[row])} is in no labelled folder and has no label"
            ),
        )
        if kept is not None:
            self.skipped = len(paths) - len(kept)
            paths = [paths[row] for row in kept.tolist()]
            codes = codes[kept]
        self._partition = partition
        self._paths = paths[partition.rows]
        super().__init__(kind, folder, labels, codes[partition.rows] if labels else None)

    def __len__(self) -> int:
        return len(self._paths)

    def record(self, number: int) -> Record:
        path = self._paths[number]
        labels = (path.partition("/")[0],) if "/" in path else ()
        return Record(
            url=join_path(self.url_prefix, path),
            label=labels[0] if labels else None,
            labels=labels,
            position=number,
        )


def _check_content(folder: str, paths: list[str]) -> None:
    """Raise DataError if all files contain many records each, as in a folder of Parquet files."""
    names = [path for path in paths if not path.rpartition("/")[2].startswith("_")]  # _SUCCESS
    kinds = {container_kind(name) for name in names}
    if len(kinds) == 1 and None not in kinds:
        suffix = lowercase_suffix(names[0])
        raise DataError(
            f"the files in {folder} are of kind {kinds.pop()}, with many records each, but a "
            f'folder has one record in each file; open them by a pattern: "{folder}/**/*{suffix}"'
        )


def _walk(folder: str, inside: str, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """Yield the paths of all files below a folder, relative to the root, in order."""
    status = Path(folder).stat()
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        raise DataError(f"{folder} is a link to a folder that contains it; remove the link")
    with os.scandir(folder) as entries:
        children = sorted((entry.name, entry.is_dir()) for entry in entries)
    for name, is_folder in children:
        if name.startswith("."):
            continue
        if is_folder:
            yield from _walk(f"{folder}/{name}", f"{inside}{name}/", (*above, identity))
        else:
            yield inside + name

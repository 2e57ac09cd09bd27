"""A folder of files, labeled by the folder's direct sub-folders. The files are not opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..._utils.errors import as_data_errors
from ...errors import DataError
from ..errors import check_has_records
from ..formats import container_kind, lowercase_suffix
from ..io.filesystem import is_url, join_path
from ..labels import Labels, Missing, order_classes
from .base import Partition
from .files import FilesIndex


def open_directory(
    folder: str, kind: str, partition: Partition, missing: Missing = "error"
) -> FilesIndex:
    """Open the files in a folder and below it, sorted by name in each; omit hidden ones."""
    if is_url(folder) or not Path(folder).is_dir():
        raise DataError(f"{folder} is not a local folder; kind='parts' accepts folders at URLs")
    with as_data_errors(folder, OSError):
        paths = list(_walk(folder, "", ()))
    check_has_records(len(paths), folder, "there are no files in it or its sub-folders")
    _check_content(folder, paths)
    return FilesIndex(
        kind,
        folder,
        paths,
        _labels_of(paths),
        partition,
        missing,
        lambda row: f"{join_path(folder, paths[row])} is in no labeled folder and has no label",
    )


def _labels_of(paths: list[str]) -> Labels:
    """Return the first folder of each path as its label."""
    folders = [path.partition("/")[0] if "/" in path else None for path in paths]
    names = order_classes(folder for folder in folders if folder is not None)
    if not names:
        return Labels([])
    ranks: dict[Any, int] = {name: rank for rank, name in enumerate(names)}
    codes = np.array([ranks.get(folder, -1) for folder in folders])
    return Labels(names, codes, None, codes < 0)


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

"""Local files and those at any URL: opened, looked for, listed. fsspec knows the URLs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import DataError

__all__ = ["folder_of", "is_url", "joined", "listed", "opened"]


def is_url(path: str) -> bool:
    """Whether this is a URL rather than a local path."""
    return "://" in path


def folder_of(path: str) -> str:
    """The folder that a file lies in."""
    return path.rpartition("/")[0] if is_url(path) else str(Path(path).parent)


def joined(prefix: str | None, name: str) -> str:
    """`prefix/name`; a name that is absolute or a URL stays as it is."""
    # os.path, as pathlib takes longer than all the rest of making a record.
    if prefix is None or is_url(name) or name.startswith("/") or os.path.isabs(name):  # noqa: PTH117
        return name
    return f"{prefix.rstrip('/')}/{name}"


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """The file at a path or URL, to be read as bytes.

    Raises
    ------
    DataError
        It cannot be opened or read.
    """
    with translated(path), _file(path) as file:
        yield file


def listed(folder: str) -> list[str]:
    """The names of the files right in a folder, hidden ones left out, sorted."""
    with translated(folder):
        names = _remote_names(folder) if is_url(folder) else _local_names(folder)
    return sorted(name for name in names if name and name[0] not in "._")


def exists(path: str) -> bool:
    """Whether there is such a file."""
    if not is_url(path):
        return Path(path).is_file()
    with translated(path):
        system, inner = _system(path)
        return bool(system.isfile(inner))


def _file(path: str) -> Any:
    if not is_url(path):
        return Path(path).open("rb")
    system, inner = _system(path)
    return system.open(inner, "rb")


def _local_names(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_file()]


def _remote_names(folder: str) -> list[str]:
    system, inner = _system(folder)
    entries = system.ls(inner, detail=True)
    # A file lists itself; behind http everything is a file, and a page may list nothing.
    names = [entry["name"] for entry in entries if entry["type"] == "file"]
    if names == [inner] or (not entries and system.isfile(inner)):
        raise NotADirectoryError("it is a file; part files lie in a folder")
    # Listings of web servers have links that sort them.
    linked = [name for name in names if "?" not in name or not folder.startswith("http")]
    return [name.rpartition("/")[2] for name in linked]


def _system(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise DataError(
            f"{url} is a URL, and URLs need fsspec; pip install 'layoutkit[data]'"
        ) from None
    return url_to_fs(url)  # type: ignore[no-any-return]


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn what a file system raises into a DataError that names the file."""
    try:
        yield
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    except Exception as error:
        # Every remote file system has its own errors, and most are no OSErrors.
        if not is_url(path):
            raise
        raise DataError(f"{path} cannot be read: {type(error).__name__}: {error}") from error

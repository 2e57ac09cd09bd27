"""Where results go: a file here that appears when it is complete, or one at a URL of fsspec.

What goes to a URL is made in a file here first, as its parts are written in any order, and is then
uploaded as a whole. Nobody sees half of it: stores of objects show what has come to its end, and
elsewhere it arrives under a hidden name beside and is renamed.
"""

from __future__ import annotations

import errno
import math
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from ..atomic import replacing, resolved
from ..data.reading.urls import local_path
from ..errors import ArgumentError
from ..spec import ArraySpec
from .npyfiles import NpyFile, create_npy
from .printing import amount

__all__ = [
    "Destination",
    "check_destination",
    "created",
    "destination_of",
    "folder_beside",
    "opened_for",
]

Destination = Path | str  # a str is a URL

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Stores of objects, where renaming is copying and an object is there when all of it has come.
_OF_OBJECTS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "r2", "tos"}


def destination_of(name: str) -> Destination:
    """The path that a name is, or its URL."""
    local = local_path(name)
    return name if local is None else Path(local)


@contextmanager
def opened_for(destination: Destination) -> Iterator[BinaryIO]:
    """A new file that has its name when the block ends without an exception, and else never."""
    if isinstance(destination, Path):
        with replacing(destination) as file:
            yield file
        return
    with _uploading(destination) as file:
        yield file


def created(file: BinaryIO, result: ArraySpec, destination: Destination) -> NpyFile:
    """The array of a `.npy` file; ArgumentError where the disk has no room for it."""
    try:
        return create_npy(file, result.shape, result.dtype)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        folder, nbytes = folder_beside(destination), math.prod(result.shape) * result.dtype.itemsize
        there, fix = "there", "make room or write it elsewhere"
        if not isinstance(destination, Path):
            there, fix = f"in {folder}, where it is made first", "make room or set TMPDIR"
        message = (
            f"{destination}: no room for {amount(nbytes)} ({error.strerror}; "
            f"{amount(shutil.disk_usage(folder).free)} free {there}); {fix}"
        )
        raise ArgumentError(message) from error


def folder_beside(destination: Destination) -> Path:
    """The folder here in which a result is made."""
    if isinstance(destination, Path):
        return resolved(destination).parent
    return Path(tempfile.gettempdir())


# ---- a file here -------------------------------------------------------------------------


def check_destination(
    sources: Sequence[str], destination: Destination, suffix: str = ".npy"
) -> None:
    """Refuse a destination that could not be written in the end, before any work is done."""
    if str(destination) == "-":
        raise ArgumentError(
            f"-: the result is no stream, as its parts are written in any order; name a {suffix} "
            "file, and read that when it is there"
        )
    if not isinstance(destination, Path):
        if not destination.endswith(suffix):
            raise ArgumentError(f"{destination}: the result is a {suffix} file; name it so")
        if destination in sources:
            raise ArgumentError(f"{destination}: is the source itself; choose another name")
        return
    if destination.suffix != suffix:
        fix = f"; name it {destination.with_suffix(suffix)}" if destination.name else ""
        raise ArgumentError(f"{destination}: the result is a {suffix} file{fix}")
    folder = resolved(destination).parent
    if not folder.is_dir():
        raise ArgumentError(f"{destination}: there is no folder {folder}; create it first")
    if not os.access(folder, os.W_OK):
        message = f"{destination}: the folder {folder} is write-protected; choose another place"
        raise ArgumentError(message)
    if not destination.exists():
        return
    if not destination.is_file():
        raise ArgumentError(f"{destination}: is not a file; choose another name")
    if not os.access(destination, os.W_OK):
        raise ArgumentError(f"{destination}: is write-protected; choose another name")
    if any(Path(source).exists() and destination.samefile(source) for source in sources):
        raise ArgumentError(f"{destination}: is the source itself; choose another name")


# ---- a file at a URL ---------------------------------------------------------------------


@contextmanager
def _uploading(url: str) -> Iterator[BinaryIO]:
    """A new file here, whose bytes are at the URL when the block ends without an exception."""
    system, path = _system(url)
    beside = f"{path.rpartition('/')[0]}/.layoutkit.{secrets.token_hex(8)}.tmp"
    # Now, as who finds out at the end that nothing may be written here has waited for nothing.
    _asked(url, lambda: system.pipe_file(beside, b""))
    try:
        with tempfile.TemporaryDirectory(prefix="layoutkit-") as here:
            made = Path(here) / "x.npy"
            with made.open("w+b") as file:
                yield file
            _asked(url, lambda: _upload(system, made, beside, path))
    finally:
        with suppress(Exception):  # it was renamed, or the connection is gone
            system.rm_file(beside)


def _upload(system: Any, made: Path, beside: str, path: str) -> None:
    if _OF_OBJECTS.isdisjoint(_protocols(system)):
        system.put_file(str(made), beside)
        system.mv(beside, path)
    else:
        system.put_file(str(made), path)


def _system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path there; ArgumentError where nobody knows it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise ArgumentError('fsspec is not installed: pip install "layoutkit[data]"') from error
    if url.startswith(("http://", "https://")):
        raise ArgumentError(f"{url}: web servers are only read from; choose another place")
    system, path = _asked(url, lambda: url_to_fs(url))
    return system, path


def _protocols(system: Any) -> set[str]:
    found = system.protocol
    return {found} if isinstance(found, str) else set(found)


def _asked(url: str, question: Callable[[], Any]) -> Any:
    """What a file system answers; ArgumentError for whatever it raises."""
    try:
        return question()
    except Exception as error:
        raise ArgumentError(
            f"{url}: cannot be written ({type(error).__name__}: {error}); choose another place, or "
            "see to what its file system asks for"
        ) from error

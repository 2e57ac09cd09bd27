"""The bytes of a local file, as many as a record may have.

Devices and pipes are refused: they have no size, and reading one may have no end. They are opened
without waiting for anybody, so that to refuse a pipe takes no time either.

Knows files of this machine; whose they are, and what is in them, is not known here.
"""

from __future__ import annotations

import os
import stat
import threading

from ...errors import DataError
from .answers import too_large

__all__ = ["opened_file", "read_at", "read_from", "read_part"]

_PIECE = 1 << 20
_seeking = threading.Lock()
# Without O_BINARY Windows would change line ends; what a system lacks is left out.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def read_part(path: str, start: int, length: int | None, most: int) -> bytes:
    """`length` bytes from `start`, fewer at the end; without `length` all, if not above `most`.

    Raises DataError for what cannot be read, and for more than `most`.
    """
    try:
        file, _ = opened_file(path)
        return read_from(file, path, start, length, most)
    except (OSError, ValueError, OverflowError) as error:  # ValueError: a name with a null byte
        raise DataError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error


def read_from(file: int, name: str, start: int, length: int | None, most: int) -> bytes:
    """As `read_part`, of a descriptor, which is closed; what the system raises comes as it is."""
    try:
        known = os.fstat(file).st_size - start
        data = _read(file, known, start, most + 1 if length is None else length)
    finally:
        os.close(file)
    if length is None and len(data) > most:
        raise too_large(name, most)
    return data


def opened_file(path: str, flags: int = 0) -> tuple[int, int]:
    """A descriptor of a regular file, and the file's size; OSError where it is something else."""
    file = os.open(path, _FLAGS | flags)
    try:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode):
            kind = "folder" if stat.S_ISDIR(state.st_mode) else "device or pipe"
            raise OSError(f"it is a {kind}, not a file")
    except BaseException:
        os.close(file)
        raise
    return file, state.st_size


def read_at(file: int, size: int, start: int) -> bytes:
    """At most `size` bytes from a place of a file that other threads and processes read, too."""
    if hasattr(os, "pread"):
        return os.pread(file, size, start)
    with _seeking:  # Windows, where no process is forked with the file
        os.lseek(file, start, os.SEEK_SET)
        return os.read(file, size)


def _read(file: int, known: int, start: int, wanted: int) -> bytes:
    """At most `wanted` bytes; memory is taken for those that are there, not for all of them."""
    if start:
        os.lseek(file, start, os.SEEK_SET)
    data = os.read(file, min(max(known, _PIECE), wanted, 1 << 30))
    if len(data) in (known, wanted):
        return data
    pieces, found = [data], len(data)
    while found < wanted and (piece := os.read(file, min(_PIECE, wanted - found))):
        pieces.append(piece)
        found += len(piece)
    return b"".join(pieces)

"""A local file or one at a URL, of which parts are read here and there.

Files are read and never mapped: one that becomes shorter meanwhile is an error then, where a map
would end the process.

Knows bytes and how dear another reading is; what the bytes mean is not known here.
"""

from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ...memory import Array
from .local import opened_file
from .reader import Reader
from .remote import Remote
from .urls import local_path, repeated, translated

__all__ = ["RangeFile", "gathered", "size_at"]

BLOCK = 1 << 20  # bytes that are read at once where much of them is wanted
# Bytes that take as long to read as another reading takes to begin.
_WORTH_LOCAL, _WORTH_REMOTE = 1 << 15, 1 << 19


class RangeFile(io.RawIOBase):
    """The bytes of a path or URL, by place; a file object, too. For one thread at a time.

    url : str
    size : int      bytes, when it was opened
    worth : int     bytes that may as well be read as left out, to be done with fewer readings

    Raises DataError where it cannot be opened, and where a reading fails.
    """

    def __init__(self, url: str, reader: Reader | None = None, size: int | None = None) -> None:
        self.url = url
        self._place = 0
        self._file: Any = None
        local = local_path(url)
        self.worth = _WORTH_REMOTE if local is None else _WORTH_LOCAL
        if local is None:
            self._reader = reader or Reader()
            self.size = size_at(url) if size is None else size
            return
        with translated(url):
            try:
                descriptor, self.size = opened_file(local)
            except ValueError as error:  # a name with a null byte
                raise DataError(f"{url} cannot be read: {error}") from error
            self._file = open(descriptor, "rb", buffering=0)  # noqa: PTH123, SIM115

    def read_at(self, start: int, length: int) -> bytes:
        """At most `length` bytes from `start` on; fewer only at the end of the file."""
        length = max(0, min(length, self.size - start))
        if not length:
            return b""
        if self._file is None:
            return self._reader.read(self.url, start, length)
        with translated(self.url):
            self._file.seek(start)
            data: bytes = self._file.read(length)
            while len(data) < length and (more := self._file.read(length - len(data))):
                data += more
        return data

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """The place of the next byte."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; it may be behind the end, where nothing is read."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self.size}[whence]
        if start + offset < 0:
            raise ValueError(f"{self.url} has no byte {start + offset}")
        self._place = start + offset
        return self._place

    def readinto(self, buffer: Any) -> int:
        """The next bytes; 0 at the end."""
        data = self.read_at(self._place, len(buffer))
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)

    def close(self) -> None:
        """Let go of the file; twice is fine."""
        if self._file is not None:
            self._file.close()
        super().close()


def size_at(url: str) -> int:
    """The bytes of a file at a path or URL; DataError where nobody says how many they are."""
    local = local_path(url)
    if local is not None:
        with translated(url):
            return Path(local).stat().st_size

    with closing(Remote()) as remote:

        def size(seconds: float) -> int | None:
            answer = remote.open(url, 0, None, seconds)
            answer.close()
            return answer.size

        found = repeated(size)
    if found is None:
        raise DataError(
            f"{url} cannot be read in parts: the server does not say how many bytes it has; take "
            "a copy on this machine"
        )
    return found


def gathered(file: RangeFile, offsets: Array, width: int) -> Array:
    """`width` bytes from each offset on, in rows of uint8; zeros behind the end of the file.

    Places that lie close together are read at once, so that their number costs little.
    """
    found = np.zeros(len(offsets), f"V{width}")
    order: Any = None if (offsets[1:] >= offsets[:-1]).all() else np.argsort(offsets, kind="stable")
    rising = offsets if order is None else offsets[order]
    rows = found if order is None else np.zeros_like(found)
    first, end = 0, int(np.searchsorted(rising, file.size))
    while first < end:
        start = int(rising[first])
        behind = min(int(np.searchsorted(rising, start + BLOCK)), end)
        if (behind - first) * file.worth < BLOCK:
            behind = first + 1
        data = file.read_at(start, int(rising[behind - 1]) - start + width)
        rows[first:behind] = _cut(data, rising[first:behind] - start, width)
        first = behind
    if order is not None:
        found[order] = rows
    return found.view(np.uint8).reshape(len(offsets), width)


def _cut(data: bytes, places: Array, width: int) -> Array:
    """Items of `width` bytes at places of a block, zeros behind its end."""
    missing = int(places[-1]) + width - len(data)
    if missing > 0:
        data += bytes(missing)
    items: Array = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))
    return items[places]

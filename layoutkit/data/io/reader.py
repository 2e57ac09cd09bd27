"""The bytes of a record: of a file, or of any URL, with tries that are repeated but bounded.

Knows records by url, offset and length, and in which order to ask: cache, then URL. How often to
try is known by `urls.py`, and who to ask by `remote.py`.

A local file or one at a URL, of which parts are read here and there.

Files are read and never mapped: one that becomes shorter meanwhile is an error then, where a map
would end the process.

Knows bytes and how dear another reading is; what the bytes mean is not known here.

Local files that stay open while many records of them are read.

To open, ask and close takes longer than to read a picture, and each is a moment in which a thread
lets go of the interpreter's lock. For containers, which are few; URLs are the Reader's as before.
"""

from __future__ import annotations

import io
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..._utils import fork
from ...errors import DataError
from ...memory import Array
from .cache import DiskCache
from .filesystem import (
    Remote,
    convert_os_errors,
    local_path,
    open_regular_file,
    read_at,
    read_part,
    retry,
)
from .http import too_large

_T = TypeVar("_T")

MOST_BYTES = 1 << 30  # of a record of which nothing else is known


class Reader:
    """Reads parts of files and URLs; safe from many threads.

    Parameters
    ----------
    retries : int
        How often a remote reading is tried again after a lost connection, an answer that was cut
        short or a server's own failure (5xx). What the server refuses (4xx) is never tried again.
    cache : DiskCache, optional
        Keeps whole remote files.
    max_record_bytes : int, optional
        The bytes that a record may have. By default as many as the index says, and 1 GiB where it
        says nothing.
    """

    def __init__(
        self,
        retries: int = 3,
        cache: DiskCache | None = None,
        max_record_bytes: int | None = None,
    ) -> None:
        self._retries = retries
        self._most = max_record_bytes
        self._cache = cache
        self._remote = Remote()
        self._stopped = threading.Event()
        fork.renew_in_children(self)

    def get(self, record: Any) -> Any:
        """What a record holds: its array, or its bytes."""
        if record.array is not None:
            return record.array
        return self.read(record.url, record.offset, record.length)

    def read(self, url: str, offset: int | None = None, length: int | None = None) -> bytes:
        """The bytes `url[offset : offset + length]`; by default all.

        Raises DataError where there are fewer than `length`, more than a record may have, or the
        URL cannot be read.
        """
        start, most = offset or 0, MOST_BYTES if self._most is None else self._most
        if self._most is not None and length is not None and length > most:
            raise too_large(url, most)
        local = local_path(url)
        if local is None:
            data = self._read_remote(url, start, length, most)
        else:
            data = read_part(local, start, length, most)
        if length is not None and len(data) < length:
            raise DataError(
                f"{url} has {len(data)} bytes from byte {start} on, but the record has {length}; "
                "the file is cut, or offset or length is wrong"
            )
        return data

    def close(self) -> None:
        """Let pauses between tries end at once, and close idle connections."""
        self._stopped.set()
        self._remote.close()

    def renew(self) -> None:
        """Begin anew after a fork: connections are the parent's, and its threads had the locks."""
        stopped, self._stopped = self._stopped, threading.Event()
        if stopped.is_set():
            self._stopped.set()
        self._remote = Remote()
        if self._cache is not None:
            self._cache.renew()

    def _read_remote(self, url: str, start: int, length: int | None, most: int) -> bytes:
        if length == 0:
            return b""
        if self._cache is not None:
            data = self._read_cached(self._cache, url, start, length, most)
            if data is not None:
                return data
        return self._repeated(
            lambda seconds: b"".join(self._remote.open(url, start, length, seconds, most).chunks)
        )

    def _read_cached(
        self, cache: DiskCache, url: str, start: int, length: int | None, most: int
    ) -> bytes | None:
        """The bytes by way of the cache; None where the cache cannot take the file."""
        with cache.download_lock(url):
            path = cache.find(url)
            if path is None and cache.takes(url):
                path = self._repeated(
                    lambda seconds: cache.store(url, self._remote.open(url, 0, None, seconds))
                )
        return None if path is None else cache.read(url, start, length, most)

    def _repeated(self, attempt: Callable[[float], _T]) -> _T:
        """As `retry`; `close` ends a pause, and the tries."""
        return retry(attempt, self._retries, self._stopped.wait)


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
        with convert_os_errors(url):
            try:
                descriptor, self.size = open_regular_file(local)
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
        with convert_os_errors(self.url):
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
        with convert_os_errors(url):
            return Path(local).stat().st_size

    with closing(Remote()) as remote:

        def size(seconds: float) -> int | None:
            download = remote.open(url, 0, None, seconds)
            download.close()
            return download.size

        found = retry(size)
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


_MOST = 64  # files


class KeptFiles(Reader):
    """A Reader of containers; what cannot be read at once it reads as any, which says why."""

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[str, int | None] = {}
        self._lock = threading.Lock()
        weakref.finalize(self, _close, self._files)

    def read(self, url: str, offset: int | None = None, length: int | None = None) -> bytes:
        """The bytes `url[offset : offset + length]`, as `Reader.read` gives them."""
        file = self._files[url] if url in self._files else self._opened(url)
        if file is not None and length is not None:
            try:
                data = read_at(file, length, offset or 0)
            except OSError:
                data = b""
            if len(data) == length:
                return data
        return super().read(url, offset, length)

    def close(self) -> None:
        """Let go of files and connections; what is read after is opened anew each time."""
        with self._lock:
            _close(self._files)
        super().close()

    def _opened(self, url: str) -> int | None:
        """The descriptor of a local file; None for those that the Reader opens."""
        with self._lock:
            if url not in self._files and len(self._files) < _MOST:
                local = local_path(url)
                try:
                    self._files[url] = None if local is None else open_regular_file(local)[0]
                except (OSError, ValueError):
                    return None
            return self._files.get(url)


def _close(files: dict[str, int | None]) -> None:
    for url, file in [*files.items()]:
        files[url] = None
        if file is not None:
            os.close(file)

"""Read the bytes of records and parts of files, local or at URLs.

`Reader` reads records through the cache, if there is one, and retries failed remote reads.

`RangeFile` reads parts of one file. Files are read and never memory-mapped: a file that is
truncated meanwhile raises an error, while accessing a mapping of it would crash the process.

A `Reader` keeps local files open if it reads parts of them: containers, and the files that tables
refer to. Opening, checking and closing a file takes longer than reading an image, and each of these
calls releases the GIL.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar

import numpy as np

from ..._utils import fork
from ..._utils.errors import as_data_errors
from ...errors import DataError
from ...memory import Array
from .cache import DiskCache
from .filesystem import (
    OpenFile,
    Remote,
    local_path,
    read_at,
    read_part,
    retry,
)
from .responses import Download, FileVersion, too_large

_T = TypeVar("_T")

_MAX_FILES = 64  # that a Reader keeps open
DEFAULT_MAX_BYTES = 1 << 30  # of a record whose size the source does not know


class Reader:
    """A thread-safe reader of parts of files and URLs.

    Parameters
    ----------
    retries : int
        The number of retries of a remote read after a lost connection, a truncated response or a
        server error (5xx). Client errors (4xx) are never retried.
    cache : DiskCache, optional
        Stores whole remote files.
    max_record_bytes : int, optional
        The maximum size of a record. By default the size that the source gives, and 1 GiB if it
        does not give one.
    """

    def __init__(
        self,
        retries: int = 3,
        cache: DiskCache | None = None,
        max_record_bytes: int | None = None,
    ) -> None:
        self._retries = retries
        self._max_record_bytes = max_record_bytes
        self._cache = cache
        self._remote = Remote()
        self._stopped = threading.Event()
        self._files: dict[str, OpenFile | None] = {}  # None: opened for each read
        self._lock = threading.Lock()  # held while a file is opened
        fork.reinit_after_fork(self)

    def get(self, record: Any) -> Any:
        """Return the content of a record: its array, or its bytes."""
        if record.array is not None:
            return record.array
        return self.read(record.url, record.offset, record.length)

    def read(
        self,
        url: str,
        offset: int | None = None,
        length: int | None = None,
        version: FileVersion | None = None,
    ) -> bytes:
        """Read the bytes `url[offset : offset + length]`; by default all.

        Raises DataError if there are fewer than `length`, or more than a record may have, if the
        URL cannot be read, or if its file is not of the expected `version`.
        """
        start = offset or 0
        max_bytes = DEFAULT_MAX_BYTES if self._max_record_bytes is None else self._max_record_bytes
        if self._max_record_bytes is not None and length is not None and length > max_bytes:
            raise too_large(url, max_bytes)
        if offset is not None and length is not None:
            data = self._read_open_file(url, offset, length)
            if len(data) == length:
                return data
        local = local_path(url)  # this read raises the error, if there is one
        if local is None:
            data = self._read_remote(url, start, length, max_bytes, version)
        else:
            data = read_part(local, start, length, max_bytes)
        if length is not None and len(data) < length:
            raise DataError(
                f"{url} has {len(data)} bytes from byte {start} on, but the record has {length}; "
                "the file is truncated, or offset or length is wrong"
            )
        return data

    def close(self) -> None:
        """End pauses between retries at once, and close idle connections and open files.

        A file is closed after the reads in progress; later reads open a file each time.
        """
        with self._lock:
            self._files.update(dict.fromkeys(self._files))
        self._stopped.set()
        self._remote.close()

    def reinit(self) -> None:
        """Reset after a fork: connections and held locks belong to the parent process."""
        stopped = self._stopped
        self._stopped = threading.Event()
        if stopped.is_set():
            self._stopped.set()
        self._remote = Remote()
        self._lock = threading.Lock()
        if self._cache is not None:
            self._cache.reinit()

    def _read_open_file(self, url: str, offset: int, length: int) -> bytes:
        """Return bytes of a file that is kept open; fewer if it is not, or the read fails."""
        file = self._files[url] if url in self._files else self._open(url)
        if file is None or offset + length > file.size:  # no memory for a length that is wrong
            return b""
        try:
            return read_at(file.descriptor, length, offset)
        except OSError:
            return b""

    def _open(self, url: str) -> OpenFile | None:
        """Return the open local file; None for files that are opened for each read."""
        with self._lock:
            if url not in self._files and len(self._files) < _MAX_FILES:
                local = local_path(url)
                try:
                    self._files[url] = None if local is None else OpenFile(local)
                except (OSError, ValueError):
                    return None
            return self._files.get(url)

    def _read_remote(
        self,
        url: str,
        start: int,
        length: int | None,
        max_bytes: int,
        version: FileVersion | None,
    ) -> bytes:
        if length == 0:
            return b""
        if self._cache is not None:
            data = self._read_cached(self._cache, url, start, length, max_bytes, version)
            if data is not None:
                return data
        return self._retry(
            lambda seconds: b"".join(
                self._remote.open(url, start, length, seconds, max_bytes, version).chunks
            )
        )

    def _read_cached(
        self,
        cache: DiskCache,
        url: str,
        start: int,
        length: int | None,
        max_bytes: int,
        version: FileVersion | None,
    ) -> bytes | None:
        """Read bytes from the cache; return None if the cache cannot store the file.

        Each version of a file has its own entry, so the records of an index all come from one.
        """
        key = url if version is None else f"{url} ({version})"
        with cache.download_lock(key):
            path = cache.find(key)
            if path is None and cache.accepts(key):
                path = self._retry(
                    lambda seconds: cache.store(
                        key, self._remote.open(url, 0, None, seconds, version=version)
                    )
                )
        return None if path is None else cache.read(key, start, length, max_bytes)

    def _retry(self, attempt: Callable[[float], _T]) -> _T:
        """Return the result of `retry`; `close` ends its pause, and stops retrying."""
        return retry(attempt, self._retries, self._stopped.wait)


BLOCK = 1 << 20  # bytes of one read where most of them are needed
# The number of bytes that take as long to read as starting another read does.
_MAX_GAP_LOCAL = 1 << 15
_MAX_GAP_REMOTE = 1 << 19


class RangeFile(io.RawIOBase):
    """A file at a path or URL, read by position; also a file object, which is not thread-safe.

    url : str
    size : int                  bytes, when it was opened
    version : FileVersion       the version that a remote file had then; None for a local file
    max_gap : int               gaps up to this many bytes are cheaper to read than to skip

    Raises DataError if it cannot be opened, a read fails, or a remote file has changed.
    """

    def __init__(
        self, url: str, reader: Reader | None = None, version: FileVersion | None = None
    ) -> None:
        self.url = url
        self._pos = 0
        self._file: OpenFile | None = None
        self.version: FileVersion | None
        local = local_path(url)
        self.max_gap = _MAX_GAP_REMOTE if local is None else _MAX_GAP_LOCAL
        if local is None:
            self._reader = reader or Reader()
            self.version = remote_version(url) if version is None else version
            self.size = self.version.size or 0
            return
        self.version = None
        with as_data_errors(url, OSError):
            try:
                self._file = OpenFile(local)
            except ValueError as error:  # a name with a null byte
                raise DataError(f"{url} cannot be read: {error}") from error
            self.size = self._file.size

    def check_has_bytes(self) -> None:
        """Raise DataError if the file is empty, as after a copy that did not succeed."""
        if not self.size:
            raise DataError(f"{self.url} has 0 bytes; replace it by a complete file, or omit it")

    def note_version(self, versions: dict[str, FileVersion]) -> None:
        """Enter the version of a remote file into a dict, by URL."""
        if self.version is not None:
            versions[self.url] = self.version

    def read_at(self, start: int, length: int) -> bytes:
        """Return at most `length` bytes from `start`; fewer only at the end of the file."""
        if self.closed:
            raise ValueError(f"{self.url} is closed")
        length = max(0, min(length, self.size - start))
        if not length:
            return b""
        if self._file is None:
            return self._reader.read(self.url, start, length, self.version)
        with as_data_errors(self.url, OSError):
            return read_at(self._file.descriptor, length, start)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._pos

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position, which may be beyond the end; reading there returns nothing."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._pos, io.SEEK_END: self.size}[whence]
        if start + offset < 0:
            raise ValueError(f"{self.url} has no byte {start + offset}")
        self._pos = start + offset
        return self._pos

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes into a buffer; return their number, 0 at the end."""
        data = self.read_at(self._pos, len(buffer))
        buffer[: len(data)] = data
        self._pos += len(data)
        return len(data)

    def close(self) -> None:
        """Close the file; closing it twice is allowed."""
        self._file = None
        super().close()


def remote_version(url: str) -> FileVersion:
    """Return the version of a file at a URL; DataError if the server does not report its size."""
    with closing(Remote()) as remote:

        def request(seconds: float) -> Download:
            download = remote.open(url, 0, None, seconds)
            download.close()
            return download

        download = retry(request)
    if download.size is None:
        raise DataError(
            f"{url} cannot be read in parts: the server does not say how many bytes it has; use "
            "a copy on this machine"
        )
    return download.version._replace(size=download.size)


def gather_bytes(file: RangeFile, offsets: Array, width: int) -> Array:
    """Return `width` bytes from each offset, as rows of uint8; zeros beyond the end of the file.

    Offsets that are close together are read at once, so that many of them cost little.
    """
    items = np.zeros(len(offsets), f"V{width}")
    order: Any = None if (offsets[1:] >= offsets[:-1]).all() else np.argsort(offsets, kind="stable")
    ascending = offsets if order is None else offsets[order]
    rows = items if order is None else np.zeros_like(items)
    first = 0
    end = int(np.searchsorted(ascending, file.size))
    while first < end:
        start = int(ascending[first])
        stop = min(int(np.searchsorted(ascending, start + BLOCK)), end)
        if (stop - first) * file.max_gap < BLOCK:
            stop = first + 1
        data = file.read_at(start, int(ascending[stop - 1]) - start + width)
        rows[first:stop] = _slice_items(data, ascending[first:stop] - start, width)
        first = stop
    if order is not None:
        items[order] = rows
    return items.view(np.uint8).reshape(len(offsets), width)


def _slice_items(data: bytes, offsets: Array, width: int) -> Array:
    """Return `width` bytes from each offset (ascending) of a block, zeros beyond its end."""
    missing = int(offsets[-1]) + width - len(data)
    if missing > 0:
        data += bytes(missing)
    items: Array = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))
    return items[offsets]

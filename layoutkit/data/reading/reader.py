"""The bytes of a record: of a file, or of any URL, with tries that are repeated but bounded.

Knows records by url, offset and length, and in which order to ask: cache, then URL. How often to
try is known by `urls.py`, and who to ask by `remote.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ... import forks
from ...errors import DataError
from .answers import too_large
from .cache import DiskCache
from .local import read_part
from .remote import Remote
from .urls import local_path, repeated

__all__ = ["Reader"]

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
        forks.renew_in_children(self)

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
        with cache.turn(url):
            path = cache.find(url)
            if path is None and cache.takes(url):
                path = self._repeated(
                    lambda seconds: cache.store(url, self._remote.open(url, 0, None, seconds))
                )
        return None if path is None else cache.read(url, start, length, most)

    def _repeated(self, attempt: Callable[[float], _T]) -> _T:
        """As `repeated`; `close` ends a pause, and the tries."""
        return repeated(attempt, self._retries, self._stopped.wait)

"""Whole remote files, kept in a folder until their room is needed.

Knows files by URL; what brings their bytes is not known here.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar
from weakref import WeakValueDictionary

from ...atomic import replacing
from .answers import Answer

__all__ = ["DiskCache"]

_log = logging.getLogger("layoutkit.data")

_OURS = re.compile(r"[0-9a-f]{64}\.record")
# Longer than a download from which nothing comes: who has waited so long for another thread's
# download reads the file without the cache.
_PATIENCE = 60.0


class DiskCache:
    """A folder of files by URL; those used longest ago go first, and there is never too much.

    Parameters
    ----------
    folder : path
        Made where it does not exist. Other files in it are neither counted nor touched.
    limit : int
        Bytes of all files together, those that are being written included.

    A file appears when it is complete. A cache that cannot be written says so once, in the log,
    and from then on only gives what it has. Safe from many threads; processes may share the
    folder, but each counts what it put there itself and what it found when it began.
    """

    _open: ClassVar[WeakValueDictionary[Path, DiskCache]] = WeakValueDictionary()

    def __init__(self, folder: str | os.PathLike[str], limit: int) -> None:
        self._folder = Path(folder)
        self._limit = limit
        self._lock = threading.Lock()
        self._turns: WeakValueDictionary[str, _Turn] = WeakValueDictionary()
        self._sizes: OrderedDict[str, int] = OrderedDict()  # by file name, longest unused first
        self._total = 0  # bytes of these files and of those that are being written
        self._not_ours: set[str] = set()  # URLs whose files are not kept
        self._writable = True
        try:
            self._look()
        except OSError as error:
            self._give_up(error)

    @classmethod
    def at(cls, folder: str | os.PathLike[str], limit: int) -> DiskCache:
        """The cache of a folder: one for all who use it, with the least of their limits."""
        place = Path(folder).absolute()
        cache = cls._open.get(place)
        if cache is None:
            cache = cls._open[place] = cls(place, limit)
        cache._shrink(limit)
        return cache

    def find(self, url: str) -> Path | None:
        """The file of a URL, from now on the last to go; None if it is not here."""
        name = _name(url)
        with self._lock:
            if name not in self._sizes:
                return None
            self._sizes.move_to_end(name)
        path = self._folder / name
        with suppress(OSError):  # it may not be ours to touch
            os.utime(path)
        return path

    def takes(self, url: str) -> bool:
        """Whether a download of the URL might be kept."""
        return self._writable and url not in self._not_ours

    def store(self, url: str, answer: Answer) -> Path | None:
        """Keep what comes; None where it does not fit, cannot be written or may have been cut.

        Errors of the download pass, and leave nothing behind. The caller has the URL's turn.
        """
        if not answer.checked or (answer.size is not None and answer.size > self._limit):
            self._not_ours.add(url)
            answer.close()
            return None
        path = self._folder / _name(url)
        written = 0
        try:
            with replacing(path) as file:
                for chunk in answer.chunks:
                    self._reserve(len(chunk))
                    written += len(chunk)
                    file.write(chunk)
        except BaseException as error:
            with self._lock:
                self._total -= written
            self._refuse(url, error)
            return None
        with self._lock:
            self._total -= self._sizes.pop(path.name, 0)
            self._sizes[path.name] = written
        return path

    def renew(self) -> None:
        """Make new locks after a fork, as threads that are not here may have the old ones."""
        self._lock = threading.Lock()
        self._turns = WeakValueDictionary()

    def forget(self, url: str) -> None:
        """Drop a file that somebody else has removed."""
        name = _name(url)
        with self._lock:
            if name in self._sizes and not (self._folder / name).exists():
                self._total -= self._sizes.pop(name)

    @contextmanager
    def turn(self, url: str) -> Iterator[None]:
        """Wait until no other thread downloads this URL."""
        with self._lock:
            turn = self._turns.setdefault(url, _Turn())
        taken = turn.lock.acquire(timeout=_PATIENCE)
        try:
            yield
        finally:
            if taken:
                turn.lock.release()

    def _look(self) -> None:
        """Count what is there; drop what is too much."""
        self._folder.mkdir(parents=True, exist_ok=True)
        states = []
        for entry in os.scandir(self._folder):
            if _OURS.fullmatch(entry.name):
                with suppress(FileNotFoundError):  # another process has just dropped it
                    state = entry.stat()
                    states.append((state.st_mtime_ns, entry.name, state.st_size))
        self._sizes.update((name, size) for _, name, size in sorted(states))
        self._total = sum(self._sizes.values())

    def _shrink(self, limit: int) -> None:
        with self._lock:
            self._limit = min(limit, self._limit)
        try:
            self._reserve(0)
        except _NoRoomError:  # for what is coming: it goes when it has come
            return
        except OSError as error:
            self._give_up(error)

    def _reserve(self, nbytes: int) -> None:
        """Make room for bytes that are about to be written."""
        with self._lock:
            while self._total + nbytes > self._limit:
                if not self._sizes:
                    raise _NoRoomError
                name = next(iter(self._sizes))
                (self._folder / name).unlink(missing_ok=True)
                self._total -= self._sizes.pop(name)
            self._total += nbytes

    def _refuse(self, url: str, error: BaseException) -> None:
        """Note why a file could not be kept, or raise what is no fault of the cache."""
        if isinstance(error, _NoRoomError):
            self._not_ours.add(url)
        elif isinstance(error, OSError):
            self._give_up(error)
        else:
            raise error

    def _give_up(self, error: OSError) -> None:
        with self._lock:
            first, self._writable = self._writable, False
        if first:
            _log.warning(
                "the cache %s cannot be written (%s); going on without it", self._folder, error
            )


class _Turn:
    """A lock that can be referred to weakly."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class _NoRoomError(Exception):
    """The limit is reached, and nothing is left to drop."""


def _name(url: str) -> str:
    return f"{hashlib.sha256(url.encode()).hexdigest()}.record"

"""A disk cache of whole remote files, by URL.

The name of a cached file holds a hash of its URL, its length and a digest of its bytes. Other users
may be able to write to the folder, so a file is used only if it is a regular file of this user with
the length and the digest in its name. Links are never followed, and opening a pipe does not block.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

from ..._utils import fork, system
from ..._utils.files import replace_atomically
from .filesystem import open_regular_file, read_from
from .responses import Download

_NAME = re.compile(r"([0-9a-f]{64})-(\d{1,18})-([0-9a-f]{32})\.record")
_PIECE = 1 << 20


class Entry(NamedTuple):
    """The parts of a cache file's name."""

    key: str
    size: int
    digest: str

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"{self.key}-{self.size}-{self.digest}.record"


def parse_entry(name: str) -> Entry | None:
    """Return the entry that a file name stands for; None if it is not a name of the cache."""
    match = _NAME.fullmatch(name)
    return match and Entry(match[1], int(match[2]), match[3])


def url_key(url: str) -> str:
    """Return the hash of a URL that file names contain."""
    return hashlib.sha256(url.encode(errors="surrogatepass")).hexdigest()


def new_digest() -> Any:
    """Return a hash object for the bytes of a file."""
    return hashlib.blake2b(digest_size=16)


def open_entry(path: str, entry: Entry) -> int:
    """Return a descriptor; OSError unless it is our regular file of the entry's length."""
    file, size = open_regular_file(path, system.open_flags("O_NOFOLLOW"))
    if size == entry.size and is_own_file(os.fstat(file)):
        return file
    os.close(file)
    raise OSError("it is not the file that was cached under its name")


def is_own_file(state: os.stat_result) -> bool:
    """Return True for a regular file of this user that has no other hard link."""
    own = system.user_id() in (None, state.st_uid)
    return own and stat.S_ISREG(state.st_mode) and state.st_nlink <= 1


def has_digest(file: int, entry: Entry) -> bool:
    """Return True if the bytes of a file have the digest of its entry."""
    digest = new_digest()
    while piece := os.read(file, _PIECE):
        digest.update(piece)
    return bool(digest.hexdigest() == entry.digest)


_log = logging.getLogger("layoutkit.data")

# Longer than a download that receives nothing can last. A thread that has waited this long for
# another thread's download reads the file without the cache.
_LOCK_TIMEOUT = 60.0


class DiskCache:
    """A folder of files by URL, limited in size; the least recently used files are removed first.

    A file appears when it is complete. If the cache cannot be written, that is logged once, and
    from then on only the files that it already has are used. Thread-safe. Processes may share the
    folder, but each counts only the files it wrote and the files that were there when it started.

    Parameters
    ----------
    folder : path
        Created if it does not exist. Other files in it are neither counted nor touched.
    limit : int
        Bytes of all files together, including files that are being written.
    """

    _open: ClassVar[WeakValueDictionary[Path, DiskCache]] = WeakValueDictionary()

    def __init__(self, folder: str | os.PathLike[str], limit: int) -> None:
        self._folder = Path(folder)
        self._limit = limit
        self._lock = threading.Lock()
        self._locks: WeakValueDictionary[str, _WeakLock] = WeakValueDictionary()
        self._sizes: OrderedDict[str, int] = (
            OrderedDict()
        )  # by file name, least recently used first
        self._entries: dict[str, Entry] = {}  # by URL key
        self._verified: set[str] = set()  # names of files whose bytes have the right digest
        self._total = 0  # bytes of these files and of files that are being written
        self._uncacheable: set[str] = set()  # URLs whose files are not cached
        self._writable = True
        try:
            self._scan()
        except OSError as error:
            self._disable(error)

    @classmethod
    def at(cls, folder: str | os.PathLike[str], limit: int) -> DiskCache:
        """Return the process's one cache of a folder, with the smallest of its users' limits."""
        path = Path(folder).absolute()
        with fork.init_lock:  # two caches of a folder would each fill the limit
            cache = cls._open.get(path)
            if cache is None:
                cache = cls._open[path] = cls(path, limit)
        cache._shrink(limit)
        return cache

    def find(self, url: str) -> Path | None:
        """Return the file of a URL and mark it as used; None if it is not in the cache."""
        entry = self._entry(url)
        if entry is None:
            return None
        path = self._folder / entry.name
        try:
            self._check(path, entry)
        except OSError:
            self._drop(entry)
            return None
        with suppress(OSError):  # the folder may be read-only
            os.utime(path)
        return path

    def read(self, url: str, start: int, length: int | None, max_bytes: int) -> bytes | None:
        """Return a part of the file of a URL; None if it is no longer in the cache.

        Raises DataError if `length` is None and the file has more than `max_bytes` bytes.
        """
        entry = self._entry(url)
        if entry is None:
            return None
        try:
            file = open_entry(str(self._folder / entry.name), entry)
            return read_from(file, url, start, length, max_bytes)
        except OSError:  # another process removed it to make room, or the folder was emptied
            self._drop(entry)
            return None

    def accepts(self, url: str) -> bool:
        """Return True unless a download of the URL is known to be uncacheable."""
        return self._writable and url not in self._uncacheable

    def store(self, url: str, download: Download) -> Path | None:
        """Save a download; None if it does not fit, cannot be written or may be truncated.

        Errors of the download are raised, and leave no file. The caller holds the URL's
        `download_lock`.
        """
        if not download.checked or (download.size is not None and download.size > self._limit):
            self._uncacheable.add(url)
            download.close()
            return None
        # A name that cannot be guessed, as `replace_atomically` would follow a link of this name.
        new = self._folder / f"{secrets.token_hex(32)}.record"
        written = 0
        digest = new_digest()
        try:
            with replace_atomically(new) as file:
                for chunk in download.chunks:
                    self._reserve(len(chunk))
                    written += len(chunk)
                    file.write(chunk)
                    digest.update(chunk)
            entry = Entry(url_key(url), written, digest.hexdigest())
            path = new.replace(self._folder / entry.name)
        except BaseException as error:
            with self._lock:
                self._total -= written
            with suppress(OSError):
                new.unlink(missing_ok=True)
            self._handle_store_error(url, error)
            return None
        with self._lock:
            old = self._entries.get(entry.key, entry)
            self._total -= self._sizes.pop(old.name, 0)
            self._sizes[path.name] = written
            self._entries[entry.key] = entry
            self._verified.add(path.name)
        if old.name != entry.name:
            (self._folder / old.name).unlink(missing_ok=True)
        return path

    def reinit(self) -> None:
        """Make new locks after a fork, as threads that the child lacks may hold the old ones."""
        self._lock = threading.Lock()
        self._locks = WeakValueDictionary()

    @contextmanager
    def download_lock(self, url: str) -> Iterator[None]:
        """Wait until no other thread downloads this URL, at most `_LOCK_TIMEOUT` seconds."""
        with self._lock:
            url_lock = self._locks.setdefault(url, _WeakLock())
        acquired = url_lock.lock.acquire(timeout=_LOCK_TIMEOUT)
        try:
            yield
        finally:
            if acquired:
                url_lock.lock.release()

    def _scan(self) -> None:
        """Count the files of the folder."""
        self._folder.mkdir(parents=True, exist_ok=True)
        states = []
        for entry in os.scandir(self._folder):
            if parse_entry(entry.name):
                with suppress(FileNotFoundError):  # another process has just removed it
                    state = entry.stat(follow_symlinks=False)
                    if is_own_file(state):
                        states.append((state.st_mtime_ns, entry.name, state.st_size))
        self._sizes.update((name, size) for _, name, size in sorted(states))
        self._total = sum(self._sizes.values())
        entries = filter(None, map(parse_entry, self._sizes))
        self._entries.update((entry.key, entry) for entry in entries)

    def _entry(self, url: str) -> Entry | None:
        """Return the entry of a URL and mark it as used; None if there is none."""
        with self._lock:
            entry = self._entries.get(url_key(url))
            if entry is None or entry.name not in self._sizes:
                return None
            self._sizes.move_to_end(entry.name)
            return entry

    def _check(self, path: Path, entry: Entry) -> None:
        """Raise OSError unless a file is intact; its digest is computed only once."""
        file = open_entry(str(path), entry)
        try:
            if entry.name not in self._verified and not has_digest(file, entry):
                raise OSError("its bytes are not those that were cached")
        finally:
            os.close(file)
        self._verified.add(entry.name)

    def _drop(self, entry: Entry) -> None:
        """Remove a file that does not match its name, or forget one that was removed."""
        with self._lock:
            self._total -= self._sizes.pop(entry.name, 0)
            self._verified.discard(entry.name)
            with suppress(OSError):  # in a folder of another user
                (self._folder / entry.name).unlink()

    def _shrink(self, limit: int) -> None:
        with self._lock:
            self._limit = min(limit, self._limit)
        try:
            self._reserve(0)
        except _NoRoomError:  # files being written fill the limit; each is checked as it grows
            return
        except OSError as error:
            self._disable(error)

    def _reserve(self, nbytes: int) -> None:
        with self._lock:
            while self._total + nbytes > self._limit:
                if not self._sizes:
                    raise _NoRoomError
                name = next(iter(self._sizes))
                (self._folder / name).unlink(missing_ok=True)
                self._total -= self._sizes.pop(name)
            self._total += nbytes

    def _handle_store_error(self, url: str, error: BaseException) -> None:
        """Note why a file could not be cached, or raise an error that is not the cache's."""
        if isinstance(error, _NoRoomError):
            self._uncacheable.add(url)
        elif isinstance(error, OSError):
            self._disable(error)
        else:
            raise error

    def _disable(self, error: OSError) -> None:
        with self._lock:
            first = self._writable
            self._writable = False
        if first:
            _log.warning(
                "the cache %s cannot be written (%s); going on without it", self._folder, error
            )


class _WeakLock:
    """A lock that can be referred to weakly."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class _NoRoomError(Exception):
    """An error: the limit is reached, and there is no file left to remove."""

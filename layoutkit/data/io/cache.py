"""Whole remote files, kept in a folder until their room is needed.

Knows files by URL; what brings their bytes is not known here.

A file in the cache: its name says which URL it is of, how long it is and what is in it.

Others may be able to write the folder. So what stands under a name is used only if it is a regular
file of this user that has the length and the digest of its name; links are never followed, and a
pipe is not waited for.

Knows one file; which there are is not known here.
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

from ..._utils.files import replacing
from .filesystem import opened_file, read_from
from .http import Answer

_NAME = re.compile(r"([0-9a-f]{64})(?:-(\d{1,18})-([0-9a-f]{32}))?\.record")
_PIECE = 1 << 20


class Entry(NamedTuple):
    """What the name of a file says; one of an earlier version says neither size nor digest."""

    key: str
    size: int
    digest: str

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"{self.key}-{self.size}-{self.digest}.record"


def entry_of(name: str) -> Entry | None:
    """What the name of a file says; None for files that are not of the cache."""
    found = _NAME.fullmatch(name)
    return found and Entry(found[1], int(found[2] or -1), found[3] or "")


def key_of(url: str) -> str:
    """What stands for a URL in names."""
    return hashlib.sha256(url.encode()).hexdigest()


def digest() -> Any:
    """What takes in the bytes of a file, and then gives what stands for them in names."""
    return hashlib.blake2b(digest_size=16)


def opened_entry(path: str, entry: Entry) -> int:
    """A descriptor of an entry; OSError where it is no regular file of ours of that length."""
    file, size = opened_file(path, getattr(os, "O_NOFOLLOW", 0))
    if size == entry.size and is_ours(os.fstat(file)):
        return file
    os.close(file)
    raise OSError("it is not the file that was kept under its name")


def is_ours(state: os.stat_result) -> bool:
    """Whether a file is a regular one of this user, with no other name."""
    own = not hasattr(os, "geteuid") or state.st_uid == os.geteuid()
    return own and stat.S_ISREG(state.st_mode) and state.st_nlink <= 1


def fits(file: int, entry: Entry) -> bool:
    """Whether the bytes of an entry are those that were kept."""
    found = digest()
    while piece := os.read(file, _PIECE):
        found.update(piece)
    return bool(found.hexdigest() == entry.digest)


_log = logging.getLogger("layoutkit.data")

# Longer than a download from which nothing comes: who has waited so long for another thread's
# download reads the file without the cache.
_PATIENCE = 60.0


class DiskCache:
    """A folder of files by URL; those used longest ago go first, and there is never too much.

    A file appears when it is complete. A cache that cannot be written says so once, in the log,
    and from then on only gives what it has. Safe from many threads; processes may share the
    folder, but each counts what it put there itself and what it found when it began.

    Parameters
    ----------
    folder : path
        Made where it does not exist. Other files in it are neither counted nor touched.
    limit : int
        Bytes of all files together, those that are being written included.
    """

    _open: ClassVar[WeakValueDictionary[Path, DiskCache]] = WeakValueDictionary()

    def __init__(self, folder: str | os.PathLike[str], limit: int) -> None:
        self._folder = Path(folder)
        self._limit = limit
        self._lock = threading.Lock()
        self._turns: WeakValueDictionary[str, _Turn] = WeakValueDictionary()
        self._sizes: OrderedDict[str, int] = OrderedDict()  # by file name, longest unused first
        self._entries: dict[str, Entry] = {}  # by what stands for the URL
        self._looked_at: set[str] = set()  # names of files whose bytes are those of the name
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

    def read(self, url: str, start: int, length: int | None, most: int) -> bytes | None:
        """A part of the file of a URL; None where it is not here any more.

        Raises DataError where it has more bytes than `most`, and no length is given.
        """
        entry = self._entry(url)
        if entry is None:
            return None
        try:
            file = opened_entry(str(self._folder / entry.name), entry)
            return read_from(file, url, start, length, most)
        except OSError:  # others needed its room just now, or someone emptied the folder
            self._drop(entry)
            return None

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
        # A name that nobody can guess, as `replacing` would follow a link that stands there.
        new = self._folder / f"{secrets.token_hex(32)}.record"
        written, found = 0, digest()
        try:
            with replacing(new) as file:
                for chunk in answer.chunks:
                    self._reserve(len(chunk))
                    written += len(chunk)
                    file.write(chunk)
                    found.update(chunk)
            entry = Entry(key_of(url), written, found.hexdigest())
            path = new.replace(self._folder / entry.name)
        except BaseException as error:
            with self._lock:
                self._total -= written
            with suppress(OSError):
                new.unlink(missing_ok=True)
            self._refuse(url, error)
            return None
        with self._lock:
            old = self._entries.get(entry.key, entry)
            self._total -= self._sizes.pop(old.name, 0)
            self._sizes[path.name], self._entries[entry.key] = written, entry
            self._looked_at.add(path.name)
        if old.name != entry.name:
            (self._folder / old.name).unlink(missing_ok=True)
        return path

    def renew(self) -> None:
        """Make new locks after a fork, as threads that are not here may have the old ones."""
        self._lock = threading.Lock()
        self._turns = WeakValueDictionary()

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
            if entry_of(entry.name):
                with suppress(FileNotFoundError):  # another process has just dropped it
                    state = entry.stat(follow_symlinks=False)
                    if is_ours(state):
                        states.append((state.st_mtime_ns, entry.name, state.st_size))
        self._sizes.update((name, size) for _, name, size in sorted(states))
        self._total = sum(self._sizes.values())
        found = filter(None, map(entry_of, self._sizes))
        self._entries.update((each.key, each) for each in found if each.digest)

    def _entry(self, url: str) -> Entry | None:
        """What is kept of a URL, from now on the last to go."""
        with self._lock:
            entry = self._entries.get(key_of(url))
            if entry is None or entry.name not in self._sizes:
                return None
            self._sizes.move_to_end(entry.name)
            return entry

    def _check(self, path: Path, entry: Entry) -> None:
        """OSError unless a file is the one that was kept; its bytes are looked at once."""
        file = opened_entry(str(path), entry)
        try:
            if entry.name not in self._looked_at and not fits(file, entry):
                raise OSError("its bytes are not those that were kept")
        finally:
            os.close(file)
        self._looked_at.add(entry.name)

    def _drop(self, entry: Entry) -> None:
        """Remove what is not what its name says, or forget what somebody else has removed."""
        with self._lock:
            self._total -= self._sizes.pop(entry.name, 0)
            self._looked_at.discard(entry.name)
            with suppress(OSError):  # in a folder that is not ours
                (self._folder / entry.name).unlink()

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

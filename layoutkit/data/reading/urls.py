"""Local files and those at any URL: opened, looked for, listed.

The one way to open a URL: what fails and may work the next time is tried again, a few times and
for a while. Knows names and patience. Who speaks to which machine is the business of `remote.py`,
and what the bytes mean that of whoever asked for them.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from ...errors import DataError
from ...limits import URL_BYTES, most_at_url
from .answers import Unanswered, too_large
from .remote import Remote

__all__ = [
    "check_size_at_url",
    "exists",
    "folder_of",
    "is_url",
    "joined",
    "listed",
    "local_path",
    "opened",
    "read_whole",
    "repeated",
    "translated",
]

RETRIES = 3  # of what is opened to learn which records there are
# A new try begins no later than this after the first one, and is patient no longer.
SECONDS_IN_ALL = 30.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds; each pause is twice the last one

_FILE = "file://"

_T = TypeVar("_T")


def is_url(path: str) -> bool:
    """Whether this is a URL rather than a local path."""
    return "://" in path


def local_path(path: str) -> str | None:
    """The path of a local file, which may be given as file://...; None for all other URLs."""
    return path.removeprefix(_FILE) if path.startswith(_FILE) or not is_url(path) else None


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
    """The file at a path or URL, to be read as bytes from its beginning on.

    Raises
    ------
    DataError
        It cannot be opened or read, or has more bytes than a file at a URL may have.
    """
    local = local_path(path)
    if local is None:
        with io.BufferedReader(RemoteFile(path)) as stream:
            yield stream
        return
    with translated(path), Path(local).open("rb") as file:
        yield file


def read_whole(path: str) -> io.BytesIO:
    """All bytes of a path or URL, for those who read here and there; DataError as `opened`."""
    with opened(path) as file:
        return io.BytesIO(file.read())


def listed(folder: str) -> list[str]:
    """The names of the files right in a folder, hidden ones left out, sorted."""
    local = local_path(folder)
    if local is None:
        with closing(Remote()) as remote:
            names = repeated(lambda seconds: remote.names(folder, seconds))
    else:
        with translated(folder), os.scandir(local) as entries:
            names = [entry.name for entry in entries if entry.is_file()]
    return sorted(name for name in names if name and name[0] not in "._")


def exists(path: str) -> bool:
    """Whether there is such a file."""
    local = local_path(path)
    if local is not None:
        return Path(local).is_file()
    with closing(Remote()) as remote:
        return repeated(lambda seconds: remote.is_file(path, seconds))


def repeated(
    attempt: Callable[[float], _T],
    retries: int = RETRIES,
    pause: Callable[[float], Any] = time.sleep,
) -> _T:
    """The result of the first attempt that gets an answer; DataError where none does.

    An attempt is told how many seconds it may wait, and raises Unanswered where another one may
    help. `pause` waits between two of them, and says True where no other one is wanted.
    """
    end = time.monotonic() + SECONDS_IN_ALL
    tries = 0
    while True:
        try:
            return attempt(max(1.0, end - time.monotonic()))
        except Unanswered as error:
            seconds = min(FIRST_PAUSE * 2**tries, LONGEST_PAUSE)
            tries += 1
            late = time.monotonic() + seconds > end
            if tries > retries or late or pause(seconds):
                raise DataError(f"{error} (tried {tries} times)") from error


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn what a local file system raises into a DataError that names the file."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error


class RemoteFile(io.RawIOBase):
    """The bytes of a URL. An answer that breaks off is asked for again from where it ended."""

    def __init__(self, url: str) -> None:
        self._url, self._remote, self._most = url, Remote(), most_at_url()
        self._chunks: Iterator[bytes] | None = None
        self._position = 0  # behind what has come
        self._rest = memoryview(repeated(self._next))  # now, so that `opened` raises

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Some of the next bytes; 0 at the end."""
        if not self._rest:
            self._rest = memoryview(repeated(self._next))
        room = memoryview(buffer)
        count = min(len(room), len(self._rest))
        room[:count], self._rest = self._rest[:count], self._rest[count:]
        return count

    def close(self) -> None:
        """Let go of the connection."""
        self._remote.close()
        super().close()

    def _next(self, seconds: float) -> bytes:
        """The next chunk; b"" at the end."""
        try:
            if self._chunks is None:
                answer = self._remote.open(self._url, self._position, None, seconds)
                if answer.size is not None and self._position + answer.size > self._most:
                    answer.close()
                    raise self._too_large(self._position + answer.size)
                self._chunks = answer.chunks
            chunk = next(filter(None, self._chunks), b"")
        except Unanswered:
            self._chunks = None
            raise
        self._position += len(chunk)
        if self._position > self._most:
            raise self._too_large()
        return chunk

    def _too_large(self, found: int | None = None) -> DataError:
        return _too_large(self._url, self._most, found)


def check_size_at_url(url: str, nbytes: int) -> None:
    """DataError where what is packed at a URL has more bytes than a file there may have."""
    if nbytes > (most := most_at_url()):
        raise _too_large(url, most, nbytes)


def _too_large(url: str, most: int, found: int | None) -> DataError:
    fix = f"{URL_BYTES}= in the environment allows more, and local files may have any number"
    return too_large(url, most, found, "a table or array at a URL", fix)

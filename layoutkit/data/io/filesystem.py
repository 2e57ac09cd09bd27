"""Local files and those at any URL: opened, looked for, listed.

The one way to open a URL: what fails and may work the next time is tried again, a few times and
for a while. Knows names and patience. Who speaks to which machine is the business of `remote.py`,
and what the bytes mean that of whoever asked for them.

The bytes of a local file, as many as a record may have.

Devices and pipes are refused: they have no size, and reading one may have no end. They are opened
without waiting for anybody, so that to refuse a pipe takes no time either.

Knows files of this machine; whose they are, and what is in them, is not known here.

What another machine holds at a URL, in pieces as they arrive.

HTTP is the business of `web.py` alone, the rest that of fsspec; both are optional, and loaded for
the first URL that needs them. A call of fsspec cannot be ended from here: how long it waits, the
client of its protocol decides, and time is looked at between two pieces.

Knows which scheme is whose; tries nothing twice.
"""

from __future__ import annotations

import io
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic
from types import ModuleType
from typing import Any, BinaryIO, TypeVar

from ..._utils import fork
from ...errors import DataError
from ...threads.limits import URL_BYTES, most_at_url
from .http import CHUNK, Answer, Unanswered, too_large, translating


class Remote:
    """URLs of any scheme, opened by whoever knows it; safe from many threads."""

    def __init__(self) -> None:
        self._web: Any = None

    def open(
        self, url: str, start: int, length: int | None, seconds: float, most: int | None = None
    ) -> Answer:
        """Begin to read `length` bytes (None: all, but at most `most`) from `start`.

        No wait for the next bytes of an HTTP server is longer than `seconds`, and all of an answer
        takes no longer than that and what its length allows. Raises DataError, and Unanswered
        where another try may help; so do the chunks.
        """
        if _is_http(url):
            client = self._http(url)
            answer: Answer = client.open(url, _web().Part(start, length, most), seconds)
            return answer
        with translating(url):
            return _open_fsspec(url, start, length, seconds, most)

    def names(self, folder: str, seconds: float) -> list[str]:
        """The names of the files right in a folder. Raises as `open` does."""
        if _is_http(folder):
            linked: list[str] = self._http(folder).names(folder, seconds)
            return linked
        with translating(folder):
            system, inner = _system(folder)
            entries = system.ls(inner, detail=True)
            # A file lists itself, or nothing.
            names = [entry["name"] for entry in entries if entry["type"] == "file"]
            if names == [inner] or (not entries and system.isfile(inner)):
                raise NotADirectoryError("it is a file; part files lie in a folder")
        return [name.rpartition("/")[2] for name in names]

    def is_file(self, url: str, seconds: float) -> bool:
        """Whether there is such a file. Raises as `open` does."""
        if _is_http(url):
            return bool(self._http(url).is_file(url, seconds))
        with translating(url):
            system, inner = _system(url)
            return bool(system.isfile(inner))

    def close(self) -> None:
        """Close idle connections."""
        if self._web is not None:
            self._web.close()

    def _http(self, url: str) -> Any:
        if self._web is None:
            with translating(url):
                self._web = _web().Web()
        return self._web


def _is_http(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def _open_fsspec(
    url: str, start: int, length: int | None, seconds: float, most: int | None
) -> Answer:
    system, path = _system(url)
    if length is not None:
        data = system.cat_file(path, start=start, end=start + length)
        if len(data) < length:
            raise Unanswered(
                f"{url} cannot be read: {len(data)} of {length} bytes came from byte {start}"
            )
        if len(data) > length:
            raise DataError(
                f"{url} cannot be read: {len(data)} bytes came, and {length} were asked for from "
                f"byte {start}; the file system of this URL reads no parts of files"
            )
        return Answer(len(data), iter([data]))
    file = system.open(path, "rb")
    whole = getattr(file, "size", None)
    size = None if whole is None else max(0, whole - start)
    if most is not None and size is not None and size > most:
        file.close()
        raise too_large(url, most, size)
    return Answer(size, _pieces(url, file, start, size, seconds, most), file.close)


def _system(url: str) -> tuple[Any, str]:
    """The file system that knows a URL, and the path there."""
    return _url_to_fs()(url)  # type: ignore[no-any-return]


@fork.once
def _url_to_fs() -> Any:
    from fsspec.core import url_to_fs

    return url_to_fs


@fork.once
def _web() -> ModuleType:
    from . import http  # which imports urllib3

    return http


def _pieces(
    url: str, file: Any, start: int, size: int | None, seconds: float, most: int | None
) -> Iterator[bytes]:
    """The bytes of a file from `start`, one more than `most` at most."""
    from .http import Clock

    found, clock = 0, Clock(seconds)
    with translating(url), file:
        if start:
            file.seek(start)
        while size is None or found < size:
            clock.left()  # TimeoutError when there is none
            chunk = file.read(CHUNK if most is None else min(CHUNK, most + 1 - found))
            if not chunk:
                break
            found += len(chunk)
            if most is not None and found > most:
                raise too_large(url, most)
            began = monotonic()
            yield chunk
            clock.came(len(chunk), monotonic() - began)
    if size is not None and found < size:
        raise Unanswered(f"{url} cannot be read: {found} of its {size} bytes came")


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

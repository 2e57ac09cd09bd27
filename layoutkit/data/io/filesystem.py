"""Local files and files at URLs of any scheme: open, read in parts, list, retry.

Every URL is opened through this module: an attempt whose failure may be temporary is repeated, a
few times and for a limited time.

Devices and pipes are refused: they have no size, and reading one may never end. They are opened
without blocking, so refusing a pipe takes no time either.

`http.py` handles HTTP and fsspec every other scheme. Both are optional, and loaded for the first
URL that needs them. A call of fsspec cannot be interrupted from here: the client of its protocol
decides how long it waits, and the deadline is checked between two chunks.
"""

from __future__ import annotations

import glob
import io
import os
import stat
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic
from types import ModuleType
from typing import Any, BinaryIO, TypeVar

from ..._utils import fork, system
from ..._utils.errors import as_data_errors
from ...errors import DataError
from ...threads.limits import URL_BYTES, max_url_bytes
from .responses import (
    CHUNK,
    NO_VERSION,
    ChangedFileError,
    Download,
    FileVersion,
    RetryableError,
    convert_remote_errors,
    too_large,
)


class Remote:
    """A thread-safe client that opens URLs of any scheme."""

    def __init__(self) -> None:
        self._web: Any = None

    def open(
        self,
        url: str,
        start: int,
        length: int | None,
        seconds: float,
        max_bytes: int | None = None,
        version: FileVersion | None = None,
    ) -> Download:
        """Begin to read `length` bytes (None: all, but at most `max_bytes`) from `start`.

        Raises ChangedFileError if the file is not of the expected `version`.

        No wait for the next bytes of an HTTP server is longer than `seconds`, and the whole
        response takes no longer than that plus the time its length allows. Raises DataError, or
        RetryableError if a retry may help; iterating over the chunks raises these, too.
        """
        if _is_http(url):
            client = self._http(url)
            return client.open(url, _web().ByteRange(start, length, max_bytes, version), seconds)
        with convert_remote_errors(url):
            download = _open_fsspec(url, start, length, seconds, max_bytes)
        try:
            if version is not None:
                version.check(url, download.version)
        except DataError:
            download.close()
            raise
        return download

    def names(self, folder: str, seconds: float) -> list[str]:
        """Return the names of the files directly in a folder. Raises as `open` does."""
        if _is_http(folder):
            return self._http(folder).names(folder, seconds)
        with convert_remote_errors(folder):
            system, inner = _file_system(folder)
            entries = system.ls(inner, detail=True)
            # Some file systems list a file as itself, others as empty.
            names = [entry["name"] for entry in entries if entry["type"] == "file"]
            if names == [inner] or (not entries and system.isfile(inner)):
                raise NotADirectoryError("it is a file; part files are in a folder")
        return [name.rpartition("/")[2] for name in names]

    def is_file(self, url: str, seconds: float) -> bool:
        """Return True if the URL is an existing file. Raises as `open` does."""
        if _is_http(url):
            return bool(self._http(url).is_file(url, seconds))
        with convert_remote_errors(url):
            system, inner = _file_system(url)
            return bool(system.isfile(inner))

    def close(self) -> None:
        """Close idle connections."""
        if self._web is not None:
            self._web.close()

    def _http(self, url: str) -> Any:
        if self._web is None:
            with convert_remote_errors(url):
                self._web = _web().HttpClient()
        return self._web


def _is_http(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def _open_fsspec(
    url: str, start: int, length: int | None, seconds: float, max_bytes: int | None
) -> Download:
    system, path = _file_system(url)
    if length is not None:
        data = system.cat_file(path, start=start, end=start + length)
        if len(data) < length:
            raise RetryableError(
                f"{url} cannot be read: {len(data)} of {length} bytes came from byte {start}"
            )
        if len(data) > length:
            raise DataError(
                f"{url} cannot be read: {len(data)} bytes came, and {length} were asked for from "
                f"byte {start}; the file system of this URL reads no parts of files"
            )
        return Download(len(data), iter([data]))
    file = system.open(path, "rb")
    total = getattr(file, "size", None)
    size = None if total is None else max(0, total - start)
    if max_bytes is not None and size is not None and size > max_bytes:
        file.close()
        raise too_large(url, max_bytes, size)
    chunks = _read_chunks(url, file, start, size, seconds, max_bytes)
    return Download(size, chunks, file.close, version=_fsspec_version(file, total))


def _fsspec_version(file: Any, size: int | None) -> FileVersion:
    """Return the version of an open file, by the names that file systems use for its parts."""
    details = getattr(file, "details", None)
    details = details if isinstance(details, Mapping) else {}
    etag, modified = (
        next((str(details[name]) for name in names if details.get(name) is not None), None)
        for names in (("ETag", "etag"), ("LastModified", "last_modified", "updated", "mtime"))
    )
    return FileVersion(etag, modified, size)


def _file_system(url: str) -> tuple[Any, str]:
    return _url_to_fs()(url)


@fork.run_once
def _url_to_fs() -> Any:
    from fsspec.core import url_to_fs

    return url_to_fs


@fork.run_once
def _web() -> ModuleType:
    from . import http  # which imports urllib3

    return http


def _read_chunks(
    url: str, file: Any, start: int, size: int | None, seconds: float, max_bytes: int | None
) -> Iterator[bytes]:
    """Yield the bytes of a file from `start`; DataError if there are more than `max_bytes`."""
    from .http import Deadline

    received = 0
    deadline = Deadline(seconds)
    with convert_remote_errors(url), file:
        if start:
            file.seek(start)
        while size is None or received < size:
            deadline.remaining()  # raises TimeoutError after the deadline
            chunk = file.read(CHUNK if max_bytes is None else min(CHUNK, max_bytes + 1 - received))
            if not chunk:
                break
            received += len(chunk)
            if max_bytes is not None and received > max_bytes:
                raise too_large(url, max_bytes)
            began = monotonic()
            yield chunk
            deadline.extend(len(chunk), monotonic() - began)
    if size is not None and received < size:
        raise RetryableError(f"{url} cannot be read: {received} of its {size} bytes came")


RETRIES = 3  # for files that are read when a source is opened
# No attempt begins later than this after the first one, and none waits beyond it.
SECONDS_IN_ALL = 30.0
FIRST_PAUSE = 0.1  # seconds; each pause is twice the previous one
LONGEST_PAUSE = 5.0

_FILE = "file://"

_T = TypeVar("_T")


def is_url(path: str) -> bool:
    """Return True if this is a URL rather than a local path."""
    return "://" in path


def local_path(path: str) -> str | None:
    """Return the path of a local file, which may be written as file://...; None for other URLs."""
    return path.removeprefix(_FILE) if path.startswith(_FILE) or not is_url(path) else None


def parent_folder(path: str) -> str:
    """Return the folder that contains a file."""
    return path.rpartition("/")[0] if is_url(path) else str(Path(path).parent)


def join_path(prefix: str | None, name: str) -> str:
    """Return `prefix/name`, or `name` unchanged if it is an absolute path or a URL."""
    # os.path, as pathlib would take longer than all other work of making a record.
    if prefix is None or is_url(name) or name.startswith("/") or os.path.isabs(name):
        return name
    return f"{prefix.rstrip('/')}/{name}"


@contextmanager
def open_binary(path: str) -> Iterator[BinaryIO]:
    """Yield the file at a path or URL, opened for reading bytes from its beginning.

    Raises
    ------
    DataError
        It cannot be opened or read, or a file at a URL has more bytes than are allowed.
    """
    local = local_path(path)
    if local is None:
        with io.BufferedReader(RemoteFile(path)) as stream:
            yield stream
        return
    with as_data_errors(path, OSError):
        descriptor, _ = open_regular_file(local)
        with open(descriptor, "rb") as file:  # noqa: PTH123
            yield file


_COMPRESSIONS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstandard",
    b"PK\x03\x04": "zip",
}


def compression_of(head: bytes) -> str | None:
    """Return the name of the compression of a file with these first bytes; None if it has none."""
    return next((name for magic, name in _COMPRESSIONS.items() if head.startswith(magic)), None)


def describe_encoding(head: bytes) -> str | None:
    """Return why a file with these first bytes is not UTF-8 text, and the cure; None if it may be.

    The text is a clause that follows the name of the file.
    """
    name = compression_of(head)
    if name is not None:
        return f"is compressed ({name}); unpack it, as text is read from plain files"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in head:
        return "is UTF-16 or UTF-32 text, or not text; save it as UTF-8"
    return None


def read_all(path: str) -> io.BytesIO:
    """Return all bytes of a path or URL as a seekable file; DataError if it cannot be read.

    A file that changes on its server meanwhile is read once more.
    """
    try:
        with open_binary(path) as file:
            return io.BytesIO(file.read())
    except ChangedFileError:
        with open_binary(path) as file:
            return io.BytesIO(file.read())


def list_files(folder: str) -> list[str]:
    """Return the sorted names of the files directly in a folder, without hidden ones."""
    local = local_path(folder)
    if local is None:
        with closing(Remote()) as remote:
            names = retry(lambda seconds: remote.names(folder, seconds))
    else:
        with as_data_errors(folder, OSError), os.scandir(local) as entries:
            names = [entry.name for entry in entries if entry.is_file()]
    return sorted(name for name in names if name and name[0] not in "._")


def has_wildcards(path: str) -> bool:
    """Return True if `expand_pattern` may find other paths than this one."""
    return any(character in path for character in "*?[")


def expand_pattern(pattern: str) -> list[str]:
    """Return the local paths that match a pattern, sorted: `*`, `?`, `[ab]`, and `**` for folders.

    A path that exists stands for itself only, whatever its characters; so do the existing folders
    at the beginning of a pattern.
    """
    if os.path.lexists(pattern):
        return [pattern]
    folder = os.path.dirname(pattern)  # keeps the spelling of the path
    while folder and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    rest = pattern[len(folder) :]
    return sorted(glob.glob(glob.escape(folder) + rest, recursive=True))  # noqa: PTH207


def exists(path: str) -> bool:
    """Return True if a path or URL is an existing file."""
    local = local_path(path)
    if local is not None:
        return Path(local).is_file()
    with closing(Remote()) as remote:
        return retry(lambda seconds: remote.is_file(path, seconds))


def retry(
    attempt: Callable[[float], _T],
    retries: int = RETRIES,
    pause: Callable[[float], Any] = time.sleep,
) -> _T:
    """Return the result of the first attempt that succeeds; DataError if none does.

    `attempt` receives the number of seconds it may wait, and raises RetryableError if a retry may
    help. `pause` waits between two attempts, and returns True to stop retrying.
    """
    end = time.monotonic() + SECONDS_IN_ALL
    tries = 0
    while True:
        try:
            return attempt(max(1.0, end - time.monotonic()))
        except RetryableError as error:
            seconds = min(FIRST_PAUSE * 2**tries, LONGEST_PAUSE)
            tries += 1
            late = time.monotonic() + seconds > end
            if tries > retries or late or pause(seconds):
                raise DataError(f"{error} (tried {tries} times)") from error


def stream_version(stream: BinaryIO) -> FileVersion | None:
    """Return the version of a file that `open_binary` opened at a URL; None for a local file."""
    raw = getattr(stream, "raw", None)
    return raw.version if isinstance(raw, RemoteFile) else None


class RemoteFile(io.RawIOBase):
    """The bytes of a URL as a raw stream. A response that breaks off is resumed where it ended.

    Raises ChangedFileError if the file was replaced meanwhile.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._remote = Remote()
        self._max_bytes = max_url_bytes()
        self._chunks: Iterator[bytes] | None = None
        self._position = 0  # after the bytes received so far
        self.version = NO_VERSION
        self._rest = memoryview(retry(self._next))  # read now, so that `open_binary` raises

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some of the next bytes into a buffer; return their number, 0 at the end."""
        if not self._rest:
            self._rest = memoryview(retry(self._next))
        room = memoryview(buffer)
        count = min(len(room), len(self._rest))
        room[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        """Close the connection."""
        self._remote.close()
        super().close()

    def _next(self, seconds: float) -> bytes:
        """Return the next chunk; b"" at the end."""
        try:
            if self._chunks is None:
                version = self.version if self._position else None
                download = self._remote.open(
                    self._url, self._position, None, seconds, version=version
                )
                if version is None:
                    self.version = download.version
                if download.size is not None and self._position + download.size > self._max_bytes:
                    download.close()
                    raise self._too_large(self._position + download.size)
                self._chunks = download.chunks
            chunk = next(filter(None, self._chunks), b"")
        except RetryableError:
            self._chunks = None
            raise
        self._position += len(chunk)
        if self._position > self._max_bytes:
            raise self._too_large()
        return chunk

    def _too_large(self, nbytes: int | None = None) -> DataError:
        return _too_large(self._url, self._max_bytes, nbytes)


def check_unpacked_size(url: str, nbytes: int) -> None:
    """Raise DataError if the unpacked content of a file at a URL has more bytes than allowed."""
    if nbytes > (max_bytes := max_url_bytes()):
        raise _too_large(url, max_bytes, nbytes)


def _too_large(url: str, max_bytes: int, nbytes: int | None) -> DataError:
    fix = f"{URL_BYTES}= in the environment allows more, and local files may have any number"
    return too_large(url, max_bytes, nbytes, "a table or array at a URL", fix)


MAX_READ = 1 << 30  # bytes of one call, as macOS refuses 2 GiB
_UNKNOWN_SIZE = 1 << 20  # bytes to read of a file without a size, as in /proc
# Without O_BINARY Windows would change line ends.
_FLAGS = os.O_RDONLY | system.open_flags("O_NONBLOCK", "O_BINARY")


def read_part(path: str, start: int, length: int | None, max_bytes: int) -> bytes:
    """Return `length` bytes from `start`, fewer at the end; without `length` all of them.

    Raises DataError if the file cannot be read, or has more than `max_bytes` and no `length` is
    passed.
    """
    try:
        file, _ = open_regular_file(path)
        return read_from(file, path, start, length, max_bytes)
    except (OSError, ValueError, OverflowError) as error:  # ValueError: a name with a null byte
        raise DataError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error


def read_from(file: int, name: str, start: int, length: int | None, max_bytes: int) -> bytes:
    """Return bytes of a descriptor as `read_part` does, and close it; OSErrors pass unchanged."""
    try:
        available = os.fstat(file).st_size - start
        # Not more than there are: memory that is not filled costs as much as the read.
        available = available if available > 0 else _UNKNOWN_SIZE
        data = read_at(file, min(available, max_bytes + 1 if length is None else length), start)
    finally:
        os.close(file)
    if length is None and len(data) > max_bytes:
        raise too_large(name, max_bytes)
    return data


def open_regular_file(path: str, flags: int = 0) -> tuple[int, int]:
    """Open a regular file; return its descriptor and size. OSError for anything else."""
    file = os.open(path, _FLAGS | flags)
    try:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode):
            noun = "folder" if stat.S_ISDIR(state.st_mode) else "device or pipe"
            raise OSError(f"it is a {noun}, not a file")
    except BaseException:
        os.close(file)
        raise
    return file, state.st_size


class OpenFile:
    """A regular file. It is closed when no reference is left, so never during a read."""

    def __init__(self, path: str) -> None:
        self.descriptor, self.size = open_regular_file(path)
        # Not at the exit of the process, where threads may still read.
        weakref.finalize(self, os.close, self.descriptor).atexit = False


def read_at(file: int, size: int, start: int) -> bytes:
    """Return `size` bytes from `start`, fewer only at the end; safe if the descriptor is shared."""
    data = _read_once(file, size, start)
    if len(data) in (0, size):
        return data
    pieces = [data]
    nbytes = len(data)
    while nbytes < size and (piece := _read_once(file, size - nbytes, start + nbytes)):
        pieces.append(piece)
        nbytes += len(piece)
    return b"".join(pieces)


def _read_once(file: int, size: int, start: int) -> bytes:
    size = min(size, MAX_READ)
    return system.read_at(file, size, start)

"""What another machine holds at a URL, in pieces as they arrive.

HTTP is read by urllib3, the rest by fsspec; both are optional, and loaded for the first URL that
needs them. urllib3 notices an answer that ends before its
announced length, keeps connections for the next record, and starts no threads.

Knows protocols, and which failures may pass; tries nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...errors import DataError

__all__ = ["Answer", "Remote", "Unanswered"]

_CHUNK = 1 << 18
_CONNECTIONS = 32  # kept open for each host


class Unanswered(Exception):  # noqa: N818  # never reaches a user
    """A failure that another try may cure."""


@dataclass(frozen=True)
class Answer:
    """The bytes that come, their number where it is known before, and how to do without them.

    `checked` is False where an answer that was cut short looks like one that was not.
    """

    size: int | None
    chunks: Iterator[bytes]
    close: Callable[[], None] = lambda: None
    checked: bool = True


class Remote:
    """URLs of any scheme, opened by whoever knows it; safe from many threads."""

    def __init__(self) -> None:
        self._pool: Any = None

    def open(self, url: str, start: int, length: int | None, seconds: float) -> Answer:
        """Begin to read `length` bytes (None: all) from `start`.

        No wait for the next bytes of an HTTP server is longer than `seconds`. Raises DataError,
        and Unanswered where another try may help; so do the chunks.
        """
        if url.startswith(("http://", "https://")):
            return self._open_http(url, start, length, seconds)
        with _translating(url):
            return _open_fsspec(url, start, length)

    def names(self, folder: str) -> list[str]:
        """The names of the files right in a folder. Raises as `open` does."""
        with _translating(folder):
            system, inner = _system(folder)
            entries = system.ls(inner, detail=True)
            # A file lists itself; behind http everything is a file, and a page may list nothing.
            names = [entry["name"] for entry in entries if entry["type"] == "file"]
            if names == [inner] or (not entries and system.isfile(inner)):
                raise NotADirectoryError("it is a file; part files lie in a folder")
        # Listings of web servers have links that sort them.
        linked = [name for name in names if "?" not in name or not folder.startswith("http")]
        return [name.rpartition("/")[2] for name in linked]

    def is_file(self, url: str) -> bool:
        """Whether there is such a file. Raises as `open` does."""
        with _translating(url):
            system, inner = _system(url)
            return bool(system.isfile(inner))

    def close(self) -> None:
        """Close idle connections."""
        if self._pool is not None:
            self._pool.clear()

    def _open_http(self, url: str, start: int, length: int | None, seconds: float) -> Answer:
        with _translating(url):
            import urllib3

        if self._pool is None:
            self._pool = urllib3.PoolManager(maxsize=_CONNECTIONS)
        headers = {"Accept-Encoding": "identity"}
        if start or length is not None:
            last = "" if length is None else start + length - 1
            headers["Range"] = f"bytes={start}-{last}"
        with _translating(url):
            response = self._pool.request(
                "GET",
                url,
                headers=headers,
                preload_content=False,
                timeout=urllib3.Timeout(connect=seconds, read=seconds),
                retries=urllib3.Retry(None, connect=0, read=0, status=0, other=0, redirect=5),
            )
        return _answer(url, response, start, length)


def _answer(url: str, response: Any, start: int, length: int | None) -> Answer:
    """The part from `start` of what a server answers, which may be the whole file all the same."""
    status = response.status
    if status == 416 and length is None:  # a part that begins behind the end is empty
        response.close()
        return Answer(0, iter(()))
    if status not in (200, 206):
        response.close()
        kind = Unanswered if status >= 500 else DataError
        raise kind(f"{url} cannot be read: HTTP status {status} {response.reason or ''}".rstrip())
    if status == 206 and not response.headers.get("Content-Range", "").startswith(
        f"bytes {start}-"
    ):
        response.close()
        raise DataError(f"{url} cannot be read: the server sent another part than was asked for")
    size = response.length_remaining
    skip = start if status == 200 else 0
    return Answer(
        None if size is None else max(0, size - skip),
        _body(url, response, skip, length),
        response.close,
        checked=size is not None or bool(response.chunked),
    )


def _body(url: str, response: Any, skip: int, length: int | None) -> Iterator[bytes]:
    announced = response.length_remaining is not None
    left = length
    try:
        with _translating(url):
            for chunk in response.stream(_CHUNK):
                part = chunk[skip : None if left is None else skip + left]
                skip = max(0, skip - len(chunk))
                left = None if left is None else left - len(part)
                yield part
                if left == 0:
                    return
    finally:
        response.close()  # what was read to its end is back in the pool by now, and stays open
    if left and not announced:
        raise Unanswered(f"{url} cannot be read: the answer ended {left} bytes early")


def _open_fsspec(url: str, start: int, length: int | None) -> Answer:
    system, path = _system(url)
    if start or length is not None:
        stop = None if length is None else start + length
        data = system.cat_file(path, start=start, end=stop)
        if length is not None and len(data) < length:
            raise Unanswered(
                f"{url} cannot be read: {len(data)} of {length} bytes came from byte {start}"
            )
        return Answer(len(data), iter([data]))
    file = system.open(path, "rb")
    size = getattr(file, "size", None)
    return Answer(size, _pieces(url, file, size), file.close)


def _system(url: str) -> tuple[Any, str]:
    """The file system that knows a URL, and the path there."""
    from fsspec.core import url_to_fs

    return url_to_fs(url)  # type: ignore[no-any-return]


def _pieces(url: str, file: Any, size: int | None) -> Iterator[bytes]:
    found = 0
    with _translating(url), file:
        while chunk := file.read(_CHUNK):
            found += len(chunk)
            yield chunk
    if size is not None and found < size:
        raise Unanswered(f"{url} cannot be read: {found} of its {size} bytes came")


@contextmanager
def _translating(url: str) -> Iterator[None]:
    """Tell failures that may pass from those that will not; none is an OSError any more."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError) as error:
        raise DataError(f"{url} cannot be read: {_words(error)}") from error
    except OSError as error:
        raise Unanswered(f"{url} cannot be read: {_words(error)}") from error
    except (DataError, Unanswered, MemoryError):
        raise
    except ImportError as error:
        fix = "pip install 'layoutkit[data]'"
        raise DataError(f"{url} cannot be read: {error}; {fix} reads most URLs") from error
    except ValueError as error:  # a scheme that nobody here knows, or no URL
        raise DataError(f"{url} cannot be read: {error}") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "urllib3":
            # Every remote file system has its own errors, and most are no OSErrors.
            raise DataError(f"{url} cannot be read: {type(error).__name__}: {error}") from error
        if _words(error) == "too many redirects":  # each of them was an answer
            raise DataError(f"{url} cannot be read: {_words(error)}") from error
        raise Unanswered(f"{url} cannot be read: {_words(error)}") from error


def _words(error: BaseException) -> str:
    """The error in words; of urllib3's, the reason alone."""
    return str(getattr(error, "reason", None) or error) or type(error).__name__

"""What another machine holds at a URL, in pieces as they arrive.

HTTP is the business of `web.py` alone, the rest that of fsspec; both are optional, and loaded for
the first URL that needs them. A call of fsspec cannot be ended from here: how long it waits, the
client of its protocol decides, and time is looked at between two pieces.

Knows which scheme is whose; tries nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from types import ModuleType
from typing import Any

from ... import forks
from ...errors import DataError
from .answers import CHUNK, Answer, Unanswered, too_large, translating

__all__ = ["Remote"]


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


@forks.once
def _url_to_fs() -> Any:
    from fsspec.core import url_to_fs

    return url_to_fs


@forks.once
def _web() -> ModuleType:
    from . import web  # which imports urllib3

    return web


def _pieces(
    url: str, file: Any, start: int, size: int | None, seconds: float, most: int | None
) -> Iterator[bytes]:
    """The bytes of a file from `start`, one more than `most` at most."""
    from .clocked import Clock

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

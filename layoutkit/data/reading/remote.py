"""What another machine holds at a URL, in pieces as they arrive.

HTTP is read by `web.py`, the rest by fsspec; both are optional, and loaded for the first URL that
needs them.

Knows which scheme is whose; tries nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from ... import forks
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
        if url.startswith(("http://", "https://")):
            return self._open_http(url, start, length, seconds, most)
        with translating(url):
            return _open_fsspec(url, start, length, most)

    def names(self, folder: str) -> list[str]:
        """The names of the files right in a folder. Raises as `open` does."""
        with translating(folder):
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
        with translating(url):
            system, inner = _system(url)
            return bool(system.isfile(inner))

    def close(self) -> None:
        """Close idle connections."""
        if self._web is not None:
            self._web.close()

    def _open_http(
        self, url: str, start: int, length: int | None, seconds: float, most: int | None
    ) -> Answer:
        with translating(url):
            web = _web()

        if self._web is None:
            self._web = web.Web()
        answer: Answer = self._web.open(url, web.Part(start, length, most), seconds)
        return answer


def _open_fsspec(url: str, start: int, length: int | None, most: int | None) -> Answer:
    system, path = _system(url)
    if length is not None:
        data = system.cat_file(path, start=start, end=start + length)
        if len(data) < length:
            raise Unanswered(
                f"{url} cannot be read: {len(data)} of {length} bytes came from byte {start}"
            )
        return Answer(len(data), iter([data]))
    file = system.open(path, "rb")
    whole = getattr(file, "size", None)
    size = None if whole is None else max(0, whole - start)
    return Answer(size, _pieces(url, file, start, size, most), file.close)


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


def _pieces(url: str, file: Any, start: int, size: int | None, most: int | None) -> Iterator[bytes]:
    found = 0
    with translating(url), file:
        if start:
            file.seek(start)
        while (size is None or found < size) and (chunk := file.read(CHUNK)):
            found += len(chunk)
            if most is not None and found > most:
                raise too_large(url, most)
            yield chunk
    if size is not None and found < size:
        raise Unanswered(f"{url} cannot be read: {found} of its {size} bytes came")

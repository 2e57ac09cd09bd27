"""HTTP: the answer to one GET, whole or an error, in bounded time; and pages that list folders.

urllib3 notices an answer that ends before its announced length, keeps connections for the next
record, and starts no threads. What it takes on trust is looked at here: which part of a file an
answer says that it is, encodings that nobody asked for, and redirects, whose bodies may be endless.

Knows HTTP; tries nothing twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import urljoin

import urllib3

from ...errors import DataError
from .answers import CHUNK, Answer, Unanswered, too_large, translating
from .clocked import Clock, ClockedResponse
from .pages import files_linked

__all__ = ["Part", "Web"]

_CONNECTIONS = 32  # kept open for each host
_REDIRECTS = 5
MOST_OF_PAGE = 1 << 26  # bytes: a third of a million files, with dates and sizes
_PAGES = ("", "text/html", "application/xhtml+xml")  # some servers do not say
_BUSY = 429  # the one refusal that says nothing of the file; others hide what may not be read
_MOVED = (301, 302, 303, 307, 308)
_SPAN = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_BEHIND = re.compile(r"bytes \*/(\d{1,18})")


class Part(NamedTuple):
    """What is asked for: `length` bytes from `start`, or all from there, at most `most`."""

    start: int
    length: int | None
    most: int | None

    @property
    def headers(self) -> dict[str, str]:
        """What a request says of it."""
        headers = {"Accept-Encoding": "identity"}
        if self.is_range:
            last = "" if self.length is None else self.start + self.length - 1
            headers["Range"] = f"bytes={self.start}-{last}"
        return headers

    @property
    def is_range(self) -> bool:
        """Whether anything but the whole file is asked for."""
        return self.start > 0 or self.length is not None


_WHOLE = Part(0, None, None)


class Web:
    """Whom to ask; safe from many threads."""

    def __init__(self) -> None:
        self._pool: Any = urllib3.PoolManager(maxsize=_CONNECTIONS)
        self._pool.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}

    def open(self, url: str, part: Part, seconds: float) -> Answer:
        """Begin to read a part of a URL; redirects are followed."""
        response, _, clock = self._reached(url, part, seconds)
        return _answer(url, response, part, clock)

    def names(self, folder: str, seconds: float) -> list[str]:
        """The names of the files right in a folder, to which the page at its URL has links."""
        if "?" in folder or "#" in folder:
            raise DataError(f"{folder} names no folder; take the URL up to the ? or #")
        response, place, clock = self._reached(folder, _WHOLE, seconds)
        answer = _answer(folder, response, _WHOLE, clock)
        try:
            page = _page(folder, response, answer)
        finally:
            answer.close()
        with translating(folder):
            return files_linked(page, place)

    def is_file(self, url: str, seconds: float) -> bool:
        """Whether a server has something at a URL, of which nothing is read."""
        response, _, _ = self._reached(url, _WHOLE, seconds)
        _let_go(response)
        if response.status >= 500 or response.status == _BUSY:
            _check_status(url, response)
        return bool(response.status < 400)

    def close(self) -> None:
        """Close idle connections."""
        self._pool.clear()

    def _reached(self, url: str, part: Part, seconds: float) -> tuple[Any, str, Clock]:
        """The response of the place that a URL leads to, the place, and the time that it has."""
        clock, place = Clock(seconds), url
        for _ in range(_REDIRECTS + 1):
            with translating(url), clock.running():
                response = self._get(place, part, seconds)
                target = response.headers.get("Location")
                if response.status not in _MOVED or not target:
                    return response, place, clock
                _let_go(response)
            place = urljoin(place, target)
            if not place.startswith(("http://", "https://")):
                raise DataError(f"{url} cannot be read: it was redirected to {place}")
        raise DataError(f"{url} cannot be read: too many redirects")

    def _get(self, url: str, part: Part, seconds: float) -> Any:
        return self._pool.request(
            "GET",
            url,
            headers=part.headers,
            preload_content=False,
            redirect=False,
            timeout=urllib3.Timeout(connect=seconds, read=seconds),
            retries=urllib3.Retry(None, connect=0, read=0, status=0, other=0, redirect=0),
        )


class _Connection(urllib3.connection.HTTPConnection):
    response_class = ClockedResponse


class _SecureConnection(urllib3.connection.HTTPSConnection):
    response_class = ClockedResponse


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


def _let_go(response: Any) -> None:
    """Be done with an answer; its connection is of use where little is left to read."""
    left = response.length_remaining
    if left is not None and left <= CHUNK:
        response.drain_conn()
    response.close()


def _page(folder: str, response: Any, answer: Answer) -> bytes:
    """All bytes of a page; DataError for what is no page, and for too large a one."""
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind not in _PAGES:
        raise DataError(
            f"{folder} cannot be read as a folder: it is a file of type {kind}, and part files lie "
            "in a folder that the server lists as an HTML page"
        )
    page = bytearray()
    _check_page(folder, answer.size or 0)
    for chunk in answer.chunks:
        page += chunk
        _check_page(folder, len(page))
    return bytes(page)


def _check_page(folder: str, nbytes: int) -> None:
    if nbytes > MOST_OF_PAGE:
        fix = "spread the files over several folders, or list them in a table"
        raise too_large(folder, MOST_OF_PAGE, what="the page of a folder", fix=fix)


def _answer(url: str, response: Any, part: Part, clock: Clock) -> Answer:
    """The part of a server's answer, which may be the whole file all the same."""
    try:
        if _is_behind(response, part):
            response.close()
            return Answer(0, iter(()))
        _check_status(url, response)
        announced, skip = _extent(url, response, part)
        size = None if announced is None else max(0, announced - skip)
        if part.most is not None and part.length is None and (size or 0) > part.most:
            raise too_large(url, part.most, size)
    except BaseException:
        response.close()
        raise
    body = _body(url, response, part, announced, skip, clock)
    return Answer(size, body, response.close, checked=size is not None or bool(response.chunked))


def _check_status(url: str, response: Any) -> None:
    status = response.status
    if status not in (200, 206):
        kind = Unanswered if status >= 500 else DataError
        raise kind(f"{url} cannot be read: HTTP status {status} {response.reason or ''}".rstrip())
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise DataError(
            f"{url} cannot be read: the server sent it with Content-Encoding {encoding!r}, which "
            "nobody asked for; let it serve the bytes as they are"
        )


def _is_behind(response: Any, part: Part) -> bool:
    """Whether there is nothing from the start of the part on, as the server says itself."""
    if response.status != 416 or not part.start or part.length is not None:
        return False
    told = _BEHIND.fullmatch(response.headers.get("Content-Range", ""))
    return told is not None and int(told[1]) <= part.start


def _extent(url: str, response: Any, part: Part) -> tuple[int | None, int]:
    """The number of bytes that have to come, where it is told, and those before the part."""
    announced = response.length_remaining
    if response.status == 200:
        return announced, part.start
    told = _SPAN.fullmatch(response.headers.get("Content-Range", ""))
    if not part.is_range or told is None or not _is_asked(told, part):
        raise DataError(f"{url} cannot be read: the server sent another part than was asked for")
    count = int(told[2]) - int(told[1]) + 1
    if announced not in (None, count):
        raise DataError(f"{url} cannot be read: the server sent {announced} bytes as {count}")
    return count, 0


def _is_asked(told: re.Match[str], part: Part) -> bool:
    """Whether a Content-Range is the part, to its end or that of the file."""
    first, last = int(told[1]), int(told[2])
    total = None if told[3] == "*" else int(told[3])
    if first != part.start or last < first or (total is not None and last >= total):
        return False
    wanted = None if part.length is None else part.start + part.length - 1
    return last == wanted or (last + 1 == total and (wanted is None or last < wanted))


def _body(
    url: str, response: Any, part: Part, announced: int | None, skip: int, clock: Clock
) -> Iterator[bytes]:
    """The bytes of the part; Unanswered where fewer come than there have to be."""
    found, taken, left = 0, 0, part.length
    try:
        with translating(url):
            for chunk in response.stream(CHUNK, decode_content=False):
                piece = chunk[skip : None if left is None else skip + left]
                skip = max(0, skip - len(chunk))
                left = None if left is None else left - len(piece)
                found, taken = found + len(chunk), taken + len(piece)
                if left is None and part.most is not None and taken > part.most:
                    raise too_large(url, part.most)
                began = monotonic()
                yield piece
                clock.came(len(chunk), monotonic() - began)
                if left == 0:
                    return
    finally:
        response.close()  # what was read to its end is back in the pool by now, and stays open
    if announced is not None and found != announced:
        raise Unanswered(f"{url} cannot be read: {found} of {announced} bytes came")
    if left and announced is None:
        raise Unanswered(f"{url} cannot be read: the answer ended {left} bytes early")

"""HTTP: the answer to one GET, whole or an error, in bounded time; and pages that list folders.

urllib3 notices an answer that ends before its announced length, keeps connections for the next
record, and starts no threads. What it takes on trust is looked at here: which part of a file an
answer says that it is, encodings that nobody asked for, and redirects, whose bodies may be endless.

Knows HTTP; tries nothing twice.

How long an HTTP answer may take, held against every byte that is waited for.

A timeout of a socket bounds one wait, and a server that sends a byte a second never meets it: not
with the body, not with the header, not with `100 Continue` for ever. So a whole answer has an end,
which the bytes of its body move on, and lines of a header or of chunks have a length.

Knows sockets and the standard library's response; what is asked for is not known here.

What comes of asking for a URL: bytes in pieces, or a failure, which may pass or not.

Knows neither protocols nor files.

The files of a folder that a web server lists: a page with a link to each.

Anybody may have written the page. So a file counts only where a browser would find it right in
the folder that was asked for, on the same host; and a page is parsed piece by piece, as the parser
of the standard library takes hours for some that never end a tag.

Knows HTML and URLs; asks nobody.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from http import client
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

import urllib3

from ...errors import DataError

PACE = 1 << 16  # bytes of a body that buy another second: who sends less for long sends nothing
LONGEST_LINE = 1 << 16


class Clock:
    """The end of an answer that has `seconds` for its first bytes, and for each wait after them."""

    def __init__(self, seconds: float) -> None:
        self._wait = seconds
        self._end = monotonic() + seconds

    def left(self) -> float:
        """How long the next bytes may be waited for; TimeoutError when the end has come."""
        left = self._end - monotonic()
        if left <= 0:
            raise TimeoutError("the answer takes too long")
        return min(left, self._wait)

    def came(self, nbytes: int, pause: float) -> None:
        """Move the end on, for bytes that came and for seconds in which nobody waited."""
        self._end += nbytes / PACE + pause

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let answers that begin in this thread be held against this clock."""
        _here.clock = self
        try:
            yield
        finally:
            _here.clock = None


# A response is made deep inside of urllib3, which hands nothing through but the socket.
_here: Any = threading.local()


class ClockedResponse(client.HTTPResponse):
    """A response whose bytes come by way of the clock that is running."""

    def __init__(self, sock: Any, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        clock = getattr(_here, "clock", None)
        if clock is not None:
            self.fp = _Lines(_Timed(self.fp.detach(), sock, clock))


class _Timed(io.RawIOBase):
    """The bytes of a socket, none of which is waited for longer than a clock says."""

    def __init__(self, raw: Any, sock: Any, clock: Clock) -> None:
        self._raw, self._sock, self._clock = raw, sock, clock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._clock.left())
        return self._raw.readinto(buffer)  # type: ignore[no-any-return]

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Lines(io.BufferedReader):
    """A buffer that reads no endless line: urllib3 asks for those of chunks without a limit."""

    def readline(self, size: int | None = -1, /) -> bytes:
        unlimited = size is None or size < 0
        line = super().readline(LONGEST_LINE if unlimited else size)
        if unlimited and len(line) == LONGEST_LINE:
            raise client.LineTooLong("chunk")
        return line


CHUNK = 1 << 18


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


def too_large(
    url: str,
    most: int,
    found: int | None = None,
    what: str = "a record",
    fix: str = "max_record_bytes= allows more",
) -> DataError:
    """The error of what has more bytes than it may have; `found`: how many, where that is known."""
    number = "" if found is None else f"{found} bytes, "
    return DataError(
        f"{url} cannot be read: it has {number}more than the {most} bytes that {what} may have; "
        f"{fix}"
    )


@contextmanager
def translating(url: str) -> Iterator[None]:
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
        raise Unanswered(f"{url} cannot be read: {_words(error)}") from error


def _words(error: BaseException) -> str:
    """The error in words; of urllib3's, the reason alone."""
    return str(getattr(error, "reason", None) or error) or type(error).__name__


_PIECE = 1 << 16  # characters that are parsed at once
_LONGEST = 1 << 18  # of a tag, comment or style sheet: looked at again with every piece
_PORTS = {"http": 80, "https": 443}


def files_linked(page: bytes, place: str) -> list[str]:
    """The names of the files right in a folder, as URLs write them; ValueError for no listing.

    Parameters
    ----------
    page : bytes
        What the server sent. It is taken as UTF-8; a server writes all but ASCII as %C3%A4.
    place : str
        The URL that sent it. Relative links begin below it, whether or not it ends in a slash.
    """
    # Never closed: that is where the parser takes its hours, over a last tag that has no end.
    parser = _Links(place)
    text = page.decode("utf-8", "replace")
    for start in range(0, len(text), _PIECE):
        parser.feed(text[start : start + _PIECE])
        if len(parser.rawdata) > _LONGEST:
            raise ValueError(f"its page has a tag of more than {_LONGEST} characters")
    if not parser.any_link:
        raise ValueError("its page has no links: the folder is empty, or it is none")
    return list(parser.names)


class _Links(HTMLParser):
    """Collects the names of files in the folder that a page is of."""

    def __init__(self, place: str) -> None:
        super().__init__()
        parts = urlsplit(place)
        self._folder = parts._replace(path=parts.path.rstrip("/") + "/", query="", fragment="")
        self._base = self._folder.geturl()
        self.names: dict[str, None] = {}  # each once, in the order of the page
        self.any_link = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note where a link leads."""
        link = dict(reversed(attrs)).get("href")  # of two the first one counts
        if tag != "a" or link is None:
            return
        self.any_link = True
        try:
            name = _name_in(self._folder, urlsplit(urljoin(self._base, link.strip())))
        except ValueError:  # brackets or a port that no URL has
            return
        if name is not None:
            self.names[name] = None


def _name_in(folder: SplitResult, target: SplitResult) -> str | None:
    """The name of a file right in the folder; None for what is elsewhere, or no file.

    Links with a query sort the page, or are answers of a program.
    """
    above, _, name = target.path.rpartition("/")
    there = _site(target) == _site(folder) and unquote(f"{above}/") == unquote(folder.path)
    if not there or target.query or target.scheme not in _PORTS:
        return None
    plain = unquote(name)
    return name if plain.strip(".") and "/" not in plain else None


def _site(url: SplitResult) -> tuple[str | None, int | None]:
    """The host, and its port where it is not the usual one."""
    return url.hostname, None if url.port == _PORTS.get(url.scheme) else url.port


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

"""HTTP: GET requests with a deadline, and pages that list folders.

urllib3 notices a response that ends before its announced length, keeps connections open for the
next record, and starts no threads. This module checks what urllib3 accepts without a check: the
byte range that a response announces, content encodings that were not requested, and redirects,
whose bodies may be endless. It never retries.

A socket timeout bounds one wait only: a server that sends one byte per second, or an endless series
of `100 Continue` responses, never exceeds it. Therefore a whole response has a deadline, which each
byte of its body extends, and header and chunk lines have a maximum length.

A web server lists a folder as a page with a link to each file. The page may be malicious, so a link
counts only if it leads to a file directly in the requested folder, on the same host. The page is
parsed in pieces, because the parser of the standard library takes hours for some unclosed tags.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from http import client
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

import urllib3

from ...errors import DataError
from .responses import (
    CHUNK,
    Download,
    FileVersion,
    RetryableError,
    convert_remote_errors,
    too_large,
)

# Bytes of a body that extend the deadline by a second; a slower server exceeds the deadline.
BYTES_PER_SECOND = 1 << 16
MAX_LINE_BYTES = 1 << 16


class Deadline:
    """The deadline of a response: `seconds` for its first bytes, and for each later wait."""

    def __init__(self, seconds: float) -> None:
        self._wait = seconds
        self._end = monotonic() + seconds

    def remaining(self) -> float:
        """Return the seconds to wait for the next bytes; raise TimeoutError after the deadline."""
        seconds = self._end - monotonic()
        if seconds <= 0:
            raise TimeoutError("the response takes too long")
        return min(seconds, self._wait)

    def extend(self, nbytes: int, pause: float) -> None:
        """Extend the deadline for received bytes and for the seconds of the consumer's pause."""
        self._end += nbytes / BYTES_PER_SECOND + pause

    @contextmanager
    def active(self) -> Iterator[None]:
        """Apply this deadline to responses that begin in this thread."""
        _thread_state.deadline = self
        try:
            yield
        finally:
            _thread_state.deadline = None


# Thread-local, because urllib3 creates the responses and passes them nothing but the socket.
_thread_state: Any = threading.local()


class DeadlineResponse(client.HTTPResponse):
    """A response that waits for its bytes no longer than the thread's active deadline allows."""

    def __init__(self, sock: Any, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        deadline = getattr(_thread_state, "deadline", None)
        if deadline is not None:
            self.fp = _LimitedLineReader(_TimedSocketReader(self.fp.detach(), sock, deadline))


class _TimedSocketReader(io.RawIOBase):
    """A raw reader of a socket whose timeout is the time left until a deadline."""

    def __init__(self, raw: Any, sock: Any, deadline: Deadline) -> None:
        self._raw = raw
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._deadline.remaining())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _LimitedLineReader(io.BufferedReader):
    """A buffered reader that limits the length of lines, which urllib3 does not for chunk lines."""

    def readline(self, size: int | None = -1, /) -> bytes:
        unlimited = size is None or size < 0
        line = super().readline(MAX_LINE_BYTES if unlimited else size)
        if unlimited and len(line) == MAX_LINE_BYTES:
            raise client.LineTooLong("chunk")
        return line


_PIECE = 1 << 16  # characters that are parsed at once
_MAX_TAG_CHARS = 1 << 18  # of a tag, comment or style sheet, which is parsed again with each piece
_PORTS = {"http": 80, "https": 443}


def parse_listing(page: bytes, url: str) -> list[str]:
    """Return the names of the files directly in a folder, percent-encoded as on its page.

    Raises ValueError if the page is not a listing.

    Parameters
    ----------
    page : bytes
        The body that the server sent. It is decoded as UTF-8; servers percent-encode characters
        outside ASCII.
    url : str
        The URL of the page. Links are relative to this folder, even without a slash at its end.
    """
    # The parser is never closed: `close` takes hours for an unclosed last tag.
    parser = _LinkParser(url)
    text = page.decode("utf-8", "replace")
    for start in range(0, len(text), _PIECE):
        parser.feed(text[start : start + _PIECE])
        if len(parser.rawdata) > _MAX_TAG_CHARS:
            raise ValueError(f"its page has a tag of more than {_MAX_TAG_CHARS} characters")
    # Since Python 3.14, text after an incomplete tag is parsed once it is longer than the tag.
    parser.feed(" " * _MAX_TAG_CHARS)
    if not parser.any_link:
        raise ValueError("its page has no links: the folder is empty, or it is not a folder")
    return list(parser.names)


class _LinkParser(HTMLParser):
    """An HTML parser that collects the names of the files in the page's folder."""

    def __init__(self, url: str) -> None:
        super().__init__()
        parts = urlsplit(url)
        self._folder = parts._replace(path=parts.path.rstrip("/") + "/", query="", fragment="")
        self._base = self._folder.geturl()
        self.names: dict[str, None] = {}  # without duplicates, in the order of the page
        self.any_link = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add the file name that a link leads to."""
        link = dict(reversed(attrs)).get("href")  # the first of repeated attributes counts
        if tag != "a" or link is None:
            return
        self.any_link = True
        try:
            name = _file_name_in(self._folder, urlsplit(urljoin(self._base, link.strip())))
        except ValueError:  # invalid brackets or an invalid port
            return
        if name is not None:
            self.names[name] = None


def _file_name_in(folder: SplitResult, target: SplitResult) -> str | None:
    """Return the name of a file directly in the folder; None for other targets.

    Links with a query are ignored: they sort the page or call a program.
    """
    parent, _, name = target.path.rpartition("/")
    is_inside = unquote(f"{parent}/") == unquote(folder.path)
    is_same_host = _host_and_port(target) == _host_and_port(folder)
    if not (is_inside and is_same_host) or target.query or target.scheme not in _PORTS:
        return None
    decoded = unquote(name)
    return name if decoded.strip(".") and "/" not in decoded else None


def _host_and_port(url: SplitResult) -> tuple[str | None, int | None]:
    """Return the host, and the port unless it is the scheme's default."""
    return url.hostname, None if url.port == _PORTS.get(url.scheme) else url.port


_CONNECTIONS = 32  # kept open for each host
_REDIRECTS = 5
MAX_PAGE_BYTES = 1 << 26  # about 300,000 files with dates and sizes
_PAGE_TYPES = ("", "text/html", "application/xhtml+xml")  # some servers send no type
_TOO_MANY_REQUESTS = 429  # unlike other 4xx statuses, says nothing about the file
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_RANGE_HEADER = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_TOTAL = re.compile(r"bytes [-\d*]{1,40}/(\d{1,18})")
_PAST_END_HEADER = re.compile(r"bytes \*/(\d{1,18})")


class ByteRange(NamedTuple):
    """A requested range: `length` bytes from `start`, or all from there, at most `max_bytes`.

    version     the expected version of the file, None for any
    """

    start: int
    length: int | None
    max_bytes: int | None
    version: FileVersion | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The request headers for this range."""
        headers = {"Accept-Encoding": "identity"}
        if self.is_range:
            last = "" if self.length is None else self.start + self.length - 1
            headers["Range"] = f"bytes={self.start}-{last}"
            etag = None if self.version is None else self.version.etag
            if etag is not None and etag.startswith('"'):  # RFC 9110 allows no weak ETag here
                headers["If-Range"] = etag
        return headers

    @property
    def is_range(self) -> bool:
        """True unless the whole file is requested."""
        return self.start > 0 or self.length is not None


_FULL_RANGE = ByteRange(0, None, None)


class HttpClient:
    """A thread-safe HTTP client with a pool of connections."""

    def __init__(self) -> None:
        self._pool: Any = urllib3.PoolManager(maxsize=_CONNECTIONS)
        self._pool.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}

    def open(self, url: str, part: ByteRange, seconds: float) -> Download:
        """Return the download of a part of a URL; follow redirects."""
        response, _, deadline = self._follow_redirects(url, part, seconds)
        return _to_download(url, response, part, deadline)

    def names(self, folder: str, seconds: float) -> list[str]:
        """Return the names of the files directly in a folder, from the links on its page."""
        if "?" in folder or "#" in folder:
            raise DataError(
                f"{folder} is not the URL of a folder; omit the ? or # and all after it"
            )
        response, url, deadline = self._follow_redirects(folder, _FULL_RANGE, seconds)
        download = _to_download(folder, response, _FULL_RANGE, deadline)
        try:
            page = _read_page(folder, response, download)
        finally:
            download.close()
        with convert_remote_errors(folder):
            return parse_listing(page, url)

    def is_file(self, url: str, seconds: float) -> bool:
        """Return True if a server has a file at a URL; its body is not read."""
        response, _, _ = self._follow_redirects(url, _FULL_RANGE, seconds)
        _release(response)
        if response.status >= 500 or response.status == _TOO_MANY_REQUESTS:
            _check_status(url, response)
        return bool(response.status < 400)

    def close(self) -> None:
        """Close idle connections."""
        self._pool.clear()

    def _follow_redirects(
        self, url: str, part: ByteRange, seconds: float
    ) -> tuple[Any, str, Deadline]:
        """Follow redirects; return the response, its final URL, and its deadline."""
        deadline = Deadline(seconds)
        current = url
        for _ in range(_REDIRECTS + 1):
            with convert_remote_errors(url), deadline.active():
                response = self._get(current, part, seconds)
                target = response.headers.get("Location")
                if response.status not in _REDIRECT_STATUSES or not target:
                    return response, current, deadline
                _release(response)
                current = urljoin(current, target)
            if not current.startswith(("http://", "https://")):
                raise DataError(f"{url} cannot be read: it was redirected to {current}")
        raise DataError(f"{url} cannot be read: too many redirects")

    def _get(self, url: str, part: ByteRange, seconds: float) -> Any:
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
    response_class = DeadlineResponse


class _SecureConnection(urllib3.connection.HTTPSConnection):
    response_class = DeadlineResponse


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


def _release(response: Any) -> None:
    """Close a response; keep its connection for reuse if little is left to read."""
    remaining = response.length_remaining
    if remaining is not None and remaining <= CHUNK:
        response.drain_conn()
    response.close()


def _read_page(folder: str, response: Any, download: Download) -> bytes:
    """Read a page; raise DataError if it is not HTML or too large."""
    content_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if content_type not in _PAGE_TYPES:
        raise DataError(
            f"{folder} cannot be read as a folder: it is a file of type {content_type}; give the "
            "URL of a folder that the server lists as an HTML page"
        )
    page = bytearray()
    _check_page_size(folder, download.size or 0)
    for chunk in download.chunks:
        page += chunk
        _check_page_size(folder, len(page))
    return bytes(page)


def _check_page_size(folder: str, nbytes: int) -> None:
    if nbytes > MAX_PAGE_BYTES:
        fix = "spread the files over several folders, or list them in a table"
        raise too_large(folder, MAX_PAGE_BYTES, noun="the page of a folder", fix=fix)


def _to_download(url: str, response: Any, part: ByteRange, deadline: Deadline) -> Download:
    """Return the download of the requested part, even if the response is the whole file."""
    version = _version(response)
    try:
        if part.version is not None and response.status in (200, 206, 416):
            part.version.check(url, version)
        if _is_past_end(response, part):
            response.close()
            return Download(0, iter(()), version=version)
        _check_status(url, response)
        announced, skip = _expected_bytes(url, response, part)
        size = None if announced is None else max(0, announced - skip)
        if part.max_bytes is not None and part.length is None and (size or 0) > part.max_bytes:
            raise too_large(url, part.max_bytes, size)
    except BaseException:
        response.close()
        raise
    body = _stream_body(url, response, part, announced, skip, deadline)
    checked = size is not None or bool(response.chunked)
    return Download(size, body, response.close, checked, version)


def _version(response: Any) -> FileVersion:
    size = response.length_remaining if response.status == 200 else None
    match = _TOTAL.fullmatch(response.headers.get("Content-Range", ""))
    if response.status in (206, 416) and match is not None:
        size = int(match[1])
    etag = response.headers.get("ETag")
    return FileVersion(etag, response.headers.get("Last-Modified"), size)


def _check_status(url: str, response: Any) -> None:
    status = response.status
    if status not in (200, 206):
        cls = RetryableError if status >= 500 else DataError
        raise cls(f"{url} cannot be read: HTTP status {status} {response.reason or ''}".rstrip())
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise DataError(
            f"{url} cannot be read: the server sent it with Content-Encoding {encoding!r}, which "
            "was not requested; configure the server to send files without an encoding"
        )


def _is_past_end(response: Any, part: ByteRange) -> bool:
    """Return True if the server reports that the part starts at or after the end of the file."""
    if response.status != 416 or not part.start or part.length is not None:
        return False
    match = _PAST_END_HEADER.fullmatch(response.headers.get("Content-Range", ""))
    return match is not None and int(match[1]) <= part.start


def _expected_bytes(url: str, response: Any, part: ByteRange) -> tuple[int | None, int]:
    """Return the announced number of bytes, or None, and the number of those before the part."""
    announced = response.length_remaining
    if response.status == 200:
        return announced, part.start
    match = _RANGE_HEADER.fullmatch(response.headers.get("Content-Range", ""))
    if not part.is_range or match is None or not _matches_range(match, part):
        raise DataError(
            f"{url} cannot be read: the server sent a byte range that was not requested"
        )
    count = int(match[2]) - int(match[1]) + 1
    if announced not in (None, count):
        raise DataError(
            f"{url} cannot be read: the server announced {announced} bytes for a range of {count}"
        )
    return count, 0


def _matches_range(match: re.Match[str], part: ByteRange) -> bool:
    """Return True if a Content-Range is the part, which may end early at the end of the file."""
    first = int(match[1])
    last = int(match[2])
    total = None if match[3] == "*" else int(match[3])
    if first != part.start or last < first or (total is not None and last >= total):
        return False
    end = None if part.length is None else part.start + part.length - 1
    return last == end or (last + 1 == total and (end is None or last < end))


def _stream_body(
    url: str, response: Any, part: ByteRange, announced: int | None, skip: int, deadline: Deadline
) -> Iterator[bytes]:
    """Yield the bytes of the part; raise RetryableError if fewer than announced arrive."""
    received = 0
    yielded = 0
    left = part.length
    try:
        with convert_remote_errors(url):
            for chunk in response.stream(CHUNK, decode_content=False):
                piece = chunk[skip : None if left is None else skip + left]
                skip = max(0, skip - len(chunk))
                left = None if left is None else left - len(piece)
                received += len(chunk)
                yielded += len(piece)
                if left is None and part.max_bytes is not None and yielded > part.max_bytes:
                    raise too_large(url, part.max_bytes)
                start = monotonic()
                yield piece
                deadline.extend(len(chunk), monotonic() - start)
                if left == 0:
                    return
    finally:
        response.close()  # a fully read connection is already back in the pool, and stays open
    if announced is not None and received != announced:
        raise RetryableError(f"{url} cannot be read: received {received} of {announced} bytes")
    if left and announced is None:
        raise RetryableError(f"{url} cannot be read: the response ended {left} bytes early")

"""How long an HTTP answer may take, held against every byte that is waited for.

A timeout of a socket bounds one wait, and a server that sends a byte a second never meets it: not
with the body, not with the header, not with `100 Continue` for ever. So a whole answer has an end,
which the bytes of its body move on, and lines of a header or of chunks have a length.

Knows sockets and the standard library's response; what is asked for is not known here.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import client
from time import monotonic
from typing import Any

__all__ = ["Clock", "ClockedResponse"]

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

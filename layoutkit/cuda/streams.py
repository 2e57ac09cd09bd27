"""Order and lifetime where libraries and CUDA graphs meet, of which each knows only its own.

A library orders work on its arrays by its stream, and hands memory on in that order. So of work on
another stream somebody has to say what it waits for (`wait_for`), and to hold what it reads until
it is done (`hold`). A graph writes to the same memory at every replay, so what a conversion takes
for itself while one is captured is never given back (`keep_captured`), and nothing outside may be
waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from ..errors import DeviceError
from .memory import DeviceArray
from .runtime import runtime

__all__ = ["hold", "is_capturing", "keep_captured", "refuse_capture", "same_stream", "wait_for"]

_DEFAULT = (0, 1)  # the default stream's names

# Arrays that kernels may not have done with, each behind an event. No lock guards them, as what is
# let go may run a finaliser that comes here again.
_held: deque[tuple[Any, Sequence[DeviceArray]]] = deque()
_captured: list[DeviceArray] = []  # until the process ends, as nobody says when a graph is gone


def same_stream(first: int, second: int) -> bool:
    """Whether two pointers are one stream."""
    return first == second or (first in _DEFAULT and second in _DEFAULT)


def is_capturing(stream: Any) -> bool:
    """Whether a CUDA graph is made of what is put on a stream."""
    return runtime().is_capturing(stream)


def wait_for(stream: Any, other: Any, ordinal: int, what: str) -> None:
    """Let what is put on a stream from now on wait for what is on another one.

    `what` names the array that the other one has work on, in the error of a capture.
    """
    if same_stream(stream.ptr, other.ptr):
        return
    if is_capturing(stream) or is_capturing(other):
        refuse_capture(what)
    found = runtime()
    with found.on(ordinal):
        event = found.new_event(ordinal)
        event.record(other)
        stream.wait_event(event)


def refuse_capture(what: str) -> None:
    """Raise that an array of another library cannot be waited for in a capture."""
    raise DeviceError(
        f"{what} belongs to a library with a stream of its own, which a CUDA graph cannot wait for "
        "while it is captured; before the capture, copy it to an array of the library that captures"
    )


def hold(arrays: Sequence[DeviceArray], stream: Any, ordinal: int) -> None:
    """Hold arrays until what is on a stream now is done; let go those that were done before."""
    found = runtime()
    if not arrays or found.is_capturing(stream):  # whoever replays a graph keeps what it reads
        return
    event = found.new_event(ordinal)
    with found.on(ordinal):
        event.record(stream)
    _held.append((event, arrays))
    for _ in range(len(_held)):
        try:
            pair = _held.popleft()
        except IndexError:  # another thread was quicker
            return
        is_done = False
        try:
            is_done = found.has_happened(pair[0])
        finally:
            if not is_done:
                _held.append(pair)


def keep_captured(array: DeviceArray, stream: Any) -> DeviceArray:
    """An array that a conversion has for itself; kept for good where a graph is captured."""
    if is_capturing(stream):
        _captured.append(array)
    return array

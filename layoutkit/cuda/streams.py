"""Ordering and lifetime of arrays across the streams of several libraries, and in CUDA graphs.

A library orders the work on its arrays with its own stream, and reuses freed memory in that order.
Work on another stream therefore must wait for that stream (`wait_for`), and must keep the arrays
that it reads alive until it is done (`keep_alive_until_done`). A CUDA graph writes to the same
memory at every replay, so temporary memory of a captured conversion is never freed
(`keep_alive_if_captured`), and a captured conversion must not wait for a stream outside of the
capture.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from ..errors import DeviceError
from .driver import DEFAULT_STREAMS
from .memory import DeviceArray
from .runtime import runtime

# Arrays that kernels may still read, each with the event that ends their use. There is no lock,
# because releasing an array may run a finalizer that calls `keep_alive_until_done` again.
kept_alive: deque[tuple[Any, Sequence[DeviceArray]]] = deque()
# Kept until the process ends, because CUDA does not report when a graph is destroyed.
captured: list[DeviceArray] = []


def same_stream(first: int, second: int) -> bool:
    """Return True if two stream pointers denote the same stream."""
    return first == second or (first in DEFAULT_STREAMS and second in DEFAULT_STREAMS)


def wait_for(stream: Any, other: Any, ordinal: int, arg_name: str) -> None:
    """Make future work on `stream` wait for the current work on `other`.

    `arg_name` names the array of the other stream in the error raised during a capture.
    """
    if same_stream(stream.ptr, other.ptr):
        return
    gpu = runtime()
    if gpu.is_capturing(stream) or gpu.is_capturing(other):
        refuse_capture(arg_name)
    with gpu.on(ordinal):
        event = gpu.make_event(ordinal)
        event.record(other)
        stream.wait_event(event)


def refuse_capture(arg_name: str) -> None:
    """Raise DeviceError, because a capture cannot wait for the stream of another library."""
    raise DeviceError(
        f"{arg_name} belongs to a library with a stream of its own, "
        "which a CUDA graph cannot wait for during its capture; "
        "before the capture, copy the array to one of the library that captures"
    )


def keep_alive_until_done(arrays: Sequence[DeviceArray], stream: Any, ordinal: int) -> None:
    """Keep arrays alive until the current work on a stream is done; release those already done."""
    gpu = runtime()
    if not arrays or gpu.is_capturing(stream):  # the user of a graph keeps its inputs alive
        return
    event = gpu.make_event(ordinal)
    with gpu.on(ordinal):
        event.record(stream)
    kept_alive.append((event, arrays))
    for _ in range(len(kept_alive)):
        try:
            entry = kept_alive.popleft()
        except IndexError:  # another thread took the last entry
            return
        is_done = False
        try:
            is_done = gpu.is_done(entry[0])
        finally:
            if not is_done:
                kept_alive.append(entry)


def keep_alive_if_captured(array: DeviceArray, stream: Any) -> DeviceArray:
    """Return `array`; if a graph is being captured, keep it alive until the process ends."""
    if runtime().is_capturing(stream):
        captured.append(array)
    return array

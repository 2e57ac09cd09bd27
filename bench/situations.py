"""The situations of `layoutkit bench --loop`: the operations between two conversions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .host import Call

PAUSE = 0.03  # seconds after which OpenMP threads sleep (libgomp: after a few milliseconds)
_SLEEPS = (0.1, 1, 5, 50)  # milliseconds
_BUSY = (1, 5)  # milliseconds
_LARGE = 8_000_000  # float32 items: 32 MB exceed a core's caches and, on most CPUs, all caches
_SIDE = 700  # of square matrices, whose product takes a few milliseconds


@dataclass(frozen=True)
class Situation:
    """An operation before each call (`gap`), and a background activity during all calls.

    `beside` returns the context manager of the background activity; its argument is a conversion
    that the activity may call. `paused`: also measure a call `PAUSE` seconds after the gap.
    """

    name: str
    gap: Call
    beside: Callable[[Call], AbstractContextManager[Any]] = nullcontext
    paused: bool = False


def all_situations(torch: Any = None) -> list[Situation]:
    """Return all situations in the order of the table; the last one only if `torch` is given."""
    situations = [Situation("back to back", _do_nothing)]
    situations += [Situation(f"{ms} ms of sleep", partial(time.sleep, ms / 1e3)) for ms in _SLEEPS]
    situations += [Situation(f"{ms} ms of Python", partial(_run_python, ms / 1e3)) for ms in _BUSY]
    situations += [
        Situation("a copy of 32 MB", _make_copy(_LARGE)),
        Situation("beside a thread", _do_nothing, beside=_convert_in_background),
    ]
    if torch is not None:
        situations.append(
            Situation("right after torch.mm", _make_product(torch, _SIDE), paused=True)
        )
    return situations


def _do_nothing() -> None:
    """Do nothing between two calls."""


def _run_python(seconds: float) -> int:
    """Keep the interpreter busy for `seconds`; return the number of iterations."""
    end = time.perf_counter() + seconds
    count = 0
    while time.perf_counter() < end:
        count += 1
    return count


def _make_copy(count: int) -> Call:
    """Return a copy of `count` items, which evicts the conversion's data from the caches."""
    source = np.ones(count, np.float32)
    return partial(np.copyto, np.empty_like(source), source)


def _make_product(torch: Any, side: int) -> Call:
    """Return a matrix product on all of torch's threads, which spin afterwards."""
    left = torch.rand(side, side)
    right = torch.rand(side, side)
    return partial(torch.mm, left, right)


@contextmanager
def _convert_in_background(call: Call) -> Iterator[None]:
    """Call the conversion repeatedly on a second Python thread."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            call()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()

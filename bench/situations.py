"""What a program does between two conversions: the situations of `layoutkit bench --loop`."""

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

PAUSE = (
    0.03  # seconds after which threads of OpenMP sleep (those of libgomp, for a few milliseconds)
)
_SLEEPS = (0.1, 1, 5, 50)
_BUSY = (1, 5)  # milliseconds
_LARGE = 8_000_000  # float32, 32 MB: more than a core's caches, and on most machines than all
_SIDE = 700  # of square matrices: a product of some milliseconds


@dataclass(frozen=True)
class Situation:
    """What happens before each call (`gap`), and what goes on beside all of them.

    `beside` is given a conversion that nobody else makes. `paused`: whether a call `PAUSE` seconds
    after the gap belongs to it, too.
    """

    name: str
    gap: Call
    beside: Callable[[Call], AbstractContextManager[Any]] = nullcontext
    paused: bool = False


def all_situations(torch: Any = None) -> list[Situation]:
    """All situations in the order of the table; the last is only there with the module of torch."""
    found = [Situation("back to back", _nothing)]
    found += [Situation(f"{ms} ms of sleep", partial(time.sleep, ms / 1e3)) for ms in _SLEEPS]
    found += [Situation(f"{ms} ms of Python", partial(_python, ms / 1e3)) for ms in _BUSY]
    found += [
        Situation("a copy of 32 MB", _copying(_LARGE)),
        Situation("beside a thread", _nothing, beside=_converting),
    ]
    if torch is not None:
        found.append(Situation("right after torch.mm", _product(torch, _SIDE), paused=True))
    return found


def _nothing() -> None:
    """Back to back."""


def _python(seconds: float) -> int:
    """Keep the interpreter busy."""
    end = time.perf_counter() + seconds
    turns = 0
    while time.perf_counter() < end:
        turns += 1
    return turns


def _copying(count: int) -> Call:
    """A loop bound by memory, which leaves nothing of ours in the caches."""
    source = np.ones(count, np.float32)
    return partial(np.copyto, np.empty_like(source), source)


def _product(torch: Any, side: int) -> Call:
    """An operation of torch on all of its threads, which spin afterwards."""
    left = torch.rand(side, side)
    right = torch.rand(side, side)
    return partial(torch.mm, left, right)


@contextmanager
def _converting(call: Call) -> Iterator[None]:
    """A second Python thread that converts all the time."""
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

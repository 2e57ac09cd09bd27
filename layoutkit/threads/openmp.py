"""Threads of OpenMP that another library has awake in this process.

The threads of PyTorch and others look out for more work for some milliseconds after each operation
(those of libgomp 300,000 times, of libiomp and libomp for 0.2 s), on all CPUs, and beside them a
worker of ours gets half a CPU. So a job that comes at such a moment is given to them: the OpenMP
library that is in the process anyway runs our code on its team.

Which threads these are is found out once, by a team that writes down its names. From then on the
system is asked whether one of them is running, in 3 us, and only then are they used: nothing is
started, woken or waited for that is not awake. How many they are is theirs to say. On Linux, and in
the main thread, since libgomp has a team for each thread and would have to start others; never in a
forked child, where OpenMP hangs.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from ctypes import CFUNCTYPE, c_void_p
from pathlib import Path
from typing import Any

__all__ = ["Company", "libraries"]

_LIBRARY = re.compile(r"(/.*/lib(?:gomp|iomp5|omp)\b[^/\n]*)$", re.MULTILINE)
_MAPS, _TASKS = Path("/proc/self/maps"), Path("/proc/self/task")
_STATE = re.compile(rb"\) (\w)")
# How long to leave a library alone that had no team: to look takes as long as a small conversion.
_PATIENCE = 0.1


class Company:
    """The OpenMP libraries of this process, and the teams that they have for its main thread."""

    def __init__(self) -> None:
        self._modules = 0  # how many there were when the libraries were looked for
        self._teams: dict[str, Team] = {}  # by the path of the library
        self._without: dict[str, float] = {}  # when they were last looked at

    def is_there(self) -> bool:
        """Whether there is such a library, and this is the main thread."""
        if self._modules != len(sys.modules):
            self._modules = len(sys.modules)
            self._without.update(dict.fromkeys(libraries() - self._teams.keys(), 0.0))
        known = self._teams or self._without
        return bool(known) and threading.get_ident() == threading.main_thread().ident

    def team(self, workers: Callable[[], int], *, asleep: bool = False) -> Team | None:
        """The team that is awake (or not, with `asleep`).

        `workers` says how many threads besides Python's are awake and no team's.
        """
        if self._without:
            for path in list(self._without):
                self._look(path, workers, asleep)
        for path, team in list(self._teams.items()):
            state = team.state()
            if state == "R" or (state and asleep):
                return team
            if not state:  # its threads have ended; there may be others
                del self._teams[path]
                self._without[path] = 0.0
        return None

    def _look(self, path: str, workers: Callable[[], int], asleep: bool) -> None:
        """Find the team of a library, if it has one by now; make it have one with `asleep`."""
        now = time.monotonic()
        if now - self._without[path] < _PATIENCE:
            return
        self._without[path] = now
        library = ctypes.CDLL(path)
        if library.omp_get_max_threads() > 1 and (asleep or _running() > workers()):
            names = _names(library)
            if names:
                self._teams[path] = Team(library, names[0])
                del self._without[path]


class Team:
    """The threads that a library has for the main thread, one of which the system calls `name`.

    parallel : int    the address of what runs a function of one pointer on all of them
    """

    def __init__(self, library: Any, name: int) -> None:
        self.parallel = ctypes.cast(library.GOMP_parallel, c_void_p).value or 0
        self._file = os.open(_TASKS / str(name) / "stat", os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)

    def state(self) -> str:
        """ "R" if that one is running, though it was given nothing to do; "" if it has ended."""
        try:
            found = _STATE.search(os.pread(self._file, 64, 0))
        except OSError:
            return ""
        return found[1].decode() if found else ""


def _running() -> int:
    """How many threads of this process are running that are not Python's."""
    known = {thread.native_id for thread in threading.enumerate()}
    count = 0
    for task in _TASKS.iterdir():
        if int(task.name) not in known:
            with suppress(OSError):  # it has ended
                found = _STATE.search((task / "stat").read_bytes())
                count += found is not None and found[1] == b"R"
    return count


def _names(library: Any) -> list[int]:
    """What the system calls the threads of a team, but for the calling one."""
    names: set[int] = set()
    body = CFUNCTYPE(None, c_void_p)(lambda _: names.add(threading.get_native_id()))
    library.GOMP_parallel(body, None, 0, 0)
    return sorted(names - {threading.get_native_id()})


def libraries() -> set[str]:
    """Paths of the OpenMP libraries that this process has loaded."""
    try:
        return set(_LIBRARY.findall(_MAPS.read_text(encoding="utf-8", errors="replace")))
    except OSError:  # not Linux
        return set()

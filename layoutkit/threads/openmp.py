"""Use the awake OpenMP threads of another library, such as PyTorch's, for conversions.

OpenMP threads spin for some milliseconds after each operation (libgomp polls 300,000 times, libiomp
and libomp 0.2 s), on all CPUs, and a worker of ours beside them gets half a CPU. So a job that
comes at such a moment is given to them: the OpenMP library that is already loaded runs our code on
its team.

The thread ids of a team are recorded once, by a function that runs on the team. From then on /proc
tells in 3 us whether one of its threads is running, and only then is the team used: no thread is
started, woken or waited for. The OpenMP library determines the number of threads. Works only on
Linux and in the main thread, because libgomp has one team per calling thread and would have to
start another; never in a forked child, where OpenMP hangs.
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

_LIBRARY = re.compile(r"(/.*/lib(?:gomp|iomp5|omp)\b[^/\n]*)$", re.MULTILINE)
MAPS = Path("/proc/self/maps")
_TASKS = Path("/proc/self/task")
_STATE = re.compile(rb"\) (\w)")
# Seconds between two looks for the team of a library: one takes as long as a small conversion.
_RETRY_SECONDS = 0.1


class OpenMPRuntime:
    """The OpenMP libraries of this process, and their teams for its main thread."""

    def __init__(self) -> None:
        self._num_modules = 0  # len(sys.modules) at the last search for libraries
        self._teams: dict[str, Team] = {}  # by the path of the library
        # Libraries without a known team: the time of the last look for one, by path.
        self._without_team: dict[str, float] = {}

    def is_available(self) -> bool:
        """Return True if an OpenMP library is loaded and this is the main thread."""
        if self._num_modules != len(sys.modules):
            self._num_modules = len(sys.modules)
            self._without_team.update(dict.fromkeys(libraries() - self._teams.keys(), 0.0))
        known = self._teams or self._without_team
        return bool(known) and threading.get_ident() == threading.main_thread().ident

    def team(self, workers: Callable[[], set[int]], *, asleep: bool = False) -> Team | None:
        """Return a team that is awake, or, with `asleep`, any team; None if there is none.

        `workers` returns the native ids of the threads that neither Python nor a team started. The
        id of a thread that has just started is 0: it could be the one that is found running.
        """
        if self._without_team:
            for path in list(self._without_team):
                self._find_team(path, workers, asleep)
        for path, team in list(self._teams.items()):
            state = team.state()
            if state == "R" or (state and asleep):
                return team
            if not state:  # the threads have ended; the library may have started others
                del self._teams[path]
                self._without_team[path] = 0.0
        return None

    def _find_team(self, path: str, workers: Callable[[], set[int]], asleep: bool) -> None:
        """Find the team of a library if it has started one; with `asleep`, let it start one."""
        now = time.monotonic()
        ours = workers()
        if now - self._without_team[path] < _RETRY_SECONDS or not (asleep or all(ours)):
            return
        self._without_team[path] = now
        library = ctypes.CDLL(path)
        if library.omp_get_max_threads() > 1 and (asleep or _is_another_running(ours)):
            thread_ids = _team_thread_ids(library)
            if thread_ids:
                self._teams[path] = Team(library, thread_ids[0])
                del self._without_team[path]


class Team:
    """The threads of an OpenMP library for the main thread; `thread_id` is one of them.

    parallel : int    address of the C function that runs a function of one pointer on all threads
    """

    def __init__(self, library: Any, thread_id: int) -> None:
        self.parallel = ctypes.cast(library.GOMP_parallel, c_void_p).value or 0
        self._file = os.open(_TASKS / str(thread_id) / "stat", os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)

    def state(self) -> str:
        """Return the thread's state: "R" if it is running (spinning), "" if it has ended."""
        try:
            match = _STATE.search(os.pread(self._file, 64, 0))
        except OSError:
            return ""
        return match[1].decode() if match else ""


def _is_another_running(workers: set[int]) -> bool:
    """Return True if a thread is running that is neither Python's nor one of `workers`."""
    known = workers | {thread.native_id for thread in threading.enumerate()}
    for task in _TASKS.iterdir():
        if int(task.name) not in known:
            with suppress(OSError):  # the thread has ended
                match = _STATE.search((task / "stat").read_bytes())
                if match is not None and match[1] == b"R":
                    return True
    return False


def _team_thread_ids(library: Any) -> list[int]:
    """Return the native ids of the threads of a team, except the calling thread's."""
    ids: set[int] = set()
    body = CFUNCTYPE(None, c_void_p)(lambda _: ids.add(threading.get_native_id()))
    library.GOMP_parallel(body, None, 0, 0)
    return sorted(ids - {threading.get_native_id()})


def libraries() -> set[str]:
    """Return the paths of the OpenMP libraries that this process has loaded."""
    try:
        return set(_LIBRARY.findall(MAPS.read_text(encoding="utf-8", errors="replace")))
    except OSError:  # not Linux
        return set()

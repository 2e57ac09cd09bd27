"""The board: the words that callers and workers share (workers.py), and who lays them out.

It is one block of 64-bit words in lines of 64 bytes. Imports no Numba.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .params import LINE

if TYPE_CHECKING:
    from .compiler import LoadedKernel

__all__ = ["Board"]

# The first line: the job.
NEXT, CODE, PARAMS, SRC, DST, TOTAL, GRAIN, TEAM = range(8)
# The second line: more of it, and what was learned from those before.
WAKE_OTHERS, TICKET, CALLER_CPU, SKIP, PENALTY, BUSY, READY = range(8, 15)
# The third line: what is the same for all. Functions are 0 where the system has none.
ACQUIRE, RELEASE, GETCPU, SETCPUS, GETTID, SPIN_TICKS, WAKING = range(16, 23)
# The fourth line: a team of another runtime, what runs it and what it runs.
PARALLEL, JOIN = range(24, 26)
# The next lines: the CPUs that the process may use, as a mask.
CPUS = 32
CPU_WORDS = 16
CPU_BYTES = 128
# From then on, a line for each worker.
FIRST = 6
STATE, ASLEEP, LOCK, NUMBER, NAPS, THREAD, AVOIDED_CPU = range(7)
IDLE, POSTED, TAKEN, DONE = range(4)

WORDS_PER_LINE = LINE // 8
_SYSTEM = {GETCPU: "sched_getcpu", SETCPUS: "sched_setaffinity", GETTID: "gettid"}
_CLOCK_SECONDS = 1e-4
_STACK_BYTES = 256 << 10


class Board:
    """A board with lines for `most` workers, and no worker yet.

    `patience` and `waking` are in seconds; `clock` is the code that says what time it is. The
    memory is never freed, as workers use it until the process ends.
    """

    def __init__(self, most: int, clock: LoadedKernel, patience: float, waking: float) -> None:
        raw = np.zeros((most + FIRST + 1) * WORDS_PER_LINE, np.int64)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(raw))
        skip = -raw.ctypes.data % LINE // 8
        self.words = raw[skip:]
        self.address: int = self.words.ctypes.data
        self.words[ACQUIRE] = _function_address(ctypes.pythonapi, "PyThread_acquire_lock")
        self.words[RELEASE] = _function_address(ctypes.pythonapi, "PyThread_release_lock")
        if hasattr(os, "sched_getaffinity"):  # Linux
            for word, name in _SYSTEM.items():
                self.words[word] = _function_address(ctypes.CDLL(None), name)
            cpus = self.words[CPUS : CPUS + CPU_WORDS].view(np.uint64)
            for cpu in os.sched_getaffinity(0):
                if cpu < 64 * CPU_WORDS:
                    cpus[cpu // 64] |= np.uint64(1 << cpu % 64)
        ticks_per_second = self._ticks_per_second(clock)
        self.words[SPIN_TICKS] = int(patience * ticks_per_second)
        self.words[WAKING] = int(waking * ticks_per_second)

    def line(self, worker: int) -> npt.NDArray[np.int64]:
        """The words of a worker, who count from 1."""
        first = (worker + FIRST - 1) * WORDS_PER_LINE
        return self.words[first : first + WORDS_PER_LINE]

    def awake(self, workers: int) -> int:
        """How many of the first `workers` look for jobs."""
        flags = self.words[FIRST * WORDS_PER_LINE + ASLEEP :: WORDS_PER_LINE]
        return workers - int(flags[:workers].sum())

    def start(self, worker: int, serve: LoadedKernel) -> bool:
        """Start a worker; False where the system has no more threads."""
        python = ctypes.pythonapi
        python.PyThread_allocate_lock.restype = ctypes.c_void_p
        python.PyThread_start_new_thread.restype = ctypes.c_ulong
        lock = python.PyThread_allocate_lock()
        if lock is None:
            return False
        python.PyThread_acquire_lock(ctypes.c_void_p(lock), 1)
        line = self.line(worker)
        line[[LOCK, NUMBER, AVOIDED_CPU]] = lock, worker, -1
        code = ctypes.c_void_p(serve.address)
        argument = ctypes.c_void_p(line.ctypes.data)
        with _sufficient_stack():
            thread = python.PyThread_start_new_thread(code, argument)
        return bool(thread != ctypes.c_ulong(-1).value)

    def _ticks_per_second(self, clock: LoadedKernel) -> float:
        def now() -> int:
            clock.run(None, self.address, None, 0, 0)
            return int(self.words[NEXT])

        start = time.perf_counter()
        first = now()
        while (elapsed := time.perf_counter() - start) < _CLOCK_SECONDS:
            pass
        return max(1.0, (now() - first) / elapsed)


@contextmanager
def _sufficient_stack() -> Iterator[None]:
    """Let a thread that is started now have the stack of a kernel, whatever others shall have."""
    size = threading.stack_size()
    if not 0 < size < _STACK_BYTES:  # 0: what the system gives, which is more
        yield
        return
    threading.stack_size(_STACK_BYTES)
    try:
        yield
    finally:
        threading.stack_size(size)


def _function_address(library: ctypes.CDLL, name: str) -> int:
    """The address of a C function, 0 where the library has none of this name."""
    function = getattr(library, name, None)
    return (ctypes.cast(function, ctypes.c_void_p).value or 0) if function else 0

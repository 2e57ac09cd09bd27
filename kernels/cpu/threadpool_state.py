"""The thread pool's shared memory (the board), and the start of its workers.

The board is one block of 64-bit words in cache lines of 64 bytes, which threadpool.py reads and
writes. Imports no Numba.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..._utils import system
from .params import LINE

if TYPE_CHECKING:
    from .compiler import LoadedKernel

# The first line: the job.
NEXT, CODE, PARAMS, SRC, DST, TOTAL, GRAIN, TEAM = range(8)
# The second line: more of the job, and the history of earlier jobs.
WAKE_OTHERS, TICKET, CALLER_CPU, SKIP, PENALTY, BUSY, READY, LATENCY = range(8, 16)
# The third line: constants. Functions are 0 if the system does not have them.
ACQUIRE, RELEASE, GETCPU, SETCPUS, GETTID, SPIN_TICKS, WAKE_TICKS = range(16, 23)
# The fourth line: the function that starts a team of another runtime, and the function it runs;
# the ticks that jobs without a pause between them have run on the caller alone, and their end.
PARALLEL, JOIN, ALONE, ALONE_UNTIL = range(24, 28)
# The next lines: the CPUs that the process may use, as a mask.
CPUS = 32
CPU_WORDS = 16
CPU_BYTES = 128
# From here on, one line per worker.
FIRST = 6
STATE, ASLEEP, LOCK, NUMBER, SLEEP_COUNT, THREAD, AVOIDED_CPU, WOKEN_AT = range(8)
IDLE, POSTED, TAKEN, DONE = range(4)

WORDS_PER_LINE = LINE // 8
_SYSTEM = {GETCPU: "sched_getcpu", SETCPUS: "sched_setaffinity", GETTID: "gettid"}
_CLOCK_SECONDS = 1e-4
_STACK_BYTES = 256 << 10


class PoolState:
    """A board with lines for up to `most` workers, none of them started.

    `patience` (how long an idle worker spins) and `waking` (the longest time of waking a worker
    that is believed) are in seconds; `clock` is the kernel that reads the clock. The memory is
    never freed, as workers use it until the process ends.
    """

    def __init__(self, most: int, clock: LoadedKernel, patience: float, waking: float) -> None:
        raw = np.zeros((most + FIRST + 1) * WORDS_PER_LINE, np.int64)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(raw))
        skip = -raw.ctypes.data % LINE // 8
        self.words = raw[skip:]
        self.address: int = self.words.ctypes.data
        self.words[ACQUIRE] = _function_address(ctypes.pythonapi, "PyThread_acquire_lock")
        self.words[RELEASE] = _function_address(ctypes.pythonapi, "PyThread_release_lock")
        allowed = system.allowed_cpus()
        if allowed is not None:  # Linux
            for word, name in _SYSTEM.items():
                self.words[word] = _function_address(ctypes.CDLL(None), name)
            cpus = self.words[CPUS : CPUS + CPU_WORDS].view(np.uint64)
            for cpu in allowed:
                if cpu < 64 * CPU_WORDS:
                    cpus[cpu // 64] |= np.uint64(1 << cpu % 64)
        ticks_per_second = self._ticks_per_second(clock)
        self.words[SPIN_TICKS] = int(patience * ticks_per_second)
        self.words[WAKE_TICKS] = int(waking * ticks_per_second)

    def line(self, worker: int) -> npt.NDArray[np.int64]:
        """Return the cache line of a worker as words; workers count from 1."""
        first = (worker + FIRST - 1) * WORDS_PER_LINE
        return self.words[first : first + WORDS_PER_LINE]

    def thread_ids(self, workers: int) -> set[int]:
        """Return the native ids of the first `workers`; 0 stands for one that has just started."""
        ids = self.words[FIRST * WORDS_PER_LINE + THREAD :: WORDS_PER_LINE]
        return set(ids[:workers].tolist())

    def start(self, worker: int, serve: LoadedKernel) -> bool:
        """Start a worker; return False if the system has no more threads."""
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
    """Give threads that are started now a stack large enough for kernels; restore the setting."""
    size = threading.stack_size()
    if not 0 < size < _STACK_BYTES:  # 0: the system's default, which is larger
        yield
        return
    threading.stack_size(_STACK_BYTES)
    try:
        yield
    finally:
        threading.stack_size(size)


def _function_address(library: ctypes.CDLL, name: str) -> int:
    """Return the address of a C function, 0 if the library does not have it."""
    function = getattr(library, name, None)
    return (ctypes.cast(function, ctypes.c_void_p).value or 0) if function else 0

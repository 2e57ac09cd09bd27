"""A small pool of worker threads for kernels.

Kernels are serial functions over a range of work units, called without the GIL. A job is cut
into chunks that the calling thread and the workers draw from one counter; the caller always
works too, and never waits for a thread that has not started. Small jobs are done alone.

- Many Python threads may call at once: one of them gets the workers, the others work alone.
- A worker that finished a job looks out for the next one for `SPIN_SECONDS` and then sleeps.
- In a forked child the pool starts anew, since threads do not survive a fork.

The number of threads is `LAYOUTKIT_NUM_THREADS`, else the first of `OMP_NUM_THREADS`, else one in a
worker process, else the CPUs that affinity and the container's quota allow (`limits.py`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from . import forks
from .checks import as_int
from .errors import ArgumentError
from .limits import MAX_THREADS, default_threads
from .memory import address

__all__ = ["get_num_threads", "set_num_threads"]

# Below this many bytes read and written, a hand-over costs more than the second core saves.
ALONE_BYTES = 128 << 10
# How long a worker looks for another job: longer than the gap between two calls in a loop, in which
# the interpreter runs from cold caches (0.15 ms after a conversion of 100 MB).
SPIN_SECONDS = 5e-4
WORDS_PER_LINE = 8
_ASLEEP = 4  # word of a worker's line


def set_num_threads(n: int) -> None:
    """Let conversions use `n` threads from now on, the calling one included.

    Raises
    ------
    ArgumentError
        `n` is not a whole number from 1 to 256.
    """
    global _threads
    count = as_int(n)
    if count is None or not 1 <= count <= MAX_THREADS:
        raise ArgumentError(
            f"set_num_threads: {n!r} is no number of threads; give a whole number from 1 to "
            f"{MAX_THREADS}"
        )
    _threads = count


def get_num_threads() -> int:
    """The number of threads that a large conversion uses, the calling one included."""
    global _default
    if _threads is not None:
        return _threads
    if _default is None:
        _default = default_threads()[0]
    return _default


def origin_of_threads() -> str:
    """Who says how many threads there are."""
    return "set_num_threads" if _threads is not None else default_threads()[1]


_threads: int | None = None  # what somebody has set
_default: int | None = None  # what is used otherwise, once it is known


class Job:
    """A kernel with its parameter block, cut into `units` that are drawn `grain` at a time."""

    __slots__ = ("_keep", "block", "grain", "kernel", "params", "small", "units")

    def __init__(self, kernel: Any, params: bytes, units: int, grain: int, nbytes: int) -> None:
        self.kernel, self.params, self.units, self.grain = kernel, params, units, grain
        self._keep = np.frombuffer(params, np.uint8)
        self.block = address(self._keep)
        self.small = nbytes < ALONE_BYTES or units <= grain

    def run(self, src: int, dst: int) -> None:
        """Run the job on the arrays that begin at two addresses."""
        if self.small:
            self.kernel.run(self.params, src, dst, 0, self.units)
        else:
            pool.run(self, src, dst)


class Pool:
    """Workers, the board they share with callers, and the lock for the right to post on it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake: list[Any] = []
        self._threads: list[threading.Thread] = []
        self._raw = np.zeros((MAX_THREADS + 2) * WORDS_PER_LINE, np.int64)
        raw = address(self._raw)
        skip = -raw % 64 // 8  # lines of the board are cache lines
        self.board = self._raw[skip : skip + (MAX_THREADS + 1) * WORDS_PER_LINE]
        self.address = raw + 8 * skip
        self._run: Callable[..., None] | None = None
        self._serve: Callable[..., None] | None = None
        self._spins = 0
        self._most = MAX_THREADS - 1  # workers that the system allows, as far as is known

    def run(self, job: Job, src: int, dst: int) -> None:
        """Do all units of a job with as many threads as are free."""
        workers = min(get_num_threads() - 1, (job.units - 1) // job.grain)
        # `with` and a look before instead of an attempt: no interrupt can come between getting
        # the lock and the promise to release it. Who looked in vain waits for one job.
        if workers < 1 or self._lock.locked():
            job.kernel.run(job.params, src, dst, 0, job.units)
            return
        with self._lock:
            self._post(job, src, dst, workers)

    def _post(self, job: Job, src: int, dst: int, workers: int) -> None:
        if len(self._wake) < workers:
            workers = self._start(workers)
        board = self.board
        board[1:7] = (job.kernel.address, job.block, src, dst, job.units, job.grain)
        for w in range(1, workers + 1):
            if board[w * WORDS_PER_LINE + _ASLEEP]:
                self._rouse(w)
        self._run(None, self.address, None, workers, 0)  # type: ignore[misc]

    # -- workers ---------------------------------------------------------------------------

    def _rouse(self, number: int) -> None:
        """Wake a worker, or put another one in the place of one that an exception has ended."""
        thread, lock = self._threads[number - 1], self._wake[number - 1]
        if not thread.is_alive():
            with suppress(RuntimeError):  # no more threads: its chunks are the caller's
                self._threads[number - 1], self._wake[number - 1] = self._begin(number)
        # The worker itself takes the flag down, so that no exception between two steps here can
        # leave it asleep for ever. Until it does, its lock may be free already.
        elif lock.locked():
            _steer(thread)
            lock.release()

    def _start(self, workers: int) -> int:
        """Have `workers` workers, or as many as there can be; return their number."""
        self.load()
        while len(self._wake) < min(workers, self._most):
            try:
                self._add()
            except RuntimeError:  # the system has no more threads, or the interpreter is ending
                self._most = len(self._wake)
        return min(workers, len(self._wake))

    def _add(self) -> None:
        thread, lock = self._begin(len(self._wake) + 1)
        self._threads.append(thread)
        self._wake.append(lock)

    def _begin(self, number: int) -> tuple[threading.Thread, Any]:
        lock = threading.Lock()
        lock.acquire()
        name = f"layoutkit-{number}"
        thread = threading.Thread(target=self._work, args=(number, lock), name=name, daemon=True)
        thread.start()
        return thread, lock

    def load(self) -> None:
        """Load the code of the hand-over, once."""
        if self._run is not None:
            return
        with forks.making:
            from .kernels.cpu.compiler import KernelSpec, load

            self._serve = load(KernelSpec("workers", ("serve",))).run
            self._spins = self._calibrate()
            self._run = load(KernelSpec("workers", ("run",))).run

    def _calibrate(self) -> int:
        """How many looks at an empty line take SPIN_SECONDS on this CPU."""
        looks = 1000
        began = time.perf_counter()
        self._serve(None, self.address, self.address + 64 * MAX_THREADS, looks, 0)  # type: ignore[misc]
        return max(100, int(looks * SPIN_SECONDS / max(time.perf_counter() - began, 1e-7)))

    def _work(self, number: int, lock: Any) -> None:
        asleep = number * WORDS_PER_LINE + _ASLEEP
        serve, line = self._serve, self.address + 64 * number
        cpus = _allowed_cpus()
        try:
            self.board[asleep] = 0  # whose place this is may have left it up
            while True:
                serve(None, self.address, line, self._spins, 0)  # type: ignore[misc]
                lock.acquire()
                self.board[asleep] = 0
                _set_cpus(0, cpus)
        finally:  # only an exception that another thread has raised here
            self.board[asleep] = 1  # so that `_rouse` looks at who does not answer


# ---- which CPU a worker wakes on ---------------------------------------------------------


def _steer(thread: threading.Thread) -> None:
    """Let a sleeping worker wake on another CPU than the caller's.

    Exists because Linux woke it on the caller's own CPU 194 times of 200, though the other one was
    idle, and took 2 to 4 ms to move it: a conversion of 2 ms then ran on one CPU. The worker lifts
    the restriction as soon as it runs.
    """
    others = _allowed_cpus() - {_current_cpu()}
    if others and thread.native_id is not None:
        _set_cpus(thread.native_id, others)


def _allowed_cpus() -> set[int]:
    """CPUs that the calling thread may run on; empty where the system does not tell."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def _set_cpus(thread: int, cpus: set[int]) -> None:
    """Restrict a thread (0: the calling one); a system that refuses leaves it where it is."""
    if cpus:
        with suppress(OSError):
            os.sched_setaffinity(thread, cpus)


@cache
def _cpu_reader() -> Callable[[], int]:
    """The C library's sched_getcpu, or a function that answers -1."""
    import ctypes

    try:
        reader: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
    except (AttributeError, OSError, TypeError):  # not Linux
        return lambda: -1
    return reader


def _current_cpu() -> int:
    return _cpu_reader()()


pool = Pool()


def _after_fork() -> None:
    """The child has no workers, its lock may be held for ever, and it may be one of many."""
    global pool, _default
    pool, _default = Pool(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

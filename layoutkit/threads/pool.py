"""The threads that share a conversion, and the jobs that they are given.

Kernels are serial functions over a range of work units, called without the GIL. A job is cut
into chunks that the calling thread and the workers draw from one counter; the caller always
begins at once, and never waits for a thread that has not started. `kernels/cpu/threadpool.py` is the
hand-over, in machine code; here are the memory that it uses, and the threads.

- Jobs of few bytes are done alone, and keep the GIL.
- Many Python threads may call at once: one of them has the workers, the others work alone.
- Workers never enter the interpreter, so that nothing in it can stop or hold up one of them.
- In a forked child the pool starts anew, since threads do not survive a fork.

How threadpoolctl sees and sets the number of threads, where it is installed.

It looks for pools of threads by the names of shared libraries. layoutkit has none of its own, but
its kernels are linked by that of llvmlite, so that this one is there when there are threads.
"""

from __future__ import annotations

import os
import struct
import threading
from importlib.util import find_spec
from typing import Any

import numpy as np

from .._utils import fork
from ..memory import address
from . import limits
from .limits import MAX_THREADS, get_num_threads, set_num_threads
from .openmp import Company

# Below this many bytes read and written the GIL is kept: beside a thread that runs Python it takes
# 5 ms to get it back.
SHORT_BYTES = 128 << 10
# Below this many, a second thread saves no more than the hand-over to it costs.
ALONE_BYTES = 1 << 20
# From this many on, sleeping workers are woken before the caller has tried how long it takes.
URGENT_BYTES = 32 << 20
# From this many on threads of others that are awake are in the way of ours, and worth a look, which
# takes 3 us, or 30 from cold caches.
LARGE_BYTES = 12 << 20
# How long a worker looks for another job: longer than the gap between two calls in a loop, in which
# the interpreter runs from cold caches (0.15 ms after a conversion of 100 MB).
PATIENCE_SECONDS = 5e-4
# What is left of a job has to take a caller longer than this alone, for it to wake who sleeps.
WAKING_SECONDS = 2.5e-4
HAND_OVER = ("serve", "clock", "lend", "join", "run")  # the kernels that threads are led by


class Job:
    """A kernel with its parameter block, cut into `units` that are drawn `grain` at a time."""

    __slots__ = ("_keep", "alone", "kernel", "nbytes", "params", "threads", "units", "words")

    def __init__(
        self, kernel: Any, params: bytes, units: int, grain: int, nbytes: int,
        threads: int | None = None,
    ) -> None:  # fmt: skip
        self.kernel, self.params, self.units, self.nbytes = kernel, params, units, nbytes
        self.threads = threads
        self._keep = np.frombuffer(params, np.uint8)
        urgent = nbytes >= URGENT_BYTES
        self.words = struct.pack("5q", kernel.address, address(self._keep), units, grain, urgent)
        self.alone = None
        if nbytes < SHORT_BYTES:
            self.alone = _holding(kernel.address)
        elif nbytes < ALONE_BYTES or threads == 1:
            self.alone = kernel.run

    def run(self, src: int, dst: int) -> None:
        """Run the job on the arrays that begin at two addresses."""
        if self.alone is not None:
            self.alone(self.params, src, dst, 0, self.units)
        else:
            pool.run(self, src, dst)


def _holding(code: int) -> Any:
    """The kernel at an address as a function that keeps the GIL."""
    from ..kernels.cpu.compiler import HOLDING

    return HOLDING(code)


class Pool:
    """Workers, and the board they share with callers, one of whom at a time has it."""

    def __init__(self, company: Company | None = None) -> None:
        self._lock = threading.Lock()  # of who starts workers
        self.workers = 0
        self._ready = 0  # the most threads that were asked for, or all where the system has no more
        self._company = company

    def run(self, job: Job, src: int, dst: int) -> None:
        """Do all units of a job with as many threads as are free."""
        count = job.threads or get_num_threads()
        if count > self._ready and not self._start(count):
            job.kernel.run(job.params, src, dst, 0, job.units)
        elif job.nbytes >= LARGE_BYTES and self._has_team():
            self._lend(job.words, src, dst, self._at, count)
        else:
            self._run(job.words, src, dst, self._at, count)

    def _has_team(self) -> bool:
        """Whether threads of OpenMP should do a job, which are then on the board."""
        company, kind = self._company, limits.kind_of_threads
        if company is None or kind == "own" or not company.is_there():
            return False
        team = company.team(lambda: self.board.awake(self.workers), asleep=kind == "openmp")
        if team is not None:
            self.board.words[self._parallel] = team.parallel
        return team is not None

    def _start(self, count: int) -> bool:
        """Start what is missing of `count` threads; False while another call is doing so."""
        # `with` and a look before instead of an attempt: no interrupt can come between getting
        # the lock and the promise to release it.
        if self._lock.locked():
            return False
        with self._lock:
            self.load()
            while self.workers < count - 1:
                if not self.board.start(self.workers + 1, self._serve):
                    count = MAX_THREADS  # those that are there have to do
                    break
                self.workers += 1
                self.board.words[self._started] = self.workers
            self._ready = max(self._ready, count)
        return True

    def load(self) -> None:
        """Load the code of the hand-over and lay out the board, once."""
        if hasattr(self, "_run"):
            return
        with fork.making:
            from ..kernels.cpu.compiler import KernelSpec, load
            from ..kernels.cpu.threadpool_state import JOIN, PARALLEL, READY, Board

            loaded = {part: load(KernelSpec("threadpool", (part,))) for part in HAND_OVER}
            clock, self._serve = loaded["clock"], loaded["serve"]
            self.board = Board(MAX_THREADS - 1, clock, PATIENCE_SECONDS, WAKING_SECONDS)
            self.board.words[JOIN] = loaded["join"].address
            self._parallel, self._started, self._at = PARALLEL, READY, self.board.address
            self._lend, self._run = loaded["lend"].run, loaded["run"].run


pool = Pool(Company())


def _after_fork() -> None:
    """The child has no workers, its board may be in use for ever, and its OpenMP has no threads."""
    global pool
    pool = Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@fork.once
def announce() -> None:
    """Let `threadpoolctl.threadpool_limits` and `threadpool_info` know of this process's threads.

    Called when kernels are there; `threadpool_limits(2)`, and of `user_api="layoutkit"`, are as
    `set_num_threads(2)` from then on, and are undone as they are for other libraries.
    """
    if find_spec("threadpoolctl") is None:
        return
    import threadpoolctl

    threadpoolctl.register(_controller(threadpoolctl.LibController))


def _controller(base: Any) -> Any:
    class LayoutkitController(base):  # type: ignore[misc]  # threadpoolctl has no types
        """The threads of layoutkit, as threadpoolctl speaks of pools."""

        user_api = internal_api = "layoutkit"
        filename_prefixes = ("libllvmlite", "llvmlite")
        check_symbols = ("LLVMPY_GetHostCPUName",)

        def get_num_threads(self) -> int:
            """How many threads a conversion uses."""
            return get_num_threads()

        def set_num_threads(self, num_threads: int) -> None:
            """Bound them."""
            set_num_threads(num_threads)

        def get_version(self) -> str | None:
            """That of layoutkit is not the library's."""
            return None

        def set_additional_attributes(self) -> None:
            """There are none."""

    return LayoutkitController

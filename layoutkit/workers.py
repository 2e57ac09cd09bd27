"""The threads that share a conversion, and the jobs that they are given.

Kernels are serial functions over a range of work units, called without the GIL. A job is cut
into chunks that the calling thread and the workers draw from one counter; the caller always
begins at once, and never waits for a thread that has not started. `kernels/cpu/workers.py` is the
hand-over, in machine code; here are the memory that it uses, and the threads.

- Jobs of few bytes are done alone, and keep the GIL.
- Many Python threads may call at once: one of them gets the workers, the others work alone.
- Workers never enter the interpreter, so that nothing in it can stop or hold up one of them.
- In a forked child the pool starts anew, since threads do not survive a fork.
"""

from __future__ import annotations

import os
import struct
import threading
from typing import Any

import numpy as np

from . import forks, threads
from .limits import MAX_THREADS
from .memory import address
from .openmp import Company, Team
from .threads import get_num_threads

__all__ = ["Job", "pool"]

# Below this many bytes read and written a hand-over costs more than the second core saves, and the
# GIL is kept: beside a thread that runs Python it takes 5 ms to get it back.
ALONE_BYTES = 128 << 10
# From this many on, sleeping workers are woken before the caller has tried how long it takes.
URGENT_BYTES = 32 << 20
# From this many on threads of others that are awake are in the way of ours, and worth a look, which
# takes 3 us, or 30 from cold caches.
LARGE_BYTES = 12 << 20
# How long a worker looks for another job: longer than the gap between two calls in a loop, in which
# the interpreter runs from cold caches (0.15 ms after a conversion of 100 MB).
PATIENCE_SECONDS = 5e-4
# What is left of a job has to take a caller longer than this alone, for it to wake who sleeps.
WAKING_SECONDS = 2e-4
HAND_OVER = ("serve", "clock", "offer", "join", "run")  # the kernels that threads are led by


class Job:
    """A kernel with its parameter block, cut into `units` that are drawn `grain` at a time."""

    __slots__ = ("_keep", "kernel", "nbytes", "params", "short", "units", "words")

    def __init__(self, kernel: Any, params: bytes, units: int, grain: int, nbytes: int) -> None:
        self.kernel, self.params, self.units, self.nbytes = kernel, params, units, nbytes
        self._keep = np.frombuffer(params, np.uint8)
        urgent = nbytes >= URGENT_BYTES
        self.words = struct.pack("5q", kernel.address, address(self._keep), units, grain, urgent)
        self.short = _holding(kernel.address) if nbytes < ALONE_BYTES else None

    def run(self, src: int, dst: int) -> None:
        """Run the job on the arrays that begin at two addresses."""
        if self.short is not None:
            self.short(self.params, src, dst, 0, self.units)
        else:
            pool.run(self, src, dst)


def _holding(code: int) -> Any:
    """The kernel at an address as a function that keeps the GIL."""
    from .kernels.cpu.compiler import HOLDING

    return HOLDING(code)


class Pool:
    """Workers, the board they share with callers, and the lock for the right to post on it."""

    def __init__(self, company: Company | None = None) -> None:
        self._lock = threading.Lock()
        self.workers = 0
        self._most = MAX_THREADS - 1  # workers that the system allows, as far as is known
        self._company = company
        self._run: Any = None

    def run(self, job: Job, src: int, dst: int) -> None:
        """Do all units of a job with as many threads as are free."""
        workers = min(get_num_threads() - 1, job.units - 1)
        # `with` and a look before instead of an attempt: no interrupt can come between getting
        # the lock and the promise to release it. Who looked in vain waits for one job.
        if workers < 1 or self._lock.locked():
            job.kernel.run(job.params, src, dst, 0, job.units)
            return
        with self._lock:
            if self.workers < workers:
                workers = self._start(workers)
            team = self._team() if job.nbytes >= LARGE_BYTES else None
            if team is None:
                self._run(job.words, src, dst, self._at, workers)
            else:
                self._offer(job.words, src, dst, self._at, workers + 1)
                team.run(self._join, self._at)

    def _team(self) -> Team | None:
        """The threads of OpenMP that should do a job, None where our own should."""
        company, kind = self._company, threads.kind_of_threads
        if company is None or kind == "own" or not company.is_there():
            return None
        return company.team(lambda: self.board.awake(self.workers), asleep=kind == "openmp")

    def load(self) -> None:
        """Load the code of the hand-over and lay out the board, once."""
        if self._run is not None:
            return
        with forks.making:
            from .kernels.cpu.board import Board
            from .kernels.cpu.compiler import KernelSpec, load

            loaded = {part: load(KernelSpec("workers", (part,))) for part in HAND_OVER}
            clock, self._serve = loaded["clock"], loaded["serve"]
            self.board = Board(MAX_THREADS - 1, clock, PATIENCE_SECONDS, WAKING_SECONDS)
            self._at = self.board.address
            self._offer, self._join = loaded["offer"].run, loaded["join"].address
            self._run = loaded["run"].run

    def _start(self, workers: int) -> int:
        """Have `workers` workers, or as many as there can be; return their number."""
        self.load()
        while self.workers < min(workers, self._most):
            if self.board.start(self.workers + 1, self._serve):
                self.workers += 1
            else:
                self._most = self.workers
        return min(workers, self.workers)


pool = Pool(Company())


def _after_fork() -> None:
    """The child has no workers, its lock may be held for ever, and its OpenMP waits for threads."""
    global pool
    pool = Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

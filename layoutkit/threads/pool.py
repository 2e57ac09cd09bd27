"""The worker threads of conversions, and their jobs.

Kernels are serial functions over a range of work units, called without the GIL. A job is cut
into chunks that the calling thread and the workers draw from one counter; the caller always
begins at once, and never waits for a thread that has not started. The synchronization is machine
code (`kernels/cpu/threadpool.py`); this module has its memory and starts the threads.

- Jobs of few bytes run on the calling thread, which keeps the GIL.
- Many Python threads may call at once: one of them gets the workers, the others run alone.
- Workers never enter the interpreter, so the interpreter cannot stop or delay them.
- A forked child starts with a new pool, since threads do not survive a fork.

If threadpoolctl is installed, it can read and set the number of threads. It recognizes thread pools
by the names of shared libraries. layoutkit does not have one, but its kernels are linked by
llvmlite's, which is therefore loaded if there are threads.
"""

from __future__ import annotations

import struct
import threading
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from .._utils import fork, system
from ..memory import data_pointer
from ..options import MAX_THREADS
from . import limits
from .limits import get_num_threads, set_num_threads
from .openmp import OpenMPRuntime

# Bytes of a job, read and written. Below this size the GIL is kept: acquiring it from another
# Python thread takes 5 ms.
KEEP_GIL_BYTES = 128 << 10
# Below this size, a second thread saves no more than its synchronization costs.
SERIAL_BYTES = 1 << 20
# From this size on, sleeping workers are woken before the caller has measured its own speed.
URGENT_BYTES = 8 << 20
# From this size on, awake OpenMP threads are looked for, since they slow down our workers. The look
# takes 3 us, or 30 us from cold caches.
LARGE_BYTES = 12 << 20
# The time that a worker spins for another job: longer than the gap between two calls in a loop, in
# which the interpreter runs from cold caches (0.15 ms after a conversion of 100 MB).
SPIN_SECONDS = 5e-4
# The longest time of waking a worker that is believed: longer ones include the time of other
# threads on its CPU. Workers measured 43 to 154 us on an AMD EPYC (2026-11-27). On an Intel Xeon
# (2026-11-22), jobs of less than 0.25 ms took longer with a worker that had to be woken.
WAKING_SECONDS = 1.6e-4
POOL_KERNELS = ("serve", "clock", "lend", "join", "run")


class Job:
    """A kernel with its parameter block, cut into `units` that are drawn `grain` at a time."""

    __slots__ = (
        "_keep",
        "keeps_gil",
        "kernel",
        "nbytes",
        "params",
        "params_address",
        "run_serial",
        "threads",
        "units",
        "words",
    )

    def __init__(
        self,
        kernel: Any,
        params: bytes,
        units: int,
        grain: int,
        nbytes: int,
        threads: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.params = params
        self.units = units
        self.nbytes = nbytes
        self.threads = threads
        self._keep = np.frombuffer(params, np.uint8)
        self.params_address = data_pointer(self._keep)
        urgent = nbytes >= URGENT_BYTES
        self.words = struct.pack("5q", kernel.address, self.params_address, units, grain, urgent)
        self.run_serial = None
        self.keeps_gil = nbytes < KEEP_GIL_BYTES
        if self.keeps_gil:
            self.run_serial = _gil_holding(kernel.address)
        elif nbytes < SERIAL_BYTES or threads == 1:
            self.run_serial = kernel.run

    def run(self, src: int, dst: int) -> None:
        """Run the job on the arrays that begin at two addresses."""
        if self.run_serial is not None:
            self.run_serial(self.params, src, dst, 0, self.units)
        else:
            pool.run(self, src, dst)

    @property
    def has_entry(self) -> bool:
        """True if machine code can run the job; large jobs look for OpenMP threads in Python."""
        return self.run_serial is not None or self.nbytes < LARGE_BYTES

    def entry(self) -> tuple[int, int, int, int]:
        """Return code, parameters, first and end: `code(parameters, src, dst, first, end)`.

        The entry of a job of several threads is valid for the team that `current_team` returns.
        """
        if self.run_serial is not None:
            return self.kernel.address, self.params_address, 0, self.units
        count = self.threads or get_num_threads()
        code, state = pool.entry(count)
        return code, data_pointer(np.frombuffer(self.words, np.uint8)), state, count


@cache
def _gil_holding(code: int) -> Any:
    from ..kernels.cpu.compiler import PROTOTYPE_WITH_GIL

    return PROTOTYPE_WITH_GIL(code)


class Pool:
    """The worker threads and the state they share with callers; one caller at a time uses it."""

    def __init__(self, openmp: OpenMPRuntime | None = None) -> None:
        self.start_lock = threading.Lock()  # held while workers are started
        self.workers = 0
        # The largest requested number of threads, or MAX_THREADS if the system allows no more.
        self._ready = 0
        self._openmp = openmp

    def run(self, job: Job, src: int, dst: int) -> None:
        """Run all units of a job with as many threads as are free."""
        count = job.threads or get_num_threads()
        if count > self._ready and not self.start_workers(count):
            job.kernel.run(job.params, src, dst, 0, job.units)
        elif job.nbytes >= LARGE_BYTES and self._has_team():
            self._lend(job.words, src, dst, self.state_address, count)
        else:
            self._run(job.words, src, dst, self.state_address, count)

    def entry(self, count: int) -> tuple[int, int]:
        """Start workers; return the addresses of the code that runs jobs and of the state it needs.

        Machine code calls it as `code(job.words, src, dst, state, count)`.
        """
        self.load()  # another thread that starts workers may not have loaded them yet
        if count > self._ready:
            self.start_workers(count)
        return self._run_address, self.state_address

    def _has_team(self) -> bool:
        """Return True if OpenMP threads should run a job, and store their team in the state."""
        openmp = self._openmp
        layer = limits.threading_layer
        if openmp is None or layer == "own" or not openmp.is_available():
            return False
        team = openmp.team(lambda: self.state.thread_ids(self.workers), asleep=layer == "openmp")
        if team is not None:
            self.state.words[self._parallel_index] = team.parallel
        return team is not None

    def start_workers(self, count: int) -> bool:
        """Start missing workers for `count` threads; return False if another call is doing so."""
        # `locked()` and `with` instead of `acquire(blocking=False)`: no interrupt can come between
        # taking the lock and entering the block that releases it.
        if self.start_lock.locked():
            return False
        with self.start_lock:
            self.load()
            while self.workers < count - 1:
                if not self.state.start(self.workers + 1, self._serve):
                    count = MAX_THREADS  # the system allows no more: do not try again
                    break
                self.workers += 1
                self.state.words[self._started_index] = self.workers
            self._ready = max(self._ready, count)
        return True

    def load(self) -> None:
        """Load the pool's machine code and create its shared state, once."""
        if hasattr(self, "_run"):
            return
        with fork.init_lock:
            if hasattr(self, "_run"):  # another thread has loaded it, and workers use its state
                return
            from ..kernels.cpu.compiler import KernelSpec, load
            from ..kernels.cpu.threadpool_state import JOIN, PARALLEL, READY, PoolState

            loaded = {part: load(KernelSpec("threadpool", (part,))) for part in POOL_KERNELS}
            self._serve = loaded["serve"]
            self.state = PoolState(MAX_THREADS - 1, loaded["clock"], SPIN_SECONDS, WAKING_SECONDS)
            self.state.words[JOIN] = loaded["join"].address
            self._parallel_index = PARALLEL
            self._started_index = READY
            self.state_address = self.state.address
            self._lend = loaded["lend"].run
            self._run_address = loaded["run"].address
            self._run = loaded["run"].run


pool = Pool(OpenMPRuntime())


def current_team() -> tuple[Pool, int]:
    """Return the pool of this process, which a fork replaces, and the number of threads."""
    return pool, get_num_threads()


def _after_fork() -> None:
    """Replace the pool in a forked child.

    The child has no workers, the shared state may be marked as in use for ever, and OpenMP has no
    threads there.
    """
    global pool
    pool = Pool()


system.register_at_fork(after_in_child=_after_fork)


@fork.run_once
def register_threadpoolctl() -> None:
    """Register the number of threads with threadpoolctl, if it is installed.

    Called after kernels are loaded. From then on `threadpool_limits(2)`, also with
    `user_api="layoutkit"`, acts as `set_num_threads(2)` and is undone as for other libraries.
    """
    if find_spec("threadpoolctl") is None:
        return
    import threadpoolctl

    threadpoolctl.register(_controller(threadpoolctl.LibController))


def _controller(base: Any) -> Any:
    class LayoutkitController(base):
        """The thread pool of layoutkit for threadpoolctl."""

        user_api = internal_api = "layoutkit"
        filename_prefixes = ("libllvmlite", "llvmlite")
        check_symbols = ("LLVMPY_GetHostCPUName",)

        def get_num_threads(self) -> int:
            return get_num_threads()

        def set_num_threads(self, num_threads: int) -> None:
            set_num_threads(num_threads)

        def get_version(self) -> str | None:
            """Return None: the version of the shared library is not layoutkit's."""
            return None

        def set_additional_attributes(self) -> None:
            """Do nothing: the pool does not have additional attributes."""

    return LayoutkitController

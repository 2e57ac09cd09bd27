"""Threads that read and process records, one chunk at a time.

Workers process chunks of the oldest pending batch that has records left. The chunk size follows
the measured time per record: a chunk takes about `_CHUNK_SECONDS`, so cheap records share the cost
of a hand-over (about 20 us) and expensive ones are spread over all threads.

Records that take a few microseconds are mostly Python code, and threads that share such work
contend for the GIL at every read: two threads read 157,000 records a second where one read
303,000. So only one worker processes chunks until records are known to take longer.

Timeouts are enforced by the consumer thread, the only one that a slow record delays. It gives up
on the record, replaces the worker by a new thread, and returns the worker's remaining records to
the batch. The old thread cannot be stopped; it is a daemon, and ends when its call returns.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from time import monotonic, perf_counter
from typing import Any

from ...errors import DataError
from .pending import Pending

_CHUNK_SECONDS = 2e-3
_CHEAP_SECONDS = 1e-5  # time per record below which several threads are no faster than one
_EXPENSIVE_SECONDS = 1e-3  # time per record above which all workers start at once
_WARMUP_CHUNKS = 8  # chunks, small ones at first, before the average is trusted
# Maximum seconds that `close` waits for running calls: a longer call may never end. With a timeout,
# it waits at most for the timeout and some slack.
_CLOSE_SECONDS = 5.0
_CLOSE_SLACK = 1.0
_MAX_WAIT = 3600.0  # operating systems limit the seconds of one wait


class Worker:
    """One thread of the pool, and the chunk it works on."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.assignment: tuple[Any, Any] | None = None
        self.replaced = False
        self.thread: threading.Thread | None = None


class CostEstimate:
    """The measured time per record while only one worker processes chunks."""

    def __init__(self) -> None:
        self._chunks = 0
        self._average = 0.0

    def is_expensive(self, seconds: float) -> bool:
        """Add a chunk at `seconds` per record; return True if more threads would be faster."""
        self._chunks += 1
        if self._chunks == 1:  # the first chunk also opens files and touches memory
            return False
        first = self._chunks == 2
        self._average = seconds if first else (7 * self._average + seconds) / 8
        return seconds > _EXPENSIVE_SECONDS or (
            self._chunks > _WARMUP_CHUNKS and self._average > _CHEAP_SECONDS
        )


class WorkerPool:
    """Threads named `layoutkit-data-*` that process pending batches from `begin` to `close`.

    Parameters
    ----------
    size : int
        The number of threads.
    timeout : float, optional
        The seconds that a record may take.
    chunk_seconds : float, optional
        The target duration of a chunk, if records are known to be expensive: then all workers
        process chunks from the start.
    """

    def __init__(
        self, size: int, timeout: float | None, chunk_seconds: float | None = None
    ) -> None:
        self.process = os.getpid()  # threads do not survive a fork
        self._timeout = timeout
        # Re-entrant: garbage collection of a Batcher may call `end` at any moment.
        self._lock = threading.RLock()
        self._work_available = threading.Condition(self._lock)
        self._batch_ready = threading.Condition(self._lock)
        self._pending: deque[Pending] = deque()
        self._closed = False
        self._always_parallel = chunk_seconds is not None
        self._chunk_seconds = chunk_seconds or _CHUNK_SECONDS
        self._record_seconds = self._chunk_seconds  # estimated time per record
        # None: all workers process chunks.
        self._estimate = None if self._always_parallel else CostEstimate()
        self._workers = [Worker(number) for number in range(size)]
        self._is_started = False

    @property
    def is_running(self) -> bool:
        """True if the threads run in this process."""
        return self._is_started and not self._closed and self.process == os.getpid()

    def begin(self) -> None:
        """Start all threads; if one cannot start, end the others and raise DataError."""
        try:
            for worker in self._workers:
                self._start(worker)
            self._is_started = True
        except RuntimeError as error:
            self.end()
            raise DataError(
                f"the system cannot start {len(self._workers)} "
                f"threads ({error}); give a smaller num_workers"
            ) from error
        except BaseException:  # Ctrl-C would leave the started threads waiting forever
            self.end()
            raise

    def submit(self, pending: Pending) -> None:
        """Queue a batch for the workers."""
        with self._lock:
            if (
                not self._always_parallel
                and not self._pending
                and not self._is_other_worker_busy(None)
            ):
                self._estimate = CostEstimate()
            active = [other for other in self._pending if not other.cancelled]
            self._pending = deque([*active, pending])
            self._work_available.notify_all()

    def wait(self, pending: Pending) -> None:
        """Wait until a batch is ready; raise DataError if the pool is closed meanwhile."""
        while True:
            with self._lock:
                if self._closed:
                    raise DataError("this Batcher was closed while waiting for a batch")
                if pending.ready:
                    return
                pending.is_awaited = True
                complete_batches = self._replace_late_workers()
                if pending.is_complete:
                    pending.is_complete = False
                    complete_batches.append(pending)
                if not complete_batches:
                    self._batch_ready.wait(self._wait_seconds())
            for pending_batch in complete_batches:
                self._finalize(pending_batch)

    def check_process(self) -> None:
        """Raise DataError in a forked process, which does not have the threads."""
        if os.getpid() != self.process:
            raise DataError(
                "this loop began in another process, whose threads do not exist here; begin a "
                "new loop after a fork"
            )

    def end(self) -> None:
        """Let all threads end after their current record."""
        # After a fork, the threads do not exist, and one of them may have held the lock.
        if os.getpid() != self.process:
            return
        with self._lock:
            self._closed = True
            for worker in self._workers:
                if worker.assignment is not None:
                    worker.assignment[1].stopped = True
            self._work_available.notify_all()
            self._batch_ready.notify_all()

    def close(self) -> None:
        """End the threads and wait for them, except for calls that do not return in time."""
        self.end()
        if os.getpid() != self.process:
            return
        deadline = monotonic() + min(
            _CLOSE_SECONDS, (self._timeout or _CLOSE_SECONDS) + _CLOSE_SLACK
        )
        for worker in self._workers:
            if worker.thread is not None and worker.thread is not threading.current_thread():
                worker.thread.join(max(0.0, deadline - monotonic()))

    def _start(self, worker: Worker) -> None:
        name = f"layoutkit-data-{worker.number}"
        worker.thread = threading.Thread(target=self._serve, args=(worker,), name=name, daemon=True)
        worker.thread.start()

    def _serve(self, worker: Worker) -> None:
        """Process chunks until the pool is closed: the thread's main function."""
        while (assignment := self._next_chunk(worker)) is not None:
            pending, chunk = assignment
            start = perf_counter()
            error = _run_catching(chunk)
            seconds = perf_counter() - start
            with self._lock:
                self._update_cost(chunk, seconds)
                worker.assignment = None
                if worker.replaced or self._closed:
                    return
                pending.error = pending.error or error
                complete = pending.commit(chunk)
                if complete and pending.is_awaited:
                    # The consumer makes it, while this thread reads records of the next batch.
                    pending.is_complete = True
                    complete = False
                    self._batch_ready.notify_all()
            if complete:
                self._finalize(pending)
            del chunk, pending, assignment, error  # release their memory while this thread waits

    def _next_chunk(self, worker: Worker) -> tuple[Any, Any] | None:
        with self._lock:
            while True:
                while self._pending and self._pending[0].cancelled:
                    self._pending.popleft()
                if self._closed or worker.replaced:
                    return None
                if self._pending and (
                    self._estimate is None or not self._is_other_worker_busy(worker)
                ):
                    break
                self._work_available.wait()
            pending = self._pending[0]
            records = self._chunk_seconds / self._record_seconds
            if self._always_parallel:  # every thread gets a part of a small batch
                records = min(records, pending.num_taken / len(self._workers))
            worker.assignment = pending, pending.take_chunk(max(1, int(records)))
            if pending.is_fully_drawn:  # from now on `finalize` changes it without the lock
                self._pending.popleft()
            return worker.assignment

    def _update_cost(self, chunk: Any, seconds: float) -> None:
        latest = max(1e-7, seconds / chunk.count)
        self._record_seconds = (self._record_seconds + latest) / 2
        if self._estimate is not None and self._estimate.is_expensive(latest):
            self._estimate = None
            self._work_available.notify_all()

    def _is_other_worker_busy(self, worker: Worker | None) -> bool:
        return any(other.assignment is not None for other in self._workers if other is not worker)

    def _finalize(self, pending: Pending) -> None:
        """Finalize a batch, or queue it again if it needs more records."""
        complete = pending.finalize()
        with self._lock:
            if complete:
                pending.ready = True
                self._batch_ready.notify_all()
            elif not self._closed:
                self._pending.appendleft(pending)
                self._work_available.notify_all()
        if complete and pending.on_ready is not None:
            pending.on_ready()

    def _wait_seconds(self) -> float | None:
        """Return the seconds until a worker may exceed the timeout."""
        if self._timeout is None:
            return None
        starts = [start for worker in self._workers if (start := _record_start(worker)) is not None]
        remaining = min(starts, default=perf_counter()) + self._timeout - perf_counter()
        return min(max(0.001, remaining), _MAX_WAIT)

    def _replace_late_workers(self) -> list[Pending]:
        """Replace workers that exceed the timeout; return batches whose rounds this completes."""
        complete_batches: list[Pending] = []
        if self._timeout is None:
            return complete_batches
        now = perf_counter()
        for i, worker in enumerate(self._workers):
            start = _record_start(worker)
            if start is None or worker.assignment is None or now - start <= self._timeout:
                continue
            pending, chunk = worker.assignment
            chunk.stopped = True  # the worker does not begin another record of it
            if chunk.current is None:  # the worker has just finished it, and will commit it
                continue
            row, start = chunk.current  # may be the next record, which is not late
            worker.replaced = True
            self._workers[i] = Worker(worker.number)
            self._start(self._workers[i])
            if pending.requeue_remaining(chunk, row, now - start > self._timeout):
                complete_batches.append(pending)
            elif not pending.is_fully_drawn and pending not in self._pending:
                self._pending.appendleft(pending)
        self._work_available.notify_all()
        return complete_batches


def _record_start(worker: Worker) -> float | None:
    """Return the start time of a worker's current record; None if it is idle."""
    assignment = worker.assignment
    current = None if assignment is None else assignment[1].current
    return None if current is None else current[1]


def wait_or_run(pending: Pending, pool: WorkerPool | None) -> None:
    """Wait for the pool, or process the batch in this thread; raise the error of the batch."""
    if pool is not None:
        pool.wait(pending)
    while pool is None and not pending.ready:
        while not pending.is_fully_drawn:
            chunk = pending.take_chunk(sys.maxsize)
            chunk.run()
            pending.commit(chunk)
        pending.ready = pending.finalize()
    if pending.error is not None:
        raise pending.error


def _run_catching(chunk: Any) -> BaseException | None:
    """Run a chunk; return an exception, such as SystemExit, that user code raised."""
    try:
        chunk.run()
    except BaseException as error:
        return error
    return None

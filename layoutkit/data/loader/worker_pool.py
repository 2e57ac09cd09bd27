"""Threads that get and process records, a chunk at a time.

Workers draw from the oldest batch under way that has records left. How many at once they decide
by the clock: a chunk takes about `_CHUNK_SECONDS`, so that cheap records share the cost of a
hand-over (some 20 us) and dear ones are spread over all threads.

Records that take a few microseconds are Python's work and not the system's, and threads that share
such work pass the interpreter's lock to and fro with every read: two got 157,000 records a second
where one got 303,000. So one worker draws at a time until records are known to take longer.

Nobody watches the clock but the thread that waits for a batch: it alone suffers from a record
that takes too long. It gives up on the record, puts another thread in its worker's place, and lets
others draw what the worker had left. The thread itself cannot be stopped; it is a daemon, and ends
when its call does.

Knows drafts as work to draw and to settle; what a record is, is not known here.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from time import monotonic, perf_counter

from ...errors import DataError
from .chunk import Chunk
from .pending import Draft

__all__ = ["Crew", "finish"]

_CHUNK_SECONDS = 2e-3
_CHEAP = 1e-5  # seconds of a record that threads gain nothing by sharing,
_DEAR = 1e-3  # and of one that needs no second look
_LOOKS = 8  # chunks, small ones at first, that an average is not trusted for
# How long `close` waits for calls under way: what takes longer may never end. One that has a limit
# is waited for until then, but may be a little late.
_PATIENCE, _SLACK = 5.0, 1.0
_LONGEST_WAIT = 3600.0  # seconds until a clock is looked at again; no system takes any number


class Worker:
    """One thread's place in the crew."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.drawn: tuple[Draft, Chunk] | None = None
        self.replaced = False
        self.thread: threading.Thread | None = None


class Pace:
    """What records take while one worker draws them."""

    def __init__(self) -> None:
        self._chunks, self._average = 0, 0.0

    def is_dear(self, seconds: float) -> bool:
        """Whether records are worth several threads, after another chunk at `seconds` each."""
        self._chunks += 1
        if self._chunks == 1:  # files are opened, memory is touched
            return False
        first = self._chunks == 2
        self._average = seconds if first else (7 * self._average + seconds) / 8
        return seconds > _DEAR or (self._chunks > _LOOKS and self._average > _CHEAP)


class Crew:
    """So many threads, named `layoutkit-data-*`, that work on drafts from `begin` to `close`.

    Parameters
    ----------
    size : int
        How many threads.
    timeout : float, optional
        Seconds that a record may take.
    chunk_seconds : float, optional
        What a chunk is to take, of records of which it is known that each is worth a thread: all
        workers draw from the first one on.
    """

    def __init__(
        self, size: int, timeout: float | None, chunk_seconds: float | None = None
    ) -> None:
        self.process = os.getpid()  # threads do not survive a fork
        self._timeout = timeout
        # Re-entrant, as a Batcher that nobody holds may be found, and `end` called, at any moment.
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)
        self._done = threading.Condition(self._lock)
        self._drafts: deque[Draft] = deque()
        self._closed = False
        self._dear = chunk_seconds is not None
        self._chunk = chunk_seconds or _CHUNK_SECONDS
        self._seconds = self._chunk  # that a record takes, as far as is known
        self._pace = None if self._dear else Pace()  # None: all workers draw at once
        self._workers = [Worker(number) for number in range(size)]
        self._begun = False

    @property
    def serves(self) -> bool:
        """Whether all threads are at work, in this process."""
        return self._begun and not self._closed and self.process == os.getpid()

    def begin(self) -> None:
        """Start the threads, all or none; whoever holds the crew by then can end them."""
        try:
            for worker in self._workers:
                self._start(worker)
            self._begun = True
        except RuntimeError as error:
            self.end()
            raise DataError(
                f"the system starts no {len(self._workers)} threads ({error}); give a smaller "
                "num_workers"
            ) from error
        except BaseException:  # Ctrl-C, which would leave them waiting for ever
            self.end()
            raise

    def submit(self, draft: Draft) -> None:
        """Let the workers draw from a draft, after those that came before."""
        with self._lock:
            if not self._dear and not self._drafts and not self._others_work(None):
                self._pace = Pace()
            live = [other for other in self._drafts if not other.cancelled]
            self._drafts = deque([*live, draft])
            self._work.notify_all()

    def wait(self, draft: Draft) -> None:
        """Wait until a draft is ready; DataError if the crew is closed before."""
        while True:
            with self._lock:
                if self._closed:
                    raise DataError("this Batcher was closed while a batch was waited for")
                if draft.ready:
                    return
                late = self._give_up_late()
                if not late:
                    self._done.wait(self._next_look())
            for each in late:
                self._settle(each)

    def check_process(self) -> None:
        """DataError in a process that was forked from the one with the threads."""
        if os.getpid() != self.process:
            raise DataError(
                "this loop began in another process, whose threads are not in this one; begin a "
                "new loop after a fork"
            )

    def end(self) -> None:
        """Let all threads end after the record that they are at."""
        if os.getpid() != self.process:  # no thread is here, and one of them may have the lock
            return
        with self._lock:
            self._closed = True
            for worker in self._workers:
                if worker.drawn is not None:
                    worker.drawn[1].stopped = True
            self._work.notify_all()
            self._done.notify_all()

    def close(self) -> None:
        """End the threads and wait for them, though not for calls that do not return."""
        self.end()
        if os.getpid() != self.process:
            return
        deadline = monotonic() + min(_PATIENCE, (self._timeout or _PATIENCE) + _SLACK)
        for worker in self._workers:
            if worker.thread is not None and worker.thread is not threading.current_thread():
                worker.thread.join(max(0.0, deadline - monotonic()))

    def _start(self, worker: Worker) -> None:
        name = f"layoutkit-data-{worker.number}"
        worker.thread = threading.Thread(target=self._serve, args=(worker,), name=name, daemon=True)
        worker.thread.start()

    def _serve(self, worker: Worker) -> None:
        """What a thread does until it ends."""
        while (drawn := self._draw(worker)) is not None:
            draft, chunk = drawn
            began = perf_counter()
            error = _outcome(chunk)
            seconds = perf_counter() - began
            with self._lock:
                self._learn(chunk, seconds)
                worker.drawn = None
                if worker.replaced or self._closed:
                    return
                draft.error = draft.error or error
                complete = draft.commit(chunk)
            if complete:
                self._settle(draft)
            del chunk, draft, drawn, error  # else their memory would be held while this waits

    def _draw(self, worker: Worker) -> tuple[Draft, Chunk] | None:
        with self._lock:
            while True:
                while self._drafts and self._drafts[0].cancelled:
                    self._drafts.popleft()
                if self._closed or worker.replaced:
                    return None
                if self._drafts and (self._pace is None or not self._others_work(worker)):
                    break
                self._work.wait()
            draft = self._drafts[0]
            worker.drawn = draft, draft.draw(max(1, int(self._chunk / self._seconds)))
            if draft.drawn:  # from now on it is changed without the lock, when its round is over
                self._drafts.popleft()
            return worker.drawn

    def _learn(self, chunk: Chunk, seconds: float) -> None:
        """Correct what a record is known to take."""
        latest = max(1e-7, seconds / chunk.count)
        self._seconds = (self._seconds + latest) / 2
        if self._pace is not None and self._pace.is_dear(latest):
            self._pace = None
            self._work.notify_all()

    def _others_work(self, worker: Worker | None) -> bool:
        return any(other.drawn is not None for other in self._workers if other is not worker)

    def _settle(self, draft: Draft) -> None:
        """Complete a draft, or let the workers draw what it needs to be complete."""
        complete = draft.settle()
        with self._lock:
            if complete:
                draft.ready = True
                self._done.notify_all()
            elif not self._closed:
                self._drafts.appendleft(draft)
                self._work.notify_all()
        if complete and draft.after is not None:
            draft.after()

    def _next_look(self) -> float | None:
        """Seconds until a worker may be late."""
        if self._timeout is None:
            return None
        began = [moment for worker in self._workers if (moment := _began(worker)) is not None]
        left = min(began, default=perf_counter()) + self._timeout - perf_counter()
        return min(max(0.001, left), _LONGEST_WAIT)

    def _give_up_late(self) -> list[Draft]:
        """Replace the workers that are late; return the drafts for which nothing is left to do."""
        complete: list[Draft] = []
        if self._timeout is None:
            return complete
        now = perf_counter()
        for place, worker in enumerate(self._workers):
            began = _began(worker)
            if began is None or worker.drawn is None or now - began <= self._timeout:
                continue
            draft, chunk = worker.drawn
            chunk.stopped = True  # it begins no other record from now on
            if chunk.under_way is None:  # it came to its end just now, and is about to say so
                continue
            row, began = chunk.under_way  # which may be a later record that is not late
            worker.replaced = True
            self._workers[place] = Worker(worker.number)
            self._start(self._workers[place])
            if draft.salvage(chunk, row, now - began > self._timeout):
                complete.append(draft)
            elif not draft.drawn and draft not in self._drafts:
                self._drafts.appendleft(draft)
        self._work.notify_all()
        return complete


def _began(worker: Worker) -> float | None:
    """When a worker began with the record that it is at; None where it is at none."""
    drawn = worker.drawn
    under_way = None if drawn is None else drawn[1].under_way
    return None if under_way is None else under_way[1]


def finish(draft: Draft, crew: Crew | None) -> None:
    """Wait for a draft that a crew has, or do all of it in this thread; raise what ended it."""
    if crew is not None:
        crew.wait(draft)
    while crew is None and not draft.ready:
        while not draft.drawn:
            chunk = draft.draw(len(draft.numbers[-1]))
            chunk.run()
            draft.commit(chunk)
        draft.ready = draft.settle()
    if draft.error is not None:
        raise draft.error


def _outcome(chunk: Chunk) -> BaseException | None:
    """Run a chunk; what user's code raised to end the thread, such as SystemExit, is returned."""
    try:
        chunk.run()
    except BaseException as error:
        return error
    return None

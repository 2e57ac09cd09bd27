"""`BatchLoop`: epochs of batches, with states, threads and a progress bar.

Subclasses make the batches: `Batcher`, the providers and `Dataset.iterator`.
"""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from time import perf_counter
from typing import Any, Self, TypeVar

from ...errors import DataError
from ..io.reader import Reader
from ..iteration import EpochIterator, Epochs
from .batch import LoaderStats
from .config import LoaderConfig
from .dropped import Dropped, all_failed_error, log_dropped
from .epoch_pass import EpochPass, Position
from .worker_pool import WorkerPool

B = TypeVar("B")


class BatchLoop(Epochs[B]):
    """An iterable over the batches of a LoaderConfig.

    A subclass makes batches of pending ones, and says what a state contains. Threads start with the
    first loop and end with `close()`, or the `with` block.
    """

    _position: Position
    _yields_empty = True  # also yield batches that lost all records

    def __init__(self, config: LoaderConfig, epoch: int) -> None:
        super().__init__(epoch, Position())
        self._config = config
        self._pool: WorkerPool | None = None
        self._closed = False
        self._stats = LoaderStats(threads=config.num_workers)
        weakref.finalize(self, Reader.close, config.reader)

    @property
    def dropped(self) -> int:
        """The number of records dropped so far in the epoch of the latest loop."""
        return self._position.dropped

    def reset(self) -> None:
        """Go back to the start of this epoch; this ends the current loop."""
        self._seek(self._epoch, self._start())

    def close(self) -> None:
        """End the threads, wait for them, and end all loops for good.

        A call that does not return cannot be stopped: `close` waits a few seconds for its thread,
        which ends when the call returns.
        """
        self._closed = True
        self._config.reader.close()
        if self._pool is not None:
            self._pool.end()
        self._seek(self._epoch, self._position)
        if self._pool is not None:
            self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> EpochIterator[B]:
        if self._closed:
            raise DataError(f"this {type(self).__name__} is closed; make a new one")
        return super().__iter__()

    @abstractmethod
    def _split(self, pending: Any) -> Sequence[tuple[Any, int]]:
        """Return the batches, with their end positions, of a complete pending batch."""

    def _item(self, batch: Any) -> B:
        """Return the item that the loop yields for a batch."""
        return batch

    def _records(self) -> int:
        return int(self._config.sources[0].sampler.plan.count)

    def _start(self) -> Position:
        """Return the start of an epoch; dropped records are counted until its loop starts."""
        return Position(dropped=self._position.dropped, run=self._position.run)

    def _place(self, position: Position) -> int:
        return position.place

    def _take(self, epoch: int, place: int, state: Mapping[str, Any]) -> Position:
        return Position(place)

    def _steps(
        self, epoch: int, position: Position
    ) -> Generator[tuple[B, Position], None, Position]:
        position = position.at_start()
        stats = self._stats = LoaderStats(threads=self._config.num_workers)
        began = resumed = perf_counter()
        run = self._begin_pass(epoch, position)
        with run, _progress_bar(self._config, run.size, position.place) as bar:
            for batch, end in _checked_batches(run, self._split, from_start=not position.place):
                before, position = position, position.advance(batch, end, run.orders[0], run.run)
                # Interruptible calls come first: until the yield, the state excludes this batch.
                if batch.dropped:
                    log_dropped(batch.dropped)
                if bar is not None:
                    bar.update(position.place - before.place)
                    bar.set_postfix(dropped=position.dropped, refresh=False)
                ready = perf_counter()
                stats.add(batch.count, batch.stats, ready - resumed)
                stats.elapsed = ready - began
                if batch.count or self._yields_empty:
                    yield self._item(batch), position
                del batch  # the next batch may then use its memory
                resumed = perf_counter()
                stats.consumer += resumed - ready
                stats.elapsed = resumed - began
            log_dropped(run.dropped_at_end)
        return Position(dropped=position.dropped + len(run.dropped_at_end), run=run.run)

    def _begin_pass(self, epoch: int, position: Position) -> EpochPass:
        return EpochPass(self._config, self._worker_pool(), epoch, position)

    def _worker_pool(self) -> WorkerPool | None:
        """Return the running pool, starting it if necessary; None with num_workers=0."""
        config = self._config
        if config.num_workers == 0:
            return None
        if self._pool is None or not self._pool.is_running:
            pool = WorkerPool(config.num_workers, config.pipeline.timeout, config.chunk_seconds)
            weakref.finalize(self, WorkerPool.end, pool)
            self._pool = pool
            pool.begin()
        return self._pool


_MAX_LOST = 16  # failures from the first record on that mean a wrong configuration


def _checked_batches(
    run: EpochPass, split: Callable[[Any], Sequence[tuple[Any, int]]], from_start: bool
) -> Iterator[tuple[Any, int]]:
    """Yield batches and their end positions; raise DataError if all records fail.

    `split` returns the batches of a pending batch of the pass. From an epoch's start, batches
    without rows are held back until one has rows. If none has, after complete batches of 16 records
    or at the epoch's end, raise DataError: the configuration is wrong. Records that a processor
    refused were dropped on purpose and do not count as failures.
    """
    waiting: list[tuple[Any, int]] = []
    lost: list[Dropped] = []
    while (pending := run.next()) is not None:
        items = iter(split(pending))
        del pending  # the next batch may then use its memory
        for item in items:
            if from_start and _is_all_failed(item[0]):
                waiting.append(item)
                lost += item[0].dropped
                if len(lost) >= _MAX_LOST:
                    log_dropped(lost)
                    raise all_failed_error(lost, "first ")
                continue
            from_start = False
            yield from waiting
            waiting.clear()
            yield item
            del item  # the next batch may then use its memory
    if from_start:
        lost += run.dropped_at_end
        if lost and all(error is not None for _, _, error in lost):
            log_dropped(lost)
            raise all_failed_error(lost)
        yield from waiting


def _is_all_failed(batch: Any) -> bool:
    return not batch.count and all(error is not None for _, _, error in batch.dropped)


def _progress_bar(config: LoaderConfig, total: int | None, position: int) -> Any:
    """Return a context manager of the progress bar, or of None."""
    if not config.progress:
        return nullcontext()
    from tqdm import tqdm  # imported only if a bar is shown

    class Bar(tqdm):
        monitor_interval = 0  # do not start a monitor thread

    return Bar(total=total, initial=position, unit="record")

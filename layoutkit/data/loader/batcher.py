"""`Batcher`: batches of records, epoch by epoch, and the loop over one epoch.

`EpochPass` starts batches ahead; they complete in any order and are yielded in order. A `Position`
counts batches and dropped records along with the position. Dropped records are logged. If every
record of an epoch's start fails, the configuration is wrong: `checked_batches` raises rather than
yield empty batches.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from ..._utils.validation import check_int
from ...errors import DataError
from ...memory import Array, in_native_order
from ...views import DataView
from ..errors import NoLength
from ..io.reader import Reader
from ..iteration import EpochIterator, Epochs
from ..samplers.orders import Order
from .batch import Batch, Dropped, LoaderStats, ViewFactory
from .chunk import Numbers, describe_error, describe_record
from .collate import Ragged
from .config import LoaderConfig
from .distributed import Shard
from .pending import PendingBatch, Refill
from .processing import ViewFactories
from .signature import RunSpec
from .worker_pool import WorkerPool, wait_or_run

B = TypeVar("B")


class EpochPass:
    """The batches of an epoch from a position on.

    With `refill` a batch begins at the end of the previous one, which is known only when that is
    complete; otherwise at the sampler's batch, so several batches can be pending at once.
    """

    def __init__(
        self,
        config: LoaderConfig,
        pool: WorkerPool | None,
        epoch: int,
        position: Position,
        marks: Mapping[str, Any],
    ) -> None:
        self._config, self._pool, self._epoch = config, pool, epoch
        self._length = config.length
        first = config.sources[0]
        self.orders = [
            source.order(epoch, marks if marks and source is first and source.in_parts else None)
            for source in config.sources
        ]
        self.dropped_at_end: list[Dropped] = []  # records dropped after the last batch
        self._place = position.place
        self._num_begun = self._num_yielded = marks.get("batch", 0)
        self.run = position.run
        self._pending: deque[PendingBatch] = deque()
        self._latest: PendingBatch | None = None
        self._lock = threading.Lock()
        self._is_over = False
        self._failure: BaseException | None = None

    @property
    def size(self) -> int | None:
        """The number of records in the epoch, if known."""
        return self._length.num_records(self.orders[0])

    def __enter__(self) -> EpochPass:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        for pending in tuple(self._pending):
            pending.cancelled = True

    def next(self) -> tuple[Batch, int] | None:
        """Return the next batch and its end position; None at the epoch's end."""
        start = perf_counter()
        if self._pool is not None:
            self._pool.check_process()
        shard = self._length.shard
        if self._decides_spec and shard is not None and shard.rank:
            self._read_spec(shard)
        self._begin_batches(num_requested=1)
        if not self._pending:
            if self._failure is not None:
                raise self._failure
            return None
        pending = self._pending[0]
        wait_or_run(pending, self._pool)
        pending.stats["wait"] = perf_counter() - start
        if self._decides_spec:
            self.run = pending.run
        batch, position = self._batch(pending), self._end_of(pending)
        with self._lock:
            self._pending.popleft()
            self._num_yielded += 1
        if self._length.refill and not batch.count:
            self.dropped_at_end = batch.dropped
            return None
        self._begin_batches()
        return batch, position

    def _begin_batches(self, num_requested: int = 0) -> None:
        """Start as many batches as may be pending."""
        ahead = 0 if self._pool is None else self._config.prefetch
        with self._lock:
            while not self._is_over and self._num_begun < self._num_yielded + max(
                ahead, num_requested
            ):
                if self._length.refill and self._latest and not self._latest.ready:
                    return
                if self._decides_spec and self._pending:
                    return
                try:
                    self._begin()
                except Exception as error:  # raised after the batches before it
                    self._failure = error
                    self._is_over = True

    def _begin(self) -> None:
        length = self._length
        if length.shard is None and self._num_begun == length.max_batches:
            self._is_over = True
            return
        start = self._place
        if length.refill and self._latest:
            start = self._latest.start + self._latest.num_taken
        start, stop = length.next_range(self.orders[0], start)
        numbers = self._take(start, stop)
        if not len(numbers[0]):
            self._is_over = True
            return
        refill = self._refill if length.refill else None
        pending = self._latest = self._pending_batch(start, numbers, refill)
        self._place = self._end_of(pending)
        self._num_begun += 1
        self._pending.append(pending)
        if self._pool is not None:
            pending.on_ready = self._begin_batches if length.refill else None
            self._pool.submit(pending)

    def _pending_batch(
        self, start: int, numbers: Sequence[Numbers], refill: Refill | None = None
    ) -> PendingBatch:
        config, dims = self._config, self._config.dims(self._num_begun)
        return PendingBatch(config.pipeline, start, numbers, dims, refill, self._epoch, self.run)

    @property
    def _decides_spec(self) -> bool:
        """True if the next batch decides what all records of the run share."""
        return self.run.target is None and self._config.has_one_spec

    def _read_spec(self, shard: Shard) -> None:
        """Read the records of rank 0, so that all ranks decide in the same way."""
        first = shard._replace(rank=0)
        start, stop = self._length.shard_range(first, self.orders[0], self._place)
        numbers = self._take(start, stop)
        if not len(numbers[0]):
            return
        pending = self._pending_batch(start, numbers)
        if self._pool is not None:
            self._pool.submit(pending)
        wait_or_run(pending, self._pool)
        self.run = pending.run

    def _end_of(self, pending: PendingBatch) -> int:
        """Return the end position of a batch, or of its step across all ranks."""
        shard, taken = self._length.shard, pending.num_taken
        return pending.start + taken if shard is None else shard.advance(pending.start, taken)

    def _refill(self, position: int, missing: int, num_failed: int) -> Sequence[Numbers]:
        """Return the records that follow a batch, to replace missing ones."""
        count = self._config.sources[0].sampler.plan.count
        if self._length.draws and num_failed >= count:
            raise DataError(
                f"none of {num_failed} records drawn one after the other could be used, and there "
                f"are {count}; the log of layoutkit.data has the reasons"
            )
        with self._lock:
            return self._take(position, position + missing)

    def _take(self, start: int, stop: int) -> list[Numbers]:
        """Return the records at positions start .. stop-1 of each source."""
        sources = self._config.sources
        numbers_by_source = [
            source.take(order, start, stop)
            for source, order in zip(sources, self.orders, strict=True)
        ]
        for number, part in enumerate(numbers_by_source):
            if len(part) < len(numbers_by_source[0]):
                raise DataError(
                    f"source {number} ends after {start + len(part)} records, before the first "
                    "one; give sources with equal numbers of records, or a sampler that draws"
                )
        return numbers_by_source

    # -- from a pending batch to a batch ---------------------------------------------------

    def _batch(self, pending: PendingBatch) -> Batch:
        source = self._config.sources[0]
        rows = pending.kept_indices()
        numbers = pending.records_at(rows)
        failed_rows = sorted(pending.failed)
        left_out = (
            source.records(pending.records_at(np.array(failed_rows, np.int64)))
            if failed_rows
            else []
        )
        dropped = [
            (record, pending.start + row, pending.failed[row])
            for record, row in zip(left_out, failed_rows, strict=True)
        ]
        return Batch(
            self._input(pending.input),
            self._target(pending.target, numbers),
            pending.start + rows,
            lambda: source.records(numbers),
            dropped,
            pending.stats,
        )

    def _input(self, arrays: Any) -> DataView | tuple[DataView, ...] | Ragged | None:
        if arrays is None or isinstance(arrays, Ragged):
            return arrays
        x = arrays() if callable(arrays) else arrays
        make_views: Sequence[ViewFactory] = self._config.view_factories.inputs
        if isinstance(x, tuple):
            return tuple([make(array) for make, array in zip(make_views, x, strict=True)])
        return make_views[0](x)

    def _target(self, targets: Array | None, numbers: Numbers) -> DataView | None:
        """Return the processor's targets, else the source's, else the ranks of labels."""
        source = self._config.sources[0]
        view_factories: ViewFactories = self._config.view_factories
        if targets is None:
            targets = source.targets(numbers)
        if targets is not None:
            return view_factories.target(in_native_order(targets))
        ranks = source.ranks(numbers)
        return None if ranks is None else view_factories.labels(ranks)


class Position(NamedTuple):
    """A place in an epoch with the counts up to it: one object, so that they always agree."""

    place: int = 0  # records of the epoch before it
    batches: int = 0  # yielded in this epoch
    dropped: int = 0  # records
    order: Order | None = None  # of part files: it knows the start of the file of this place
    run: RunSpec = RunSpec()  # the shapes and dtypes that the records of the run share

    def advance(self, batch: Batch, place: int, order: Order, run: RunSpec) -> Position:
        """Return the position after one more batch."""
        return Position(place, self.batches + 1, self.dropped + len(batch.dropped), order, run)

    def at_start(self) -> Position:
        """Return the position, without counts if it is at the start of an epoch."""
        return self if self.place else Position(run=self.run)


_log = logging.getLogger("layoutkit.data")


def log_dropped(dropped: Sequence[Any]) -> None:
    """Log a line for each dropped record."""
    for record, _, error in dropped:
        why = "refused" if error is None else describe_error(error)
        _log.warning("left out %s: %s", describe_record(record), why)


def progress_bar(config: LoaderConfig, total: int | None, position: int) -> Any:
    """Return a context manager of the progress bar, or of None."""
    if not config.progress:
        return nullcontext()
    from tqdm import tqdm  # imported only if a bar is shown

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0  # do not start a monitor thread

    return Bar(total=total, initial=position, unit="record")


_MAX_LOST = 16  # failures from the first record on that mean a wrong configuration
_MAX_REASONS = 3


def checked_batches(run: EpochPass, from_start: bool) -> Iterator[tuple[Batch, int]]:
    """Yield batches and their end positions; raise DataError if all records fail.

    From an epoch's start, batches without rows are held back until one has rows. If none has,
    after complete batches of 16 records or at the epoch's end, raise DataError. Records that a
    processor refused were dropped on purpose and do not count as failures.
    """
    waiting: list[tuple[Batch, int]] = []
    lost: list[Dropped] = []
    while (item := run.next()) is not None:
        batch = item[0]
        if from_start and _is_all_failed(batch):
            waiting.append(item)
            lost += batch.dropped
            if len(lost) >= _MAX_LOST:
                log_dropped(lost)
                raise _all_failed_error(lost, "first ")
            continue
        from_start = False
        yield from waiting
        waiting.clear()
        yield item
        del item, batch  # the next batch may then use their memory
    if from_start:
        lost += run.dropped_at_end
        if lost and all(error is not None for _, _, error in lost):
            log_dropped(lost)
            raise _all_failed_error(lost)
        yield from waiting


def _is_all_failed(batch: Batch) -> bool:
    return not batch.count and all(error is not None for _, _, error in batch.dropped)


def _all_failed_error(lost: Sequence[Dropped], first: str = "") -> DataError:
    """Return an error with each reason once, and the first record that failed for it."""
    reasons: dict[str, list[str]] = {}
    for record, _, error in lost:
        if error is not None:
            reasons.setdefault(describe_error(error), []).append(describe_record(record))
    shown = [_format_reason(why, names) for why, names in list(reasons.items())[:_MAX_REASONS]]
    count = (
        "the only record cannot"
        if len(lost) == 1
        else f"none of the {first}{len(lost)} records can"
    )
    return DataError(f"{count} be used. {'. '.join(shown)}")


def _format_reason(why: str, names: Sequence[str]) -> str:
    suffix = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{suffix}: {why}"


class BatchLoop(Epochs[B]):
    """An iterable over the batches of a LoaderConfig: the loop of Batchers, providers and Datasets.

    A subclass says what a state contains, and may make other batches in an EpochPass of its own.
    Threads start with the first loop and end with `close()`, or the `with` block.
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
        self.set_epoch(self._epoch)

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
        with run, progress_bar(self._config, run.size, position.place) as bar:
            for batch, end in checked_batches(run, from_start=not position.place):
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
                del batch  # as above
                resumed = perf_counter()
                stats.consumer += resumed - ready
                stats.elapsed = resumed - began
            log_dropped(run.dropped_at_end)
        return Position(dropped=position.dropped + len(run.dropped_at_end), run=run.run)

    def _item(self, batch: Any) -> B:
        """Return the item that the loop yields for a batch of an EpochPass."""
        return batch  # type: ignore[no-any-return]

    def _begin_pass(self, epoch: int, position: Position) -> EpochPass:
        place = position.place
        marks = {**self._resume_info(position), "position": place} if place else {}
        return EpochPass(self._config, self._worker_pool(), epoch, position, marks)

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


class Batcher(BatchLoop[Batch]):
    """An iterable over batches, epoch by epoch; created by `sampled_batcher`.

    `for batch in batcher` is an epoch of `len(batcher)` batches, or fewer with `refill`.
    `state_dict()` is the position after the batch yielded last. Threads start with the first loop
    and end with `close()`, or the `with` block.
    """

    @property
    def num_batches(self) -> int | None:
        """The (with `refill`, largest) number of batches in an epoch; None until parts are open."""
        return self._config.length.num_batches(self._config.sources[0].order(self._epoch))

    def __len__(self) -> int:
        number = self.num_batches
        if number is None:
            raise NoLength("the number of batches is not known until every part is opened")
        return number

    def __repr__(self) -> str:
        name, size, number = type(self).__name__, self._config.length.batch_size, self.num_batches
        batches = "batches" if number is None else f"{number} batches"
        return f"<{name} of {batches} of {size}, epoch {self._epoch}>"

    def __bool__(self) -> bool:
        return True  # even if an epoch has no batches

    def stats(self) -> LoaderStats:
        """Return where the time of the latest loop went; `print` shows it as a table."""
        return replace(self._stats)

    def repeated(self, count: int | None = None) -> Iterator[Batch]:
        """Yield the first batch of the epoch again and again, `count` times or as in an epoch.

        A loop over it takes as long as one whose batches need no time. It ends the current loop.
        """
        epoch = self._epoch
        loop = iter(self)
        batch = next(loop)
        loop.close()
        self.set_epoch(epoch)
        for _ in range(len(self) if count is None else check_int("count", count)):
            yield batch

    def __reduce__(self) -> Any:
        raise DataError(
            "a Batcher has threads and connections, which cannot be copied or sent to another "
            "process; call sampled_batcher in each process, with shard='auto'"
        )

    def _identity(self) -> dict[str, int | str]:
        return self._config.identity

    def _free(self, place: int) -> tuple[str, ...]:
        free = super()._free(place)
        return (*free, "batch_size") if self._config.allows_other_batch_size else free

    def _end(self, epoch: int) -> int | None:
        return self._config.length.last_position(self._config.sources[0].order(epoch))

    _extra_keys = ("spec",)

    def _resume_info(self, position: Position) -> dict[str, int | str]:
        position = position.at_start()
        # The state is equal on all shards, but each of them drops other records.
        dropped = position.dropped if self._config.length.shard is None else 0
        counted = {"batch": position.batches, "dropped": dropped}
        spec = {"spec": position.run.to_text()} if position.run.target is not None else {}
        return {**counted, **self._part_position(position), **spec}

    def _part_position(self, position: Position) -> dict[str, int]:
        """Return the values that locate a position in part files without opening earlier files."""
        if not self._config.sources[0].in_parts:
            return {}
        if position.order is None:
            return {"part": 0, "part_start": 0}
        return position.order.marks(position.place)

    def _take(self, epoch: int, place: int, state: Mapping[str, Any]) -> Position:
        source = self._config.sources[0]
        order = source.order(epoch, state) if source.in_parts else None  # raises for invalid marks
        run = RunSpec.from_text(state["spec"]) if "spec" in state else RunSpec()
        return Position(place, state["batch"], state["dropped"], order, run)

"""`EpochPass`: the batches of an epoch from a position on, several of them at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ..._utils.errors import describe_error
from ...errors import DataError
from ..samplers.orders import Order
from ..sources import MixedIndex
from .chunk import Numbers, RecordSource
from .config import LoaderConfig
from .distributed import Shard
from .dropped import Dropped
from .pending import PendingBatch, Refill
from .signature import RunSpec
from .worker_pool import WorkerPool, wait_or_run

_MAX_FIRST = 3  # records of a source of a mixture that may fail before it is an error


class Position(NamedTuple):
    """A place in an epoch with the counts up to it: one object, so that they always agree."""

    place: int = 0  # records of the epoch before it
    batches: int = 0  # yielded in this epoch
    dropped: int = 0  # records
    order: Order | None = None  # of part files: it knows the start of the file of this place
    run: RunSpec = RunSpec()  # the shapes and dtypes that the records of the run share

    def advance(self, batch: Any, place: int, order: Order, run: RunSpec) -> Position:
        """Return the position after one more batch."""
        return Position(place, self.batches + 1, self.dropped + len(batch.dropped), order, run)

    def at_start(self) -> Position:
        """Return the position, without counts if it is at the start of an epoch."""
        return self if self.place else Position(run=self.run)


class EpochPass:
    """The batches of an epoch, which complete in any order and are returned in order.

    With `refill` a batch begins at the end of the previous one, which is known only when that is
    complete; otherwise at the sampler's batch, so several batches can be pending at once.
    """

    def __init__(
        self, config: LoaderConfig, pool: WorkerPool | None, epoch: int, position: Position
    ) -> None:
        self._config = config
        self._pool = pool
        self._epoch = epoch
        self._length = config.length
        first, *others = config.sources
        # The order of a state knows where its part file begins.
        first_order = position.order or first.order(epoch)
        self.orders = [first_order, *(source.order(epoch) for source in others)]
        self.run = position.run
        # The next batch decides what all records of the run share.
        self._decides_spec = self.run.target is None and config.has_one_spec
        self._place = position.place
        self._num_begun = self._num_yielded = position.batches
        self._pending: deque[Any] = deque()
        self._latest: Any = None
        self._empty: PendingBatch | None = None  # with refill, the records after the last batch
        self._lock = threading.Lock()
        self._is_over = False
        self._failure: BaseException | None = None

    @property
    def size(self) -> int | None:
        """The number of records in the epoch, if known."""
        return self._length.num_records(self.orders[0])

    @property
    def dropped_at_end(self) -> list[Dropped]:
        """The records dropped after the last batch."""
        return [] if self._empty is None else self._empty.dropped()

    def __enter__(self) -> EpochPass:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        for pending in tuple(self._pending):
            pending.cancelled = True
        for order in self.orders:
            order.close()

    def next(self) -> Any:
        """Return the next batch when it is complete; None at the epoch's end."""
        start = perf_counter()
        if self._pool is not None:
            self._pool.check_process()
        if self._decides_spec and (mixture := _common_mixture(self._config.sources)):
            self._read_sources(mixture)
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
            self._set_spec(pending)
        with self._lock:
            self._pending.popleft()
            self._num_yielded += 1
        if self._length.refill and pending.num_taken == len(pending.failed):
            self._empty = pending
            return None
        if self._pool is not None:
            self._begin_batches()
        return pending

    def _begin_batches(self, num_requested: int = 0) -> None:
        """Start batches until the largest number of them is pending."""
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
        if length.refill and self._latest:
            self._place = self._latest.start + self._latest.num_taken
        has_all = length.shard is None and self._num_begun == length.max_batches
        pending = None if has_all else self._make_pending(self._place)
        if pending is None:
            self._is_over = True
            return
        self._place = length.end_of(pending.start, pending.num_taken)
        self._latest = pending
        self._num_begun += 1
        self._pending.append(pending)
        if self._pool is not None:
            pending.on_ready = self._begin_batches if length.refill else None
            self._pool.submit(pending)

    def _make_pending(self, place: int) -> Any:
        """Return the batch of the step that begins at a place; None at the epoch's end."""
        start, stop = self._length.next_range(self.orders[0], place)
        return self._pending_batch(start, stop, self._refill if self._length.refill else None)

    def _pending_batch(
        self, start: int, stop: int, refill: Refill | None = None
    ) -> PendingBatch | None:
        """Return the batch of the records at positions start .. stop-1; None if there are none."""
        numbers = self._take(start, stop)
        if not len(numbers[0]):
            return None
        config, dims = self._config, self._config.dims(self._num_begun)
        return PendingBatch(config.pipeline, start, numbers, dims, refill, self._epoch, self.run)

    def _read_spec(self, shard: Shard) -> None:
        """Read the records of rank 0, so that all ranks decide in the same way."""
        first = shard._replace(rank=0)
        pending = self._pending_batch(*self._length.shard_range(first, self.orders[0], self._place))
        if pending is not None:
            self._complete(pending)
            self._set_spec(pending)

    def _read_sources(self, mixture: MixedIndex) -> None:
        """Read a record of each source of a mixture, which decide what all records share.

        Raises DataError if the first records of a source fail, or differ from the other sources.
        """
        numbers = mixture.starts.copy()
        for count in range(1, _MAX_FIRST + 1):
            columns = [numbers] * len(self._config.sources)
            config, dims = self._config, self._config.dims(0)
            pending = PendingBatch(config.pipeline, 0, columns, dims, None, self._epoch, self.run)
            with suppress(DataError):  # of on_error="raise", without the source's number
                self._complete(pending)
            failed = {row: error for row, error in pending.failed.items() if error is not None}
            if not failed:
                if pending.error is not None:
                    raise pending.error
                self._set_spec(pending)
                return
            rows = [*failed]
            numbers[rows] = mixture.starts[rows] + np.minimum(count, mixture.sizes[rows] - 1)
        raise DataError(
            f"the first records of source {rows[0]} of the mixture cannot be in a batch with the "
            f"other sources: {describe_error(failed[rows[0]])}"
        ) from failed[rows[0]]

    def _complete(self, pending: PendingBatch) -> None:
        """Read and process the records of a batch that is not yielded."""
        if self._pool is not None:
            self._pool.submit(pending)
        wait_or_run(pending, self._pool)

    def _set_spec(self, pending: PendingBatch) -> None:
        self.run = pending.run
        self._decides_spec = self.run.target is None

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


def _common_mixture(sources: Iterable[RecordSource]) -> MixedIndex | None:
    """Return the index of the first source if all are mixtures of equal sizes, else None."""
    indexes = [source.index for source in sources]
    mixtures = [index if isinstance(index, MixedIndex) else None for index in indexes]
    sizes = {None if mixture is None else tuple(mixture.sizes) for mixture in mixtures}
    return mixtures[0] if len(sizes) == 1 else None

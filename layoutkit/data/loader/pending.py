"""A batch that is being made: it hands out chunks of records, and combines their results.

Any number of threads may process chunks of any length, in any order, and it makes no difference:
the row of a result, and the shape and dtype of the batch, depend on positions in the epoch only.
Results are checked in the order of records against the signature of the run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from types import MappingProxyType
from typing import Any

import numpy as np

from ..._utils.errors import describe_error
from ...buffers import empty
from ...errors import DataError
from ...memory import Array
from ..records import Record
from .batch import map_arrays
from .chunk import Numbers, RecordChunk, RecordPipeline
from .collate import BatchStep
from .dropped import Dropped, describe_record
from .signature import BatchSignature, RunSpec, kept_rows

# Called with a position in the epoch, the number of missing records, and the number of consecutive
# failures. Returns that number of records from the position on, or fewer at the epoch's end.
Refill = Callable[[int, int, int], Sequence[Numbers]]


STAGES = ("get", "process", "collate", "wait")  # whose seconds are measured


class Pending(ABC):
    """A batch that threads of a pool, or the consumer alone, make of records from `start` on.

    `take_chunk` and `commit` are called by one thread at a time. The thread for which `commit`
    returns True calls `finalize`.
    """

    start: int  # the position of the first record in the epoch
    num_taken: int  # records of the epoch
    stats: dict[str, float]  # seconds by stage
    input: Any = None  # an array, or a function for the consumer thread to make it
    error: BaseException | None = None
    ready = False
    is_complete = False  # all records are read, and the consumer makes the batch
    is_awaited = False  # the consumer waits for it
    cancelled = False
    on_ready: Callable[[], None] | None = None  # called when the batch is ready
    failed: Mapping[int, BaseException | None] = MappingProxyType({})

    @property
    @abstractmethod
    def is_fully_drawn(self) -> bool:
        """True if all records of this round are taken."""

    @abstractmethod
    def take_chunk(self, limit: int) -> Any:
        """Return a chunk of the next records, at most `limit`."""

    @abstractmethod
    def commit(self, chunk: Any) -> bool:
        """Store the results of a chunk; return True if it was the last one of the round."""

    @abstractmethod
    def finalize(self) -> bool:
        """Make the batch; return False if it needs another round of records."""


class PendingBatch(Pending):
    """A batch whose records are read and processed one by one, in chunks.

    Parameters
    ----------
    pipeline : RecordPipeline
    start : int
        The position of its first record in the epoch.
    numbers : sequence of Numbers
        The records of each source.
    dims : tuple of int, optional
        The shape of one record, if it is known beforehand.
    refill : Refill, optional
        Supplies records in place of dropped ones.
    epoch : int
        Random values depend on it.
    run : RunSpec, optional
        The shapes and dtypes of all records of the run, if they are known.
    """

    def __init__(
        self,
        pipeline: RecordPipeline,
        start: int,
        numbers: Sequence[Numbers],
        dims: tuple[int, ...] | None,
        refill: Refill | None = None,
        epoch: int = 0,
        run: RunSpec | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.start = start
        self.dims = dims
        self.epoch = epoch
        self.numbers: list[Any] = list(numbers[:1])  # of the first source, one item per round
        self.num_requested = len(numbers[0])
        self.num_taken = 0  # records of the epoch, in all rounds
        self.failed: dict[int, BaseException | None] = {}
        self.stats = dict.fromkeys(STAGES, 0.0)
        self.target: Array | None = None
        self._refill = refill
        self._chunks: list[RecordChunk] = []
        self._num_checked = 0
        self._num_failed_in_row = 0  # consecutive failed records
        self._signature = BatchSignature(dims, pipeline.dtype, pipeline.collate_step, run)
        self._is_one_block = True  # all results are in the block of the first round
        self._block: Array | None = None  # the rows of a round, if their shape is known
        self._begin(0, numbers)

    # -- the records, chunk by chunk -------------------------------------------------------

    @property
    def is_fully_drawn(self) -> bool:
        return not self._open_ranges

    def take_chunk(self, limit: int) -> RecordChunk:
        start, stop = self._open_ranges.pop()
        if stop - start > limit:
            self._open_ranges.append((start + limit, stop))
            stop = start + limit
        block = None if self._block is None else self._block[start:stop]
        numbers = [part[start:stop] for part in self._numbers]
        return RecordChunk(self.pipeline, self._first + start, numbers, block, self.epoch)

    def commit(self, chunk: RecordChunk) -> bool:
        self._chunks.append(chunk)
        self._num_left -= chunk.count
        return not self._num_left

    def requeue_remaining(self, chunk: RecordChunk, row: int, is_late: bool) -> bool:
        """Commit a chunk that was stopped at `row`, and make its remaining records available.

        Return True if the round is complete.
        """
        end = chunk.first - self._first + chunk.count
        begin = chunk.first - self._first + row + is_late
        if begin < end:
            self._open_ranges.append((begin, end))
        self._is_one_block = False
        if self._block is not None:  # the stopped thread may still write to the old one
            self._block = self._new_block(len(self._block))
        return self.commit(chunk.finished_part(row, is_late))

    def finalize(self) -> bool:
        if self.error is not None:
            return True
        try:
            self._check_chunks()
            self._check_strict()
            if self._refill is not None and self._begin_refill(self._refill):
                return False
            start = perf_counter()
            self._assemble()
            self.stats["collate"] += perf_counter() - start
        except BaseException as error:
            self.error = error
        self._chunks, self._block = [], None
        return True

    def _begin(self, first: int, numbers: Sequence[Numbers]) -> None:
        self._first = first
        self._numbers = numbers
        self._num_left = count = len(numbers[0])
        self.num_taken += count
        self._block = self._new_block(count)
        self._open_ranges = [(0, count)]

    def _new_block(self, count: int) -> Array | None:
        """Allocate `count` rows; return None if their shape is unknown."""
        if self.dims is None or self._signature.dtype is None:
            return None
        if self.pipeline.collate_step is not None:  # which allocates the batch
            return None
        block = empty((count, *self.dims), self._signature.dtype)
        if self.pipeline.processor is not None and not self.pipeline.writes_out:
            block[...] = np.zeros((), self._signature.dtype)  # never expose rows of an older batch
        return block

    def _begin_refill(self, refill: Refill) -> bool:
        """Start a round for the missing records; return False if the batch is complete."""
        taken = self.num_taken
        missing = self.num_requested - (taken - len(self.failed))
        if not missing:
            return False
        kept = [row for row in range(self._first, taken) if row not in self.failed]
        self._num_failed_in_row = (
            taken - 1 - kept[-1] if kept else self._num_failed_in_row + taken - self._first
        )
        numbers = refill(self.start + taken, missing, self._num_failed_in_row)
        if not len(numbers[0]):
            return False
        self.numbers.append(numbers[0])
        self._is_one_block = False
        self._begin(taken, numbers)
        return True

    @property
    def run(self) -> RunSpec:
        """The shapes and dtypes that the records of the run share, if this batch is the first."""
        return self._signature.run

    # -- their results ---------------------------------------------------------------------

    def kept_indices(self) -> Array:
        """Return the rows of the records that are in the batch, among all that were taken."""
        rows = np.arange(self.num_taken)
        return np.delete(rows, sorted(self.failed)) if self.failed else rows

    def records_at(self, rows: Array) -> Numbers:
        """Return the records in these rows among all that were taken."""
        first = self.numbers[0]
        if isinstance(first, list):
            records: list[Record] = [record for numbers in self.numbers for record in numbers]
            return [records[row] for row in rows.tolist()]
        numbers: Array = first if len(self.numbers) == 1 else np.concatenate(self.numbers)
        return numbers if len(rows) == len(numbers) else numbers[rows]

    def _check_chunks(self) -> None:
        """Add up the statistics of a round's chunks, and fail records that do not match."""
        self._chunks.sort(key=lambda chunk: chunk.first)
        chunks = self._chunks[self._num_checked :]
        self._signature.check_chunks(chunks)
        for chunk in chunks:
            self.stats["get"] += chunk.get_seconds
            self.stats["process"] += chunk.process_seconds
            self.failed.update((chunk.first + row, error) for row, error in chunk.failed.items())
        # Remove chunks without results: a refill may need many rounds until it finds one.
        self._chunks = [chunk for chunk in self._chunks if len(chunk.failed) < chunk.count]
        self._num_checked = len(self._chunks)

    def _check_strict(self) -> None:
        """Raise the first failure, if on_error="raise"."""
        if not self.pipeline.strict:
            return
        failures = [row for row, error in self.failed.items() if error is not None]
        if not failures:
            return
        row = min(failures)
        error: Any = self.failed[row]
        (record,) = self._records_of([row])
        raise DataError(f"{describe_record(record)}: {describe_error(error)}") from error

    def dropped(self) -> list[Dropped]:
        """Return the records that failed or were refused, with their positions and errors."""
        rows = sorted(self.failed)
        records = self._records_of(rows) if rows else []
        return [
            (record, self.start + row, self.failed[row])
            for record, row in zip(records, rows, strict=True)
        ]

    def _records_of(self, rows: list[int]) -> list[Record]:
        numbers = self.records_at(np.array(rows, np.int64))
        return self.pipeline.sources[0].records(numbers)

    def _assemble(self) -> None:
        """Combine the results of the records that did not fail."""
        count = self.num_taken - len(self.failed)
        if self.pipeline.collate_step is not None:
            self._collate(self.pipeline.collate_step)
        elif self._signature.shape is not None:
            self.input = self._concatenate_chunks(count)
        if self.pipeline.pin is not None and not callable(self.input):
            self.input = map_arrays(self.pipeline.pin, self.input)
        target = self._signature.target
        if target:
            self.target = empty((count, *(target.sizes or ())), target.dtype)  # type: ignore[arg-type]
            start = 0
            for chunk in self._chunks:
                rows = kept_rows(chunk)
                block = chunk.target_block
                if rows:
                    self.target[start : start + len(rows)] = (
                        [chunk.targets[row] for row in rows] if block is None else block
                    )
                start += len(rows)

    def _collate(self, collate_step: BatchStep) -> None:
        if not self._chunks:
            if self.dims is not None and self._signature.dtype is not None:
                self.input = np.empty((0, *self.dims), self._signature.dtype)
            return
        source = self.pipeline.sources[0]
        numbers = self.records_at(self.kept_indices())
        positions = source.positions(numbers)
        if self._chunks[0].is_from_source:
            array, rows = source.index.array_rows(numbers)  # type: ignore[arg-type]
            make_batch = partial(collate_step.batch_of_rows, array, rows, positions, self.epoch)
        else:
            samples = [chunk.irregular[row] for chunk in self._chunks for row in kept_rows(chunk)]
            make_batch = partial(collate_step.batch, samples, positions, self.epoch)
        self.input = make_batch if collate_step.is_deferred else make_batch()

    def _concatenate_chunks(self, count: int) -> Array:
        if self._is_one_block and not self.failed:
            if self._block is not None:
                return self._block
            first: Any = self._chunks[0]
            if (
                len(self._chunks) == 1
                and not first.irregular
                and first.block.dtype == self._signature.dtype
            ):
                return first.block
        shape, dtype = self._signature.shape, self._signature.dtype
        result = empty((count, *shape), dtype)  # type: ignore[misc, arg-type]  # both are known
        start = 0
        for chunk in self._chunks:
            rows = kept_rows(chunk)
            block: Any = chunk.block
            if chunk.irregular:
                for i, row in enumerate(rows, start):
                    result[i] = chunk.irregular[row] if row in chunk.irregular else block[row]
            elif rows:
                is_complete = len(rows) == len(block)
                result[start : start + len(rows)] = block if is_complete else block[list(rows)]
            start += len(rows)
        return result

"""A batch that is being made: it hands out chunks of records, and combines their results.

Any number of threads may process chunks of any length, in any order, and it makes no difference:
the row of a result, and the shape and dtype of the batch, depend on positions in the epoch only.
Results are checked in the order of records against the first one that is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Literal

import numpy as np

from ...buffers import empty
from ...errors import DataError, LayoutkitError, ShapeError
from ...memory import Array
from ...spec import DType, can_cast, check_supported_dtype
from ..records import Record
from .chunk import Numbers, RecordChunk, RecordPipeline, describe_error, describe_record
from .collate import BatchStep

_DTYPE = np.dtype("float32")  # if the shape of records is specified but not the dtype


class BatchSignature:
    """The properties that all records of a batch share.

    shape, dtype : of a record; None until the first one is kept, if not specified
    targeted     : shape and dtype of a target; False if records have no target, None if unknown
    """

    def __init__(
        self,
        dims: tuple[int, ...] | None,
        dtype: DType | None,
        collate_step: BatchStep | None = None,
    ) -> None:
        self._requested_dtype = dtype
        self.shape = dims
        self.dtype: DType | None = dtype or (None if dims is None else _DTYPE)
        self._collate_step = collate_step
        self._sample_spec: Any = None  # of collated results
        self._known_specs: set[Any] = set()  # keys of samples that match it
        self.target_spec: tuple[tuple[int, ...], DType] | Literal[False] | None = None

    def check_chunk(self, chunk: RecordChunk) -> None:
        """Fail the records whose shape, dtype or target differs from the first one's."""
        if self._collate_step is None:
            self._check_shapes(chunk)
        else:
            self._check_samples(chunk, self._collate_step)
        self._check_targets(chunk)

    def _check_shapes(self, chunk: RecordChunk) -> None:
        if chunk.is_preallocated or len(chunk.failed) == chunk.count:
            return
        block: Any = chunk.block
        if self.shape is None:
            row = next(row for row in range(chunk.count) if row not in chunk.failed)
            first = chunk.irregular.get(row, block[row])
            self.shape, self.dtype = first.shape, self._requested_dtype or first.dtype
        if not chunk.irregular and self._matches(block[0]):
            return
        for row in range(chunk.count):
            if row not in chunk.failed and not self._matches(
                result := chunk.irregular.get(row, block[row])
            ):
                chunk.failed[row] = ShapeError(
                    f"the result has shape {result.shape} and dtype {result.dtype}, but the first "
                    f"of this batch has {self.shape} and {self.dtype}; resize it in the processor"
                )

    def _matches(self, result: Array) -> bool:
        same = result.shape == self.shape
        return same and can_cast(result.dtype, self.dtype, "same_kind")  # type: ignore[arg-type]

    def _check_samples(self, chunk: RecordChunk, collate_step: BatchStep) -> None:
        array = chunk.pipeline.sources[0].source_array if chunk.is_from_source else None
        for row in kept_rows(chunk):
            x = chunk.irregular[row] if array is None else array[0]
            try:
                key = collate_step.spec_key(x)
                if key not in self._known_specs:
                    self._sample_spec = collate_step.sample_spec(x, self._sample_spec)
                    self._known_specs.add(key)
            except LayoutkitError as error:
                chunk.failed[row] = error

    def _check_targets(self, chunk: RecordChunk) -> None:
        kept = kept_rows(chunk)
        if not chunk.targets and not isinstance(self.target_spec, tuple):
            self.target_spec = False if kept else self.target_spec
            return
        chunk.target_block = _stack_if_alike([chunk.targets.get(row) for row in kept])
        if chunk.target_block is not None and self._matches_target(chunk.target_block[0]):
            return
        chunk.target_block = None
        for row in kept:
            if row not in chunk.targets and not self.target_spec:
                self.target_spec = False
                continue
            try:
                chunk.targets[row] = self._as_target(row, chunk)
            except (LayoutkitError, ValueError, TypeError) as error:
                chunk.failed[row] = error

    def _matches_target(self, target: Array) -> bool:
        """Return True if a target matches that of the batch's first record, or is the first one."""
        if self.target_spec is None:
            self.target_spec = target.shape, target.dtype
        if self.target_spec is False:
            return False
        shape, dtype = self.target_spec
        return target.shape == shape and can_cast(target.dtype, dtype, "same_kind")

    def _as_target(self, row: int, chunk: RecordChunk) -> Array:
        """Return the target of a record as an array; raise if it differs from the first one's."""
        if self.target_spec is False or row not in chunk.targets:
            raise DataError(
                "only some records of this batch have a target; return one for all or for none"
            )
        target = np.asarray(chunk.targets[row])
        check_supported_dtype(target.dtype)
        if not self._matches_target(target):
            raise ShapeError(
                f"the target has shape {target.shape} and dtype {target.dtype}, but the first of "
                f"this batch differs: {self.target_spec}"
            )
        return target


def kept_rows(chunk: RecordChunk) -> Sequence[int]:
    """Return the rows of a chunk that did not fail."""
    if not chunk.failed:
        return range(chunk.count)
    return [row for row in range(chunk.count) if row not in chunk.failed]


def _stack_if_alike(values: list[Any]) -> Array | None:
    """Return the values as one array, if each alone is an array of the same shape and dtype.

    Return None otherwise, if they are not numbers, or if this quick check cannot decide.
    """
    types = set(map(type, values))
    cls = next(iter(types), None)
    is_numeric = cls is np.ndarray or (cls and issubclass(cls, int | float | np.number))
    if len(types) != 1 or not is_numeric:
        return None
    if cls is np.ndarray and len({(value.shape, value.dtype) for value in values}) > 1:
        return None
    array = np.array(values)
    same = array.dtype == np.asarray(values[0]).dtype
    return (
        array if same and not array.dtype.hasobject else None
    )  # object dtype: ints beyond 64 bits


# Called with a position in the epoch, the number of missing records, and the number of consecutive
# failures. Returns the records from that position on: as many, or fewer at the epoch's end.
Refill = Callable[[int, int, int], Sequence[Numbers]]


class PendingBatch:
    """A batch that is being made.

    `take_chunk`, `commit` and `requeue_remaining` are called by one thread at a time. The thread
    for which `commit` returns True calls `finalize`.

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
    """

    def __init__(
        self,
        pipeline: RecordPipeline,
        start: int,
        numbers: Sequence[Numbers],
        dims: tuple[int, ...] | None,
        refill: Refill | None = None,
        epoch: int = 0,
    ) -> None:
        self.pipeline, self.start, self.dims, self.epoch = pipeline, start, dims, epoch
        self.numbers: list[Any] = list(numbers[:1])  # of the first source, one item per round
        self.num_requested = len(numbers[0])
        self.error: BaseException | None = None
        self.ready = False
        self.is_complete = False  # all records are read, and the consumer makes the batch
        self.is_awaited = False  # the consumer waits for it
        self.on_ready: Callable[[], None] | None = None  # called when the batch is ready
        self.cancelled = False
        self.failed: dict[int, BaseException | None] = {}
        self.stats = {"get": 0.0, "process": 0.0, "collate": 0.0, "wait": 0.0}
        self.input: Any = None  # an array, or a function for the consumer thread to make it
        self.target: Array | None = None
        self._refill = refill
        self._chunks: list[RecordChunk] = []
        self._num_checked = 0
        self._num_failed_in_row = 0  # consecutive failed records
        self._signature = BatchSignature(dims, pipeline.dtype, pipeline.collate_step)
        self._is_one_block = True  # all results are in the block of the first round
        self._block: Array | None = None  # the rows of a round, if their shape is known
        self._begin(0, numbers)

    # -- the records, chunk by chunk -------------------------------------------------------

    @property
    def is_fully_drawn(self) -> bool:
        """True if all records of this round are taken."""
        return not self._open_ranges

    def take_chunk(self, limit: int) -> RecordChunk:
        """Return a chunk of the next records, at most `limit`."""
        start, stop = self._open_ranges.pop()
        if stop - start > limit:
            self._open_ranges.append((start + limit, stop))
            stop = start + limit
        block = None if self._block is None else self._block[start:stop]
        numbers = [part[start:stop] for part in self._numbers]
        return RecordChunk(self.pipeline, self._first + start, numbers, block)

    def commit(self, chunk: RecordChunk) -> bool:
        """Store the results of a chunk; return True if it was the last one of the round."""
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
        """Check the results of a round; return True if complete, else start a new round."""
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
        """Start a round of records."""
        self._first = first
        self._numbers = numbers
        self._num_left = count = len(numbers[0])
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
        taken = self._first + len(self._numbers[0])
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

    # -- their results ---------------------------------------------------------------------

    @property
    def num_taken(self) -> int:
        """The number of records of the epoch that it has taken."""
        return sum(map(len, self.numbers))

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
        for chunk in self._chunks[self._num_checked :]:
            self.stats["get"] += chunk.get_seconds
            self.stats["process"] += chunk.process_seconds
            self._signature.check_chunk(chunk)
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
        error = self.failed[row]
        raise DataError(f"{describe_record(self.record(row))}: {describe_error(error)}") from error  # type: ignore[arg-type]

    def record(self, row: int) -> Any:
        """Return the record of a row among all that were taken."""
        for numbers in self.numbers:
            if row < len(numbers):
                return self.pipeline.sources[0].records(numbers[row : row + 1])[0]
            row -= len(numbers)
        raise DataError(f"the batch has no row {row}")

    def _assemble(self) -> None:
        """Combine the results of the records that did not fail."""
        count = self.num_taken - len(self.failed)
        if self.pipeline.collate_step is not None:
            self._collate(self.pipeline.collate_step)
        elif self._signature.shape is not None:
            self.input = self._concatenate_chunks(count)
        if isinstance(self._signature.target_spec, tuple):
            shape, dtype = self._signature.target_spec
            self.target = empty((count, *shape), dtype)
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
        positions = source.positions(self.records_at(self.kept_indices()))
        if self._chunks[0].is_from_source:
            make_batch = partial(
                collate_step.batch_of_rows,
                source.source_array,
                positions.numbers,
                positions,
                self.epoch,
            )
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
                return first.block  # type: ignore[no-any-return]
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

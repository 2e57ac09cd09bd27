"""The records that one thread reads and processes, and the source that they come from.

The loop in `RecordChunk.run` is the only code that runs for every record, so it does little: it
reads the clock twice and writes results directly into preallocated rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from ..._utils.errors import describe_error, prefix_errors
from ..._utils.validation import describe_type
from ...backends.dispatch import as_array, get_adapter
from ...buffers import empty
from ...collator import Collator
from ...errors import DataError, DtypeError, LayoutkitError, ShapeError
from ...memory import Array, in_native_order
from ...planning.batch.random import SourcePositions
from ...spec import DType, can_cast, check_cast, check_supported_dtype
from ..records import Record
from ..samplers import Sampler
from ..samplers.orders import Order
from ..sources import Index, PartsIndex
from .collate import BatchStep
from .dropped import describe_record
from .jpeg_rows import OpenedRecord, RowDecoder
from .kept_records import KeptRecords

# Images that one call resizes: 16 take as long each (2026-11-27), and more need more memory.
_MAX_RESIZED = 32

# Records: their numbers in the index or, for part files, the records themselves.
Numbers = Array | list[Record]


class RecordSource:
    """The records of an index, in a sampler's order, and the function that reads them.

    `get` is None if the inputs are already the data: rows of an array in memory. If records are
    kept in a cache, the inputs are their numbers, and `get` also decodes, and resizes if there is a
    Collator `resize`.
    """

    def __init__(
        self,
        index: Index,
        sampler: Sampler,
        get: Callable[[Any], Any] | None,
        read: Any,
        decode: Callable[..., Any] | None = None,
        kept: KeptRecords | None = None,
        resize: Collator | None = None,
    ) -> None:
        self.index = index
        self.sampler = sampler
        self.in_parts = isinstance(index, PartsIndex)
        self.direct = get is None and index.in_memory
        self.gives_targets = get is None and index.gives_targets
        self._read = get or read
        self._decode = decode
        self._kept = kept
        self._resize = resize
        self.resizes_kept = resize is not None  # `open_kept` is faster than `get`
        self._decodes_files = get is None and decode is not None
        self.get: Callable[[Any], Any] | None = None if self.direct else self._read
        if kept is not None:
            self.get = self._get_kept

    def __len__(self) -> int:
        return len(self.index)

    def order(self, epoch: int, marks: Any = None) -> Order:
        """Return the order of an epoch, which is endless if the sampler draws records."""
        return self.sampler.order(epoch, marks)

    def take(self, order: Order, start: int, stop: int) -> Numbers:
        """Return the records at positions start .. stop-1; fewer at the epoch's end."""
        if self.index.reads_in_order:
            return order.between(start, stop)
        return order.numbers_in(start, stop)

    def read_inputs(self, numbers: Numbers) -> Sequence[Any]:
        """Return the argument of `get` for each of these records."""
        if self._kept is not None:
            return numbers.tolist()  # type: ignore[union-attr]
        return row_views(self.index.rows(numbers)) if self.direct else self.records(numbers)  # type: ignore[arg-type]

    def _get_kept(self, number: int) -> Any:
        """Return the data of a record from the cache, or else read and keep it."""
        (opened,) = self.open_kept([number])
        return opened.get_data()

    def open_kept(self, numbers: Sequence[int]) -> Iterator[OpenedRecord]:
        """Read records from the cache, or else from the source, some at a time, and keep them.

        Images are resized by one call for several, a quarter of the time of a call for each.
        """
        for start in range(0, len(numbers), _MAX_RESIZED):
            yield from self._open_some(numbers[start : start + _MAX_RESIZED])

    def _open_some(self, numbers: Sequence[int]) -> list[OpenedRecord]:
        if len({*numbers}) < len(numbers):  # the second of two equal records may be kept by then
            return [record for number in numbers for record in self._open_some([number])]
        kept: Any = self._kept
        opened = {number: OpenedRecord(kept.read(number)) for number in numbers}
        missing = [number for number, record in opened.items() if record.data is None]
        records = self.index.records(np.array(missing, np.int64)) if missing else []
        new = [_attempt(self._read_decoded, record) for record in records]
        if self._resize is not None:
            new = _resize_some(self._resize, new)
        for number, record in zip(missing, new, strict=True):
            is_read = record.data is not None
            opened[number] = _attempt(self._keep, number, record.data) if is_read else record
        return [*opened.values()]

    def _read_decoded(self, record: Record) -> Any:
        value = self._read(record)
        return value if self._decode is None or value is None else self._decode(value, out=None)

    def _keep(self, number: int, value: Any) -> Any:
        self._kept.keep(number, value, is_new=self._decodes_files)  # type: ignore[union-attr]
        return value

    def describe(self, item: Any) -> str:
        """Return the text that identifies an input in messages."""
        if self._kept is not None:
            (item,) = self.index.records(np.array([item], np.int64))
        return describe_record(item)

    def records(self, numbers: Numbers) -> list[Record]:
        """Return these records as Record objects."""
        if isinstance(numbers, list):
            return numbers
        return self.index.records(numbers)

    def positions(self, numbers: Numbers) -> SourcePositions:
        """Return the positions of these records in the whole source, across partitions."""
        if isinstance(numbers, list):
            names = [str(record.url).rpartition("/")[2] for record in numbers]
            return SourcePositions(
                np.array([record.position for record in numbers], np.int64), names
            )
        return SourcePositions(self.index.places(numbers))


def _attempt(read: Callable[..., Any], *args: Any) -> OpenedRecord:
    """Return the record that a function reads, or its error."""
    try:
        return OpenedRecord(read(*args))
    except Exception as error:
        return OpenedRecord(None, error)


def _resize_some(resize: Collator, records: list[OpenedRecord]) -> list[OpenedRecord]:
    """Resize the images of records, which may be pairs (image, target), by one call."""
    present = [record.data for record in records if record.data is not None]
    images = [data[0] if type(data) is tuple else data for data in present]
    try:
        rows = iter(resize(images) if images else ())
    except LayoutkitError as error:
        if len(records) == 1:
            return [OpenedRecord(None, error)]
        return [_resize_some(resize, [record])[0] for record in records]
    return [
        record if record.data is None else _with_image(record, next(rows)) for record in records
    ]


def _with_image(record: OpenedRecord, image: Array) -> OpenedRecord:
    data = record.data
    return OpenedRecord((image, data[1]) if type(data) is tuple else image)


def row_views(block: Array) -> list[Any]:
    """Return a writable view of each row, even if rows are single numbers."""
    if block.ndim > 1:
        return list(block)
    return [block[row, ...] for row in range(len(block))]


_log = logging.getLogger("layoutkit.data")


@dataclass(frozen=True)
class RecordPipeline:
    """The steps that each record passes through.

    strict : bool    a failure in any source, not only in the first one, fails the record
    collate_step     makes a batch from results of any size; None if results are rows
    writes_out       the processor writes all of `out`, or raises
    owns_results     the processor does not use the memory of its results again
    row_decoder      replaces the processor, if it decodes images that are cropped
    pin              returns an array of a batch in page-locked memory; None: memory of the pool
    """

    sources: tuple[RecordSource, ...]
    processor: Callable[..., Any] | None
    dtype: DType | None
    timeout: float | None
    strict: bool
    collate_step: BatchStep | None = None
    writes_out: bool = False
    owns_results: bool = False
    row_decoder: RowDecoder | None = None
    pin: Callable[[Any], Any] | None = None

    def make_reader(self) -> Callable[[Any], Any] | None:
        """Return the function that reads one input; None if the input is already the data."""
        return self.sources[0].get if len(self.sources) == 1 else self._get_all

    @property
    def opens_some(self) -> bool:
        """True if several images are opened at a time; a timeout is measured for each alone."""
        resizes = len(self.sources) == 1 and self.sources[0].resizes_kept
        return self.timeout is None and (resizes or self.row_decoder is not None)

    def make_processor(self) -> Callable[..., Any] | None:
        """Return the function that is called with the data of a record and `out`; or None."""
        processor = self.processor
        if len(self.sources) == 1 or processor is None:
            return processor
        return lambda results, out: processor(*results, out=out)

    def read_inputs(self, numbers: Sequence[Numbers]) -> Sequence[Any]:
        """Return the argument of the reading function for each record."""
        inputs = [
            source.read_inputs(part) for source, part in zip(self.sources, numbers, strict=True)
        ]
        return inputs[0] if len(inputs) == 1 else list(zip(*inputs, strict=True))

    def _get_all(self, inputs: tuple[Any, ...]) -> list[Any] | None:
        """Return the data of all sources; None if the first source refuses the record."""
        first = _read(self.sources[0], inputs[0])
        if first is None:
            return None
        rest = zip(self.sources[1:], inputs[1:], strict=True)
        return [first, *[self._read_or_none(source, item) for source, item in rest]]

    def _read_or_none(self, source: RecordSource, item: Any) -> Any:
        try:
            return _read(source, item)
        except Exception as error:
            if self.strict:
                raise
            _log.warning(
                "%s: %s; the processor gets None for this record",
                source.describe(item),
                describe_error(error),
            )
            return None


def _read(source: RecordSource, item: Any) -> Any:
    return item if source.get is None else source.get(item)


class RecordChunk:
    """Records `first` .. `first + count - 1` of a batch, and their results.

    block : array        the results in rows: part of the batch if its shape is known beforehand,
                         else allocated for the first result
    failed : dict        maps a row of the chunk to its error, None for a refused record
    irregular : dict     maps a row to its result, if that does not fit the block or results are
                         collated: an array, or a dict of arrays
    targets : dict       maps a row to the target that the processor returned
    """

    def __init__(
        self,
        pipeline: RecordPipeline,
        first: int,
        numbers: Sequence[Numbers],
        block: Array | None,
        epoch: int = 0,
    ) -> None:
        self.pipeline = pipeline
        self.first = first
        self.numbers = numbers
        self.epoch = epoch  # random windows depend on it
        self.count = len(numbers[0])
        self.is_preallocated = block is not None  # the processor receives rows as `out`
        self.failed: dict[int, BaseException | None] = {}
        self.irregular: dict[int, Any] = {}
        self.targets: dict[int, Any] = {}
        self.target_block: Array | None = None
        self.is_from_source = False  # all results are rows of the source array
        self.get_seconds = self.process_seconds = 0.0
        self.block: Any = None
        self.stopped = False
        self.current: tuple[int, float] | None = None  # row and start time, if there is a timeout
        self._set_block(block)

    def run(self) -> None:
        """Read and process every record."""
        if self._run_vectorized():
            return
        timeout = self.pipeline.timeout
        inputs = self.pipeline.read_inputs(self.numbers)
        records: Iterable[Any] = inputs
        get = self.pipeline.make_reader()
        process = self.pipeline.make_processor()
        if (decoder := self.pipeline.row_decoder) is not None:
            positions = self.pipeline.sources[0].positions(self.numbers[0])
            records = decoder.open_records(inputs, get, positions, self.epoch)
            get, process = OpenedRecord.get, decoder.decode
        elif self.pipeline.opens_some:
            records, get = self.pipeline.sources[0].open_kept(inputs), OpenedRecord.get_data
        block = self.block
        shape = self._shape
        dtype = self._dtype
        is_preallocated = self.is_preallocated
        now = perf_counter()
        for row, item in enumerate(records):
            if timeout is not None:
                self.current = (row, now)
            if self.stopped:
                return
            out = self._rows[row] if is_preallocated else None
            read_time = now
            try:
                value = item if get is None else get(item)
                read_time = perf_counter()
                if process is not None and value is not None:
                    value = process(value, out=out)
                if type(value) is tuple:
                    value = self._split(row, value)
                if value is None:
                    self.failed[row] = None
                elif type(value) is np.ndarray and value.dtype is dtype and value.shape == shape:
                    if value is not out:
                        block[row] = value
                else:
                    self._store(row, value)
                    block = self.block
                    shape = self._shape
                    dtype = self._dtype
            except Exception as error:
                is_explained = is_preallocated or process is None
                self.failed[row] = error if is_explained else _explain_out(error)
            end = perf_counter()
            if timeout is not None and end - now > timeout:
                self.failed[row] = timeout_error(timeout)
            self.get_seconds += read_time - now
            self.process_seconds += end - read_time
            now = end
        self.current = None

    def finished_part(self, row: int, is_late: bool) -> RecordChunk:
        """Return a copy of the results before `row`, and a failure of `row` if `is_late`."""
        count = row + is_late
        part = RecordChunk(
            self.pipeline, self.first, [numbers[:count] for numbers in self.numbers], None
        )
        part.failed.update((k, v) for k, v in list(self.failed.items()) if k < row)
        part.irregular.update((k, v) for k, v in list(self.irregular.items()) if k < row)
        part.targets.update((k, v) for k, v in list(self.targets.items()) if k < row)
        if is_late:
            part.failed[row] = timeout_error(self.pipeline.timeout or 0)
        part.is_preallocated = self.is_preallocated
        if self.block is not None:
            part._set_block(self.block[:count].copy())
        return part

    def _run_vectorized(self) -> bool:
        """Gather all rows at once and return True; return False if records need separate work."""
        pipeline = self.pipeline
        source = pipeline.sources[0]
        if pipeline.processor is not None or not source.direct:
            return False
        if pipeline.collate_step is not None:
            self.is_from_source = True  # the CollateStep reads them
            return True
        start = perf_counter()
        numbers: Any = self.numbers[0]
        rows = in_native_order(source.index.rows(numbers))
        dtype = self._dtype or pipeline.dtype or rows.dtype
        fits = self.block is None or rows.shape == self.block.shape
        if not fits or not can_store(rows, dtype):
            return False
        check_supported_dtype(dtype)
        if self.block is not None:
            self.block[...] = rows
        else:
            self.block = rows if rows.dtype == dtype else _cast(rows, dtype)
        self.get_seconds = perf_counter() - start
        return True

    def _split(self, row: int, pair: tuple[Any, ...]) -> Any:
        """Return the array of an (array, target) pair, and store the target."""
        if len(pair) != 2:
            raise DataError(
                f"the result is a tuple of {len(pair)} items; return an array or (array, target)"
            )
        value, target = pair
        if value is not None:
            # A copy, since the processor may reuse the memory for its next record.
            if not isinstance(target, int | float | np.number):
                target = np.array(target)
                check_supported_dtype(target.dtype)
                if target.dtype.kind in "UST":
                    raise DataError("the target is text; return the number of its class")
            self.targets[row] = target
        return value

    def _store(self, row: int, value: Any) -> None:
        """Copy a result into its row, or store it separately if it does not fit."""
        collate_step = self.pipeline.collate_step
        if collate_step is not None:
            is_dict = bool(collate_step.fields)
            self.irregular[row] = (
                self._as_fields(value, collate_step.fields) if is_dict else self._as_sample(value)
            )
            return
        array = _as_native_array(value)
        if self.block is None:
            dtype = self.pipeline.dtype or array.dtype
            _check_values(array, dtype)
            self._set_block(empty((self.count, *array.shape), dtype))
        if array.shape != self._shape or (
            self.pipeline.dtype is None and array.dtype != self._dtype
        ):
            self._store_irregular(row, array)
            return
        _check_values(array, self._dtype)  # type: ignore[arg-type]
        self.block[row] = array

    def _as_sample(self, value: Any) -> Array:
        """Return a result as an array; a copy if the processor may use its memory again."""
        array = _as_native_array(value)
        is_kept = self.pipeline.owns_results or type(value) is bytes
        return array if is_kept else _cast(array, array.dtype)

    def _as_fields(self, value: Any, names: Sequence[str]) -> dict[str, Array]:
        """Return these fields of a result as arrays; raise DataError if one is missing."""
        if not isinstance(value, Mapping):
            raise DataError(
                f"the result is {describe_type(value)}, but collate= is a dict; return "
                f"a dict with {', '.join(names)}"
            )
        missing = [name for name in names if name not in value]
        if missing:
            raise DataError(
                f"the result has no {', '.join(missing)}, which collate= names, but "
                f"{', '.join(map(str, value)) or 'nothing'}; return all fields"
            )
        fields = {}
        for name in names:
            with prefix_errors(f"field {name}: ", LayoutkitError):
                fields[name] = self._as_sample(value[name])
        return fields

    def _store_irregular(self, row: int, array: Array) -> None:
        if self.is_preallocated:
            if array.shape == self._shape:
                _check_values(array, self._dtype)  # type: ignore[arg-type]
                self.block[row] = array
                return
            raise ShapeError(
                f"the result has shape {array.shape}, but a record of this batch has "
                f"{self._shape}; resize it in the processor, or correct input_dims"
            )
        self.irregular[row] = array.copy()

    def _set_block(self, block: Array | None) -> None:
        self.block = block
        self._rows: list[Any] = (
            row_views(block) if self.is_preallocated and block is not None else []
        )
        self._shape = None if block is None else block.shape[1:]
        self._dtype = None if block is None else block.dtype


def _explain_out(error: Exception) -> Exception:
    """Return the error of a processor, with a hint if it used an `out` that is None."""
    if type(error) not in (TypeError, AttributeError) or "NoneType" not in str(error):
        return error
    hint = "out is None unless input_dims gives the shape of a record"
    return type(error)(f"{error}; {hint}").with_traceback(error.__traceback__)


def timeout_error(timeout: float) -> TimeoutError:
    """Return the error of a record that exceeded the timeout."""
    return TimeoutError(f"reading and processing the record took longer than {timeout:g} s")


def can_store(array: Array, dtype: DType) -> bool:
    """Return True if an array can be cast by "same_kind", and integers keep their values."""
    if array.dtype == dtype or can_cast(array.dtype, dtype, "safe"):
        return True
    if not can_cast(array.dtype, dtype, "same_kind"):
        return False
    if array.dtype.kind not in "iu" or dtype.kind not in "iu" or not array.size:
        return True
    bounds = np.iinfo(dtype)
    return bool(bounds.min <= array.min() and array.max() <= bounds.max)


def _check_values(array: Array, dtype: DType) -> None:
    """Raise DtypeError unless an array can be stored in rows of a dtype."""
    check_cast(array.dtype, dtype, "same_kind")
    if not can_store(array, dtype):
        raise DtypeError(
            f"the result has {array.dtype} values from {array.min()} to {array.max()}, which "
            f"{dtype} cannot hold; omit dtype=, or reduce them in the processor"
        )


def _cast(rows: Array, dtype: DType) -> Array:
    block = empty(rows.shape, dtype)
    block[...] = rows
    return block


def _as_native_array(value: Any) -> Array:
    """Return a result as an array of a supported dtype, in native byte order."""
    array = _as_array(value)
    check_supported_dtype(array.dtype)
    return in_native_order(array)


def _as_array(value: Any) -> Array:
    """Return a result as an array; bytes become a vector of uint8."""
    if isinstance(value, bytes | bytearray | memoryview):
        return np.frombuffer(value, np.uint8)
    if isinstance(value, np.ndarray) or get_adapter(value) is not None:
        return as_array(value, "the result")
    if isinstance(value, str):
        raise DataError("the result is text; return an array, or a number")
    if isinstance(value, Mapping):
        raise DataError(
            f"the result has the fields {', '.join(map(str, value))}; give collate= a dict with a "
            "Collator for each, or return an array"
        )
    try:
        return np.asarray(value)
    except ValueError:
        raise ShapeError(
            f"the result is {describe_type(value)} whose parts differ in length; return an array"
        ) from None

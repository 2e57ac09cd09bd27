"""Some records of a batch, got and processed one after the other by one thread.

The loop is the one place where every record costs Python time, so it looks at each as little as
it can: clocks twice, results straight into rows of memory that is there already.

Knows one stretch of records; neither threads nor batches are known here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from ...arrays.adapters import adapter_of, as_array
from ...buffers import empty
from ...checks import kind_text
from ...errors import DataError, ShapeError
from ...memory import Array
from ...spec import DType, can_cast, check_cast, check_movable
from ..formats import container_of
from .feeds import Feed, Numbers, rows_of
from .joining import Joining

__all__ = ["Chunk", "Work", "name_of", "words_of"]

_log = logging.getLogger("layoutkit.data")


@dataclass(frozen=True)
class Work:
    """What is done to each record.

    strict : bool    a source that fails, even if it is not the first, fails the record
    join : Joining   what makes a batch of results of any size; None: they are rows
    fills : bool     the processor writes all of `out`, or fails
    """

    feeds: tuple[Feed, ...]
    processor: Callable[..., Any] | None
    dtype: DType | None
    timeout: float | None
    strict: bool
    join: Joining | None = None
    fills: bool = False

    def getter(self) -> Callable[[Any], Any] | None:
        """What gets a thing that `things` gave; None where it is the result already."""
        return self.feeds[0].get if len(self.feeds) == 1 else self._get_all

    def processing(self) -> Callable[..., Any] | None:
        """What is called with the result of the getter and `out`."""
        processor = self.processor
        if len(self.feeds) == 1 or processor is None:
            return processor
        return lambda results, out: processor(*results, out=out)

    def things(self, numbers: Sequence[Numbers]) -> Sequence[Any]:
        """What the getter takes for each record."""
        found = [feed.things(part) for feed, part in zip(self.feeds, numbers, strict=True)]
        return found[0] if len(found) == 1 else list(zip(*found, strict=True))

    def _get_all(self, things: tuple[Any, ...]) -> list[Any] | None:
        """The results of all sources; None where the first refuses the record."""
        first = _got(self.feeds[0], things[0])
        if first is None:
            return None
        rest = zip(self.feeds[1:], things[1:], strict=True)
        return [first, *[self._got_or_none(feed, thing) for feed, thing in rest]]

    def _got_or_none(self, feed: Feed, thing: Any) -> Any:
        try:
            return _got(feed, thing)
        except Exception as error:
            if self.strict:
                raise
            _log.warning("%s: %s; the processor gets None for it", name_of(thing), words_of(error))
            return None


def _got(feed: Feed, thing: Any) -> Any:
    return thing if feed.get is None else feed.get(thing)


class Chunk:
    """Records `first` .. `first + count - 1` of a batch, and what came of them.

    block : array       the results in rows; of the batch where its shape is known before, else
                        made for the first result
    failed : dict       from a row to its error, None for a refusal; counted from 0 in the chunk
    odd : dict          from a row to a result that does not fit the block; all that are joined
    targets : dict      from a row to the target that the processor gave
    """

    def __init__(
        self, work: Work, first: int, numbers: Sequence[Numbers], block: Array | None
    ) -> None:
        self.work, self.first, self.numbers = work, first, numbers
        self.count = len(numbers[0])
        self.known = block is not None  # rows are given to the processor
        self.failed: dict[int, BaseException | None] = {}
        self.odd: dict[int, Array] = {}
        self.targets: dict[int, Any] = {}
        self.target_block: Array | None = None
        self.lies = False  # all results are rows of the source
        self.get_seconds = self.process_seconds = 0.0
        self.block: Any = None
        self.stopped = False
        self.under_way: tuple[int, float] | None = None
        self._hold(block)

    def run(self) -> None:
        """Get and process every record."""
        if self._run_at_once():
            return
        work, failed, timeout = self.work, self.failed, self.work.timeout
        get, process = work.getter(), work.processing()
        rows, block, shape, dtype = self._rows, self.block, self._shape, self._dtype
        known, ndarray, clock = self.known, np.ndarray, perf_counter
        getting = processing = 0.0
        now = clock()
        for row, thing in enumerate(work.things(self.numbers)):
            if timeout is not None:
                self.under_way = (row, now)
            if self.stopped:
                return
            out = rows[row] if known else None
            got = now
            try:
                value = thing if get is None else get(thing)
                got = clock()
                if process is not None and value is not None:
                    value = process(value, out=out)
                if type(value) is tuple:
                    value = self._split(row, value)
                if value is None:
                    failed[row] = None
                elif type(value) is ndarray and value.dtype is dtype and value.shape == shape:
                    if value is not out:
                        block[row] = value
                else:
                    self._store(row, value)
                    block, shape, dtype = self.block, self._shape, self._dtype
            except Exception as error:
                failed[row] = error
            after = clock()
            if timeout is not None and after - now > timeout:
                failed[row] = late(timeout)
            getting += got - now
            processing += after - got
            now = after
        self.under_way = None
        self.get_seconds, self.process_seconds = getting, processing

    def salvaged(self, row: int, is_late: bool) -> Chunk:
        """What came before `row`, and that this is late, where our thread cannot reach it."""
        count = row + is_late
        part = Chunk(self.work, self.first, [each[:count] for each in self.numbers], None)
        part.failed.update((k, v) for k, v in list(self.failed.items()) if k < row)
        part.odd.update((k, v) for k, v in list(self.odd.items()) if k < row)
        part.targets.update((k, v) for k, v in list(self.targets.items()) if k < row)
        if is_late:
            part.failed[row] = late(self.work.timeout or 0)
        part.known = self.known
        if self.block is not None:
            part._hold(self.block[:count].copy())
        return part

    def _run_at_once(self) -> bool:
        """Gather rows of an array that nobody has to look at one by one, where that is all."""
        work = self.work
        feed = work.feeds[0]
        if work.processor is not None or not feed.direct:
            return False
        if work.join is not None:
            self.lies = True  # they are read when they are joined
            return True
        began = perf_counter()
        rows = feed.gathered(self.numbers[0])
        dtype = self._dtype or work.dtype or rows.dtype
        fits = self.block is None or rows.shape == self.block.shape
        if not fits or not can_cast(rows.dtype, dtype, "same_kind"):
            return False
        check_movable(dtype)
        if self.block is not None:
            self.block[...] = rows
        else:
            self.block = rows if rows.dtype == dtype else _cast(rows, dtype)
        self.get_seconds = perf_counter() - began
        return True

    def _split(self, row: int, pair: tuple[Any, ...]) -> Any:
        """The array of (array, target); the target is kept."""
        if len(pair) != 2:
            raise DataError(f"the result is a tuple of {len(pair)}; give array or (array, target)")
        value, target = pair
        if value is not None:
            # A copy, as the processor may fill the same memory for its next record.
            if not isinstance(target, int | float | np.number):
                target = np.array(target)
                check_movable(target.dtype)
            self.targets[row] = target
        return value

    def _store(self, row: int, value: Any) -> None:
        """Copy a result into its row, or keep it beside the rows where it does not fit."""
        array = _as_array(value)
        check_movable(array.dtype)
        if self.work.join is not None:
            self.odd[row] = _cast(array, array.dtype)  # whoever made it may use its memory again
            return
        if self.block is None:
            dtype = self.work.dtype or array.dtype
            check_cast(array.dtype, dtype, "same_kind")
            self._hold(empty((self.count, *array.shape), dtype))
        if array.shape != self._shape or (self.work.dtype is None and array.dtype != self._dtype):
            self._put_aside(row, array)
            return
        check_cast(array.dtype, self._dtype, "same_kind")  # type: ignore[arg-type]
        self.block[row] = array

    def _put_aside(self, row: int, array: Array) -> None:
        if self.known:
            if array.shape == self._shape:
                check_cast(array.dtype, self._dtype, "same_kind")  # type: ignore[arg-type]
                self.block[row] = array
                return
            raise ShapeError(
                f"the result has shape {array.shape}, but a record of this batch has "
                f"{self._shape}; resize it in the processor, or correct input_dims"
            )
        self.odd[row] = array.copy()

    def _hold(self, block: Array | None) -> None:
        self.block = block
        self._rows: list[Any] = rows_of(block) if self.known and block is not None else []
        self._shape = None if block is None else block.shape[1:]
        self._dtype = None if block is None else block.dtype


def name_of(record: Any) -> str:
    """What messages call a record."""
    if record.url is None:
        return f"record {record.position}"
    if record.offset is not None:
        return f"{record.url}, byte {record.offset}"
    if container_of(record.url) is not None:  # a row of a Parquet file, which has no offset
        return f"{record.url}, record {record.position}"
    name: str = record.url
    return name


def words_of(error: BaseException) -> str:
    """What messages say of an error, even of one that cannot be put in words."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def late(timeout: float) -> TimeoutError:
    """The error of a record that took too long."""
    return TimeoutError(f"getting and processing it took longer than {timeout:g} s")


def _cast(rows: Array, dtype: DType) -> Array:
    block = empty(rows.shape, dtype)
    block[...] = rows
    return block


def _as_array(value: Any) -> Array:
    """A result as an array: bytes are a vector of uint8."""
    if isinstance(value, bytes | bytearray | memoryview):
        return np.frombuffer(value, np.uint8)
    if isinstance(value, np.ndarray) or adapter_of(value) is not None:
        return as_array(value, "the result")
    try:
        return np.asarray(value)
    except ValueError:
        raise ShapeError(
            f"the result is a {kind_text(value)} whose parts differ in length; give an array"
        ) from None

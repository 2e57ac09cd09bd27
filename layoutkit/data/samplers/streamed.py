"""The order of a stream: as it is read, or shuffled in a buffer.

An order can only be read forward. To resume, it reads from the beginning and skips records: the
places in the buffer are functions of seed, epoch and position, so the buffer is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..._utils.random import draw_below
from ...errors import DataError
from .orders import Order, SamplingPlan, ceil_div

if TYPE_CHECKING:
    from ..records import Record
    from ..sources import StreamIndex


class StreamOrder(Order):
    """The records of a stream, shuffled in a buffer of `shuffle_size` records."""

    def __init__(self, plan: SamplingPlan, epoch: int) -> None:
        super().__init__(plan, epoch)
        self._stream: StreamIndex = plan.material
        self._records: Any = None  # a generator from position `_next` on, if reading has begun
        self._next = 0

    @property
    def size(self) -> None:
        """None: the number of positions is unknown."""
        return None

    @property
    def num_batches(self) -> int | None:
        """The number of batches, if it was given."""
        return self.plan.num_batches

    def between(self, start: int, stop: int) -> list[Record]:
        """Return the records at positions start .. stop-1, fewer at the end of the stream."""
        width, most = self.plan.batch_size or 1, self.plan.num_batches
        if most is not None:
            stop = min(stop, most * width)
        if self._records is None or start < self._next:
            self.close()
            self._records, self._next = self._read(), 0
        self._skip_to(start)
        records = [*islice(self._records, max(0, stop - start))]
        self._next = start + len(records)
        if most is not None and self._next < stop:
            raise DataError(
                f"num_batches={most}, but the stream ended after {self._next} records, which make "
                f"{ceil_div(self._next, width)} batches of {width}; reduce num_batches"
            )
        return records

    def walk(self, position: int) -> Iterator[Record]:
        """Yield the records from a position on."""
        while records := self.between(position, position + 1):
            yield from records
            position += 1

    def close(self) -> None:
        """Close the iterator of the stream, unless another thread runs in it."""
        if self._records is not None:
            with suppress(ValueError):
                self._records.close()

    def _skip_to(self, position: int) -> None:
        for _ in islice(self._records, position - self._next):
            self._next += 1
        if self._next < position:
            raise DataError(
                f"the stream ended after {self._next} records, but the loop resumes after "
                f"{position}; it must yield the same records as when the state was made"
            )

    def _read(self) -> Iterator[Record]:
        """Yield the records from the beginning; only of full batches if the plan is `even`."""
        records = self._shuffle()
        width = self.plan.batch_size or 1
        if not self.plan.even:
            yield from records
        while len(batch := [*islice(records, width)]) == width:
            yield from batch

    def _shuffle(self) -> Iterator[Record]:
        """Yield the records from the beginning, each drawn from a full buffer."""
        records = self._stream.read()
        buffer = [*islice(records, self._stream.shuffle_size)]
        position = 0
        while buffer:
            place = draw_below(self.key, position, len(buffer))
            yield buffer[place]
            position += 1
            # The record that is read next, or the last one of the buffer, fills the place.
            last = next(records, None) or buffer.pop()
            if place < len(buffer):
                buffer[place] = last
        yield from records

"""Decoding only the first rows of JPEGs, as many as the windows of a batch read.

A crop often ends above the last row of its image. The windows are functions of the sizes of images,
which are in the headers, so a chunk of records is read first, then placed, then decoded. A JPEG has
no index of its rows: rows above a crop cannot be skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import LayoutkitError
from ...memory import Array
from ...planning.batch.random import SourcePositions
from .collate import CollateStep, MultiCollateStep

if TYPE_CHECKING:
    from ...images import Reader
    from ...images.reading import UprightJpeg

# One call places the windows of any number of images in 0.16 ms (2026-11-27), the time that
# it saves for one image. So chunks of images are longer than others. The data of 64 images of 84 kB
# are more than the heap keeps: page faults quadrupled the time of reading them.
CHUNK_SECONDS = 16e-3
_MIN_IMAGES = 2
_MAX_IMAGES = 16


class OpenedRecord(NamedTuple):
    """The data of a record, and the part of it to decode."""

    data: Any  # None if the source refuses the record
    error: Exception | None = None  # raised when the data were read
    jpeg: UprightJpeg | None = None  # None if the data are decoded entirely
    rows: int | None = None  # the number of first rows to decode

    def get(self) -> OpenedRecord | None:
        """Return the record, or None if the source refuses it; raise the error of reading it."""
        return None if self.get_data() is None else self

    def get_data(self) -> Any:
        """Return the data, or None if the source refuses the record; raise the error of reading."""
        if self.error is not None:
            raise self.error
        return self.data


@dataclass(frozen=True)
class RowDecoder:
    """Decodes the rows of images that a Collator reads; the other rows have any values."""

    reader: Reader
    step: CollateStep | MultiCollateStep  # whose `crops_rows` is True

    def open_records(
        self,
        inputs: Sequence[Any],
        get: Callable[[Any], Any] | None,
        positions: SourcePositions,
        epoch: int,
    ) -> Iterator[OpenedRecord]:
        """Read the data of records, some at a time, and find the rows to decode."""
        numbers, files = positions
        for start in range(0, len(inputs), _MAX_IMAGES):
            part = slice(start, start + _MAX_IMAGES)
            at = SourcePositions(numbers[part], None if files is None else files[part])
            yield from self._open_some([self._open(item, get) for item in inputs[part]], at, epoch)

    def _open_some(
        self, records: list[OpenedRecord], positions: SourcePositions, epoch: int
    ) -> list[OpenedRecord]:
        """Set the number of rows of records that are JPEGs."""
        jpegs = [n for n, record in enumerate(records) if record.jpeg is not None]
        if len(jpegs) >= _MIN_IMAGES:
            names = positions.files
            files = None if names is None else [names[n] for n in jpegs]
            at = SourcePositions(positions.numbers[jpegs], files)
            for n, rows in zip(jpegs, self._find_rows(records, jpegs, at, epoch), strict=True):
                records[n] = records[n]._replace(rows=max(1, int(rows)))
        return records

    def decode(self, record: OpenedRecord, out: Array | None = None) -> Array:
        """Return the pixels of an image; raise the errors of `images.read`."""
        array = None if record.jpeg is None else record.jpeg.decode(record.rows)
        return self.reader(record.data, out=out) if array is None else array

    def _open(self, item: Any, get: Callable[[Any], Any] | None) -> OpenedRecord:
        try:
            data = item if get is None else get(item)
        except Exception as error:
            return OpenedRecord(None, error)
        try:
            return OpenedRecord(data, jpeg=self.reader.open_jpeg(data))
        except Exception:  # decoding raises it again
            return OpenedRecord(data)

    def _find_rows(
        self, records: list[OpenedRecord], jpegs: list[int], positions: SourcePositions, epoch: int
    ) -> Array | list[int]:
        shapes: Any = [records[n].jpeg.shape for n in jpegs]  # type: ignore[union-attr]
        try:
            return self.step.find_row_ends(shapes, positions, epoch)
        except LayoutkitError:  # an image does not fit its window, which the Collator reports
            return [shape[0] for shape in shapes]

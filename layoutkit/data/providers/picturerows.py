"""The columns of an `ImageRecordProvider`: what its records become, and their labels.

Knows one record at a time, and batches as rows; in which order they come is not known here.
"""

from __future__ import annotations

from functools import partial
from os import fspath
from typing import Any

import numpy as np

from ...axes import Layout, parse_layout
from ...buffers import empty
from ...checks import as_count
from ...converter import Converter
from ...errors import DataError, LayoutkitError, PatternError
from ...memory import Array
from ...pictures import Augmenter
from ...spec import as_dtype
from ...views import DataView
from ..batches.chunks import Work, words_of
from ..batches.feeds import Feed
from ..batches.viewers import Viewer
from ..indexes import open_index
from ..indexes.ranged import RangedIndex
from ..reading.imagerecords import unpack_image
from ..reading.keptfiles import KeptFiles
from ..reading.reader import Reader
from ..reading.recordframes import unframed
from ..records import Record
from .fields import Field

__all__ = ["PictureRows", "labels_of", "opened", "rows_and_last"]


class PictureRows:
    """The data of batches: rows that an Augmenter makes, and the layout that they get.

    dims, dtype : of a row
    """

    def __init__(
        self, name: str, layout: str, augment: Augmenter, last: Converter | None, index: RangedIndex
    ) -> None:
        self.name, self.augment, self._last, self._index = name, augment, last, index
        self.dims, self.dtype = augment.shape, np.dtype(as_dtype(augment.dtype))
        self._reader = KeptFiles(Reader())
        self._get = index.getter(self._reader)
        self._viewer = Viewer(layout, "the data of a batch")

    def shape(self, rows: int) -> tuple[int, ...]:
        """The shape of a batch."""
        shape = (rows, *self.dims)
        return shape if self._last is None else self._last.target_shape(shape)

    def work(self, epoch: int, strict: bool) -> Work:
        """What is done to records in an epoch."""
        sampler: Any = None  # whoever draws from it knows the records
        feed = Feed(self._index, sampler, self._got, None)
        return Work((feed,), partial(self._picture, epoch), self.dtype, None, strict, fills=True)

    def filled(self, rows: Array, size: int) -> Array:
        """A batch of some size, with zeros behind the rows that there are."""
        if len(rows) < size:
            whole = empty((size, *self.dims), self.dtype)
            whole[: len(rows)], whole[len(rows) :] = rows, 0
            rows = whole
        return rows if self._last is None else self._last(rows)

    def view(self, rows: Array) -> DataView:
        """The View of a batch."""
        return self._viewer(rows)

    def close(self) -> None:
        """Let go of connections."""
        self._reader.close()

    def _got(self, record: Record) -> tuple[Record, bytes]:
        return record, self._get(record)

    def _picture(self, epoch: int, got: tuple[Record, bytes], out: Array) -> Array:
        record, data = got
        try:
            return self.augment(data, out, epoch=epoch, position=record.position or 0)
        except Exception as error:
            told = str(error) if isinstance(error, LayoutkitError) else words_of(error)
            raise DataError(f"{self._id_of(record)}{told}") from error

    def _id_of(self, record: Record) -> str:
        """The id of a record, as a message begins with it; nothing where it cannot be read."""
        try:
            url, offset = str(record.url), record.offset or 0
            data = self._reader.read(url, offset, record.length)
            header, _ = unpack_image(unframed(data, url, offset))
        except (DataError, OSError):
            return ""
        return f"the picture with the id {header.id}: "


def rows_and_last(layout: str) -> tuple[str, Converter | None]:
    """The layout of a row, and what makes a batch of rows where b is not its first axis."""
    found = parse_layout(layout)
    if "b" not in found.groups:
        raise PatternError(f'layout="{layout}" has no axis b of its own; name it, as in "bchw"')
    row = str(Layout(tuple(group for group in found.groups if group != "b"), found.names))
    return row, None if found.groups[0] == "b" else Converter(f"b{row}->{layout}")


def opened(path: Any, index: Any, listed: Any) -> RangedIndex:
    """The image records of files; "" is no file, as in MXNet."""
    given = {"index": index or None, "list": listed or None}
    found: RangedIndex = open_index(fspath(path), kind="image", **given)
    return found


def labels_of(name: str, index: RangedIndex, width: Any) -> Field:
    """The labels of all records, in memory; DataError where these are not so many a record."""
    asked = as_count("label_width", width, 1)
    if not len(index):
        return _field(name, np.zeros((0, asked)[: 1 + (asked > 1)], np.float32))
    found = index.label_width
    if found != asked:
        has = "differ in how many labels they have" if found is None else f"have {found} labels"
        fix = f"give label_width={found}" if found else "leave labels away: label_name=None"
        raise DataError(f"label_width={asked}, but the records {has}; {fix}")
    return _field(name, index.label_values(np.arange(len(index))))


def _field(name: str, array: Array) -> Field:
    return Field(name, "b" if array.ndim == 1 else "bf", 0, array, np.zeros((), np.float32))

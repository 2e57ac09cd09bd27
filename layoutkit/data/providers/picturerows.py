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
from ...collator import Collator
from ...errors import DataError, LayoutkitError, PatternError
from ...memory import Array
from ...pictures import Augmenter
from ...views import DataView
from ..batches.chunks import Work, words_of
from ..batches.feeds import Feed
from ..batches.viewers import Viewer
from ..indexes import open_index
from ..indexes.ranged import RangedIndex
from ..reading.imagerecords import unpack_image, whole_picture
from ..reading.keptfiles import KeptFiles
from ..reading.recordframes import unframed
from ..records import Record
from .fields import Field

__all__ = ["PictureRows", "labels_of", "opened", "row_layout"]


class PictureRows:
    """The data of batches: rows that an Augmenter makes of records, and batches of them.

    Rows are written by the last step of each picture, while its window is in the cache. Where b is
    not the first axis of batches they are windows, and that step is one pass over the batch; unless
    it differs from picture to picture, which takes another pass then.

    dims, dtype : of a row
    """

    def __init__(self, name: str, layout: str, augment: Augmenter, index: RangedIndex) -> None:
        self.name, self.augment, self._index = name, augment, index
        self._at = parse_layout(layout).groups.index("b")
        finish = augment.finish
        shape: Any = (augment.height, augment.width, augment.channels)
        self._last: Any = None
        self._late = bool(self._at) and not finish.varies
        if self._late:
            self.dims, self.dtype = shape, np.dtype(np.uint8)
            self._last = Collator(f"bhwc->{layout}", dtype=finish.dtype, **finish.constants)
        else:
            self.dims, self.dtype = augment.shape, finish.dtype
            if self._at:
                self._last = Collator(f"b{augment.layout}->{layout}")
        made = np.empty(augment.shape, np.int8).shape
        self._shape = made[: self._at], made[self._at :]
        self._reader = KeptFiles()
        self._get = index.getter(self._reader)
        self._viewer = Viewer(layout, "the data of a batch")

    def shape(self, rows: int) -> tuple[int, ...]:
        """The shape of a batch."""
        return (*self._shape[0], rows, *self._shape[1])

    def work(self, epoch: int, strict: bool) -> Work:
        """What is done to records in an epoch; the target of each is whether it is mirrored."""
        sampler: Any = None  # whoever draws from it knows the records
        feed = Feed(self._index, sampler, self._got, None)
        return Work((feed,), partial(self._picture, epoch), self.dtype, None, strict, fills=True)

    def batch(self, rows: Array, mirrored: Any, size: int) -> Array:
        """A batch of some size, with zeros behind the rows that there are."""
        count = len(rows)
        if count < size:
            whole = empty((size, *self.dims), self.dtype)
            whole[:count], whole[count:] = rows, 0
            rows = whole
        if self._last is None:
            return rows
        flip = None
        if self._late and mirrored is not None and mirrored.any():
            flip = {"w": np.resize(mirrored, size)}
        found: Array = self._last(rows, flip=flip)
        found[(slice(None),) * self._at + (slice(count, None),)] = 0
        return found

    def view(self, rows: Array) -> DataView:
        """The View of a batch."""
        return self._viewer(rows)

    def close(self) -> None:
        """Let go of connections."""
        self._reader.close()

    def _got(self, record: Record) -> tuple[Record, bytes]:
        if record.length is not None:
            data = self._reader.read(str(record.url), record.offset, record.length)
            picture = whole_picture(data)
            if picture is not None:
                return record, picture
        return record, self._get(record)

    def _picture(self, epoch: int, got: tuple[Record, bytes], out: Array) -> tuple[Array, bool]:
        record, data = got
        try:
            cut = self.augment.cut(data, epoch, record.position or 0)
            if self._late:
                out[...] = cut.pixels
            else:
                self.augment.finish(cut, out)
        except Exception as error:
            told = str(error) if isinstance(error, LayoutkitError) else words_of(error)
            raise DataError(f"{self._id_of(record)}{told}") from error
        return out, cut.is_mirrored

    def _id_of(self, record: Record) -> str:
        """The id of a record, as a message begins with it; nothing where it cannot be read."""
        try:
            url, offset = str(record.url), record.offset or 0
            data = self._reader.read(url, offset, record.length)
            header, _ = unpack_image(unframed(data, url, offset))
        except (DataError, OSError):
            return ""
        return f"the picture with the id {header.id}: "


def row_layout(layout: str) -> str:
    """The layout of one picture in batches of a layout."""
    found = parse_layout(layout)
    if "b" not in found.groups:
        raise PatternError(f'layout="{layout}" has no axis b of its own; name it, as in "bchw"')
    return str(Layout(tuple(group for group in found.groups if group != "b"), found.names))


def opened(path: Any, index: Any, listed: Any) -> RangedIndex:
    """The image records of files; "" is no file, as in MXNet."""
    given: dict[str, Any] = {"index": index or None, "list": listed or None}
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

"""TFRecord files: a length and its checksum, the data and its checksum, one after the other.

The data is given as it is; in most of these files it is a protocol buffer, which a processor reads.
Nothing but the length says where a record ends, so that what is behind a damaged one is lost.

Knows frames; what is in a record is not known here.
"""

from __future__ import annotations

import struct
from array import array
from functools import partial

import numpy as np

from ...errors import DataError
from ..io.crc32c import library, masked, masked_of_length
from ..io.filesystem import local_path, parent_folder
from ..io.reader import BLOCK, RangeFile
from .base import Partition
from .ranged import Columns, RangedIndex, shards_of

__all__ = ["open_tfrecord"]

_HEAD = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_AROUND = _HEAD.size + _CHECKSUM.size
_MOST = 1 << 40  # bytes of a record, so that no sum of them is beyond int64


def open_tfrecord(path: str, kind: str, partition: Partition) -> RangedIndex:
    """The index of a TFRecord file, or of several by wildcards or braces."""
    files = shards_of(path)
    load = partial(_columns, files)
    found = RangedIndex(kind, parent_folder(files[0]), partition, load, _data, _explained)
    if all(local_path(file) is not None for file in files):
        len(found)  # what is wrong with them is raised here
    return found


def _columns(files: list[str]) -> Columns:
    offsets, lengths = array("q"), array("q")
    counts = []
    for path in files:
        before = len(offsets)
        with RangeFile(path) as file:
            _walk(file, offsets, lengths)
        counts.append(len(offsets) - before)
    column = np.repeat(np.arange(len(files), dtype=np.int32), counts) if len(files) > 1 else None
    return Columns(files, column, np.array(offsets, np.int64), np.array(lengths, np.int64))


def _walk(file: RangeFile, offsets: array[int], lengths: array[int]) -> None:
    """Add the records of a file; behind a damaged length, one of unknown length."""
    at, start, block = 0, 0, b""
    while at < file.size:
        place = at - start
        if place + _HEAD.size > len(block):
            # As much as a few records had, so that large ones are not read.
            near = at - int(offsets[-8]) if len(offsets) >= 8 and offsets[-8] < at else 0
            start, place = at, 0
            block = file.read_at(at, BLOCK if near < 8 * file.max_gap else _HEAD.size)
        length = _length(block, place)
        offsets.append(at)
        lengths.append(-1 if length is None else length)
        if length is None:
            return
        at += length


def _length(head: bytes, place: int = 0) -> int | None:
    """The bytes of the record that begins so, with what is around it; None where none does."""
    if place + _HEAD.size > len(head):
        return None
    length, checksum = _HEAD.unpack_from(head, place)
    if length > _MOST or checksum != masked_of_length(length):
        return None
    return _AROUND + int(length)


def _data(data: bytes, url: str, offset: int) -> bytes:
    """What is in a record; DataError where a checksum is another."""
    if _length(data) != len(data):
        raise _explained(url, offset)
    found, known = data[_HEAD.size : -_CHECKSUM.size], library()
    if known is not None and _CHECKSUM.unpack(data[-_CHECKSUM.size :])[0] != masked(known(found)):
        raise DataError(f"{url}: the record at byte {offset} is damaged: its checksum is another")
    return found


def _explained(url: str, offset: int) -> DataError:
    with RangeFile(url) as file:
        head = file.read_at(offset, _HEAD.size)
    if head.startswith(b"\x1f\x8b"):
        return DataError(f"{url} is compressed (gzip); unpack it, as records are read one by one")
    if len(head) < _HEAD.size:
        return DataError(f"{url} is cut: it ends inside the record that begins at byte {offset}")
    return DataError(
        f"{url}: no record of TFRecord begins at byte {offset}, as the checksum of its length is "
        "another; it and what lies behind cannot be read"
    )

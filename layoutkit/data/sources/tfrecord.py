"""TFRecord files: records of a length, its checksum, the data, and its checksum.

The data is returned unchanged; in most of these files it is a protocol buffer, which the caller's
processor parses. Only the length tells where a record ends, so everything after a damaged length
is lost.
"""

from __future__ import annotations

import struct
from array import array
from functools import partial

import numpy as np

from ...errors import DataError
from ..io.crc32c import library, masked, masked_of_length
from ..io.reader import BLOCK, RangeFile
from .base import Partition
from .ranged import (
    RangedIndex,
    RecordColumns,
    Versions,
    check_uncompressed,
    expand_shards,
    number_files,
    open_part,
)

_HEAD = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_OVERHEAD = _HEAD.size + _CHECKSUM.size
_MAX_LENGTH = 1 << 40  # bytes of a record, so that no sum of lengths exceeds int64


def open_tfrecord(path: str, kind: str, partition: Partition) -> RangedIndex:
    """Open a TFRecord file, or several by wildcards or braces."""
    files = expand_shards(path)
    return RangedIndex(kind, files, partition, partial(_columns, files), _data, _record_error)


def _columns(files: list[str], versions: Versions) -> RecordColumns:
    offsets = array("q")
    lengths = array("q")
    counts = []
    for path in files:
        before = len(offsets)
        with open_part(path, versions) as file:
            _walk(file, offsets, lengths)
        counts.append(len(offsets) - before)
    spans = np.array(offsets, np.int64), np.array(lengths, np.int64)
    return RecordColumns(files, number_files(counts), *spans)


def _walk(file: RangeFile, offsets: array[int], lengths: array[int]) -> None:
    """Append the records of a file; the last one gets length -1 if its length is damaged."""
    pos = 0
    block_start = 0
    block = b""
    while pos < file.size:
        place = pos - block_start
        if place + _HEAD.size > len(block):
            # The bytes of the last eight records decide: large records are not read.
            nbytes = pos - int(offsets[-8]) if len(offsets) >= 8 and offsets[-8] < pos else 0
            block_start = pos
            place = 0
            block = file.read_at(pos, BLOCK if nbytes < 8 * file.max_gap else _HEAD.size)
        length = _length(block, place)
        offsets.append(pos)
        lengths.append(-1 if length is None else length)
        if length is None:
            if not pos:
                check_uncompressed(file)
            return
        pos += length


def _length(head: bytes, place: int = 0) -> int | None:
    """Return the size in bytes of the record at `place`, with overhead; None if it is invalid."""
    if place + _HEAD.size > len(head):
        return None
    length, checksum = _HEAD.unpack_from(head, place)
    if length > _MAX_LENGTH or checksum != masked_of_length(length):
        return None
    return _OVERHEAD + int(length)


def _data(data: bytes, url: str, offset: int) -> bytes:
    """Return the data of a record; DataError if a checksum does not match."""
    if _length(data) != len(data):
        raise _record_error(url, offset)
    payload = data[_HEAD.size : -_CHECKSUM.size]
    crc = library()
    if crc is not None and _CHECKSUM.unpack(data[-_CHECKSUM.size :])[0] != masked(crc(payload)):
        raise DataError(f"{url}: the record at byte {offset} is damaged: its checksum is another")
    return payload


def _record_error(url: str, offset: int) -> DataError:
    with RangeFile(url) as file:
        head = file.read_at(offset, _HEAD.size)
    if len(head) < _HEAD.size:
        return DataError(
            f"{url} is truncated: it ends inside the record that begins at byte {offset}"
        )
    return DataError(
        f"{url}: no record of TFRecord begins at byte {offset}, as the checksum of its length is "
        "another; it and the rest cannot be read"
    )

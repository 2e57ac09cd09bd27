"""RecordIO: packing of records into frames, and a scanner that finds the records of a file.

A frame is a 32-bit magic word (MAGIC), a word of part flag and length, the data, and padding to a
multiple of 4 bytes; both words are its head. A record that contains MAGIC at a multiple of 4 is
split there into parts with one frame each, and that word is omitted. So an aligned MAGIC, followed
by the flag of a whole record or of a first part, always begins a record.

The scanner reads small records in blocks of many, and only the heads of large records: a file of
hundreds of gigabytes needs one small read per part. After a damaged record, the scan continues at
the next valid head.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...errors import DataError
from ...memory import Array
from .reader import BLOCK, RangeFile

MAGIC = 0xCED7230A
LENGTH = (1 << 29) - 1  # mask of the length in the second word
WHOLE, FIRST, MIDDLE, LAST = range(4)  # part flags, the bits above the length
HEAD = 8  # bytes before the data

_WORD = struct.pack("<I", MAGIC)
_HEAD = struct.Struct("<II")


class FrameError(DataError):
    """An error for bytes that are not a valid frame; `place` is their position."""

    def __init__(self, message: str, place: int = 0) -> None:
        super().__init__(message)
        self.place = place


def pack_frames(payload: bytes) -> bytes:
    """Return the frames of a record; DataError if it is too long."""
    if len(payload) > LENGTH:
        raise DataError(
            f"the record has {len(payload)} bytes, but RecordIO allows at most {LENGTH}; split it "
            "into several records"
        )
    cuts = list(_find_magic(payload))
    if not cuts:
        return b"".join((_HEAD.pack(MAGIC, len(payload)), payload, bytes(-len(payload) % 4)))
    ends = [*cuts, len(payload)]
    pieces = []
    start = 0
    for number, end in enumerate(ends):
        flag = LAST if number == len(cuts) else MIDDLE if number else FIRST
        pieces += [_HEAD.pack(MAGIC, flag << 29 | end - start), payload[start:end]]
        start = end + 4
    return b"".join((*pieces, bytes(-len(payload) % 4)))


def unpack_frames(data: bytes, name: str = "the data", offset: int = 0) -> bytes:
    """Return the record in `data`, which must be exactly the frames of one record.

    Raises FrameError; its message has `name`, the file, and `offset`, the position of `data` in it.
    """
    if len(data) >= HEAD:
        magic, word = _HEAD.unpack_from(data)
        # The flag of a whole record is 0, so `word` is its length.
        if magic == MAGIC and word + HEAD + -word % 4 == len(data):
            if find_head(data, HEAD) is not None:  # a damaged length covers the next record
                raise FrameError(_no_record_text(name, offset), HEAD)
            return data[HEAD : HEAD + word]
    parts: list[bytes] = []
    pos = 0
    for start, length, flag in iter_parts(data):
        if (flag in (WHOLE, FIRST)) != (pos == 0):
            raise FrameError(_no_record_text(name, offset), pos)
        pos = start + length + -length % 4
        if find_head(data[start : start + length]) is not None:
            raise FrameError(_no_record_text(name, offset), start)
        parts.append(data[start : start + length])
        if pos > len(data) or (flag in (WHOLE, LAST)) != (pos == len(data)):
            raise FrameError(_no_record_text(name, offset), pos)
    if pos != len(data) or not pos:
        raise FrameError(_no_record_text(name, offset), pos)
    return _WORD.join(parts)


def iter_parts(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (start, length, flag) of each part in the data, up to the first invalid frame."""
    pos = 0
    while pos + HEAD <= len(data):
        magic, word = _HEAD.unpack_from(data, pos)
        if magic != MAGIC:
            return
        length = word & LENGTH
        yield pos + HEAD, length, word >> 29
        pos += HEAD + length + -length % 4


def is_record_head(head: bytes) -> bool:
    """Return True if these 8 bytes are the head of a record."""
    if len(head) < HEAD:
        return False
    magic, word = _HEAD.unpack(head)
    return bool(magic == MAGIC and word >> 29 <= FIRST)


def find_head(data: bytes, start: int = 0) -> int | None:
    """Return the position of the first record head from `start` on, in steps of 4; or None."""
    heads = (pos for pos in _find_magic(data, start) if is_record_head(data[pos : pos + HEAD]))
    return next(heads, None)


_HEADS_BLOCK = 1 << 12  # bytes read at once to find the heads of the parts of a record


def record_span(file: RangeFile, offset: int) -> int:
    """Return the number of bytes of the record at `offset`, which may end beyond the file.

    Raises FrameError if no record begins at `offset`, or its parts are not contiguous.
    """
    pos = offset
    first = True
    block = b""
    block_start = offset
    while True:
        if pos + HEAD > block_start + len(block):  # one read for many short parts
            block_start = pos
            block = file.read_at(pos, HEAD if first else _HEADS_BLOCK)
        head = block[pos - block_start :][:HEAD]
        if len(head) < HEAD:
            if not first or (head and _WORD.startswith(head[:4])):
                raise FrameError(
                    f"{file.url} is truncated: it ends after {file.size} bytes, inside the record "
                    f"that begins at byte {offset}",
                    pos,
                )
            raise FrameError(
                f"{_no_record_text(file.url, offset)}; the file has {file.size} bytes", pos
            )
        magic, word = _HEAD.unpack(head)
        flag = int(word) >> 29
        length = int(word) & LENGTH
        if pos % 4 or magic != MAGIC or flag not in ((WHOLE, FIRST) if first else (MIDDLE, LAST)):
            raise FrameError(_no_record_text(file.url, offset), pos)
        pos += HEAD + length + -length % 4
        if flag in (WHOLE, LAST):
            return pos - offset
        first = False


def _no_record_text(name: str, offset: int) -> str:
    return f"{name}: no record begins at byte {offset}, or its parts are damaged"


_LONG = 1 << 12  # bytes from which NumPy searches faster than `bytes.find`, 17 times at 100 KB


def _find_magic(data: bytes, start: int = 0) -> Iterator[int]:
    """Yield the positions of MAGIC in the data, from `start` on in steps of 4."""
    if len(data) - start >= _LONG:
        words = np.frombuffer(data, "<u4", (len(data) - start) // 4, start)
        yield from (start + 4 * np.flatnonzero(words == MAGIC)).tolist()
        return
    pos = data.find(_WORD, start)
    while pos >= 0:
        is_aligned = (pos - start) % 4 == 0
        if is_aligned:
            yield pos
        pos = data.find(_WORD, pos + (4 if is_aligned else 1))


BROKEN = -1


class Spans(NamedTuple):
    """The offsets and lengths of records; an unreadable record has the length -1 (BROKEN)."""

    offsets: Array
    lengths: Array


def scan_records(file: RangeFile) -> Spans:
    """Return the spans of all records of a file; unreadable ones have the length BROKEN."""
    spans: list[tuple[Array, Array]] = []
    pos = 0
    mean_length = 0.0
    while pos < file.size:
        if mean_length <= file.max_gap:
            starts, lengths = _scan_block(file.read_at(pos, BLOCK), file.size - pos)
            if len(starts):
                spans.append((pos + starts, lengths))
                nbytes = int(starts[-1] + lengths[-1])
                pos += nbytes
                mean_length = nbytes / len(starts)
                continue
        length, stop = _scan_record(file, pos, mean_length <= file.max_gap)
        spans.append((np.array([pos]), np.array([length])))
        # Reading a block is expensive: after damage, or a record that filled a whole block, several
        # small records must follow before the next block is read.
        mean_length = max(mean_length, 2.0 * file.max_gap if length == BROKEN else float(length))
        mean_length = (7 * mean_length + stop - pos) / 8
        pos = stop
    if not spans:
        return Spans(np.zeros(0, np.int64), np.zeros(0, np.int64))
    return Spans(*(np.concatenate(column) for column in zip(*spans, strict=True)))


def spans_at(file: RangeFile, offsets: Array, heads: Array) -> Spans:
    """Return the spans of the records at these offsets; `heads` holds their first 8 bytes."""
    words = np.ascontiguousarray(heads[:, :HEAD]).view("<u4")
    flags = words[:, 1] >> 29
    sizes = (words[:, 1] & LENGTH).astype(np.int64)
    is_head = (words[:, 0] == MAGIC) & (offsets % 4 == 0) & (offsets + HEAD <= file.size)
    lengths = np.where(is_head & (flags == WHOLE), HEAD + sizes + -sizes % 4, BROKEN)
    for row in np.flatnonzero(is_head & (flags == FIRST)).tolist():
        lengths[row] = _span_or_broken(file, int(offsets[row]))
    return Spans(offsets, lengths)


def _scan_block(data: bytes, remaining: int) -> tuple[Array, Array]:
    """Return starts and lengths of the leading records of a block, up to the first uncertain one.

    A record is certain if it ends at the head of the next record, or at the end of the file, which
    is `remaining` bytes from the start of the block.
    """
    words = np.frombuffer(data, "<u4", len(data) // 4)
    heads = np.flatnonzero(words[:-1] == MAGIC)
    if not len(heads) or heads[0]:
        return heads[:0], heads[:0]
    seconds = words[heads + 1]
    stops = heads + 2 + ((seconds & LENGTH).astype(np.int64) + 3) // 4
    gaps = np.flatnonzero(stops[:-1] != heads[1:])
    if len(gaps):
        count = int(gaps[0]) + 1
        heads = heads[:count]
        stops = stops[:count]
        seconds = seconds[:count]
    flags = seconds >> 29
    begins = flags <= FIRST
    ends = (flags == WHOLE) | (flags == LAST)
    # A part begins a record if and only if the previous part ended one.
    expected = np.concatenate(([True], ends[:-1]))
    wrong = np.flatnonzero((begins != expected) | (flags > LAST))
    # The last part is certain only if the file ends with it.
    certain = len(heads) - (4 * int(stops[-1]) != remaining)
    if len(wrong):
        certain = int(wrong[0]) - 1
    last = np.flatnonzero(ends[: max(certain, 0)])
    starts = np.flatnonzero(begins[: max(certain, 0)])[: len(last)]
    return 4 * heads[starts], 4 * (stops[last] - heads[starts])


def _scan_record(file: RangeFile, offset: int, is_small: bool) -> tuple[int, int]:
    """Return the length of the record at `offset`, or BROKEN, and the offset to continue at.

    A record head inside the record shows that its length is damaged. The record is searched for one
    if `is_small`, or if no other record follows directly.
    """
    length = _span_or_broken(file, offset)
    if length == BROKEN:
        return BROKEN, _find_next_head(file, offset + 4, file.size)
    stop = offset + length
    if not is_small and (stop == file.size or is_record_head(file.read_at(stop, HEAD))):
        return length, stop
    end = min(stop, file.size)
    next_head = _find_next_head(file, offset + HEAD, end)
    return (BROKEN, next_head) if next_head < end else (length, stop)


def _span_or_broken(file: RangeFile, offset: int) -> int:
    try:
        return record_span(file, offset)
    except FrameError:
        return BROKEN


def _find_next_head(file: RangeFile, start: int, end: int) -> int:
    """Return the offset of the first record head from `start` on; `end` if there is none."""
    while start < end:
        data = file.read_at(start, min(BLOCK, end - start + HEAD))
        pos = find_head(data)
        if pos is not None:
            return min(start + pos, end)
        start += max(len(data) - 4, 4)
    return end

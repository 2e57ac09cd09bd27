"""RecordIO: records in frames, one after the other, with nothing before, between and behind them.

A frame is a word that never occurs elsewhere (MAGIC), a word of flag and length, the data, and
zeros up to a multiple of 4. Where the data has MAGIC at a multiple of 4 it is cut into parts, a
frame each, and that word is left out between them. So an aligned MAGIC with the flag of a whole
record or a first part is where a record begins, whatever lies around it.

Knows frames; what is in a record is not known here.

Where the records of a RecordIO file begin and end, found by their heads alone.

Small records are found many at once in blocks of the file; of large ones only the heads are read,
so that a file of hundreds of gigabytes takes as many small readings as it has parts. A place that
is damaged costs the record there, and the next head that is whole is where the walk goes on.

Knows frames; what is in a record is not known here.
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
LENGTH = (1 << 29) - 1  # the bits of the second word that are the length
WHOLE, FIRST, MIDDLE, LAST = range(4)  # the bits above
HEAD = 8  # bytes before the data

_WORD = struct.pack("<I", MAGIC)
_HEAD = struct.Struct("<II")


class FrameError(DataError):
    """Bytes that are no frame. `place` is where, counted from the first one that was given."""

    def __init__(self, message: str, place: int = 0) -> None:
        super().__init__(message)
        self.place = place


def framed(payload: bytes) -> bytes:
    """The frames of a record; DataError where it is too long for one."""
    if len(payload) > LENGTH:
        raise DataError(
            f"the record has {len(payload)} bytes, and one of RecordIO at most {LENGTH}; spread it "
            "over several"
        )
    cuts = list(_aligned(payload))
    if not cuts:
        return b"".join((_HEAD.pack(MAGIC, len(payload)), payload, bytes(-len(payload) % 4)))
    ends, pieces, start = [*cuts, len(payload)], [], 0
    for number, end in enumerate(ends):
        flag = LAST if number == len(cuts) else MIDDLE if number else FIRST
        pieces += [_HEAD.pack(MAGIC, flag << 29 | end - start), payload[start:end]]
        start = end + 4
    return b"".join((*pieces, bytes(-len(payload) % 4)))


def unframed(data: bytes, name: str = "the data", offset: int = 0) -> bytes:
    """The record in these frames, of which nothing is left over.

    Raises FrameError, with the name of the file and the place there.
    """
    if len(data) >= HEAD:
        magic, word = _HEAD.unpack_from(data)
        if magic == MAGIC and word + HEAD + -word % 4 == len(data):  # a flag would be too much
            if next_head(data, HEAD) is not None:  # as behind a length that is damaged
                raise FrameError(_no_record(name, offset), HEAD)
            return data[HEAD : HEAD + word]
    parts: list[bytes] = []
    at = 0
    for start, length, flag in parts_of(data):
        if (flag in (WHOLE, FIRST)) != (at == 0):
            raise FrameError(_no_record(name, offset), at)
        at = start + length + -length % 4
        if next_head(data[start : start + length]) is not None:
            raise FrameError(_no_record(name, offset), start)
        parts.append(data[start : start + length])
        if at > len(data) or (flag in (WHOLE, LAST)) != (at == len(data)):
            raise FrameError(_no_record(name, offset), at)
    if at != len(data) or not at:
        raise FrameError(_no_record(name, offset), at)
    return _WORD.join(parts)


def parts_of(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(start, length, flag) of the parts in the data, as long as frame follows on frame."""
    at = 0
    while at + HEAD <= len(data):
        magic, word = _HEAD.unpack_from(data, at)
        if magic != MAGIC:
            return
        length = word & LENGTH
        yield at + HEAD, length, word >> 29
        at += HEAD + length + -length % 4


def begins(head: bytes) -> bool:
    """Whether these 8 bytes are the head of a record."""
    if len(head) < HEAD:
        return False
    magic, word = _HEAD.unpack(head)
    return bool(magic == MAGIC and word >> 29 <= FIRST)


def next_head(data: bytes, start: int = 0) -> int | None:
    """Where the first record begins that does at a multiple of 4 from `start`; None for none."""
    words = np.frombuffer(data, "<u4", (len(data) - start) // 4, start)
    if len(words) < 2:
        return None
    for place in np.flatnonzero(words[:-1] == MAGIC).tolist():
        if words[place + 1] >> 29 <= FIRST:
            return start + 4 * int(place)
    return None


def span_at(file: RangeFile, offset: int) -> int:
    """The bytes from `offset` to the end of the record there, which may lie behind the file's.

    Raises FrameError where no record begins there, or its parts do not follow each other.
    """
    at, first = offset, True
    while True:
        head = file.read_at(at, HEAD)
        if len(head) < HEAD:
            if not first or (head and _WORD.startswith(head[:4])):
                raise FrameError(
                    f"{file.url} is cut: it ends after {file.size} bytes, inside the record that "
                    f"begins at byte {offset}",
                    at,
                )
            raise FrameError(f"{_no_record(file.url, offset)}; the file has {file.size} bytes", at)
        magic, word = _HEAD.unpack(head)
        flag, length = int(word) >> 29, int(word) & LENGTH
        if at % 4 or magic != MAGIC or flag not in ((WHOLE, FIRST) if first else (MIDDLE, LAST)):
            raise FrameError(_no_record(file.url, offset), at)
        at += HEAD + length + -length % 4
        if flag in (WHOLE, LAST):
            return at - offset
        first = False


def _no_record(name: str, offset: int) -> str:
    return f"{name}: no frame of a record begins at byte {offset}, or its parts are damaged"


def _aligned(payload: bytes) -> Iterator[int]:
    """Where the payload has MAGIC at a multiple of 4."""
    place = payload.find(_WORD)
    while place >= 0:
        if place % 4 == 0:
            yield place
            place = payload.find(_WORD, place + 4)
        else:
            place = payload.find(_WORD, place + 1)


BROKEN = -1


class Spans(NamedTuple):
    """Where records lie: from which byte on, and how many; -1 where no record can be read."""

    offsets: Array
    lengths: Array


def walked(file: RangeFile) -> Spans:
    """Every record of a file, and the places where one should be and cannot be read."""
    found: list[tuple[Array, Array]] = []
    at, mean = 0, 0.0
    while at < file.size:
        if mean <= file.worth:
            starts, lengths = _in_block(file.read_at(at, BLOCK), file.size - at)
            if len(starts):
                found.append((at + starts, lengths))
                behind = int(starts[-1] + lengths[-1])
                at, mean = at + behind, behind / len(starts)
                continue
        length, behind = _alone(file, at, mean <= file.worth)
        found.append((np.array([at]), np.array([length])))
        # Blocks are dear: after damage or a large record, which is behind a block that had none,
        # several small ones have to come before the next block.
        mean = max(mean, 2.0 * file.worth if length == BROKEN else float(length))
        mean, at = (7 * mean + behind - at) / 8, behind
    if not found:
        return Spans(np.zeros(0, np.int64), np.zeros(0, np.int64))
    return Spans(*(np.concatenate(column) for column in zip(*found, strict=True)))


def spans_at(file: RangeFile, offsets: Array, heads: Array) -> Spans:
    """The records that begin at these places, whose first 8 bytes are `heads`."""
    words = np.ascontiguousarray(heads[:, :HEAD]).view("<u4")
    flags, sizes = words[:, 1] >> 29, (words[:, 1] & LENGTH).astype(np.int64)
    is_head = (words[:, 0] == MAGIC) & (offsets % 4 == 0) & (offsets + HEAD <= file.size)
    lengths = np.where(is_head & (flags == WHOLE), HEAD + sizes + -sizes % 4, BROKEN)
    for row in np.flatnonzero(is_head & (flags == FIRST)).tolist():
        lengths[row] = _span(file, int(offsets[row]))
    return Spans(offsets, lengths)


def _in_block(data: bytes, left: int) -> tuple[Array, Array]:
    """Starts and lengths of the records at the beginning of a block, as far as all is well.

    Each is followed by the head of the next one, or by the end of the file, which is `left` bytes
    from the beginning. What is not clear is left to `_alone`.
    """
    words = np.frombuffer(data, "<u4", len(data) // 4)
    heads = np.flatnonzero(words[:-1] == MAGIC)
    if not len(heads) or heads[0]:
        return heads[:0], heads[:0]
    seconds = words[heads + 1]
    behind = heads + 2 + ((seconds & LENGTH).astype(np.int64) + 3) // 4
    jumps = np.flatnonzero(behind[:-1] != heads[1:])
    if len(jumps):
        upto = int(jumps[0]) + 1
        heads, behind, seconds = heads[:upto], behind[:upto], seconds[:upto]
    flags = seconds >> 29
    begins, ends = flags <= FIRST, (flags == WHOLE) | (flags == LAST)
    # A part begins a record where the one before ended one, and nowhere else.
    follows = np.concatenate(([True], ends[:-1]))
    wrong = np.flatnonzero((begins != follows) | (flags > LAST))
    # The last one is known to be good only where the file ends with it.
    known = len(heads) - (4 * int(behind[-1]) != left) if not len(wrong) else int(wrong[0]) - 1
    last = np.flatnonzero(ends[: max(known, 0)])
    starts = np.flatnonzero(begins[: max(known, 0)])[: len(last)]
    return 4 * heads[starts], 4 * (behind[last] - heads[starts])


def _alone(file: RangeFile, at: int, near: bool) -> tuple[int, int]:
    """(length, where to go on) of the one record at a place, which may be damaged.

    A record that begins inside of it says that its length is; it is looked for where the next one
    does not begin behind it, and among small records, which are `near`.
    """
    length = _span(file, at)
    if length == BROKEN:
        return BROKEN, _next_head(file, at + 4, file.size)
    behind = at + length
    if not near and (behind == file.size or begins(file.read_at(behind, HEAD))):
        return length, behind
    end = min(behind, file.size)
    inside = _next_head(file, at + HEAD, end)
    return (BROKEN, inside) if inside < end else (length, behind)


def _span(file: RangeFile, at: int) -> int:
    try:
        return span_at(file, at)
    except FrameError:
        return BROKEN


def _next_head(file: RangeFile, start: int, end: int) -> int:
    """Where the first record behind a place begins; `end` where there is none before."""
    while start < end:
        data = file.read_at(start, min(BLOCK, end - start + HEAD))
        place = next_head(data)
        if place is not None:
            return min(start + place, end)
        start += max(len(data) - 4, 4)
    return end

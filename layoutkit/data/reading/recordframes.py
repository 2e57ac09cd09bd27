"""RecordIO: records in frames, one after the other, with nothing before, between and behind them.

A frame is a word that never occurs elsewhere (MAGIC), a word of flag and length, the data, and
zeros up to a multiple of 4. Where the data has MAGIC at a multiple of 4 it is cut into parts, a
frame each, and that word is left out between them. So an aligned MAGIC with the flag of a whole
record or a first part is where a record begins, whatever lies around it.

Knows frames; what is in a record is not known here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from ...errors import DataError
from .ranges import RangeFile

__all__ = [
    "FIRST",
    "HEAD",
    "LAST",
    "LENGTH",
    "MAGIC",
    "MIDDLE",
    "WHOLE",
    "FrameError",
    "begins",
    "framed",
    "next_head",
    "parts_of",
    "span_at",
    "unframed",
]

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

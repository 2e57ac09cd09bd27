"""Where the records of a RecordIO file begin and end, found by their heads alone.

Small records are found many at once in blocks of the file; of large ones only the heads are read,
so that a file of hundreds of gigabytes takes as many small readings as it has parts. A place that
is damaged costs the record there, and the next head that is whole is where the walk goes on.

Knows frames; what is in a record is not known here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...memory import Array
from .ranges import BLOCK, RangeFile
from .recordframes import (
    FIRST,
    HEAD,
    LAST,
    LENGTH,
    MAGIC,
    WHOLE,
    FrameError,
    begins,
    next_head,
    span_at,
)

__all__ = ["Spans", "spans_at", "walked"]

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

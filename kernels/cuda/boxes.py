"""The box of places that a block of threads sums, and where its words lie in shared memory.

All counts of a box are powers of two: the number of a word is a row of bits, some for each axis,
and places in shared memory are found by shifts and XOR. Pure: integers in and out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod

__all__ = ["Boxes", "choose"]

LINE = 128  # bytes of shared memory whose columns are exchanged, and of device memory at once
COLUMN = 16  # bytes of a column of a line
LEAST_ROW = 8  # places along the last axis: 32 lanes, beside four or more along another one
LOST_BYTES = 10  # of a row: device memory gives its full speed to long ones


@dataclass(frozen=True)
class Boxes:
    """How the output is cut along each axis.

    `places` are those of a box. `groups`: so many boxes, as powers of two, are drawn one after the
    other along an axis. A word has so many places, and a computed value `size` bytes.
    """

    counts: tuple[int, ...]
    places: tuple[int, ...]
    groups: tuple[int, ...]
    words: int
    size: int

    def along(self, axis: int) -> int:
        """Boxes along an axis, in whole groups."""
        group = self.groups[axis]
        return -(-self.counts[axis] // (self.places[axis] << group)) << group

    def lanes(self, axis: int) -> int:
        """Words next to each other along an axis that threads next to each other move.

        The threads of a word's owners lie along the last axis anyway.
        """
        is_last = axis == len(self.places) - 1
        return 1 if is_last else gcd(max(1, self.places[axis] // self.words), LINE // COLUMN)

    def bits(self, axis: int) -> tuple[int, int]:
        """The bits of a place and of a lane."""
        return _exponent(self.places[axis]), _exponent(self.lanes(axis))

    @cached_property
    def slots(self) -> list[int]:
        """Bytes of shared memory from one place to the next along each axis."""
        return [self.size * prod(self.places[at + 1 :]) for at in range(len(self.places))]

    def find(self, axis: int, word: int) -> list[int]:
        """The place at which a word begins, of all words that lie along an axis."""

        def take(count: int) -> int:
            nonlocal word
            word, found = divmod(word, count)
            return found

        places, last = [0] * len(self.places), len(self.places) - 1
        lane = take(self.lanes(axis))
        if axis != last:
            places[last] = take(self.places[last])
        strip = take(self.places[axis] // (self.words * self.lanes(axis)))
        places[axis] = (strip * self.lanes(axis) + lane) * self.words
        for other in reversed(range(last)):
            if other != axis:
                places[other] = take(self.places[other])
        return places

    def slot(self, places: Sequence[int]) -> int:
        """Where in shared memory a place lies."""
        columns, pieces = LINE // COLUMN, max(1, self.words * self.size // COLUMN)
        found = 0
        for axis, (place, step) in enumerate(zip(places, self.slots, strict=True)):
            linear = place * step
            exchanged = linear // LINE % pieces
            if axis < len(places) - 1:
                exchanged ^= place // self.words * (columns // self.lanes(axis)) % columns
            found ^= linear ^ exchanged * COLUMN
        return found


def choose(
    counts: Sequence[int], near: Sequence[tuple[int, int]], words: int, size: int, most: int
) -> Boxes:
    """Boxes of at most so many places that are long along the axes that are `near`.

    These are the axes along which an array is contiguous, each with the bytes of its item. Along
    all axes but the last, boxes are whole words, so that no line of shared memory has rows whose
    columns are exchanged differently.
    """
    last = len(counts) - 1
    least = [words] * last + [max(LEAST_ROW, words, LINE // (words * size))]
    box = [1] * len(counts)
    wanted = dict.fromkeys([last, *(axis for axis, _ in near)])
    for axis in wanted:
        if prod(box) * least[axis] <= most:
            box[axis] = least[axis]
    kept = [axis for axis in wanted if box[axis] > 1]
    for axes in (kept, [at for at in reversed(range(last)) if at not in kept]):
        while longer := list(_longer(box, counts, least, axes, most)):
            box = max(longer, key=lambda tried: _score(counts, tried, near))
    groups = [_group(counts[at], box[at], near, at) for at in range(len(counts))]
    return Boxes(tuple(counts), tuple(box), tuple(groups), words, size)


def _longer(
    box: Sequence[int], counts: Sequence[int], least: Sequence[int], axes: Sequence[int], most: int
) -> Iterator[list[int]]:
    """The box, longer along one of these axes."""
    for at in axes:
        tried = [*box[:at], max(least[at], 2 * box[at]), *box[at + 1 :]]
        if box[at] < counts[at] and prod(tried) <= most:
            yield tried


def _score(counts: Sequence[int], box: Sequence[int], near: Sequence[tuple[int, int]]) -> float:
    """The share of a box that is not empty, times that of its speed which memory gives to rows."""
    filled = 1.0
    for count, places in zip(counts, box, strict=True):
        filled *= count / (-(-count // places) * places)
    time = sum(item + LOST_BYTES / min(counts[axis], box[axis]) for axis, item in near)
    return filled * sum(item for _, item in near) / time


def _group(count: int, places: int, near: Sequence[tuple[int, int]], axis: int) -> int:
    """Boxes along an axis that are drawn one after the other, as a power of two.

    They have lines of memory in common where rows of a box are shorter than a line.
    """
    rows = [places * item for at, item in near if at == axis and places > 1]
    return _exponent(min(LINE // min([LINE, *rows]), -(-count // places)))


def _exponent(number: int) -> int:
    """That of the largest power of two which is not above a number."""
    return number.bit_length() - 1

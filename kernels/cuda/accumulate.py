"""From the loops of a sum to a `CudaLaunch`: the box of a block, and how arrays are walked in it.

What `kernels/cpu/accumulate_launch.py` is for the CPU. Pure: it needs no GPU and no CUDA library.

The box of places that a block of threads sums, and where its words lie in shared memory.

All counts of a box are powers of two: the number of a word is a row of bits, some for each axis,
and places in shared memory are found by shifts and XOR. Pure: integers in and out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod

from ...planning.epilogue import DTYPES, Operand
from ...planning.loops import SumLoop, nearest
from .launch import MAX_PARTS, THREADS, WORD, CudaLaunch
from .tiling import divisor

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
        return _floor_log2(self.places[axis]), _floor_log2(self.lanes(axis))

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

        places = [0] * len(self.places)
        last = len(self.places) - 1
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
        columns = LINE // COLUMN
        pieces = max(1, self.words * self.size // COLUMN)
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
        while longer := list(_grow_box(box, counts, least, axes, most)):
            box = max(longer, key=lambda tried: _score(counts, tried, near))
    groups = [_group_exponent(counts[at], box[at], near, at) for at in range(len(counts))]
    return Boxes(tuple(counts), tuple(box), tuple(groups), words, size)


def _grow_box(
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


def _group_exponent(count: int, places: int, near: Sequence[tuple[int, int]], axis: int) -> int:
    """Boxes along an axis that are drawn one after the other, as a power of two.

    They have lines of memory in common where rows of a box are shorter than a line.
    """
    rows = [places * item for at, item in near if at == axis and places > 1]
    return _floor_log2(min(LINE // min([LINE, *rows]), -(-count // places)))


def _floor_log2(number: int) -> int:
    """That of the largest power of two which is not above a number."""
    return number.bit_length() - 1


MAX_AXES = 8  # loops of a sum
BANK = 4  # bytes of the shortest words
# Bytes of a box in the largest of its parts, 64 for each thread and as many of the next part; and
# in shared memory, where it lies in the dtype that is computed.
BOX_BYTES = 16384
TILE_BYTES = 32768
MAX_TURNS = 8  # words of a thread: of more, the parameters of 16 parts are not 4 KB
# Numbers of the dtypes that are added, which are all but bool; `ADDED` of numeric.cuh has the same.
_ADDED = (*(row.name for row in DTYPES.values() if row.kind != "b"), "c8", "c16")
CODES = {name: code for code, name in enumerate(_ADDED)}


@dataclass(frozen=True)
class _Array:
    """A part or the output: its item, its steps along the loops, and the address it begins at."""

    of: Operand
    steps: tuple[int, ...]
    address: int

    def is_wide(self, axis: int, words: int) -> bool:
        """Whether so many items along an axis are words, wherever in the box they begin."""
        beside = (step for at, step in enumerate(self.steps) if at != axis)
        width = min(WORD, words * self.of.item)
        return self.steps[axis] == self.of.item and gcd(self.address, width, *beside) == width


def prepare_sum(
    loops: Sequence[SumLoop],
    parts: Sequence[Operand],
    computed: Operand,
    target: Operand,
    addresses: Sequence[int],
) -> CudaLaunch:
    """Cut a sum into boxes.

    `addresses` are those of the first elements visited, of the parts and last of the output; all
    that matters of them is the power of two up to 16 that divides them. The caller has proved that
    there are at most MAX_AXES loops and MAX_PARTS parts, and that addresses and steps are multiples
    of the items on their side, for complex numbers of half of these.
    """
    steps = [*zip(*(loop.srcs for loop in loops), strict=True), tuple(loop.dst for loop in loops)]
    arrays = [_Array(*facts) for facts in zip([*parts, target], steps, addresses, strict=True)]
    last = len(loops) - 1
    most = max(part.item for part in parts)
    axes = [*(nearest(loops, part) for part in range(len(parts))), last]
    words = _items_per_word(arrays, axes)
    near = [(axis, array.of.item) for axis, array in zip(axes, arrays, strict=True)]
    summed, size = _sum_dtype(computed)
    places = min(BOX_BYTES // most, TILE_BYTES // size, MAX_TURNS * THREADS * words)
    boxes = choose([loop.count for loop in loops], near, words, size, places)
    # Along an axis that found no room in the box, a part is read item by item.
    axes = [axis if boxes.places[axis] > 1 else last for axis in axes]
    wide = [array.is_wide(axis, words) for array, axis in zip(arrays, axes, strict=True)]
    walks = [
        _pack_walk(boxes, array, axis, is_wide, places // (THREADS * words))
        for array, axis, is_wide in zip(arrays, axes, wide, strict=True)
    ]
    walks[-1:-1] = [bytes(len(walks[-1]))] * (MAX_PARTS - len(parts))
    params = [struct.pack("2I", len(parts), prod(boxes.places) // words)]
    params += [
        _pack_axis(boxes, at, [array.steps[at] for array in arrays]) for at in range(last + 1)
    ]
    defines = {
        "AXES": last + 1, "COMPUTED": summed, "MAX_PARTS": MAX_PARTS, "PER_WORD": words,
        "PLACES": places, "TARGET": _kernel_dtype(target), "THREADS": THREADS,
        "DTYPES": sum({1 << CODES[_kernel_dtype(part)] for part in parts}),
        "WIDTHS": (not all(wide)) + 2 * any(wide),
    }  # fmt: skip
    return CudaLaunch(
        "accumulate",
        tuple((name, str(value)) for name, value in sorted(defines.items())),
        b"".join([*params, *walks]),
        prod(boxes.along(at) for at in range(last + 1)),
        pointers=2 + MAX_PARTS,
    )


def _items_per_word(arrays: Sequence[_Array], axes: Sequence[int]) -> int:
    """Items of a word: of the longest that all arrays are read and written in, if there is one."""
    longest = WORD // max(array.of.item for array in arrays)
    least = BANK // min(array.of.item for array in arrays)
    words = longest
    while words >= max(2, least):
        if all(array.is_wide(axis, words) for array, axis in zip(arrays, axes, strict=True)):
            return words
        words //= 2
    return longest


def _kernel_dtype(of: Operand) -> str:
    """The kernel's name of a dtype; a complex item has twice the bytes of its half's."""
    return of.name if of.item == DTYPES[of.name].item else f"c{of.item}"


def _sum_dtype(of: Operand) -> tuple[str, int]:
    """What sums are computed in, and its bytes; of integers with and without a sign it is one."""
    kind = DTYPES[of.name].kind
    return (_kernel_dtype(of), of.item) if kind == "f" else ("u8", DTYPES["u8"].item)


def _pack_axis(boxes: Boxes, at: int, steps: list[int]) -> bytes:
    """An axis of the output, as `accumulate.cu` declares it."""
    steps[-1:-1] = [0] * (MAX_PARTS + 1 - len(steps))
    group = boxes.groups[at]
    numbers = boxes.counts[at], group, *boxes.bits(at), boxes.slots[at], *steps
    packed = struct.pack(f"Q3Ii{MAX_PARTS + 1}q", *numbers)
    return divisor(boxes.along(at) >> group) + packed


def _pack_walk(boxes: Boxes, array: _Array, axis: int, is_wide: bool, turns: int) -> bytes:
    """How an array is walked along an axis, by so many turns of the threads."""
    places = [boxes.find(axis, turn * THREADS) for turn in range(turns)]
    offsets = [
        sum(at * step for at, step in zip(place, array.steps, strict=True)) for place in places
    ]
    slots = [boxes.slot(place) for place in places]
    items = [boxes.slot([number * (at == axis) for at in range(len(boxes.places))])
             for number in range(boxes.words)]  # fmt: skip
    numbers = CODES[_kernel_dtype(array.of)], axis, is_wide, 0, *offsets, *slots, *items
    packed = struct.pack(f"4I{turns}q{turns}i{boxes.words}i", *numbers)
    return packed + bytes(-len(packed) % 8)

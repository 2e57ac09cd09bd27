"""Prepare the launch of a sum on a GPU: the box of a thread block, and how arrays are read in it.

`kernels/cpu/accumulate_launch.py` does this for CPUs. Pure: needs no GPU and no CUDA library.

A thread block sums a box of the output. All lengths of a box are powers of two, so the number of a
word is a bit field with some bits per axis, and shared memory is addressed by shifts and XOR.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod

from ...planning.epilogue import DTYPES, Operand
from ...planning.loops import SumLoop, smallest_stride_loop
from . import policy
from .launch import CudaLaunch
from .policy import BANK, LINE, SECTOR, THREADS, WORD
from .tiling import pack_divisor


@dataclass(frozen=True)
class Boxes:
    """A division of the output into boxes.

    `counts` are the lengths of the output's axes and `places` the lengths of a box. `groups`: the
    exponents of the numbers of boxes that are processed one after the other along an axis. `words`
    is the number of items in a word, and `size` the bytes of an item in shared memory.
    """

    counts: tuple[int, ...]
    places: tuple[int, ...]
    groups: tuple[int, ...]
    words: int
    size: int

    def along(self, axis: int) -> int:
        """Return the number of boxes along an axis, rounded up to full groups."""
        group = self.groups[axis]
        return -(-self.counts[axis] // (self.places[axis] << group)) << group

    def lanes(self, axis: int) -> int:
        """Return the adjacent words along an axis that adjacent threads move.

        Along the last axis it is 1: the threads that own words are adjacent there anyway.
        """
        is_last = axis == len(self.places) - 1
        return 1 if is_last else gcd(max(1, self.places[axis] // self.words), LINE // policy.COLUMN)

    def bits(self, axis: int) -> tuple[int, int]:
        """Return the number of bits of a position and of a lane."""
        return _floor_log2(self.places[axis]), _floor_log2(self.lanes(axis))

    @cached_property
    def slots(self) -> list[int]:
        """The byte strides of the axes in shared memory."""
        return [self.size * prod(self.places[axis + 1 :]) for axis in range(len(self.places))]

    @property
    def turns(self) -> int:
        """The number of words that one thread moves."""
        return prod(self.places) // (self.words * THREADS)

    @property
    def run(self) -> int:
        """The number of `turns` that are adjacent along the last axis, if words are along another.

        Thus a thread moves whole columns to shared memory.
        """
        return min(self.turns, policy.COLUMN // self.size)

    def find(self, axis: int, word: int) -> list[int]:
        """Return the position of a word's first item, if words are along an axis.

        The words of a thread have the same number modulo THREADS.
        """

        def take(count: int) -> int:
            nonlocal word
            word, value = divmod(word, count)
            return value

        places = [0] * len(self.places)
        last = len(self.places) - 1
        turn, thread = divmod(word, THREADS)
        if axis != last:
            word = turn // self.run * THREADS + thread
        lane = take(self.lanes(axis))
        if axis != last:
            places[last] = take(self.places[last] // self.run) * self.run + turn % self.run
        strip = take(self.places[axis] // (self.words * self.lanes(axis)))
        places[axis] = (strip * self.lanes(axis) + lane) * self.words
        for other in reversed(range(last)):
            if other != axis:
                places[other] = take(self.places[other])
        return places

    def slot(self, places: Sequence[int]) -> int:
        """Return the byte offset of a position in shared memory."""
        columns = LINE // policy.COLUMN
        pieces = max(1, self.words * self.size // policy.COLUMN)
        offset = 0
        for axis, (place, step) in enumerate(zip(places, self.slots, strict=True)):
            linear = place * step
            exchanged = linear // LINE % pieces
            if axis < len(places) - 1:
                exchanged ^= place // self.words * (columns // self.lanes(axis)) % columns
            offset ^= linear ^ exchanged * policy.COLUMN
        return offset


def choose(
    counts: Sequence[int], near: Sequence[tuple[int, int]], words: int, size: int, most: int
) -> Boxes:
    """Choose boxes of `most` items that are long along the axes in `near`.

    `near` has the axes along which an array is contiguous, each with its item size. Along all axes
    but the last, boxes have full words, so that a line of shared memory does not contain rows with
    different permutations of columns.
    """
    last = len(counts) - 1
    long_axes = dict.fromkeys([last, *(axis for axis, _ in near)])
    least = [words if axis in long_axes else 1 for axis in range(last)]
    least.append(max(policy.LEAST_SUM_ROW, words, LINE // (words * size)))
    box = [1] * len(counts)
    for axis in long_axes:
        if prod(box) * least[axis] <= most:
            box[axis] = least[axis]
    kept = [axis for axis in long_axes if box[axis] > 1]
    for axes in (kept, [axis for axis in reversed(range(last)) if axis not in kept]):
        while longer := list(_grow_box(box, counts, least, axes, most)):
            box = max(longer, key=lambda tried: _score(counts, tried, near))
    box[last] *= most // prod(box)  # beyond the array, if all of it is in the box
    groups = [_group_exponent(counts[axis], box[axis], near, axis) for axis in range(len(counts))]
    return Boxes(tuple(counts), tuple(box), tuple(groups), words, size)


def _grow_box(
    box: Sequence[int], counts: Sequence[int], least: Sequence[int], axes: Sequence[int], most: int
) -> Iterator[list[int]]:
    """Yield the box made longer along each of these axes."""
    for axis in axes:
        tried = [*box[:axis], max(least[axis], 2 * box[axis]), *box[axis + 1 :]]
        if box[axis] < counts[axis] and prod(tried) <= most:
            yield tried


def _score(counts: Sequence[int], box: Sequence[int], near: Sequence[tuple[int, int]]) -> float:
    """Return the fraction of a box that is not empty, times the fraction of peak bandwidth."""
    filled = 1.0
    for count, places in zip(counts, box, strict=True):
        filled *= count / (-(-count // places) * places)
    time = 0.0
    for axis, item in near:
        row = min(counts[axis], box[axis])
        time += max(item, SECTOR / row) + policy.LOST_BYTES / row
    return filled * sum(item for _, item in near) / time


def _group_exponent(count: int, places: int, near: Sequence[tuple[int, int]], axis: int) -> int:
    """Return the exponent of the number of boxes along an axis that are processed consecutively.

    Their rows are parts of the same stretch of memory, if the rows of a box are shorter.
    """
    rows = [places * item for near_axis, item in near if near_axis == axis and places > 1]
    return _floor_log2(min(policy.STRETCH // min([policy.STRETCH, *rows]), -(-count // places)))


def _floor_log2(number: int) -> int:
    """Return the exponent of the largest power of two that does not exceed a number."""
    return number.bit_length() - 1


# Numbers of the dtypes that can be added (all but bool), as in `ADDED` of numeric.cuh.
_ADDED = (*(row.name for row in DTYPES.values() if row.kind != "b"), "c8", "c16")
CODES = {name: code for code, name in enumerate(_ADDED)}


@dataclass(frozen=True)
class _Array:
    """A part or the output: its dtype, its strides along the loops, and its address."""

    operand: Operand
    steps: tuple[int, ...]
    address: int

    def is_wide(self, axis: int, words: int) -> bool:
        """Return True if `words` items along an axis are an aligned word anywhere in the box."""
        beside = (step for index, step in enumerate(self.steps) if index != axis)
        width = min(WORD, words * self.operand.item)
        return self.steps[axis] == self.operand.item and gcd(self.address, width, *beside) == width


def prepare_sum(
    loops: Sequence[SumLoop],
    parts: Sequence[Operand],
    computed: Operand,
    target: Operand,
    addresses: Sequence[int],
) -> CudaLaunch:
    """Divide a sum into boxes.

    `addresses` of the first elements visited: the parts, then the output; only the power of two up
    to 16 that divides them matters. The caller has proved that there are at most MAX_AXES loops and
    MAX_PARTS parts, and that addresses and strides are multiples of the item sizes on their side
    (of half an item for complex numbers).
    """
    steps = [*zip(*(loop.srcs for loop in loops), strict=True), tuple(loop.dst for loop in loops)]
    arrays = [_Array(*facts) for facts in zip([*parts, target], steps, addresses, strict=True)]
    last, most = len(loops) - 1, max(part.item for part in parts)
    axes = [*(smallest_stride_loop(loops, part) for part in range(len(parts))), last]
    words = _items_per_word(arrays, axes)
    near = [(axis, array.operand.item) for axis, array in zip(axes, arrays, strict=True)]
    summed, size = _sum_dtype(computed)
    places = min(
        policy.BOX_BYTES // most, policy.SUM_BYTES // size, policy.MAX_SUM_TURNS * THREADS * words
    )
    dtypes = {_kernel_dtype(part) for part in parts}
    # Shared memory contains items of the parts, or computed values if parts differ.
    boxes = choose(
        [loop.count for loop in loops], near, words, most if len(dtypes) == 1 else size, places
    )
    # A part is read item by item if the box has length 1 along its axis.
    axes = [axis if boxes.places[axis] > 1 else last for axis in axes]
    wide = [array.is_wide(axis, words) for array, axis in zip(arrays, axes, strict=True)]
    defines = {
        "AXES": last + 1, "COMPUTED": summed, "MAX_PARTS": policy.MAX_PARTS, "PER_WORD": words,
        "PLACES": places, "TARGET": _kernel_dtype(target), "THREADS": THREADS,
        "DTYPES": sum(1 << CODES[dtype] for dtype in dtypes),
        "WIDTHS": (not all(wide)) + 2 * any(wide),
    }  # fmt: skip
    return CudaLaunch(
        "accumulate",
        tuple((name, str(value)) for name, value in sorted(defines.items())),
        _pack_sum(boxes, arrays, axes, wide),
        prod(boxes.along(index) for index in range(last + 1)),
        pointers=2 + policy.MAX_PARTS,
    )


def _items_per_word(arrays: Sequence[_Array], axes: Sequence[int]) -> int:
    """Return the number of items in the longest word that can access all arrays, if any."""
    longest = WORD // max(array.operand.item for array in arrays)
    least = BANK // min(array.operand.item for array in arrays)
    pairs = [*zip(arrays, axes, strict=True)]
    for words in (longest >> more for more in range(longest.bit_length())):
        if words >= max(2, least) and all(array.is_wide(axis, words) for array, axis in pairs):
            return words
    return longest


def _kernel_dtype(operand: Operand) -> str:
    """Return the kernel's name of a dtype; a complex item has twice the bytes of its name."""
    return operand.name if operand.item == DTYPES[operand.name].item else f"c{operand.item}"


def _sum_dtype(operand: Operand) -> tuple[str, int]:
    """Return the dtype in which sums are computed, and its bytes; all integers use u8."""
    kind = DTYPES[operand.name].kind
    return (_kernel_dtype(operand), operand.item) if kind == "f" else ("u8", DTYPES["u8"].item)


def _pack_sum(
    boxes: Boxes, arrays: Sequence[_Array], axes: Sequence[int], wide: Sequence[bool]
) -> bytes:
    """Pack the parameters: the axes, and the walks of all parts and of the output."""
    params = struct.pack("Q", len(arrays) - 1)
    for index in range(len(boxes.counts)):
        params += _pack_axis(boxes, index, [array.steps[index] for array in arrays])
    *walks, last = map(_pack_walk, [boxes] * len(arrays), arrays, axes, wide)
    spare = bytes(len(last)) * (policy.MAX_PARTS - len(walks))
    return params + b"".join(walks) + spare + last


def _pack_axis(boxes: Boxes, axis: int, steps: list[int]) -> bytes:
    """Pack an axis of the output, as `accumulate.cu` declares it."""
    steps[-1:-1] = [0] * (policy.MAX_PARTS + 1 - len(steps))
    group = boxes.groups[axis]
    numbers = boxes.counts[axis], group, *boxes.bits(axis), boxes.slots[axis], *steps
    packed = struct.pack(f"Q3Ii{policy.MAX_PARTS + 1}q", *numbers)
    return pack_divisor(boxes.along(axis) >> group) + packed


def _pack_walk(boxes: Boxes, array: _Array, axis: int, is_wide: bool) -> bytes:
    """Pack the offsets of an array's words along an axis, for each iteration of the threads."""
    turns = boxes.turns
    places = [boxes.find(axis, turn * THREADS) for turn in range(turns)]
    offsets = [
        sum(index * step for index, step in zip(place, array.steps, strict=True))
        for place in places
    ]
    slots = [boxes.slot(place) for place in places]
    items = [boxes.slot([number * (index == axis) for index in range(len(boxes.places))])
             for number in range(boxes.words)]  # fmt: skip
    numbers = CODES[_kernel_dtype(array.operand)], axis, is_wide, 0, *offsets, *slots, *items
    packed = struct.pack(f"4I{turns}q{turns}i{boxes.words}i", *numbers)
    return packed + bytes(-len(packed) % 8)

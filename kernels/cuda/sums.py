"""From the loops of a sum to a `CudaLaunch`: the box of a block, and how arrays are walked in it.

What `kernels/cpu/sums.py` is for the CPU. Pure: it needs no GPU and no CUDA library.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

from ...planning.epilogue import DTYPES, Operand
from ...planning.loops import SumLoop, nearest
from .boxes import Boxes, choose
from .launch import MAX_PARTS
from .packing import divisor
from .sides import THREADS, WORD, CudaLaunch

__all__ = ["MAX_AXES", "prepare_sum"]

MAX_AXES = 8  # loops of a sum
BANK = 4  # bytes of the shortest words
# Bytes of a box in the largest of its parts, 64 for each thread and as many of the next part; and
# in shared memory, where it lies in the dtype that is computed.
BOX_BYTES, TILE_BYTES = 16384, 32768
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
    last, most = len(loops) - 1, max(part.item for part in parts)
    axes = [*(nearest(loops, part) for part in range(len(parts))), last]
    words = _words(arrays, axes)
    near = [(axis, array.of.item) for axis, array in zip(axes, arrays, strict=True)]
    summed, size = _computed(computed)
    places = min(BOX_BYTES // most, TILE_BYTES // size, MAX_TURNS * THREADS * words)
    boxes = choose([loop.count for loop in loops], near, words, size, places)
    # Along an axis that found no room in the box, a part is read item by item.
    axes = [axis if boxes.places[axis] > 1 else last for axis in axes]
    wide = [array.is_wide(axis, words) for array, axis in zip(arrays, axes, strict=True)]
    walks = [
        _walk(boxes, array, axis, is_wide, places // (THREADS * words))
        for array, axis, is_wide in zip(arrays, axes, wide, strict=True)
    ]
    walks[-1:-1] = [bytes(len(walks[-1]))] * (MAX_PARTS - len(parts))
    params = [struct.pack("2I", len(parts), prod(boxes.places) // words)]
    params += [_side(boxes, at, [array.steps[at] for array in arrays]) for at in range(last + 1)]
    defines = {
        "AXES": last + 1, "COMPUTED": summed, "MAX_PARTS": MAX_PARTS, "PER_WORD": words,
        "PLACES": places, "TARGET": _name(target), "THREADS": THREADS,
        "DTYPES": sum({1 << CODES[_name(part)] for part in parts}),
        "WIDTHS": (not all(wide)) + 2 * any(wide),
    }  # fmt: skip
    return CudaLaunch(
        "accumulate",
        tuple((name, str(value)) for name, value in sorted(defines.items())),
        b"".join([*params, *walks]),
        prod(boxes.along(at) for at in range(last + 1)),
        pointers=2 + MAX_PARTS,
    )


def _words(arrays: Sequence[_Array], axes: Sequence[int]) -> int:
    """Items of a word: of the longest that all arrays are read and written in, if there is one."""
    longest = WORD // max(array.of.item for array in arrays)
    least = BANK // min(array.of.item for array in arrays)
    words = longest
    while words >= max(2, least):
        if all(array.is_wide(axis, words) for array, axis in zip(arrays, axes, strict=True)):
            return words
        words //= 2
    return longest


def _name(of: Operand) -> str:
    """The kernel's name of a dtype; a complex item has twice the bytes of its half's."""
    return of.name if of.item == DTYPES[of.name].item else f"c{of.item}"


def _computed(of: Operand) -> tuple[str, int]:
    """What sums are computed in, and its bytes; of integers with and without a sign it is one."""
    kind = DTYPES[of.name].kind
    return (_name(of), of.item) if kind == "f" else ("u8", DTYPES["u8"].item)


def _side(boxes: Boxes, at: int, steps: list[int]) -> bytes:
    """An axis of the output, as `accumulate.cu` declares it."""
    steps[-1:-1] = [0] * (MAX_PARTS + 1 - len(steps))
    group = boxes.groups[at]
    numbers = boxes.counts[at], group, *boxes.bits(at), boxes.slots[at], *steps
    packed = struct.pack(f"Q3Ii{MAX_PARTS + 1}q", *numbers)
    return divisor(boxes.along(at) >> group) + packed


def _walk(boxes: Boxes, array: _Array, axis: int, is_wide: bool, turns: int) -> bytes:
    """How an array is walked along an axis, by so many turns of the threads."""
    places = [boxes.find(axis, turn * THREADS) for turn in range(turns)]
    offsets = [
        sum(at * step for at, step in zip(place, array.steps, strict=True)) for place in places
    ]
    slots = [boxes.slot(place) for place in places]
    items = [boxes.slot([number * (at == axis) for at in range(len(boxes.places))])
             for number in range(boxes.words)]  # fmt: skip
    numbers = CODES[_name(array.of)], axis, is_wide, 0, *offsets, *slots, *items
    packed = struct.pack(f"4I{turns}q{turns}i{boxes.words}i", *numbers)
    return packed + bytes(-len(packed) % 8)

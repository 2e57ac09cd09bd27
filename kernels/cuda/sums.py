"""From the loops of a sum to a `CudaLaunch`: boxes that fit shared memory, and each part's walk.

What `kernels/cpu/sums.py` is for the CPU. Pure: it needs no GPU and no CUDA library.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod

from ...planning.epilogue import DTYPES, Operand
from ...planning.loops import SumLoop, grow, nearest
from .launch import MAX_PARTS
from .packing import divisor
from .sides import THREADS, CudaLaunch

__all__ = ["MAX_AXES", "prepare_sum"]

# Items of a part that a thread has under way: 16 KB a block of 4-byte items, of which three fit.
TURNS = 16
MAX_AXES = 8  # loops of a sum
# Computed values of a box: what a thread block of every GPU may have, less what odd rows take.
BOX_BYTES, AREA_BYTES = 32768, 36864
MAX_ROWS = 512  # rows of a walk, whose places are looked up
EVEN = 8  # places that boxes are rounded to: a sector of 4-byte items
# Numbers of the dtypes that are added, which are all but bool; `ADDED` of numeric.cuh has the same.
CODES = {
    name: code for code, name in enumerate(row.name for row in DTYPES.values() if row.kind != "b")
}


def prepare_sum(
    loops: Sequence[SumLoop], parts: Sequence[Operand], computed: Operand, target: Operand
) -> CudaLaunch:
    """Cut a sum into boxes.

    The caller has proved that there are at most MAX_AXES loops (one less for complex numbers) and
    MAX_PARTS parts, and that addresses and steps are multiples of the items on their side.
    """
    size, kind = DTYPES[computed.name].item, DTYPES[computed.name].kind
    if computed.item > size:
        loops = [*loops, _pair(loops, size)]
    area = AREA_BYTES // size
    box, steps = _box(loops, BOX_BYTES // size, area)
    sides = b"".join(map(_side, loops, box, steps))
    spare = bytes(len(sides) // len(loops) * (MAX_AXES - len(loops)))
    walks = [
        _walk(CODES[part.name], box, [loop.srcs[number] for loop in loops])
        for number, part in enumerate(parts)
    ]
    walks.append(_walk(0, box, [loop.dst for loop in loops]))
    walks += [bytes(len(walks[0]))] * (MAX_PARTS - len(parts))
    params = struct.pack("3Q", len(loops), len(parts), prod(box)) + sides + spare
    params += b"".join(walks)
    defines = {
        "AREA": area, "COMPUTED": computed.name if kind == "f" else "u8", "MAX_PARTS": MAX_PARTS,
        "MAX_ROWS": MAX_ROWS,
        "TARGET": target.name, "THREADS": THREADS, "TURNS": TURNS,
        "DTYPES": sum({1 << CODES[part.name] for part in parts}),
    }  # fmt: skip
    return CudaLaunch(
        "accumulate",
        tuple((name, str(value)) for name, value in sorted(defines.items())),
        params + bytes(-len(params) % 8),
        prod(-(-loop.count // count) for loop, count in zip(loops, box, strict=True)),
        pointers=2 + MAX_PARTS,
    )


def _pair(loops: Sequence[SumLoop], size: int) -> SumLoop:
    """The loop over the real and the imaginary part."""
    return SumLoop(2, size, (size,) * len(loops[0].srcs))


def _box(loops: Sequence[SumLoop], room: int, area: int) -> tuple[list[int], list[int]]:
    """Places of a box along each loop, and the steps of its rows."""
    while True:
        box = _places(loops, room)
        steps = _rows(box)
        if steps[0] * box[0] <= area:
            return box, steps
        room //= 2


def _places(loops: Sequence[SumLoop], room: int) -> list[int]:
    """A box that is long wherever the output or a part is contiguous, and then along others."""
    inner = len(loops) - 1
    near = {inner, *(nearest(loops, part) for part in range(len(loops[0].srcs)))}
    box = [1] * len(loops)
    for axes in sorted(near, reverse=True), *([at] for at in reversed(range(inner))):
        grow(box, loops, axes, room)
    return [_even(loop.count, count) for loop, count in zip(loops, box, strict=True)]


def _even(total: int, count: int) -> int:
    """Places of a box when `total` are shared out evenly among boxes of at most `count`."""
    each = -(-total // -(-total // count))
    return min(total, count, -(-each // EVEN) * EVEN)


def _rows(box: Sequence[int]) -> list[int]:
    """The step of each axis in a box; odd, so that walking along any meets all banks."""
    steps: list[int] = []
    step = 1
    for count in reversed(box):
        step += count > 1 and step % 2 == 0
        steps.insert(0, step)
        step *= count
    return steps


def _side(loop: SumLoop, box: int, step: int) -> bytes:
    srcs = (*loop.srcs, *[0] * (MAX_PARTS - len(loop.srcs)))
    head = divisor(-(-loop.count // box)) + divisor(box)
    return head + struct.pack(f"Qqq{MAX_PARTS}q", loop.count, loop.dst, step, *srcs)


def _walk(code: int, box: Sequence[int], steps: Sequence[int]) -> bytes:
    """The axes of one array, that along which it is contiguous last: threads follow it."""
    order = sorted(range(len(steps)), key=lambda at: -(abs(steps[at]) or 1 << 62))
    places, fast, lanes = prod(box), 1, box[order[-1]]
    while places // lanes > MAX_ROWS:
        fast += 1
        lanes *= box[order[-fast]]
    spare = [0] * (MAX_AXES - len(order))
    packed = struct.pack(f"{4 + MAX_AXES}I", code, fast, *order, *spare, places // lanes, 0)
    return packed + divisor(lanes)

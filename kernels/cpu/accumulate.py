"""The sum of many arrays in one pass: every part is added to a tile while the tile is in the cache.

A tile is a region of the output, held in the computed dtype in a scratch area that fits in the
second-level cache. For each tile the first part is moved into the area, the other parts are added,
and the area is converted to the output. Every part is read once and the output is written once,
whatever the layouts: each step runs a conversion kernel of engine.py for one tile, so this module
only computes the offsets of tiles.

All tiles have one shape. If it does not divide the length of an axis, the last tile begins earlier
and overlaps its neighbor: both sum the same elements in the same order, and write the same bits.

The parameter block (64-bit words) begins with the number of loops n and of parts k, followed by

    for each loop, outermost first     count of tiles, length of a tile, start of the last tile,
                                       stride in the output
    for each part                      code, parameters and units of its kernel, offsets of the
                                       first element in the part and in the area, the part's
                                       stride of each loop
    for the output                     code, parameters, units and offsets

The call block, passed as the source, has the addresses of the k parts, then the address of the
first area, the bytes of an area, the number of areas and one flag per area. A thread claims an area
while it processes tiles; there are as many areas as the maximum number of threads.
"""

from __future__ import annotations

from numba import uintp

from .atomics import call_kernel, exchange_if, store_release
from .params import MAX_LOOPS
from .simd import i64_at, i64_put, stack
from .walk import inline

STARTS = 8 * MAX_LOOPS  # bytes for the start of a tile along each loop
LOOP_WORDS = 4  # words of a loop
STEP_WORDS = 5  # words of a part before its strides


@inline
def locate_tile(params, starts, unit):
    """Write the start of a tile along each loop to `starts`; return its offset in the output."""
    offset = 0
    for i in range(i64_at(params, 0) - 1, -1, -1):
        loop = params + uintp(8 * (2 + LOOP_WORDS * i))
        count = i64_at(loop, 0)
        first = min(unit % count * i64_at(loop, 1), i64_at(loop, 2))
        unit //= count
        i64_put(starts, i, first)
        offset += first * i64_at(loop, 3)
    return offset


@inline
def tile_offset(params, starts, step):
    """Return the offset of a tile in the part that `step` reads."""
    offset = 0
    for i in range(i64_at(params, 0)):
        offset += i64_at(starts, i) * i64_at(step, STEP_WORDS + i)
    return offset


@inline
def run_step(step, src, dst):
    code = uintp(i64_at(step, 0))
    params = uintp(i64_at(step, 1))
    x = src + uintp(i64_at(step, 3))
    y = dst + uintp(i64_at(step, 4))
    call_kernel(code, params, x, y, 0, i64_at(step, 2))


@inline
def claim_area(areas):
    """Claim a free area and return its number."""
    number = 0
    while not exchange_if(areas + uintp(8 * (3 + number)), 0, 1):
        number = number + 1 if number + 1 < i64_at(areas, 2) else 0
    return number


def build(role):
    """Build the kernel "sum", whose source argument is the call block."""
    if role != "sum":
        raise ValueError(role)

    def kernel(params, call, dst, lo, hi):
        starts = stack(STARTS)
        n = i64_at(params, 0)
        k = i64_at(params, 1)
        areas = call + uintp(8 * k)
        number = claim_area(areas)
        area = uintp(i64_at(areas, 0) + number * i64_at(areas, 1))
        for unit in range(lo, hi):
            offset = locate_tile(params, starts, unit)
            step = params + uintp(8 * (2 + LOOP_WORDS * n))
            for part in range(k):
                src = i64_at(call, part) + tile_offset(params, starts, step)
                run_step(step, uintp(src), area)
                step += uintp(8 * (STEP_WORDS + n))
            run_step(step, area, dst + uintp(offset))
        store_release(areas + uintp(8 * (3 + number)), 0)

    return kernel

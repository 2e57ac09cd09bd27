"""One row for each of two, three or four channels to packed pixels (see interleave.py).

Channel c comes from source + rows[c]. A place of the run is a pixel.
"""

from __future__ import annotations

from numba import uintp

from .interleave import merge_step
from .simd import i64_at, move_item
from .walk import BlockMover, inline
from .words import R_TABLE


def mover(itemsize, channels, literal, nt):
    """All pixels of a block; `literal` is the width of a vector."""
    width = int(literal)
    count, pixel = width // itemsize, itemsize * channels
    whole, plain = (merge_step(itemsize, channels, width, flag) for flag in (nt, 0))

    @inline
    def move(params, src, dst, n, m):
        rows = params + uintp(8 * i64_at(params, R_TABLE))
        if n < count:
            for p in range(n):
                for c in range(channels):
                    x = src + uintp(i64_at(rows, c) + p * itemsize)
                    move_item(x, dst + uintp(p * pixel + c * itemsize), itemsize)
            return
        for first in range(0, n, count):
            i = min(first, n - count)
            x, y = src + uintp(i * itemsize), dst + uintp(i * pixel)
            if nt and i != first:
                plain(x, rows, y)
            else:
                whole(x, rows, y)

    return BlockMover(move, channels)

"""Packed pixels in reverse to one row for each channel: split.py with the source from its end.

The source begins at its last pixel, which is the first of the output.
"""

from __future__ import annotations

from numba import uintp

from .interleave import split_step
from .simd import i64_at, move_item
from .walk import BlockMover, inline
from .words import Q_TABLE


def mover(itemsize, channels, literal, nt):
    """All pixels of a block; `literal` is the width of a vector."""
    width = int(literal)
    count, pixel = width // itemsize, itemsize * channels
    whole, plain = (split_step(itemsize, channels, width, flag, 1) for flag in (nt, 0))

    @inline
    def move(params, src, dst, n, m):
        cols = params + uintp(8 * i64_at(params, Q_TABLE))
        if n < count:
            for p in range(n):
                for c in range(channels):
                    x = src - uintp(p * pixel) + uintp(c * itemsize)
                    move_item(x, dst + uintp(i64_at(cols, c) + p * itemsize), itemsize)
            return
        for first in range(0, n, count):
            i = min(first, n - count)
            x, y = src - uintp((i + count - 1) * pixel), dst + uintp(i * itemsize)
            if nt and i != first:
                plain(x, y, cols)
            else:
                whole(x, y, cols)

    return BlockMover(move)

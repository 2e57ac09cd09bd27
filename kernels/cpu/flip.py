"""Items or packed pixels of up to four channels in reverse, by whole registers (see interleave.py).

The source begins at its last pixel, which is the first of the output. A place of the run is a
pixel; single items are pixels of one channel.
"""

from __future__ import annotations

from numba import uintp

from .interleave import flip_step
from .simd import move_item
from .walk import BlockMover, inline


def mover(itemsize, channels, literal, nt):
    """All pixels of a block; `literal` is the width of a vector."""
    width = int(literal)
    count, pixel = width // itemsize, itemsize * channels
    whole, plain = (flip_step(itemsize, channels, width, flag) for flag in (nt, 0))

    @inline
    def move(params, src, dst, n, m):
        if n < count:
            for p in range(n):
                for c in range(channels):
                    x = src - uintp(p * pixel) + uintp(c * itemsize)
                    move_item(x, dst + uintp(p * pixel + c * itemsize), itemsize)
            return
        for first in range(0, n, count):
            i = min(first, n - count)
            x, y = src - uintp((i + count - 1) * pixel), dst + uintp(i * pixel)
            if nt and i != first:
                plain(x, y)
            else:
                whole(x, y)

    return BlockMover(move, channels)

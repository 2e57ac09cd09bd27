"""Pixels of up to four channels to pixels of some of these channels, in any order (interleave.py).

Forward, or in reverse: then the source begins at the last pixel of a line, the first of the output.
A place of the run is a pixel. A block is lines of R_PERIOD pixels that are R_STEP bytes apart in
the source and follow each other in the output.
"""

from __future__ import annotations

from numba import uintp

from .interleave import shuffle_step
from .simd import i64_at, move_item
from .walk import BlockMover, inline
from .words import R_PERIOD, R_STEP


def mover(itemsize, channels, literal, nt):
    """`literal`: width of a vector, channels of x, 1 for in reverse, those that are taken."""
    width, count, backward, *order = map(int, literal.split("x"))
    return pixels(itemsize, width, tuple(order), count, backward, nt)


def pixels(itemsize, width, order, channels, backward, nt):
    """All pixels of a block, of which channels `order` are taken."""
    count, taken = width // itemsize, len(order)
    pixel, made = channels * itemsize, taken * itemsize
    turns = -1 if backward else 1
    reach = count - 1 if backward else 0  # pixels before the first of a step
    whole, plain = (
        shuffle_step(itemsize, channels, order, width, flag, backward) for flag in (nt, 0)
    )

    @inline
    def line(src, dst, n):
        if n < count:
            for p in range(n):
                for c in range(taken):
                    x = src + uintp(turns * p * pixel + order[c] * itemsize)
                    move_item(x, dst + uintp(p * made + c * itemsize), itemsize)
            return
        last = (n - 1) // count
        for k in range(last + 1):
            first = (last - k if backward else k) * count  # the source from its beginning
            i = min(first, n - count)
            x, y = src + uintp(turns * (i + reach) * pixel), dst + uintp(i * made)
            if nt and i != first:
                plain(x, y)
            else:
                whole(x, y)

    @inline
    def move(params, src, dst, n, m):
        period, step = i64_at(params, R_PERIOD), i64_at(params, R_STEP)
        while n > 0:
            line(src, dst, min(n, period))
            n -= period
            src += uintp(step)
            dst += uintp(period * made)

    return BlockMover(move, taken)

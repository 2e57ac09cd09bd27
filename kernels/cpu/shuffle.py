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
from .words import LANE, R_PERIOD, R_STEP


def mover(itemsize, channels, literal, nt):
    """`literal`: width of a vector, channels of x, 1 for in reverse, those that are taken."""
    width, count, backward, *order = map(int, literal.split("x"))
    return pixels(itemsize, width, tuple(order), count, backward, nt)


def pixels(itemsize, width, order, channels, backward, nt):
    """All pixels of a block, of which channels `order` are taken."""
    taken, pixel, made = len(order), channels * itemsize, len(order) * itemsize
    long, short = (
        vectors(itemsize, each, order, channels, backward, flag)
        for each, flag in ((width, nt), (LANE, 0))
    )
    long_from, short_from = width // itemsize, LANE // itemsize

    @inline
    def line(src, dst, n):
        if n >= long_from:
            long(src, dst, n)
        elif n >= short_from:
            short(src, dst, n)
        else:
            for p in range(n):
                for c in range(taken):
                    x = src + uintp((-p if backward else p) * pixel + order[c] * itemsize)
                    move_item(x, dst + uintp(p * made + c * itemsize), itemsize)

    @inline
    def move(params, src, dst, n, m):
        period, step = i64_at(params, R_PERIOD), i64_at(params, R_STEP)
        while n > 0:
            line(src, dst, min(n, period))
            n -= period
            src += uintp(step)
            dst += uintp(period * made)

    return BlockMover(move, taken)


def vectors(itemsize, width, order, channels, backward, nt):
    """move(src, dst, n): the pixels of a line that is no shorter than a vector."""
    count, pixel, made = width // itemsize, channels * itemsize, len(order) * itemsize
    whole, plain = (
        shuffle_step(itemsize, channels, order, width, flag, backward) for flag in (nt, 0)
    )

    @inline
    def move(src, dst, n):
        last = (n - 1) // count
        for k in range(last + 1):
            first = (last - k if backward else k) * count  # the source from its beginning
            i = min(first, n - count)
            place = -(i + count - 1) * pixel if backward else i * pixel
            x, y = src + uintp(place), dst + uintp(i * made)
            if nt and i != first:
                plain(x, y)
            else:
                whole(x, y)

    return move

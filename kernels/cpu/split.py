"""Packed pixels of two, three or four channels to one row for each channel (see interleave.py).

Channel c goes to output + cols[c]. A block is lines of R_PERIOD pixels that are R_STEP bytes apart
in the source and follow each other in the output.
"""

from __future__ import annotations

from numba import uintp

from .interleave import split_step
from .simd import i64_at, move_item
from .walk import BlockMover, inline
from .words import LANE, Q_TABLE, R_PERIOD, R_STEP

# Memory idles while a block is finished in the scratch area unless it was asked for the next one:
# sources that are in no cache were read at 0.46 of the limit to bfloat16, at 0.57 so.
AHEAD = 4096


def mover(itemsize, channels, literal, nt):
    """All pixels of a block; `literal` is the width of a vector."""
    return of_lines(itemsize, channels, int(literal), nt, 0)


def of_lines(itemsize, channels, width, nt, backward):
    """All lines of a block, each from its first pixel on or, `backward`, from its last."""
    long = vectors(itemsize, channels, width, nt, backward)
    short = vectors(itemsize, channels, LANE, 0, backward)
    long_from, short_from = width // itemsize, LANE // itemsize
    pixel = -itemsize * channels if backward else itemsize * channels
    near = -AHEAD if backward else AHEAD  # where the next pixels are, if there is one line

    @inline
    def line(cols, src, dst, n, ahead):
        if n >= long_from:
            long(cols, src, dst, n, ahead)
        elif n >= short_from:
            short(cols, src, dst, n, ahead)
        else:
            for p in range(n):
                for c in range(channels):
                    x = src + uintp(p * pixel + c * itemsize)
                    move_item(x, dst + uintp(i64_at(cols, c) + p * itemsize), itemsize)

    @inline
    def move(params, src, dst, n, m):
        cols = params + uintp(8 * i64_at(params, Q_TABLE))
        period, step = i64_at(params, R_PERIOD), i64_at(params, R_STEP)
        ahead = uintp(near if step == 0 else AHEAD if step > 0 else -AHEAD)
        while n > 0:
            line(cols, src, dst, min(n, period), ahead)
            n -= period
            src += uintp(step)
            dst += uintp(period * itemsize)

    return BlockMover(move)


def vectors(itemsize, channels, width, nt, backward):
    """move(cols, src, dst, n, ahead): the pixels of a line that is no shorter than a vector."""
    count, pixel = width // itemsize, itemsize * channels
    whole, plain = (split_step(itemsize, channels, width, flag, backward) for flag in (nt, 0))

    @inline
    def move(cols, src, dst, n, ahead):
        for first in range(0, n, count):
            i = min(first, n - count)
            place = -(i + count - 1) * pixel if backward else i * pixel
            x, y = src + uintp(place), dst + uintp(i * itemsize)
            if nt and i != first:
                plain(x, y, cols, ahead)
            else:
                whole(x, y, cols, ahead)

    return move

"""Short runs that are contiguous on both sides, brought together in the output's order.

Each alone would begin and end within a cache line of the output, which then cannot be streamed.
"""

from __future__ import annotations

from numba import uintp

from .simd import i64_at, move_item, move_vector
from .walk import BlockMover, inline
from .words import LANE, LINE, Q_TABLE


def mover(itemsize, channels, literal, nt):
    """m runs of n items, one right behind the other."""

    @inline
    def move(params, src, dst, n, m):
        table = params + uintp(8 * i64_at(params, Q_TABLE))
        nbytes = n * itemsize
        for q in range(m):
            x, y = src + uintp(i64_at(table, q)), dst + uintp(q * nbytes)
            at = 0
            while at + LINE <= nbytes:
                move_vector(x + uintp(at), y + uintp(at), LINE, 0)
                at += LINE
            if at < nbytes and nbytes >= LINE:  # the last line of it, part of which is there
                move_vector(x + uintp(nbytes - LINE), y + uintp(nbytes - LINE), LINE, 0)
                at = nbytes
            while at + LANE <= nbytes:
                move_vector(x + uintp(at), y + uintp(at), LANE, 0)
                at += LANE
            while at < nbytes:
                move_item(x + uintp(at), y + uintp(at), itemsize)
                at += itemsize

    return BlockMover(move)

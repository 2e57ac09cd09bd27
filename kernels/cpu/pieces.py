"""Short runs that are contiguous on both sides, brought together in the output's order.

Each alone would begin and end within a cache line of the output, which then cannot be streamed.
"""

from __future__ import annotations

from numba import uintp

from .simd import i64_at, move_item, move_vector
from .walk import BlockMover, inline
from .words import LANE, LINE, Q_TABLE


@inline
def copy_bytes(src, dst, nbytes):
    """Copy so many bytes by whole registers, the last of which overlaps the one before."""
    at = 0
    while at + LINE <= nbytes:
        move_vector(src + uintp(at), dst + uintp(at), LINE, 0)
        at += LINE
    if at < nbytes and nbytes >= LINE:
        move_vector(src + uintp(nbytes - LINE), dst + uintp(nbytes - LINE), LINE, 0)
        return
    while at + LANE <= nbytes:
        move_vector(src + uintp(at), dst + uintp(at), LANE, 0)
        at += LANE
    while at + 4 <= nbytes:
        move_item(src + uintp(at), dst + uintp(at), 4)
        at += 4
    while at < nbytes:
        move_item(src + uintp(at), dst + uintp(at), 1)
        at += 1


def mover(itemsize, channels, literal, nt):
    """m runs of n items, one right behind the other."""

    @inline
    def move(params, src, dst, n, m):
        table = params + uintp(8 * i64_at(params, Q_TABLE))
        nbytes = n * itemsize
        for q in range(m):
            copy_bytes(src + uintp(i64_at(table, q)), dst + uintp(q * nbytes), nbytes)

    return BlockMover(move)

"""Item by item, for what no vector kernel can do: any source strides, any output step.

The run of the output is walked in order; a table holds the source offset of each place of one
period of the run, and a step leads to the next period. The planner puts the loop that shares
the source's cache lines next to the run, so a line is fetched once.

Short runs that are contiguous on both sides, brought together in the output's order.

Each alone would begin and end within a cache line of the output, which then cannot be streamed.
"""

from __future__ import annotations

from numba import uintp

from .params import LANE, LINE, PACE, Q_TABLE, R_PERIOD, R_STEP, R_TABLE
from .simd import i64_at, move_item, move_vector
from .walk import BlockMover, inline


def gather_microkernel(itemsize, channels, literal, nt):
    """Items one by one, from the first to the last of the run."""

    @inline
    def move(params, src, dst, n, m):
        rows = params + uintp(8 * i64_at(params, R_TABLE))
        period, step = i64_at(params, R_PERIOD), i64_at(params, R_STEP)
        pace = i64_at(params, PACE)
        base = 0
        done = 0
        while done < n:
            for place in range(min(period, n - done)):
                x = src + uintp(base + i64_at(rows, place))
                move_item(x, dst + uintp((done + place) * pace), itemsize)
            done += period
            base += step

    return BlockMover(move)


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


def pieces_microkernel(itemsize, channels, literal, nt):
    """m runs of n items, one right behind the other."""

    @inline
    def move(params, src, dst, n, m):
        table = params + uintp(8 * i64_at(params, Q_TABLE))
        nbytes = n * itemsize
        for q in range(m):
            copy_bytes(src + uintp(i64_at(table, q)), dst + uintp(q * nbytes), nbytes)

    return BlockMover(move)

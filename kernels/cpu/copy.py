"""Microkernels that copy without rearranging vectors.

`gather` copies item by item, for any source strides and any output stride. The run of the output is
walked in order: a table holds the source offset of each position of one period of the run, and a
step leads to the next period. The planner puts the loop that shares the source's cache lines next
to the run, so that each line is fetched once.

`pieces` copies short runs that are contiguous on both sides to one contiguous scratch area, in the
output's order. Separately, each of them would begin and end within a cache line of the output, and
such lines cannot be streamed.
"""

from __future__ import annotations

from numba import uintp

from .params import LANE, LINE, OUT_STRIDE, ROWS_TABLE, RUN_PERIOD, RUN_STEP, RUN_TABLE
from .simd import i64_at, move_item, move_vector
from .walk import MicroKernel, inline


def gather_microkernel(itemsize, channels, literal, streaming):
    """Make a microkernel that copies items one by one, from the first to the last of the run."""

    @inline
    def move(params, src, dst, n, m):
        src_offsets = params + uintp(8 * i64_at(params, RUN_TABLE))
        period = i64_at(params, RUN_PERIOD)
        step = i64_at(params, RUN_STEP)
        stride = i64_at(params, OUT_STRIDE)
        base = 0
        done = 0
        while done < n:
            for i in range(min(period, n - done)):
                x = src + uintp(base + i64_at(src_offsets, i))
                move_item(x, dst + uintp((done + i) * stride), itemsize)
            done += period
            base += step

    return MicroKernel(move)


@inline
def copy_bytes(src, dst, nbytes):
    """Copy bytes by whole registers, of which the last overlaps the one before."""
    pos = 0
    while pos + LINE <= nbytes:
        move_vector(src + uintp(pos), dst + uintp(pos), LINE, 0)
        pos += LINE
    if pos < nbytes and nbytes >= LINE:
        move_vector(src + uintp(nbytes - LINE), dst + uintp(nbytes - LINE), LINE, 0)
        return
    while pos + LANE <= nbytes:
        move_vector(src + uintp(pos), dst + uintp(pos), LANE, 0)
        pos += LANE
    while pos + 4 <= nbytes:
        move_item(src + uintp(pos), dst + uintp(pos), 4)
        pos += 4
    while pos < nbytes:
        move_item(src + uintp(pos), dst + uintp(pos), 1)
        pos += 1


def pieces_microkernel(itemsize, channels, literal, streaming):
    """Make a microkernel that copies m runs of n items to contiguous memory."""

    @inline
    def move(params, src, dst, n, m):
        table = params + uintp(8 * i64_at(params, ROWS_TABLE))
        nbytes = n * itemsize
        for q in range(m):
            copy_bytes(src + uintp(i64_at(table, q)), dst + uintp(q * nbytes), nbytes)

    return MicroKernel(move)

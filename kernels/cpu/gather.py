"""Item by item, for what no vector kernel can do: any source strides, any output step.

The run of the output is walked in order; a table holds the source offset of each place of one
period of the run, and a step leads to the next period. The planner puts the loop that shares
the source's cache lines next to the run, so a line is fetched once.
"""

from __future__ import annotations

from numba import uintp

from .simd import i64_at, move_item
from .walk import BlockMover, inline
from .words import PACE, R_PERIOD, R_STEP, R_TABLE


def mover(itemsize, channels, literal, nt):
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

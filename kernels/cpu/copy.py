"""Microkernels that copy without rearranging vectors.

`gather` copies item by item, for any source strides and any output stride. The run of the output is
walked in order: a table holds the source offset of each position of one period of the run, and a
step leads to the next period. The planner places the loop whose iterations share cache lines of the
source directly around the run, so that each line is fetched once.

`runs` copies short runs that are contiguous in source and output. A run of 17 to 32 bytes, for
example, is two vectors of 16 bytes, which may overlap. The output of a block is usually the scratch
area: stored separately, a run would begin and end within a cache line of the output, and partial
lines cannot be streamed.
"""

from __future__ import annotations

from numba import uintp

from .params import LANE, LINE, OUT_STRIDE, ROWS_TABLE, RUN_PERIOD, RUN_STEP, RUN_TABLE
from .simd import i64_at, move_item, move_vector
from .walk import inline


def gather_microkernel(itemsize, channels, literal, streaming):
    """Make a microkernel that copies items one by one, from the first to the last of the run."""

    @inline
    def move(params, src, end, dst, n, m, ahead):
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

    return move


@inline
def copy_long(src, dst, nbytes):
    """Copy at least LINE bytes; the last vector overlaps the previous one."""
    last = nbytes - LINE
    for pos in range(0, last, LINE):
        move_vector(src + uintp(pos), dst + uintp(pos), LINE, 0)
    move_vector(src + uintp(last), dst + uintp(last), LINE, 0)


def overlapping_copy(width):
    """Build copy(src, dst, nbytes) for `width` to 2 * `width` bytes: two moves that may overlap."""

    @inline
    def copy(src, dst, nbytes):
        last = uintp(nbytes - width)
        if width >= LANE:
            move_vector(src, dst, width, 0)
            move_vector(src + last, dst + last, width, 0)
        else:
            move_item(src, dst, width)
            move_item(src + last, dst + last, width)

    return copy


copy_32, copy_16, copy_8, copy_4, copy_2, copy_1 = map(overlapping_copy, (32, 16, 8, 4, 2, 1))


@inline
def copy_bytes(src, dst, nbytes):
    """Copy any number of bytes."""
    if nbytes >= LINE:
        copy_long(src, dst, nbytes)
    elif nbytes >= 32:
        copy_32(src, dst, nbytes)
    elif nbytes >= 16:
        copy_16(src, dst, nbytes)
    elif nbytes >= 8:
        copy_8(src, dst, nbytes)
    elif nbytes >= 4:
        copy_4(src, dst, nbytes)
    elif nbytes >= 2:
        copy_2(src, dst, nbytes)
    elif nbytes > 0:
        copy_1(src, dst, nbytes)


def copy_block(copy):
    """Build a loop over m rows of n runs, which `copy` copies. Runs of a row are neighbors in dst.

    Runs of different rows are neighbors in the source, so that it is read in long runs.
    """

    @inline
    def block(src, src_offsets, dst, dst_offsets, n, m, nbytes):
        if m == 1:
            to = dst + uintp(i64_at(dst_offsets, 0))
            for r in range(n):
                copy(src + uintp(i64_at(src_offsets, r)), to + uintp(r * nbytes), nbytes)
            return
        for r in range(n):
            x = src + uintp(i64_at(src_offsets, r))
            y = dst + uintp(r * nbytes)
            for q in range(m):
                copy(x + uintp(q * nbytes), y + uintp(i64_at(dst_offsets, q)), nbytes)

    return block


def runs_microkernel(itemsize, channels, literal, streaming):
    """Make a microkernel that copies runs of one length, which is known only when it runs."""
    block_64, block_32, block_16, block_8, block_4, block_2, block_1 = map(
        copy_block, (copy_long, copy_32, copy_16, copy_8, copy_4, copy_2, copy_1)
    )

    @inline
    def move(params, src, end, dst, n, m, ahead):
        sources = params + uintp(8 * i64_at(params, RUN_TABLE))
        targets = params + uintp(8 * i64_at(params, ROWS_TABLE))
        nbytes = i64_at(params, OUT_STRIDE)
        if nbytes >= LINE:
            block_64(src, sources, dst, targets, n, m, nbytes)
        elif nbytes >= 32:
            block_32(src, sources, dst, targets, n, m, nbytes)
        elif nbytes >= 16:
            block_16(src, sources, dst, targets, n, m, nbytes)
        elif nbytes >= 8:
            block_8(src, sources, dst, targets, n, m, nbytes)
        elif nbytes >= 4:
            block_4(src, sources, dst, targets, n, m, nbytes)
        elif nbytes >= 2:
            block_2(src, sources, dst, targets, n, m, nbytes)
        else:
            block_1(src, sources, dst, targets, n, m, nbytes)

    return move

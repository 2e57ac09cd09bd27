"""What every conversion kernel is made of: a walk, a mover and a epilogue.

For each work unit of the walk the mover brings a block into the output's order. A pure move
whose output rows can be stored as they come goes straight to the output. Otherwise the block
is gathered in a scratch area of the first-level cache and the epilogue takes it from there, row
by row: it casts, applies the formula and streams whole lines out. Memory is read once and
written once either way.

The parameter block that tells them what to do is described in words.py.
"""

from __future__ import annotations

from numba import uintp

from . import gather, interleave, numeric, transpose
from .simd import fence, i64_at, stack
from .walk import COEF, DST, SRC, STATE, advance, inline, start
from .words import (
    COEFS,
    FACTOR,
    JOINED,
    OUTS,
    PACE,
    PITCH,
    Q_LOOP,
    Q_TABLE,
    R_LOOP,
    R_PERIOD,
    R_STEP,
    R_TABLE,
    SCRATCH,
    TERM,
)


def build(move, itemsize, shape, finish, nt):
    """The kernel of a mover ("rows", "transpose", "split-3", ...) and a epilogue.

    `shape` is the mover's literal: lanes, depth and squares of a tile ("4x2x2"), or the width of
    a vector.
    `finish` is "" for a plain move, else "source-target-coefs-saturate".
    """
    if not finish:
        return direct(block_mover(move, itemsize, shape, nt), nt)
    source, target, coefs, saturate = finish.split("-")
    epilogue = numeric.epilogue(source, target, coefs, bool(int(saturate)), nt)
    pieces = itemsize // numeric.itemsize(source)  # a 16-byte item is finished as two words
    if move == "rows":
        return rowwise(epilogue, pieces, nt)
    pieces *= int(move[-1]) if move.startswith("merge") else 1  # items of one place of axis r
    return staged(block_mover(move, itemsize, shape, 0), epilogue, pieces, nt)


def block_mover(move, itemsize, shape, nt):
    """Adapt a mover to the parameter block: move(params, src, dst, n, m)."""
    name, _, channels = move.partition("-")
    if name == "transpose":
        lanes, depth, squares = map(int, shape.split("x"))
        body = transpose.mover(itemsize, lanes, depth, squares, nt)

        @inline
        def tiles(params, src, dst, n, m):
            rows = params + uintp(8 * i64_at(params, R_TABLE))
            cols = params + uintp(8 * i64_at(params, Q_TABLE))
            pr, sr = i64_at(params, R_PERIOD), i64_at(params, R_STEP)
            body(src, rows, pr, sr, n, dst, cols, m)

        return tiles
    if name == "gather":
        pick = gather.mover(itemsize)

        @inline
        def items(params, src, dst, n, m):
            rows = params + uintp(8 * i64_at(params, R_TABLE))
            period, step = i64_at(params, R_PERIOD), i64_at(params, R_STEP)
            pick(src, rows, period, step, n, dst, i64_at(params, PACE))

        return items
    if name == "split":
        split = interleave.splitter(itemsize, int(channels), int(shape), nt)

        @inline
        def planes(params, src, dst, n, m):
            split(src, n, dst, params + uintp(8 * i64_at(params, Q_TABLE)))

        return planes
    merge = interleave.merger(itemsize, int(channels), int(shape), nt)

    @inline
    def pixels(params, src, dst, n, m):
        merge(src, params + uintp(8 * i64_at(params, R_TABLE)), n, dst)

    return pixels


@inline
def extent(params, state, axis):
    """Length of the current block along an axis (R_LOOP or Q_LOOP)."""
    block = i64_at(params, axis + 2)
    number = i64_at(state, i64_at(params, axis))
    if number < i64_at(params, axis + 3):
        return block
    return i64_at(params, axis + 1) - number * block


def direct(move, nt):
    """Move each block straight to the output."""

    def kernel(params, src, dst, lo, hi):
        state = stack(STATE)
        start(params, state, lo)
        for _ in range(lo, hi):
            x = src + uintp(i64_at(state, SRC))
            y = dst + uintp(i64_at(state, DST))
            n, m = extent(params, state, R_LOOP), extent(params, state, Q_LOOP)
            move(params, x, y, n, m)
            advance(params, state)
        if nt:
            fence()

    return kernel


def rowwise(finish, pieces, nt):
    """Runs are contiguous on both sides: nothing to move, only to finish, row by row."""

    def kernel(params, src, dst, lo, hi):
        state = stack(STATE)
        factor = params + uintp(8 * i64_at(params, FACTOR))
        term = params + uintp(8 * i64_at(params, TERM))
        ins = params + uintp(8 * i64_at(params, Q_TABLE))
        outs = params + uintp(8 * i64_at(params, OUTS))
        coefs = params + uintp(8 * i64_at(params, COEFS))
        start(params, state, lo)
        for _ in range(lo, hi):
            x = src + uintp(i64_at(state, SRC))
            y = dst + uintp(i64_at(state, DST))
            k = i64_at(state, COEF)
            n, m = extent(params, state, R_LOOP) * pieces, extent(params, state, Q_LOOP)
            for q in range(m):
                shift = uintp(k + i64_at(coefs, q))
                line, to = x + uintp(i64_at(ins, q)), y + uintp(i64_at(outs, q))
                finish(line, to, n, factor + shift, term + shift)
            advance(params, state)
        if nt:
            fence()

    return kernel


def staged(move, finish, pieces, nt):
    """Move each block to the scratch area, then finish it row by row."""

    def kernel(params, src, dst, lo, hi):
        state = stack(STATE)
        scratch = stack(SCRATCH)
        factor = params + uintp(8 * i64_at(params, FACTOR))
        term = params + uintp(8 * i64_at(params, TERM))
        outs = params + uintp(8 * i64_at(params, OUTS))
        coefs = params + uintp(8 * i64_at(params, COEFS))
        pitch, joined = i64_at(params, PITCH), i64_at(params, JOINED)
        start(params, state, lo)
        for _ in range(lo, hi):
            x = src + uintp(i64_at(state, SRC))
            y = dst + uintp(i64_at(state, DST))
            k = i64_at(state, COEF)
            n, m = extent(params, state, R_LOOP), extent(params, state, Q_LOOP)
            move(params, x, scratch, n, m)
            n, m = (n * m, 1) if joined else (n, m)
            for q in range(m):
                shift = uintp(k + i64_at(coefs, q))
                line = scratch + uintp(q * pitch)
                to = y + uintp(i64_at(outs, q))
                finish(line, to, n * pieces, factor + shift, term + shift)
            advance(params, state)
        if nt:
            fence()

    return kernel

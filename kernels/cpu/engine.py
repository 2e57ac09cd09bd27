"""The frame of every conversion kernel: a walk over work units, a microkernel and an epilogue.

For each work unit the microkernel brings a block into the output's order. If nothing is converted
and the output rows can be stored directly, it writes to the output. Otherwise it writes to a
scratch area in the first-level cache, and the epilogue casts the block, applies the formula and
streams full cache lines to the output, row by row. Memory is read once and written once either way.

A microkernel named `k` in planning/select.py is made by the function
`k_microkernel(itemsize, channels, literal, streaming)` in the module `k` of this folder (or the
module in SHARED_MODULES), which returns a `walk.MicroKernel`. `literal` comes from the kernel's
Tiling (tiling.py); `streaming` says whether full aligned lines bypass the caches.

params.py describes the parameter block.
"""

from __future__ import annotations

from importlib import import_module

from numba import uintp

from ...planning.epilogue import DTYPES
from .epilogue import build_epilogue
from .params import (
    BOUNDS,
    COEF_OFFSETS,
    FACTOR,
    OUT_OFFSETS,
    PITCH,
    ROWS_CONTIGUOUS,
    ROWS_LOOP,
    ROWS_TABLE,
    RUN_LOOP,
    SCRATCH,
    TERM,
)
from .simd import fence, i64_at, stack
from .walk import COEF, DST, SRC, STATE, advance, inline, start

# Modules that hold several microkernels; any other microkernel has a module of its own name.
SHARED_MODULES = {
    "split": "interleave",
    "merge": "interleave",
    "shuffle": "interleave",
    "flip": "interleave",
    "flipsplit": "interleave",
    "gather": "copy",
    "pieces": "copy",
}


def build(move, itemsize, literal, epilogue, streaming):
    """Build the kernel of a microkernel and an epilogue.

    `move` is "transpose", "split-3", ..., or "rows" without a microkernel. `epilogue` is "" for a
    pure move, else "source-target-coefs-saturate-clip".
    """
    if not epilogue:
        return direct(load_microkernel(move, itemsize, literal, streaming).move, streaming)
    source, target, coefs, *flags = epilogue.split("-")
    saturate, clip = (bool(int(flag)) for flag in flags)
    convert = build_epilogue(source, target, coefs, saturate, clip, streaming)
    pieces = itemsize // DTYPES[source].item  # a 16-byte item is handled as two words
    if move == "rows":
        return rowwise(convert, pieces, streaming)
    mover = load_microkernel(move, itemsize, literal, 0)
    return staged(mover.move, convert, pieces * mover.width, streaming)


def load_microkernel(move, itemsize, literal, streaming):
    """Return the microkernel of a name such as "transpose" or "split-3"."""
    name, _, channels = move.partition("-")
    module = import_module(f".{SHARED_MODULES.get(name, name)}", __package__)
    microkernel = getattr(module, f"{name}_microkernel")
    return microkernel(itemsize, int(channels or 0), literal, streaming)


@inline
def extent(params, state, axis):
    """Return the length of the current block along an axis (RUN_LOOP or ROWS_LOOP)."""
    block = i64_at(params, axis + 2)
    number = i64_at(state, i64_at(params, axis))
    if number < i64_at(params, axis + 3):
        return block
    return i64_at(params, axis + 1) - number * block


def direct(move, streaming):
    """Build a kernel that moves each block directly to the output."""

    def kernel(params, src, dst, lo, hi):
        state = stack(STATE)
        start(params, state, lo)
        for _ in range(lo, hi):
            x = src + uintp(i64_at(state, SRC))
            y = dst + uintp(i64_at(state, DST))
            n = extent(params, state, RUN_LOOP)
            m = extent(params, state, ROWS_LOOP)
            move(params, x, y, n, m)
            advance(params, state)
        if streaming:
            fence()

    return kernel


def rowwise(convert, pieces, streaming):
    """Build a kernel that converts row by row: runs are contiguous on both sides."""

    def kernel(params, src, dst, lo, hi):
        state = stack(STATE)
        bounds = params + uintp(8 * i64_at(params, BOUNDS))
        factor = params + uintp(8 * i64_at(params, FACTOR))
        term = params + uintp(8 * i64_at(params, TERM))
        ins = params + uintp(8 * i64_at(params, ROWS_TABLE))
        outs = params + uintp(8 * i64_at(params, OUT_OFFSETS))
        coefs = params + uintp(8 * i64_at(params, COEF_OFFSETS))
        start(params, state, lo)
        for _ in range(lo, hi):
            x = src + uintp(i64_at(state, SRC))
            y = dst + uintp(i64_at(state, DST))
            k = i64_at(state, COEF)
            n = extent(params, state, RUN_LOOP) * pieces
            m = extent(params, state, ROWS_LOOP)
            for q in range(m):
                shift = uintp(k + i64_at(coefs, q))
                line = x + uintp(i64_at(ins, q))
                to = y + uintp(i64_at(outs, q))
                convert(line, to, n, factor + shift, term + shift, bounds)
            advance(params, state)
        if streaming:
            fence()

    return kernel


def staged(move, convert, pieces, streaming):
    """Build a kernel that moves each block to the scratch area, then converts it row by row."""

    def kernel(params, src, dst, lo, hi):
        state = stack(STATE)
        scratch = stack(SCRATCH)
        bounds = params + uintp(8 * i64_at(params, BOUNDS))
        factor = params + uintp(8 * i64_at(params, FACTOR))
        term = params + uintp(8 * i64_at(params, TERM))
        outs = params + uintp(8 * i64_at(params, OUT_OFFSETS))
        coefs = params + uintp(8 * i64_at(params, COEF_OFFSETS))
        pitch = i64_at(params, PITCH)
        rows_contiguous = i64_at(params, ROWS_CONTIGUOUS)
        start(params, state, lo)
        for _ in range(lo, hi):
            x = src + uintp(i64_at(state, SRC))
            y = dst + uintp(i64_at(state, DST))
            k = i64_at(state, COEF)
            n = extent(params, state, RUN_LOOP)
            m = extent(params, state, ROWS_LOOP)
            move(params, x, scratch, n, m)
            n, m = (n * m, 1) if rows_contiguous else (n, m)
            for q in range(m):
                shift = uintp(k + i64_at(coefs, q))
                line = scratch + uintp(q * pitch)
                to = y + uintp(i64_at(outs, q))
                convert(line, to, n * pieces, factor + shift, term + shift, bounds)
            advance(params, state)
        if streaming:
            fence()

    return kernel

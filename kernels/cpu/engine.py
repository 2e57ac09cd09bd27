"""The structure of all conversion kernels: a loop over work units, a microkernel, an epilogue.

For each work unit the microkernel reorders a block for the output. If the block is not converted
and the output rows can be stored directly, the microkernel writes to the output. Otherwise it
writes to a scratch area in the first-level cache, and the epilogue casts the block, applies the
formula and streams full cache lines to the output, row by row. In both cases memory is read once
and written once.

A microkernel `k` is made by the function `k_microkernel(itemsize, channels, literal, streaming)` in
the module `k` of this folder (or the module in SHARED_MODULES). `literal` comes from the kernel's
Tiling (tiling.py); `streaming` is true if full aligned cache lines bypass the caches. It returns an
inlined function move(params, src, end, dst, n, m, ahead), which reorders a block for the output. A
block has m rows and n positions along the run; `end` is the address past the last readable byte.
The source of the next block is `ahead` bytes further, so that it can be prefetched.

params.py describes the parameter block.
"""

from __future__ import annotations

from importlib import import_module

from numba import uintp

from ...planning.epilogue import DTYPES, computation_dtype
from .epilogue import OPEN_END, OPEN_LINE, build_epilogue, build_joining_epilogue, close_line
from .params import (
    BOUNDS,
    COEF_OFFSETS,
    FACTOR,
    HALO,
    LINE,
    OUT_OFFSETS,
    OUT_STRIDE,
    PITCH,
    PREFETCH,
    ROWS_CONTIGUOUS,
    ROWS_LOOP,
    ROWS_TABLE,
    RUN_LAST,
    RUN_LOOP,
    SCRATCH_AREA,
    SRC_BYTES,
    TERM,
)
from .simd import fence, i64_at, i64_put, stack
from .walk import COEF, DST, SRC, STATE, advance, inline, start

# Modules that hold several microkernels; any other microkernel has a module of its own name.
SHARED_MODULES = {
    "split": "interleave",
    "merge": "interleave",
    "shuffle": "interleave",
    "flip": "interleave",
    "flipsplit": "interleave",
    "gather": "copy",
    "runs": "copy",
    "shortrows": "transpose",
    "shortruns": "transpose",
}


def build(move, itemsize, literal, epilogue, streaming):
    """Build the kernel of a microkernel and an epilogue.

    `move` names a microkernel, such as "transpose" or "split-3"; "rows" needs none. `epilogue`
    is "" for a pure move, else "source-target-coefs-saturate-clip", where clip is the step that is
    clipped: 0 none, 1 x, 2 the results of the formula.
    """
    if not epilogue:
        return direct(load_microkernel(move, itemsize, literal, streaming), streaming)
    source, target, coefs, *flags = epilogue.split("-")
    saturate, clip = map(int, flags)
    if streaming and coefs == "add":
        raise RuntimeError(f"{epilogue}: sums are read and written, so they are not streamed")
    step = source, target, coefs, bool(saturate), clip
    item, out_item, coef_item = (
        DTYPES[name].item for name in (source, target, computation_dtype(source, target))
    )
    if move == "rows":
        convert = build_epilogue(*step, streaming)
        return rowwise(convert, itemsize // item, streaming)  # a 16-byte item is two words
    coef_step = coef_item if coefs == "each" else 0
    mover = load_microkernel(move, itemsize, literal, 0)
    convert = build_joining_epilogue(*step) if streaming else build_epilogue(*step, 0)
    return staged(mover, convert, item, out_item, coef_step, streaming)


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


@inline
def next_block(params, state, src, x):
    """Return the distance in bytes from `x`, the source of a block, to the next block's."""
    return (src + uintp(i64_at(state, SRC)) - x) * uintp(i64_at(params, PREFETCH))


@inline
def to_next_line(address, item):
    """Return the number of items to the next cache line; 0 at the beginning of a line."""
    return (LINE - address % LINE) % LINE // item


def direct(move, streaming):
    """Build a kernel that moves each block directly to the output."""

    def kernel(params, src, dst, lo, hi):
        state = stack(STATE)
        end = src + uintp(i64_at(params, SRC_BYTES))
        start(params, state, lo)
        for _ in range(lo, hi):
            x = src + uintp(i64_at(state, SRC))
            y = dst + uintp(i64_at(state, DST))
            n = extent(params, state, RUN_LOOP)
            m = extent(params, state, ROWS_LOOP)
            advance(params, state)
            move(params, x, end, y, n, m, next_block(params, state, src, x))
        if streaming:
            fence()

    return kernel


def rowwise(convert, pieces, streaming):
    """Build a kernel that converts row by row, for runs contiguous in source and output."""

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
                convert(line, to, n, factor + shift, term + shift, bounds, 0)
            advance(params, state)
        if streaming:
            fence()

    return kernel


def staged(move, convert, item, out_item, coef_step, streaming):
    """Build a kernel that moves each block to the scratch area, then converts it row by row.

    `item` and `out_item` are the sizes of items that `convert` reads and writes, `coef_step` the
    bytes between coefficients of neighbors. If lines are streamed, a block begins and ends within a
    run at the cache lines of each row, and rows that follow each other are joined.
    """

    def kernel(params, src, dst, lo, hi):
        state = stack(STATE)
        scratch = stack(SCRATCH_AREA)
        open_line = stack(OPEN_LINE)
        i64_put(open_line, OPEN_END, 0)
        end = src + uintp(i64_at(params, SRC_BYTES))
        bounds = params + uintp(8 * i64_at(params, BOUNDS))
        factor = params + uintp(8 * i64_at(params, FACTOR))
        term = params + uintp(8 * i64_at(params, TERM))
        outs = params + uintp(8 * i64_at(params, OUT_OFFSETS))
        coefs = params + uintp(8 * i64_at(params, COEF_OFFSETS))
        pitch = i64_at(params, PITCH)
        rows_contiguous = i64_at(params, ROWS_CONTIGUOUS)
        items = i64_at(params, OUT_STRIDE) // item  # of one position of the run
        halo = i64_at(params, HALO) if streaming else 0
        start(params, state, lo)
        for _ in range(lo, hi):
            x = src + uintp(i64_at(state, SRC))
            y = dst + uintp(i64_at(state, DST))
            k = i64_at(state, COEF)
            n = extent(params, state, RUN_LOOP)
            m = extent(params, state, ROWS_LOOP)
            number = i64_at(state, i64_at(params, RUN_LOOP))
            is_first = number == 0 or halo == 0
            is_last = number == i64_at(params, RUN_LAST) or halo == 0
            advance(params, state)
            ahead = next_block(params, state, src, x)
            move(params, x, end, scratch, n if is_last else n + halo, m, ahead)
            n, m = (n * m, 1) if rows_contiguous else (n, m)
            for q in range(m):
                to = y + uintp(i64_at(outs, q))
                first = 0 if is_first else to_next_line(to, out_item)
                stop = n * items
                if not is_last:
                    stop += to_next_line(to + uintp(stop * out_item), out_item)
                shift = uintp(k + i64_at(coefs, q) + first * coef_step)
                line = scratch + uintp(q * pitch + first * item)
                to += uintp(first * out_item)
                convert(line, to, stop - first, factor + shift, term + shift, bounds, open_line)
        if streaming:
            close_line(open_line)
            fence()

    return kernel

"""The loops over the work units of a plan.

A plan divides its work into equal units, numbered in the order of the output, and describes them
as nested loops (params.py).
"""

from __future__ import annotations

from numba import njit, uintp

from .params import MAX_LOOPS
from .pipeline import IRCompiler
from .simd import i64_at, i64_put

# The decorator of functions that are inlined into kernels. Nothing else calls them, so they are
# compiled without Python and C wrappers, which took a seventh of the compile time.
inline = njit(
    forceinline=True,
    error_model="numpy",
    boundscheck=False,
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
    pipeline_class=IRCompiler,
)


# Bytes of the state of a walk: the index in every loop, then the byte offsets of the unit in the
# source, the output and the coefficients.
STATE = 8 * (MAX_LOOPS + 3)
SRC, DST, COEF = range(MAX_LOOPS, MAX_LOOPS + 3)


@inline
def start(params, state, unit):
    """Set the state of a walk to the unit of number `unit`."""
    src = 0
    dst = 0
    coef = 0
    for i in range(i64_at(params, 0) - 1, -1, -1):
        loop = params + uintp(8 + 32 * i)
        count = i64_at(loop, 0)
        index = unit % count
        unit //= count
        i64_put(state, i, index)
        src += index * i64_at(loop, 1)
        dst += index * i64_at(loop, 2)
        coef += index * i64_at(loop, 3)
    i64_put(state, SRC, src)
    i64_put(state, DST, dst)
    i64_put(state, COEF, coef)


@inline
def advance(params, state):
    """Advance the state of a walk to the next unit."""
    for i in range(i64_at(params, 0) - 1, -1, -1):
        loop = params + uintp(8 + 32 * i)
        last = i64_at(loop, 0) - 1
        index = i64_at(state, i)
        delta = 1 if index < last else -last
        i64_put(state, i, index + delta)
        i64_put(state, SRC, i64_at(state, SRC) + delta * i64_at(loop, 1))
        i64_put(state, DST, i64_at(state, DST) + delta * i64_at(loop, 2))
        i64_put(state, COEF, i64_at(state, COEF) + delta * i64_at(loop, 3))
        if index < last:
            return

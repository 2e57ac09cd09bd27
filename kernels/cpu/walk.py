"""The loops around every kernel: a walk over the work units of a plan, and who moves each of them.

A plan cuts its work into equal units, numbered in the order of the output, and describes them as
nested loops (words.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from numba import njit, uintp

from .params import MAX_LOOPS
from .simd import i64_at, i64_put

# Inlined into a kernel and called from nowhere else: a seventh of the time to compile went into
# wrappers for Python and C around each of them.
inline = njit(
    forceinline=True,
    error_model="numpy",
    boundscheck=False,
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
)


class MicroKernel(NamedTuple):
    """What brings a block into the output's order: move(params, src, dst, n, m), inlined.

    The block has n places of the run, of `width` items each, and m rows.
    """

    move: Callable[..., None]
    width: int = 1


# The state of a walk: a counter for every loop, then the unit's byte offset in the source, the
# output and the coefficients.
STATE = 8 * (MAX_LOOPS + 3)
SRC, DST, COEF = range(MAX_LOOPS, MAX_LOOPS + 3)


@inline
def start(params, state, unit):
    """Go to a unit."""
    src = 0
    dst = 0
    coef = 0
    for i in range(i64_at(params, 0) - 1, -1, -1):
        loop = params + uintp(8 + 32 * i)
        count = i64_at(loop, 0)
        place = unit % count
        unit //= count
        i64_put(state, i, place)
        src += place * i64_at(loop, 1)
        dst += place * i64_at(loop, 2)
        coef += place * i64_at(loop, 3)
    i64_put(state, SRC, src)
    i64_put(state, DST, dst)
    i64_put(state, COEF, coef)


@inline
def advance(params, state):
    """Go to the next unit."""
    for i in range(i64_at(params, 0) - 1, -1, -1):
        loop = params + uintp(8 + 32 * i)
        last = i64_at(loop, 0) - 1
        place = i64_at(state, i)
        turns = 1 if place < last else -last
        i64_put(state, i, place + turns)
        i64_put(state, SRC, i64_at(state, SRC) + turns * i64_at(loop, 1))
        i64_put(state, DST, i64_at(state, DST) + turns * i64_at(loop, 2))
        i64_put(state, COEF, i64_at(state, COEF) + turns * i64_at(loop, 3))
        if place < last:
            return

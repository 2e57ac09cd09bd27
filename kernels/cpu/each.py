"""Many conversions as one job: every entry of a table is one of the kernels of engine.py.

The parameter block is two words: the number of shares that the units of each entry are cut into,
which is 1 where windows are copied before, and what is said of these copies. Unit u is share
u % shares of entry u // shares. The table takes the place of the source; see tables.py. Shares that
follow each other in an entry are one call.
"""

from __future__ import annotations

from numba import uintp

from . import tables as t
from .atomics import call_kernel
from .complete import complete
from .simd import i64_at


def build(role):
    """The driver "each", with a kernel's signature: its source is the table."""
    if role != "each":
        raise ValueError(role)

    def kernel(params, table, dst, lo, hi):
        shares, copy = i64_at(params, 0), uintp(i64_at(params, 1))
        unit = lo
        while unit < hi:
            number = unit // shares
            end = min(hi, (number + 1) * shares)
            entry = table + uintp(8 * t.ENTRY * number)
            code, block = uintp(i64_at(entry, t.E_CODE)), uintp(i64_at(entry, t.E_PARAMETERS))
            src, to = uintp(i64_at(entry, t.E_SOURCE)), dst + uintp(i64_at(entry, t.E_OUTPUT))
            units, row = i64_at(entry, t.E_UNITS), uintp(i64_at(entry, t.E_BEFORE))
            first = units * (unit - number * shares) // shares
            last = units * (end - number * shares) // shares
            if row:
                complete(copy, row)
            if first < last:
                call_kernel(code, block, src, to, first, last)
            unit = end

    return kernel

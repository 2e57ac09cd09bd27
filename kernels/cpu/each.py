"""Many conversions as one job: every entry of a table is one of the kernels of engine.py.

The parameter block is one word, the number of shares that the units of each entry are cut into:
unit u is share u % shares of entry u // shares. The table takes the place of the source, and has
for each entry (64-bit words)

    code, parameters      of its kernel
    source                the address of its first element there
    output                the bytes from the output's first element to its own
    units                 of its kernel

Shares that follow each other in an entry are one call.
"""

from __future__ import annotations

from numba import uintp

from .atomics import call_kernel
from .simd import i64_at

ENTRY = 5  # words


def build(role):
    """The driver "each", with a kernel's signature: its source is the table."""
    if role != "each":
        raise ValueError(role)

    def kernel(params, table, dst, lo, hi):
        shares = i64_at(params, 0)
        unit = lo
        while unit < hi:
            number = unit // shares
            end = min(hi, (number + 1) * shares)
            entry = table + uintp(8 * ENTRY * number)
            code, block = uintp(i64_at(entry, 0)), uintp(i64_at(entry, 1))
            src, to = uintp(i64_at(entry, 2)), dst + uintp(i64_at(entry, 3))
            units = i64_at(entry, 4)
            first = units * (unit - number * shares) // shares
            last = units * (end - number * shares) // shares
            if first < last:
                call_kernel(code, block, src, to, first, last)
            unit = end

    return kernel

"""The parts of parameter blocks, as bytes: what `walk.cuh` declares, in the same order."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ...planning.loops import Loop

__all__ = ["MAX_LOOPS", "NO_LOOP", "axis", "divisor", "loops", "offsets"]

MAX_LOOPS = 12  # of a nest in a parameter block: outer loops, and those of fused axes and items
MAX_COUNT = 1 << 31  # what a kernel divides is below
NO_LOOP = Loop(1, 0, 0, 0)


def divisor(count: int) -> bytes:
    """A number to divide by: n // count is n * multiplier >> shift for every n < 2**31."""
    if not 0 < count < MAX_COUNT:
        raise RuntimeError(f"{count} turns of one loop; kernels divide by less than 2**31")
    length = (count - 1).bit_length()
    multiplier = -(-(1 << 31 + length) // count)
    return struct.pack("4I", count, multiplier, 31 + length, 0)


def offsets(loop: Loop) -> bytes:
    """The steps of a loop in the source, the output and the coefficients."""
    return struct.pack("3q", loop.src, loop.dst, loop.coef)


def loops(nest: Sequence[Loop]) -> bytes:
    """Loops, outermost first."""
    if len(nest) > MAX_LOOPS:
        raise RuntimeError(f"{len(nest)} loops around a tile; kernels take {MAX_LOOPS}")
    packed = b"".join(divisor(loop.count) + offsets(loop) for loop in nest)
    spare = (divisor(1) + offsets(NO_LOOP)) * (MAX_LOOPS - len(nest))
    return struct.pack("Q", len(nest)) + packed + spare


def axis(fused: Sequence[Loop], tile: int) -> bytes:
    """An axis of one loop, or of two that follow each other, cut into tiles of so many places."""
    low = fused[-1]
    total, wrap, inner = low.count, NO_LOOP, divisor(1)
    if len(fused) > 1:
        high = fused[0]
        total, inner = high.count * low.count, divisor(low.count)
        steps = (a - low.count * b for a, b in zip(high[1:], low[1:], strict=True))
        wrap = Loop(high.count, *steps)
    packed = divisor(-(-total // tile)) + inner + struct.pack("Q", total)
    return packed + offsets(low) + offsets(wrap)

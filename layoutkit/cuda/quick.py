"""The quick way of what came before: one kernel, on arrays that lie as those did.

What was checked and planned then holds for all arrays of the same layout. What is left is what
their addresses decide: how the kernel may read and write, and whether out shares memory with x.
Where that is not plain, the long way decides it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..planning.plan import Plan
from ..spec import DType
from .launches import Launches
from .memory import DeviceArray, span
from .runtime import runtime

__all__ = ["Quick", "QuickSum", "quick_of"]


class Quick:
    """One kernel for arrays that lie in one way on one GPU.

    shape, dtype    of the result
    """

    __slots__ = ("_from", "_kernels", "_near", "_to", "dtype", "ordinal", "shape")

    def __init__(
        self, plan: Plan, launches: Launches, array: DeviceArray, out: DeviceArray | None
    ) -> None:
        self.ordinal = array.ordinal
        self.shape, self.dtype = plan.target.shape, plan.target.dtype
        self._kernels = launches.kernels
        ((self._from, self._to),) = plan.launches()
        self._near = None if out is None else _near(array, out)

    def __call__(self, x: int, y: int, stream: Any) -> bool:
        """Put it on a stream, from address to address; whether that was possible."""
        if self._near is not None and self._near[0] < y - x < self._near[1]:
            return False
        x += self._from
        y += self._to
        kernel = self._kernels.get((x & 15, y & 15))
        if kernel is None:
            return False
        found = runtime()
        with found.on(self.ordinal):
            found.launch(kernel, (y, x), stream)
        return True


class QuickSum:
    """The same of a sum: one kernel, by the alignment of its parts and its output.

    `kernels` are the sum's own, with a 0 before that; `offsets` are bytes from the address of each
    part, and last of the output, to where the kernel begins.
    """

    __slots__ = ("_kernels", "_near", "_offsets", "_to", "dtype", "ordinal", "shape")

    def __init__(
        self,
        kernels: Mapping[tuple[int, ...], Any],
        offsets: Sequence[int],
        arrays: Sequence[DeviceArray],
        out: DeviceArray | None,
        made: tuple[tuple[int, ...], DType],
    ) -> None:
        self.ordinal, (self.shape, self.dtype) = arrays[0].ordinal, made
        self._kernels = kernels
        *self._offsets, self._to = offsets
        self._near = [] if out is None else [_near(array, out) for array in arrays]

    def __call__(self, parts: Sequence[int], out: int, stream: Any) -> bool:
        """Put it on a stream, from these addresses to that; whether that was possible."""
        for x, (low, high) in zip(parts, self._near, strict=False):
            if low < out - x < high:
                return False
        sources = [x + offset for x, offset in zip(parts, self._offsets, strict=True)]
        out += self._to
        kernel = self._kernels.get((0, *[x & 15 for x in sources], out & 15))
        if kernel is None:
            return False
        found = runtime()
        with found.on(self.ordinal):
            found.launch(kernel, [out, *sources], stream)
        return True


def _near(array: DeviceArray, out: DeviceArray) -> tuple[int, int]:
    """Between how many bytes behind an array's address an out may overlap it."""
    low, high = span(array)
    first, last = span(out)
    return low - last, high - first


def quick_of(
    plan: Plan, launches: Launches, array: DeviceArray, out: DeviceArray | None
) -> Quick | None:
    """The quick way of a plan; None where it is more than one kernel, or none."""
    return Quick(plan, launches, array, out) if plan.is_one_pass else None

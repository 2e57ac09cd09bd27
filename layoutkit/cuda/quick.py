"""The quick way of a conversion that came before: one kernel, on arrays that lie as those did.

What was checked and planned then holds for all arrays of the same layout. What is left is what
their addresses decide: how the kernel may read and write, and whether out shares memory with x.
Where that is not plain, the long way decides it.
"""

from __future__ import annotations

from typing import Any

from ..planning.plan import Plan
from .launches import Launches
from .memory import DeviceArray, span
from .runtime import runtime

__all__ = ["Quick", "quick_of"]


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
        self._near: tuple[int, int] | None = None  # bytes from x to an out that may overlap it
        if out is not None:
            low, high = span(array)
            first, last = span(out)
            self._near = low - last, high - first

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


def quick_of(
    plan: Plan, launches: Launches, array: DeviceArray, out: DeviceArray | None
) -> Quick | None:
    """The quick way of a plan; None where it is more than one kernel, or none."""
    return Quick(plan, launches, array, out) if plan.is_one_pass else None

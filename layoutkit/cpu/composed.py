"""Programs that are one conversion and something more; see `planning/composed.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..buffers import empty_with_address
from ..devices import CPU
from ..memory import Array
from ..planning.canvas import of_paint
from ..planning.composed import around, made, order, refuse_out, window
from ..planning.task import Task
from .program import Program, has_half

if TYPE_CHECKING:
    from ..converter import Converter

__all__ = ["Laid", "Placed"]


class Laid:
    """What gives a view of memory that is laid out in another order."""

    nbytes = 0  # of its own

    def __init__(self, converter: Converter, out: Array | None) -> None:
        refuse_out(converter.task, out)
        self._made, self._task = converter.derived(made), converter.task

    def __call__(self, x: Any, array: Array, out: Array | None) -> Array:
        """Convert `array` into new memory, and turn its axes."""
        found: Array = self._made(x)
        return found.transpose(order(self._task, found.ndim))


class Placed:
    """What converts x into a window of a larger result, and fills what is around it."""

    def __init__(self, task: Task, array: Array, out: Array | None) -> None:
        shape, dtype = array.shape, array.dtype
        plan, self._place = window(task, shape, array.strides, dtype, CPU, out, has_half)
        self._inside, self._dtype = Program(plan, task.threads), plan.target.dtype
        self._borders = self._place.borders()
        self._paint = _paint(task, array, plan.target.dtype, self._place.full)
        self.nbytes = self._inside.nbytes + self._paint.nbytes

    def __call__(self, x: Any, array: Array, out: Array | None) -> Array:
        """Convert `array` into its window of `out` or new memory, and fill the rest."""
        if out is None:
            out = empty_with_address(self._place.shape, self._dtype)[0]
        full = out.reshape(self._place.full)  # folds are taken apart, which needs no copy
        self._inside(x, array, full[self._place.window])
        for border in self._borders:
            np.copyto(full[border], self._paint[of_paint(self._paint, border)])
        return out


def _paint(task: Task, array: Array, dtype: Any, full: tuple[int, ...]) -> Array:
    """What is around x, in the result's units: of size 1 along axes where it is all the same."""
    turned, pixel = around(task, array.shape, array.dtype)
    plan = turned._replace(dtype=dtype).plan(
        pixel.shape, pixel.strides, pixel.dtype, CPU, None, has_half
    )
    found: Array = Program(plan)(pixel, pixel, None)
    if found.shape[-1] > 1:
        # A whole row: NumPy copies long runs at the speed of memory, and pixels at a tenth of it.
        shape = (*found.shape[:-2], *full[-2:])
        found = np.array(np.broadcast_to(found, shape))
    return found

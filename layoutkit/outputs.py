"""Whether the caller's `out` can take a result: asked before anything is written."""

from __future__ import annotations

import numpy as np

from .errors import ArgumentError, ShapeError
from .memory import Array

__all__ = ["check_out", "check_writable", "overlaps"]

# How hard NumPy may think about whether two strided arrays overlap; then they are taken to.
MAX_WORK = 100_000


def check_out(out: Array, shape: tuple[int, ...], what: str) -> None:
    """Raise unless `out` has the shape of the result and no place twice."""
    if out.shape != shape:
        raise ShapeError(f"out has shape {out.shape}, but {what} makes {shape}; give that shape")
    reach = out.dtype.itemsize
    for step, count in sorted(zip(map(abs, out.strides), out.shape, strict=True)):
        if count > 1:
            if step < reach and 0 not in out.shape:
                raise ArgumentError(
                    f"out of shape {out.shape} and strides {out.strides} may hold one place "
                    "twice; give an out whose elements do not overlap"
                )
            reach += step * (count - 1)


def check_writable(array: Array, out: Array, name: str = "x") -> None:
    """Raise unless `out` may be written without touching `array`, the one called `name`."""
    if not out.flags.writeable:
        raise ArgumentError("out is read-only; give a writeable array")
    if overlaps(array, out):
        raise ArgumentError(f"out shares memory with {name}; give an out of its own memory")


def overlaps(array: Array, out: Array) -> bool:
    """Whether two arrays share memory, or may do so; decided from addresses alone."""
    if not np.may_share_memory(array, out):
        return False
    try:
        return np.shares_memory(array, out, max_work=MAX_WORK)  # type: ignore[arg-type]  # any int
    except (np.exceptions.TooHardError, OverflowError):
        return True

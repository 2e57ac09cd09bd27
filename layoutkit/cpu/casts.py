"""The casts that kernels leave to NumPy: dtypes they do not know, and what C leaves undefined.

NumPy's own `astype` is not enough: it warns where an imaginary part goes, it cannot cast between
some dtypes of ml_dtypes, and it does not saturate.
"""

from __future__ import annotations

import numpy as np

from ..memory import Array
from ..spec import DType, integer_bounds, kind_of

__all__ = ["cast_into"]


def cast_into(out: Array, values: Array, *, saturate: bool = False) -> None:
    """Write `values` to `out` of the same shape: NumPy's unsafe cast, or the saturating one."""
    with np.errstate(all="ignore"):
        np.copyto(out, _prepared(values, out.dtype, saturate), casting="unsafe")


def _prepared(values: Array, target: DType, saturate: bool) -> Array:
    """Values that NumPy can cast to `target` without a word."""
    if kind_of(values.dtype) == "c":
        values = _real(values, target)
    if saturate and kind_of(target) in "ui":
        values = _saturated(values, target)
    if not np.can_cast(values.dtype, target, "unsafe"):
        # Only among the smallest dtypes of ml_dtypes, and these hold their values exactly.
        values = values.astype(np.complex64 if kind_of(target) == "c" else np.float32)
    return values


def _real(values: Array, target: DType) -> Array:
    """Complex values as NumPy's own, or their real part where the target has no other."""
    if values.dtype.kind != "c":
        values = values.astype(np.complex64)
    return values if kind_of(target) in "cb" else values.real


def _saturated(values: Array, target: DType) -> Array:
    """Values as 64-bit integers: rounded half to even, in the target's range, 0 for NaN."""
    low, high = integer_bounds(target)
    wide = np.uint64 if low == 0 else np.int64
    if kind_of(values.dtype) in "bui":
        values = values.astype(np.uint64 if kind_of(values.dtype) in "bu" else np.int64)
        limits = np.iinfo(values.dtype)
        return values.clip(max(low, int(limits.min)), min(high, int(limits.max)))
    if values.dtype.itemsize < 4:
        values = values.astype(np.float32)  # the bounds are beyond float16
    whole = np.rint(values)
    rounded = np.where(np.isnan(whole), 0, whole).astype(wide)
    # high + 1 is a power of two, which every float holds; high itself may not be one.
    rounded = np.where(whole >= float(high + 1), wide(high), rounded)
    return np.where(whole <= float(low), wide(low), rounded)

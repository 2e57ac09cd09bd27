"""The casts and copies before and after kernels, on arrays of a GPU.

What `layoutkit.cpu.casts` is for the CPU. Kernels do them where they know both dtypes; the array's
library does what C leaves undefined, and what no kernel knows (complex, float8).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..caching import MAX_KEPT
from ..devices import name_of
from ..notation import identity
from ..planning.epilogue import is_known
from ..planning.task import Task, make_task
from ..spec import DType, kind_of
from .launches import Launches, has_half
from .memory import DeviceAdapter, DeviceArray
from .runtime import runtime

__all__ = ["aligned", "cast", "cast_into"]


def cast(array: DeviceArray, dtype: DType, adapter: DeviceAdapter) -> DeviceArray:
    """A contiguous copy in another dtype: NumPy's unsafe cast."""
    made = adapter.scratch(array.shape, dtype, array.ordinal)
    cast_into(made, array, adapter)
    return made


def cast_into(
    out: DeviceArray, values: DeviceArray, adapter: DeviceAdapter, *, saturate: bool = False
) -> None:
    """Write `values` to `out` of the same shape: NumPy's unsafe cast, or the saturating one."""
    if values.dtype == out.dtype:
        _move(out, values, adapter)
        return
    values = values if values.is_aligned else aligned(values, adapter)
    if not out.is_aligned:
        made = adapter.scratch(out.shape, out.dtype, out.ordinal)
        cast_into(made, values, adapter, saturate=saturate)
        _move(out, made, adapter)
        return
    if kind_of(values.dtype) == "c" and kind_of(out.dtype) not in "cb":
        values = adapter.real(values)
    saturate = saturate and kind_of(out.dtype) in "ui"
    if saturate and not is_known(values.dtype, has_half):
        values = cast(values, np.dtype(np.float32), adapter)
    if _is_for_kernels(values.dtype, out.dtype, saturate):
        _move(out, values, adapter, "saturate" if saturate else "unsafe")
    else:
        adapter.cast_into(out, values)


def aligned(array: DeviceArray, adapter: DeviceAdapter) -> DeviceArray:
    """A contiguous copy of an array whose elements begin anywhere."""
    made = adapter.scratch(array.shape, array.dtype, array.ordinal)
    with runtime().on(array.ordinal):
        _move(made, array, adapter)
    return made


def _is_for_kernels(source: DType, target: DType, saturate: bool) -> bool:
    if not (is_known(source, has_half) and is_known(target, has_half)):
        return False
    return saturate or kind_of(source) != "f" or kind_of(target) not in "ui"


def _move(
    out: DeviceArray, values: DeviceArray, adapter: DeviceAdapter, casting: str = "same_kind"
) -> None:
    """Write by a kernel. Where nothing is cast, elements may begin anywhere."""
    launches = _launches(
        values.shape, values.strides, values.dtype, out.strides, out.dtype, casting, out.ordinal
    )
    launches(values, out, adapter.stream(out.ordinal))


@lru_cache(maxsize=MAX_KEPT)
def _launches(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType,
    out_strides: tuple[int, ...], out_dtype: DType, casting: str, ordinal: int,
) -> Launches:  # fmt: skip
    """What writes an array that lies so to one that lies so: kept, as they come again."""
    out = DeviceArray(0, shape, out_strides, out_dtype, ordinal, None)
    plan = _identity(len(shape), casting).plan(
        shape, strides, dtype, name_of(ordinal), out, has_half
    )
    return Launches(plan, ordinal)


@lru_cache
def _identity(ndim: int, casting: str) -> Task:
    return make_task(identity(ndim), casting=casting)

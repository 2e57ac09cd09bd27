"""Shape, dtype and device of an array of any library for views, and access to its samples.

Views read arrays on the CPU as NumPy arrays that share their memory, and of arrays on a GPU only
shape, strides and dtype. Samples and copies belong to the library of their array.

Adapters import GPU support, so they are imported for the first array that is not NumPy's, not at
start.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._utils import fork
from ..memory import Array, as_numpy
from ..spec import CPU, DType
from .indexing import take


class ArrayInfo(Protocol):
    """The attributes of an array that a view reads."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""

    @property
    def dtype(self) -> DType:
        """The dtype, as NumPy's."""


class TracedArrayInfo(NamedTuple):
    """The shape and dtype of a traced array, which holds no data."""

    shape: tuple[int, ...]
    dtype: DType


def inspect_array(x: Any, arg_name: str) -> tuple[Any, str]:
    """Return x as a NumPy array, DeviceArray or TracedArrayInfo, and the name of its device.

    Raises ArgumentError if x is not an array, or its memory cannot be read.
    """
    # Lists of arrays are rejected here: a view of several arrays is a ListView.
    if isinstance(x, np.ndarray | list | tuple):
        return as_numpy(x, arg_name), CPU
    dispatch = _adapters()
    adapter = dispatch.get_device_adapter(x)
    if adapter is None:
        traced_adapter = dispatch.get_adapter(x)
        if traced_adapter is not None and traced_adapter.is_traced:
            return TracedArrayInfo(*traced_adapter.inspect(x, arg_name)), traced_adapter.device(
                x, arg_name
            )
        return dispatch.as_array(x, arg_name), CPU
    return adapter.device_array(x, arg_name), adapter.device(x, arg_name)


def unwrap_container(x: Any, array: Any) -> Any:
    """Return `array` if x is a container, else x; `array` is what `inspect_array(x)` returned."""
    return array if type(array) is np.ndarray and _adapters().adapter_for_any(x).is_container else x


def take_samples(x: Any, axis: int, positions: Array) -> Any:
    """Return a contiguous copy of the samples at validated positions; NumPy's in pooled memory."""
    if isinstance(x, np.ndarray):
        return take(x, axis, positions)
    adapter = _adapters().get_adapter(x)
    return take(x, axis, positions) if adapter is None else adapter.take(x, axis, positions)


def slice_samples(x: Any, axis: int, part: slice) -> Any:
    """Return the samples of the slice `part` as a view of x."""
    source = x if hasattr(x, "__getitem__") else inspect_array(x, "x")[0]
    return source[(slice(None),) * axis + (part,)]


def to_cpu(x: Any, arg_name: str = "x") -> Array:
    """Return an array of any library as a NumPy array, which is a copy if x is on a GPU."""
    if isinstance(x, np.ndarray):
        return as_numpy(x, arg_name)
    dispatch = _adapters()  # imports cuda.transfers, too, while it holds the fork lock
    from ..cuda.transfers import to_host

    adapter = dispatch.get_device_adapter(x)
    if adapter is not None:
        return to_host(adapter.device_array(x, arg_name), adapter)
    return dispatch.as_array(x, arg_name)


def asarray_like(array: Array, base: Any) -> Any:
    """Return `array` as an array of the library and device of `base`; a copy if on a GPU."""
    if isinstance(base, np.ndarray):
        return array
    dispatch = _adapters()  # imports cuda.transfers, too, while it holds the fork lock
    from ..cuda.transfers import to_device

    if (gpu := dispatch.get_device_adapter(base)) is not None:
        return gpu.export(to_device(array, gpu.device(base, "the base"), gpu), base)
    adapter = dispatch.get_adapter(base)
    return array if adapter is None else adapter.from_numpy(array, base)


@fork.run_once
def _adapters() -> ModuleType:
    from . import dispatch

    return dispatch

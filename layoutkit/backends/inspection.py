"""Shape, dtype and device of an array of any library for views, and access to its samples.

NumPy arrays, and arrays that the CPU can access through an adapter, become NumPy arrays that share
their memory; of arrays on a GPU only shape, strides and dtype are known. Samples and copies are of
the library of the array.

Adapters are imported with the first array that is not NumPy's: they import GPU support, which a
program that uses only NumPy should not pay for at start.
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
    """The shape and dtype that a view needs of an array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""

    @property
    def dtype(self) -> DType:
        """The dtype, as NumPy's."""


class TracedArrayInfo(NamedTuple):
    """The shape and dtype of an array that a library traces, and that holds no data."""

    shape: tuple[int, ...]
    dtype: DType


def inspect_array(x: Any, arg_name: str) -> tuple[Any, str]:
    """Return the NumPy array, device array or shape and dtype of x, and its device.

    Raises ArgumentError for objects that are not arrays, or hold no data.
    """
    if isinstance(x, np.ndarray | list | tuple):  # views nest, so a list would be several arrays
        return as_numpy(x, arg_name), CPU
    dispatch = _adapters()
    adapter = dispatch.get_device_adapter(x)
    if adapter is None:
        traced_adapter = dispatch.get_adapter(x)
        if traced_adapter is not None and traced_adapter.is_traced:
            return TracedArrayInfo(*traced_adapter.facts(x, arg_name)), traced_adapter.device(
                x, arg_name
            )
        return dispatch.as_array(x, arg_name), CPU
    return adapter.device_array(x, arg_name), adapter.device(x, arg_name)


def unwrap_container(x: Any, array: Any) -> Any:
    """Return `x`, or the array inside it if `x` is a container; `array` is `seen(x)`."""
    return array if type(array) is np.ndarray and _adapters().adapter_for_any(x).is_container else x


def take_samples(x: Any, axis: int, positions: Array) -> Any:
    """Return contiguous copies of the samples at validated positions; NumPy's in pooled memory."""
    if isinstance(x, np.ndarray):
        return take(x, axis, positions)
    adapter = _adapters().get_adapter(x)
    return take(x, axis, positions) if adapter is None else adapter.take(x, axis, positions)


def slice_samples(x: Any, axis: int, part: slice) -> Any:
    """Return the samples of a slice as a view of the array."""
    source = x if hasattr(x, "__getitem__") else inspect_array(x, "x")[0]
    return source[(slice(None),) * axis + (part,)]


def to_cpu(x: Any, arg_name: str = "x") -> Array:
    """Return any array as a NumPy array: a copy from a GPU, else one that shares its memory."""
    if isinstance(x, np.ndarray):
        return as_numpy(x, arg_name)
    dispatch = _adapters()  # first, to import it and the module below under the fork lock
    from ..cuda.transfers import to_host

    adapter = dispatch.get_device_adapter(x)
    if adapter is not None:
        return to_host(adapter.device_array(x, arg_name), adapter)
    array: Array = dispatch.as_array(x, arg_name)
    return array


def asarray_like(array: Array, base: Any) -> Any:
    """Return `array` as an array of the base's library and device; a copy on a GPU."""
    if isinstance(base, np.ndarray):
        return array
    dispatch = _adapters()  # first, to import it and the module below under the fork lock
    from ..cuda.transfers import to_device

    if (gpu := dispatch.get_device_adapter(base)) is not None:
        return gpu.export(to_device(array, gpu.device(base, "the base"), gpu), base)
    adapter = dispatch.get_adapter(base)
    return array if adapter is None else adapter.from_numpy(array, base)


@fork.run_once
def _adapters() -> ModuleType:
    from . import dispatch

    return dispatch

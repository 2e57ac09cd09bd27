"""What a View sees of an array of any library, and parts of it in that library's words.

NumPy arrays and, through an adapter, arrays that the CPU reaches are seen as NumPy arrays that
share their memory; those on a GPU by their shape, strides and dtype alone. What is made of parts is
of the kind of the array.

Adapters are imported when the first array comes that is not NumPy's: they know GPUs, and a program
whose batches are NumPy's should start without them.
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
    """What a view needs to know of an array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""

    @property
    def dtype(self) -> DType:
        """The dtype in NumPy's words."""


class TracedArrayInfo(NamedTuple):
    """What is known of an array that a library traces, and that holds no data."""

    shape: tuple[int, ...]
    dtype: DType


def seen(x: Any, what: str) -> tuple[Any, str]:
    """How an array of any library is seen, and its device.

    Raises ArgumentError for what is no array, or holds no data.
    """
    if isinstance(x, np.ndarray | list | tuple):  # views nest: a list is a view of several arrays
        return as_numpy(x, what), CPU
    dispatch = _adapters()
    adapter = dispatch.device_adapter_of(x)
    if adapter is None:
        other = dispatch.adapter_of(x)
        if other is not None and other.is_traced:
            return TracedArrayInfo(*other.facts(x, what)), other.device(x, what)
        return dispatch.as_array(x, what), CPU
    return adapter.reach(x, what), adapter.device(x, what)


def unwrap_container(x: Any, found: Any) -> Any:
    """What a view holds of x, which is seen as `found`: x, or of what only holds an array, that."""
    return found if type(found) is np.ndarray and _adapters().whose(x).is_container else x


def take_samples(x: Any, axis: int, positions: Array) -> Any:
    """Copies of the samples at positions that exist, contiguous; of NumPy's in pooled memory."""
    if isinstance(x, np.ndarray):
        return take(x, axis, positions)
    adapter = _adapters().adapter_of(x)
    return take(x, axis, positions) if adapter is None else adapter.take(x, axis, positions)


def slice_samples(x: Any, axis: int, part: slice) -> Any:
    """The samples of a window, in the array's own memory."""
    source = x if hasattr(x, "__getitem__") else seen(x, "x")[0]
    return source[(slice(None),) * axis + (part,)]


def to_cpu(x: Any, what: str = "x") -> Array:
    """An array of any library as NumPy's: one that shares its memory, of a GPU's a copy."""
    if isinstance(x, np.ndarray):
        return as_numpy(x, what)
    dispatch = _adapters()  # before what it has imported
    from ..cuda.transfers import brought

    adapter = dispatch.device_adapter_of(x)
    if adapter is not None:
        return brought(adapter.reach(x, what), adapter)
    array: Array = dispatch.as_array(x, what)
    return array


def asarray_like(array: Array, base: Any) -> Any:
    """An array of the base's kind, on its device, that has what `array` has; a copy on a GPU."""
    if isinstance(base, np.ndarray):
        return array
    dispatch = _adapters()  # before what it has imported
    from ..cuda.transfers import sent

    if (gpu := dispatch.device_adapter_of(base)) is not None:
        return gpu.finished(sent(array, gpu.device(base, "the base"), gpu), base)
    adapter = dispatch.adapter_of(base)
    return array if adapter is None else adapter.leave(array, base)


@fork.once
def _adapters() -> ModuleType:
    from . import dispatch

    return dispatch

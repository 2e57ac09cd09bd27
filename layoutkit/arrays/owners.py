"""Whose array is it.

The adapter of an array is for its library's file to say (`libraries.py` finds it). What no file
here is named after comes in by `__dlpack__` or `__cuda_array_interface__`. What holds an array and
is none (`containers.py`) comes last.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..devices import CPU
from ..memory import Array
from ..spec import DType
from .base import NUMPY, Adapter
from .containers import Stacked, protocol_of
from .cupy import CudaAdapter, ForeignAdapter
from .libraries import asked

__all__ = ["adapter_of", "as_array", "device_adapter_of", "facts", "memory_layout", "whose"]

_CUDA = (2, 13)  # DLPack's numbers of memory of a GPU: its own, and managed
_dlpack, _foreign = Adapter(), ForeignAdapter()


def adapter_of(x: Any) -> Adapter | None:
    """The adapter of an array; None for NumPy's, which need none, and for what is no array."""
    if isinstance(x, np.ndarray):
        return None
    found: Adapter | None = asked("adapter_for", x)
    return found or _by_dlpack(x)


def whose(x: Any) -> Adapter:
    """The adapter of all that a conversion takes, and NumPy's for what it does not, to refuse it.

    What no library here makes but holds an array is a Container's.
    """
    if isinstance(x, np.ndarray):
        return NUMPY
    found: Adapter | None = asked("adapter_for", x) or asked("container_for", x)
    return found or _by_dlpack(x) or protocol_of(x) or (_stacked if _stacked.holds(x) else NUMPY)


def _by_dlpack(x: Any) -> Adapter | None:
    """The adapter of what gives its memory by a protocol of arrays that GPUs know too."""
    kind = type(x)
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        return _foreign if int(x.__dlpack_device__()[0]) in _CUDA else _dlpack
    return _foreign if hasattr(kind, "__cuda_array_interface__") else None


def device_adapter_of(x: Any) -> CudaAdapter | None:
    """The adapter of an array that is on a GPU, None for all others."""
    adapter = adapter_of(x)
    return adapter if isinstance(adapter, CudaAdapter) else None


_stacked = Stacked(whose)


def as_array(x: Any, what: str = "x") -> Array:
    """The NumPy array that shares the memory of an array, or is what a container holds."""
    return whose(x).arrive(x, what)


def facts(x: Any, what: str = "x") -> tuple[tuple[int, ...], DType, str]:
    """Shape, dtype and device of an array of any library; it need not hold data."""
    adapter = whose(x)
    return *adapter.facts(x, what), adapter.device(x, what)


def memory_layout(x: Any, what: str = "x") -> tuple[tuple[int, ...], tuple[int, ...], DType, str]:
    """Shape, strides, dtype and device of an array of any library."""
    adapter = device_adapter_of(x)
    if adapter is not None:
        return adapter.reach(x, what).facts
    array = as_array(x, what)
    return array.shape, array.strides, array.dtype, CPU

"""Which adapter an array takes: one question at every door where arrays come in.

A library that is not in `sys.modules` has made no array, so nothing is imported to find one out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..devices import CPU
from ..errors import ArgumentError, DeviceError
from ..memory import Array, as_numpy
from ..spec import DType
from .base import Adapter, NumpyAdapter, kind_text
from .symbolic import Jax, Torch, library_of
from .torch import JaxAdapter, TorchAdapter, TracedAdapter

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from .cupy import CudaAdapter

__all__ = [
    "adapter_of",
    "as_array",
    "cuda_adapter_for",
    "device_adapter_of",
    "facts",
    "memory_layout",
    "numpy_adapter",
    "sum_of",
]

_CUDA = (2, 13)  # DLPack's numbers of memory of a GPU: its own, and managed
_dlpack, numpy_adapter = Adapter(), NumpyAdapter()
_torch = lru_cache(maxsize=1)(TorchAdapter)
_jax = lru_cache(maxsize=1)(JaxAdapter)
_traced = lru_cache(maxsize=1)(TracedAdapter)


def adapter_of(x: Any) -> Adapter | None:
    """The adapter of an array; None for NumPy's, which need none, and for what is no array."""
    library = library_of(x)
    if isinstance(library, Torch):
        return cuda_adapter_for("torch", library) if x.is_cuda else _torch(library)
    if isinstance(library, Jax):
        if isinstance(x, library.jax.core.Tracer):
            return _traced(library)
        return _adapter_of_jax(library, x) if isinstance(x, library.jax.Array) else None
    if library is not None:
        return None
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(x, getattr(cupy, "ndarray", ())):
        return cuda_adapter_for("cupy")
    exports = hasattr(type(x), "__dlpack__") and hasattr(type(x), "__dlpack_device__")
    if exports:
        is_cuda = int(x.__dlpack_device__()[0]) in _CUDA
        return cuda_adapter_for("foreign") if is_cuda else _dlpack
    return cuda_adapter_for("foreign") if hasattr(type(x), "__cuda_array_interface__") else None


def _adapter_of_jax(library: Jax, x: Any) -> Adapter:
    platforms = set() if x.is_deleted() else {device.platform for device in x.devices()}
    on_gpu = bool(platforms) and platforms <= {"gpu", "cuda"}
    return cuda_adapter_for("jax", library) if on_gpu else _jax(library)


@lru_cache(maxsize=8)
def cuda_adapter_for(name: str, *arguments: Any) -> CudaAdapter:
    """The adapter of a library's arrays on GPUs."""
    from .cupy import CudaAdapter, ForeignAdapter, JaxCudaAdapter

    if name == "torch":
        from .torch_cuda import TorchCudaAdapter

        return TorchCudaAdapter(*arguments)
    kinds = {"cupy": CudaAdapter, "foreign": ForeignAdapter, "jax": JaxCudaAdapter}
    found: CudaAdapter = kinds[name](*arguments)
    return found


def device_adapter_of(x: Any) -> CudaAdapter | None:
    """The adapter of an array that is on a GPU, None for all others."""
    adapter = adapter_of(x)
    return adapter if adapter is not None and adapter.is_of_gpus else None  # type: ignore[return-value]


def as_array(x: Any, what: str = "x") -> Array:
    """The NumPy array that shares the memory of an array of any library; `as_numpy` of others."""
    adapter = adapter_of(x)
    return as_numpy(x, what) if adapter is None else adapter.arrive(x, what)


def facts(x: Any, what: str = "x") -> tuple[tuple[int, ...], DType, str]:
    """Shape, dtype and device of an array of any library; it need not hold data."""
    adapter = adapter_of(x)
    if adapter is not None:
        return *adapter.facts(x, what), adapter.device(x, what)
    array = as_numpy(x, what)
    return array.shape, array.dtype, CPU


def memory_layout(x: Any, what: str = "x") -> tuple[tuple[int, ...], tuple[int, ...], DType, str]:
    """Shape, strides, dtype and device of an array of any library."""
    adapter = device_adapter_of(x)
    array = as_array(x, what) if adapter is None else adapter.reach(x, what)
    device = CPU if adapter is None else adapter.device(x, what)
    return array.shape, array.strides, array.dtype, device


def sum_of(accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
    """A sum with parts of other libraries: of the first part's kind, unless one is traced."""
    adapters = [adapter_of(part) for part in parts]
    traced = [adapter for adapter in adapters if isinstance(adapter, TracedAdapter)]
    leader = traced[0] if traced else adapters[0] or numpy_adapter
    _check_devices(parts, adapters, bool(traced))
    if any(map(leader.is_recorded, parts)):
        return leader.add_recorded(accumulator, parts, out)
    arrays = [_detached(part, number) for number, part in enumerate(parts)]
    return leader.add(accumulator, arrays, parts[0], out)


def _check_devices(
    parts: Sequence[Any], adapters: Sequence[Adapter | None], is_traced: bool
) -> None:
    """Raise DeviceError unless all parts are on one device."""
    if is_traced or not any(adapter is not None and adapter.is_of_gpus for adapter in adapters):
        return
    first = CPU
    for number, (part, adapter) in enumerate(zip(parts, adapters, strict=True)):
        device = CPU if adapter is None else adapter.device(part, f"part {number}")
        first = device if number == 0 else first
        if device != first:
            raise DeviceError(
                f"part 0 is on {first}, but part {number}, a {kind_text(part)}, is on {device}; "
                f'bring all to one device first, for example with convert(..., device="{first}")'
            )


def _detached(part: Any, number: int) -> Any:
    """The memory of a part of a sum that no gradient is recorded of."""
    adapter = adapter_of(part)
    if adapter is not None and adapter.is_recorded(part):
        raise ArgumentError(
            f"part {number} requires a gradient, but the sum is no torch tensor, as part 0 is "
            f"none; give a tensor first, or part {number}.detach()"
        )
    if adapter is not None and adapter.is_of_gpus:
        return adapter.reach(part, f"part {number}")  # type: ignore[attr-defined]
    return as_array(part, f"part {number}")

"""Which bridge an array takes: one question at every door where arrays come in.

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
from .base import Bridge, NumpyBridge, kind_text
from .symbolic import Jax, Torch, library_of
from .torch import JaxBridge, TorchBridge, TracedBridge

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from .cupy import CudaBridge

__all__ = [
    "as_array",
    "bridge_of",
    "cuda_bridge_for",
    "device_bridge_of",
    "facts",
    "lying",
    "numpy_bridge",
    "sum_of",
]

_CUDA = (2, 13)  # DLPack's numbers of memory of a GPU: its own, and managed
_dlpack, numpy_bridge = Bridge(), NumpyBridge()
_torch = lru_cache(maxsize=1)(TorchBridge)
_jax = lru_cache(maxsize=1)(JaxBridge)
_traced = lru_cache(maxsize=1)(TracedBridge)


def bridge_of(x: Any) -> Bridge | None:
    """The bridge of an array; None for NumPy's, which need none, and for what is no array."""
    library = library_of(x)
    if isinstance(library, Torch):
        return cuda_bridge_for("torch", library) if x.is_cuda else _torch(library)
    if isinstance(library, Jax):
        if isinstance(x, library.jax.core.Tracer):
            return _traced(library)
        return _bridge_of_jax(library, x) if isinstance(x, library.jax.Array) else None
    if library is not None:
        return None
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(x, getattr(cupy, "ndarray", ())):
        return cuda_bridge_for("cupy")
    exports = hasattr(type(x), "__dlpack__") and hasattr(type(x), "__dlpack_device__")
    if exports:
        is_cuda = int(x.__dlpack_device__()[0]) in _CUDA
        return cuda_bridge_for("foreign") if is_cuda else _dlpack
    return cuda_bridge_for("foreign") if hasattr(type(x), "__cuda_array_interface__") else None


def _bridge_of_jax(library: Jax, x: Any) -> Bridge:
    platforms = set() if x.is_deleted() else {device.platform for device in x.devices()}
    on_gpu = bool(platforms) and platforms <= {"gpu", "cuda"}
    return cuda_bridge_for("jax", library) if on_gpu else _jax(library)


@lru_cache(maxsize=8)
def cuda_bridge_for(name: str, *arguments: Any) -> CudaBridge:
    """The bridge of a library's arrays on GPUs."""
    from .cupy import CudaBridge, ForeignBridge, JaxCudaBridge

    if name == "torch":
        from .torch_cuda import TorchCudaBridge

        return TorchCudaBridge(*arguments)
    kinds = {"cupy": CudaBridge, "foreign": ForeignBridge, "jax": JaxCudaBridge}
    found: CudaBridge = kinds[name](*arguments)
    return found


def device_bridge_of(x: Any) -> CudaBridge | None:
    """The bridge of an array that is on a GPU, None for all others."""
    bridge = bridge_of(x)
    return bridge if bridge is not None and bridge.is_of_gpus else None  # type: ignore[return-value]


def as_array(x: Any, what: str = "x") -> Array:
    """The NumPy array that shares the memory of an array of any library; `as_numpy` of others."""
    bridge = bridge_of(x)
    return as_numpy(x, what) if bridge is None else bridge.arrive(x, what)


def facts(x: Any, what: str = "x") -> tuple[tuple[int, ...], DType, str]:
    """Shape, dtype and device of an array of any library; it need not hold data."""
    bridge = bridge_of(x)
    if bridge is not None:
        return *bridge.facts(x, what), bridge.device(x, what)
    array = as_numpy(x, what)
    return array.shape, array.dtype, CPU


def lying(x: Any, what: str = "x") -> tuple[tuple[int, ...], tuple[int, ...], DType, str]:
    """Shape, strides, dtype and device of an array of any library."""
    bridge = device_bridge_of(x)
    array = as_array(x, what) if bridge is None else bridge.reach(x, what)
    device = CPU if bridge is None else bridge.device(x, what)
    return array.shape, array.strides, array.dtype, device


def sum_of(accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
    """A sum with parts of other libraries: of the first part's kind, unless one is traced."""
    bridges = [bridge_of(part) for part in parts]
    traced = [bridge for bridge in bridges if isinstance(bridge, TracedBridge)]
    leader = traced[0] if traced else bridges[0] or numpy_bridge
    _check_devices(parts, bridges, bool(traced))
    if any(map(leader.is_recorded, parts)):
        return leader.add_recorded(accumulator, parts, out)
    arrays = [_detached(part, number) for number, part in enumerate(parts)]
    return leader.add(accumulator, arrays, parts[0], out)


def _check_devices(parts: Sequence[Any], bridges: Sequence[Bridge | None], is_traced: bool) -> None:
    """Raise DeviceError unless all parts are on one device."""
    if is_traced or not any(bridge is not None and bridge.is_of_gpus for bridge in bridges):
        return
    first = CPU
    for number, (part, bridge) in enumerate(zip(parts, bridges, strict=True)):
        device = CPU if bridge is None else bridge.device(part, f"part {number}")
        first = device if number == 0 else first
        if device != first:
            raise DeviceError(
                f"part 0 is on {first}, but part {number}, a {kind_text(part)}, is on {device}; "
                f'bring all to one device first, for example with convert(..., device="{first}")'
            )


def _detached(part: Any, number: int) -> Any:
    """The memory of a part of a sum that no gradient is recorded of."""
    bridge = bridge_of(part)
    if bridge is not None and bridge.is_recorded(part):
        raise ArgumentError(
            f"part {number} requires a gradient, but the sum is no torch tensor, as part 0 is "
            f"none; give a tensor first, or part {number}.detach()"
        )
    if bridge is not None and bridge.is_of_gpus:
        return bridge.reach(part, f"part {number}")  # type: ignore[attr-defined]
    return as_array(part, f"part {number}")

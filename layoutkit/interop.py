"""Which bridge an array takes: one question at every door where arrays come in.

A library that is not in `sys.modules` has made no array, so nothing is imported to find one out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .arrays import Array, as_numpy
from .bridges import Bridge, NumpyBridge
from .errors import ArgumentError
from .frameworks import JaxBridge, TorchBridge, TracedBridge
from .libraries import Jax, Torch, library_of
from .spec import DType

if TYPE_CHECKING:
    from .accumulation import Accumulator

__all__ = ["as_array", "bridge_of", "facts", "sum_of"]

_dlpack, _numpy = Bridge(), NumpyBridge()
_torch = lru_cache(maxsize=1)(TorchBridge)
_jax = lru_cache(maxsize=1)(JaxBridge)
_traced = lru_cache(maxsize=1)(TracedBridge)


def bridge_of(x: Any) -> Bridge | None:
    """The bridge of an array; None for NumPy's, which need none, and for what is no array."""
    library = library_of(x)
    if isinstance(library, Torch):
        return _torch(library)
    if isinstance(library, Jax):
        if isinstance(x, library.jax.core.Tracer):
            return _traced(library)
        return _jax(library) if isinstance(x, library.jax.Array) else None
    exports = hasattr(type(x), "__dlpack__") and hasattr(type(x), "__dlpack_device__")
    return _dlpack if library is None and exports else None


def as_array(x: Any, what: str = "x") -> Array:
    """The NumPy array that shares the memory of an array of any library; `as_numpy` of others."""
    bridge = bridge_of(x)
    return as_numpy(x, what) if bridge is None else bridge.arrive(x, what)


def facts(x: Any, what: str = "x") -> tuple[tuple[int, ...], DType]:
    """Shape and dtype of an array of any library; it need not hold data."""
    bridge = bridge_of(x)
    if bridge is not None:
        return bridge.facts(x, what)
    array = as_numpy(x, what)
    return array.shape, array.dtype


def sum_of(accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
    """A sum with parts of other libraries: of the first part's kind, unless one is traced."""
    bridges = [bridge_of(part) for part in parts]
    traced = [bridge for bridge in bridges if isinstance(bridge, TracedBridge)]
    leader = traced[0] if traced else bridges[0] or _numpy
    if any(map(leader.is_recorded, parts)):
        return leader.add_recorded(accumulator, parts, out)
    arrays = [_detached(part, number) for number, part in enumerate(parts)]
    return leader.add(accumulator, arrays, parts[0], out)


def _detached(part: Any, number: int) -> Array:
    """The memory of a part of a sum that no gradient is recorded of."""
    bridge = bridge_of(part)
    if bridge is not None and bridge.is_recorded(part):
        raise ArgumentError(
            f"part {number} requires a gradient, but the sum is no torch tensor, as part 0 is "
            f"none; give a tensor first, or part {number}.detach()"
        )
    return as_array(part, f"part {number}")

"""Bases of any library: what a view sees of an array, and parts of it in that library's words.

NumPy arrays and, through an adapter, arrays that the CPU reaches are seen as NumPy arrays that
share their memory; those on a GPU by their shape, strides and dtype alone. What a view hands out is
of the kind that was put.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ..arrays.rows import take
from ..arrays.symbolic import Torch, library_of
from ..devices import CPU
from ..memory import Array, as_numpy
from ..notation import identity
from ..spec import DType

__all__ = ["Seen", "copies", "like_base", "on_cpu", "seen", "window"]


class Seen(Protocol):
    """What a view needs to know of an array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""

    @property
    def dtype(self) -> DType:
        """The dtype in NumPy's words."""


def seen(x: Any, what: str) -> tuple[Any, str]:
    """How an array of any library is seen, and its device.

    Raises ArgumentError for what is no array, or holds no data.
    """
    if isinstance(x, np.ndarray):
        return as_numpy(x, what), CPU
    from ..arrays.adapters import as_array, device_adapter_of  # here, as most bases are NumPy's

    adapter = device_adapter_of(x)
    if adapter is None:
        return as_array(x, what), CPU
    return adapter.reach(x, what), adapter.device(x, what)


def copies(base: Any, array: Any, axis: int, positions: Array) -> Any:
    """Copies of the samples at positions that exist; `array` is how the base is seen."""
    if isinstance(base, np.ndarray):
        return take(array, axis, positions)
    library = library_of(base)
    if isinstance(library, Torch):
        return base.index_select(axis, library.xp.as_tensor(positions, device=base.device))
    if library is None and isinstance(array, np.ndarray):  # of which only its memory is known
        return like_base(take(array, axis, positions), base)
    return base[(slice(None),) * axis + (positions,)]


def window(base: Any, array: Any, axis: int, part: slice) -> Any:
    """The samples of a window, in the base's own memory."""
    source = base if hasattr(base, "__getitem__") else array
    return source[(slice(None),) * axis + (part,)]


def on_cpu(x: Any, what: str = "x") -> Array:
    """An array of any library as NumPy's: one that shares its memory, of a GPU's a copy."""
    array, device = seen(x, what)
    if device == CPU:
        return array  # type: ignore[no-any-return]
    from ..cuda.transfers import brought

    return brought(x)


def like_base(array: Array, base: Any) -> Any:
    """An array of the base's kind, on its device, that has what `array` has; a copy on a GPU."""
    if isinstance(base, np.ndarray):
        return array
    from ..arrays.adapters import adapter_of, device_adapter_of
    from ..converter import Converter

    adapter = device_adapter_of(base)
    if adapter is None:
        found = adapter_of(base)
        return array if found is None else found.leave(array, base)
    up = Converter(identity(array.ndim), device=adapter.device(base, "the base"))
    return up(adapter.on_cpu().leave(array, base))

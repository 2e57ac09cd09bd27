"""An array on a GPU as kernels see it, and what is asked of the library that holds it."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod
from typing import Any, Protocol

import numpy as np

from ..errors import ArgumentError, DeviceError
from ..layout.pattern import Move
from ..memory import Array, overlaps
from ..spec import DType, name_of

__all__ = ["DeviceAdapter", "DeviceArray", "check_same_device", "check_writable", "span"]

_ALIGNMENT = 16  # bytes; more does not matter to a kernel


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """Memory on a GPU. `strides` are in bytes; `owner` is the library's array, which holds it."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    ordinal: int
    owner: Any
    writeable: bool = True

    @property
    def device(self) -> str:
        """The name of the GPU."""
        return name_of(self.ordinal)

    @property
    def facts(self) -> tuple[tuple[int, ...], tuple[int, ...], DType, str]:
        """Shape, strides, dtype and device: what plans are made of."""
        return self.shape, self.strides, self.dtype, self.device

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def is_aligned(self) -> bool:
        """Whether every element begins at a multiple of its size, or of what complex ones have."""
        item = gcd(self.dtype.itemsize, _ALIGNMENT)
        pairs = zip(self.strides, self.shape, strict=True)
        return gcd(item, self.address, *(step for step, count in pairs if count > 1)) == item


class DeviceAdapter(Protocol):
    """The library of the arrays that come and go: what it makes, and where it expects work.

    `layoutkit.backends.cupy.CudaAdapter` is one, and so are those that derive from it.
    """

    def located(self, x: Any, writeable: bool = True) -> DeviceArray:
        """Where an array lies that `empty`, `view` or a conversion has made."""

    def stream(self, ordinal: int) -> Any:
        """The stream on which the library's users expect work."""

    def check(self, dtype: DType) -> None:
        """Raise DtypeError unless the library has the dtype."""

    def empty(self, shape: tuple[int, ...], dtype: DType, ordinal: int) -> DeviceArray:
        """A new contiguous array."""

    def scratch(self, shape: tuple[int, ...], dtype: DType, ordinal: int) -> DeviceArray:
        """The same, of a conversion's own, which a graph that is captured writes for ever."""

    def view(self, array: DeviceArray, move: Move) -> Any:
        """The library's array that shares the memory, moved where nothing has to move."""

    def real(self, array: DeviceArray) -> DeviceArray:
        """The real part of complex elements; it shares their memory."""

    def cast_into(self, out: DeviceArray, values: DeviceArray) -> None:
        """Write one array to another as NumPy's unsafe cast does, in the library's words."""


def check_same_device(first: DeviceArray, name: str, other: str, other_name: str) -> None:
    """Raise DeviceError unless `other`, a device, is that of the first array."""
    if other != first.device:
        raise DeviceError(
            f"{name} is on {first.device}, but {other_name} is on {other}; bring both to one "
            f'device first, for example with convert(..., device="{first.device}")'
        )


def check_writable(array: DeviceArray, out: DeviceArray, name: str = "x") -> None:
    """Raise unless `out` may be written without touching `array`, the one called `name`."""
    if not out.writeable:
        raise ArgumentError("out is read-only; give a writeable array")
    if array.size and out.size and overlaps(_shadow(array), _shadow(out)):
        raise ArgumentError(f"out shares memory with {name}; give an out of its own memory")


def span(array: DeviceArray) -> tuple[int, int]:
    """Where the bytes of an array begin and end, counted from its address; it has elements."""
    ends = [(count - 1) * step for count, step in zip(array.shape, array.strides, strict=True)]
    low, high = sum(min(0, end) for end in ends), sum(max(0, end) for end in ends)
    return low, high + array.dtype.itemsize


class _Interface:
    def __init__(self, array: DeviceArray) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": array.shape,
            "strides": array.strides,
            "typestr": f"|V{array.dtype.itemsize}",
            "data": (array.address, True),
        }


def _shadow(array: DeviceArray) -> Array:
    """A NumPy array at the same addresses, whose elements nobody may look at.

    Exists because NumPy decides exactly whether strided arrays overlap, from addresses alone.
    """
    return np.asarray(_Interface(array))

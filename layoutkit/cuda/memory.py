"""Device arrays as kernels see them, and the protocol of the libraries that own them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd, prod
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol, overload

import numpy as np

from ..errors import ArgumentError, DeviceError
from ..layout.pattern import Permutation
from ..memory import Array, overlaps
from ..spec import DType, device_name

ALIGNMENT = 16  # bytes; kernels use no larger alignment


class DeviceArray(NamedTuple):
    """A strided array on a GPU. `strides` are in bytes; `owner` is the library's array."""

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
        return device_name(self.ordinal)

    @property
    def plan_args(self) -> tuple[tuple[int, ...], tuple[int, ...], DType, str]:
        """Shape, strides, dtype and device, the arguments of a plan."""
        return self.shape, self.strides, self.dtype, self.device

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def is_aligned(self) -> bool:
        """True if the address of every element is a multiple of its size (at most 16 bytes)."""
        item = gcd(self.dtype.itemsize, ALIGNMENT)
        pairs = zip(self.strides, self.shape, strict=True)
        return gcd(item, self.address, *(step for step, count in pairs if count > 1)) == item


@dataclass(frozen=True, eq=False)
class DeviceArrays(Sequence[DeviceArray]):
    """Arrays on GPUs that are only read, by the fields of DeviceArray.

    Columns of many samples are read faster than an object for each.
    """

    addresses: Sequence[int]
    shapes: Sequence[tuple[int, ...]]
    strides: Sequence[tuple[int, ...]]
    dtypes: Sequence[DType]
    ordinals: Sequence[int]
    owners: Sequence[Any]

    @classmethod
    def of(cls, arrays: Iterable[DeviceArray]) -> DeviceArrays:
        """Return the columns of at least one array."""
        *columns, _ = zip(*arrays, strict=True)
        return cls(*columns)

    def __len__(self) -> int:
        return len(self.owners)

    @overload
    def __getitem__(self, n: int) -> DeviceArray: ...
    @overload
    def __getitem__(self, n: slice) -> DeviceArrays: ...
    def __getitem__(self, n: Any) -> Any:
        kind = DeviceArrays if isinstance(n, slice) else DeviceArray
        return kind(
            self.addresses[n],
            self.shapes[n],
            self.strides[n],
            self.dtypes[n],
            self.ordinals[n],
            self.owners[n],
        )


class DeviceAdapter(Protocol):
    """The array library of inputs and results: allocation, views, casts and the stream.

    Implemented by `layoutkit.backends.cupy.CudaAdapter` and its subclasses.
    """

    def device_array_of(self, x: Any, writeable: bool = True) -> DeviceArray:
        """Return the device array of an array that `empty`, `view` or a conversion returned."""

    def stream(self, ordinal: int) -> Any:
        """Return the library's current stream."""

    def check(self, dtype: DType) -> None:
        """Raise DtypeError unless the library supports the dtype."""

    def empty(self, shape: tuple[int, ...], dtype: DType, ordinal: int) -> DeviceArray:
        """Return a new contiguous array."""

    def empty_temporary(self, shape: tuple[int, ...], dtype: DType, ordinal: int) -> DeviceArray:
        """Return a temporary array, kept until the process ends if a graph is captured."""

    def view(self, array: DeviceArray, move: Permutation) -> Any:
        """Return the library's view of the array's memory, with its axes permuted by `move`."""

    def real(self, array: DeviceArray) -> DeviceArray:
        """Return a view of the real part of a complex array."""

    def cast_into(self, out: DeviceArray, values: DeviceArray) -> None:
        """Write one array to another as NumPy's unsafe cast does, by the library."""


def check_same_device(first: DeviceArray, name: str, other: str, other_name: str) -> None:
    """Raise DeviceError unless the device `other` is the device of the first array."""
    if other != first.device:
        raise DeviceError(
            f"{name} is on {first.device}, but {other_name} is on {other}; bring both to one "
            f'device first, for example with convert(..., device="{first.device}")'
        )


def check_writable(array: DeviceArray, out: DeviceArray, name: str = "x") -> None:
    """Raise unless `out` is writeable and does not overlap `array`, which errors call `name`."""
    if not out.writeable:
        raise ArgumentError("out is read-only; give a writeable array")
    if array.size and out.size and overlaps(_make_address_array(array), _make_address_array(out)):
        raise ArgumentError(f"out shares memory with {name}; give an out of its own memory")


def span(array: DeviceArray) -> tuple[int, int]:
    """Return the first and last byte offset of a non-empty array, relative to its address."""
    ends = [(count - 1) * step for count, step in zip(array.shape, array.strides, strict=True)]
    low = sum(min(0, end) for end in ends)
    high = sum(max(0, end) for end in ends)
    return low, high + array.dtype.itemsize


def _make_address_array(array: DeviceArray) -> Array:
    """Return a NumPy array with the device addresses, whose elements must not be accessed.

    NumPy's exact overlap test for strided arrays needs only addresses.
    """
    interface = {
        "version": 3, "shape": array.shape, "strides": array.strides,
        "typestr": f"|V{array.dtype.itemsize}", "data": (array.address, True),
    }  # fmt: skip
    return np.asarray(SimpleNamespace(__array_interface__=interface))

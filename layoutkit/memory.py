"""NumPy arrays as memory: where one begins, whether two overlap, whether one may be written.

Knows NumPy and no other library; `layoutkit.backends` brings the arrays of others here.
`layoutkit.cuda.memory` is the same for memory of a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ._utils.validation import kind_text
from .errors import ArgumentError

__all__ = [
    "HAS_KNOWN_HEADER",
    "Array",
    "address",
    "addresses",
    "as_numpy",
    "check_writable",
    "contiguous",
    "layout_key",
    "overlaps",
]

Array: TypeAlias = npt.NDArray[Any]

# How hard NumPy may think about whether two strided arrays overlap; then they are taken to.
MAX_WORK = 100_000


def as_numpy(x: Any, what: str = "x") -> Array:
    """The NumPy array that shares the memory of `x`: `x` itself, or its plain-array view.

    Raises
    ------
    ArgumentError
        `x` is no NumPy array. Lists and numbers are refused, as their layout is not in memory.
    """
    if isinstance(x, np.ma.MaskedArray):
        raise ArgumentError(
            f"{what} is a masked array, and its mask would be lost; pass {what}.filled(value)"
        )
    if isinstance(x, np.ndarray):
        return x.view(np.ndarray)
    # A copy of the caller's `out` would be written and lost, and nothing can be made of None.
    copied = what != "out" and isinstance(x, list | tuple | int | float | complex)
    fix = f"pass numpy.asarray({what})" if copied else "pass a numpy.ndarray"
    raise ArgumentError(f"{what} is a {kind_text(x)}, not a NumPy array; {fix}")


def layout_key(*arrays: Any) -> tuple[Any, ...]:
    """What plans depend on and are kept by: shape, strides and dtype of every array.

    None, such as an `out` that is not there, has its place.
    """
    return tuple([None if a is None else (a.shape, a.strides, a.dtype) for a in arrays])


def check_writable(array: Array, out: Array, name: str = "x") -> None:
    """Raise unless `out` may be written without touching `array`, the one called `name`."""
    if not out.flags.writeable:
        raise ArgumentError("out is read-only; give a writeable array")
    if overlaps(array, out):
        raise ArgumentError(f"out shares memory with {name}; give an out of its own memory")


def overlaps(array: Array, out: Array) -> bool:
    """Whether two arrays share memory, or may do so; decided from addresses alone."""
    if not np.may_share_memory(array, out):
        return False
    try:
        return np.shares_memory(array, out, max_work=MAX_WORK)  # type: ignore[arg-type]  # any int
    except (np.exceptions.TooHardError, OverflowError):
        return True


def _slow_address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _fast_address(array: Array) -> int:
    """The data pointer, read from the array object: ten times faster than asking for it.

    Exists because two questions of 0.8 us each would be a third of a small conversion. The
    pointer is the first field behind the object header in every NumPy since 1.0.
    """
    return _word.from_address(id(array) + _HEADER).value


_word = ctypes.c_size_t
_HEADER = object.__basicsize__


def _header_is_as_expected() -> bool:
    """Whether arrays are objects that hold data, rank, sizes, strides, a base and a dtype, in turn.

    Machine code reads all of them (kernels/cpu/collate.py).
    """
    probe = np.arange(24, dtype=np.int16).reshape(4, 6)[1:, ::-2]
    words = (ctypes.c_ssize_t * 6).from_address(id(probe) + _HEADER)
    data, rank, sizes, strides, _, dtype = words
    if (data, rank & 0xFFFFFFFF, dtype) != (_slow_address(probe), 2, id(probe.dtype)):
        return False
    pair = ctypes.c_ssize_t * 2
    found = [tuple(pair.from_address(at)) for at in (sizes, strides)]
    return found == [probe.shape, probe.strides]


def _fast_addresses(arrays: Sequence[Array]) -> list[int]:
    """The same of many: half of the time is the call of a function for each."""
    return [_word.from_address(id(array) + _HEADER).value for array in arrays]


def _slow_addresses(arrays: Sequence[Array]) -> list[int]:
    return list(map(_slow_address, arrays))


HAS_KNOWN_HEADER = _fast = _header_is_as_expected()
address = _fast_address if _fast else _slow_address
addresses = _fast_addresses if _fast else _slow_addresses


def contiguous(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Strides of a C-contiguous array."""
    strides, step = [], dtype.itemsize
    for count in reversed(shape):
        strides.append(step)
        step *= max(count, 1)
    return tuple(reversed(strides))

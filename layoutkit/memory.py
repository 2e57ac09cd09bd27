"""Addresses, overlap and writability of NumPy arrays.

`layoutkit.backends` converts arrays of other libraries to NumPy arrays of the same memory;
`layoutkit.cuda.memory` is the counterpart for GPU memory.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ._utils.validation import describe_type
from .errors import ArgumentError, ShapeError

Array: TypeAlias = npt.NDArray[Any]

# The bound on NumPy's exact search for an overlap of strided arrays; beyond it one is assumed.
MAX_WORK = 100_000


def in_native_order(array: Array) -> Array:
    """Return the array, or a copy of it in native byte order."""
    dtype = array.dtype
    return array if dtype.isnative else array.astype(dtype.newbyteorder("="))


def as_numpy(x: Any, arg_name: str = "x") -> Array:
    """Return a base-class ndarray of the memory of `x`: `x` itself or a view of it.

    Raises
    ------
    ArgumentError
        `x` is not a NumPy array. Lists and numbers are rejected because they have no strides.
    """
    if isinstance(x, np.ma.MaskedArray):
        raise ArgumentError(
            f"{arg_name} is a masked array, and its mask would be lost; "
            f"pass {arg_name}.filled(value)"
        )
    if isinstance(x, np.ndarray):
        return x.view(np.ndarray)
    # Not suggested for `out`, whose copy would be written and lost, nor for None.
    suggest_asarray = arg_name != "out" and isinstance(x, list | tuple)
    fix = f"pass numpy.asarray({arg_name})" if suggest_asarray else "pass a numpy.ndarray"
    if isinstance(x, dict) and x:
        fix = f"pass one of its values, such as {arg_name}[{next(iter(x))!r}]"
    if str(type(x).__module__).startswith("torch"):
        fix = f"pass {arg_name}.numpy()"  # of the same memory
    if isinstance(x, str) or hasattr(type(x), "__fspath__"):
        fix = f'to read an image file, pass layoutkit.images.read("{x}")'
        if str(x).endswith(".npy"):
            mode = ', mmap_mode="r+"' if arg_name == "out" else ""
            fix = f'pass numpy.load("{x}"{mode})'
        if isinstance(x, str) and ("->" in x or x.isalpha()):
            fix = "the layout and the array may be in the wrong order"
            if arg_name == "out":
                fix = "out= is an array, and the pattern has the layout of the result"
    kind = describe_type(x)
    raise ArgumentError(f"{arg_name} is {kind}, not a NumPy array; {fix}")


def layout_key(*arrays: Any) -> tuple[Any, ...]:
    """Return the cache key of plans: shape, strides and dtype of every array.

    An array that is None, such as `out`, is None in the key.
    """
    return tuple([None if a is None else (a.shape, a.strides, a.dtype) for a in arrays])


def check_writable(array: Array, out: Array, name: str = "x") -> None:
    """Raise if `out` is read-only or shares memory with `array`, the argument called `name`."""
    if not out.flags.writeable:
        raise ArgumentError("out is read-only; give a writeable array")
    if overlaps(array, out):
        raise ArgumentError(f"out shares memory with {name}; give an out of its own memory")


def overlaps(array: Array, out: Array) -> bool:
    """Return True if two arrays share memory, or may do so; decided from addresses alone."""
    if not np.may_share_memory(array, out):
        return False
    try:
        return np.shares_memory(array, out, max_work=MAX_WORK)  # type: ignore[arg-type]  # any int
    except (np.exceptions.TooHardError, OverflowError):
        return True


def _slow_address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _fast_address(array: Array) -> int:
    """Return the data pointer, read from the array object.

    Ten times faster than NumPy's interface, which takes 0.8 us: two calls would be a third of a
    small conversion. The pointer is the first field after the object header in every NumPy since
    1.0.
    """
    return _word.from_address(id(array) + _HEADER).value


_word = ctypes.c_size_t
_HEADER = object.__basicsize__
WRITEABLE = 0x400  # NumPy's flag


def _header_is_as_expected() -> bool:
    """Return True if array objects have the fields that machine code reads, in this order.

    They are data, rank, sizes, strides, base, dtype and flags (kernels/cpu/collate.py, direct.py).
    """
    probe = np.arange(24, dtype=np.int16).reshape(4, 6)[1:, ::-2]
    words = (ctypes.c_ssize_t * 7).from_address(id(probe) + _HEADER)
    data, rank, sizes, strides, _, dtype, flags = words
    if (data, rank & 0xFFFFFFFF, dtype) != (_slow_address(probe), 2, id(probe.dtype)):
        return False
    probe.flags.writeable = False
    if not flags & WRITEABLE or words[6] & WRITEABLE:
        return False
    pair = ctypes.c_ssize_t * 2
    fields = [tuple(pair.from_address(pointer)) for pointer in (sizes, strides)]
    return fields == [probe.shape, probe.strides]


def _fast_addresses(arrays: Sequence[Array]) -> list[int]:
    """Return the data pointers of many arrays, twice as fast as calls of `_fast_address`."""
    return [_word.from_address(id(array) + _HEADER).value for array in arrays]


def _slow_addresses(arrays: Sequence[Array]) -> list[int]:
    return list(map(_slow_address, arrays))


HAS_KNOWN_HEADER = _fast = _header_is_as_expected()
data_pointer = _fast_address if _fast else _slow_address
addresses = _fast_addresses if _fast else _slow_addresses


def pack_words(rows: Iterable[Iterable[int]]) -> Array:
    """Return the integers of all rows as one int64 array, read-only; faster than numpy.array."""
    words = [*chain.from_iterable(rows)]
    return np.frombuffer(struct.pack(f"{len(words)}q", *words), np.int64)


def row_bytes(table: Array) -> list[bytes]:
    """Return each row of a table as bytes, which are hashed faster than tuples of numbers."""
    table = np.ascontiguousarray(table)
    rows: list[bytes] = table.view(f"V{table.itemsize * table.shape[1]}")[:, 0].tolist()
    return rows


def contiguous_strides(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Return the strides of a C-contiguous array."""
    strides = []
    step = dtype.itemsize
    for count in reversed(shape):
        strides.append(step)
        step *= max(count, 1)
    return tuple(reversed(strides))


def check_out(out: Any, shape: tuple[int, ...], description: str) -> None:
    """Raise unless `out` has the result's shape and no two of its elements overlap."""
    if out.shape != shape:
        raise ShapeError(
            f"out has shape {out.shape}, but {description} makes {shape}; give that shape"
        )
    extent = out.dtype.itemsize
    for stride, count in sorted(zip(map(abs, out.strides), out.shape, strict=True)):
        if count > 1:
            if stride < extent and 0 not in out.shape:
                raise ArgumentError(
                    f"out of shape {out.shape} and strides {out.strides} may have overlapping "
                    "elements; give an out whose elements do not overlap"
                )
            extent += stride * (count - 1)

"""Values that are written to data: cast, broadcast and compared as by NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..._utils.validation import describe_type, show
from ...backends.dispatch import as_array, get_adapter
from ...errors import DtypeError, LayoutkitError, ShapeError
from ...memory import Array
from ...spec import DType, can_cast, dtype_kind

_NUMERIC = "buifc"


def as_elements(value: Any, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Return a number or array cast to `dtype`, ready to be broadcast to `shape`.

    Raises
    ------
    DtypeError
        The cast is not "same_kind", or an int does not fit. Python numbers get the dtype of
        the data, as in NumPy.
    ShapeError
        The value cannot be broadcast to the shape.
    """
    array = _number(value, dtype) if type(value) in (bool, int, float, complex) else _array(value)
    if not _can_cast(array.dtype, dtype):
        raise DtypeError(
            f"a value of dtype {array.dtype} cannot be written to data of {dtype} with a same_kind "
            f'cast; cast it first: value.astype("{dtype}")'
        )
    if not _broadcasts(array.shape, shape):
        raise ShapeError(
            f"a value of shape {array.shape} cannot be broadcast to data of shape {shape}; give a "
            "value that NumPy broadcasts to it"
        )
    surplus = max(array.ndim - len(shape), 0)
    return array.reshape(array.shape[surplus:]).astype(dtype, copy=False)


def equal(a: Any, b: Any) -> bool:
    """Return True if two arrays, or two lists of arrays, have equal shapes and elements."""
    if isinstance(a, list) or isinstance(b, list):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    try:
        return np.array_equal(a, b)
    except TypeError:  # NumPy does not compare some dtypes, such as dates and structures
        return False


@contextmanager
def translate_numpy_errors(name: str, data: Any, value: Any) -> Iterator[None]:
    """Convert the errors that NumPy raises for an operator into layoutkit's errors."""
    try:
        yield
    except LayoutkitError:
        raise
    except (TypeError, OverflowError) as error:
        raise DtypeError(f"{name} of {data} and {show(value)}: {error}") from None
    except ValueError as error:
        raise ShapeError(f"{name} of {data} and {describe_type(value)}: {error}") from None


def _number(value: Any, dtype: DType) -> Array:
    """Return a Python number as an array, of `dtype` if that kind includes it, as in NumPy."""
    value_kind = {bool: "b", int: "i", float: "f", complex: "c"}[type(value)]
    kind = dtype_kind(dtype)
    fits = kind in _NUMERIC and _NUMERIC.index(
        "u" if value_kind == "i" else value_kind
    ) <= _NUMERIC.index(kind)
    if not fits:
        return np.asarray(value)
    try:
        return np.array(value, dtype)
    except OverflowError:
        raise DtypeError(
            f"{value} is out of the range of {dtype}; write a number that fits"
        ) from None


def _array(value: Any) -> Array:
    if get_adapter(value) is not None:
        return as_array(value, "the value")
    try:
        return np.asarray(value)
    except ValueError:  # nested lists of different lengths
        raise ShapeError("the rows of the value differ in length; give an array") from None


def _can_cast(source: DType, target: DType) -> bool:
    if dtype_kind(source) in _NUMERIC and dtype_kind(target) in _NUMERIC:
        return can_cast(source, target, "same_kind")
    return np.can_cast(source, target, "same_kind")


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Return True if NumPy can assign `shape` to `target`; surplus leading axes have size 1."""
    surplus = max(len(shape) - len(target), 0)
    pairs = zip(reversed(shape[surplus:]), reversed(target), strict=False)
    return all(size == 1 for size in shape[:surplus]) and all(a in (1, b) for a, b in pairs)

"""What is written, and what is compared.

Knows arrays; where they go is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...arrays.adapters import adapter_of, as_array
from ...checks import kind_text
from ...errors import DtypeError, LayoutkitError, ShapeError
from ...memory import Array
from ...spec import DType, can_cast, kind_of

__all__ = ["as_elements", "as_user_error", "equal"]

_NUMERIC = "buifc"


def as_elements(value: Any, dtype: DType, shape: tuple[int, ...]) -> Array:
    """A number or array as it is written to `shape` elements of `dtype`: cast, to be broadcast.

    Raises
    ------
    DtypeError
        The cast is not of the same kind, or an int does not fit. Plain numbers take the dtype
        that they are written to, as with NumPy.
    ShapeError
        It does not broadcast to the shape.
    """
    array = _number(value, dtype) if type(value) in (bool, int, float, complex) else _array(value)
    if not _can_cast(array.dtype, dtype):
        raise DtypeError(
            f"a value of dtype {array.dtype} is written to data of {dtype}, and that is no cast of "
            f'the same kind; cast it first: value.astype("{dtype}")'
        )
    if not _broadcasts(array.shape, shape):
        raise ShapeError(
            f"a value of shape {array.shape} is written to data of shape {shape}; give one that "
            "NumPy broadcasts to it"
        )
    surplus = max(array.ndim - len(shape), 0)
    return array.reshape(array.shape[surplus:]).astype(dtype, copy=False)


def equal(a: Any, b: Any) -> bool:
    """Whether two arrays have one shape and equal elements, or two lists of them do."""
    if isinstance(a, list) or isinstance(b, list):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    try:
        return np.array_equal(a, b)
    except TypeError:  # of dtypes that NumPy does not compare, such as dates and structures
        return False


@contextmanager
def as_user_error(name: str, data: Any, value: Any) -> Iterator[None]:
    """What NumPy raises for an operator, as errors of this project."""
    try:
        yield
    except LayoutkitError:
        raise
    except (TypeError, OverflowError) as error:
        raise DtypeError(f"{name} of {data} and {value!r}: {error}") from None
    except ValueError as error:
        raise ShapeError(f"{name} of {data} and a {kind_text(value)}: {error}") from None


def _number(value: Any, dtype: DType) -> Array:
    """A plain number: of the dtype if that is of its kind, as NumPy has it."""
    kind = {bool: "b", int: "i", float: "f", complex: "c"}[type(value)]
    found = kind_of(dtype)
    fits = found in _NUMERIC and _NUMERIC.index("u" if kind == "i" else kind) <= _NUMERIC.index(
        found
    )
    if not fits:
        return np.asarray(value)
    try:
        return np.array(value, dtype)
    except OverflowError:
        raise DtypeError(
            f"{value} is out of the range of {dtype}; write a number that fits"
        ) from None


def _array(value: Any) -> Array:
    if adapter_of(value) is not None:
        return as_array(value, "the value")
    try:
        return np.asarray(value)
    except ValueError:  # nested lists of different lengths
        raise ShapeError("the value is no array; rows of different lengths are none") from None


def _can_cast(source: DType, target: DType) -> bool:
    if kind_of(source) in _NUMERIC and kind_of(target) in _NUMERIC:
        return can_cast(source, target, "same_kind")
    return np.can_cast(source, target, "same_kind")


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """As NumPy's assignment does: further axes in front may have size 1."""
    surplus = max(len(shape) - len(target), 0)
    pairs = zip(reversed(shape[surplus:]), reversed(target), strict=False)
    return all(size == 1 for size in shape[:surplus]) and all(a in (1, b) for a, b in pairs)

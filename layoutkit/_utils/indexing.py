"""Indices and slices as in Python: ints count from 0, negative ones from the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentError, LayoutkitError, ShapeError
from .validation import as_int, describe_type, show


def normalize_index(
    index: Any, count: int, noun: str, error: type[LayoutkitError] | None = None
) -> int:
    """Return an index from -count to count - 1 as a position from 0.

    noun     what there are `count` of, a plural
    error    the class of all errors; None: ArgumentError for other types, ShapeError for numbers
    """
    number = as_int(index)
    if number is None:
        raise (error or ArgumentError)(f"index {show(index)} is not a whole number")
    if not -count <= number < count:
        raise (error or ShapeError)(_describe_out_of_range(str(number), count, noun))
    return number % count


def normalize_indices(
    indices: Any, count: int, noun: str, error: type[LayoutkitError] | None = None
) -> np.ndarray[Any, Any]:
    """Return a new array of positions from 0; arguments as of `normalize_index`."""
    numbers = as_int_array(indices)
    if numbers is None or numbers.ndim != 1:
        expected = "one list or array of whole numbers (of a mask: numpy.flatnonzero(mask))"
        raise make_argument_error("indices", indices, expected, error or ArgumentError)
    wrong = np.flatnonzero((numbers < -count) | (numbers >= count))
    if wrong.size:
        position = int(wrong[0])
        text = f"{numbers[position]} at position {position}"
        raise (error or ShapeError)(_describe_out_of_range(text, count, noun))
    numbers[numbers < 0] += count
    return numbers


def _describe_out_of_range(index: str, count: int, noun: str) -> str:
    limits = f"; give {-count} to {count - 1}" if count else ""
    return f"index {index} is out of range: there are {count or 'no'} {noun}{limits}"


def normalize_slice(part: slice, count: int, error: type[LayoutkitError] = ArgumentError) -> range:
    """Return the positions of a slice of `count` elements; raise `error` for other bounds."""
    for name in ("start", "stop", "step"):
        value = getattr(part, name)
        if value is not None and (as_int(value) is None or (name == "step" and value == 0)):
            raise error(f"{name} is {show(value)}; give an int or None, as in Python's slices")
    return range(count)[part]


def as_int_array(values: Any) -> np.ndarray[Any, Any] | None:
    """Return a new int64 array, or None if the values are not ints.

    It is uint64 if int64 cannot hold the values. Bools are not ints.
    """
    numbers = as_array(values)
    if numbers is None or isinstance(values, np.ma.MaskedArray):
        return None
    is_list = isinstance(values, list | tuple)
    if numbers.size == 0 and (is_list or isinstance(values, range)):
        return numbers.astype(np.int64)  # NumPy converts an empty list to floats
    if numbers.dtype.kind not in "iu":
        return None
    if is_list and not {bool, np.bool_}.isdisjoint(map(type, values)):
        return None
    is_large = numbers.dtype.kind == "u" and (numbers > np.iinfo(np.int64).max).any()
    return numbers.astype(np.uint64 if is_large else np.int64)


def as_array(values: Any) -> np.ndarray[Any, Any] | None:
    """Return an array of `values`, or None if they cannot be read as one."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: abstract tensors
        return None


def make_argument_error(
    arg_name: str, value: Any, expected: str, error: type[LayoutkitError] = ArgumentError
) -> LayoutkitError:
    """Return the error for an invalid argument, which may be a traced or device array."""
    first = next(iter(value), None) if isinstance(value, list | tuple) else value
    if not hasattr(first, "dtype") or as_array(first) is not None:
        return error(f"{arg_name} is {show(value)}; give {expected}")
    return error(
        f"{arg_name} is {describe_type(first)}, whose numbers cannot be read: it is on "
        "another device, or is abstract while a function is compiled; give numbers or lists of "
        "them, and make batches outside of compiled functions if the numbers change between calls"
    )

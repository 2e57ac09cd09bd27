"""Validation of indices, slices and batch sizes; copies of samples; one-hot rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._utils.validation import as_int
from ..buffers import empty
from ..errors import ArgumentError, ShapeError
from ..memory import Array, as_numpy
from ..spec import DType


def normalize_slice(start: Any, stop: Any, count: int) -> slice:
    """Return `start:stop` as a slice with bounds from 0 to `count`, as Python resolves it."""
    for name, value in (("start", start), ("stop", stop)):
        if value is not None and as_int(value) is None:
            raise ArgumentError(f"{name} is {value!r}; give an int or None, as in Python's slices")
    first, last, _ = slice(start, stop).indices(count)
    return slice(first, last)


def normalize_indices(indices: Any, count: int) -> Array:
    """Return indices from -count to count - 1 as non-negative positions.

    Raises
    ------
    ArgumentError
        The indices are not ints.
    ShapeError
        The indices are not one-dimensional, or one of them is out of range.
    """
    array = _as_array(indices)
    if array.ndim != 1:
        raise ShapeError(
            f"indices have shape {array.shape}; give a one-dimensional list or array, as [0, 2]"
        )
    invalid = np.flatnonzero((array < -count) | (array >= count))
    if invalid.size:
        position = int(invalid[0])
        raise ShapeError(
            f"index {array[position]} at position {position} is out of range: the view has {count} "
            f"samples; give indices from {-count} to {count - 1}"
            if count
            else f"index {array[position]} at position {position} is out of range: the view has no "
            "samples"
        )
    positions = array.astype(np.intp)
    positions[positions < 0] += count
    return positions


def take(array: Array, axis: int, positions: Array) -> Array:
    """Return a contiguous copy of the samples at validated positions, in pooled memory."""
    shape = array.shape[:axis] + positions.shape + array.shape[axis + 1 :]
    out = empty(shape, array.dtype)
    if array.flags.c_contiguous and array.flags.aligned:
        # Modes other than "raise" write to out directly, without a temporary buffer. The function
        # np.take makes three more calls.
        array.take(positions, axis, out, "clip")
    else:  # np.take would first copy the entire array
        out[...] = array[(slice(None),) * axis + (positions,)]
    return out


def one_hot(columns: Array, width: int, dtype: DType) -> Array:
    """Return one row of `width` numbers per sample: 1 in the sample's columns, 0 elsewhere.

    `columns` has shape (n,) or (n, k): one or k column indices per sample, which may repeat. The
    caller has validated that all are from 0 to width - 1. The result is in pooled memory.

    >>> one_hot(np.array([[0, 2], [1, 1]]), 3, np.dtype("int8"))
    array([[1, 0, 1],
           [0, 1, 0]], dtype=int8)
    """
    out: Array = empty((len(columns), width), dtype)
    out[...] = 0
    rows = np.arange(len(columns)).reshape((-1,) + (1,) * (columns.ndim - 1))
    out[rows, columns.astype(np.intp, copy=False)] = 1
    return out


def _as_array(indices: Any) -> Array:
    """Return indices as an array of ints; raise ArgumentError if they are not ints."""
    if isinstance(indices, np.ndarray):
        array = as_numpy(indices, "indices")
    else:
        array = _from_items(indices)
    if array.dtype.kind not in "iu":
        raise ArgumentError(
            f"indices have dtype {array.dtype}; give ints (for a mask: numpy.flatnonzero(mask))"
        )
    return array


def _from_items(indices: Any) -> Array:
    try:
        array = np.asarray(indices)
    except (TypeError, ValueError):  # nested lists of different lengths
        raise ArgumentError("indices are not ints; give them as one list or array") from None
    if array.size == 0 and isinstance(indices, list | tuple | range):
        return array.astype(np.intp)  # NumPy converts an empty list to floats
    may_contain_bools = isinstance(indices, list | tuple) and array.dtype.kind in "iu"
    if may_contain_bools and any(isinstance(index, bool | np.bool_) for index in indices):
        raise ArgumentError("indices contain bools; give ints")
    return array

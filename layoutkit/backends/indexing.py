"""Validation of indices, slices and batch sizes; copies of samples; one-hot rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._utils.validation import as_int
from ..buffers import empty
from ..errors import ArgumentError, ShapeError
from ..memory import Array, as_numpy
from ..spec import DType


def check_batch_size(value: Any) -> int:
    """Return a batch size as an int of at least 1; raise ArgumentError for anything else."""
    size = as_int(value)
    if size is None or size < 1:
        raise ArgumentError(f"batch_size is {value!r}; give an int of at least 1")
    return size


def normalize_slice(start: Any, stop: Any, count: int) -> slice:
    """Return the slice of `count` samples that Python's `start:stop` would select."""
    for name, value in (("start", start), ("stop", stop)):
        if value is not None and as_int(value) is None:
            raise ArgumentError(f"{name} is {value!r}; give an int or None, as in Python's slices")
    first, last, _ = slice(start, stop).indices(count)
    return slice(first, last)


def normalize_indices(indices: Any, count: int) -> Array:
    """Return non-negative positions for indices from -count to count - 1.

    Raises
    ------
    ArgumentError
        The indices are not ints.
    ShapeError
        They are not one-dimensional, or one of them is out of range.
    """
    array = _as_array(indices)
    if array.ndim != 1:
        raise ShapeError(f"indices have shape {array.shape}; give one axis of them, such as [0, 2]")
    wrong = np.flatnonzero((array < -count) | (array >= count))
    if wrong.size:
        index = int(wrong[0])
        raise ShapeError(
            f"index {array[index]} at position {index} is out of range: the view has {count} "
            f"samples; give indices from {-count} to {count - 1}"
            if count
            else f"index {array[index]} at position {index} is out of range: the view has no "
            "samples"
        )
    positions = array.astype(np.intp)
    positions[positions < 0] += count
    return positions


def take(array: Array, axis: int, positions: Array) -> Array:
    """Return the samples at validated positions, contiguous and in pooled memory."""
    shape = array.shape[:axis] + positions.shape + array.shape[axis + 1 :]
    out = empty(shape, array.dtype)
    if array.flags.c_contiguous and array.flags.aligned:
        # Modes other than "raise" write to out directly, without a temporary buffer.
        np.take(array, positions, axis=axis, out=out, mode="clip")
    else:  # np.take would first copy all of the array
        out[...] = array[(slice(None),) * axis + (positions,)]
    return out


def one_hot(columns: Array, width: int, dtype: DType) -> Array:
    """Return rows of `width` numbers: 1 in the columns of each sample, 0 elsewhere; pooled memory.

    `columns` has shape (n,) or (n, k): one or k integers a sample; a repeated one counts once. The
    caller has validated that all are from 0 to width - 1.

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
    """Return indices as an array of ints; raise ArgumentError for anything else."""
    if isinstance(indices, np.ndarray):
        array = as_numpy(indices, "indices")
    else:
        array = _from_items(indices)
    if array.dtype.kind not in "iu":
        raise ArgumentError(
            f"indices have dtype {array.dtype}; give ints (of a mask: numpy.flatnonzero(mask))"
        )
    return array


def _from_items(indices: Any) -> Array:
    try:
        array = np.asarray(indices)
    except (TypeError, ValueError):  # of different lengths
        raise ArgumentError("indices are not ints; give them as one list or array") from None
    if array.size == 0 and isinstance(indices, list | tuple | range):
        return array.astype(np.intp)  # NumPy takes an empty list for floats
    mixed = isinstance(indices, list | tuple) and array.dtype.kind in "iu"
    if mixed and any(isinstance(index, bool | np.bool_) for index in indices):
        raise ArgumentError("indices have bools among them; give ints")
    return array

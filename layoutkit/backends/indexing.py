"""Which samples: indices, windows and batch sizes as users write them; copies; one-hot rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._utils.validation import as_int
from ..buffers import empty
from ..errors import ArgumentError, ShapeError
from ..memory import Array, as_numpy
from ..spec import DType


def check_batch_size(value: Any) -> int:
    """A number of samples, at least 1; ArgumentError for anything else."""
    size = as_int(value)
    if size is None or size < 1:
        raise ArgumentError(f"batch_size is {value!r}; give an int of at least 1")
    return size


def normalize_slice(start: Any, stop: Any, count: int) -> slice:
    """The part of `count` samples that a Python slice from start to stop would give."""
    for name, value in (("start", start), ("stop", stop)):
        if value is not None and as_int(value) is None:
            raise ArgumentError(f"{name} is {value!r}; give an int or None, as in Python's slices")
    first, last, _ = slice(start, stop).indices(count)
    return slice(first, last)


def as_positions(indices: Any, count: int) -> Array:
    """Positions from 0 for indices from -count to count - 1.

    Raises
    ------
    ArgumentError
        The indices are not ints.
    ShapeError
        They are not one axis, or one of them is out of range.
    """
    found = _as_array(indices)
    if found.ndim != 1:
        raise ShapeError(f"indices have shape {found.shape}; give one axis of them, such as [0, 2]")
    wrong = np.flatnonzero((found < -count) | (found >= count))
    if wrong.size:
        at = int(wrong[0])
        raise ShapeError(
            f"index {found[at]} at position {at} is out of range: the view has {count} samples; "
            f"give indices from {-count} to {count - 1}"
            if count
            else f"index {found[at]} at position {at} is out of range: the view has no samples"
        )
    positions = found.astype(np.intp)
    positions[positions < 0] += count
    return positions


def take(array: Array, axis: int, positions: Array) -> Array:
    """The samples at proven positions, contiguous and in pooled memory."""
    shape = array.shape[:axis] + positions.shape + array.shape[axis + 1 :]
    out = empty(shape, array.dtype)
    if array.flags.c_contiguous and array.flags.aligned:
        # Any mode but "raise" writes to out at once, without a buffer between.
        np.take(array, positions, axis=axis, out=out, mode="clip")
    else:  # np.take would first copy all of the array
        out[...] = array[(slice(None),) * axis + (positions,)]
    return out


def one_hot(columns: Array, width: int, dtype: DType) -> Array:
    """Rows of `width` numbers, 1 in the columns of each sample and 0 elsewhere; pooled memory.

    `columns` has one integer a sample, shape (n,), or several, (n, k); a repeated one counts once.
    The caller has proved that all are from 0 to width - 1.

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
    """Indices as an array of ints; ArgumentError where they are something else."""
    if isinstance(indices, np.ndarray):
        found = as_numpy(indices, "indices")
    else:
        found = _from_items(indices)
    if found.dtype.kind not in "iu":
        raise ArgumentError(
            f"indices have dtype {found.dtype}; give ints (of a mask: numpy.flatnonzero(mask))"
        )
    return found


def _from_items(indices: Any) -> Array:
    try:
        found = np.asarray(indices)
    except (TypeError, ValueError):  # of different lengths
        raise ArgumentError("indices are not ints; give them as one list or array") from None
    if found.size == 0 and isinstance(indices, list | tuple | range):
        return found.astype(np.intp)  # NumPy takes an empty list for floats
    mixed = isinstance(indices, list | tuple) and found.dtype.kind in "iu"
    if mixed and any(isinstance(index, bool | np.bool_) for index in indices):
        raise ArgumentError("indices have bools among them; give ints")
    return found

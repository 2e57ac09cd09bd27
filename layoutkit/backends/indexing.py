"""Copies of samples, and one-hot rows."""

from __future__ import annotations

import numpy as np

from ..buffers import empty
from ..memory import Array
from ..spec import DType


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

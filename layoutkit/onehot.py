"""Labels as vectors with ones in the places of the labels."""

from __future__ import annotations

import numpy as np

from .buffers import empty
from .memory import Array
from .spec import DType

__all__ = ["one_hot"]


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

"""Matrices of scipy.sparse, which is imported when the first one is made here."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np

from .. import buffers
from ..conversion import convert
from ..errors import ArgumentError, DtypeError
from ..spec import DType, kind_of

__all__ = [
    "check_sparse_dtype",
    "densified",
    "is_sparse",
    "recast",
    "side_by_side",
    "sparse_of",
    "sparse_one_hot",
    "zeros",
]


def is_sparse(x: Any) -> bool:
    """Whether it is a matrix or array of scipy.sparse."""
    loaded = sys.modules.get("scipy.sparse")
    return loaded is not None and bool(loaded.issparse(x))


def check_sparse_dtype(dtype: DType) -> None:
    """DtypeError unless scipy.sparse computes with the dtype."""
    small_float = kind_of(dtype) == "f" and dtype.itemsize < 4
    if dtype.kind not in "buifc" or small_float:
        raise DtypeError(
            f"scipy.sparse has no matrices of dtype {dtype}; use bool, an integer, float32, "
            "float64 or a complex dtype"
        )


def zeros(shape: tuple[int, int], dtype: DType) -> Any:
    """A csr matrix without entries."""
    return _scipy().csr_matrix(shape, dtype=dtype)


def densified(matrix: Any) -> Any:
    """The matrix as an array of its own, in pooled memory."""
    out = buffers.empty(matrix.shape, matrix.dtype)
    return matrix.tocsr().toarray(out=out)


def sparse_of(array: Any) -> Any:
    """A csr matrix of the entries of a dense array that are not zero."""
    return _scipy().csr_matrix(array)


def recast(matrix: Any, dtype: DType | None, casting: str) -> Any:
    """The matrix in csr format and another dtype: itself where it is both already."""
    csr = matrix.tocsr()
    data = convert(csr.data, "b->b", dtype=dtype, casting=casting)
    if data is csr.data:
        return csr
    # Copies, since scipy sorts and joins entries of a matrix in place.
    return type(csr)((data, csr.indices.copy(), csr.indptr.copy()), shape=csr.shape)


def side_by_side(matrices: list[Any], dtype: DType) -> Any:
    """Sparse matrices as the columns of one, in csr format."""
    return _scipy().hstack(matrices, format="csr", dtype=dtype)


def sparse_one_hot(columns: Any, width: int, dtype: DType) -> Any:
    """A csr matrix with a one in the columns of each row, once where a column is there twice."""
    n, dim = columns.shape
    places = np.arange(0, n * dim + 1, dim), columns.ravel()
    found = _scipy().csr_matrix((np.ones(n * dim, dtype), places[1], places[0]), shape=(n, width))
    found.sum_duplicates()
    found.data[...] = 1
    return found


def _scipy() -> Any:
    try:
        return import_module("scipy.sparse")
    except ImportError as error:
        message = (
            'sparse vectors need SciPy, which is not installed: pip install "layoutkit[sparse]"'
        )
        raise ArgumentError(message) from error

"""Matrices of scipy.sparse, which is imported when the first one is made here.

Their indices become addresses in SciPy's C++, which believes them: what comes from outside is
checked here (`check_entries`) before SciPy is called with it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np

from .. import buffers
from .._utils import fork
from ..converter import convert
from ..errors import ArgumentError, DtypeError, ShapeError
from ..spec import DType, kind_of


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


def check_entries(matrix: Any) -> None:
    """ShapeError unless every entry of the matrix lies inside of it, in one pass over them."""
    check = {"csr": _check_compressed, "csc": _check_compressed, "bsr": _check_compressed}
    check |= {"coo": _check_coordinates, "dia": _check_diagonals, "lil": _check_lists}
    check |= {"dok": _check_keys}
    if matrix.format not in check:
        raise ShapeError(f"{matrix.format} is no format of scipy.sparse known here; pass x.tocsr()")
    check[matrix.format](matrix)


def _check_compressed(matrix: Any) -> None:
    """Of csr, csc and bsr: `indptr` says which of the `indices` belong to each row or column."""
    rows, columns = matrix.shape
    if matrix.format == "bsr":
        height, width = matrix.data.shape[1:]
        rows, columns = rows // height, columns // width
    lines, places = (columns, rows) if matrix.format == "csc" else (rows, columns)
    starts, indices = matrix.indptr, matrix.indices
    _check_integers(matrix, indptr=starts, indices=indices)
    if len(starts) != lines + 1 or starts[0] != 0 or (starts[1:] < starts[:-1]).any():
        raise _broken(matrix, f"indptr has to be {lines + 1} numbers that rise from 0")
    if len(indices) != len(matrix.data) or starts[-1] > len(indices):
        raise _broken(
            matrix,
            f"indptr ends at {starts[-1]}, with {len(indices)} indices and {len(matrix.data)} "
            "elements",
        )
    _check_inside(matrix, "indices", indices[: starts[-1]], places)


def _check_coordinates(matrix: Any) -> None:
    row, column = matrix.row, matrix.col
    _check_integers(matrix, row=row, col=column)
    if not len(row) == len(column) == len(matrix.data):
        raise _broken(
            matrix, f"{len(row)} rows and {len(column)} columns of {len(matrix.data)} elements"
        )
    _check_inside(matrix, "row", row, matrix.shape[0])
    _check_inside(matrix, "col", column, matrix.shape[1])


def _check_diagonals(matrix: Any) -> None:
    """Offsets may lie outside, where SciPy sees nothing; but sums with places may not overflow."""
    _check_integers(matrix, offsets=matrix.offsets)
    if matrix.data.ndim != 2 or len(matrix.offsets) != len(matrix.data):
        raise _broken(matrix, f"{len(matrix.offsets)} offsets of {len(matrix.data)} diagonals")
    reach = 1 << 30
    _check_inside(matrix, "offsets", matrix.offsets, reach, -reach)


def _check_lists(matrix: Any) -> None:
    rows, columns = matrix.shape
    if not len(matrix.rows) == len(matrix.data) == rows:
        raise _broken(matrix, f"{len(matrix.rows)} lists of places for {rows} rows")
    for number, (places, values) in enumerate(zip(matrix.rows, matrix.data, strict=True)):
        if len(places) != len(values):
            raise _broken(matrix, f"{len(places)} places of {len(values)} elements in row {number}")
        if places and not (min(places) >= 0 and max(places) < columns):
            raise _broken(matrix, f"row {number} has a place outside 0 to {columns - 1}")


def _check_keys(matrix: Any) -> None:
    rows, columns = matrix.shape
    for row, column in matrix.keys():  # noqa: SIM118 - it is no dict
        if not (0 <= row < rows and 0 <= column < columns):
            raise _broken(matrix, f"the key ({row}, {column}) lies outside")


def _check_integers(matrix: Any, **arrays: Any) -> None:
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in "iu":
            raise _broken(matrix, f"{name} is no array of integers along one axis")


def _check_inside(matrix: Any, name: str, found: Any, stop: int, start: int = 0) -> None:
    """ShapeError with the first number that is none of `start` to `stop` - 1."""
    if not found.size or (found.min() >= start and found.max() < stop):
        return
    at = int(np.flatnonzero((found < start) | (found >= stop))[0])
    raise _broken(matrix, f"{name}[{at}] is {found[at]}, outside {start} to {stop - 1}")


def _broken(matrix: Any, what: str) -> ShapeError:
    return ShapeError(
        f"the {matrix.format} matrix of shape {matrix.shape} is broken: {what}; its indices were "
        "changed, or read from a damaged file: make it anew from its source"
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


@fork.once
def _scipy() -> Any:
    try:
        return import_module("scipy.sparse")
    except ImportError as error:
        message = (
            'sparse vectors need SciPy, which is not installed: pip install "layoutkit[sparse]"'
        )
        raise ArgumentError(message) from error

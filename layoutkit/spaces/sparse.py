"""Matrices of scipy.sparse, which is imported when the first one is created here.

SciPy's C++ code uses their indices as addresses without checking them, so matrices of the caller
are validated (`check_entries`) before they are passed to SciPy.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np

from .. import buffers
from .._utils import fork
from .._utils.errors import explain_missing
from ..converter import convert
from ..errors import DtypeError, ShapeError
from ..spec import DType, dtype_kind


def is_sparse(x: Any) -> bool:
    """Return True if `x` is a matrix or array of scipy.sparse."""
    loaded = sys.modules.get("scipy.sparse")
    return loaded is not None and bool(loaded.issparse(x))


def check_sparse_dtype(dtype: DType) -> None:
    """Raise DtypeError unless scipy.sparse supports the dtype."""
    small_float = dtype_kind(dtype) == "f" and dtype.itemsize < 4
    if dtype.kind not in "buifc" or small_float:
        raise DtypeError(
            f"scipy.sparse does not support dtype {dtype}; use bool, an integer, float32, "
            "float64 or a complex dtype"
        )


def check_entries(matrix: Any) -> None:
    """Raise ShapeError unless all entries are inside the matrix; one pass over the entries."""
    check = {"csr": _check_compressed, "csc": _check_compressed, "bsr": _check_compressed}
    check |= {"coo": _check_coordinates, "dia": _check_diagonals, "lil": _check_lists}
    check |= {"dok": _check_keys}
    if matrix.format not in check:
        raise ShapeError(f"{matrix.format} is not a known format of scipy.sparse; pass x.tocsr()")
    check[matrix.format](matrix)


def _check_compressed(matrix: Any) -> None:
    """Check csr, csc or bsr, where `indptr` delimits the `indices` of each row or column."""
    rows, columns = matrix.shape
    if matrix.format == "bsr":
        height, width = matrix.data.shape[1:]
        rows = rows // height
        columns = columns // width
    major, minor = (columns, rows) if matrix.format == "csc" else (rows, columns)
    starts = matrix.indptr
    indices = matrix.indices
    _check_integers(matrix, indptr=starts, indices=indices)
    if len(starts) != major + 1 or starts[0] != 0 or (starts[1:] < starts[:-1]).any():
        raise _broken_error(matrix, f"indptr has to be {major + 1} numbers that rise from 0")
    if len(indices) != len(matrix.data) or starts[-1] > len(indices):
        raise _broken_error(
            matrix,
            f"indptr ends at {starts[-1]}, with {len(indices)} "
            f"indices and {len(matrix.data)} elements",
        )
    _check_range(matrix, "indices", indices[: starts[-1]], minor)


def _check_coordinates(matrix: Any) -> None:
    row = matrix.row
    column = matrix.col
    _check_integers(matrix, row=row, col=column)
    if not len(row) == len(column) == len(matrix.data):
        raise _broken_error(
            matrix, f"{len(row)} rows and {len(column)} columns for {len(matrix.data)} elements"
        )
    _check_range(matrix, "row", row, matrix.shape[0])
    _check_range(matrix, "col", column, matrix.shape[1])


def _check_diagonals(matrix: Any) -> None:
    """Check the diagonals of a dia matrix.

    Offsets may be outside the matrix, where SciPy ignores them, but adding an index to an offset
    must not overflow.
    """
    _check_integers(matrix, offsets=matrix.offsets)
    if matrix.data.ndim != 2 or len(matrix.offsets) != len(matrix.data):
        raise _broken_error(
            matrix, f"{len(matrix.offsets)} offsets for {len(matrix.data)} diagonals"
        )
    reach = 1 << 30
    _check_range(matrix, "offsets", matrix.offsets, reach, -reach)


def _check_lists(matrix: Any) -> None:
    rows, columns = matrix.shape
    if not len(matrix.rows) == len(matrix.data) == rows:
        raise _broken_error(matrix, f"{len(matrix.rows)} lists of indices for {rows} rows")
    for row, (indices, values) in enumerate(zip(matrix.rows, matrix.data, strict=True)):
        if len(indices) != len(values):
            raise _broken_error(
                matrix, f"{len(indices)} indices for {len(values)} elements in row {row}"
            )
        if indices and not (min(indices) >= 0 and max(indices) < columns):
            raise _broken_error(matrix, f"row {row} has an index outside 0 to {columns - 1}")


def _check_keys(matrix: Any) -> None:
    rows, columns = matrix.shape
    for row, column in matrix.keys():  # noqa: SIM118 - it is not a dict
        if not (0 <= row < rows and 0 <= column < columns):
            raise _broken_error(matrix, f"the key ({row}, {column}) is outside the matrix")


def _check_integers(matrix: Any, **arrays: Any) -> None:
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in "iu":
            raise _broken_error(matrix, f"{name} is not a 1-D array of integers")


def _check_range(matrix: Any, name: str, values: Any, stop: int, start: int = 0) -> None:
    """Raise ShapeError with the first value outside `start` to `stop` - 1, if there is one."""
    if not values.size or (values.min() >= start and values.max() < stop):
        return
    index = int(np.flatnonzero((values < start) | (values >= stop))[0])
    raise _broken_error(
        matrix, f"{name}[{index}] is {values[index]}, outside {start} to {stop - 1}"
    )


def _broken_error(matrix: Any, reason: str) -> ShapeError:
    return ShapeError(
        f"the {matrix.format} matrix of shape {matrix.shape} is invalid: {reason}; its indices "
        "were changed, or read from a damaged file: create it again from its source"
    )


def zeros(shape: tuple[int, int], dtype: DType) -> Any:
    """Return a csr matrix without entries."""
    return _scipy().csr_matrix(shape, dtype=dtype)


def to_dense(matrix: Any) -> Any:
    """Return the matrix as a new dense array, in pooled memory."""
    out = buffers.empty(matrix.shape, matrix.dtype)
    return matrix.tocsr().toarray(out=out)


def to_csr(array: Any) -> Any:
    """Return a csr matrix of the nonzero elements of a dense array."""
    return _scipy().csr_matrix(array)


def cast_csr(matrix: Any, dtype: DType | None, casting: str) -> Any:
    """Return the matrix in csr format and another dtype, or itself if nothing changes."""
    csr = matrix.tocsr()
    data = convert(csr.data, "b->b", dtype=dtype, casting=casting)
    if data is csr.data:
        return csr
    # Copies, since SciPy sorts and merges the entries of a matrix in place.
    return type(csr)((data, csr.indices.copy(), csr.indptr.copy()), shape=csr.shape)


def hstack(matrices: list[Any], dtype: DType) -> Any:
    """Stack sparse matrices horizontally, in csr format."""
    return _scipy().hstack(matrices, format="csr", dtype=dtype)


def one_hot_csr(columns: Any, width: int, dtype: DType) -> Any:
    """Return a csr matrix with a one in the given columns of each row; duplicates are merged."""
    n, dim = columns.shape
    places = np.arange(0, n * dim + 1, dim), columns.ravel()
    result = _scipy().csr_matrix((np.ones(n * dim, dtype), places[1], places[0]), shape=(n, width))
    result.sum_duplicates()
    result.data[...] = 1
    return result


@fork.run_once
def _scipy() -> Any:
    with explain_missing("sparse vectors need SciPy", "sparse"):
        return import_module("scipy.sparse")

"""Columns and tables of pandas and Polars, and columns of Arrow.

An Arrow column may hold numbers, lists of a fixed size or tensors of a fixed shape. The
`permutation` of a tensor type is applied here: pyarrow's own conversions to NumPy and DLPack return
wrong elements for some permutations (26.0: [2, 0, 1]) and fail for others.
"""

from __future__ import annotations

import sys
from operator import attrgetter
from typing import Any

import numpy as np

from ..errors import ArgumentError, DtypeError
from ..memory import Array
from .containers import Container, column_values


class Pandas(Container):
    """The adapter of Series, Index, arrays and DataFrame.

    A column of arrays of one shape is a batch.
    """

    def read(self, x: Any, arg_name: str) -> Any:
        """Return the values; a table's in the dtype that holds all of its columns."""
        pandas = sys.modules["pandas"]
        if isinstance(x, pandas.DataFrame):
            return self._table(x, arg_name)
        # In a float column NaN is a value; other columns would become floats or objects.
        if _is_extension(x.dtype) and x.isna().any():
            where = f" in column {x.name!r}" if getattr(x, "name", None) is not None else ""
            raise ArgumentError(
                f"{arg_name} has missing values{where}, which no array holds; fill them, as with "
                f"{arg_name}.fillna(0)"
            )
        if isinstance(x.dtype, pandas.ArrowDtype):
            return self._arrow(getattr(x, "array", x).__arrow_array__(), arg_name)
        return column_values(x.to_numpy(), arg_name)

    def _table(self, x: Any, arg_name: str) -> Any:
        """Return the values of a table; raise DtypeError if no dtype holds all columns."""
        if object in {*x.dtypes}:
            raise _no_common_dtype(x, arg_name)
        if any(map(_is_extension, x.dtypes)):  # pandas would convert them to objects
            columns = [self.read(x.iloc[:, i], arg_name) for i in range(x.shape[1])]
            kinds = {column.dtype.kind for column in columns}
            is_common = kinds <= {*"iuf"} or len(kinds) == 1
            values = np.stack(columns, axis=1) if is_common else np.array(None)
        else:
            values = x.to_numpy()
            kinds = {dtype.kind for dtype in x.dtypes}
        # The common dtype of int64 and uint64 is float64.
        is_rounded = values.dtype.kind == "f" and kinds and kinds <= {*"iu"}
        if values.dtype == object or is_rounded:
            raise _no_common_dtype(x, arg_name)
        return values

    def _arrow(self, values: Any, arg_name: str) -> Any:
        adapter = adapter_for(values)
        return values if adapter is None else adapter.to_numpy(values, arg_name)


def _is_extension(dtype: Any) -> bool:
    """Return True for dtypes of pandas, such as Int64, which may have missing values."""
    return isinstance(dtype, sys.modules["pandas"].api.extensions.ExtensionDtype)


def _no_common_dtype(x: Any, arg_name: str) -> DtypeError:
    kinds = ", ".join(dict.fromkeys(map(str, x.dtypes)))
    return DtypeError(
        f"{arg_name} has columns of {kinds}, which no dtype of numbers holds without loss; "
        f"select those that belong together, as with {arg_name}[[...]]"
    )


class Polars(Container):
    """The adapter of Series and DataFrame; a column of arrays or equal-length lists is a batch."""

    def read(self, x: Any, arg_name: str) -> Any:
        """Return the values; a table's in the dtype that holds all of its columns."""
        polars = sys.modules["polars"]
        columns = x.get_columns() if isinstance(x, polars.DataFrame) else [x]
        for series in columns:
            if _missing(series):
                raise ArgumentError(
                    f"{arg_name} has missing values in column {series.name!r}, which no array "
                    f"holds; fill them, as with {arg_name}.fill_null(0)"
                )
        return column_values(x.to_numpy(), arg_name)


def _missing(values: Any) -> bool:
    """Return True if a column, or one of its arrays or lists, has missing values."""
    polars = sys.modules["polars"]
    while isinstance(values.dtype, polars.Array | polars.List) and not values.null_count():
        values = values.explode()
    return bool(values.null_count())


class PyArrow(Container):
    """The adapter of Arrow arrays and of columns of several chunks, which are concatenated."""

    def read(self, x: Any, arg_name: str) -> Any:
        """Return the values, which share the memory of x if it is contiguous."""
        pyarrow = sys.modules["pyarrow"]
        if isinstance(x, pyarrow.ChunkedArray):
            x = x.chunk(0) if x.num_chunks == 1 else x.combine_chunks()
        if isinstance(x, pyarrow.FixedShapeTensorArray):
            shape = x.type.shape
            order = x.type.permutation
            values = _values(x.storage, arg_name).reshape(len(x), *shape)
            # The i-th axis of the tensor is the permutation[i]-th in memory.
            return values if order is None else values.transpose(0, *(axis + 1 for axis in order))
        return _values(x, arg_name)


def _values(x: Any, arg_name: str) -> Array:
    """Return the values of an array, with one axis for each level of fixed-size lists."""
    pyarrow = sys.modules["pyarrow"]
    if x.null_count:
        raise ArgumentError(
            f"{arg_name} has {x.null_count} missing values, which no array holds; fill or drop "
            f"them, as with pyarrow.compute.fill_null({arg_name}, 0)"
        )
    if pyarrow.types.is_fixed_size_list(x.type):
        inner = _values(x.flatten(), arg_name)
        return inner.reshape(len(x), x.type.list_size, *inner.shape[1:])
    return column_values(x.to_numpy(zero_copy_only=False), arg_name)


_ARROW = PyArrow()
# The adapter of each dataframe package and the names of its classes.
_DATAFRAMES: dict[str, tuple[Container, tuple[str, ...]]] = {
    "pandas": (Pandas(), ("Series", "Index", "DataFrame", "api.extensions.ExtensionArray")),
    "polars": (Polars(), ("Series", "DataFrame")),
}


def adapter_for(x: Any) -> Container | None:
    """Return the adapter of an Arrow column, or None for other objects, tables included."""
    pyarrow = sys.modules.get("pyarrow")
    is_column = pyarrow is not None and isinstance(x, pyarrow.Array | pyarrow.ChunkedArray)
    return _ARROW if is_column else None


def container_for(x: Any) -> Container | None:
    """Return the adapter of a pandas or Polars column or table, or None for other objects."""
    for package, (adapter, names) in _DATAFRAMES.items():
        module = sys.modules.get(package)
        if module is not None and isinstance(x, tuple(attrgetter(name)(module) for name in names)):
            return adapter
    return None

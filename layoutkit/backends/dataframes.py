"""Columns and tables of pandas and Polars, and columns of Arrow.

An Arrow column may hold numbers, lists of a fixed size or tensors of a fixed shape. The
`permutation` of a tensor type is applied here: pyarrow's own conversions to NumPy and DLPack return
wrong elements for some permutations (26.0: [2, 0, 1]) and fail for others.
"""

from __future__ import annotations

import sys
from typing import Any

from ..errors import ArgumentError, DtypeError
from ..memory import Array
from .containers import Container, column_values


class Pandas(Container):
    """The adapter of Series, Index and DataFrame; a column of arrays of one shape is a batch."""

    def read(self, x: Any, arg_name: str) -> Any:
        """Return the values; those of a table in the dtype that holds all of its columns."""
        pandas = sys.modules["pandas"]
        if isinstance(x, pandas.DataFrame):
            return _table(x, arg_name)
        # In a float column NaN is a value; other columns would become floats or objects.
        if isinstance(x.dtype, pandas.api.extensions.ExtensionDtype) and x.hasnans:
            raise ArgumentError(
                f"{arg_name} has missing values; fill them, as with {arg_name}.fillna(0)"
            )
        if isinstance(x.dtype, pandas.ArrowDtype):
            return self._arrow(x.array.__arrow_array__(), arg_name)
        return column_values(x.to_numpy(), arg_name)

    def _arrow(self, values: Any, arg_name: str) -> Any:
        """Return the values of a column backed by Arrow."""
        adapter = adapter_for(values)
        return values if adapter is None else adapter.to_numpy(values, arg_name)


def _table(x: Any, arg_name: str) -> Any:
    values = x.to_numpy()
    if values.dtype == object:
        kinds = ", ".join(dict.fromkeys(map(str, x.dtypes)))
        raise DtypeError(
            f"{arg_name} has columns of {kinds}, which no dtype of numbers holds without loss; "
            f"select those that belong together, as with {arg_name}[[...]]"
        )
    return values


class Polars(Container):
    """The adapter of Series and DataFrame; a column of arrays or equal-length lists is a batch."""

    def read(self, x: Any, arg_name: str) -> Any:
        """Return the values; those of a table in the dtype that holds all of its columns."""
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
            # The i-th axis of the tensor is the permutation[i]-th that lies in memory.
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
    "pandas": (Pandas(), ("Series", "Index", "DataFrame")),
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
        if module is not None and isinstance(x, tuple(getattr(module, name) for name in names)):
            return adapter
    return None

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
from .containers import Container, column


class Pandas(Container):
    """Series, Index and DataFrame. A column of arrays of one shape is a batch of them."""

    def read(self, x: Any, what: str) -> Any:
        """The values; those of a table side by side, in the dtype that holds all its columns."""
        pandas = sys.modules["pandas"]
        if isinstance(x, pandas.DataFrame):
            return _table(x, what)
        # Of a float column NaN is a number; others would turn into floats or objects for it.
        if isinstance(x.dtype, pandas.api.extensions.ExtensionDtype) and x.hasnans:
            raise ArgumentError(f"{what} has missing values; fill them, as with {what}.fillna(0)")
        if isinstance(x.dtype, pandas.ArrowDtype):
            return self._arrow(x.array.__arrow_array__(), what)
        return column(x.to_numpy(), what)

    def _arrow(self, values: Any, what: str) -> Any:
        """The values of a column that Arrow holds."""
        adapter = adapter_for(values)
        return values if adapter is None else adapter.arrive(values, what)


def _table(x: Any, what: str) -> Any:
    found = x.to_numpy()
    if found.dtype == object:
        kinds = ", ".join(dict.fromkeys(map(str, x.dtypes)))
        raise DtypeError(
            f"{what} has columns of {kinds}, which no dtype of numbers holds without loss; select "
            f"those that belong together, as with {what}[[...]]"
        )
    return found


class Polars(Container):
    """Series and DataFrame. A column of arrays, or of lists of one length, is a batch of them."""

    def read(self, x: Any, what: str) -> Any:
        """The values; those of a table side by side, in the dtype that holds all its columns."""
        polars = sys.modules["polars"]
        columns = x.get_columns() if isinstance(x, polars.DataFrame) else [x]
        for each in columns:
            if _missing(each):
                raise ArgumentError(
                    f"{what} has missing values in column {each.name!r}, which no array holds; "
                    f"fill them, as with {what}.fill_null(0)"
                )
        return column(x.to_numpy(), what)


def _missing(values: Any) -> bool:
    """Whether there are missing values in a column, or in one of its arrays or lists."""
    polars = sys.modules["polars"]
    while isinstance(values.dtype, polars.Array | polars.List) and not values.null_count():
        values = values.explode()
    return bool(values.null_count())


class PyArrow(Container):
    """Arrays, and columns of several chunks, which are put together."""

    def read(self, x: Any, what: str) -> Any:
        """The values, which share the memory of x where they lie in one piece."""
        pyarrow = sys.modules["pyarrow"]
        if isinstance(x, pyarrow.ChunkedArray):
            x = x.chunk(0) if x.num_chunks == 1 else x.combine_chunks()
        if isinstance(x, pyarrow.FixedShapeTensorArray):
            shape, order = x.type.shape, x.type.permutation
            values = _values(x.storage, what).reshape(len(x), *shape)
            # The i-th axis of the tensor is the permutation[i]-th that lies in memory.
            return values if order is None else values.transpose(0, *(at + 1 for at in order))
        return _values(x, what)


def _values(x: Any, what: str) -> Array:
    """The values of an array, an axis for each level of lists of fixed size."""
    pyarrow = sys.modules["pyarrow"]
    if x.null_count:
        raise ArgumentError(
            f"{what} has {x.null_count} missing values, which no array holds; fill or drop them, "
            f"as with pyarrow.compute.fill_null({what}, 0)"
        )
    if pyarrow.types.is_fixed_size_list(x.type):
        inner = _values(x.flatten(), what)
        return inner.reshape(len(x), x.type.list_size, *inner.shape[1:])
    return column(x.to_numpy(zero_copy_only=False), what)


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

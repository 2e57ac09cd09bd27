"""Columns and tables of pandas."""

from __future__ import annotations

import sys
from typing import Any

from ..errors import ArgumentError, DtypeError
from .containers import Container, column

__all__ = ["container_for"]


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
        from .pyarrow import adapter_for

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


_ADAPTER = Pandas()


def container_for(x: Any) -> Container | None:
    """The adapter of a column or table; None for what is none."""
    pandas = sys.modules["pandas"]
    return _ADAPTER if isinstance(x, pandas.Series | pandas.Index | pandas.DataFrame) else None

"""Columns and tables of Polars."""

from __future__ import annotations

import sys
from typing import Any

from ..errors import ArgumentError
from .containers import Container, column

__all__ = ["container_for"]


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


_ADAPTER = Polars()


def container_for(x: Any) -> Container | None:
    """The adapter of a column or table; None for what is none."""
    polars = sys.modules["polars"]
    return _ADAPTER if isinstance(x, polars.Series | polars.DataFrame) else None

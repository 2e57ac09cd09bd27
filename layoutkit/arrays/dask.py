"""Arrays of dask, which are computed elsewhere and later."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError
from .containers import Container

__all__ = ["container_for"]


class Dask(Container):
    """Refused: to read one is to compute all of it, which should not happen unasked."""

    def read(self, x: Any, what: str) -> Any:
        """Raise: it holds no data."""
        raise ArgumentError(
            f"{what} is a dask array, whose data is computed elsewhere and later; pass "
            f"{what}.compute(), or convert its blocks with dask.array.blockwise"
        )


_ADAPTER = Dask()


def container_for(x: Any) -> Container | None:
    """The adapter of an array; None for what is none."""
    return _ADAPTER if hasattr(type(x), "__dask_graph__") and hasattr(x, "chunks") else None

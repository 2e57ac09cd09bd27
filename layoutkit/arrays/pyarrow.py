"""Columns of Arrow: numbers, lists of fixed size, and tensors of a fixed shape.

What a tensor's `permutation` says is read here, as pyarrow's own ways to NumPy and DLPack give
wrong elements for some of them (26.0: [2, 0, 1]) and none for others.
"""

from __future__ import annotations

import sys
from typing import Any

from ..errors import ArgumentError
from ..memory import Array
from .containers import Container, column

__all__ = ["adapter_for"]


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


_ADAPTER = PyArrow()


def adapter_for(x: Any) -> Container | None:
    """The adapter of a column; None for tables and all else."""
    pyarrow = sys.modules["pyarrow"]
    return _ADAPTER if isinstance(x, pyarrow.Array | pyarrow.ChunkedArray) else None

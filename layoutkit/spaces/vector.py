"""`VectorSpace`: a matrix, one row a sample; dense or of scipy.sparse."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ..arrays.symbolic import NUMPY
from ..errors import ArgumentError, SpaceError
from ..spec import DType
from . import sparse
from .arrayspace import ArraySpace
from .checks import Axis, Leaf, check_dtype, describe, wrong_shape

__all__ = ["VectorSpace"]


@dataclass(frozen=True, repr=False)
class VectorSpace(ArraySpace):
    """Vectors of `dim` numbers: a batch is a matrix (batch, dim).

    >>> space = VectorSpace(3)
    >>> space
    VectorSpace(dim=3, dtype="float32")
    >>> space.validate(np.zeros((2, 4), np.float32))
    Traceback (most recent call last):
    layoutkit.errors.ShapeError: VectorSpace(dim=3, dtype="float32") takes (batch, dim=3), ...

    It becomes and comes from a Conv2DSpace of as many numbers, always in the order (rows,
    columns, channels), and from and to a CompositeSpace, whose components lie side by side.

    Parameters
    ----------
    dim : int
    sparse : bool
        The batch is a matrix of scipy.sparse. What `format_as` makes is in csr format.
    dtype : dtype or None
        None: any.
    """

    dim: int
    sparse: bool = False
    dtype: Any = "float32"

    family = "vector"

    def __post_init__(self) -> None:
        if not isinstance(self.sparse, bool | np.bool_):
            raise ArgumentError(f"sparse={self.sparse!r}; it is True or False")
        object.__setattr__(self, "sparse", bool(self.sparse))
        self._set_sizes("dim")
        self._set_dtype()
        if self.sparse and self.dtype is not None:
            sparse.check_sparse_dtype(self.dtype)

    def __repr__(self) -> str:
        return self._text("dim", *["sparse"] * self.sparse)

    @cached_property
    def _axes(self) -> tuple[Axis, ...]:
        return Axis("batch", None), Axis("dim", self.dim)

    def _hint(self, shape: tuple[Any, ...]) -> str:
        if len(shape) == 1 and self.dim == 1:
            return "one number a sample is a matrix of one column: batch.reshape(-1, 1)"
        if len(shape) == 1 and shape[0] == self.dim:
            return "a single sample is a matrix of one row: batch.reshape(1, -1)"
        if len(shape) > 2 and prod(shape[1:]) == self.dim:
            return "images are a batch of a Conv2DSpace, whose format_as makes vectors of them"
        return ""

    def arrays_in(self, batch: Any) -> list[Leaf]:
        """The matrix, dense or sparse as the space is."""
        if not self.sparse:
            return super().arrays_in(batch)
        if not sparse.is_sparse(batch):
            raise SpaceError(
                f"{self!r} takes a matrix of scipy.sparse, not {describe(batch)}; pass "
                "scipy.sparse.csr_matrix(batch), or use VectorSpace(dim) for dense arrays"
            )
        if batch.shape[1:] != (self.dim,):
            raise wrong_shape(self, self._axes, batch.shape, self._hint(batch.shape))
        check_dtype(self, batch.dtype)
        sparse.check_entries(batch)
        return [Leaf((), NUMPY, batch.shape[0])]

    def _origin_batch(self, n: int, dtype: Any) -> Any:
        zeros = super()._origin_batch(0 if self.sparse else n, dtype)
        return sparse.zeros((n, self.dim), zeros.dtype) if self.sparse else zeros

    def symbolic_batch(self, n: int, dtype: Any, library: Any) -> Any:
        """A dense matrix; SpaceError where the space is sparse."""
        if self.sparse:
            raise SpaceError(
                f"{self!r} has no symbolic batches: a batch of {library.name} is dense; use "
                f"VectorSpace({self.dim})"
            )
        return super().symbolic_batch(n, dtype, library)

    def _batch_dtype(self, dtype: Any) -> DType:
        found = super()._batch_dtype(dtype)
        if self.sparse:
            sparse.check_sparse_dtype(found)
        return found

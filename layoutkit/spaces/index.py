"""`IndexSpace`: labels, as integers from 0."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays.symbolic import NUMPY
from ..errors import DtypeError, ShapeError
from ..spec import kind_of
from .arrayspace import ArraySpace
from .checks import Axis, Leaf

__all__ = ["IndexSpace", "LabelSpace"]


class LabelSpace(ArraySpace):
    """What labels of samples and labels of sequences have in common."""

    max_labels: int
    dim: int
    _kinds = "bui"
    _default = "int64"

    def __post_init__(self) -> None:
        self._set_sizes("max_labels", "dim")
        self._set_dtype()
        if self.dtype is not None and kind_of(self.dtype) not in "ui":
            raise DtypeError(
                f"dtype={self.dtype} of {type(self).__name__}; labels are integers, such as int64"
            )

    def __repr__(self) -> str:
        return self._text("max_labels", "dim")

    def _hint(self, shape: tuple[Any, ...]) -> str:
        if len(shape) == 1 and self.dim == 1:
            return "one label a sample is a matrix of one column: batch.reshape(-1, 1)"
        return ""

    def arrays_in(self, batch: Any) -> list[Leaf]:
        """The labels, their range checked where they are at hand."""
        leaves = super().arrays_in(batch)
        if leaves[0].library is NUMPY:
            self._check_labels(np.asarray(batch))
        return leaves

    def _check_labels(self, labels: Any) -> None:
        """ShapeError with the first label that is none of 0 to max_labels - 1, and its place."""
        if not labels.size or (labels.min() >= 0 and labels.max() < self.max_labels):
            return
        row, column = np.argwhere((labels < 0) | (labels >= self.max_labels))[0].tolist()
        raise ShapeError(
            f"{self!r} takes labels 0 to {self.max_labels - 1}, but the batch has "
            f"{labels[row, column]} at [{row}, {column}] ({self._axes[0].meaning} {row}, label "
            f"{column}); correct it, or use a larger max_labels"
        )


@dataclass(frozen=True, repr=False)
class IndexSpace(LabelSpace):
    """`dim` labels a sample, each an integer from 0 to `max_labels` - 1.

    >>> labels = IndexSpace(max_labels=4, dim=2)
    >>> from layoutkit import VectorSpace
    >>> labels.format_as(np.array([[0, 2]]), VectorSpace(4))           # which are there
    array([[1., 0., 1., 0.]], dtype=float32)
    >>> labels.format_as(np.array([[0, 2]]), VectorSpace(8))           # one block a label
    array([[1., 0., 0., 0., 0., 0., 1., 0.]], dtype=float32)

    It becomes a VectorSpace of `max_labels` or `dim * max_labels`; nothing becomes labels.

    Parameters
    ----------
    max_labels : int
        How many labels there are.
    dim : int
        How many of them a sample has: a batch is a matrix (batch, dim) of integers.
    dtype : dtype or None
        An integer dtype; None: any.
    """

    max_labels: int
    dim: int
    dtype: Any = "int64"

    family = "index"

    @cached_property
    def _axes(self) -> tuple[Axis, ...]:
        return Axis("batch", None), Axis("dim", self.dim)

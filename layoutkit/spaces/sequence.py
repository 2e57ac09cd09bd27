"""`VectorSequenceSpace` and `IndexSequenceSpace`: one sequence, as long as it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..errors import ShapeError, SpaceError
from .arrayspace import ArraySpace
from .checks import Axis, Leaf
from .index import LabelSpace

__all__ = ["IndexSequenceSpace", "VectorSequenceSpace"]


class SequenceSpace(ArraySpace):
    """One array (time, dim) of any length is a batch of one."""

    dim: int

    def get_total_dimension(self) -> int:
        raise self._unknown("total dimension")

    def get_origin(self) -> Any:
        raise self._unknown("origin")

    def make_symbolic_batch(
        self, batch_size: int = 1, *, dtype: Any = None, framework: str = "jax"
    ) -> Any:
        """As `Space.make_symbolic_batch`; a batch is one sequence, here of one step."""
        if batch_size != 1:
            raise ShapeError(f"batch_size={batch_size!r}, but {self!r} holds one sequence; use 1")
        return super().make_symbolic_batch(1, dtype=dtype, framework=framework)

    @cached_property
    def _axes(self) -> tuple[Axis, ...]:
        return Axis("time", None), Axis("dim", self.dim)

    def arrays_in(self, batch: Any) -> list[Leaf]:
        """The sequence, which is a batch of one."""
        return [leaf._replace(size=1, is_sequence=True) for leaf in super().arrays_in(batch)]

    def _origin_batch(self, n: int, dtype: Any) -> Any:
        raise self._unknown("origin")

    def symbolic_batch(self, n: int, dtype: Any, library: Any) -> Any:
        """A sequence of one step."""
        return super().symbolic_batch(1, dtype, library)

    def _unknown(self, what: str) -> SpaceError:
        return SpaceError(
            f"{self!r} has no {what}, since its sequences may have any length; "
            "use a VectorSpace or an IndexSpace where the length is fixed"
        )


@dataclass(frozen=True, repr=False)
class VectorSequenceSpace(SequenceSpace):
    """One sequence of vectors: an array (time, dim) of any length, a batch of size 1.

    >>> VectorSequenceSpace(3)
    VectorSequenceSpace(dim=3, dtype="float32")
    """

    dim: int
    dtype: Any = "float32"

    family = "vector sequence"

    def __post_init__(self) -> None:
        self._set_sizes("dim")
        self._set_dtype()

    def __repr__(self) -> str:
        return self._text("dim")


@dataclass(frozen=True, repr=False)
class IndexSequenceSpace(SequenceSpace, LabelSpace):
    """One sequence of labels: an array (time, dim) of integers from 0 to `max_labels` - 1.

    Becomes a VectorSequenceSpace as an IndexSpace becomes a VectorSpace.

    >>> IndexSequenceSpace(10, 1)
    IndexSequenceSpace(max_labels=10, dim=1, dtype="int64")
    """

    max_labels: int
    dim: int
    dtype: Any = "int64"

    family = "index sequence"

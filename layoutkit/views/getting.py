"""`Getting`: one way in which a base can be got, and what takes it there and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..converter import Converter
from ..devices import CPU
from ..formulas import Formula
from ..notation import identity
from ..spec import ArraySpec, DType, as_dtype, kind_of

if TYPE_CHECKING:
    from ..planning.plan import Plan

__all__ = ["PLAIN", "Getting", "How", "Mover"]


class How(NamedTuple):
    """What is asked of a getting beside layout, dtype and device."""

    formula: Formula | None = None
    memory: str | None = None  # the order of the axes in memory, where it is another


PLAIN = How()


class Mover(Protocol):
    """What takes a base to a getting and gradients back: a Converter, or what calls like one."""

    def __call__(self, x: Any, out: Any = None) -> Any:
        """The base in the getting's layout and dtype."""

    def backward(self, grad: Any, *, like: Any = None, out: Any = None) -> Any:
        """A gradient in the base's layout."""

    def inverse(self) -> Converter:
        """What takes data in the getting's layout back to the base's."""

    def plan(self, x: Any) -> Plan:
        """How a base would be moved."""


@dataclass(frozen=True, eq=False, slots=True)
class Getting:
    """A layout, dtype and device that a base can be got in, and what takes it there.

    There is one of a kind in its `Gettings`, so identity is equality.
    """

    layout: str
    dtype: DType
    mover: Mover
    device: str = CPU
    how: How = PLAIN

    def takes(self, dtype: DType) -> bool:
        """Whether a floating gradient of this dtype can belong to it."""
        return dtype == as_dtype(self.dtype) or kind_of(self.dtype) in "bui"

    @property
    def formula(self) -> Formula | None:
        """The formula that it was computed with."""
        return self.how.formula

    def has(self, formula: Formula) -> bool:
        """Whether it was got with a formula; one that changes nothing is none."""
        return self.formula == formula or (self.formula is None and formula == Formula())

    @property
    def is_clipped(self) -> bool:
        """Whether gradients depend on the base."""
        return self.formula is not None and self.formula.clip is not None

    def back(self, grad: Any, like: ArraySpec, base: Any) -> Any:
        """A gradient in the base's layout and, unless that is an integer's, in `like`'s dtype."""
        if not self.is_clipped:
            return self.mover.backward(grad, like=like)
        found = self.mover.backward(grad, like=base)
        if as_dtype(found.dtype) == like.dtype:
            return found
        return Converter(identity(len(like.shape)), dtype=like.dtype)(found)

    def __str__(self) -> str:
        where = "" if self.device == CPU else f" on {self.device}"
        shown: dict[str, Any] = {} if self.formula is None else self.formula.keywords()
        shown |= {} if self.how.memory is None else {"memory": self.how.memory}
        words = "".join(f" {name}={value}" for name, value in shown.items())
        return f"{self.layout} {self.dtype}{where}{words}"

"""What happens to items on their way, in words that the launchers of every device share."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Coefficients", "Epilogue", "Operand"]


@dataclass(frozen=True)
class Coefficients:
    """Factors and terms of the formula, one pair or one for each channel."""

    factor: tuple[float, ...]
    term: tuple[float, ...]


@dataclass(frozen=True)
class Epilogue:
    """How items change on their way: the kernels' names of dtypes, and the formula if any.

    Names have two letters: b1 (bool), i1 to i8, u1 to u8, f2, bf (bfloat16), f4, f8.
    """

    source: str
    target: str
    saturate: bool = False
    coefficients: Coefficients | None = None
    add: bool = False  # to what stands in the output

    @property
    def computed(self) -> str:
        """The dtype that the formula is computed in."""
        return "f8" if "f8" in (self.source, self.target) else "f4"


@dataclass(frozen=True)
class Operand:
    """What one side of a sum holds: bytes of an item, and the kernels' name of its dtype.

    A complex item has twice the bytes of its name: it is a pair.
    """

    item: int
    name: str

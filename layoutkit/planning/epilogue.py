"""What a kernel does to items as it stores them, and the dtypes that kernels know.

Words that the planner and the launchers of every device share. Knows no kernel and no machine: what
a CPU lacks (float16 in hardware) is asked of the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ..spec import DType

__all__ = [
    "DTYPES",
    "Coefficients",
    "Epilogue",
    "KernelDtype",
    "Operand",
    "computed_in",
    "is_known",
    "kernel_name",
]


class KernelDtype(NamedTuple):
    """A dtype that kernels know: their name of it, the library's, bytes, and kind (b, i, u, f)."""

    name: str
    library: str
    item: int
    kind: str


# The one table. What is computed with each: kernels/cpu/casts.py and kernels/cuda/numeric.cuh;
# the latter numbers those that are added, which are all but bool, in this order.
DTYPES = {
    row.name: row
    for row in (
        KernelDtype("b1", "bool", 1, "b"),
        KernelDtype("i1", "int8", 1, "i"),
        KernelDtype("i2", "int16", 2, "i"),
        KernelDtype("i4", "int32", 4, "i"),
        KernelDtype("i8", "int64", 8, "i"),
        KernelDtype("u1", "uint8", 1, "u"),
        KernelDtype("u2", "uint16", 2, "u"),
        KernelDtype("u4", "uint32", 4, "u"),
        KernelDtype("u8", "uint64", 8, "u"),
        KernelDtype("f2", "float16", 2, "f"),
        KernelDtype("bf", "bfloat16", 2, "f"),
        KernelDtype("f4", "float32", 4, "f"),
        KernelDtype("f8", "float64", 8, "f"),
    )
}
_BY_LIBRARY = {row.library: row for row in DTYPES.values()}


def is_known(dtype: DType, has_half: Callable[[], bool]) -> bool:
    """Whether kernels know a dtype; `has_half`: whether those of the device know float16."""
    if not dtype.isnative or dtype.name not in _BY_LIBRARY:
        return False
    return dtype.name != "float16" or has_half()


def kernel_name(dtype: DType) -> str:
    """What kernels call a dtype that they know."""
    return _BY_LIBRARY[dtype.name].name


def computation_dtype(source: str, target: str) -> str:
    """The dtype that a formula between two dtypes is computed in."""
    return "f8" if "f8" in (source, target) else "f4"


@dataclass(frozen=True)
class Coefficients:
    """Factors and terms of the formula, one pair or one for each channel."""

    factor: tuple[float, ...]
    term: tuple[float, ...]


@dataclass(frozen=True)
class Epilogue:
    """How items change on their way: the kernels' names of dtypes, and the formula if any."""

    source: str
    target: str
    saturate: bool = False
    coefficients: Coefficients | None = None
    add: bool = False  # to what stands in the output
    clip: tuple[float, float] | None = None  # before anything else

    @property
    def computed(self) -> str:
        """The dtype that the formula is computed in."""
        return computation_dtype(self.source, self.target)

    @property
    def clipped_in(self) -> str:
        """The dtype, by NumPy's name, that items have as they are clipped."""
        name = self.source if self.coefficients is None else self.computed
        return DTYPES[name].library


@dataclass(frozen=True)
class Operand:
    """What one side of a sum holds: bytes of an item, and the kernels' name of its dtype.

    A complex item has twice the bytes of its name: it is a pair.
    """

    item: int
    name: str

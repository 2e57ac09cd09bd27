"""The epilogue of a kernel (clip, scale, cast or add as items are stored), and the kernel dtypes.

Shared by the planner and by the launchers of every device. Independent of kernels and machines:
the caller says whether the device supports float16 in hardware.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ..spec import DType, is_wide


class KernelDtype(NamedTuple):
    """A dtype of the kernels: kernel name, NumPy name, item size and kind (b, i, u or f)."""

    name: str
    library: str
    item: int
    kind: str


# The only table of dtypes. Their arithmetic is in kernels/cpu/casts.py and in
# kernels/cuda/numeric.cuh, which numbers the dtypes that can be added (all but bool) in this order.
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


def is_supported_dtype(dtype: DType, has_half: Callable[[], bool]) -> bool:
    """Return True if kernels support a dtype. `has_half`: does the device support float16?"""
    name = kernel_dtype_name(dtype)
    return dtype.isnative and name != "" and (name != "f2" or has_half())


@lru_cache(maxsize=512)
def kernel_dtype_name(dtype: DType) -> str:
    """Return the kernels' name of a dtype, in either byte order; "" if they do not support it."""
    row = _BY_LIBRARY.get(dtype.name)
    return "" if row is None else row.name


def computation_dtype(source: str, target: str) -> str:
    """Return the dtype in which a formula between two dtypes is computed."""
    row = DTYPES[source]
    return "f8" if is_wide(row.kind, row.item) or target == "f8" else "f4"


@dataclass(frozen=True)
class Coefficients:
    """The factors and terms of the formula: one pair, or one pair per channel."""

    factor: tuple[float, ...]
    term: tuple[float, ...]


@dataclass(frozen=True)
class Epilogue:
    """The change of items between load and store: kernel names of both dtypes, and the formula."""

    source: str
    target: str
    saturate: bool = False
    coefficients: Coefficients | None = None
    add: bool = False  # add to the present values of the output
    clip: tuple[float, float] | None = None  # bounds of x, or of the results of the formula
    clips_results: bool = False

    @property
    def computed(self) -> str:
        """The dtype that the formula is computed in."""
        return computation_dtype(self.source, self.target)

    @property
    def clip_stage(self) -> int:
        """The step that is clipped: 0 for none, 1 for x, 2 for the results of the formula."""
        return 0 if self.clip is None else 1 + self.clips_results

    @property
    def clip_dtype(self) -> str:
        """The NumPy name of the dtype that items have when they are clipped."""
        name = self.source if self.coefficients is None else self.computed
        return DTYPES[name].library


@dataclass(frozen=True)
class Operand:
    """One operand of a sum: the item size in bytes, and the kernels' name of its dtype.

    A complex item is a pair: it has twice as many bytes as the dtype of that name.
    """

    item: int
    name: str

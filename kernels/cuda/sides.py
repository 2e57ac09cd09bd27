"""What all families of kernels are launched with: `CudaLaunch`, and what goes into one.

Pure: it needs no GPU and no CUDA library.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from ...planning.epilogue import Coefficients, Epilogue
from ...planning.loops import Loop
from .packing import MAX_COUNT

__all__ = [
    "THREADS",
    "WORD",
    "CudaLaunch",
    "Side",
    "coefficients_of",
    "count_of",
    "defines",
    "steps_of",
    "tiles_of",
    "varies",
]

WORD = 16  # bytes that a thread reads or writes at once
THREADS = 256


@dataclass(frozen=True)
class CudaLaunch:
    """A kernel, what it is compiled with and what it is called with.

    `family` names both the file and the `extern "C"` function in it. `defines` are macros to
    compile it with. `coefficients` is what the second pointer has to point to, on the device.
    """

    family: str
    defines: tuple[tuple[str, str], ...]
    params: bytes
    grid: int
    block: int = THREADS
    pointers: int = 3
    coefficients: bytes = b""

    def __post_init__(self) -> None:
        if self.grid >= MAX_COUNT:
            raise RuntimeError(f"{self.grid} blocks of threads; a launch has less than 2**31")


@dataclass(frozen=True)
class Side:
    """Bytes of an item and the address of the first one."""

    item: int
    address: int

    def width(self, steps: Iterable[int], most: int = WORD) -> int:
        """The largest power of two, at most `most`, on which everything begins."""
        return gcd(self.address, most, *steps)


def steps_of(nest: Iterable[Loop]) -> tuple[list[int], list[int]]:
    """The steps of loops in the source and in the output."""
    nest = list(nest)
    return [loop.src for loop in nest], [loop.dst for loop in nest]


def defines(
    source: Side, epilogue: Epilogue | None, along: bool, **others: int
) -> tuple[tuple[str, str], ...]:
    """The macros of a conversion. `along`: coefficients differ among neighbours of the output."""
    named: dict[str, object] = {"THREADS": THREADS, **others}
    if epilogue is None:
        named |= {"SOURCE": f"m{source.item}", "TARGET": f"m{source.item}"}
    else:
        named |= {"SOURCE": epilogue.source, "TARGET": epilogue.target}
        if epilogue.saturate:
            named["SATURATE"] = 1
        if epilogue.coefficients is not None:
            named |= {"COMPUTED": epilogue.computed, "COEFFICIENTS": 1 + along}
        if epilogue.clip is not None:
            named["BOUNDED"] = 1
    return tuple((name, str(value)) for name, value in sorted(named.items()))


def coefficients_of(epilogue: Epilogue | None) -> tuple[int, bytes]:
    """How many pairs there are, and bounds, then all factors, then all terms, for the kernel."""
    if epilogue is None or (epilogue.coefficients is None and epilogue.clip is None):
        return 0, b""
    found = epilogue.coefficients or Coefficients((), ())
    numbers = *(epilogue.clip or ()), *found.factor, *found.term
    with np.errstate(over="ignore"):
        return len(found.factor), np.array(numbers, epilogue.clipped_in).tobytes()


def varies(nest: Sequence[Loop], epilogue: Epilogue | None) -> bool:
    """Whether coefficients differ along one of these loops."""
    return coefficients_of(epilogue)[0] > 1 and any(loop.coef for loop in nest)


def count_of(nest: Sequence[Loop]) -> int:
    return prod(loop.count for loop in nest)


def tiles_of(axis: Sequence[Loop], tile: int) -> int:
    return -(-count_of(axis) // tile)

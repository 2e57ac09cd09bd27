"""From a chosen kernel to a `Launch`: which CUDA code, its parameter block, how many blocks.

What `kernels/cpu/launch.py` is for the CPU. Pure: it needs no GPU and no CUDA library.

Every kernel has the same two arguments, both passed by value:

    Params    the bytes `Launch.params`
    Pointers  64-bit words: the output, the coefficients (0 where there are none), and the sources:
              one for a conversion, `MAX_PARTS` for a sum (0 where there are fewer)
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MAX_PARTS", "Launch"]

MAX_PARTS = 16  # arrays that one launch adds


@dataclass(frozen=True)
class Launch:
    """A kernel, what it is compiled with and what it is called with.

    `family` names both the file and the `extern "C"` function in it. `defines` are macros to
    compile it with. `coefficients` is what the second pointer has to point to, on the device.
    """

    family: str
    defines: tuple[tuple[str, str], ...]
    params: bytes
    grid: int
    block: int
    pointers: int = 3
    coefficients: bytes = b""

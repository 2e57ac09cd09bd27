"""How wide the registers of this CPU are, as far as launchers choose by it. Imports no Numba."""

from __future__ import annotations

from .compiler import cpu_features

__all__ = ["lanes", "vector_bytes"]


def lanes() -> int:
    """128-bit lanes of the widest register."""
    features = cpu_features()
    return 4 if "avx512f" in features else 2 if "avx2" in features else 1


def vector_bytes(itemsize: int) -> int:
    """Width of the vectors that rearrange whole registers of small items."""
    features = cpu_features()
    if "avx512f" in features:
        needed = {1: "avx512vbmi", 2: "avx512bw"}.get(itemsize, "avx512f")
        return 64 if needed in features else 16
    return 32 if "avx2" in features and itemsize >= 4 else 16

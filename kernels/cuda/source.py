"""The text of a family of kernels, whole: what compilers are given, so that none needs a path."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

__all__ = ["FAMILIES", "source"]

FAMILIES = ("transpose", "interleave", "lines", "gather", "accumulate")

_INCLUDE = re.compile(r'^#include "(\w+\.cuh)"$', re.MULTILINE)


@cache
def source(family: str) -> str:
    """The CUDA C++ of a family, its own headers written in place of their includes."""
    return _INCLUDE.sub(lambda found: _read(found[1]), _read(f"{family}.cu"))


def _read(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")

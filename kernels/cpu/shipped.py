"""Kernels that came with the package: objects that the build made for whole classes of CPUs.

A wheel carries the kernels that most programs want (`usual.py`), compiled for each of LEVELS that
its machine may be of, so that a first conversion waits for no compiler. Each is a file in
`objects/` beside this module; an editable installation and a checkout have none, and compile.

- An object is for a level, and serves any CPU that has all the level's features. What is compiled
  for this very CPU is preferred to it where it is on disk.
- Its key holds the spec, the sources, the level, the system and FORMAT: objects of other sources
  are a miss. It holds no version of Numba or llvmlite, as an object asks nothing of either but to
  be linked: what the builder had need not be what the user has.
- Its checksum is looked at as that of the cache's files is (disk.py), as disks and downloads fail.
  Who owns the file is not: who can write it can write the modules beside it, which Python executes
  unasked. Installers make hard links and links, and let another user own a package.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from . import disk

__all__ = ["FOLDER", "LEVELS", "Level", "find", "key_of"]

FOLDER = Path(__file__).with_name("objects")
# Changes where objects have to be others though no source in this folder is: such as what the
# build does to code that it has compiled.
FORMAT = "1"

V3 = (
    "avx,avx2,bmi,bmi2,cmov,crc32,cx16,cx8,f16c,fma,fxsr,lzcnt,mmx,movbe,popcnt,sahf,"
    "sse,sse2,sse3,sse4.1,sse4.2,ssse3,xsave"
)
V4 = V3 + ",avx512f,avx512bw,avx512cd,avx512dq,avx512vl"


class Level(NamedTuple):
    """A class of CPUs: LLVM's name for the plainest of them, and what all of them can do."""

    name: str
    cpu: str
    features: str  # with commas
    machine: str
    besides: str = ""  # a lower level that is asked next: this one has what differs from it

    def serves(self, features: frozenset[str]) -> bool:
        """Whether a CPU of these features can run what is compiled for this level."""
        return features.issuperset(self.features.split(","))

    @property
    def flags(self) -> str:
        """The features as LLVM reads them."""
        return ",".join("+" + feature for feature in self.features.split(","))


# The highest first. The instruction that sorts bytes of whole registers (registers.py) is in no
# level of x86-64; all AVX-512 CPUs but the first generation have it.
LEVELS = (
    Level("x86-64-v4-vbmi", "x86-64-v4", V4 + ",avx512vbmi", "x86_64", besides="x86-64-v4"),
    Level("x86-64-v4", "x86-64-v4", V4, "x86_64"),
    Level("x86-64-v3", "x86-64-v3", V3, "x86_64"),
    Level("armv8-a", "generic", "fp-armv8,neon", "aarch64"),
)


def find(family: str, spec: str, sources: str, features: frozenset[str]) -> bytes | None:
    """The object of a kernel for the highest level that this CPU is of, None where none came along.

    `spec`: all literals as text; `sources`: the digest of what the kernel is made of.
    """
    for level in _levels(features):
        key = key_of(level, spec, sources)
        try:
            data = (FOLDER / disk.file_name(family, key)).read_bytes()
        except OSError:
            continue
        return disk.unpacked(data, key)
    return None


def key_of(level: Level, spec: str, sources: str) -> str:
    """All that shaped an object, as text."""
    system = f"{sys.platform} {sys.maxsize}"
    return "\n".join(["shipped", FORMAT, system, sources, level.cpu, level.features, spec])


def _levels(features: frozenset[str]) -> Iterator[Level]:
    """The highest level of a CPU, and the one beside which it has few kernels."""
    found = next((level for level in LEVELS if level.serves(features)), None)
    while found is not None:
        yield found
        found = next((level for level in LEVELS if level.name == found.besides), None)

"""What the header of a `.npy` file says of its array, read within bounds.

A header is a Python literal. NumPy gives it to Python's own parser, which deep or long text from a
damaged or hostile file keeps busy, or breaks in many ways. Here its length, its words and its
nesting are looked at first, so that only what `numpy.save` may write is parsed.
"""

from __future__ import annotations

import ast
import io
import re
from math import prod
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy

__all__ = ["Header", "header_length", "read_header"]

_LONGEST = 10_000  # bytes, as NumPy has it
_DEEPEST = 32  # brackets inside of each other; records within records have two a level
_LENGTHS = {(1, 0): 2, (2, 0): 4, (3, 0): 4}  # of the number that says how long the header is
_LARGEST = 1 << 63  # bytes that NumPy counts, whether they are there or not

# The words of a header. Python 2 wrote an L behind long numbers.
_WORD = re.compile(
    r"""\s*(?: (?P<text> [ub]?(?: '(?:[^'\\\n]|\\['"\\nrtxuU])*' | "(?:[^"\\\n]|\\['"\\nrtxuU])*" ))
    | (?P<number> -?\d{1,20} )L? | (?P<word> True|False|None ) | (?P<mark> [][(){},:] ) )\s*""",
    re.VERBOSE,
)


class Header(NamedTuple):
    """What a file says of its array."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """The bytes of the array, as a number of any size."""
        return prod(self.shape) * self.dtype.itemsize


def read_header(file: BinaryIO) -> Header:
    """The header at the beginning of a file, which is then read up to its elements.

    Raises ValueError where there is none, and whatever NumPy has to say of its dtype.
    """
    version = npy.read_magic(file)
    if version not in _LENGTHS:
        raise ValueError(f"version {version} of the format is not known here")
    length = int.from_bytes(_exactly(file, _LENGTHS[version]), "little")
    if length > _LONGEST:
        raise ValueError(f"its header has {length} bytes, more than {_LONGEST}")
    text = _exactly(file, length).decode("utf8" if version == (3, 0) else "latin1")
    return _checked(ast.literal_eval(_plain(text)))


def header_length(beginning: bytes) -> int:
    """How many bytes of a file are its header, by the first 12; ValueError as `read_header`."""
    version = npy.read_magic(io.BytesIO(beginning))
    if version not in _LENGTHS:
        raise ValueError(f"version {version} of the format is not known here")
    here = len(npy.MAGIC_PREFIX) + 2
    stop = here + _LENGTHS[version]
    return stop + int.from_bytes(beginning[here:stop], "little")


def _exactly(file: BinaryIO, count: int) -> bytes:
    found = file.read(count)
    if len(found) < count:
        raise ValueError("it ends within its header")
    return found


def _plain(text: str) -> str:
    """The header word by word, as Python reads it; ValueError at what no header has."""
    words, at, depth = [], 0, 0
    while at < len(text):
        found = _WORD.match(text, at)
        if found is None:
            raise ValueError(f"its header cannot be read from {text[at : at + 20]!r} on")
        word, at = found[found.lastgroup or 0], found.end()
        depth += (word in "([{") - (word in ")]}")
        if depth > _DEEPEST:
            raise ValueError(f"its header has more than {_DEEPEST} brackets inside of each other")
        words.append(word)
    return " ".join(words)


def _checked(said: Any) -> Header:
    """The Header of a literal; ValueError where it does not describe an array."""
    if not isinstance(said, dict) or said.keys() != {"descr", "fortran_order", "shape"}:
        raise ValueError("its header does not say descr, fortran_order and shape")
    shape, order = said["shape"], said["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"its shape is {shape}")
    if not isinstance(order, bool):
        raise ValueError(f"its fortran_order is {order}")
    dtype = npy.descr_to_dtype(said["descr"])
    if dtype.hasobject:
        raise ValueError("its elements are pickled objects")
    # An array without elements has a shape as well, which NumPy has to be able to count.
    if len(shape) > 64 or prod(map(_at_least_one, (*shape, dtype.itemsize))) >= _LARGEST:
        raise ValueError(f"its shape is {shape}, which no memory holds")
    if dtype.subdtype is not None:
        raise ValueError(f"its elements are arrays, {dtype}")
    return Header(shape, order, dtype)


def _at_least_one(size: int) -> int:
    return max(size, 1)

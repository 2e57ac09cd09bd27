"""HPTT, the High-Performance Tensor Transposition library, through its C interface.

It is no package: build `libhptt.so` from github.com/springer13/hptt, and give its path in the
environment as `LAYOUTKIT_HPTT`. Its C functions transpose float32 and float64; they plan in every
call, by an estimate, which is all that the interface offers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from ctypes import CDLL, POINTER, c_double, c_float, c_int, c_void_p
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError
from .host import Array, Call
from .rows import Row

__all__ = ["HPTT_VARIABLE", "Hptt", "hptt"]

HPTT_VARIABLE = "LAYOUTKIT_HPTT"
_FUNCTIONS = {"float32": ("sTensorTranspose", c_float), "float64": ("dTensorTranspose", c_double)}
_ROW_MAJOR = 1  # sizes and axes are in the order of NumPy's


def hptt(threads: int) -> Hptt | None:
    """HPTT where the environment names its library, else None.

    Raises
    ------
    ArgumentError
        The path is none of a library that has HPTT's functions.
    """
    path = os.environ.get(HPTT_VARIABLE)
    return Hptt(path, threads) if path else None


class Hptt:
    """Its transposition for pure moves of one float32 or float64 array; nothing else."""

    name = "HPTT"
    lingers = 0.01  # as torch's: threads of OpenMP, unless they are passive

    def __init__(self, path: str, threads: int) -> None:
        library = _loaded(path)
        self.version = Path(path).name  # the library does not tell
        self._threads = threads
        self._functions = {
            dtype: _declared(library, path, name, number)
            for dtype, (name, number) in _FUNCTIONS.items()
        }

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        """Transpose into `out`."""
        function = self._functions.get(row.dtype)
        if row.kind not in ("move", "call") or function is None:
            return None
        return partial(self._transpose, function, row.order(row.sources[0]), sources[0], out)

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        """Transpose into a new array of NumPy."""
        function = self._functions.get(row.dtype)
        if row.kind not in ("move", "call") or function is None:
            return None
        order, shape = row.order(row.sources[0]), row.shape(row.target)

        def call() -> Array:
            out = np.empty(shape, row.dtype)
            self._transpose(function, order, sources[0], out)
            return out

        return call

    def _transpose(self, function: Any, order: Sequence[int], source: Array, out: Array) -> None:
        integers = c_int * len(order)
        read = (1.0, source.ctypes.data, integers(*source.shape), None)
        write = (0.0, out.ctypes.data, None)
        function(integers(*order), len(order), *read, *write, self._threads, _ROW_MAJOR)


def _loaded(path: str) -> CDLL:
    try:
        # By the path alone: the system would look for a bare name in its own folders.
        return CDLL(str(Path(path).absolute()))
    except OSError as error:
        raise ArgumentError(
            f"{HPTT_VARIABLE}: {path} cannot be loaded ({error}); give the path of libhptt.so, or "
            "leave it out"
        ) from error


def _declared(library: CDLL, path: str, name: str, number: Any) -> Any:
    """The C function `name`, its arguments declared; alpha and beta are of type `number`."""
    try:
        function = library[name]
    except AttributeError as error:
        raise ArgumentError(
            f"{HPTT_VARIABLE}: {path} has no {name}, so it is not HPTT; give the path of libhptt.so"
        ) from error
    sizes = POINTER(c_int)
    read, write = (number, c_void_p, sizes, sizes), (number, c_void_p, sizes)
    function.argtypes = (sizes, c_int, *read, *write, c_int, c_int)
    function.restype = None
    return function

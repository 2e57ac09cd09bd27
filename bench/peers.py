"""Conversions of the benchmark rows with other libraries, each in the fastest way that it offers.

Each library writes into an existing output (`into`), as layoutkit does; `fresh` does the conversion
as users usually write it, with a new output for each call. `available` omits libraries that are not
installed, and HPTT unless the environment names it, and sets the libraries' number of threads to
layoutkit's.

HPTT, the High-Performance Tensor Transposition library, is used through its C interface. It has no
Python package: build `libhptt.so` from github.com/springer13/hptt, and set the environment variable
`LAYOUTKIT_HPTT` to its path. Its C functions transpose float32 and float64; every call plans by an
estimate, because the interface has no other way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import CDLL, POINTER, c_double, c_float, c_int, c_void_p
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..spec import as_dtype
from .host import Array, Call
from .rows import Row


class Peer:
    """A library that supports some of the rows."""

    name = ""
    version = ""
    spin_seconds = 0.0  # see protocol.Variant

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        """Return a call that writes the result into `out`; None for an unsupported row."""
        return None

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        """Return a call that returns the result in new memory; None for an unsupported row."""
        return None


def available(threads: int) -> list[Peer]:
    """Return the installed libraries, NumPy first; raise ArgumentError for an invalid HPTT path."""
    peers: list[Peer] = [NumPy(threads)]
    for peer_class in (TorchPeer, OpenCV):
        with suppress(ImportError):
            peers.append(peer_class(threads))
    path = os.environ.get(HPTT_VARIABLE)
    return [*peers, Hptt(path, threads)] if path else peers


def factor_and_term(row: Row) -> tuple[Array, Array]:
    """Return factor and term of the formula x * factor + term, float32 in the target's layout."""
    formula = row.formula
    shape = [-1 if letter == "c" else 1 for letter in row.target]
    factor = formula["scale"] / np.reshape(formula["std"], shape)
    term = -np.reshape(formula["mean"], shape) / np.reshape(formula["std"], shape)
    return factor.astype(np.float32), term.astype(np.float32)


def transposed_views(row: Row, sources: Sequence[Array]) -> list[Any]:
    """Return views of the sources with their axes in the target's order."""
    pairs = zip(row.sources, sources, strict=True)
    return [source.transpose(row.order(layout)) for layout, source in pairs]


# ---- libraries of arrays -------------------------------------------------------------------


class NumPy(Peer):
    """The NumPy peer: `copyto` of transposed views; formulas and sums in place."""

    name = "NumPy"
    version = np.__version__

    def __init__(self, threads: int = 1) -> None:
        """Accept the number of threads as other peers do; NumPy uses one."""

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        views = transposed_views(row, sources)
        if row.kind == "fused":
            return self._fused(row, views[0], out)
        return partial(self._sum, views, out)  # of one view: a copy

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        views = transposed_views(row, sources)
        if row.kind == "fused":
            factor, term = factor_and_term(row)
            dtype = as_dtype(row.to_dtype)
            return lambda: (views[0] * factor + term).astype(dtype, order="C")
        return lambda: np.ascontiguousarray(sum(views[1:], views[0]))

    @staticmethod
    def _sum(views: Sequence[Array], out: Array) -> None:
        np.copyto(out, views[0])
        for view in views[1:]:
            np.add(out, view, out=out)

    @staticmethod
    def _fused(row: Row, view: Array, out: Array) -> Call:
        factor, term = factor_and_term(row)
        # NumPy has no native bfloat16 arithmetic: compute in float32.
        computed = out if out.dtype == np.float32 else np.empty(out.shape, np.float32)

        def call() -> None:
            np.copyto(computed, view)
            np.multiply(computed, factor, out=computed)
            np.add(computed, term, out=computed)
            if computed is not out:
                np.copyto(out, computed, casting="unsafe")

        return call


class TorchPeer(Peer):
    """The torch peer: `copy_` of a permuted tensor; formulas and sums in place, eager."""

    name = "torch"
    spin_seconds = 0.01  # OpenMP threads spin for 3 to 5 ms after a call, unless passive

    def __init__(self, threads: int) -> None:
        import torch

        self._torch = torch
        self.version = torch.__version__
        torch.set_num_threads(threads)

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        views = self._views(row, sources)
        target = self._tensor(out)
        if row.kind == "fused":
            return self._fused(row, views[0], target)
        return partial(self._sum, views, target)  # of one view: a copy

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        views = self._views(row, sources)
        expression = self._expression(row)
        return lambda: expression(*views).contiguous()

    def _expression(self, row: Row) -> Callable[..., Any]:
        """Return the formula or the sum as a function of views."""
        if not row.formula:
            return lambda *views: sum(views[1:], views[0])
        factor, term = self._constants(row)
        dtype = getattr(self._torch, row.to_dtype)
        return lambda view: (view.float() * factor + term).to(dtype)

    def _tensor(self, array: Array) -> Any:
        if array.dtype.name == "bfloat16":  # torch.from_numpy does not support it
            return self._torch.from_numpy(array.view(np.int16)).view(self._torch.bfloat16)
        return self._torch.from_numpy(array)

    def _constants(self, row: Row) -> tuple[Any, Any]:
        factor, term = factor_and_term(row)
        return self._torch.from_numpy(factor), self._torch.from_numpy(term)

    def _views(self, row: Row, sources: Sequence[Array]) -> list[Any]:
        pairs = zip(row.sources, sources, strict=True)
        return [self._tensor(source).permute(row.order(layout)) for layout, source in pairs]

    @staticmethod
    def _sum(views: Sequence[Any], target: Any) -> None:
        target.copy_(views[0])
        for view in views[1:]:
            target.add_(view)

    def _fused(self, row: Row, view: Any, target: Any) -> Call:
        factor, term = self._constants(row)
        # Compute in float32: a product rounded to bfloat16 would make the sum inaccurate.
        float32 = self._torch.float32
        is_float32 = target.dtype == float32
        computed = target if is_float32 else self._torch.empty_like(target, dtype=float32)

        def call() -> None:
            computed.copy_(view)
            computed.mul_(factor).add_(term)
            if computed is not target:
                target.copy_(computed)

        return call


class OpenCV(Peer):
    """The OpenCV peer: `blobFromImagesWithParams` for normalized images, `transpose` for matrices.

    `transposeND` supports all moves, but is not measured: it copies one element at a time, and was
    5 and 8 times slower than NumPy in two tests. OpenCV's threads sleep within 0.1 ms.
    """

    name = "OpenCV"

    def __init__(self, threads: int) -> None:
        import cv2

        self._cv2 = cv2
        self.version = cv2.__version__
        cv2.setNumThreads(threads)

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        source = sources[0]
        if row.kind == "move" and row.letters == "hw":
            return lambda: self._cv2.transpose(source, dst=out)
        if not self._has_blob(row):
            return None
        images = list(source)
        params = self._params(row)
        return lambda: self._cv2.dnn.blobFromImagesWithParams(images, out, params)

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        if not self._has_blob(row):
            return None
        images = list(sources[0])
        params = self._params(row)
        return lambda: self._cv2.dnn.blobFromImagesWithParams(images, param=params)

    @staticmethod
    def _has_blob(row: Row) -> bool:
        images = row.kind == "fused" and row.sources == ("bhwc",) and row.shape("c") == (3,)
        return images and (row.dtype, row.to_dtype, row.target) == ("uint8", "float32", "bchw")

    def _params(self, row: Row) -> Any:
        """Return the formula as OpenCV's (x - mean) * scale, with four channels for both."""
        formula = row.formula
        scale = formula["scale"]
        std = np.array([*formula["std"], 1.0])
        params = self._cv2.dnn.Image2BlobParams()
        params.mean = tuple(np.array([*formula["mean"], 0.0]) / scale)
        params.scalefactor = tuple(scale / std)
        params.ddepth = self._cv2.CV_32F
        return params


# ---- HPTT ----------------------------------------------------------------------------------

HPTT_VARIABLE = "LAYOUTKIT_HPTT"
_FUNCTIONS = {"float32": ("sTensorTranspose", c_float), "float64": ("dTensorTranspose", c_double)}
_ROW_MAJOR = 1  # order of sizes and axes, as in NumPy


class Hptt(Peer):
    """The HPTT peer: transposition of one float32 or float64 array.

    Raises ArgumentError for a path that is not a library with HPTT's functions.
    """

    name = "HPTT"
    spin_seconds = TorchPeer.spin_seconds

    def __init__(self, path: str, threads: int) -> None:
        self.version = Path(path).name  # the library has no version function
        self._threads = threads
        try:
            # An absolute path, because the system would search its own folders for a bare name.
            library = CDLL(str(Path(path).absolute()))
            self._functions = {
                dtype: _declare(library[name], scalar)
                for dtype, (name, scalar) in _FUNCTIONS.items()
            }
        except (OSError, AttributeError) as error:
            raise ArgumentError(
                f"{HPTT_VARIABLE}: {path} cannot be loaded as HPTT ({error}); give the path of "
                "libhptt.so, or unset the variable"
            ) from error

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        return partial(self._transpose, row, sources[0], out) if self._supports(row) else None

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        if not self._supports(row):
            return None
        shape = row.shape(row.target)
        return lambda: self._transpose(row, sources[0], np.empty(shape, row.dtype))

    def _supports(self, row: Row) -> bool:
        is_move = row.kind in ("move", "call") and row.dtype == row.to_dtype
        return is_move and row.dtype in self._functions

    def _transpose(self, row: Row, source: Array, out: Array) -> Array:
        order = row.order(row.sources[0])
        integers = c_int * len(order)
        read = (1.0, source.ctypes.data, integers(*source.shape), None)
        write = (0.0, out.ctypes.data, None)
        sizes = integers(*order), len(order)
        self._functions[row.dtype](*sizes, *read, *write, self._threads, _ROW_MAJOR)
        return out


def _declare(function: Any, scalar: Any) -> Any:
    """Return a C function with its argument types; alpha and beta are of type `scalar`."""
    sizes = POINTER(c_int)
    read = (scalar, c_void_p, sizes, sizes)
    write = (scalar, c_void_p, sizes)
    function.argtypes = (sizes, c_int, *read, *write, c_int, c_int)
    function.restype = None
    return function

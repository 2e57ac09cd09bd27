"""The rows' work with other libraries, each the best way that it offers.

Every library writes into an output that exists (`into`), as layoutkit does; `fresh` is the same
work the way people usually write it, with a new output each time. A library that has nothing for
a row returns None. Imported only if installed, and HPTT if the environment says where it is;
`available` also lets them use as many threads as layoutkit does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..spec import as_dtype
from .hptt import hptt
from .rows import Row

__all__ = ["Peer", "available", "factor_and_term", "transposed"]

Array = npt.NDArray[Any]
Call = Callable[[], object]


class Peer(Protocol):
    """A library that can do some rows."""

    name: str
    version: str
    lingers: float  # see protocol.Variant

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        """Return a call that writes the row's result into `out`."""

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        """Return a call that returns the row's result in new memory."""


def available(threads: int) -> list[Peer]:
    """The libraries that are installed, NumPy first; ArgumentError for an HPTT that is none."""
    peers: list[Peer] = [NumPy()]
    found = hptt(threads)
    for make in (TorchPeer, OpenCV):
        try:
            peers.append(make(threads))
        except ImportError:
            continue
    return peers if found is None else [*peers, found]


def factor_and_term(row: Row) -> tuple[Array, Array]:
    """The formula as x * factor + term, float32, shaped for an array in the target's layout."""
    formula = row.formula
    shape = [-1 if letter == "c" else 1 for letter in row.target]
    factor = formula["scale"] / np.reshape(formula["std"], shape)
    term = -np.reshape(formula["mean"], shape) / np.reshape(formula["std"], shape)
    return factor.astype(np.float32), term.astype(np.float32)


class NumPy:
    """Transposed views and `copyto`; formulas and sums in place."""

    name = "NumPy"
    version = np.__version__
    lingers = 0.0

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        views = transposed(row, sources)
        if row.kind == "fused":
            return self._fused(row, views[0], out)
        if row.kind == "accumulate":
            return lambda: self._accumulate(views, out)
        return lambda: np.copyto(out, views[0])

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        views = transposed(row, sources)
        if row.kind == "fused":
            factor, term = factor_and_term(row)
            dtype = as_dtype(row.to_dtype)
            return lambda: (views[0] * factor + term).astype(dtype, order="C")
        if row.kind == "accumulate":
            return lambda: np.ascontiguousarray(sum(views[1:], views[0]))
        return lambda: np.ascontiguousarray(views[0])

    @staticmethod
    def _accumulate(views: Sequence[Array], out: Array) -> None:
        np.copyto(out, views[0])
        for view in views[1:]:
            np.add(out, view, out=out)

    @staticmethod
    def _fused(row: Row, view: Array, out: Array) -> Call:
        factor, term = factor_and_term(row)
        # NumPy has no arithmetic of its own in bfloat16: float32 on the way.
        computed = out if out.dtype == np.float32 else np.empty(out.shape, np.float32)

        def call() -> None:
            np.copyto(computed, view)
            np.multiply(computed, factor, out=computed)
            np.add(computed, term, out=computed)
            if computed is not out:
                np.copyto(out, computed, casting="unsafe")

        return call


class TorchPeer:
    """`copy_` of a permuted tensor; formulas and sums in place (eager)."""

    name = "torch"
    lingers = 0.01  # OpenMP's threads spin for 3 to 5 ms after a call, if they are not passive

    def __init__(self, threads: int) -> None:
        import torch

        self._torch = torch
        self.version = torch.__version__
        torch.set_num_threads(threads)

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        views, target = self._views(row, sources), self._tensor(out)
        if row.kind == "fused":
            return self._fused(row, views[0], target)
        if row.kind == "accumulate":
            return lambda: self._accumulate(views, target)
        return lambda: target.copy_(views[0])

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        views = self._views(row, sources)
        if row.kind == "fused":
            factor, term = self._constants(row)
            dtype = getattr(self._torch, row.to_dtype)
            return lambda: (views[0].float() * factor + term).to(dtype).contiguous()
        if row.kind == "accumulate":
            return lambda: sum(views[1:], views[0]).contiguous()
        return lambda: views[0].contiguous()

    def _tensor(self, array: Array) -> Any:
        if array.dtype.name == "bfloat16":  # unknown to torch's adapter to NumPy
            return self._torch.from_numpy(array.view(np.int16)).view(self._torch.bfloat16)
        return self._torch.from_numpy(array)

    def _constants(self, row: Row) -> tuple[Any, Any]:
        factor, term = factor_and_term(row)
        return self._torch.from_numpy(factor), self._torch.from_numpy(term)

    def _views(self, row: Row, sources: Sequence[Array]) -> list[Any]:
        pairs = zip(row.sources, sources, strict=True)
        return [self._tensor(source).permute(row.order(layout)) for layout, source in pairs]

    @staticmethod
    def _accumulate(views: Sequence[Any], target: Any) -> None:
        target.copy_(views[0])
        for view in views[1:]:
            target.add_(view)

    def _fused(self, row: Row, view: Any, target: Any) -> Call:
        factor, term = self._constants(row)
        # In float32 on the way: a product rounded to bfloat16 would spoil the sum.
        float32 = self._torch.float32
        is_float32 = target.dtype == float32
        computed = target if is_float32 else self._torch.empty_like(target, dtype=float32)

        def call() -> None:
            computed.copy_(view)
            computed.mul_(factor).add_(term)
            if computed is not target:
                target.copy_(computed)

        return call


class OpenCV:
    """`blobFromImagesWithParams` for pictures to normalised planes, `transpose` for matrices.

    Its `transposeND` does all moves, one item at a time: it was 8 and 5 times slower than NumPy
    where it was tried, so it would only lengthen the benchmark.
    """

    name = "OpenCV"
    lingers = 0.0  # its own threads sleep within 0.1 ms

    def __init__(self, threads: int) -> None:
        import cv2

        self._cv2 = cv2
        self.version = cv2.__version__
        cv2.setNumThreads(threads)

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        source = sources[0]
        if row.kind == "move" and row.letters == "hw":
            return lambda: self._cv2.transpose(source, dst=out)
        if row.kind != "fused" or row.to_dtype != "float32":
            return None
        images, params = list(source), self._params(row)
        return lambda: self._cv2.dnn.blobFromImagesWithParams(images, out, params)

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        if row.kind != "fused" or row.to_dtype != "float32":
            return None
        images, params = list(sources[0]), self._params(row)
        return lambda: self._cv2.dnn.blobFromImagesWithParams(images, param=params)

    def _params(self, row: Row) -> Any:
        """OpenCV computes (x - mean) * scale, with four channels for both."""
        formula = row.formula
        scale, std = formula["scale"], np.array([*formula["std"], 1.0])
        params = self._cv2.dnn.Image2BlobParams()
        params.mean = tuple(np.array([*formula["mean"], 0.0]) / scale)
        params.scalefactor = tuple(scale / std)
        params.ddepth = self._cv2.CV_32F
        return params


def transposed(row: Row, sources: Sequence[Array]) -> list[Array]:
    """The sources with their axes in the target's order, in place."""
    pairs = zip(row.sources, sources, strict=True)
    return [source.transpose(row.order(layout)) for layout, source in pairs]

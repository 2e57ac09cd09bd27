"""The rows' work on a GPU with other libraries, each the best way that it offers.

cuTENSOR is not among them: of it, CuPy 14.2 offers contractions, reductions and sums of two and
three tensors (`cupyx.cutensor`), and no permutation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from ..spec import as_dtype
from .device import Cuda
from .host import Array, Call
from .peers import Peer, TorchPeer, factor_and_term, transposed
from .rows import Row

__all__ = ["CuPy", "CudaTorch", "device_peers"]


def device_peers(device: Cuda) -> list[Peer]:
    """CuPy, and torch where it is installed and knows the GPU."""
    peers: list[Peer] = [CuPy(device.cupy)]
    with suppress(ImportError):
        peers.append(CudaTorch(device))
    return peers


class CuPy:
    """`copyto` of a transposed view; formulas and sums in one kernel each."""

    name = "CuPy"
    lingers = 0.0

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self.version = cupy.__version__

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        """One kernel that writes into `out`."""
        views = transposed(row, sources)
        if row.is_exact:
            return partial(self._cupy.copyto, out, views[0])
        return partial(self._kernel(row), *views, *self._constants(row), out)

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        """The same into new memory; nothing that begins or ends on the host."""
        if row.kind in ("upload", "download"):
            return None
        views = transposed(row, sources)
        if row.is_exact:
            return partial(self._cupy.ascontiguousarray, views[0])
        into = partial(self._kernel(row), *views, *self._constants(row))
        shape, dtype = row.shape(row.target), as_dtype(row.to_dtype)
        return lambda: into(self._cupy.empty(shape, dtype))

    def _constants(self, row: Row) -> list[Array]:
        return [self._cupy.array(x) for x in factor_and_term(row)] if row.formula else []

    def _kernel(self, row: Row) -> Callable[..., Any]:
        """A kernel over all elements; it computes in float32, as layoutkit does."""
        make: Callable[..., Callable[..., Any]] = self._cupy.ElementwiseKernel
        if row.formula:
            return make("T x, float32 f, float32 t", "U y", "y = float(x) * f + t", "formula")
        names = [f"x{number}" for number in range(len(row.sources))]
        total = " + ".join(f"float({name})" for name in names)
        return make(", ".join(f"T {name}" for name in names), "U y", f"y = {total}", "total")


class CudaTorch(TorchPeer):
    """As on the CPU, and what comes from the host through pinned memory. Eager."""

    lingers = 0.0

    def __init__(self, device: Cuda) -> None:
        import torch

        if not torch.cuda.is_available():
            raise ImportError("this PyTorch was built without CUDA, or finds no GPU")
        self._torch = torch
        self.version = torch.__version__
        torch.cuda.set_stream(torch.cuda.ExternalStream(device.stream.ptr))

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        """The work with new memory, or from host to device or back."""
        if row.kind == "upload":
            return self._upload(row, self._torch.from_numpy(sources[0]))
        if row.kind == "download":
            (view,) = self._views(row, sources)
            return lambda: view.contiguous().cpu()
        return super().fresh(row, sources)

    def _upload(self, row: Row, x: Any) -> Call:
        factor, term = self._constants(row)
        order = row.order(row.sources[0])

        def call() -> Any:
            there = x.pin_memory().to("cuda", non_blocking=True).permute(order)
            return (there.float() * factor + term).contiguous()

        return call

    def _tensor(self, array: Array) -> Any:
        return self._torch.from_dlpack(array)

    def _constants(self, row: Row) -> tuple[Any, Any]:
        factor, term = super()._constants(row)
        return factor.cuda(), term.cuda()

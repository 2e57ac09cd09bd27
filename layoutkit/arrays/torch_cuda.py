"""The adapter of PyTorch's tensors on a GPU: torch's memory, torch's stream, torch's graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..axes import Move
from ..cuda.memory import DeviceArray
from ..devices import name_of, runtime
from ..spec import DType, kind_of
from .base import Adapter
from .cupy import CudaAdapter
from .torch import TorchAdapter

if TYPE_CHECKING:
    from ..accumulation import Accumulator

__all__ = ["TorchCudaAdapter"]


class TorchCudaAdapter(TorchAdapter, CudaAdapter):
    """Tensors of PyTorch on a GPU. Results come from torch's own allocator."""

    name = "torch"

    def reach(self, x: Any, what: str) -> DeviceArray:
        """Where a tensor lies."""
        runtime()
        self.check_plain(x, what)
        dtype = self.library.dtype(x)
        strides = tuple(step * dtype.itemsize for step in x.stride())
        ordinal = x.device.index or 0
        return DeviceArray(x.data_ptr(), tuple(x.shape), strides, dtype, ordinal, x)

    def located(self, x: Any, writeable: bool = True) -> DeviceArray:
        """Where a tensor lies that `empty`, `view` or a conversion has made."""
        return self.reach(x, "the result")

    def arrive(self, x: Any, what: str) -> Any:
        """Raise: the CPU does not reach the memory."""
        return CudaAdapter.arrive(self, x, what)

    def stream(self, ordinal: int) -> Any:
        """The current stream of torch."""
        return runtime().stream_at(self.torch.cuda.current_stream(ordinal).cuda_stream)

    def check(self, dtype: DType) -> None:
        """Raise DtypeError unless torch has the dtype."""
        self.library.check(dtype)

    def empty(self, shape: tuple[int, ...], dtype: DType, ordinal: int) -> DeviceArray:
        """A new contiguous tensor."""
        kind = getattr(self.torch, dtype.name)
        made = self.torch.empty(shape, dtype=kind, device=self.torch.device("cuda", ordinal))
        return self.located(made)

    def view(self, array: DeviceArray, move: Move) -> Any:
        """The tensor that shares the memory, moved where nothing has to move."""
        order = move.order + move.dropped
        return self.library.rearrange(array.owner, move.sizes, order, move.target_shape)

    def real(self, array: DeviceArray) -> DeviceArray:
        """The real part of complex elements; it shares their memory."""
        return self.located(array.owner.real)

    def cast_into(self, out: DeviceArray, values: DeviceArray) -> None:
        """Write one tensor to another as NumPy's unsafe cast does, in torch's words."""
        source = values.owner.detach()
        if kind_of(values.dtype) in "fc" and kind_of(out.dtype) in "ui":
            source = self.library.cut(source, out.dtype)
        out.owner.detach().copy_(source)

    def target_of(self, out: Any) -> DeviceArray:
        """Where the caller's output lies."""
        self.check_out(out)
        return self.reach(out, "out")

    def device(self, x: Any, what: str) -> str:
        """Where a tensor is."""
        return name_of(x.device.index or 0)

    def add(self, accumulator: Accumulator, arrays: list[Any], like: Any, out: Any) -> Any:
        """The sum of arrays on one GPU, as a tensor."""
        return CudaAdapter.add(self, accumulator, arrays, like, out)

    def on_cpu(self) -> Adapter:
        """The adapter of tensors on the CPU."""
        return TorchAdapter(self.library)

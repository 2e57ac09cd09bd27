"""Tensors of PyTorch that hold data: their memory, their dtypes, and what their graph records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..._utils import fork
from ..._utils.validation import kind_text
from ...cuda.memory import DeviceArray
from ...cuda.runtime import runtime
from ...errors import ArgumentError, DeviceError
from ...layout.pattern import Move
from ...memory import Array
from ...spec import DType, kind_of, name_of
from .. import symbolic
from ..base import Adapter, device_error, memory_error
from ..cupy import CudaAdapter
from .symbolic import Torch, library

if TYPE_CHECKING:
    from ...accumulation import Accumulator
    from ...converter import Converter
    from ...cuda.program import Quick, QuickSum


class TensorMixin:
    """What holds for tensors on the CPU and on a GPU. Where a gradient is asked, they record."""

    traces_constants = True

    def __init__(self, words: Torch) -> None:
        self.words = words
        self.torch = words.xp

    def facts(self, x: Any, what: str) -> tuple[tuple[int, ...], DType]:
        """Shape and dtype, which need no memory."""
        return self.words.shape(x), self.words.dtype(x)

    def take(self, x: Any, axis: int, positions: Array) -> Any:
        """Copies of the samples at positions that exist."""
        return x.index_select(axis, self.torch.as_tensor(positions, device=x.device))

    def unchanged_result(self, x: Any, array: Any) -> Any:
        """`x` itself."""
        return x

    def written(self, out: Any) -> Any:
        """The caller's output, after its memory has changed."""
        # So that a graph that has kept it for its backward notices.
        if not out.is_inference():
            self.torch.autograd.graph.increment_version(out)
        return out

    def permute(self, x: Any, order: tuple[int, ...]) -> Any:
        """The view of a result whose axes are in another order."""
        return x.permute(order)

    def is_recorded(self, x: Any) -> bool:
        """Whether what is done to a tensor now is kept for its gradient."""
        return bool(
            isinstance(x, self.torch.Tensor) and x.requires_grad and self.torch.is_grad_enabled()
        )

    def convert_recorded(self, converter: Converter, x: Any, out: Any) -> Any:
        """What `converter(x, out)` is, in the graph of `x`."""
        check_no_out(out, "x")
        if converter.task.formula is not None and converter.task.formula.is_traced:
            return symbolic.convert_symbolic(converter.task, x, self.words).contiguous()
        plan = converter.plan(x)
        if plan.kernel != "view":
            return _autograd().convert_with_gradient(converter, x)
        # In torch's own words, so that it knows whose memory the view shares.
        return self.words.apply_move(x, plan.move)

    def sum_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        """The sum, in the graph of its parts."""
        first = next(n for n, part in enumerate(parts) if self.is_recorded(part))
        check_no_out(out, f"part {first}")
        return _autograd().sum_with_gradient(accumulator, parts)

    def check_plain(self, x: Any, what: str) -> None:
        """Raise unless a tensor's memory holds its values."""
        if x.layout is not self.torch.strided:
            raise ArgumentError(f"{what} is of {x.layout}, not dense; pass {what}.to_dense()")
        if x.is_quantized:
            raise ArgumentError(f"{what} is quantized ({x.dtype}); pass {what}.dequantize()")
        for bit in ("conj", "neg"):
            if getattr(x, f"is_{bit}")():
                raise ArgumentError(
                    f"{what} has its {bit} bit set, so its memory does not hold its values; pass "
                    f"{what}.resolve_{bit}()"
                )

    def check_out(self, out: Any) -> None:
        """Raise where writing into a tensor would falsify a graph."""
        if self.is_recorded(out):
            raise ArgumentError(
                "out requires a gradient, which writing into it would falsify; leave out= away, "
                "or call under torch.no_grad()"
            )


class TorchAdapter(TensorMixin, Adapter):
    """Tensors that the CPU reaches."""

    def arrive(self, x: Any, what: str) -> Array:
        """The NumPy array that shares the memory of `x`."""
        self._check_host(x, what)
        self.check_plain(x, what)
        dtype = self.words.dtype(x)
        try:
            if not _is_ml_dtype(dtype):
                return x.detach().numpy()  # type: ignore[no-any-return]
            bits = x.detach().view(getattr(self.torch, f"uint{8 * dtype.itemsize}"))
            return bits.numpy().view(dtype)  # type: ignore[no-any-return]
        except (RuntimeError, TypeError, NotImplementedError) as error:
            raise memory_error(what, x, "pass a plain torch.Tensor that holds data") from error

    def leave(self, array: Array, like: Any) -> Any:
        """The tensor that shares the memory of `array`."""
        dtype = array.dtype
        self.words.check(dtype)
        if not _is_ml_dtype(dtype):
            return self.torch.from_numpy(array)
        bits = self.torch.from_numpy(array.view(f"u{dtype.itemsize}"))
        return bits.view(getattr(self.torch, dtype.name))

    def target(self, out: Any) -> Array:
        """The memory of the caller's output."""
        if not isinstance(out, self.torch.Tensor):
            raise ArgumentError(
                f"out is a {kind_text(out)}, but the result is a tensor; pass a torch.Tensor"
            )
        self.check_out(out)
        return self.arrive(out, "out")

    def cuda_adapter(self) -> CudaAdapter:
        """The adapter of tensors on a GPU."""
        return cuda_adapter()

    def _check_host(self, x: Any, what: str) -> None:
        """Raise unless the tensor is on the CPU."""
        if x.device.type == "meta":
            raise DeviceError(f"{what} is on meta and holds no data; pass a tensor on the CPU")
        if x.device.type != "cpu":
            raise device_error(what, str(x.device), f"pass {what}.cpu()")


class TorchCudaAdapter(TensorMixin, CudaAdapter):
    """Tensors on a GPU: torch's memory, torch's stream. Results come from torch's allocator."""

    name = "torch"

    def reach(self, x: Any, what: str) -> DeviceArray:
        """Where a tensor lies."""
        runtime()
        self.check_plain(x, what)
        dtype = self.words.dtype(x)
        strides = tuple(step * dtype.itemsize for step in x.stride())
        ordinal = x.device.index or 0
        return DeviceArray(x.data_ptr(), tuple(x.shape), strides, dtype, ordinal, x)

    def located(self, x: Any, writeable: bool = True) -> DeviceArray:
        """Where a tensor lies that `empty`, `view` or a conversion has made."""
        return self.reach(x, "the result")

    def device(self, x: Any, what: str) -> str:
        """Where a tensor is."""
        return name_of(x.device.index or 0)

    def stream(self, ordinal: int) -> Any:
        """The current stream of torch."""
        return runtime().stream_at(self.torch.cuda.current_stream(ordinal).cuda_stream)

    def check(self, dtype: DType) -> None:
        """Raise DtypeError unless torch has the dtype."""
        self.words.check(dtype)

    def empty(self, shape: tuple[int, ...], dtype: DType, ordinal: int) -> DeviceArray:
        """A new contiguous tensor."""
        return self.located(self._empty(shape, dtype, ordinal))

    def scratch(self, shape: tuple[int, ...], dtype: DType, ordinal: int) -> DeviceArray:
        """The same: a graph of torch has a pool of its own, which nobody else is lent from."""
        return self.empty(shape, dtype, ordinal)

    def view(self, array: DeviceArray, move: Move) -> Any:
        """The tensor that shares the memory, moved where nothing has to move."""
        return self.words.apply_move(array.owner, move)

    def cast_into(self, out: DeviceArray, values: DeviceArray) -> None:
        """Write one tensor to another as NumPy's unsafe cast does, in torch's words."""
        source = values.owner.detach()
        if kind_of(values.dtype) in "fc" and kind_of(out.dtype) in "ui":
            source = self.words.cast_wrapping(source, out.dtype)
        out.owner.detach().copy_(source)

    def cache_key(self, x: Any, out: Any) -> Any:
        """What quick ways are kept by; of plain tensors."""
        found = (x.device.index, x.shape, x.stride(), x.dtype)
        if out is None:
            return found
        return (*found, out.device.index, out.shape, out.stride(), out.dtype)

    def address(self, x: Any) -> Any:
        """Where the first element is."""
        return x.data_ptr()

    def new_result(self, quick: Quick | QuickSum) -> Any:
        """A tensor for what a quick way writes."""
        return self._empty(quick.shape, quick.dtype, quick.ordinal)

    def _empty(self, shape: tuple[int, ...], dtype: DType, ordinal: int) -> Any:
        kind = getattr(self.torch, dtype.name)
        return self.torch.empty(shape, dtype=kind, device=self.torch.device("cuda", ordinal))

    def is_plain(self, x: Any) -> bool:
        """Whether a tensor is its memory, and no graph records what is done to it."""
        return x.is_cuda and not (
            x.requires_grad or x.layout is not self.torch.strided or x.is_conj() or x.is_neg()
        )

    def output_array(self, out: Any) -> DeviceArray:
        """Where the caller's output lies."""
        self.check_out(out)
        return self.reach(out, "out")

    def cpu_adapter(self) -> Adapter:
        """The adapter of tensors on the CPU."""
        return _adapters()[0]


@fork.once
def _autograd() -> ModuleType:
    from . import autograd  # which makes classes of torch's

    return autograd


@lru_cache(maxsize=1)
def _adapters() -> tuple[TorchAdapter, TorchCudaAdapter]:
    return TorchAdapter(library()), TorchCudaAdapter(library())


def adapter_of_memory(x: Any) -> TorchAdapter | TorchCudaAdapter:
    """The adapter of a tensor that has memory."""
    return _adapters()[x.is_cuda]


def cuda_adapter() -> TorchCudaAdapter:
    """The adapter of tensors on a GPU."""
    return _adapters()[1]


def check_no_out(out: Any, name: str) -> None:
    """Raise where there is an output that a gradient does not pass through."""
    if out is not None:
        raise ArgumentError(
            f"{name} requires a gradient, which does not pass through out=; leave out= away, or "
            f"call under torch.no_grad()"
        )


def _is_ml_dtype(dtype: DType) -> bool:
    """Whether a dtype is a float of ml_dtypes, which goes in and out as its bits."""
    return dtype.type.__module__ == "ml_dtypes" and kind_of(dtype) == "f"

"""Adapters of tensors that hold data: their memory, dtypes and autograd state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..._utils import fork
from ..._utils.cache import PROGRAM_SIZE_ESTIMATE, cache_put
from ..._utils.validation import describe_type
from ...cuda.memory import DeviceArray, DeviceArrays
from ...cuda.runtime import runtime
from ...errors import ArgumentError, DeviceError
from ...layout.pattern import Permutation
from ...memory import Array
from ...spec import ArraySpec, DType, device_name, dtype_kind
from .. import symbolic
from ..base import Adapter, make_device_error, make_memory_error
from ..cupy import CudaAdapter
from .symbolic import Torch, is_ml_dtype, library

if TYPE_CHECKING:
    from ...accumulation import Accumulator
    from ...converter import Converter
    from ...cuda.program import CachedLaunch, CachedSumLaunch


class _Recorded(NamedTuple):
    """The cached plan of a conversion that autograd records."""

    view: Permutation | None  # None if the conversion moves elements
    spec: ArraySpec  # of x, for the backward


class TensorMixin:
    """The methods common to the adapters of tensors, with the recording by autograd."""

    traces_constants = True

    def __init__(self, namespace: Torch) -> None:
        self.namespace = namespace
        self.torch = namespace.xp

    def inspect(self, x: Any, arg_name: str) -> tuple[tuple[int, ...], DType]:
        """Return shape and dtype; the tensor need not hold data."""
        return self.namespace.shape(x), self.namespace.dtype(x)

    def take(self, x: Any, axis: int, positions: Array) -> Any:
        """Return a copy of the samples at validated positions."""
        return x.index_select(axis, self.torch.as_tensor(positions, device=x.device))

    def unchanged_result(self, x: Any, array: Any) -> Any:
        """Return `x` itself."""
        return x

    def written(self, out: Any) -> Any:
        """Return the caller's output after its memory was written."""
        # With a new version, autograd detects the write if a graph saved the tensor.
        if not out.is_inference():
            self.torch.autograd.graph.increment_version(out)
        return out

    def permute(self, x: Any, order: tuple[int, ...]) -> Any:
        """Return a view of x with its axes permuted."""
        return x.permute(order)

    def is_recorded(self, x: Any) -> bool:
        """Return True if autograd records operations on x now."""
        return bool(
            isinstance(x, self.torch.Tensor) and x.requires_grad and self.torch.is_grad_enabled()
        )

    def convert_recorded(self, converter: Converter, x: Any, out: Any) -> Any:
        """Return `converter(x, out)`, recorded in the autograd graph of x."""
        check_no_out(out, "x")
        if converter.options.formula is not None and converter.options.formula.is_traced:
            return symbolic.convert_symbolic(converter.options, x, self.namespace).contiguous()
        self.check_plain(x, "x")
        key = (x.shape, x.stride(), x.dtype, x.device)
        recorded = converter.recorded.get(key)
        if recorded is None:
            plan = converter.plan(x)
            move = plan.move if plan.kernel == "view" else None
            recorded = _Recorded(move, converter.spec_of(x))
            cache_put(converter.recorded, key, recorded, PROGRAM_SIZE_ESTIMATE)
        if recorded.view is None:
            return _autograd().convert_with_gradient(converter, x, recorded.spec)
        # torch operations make the view, so that autograd knows its base.
        return self.namespace.apply_move(x, recorded.view)

    def sum_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        """Return the sum, recorded in the autograd graph of its parts."""
        first = next(n for n, part in enumerate(parts) if self.is_recorded(part))
        check_no_out(out, f"part {first}")
        return _autograd().sum_with_gradient(accumulator, parts)

    def samples_of(self, x: Any, axis: int, numbers: Array) -> list[Any]:
        """Return the parts of one array at validated indices of an axis."""
        parts = x.unbind(axis)  # has one gradient for all parts
        return [parts[number] for number in numbers.tolist()]

    def check_plain(self, x: Any, arg_name: str) -> None:
        """Raise ArgumentError unless the memory of a tensor holds its values."""
        if x.layout is not self.torch.strided:
            raise ArgumentError(
                f"{arg_name} is of {x.layout}, not dense; pass {arg_name}.to_dense()"
            )
        if x.is_quantized:
            raise ArgumentError(
                f"{arg_name} is quantized ({x.dtype}); pass {arg_name}.dequantize()"
            )
        for bit in ("conj", "neg"):
            if getattr(x, f"is_{bit}")():
                raise ArgumentError(
                    f"{arg_name} has its {bit} bit set, so its memory does not hold its values; "
                    f"pass {arg_name}.resolve_{bit}()"
                )

    def check_out(self, out: Any) -> None:
        """Raise ArgumentError if autograd records operations on the output."""
        if self.is_recorded(out):
            raise ArgumentError(
                "out requires a gradient, which a write to out would invalidate; omit out=, "
                "or call under torch.no_grad()"
            )


class TorchAdapter(TensorMixin, Adapter):
    """The adapter of tensors on the CPU."""

    def to_numpy(self, x: Any, arg_name: str) -> Array:
        """Return the NumPy array that shares the memory of `x`."""
        self._check_host(x, arg_name)
        self.check_plain(x, arg_name)
        dtype = self.namespace.dtype(x)
        try:
            if not is_ml_dtype(dtype):
                return x.detach().numpy()
            bits = x.detach().view(getattr(self.torch, f"uint{8 * dtype.itemsize}"))
            return bits.numpy().view(dtype)
        except (RuntimeError, TypeError, NotImplementedError) as error:
            raise make_memory_error(
                arg_name, x, "pass a plain torch.Tensor that holds data"
            ) from error

    def from_numpy(self, array: Array, like: Any) -> Any:
        """Return the tensor that shares the memory of `array`."""
        return self.namespace.from_numpy(array)

    def target(self, out: Any) -> Array:
        if not isinstance(out, self.torch.Tensor):
            raise ArgumentError(
                f"out is {describe_type(out)}, but the result is a tensor; pass a torch.Tensor"
            )
        self.check_out(out)
        return self.to_numpy(out, "out")

    def cuda_adapter(self) -> CudaAdapter:
        return cuda_adapter()

    def _check_host(self, x: Any, arg_name: str) -> None:
        """Raise DeviceError unless the tensor is on the CPU."""
        if x.device.type == "meta":
            raise DeviceError(f"{arg_name} is on meta and holds no data; pass a tensor on the CPU")
        if x.device.type != "cpu":
            raise make_device_error(arg_name, str(x.device), f"pass {arg_name}.cpu()")


class TorchCudaAdapter(TensorMixin, CudaAdapter):
    """The adapter of tensors on a GPU, with torch's allocator and current stream."""

    name = "torch"

    def device_array(self, x: Any, arg_name: str) -> DeviceArray:
        runtime()
        self.check_plain(x, arg_name)
        return DeviceArray(*self._fields(x, self.namespace.dtype(x)), x)

    @staticmethod
    def _fields(x: Any, dtype: DType) -> tuple[int, tuple[int, ...], tuple[int, ...], DType, int]:
        """Return the fields of DeviceArray before the owner."""
        strides = tuple([step * dtype.itemsize for step in x.stride()])
        return x.data_ptr(), tuple(x.shape), strides, dtype, x.device.index or 0

    def device_array_of(self, x: Any, writeable: bool = True) -> DeviceArray:
        return self.device_array(x, "the result")

    def memory_of(self, tensors: Sequence[Any]) -> DeviceArrays | None:
        """Return the memory of tensors, or None unless all are plain ones on GPUs."""
        if not all(map(self.is_plain, tensors)):
            return None
        runtime()
        dtypes = {x.dtype: x for x in tensors}
        dtypes = {dtype: self.namespace.dtype(x) for dtype, x in dtypes.items()}
        rows = [self._fields(x, dtypes[x.dtype]) for x in tensors]
        addresses, shapes, strides, found, ordinals = zip(*rows, strict=True)
        return DeviceArrays(addresses, shapes, strides, found, ordinals, tensors)

    def device(self, x: Any, arg_name: str) -> str:
        return device_name(x.device.index or 0)

    def stream(self, ordinal: int) -> Any:
        return runtime().wrap_stream(self.torch.cuda.current_stream(ordinal).cuda_stream)

    def check(self, dtype: DType) -> None:
        """Raise DtypeError unless torch has the dtype."""
        self.namespace.check(dtype)

    def empty(self, shape: tuple[int, ...], dtype: DType, ordinal: int) -> DeviceArray:
        return self.device_array_of(self._empty(shape, dtype, ordinal))

    def empty_temporary(self, shape: tuple[int, ...], dtype: DType, ordinal: int) -> DeviceArray:
        """Allocate a temporary tensor; a captured CUDA graph keeps it in torch's private pool."""
        return self.empty(shape, dtype, ordinal)

    def view(self, array: DeviceArray, move: Permutation) -> Any:
        return self.namespace.apply_move(array.owner, move)

    def cast_into(self, out: DeviceArray, values: DeviceArray) -> None:
        source = values.owner.detach()
        if dtype_kind(values.dtype) in "fc" and dtype_kind(out.dtype) in "ui":
            source = self.namespace.cast_wrapping(source, out.dtype)
        out.owner.detach().copy_(source)

    def cache_key(self, x: Any, out: Any) -> Any:
        key = (x.device.index, x.shape, x.stride(), x.dtype)
        if out is None:
            return key
        return (*key, out.device.index, out.shape, out.stride(), out.dtype)

    def address(self, x: Any) -> Any:
        return x.data_ptr()

    def new_result(self, launch: CachedLaunch | CachedSumLaunch) -> Any:
        return self._empty(launch.shape, launch.dtype, launch.ordinal)

    def _empty(self, shape: tuple[int, ...], dtype: DType, ordinal: int) -> Any:
        dtype_of_torch = getattr(self.torch, dtype.name)
        return self.torch.empty(
            shape, dtype=dtype_of_torch, device=self.torch.device("cuda", ordinal)
        )

    def is_plain(self, x: Any) -> bool:
        return x.is_cuda and not (
            x.requires_grad
            or x.layout is not self.torch.strided
            or x.is_quantized
            or x.is_conj()
            or x.is_neg()
        )

    def output_array(self, out: Any) -> DeviceArray:
        self.check_out(out)
        return self.device_array(out, "out")

    def cpu_adapter(self) -> Adapter:
        return _adapters()[0]


@fork.run_once
def _autograd() -> ModuleType:
    from . import autograd  # late: it defines subclasses of torch.autograd.Function

    return autograd


@lru_cache(maxsize=1)
def _adapters() -> tuple[TorchAdapter, TorchCudaAdapter]:
    return TorchAdapter(library()), TorchCudaAdapter(library())


def find_concrete_adapter(x: Any) -> TorchAdapter | TorchCudaAdapter:
    """Return the adapter of a tensor that holds data."""
    return _adapters()[x.is_cuda]


def cuda_adapter() -> TorchCudaAdapter:
    """Return the adapter of tensors on a GPU."""
    return _adapters()[1]


def check_no_out(out: Any, name: str) -> None:
    """Raise ArgumentError if `out` is given, because no gradient flows through it."""
    if out is not None:
        raise ArgumentError(
            f"{name} requires a gradient, which does not pass through out=; omit out=, or "
            "call under torch.no_grad()"
        )

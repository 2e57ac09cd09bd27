"""The adapters of PyTorch and JAX: their memory, their dtypes, and what they record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, DeviceError
from ..memory import Array
from ..spec import DType, kind_of
from .base import Adapter, kind_text, on_device, out_of_reach
from .symbolic import Jax, Torch, library_of

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from ..converter import Converter
    from .cupy import CudaAdapter

__all__ = ["JaxAdapter", "TorchAdapter", "TracedAdapter"]


class _Framework(Adapter):
    """What holds for both: facts need no memory."""

    library: Torch | Jax

    def facts(self, x: Any, what: str) -> tuple[tuple[int, ...], DType]:
        """Shape and dtype, in NumPy's words."""
        return self.library.shape(x), self.library.dtype(x)

    def unmoved(self, x: Any, array: Array) -> Any:
        """`x` itself."""
        return x


class TorchAdapter(_Framework):
    """Tensors of PyTorch. Those that require a gradient are recorded in its graph."""

    def __init__(self, library: Torch) -> None:
        self.library: Torch = library
        self.torch = library.xp

    def arrive(self, x: Any, what: str) -> Array:
        """The NumPy array that shares the memory of `x`."""
        self._check_host(x, what)
        self.check_plain(x, what)
        dtype = self.library.dtype(x)
        try:
            if not _is_foreign(dtype):
                return x.detach().numpy()  # type: ignore[no-any-return]
            bits = x.detach().view(getattr(self.torch, f"uint{8 * dtype.itemsize}"))
            return bits.numpy().view(dtype)  # type: ignore[no-any-return]
        except (RuntimeError, TypeError, NotImplementedError) as error:
            raise out_of_reach(what, x, "pass a plain torch.Tensor that holds data") from error

    def leave(self, array: Array, like: Any) -> Any:
        """The array of the library that shares the memory of `array`."""
        dtype = array.dtype
        self.library.check(dtype)
        if not _is_foreign(dtype):
            return self.torch.from_numpy(array)
        bits = self.torch.from_numpy(array.view(f"u{dtype.itemsize}"))
        return bits.view(getattr(self.torch, dtype.name))

    def convert(self, converter: Converter, x: Any, out: Any) -> Any:
        """What `converter(x, out)` is."""
        if not self.is_recorded(x):
            return super().convert(converter, x, out)
        _refuse_recorded_out(out, "x")
        plan = converter.plan(x)
        if plan.kernel != "view":
            from .torch_autograd import converted

            return converted(converter, x)
        # In torch's own words, so that it knows whose memory the view shares.
        move = plan.move
        return self.library.rearrange(x, move.sizes, move.order + move.dropped, move.target_shape)

    def add_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        """The sum, recorded."""
        first = next(n for n, part in enumerate(parts) if self.is_recorded(part))
        _refuse_recorded_out(out, f"part {first}")
        from .torch_autograd import added

        return added(accumulator, parts)

    def target(self, out: Any) -> Array:
        """The memory of the caller's output."""
        if not isinstance(out, self.torch.Tensor):
            raise ArgumentError(
                f"out is a {kind_text(out)}, but the result is a tensor; pass a torch.Tensor"
            )
        self.check_out(out)
        return self.arrive(out, "out")

    def check_out(self, out: Any) -> None:
        """Raise where writing into a tensor would falsify a graph."""
        if self.is_recorded(out):
            raise ArgumentError(
                "out requires a gradient, which writing into it would falsify; leave out= away, "
                "or call under torch.no_grad()"
            )

    def on_gpu(self) -> CudaAdapter:
        """The adapter of tensors on a GPU."""
        from .adapters import cuda_adapter_for

        return cuda_adapter_for("torch", self.library)

    def written(self, out: Any) -> Any:
        """The caller's output, after its memory has changed."""
        # So that a graph that has kept it for its backward notices.
        self.torch.autograd.graph.increment_version(out)
        return out

    def is_recorded(self, x: Any) -> bool:
        """Whether what is done to a tensor now is kept for its gradient."""
        return bool(
            isinstance(x, self.torch.Tensor) and x.requires_grad and self.torch.is_grad_enabled()
        )

    def _check_host(self, x: Any, what: str) -> None:
        """Raise unless the tensor is on the CPU."""
        if x.device.type == "meta":
            raise DeviceError(f"{what} is on meta and holds no data; pass a tensor on the CPU")
        if x.device.type != "cpu":
            raise on_device(what, str(x.device), f"pass {what}.cpu()")

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


class JaxAdapter(_Framework):
    """Arrays of JAX that hold data. They are immutable, so their memory is only read."""

    def __init__(self, library: Jax) -> None:
        self.library: Jax = library

    def arrive(self, x: Any, what: str) -> Array:
        """The NumPy array that shares the memory of `x`."""
        self.library.dtype(x)
        if x.is_deleted():
            raise out_of_reach(what, x, "it was deleted or donated; pass one that holds data")
        devices = x.devices()
        if len(devices) > 1 or any(device.platform != "cpu" for device in devices):
            names = ", ".join(sorted(map(str, devices)))
            raise on_device(what, names, f'pass jax.device_put({what}, jax.devices("cpu")[0])')
        try:
            return np.asarray(x)
        except (RuntimeError, TypeError, ValueError) as error:
            raise out_of_reach(what, x, "pass an array that holds data") from error

    def leave(self, array: Array, like: Any) -> Any:
        """The array of the library that shares the memory of `array`."""
        self.library.check(array.dtype)
        (device,) = like.devices()
        return self.library.jax.device_put(array, device, may_alias=True)

    def on_gpu(self) -> CudaAdapter:
        """Raise: JAX puts arrays on devices itself."""
        raise _placed_by_jax()

    def target(self, out: Any) -> Array:
        """The memory of the caller's output."""
        raise _immutable()


class TracedAdapter(_Framework):
    """Arrays of JAX that stand for data, under jit or grad: conversions are operations of jnp."""

    def __init__(self, library: Jax) -> None:
        self.library: Jax = library

    def arrive(self, x: Any, what: str) -> Array:
        """The NumPy array that shares the memory of `x`."""
        raise ArgumentError(
            f"{what} is traced by jax and holds no data yet; call this outside jax.jit and jax.grad"
        )

    def convert(self, converter: Converter, x: Any, out: Any) -> Any:
        """What `converter(x, out)` is."""
        if out is not None:
            raise _immutable()
        if converter.is_away:
            raise _placed_by_jax()
        from .jax import converted

        return converted(converter, x, self.library)

    def is_recorded(self, x: Any) -> bool:
        """Whether it is traced."""
        return isinstance(x, self.library.jax.core.Tracer)

    def add_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        """The sum, recorded."""
        if out is not None:
            raise _immutable()
        from .jax import added

        for number, part in enumerate(parts):
            _check_traceable(part, number)
        return added(accumulator, parts, self.library)


def _refuse_recorded_out(out: Any, name: str) -> None:
    if out is not None:
        raise ArgumentError(
            f"{name} requires a gradient, which does not pass through out=; leave out= away, or "
            f"call under torch.no_grad()"
        )


def _check_traceable(part: Any, number: int) -> None:
    plain = isinstance(part, np.ndarray) and not isinstance(part, np.ma.MaskedArray)
    if not plain and not isinstance(library_of(part), Jax):
        raise ArgumentError(
            f"part {number} is a {kind_text(part)}, which cannot be added to one traced by jax; "
            "pass an array of jax or NumPy"
        )


def _immutable() -> ArgumentError:
    return ArgumentError("out= is given, but arrays of jax are immutable; leave out= away")


def _placed_by_jax() -> DeviceError:
    return DeviceError(
        "x is an array of jax, which places arrays itself; use jax.device_put and leave device= "
        "away"
    )


def _is_foreign(dtype: DType) -> bool:
    """Whether a dtype is a float of ml_dtypes, which goes in and out as its bits."""
    return dtype.type.__module__ == "ml_dtypes" and kind_of(dtype) == "f"

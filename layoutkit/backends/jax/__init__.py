"""Adapters of JAX arrays: concrete on the CPU, on a GPU or in shards (`sharding.py`), and traced.

A traced array has no memory yet: its conversion is validated by the plan of its shape and dtype,
and expressed as a foreign function that XLA calls on the CPU (`ffi.py`), or in JAX operations.

A result on the CPU becomes a JAX array that shares its memory. `jax.device_put` does that for any
input, and takes 35 us to find out what the input is. `DevicePutter` calls the jaxlib function at
its end directly, which takes 4 us. That function is not public, so it is tried once on an array of
a few bytes; if it is missing or behaves differently, `jax.device_put` is called instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._utils.validation import describe_type, is_symbolic_int
from ...converter import Converter, plan_spec
from ...cuda.memory import DeviceArray
from ...cuda.runtime import runtime
from ...errors import ArgumentError, DeviceError, DtypeError
from ...memory import Array, data_pointer
from ...spec import DType, as_dtype, can_cast, dtype_kind
from ..base import Adapter, make_device_error, make_memory_error
from ..cupy import CudaAdapter, ForeignAdapter, export_on_stream
from ..symbolic import ArrayNamespace, convert_symbolic, sum_symbolic
from . import ffi
from .sharding import ShardedAdapter

if TYPE_CHECKING:
    from ...accumulation import Accumulator
    from ...options import ConvertOptions
    from ...planning.plan import PaddedSource, Plan


def plan_of(converter: Converter, x: Any) -> Plan:
    """Return the plan of a conversion, with ones in place of traced constants."""
    options = converter.options
    if options.formula is not None and options.formula.is_traced:
        options = replace(options, formula=options.formula.without_traced())
    return plan_spec(options, converter.spec_of(x))


def _with_dtype(dtype: DType, options: ConvertOptions) -> ConvertOptions:
    return replace(options, dtype=dtype)


# Transforms for `Converter.with_options`, which keeps their results.
_WITH_DTYPE = {
    name: partial(_with_dtype, np.dtype(name))
    for name in ("int32", "uint32", "float32", "complex64")
}
_ALIGNMENT = 64  # bytes; JAX copies arrays with another alignment


class DevicePutter:
    """A faster `jax.device_put(array, device)` for NumPy arrays.

    Like results of JAX's own operations, arrays are committed to a device if `like` is.
    """

    def __init__(self, jax: Any) -> None:
        self._jax = jax
        self._sharding = lru_cache(maxsize=64)(jax.sharding.SingleDeviceSharding)
        self.put_quick = self._probe_batched_put()

    def __call__(self, array: Array, like: Any) -> Any:
        """Return the JAX array on the device of `like`; JAX must have the dtype unchanged."""
        (device,) = like.devices()
        committed = bool(getattr(like, "committed", True))
        if self.put_quick is not None and self._is_plain(array.dtype):
            return self._put_array(array, device, committed)
        target_device = device if committed else None
        return self._jax.device_put(array, target_device, may_alias=True)

    def _put_array(self, array: Array, device: Any, committed: bool) -> Any:
        abstract_array = self._jax.core.ShapedArray(array.shape, array.dtype)
        return self.put_quick(abstract_array, self._sharding(device), [array], [device], committed)

    def _is_plain(self, dtype: np.dtype[Any]) -> bool:
        """Return True if JAX has the dtype under all of its settings."""
        return dtype.itemsize < 8 or dtype.name == "complex64"

    def _probe_batched_put(self) -> Any:
        """Return the function of jaxlib, or None if a trial shows that it behaves differently."""
        try:
            from jaxlib.xla_client import batched_device_put

            self.put_quick = batched_device_put
            memory = np.zeros(2 * _ALIGNMENT, np.uint8)
            start = -data_pointer(memory) % _ALIGNMENT
            probe = memory[start : start + 16].view(np.float32).reshape(2, 2)
            probe[:] = [[1, 2], [3, 4]]
            device = self._jax.local_devices(backend="cpu")[0]
            result = self._put_array(probe, device, False)
            shares_memory = result.unsafe_buffer_pointer() == data_pointer(
                probe
            ) and result.devices() == {device}
            is_valid = (
                shares_memory and isinstance(result, self._jax.Array) and not result.committed
            )
            return batched_device_put if is_valid and (np.asarray(result) == probe).all() else None
        except Exception:  # another version of jaxlib may raise anything
            return None


class Jax(ArrayNamespace):
    """The namespace of JAX, for tracers, concrete arrays and ShapeDtypeStructs."""

    name = "jax"
    module = "jax.numpy"

    def __init__(self) -> None:
        super().__init__()
        self.jax: Any = import_module("jax")

    @cached_property
    def kernel_primitive(self) -> ffi.KernelPrimitive:
        """The primitive of conversions that XLA runs with layoutkit's kernels."""
        return ffi.KernelPrimitive(self)

    def is_tracer(self, x: Any) -> bool:
        return isinstance(x, self.jax.core.Tracer)

    def dtype(self, x: Any) -> DType:
        return as_dtype(x.dtype)

    def check(self, dtype: DType) -> None:
        """Raise DtypeError unless JAX has the dtype."""
        if dtype_kind(dtype) not in "buifc" or dtype.itemsize > (8, 16)[dtype_kind(dtype) == "c"]:
            raise DtypeError(f"jax has no dtype {dtype}; use a number of at most 64 bits")

    @cached_property
    def _on_default_device(self) -> Any:
        """An array where JAX puts new ones."""
        return self.xp.zeros(0)

    def from_numpy(self, array: Array) -> Any:
        """Return the array on the default device; on the CPU it shares the memory of `array`."""
        self.check(array.dtype)
        return _device_putter()(array, self._on_default_device)

    def to(self, x: Any, dtype: DType) -> Any:
        """Return x cast to a dtype, as the settings of JAX allow it."""
        return x.astype(self.width(dtype))

    def make(self, shape: tuple[int, ...], dtype: DType) -> Any:
        return self.jax.ShapeDtypeStruct(shape, self.width(dtype))

    def order(self, x: Any, order: Sequence[int]) -> Any:
        return self.xp.transpose(x, order)

    def join(self, parts: Sequence[Any]) -> Any:
        return self.xp.concatenate(parts, axis=1)

    def one_hot(self, labels: Any, count: int) -> Any:
        return self.to(labels, np.dtype(np.int64))[..., None] == self.xp.arange(count)

    def apply(self, function: Callable[[Any, Any], Any], batch: Any) -> Any:
        abstract = self.jax.ShapeDtypeStruct
        if any(isinstance(leaf, abstract) for leaf in self.jax.tree.leaves(batch)):
            return self.jax.eval_shape(lambda traced: function(traced, self), batch)
        return function(batch, self)

    def cast_wrapping(self, x: Any, dtype: DType) -> Any:
        """Return floats as integers; JAX itself would clip negative ones to 0."""
        if dtype_kind(dtype) != "u" or dtype.itemsize < 4:
            return super().cast_wrapping(x, dtype)
        wrapped = self.to(self.to(x, np.dtype(f"i{dtype.itemsize}")), dtype)
        return self.xp.where(x < 0, wrapped, self.to(x, dtype))

    def constant(self, values: Array, like: Any) -> Any:
        return values.astype(self.width(values.dtype))

    def width(self, dtype: DType) -> DType:
        """Return the dtype as the settings of JAX allow it: of 32 bits without x64."""
        return np.dtype(self.jax.dtypes.canonicalize_dtype(dtype))


class JaxMixin:
    """The methods common to all adapters of JAX arrays, which are immutable."""

    traces_constants = True

    def __init__(self, words: Jax) -> None:
        self.namespace = words

    def inspect(self, x: Any, arg_name: str) -> tuple[tuple[int, ...], DType]:
        """Return shape and dtype, which need no memory."""
        return self.namespace.shape(x), self.namespace.dtype(x)

    def narrowed(self, converter: Converter, x: Any) -> Converter:
        """Return the Converter to the dtype that the settings of JAX allow for the result.

        Without x64, JAX allocates 32-bit results. All steps after this one plan for them.
        """
        options = converter.options
        source = self.namespace.dtype(x)
        target = options.target_dtype(source, None)
        dtype = self.namespace.width(target)
        if dtype == target:
            return converter
        if can_cast(source, target, options.casting) and not can_cast(
            source, dtype, options.casting
        ):
            raise DtypeError(
                f"jax has no {target} with its current settings, and {source} to {dtype} is not "
                f'allowed by casting="{options.casting}"; set jax_enable_x64, or use '
                'casting="same_kind"'
            )
        return converter.with_options(_WITH_DTYPE[dtype.name])

    def take(self, x: Any, axis: int, positions: Array) -> Any:
        """Return copies of the samples at validated positions."""
        return x[(slice(None),) * axis + (positions,)]

    def unchanged_result(self, x: Any, array: Any) -> Any:
        """Return `x` itself."""
        return x

    def permute(self, x: Any, order: tuple[int, ...]) -> Any:
        """Raise ArgumentError: XLA chooses the memory layout."""
        raise ArgumentError(
            "memory= sets the memory layout of a result, "
            "which XLA chooses for arrays of jax; omit memory="
        )

    def target(self, out: Any) -> Any:
        """Raise ArgumentError: JAX arrays are immutable."""
        raise _immutable()

    def convert_recorded(self, converter: Converter, x: Any, out: Any) -> Any:
        """Return the conversion of an array if it or a constant is traced.

        It is a foreign function, or expressed as unfold, compute, permute, fold and cast.
        """
        if out is not None:
            raise _immutable()
        if converter.targets_gpu:
            self.cuda_adapter()
        if not any(
            map(is_symbolic_int, x.shape)
        ):  # symbolic shapes are validated by convert_symbolic
            plan = plan_of(converter, x)  # raises if the conversion is invalid
            if self.namespace.is_tracer(x) and ffi.supports(converter.options, plan, x):
                return self.namespace.kernel_primitive(converter, x)
        elif converter.options.copy is False:
            raise ArgumentError(
                f"copy=False, but x of shape {x.shape} is traced for all sizes, and whether bytes "
                "have to move is not known; allow a copy (copy=None)"
            )
        return convert_symbolic(converter.options, x, self.namespace)

    def cuda_adapter(self) -> CudaAdapter:
        """Raise DeviceError: JAX itself places arrays on devices."""
        raise DeviceError(
            "x is an array of jax, which places arrays itself; use jax.device_put and omit device="
        )


class JaxAdapter(JaxMixin, Adapter):
    """The adapter of concrete arrays on the CPU."""

    def to_numpy(self, x: Any, arg_name: str) -> Array:
        """Return the read-only NumPy array that shares the memory of `x`."""
        self.namespace.dtype(x)
        if x.is_deleted():
            raise make_memory_error(
                arg_name, x, "it was deleted or donated; pass one that holds data"
            )
        devices = x.devices()
        if len(devices) > 1 or any(device.platform != "cpu" for device in devices):
            names = ", ".join(sorted(map(str, devices)))
            raise make_device_error(
                arg_name, names, f'pass jax.device_put({arg_name}, jax.devices("cpu")[0])'
            )
        try:
            return np.asarray(x)
        except (RuntimeError, TypeError, ValueError) as error:
            raise make_memory_error(arg_name, x, "pass an array that holds data") from error

    def from_numpy(self, array: Array, like: Any) -> Any:
        """Return the JAX array that shares the memory of `array`."""
        self.namespace.check(array.dtype)
        return _device_putter()(array, like)


class TracedAdapter(JaxMixin, Adapter):
    """The adapter of arrays traced by jit or grad."""

    is_traced = pads_input = True

    def padded(self, x: Any, padding: PaddedSource) -> Any:
        xp = self.namespace.xp
        result = xp.broadcast_to(xp.asarray(padding.fill), padding.full)
        return result.at[padding.window].set(xp.reshape(x, padding.sizes))

    def to_numpy(self, x: Any, arg_name: str) -> Array:
        """Raise ArgumentError: a traced array has no memory."""
        raise ArgumentError(
            f"{arg_name} is traced by jax and holds no data yet; "
            "call this outside jax.jit and jax.grad"
        )

    def is_recorded(self, x: Any) -> bool:
        return self.namespace.is_tracer(x)

    def sum_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        if out is not None:
            raise _immutable()
        inspected = [self._inspect_part(part, ordinal) for ordinal, part in enumerate(parts)]
        arrays = [self.namespace.xp.asarray(part) for part in parts]
        return sum_symbolic(accumulator, arrays, inspected, self.namespace)

    def _inspect_part(self, part: Any, ordinal: int) -> tuple[tuple[int, ...], DType]:
        """Return shape and dtype of a part of a sum; raise if JAX cannot trace it."""
        if isinstance(part, np.ndarray) and not isinstance(part, np.ma.MaskedArray):
            return part.shape, part.dtype
        if isinstance(part, self.namespace.jax.Array):
            return self.inspect(part, f"part {ordinal}")
        raise ArgumentError(
            f"part {ordinal} is {describe_type(part)}, which cannot be added to one traced by jax; "
            "pass an array of jax or NumPy"
        )


class JaxCudaAdapter(JaxMixin, ForeignAdapter):
    """The adapter of arrays on a GPU, imported by DLPack."""

    name = "jax"

    def device_array(self, x: Any, arg_name: str) -> DeviceArray:
        devices = x.devices()
        if len(devices) > 1 or any(device.platform not in ("gpu", "cuda") for device in devices):
            names = ", ".join(sorted(map(str, devices)))
            raise make_device_error(arg_name, names, "pass one that is on one GPU")
        runtime()
        (device,) = devices
        return self.device_array_of(self.import_dlpack(x, arg_name, int(device.local_hardware_id)))

    def check(self, dtype: DType) -> None:
        """Raise DtypeError unless both JAX and CuPy have the dtype."""
        self.namespace.check(dtype)
        super().check(dtype)

    def device_output(
        self, out: Any, adapter: Adapter | None, first: DeviceArray, name: str
    ) -> DeviceArray:
        """Raise ArgumentError: JAX arrays are immutable."""
        raise _immutable()

    def export(self, owner: Any, like: Any) -> Any:
        return export_on_stream(owner, self.namespace.jax.dlpack.from_dlpack)


def array_namespace(x: Any) -> Any:
    """Return `jax.numpy`."""
    return import_module("jax.numpy")


def adapter_for(x: Any) -> Adapter | None:
    """Return the adapter of a JAX array, or None, also for a ShapeDtypeStruct."""
    host, traced, on_gpu, sharded = _adapters()
    if traced.is_recorded(x):
        return traced
    if not isinstance(x, library().jax.Array):
        return None
    devices = () if x.is_deleted() else x.devices()
    platforms = {device.platform for device in devices}
    if platforms and platforms <= {"gpu", "cuda"}:
        return on_gpu
    return sharded if len(devices) > 1 and platforms == {"cpu"} else host


def library_of(x: Any) -> Jax | None:
    """Return the namespace of JAX if x is an array, tracer or ShapeDtypeStruct, else None."""
    jax = library().jax
    return library() if isinstance(x, jax.Array | jax.ShapeDtypeStruct) else None


@lru_cache(maxsize=1)
def library() -> Jax:
    """Return the namespace of JAX; raise ImportError if JAX is not installed."""
    return Jax()


@lru_cache(maxsize=1)
def _device_putter() -> DevicePutter:
    return DevicePutter(library().jax)


@lru_cache(maxsize=1)
def _adapters() -> tuple[JaxAdapter, TracedAdapter, JaxCudaAdapter, ShardedAdapter]:
    namespace = library()
    return (
        JaxAdapter(namespace),
        TracedAdapter(namespace),
        JaxCudaAdapter(namespace),
        ShardedAdapter(namespace),
    )


def _immutable() -> ArgumentError:
    return ArgumentError("out= is given, but arrays of jax are immutable; omit out=")

"""Arrays of JAX: their memory, their words, and conversions of what JAX traces.

Of an array that JAX traces there is no memory yet: a conversion of it is judged as any other, by
the same plan, and then said in operations of JAX, which compiles and differentiates them.

How conversions of JAX are checked where constants of their formula are traced.

How a result on the CPU becomes an array of JAX, which shares its memory.

`jax.device_put` does that for whatever it is given, and takes 35 us to find out what that is. Here
it is known, and the function of jaxlib that it ends in takes 4. It is no public one, so it is tried
once, on an array of a few bytes; where it is not there or does something else, `jax.device_put` is
called instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._utils.validation import is_symbol, kind_text
from ...converter import Converter, plan_of_spec
from ...cuda.memory import DeviceArray
from ...cuda.runtime import runtime
from ...errors import ArgumentError, DeviceError, DtypeError
from ...memory import Array, address
from ...spec import DType, as_dtype, kind_of
from ..base import Adapter, device_error, memory_error
from ..cupy import CudaAdapter, ForeignAdapter, export_on_stream
from ..symbolic import Symbolic, convert_symbolic, sum_symbolic
from .sharding import ShardedAdapter

if TYPE_CHECKING:
    from ...accumulation import Accumulator
    from ...planning.plan import Larger, Plan


def plan_of(converter: Converter, x: Any) -> Plan:
    """How a conversion is checked; with ones in place of constants that are traced."""
    task = converter.task
    if task.formula is not None and task.formula.is_traced:
        task = task._replace(formula=task.formula.stand_in())
    return plan_of_spec(task, converter.spec_of(x))


_ALIGNMENT = 64  # bytes; what begins elsewhere JAX copies


class DevicePutter:
    """Makes arrays of JAX of NumPy arrays, as `jax.device_put(array, device)` does, and sooner.

    Like results of JAX's own operations, they are committed to a device where `like` is.
    """

    def __init__(self, jax: Any) -> None:
        self._jax = jax
        self._sharding = lru_cache(maxsize=64)(jax.sharding.SingleDeviceSharding)
        self._put = self._probe_batched_put()

    def __call__(self, array: Array, like: Any) -> Any:
        """The array of JAX on the device of `like`; its dtype is one that JAX has as it is."""
        (device,) = like.devices()
        committed = bool(getattr(like, "committed", True))
        if self._put is not None and self._is_plain(array.dtype):
            return self._put_array(array, device, committed)
        where = device if committed else None
        return self._jax.device_put(array, where, may_alias=True)

    def _put_array(self, array: Array, device: Any, committed: bool) -> Any:
        shaped = self._jax.core.ShapedArray(array.shape, array.dtype)
        return self._put(shaped, self._sharding(device), [array], [device], committed)

    def _is_plain(self, dtype: np.dtype[Any]) -> bool:
        """Whether JAX has the dtype whatever its settings are."""
        return dtype.itemsize < 8 or dtype.name == "complex64"

    def _probe_batched_put(self) -> Any:
        """The function of jaxlib, if it does what it is taken for."""
        try:
            from jaxlib.xla_client import batched_device_put

            self._put = batched_device_put
            memory = np.zeros(2 * _ALIGNMENT, np.uint8)
            start = -address(memory) % _ALIGNMENT
            probe = memory[start : start + 16].view(np.float32).reshape(2, 2)
            probe[:] = [[1, 2], [3, 4]]
            device = self._jax.local_devices(backend="cpu")[0]
            made = self._put_array(probe, device, False)
            same = made.unsafe_buffer_pointer() == address(probe) and made.devices() == {device}
            right = same and isinstance(made, self._jax.Array) and not made.committed
            return batched_device_put if right and (np.asarray(made) == probe).all() else None
        except Exception:  # whatever another version of jaxlib makes of it
            return None


class Jax(Symbolic):
    """Tracers, concrete arrays and ShapeDtypeStructs."""

    name, module = "jax", "jax.numpy"

    def __init__(self) -> None:
        super().__init__()
        self.jax: Any = import_module("jax")

    def dtype(self, x: Any) -> DType:
        return as_dtype(x.dtype)

    def check(self, dtype: DType) -> None:
        if kind_of(dtype) not in "buifc" or dtype.itemsize > (8, 16)[kind_of(dtype) == "c"]:
            raise DtypeError(f"jax has no dtype {dtype}; use a number of at most 64 bits")

    def to(self, x: Any, dtype: DType) -> Any:
        return x.astype(self.width(dtype))

    def make(self, shape: tuple[int, ...], dtype: DType) -> Any:
        return self.jax.ShapeDtypeStruct(shape, self.width(dtype))

    def order(self, x: Any, order: Sequence[int]) -> Any:
        return self.xp.transpose(x, order)

    def join(self, parts: Sequence[Any]) -> Any:
        return self.xp.concatenate(parts, axis=1)

    def hot(self, labels: Any, count: int) -> Any:
        return self.to(labels, np.dtype(np.int64))[..., None] == self.xp.arange(count)

    def apply(self, function: Callable[[Any, Any], Any], batch: Any) -> Any:
        """Run it, or find the shapes of its results where a ShapeDtypeStruct stands for data."""
        abstract = self.jax.ShapeDtypeStruct
        if any(isinstance(leaf, abstract) for leaf in self.jax.tree.leaves(batch)):
            return self.jax.eval_shape(lambda traced: function(traced, self), batch)
        return function(batch, self)

    def cast_wrapping(self, x: Any, dtype: DType) -> Any:
        """Floats as integers; JAX would clip negative ones to 0."""
        if kind_of(dtype) != "u" or dtype.itemsize < 4:
            return super().cast_wrapping(x, dtype)
        wrapped = self.to(self.to(x, np.dtype(f"i{dtype.itemsize}")), dtype)
        return self.xp.where(x < 0, wrapped, self.to(x, dtype))

    def constant(self, values: Array, like: Any) -> Any:
        return values.astype(self.width(values.dtype))

    def width(self, dtype: DType) -> DType:
        """The dtype as the settings of JAX allow it: without x64, of 32 bits."""
        found: DType = np.dtype(self.jax.dtypes.canonicalize_dtype(dtype))
        return found


class JaxMixin:
    """What holds for all arrays of JAX, which are immutable."""

    traces_constants = True

    def __init__(self, words: Jax) -> None:
        self.words = words

    def facts(self, x: Any, what: str) -> tuple[tuple[int, ...], DType]:
        """Shape and dtype, which need no memory."""
        return self.words.shape(x), self.words.dtype(x)

    def take(self, x: Any, axis: int, positions: Array) -> Any:
        """Copies of the samples at positions that exist."""
        return x[(slice(None),) * axis + (positions,)]

    def unchanged_result(self, x: Any, array: Any) -> Any:
        """`x` itself."""
        return x

    def permute(self, x: Any, order: tuple[int, ...]) -> Any:
        """Raise: where elements lie is for XLA to say."""
        raise ArgumentError(
            "memory= says how a result lies in memory, which for arrays of jax XLA decides; leave "
            "it away"
        )

    def target(self, out: Any) -> Any:
        """Raise: nothing is written into an array of JAX."""
        raise _immutable()

    def convert_recorded(self, converter: Converter, x: Any, out: Any) -> Any:
        """What `converter` makes of an array, where it or a constant is traced.

        Unfold, compute, permute, fold, cast.
        """
        if out is not None:
            raise _immutable()
        if converter.is_away:
            self.cuda_adapter()
        if not any(map(is_symbol, x.shape)):  # else it is judged by what is known of its shape
            plan_of(converter, x)  # raises where it is refused
        elif converter.task.copy is False:
            raise ArgumentError(
                f"copy=False, but x of shape {x.shape} is traced for all sizes, and whether bytes "
                "have to move is not known; allow a copy (copy=None)"
            )
        return convert_symbolic(converter.task, x, self.words)

    def cuda_adapter(self) -> CudaAdapter:
        """Raise: JAX puts arrays on devices itself."""
        raise DeviceError(
            "x is an array of jax, which places arrays itself; use jax.device_put and leave "
            "device= away"
        )


class JaxAdapter(JaxMixin, Adapter):
    """Arrays that hold data, on the CPU."""

    def arrive(self, x: Any, what: str) -> Array:
        """The NumPy array that shares the memory of `x`; read-only."""
        self.words.dtype(x)
        if x.is_deleted():
            raise memory_error(what, x, "it was deleted or donated; pass one that holds data")
        devices = x.devices()
        if len(devices) > 1 or any(device.platform != "cpu" for device in devices):
            names = ", ".join(sorted(map(str, devices)))
            raise device_error(what, names, f'pass jax.device_put({what}, jax.devices("cpu")[0])')
        try:
            return np.asarray(x)
        except (RuntimeError, TypeError, ValueError) as error:
            raise memory_error(what, x, "pass an array that holds data") from error

    def leave(self, array: Array, like: Any) -> Any:
        """The array of JAX that shares the memory of `array`."""
        self.words.check(array.dtype)
        return _device_putter()(array, like)


class TracedAdapter(JaxMixin, Adapter):
    """Arrays that stand for data, under jit or grad: conversions are operations of jnp."""

    is_traced = pads_input = True

    def padded(self, x: Any, found: Larger) -> Any:
        """A larger x, with all folds taken apart."""
        xp = self.words.xp
        made = xp.broadcast_to(xp.asarray(found.fill), found.full)
        return made.at[found.window].set(xp.reshape(x, found.sizes))

    def arrive(self, x: Any, what: str) -> Array:
        """Raise: there is no memory."""
        raise ArgumentError(
            f"{what} is traced by jax and holds no data yet; call this outside jax.jit and jax.grad"
        )

    def is_recorded(self, x: Any) -> bool:
        """Whether it is traced."""
        return isinstance(x, self.words.jax.core.Tracer)

    def sum_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        """The sum from left to right, computed in the dtype that numeric sums are."""
        if out is not None:
            raise _immutable()
        facts = [self._facts_of(part, ordinal) for ordinal, part in enumerate(parts)]
        arrays = [self.words.xp.asarray(part) for part in parts]
        return sum_symbolic(accumulator, arrays, facts, self.words)

    def _facts_of(self, part: Any, ordinal: int) -> tuple[tuple[int, ...], DType]:
        """Shape and dtype of a part of a sum; raises where JAX cannot trace it."""
        if isinstance(part, np.ndarray) and not isinstance(part, np.ma.MaskedArray):
            return part.shape, part.dtype
        if isinstance(part, self.words.jax.Array):
            return self.facts(part, f"part {ordinal}")
        raise ArgumentError(
            f"part {ordinal} is a {kind_text(part)}, which cannot be added to one traced by jax; "
            "pass an array of jax or NumPy"
        )


class JaxCudaAdapter(JaxMixin, ForeignAdapter):
    """Arrays on a GPU, reached through DLPack."""

    name = "jax"

    def reach(self, x: Any, what: str) -> DeviceArray:
        """Where an array lies."""
        devices = x.devices()
        if len(devices) > 1 or any(device.platform not in ("gpu", "cuda") for device in devices):
            names = ", ".join(sorted(map(str, devices)))
            raise device_error(what, names, "pass one that is on one GPU")
        runtime()
        (device,) = devices
        return self.located(self.import_dlpack(x, what, int(device.local_hardware_id)))

    def check(self, dtype: DType) -> None:
        """Raise DtypeError unless JAX has the dtype."""
        self.words.check(dtype)
        super().check(dtype)

    def device_output(
        self, out: Any, adapter: Adapter | None, first: DeviceArray, name: str
    ) -> DeviceArray:
        """Raise: nothing is written into an array of JAX."""
        raise _immutable()

    def finished(self, owner: Any, like: Any) -> Any:
        """A result as an array of JAX."""
        return export_on_stream(owner, self.words.jax.dlpack.from_dlpack)


def adapter_for(x: Any) -> Adapter | None:
    """The adapter of an array; None for a ShapeDtypeStruct, which is none."""
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
    """JAX's words, for what it can trace or has traced."""
    jax = library().jax
    return library() if isinstance(x, jax.Array | jax.ShapeDtypeStruct) else None


@lru_cache(maxsize=1)
def library() -> Jax:
    """JAX's words; ImportError where it is not installed."""
    return Jax()


@lru_cache(maxsize=1)
def _device_putter() -> DevicePutter:
    return DevicePutter(library().jax)


@lru_cache(maxsize=1)
def _adapters() -> tuple[JaxAdapter, TracedAdapter, JaxCudaAdapter, ShardedAdapter]:
    words = library()
    return JaxAdapter(words), TracedAdapter(words), JaxCudaAdapter(words), ShardedAdapter(words)


def _immutable() -> ArgumentError:
    return ArgumentError("out= is given, but arrays of jax are immutable; leave out= away")

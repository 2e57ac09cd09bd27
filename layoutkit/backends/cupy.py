"""Adapters of arrays on GPUs: CuPy's, and arrays of libraries that share memory with CuPy.

A GPU adapter also returns the address and strides of an array (`device_array`), allocates arrays,
and returns the stream on which the library's users expect work. CuPy is imported only by the
runtime.

The fast path (`convert_cached`, `sum_cached`) is for GPU arrays with a layout that was converted
before: all checks were done on the first call and are not repeated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import accumulation
from .._utils.cache import cache_put
from .._utils.validation import describe_type
from ..converter import FAST_PATHS
from ..cuda import streams
from ..cuda.memory import DeviceArray, DeviceArrays, check_same_device
from ..cuda.runtime import runtime
from ..errors import ArgumentError, DeviceError, DtypeError
from ..layout.pattern import Permutation
from ..memory import Array, contiguous_strides, layout_key
from ..spec import CPU, DType, dtype_kind
from .base import NUMPY, Adapter, make_device_error, make_memory_error

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from ..converter import Converter
    from ..cuda.program import CachedLaunch, CachedSumLaunch
    from ..planning.plan import PaddedSource


def convert_cached(adapter: CudaAdapter, converter: Converter, x: Any, out: Any) -> Any:
    """Return `converter(x, out)` if equal layouts were converted before, else NotImplemented."""
    programs = converter.cuda_programs
    if programs is None or not adapter.is_plain(x):
        return NotImplemented
    if out is not None and not (type(out) is type(x) and adapter.is_plain(out)):
        return NotImplemented
    launch = programs.quick.get(adapter.cache_key(x, out))
    if launch is None:
        return NotImplemented
    result = adapter.new_result(launch) if out is None else out
    if not launch(adapter.address(x), adapter.address(result), adapter.stream(launch.ordinal)):
        return NotImplemented
    return result if out is None else adapter.written(out)


def sum_cached(
    adapter: CudaAdapter, accumulator: Accumulator, parts: Sequence[Any], out: Any
) -> Any:
    """Return `accumulator(parts, out)` if equal layouts were summed before, else NotImplemented."""
    sums = accumulator.cuda_programs
    launch = None if sums is None else sums.quick.get(sum_key(adapter, parts, out))
    if launch is None or not all(map(adapter.is_plain, parts)):
        return NotImplemented
    if out is not None and not adapter.is_plain(out):
        return NotImplemented
    result = adapter.new_result(launch) if out is None else out
    addresses = [adapter.address(part) for part in parts]
    if not launch(addresses, adapter.address(result), adapter.stream(launch.ordinal)):
        return NotImplemented
    return result if out is None else adapter.written(out)


def sum_key(adapter: CudaAdapter, parts: Sequence[Any], out: Any) -> Any:
    """Return the cache key of a sum, or None unless parts and out are of one class."""
    arrays = parts if out is None else (*parts, out)
    if {*map(type, arrays)} != {type(parts[0])}:
        return None
    keys = [adapter.cache_key(array, None) for array in arrays]
    return None if None in keys else tuple(keys)


# Returns the fields of DeviceArray before the owner, of an array of CuPy.
_read_fields: Callable[[Any], tuple[Any, Any, Any, Any, Any]] = attrgetter(
    "data.ptr", "shape", "strides", "dtype", "data.device_id"
)

_compiled_casts: dict[Any, bool] = {}  # keys of the casts that CuPy has compiled


class CudaAdapter(Adapter):
    """The adapter of arrays on a GPU. The base class adapts CuPy's."""

    name = "CuPy"
    pads_input = True

    # -- the library's memory, streams and casts --------------------------------------------

    def device_array(self, x: Any, arg_name: str) -> DeviceArray:
        """Return the address, strides and dtype of an array; raise if there is no CUDA runtime."""
        runtime()
        return self.device_array_of(x)

    def device_array_of(self, x: Any, writeable: bool = True) -> DeviceArray:
        """Return the address, strides and dtype of an array made by `empty`, `view` or a kernel."""
        return DeviceArray(*_read_fields(x), x, writeable)

    def stream(self, ordinal: int) -> Any:
        """Return the stream on which the library's users expect work."""
        return runtime().stream(ordinal)

    def check(self, dtype: DType) -> None:
        """Raise DtypeError unless the library has the dtype."""
        if not _is_cupy_dtype(dtype) and dtype.fields is None and dtype.name != "bfloat16":
            raise DtypeError(
                f"CuPy has no arrays of dtype {dtype}; ask for another dtype, or move the bits, as "
                f'with x.view("u{dtype.itemsize}")'
            )

    def empty(self, shape: tuple[int, ...], dtype: DType, ordinal: int) -> DeviceArray:
        """Allocate a contiguous array."""
        return self.device_array_of(runtime().empty(shape, dtype, ordinal))

    def empty_temporary(self, shape: tuple[int, ...], dtype: DType, ordinal: int) -> DeviceArray:
        """Allocate a temporary.

        During the capture of a CUDA graph it is kept alive for as long as the process, as every
        replay writes it.
        """
        return streams.keep_alive_if_captured(
            self.empty(shape, dtype, ordinal), self.stream(ordinal)
        )

    def view(self, array: DeviceArray, move: Permutation) -> Any:
        """Return the library's view of an array whose elements need not move."""
        return move.as_view(array.owner)

    def real(self, array: DeviceArray) -> DeviceArray:
        """Return the real part of complex elements, as a view."""
        return self.device_array_of(array.owner.real)

    def cast_into(self, out: DeviceArray, values: DeviceArray) -> None:
        """Write `values` to `out` with NumPy's unsafe cast, in operations of the library."""
        key = (runtime(), out.ordinal, *layout_key(out, values))
        if key not in _compiled_casts and runtime().is_capturing(self.stream(out.ordinal)):
            raise DeviceError(
                f"a cast from {values.dtype} to {out.dtype}, which is CuPy's, runs for the first "
                "time while a CUDA graph is captured; call it once before the capture"
            )
        runtime().cast_into(out.owner, values.owner)
        cache_put(_compiled_casts, key, True)

    def export(self, owner: Any, like: Any) -> Any:
        """Return an array made by `empty` or `view` as the library of the caller's array has it."""
        return owner

    def unchanged_result(self, x: Any, array: Any) -> Any:
        return self.export(array, x)

    def keep(self, arrays: Sequence[DeviceArray], out: DeviceArray | None) -> None:
        """Keep arrays alive until the work on them is done, unless their library does so itself.

        CuPy and torch reuse memory in the order of the stream that kernels are launched on.
        """

    @contextmanager
    def kept_alive(
        self,
        arrays: Sequence[DeviceArray],
        out: DeviceArray | None = None,
        foreign: Sequence[DeviceArray] = (),
    ) -> Iterator[None]:
        """Keep arrays, and `out`, alive for the kernels launched inside the block.

        `foreign` are the arrays of other libraries. Arrays are kept after an exception too, as
        kernels launched before it read them.
        """
        ordinal = arrays[0].ordinal
        try:
            yield
        finally:
            self.keep(arrays, out)
            streams.keep_alive_until_done(foreign, self.stream(ordinal), ordinal)

    @contextmanager
    def joined(
        self, arrays: Sequence[DeviceArray], adapters: Sequence[CudaAdapter], kind: str = "part"
    ) -> Iterator[list[DeviceArray]]:
        """Order the kernels of the block with the streams of other libraries.

        The stream waits for theirs before the block, and theirs wait for it after the block, so
        that they may write to their arrays again. Yields those libraries' arrays. `kind` names an
        array in errors.
        """
        if {*map(type, adapters)} == {type(self)}:
            yield []
            return
        ordinal = arrays[0].ordinal
        stream = self.stream(ordinal)
        foreign = [n for n, adapter in enumerate(adapters) if type(adapter) is not type(self)]
        first_of_library = {type(adapters[n]): n for n in reversed(foreign)}
        others = [(adapters[n].stream(ordinal), f"{kind} {n}") for n in first_of_library.values()]
        for other, name in others:
            streams.wait_for(stream, other, ordinal, name)
        try:
            yield [arrays[n] for n in foreign]
        finally:
            for other, name in others:
                streams.wait_for(other, stream, ordinal, name)

    def padded(self, x: Any, padding: PaddedSource) -> Any:
        array = self.device_array(x, "x")
        sizes = padding.fill.shape
        result = self.empty(padding.full, array.dtype, array.ordinal).owner
        with runtime().on(array.ordinal), self.kept_alive([array]):
            for index, value in np.ndenumerate(padding.fill):  # at most one number a channel
                region = (slice(None) if n == 1 else i for i, n in zip(index, sizes, strict=True))
                result[tuple(region)] = value.item()
            result[padding.window] = array.owner.reshape(padding.sizes)
        return result

    # -- fast path -------------------------------------------------------------------------

    def cache_key(self, x: Any, out: Any) -> Any:
        """Return the fast path's cache key, or None if there is no fast path."""
        key = (x.data.device_id, x.shape, x.strides, x.dtype)
        if out is None:
            return key
        return (*key, out.data.device_id, out.shape, out.strides, out.dtype)

    def address(self, x: Any) -> Any:
        """Return the address of the first element."""
        return x.data.ptr

    def is_plain(self, x: Any) -> bool:
        """Return True if an array has no state besides its memory, such as a gradient."""
        return True

    def new_result(self, launch: CachedLaunch | CachedSumLaunch) -> Any:
        """Allocate the result of a cached launch."""
        return runtime().empty(launch.shape, launch.dtype, launch.ordinal)

    # -- in and out ------------------------------------------------------------------------

    def inspect(self, x: Any, arg_name: str) -> tuple[tuple[int, ...], DType]:
        array = self.device_array(x, arg_name)
        return array.shape, array.dtype

    def device(self, x: Any, arg_name: str) -> str:
        return self.device_array(x, arg_name).device

    def to_numpy(self, x: Any, arg_name: str) -> Array:
        """Raise DeviceError: the CPU cannot access the memory."""
        raise make_device_error(
            arg_name, self.device(x, arg_name), 'bring it over with convert(..., device="cpu")'
        )

    def take(self, x: Any, axis: int, positions: Array) -> Any:
        with runtime().on(self.device_array(x, "x").ordinal):
            return x[(slice(None),) * axis + (positions,)]

    def device_output(
        self, out: Any, adapter: Adapter | None, first: DeviceArray, name: str
    ) -> DeviceArray:
        """Return the memory of the caller's output, on the device of the array called `name`.

        `adapter` belongs to `out`; None if `out` is not on a GPU.
        """
        if adapter is None:
            check_same_device(first, name, CPU, f"out, {describe_type(out)},")
        if type(adapter) is not type(self):
            raise ArgumentError(
                f"out is {describe_type(out)}, but the result is "
                f"an array of {self.name}; give such an array"
            )
        target = self.output_array(out)
        check_same_device(first, name, target.device, "out")
        return target

    def output_array(self, out: Any) -> DeviceArray:
        """Return the memory of the caller's output, an array of this library."""
        return self.device_array(out, "out")

    def cpu_adapter(self) -> Adapter:
        """Return the adapter for arrays moved to the CPU."""
        return NUMPY


class ForeignAdapter(CudaAdapter):
    """The adapter of any library with `__cuda_array_interface__` or `__dlpack__`.

    Results are CuPy's unless the library follows the array API standard.
    """

    name = "CuPy, or of the library of x"

    def cache_key(self, x: Any, out: Any) -> Any:
        """Return None: these arrays must be imported, waited for and kept alive at each call."""

    def device_array(self, x: Any, arg_name: str) -> DeviceArray:
        """Return the address, strides and dtype of an array; the stream waits for pending work."""
        gpu = runtime()
        interface = getattr(x, "__cuda_array_interface__", None)
        if interface is None:
            _, ordinal = map(int, x.__dlpack_device__())
            return self.device_array_of(self.import_dlpack(x, arg_name, ordinal))
        if interface.get("mask") is not None:
            raise ArgumentError(f"{arg_name} has a mask, which would be lost; pass its data alone")
        address, readonly = interface["data"]
        shape = tuple(interface["shape"])
        dtype = np.dtype(interface["typestr"])
        ordinal = gpu.device_of(address) if address else gpu.current()
        if _accepts_results(x) and runtime().is_capturing(self.stream(ordinal)):
            streams.refuse_capture(arg_name)
        if dtype.kind == "V" and hasattr(type(x), "__dlpack__"):  # such as bfloat16
            return self.device_array_of(self.import_dlpack(x, arg_name, ordinal), not readonly)
        strides = interface.get("strides") or contiguous_strides(shape, dtype)
        pointer = interface.get("stream")
        if pointer is not None:
            streams.wait_for(self.stream(ordinal), gpu.wrap_stream(pointer), ordinal, arg_name)
        owner = gpu.wrap(address, shape, tuple(strides), dtype, ordinal, x)
        return DeviceArray(address, shape, tuple(strides), dtype, ordinal, owner, not readonly)

    def import_dlpack(self, x: Any, arg_name: str, ordinal: int) -> Any:
        """Return the CuPy array that shares the memory of `x`, by DLPack."""
        # The exporting library would wait with an event.
        if runtime().is_capturing(self.stream(ordinal)):
            streams.refuse_capture(arg_name)
        try:
            return runtime().from_dlpack(x, ordinal)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise make_memory_error(arg_name, x, "pass a CuPy array of its data") from error

    def keep(self, arrays: Sequence[DeviceArray], out: DeviceArray | None) -> None:
        """Keep arrays alive until our stream is done; their library does not know of it."""
        kept, ordinal = [*arrays], arrays[0].ordinal
        if out is not None:
            kept.append(out)
        streams.keep_alive_until_done(kept, self.stream(ordinal), ordinal)

    def padded(self, x: Any, padding: PaddedSource) -> Any:
        return self.export(super().padded(x, padding), x)

    def export(self, owner: Any, like: Any) -> Any:
        return (
            export_on_stream(owner, like.__array_namespace__().from_dlpack)
            if _accepts_results(like)
            else owner
        )


def adapter_for(x: Any) -> Adapter | None:
    """Return the adapter of a CuPy array, or None for other objects."""
    array_type = sys.modules["cupy"].ndarray
    FAST_PATHS.setdefault(id(array_type), partial(convert_cached, CUPY))
    accumulation.FAST_PATHS.setdefault(id(array_type), partial(sum_cached, CUPY))
    return CUPY if isinstance(x, array_type) else None


def memory_of(arrays: Sequence[Any]) -> DeviceArrays | None:
    """Return the memory of CuPy arrays, or None if other arrays are among them."""
    if {*map(type, arrays)} != {sys.modules["cupy"].ndarray}:
        return None
    runtime()
    addresses, shapes, strides, dtypes, ordinals = zip(*map(_read_fields, arrays), strict=True)
    return DeviceArrays(addresses, shapes, strides, dtypes, ordinals, arrays)


def export_on_stream(owner: Any, import_array: Any) -> Any:
    """Return `import_array(owner)`; the importing library waits for our stream of that device."""
    with runtime().on(int(owner.data.device_id)):
        return import_array(owner)


def _accepts_results(x: Any) -> bool:
    """Return True if the library of an array can import results."""
    namespace = getattr(x, "__array_namespace__", None)
    return namespace is not None and hasattr(namespace(), "from_dlpack")


def _is_cupy_dtype(dtype: DType) -> bool:
    """Return True for a dtype of NumPy itself that CuPy has."""
    kind = dtype_kind(dtype)
    max_size = 16 if kind == "c" else 8
    return dtype.type.__module__ == "numpy" and kind in "buifc" and dtype.itemsize <= max_size


CUPY = CudaAdapter()

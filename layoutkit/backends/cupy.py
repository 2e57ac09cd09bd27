"""Arrays on GPUs, in and out of a conversion without a copy: CuPy's and those that share memory.

Adapters of arrays on GPUs also say where one lies (`reach`), make new ones, and name the stream on
which the library's users expect work. CuPy itself is imported by the runtime alone.

The quick ways of arrays on GPUs that came before, whichever library they are of.

What was checked then, of arrays of one class that say the same of themselves, is not asked again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import accumulation
from .._utils.cache import remember
from .._utils.validation import kind_text
from ..converter import shortcuts
from ..cuda import streams
from ..cuda.memory import DeviceArray, check_same_device
from ..cuda.runtime import runtime
from ..errors import ArgumentError, DeviceError, DtypeError
from ..layout.pattern import Move
from ..memory import Array, contiguous, layout_key
from ..spec import CPU, DType, kind_of
from .base import NUMPY, Adapter, device_error, memory_error

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from ..converter import Converter
    from ..cuda.program import Quick, QuickSum
    from ..planning.plan import Larger


def convert_cached(adapter: CudaAdapter, converter: Converter, x: Any, out: Any) -> Any:
    """`converter(x, out)` where arrays like these came before; else NotImplemented."""
    programs = converter.on_gpus
    if programs is None or not adapter.is_plain(x):
        return NotImplemented
    if out is not None and not (type(out) is type(x) and adapter.is_plain(out)):
        return NotImplemented
    quick = programs.quick.get(adapter.cache_key(x, out))
    if quick is None:
        return NotImplemented
    made = adapter.new_result(quick) if out is None else out
    if not quick(adapter.address(x), adapter.address(made), adapter.stream(quick.ordinal)):
        return NotImplemented
    return made if out is None else adapter.written(out)


def sum_cached(
    adapter: CudaAdapter, accumulator: Accumulator, parts: Sequence[Any], out: Any
) -> Any:
    """`accumulator(parts, out)` where arrays like these came before; else NotImplemented."""
    sums = accumulator.on_gpus
    quick = None if sums is None else sums.quick.get(sum_key(adapter, parts, out))
    if quick is None or not all(map(adapter.is_plain, parts)):
        return NotImplemented
    if out is not None and not adapter.is_plain(out):
        return NotImplemented
    made = adapter.new_result(quick) if out is None else out
    addresses = [adapter.address(part) for part in parts]
    if not quick(addresses, adapter.address(made), adapter.stream(quick.ordinal)):
        return NotImplemented
    return made if out is None else adapter.written(out)


def sum_key(adapter: CudaAdapter, parts: Sequence[Any], out: Any) -> Any:
    """What quick ways of sums are kept by: None unless parts and out are of one class."""
    given = parts if out is None else (*parts, out)
    if {*map(type, given)} != {type(parts[0])}:
        return None
    keys = [adapter.cache_key(each, None) for each in given]
    return None if None in keys else (out is None, *keys)


_compiled_casts: dict[Any, bool] = {}  # what CuPy has compiled its own casts for


class CudaAdapter(Adapter):
    """The way of arrays on a GPU. This one is CuPy's."""

    name, pads_input = "CuPy", True

    # -- what the library knows ------------------------------------------------------------

    def reach(self, x: Any, what: str) -> DeviceArray:
        """Where an array lies, and that there is a runtime for it."""
        runtime()
        return self.located(x)

    def located(self, x: Any, writeable: bool = True) -> DeviceArray:
        """Where an array lies that `empty`, `view` or a conversion has made."""
        place = x.data
        return DeviceArray(
            place.ptr, x.shape, x.strides, x.dtype, int(place.device_id), x, writeable
        )

    def stream(self, ordinal: int) -> Any:
        """The stream on which the library's users expect work."""
        return runtime().stream(ordinal)

    def check(self, dtype: DType) -> None:
        """Raise DtypeError unless the library has the dtype."""
        if dtype.fields is None and dtype.name != "bfloat16" and not _is_cupy_dtype(dtype):
            raise DtypeError(
                f"CuPy has no arrays of dtype {dtype}; ask for another dtype, or move the bits, as "
                f'with x.view("u{dtype.itemsize}")'
            )

    def empty(self, shape: tuple[int, ...], dtype: DType, ordinal: int) -> DeviceArray:
        """A new contiguous array."""
        return self.located(runtime().empty(shape, dtype, ordinal))

    def scratch(self, shape: tuple[int, ...], dtype: DType, ordinal: int) -> DeviceArray:
        """The same, of a conversion's own, which a graph that is captured writes for ever."""
        return streams.keep_captured(self.empty(shape, dtype, ordinal), self.stream(ordinal))

    def view(self, array: DeviceArray, move: Move) -> Any:
        """The library's array that shares the memory, moved where nothing has to move."""
        return move.view_of(array.owner)

    def real(self, array: DeviceArray) -> DeviceArray:
        """The real part of complex elements; it shares their memory."""
        return self.located(array.owner.real)

    def cast_into(self, out: DeviceArray, values: DeviceArray) -> None:
        """Write one array to another as NumPy's unsafe cast does, in the library's words."""
        stream = self.stream(out.ordinal)
        key = (runtime(), out.ordinal, *layout_key(out, values))
        if key not in _compiled_casts and streams.is_capturing(stream):
            raise DeviceError(
                f"a cast from {values.dtype} to {out.dtype}, which is CuPy's, runs for the first "
                "time while a CUDA graph is captured; call it once before the capture"
            )
        runtime().cast_into(out.owner, values.owner, stream)
        remember(_compiled_casts, key, True)

    def finished(self, owner: Any, like: Any) -> Any:
        """A result of `empty` or `view`, as the library of the caller's array has it."""
        return owner

    def unchanged_result(self, x: Any, array: Any) -> Any:
        """The result where `array`, the owner that `reach` gave for `x`, is it."""
        return self.finished(array, x)

    def keep(self, arrays: Sequence[DeviceArray]) -> None:
        """Hold arrays until the work on them is done, where their library would not wait for it.

        CuPy and torch hand memory on in the order of the stream that kernels are put on.
        """

    @contextmanager
    def kept_alive(
        self, arrays: Sequence[DeviceArray | None], others: Sequence[DeviceArray] = ()
    ) -> Iterator[None]:
        """Keeps arrays, and holds those of other libraries, for what is launched meanwhile.

        Also where it ends with an error: what was launched before reads them.
        """
        given = [array for array in arrays if array is not None]
        try:
            yield
        finally:
            self.keep(given)
            streams.hold(others, self.stream(given[0].ordinal), given[0].ordinal)

    def join(
        self, arrays: Sequence[DeviceArray], adapters: Sequence[CudaAdapter]
    ) -> list[DeviceArray]:
        """Let our stream wait for those of other libraries; their arrays, for `order.hold`."""
        ordinal = arrays[0].ordinal
        mine, others = self.stream(ordinal), []
        for number, (array, adapter) in enumerate(zip(arrays, adapters, strict=True)):
            if type(adapter) is not type(self):
                streams.wait_for(mine, adapter.stream(ordinal), ordinal, f"part {number}")
                others.append(array)
        return others

    def padded(self, x: Any, found: Larger) -> Any:
        """A larger x, with all folds taken apart."""
        array, sizes = self.reach(x, "x"), found.fill.shape
        made = self.empty(found.full, array.dtype, array.ordinal).owner
        with runtime().on(array.ordinal), self.kept_alive([array]):
            for at, value in np.ndenumerate(found.fill):  # one number a channel at most
                place = (slice(None) if n == 1 else i for i, n in zip(at, sizes, strict=True))
                made[tuple(place)] = value.item()
            made[found.window] = array.owner.reshape(found.sizes)
        return made

    # -- again -----------------------------------------------------------------------------

    def cache_key(self, x: Any, out: Any) -> Any:
        """What quick ways are kept by (`again.py`); None where there is none."""
        found = (x.data.device_id, x.shape, x.strides, x.dtype)
        if out is None:
            return found
        return (*found, out.data.device_id, out.shape, out.strides, out.dtype)

    def address(self, x: Any) -> Any:
        """Where the first element is."""
        return x.data.ptr

    def is_plain(self, x: Any) -> bool:
        """Whether an array is its memory and nothing else."""
        return True

    def new_result(self, quick: Quick | QuickSum) -> Any:
        """An array for what a quick way writes."""
        return runtime().empty(quick.shape, quick.dtype, quick.ordinal)

    # -- in and out ------------------------------------------------------------------------

    def facts(self, x: Any, what: str) -> tuple[tuple[int, ...], DType]:
        """Shape and dtype, in NumPy's words."""
        array = self.reach(x, what)
        return array.shape, array.dtype

    def device(self, x: Any, what: str) -> str:
        """Where an array is."""
        return self.reach(x, what).device

    def arrive(self, x: Any, what: str) -> Array:
        """Raise: the CPU does not reach the memory."""
        raise device_error(
            what, self.device(x, what), 'bring it over with convert(..., device="cpu")'
        )

    def take(self, x: Any, axis: int, positions: Array) -> Any:
        """Copies of the samples at positions that exist, in the library's words."""
        with runtime().on(self.reach(x, "x").ordinal):
            return x[(slice(None),) * axis + (positions,)]

    def device_output(
        self, out: Any, adapter: Adapter | None, first: DeviceArray, name: str
    ) -> DeviceArray:
        """Where the caller's output lies, on the device of the array that is called `name`.

        `adapter` is that of `out`, None where `out` is not on a GPU.
        """
        if adapter is None:
            check_same_device(first, name, CPU, f"out, a {kind_text(out)},")
        if type(adapter) is not type(self):
            raise ArgumentError(
                f"out is a {kind_text(out)}, but the result is an array of {self.name}; give one"
            )
        target = self.output_array(out)
        check_same_device(first, name, target.device, "out")
        return target

    def output_array(self, out: Any) -> DeviceArray:
        """Where the caller's output lies, which is of this kind."""
        return self.reach(out, "out")

    def cpu_adapter(self) -> Adapter:
        """The adapter of what arrays become on the CPU."""
        return NUMPY


class ForeignAdapter(CudaAdapter):
    """Arrays of any library with `__cuda_array_interface__` or `__dlpack__`; results are CuPy's
    unless the library follows the array API standard."""

    name = "CuPy, or of the library of x"

    def cache_key(self, x: Any, out: Any) -> Any:
        """None: others have to be asked, waited for and held each time."""

    def reach(self, x: Any, what: str) -> DeviceArray:
        """Where an array lies; work that is under way on it is waited for on our stream."""
        found = runtime()
        interface = getattr(x, "__cuda_array_interface__", None)
        if interface is None:
            _, ordinal = map(int, x.__dlpack_device__())
            return self.located(self.import_dlpack(x, what, ordinal))
        if interface.get("mask") is not None:
            raise ArgumentError(f"{what} has a mask, which would be lost; pass its data alone")
        address, readonly = interface["data"]
        shape, dtype = tuple(interface["shape"]), np.dtype(interface["typestr"])
        ordinal = found.device_of(address) if address else found.current()
        if _accepts_results(x) and streams.is_capturing(self.stream(ordinal)):
            streams.refuse_capture(what)
        if dtype.kind == "V" and hasattr(type(x), "__dlpack__"):  # such as bfloat16
            return self.located(self.import_dlpack(x, what, ordinal), not readonly)
        strides = interface.get("strides") or contiguous(shape, dtype)
        pointer = interface.get("stream")
        if pointer is not None:
            streams.wait_for(self.stream(ordinal), found.stream_at(pointer), ordinal, what)
        owner = found.wrap(address, shape, tuple(strides), dtype, ordinal, x)
        return DeviceArray(address, shape, tuple(strides), dtype, ordinal, owner, not readonly)

    def import_dlpack(self, x: Any, what: str, ordinal: int) -> Any:
        """The CuPy array that shares the memory of `x`, by DLPack."""
        if streams.is_capturing(self.stream(ordinal)):  # its library would wait with an event
            streams.refuse_capture(what)
        try:
            return runtime().from_dlpack(x, ordinal)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise memory_error(what, x, "pass a CuPy array of its data") from error

    def keep(self, arrays: Sequence[DeviceArray]) -> None:
        """Hold arrays until our stream is done with them, which their library knows nothing of."""
        streams.hold(arrays, self.stream(arrays[0].ordinal), arrays[0].ordinal)

    def padded(self, x: Any, found: Larger) -> Any:
        """A larger x, of its own library if that can take one."""
        return self.finished(super().padded(x, found), x)

    def finished(self, owner: Any, like: Any) -> Any:
        """A result as the library of the caller's array has it, if it can take one."""
        return (
            export_on_stream(owner, like.__array_namespace__().from_dlpack)
            if _accepts_results(like)
            else owner
        )


def adapter_for(x: Any) -> Adapter | None:
    """The adapter of an array of CuPy."""
    kind = sys.modules["cupy"].ndarray
    shortcuts.setdefault(id(kind), partial(convert_cached, CUPY))
    accumulation.shortcuts.setdefault(id(kind), partial(sum_cached, CUPY))
    return CUPY if isinstance(x, kind) else None


def export_on_stream(owner: Any, take: Any) -> Any:
    """What `take` makes of a CuPy array, which then waits for our stream of its device."""
    with runtime().on(int(owner.data.device_id)):
        return take(owner)


def _accepts_results(x: Any) -> bool:
    """Whether results of an array go to its library."""
    namespace = getattr(x, "__array_namespace__", None)
    return namespace is not None and hasattr(namespace(), "from_dlpack")


def _is_cupy_dtype(dtype: DType) -> bool:
    """Whether it is one of NumPy's own dtypes that CuPy has."""
    kind, most = kind_of(dtype), 16 if kind_of(dtype) == "c" else 8
    return dtype.type.__module__ == "numpy" and kind in "buifc" and dtype.itemsize <= most


CUPY = CudaAdapter()

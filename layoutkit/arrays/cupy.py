"""Arrays on GPUs, in and out of a conversion without a copy: of CuPy, PyTorch, JAX and others.

An adapter says where an array lies (`reach`), makes arrays of its library, and names the stream on
which its users expect work. Everything between is the same for all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..axes import Move
from ..cuda.memory import DeviceArray, check_same_device
from ..devices import CPU, runtime
from ..errors import ArgumentError, DtypeError
from ..planning.plan import contiguous
from ..spec import DType, kind_of
from .base import Adapter, NumpyAdapter, kind_text, on_device, out_of_reach
from .symbolic import Jax

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from ..converter import Converter

__all__ = ["CudaAdapter", "ForeignAdapter", "JaxCudaAdapter"]

# Arrays of other libraries that kernels may not have done with, each behind an event.
_held: list[tuple[Any, Sequence[DeviceArray]]] = []
_held_lock = threading.Lock()


class CudaAdapter(Adapter):
    """The way of arrays on a GPU. This one is CuPy's."""

    name = "CuPy"
    is_of_gpus = True

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
        if dtype.fields is None and dtype.name != "bfloat16" and not _in_cupy(dtype):
            raise DtypeError(
                f"CuPy has no arrays of dtype {dtype}; ask for another dtype, or move the bits, as "
                f'with x.view("u{dtype.itemsize}")'
            )

    def empty(self, shape: tuple[int, ...], dtype: DType, ordinal: int) -> DeviceArray:
        """A new contiguous array."""
        return self.located(runtime().empty(shape, dtype, ordinal))

    def view(self, array: DeviceArray, move: Move) -> Any:
        """The library's array that shares the memory, moved where nothing has to move."""
        order = move.order + move.dropped
        return array.owner.reshape(move.sizes).transpose(order).reshape(move.target_shape)

    def real(self, array: DeviceArray) -> DeviceArray:
        """The real part of complex elements; it shares their memory."""
        return self.located(array.owner.real)

    def cast_into(self, out: DeviceArray, values: DeviceArray) -> None:
        """Write one array to another as NumPy's unsafe cast does, in the library's words."""
        runtime().cast_into(out.owner, values.owner, self.stream(out.ordinal))

    def finished(self, owner: Any, like: Any) -> Any:
        """A result of `empty` or `view`, as the library of the caller's array has it."""
        return owner

    def unmoved(self, x: Any, array: Any) -> Any:
        """The result where `array`, the owner that `reach` gave for `x`, is it."""
        return self.finished(array, x)

    def keep(self, arrays: Sequence[DeviceArray]) -> None:
        """Hold arrays until the work on them is done, where their library would not wait for it.

        CuPy and torch hand memory on in the order of the stream that kernels are put on.
        """

    # -- conversions and sums --------------------------------------------------------------

    def facts(self, x: Any, what: str) -> tuple[tuple[int, ...], DType]:
        """Shape and dtype, in NumPy's words."""
        array = self.reach(x, what)
        return array.shape, array.dtype

    def device(self, x: Any, what: str) -> str:
        """Where an array is."""
        return self.reach(x, what).device

    def arrive(self, x: Any, what: str) -> Any:
        """Raise: the CPU does not reach the memory."""
        raise on_device(what, self.device(x, what), 'bring it over with convert(..., device="cpu")')

    def convert(self, converter: Converter, x: Any, out: Any) -> Any:
        """What `converter(x, out)` is."""
        array = self.reach(x, "x")
        if converter.device == CPU:
            from ..cuda.transfers import download

            return download(converter, array, self, x, out)
        if converter.device is not None:
            check_same_device(array, "x", converter.device, "device=")
        from ..cuda.program import run

        target = None if out is None else self.target_on(out, array, "x")
        found = run(converter, array, target, self)
        self.keep([array] if target is None else [array, target])
        if found is array.owner and target is None:
            return self.unmoved(x, found)
        return self.finished(found, x) if target is None else self.written(out)

    def add(self, accumulator: Accumulator, arrays: list[Any], like: Any, out: Any) -> Any:
        """The sum of arrays on one GPU, of the kind of `like`."""
        from ..cuda.sums import run

        target = None if out is None else self.target_on(out, arrays[0], "part 0")
        found = run(accumulator, arrays, target, self)
        self.keep(arrays if target is None else [*arrays, target])
        return self.finished(found, like) if target is None else self.written(out)

    def target_on(self, out: Any, array: DeviceArray, name: str) -> DeviceArray:
        """Where the caller's output lies, on the device of the array that is called `name`."""
        from .adapters import device_adapter_of

        adapter = device_adapter_of(out)
        if adapter is None:
            check_same_device(array, name, CPU, f"out, a {kind_text(out)},")
        if type(adapter) is not type(self):
            raise ArgumentError(
                f"out is a {kind_text(out)}, but the result is an array of {self.name}; give one"
            )
        target = self.target_of(out)
        check_same_device(array, name, target.device, "out")
        return target

    def target_of(self, out: Any) -> DeviceArray:
        """Where the caller's output lies, which is of this kind."""
        return self.reach(out, "out")

    def on_cpu(self) -> Adapter:
        """The adapter of what arrays become on the CPU."""
        return NumpyAdapter()


class ForeignAdapter(CudaAdapter):
    """Arrays of any library with `__cuda_array_interface__` or `__dlpack__`; results are CuPy's
    unless the library follows the array API standard."""

    name = "CuPy, or of the library of x"

    def reach(self, x: Any, what: str) -> DeviceArray:
        """Where an array lies; work that is under way on it is waited for on our stream."""
        found = runtime()
        interface = getattr(x, "__cuda_array_interface__", None)
        if interface is None:
            _, ordinal = map(int, x.__dlpack_device__())
            return self.located(self._imported(x, what, ordinal))
        if interface.get("mask") is not None:
            raise ArgumentError(f"{what} has a mask, which would be lost; pass its data alone")
        address, readonly = interface["data"]
        shape, dtype = tuple(interface["shape"]), np.dtype(interface["typestr"])
        ordinal = found.device_of(address) if address else found.current()
        if dtype.kind == "V" and hasattr(type(x), "__dlpack__"):  # such as bfloat16
            return self.located(self._imported(x, what, ordinal), not readonly)
        strides = interface.get("strides") or contiguous(shape, dtype)
        self._wait_for(interface.get("stream"), ordinal)
        owner = found.wrap(address, shape, tuple(strides), dtype, ordinal, x)
        return DeviceArray(address, shape, tuple(strides), dtype, ordinal, owner, not readonly)

    def _imported(self, x: Any, what: str, ordinal: int) -> Any:
        try:
            return runtime().from_dlpack(x, ordinal)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise out_of_reach(what, x, "pass a CuPy array of its data") from error

    def keep(self, arrays: Sequence[DeviceArray]) -> None:
        """Hold arrays until our stream is done with them, which their library knows nothing of."""
        found, ordinal = runtime(), arrays[0].ordinal
        stream = self.stream(ordinal)
        if found.is_capturing(stream):  # whoever replays a graph keeps what it reads
            return
        event = found.new_event(ordinal)
        with found.on(ordinal):
            event.record(stream)
        with _held_lock:
            _held[:] = [pair for pair in _held if not pair[0].done]
            _held.append((event, arrays))

    def _wait_for(self, pointer: int | None, ordinal: int) -> None:
        """Let our stream wait for another library's, without waiting for it here."""
        found, mine = runtime(), self.stream(ordinal)
        if pointer is None or pointer == mine.ptr:
            return
        with found.on(ordinal):
            event = found.new_event(ordinal)
            event.record(found.stream_at(pointer))
            mine.wait_event(event)

    def finished(self, owner: Any, like: Any) -> Any:
        """A result as the library of the caller's array has it, if it can take one."""
        namespace = getattr(like, "__array_namespace__", None)
        if namespace is None or not hasattr(namespace(), "from_dlpack"):
            return owner
        return self._handed(owner, namespace().from_dlpack)

    def _handed(self, owner: Any, take: Any) -> Any:
        """What `take` makes of a CuPy array, which then waits for our stream of its device."""
        with runtime().on(int(owner.data.device_id)):
            return take(owner)


class JaxCudaAdapter(ForeignAdapter):
    """Arrays of JAX on a GPU. They are immutable, so their memory is only read."""

    name = "jax"

    def __init__(self, library: Jax) -> None:
        self.library = library

    def reach(self, x: Any, what: str) -> DeviceArray:
        """Where an array lies."""
        devices = x.devices()
        if len(devices) > 1 or any(device.platform not in ("gpu", "cuda") for device in devices):
            names = ", ".join(sorted(map(str, devices)))
            raise on_device(what, names, "pass one that is on one GPU")
        runtime()
        (device,) = devices
        return self.located(self._imported(x, what, int(device.local_hardware_id)))

    def check(self, dtype: DType) -> None:
        """Raise DtypeError unless JAX has the dtype."""
        self.library.check(dtype)
        super().check(dtype)

    def target_on(self, out: Any, array: DeviceArray, name: str) -> DeviceArray:
        """Raise: arrays of JAX are immutable."""
        raise ArgumentError("out= is given, but arrays of jax are immutable; leave out= away")

    def finished(self, owner: Any, like: Any) -> Any:
        """A result as an array of JAX."""
        return self._handed(owner, self.library.jax.dlpack.from_dlpack)

    def unmoved(self, x: Any, array: Any) -> Any:
        """`x` itself."""
        return x


def _in_cupy(dtype: DType) -> bool:
    """Whether it is one of NumPy's own dtypes that CuPy has."""
    kind, widest = kind_of(dtype), {"f": 8, "c": 16}
    return (
        dtype.type.__module__ == "numpy"
        and kind in "buifc"
        and dtype.itemsize <= widest.get(kind, 8)
    )

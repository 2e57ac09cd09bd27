"""Host to device and back: `device="cuda"` for arrays of the CPU, `device="cpu"` for a GPU's.

**Up.** Bytes go as they are (uint8 stays uint8) and are converted on the device. Each GPU has a
ring of two slots: page-locked memory, a block on the device, and two events. The host fills the
page-locked memory, a stream of its own copies it to the block, and the caller's stream converts
it from there:

    host      fill 0 | fill 1 |          fill 0 | ...
    copies             copy 0 | copy 1 |          copy 0 | ...
    caller's                    kernel 0 | kernel 1 |       kernel 0

`copied` holds the kernel back until its bytes are there, and the host from filling a slot that is
still being copied; `used` holds the next copy back until the kernel before it has read the block.
The host waits for nothing else, so a loop that converts batch after batch copies one while the
GPU works on another. When a call returns, the caller's array was read for the last time.

**Down.** The result is made on the device and copied to page-locked memory, which the NumPy array
that is returned holds; the call waits for that copy.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ..caching import remember
from ..converter import Converter
from ..devices import CPU, ordinal_of, runtime
from ..errors import ArgumentError, DeviceError
from ..formulas import computed_dtype
from ..memory import Array
from ..notation import identity
from ..planning.epilogue import is_known
from ..planning.plan import Plan, contiguous
from ..spec import DType, as_dtype
from .memory import DeviceArray
from .program import DeviceProgram, has_half, run

if TYPE_CHECKING:
    from ..arrays.cupy import CudaAdapter

__all__ = ["brought", "download", "upload"]

PIECE_BYTES = 8 << 20  # copied while the next piece is filled; long enough for PCIe's full speed
SLOTS = 2
_BYTES = np.dtype(np.uint8)


# ---- up ----------------------------------------------------------------------------------


def upload(converter: Converter, x: Array, adapter: CudaAdapter, out: Any) -> Any:
    """The array of the adapter's library, on the converter's device, that `x` is converted to."""
    ordinal = ordinal_of(converter.device or CPU)
    target = None
    if out is not None:
        place = DeviceArray(0, (), (), x.dtype, ordinal, None)
        target = adapter.target_on(out, place, "the result")
        if not target.writeable:
            raise ArgumentError("out is read-only; give a writeable array")
    shipment = _shipment(converter, x, target)
    result = shipment.plan.target
    adapter.check(result.dtype)
    if x.size == 0:
        made = (target or adapter.empty(result.shape, result.dtype, ordinal)).owner
    else:
        made = _ring(ordinal).send(shipment, x, target, adapter)
    return adapter.finished(made, None) if target is None else adapter.written(out)


class Shipment:
    """What a Converter keeps for arrays of one shape, strides and dtype that go to one GPU."""

    def __init__(self, converter: Converter, x: Array, out: DeviceArray | None) -> None:
        self.plan = converter.task.plan(x.shape, x.strides, x.dtype, CPU, out)
        target = self.plan.target
        self.wire = _wire(x.dtype, self.plan)
        self.order = _dense_order(x) if self.wire == x.dtype else None
        self.nbytes = x.size * self.wire.itemsize
        self.strides = contiguous(x.shape, self.wire) if self.order is None else x.strides
        moved = self.plan.formula is None and self.wire == target.dtype
        casting = converter.casting if moved else "unsafe"
        self._pack = Converter(identity(max(1, x.ndim)), dtype=self.wire, casting=casting)
        self._copy = Converter("b->b", copy=True)
        staged = self.at(0, x.shape, ordinal_of(target.device))
        stays = converter.staying(target.dtype, copy=True)
        self.program: DeviceProgram = stays.device_program(staged, out)

    def at(
        self, address: int, shape: tuple[int, ...], ordinal: int, owner: Any = None
    ) -> DeviceArray:
        """The bytes that went up, as an array at an address of the device."""
        return DeviceArray(address, shape, self.strides, self.wire, ordinal, owner)

    def fill(self, x: Array, host: Array) -> Any:
        """Fill page-locked memory; yields the ends of what is ready to be copied."""
        if self.order is None:
            packed = host.view(self.wire).reshape(x.shape or 1)
            self._pack(x.reshape(x.shape or 1), packed)
            yield 0, self.nbytes
            return
        flat = x.transpose(self.order).reshape(-1).view(_BYTES)
        for at in range(0, self.nbytes, PIECE_BYTES):
            end = min(at + PIECE_BYTES, self.nbytes)
            self._copy(flat[at:end], host[at:end])
            yield at, end


def _shipment(converter: Converter, x: Array, out: DeviceArray | None) -> Shipment:
    key: tuple[Any, ...] = ("up", x.shape, x.strides, x.dtype)
    if out is not None:
        key += (out.shape, out.strides, out.dtype)
    found: Shipment | None = converter.device_programs.get(key)
    return found or remember(converter.device_programs, key, Shipment(converter, x, out))


def _wire(dtype: DType, plan: Plan) -> DType:
    """The dtype that goes up: x's in native byte order, unless only the CPU can cast it."""
    native, target = as_dtype(dtype), plan.target.dtype
    if dtype.fields is not None or native == target or is_known(native, has_half):
        return native
    if native.kind == "c" and native.itemsize <= 16:
        return native
    return target if plan.formula is None else computed_dtype(native, target)


def _dense_order(x: Array) -> tuple[int, ...] | None:
    """The order of axes in which the memory has no gaps; None where there is none."""
    order = tuple(sorted(range(x.ndim), key=lambda at: -x.strides[at] if x.shape[at] > 1 else 0))
    return order if x.transpose(order).flags.c_contiguous else None


class _Slot:
    """Page-locked memory, a block on the device, and what guards them."""

    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal
        self.host: Array = np.empty(0, _BYTES)
        self.block: Any = None
        self.address = 0
        self.was_used = False
        self.copied, self.used = runtime().new_event(ordinal), runtime().new_event(ordinal)

    def reserve(self, nbytes: int, copies: Any) -> None:
        """Have room for so many bytes. The caller has waited for `copied`."""
        if nbytes <= self.host.nbytes:
            return
        # Given up first, so that their memory can be had again; and where there is no more, the
        # slot has none, instead of the address of memory that others have by then.
        self.host, self.block, self.address = np.empty(0, _BYTES), None, 0
        host = runtime().pinned(nbytes)
        # Memory of the stream that writes it: others never get it while a copy is under way.
        self.block = runtime().empty((nbytes,), _BYTES, self._ordinal, copies)
        self.host, self.address = host, self.block.data.ptr


class _Ring:
    """The slots of one GPU. One call at a time fills; the GPU works on what was filled before."""

    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal
        self._lock = threading.Lock()
        self._copies = runtime().new_stream(ordinal)
        self._slots = [_Slot(ordinal) for _ in range(SLOTS)]
        self._turn = 0

    def send(
        self, shipment: Shipment, x: Array, out: DeviceArray | None, adapter: CudaAdapter
    ) -> Any:
        """Bring x up and put its conversion on the stream of the adapter."""
        stream = adapter.stream(self._ordinal)
        _refuse_capture(stream)
        with self._lock, runtime().on(self._ordinal):
            slot = self._slots[self._turn]
            self._turn = (self._turn + 1) % SLOTS
            self._fill(slot, shipment, x)
            stream.wait_event(slot.copied)
            staged = shipment.at(slot.address, x.shape, self._ordinal, slot.block)
            try:
                return shipment.program(staged, out, adapter)
            finally:
                slot.used.record(stream)

    def _fill(self, slot: _Slot, shipment: Shipment, x: Array) -> None:
        if slot.was_used:
            slot.copied.synchronize()
            self._copies.wait_event(slot.used)
        slot.reserve(shipment.nbytes, self._copies)
        slot.was_used = True
        host = slot.host[: shipment.nbytes]
        try:
            for start, end in shipment.fill(x, host):
                runtime().copy_in(slot.address + start, host[start:end], self._copies)
        finally:
            slot.copied.record(self._copies)


_rings: dict[Any, _Ring] = {}  # by runtime and ordinal
_rings_lock = threading.Lock()


def _ring(ordinal: int) -> _Ring:
    key = runtime(), ordinal
    with _rings_lock:
        if key not in _rings:
            _rings[key] = _Ring(ordinal)
        return _rings[key]


# ---- down --------------------------------------------------------------------------------


def download(
    converter: Converter, array: DeviceArray, adapter: CudaAdapter, like: Any, out: Any
) -> Any:
    """The array on the CPU, of the kind of `like`, that an array of a GPU is converted to."""
    home = adapter.on_cpu()
    target = None
    if out is not None:
        _refuse_out_on_gpu(out)
        target = home.target(out)
    task = converter.task
    plan = task.plan(array.shape, array.strides, array.dtype, array.device, target)
    if target is not None and not target.flags.writeable:
        raise ArgumentError("out is read-only; give a writeable array")
    made = run(converter.staying(plan.target.dtype, copy=None), array, None, adapter)
    host = _brought(adapter.located(made), adapter)
    if target is None:
        return home.leave(host, like)
    flat = host.reshape(host.shape or 1), target.reshape(host.shape or 1)
    Converter(identity(max(1, host.ndim)), copy=True)(*flat)
    return home.written(out)


def brought(x: Any) -> Array:
    """The NumPy array of an array of any library on a GPU, in its own layout and dtype."""
    from ..arrays.adapters import device_adapter_of

    adapter = device_adapter_of(x)
    if adapter is None:
        raise RuntimeError(f"a {type(x).__name__} is not on a GPU")
    array = adapter.reach(x, "x")
    made = run(Converter(identity(len(array.shape))), array, None, adapter)
    return _brought(adapter.located(made), adapter)


def _refuse_out_on_gpu(out: Any) -> None:
    from ..arrays.adapters import device_adapter_of

    adapter = device_adapter_of(out)
    if adapter is not None:
        raise DeviceError(
            f'device="cpu", but out is on {adapter.device(out, "out")}; leave device= away, or '
            "give an out on the CPU"
        )


def _brought(made: DeviceArray, adapter: CudaAdapter) -> Array:
    """The NumPy array, in page-locked memory, of a contiguous array of a device."""
    if made.size == 0:
        return np.empty(made.shape, made.dtype)
    stream, found = adapter.stream(made.ordinal), runtime()
    _refuse_capture(stream)
    host: Array = found.pinned(made.size * made.dtype.itemsize)
    done = found.new_event(made.ordinal)
    with found.on(made.ordinal):
        found.copy_out(host, made.address, stream)
        done.record(stream)
        done.synchronize()
    return host.view(made.dtype).reshape(made.shape)


def _refuse_capture(stream: Any) -> None:
    if runtime().is_capturing(stream):
        raise DeviceError(
            "an array is to cross between the CPU and a GPU while a CUDA graph is captured; copy "
            "it before, and capture the conversion on the device alone"
        )

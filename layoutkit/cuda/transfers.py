"""Host to device and back: `device="cuda"` for arrays of the CPU, `device="cpu"` for a GPU's.

**Up.** Bytes go as they are (uint8 stays uint8), through the ring of the GPU (`ring.py`), and are
converted on the device. When a call returns, the caller's array was read for the last time.

**Down.** The result is made on the device and copied to page-locked memory, which the NumPy array
that is returned holds; the call waits for that copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ..buffers import empty
from ..caching import remember
from ..cpu.program import Program
from ..cpu.program import has_half as has_half_here
from ..devices import CPU, ordinal_of
from ..errors import ArgumentError
from ..memory import Array, layout_key
from ..notation import identity
from ..planning.epilogue import is_known
from ..planning.plan import Plan, contiguous
from ..planning.task import make_task
from ..spec import DType, as_dtype
from .launches import has_half
from .memory import DeviceAdapter, DeviceArray
from .program import DevicePrograms
from .ring import refuse_capture, ring_of
from .runtime import runtime

__all__ = ["Unmade", "brought", "download", "sent", "upload"]

PIECE_BYTES = 8 << 20  # copied while the next piece is filled; long enough for PCIe's full speed

_BYTES = np.dtype(np.uint8)


# ---- up ----------------------------------------------------------------------------------


class Unmade:
    """A contiguous array that `make` will write, when it is known to which memory."""

    def __init__(self, shape: tuple[int, ...], dtype: DType, make: Callable[[Array], Any]) -> None:
        self.shape, self.dtype, self.make = shape, dtype, make
        self.strides, self.size = contiguous(shape, dtype), prod(shape)

    def made(self) -> Array:
        """The array, in memory that the CPU converts."""
        out: Array = empty(self.shape, self.dtype)
        self.make(out)
        return out


def upload(
    programs: DevicePrograms, x: Array | Unmade, out: DeviceArray | None, adapter: DeviceAdapter
) -> Any:
    """The library's array that `x` is converted to, on the task's device; `out`'s if given."""
    ordinal = ordinal_of(programs.task.device or CPU)
    if out is not None and not out.writeable:
        raise ArgumentError("out is read-only; give a writeable array")
    shipment = _shipment(programs, x, out)
    result = shipment.plan.target
    adapter.check(result.dtype)
    if isinstance(x, Unmade) and (shipment.wire != x.dtype or not x.size):
        x = x.made()
    if x.size == 0:
        return (out or adapter.empty(result.shape, result.dtype, ordinal)).owner
    return ring_of(ordinal).send(shipment, x, out, adapter)


class Shipment:
    """What is kept for arrays of one shape, strides and dtype that go to one GPU."""

    def __init__(
        self, programs: DevicePrograms, x: Array | Unmade, out: DeviceArray | None
    ) -> None:
        task = programs.task
        self.plan = task.plan(x.shape, x.strides, x.dtype, CPU, out, has_half)
        target = self.plan.target
        self.wire = _wire(x.dtype, self.plan)
        self.order = _dense_order(x) if self.wire == x.dtype else None
        self.nbytes = x.size * self.wire.itemsize
        self.strides = contiguous(x.shape, self.wire) if self.order is None else x.strides
        moved = self.plan.formula is None and self.wire == target.dtype
        self._pack = _writer(
            x.shape, x.strides, x.dtype, self.wire, task.casting if moved else "unsafe"
        )
        staged = self.at(0, x.shape, ordinal_of(target.device))
        self.program = programs.staying(target.dtype, copy=True).find(staged, out)

    def at(
        self, address: int, shape: tuple[int, ...], ordinal: int, owner: Any = None
    ) -> DeviceArray:
        """The bytes that went up, as an array at an address of the device."""
        return DeviceArray(address, shape, self.strides, self.wire, ordinal, owner)

    def fill(self, x: Array | Unmade, host: Array) -> Iterator[tuple[int, int]]:
        """Fill page-locked memory; yields the ends of what is ready to be copied."""
        if isinstance(x, Unmade):
            x.make(host.view(self.wire).reshape(x.shape))
            yield 0, self.nbytes
            return
        if self.order is None:
            self._pack(x, x, host.view(self.wire).reshape(x.shape))
            yield 0, self.nbytes
            return
        flat = x.transpose(self.order).reshape(-1).view(_BYTES)
        for at in range(0, self.nbytes, PIECE_BYTES):
            end = min(at + PIECE_BYTES, self.nbytes)
            piece = flat[at:end]
            _copier(end - at)(piece, piece, host[at:end])
            yield at, end


def _shipment(programs: DevicePrograms, x: Array | Unmade, out: DeviceArray | None) -> Shipment:
    key = ("up", *layout_key(x, out))
    found: Shipment | None = programs.others.get(key)
    return found or remember(programs.others, key, Shipment(programs, x, out))


def _writer(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: DType,
    target: DType | None,
    casting: str,
    out: Array | None = None,
) -> Program:
    """What writes arrays that lie so, cast, to others: like `out`, or contiguous ones."""
    task = make_task(identity(len(shape)), dtype=target, casting=casting, copy=True)
    return Program(task.plan(shape, strides, dtype, CPU, out, has_half_here))


@lru_cache(maxsize=64)
def _copier(nbytes: int) -> Program:
    """What copies so many bytes, on all threads."""
    return _writer((nbytes,), (1,), _BYTES, None, "same_kind")


def _wire(dtype: DType, plan: Plan) -> DType:
    """The dtype that goes up: x's in native byte order, unless only the CPU can cast it."""
    native, target = as_dtype(dtype), plan.target.dtype
    if dtype.fields is not None or native == target or is_known(native, has_half):
        return native
    if native.kind == "c" and native.itemsize <= 16:
        return native
    return target if plan.formula is None else plan.formula.computed_dtype(native, target)


def _dense_order(x: Array | Unmade) -> tuple[int, ...] | None:
    """The order of axes in which the memory has no gaps; None where there is none."""
    if isinstance(x, Unmade):
        return tuple(range(len(x.shape)))
    order = tuple(sorted(range(x.ndim), key=lambda at: -x.strides[at] if x.shape[at] > 1 else 0))
    return order if x.transpose(order).flags.c_contiguous else None


# ---- down --------------------------------------------------------------------------------


class Delivery:
    """What is kept for arrays that lie so on one GPU and go to the CPU, into arrays like `out`."""

    def __init__(self, programs: DevicePrograms, array: DeviceArray, out: Array | None) -> None:
        plan = programs.task.plan(*array.facts, out, has_half)
        self.programs = programs.staying(plan.target.dtype, copy=None)
        self._write: Program | None = None
        if out is not None:
            shape, dtype = plan.target.shape, plan.target.dtype
            self._write = _writer(shape, contiguous(shape, dtype), dtype, None, "same_kind", out)

    def hand(self, host: Array, out: Array) -> None:
        """Write what came to the caller's array."""
        if self._write is not None:
            self._write(host, host, out)


def download(
    programs: DevicePrograms, array: DeviceArray, out: Array | None, adapter: DeviceAdapter
) -> Array:
    """The NumPy array, `out` if given, that an array of a GPU is converted to."""
    key = ("down", array.ordinal, *layout_key(array, out))
    delivery: Delivery | None = programs.others.get(key)
    if delivery is None:
        delivery = remember(programs.others, key, Delivery(programs, array, out))
    if out is not None and not out.flags.writeable:
        raise ArgumentError("out is read-only; give a writeable array")
    made = delivery.programs.run(array, None, adapter)
    host = _brought(adapter.located(made), adapter)
    if out is None:
        return host
    delivery.hand(host, out)
    return out


# ---- as they are -------------------------------------------------------------------------


def brought(array: DeviceArray, adapter: DeviceAdapter) -> Array:
    """The NumPy array of an array on a GPU, in its own layout and dtype."""
    made = _unmoved(len(array.shape), None).run(array, None, adapter)
    return _brought(adapter.located(made), adapter)


def sent(x: Array, device: str, adapter: DeviceAdapter) -> Any:
    """The library's array on a GPU that has what `x` has."""
    return upload(_unmoved(x.ndim, device), x, None, adapter)


@lru_cache
def _unmoved(ndim: int, device: str | None) -> DevicePrograms:
    return DevicePrograms(make_task(identity(ndim), device=device))


def _brought(made: DeviceArray, adapter: DeviceAdapter) -> Array:
    """The NumPy array, in page-locked memory, of a contiguous array of a device."""
    if made.size == 0:
        return np.empty(made.shape, made.dtype)
    stream, found = adapter.stream(made.ordinal), runtime()
    refuse_capture(stream)
    host: Array = found.pinned(made.size * made.dtype.itemsize)
    done = found.new_event(made.ordinal)
    with found.on(made.ordinal):
        found.copy_out(host, made.address, stream)
        done.record(stream)
        done.synchronize()
    return host.view(made.dtype).reshape(made.shape)

"""The way up: two slots of page-locked memory for each GPU, so that a copy runs beside a kernel.

A slot has page-locked memory, a block on the device, and two events. The host fills the page-locked
memory, a stream of its own copies it to the block, and the caller's stream converts it from there:

    host      fill 0 | fill 1 |          fill 0 | ...
    copies             copy 0 | copy 1 |          copy 0 | ...
    caller's                    kernel 0 | kernel 1 |       kernel 0

`copied` holds the kernel back until its bytes are there, and the host from filling a slot that is
still being copied; `used` holds the next copy back until the kernel before it has read the block.
The host waits for nothing else, so a loop that converts batch after batch copies one while the
GPU works on another.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from ..errors import DeviceError
from ..memory import Array
from .memory import DeviceAdapter, DeviceArray
from .program import DeviceProgram
from .runtime import runtime

__all__ = ["Load", "Ring", "refuse_capture", "ring_of"]

SLOTS = 2
_BYTES = np.dtype(np.uint8)


class Load(Protocol):
    """What goes up: how it is packed, and what converts it there."""

    nbytes: int
    program: DeviceProgram

    def fill(self, x: Any, host: Array) -> Iterator[tuple[int, int]]:
        """Fill page-locked memory; yields the ends of what is ready to be copied."""

    def at(
        self, address: int, shape: tuple[int, ...], ordinal: int, owner: Any = None
    ) -> DeviceArray:
        """The bytes that went up, as an array at an address of the device."""


class Slot:
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


class Ring:
    """The slots of one GPU. One call at a time fills; the GPU works on what was filled before."""

    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal
        self._lock = threading.Lock()
        self._copies = runtime().new_stream(ordinal)
        self._slots = [Slot(ordinal) for _ in range(SLOTS)]
        self._turn = 0

    def send(self, load: Load, x: Any, out: DeviceArray | None, adapter: DeviceAdapter) -> Any:
        """Bring x up and put its conversion on the stream of the adapter."""
        stream = adapter.stream(self._ordinal)
        refuse_capture(stream)
        with self._lock, runtime().on(self._ordinal):
            slot = self._slots[self._turn]
            self._turn = (self._turn + 1) % SLOTS
            self._fill(slot, load, x)
            stream.wait_event(slot.copied)
            staged = load.at(slot.address, x.shape, self._ordinal, slot.block)
            try:
                return load.program(staged, out, adapter)
            finally:
                slot.used.record(stream)

    def _fill(self, slot: Slot, load: Load, x: Any) -> None:
        if slot.was_used:
            slot.copied.synchronize()
            self._copies.wait_event(slot.used)
        slot.reserve(load.nbytes, self._copies)
        slot.was_used = True
        host = slot.host[: load.nbytes]
        try:
            for start, end in load.fill(x, host):
                runtime().copy_in(slot.address + start, host[start:end], self._copies)
        finally:
            slot.copied.record(self._copies)


_rings: dict[Any, Ring] = {}  # by runtime and ordinal
_rings_lock = threading.Lock()


def ring_of(ordinal: int) -> Ring:
    """The ring of a GPU, made when the first array goes there."""
    key = runtime(), ordinal
    with _rings_lock:
        if key not in _rings:
            _rings[key] = Ring(ordinal)
        return _rings[key]


def refuse_capture(stream: Any) -> None:
    """Raise where a CUDA graph is made of what is put on a stream."""
    if runtime().is_capturing(stream):
        raise DeviceError(
            "an array is to cross between the CPU and a GPU while a CUDA graph is captured; copy "
            "it before, and capture the conversion on the device alone"
        )

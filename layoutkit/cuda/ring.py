"""Page-locked memory, in pieces that go round: bytes cross the bus beside kernels and the CPU.

Each GPU has some pieces for the way up and as many for the way down, whatever the size of arrays.
Up, the host fills a piece, a stream of its own copies it to a block on the device, and the caller's
stream converts the block when its last piece is there:

    host      fill a | fill b | fill c |
    copies             copy a | copy b | copy c |
    caller's                                      kernel of a, b and c

A piece is filled again when it was `copied`; that is all that the host waits for. The copies of an
array begin when the kernel before the last one has read its block, whose memory they get, so that
they go on beside the last one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from .. import buffers
from ..errors import DeviceError
from ..memory import Array
from .memory import DeviceAdapter, DeviceArray
from .program import DeviceProgram
from .runtime import runtime

__all__ = ["PIECES", "PIECE_BYTES", "WHOLE_BYTES", "Load", "Ring", "refuse_capture", "ring_of"]

PIECE_BYTES = 8 << 20  # long enough for PCIe's full speed
PIECES = 4  # each way: one is copied, one filled, and two are for a host that is late
WHOLE_BYTES = 64 << 20  # of what is made in a piece, which is as large then; more is copied there
_BYTES = np.dtype(np.uint8)

Fill = Callable[[Array], Any]


class Load(Protocol):
    """What goes up: how it is packed, and what converts it there."""

    nbytes: int
    program: DeviceProgram

    def pieces(self, x: Any) -> Iterator[tuple[int, int, Fill]]:
        """Where each piece begins and ends, and what fills page-locked memory with it."""

    def at(
        self, address: int, shape: tuple[int, ...], ordinal: int, owner: Any = None
    ) -> DeviceArray:
        """The bytes that went up, as an array at an address of the device."""


class Piece:
    """Page-locked memory, and the event behind the last copy from it or to it."""

    def __init__(self, ordinal: int) -> None:
        self._ordinal, self._was_used = ordinal, False
        self._memory: Array = np.empty(0, _BYTES)
        self.copied = runtime().new_event(ordinal)

    def free(self, nbytes: int) -> Array:
        """So many bytes of it, once the last copy is done."""
        self.wait()
        if nbytes > self._memory.nbytes:
            self._memory = np.empty(0, _BYTES)  # first, so that its memory can be had again
            self._memory = runtime().pinned(max(nbytes, PIECE_BYTES), self._ordinal)
        return self._memory[:nbytes]

    def record(self, stream: Any) -> None:
        """Say that a copy was put on a stream."""
        self.copied.record(stream)
        self._was_used = True

    def wait(self) -> None:
        """Wait for the last copy."""
        if self._was_used:
            self.copied.synchronize()


class Ring:
    """The pieces of one GPU. One call at a time has those of a way."""

    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal
        self._going_up, self._coming_down = threading.Lock(), threading.Lock()
        self._copies = runtime().new_stream(ordinal)
        self._start()

    def _start(self) -> None:
        self._up = deque(Piece(self._ordinal) for _ in range(PIECES))
        self._down = deque(Piece(self._ordinal) for _ in range(PIECES))
        self._read: deque[tuple[Any, Any]] = deque()  # blocks, each behind the kernel that reads it

    def send(self, load: Load, x: Any, out: DeviceArray | None, adapter: DeviceAdapter) -> Any:
        """Bring x up and put its conversion on the stream of the adapter."""
        stream = adapter.stream(self._ordinal)
        refuse_capture(stream)
        with self._going_up, runtime().on(self._ordinal):
            # Memory of the stream that writes it: others never get it while a copy is under way.
            block = runtime().empty((load.nbytes,), _BYTES, self._ordinal, self._copies)
            used = runtime().new_event(self._ordinal)
            try:
                stream.wait_event(self._fill(load, x, block.data.ptr))
                staged = load.at(block.data.ptr, x.shape, self._ordinal, block)
                return load.program(staged, out, adapter)
            finally:
                used.record(stream)
                self._read.append((used, block))
                self._let_go(1)

    def _fill(self, load: Load, x: Any, address: int) -> Any:
        """Put the copies of x on their stream; the event behind them."""
        for start, end, fill in load.pieces(x):
            self._up.rotate(-1)
            piece = self._up[0]
            host = piece.free(end - start)
            fill(host)
            runtime().copy_in(address + start, host, self._copies)
            piece.record(self._copies)
        return self._up[0].copied

    def _let_go(self, kept: int) -> None:
        """Give back all blocks but the last ones: to the stream of copies, behind their kernels."""
        while len(self._read) > kept:
            used, _ = self._read[0]
            self._copies.wait_event(used)
            del self._read[0]

    def fetch(self, made: DeviceArray, stream: Any, take: Callable[[int, int, Array], Any]) -> None:
        """Bring the bytes of a contiguous array down: `take` gets each piece of them."""
        refuse_capture(stream)
        nbytes = made.size * made.dtype.itemsize
        with self._coming_down, runtime().on(self._ordinal):
            coming: deque[tuple[Piece, int, int, Array]] = deque()
            for start in range(0, nbytes, PIECE_BYTES):
                if len(coming) == PIECES:
                    _taken(coming.popleft(), take)
                end = min(start + PIECE_BYTES, nbytes)
                self._down.rotate(-1)
                piece = self._down[0]
                host = piece.free(end - start)
                runtime().copy_out(host, made.address + start, stream)
                piece.record(stream)
                coming.append((piece, start, end, host))
            while coming:
                _taken(coming.popleft(), take)

    def clear(self) -> None:
        """Give back all memory, once the copies under way are done."""
        with self._going_up, self._coming_down, runtime().on(self._ordinal):
            for piece in (*self._up, *self._down):
                piece.wait()
            del piece  # it would keep its memory
            self._let_go(0)
            self._start()
            runtime().release(self._ordinal, self._copies)


def _taken(coming: tuple[Piece, int, int, Array], take: Callable[[int, int, Array], Any]) -> None:
    """Wait for a piece, and hand it on."""
    piece, start, end, host = coming
    piece.wait()
    take(start, end, host)


_rings: dict[Any, Ring] = {}  # by runtime and ordinal
_rings_lock = threading.Lock()


def ring_of(ordinal: int) -> Ring:
    """The ring of a GPU, made when the first array goes there or comes from there."""
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


def _clear() -> None:
    for ring in tuple(_rings.values()):
        ring.clear()


buffers.on_clear(_clear)

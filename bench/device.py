"""A GPU to run rows on: CuPy's arrays, graphs that are replayed, and its clock.

The protocol is that of the CPU; only what is timed differs:

- **Replayed.** A variant that writes into outputs which exist is captured once, over all its sets
  of buffers, as a CUDA graph; a call launches it. So no Python runs between kernels. What cannot
  be captured is called as it is, and a note says so. Variants that make their own outputs are
  never captured, for a graph would leave out what taking the memory costs.
- **Events.** A sample is the time between two events on the stream, before and behind its calls.
- **One stream** that is current for all libraries, not the default one, which cannot be captured.

The limit is a copy from one part of the device's memory to another that reads and writes, together,
as many bytes as the row does; for rows between host and device, a copy from or to pinned memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ..cuda.runtime import runtime
from .host import Array, Call
from .protocol import Variant
from .rows import Row

__all__ = ["Cuda", "open_cuda"]

_DRIVER = Path("/sys/module/nvidia/version")


def open_cuda() -> Cuda:
    """The current GPU; DeviceError without CuPy, a driver or a GPU."""
    runtime()  # raises where something is missing
    return Cuda(import_module("cupy"))


class Cuda:
    """A GPU through `cupy`, the module."""

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._before, self._behind = cupy.cuda.Event(), cupy.cuda.Event()

    def using(self) -> AbstractContextManager[Any]:
        """Makes the stream the current one."""
        stream: AbstractContextManager[Any] = self.stream
        return stream

    def about(self) -> dict[str, Any]:
        """The GPU, its memory and second-level cache, the driver and the CUDA runtime."""
        api = self.cupy.cuda.runtime
        found = api.getDeviceProperties(api.getDevice())
        gpu = {
            "name": found["name"].decode(),
            "memory_bytes": found["totalGlobalMem"],
            "l2_bytes": found["l2CacheSize"],
            "driver": _driver(),
            "driver_cuda": _version(api.driverGetVersion()),
            "runtime_cuda": _version(api.runtimeGetVersion()),
        }
        return {"gpu": gpu}

    def array(self, values: Array) -> Array:
        """Copy to the device."""
        array: Array = self.cupy.array(values)
        return array

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Take memory from CuPy's pool; a GPU has no pages to touch."""
        array: Array = self.cupy.empty(shape, dtype)
        return array

    def on_host(self, result: Any) -> Any:
        """Copy a result of CuPy or torch to the host, once all that was asked for is done."""
        if isinstance(result, self.cupy.ndarray):
            return self.cupy.asnumpy(result)
        return result.cpu() if hasattr(result, "cpu") else result

    def limits(
        self, row: Row, sources: Sequence[Sequence[Array]], outs: Sequence[Any]
    ) -> list[Call]:
        """Copies between buffers of their own, one for each set."""
        return [self._limit(row, several[0]) for several in sources]

    def _limit(self, row: Row, values: Array) -> Call:
        if row.kind in ("upload", "download"):
            there, here = self.empty((row.traffic,), np.dtype(np.uint8)), self._pinned(row.traffic)
            return partial(self._copy, *((there, here) if row.kind == "upload" else (here, there)))
        half = row.traffic // 2
        content = values.reshape(-1).view(np.uint8)  # zeros would need less power
        source = self.cupy.resize(content, half)
        return partial(self._copy, self.empty((half,), np.dtype(np.uint8)), source)

    def _pinned(self, count: int) -> Array:
        array = np.frombuffer(self.cupy.cuda.alloc_pinned_memory(count), np.uint8, count)
        array.fill(0xA5)
        return array

    def _copy(self, target: Array, source: Array) -> None:
        """Copy bytes from anywhere to anywhere, in order on the stream."""
        api = self.cupy.cuda.runtime
        addresses = _address(target), _address(source)
        api.memcpyAsync(*addresses, source.nbytes, api.memcpyDefault, self.stream.ptr)

    def variant(self, name: str, calls: Sequence[Call], lingers: float, replay: bool) -> Variant:
        """Make one call that does the work in every set of buffers; a graph, if `replay`."""
        call: Call = partial(_in_turn, calls)
        note = ""
        if replay:
            try:
                call = self._captured(calls)
            except RuntimeError as error:  # of CUDA, by whichever library
                note = f"timed without a CUDA graph, which cannot hold it ({error})"
        return Variant(name, [call], lingers, len(calls), note)

    def _captured(self, calls: Sequence[Call]) -> Call:
        calls[0]()  # compiles what it needs, which a capture may not
        self.stream.begin_capture()
        try:
            _in_turn(calls)
        except Exception:
            with suppress(RuntimeError):  # that it did not work out is known already
                self.stream.end_capture()
            raise
        return partial(_replay, self.stream.end_capture(), calls)

    def timer(self, calls: Sequence[Call]) -> float:
        """Return the seconds that the device takes for calls, waits for the host included."""
        self._before.record(self.stream)
        _in_turn(calls)
        self._behind.record(self.stream)
        self._behind.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(self._before, self._behind)) / 1e3

    def clear(self) -> None:
        """Hand idle memory back, so that no row runs out of it for another's sake."""
        self.stream.synchronize()
        self.cupy.get_default_memory_pool().free_all_blocks()
        self.cupy.get_default_pinned_memory_pool().free_all_blocks()


def _in_turn(calls: Sequence[Call]) -> None:
    for call in calls:
        call()


def _replay(graph: Any, _calls: Sequence[Call]) -> None:
    """Launch a graph. It does not hold the arrays that it works on; its calls do."""
    graph.launch()


def _address(array: Any) -> int:
    if isinstance(array, np.ndarray):
        return array.ctypes.data
    return int(array.data.ptr)


def _driver() -> str:
    """The version of the driver's kernel module, where the system shows it."""
    try:
        return _DRIVER.read_text().strip()
    except OSError:
        return "unknown"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"

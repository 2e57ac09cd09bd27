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

What is measured on a GPU: the rows of the CPU with larger batches, and what only a GPU has.

A GPU moves some TB in a second and has tens of MB of second-level cache. So every array has
256 MB or more, by a larger batch; a sample is then some tenths of a millisecond at least, and
what is left in the cache of one set of buffers is no help for the next.

The rows' work on a GPU with other libraries, each the best way that it offers.

cuTENSOR is not among them: of it, CuPy 14.2 offers contractions, reductions and sums of two and
three tensors (`cupyx.cutensor`), and no permutation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..cuda.runtime import runtime
from ..spec import as_dtype
from .host import Array, Call
from .peers import Peer, TorchPeer, factor_and_term, transposed_views
from .protocol import Variant
from .rows import Row, all_rows

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
        self._before = cupy.cuda.Event()
        self._behind = cupy.cuda.Event()

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
            there = self.empty((row.traffic,), np.dtype(np.uint8))
            here = self._pinned(row.traffic)
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


LEAST_BYTES = 256 << 20
BATCH = (256, 224, 224, 3)  # what a data loader hands over at once: 38.5 MB


def device_rows(quick: bool = False) -> list[Row]:
    """All rows for a GPU, in the order of the table. `quick` as in `all_rows`."""
    own = [*shapes()][: 2 if quick else None]
    return [*map(_for_device, all_rows(quick)), *own, _huge(), *_transfers()]


def _for_device(row: Row) -> Row:
    if row.kind == "call":
        return row
    asked = row.group in ("pairs", "fused") or row.at_least is not None
    return replace(row, sizes=_grown(row), at_least=_at_least(row) if asked else None)


def _grown(row: Row) -> tuple[int, ...]:
    """Sizes with a larger batch; of a batch of 1, or without one, the next axis is longer."""
    place = 0 if row.sizes[0] > 1 else 1
    item = min(as_dtype(dtype).itemsize for dtype in (row.dtype, row.to_dtype))
    factor = -(-LEAST_BYTES // (prod(row.sizes) * item))
    # Rows have to begin at addresses as even, or as odd, as they did.
    factor = factor | 1 if row.sizes[place] % 2 else 1 << (factor - 1).bit_length()
    return (*row.sizes[:place], factor * row.sizes[place], *row.sizes[place + 1 :])


def _at_least(row: Row) -> float:
    """The share of a device copy's speed that a row must reach."""
    if row.sizes[-1] <= 4:
        return 0.75
    return 0.90 if as_dtype(row.dtype).itemsize >= 4 else 0.80


def shapes() -> Iterator[Row]:
    """Shapes that fill tiles badly: few channels, odd images and rows, small matrices; and NHWC."""
    for channels in (8, 16, 32, 48):
        yield _shape("bhwc->bchw", (64, 112, 112, channels), "float32")
        yield _shape("bchw->bhwc", (64, 112, 112, channels), "float32")
    yield _shape("bhwc->bchw", (64, 224, 224, 8), "uint8")
    for dtype in ("float32", "int16"):
        for size, channels in ((7, 2048), (14, 1024)):
            yield _shape("bhwc->bchw", (256, size, size, channels), dtype)
            yield _shape("bchw->bhwc", (256, size, size, channels), dtype)
    for size in (225, 299):
        yield _shape("bhwc->bchw", (256, size, size, 3), "uint8")
        yield _shape("bchw->bhwc", (256, size, size, 3), "uint8")
        yield _shape("bhwc->bchw", (256, size, size, 3), "uint8", "float32")
    for dtype in ("uint8", "int16"):
        yield _shape("bhwc->bchw", (64, 225, 225, 64), dtype)
        yield _shape("bchw->bhwc", (64, 225, 225, 64), dtype)
    yield _shape("bhw->bwh", (64, 1025, 705), "uint8")
    for to_dtype in ("float32", "bfloat16"):
        yield _shape("bhwc->bhwc", (256, 224, 224, 3), "uint8", to_dtype)
    for size in (4, 8, 16, 32):
        yield _shape("bhw->bwh", (1 << 20, size, size), "float32")


def _shape(pattern: str, sizes: tuple[int, ...], dtype: str, to_dtype: str = "") -> Row:
    source, target = pattern.split("->")
    kind = "fused" if to_dtype else "move"
    letters = "bhwc"[: len(source)]
    row = Row("shapes", kind, (source,), target, letters, sizes, dtype, to_dtype or dtype)
    return replace(row, sizes=_grown(row), at_least=_at_least(row))


def _huge() -> Row:
    """More elements than 32 bits with a sign can count."""
    sizes = (14_400, 224, 224, 3)
    return Row("huge", "move", ("bhwc",), "bchw", "bhwc", sizes, "uint8", "uint8", 0.75)


def _transfers() -> Iterator[Row]:
    """Batches on their way in, normalised on the GPU, and on their way out."""
    names = ("bhwc",), "bchw", "bhwc"
    yield Row("host to device", "upload", *names, BATCH, "uint8", "float32")
    names = ("bchw",), "bhwc", "bhwc"
    yield Row("device to host", "download", *names, BATCH, "uint8", "uint8")


def device_peers(device: Cuda) -> list[Peer]:
    """CuPy, and torch where it is installed and knows the GPU."""
    peers: list[Peer] = [CuPy(device.cupy)]
    with suppress(ImportError):
        peers.append(CudaTorch(device))
    return peers


class CuPy:
    """`copyto` of a transposed view; formulas and sums in one kernel each."""

    name = "CuPy"
    lingers = 0.0

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self.version = cupy.__version__

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        """One kernel that writes into `out`."""
        views = transposed_views(row, sources)
        if row.is_exact:
            return partial(self._cupy.copyto, out, views[0])
        return partial(self._kernel(row), *views, *self._constants(row), out)

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        """The same into new memory; nothing that begins or ends on the host."""
        if row.kind in ("upload", "download"):
            return None
        views = transposed_views(row, sources)
        if row.is_exact:
            return partial(self._cupy.ascontiguousarray, views[0])
        into = partial(self._kernel(row), *views, *self._constants(row))
        shape = row.shape(row.target)
        dtype = as_dtype(row.to_dtype)
        return lambda: into(self._cupy.empty(shape, dtype))

    def _constants(self, row: Row) -> list[Array]:
        return [self._cupy.array(x) for x in factor_and_term(row)] if row.formula else []

    def _kernel(self, row: Row) -> Callable[..., Any]:
        """A kernel over all elements; it computes in float32, as layoutkit does."""
        make: Callable[..., Callable[..., Any]] = self._cupy.ElementwiseKernel
        if row.formula:
            return make("T x, float32 f, float32 t", "U y", "y = float(x) * f + t", "formula")
        names = [f"x{number}" for number in range(len(row.sources))]
        total = " + ".join(f"float({name})" for name in names)
        return make(", ".join(f"T {name}" for name in names), "U y", f"y = {total}", "total")


class CudaTorch(TorchPeer):
    """As on the CPU, and what comes from the host through pinned memory. Eager."""

    lingers = 0.0

    def __init__(self, device: Cuda) -> None:
        import torch

        if not torch.cuda.is_available():
            raise ImportError("this PyTorch was built without CUDA, or finds no GPU")
        self._torch = torch
        self.version = torch.__version__
        torch.cuda.set_stream(torch.cuda.ExternalStream(device.stream.ptr))

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        """The work with new memory, or from host to device or back."""
        if row.kind == "upload":
            return self._upload(row, self._torch.from_numpy(sources[0]))
        if row.kind == "download":
            (view,) = self._views(row, sources)
            return lambda: view.contiguous().cpu()
        return super().fresh(row, sources)

    def _upload(self, row: Row, x: Any) -> Call:
        factor, term = self._constants(row)
        order = row.order(row.sources[0])

        def call() -> Any:
            there = x.pin_memory().to("cuda", non_blocking=True).permute(order)
            return (there.float() * factor + term).contiguous()

        return call

    def _tensor(self, array: Array) -> Any:
        return self._torch.from_dlpack(array)

    def _constants(self, row: Row) -> tuple[Any, Any]:
        factor, term = super()._constants(row)
        return factor.cuda(), term.cuda()

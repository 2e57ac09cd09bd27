"""Rows, limit and peers on a GPU: CuPy arrays, CUDA graphs, and timing by events.

The protocol is the same as on the CPU; only the timing of a call differs:

- **Replayed.** A variant that writes into existing outputs is captured once, over all its sets of
  buffers, as a CUDA graph; a call launches the graph. So no Python code runs between kernels. A
  variant that cannot be captured is called directly, with a note. Variants that allocate their
  outputs are never captured, because a graph would omit the cost of the allocation.
- **Events.** A sample is the time between two events on the stream, before and after its calls.
- **One stream** is used by all libraries; the default stream cannot be captured.

The limit is a copy within device memory that reads and writes, together, as many bytes as the row;
for rows between host and device, it is a copy from or to pinned memory. It is not replayed, and the
bytes of a large copy are rounded up to 8 KiB: on an H100, copies of other sizes in a graph reached
2.4 TB/s, and all copies outside of graphs 3.0 TB/s (2026-11-26).

The rows are the CPU's with larger batches, and some rows for a GPU only. A GPU moves several
TB per second and has tens of MB of second-level cache. So every array has 256 MB or more: a sample
then takes at least a few tenths of a millisecond, and a set of buffers does not find data in the
cache that the previous set left there.

The peers are CuPy and torch, each in the fastest way that it offers. cuTENSOR is not included: CuPy
14.2 offers its contractions, reductions and sums of two and three tensors (`cupyx.cutensor`), but
not its permutation.
"""

from __future__ import annotations

import subprocess
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
from .host import Array, Call, Device
from .peers import Peer, TorchPeer, factor_and_term, transposed_views
from .protocol import Variant
from .rows import Row, all_rows

_DRIVER = Path("/sys/module/nvidia/version")


def open_cuda() -> Cuda:
    """Return the current GPU; raise DeviceError without CuPy, a driver or a GPU."""
    runtime()  # raises DeviceError if something is missing
    return Cuda(import_module("cupy"))


class Cuda(Device):
    """A GPU used through the module `cupy`."""

    compared_bytes = 64 << 20

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._before = cupy.cuda.Event()
        self._after = cupy.cuda.Event()

    def using(self) -> AbstractContextManager[Any]:
        return self.stream

    def about(self) -> dict[str, Any]:
        api = self.cupy.cuda.runtime
        properties = api.getDeviceProperties(api.getDevice())
        gpu = {
            "name": properties["name"].decode(),
            "memory_bytes": properties["totalGlobalMem"],
            "l2_bytes": properties["l2CacheSize"],
            "driver": _driver_version(),
            "driver_cuda": _format_cuda_version(api.driverGetVersion()),
            "runtime_cuda": _format_cuda_version(api.runtimeGetVersion()),
            "conditions": query_conditions(),
        }
        return {"gpu": gpu}

    def array(self, values: Array) -> Array:
        return self.cupy.array(values)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Allocate memory from CuPy's pool; a GPU has no pages to touch."""
        return self.cupy.empty(shape, dtype)

    def on_host(self, result: Any) -> Any:
        if isinstance(result, self.cupy.ndarray):
            return self.cupy.asnumpy(result)
        return result.cpu() if hasattr(result, "cpu") else result

    def limits(
        self, row: Row, sources: Sequence[Sequence[Array]], outs: Sequence[Any]
    ) -> list[Call]:
        return [self._limit(row, values[0]) for values in sources]

    def _limit(self, row: Row, values: Array) -> Call:
        if row.kind in ("upload", "download"):
            device_buffer = self.empty((row.traffic,), np.dtype(np.uint8))
            host_buffer = self._pinned(row.traffic)
            if row.kind == "upload":
                return partial(self.copy, device_buffer, host_buffer)
            return partial(self.copy, host_buffer, device_buffer)
        half = row.traffic // 2
        if half >= LARGE_COPY:
            half = -(-half // COPY_UNIT) * COPY_UNIT
        content = values.reshape(-1).view(np.uint8)  # random bytes: zeros would need less power
        source = self.cupy.resize(content, half)
        return partial(self.copy, self.empty((half,), np.dtype(np.uint8)), source)

    def _pinned(self, count: int) -> Array:
        array = np.frombuffer(self.cupy.cuda.alloc_pinned_memory(count), np.uint8, count)
        array.fill(0xA5)
        return array

    def copy(self, target: Array, source: Array) -> None:
        """Copy bytes between arrays on the host or the GPU, in stream order."""
        api = self.cupy.cuda.runtime
        api.memcpyAsync(
            _address(target), _address(source), source.nbytes, api.memcpyDefault, self.stream.ptr
        )

    def variant(
        self, name: str, calls: Sequence[Call], spin_seconds: float, replay: bool
    ) -> Variant:
        """Return a variant of one call for all sets of buffers; `replay` captures it as a graph."""
        call: Call = partial(_run_all, calls)
        note = ""
        if replay:
            try:
                call = self._capture(calls)
            except RuntimeError as error:  # a CUDA error of any library
                note = f"timed without a CUDA graph, which cannot capture it ({error})"
        return Variant(name, [call], spin_seconds, len(calls), note)

    def _capture(self, calls: Sequence[Call]) -> Call:
        calls[0]()  # compiles kernels, which is not allowed during capture
        self.stream.begin_capture()
        try:
            _run_all(calls)
        except Exception:
            with suppress(RuntimeError):  # the capture has already failed
                self.stream.end_capture()
            raise
        return partial(_replay, self.stream.end_capture(), calls)

    def timer(self, calls: Sequence[Call]) -> float:
        """Return the seconds that the device takes for the calls, including waits for the host."""
        self._before.record(self.stream)
        _run_all(calls)
        self._after.record(self.stream)
        self._after.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(self._before, self._after)) / 1e3

    def clear(self) -> None:
        """Release idle memory, so that the next row does not run out of it."""
        self.stream.synchronize()
        self.cupy.get_default_memory_pool().free_all_blocks()
        self.cupy.get_default_pinned_memory_pool().free_all_blocks()


def _run_all(calls: Sequence[Call]) -> None:
    for call in calls:
        call()


def _replay(graph: Any, _calls: Sequence[Call]) -> None:
    """Launch a graph; `_calls` keeps the arrays that the graph uses alive."""
    graph.launch()


def _address(array: Any) -> int:
    if isinstance(array, np.ndarray):
        return array.ctypes.data
    return int(array.data.ptr)


_CONDITIONS = (
    "clocks.sm", "clocks.mem", "clocks.max.sm", "power.draw", "power.limit", "temperature.gpu",
    "ecc.mode.current", "mig.mode.current", "clocks_throttle_reasons.active",
)  # fmt: skip


def query_conditions() -> str:
    """Return clocks, power, ECC and MIG mode of all GPUs from nvidia-smi, or its error."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_CONDITIONS)}", "--format=csv"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi: {error}"
    return (result.stdout or result.stderr).strip()


def _driver_version() -> str:
    """Return the version of the driver's kernel module, or "unknown"."""
    try:
        return _DRIVER.read_text().strip()
    except OSError:
        return "unknown"


def _format_cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


COPY_UNIT, LARGE_COPY = 8 << 10, 1 << 20  # bytes: large copies of other sizes are slower
MIN_ARRAY_BYTES = 256 << 20
BATCH = (256, 224, 224, 3)  # a batch of a data loader: 38.5 MB


def device_rows(quick: bool = False) -> list[Row]:
    """Return all rows for a GPU, in the order of the table; `quick` returns fewer."""
    own_rows = [*shape_rows()][: 2 if quick else None]
    with_options = [*option_rows()]
    if quick:  # the first one of each group
        with_options = [*{row.group: row for row in reversed(with_options)}.values()]
    own_rows += with_options
    return [*map(adapt_to_device, all_rows(quick)), *own_rows, _huge_row(), *_transfer_rows()]


def adapt_to_device(row: Row) -> Row:
    """Return a row of the CPU with arrays of 256 MB or more, and with the goal of a GPU."""
    if row.kind == "call":
        return row
    has_goal = row.group in ("pairs", "fused") or row.at_least is not None
    return replace(row, sizes=_enlarged_sizes(row), at_least=_at_least(row) if has_goal else None)


def _enlarged_sizes(row: Row) -> tuple[int, ...]:
    """Return the sizes of a row with a larger first axis, or second if the first has size 1."""
    axis = 0 if row.sizes[0] > 1 else 1
    itemsize = min(as_dtype(dtype).itemsize for dtype in (row.dtype, row.to_dtype))
    factor = -(-MIN_ARRAY_BYTES // (prod(row.sizes) * itemsize))
    # Keep the alignment of rows: an odd size stays odd, others are multiplied by a power of two.
    factor = factor | 1 if row.sizes[axis] % 2 else 1 << (factor - 1).bit_length()
    return (*row.sizes[:axis], factor * row.sizes[axis], *row.sizes[axis + 1 :])


def _at_least(row: Row) -> float:
    """Return the share of a device copy's speed that a row must reach."""
    if row.sizes[-1] <= 4:
        return 0.75
    return 0.90 if as_dtype(row.dtype).itemsize >= 4 else 0.80


def shape_rows() -> Iterator[Row]:
    """Yield rows that fill tiles badly (few channels, odd sizes, small matrices) or keep NHWC."""
    for channels in (8, 16, 32, 48):
        yield _shape_row("bhwc->bchw", (64, 112, 112, channels), "float32")
        yield _shape_row("bchw->bhwc", (64, 112, 112, channels), "float32")
    yield _shape_row("bhwc->bchw", (64, 224, 224, 8), "uint8")
    for dtype in ("float32", "int16"):
        for size, channels in ((7, 2048), (14, 1024)):
            yield _shape_row("bhwc->bchw", (256, size, size, channels), dtype)
            yield _shape_row("bchw->bhwc", (256, size, size, channels), dtype)
    for size in (225, 299):
        yield _shape_row("bhwc->bchw", (256, size, size, 3), "uint8")
        yield _shape_row("bchw->bhwc", (256, size, size, 3), "uint8")
        yield _shape_row("bhwc->bchw", (256, size, size, 3), "uint8", "float32")
    for dtype in ("uint8", "int16"):
        yield _shape_row("bhwc->bchw", (64, 225, 225, 64), dtype)
        yield _shape_row("bchw->bhwc", (64, 225, 225, 64), dtype)
    yield _shape_row("bhw->bwh", (64, 1025, 705), "uint8")
    for to_dtype in ("float32", "bfloat16"):
        yield _shape_row("bhwc->bhwc", (256, 224, 224, 3), "uint8", to_dtype)
    for size in (4, 8, 16, 32):
        yield _shape_row("bhw->bwh", (1 << 20, size, size), "float32")


WINDOW = ("h", 224), ("w", 224)


def option_rows() -> Iterator[Row]:
    """Yield rows of windows, resized samples, padding, channels and bounds."""
    photos = 512, 375, 500, 3
    for target in ("bchw", "chwb"):
        for to_dtype in ("float32", "bfloat16"):
            yield _option_row("collate", target, photos, to_dtype, *WINDOW)
            yield _option_row("collate", target, photos, to_dtype, *WINDOW, ("resize", "bilinear"))
    bilinear, bicubic = ("resize", "bilinear"), ("resize", "bicubic")
    yield _option_row("collate", "bchw", (64, 1080, 1920, 3), "float32", *WINDOW, bilinear)
    larger = ("h", 384), ("w", 384)
    yield _option_row("collate", "bchw", (2048, 224, 224, 3), "float32", *larger, bicubic)
    images = 512, 480, 640, 3
    for options in (("pad_to", (("h", 640),)), ("channels", (2, 1, 0)), ("clip", (16, 235))):
        yield _option_row("options", "bchw", images, "float32", options)
    yield _option_row("options", "bhwc", images, "uint8", ("channels", (2, 1, 0)))
    for target, to_dtype, order in (
        ("bchw", "float32", (0, 1, 2)),
        ("bchw", "float32", (2, 0, 1)),
        ("bhwc", "uint8", (0, 1, 2)),
        ("bhwc", "uint8", (2, 1, 0, 3)),
    ):
        yield _option_row("options", target, (*images[:3], 4), to_dtype, ("channels", order))


def _option_row(
    kind: str, target: str, sizes: tuple[int, ...], to_dtype: str, *options: tuple[str, Any]
) -> Row:
    group = next((name for name, _ in options if name in _OPTION_GROUPS), kind)
    group = _OPTION_GROUPS.get(group, group)
    return Row(group, kind, ("bhwc",), target, "bhwc", sizes, "uint8", to_dtype, options=options)


_OPTION_GROUPS = {"resize": "resize", "pad_to": "pad", "channels": "channels", "clip": "clip"}


def _shape_row(pattern: str, sizes: tuple[int, ...], dtype: str, to_dtype: str = "") -> Row:
    source, target = pattern.split("->")
    kind = "fused" if to_dtype else "move"
    letters = "bhwc"[: len(source)]
    row = Row("shapes", kind, (source,), target, letters, sizes, dtype, to_dtype or dtype)
    return replace(row, sizes=_enlarged_sizes(row), at_least=_at_least(row))


def _huge_row() -> Row:
    """Return a row with more elements than a signed 32-bit integer can count."""
    sizes = (14_400, 224, 224, 3)
    return Row("huge", "move", ("bhwc",), "bchw", "bhwc", sizes, "uint8", "uint8", 0.75)


def _transfer_rows() -> Iterator[Row]:
    """Yield a row that uploads and normalizes a batch, and a row that downloads one."""
    layouts = ("bhwc",), "bchw", "bhwc"
    yield Row("host to device", "upload", *layouts, BATCH, "uint8", "float32")
    layouts = ("bchw",), "bhwc", "bhwc"
    yield Row("device to host", "download", *layouts, BATCH, "uint8", "uint8")


def device_peers(device: Cuda) -> list[Peer]:
    """Return CuPy, and torch if it is installed with CUDA."""
    peers: list[Peer] = [CuPy(device.cupy)]
    with suppress(ImportError):
        peers.append(CudaTorch(device))
    return peers


class CuPy(Peer):
    """The CuPy peer: `copyto` of a transposed view, and one kernel for each formula or sum."""

    name = "CuPy"

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self.version = cupy.__version__

    def into(self, row: Row, sources: Sequence[Array], out: Array) -> Call | None:
        views = transposed_views(row, sources)
        if row.is_exact:
            return partial(self._cupy.copyto, out, views[0])
        return partial(self._kernel(row), *views, *self._constants(row), out)

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
        """Return a call that allocates its result; None for rows from or to the host."""
        if row.kind in ("upload", "download"):
            return None
        views = transposed_views(row, sources)
        if row.is_exact:
            return partial(self._cupy.ascontiguousarray, views[0])
        kernel = partial(self._kernel(row), *views, *self._constants(row))
        shape = row.shape(row.target)
        dtype = as_dtype(row.to_dtype)
        return lambda: kernel(self._cupy.empty(shape, dtype))

    def _constants(self, row: Row) -> list[Array]:
        return [self._cupy.array(x) for x in factor_and_term(row)] if row.formula else []

    def _kernel(self, row: Row) -> Callable[..., Any]:
        """Return a kernel over all elements; it computes in float32, as layoutkit does."""
        make_kernel: Callable[..., Callable[..., Any]] = self._cupy.ElementwiseKernel
        if row.formula:
            return make_kernel(
                "T x, float32 f, float32 t", "U y", "y = float(x) * f + t", "formula"
            )
        names = [f"x{number}" for number in range(len(row.sources))]
        total = " + ".join(f"float({name})" for name in names)
        return make_kernel(", ".join(f"T {name}" for name in names), "U y", f"y = {total}", "total")


class CudaTorch(TorchPeer):
    """The torch peer on the GPU, eager, with host arrays copied through pinned memory."""

    spin_seconds = 0.0

    def __init__(self, device: Cuda) -> None:
        import torch

        if not torch.cuda.is_available():
            raise ImportError("this PyTorch was built without CUDA, or finds no GPU")
        self._torch = torch
        self.version = torch.__version__
        torch.cuda.set_stream(torch.cuda.ExternalStream(device.stream.ptr))

    def fresh(self, row: Row, sources: Sequence[Array]) -> Call | None:
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
            on_device = x.pin_memory().to("cuda", non_blocking=True).permute(order)
            return (on_device.float() * factor + term).contiguous()

        return call

    def _tensor(self, array: Array) -> Any:
        return self._torch.from_dlpack(array)

    def _constants(self, row: Row) -> tuple[Any, Any]:
        factor, term = super()._constants(row)
        return factor.cuda(), term.cuda()

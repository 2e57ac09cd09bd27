"""Copies between host and device: `device="cuda"` for CPU arrays, `device="cpu"` for GPU arrays.

**Host to device.** Bytes are copied unconverted (uint8 stays uint8) and converted on the device.
The caller's array is not read any more after the call returns.

**Device to host.** The result is computed on the device and copied to pool memory, or directly to
the caller's output if that has the result's layout. The call waits for it.

Bytes go through page-locked staging buffers, so copies overlap with kernels and CPU work. Each GPU
has `PIECES` staging buffers per direction, whatever the size of arrays. To the device, the host
fills a staging buffer, a separate copy stream copies it to a device block, and the caller's stream
converts the block after its last copy:

    host               fill a | fill b | fill c |
    copy stream                 copy a | copy b | copy c |
    caller's stream                                        kernel of a, b and c

The host waits only until a staging buffer's last copy (`copied`) is done before it fills it again.
The copies of an array start when the kernel before the last one has read its block, whose memory
they reuse, so they overlap with the last kernel.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from math import prod
from typing import Any, Protocol

import numpy as np

from .. import buffers
from .._utils.cache import cache_put
from ..cpu.program import Program
from ..cpu.program import supports_float16 as has_half_here
from ..errors import ArgumentError, DeviceError
from ..layout.parsing import identity_pattern
from ..memory import Array, contiguous_strides, layout_key
from ..options import parse_options
from ..planning.epilogue import is_supported_dtype
from ..planning.plan import Plan, make_single_plan
from ..spec import CPU, DType, as_dtype, device_ordinal
from .memory import DeviceAdapter, DeviceArray
from .program import DevicePrograms, find_aligned_output, supports_float16
from .runtime import runtime

STAGING_BYTES = 8 << 20  # long enough for PCIe's full speed
PIECES = 4  # per direction: one is copied, one is filled, and two absorb host delays
WHOLE_BYTES = 64 << 20  # a larger deferred array is not written directly to a staging buffer

Fill = Callable[[Array], Any]
Conversion = Callable[[DeviceArray, DeviceArray | None, DeviceAdapter], Any]


class Load(Protocol):
    """The packing of a host array for the copy to a device, and its conversion there."""

    nbytes: int

    @property
    def program(self) -> Conversion:
        """The conversion of the copied bytes."""

    def pieces(self, x: Any) -> Iterator[tuple[int, int, Fill]]:
        """Yield (start, end, fill) per piece; `fill` writes its bytes to a staging buffer."""

    def at(
        self, address: int, shape: tuple[int, ...], ordinal: int, owner: Any = None
    ) -> DeviceArray:
        """Return the copied bytes at a device address as a device array."""


class StagingBuffer:
    """A page-locked staging buffer, and the event of the last copy from it or to it."""

    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal
        self._is_recorded = False
        self._memory: Array = np.empty(0, _BYTES)
        self.copied = runtime().make_event(ordinal)

    def free(self, nbytes: int) -> Array:
        """Wait for the last copy, and return `nbytes` bytes of the buffer."""
        self.wait()
        if nbytes > self._memory.nbytes:
            self._memory = np.empty(0, _BYTES)  # frees the memory first, so that it can be reused
            self._memory = runtime().pinned(max(nbytes, STAGING_BYTES), self._ordinal)
        return self._memory[:nbytes]

    def record(self, stream: Any) -> None:
        """Record that a copy was put on a stream."""
        self.copied.record(stream)
        self._is_recorded = True

    def wait(self) -> None:
        """Wait for the last copy."""
        if self._is_recorded:
            self.copied.synchronize()


class PinnedStaging:
    """The staging buffers of one GPU. Each direction is used by one call at a time."""

    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal
        self._upload_lock = threading.Lock()
        self._download_lock = threading.Lock()
        self.copies = runtime().new_stream(ordinal)
        self._start()

    def _start(self) -> None:
        self._up = deque(StagingBuffer(self._ordinal) for _ in range(PIECES))
        self._down = deque(StagingBuffer(self._ordinal) for _ in range(PIECES))
        self._read: deque[tuple[Any, Any]] = deque()  # (event of the kernel, block)

    def send(self, load: Load, x: Any, out: DeviceArray | None, adapter: DeviceAdapter) -> Any:
        """Copy x to the device and put its conversion on the stream of the adapter."""
        stream = adapter.stream(self._ordinal)
        refuse_capture(stream)
        with self._upload_lock, runtime().on(self._ordinal):
            # Pool memory of the copy stream: no other stream gets it while a copy is pending.
            block = runtime().empty((load.nbytes,), _BYTES, self._ordinal, self.copies)
            used = runtime().make_event(self._ordinal)
            try:
                stream.wait_event(self._fill(load, x, block.data.ptr))
                staged = load.at(block.data.ptr, x.shape, self._ordinal, block)
                return load.program(staged, out, adapter)
            finally:
                used.record(stream)
                self._read.append((used, block))
                self._release_blocks(1)

    def _fill(self, load: Load, x: Any, address: int) -> Any:
        """Put the copies of x on the copy stream, and return the event of the last one."""
        for start, end, fill in load.pieces(x):
            self._up.rotate(-1)
            piece = self._up[0]
            host = piece.free(end - start)
            fill(host)
            runtime().copy_in(address + start, host, self.copies)
            piece.record(self.copies)
        return self._up[0].copied

    def _release_blocks(self, keep: int) -> None:
        """Free all blocks but the last `keep`, for reuse by the copy stream after their kernels."""
        while len(self._read) > keep:
            used, _ = self._read[0]
            self.copies.wait_event(used)
            del self._read[0]

    def fetch(
        self, array: DeviceArray, stream: Any, take: Callable[[int, int, Array], Any]
    ) -> None:
        """Copy a contiguous device array to the host; `take` is called with each piece."""
        refuse_capture(stream)
        nbytes = array.size * array.dtype.itemsize
        with self._download_lock, runtime().on(self._ordinal):
            pending: deque[tuple[StagingBuffer, int, int, Array]] = deque()

            def take_first() -> None:
                piece, start, end, host = pending.popleft()
                piece.wait()
                take(start, end, host)

            for start in range(0, nbytes, STAGING_BYTES):
                if len(pending) == PIECES:
                    take_first()
                end = min(start + STAGING_BYTES, nbytes)
                self._down.rotate(-1)
                piece = self._down[0]
                host = piece.free(end - start)
                runtime().copy_out(host, array.address + start, stream)
                piece.record(stream)
                pending.append((piece, start, end, host))
            while pending:
                take_first()

    def clear(self) -> None:
        """Free all memory after the pending copies are done."""
        with self._upload_lock, self._download_lock, runtime().on(self._ordinal):
            for piece in (*self._up, *self._down):
                piece.wait()
            del piece  # the variable would keep its memory alive
            self._release_blocks(0)
            self._start()
            runtime().release(self._ordinal, self.copies)


staging_by_gpu: dict[Any, PinnedStaging] = {}  # by runtime and ordinal
_staging_lock = threading.Lock()


def find_staging(ordinal: int) -> PinnedStaging:
    """Return the staging buffers of a GPU, created for its first transfer."""
    key = runtime(), ordinal
    with _staging_lock:
        if key not in staging_by_gpu:
            staging_by_gpu[key] = PinnedStaging(ordinal)
        return staging_by_gpu[key]


def refuse_capture(stream: Any) -> None:
    """Raise DeviceError if a CUDA graph is being captured on a stream."""
    if runtime().is_capturing(stream):
        raise DeviceError(
            "an array cannot be copied between the CPU and a GPU while a CUDA graph is captured; "
            "copy it before, and capture only the conversion on the device"
        )


def _clear() -> None:
    for staging in tuple(staging_by_gpu.values()):
        staging.clear()


buffers.add_clear_hook(_clear)


_BYTES = np.dtype(np.uint8)


# ---- host to device ----------------------------------------------------------------------


class DeferredArray:
    """A deferred contiguous array: `make(out)` writes it once its destination is known."""

    def __init__(self, shape: tuple[int, ...], dtype: DType, make: Callable[[Array], Any]) -> None:
        self.shape = shape
        self.dtype = dtype
        self.make = make
        self.strides = contiguous_strides(shape, dtype)
        self.size = prod(shape)

    def to_numpy(self) -> Array:
        """Return the array in pool memory, for a conversion on the CPU."""
        out: Array = buffers.empty(self.shape, self.dtype)
        self.make(out)
        return out


def upload(
    programs: DevicePrograms,
    x: Array | DeferredArray,
    out: DeviceArray | None,
    adapter: DeviceAdapter,
) -> Any:
    """Convert `x` to another device, and return the library's array (of `out` if given)."""
    ordinal = device_ordinal(programs.options.device or CPU)
    if out is not None and not out.writeable:
        raise ArgumentError("out is read-only; give a writeable array")
    plan = _make_host_to_device_plan(programs, x, out)
    result = plan.plan.target
    adapter.check(result.dtype)
    fits_buffer = 0 < plan.nbytes <= WHOLE_BYTES and plan.transfer_dtype == x.dtype
    if isinstance(x, DeferredArray) and not fits_buffer:
        x = x.to_numpy()
    if x.size == 0:
        return (out or adapter.empty(result.shape, result.dtype, ordinal)).owner
    with runtime().on(ordinal), find_aligned_output(out, adapter) as target:
        plan = _make_host_to_device_plan(programs, x, target)
        owner = find_staging(ordinal).send(plan, x, target, adapter)
    return owner if out is None else out.owner


class HostToDevicePlan:
    """The cached plan to copy and convert arrays of one layout to one GPU."""

    def __init__(
        self, programs: DevicePrograms, x: Array | DeferredArray, out: DeviceArray | None
    ) -> None:
        options = programs.options
        source = x.shape, x.strides, x.dtype, CPU
        self.plan = make_single_plan(options, *source, out, supports_float16)
        target = self.plan.target
        self.transfer_dtype = _choose_transfer_dtype(x.dtype, self.plan)
        self.order = _find_dense_order(x) if self.transfer_dtype == x.dtype else None
        self.nbytes = x.size * self.transfer_dtype.itemsize
        self.strides = (
            contiguous_strides(x.shape, self.transfer_dtype) if self.order is None else x.strides
        )
        moved = self.plan.formula is None and self.transfer_dtype == target.dtype
        self._casting = options.casting if moved else "unsafe"
        self._packers: dict[tuple[int, ...], Program] = {}  # by the shape of a piece
        staged = self.at(0, x.shape, device_ordinal(target.device))
        self.program = programs.find_same_device_programs(target.dtype, copy=True).find(staged, out)

    def at(
        self, address: int, shape: tuple[int, ...], ordinal: int, owner: Any = None
    ) -> DeviceArray:
        """Return the copied bytes at a device address as a device array."""
        return DeviceArray(address, shape, self.strides, self.transfer_dtype, ordinal, owner)

    def pieces(self, x: Array | DeferredArray) -> Iterator[tuple[int, int, Fill]]:
        """Yield (start, end, fill) per piece; `fill` writes its bytes to a staging buffer."""
        if isinstance(x, DeferredArray):
            yield 0, self.nbytes, partial(self._write_deferred, x)
            return
        if self.order is not None:
            flat = x.transpose(self.order).reshape(-1).view(_BYTES)
            for start in range(0, self.nbytes, STAGING_BYTES):
                piece = flat[start : start + STAGING_BYTES]
                fill = partial(_copy_program(piece.nbytes), piece, piece)
                yield start, start + piece.nbytes, fill
            return
        start = 0
        for index in _split_boxes(x.shape, self.transfer_dtype.itemsize):
            box = x[index]
            end = start + box.size * self.transfer_dtype.itemsize
            yield start, end, partial(self._pack, box)
            start = end

    def _write_deferred(self, x: DeferredArray, host: Array) -> None:
        """Write a deferred array directly to a staging buffer, which saves a copy."""
        x.make(host.view(self.transfer_dtype).reshape(x.shape))

    def _pack(self, box: Array, host: Array) -> None:
        """Write a part of x contiguously, in the transfer dtype."""
        write = self._packers.get(box.shape)
        if write is None:
            write = _cast_program(
                box.shape, box.strides, box.dtype, self.transfer_dtype, self._casting
            )
            self._packers[box.shape] = write
        write(box, box, host.view(self.transfer_dtype).reshape(box.shape))


def _split_boxes(shape: tuple[int, ...], item: int) -> Iterator[tuple[Any, ...]]:
    """Yield the indices of consecutive parts of an array, each of at most one piece."""
    axis = 0
    inner = prod(shape[1:])
    while axis + 1 < len(shape) and inner * item > STAGING_BYTES:
        axis += 1
        inner //= shape[axis]
    if not shape:
        yield (...,)
        return
    step = max(1, STAGING_BYTES // (inner * item))
    for outer in np.ndindex(shape[:axis]):
        for begin in range(0, shape[axis], step):
            yield (*outer, slice(begin, begin + step), ...)


def _make_host_to_device_plan(
    programs: DevicePrograms, x: Array | DeferredArray, out: DeviceArray | None
) -> HostToDevicePlan:
    key = ("up", *layout_key(x, out))
    plan: HostToDevicePlan | None = programs.others.get(key)
    return plan or cache_put(programs.others, key, HostToDevicePlan(programs, x, out))


def _cast_program(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: DType,
    target: DType | None,
    casting: str,
    out: Array | None = None,
) -> Program:
    """Return a program that copies and casts arrays of one layout, to one like `out` if given."""
    options = parse_options(identity_pattern(len(shape)), dtype=target, casting=casting, copy=True)
    return Program(make_single_plan(options, shape, strides, dtype, CPU, out, has_half_here))


@lru_cache(maxsize=64)
def _copy_program(nbytes: int) -> Program:
    return _cast_program((nbytes,), (1,), _BYTES, None, "same_kind")


def _choose_transfer_dtype(dtype: DType, plan: Plan) -> DType:
    """Return the transfer dtype: x's in native byte order, unless only the CPU can cast it."""
    native = as_dtype(dtype)
    target = plan.target.dtype
    if dtype.fields is not None or native == target or is_supported_dtype(native, supports_float16):
        return native
    if native.kind == "c" and native.itemsize <= 16:
        return native
    return target if plan.formula is None else plan.formula.computed_dtype(native, target)


def _find_dense_order(x: Array | DeferredArray) -> tuple[int, ...] | None:
    """Return the permutation of axes for which x is contiguous, or None."""
    if isinstance(x, DeferredArray):
        return tuple(range(len(x.shape)))
    order = tuple(
        sorted(range(x.ndim), key=lambda axis: -x.strides[axis] if x.shape[axis] > 1 else 0)
    )
    return order if x.transpose(order).flags.c_contiguous else None


# ---- device to host ----------------------------------------------------------------------


class DeviceToHostPlan:
    """The cached plan to convert arrays of one layout on a GPU and copy them to the CPU."""

    def __init__(self, programs: DevicePrograms, array: DeviceArray, out: Array | None) -> None:
        target = make_single_plan(programs.options, *array.plan_args, out, supports_float16).target
        self.programs = programs.find_same_device_programs(target.dtype, copy=None)
        self.write: Program | None = None  # if out does not have the result's layout
        plain = contiguous_strides(target.shape, target.dtype)
        if out is not None and not (out.flags.c_contiguous and out.dtype == target.dtype):
            self.write = _cast_program(target.shape, plain, target.dtype, None, "same_kind", out)


def download(
    programs: DevicePrograms, array: DeviceArray, out: Array | None, adapter: DeviceAdapter
) -> Array:
    """Convert an array of a GPU to the CPU, and return the NumPy array, `out` if given."""
    key = ("down", *layout_key(array, out))
    plan: DeviceToHostPlan | None = programs.others.get(key)
    if plan is None:
        plan = cache_put(programs.others, key, DeviceToHostPlan(programs, array, out))
    if out is not None and not out.flags.writeable:
        raise ArgumentError("out is read-only; give a writeable array")
    result = adapter.device_array_of(plan.programs.run(array, None, adapter))
    if plan.write is None:
        return _copy_to_host(result, out, adapter)
    host = _copy_to_host(result, None, adapter)
    plan.write(host, host, out)
    return out  # type: ignore[return-value]  # `write` implies `out`


# ---- copies without a conversion ---------------------------------------------------------


def to_host(array: DeviceArray, adapter: DeviceAdapter) -> Array:
    """Return a NumPy copy of an array on a GPU, in its own layout and dtype."""
    copy = find_identity_programs(len(array.shape), None).run(array, None, adapter)
    return _copy_to_host(adapter.device_array_of(copy), None, adapter)


def to_device(x: Array, device: str, adapter: DeviceAdapter) -> Any:
    """Return a copy of `x` on a GPU, as the library's array."""
    return upload(find_identity_programs(x.ndim, device), x, None, adapter)


@lru_cache
def find_identity_programs(ndim: int, device: str | None) -> DevicePrograms:
    """Return the programs that copy arrays of a rank to a device, or within their own."""
    return DevicePrograms(parse_options(identity_pattern(ndim), device=device))


def _copy_to_host(array: DeviceArray, out: Array | None, adapter: DeviceAdapter) -> Array:
    """Copy a contiguous device array to a NumPy array of one layout, `out` if given."""
    host = buffers.empty(array.shape, array.dtype) if out is None else out
    if array.size:
        flat = host.reshape(-1).view(_BYTES)

        def take(start: int, end: int, piece: Array) -> None:
            _copy_program(end - start)(piece, piece, flat[start:end])

        find_staging(array.ordinal).fetch(array, adapter.stream(array.ordinal), take)
    return host

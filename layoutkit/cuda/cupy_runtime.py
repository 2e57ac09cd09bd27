"""The GPU operations that layoutkit uses, implemented with CuPy.

`CupyRuntime` is the only code that calls CuPy, which `driver.py` loads. Only the adapters look into
its arrays. The rest of `layoutkit.cuda` decides which kernel runs where, in what order and on what
memory.

All operations are asynchronous, except `Event.synchronize` and the upload of the constants of a
formula, which happens once per plan, on a stream of its own.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..kernels.cuda.launch import CudaLaunch, source
from .driver import (
    DEFAULT_STREAMS,
    compile_kernel,
    count_devices,
    describe_gpus,
    import_cupy,
    relax_capture_mode,
)

_STAYS = nullcontext()  # a tenth of the cost of setting the current device again
_MOST_STREAMS = 64  # cached streams of other libraries


class CudaKernel:
    """A loaded kernel with all arguments that are constant between calls."""

    def __init__(self, launch: CudaLaunch, function: Any, constants: int, ordinal: int) -> None:
        self.launch = launch
        self.ordinal = ordinal
        self.function = function
        self.constants = constants
        self.grid = (launch.grid, 1, 1)
        self.block = (launch.block, 1, 1)
        # CuPy passes NumPy arrays of one element by value, whatever the size of the element.
        self.params = np.frombuffer(launch.params, f"V{len(launch.params)}")
        self.words = np.dtype(f"V{8 * launch.pointers}")
        self.pack = struct.Struct(f"{launch.pointers}Q").pack
        self.spare = (0,) * (launch.pointers - 2)  # for absent sources


class CupyRuntime:
    """CuPy on the GPUs of this machine.

    GPUs have ordinals from 0 on. Streams and events are CuPy's. Raises DeviceError if CuPy is
    missing or too old, or if there is no driver or no GPU.
    """

    def __init__(self) -> None:
        self.cupy = import_cupy()
        self.count = count_devices(self.cupy)
        self.functions: dict[Any, Any] = {}
        self._kept: dict[tuple[bytes, int], Any] = {}
        self.foreign_streams: dict[int, Any] = {}  # streams by pointer
        self._lock = threading.Lock()

    def describe(self) -> str:
        """Return the GPUs and versions in one line."""
        return describe_gpus(self.cupy, self.count)

    # -- devices and streams ---------------------------------------------------------------

    def current(self) -> int:
        """Return the ordinal of the current device of this thread."""
        return int(self.cupy.cuda.runtime.getDevice())

    def device_of(self, address: int) -> int:
        """Return the ordinal of the device that owns an address.

        Memory of the host, which some GPUs can read, belongs to no device: the current one.
        """
        ordinal = int(self.cupy.cuda.runtime.pointerGetAttributes(address).device)
        return ordinal if ordinal >= 0 else self.current()

    def on(self, ordinal: int) -> AbstractContextManager[Any]:
        """Return a context manager that makes a device the current one of this thread."""
        if self.cupy.cuda.runtime.getDevice() == ordinal:
            return _STAYS
        return self.cupy.cuda.Device(ordinal)

    def stream(self, ordinal: int) -> Any:
        """Return the current stream of CuPy on a device."""
        return self.cupy.cuda.get_current_stream(ordinal)

    def wrap_stream(self, pointer: int) -> Any:
        """Return another library's stream by its `cudaStream_t`; that library keeps it alive."""
        stream = self.foreign_streams.get(pointer)
        if stream is None:
            if len(self.foreign_streams) >= _MOST_STREAMS:
                self.foreign_streams.clear()
            foreign = SimpleNamespace(__cuda_stream__=lambda: (0, pointer))
            stream = self.foreign_streams[pointer] = self.cupy.cuda.Stream.from_external(foreign)
        return stream

    def new_stream(self, ordinal: int) -> Any:
        """Return a new stream that does not wait for the default stream."""
        with self.on(ordinal):
            return self.cupy.cuda.Stream(non_blocking=True)

    def is_capturing(self, stream: Any) -> bool:
        """Return True if a CUDA graph is being captured on a stream."""
        # The default stream never captures, and must not be queried while another one does.
        return stream.ptr not in DEFAULT_STREAMS and bool(stream.is_capturing())

    def make_event(self, ordinal: int) -> Any:
        """Return an event of CuPy that is not recorded yet."""
        with self.on(ordinal):
            return self.cupy.cuda.Event(disable_timing=True)

    def is_done(self, event: Any) -> bool:
        """Return True if the GPU has reached an event; allowed while a graph is captured."""
        with relax_capture_mode():
            return bool(event.done)

    # -- memory ----------------------------------------------------------------------------

    def empty(self, shape: tuple[int, ...], dtype: Any, ordinal: int, stream: Any = None) -> Any:
        """Return an array from CuPy's pool of `stream` (default: the current stream)."""
        with self.on(ordinal):
            if stream is None:
                return self.cupy.empty(shape, dtype)
            with stream:
                return self.cupy.empty(shape, dtype)

    def wrap(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: Any,
        ordinal: int,
        owner: Any,
    ) -> Any:
        """Return a CuPy array of memory that `owner` keeps alive."""
        cuda = self.cupy.cuda
        memory = cuda.UnownedMemory(address, 0, owner, ordinal)
        pointer = cuda.MemoryPointer(memory, 0)
        return self.cupy.ndarray(shape, dtype, pointer, strides)

    def from_dlpack(self, x: Any, ordinal: int) -> Any:
        """Return a CuPy array that shares the memory of `x`, ordered after pending work on `x`."""
        with self.on(ordinal):
            return self.cupy.from_dlpack(x)

    def pinned(self, nbytes: int, ordinal: int) -> Any:
        """Return page-locked memory from CuPy's pool, as a NumPy array that keeps it alive."""
        with self.on(ordinal):  # else a context is created on the current device
            memory = self.cupy.cuda.alloc_pinned_memory(nbytes)
        return np.frombuffer(memory, np.uint8, nbytes)

    def release(self, ordinal: int, stream: Any) -> None:
        """Free the unused memory of CuPy's page-locked pool and of its pool of a stream."""
        with self.on(ordinal):
            self.cupy.get_default_memory_pool().free_all_blocks(stream)
            self.cupy.get_default_pinned_memory_pool().free_all_blocks()

    def copy_in(self, address: int, host: Any, stream: Any) -> None:
        """Start to copy page-locked bytes to a device."""
        api = self.cupy.cuda.runtime
        api.memcpyAsync(address, host.ctypes.data, host.nbytes, api.memcpyHostToDevice, stream.ptr)

    def copy_out(self, host: Any, address: int, stream: Any) -> None:
        """Start to copy bytes of a device to page-locked memory."""
        api = self.cupy.cuda.runtime
        api.memcpyAsync(host.ctypes.data, address, host.nbytes, api.memcpyDeviceToHost, stream.ptr)

    def cast_into(self, out: Any, values: Any) -> None:
        """Write one CuPy array of the current device to another as NumPy's unsafe cast does."""
        self.cupy.copyto(out, values, casting="unsafe")

    # -- kernels ---------------------------------------------------------------------------

    def is_loaded(self, launch: CudaLaunch, ordinal: int) -> bool:
        """Return True if `load` needs to compile, allocate and copy nothing."""
        constants = (launch.coefficients, ordinal)
        known = not launch.coefficients or constants in self._kept
        return known and (launch.family, launch.defines, ordinal) in self.functions

    def load(self, launch: CudaLaunch, ordinal: int) -> CudaKernel:
        """Return the kernel of a launch on a device, compiled if it is not cached."""
        function = self.load_function(launch, ordinal)
        return CudaKernel(launch, function, self.constants(launch.coefficients, ordinal), ordinal)

    def launch(self, kernel: CudaKernel, pointers: Sequence[int], stream: Any) -> None:
        """Launch a kernel on a stream of its device. `pointers`: the output, then the sources."""
        # A new argument block for each launch: a finalizer that runs here could fill a shared one
        # for another launch before this launch is put on its stream.
        spare = kernel.spare[len(pointers) - 1 :]
        words = kernel.pack(pointers[0], kernel.constants, *pointers[1:], *spare)
        arguments = (kernel.params, np.frombuffer(words, kernel.words))
        if self.cupy.cuda.runtime.getDevice() == kernel.ordinal:
            kernel.function(kernel.grid, kernel.block, arguments, 0, stream)
            return
        with self.on(kernel.ordinal):
            kernel.function(kernel.grid, kernel.block, arguments, 0, stream)

    def load_function(self, launch: CudaLaunch, ordinal: int) -> Any:
        """Return the kernel of a launch for a GPU, compiled once per process."""
        key = (launch.family, launch.defines, ordinal)
        function = self.functions.get(key)
        if function is None:
            options = tuple(f"-D{name}={value}" for name, value in launch.defines)
            with self._lock, self.on(ordinal):
                function = self.functions.get(key)  # again: another thread may have compiled it
                if function is None:
                    function = compile_kernel(
                        self.cupy, source(launch.family), options, launch.family
                    )
                    self.functions[key] = function
        return function

    def constants(self, coefficients: bytes, ordinal: int) -> int:
        """Return the device address of cached bytes, which every stream may read; 0 if empty.

        They are kept until the process ends, because queued kernels and captured graphs may read
        them after the program that uploaded them is gone.
        """
        if not coefficients:
            return 0
        key = (coefficients, ordinal)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = self._upload(coefficients, ordinal)
            return int(self._kept[key].data.ptr)

    def _upload(self, coefficients: bytes, ordinal: int) -> Any:
        # A new stream and memory of that stream, so that no other work is waited for.
        stream = self.new_stream(ordinal)
        constants = self.empty((len(coefficients),), np.uint8, ordinal, stream)
        host = self.pinned(len(coefficients), ordinal)
        host[:] = np.frombuffer(coefficients, np.uint8)
        with self.on(ordinal):
            self.copy_in(constants.data.ptr, host, stream)
            stream.synchronize()
        return constants

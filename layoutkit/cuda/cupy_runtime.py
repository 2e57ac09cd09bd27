"""What layoutkit asks of a GPU, whoever answers: `CupyRuntime`, or what tests put there.

Says what can be asked and no more: imports no library of a GPU. Arrays are the runtime's own, which
nobody but an adapter looks into.

What does things on GPUs: compiled kernels, memory, streams, all of CuPy's.

The only module that calls CuPy, which `driver.py` finds. It decides nothing: which kernel runs
where, in what order and on what memory, is for `layoutkit.cuda` to say.

Nothing here waits for a GPU but `Event.synchronize`, which callers ask for, and the upload of the
constants of a formula, once for a plan and on a stream of its own.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..kernels.cuda.launch import CudaLaunch, source
from .driver import compiled, count_devices, described, load_cupy, relaxed


class CudaStream(Protocol):
    """What work is put on, and done in order."""

    def wait_event(self, event: Any) -> None:
        """Let what is put on it from now on wait for an event."""


class CudaEvent(Protocol):
    """A place in a stream."""

    def record(self, stream: Any) -> None:
        """Be the place behind all that is on the stream now."""

    def synchronize(self) -> None:
        """Wait until the GPU has come to it."""


class DeviceKernel(Protocol):
    """A kernel that a GPU has loaded."""

    @property
    def launch(self) -> CudaLaunch:
        """What it was loaded for."""


class Runtime(Protocol):
    """Everything that is asked of the GPUs of a machine, which have ordinals from 0 on."""

    @property
    def count(self) -> int:
        """How many there are."""

    def describe(self) -> str:
        """What was found, in a line."""

    # -- devices and streams ---------------------------------------------------------------

    def current(self) -> int:
        """The ordinal of the current device of this thread."""

    def device_of(self, address: int) -> int:
        """The ordinal of the device that memory is on."""

    def on(self, ordinal: int) -> AbstractContextManager[Any]:
        """Makes a device the current one of this thread for a while."""

    def stream(self, ordinal: int) -> CudaStream:
        """The current stream of a device."""

    def stream_at(self, pointer: int) -> CudaStream:
        """Another library's stream by its `cudaStream_t`; the other library keeps it alive."""

    def new_stream(self, ordinal: int) -> CudaStream:
        """A stream that does not wait for the default one."""

    def is_capturing(self, stream: Any) -> bool:
        """Whether a CUDA graph is made of what is put on a stream."""

    def new_event(self, ordinal: int) -> CudaEvent:
        """An event that was not recorded yet."""

    def has_happened(self, event: Any) -> bool:
        """Whether the GPU has come to an event; may be asked while a graph is captured."""

    # -- memory ----------------------------------------------------------------------------

    def empty(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], ordinal: int, stream: Any = None
    ) -> Any:
        """An array from the pool, of memory that `stream`, else the current one, may use."""

    def wrap(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype[Any],
        ordinal: int,
        owner: Any,
    ) -> Any:
        """The array of memory that `owner` holds."""

    def from_dlpack(self, x: Any, ordinal: int) -> Any:
        """The array that shares the memory of another one, ordered after what made it."""

    def pinned(self, nbytes: int, ordinal: int) -> npt.NDArray[np.uint8]:
        """Bytes of page-locked memory from the pool, as a NumPy array that holds them."""

    def release(self, ordinal: int, stream: Any) -> None:
        """Let go what is kept of page-locked memory, and of memory for a stream."""

    def copy_in(self, address: int, host: npt.NDArray[Any], stream: Any) -> None:
        """Begin to copy page-locked bytes to a device."""

    def copy_out(self, host: npt.NDArray[Any], address: int, stream: Any) -> None:
        """Begin to copy bytes of a device to page-locked memory."""

    def cast_into(self, out: Any, values: Any, stream: Any) -> None:
        """Write one array to another as NumPy's unsafe cast does."""

    # -- kernels ---------------------------------------------------------------------------

    def is_loaded(self, launch: CudaLaunch, ordinal: int) -> bool:
        """Whether `load` finds all that it needs: nothing is compiled, lent or copied."""

    def load(self, launch: CudaLaunch, ordinal: int) -> DeviceKernel:
        """The kernel of a launch on a device, compiled if it is not kept from before."""

    def launch(self, kernel: Any, pointers: Sequence[int], stream: Any) -> None:
        """Put a kernel on a stream. `pointers`: the output, and then the sources."""


_DEFAULT = (0, 1)  # the default stream's names
_STAYS = nullcontext()  # a tenth of what it costs to set a device that is set
_MOST_STREAMS = 64  # of other libraries that are kept


class CudaKernel:
    """A loaded kernel with everything that does not change from call to call."""

    __slots__ = (
        "block",
        "constants",
        "function",
        "grid",
        "launch",
        "pack",
        "params",
        "spare",
        "words",
    )

    def __init__(self, launch: CudaLaunch, function: Any, constants: int) -> None:
        self.launch, self.function, self.constants = launch, function, constants
        self.grid, self.block = (launch.grid, 1, 1), (launch.block, 1, 1)
        # CuPy passes NumPy arrays of one element by value, whatever the size of the element.
        self.params = np.frombuffer(launch.params, f"V{len(launch.params)}")
        self.words = np.dtype(f"V{8 * launch.pointers}")
        self.pack = struct.Struct(f"{launch.pointers}Q").pack
        self.spare = (0,) * (launch.pointers - 2)  # for sources that are not there


class CupyRuntime:
    """CuPy on the GPUs of this machine.

    Streams are CuPy's: objects with `ptr`, `wait_event`. Raises DeviceError without CuPy, with one
    that is too old, and without a driver or a GPU.
    """

    def __init__(self) -> None:
        self.cupy = load_cupy()
        self.count = count_devices(self.cupy)
        self._functions: dict[Any, Any] = {}
        self._kept: dict[tuple[bytes, int], Any] = {}
        self._foreign: dict[int, Any] = {}  # streams by pointer: CuPy's object knows no more
        self._lock = threading.Lock()

    def describe(self) -> str:
        """What was found, in a line."""
        return described(self.cupy, self.count)

    # -- devices and streams ---------------------------------------------------------------

    def current(self) -> int:
        """The ordinal of the current device of this thread."""
        return int(self.cupy.cuda.runtime.getDevice())

    def device_of(self, address: int) -> int:
        """The ordinal of the device that memory is on."""
        return int(self.cupy.cuda.runtime.pointerGetAttributes(address).device)

    def on(self, ordinal: int) -> AbstractContextManager[Any]:
        """Makes a device the current one of this thread for a while."""
        if self.cupy.cuda.runtime.getDevice() == ordinal:
            return _STAYS
        device: AbstractContextManager[Any] = self.cupy.cuda.Device(ordinal)
        return device

    def stream(self, ordinal: int) -> Any:
        """The current stream of CuPy on a device."""
        return self.cupy.cuda.get_current_stream(ordinal)

    def stream_at(self, pointer: int) -> Any:
        """Another library's stream by its `cudaStream_t`; the other library keeps it alive."""
        found = self._foreign.get(pointer)
        if found is None:
            if len(self._foreign) >= _MOST_STREAMS:
                self._foreign.clear()
            foreign = SimpleNamespace(__cuda_stream__=lambda: (0, pointer))
            found = self._foreign[pointer] = self.cupy.cuda.Stream.from_external(foreign)
        return found

    def new_stream(self, ordinal: int) -> Any:
        """A stream that does not wait for the default one."""
        with self.on(ordinal):
            return self.cupy.cuda.Stream(non_blocking=True)

    def is_capturing(self, stream: Any) -> bool:
        """Whether a CUDA graph is made of what is put on a stream."""
        # The default stream never captures, and may not be asked while another one does.
        return stream.ptr not in _DEFAULT and bool(stream.is_capturing())

    def new_event(self, ordinal: int) -> Any:
        """An event of CuPy that was not recorded yet."""
        with self.on(ordinal):
            return self.cupy.cuda.Event(disable_timing=True)

    def has_happened(self, event: Any) -> bool:
        """Whether the GPU has come to an event; may be asked while a graph is captured."""
        with relaxed():
            return bool(event.done)

    # -- memory ----------------------------------------------------------------------------

    def empty(self, shape: tuple[int, ...], dtype: Any, ordinal: int, stream: Any = None) -> Any:
        """A CuPy array from CuPy's pool, of memory that `stream`, else the current one, may use."""
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
        """The CuPy array of memory that `owner` holds."""
        cuda = self.cupy.cuda
        memory = cuda.UnownedMemory(address, 0, owner, ordinal)
        pointer = cuda.MemoryPointer(memory, 0)
        return self.cupy.ndarray(shape, dtype, pointer, strides)

    def from_dlpack(self, x: Any, ordinal: int) -> Any:
        """The CuPy array that shares the memory of an array, ordered after what made it."""
        with self.on(ordinal):
            return self.cupy.from_dlpack(x)

    def pinned(self, nbytes: int, ordinal: int) -> Any:
        """Bytes of page-locked memory from CuPy's pool, as a NumPy array that holds them."""
        with self.on(ordinal):  # else a context is made on whichever device is current
            memory = self.cupy.cuda.alloc_pinned_memory(nbytes)
        return np.frombuffer(memory, np.uint8, nbytes)

    def release(self, ordinal: int, stream: Any) -> None:
        """Let go what CuPy's pools keep of page-locked memory, and of memory for a stream."""
        with self.on(ordinal):
            self.cupy.get_default_memory_pool().free_all_blocks(stream)
            self.cupy.get_default_pinned_memory_pool().free_all_blocks()

    def copy_in(self, address: int, host: Any, stream: Any) -> None:
        """Begin to copy page-locked bytes to a device."""
        api = self.cupy.cuda.runtime
        api.memcpyAsync(address, host.ctypes.data, host.nbytes, api.memcpyHostToDevice, stream.ptr)

    def copy_out(self, host: Any, address: int, stream: Any) -> None:
        """Begin to copy bytes of a device to page-locked memory."""
        api = self.cupy.cuda.runtime
        api.memcpyAsync(host.ctypes.data, address, host.nbytes, api.memcpyDeviceToHost, stream.ptr)

    def cast_into(self, out: Any, values: Any, stream: Any) -> None:
        """Write one CuPy array to another as NumPy's unsafe cast does."""
        with self.on(int(out.data.device_id)), stream:
            self.cupy.copyto(out, values, casting="unsafe")

    # -- kernels ---------------------------------------------------------------------------

    def is_loaded(self, launch: CudaLaunch, ordinal: int) -> bool:
        """Whether `load` finds all that it needs: nothing is compiled, lent or copied."""
        constants = (launch.coefficients, ordinal)
        known = not launch.coefficients or constants in self._kept
        return known and (launch.family, launch.defines, ordinal) in self._functions

    def load(self, launch: CudaLaunch, ordinal: int) -> CudaKernel:
        """The kernel of a launch on a device, compiled if it is not kept from before."""
        function = self._function(launch, ordinal)
        return CudaKernel(launch, function, self._constants(launch.coefficients, ordinal))

    def launch(self, kernel: CudaKernel, pointers: Sequence[int], stream: Any) -> None:
        """Put a kernel on a stream. `pointers`: the output, and then the sources."""
        # Anew each time: a block that is kept could be filled for another launch, by a finaliser
        # that runs here, before this one is put on its stream.
        spare = kernel.spare[len(pointers) - 1 :]
        words = kernel.pack(pointers[0], kernel.constants, *pointers[1:], *spare)
        arguments = (kernel.params, np.frombuffer(words, kernel.words))
        kernel.function(kernel.grid, kernel.block, arguments, 0, stream)

    def _function(self, launch: CudaLaunch, ordinal: int) -> Any:
        key = (launch.family, launch.defines, ordinal)
        found = self._functions.get(key)
        if found is None:
            options = tuple(f"-D{name}={value}" for name, value in launch.defines)
            with self._lock, self.on(ordinal):
                found = self._functions.get(key)  # again: others may have compiled it meanwhile
                if found is None:
                    found = compiled(self.cupy, source(launch.family), options, launch.family)
                    self._functions[key] = found
        return found

    def _constants(self, coefficients: bytes, ordinal: int) -> int:
        """The address of bytes on a device, where every stream may read them at once; 0 for none.

        They stay until the process ends: kernels that wait in a stream, and captured graphs, read
        them after those who asked for them are gone.
        """
        if not coefficients:
            return 0
        key = (coefficients, ordinal)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = self._uploaded(coefficients, ordinal)
            return int(self._kept[key].data.ptr)

    def _uploaded(self, coefficients: bytes, ordinal: int) -> Any:
        # A stream of its own, and memory of that stream, so that nobody's work is waited for.
        stream = self.new_stream(ordinal)
        found = self.empty((len(coefficients),), np.uint8, ordinal, stream)
        host = self.pinned(len(coefficients), ordinal)
        host[:] = np.frombuffer(coefficients, np.uint8)
        with self.on(ordinal):
            self.copy_in(found.data.ptr, host, stream)
            stream.synchronize()
        return found

"""What layoutkit asks of a GPU, whoever answers: `runtime.CupyRuntime`, or what tests put there.

Says what can be asked and no more: imports no library of a GPU. Arrays are the runtime's own, which
nobody but an adapter looks into.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .launch import CudaLaunch

__all__ = ["CudaEvent", "CudaStream", "DeviceKernel", "Runtime"]


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
        self, address: int, shape: tuple[int, ...], strides: tuple[int, ...],
        dtype: np.dtype[Any], ordinal: int, owner: Any,
    ) -> Any:  # fmt: skip
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

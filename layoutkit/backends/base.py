"""The Adapter class, and the adapters of NumPy and of any library with `__dlpack__`.

An adapter returns the NumPy array that shares the memory of a tensor, and the tensor that shares
the memory of a NumPy result, without a copy. The NumPy array keeps its tensor alive, and a returned
tensor keeps its NumPy array alive, so memory returns to the pool when the last of them is released.

Adapters do not convert layouts; `dispatch.py` decides when they are called. Every other library has
a module of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from .._utils.validation import describe_type
from ..cuda.runtime import runtime
from ..errors import ArgumentError, DeviceError, DtypeError
from ..memory import Array, as_numpy
from ..spec import CPU, DType
from .dlpack import from_dlpack, to_dlpack
from .indexing import take

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from ..converter import Converter
    from ..planning.plan import PaddedSource, Plan
    from .cupy import CudaAdapter

_HOST = (1, 3, 11)  # DLPack device types whose memory the CPU can access: CPU and pinned
_DEVICES = {2: "cuda", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda managed", 14: "oneapi"}


class Adapter:
    """The adapter of one library's arrays. The base class adapts any array with `__dlpack__`."""

    is_traced = False  # whether arrays stand for data that is computed later
    # Whether `pad_to` pads x before the conversion, instead of writing a region of the result.
    pads_input = False
    is_container = False  # whether objects of the library contain an array and are not arrays
    converts = False  # whether `convert` replaces the conversion of one block of memory
    traces_constants = False  # whether arrays can be combined with constants that JAX traces

    # -- in --------------------------------------------------------------------------------

    def to_numpy(self, x: Any, arg_name: str) -> Array:
        """Return the NumPy array that shares the memory of x, which is `arg_name` in errors."""
        device_type, ordinal = map(int, x.__dlpack_device__())
        if device_type not in _HOST:
            device = f"{_DEVICES.get(device_type, f'DLPack device {device_type}')}:{ordinal}"
            raise make_device_error(arg_name, device, "move it to the CPU")
        try:
            return from_dlpack(x)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise make_memory_error(arg_name, x, "pass a numpy.ndarray of its data") from error

    def device(self, x: Any, arg_name: str) -> str:
        """Return the name of the device of an array."""
        return CPU

    def inspect(self, x: Any, arg_name: str) -> tuple[tuple[int, ...], DType]:
        """Return the shape and the NumPy dtype of an array, which may not have data yet."""
        array = self.to_numpy(x, arg_name)
        return array.shape, array.dtype

    def take(self, x: Any, axis: int, positions: Array) -> Any:
        """Return copies of the samples at validated positions, in an array of the same library."""
        return self.from_numpy(take(self.to_numpy(x, "x"), axis, positions), x)

    def samples_of(self, x: Any, axis: int, numbers: Array) -> list[Any]:
        """Return the parts of one array at validated indices of an axis."""
        return [x[(slice(None),) * axis + (number,)] for number in numbers.tolist()]

    def padded(self, x: Any, padding: PaddedSource) -> Any:
        """Return a copy of x with unfolded axes, padded to a larger shape."""
        result = np.empty(padding.full, padding.fill.dtype)
        result[...] = padding.fill
        result[padding.window] = self.to_numpy(x, "x").reshape(padding.sizes)
        return self.from_numpy(result, x)

    # -- out -------------------------------------------------------------------------------

    def permute(self, x: Any, order: tuple[int, ...]) -> Any:
        """Return a view of a result with its axes permuted."""
        namespace = getattr(x, "__array_namespace__", None)
        return x.transpose(order) if namespace is None else namespace().permute_dims(x, order)

    def from_numpy(self, array: Array, like: Any) -> Any:
        """Return the array of the library of `like` that shares the memory of `array`."""
        namespace = getattr(like, "__array_namespace__", None)
        if namespace is None:
            return array
        try:
            return namespace().from_dlpack(to_dlpack(array))
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise DtypeError(
                f"{describe_type(like)} cannot contain the result of dtype {array.dtype}; give a "
                "dtype that its library supports, or pass a numpy.ndarray"
            ) from error

    def unchanged_result(self, x: Any, array: Array) -> Any:
        """Return the result if no element moves: x if results have the type of x, else `array`."""
        return x if hasattr(x, "__array_namespace__") else array

    def target(self, out: Any) -> Array:
        """Return the NumPy array that shares the memory of the caller's output."""
        exports = not isinstance(out, np.ndarray) and hasattr(type(out), "__dlpack__")
        return self.to_numpy(out, "out") if exports else as_numpy(out, "out")

    def written(self, out: Any) -> Any:
        """Return the caller's output after its memory was written."""
        return out

    def cuda_adapter(self) -> CudaAdapter | None:
        """Return the adapter for arrays that are moved to a GPU; None: CuPy's adapter."""
        return None

    def plan(self, converter: Converter, x: Any) -> Plan | None:
        """Return the plan of a chunked array; None: the array is planned as one block of memory."""
        return None

    def convert(self, converter: Converter, x: Any, out: Any) -> Any:
        """Return `converter(x, out)` for an array that is several blocks of memory."""
        raise NotImplementedError

    def narrowed(self, converter: Converter, x: Any) -> Converter:
        """Return the Converter to the dtype that the library has in place of the result's."""
        return converter

    # -- recording: gradients and traces ---------------------------------------------------

    def is_recorded(self, x: Any) -> bool:
        """Return True if the library records operations on x now, for a gradient or a trace.

        Also return True if one block of memory does not describe x, such as for named axes.
        """
        return False

    def has_gradient(self, x: Any) -> bool:
        """Return True if reading the memory of x alone would lose a recorded gradient."""
        return self.is_recorded(x)

    def convert_recorded(self, converter: Converter, x: Any, out: Any) -> Any:
        """Return `converter(x, out)` for an array whose operations are recorded."""
        raise NotImplementedError

    def sum_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        """Return `accumulator(parts, out)` if operations on one of the parts are recorded."""
        raise NotImplementedError


class NumpyAdapter(Adapter):
    """The adapter of subclasses of ndarray, and of NumPy arrays in sums or copied to a GPU."""

    def to_numpy(self, x: Any, arg_name: str) -> Array:
        return as_numpy(x, arg_name)

    def from_numpy(self, array: Array, like: Any) -> Any:
        """Return `array` itself."""
        return array

    def unchanged_result(self, x: Any, array: Array) -> Any:
        """Return x itself, also for a subclass of ndarray."""
        return x

    def target(self, out: Any) -> Array:
        """Return `out` as a base-class ndarray; raise ArgumentError if it is not a NumPy array."""
        return as_numpy(out, "out")


NUMPY = NumpyAdapter()


def make_device_error(arg_name: str, device: str, fix: str) -> DeviceError:
    """Return the error for memory on a device that the operation cannot access."""
    return DeviceError(f"{arg_name} is on {device}, which this operation cannot access; {fix}")


def make_memory_error(arg_name: str, x: Any, fix: str) -> ArgumentError:
    """Return the error for an array that does not export its memory."""
    return ArgumentError(f"the memory of {arg_name}, {describe_type(x)}, cannot be accessed; {fix}")


def on_device_of(x: Any) -> AbstractContextManager[Any]:
    """Return a context in which CuPy's operations run on the device of `x`."""
    if type(x).__module__.partition(".")[0] != "cupy":
        return nullcontext()
    return runtime().on(int(x.data.device_id))

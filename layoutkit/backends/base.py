"""Arrays of other libraries, in and out of a conversion without a copy.

An adapter gives the NumPy array that shares the memory of a tensor, and the tensor that shares the
memory of a result; between the two, everything is as for NumPy. What holds the memory: the NumPy
array holds the tensor that it came from, and the tensor that goes out holds the array, so that a
block returns to the pool when the last of them is gone.

Adapters know their library and nothing of conversions: when an array is brought in and handed out,
and what runs between, is for `adapters.py` to say. Here are the adapters of NumPy and of whatever
has `__dlpack__`; every other library has a file of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from .._utils.validation import kind_text
from ..cuda.runtime import runtime
from ..errors import ArgumentError, DeviceError, DtypeError
from ..memory import Array, as_numpy
from ..spec import CPU, DType
from .indexing import take

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from ..converter import Converter
    from ..planning.plan import Larger, Plan
    from .cupy import CudaAdapter

_HOST = (1, 3, 11)  # DLPack's numbers of memory that the CPU reaches: its own, and pinned
_DEVICES = {2: "cuda", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda managed", 14: "oneapi"}


class Adapter:
    """The way of one library's arrays. This one is of whatever has `__dlpack__`."""

    is_traced = False  # whether its arrays stand for data that is not there yet
    # Whether a conversion into a larger result is one of a larger x, and not of a window of memory.
    pads_input = False
    is_container = False  # whether its arrays are none, but hold one
    traces_constants = False  # whether constants that jax traces are operands beside its arrays

    # -- in --------------------------------------------------------------------------------

    def arrive(self, x: Any, what: str) -> Array:
        """The NumPy array that shares the memory of `x`."""
        kind, ordinal = map(int, x.__dlpack_device__())
        if kind not in _HOST:
            device = f"{_DEVICES.get(kind, f'DLPack device {kind}')}:{ordinal}"
            raise device_error(what, device, "move it to the CPU")
        try:
            return np.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise memory_error(what, x, "pass a numpy.ndarray of its data") from error

    def device(self, x: Any, what: str) -> str:
        """Where an array is."""
        return CPU

    def facts(self, x: Any, what: str) -> tuple[tuple[int, ...], DType]:
        """Shape and dtype, in NumPy's words; of an array that need not hold data."""
        array = self.arrive(x, what)
        return array.shape, array.dtype

    def take(self, x: Any, axis: int, positions: Array) -> Any:
        """Copies of the samples at positions that exist, as an array of the library."""
        return self.leave(take(self.arrive(x, "x"), axis, positions), x)

    def padded(self, x: Any, found: Larger) -> Any:
        """A larger x, with all folds taken apart."""
        made = np.empty(found.full, found.fill.dtype)
        made[...] = found.fill
        made[found.window] = self.arrive(x, "x").reshape(found.sizes)
        return self.leave(made, x)

    # -- out -------------------------------------------------------------------------------

    def permute(self, x: Any, order: tuple[int, ...]) -> Any:
        """The view of a result whose axes are in another order."""
        namespace = getattr(x, "__array_namespace__", None)
        return x.transpose(order) if namespace is None else namespace().permute_dims(x, order)

    def leave(self, array: Array, like: Any) -> Any:
        """The array of the library of `like` that shares the memory of `array`."""
        namespace = getattr(like, "__array_namespace__", None)
        if namespace is None:
            return array
        try:
            return namespace().from_dlpack(array)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise DtypeError(
                f"the result of dtype {array.dtype} does not go into a {kind_text(like)}; ask for "
                "a dtype that its library has, or pass a numpy.ndarray"
            ) from error

    def unchanged_result(self, x: Any, array: Array) -> Any:
        """The result where nothing is moved: `x` itself, where it is of the kind of results."""
        return x if hasattr(x, "__array_namespace__") else array

    def target(self, out: Any) -> Array:
        """The memory of the caller's output, which is of the same library."""
        exports = not isinstance(out, np.ndarray) and hasattr(type(out), "__dlpack__")
        return self.arrive(out, "out") if exports else as_numpy(out, "out")

    def written(self, out: Any) -> Any:
        """The caller's output, after its memory has changed."""
        return out

    def cuda_adapter(self) -> CudaAdapter | None:
        """The adapter of what arrays become on a GPU; None: CuPy's."""
        return None

    def plan(self, converter: Converter, x: Any) -> Plan | None:
        """How an array in parts would be converted; None: as one in memory."""
        return None

    # -- what the library records ----------------------------------------------------------

    def is_recorded(self, x: Any) -> bool:
        """Whether the library records what is done to an array now: for a gradient, or traced.

        So do those whose arrays have more than memory, such as names, or memory in parts.
        """
        return False

    def has_gradient(self, x: Any) -> bool:
        """Whether to read its memory alone would lose what is recorded."""
        return self.is_recorded(x)

    def convert_recorded(self, converter: Converter, x: Any, out: Any) -> Any:
        """What `converter(x, out)` is, of an array that is recorded."""
        raise NotImplementedError

    def sum_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        """What `accumulator(parts, out)` is, where one of the parts is recorded."""
        raise NotImplementedError


class NumpyAdapter(Adapter):
    """Arrays of NumPy: subclasses, those beside others in a sum, and those that go to a GPU."""

    def arrive(self, x: Any, what: str) -> Array:
        """The array itself."""
        return as_numpy(x, what)

    def leave(self, array: Array, like: Any) -> Any:
        """The array itself."""
        return array

    def unchanged_result(self, x: Any, array: Array) -> Any:
        """`x` itself, of whatever subclass."""
        return x

    def target(self, out: Any) -> Array:
        """The array itself, which is no other library's."""
        return as_numpy(out, "out")


NUMPY = NumpyAdapter()


def device_error(what: str, device: str, fix: str) -> DeviceError:
    """The error of memory that is somewhere else."""
    return DeviceError(f"{what} is on {device}, which is not reached from here; {fix}")


def memory_error(what: str, x: Any, fix: str) -> ArgumentError:
    """The error of an array that does not give its memory."""
    return ArgumentError(f"the memory of {what}, a {kind_text(x)}, cannot be reached; {fix}")


def on_device_of(x: Any) -> AbstractContextManager[Any]:
    """For CuPy's own work on an array: it runs on the current device, wherever the array is."""
    if type(x).__module__.partition(".")[0] != "cupy":
        return nullcontext()
    return runtime().on(int(x.data.device_id))

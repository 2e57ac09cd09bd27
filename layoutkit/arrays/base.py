"""Arrays of other libraries, in and out of a conversion without a copy.

An adapter gives the NumPy array that shares the memory of a tensor, and the tensor that shares the
memory of a result; between the two, everything is as for NumPy. What holds the memory: the NumPy
array holds the tensor that it came from, and the tensor that goes out holds the array, so that a
block returns to the pool when the last of them is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..devices import CPU
from ..errors import ArgumentError, DeviceError, DtypeError
from ..memory import Array, as_numpy
from ..spec import DType

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from ..converter import Converter
    from .cupy import CudaAdapter

__all__ = ["Adapter", "NumpyAdapter", "kind_text", "on_device", "out_of_reach"]

_HOST = (1, 3, 11)  # DLPack's numbers of memory that the CPU reaches: its own, and pinned
_DEVICES = {2: "cuda", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda managed", 14: "oneapi"}


class Adapter:
    """The way of one library's arrays. This one is of whatever has `__dlpack__`."""

    name = "its library"
    is_of_gpus = False

    def device(self, x: Any, what: str) -> str:
        """Where an array is."""
        return CPU

    def facts(self, x: Any, what: str) -> tuple[tuple[int, ...], DType]:
        """Shape and dtype, in NumPy's words."""
        array = self.arrive(x, what)
        return array.shape, array.dtype

    def arrive(self, x: Any, what: str) -> Array:
        """The NumPy array that shares the memory of `x`."""
        kind, number = map(int, x.__dlpack_device__())
        if kind not in _HOST:
            device = f"{_DEVICES.get(kind, f'DLPack device {kind}')}:{number}"
            raise on_device(what, device, "move it to the CPU")
        try:
            return np.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise out_of_reach(what, x, "pass a numpy.ndarray of its data") from error

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

    def convert(self, converter: Converter, x: Any, out: Any) -> Any:
        """What `converter(x, out)` is."""
        array = self.arrive(x, "x")
        if converter.is_away:
            from ..cuda.transfers import upload

            return upload(converter, array, self.on_gpu(), out)
        self.check_out_device(out, "x")
        if out is not None:
            converter(array, self.target(out))
            return self.written(out)
        result = converter(array)
        return self.unmoved(x, array) if result is array else self.leave(result, x)

    def on_gpu(self) -> CudaAdapter:
        """The adapter of what arrays become on a GPU."""
        from .adapters import cuda_adapter_for

        return cuda_adapter_for("cupy")

    def check_out_device(self, out: Any, name: str) -> None:
        """Raise DeviceError where `out` is on a GPU and what is called `name` on the CPU."""
        from .adapters import device_adapter_of

        adapter = None if out is None else device_adapter_of(out)
        if adapter is not None:
            raise DeviceError(
                f"{name} is on cpu, but out is on {adapter.device(out, 'out')}; bring {name} over "
                f'with device="{adapter.device(out, "out")}", or give an out on the CPU'
            )

    def unmoved(self, x: Any, array: Array) -> Any:
        """`x` itself, where it is of the kind that results are."""
        return x if hasattr(x, "__array_namespace__") else array

    def is_recorded(self, x: Any) -> bool:
        """Whether the library records what is done to an array now, as `add_recorded` does."""
        return False

    def add_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        """What `accumulator(parts, out)` is, where one of the parts is recorded."""
        raise NotImplementedError

    def add(self, accumulator: Accumulator, arrays: list[Array], like: Any, out: Any) -> Any:
        """The sum of arrays in memory, of the kind of `like`."""
        self.check_out_device(out, "part 0")
        if out is not None:
            accumulator(arrays, self.target(out))
            return self.written(out)
        return self.leave(accumulator(arrays), like)

    def target(self, out: Any) -> Array:
        """The memory of the caller's output, which is of the same library."""
        exports = not isinstance(out, np.ndarray) and hasattr(type(out), "__dlpack__")
        return self.arrive(out, "out") if exports else as_numpy(out, "out")

    def written(self, out: Any) -> Any:
        """The caller's output, after its memory has changed."""
        return out


class NumpyAdapter(Adapter):
    """Arrays of NumPy among others: in sums, and on their way to a GPU."""

    def arrive(self, x: Any, what: str) -> Array:
        """The array itself."""
        return as_numpy(x, what)

    def leave(self, array: Array, like: Any) -> Any:
        """The array itself."""
        return array

    def target(self, out: Any) -> Array:
        """The array itself, which is no other library's."""
        return as_numpy(out, "out")


def on_device(what: str, device: str, fix: str) -> DeviceError:
    """The error of memory that is somewhere else."""
    return DeviceError(f"{what} is on {device}, which is not reached from here; {fix}")


def out_of_reach(what: str, x: Any, fix: str) -> ArgumentError:
    """The error of an array that does not give its memory."""
    return ArgumentError(f"the memory of {what}, a {kind_text(x)}, cannot be reached; {fix}")


def kind_text(x: Any) -> str:
    """The class of `x`, as messages name it."""
    return f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")

"""What holds an array and is none: pictures, buffers, columns, files, lists of arrays.

What they become is a NumPy array, which shares their memory where they give it (the buffer
protocol, `__array_interface__`) and may be a copy where they do not (`__array__`, lists), which is
why nothing is written into those. The containers of one library are for the file to say that is
named after it; here are those that any library may have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._utils.validation import kind_text
from ..buffers import empty
from ..errors import ArgumentError, DtypeError, LayoutkitError, ShapeError
from ..memory import Array, as_numpy
from ..spec import DType
from .base import NUMPY, Adapter, memory_error
from .cupy import CudaAdapter
from .registry import library_of
from .symbolic import Symbolic

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from ..converter import Converter

_PACKAGE = __name__.partition(".")[0] + "."


class Container(Adapter):
    """The way of what holds an array. This one reads `__array__`: a file, a column, a table."""

    is_container = True

    def arrive(self, x: Any, what: str) -> Array:
        """The array that it holds, all of it; it may be a copy."""
        return as_numpy(self.read(x, what), what)

    def read(self, x: Any, what: str) -> Any:
        """The array in the words of its library."""
        try:
            return np.asanyarray(x)
        except (LayoutkitError, OSError, MemoryError):
            raise
        except Exception as error:  # whatever its library raises where there is no array to give
            fix = f"pass a numpy.ndarray of its data ({error})"
            raise memory_error(what, x, fix) from error

    def facts(self, x: Any, what: str) -> tuple[tuple[int, ...], DType]:
        """Shape and dtype; nothing is read of what says both."""
        shape, dtype = getattr(x, "shape", None), getattr(x, "dtype", None)
        if isinstance(shape, tuple) and isinstance(dtype, np.dtype):
            return shape, dtype
        array = self.arrive(x, what)
        return array.shape, array.dtype

    def leave(self, array: Array, like: Any) -> Any:
        """The NumPy array."""
        return array

    def unchanged_result(self, x: Any, array: Array) -> Any:
        """The NumPy array."""
        return array

    def target(self, out: Any) -> Array:
        """The memory of the caller's output, where it is one that can be written."""
        return as_numpy(out, "out") if isinstance(out, np.ndarray) else self.memory(out)

    def memory(self, out: Any) -> Array:
        """Raise: what would be written into a copy is lost."""
        raise ArgumentError(
            f"out is a {kind_text(out)}, whose memory cannot be written from here; leave out= away "
            "and assign the result, as with out[...] = convert(...)"
        )


class _Memory(Container):
    """The way of what gives its memory, which may be written where it says so."""

    def memory(self, out: Any) -> Array:
        """The array that shares its memory."""
        return self.arrive(out, "out")


class _Buffer(_Memory):
    """bytes, bytearray, memoryview, array.array, mmap and others with the buffer protocol."""

    def read(self, x: Any, what: str) -> Any:
        """The array that shares the buffer; bytes are a vector of uint8."""
        try:
            return np.asarray(memoryview(x))
        except (BufferError, NotImplementedError, RuntimeError, ValueError) as error:
            raise memory_error(what, x, f"pass a numpy.ndarray ({error})") from error


class ListAdapter(Container):
    """Lists and tuples of arrays of one shape and dtype: a batch, whose first axis counts them.

    Results are of the kind of the first array. `whose` gives the adapter of each.
    """

    def __init__(self, whose: Callable[[Any], Adapter]) -> None:
        self._whose = whose

    def holds(self, x: Any) -> bool:
        """Whether it is a list of arrays: not of numbers, nor of lists."""
        return isinstance(x, list | tuple) and bool(x) and self._is_array(x[0])

    def arrive(self, x: Any, what: str) -> Array:
        """The arrays one after the other, in new memory."""
        arrays = [
            self._whose(each).arrive(each, f"item {at} of {what}") for at, each in enumerate(x)
        ]
        return stacked(arrays, what)

    def leave(self, array: Array, like: Any) -> Any:
        """The result as the library of the first array has it."""
        return self._whose(like[0]).leave(array, like[0])

    def unchanged_result(self, x: Any, array: Array) -> Any:
        """The result where nothing had to move any more."""
        return self.leave(array, x)

    def is_recorded(self, x: Any) -> bool:
        """Whether the arrays are stacked by their library: traced, for a gradient, on a GPU."""
        if not self.holds(x) or not isinstance(library_of(x[0]), Symbolic):
            return False
        found = self._whose(x[0])
        return isinstance(found, CudaAdapter) or any(map(found.is_recorded, x))

    def convert_recorded(self, converter: Converter, x: Any, out: Any) -> Any:
        """The conversion of what their library stacks."""
        return converter(self.stack(x), out)

    def sum_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        """The sum with what their library stacks."""
        return accumulator([self.stack(p) if self.is_recorded(p) else p for p in parts], out)

    def stack(self, x: Sequence[Any]) -> Any:
        """The arrays as one, in the words of the first one's library."""
        shapes = {tuple(getattr(each, "shape", ())) for each in x}
        if len(shapes) > 1:
            raise ShapeError(f"arrays of shapes {sorted(shapes)} are not stacked; give one shape")
        words: Any = library_of(x[0])
        return words.xp.stack(list(x))

    def _is_array(self, x: Any) -> bool:
        known = isinstance(x, np.ndarray) or self._whose(x) is not NUMPY
        return known and not isinstance(x, list | tuple | bytes)


def stacked(arrays: Sequence[Array], what: str) -> Array:
    """Arrays one after the other, in new memory; `what` names what holds them.

    Raises
    ------
    ShapeError, DtypeError
        They are not of one shape and dtype.
    """
    first = arrays[0]
    for at, array in enumerate(arrays):
        if array.shape != first.shape:
            raise ShapeError(
                f"the arrays of {what} are stacked, but item {at} has shape {array.shape} and item "
                f"0 {first.shape}; bring them to one shape first: pictures with "
                "layoutkit.images.fit, others by a window of each"
            )
        if array.dtype != first.dtype:
            raise DtypeError(
                f"the arrays of {what} are stacked, but item {at} has dtype {array.dtype} and item "
                f"0 {first.dtype}; give arrays of one dtype"
            )
    return np.stack(arrays, out=empty((len(arrays), *first.shape), first.dtype))


def column(values: Any, what: str) -> Array:
    """The values of a column, those of a column of arrays stacked."""
    found = as_numpy(values, what)
    if found.dtype == object and found.size and all(isinstance(v, np.ndarray) for v in found.flat):
        return stacked(list(found.flat), what)
    return found


def array_protocol_adapter(x: Any) -> Container | None:
    """How anything that speaks one of NumPy's protocols gives its array; None: it does not."""
    if isinstance(x, np.ndarray | np.generic | type) or _is_layoutkit_object(x):
        return None
    if _has_member(x, "__array_interface__"):
        return INTERFACE
    if _has_member(x, "__array__"):
        return READ
    try:
        memoryview(x).release()
    except TypeError:
        return None
    return BUFFER


def _is_layoutkit_object(x: Any) -> bool:
    """Whether it is a View: an array to NumPy, but with a layout of its own to be got from."""
    return any(str(each.__module__).startswith(_PACKAGE) for each in type(x).__mro__)


def _has_member(x: Any, name: str) -> bool:
    """Whether an object has a method; without asking for it, as that may read all the data."""
    return hasattr(type(x), name) or name in getattr(x, "__dict__", ())


READ, INTERFACE, BUFFER = Container(), _Memory(), _Buffer()

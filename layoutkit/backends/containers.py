"""Adapters for objects that contain an array: PIL images, buffers, files, columns, lists of arrays.

The NumPy array shares the memory of the object if the object exports it (buffer protocol,
`__array_interface__`) and may be a copy otherwise (`__array__`, lists). Results are therefore never
written into the latter. Containers of one library are in the module named after the library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._utils.validation import describe_type
from ..buffers import empty
from ..errors import ArgumentError, DtypeError, LayoutkitError, ShapeError
from ..memory import Array, as_numpy
from ..spec import DType
from .base import NUMPY, Adapter, make_memory_error
from .cupy import CudaAdapter
from .registry import library_of
from .symbolic import ArrayNamespace

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from ..converter import Converter

_PACKAGE = __name__.partition(".")[0] + "."


class Container(Adapter):
    """The adapter of an object that contains an array. The base class calls `__array__`."""

    is_container = True

    def to_numpy(self, x: Any, arg_name: str) -> Array:
        """Return the whole array that x contains; it may be a copy."""
        return as_numpy(self.read(x, arg_name), arg_name)

    def read(self, x: Any, arg_name: str) -> Any:
        """Return the array as its library returns it."""
        try:
            return np.asanyarray(x)
        except (LayoutkitError, OSError, MemoryError):
            raise
        except Exception as error:  # the library may raise anything if there is no array
            fix = f"pass a numpy.ndarray of its data ({error})"
            raise make_memory_error(arg_name, x, fix) from error

    def inspect(self, x: Any, arg_name: str) -> tuple[tuple[int, ...], DType]:
        """Return shape and dtype, without reading the data if x has both as attributes."""
        shape = getattr(x, "shape", None)
        dtype = getattr(x, "dtype", None)
        if isinstance(shape, tuple) and isinstance(dtype, np.dtype):
            return shape, dtype
        array = self.to_numpy(x, arg_name)
        return array.shape, array.dtype

    def from_numpy(self, array: Array, like: Any) -> Any:
        return array

    def unchanged_result(self, x: Any, array: Array) -> Any:
        return array

    def target(self, out: Any) -> Array:
        """Return the memory of the caller's output; raise unless it can be written."""
        return as_numpy(out, "out") if isinstance(out, np.ndarray) else self.memory(out)

    def memory(self, out: Any) -> Array:
        """Raise ArgumentError: data written to a copy would be lost."""
        raise ArgumentError(
            f"out is {describe_type(out)}, whose memory cannot be written from here; omit out= "
            "and assign the result, as with out[...] = convert(...)"
        )


class _Memory(Container):
    """The adapter of objects that export their memory, which may be writable."""

    def memory(self, out: Any) -> Array:
        """Return the array that shares the memory of the output."""
        return self.to_numpy(out, "out")


class _Buffer(_Memory):
    """The adapter of the buffer protocol: bytes, memoryview, array.array, mmap and others."""

    def read(self, x: Any, arg_name: str) -> Any:
        """Return the array that shares the buffer; bytes are a vector of uint8."""
        try:
            return np.asarray(memoryview(x))
        except (BufferError, NotImplementedError, RuntimeError, ValueError) as error:
            raise make_memory_error(arg_name, x, f"pass a numpy.ndarray ({error})") from error


_COLOR_AXES = 3  # of images with channels: h, w, c


def find_pixels_cure(values: Sequence[Any], name: str, ndim: int) -> str | None:
    """Return how to get `ndim` axes of encoded bytes, or three of an image without channels.

    None if there are no such values; `name` stands for one of them.
    """
    for value in values:
        if isinstance(value, bytes | bytearray) and ndim != 1:
            return f"for the pixels of an encoded image, pass layoutkit.images.read({name})"
        is_image = hasattr(value, "getbands")  # of Pillow
        if is_image and len(value.getbands()) == 1 and ndim == _COLOR_AXES:
            return (
                f'an image of mode "{value.mode}" has no axis of channels: pass '
                f'{name}.convert("RGB")'
            )
    return None


class ListAdapter(Container):
    """The adapter of lists and tuples of arrays of one shape and dtype, stacked as a batch.

    Results are of the type of the first array. `get_adapter` returns the adapter of an item.
    """

    def __init__(self, get_adapter: Callable[[Any], Adapter]) -> None:
        self._adapter_of = get_adapter

    def holds(self, x: Any) -> bool:
        """Return True if x is a list of arrays rather than of numbers or lists."""
        return isinstance(x, list | tuple) and bool(x) and self._is_array(x[0])

    def to_numpy(self, x: Any, arg_name: str) -> Array:
        arrays = [self._read_item(item, f"item {n} of {arg_name}") for n, item in enumerate(x)]
        return stack_arrays(arrays, arg_name)

    def from_numpy(self, array: Array, like: Any) -> Any:
        return self._adapter_of(like[0]).from_numpy(array, like[0])

    def narrowed(self, converter: Converter, x: Any) -> Converter:
        return self._adapter_of(x[0]).narrowed(converter, x[0])

    def unchanged_result(self, x: Any, array: Array) -> Any:
        return self.from_numpy(array, x)

    def is_recorded(self, x: Any) -> bool:
        if not self.holds(x) or not isinstance(library := library_of(x[0]), ArrayNamespace):
            return False
        adapter = self._adapter_of(x[0])
        if isinstance(adapter, CudaAdapter) or any(map(adapter.is_recorded, x)):
            return True
        # A traced array of jax has another type, and another adapter.
        others = [item for item in x if type(item) is not type(x[0])]
        return any(self._adapter_of(y).is_recorded(y) for y in others if library_of(y) is library)

    def convert_recorded(self, converter: Converter, x: Any, out: Any) -> Any:
        return converter(self.stack(x), out)

    def sum_recorded(self, accumulator: Accumulator, parts: Sequence[Any], out: Any) -> Any:
        return accumulator([self.stack(p) if self.is_recorded(p) else p for p in parts], out)

    def stack(self, x: Sequence[Any]) -> Any:
        """Return the items, of any libraries, stacked by the library of the first."""
        namespace: Any = library_of(x[0])
        items = [
            item if library_of(item) is namespace else self._item_like(x[0], item, f"item {n} of x")
            for n, item in enumerate(x)
        ]
        shapes = {tuple(item.shape) for item in items}
        if len(shapes) > 1:
            raise ShapeError(f"arrays of shapes {sorted(shapes)} are not stacked; give one shape")
        dtypes = {namespace.dtype(item).name for item in items}
        if len(dtypes) > 1:
            raise DtypeError(f"arrays of {sorted(dtypes)} are not stacked; give one dtype")
        return namespace.xp.stack(items)

    def _item_like(self, first: Any, item: Any, arg_name: str) -> Any:
        """Return an item of another library as an array of the library of the first item."""
        array = self._read_item(item, arg_name)
        # torch warns about read-only memory, such as jax's.
        return self._adapter_of(first).from_numpy(
            array if array.flags.writeable else array.copy(), first
        )

    def _read_item(self, item: Any, arg_name: str) -> Array:
        """Return an item as a NumPy array; raise ArgumentError if its gradient would be lost."""
        adapter = self._adapter_of(item)
        if not adapter.is_traced and adapter.has_gradient(item):
            raise ArgumentError(
                f"{arg_name} requires a gradient, but the result is not a torch tensor, because "
                "item 0 is not; pass a tensor as item 0, or the detach() of this one"
            )
        return adapter.to_numpy(item, arg_name)

    def _is_array(self, x: Any) -> bool:
        known = isinstance(x, np.ndarray) or self._adapter_of(x) is not NUMPY
        return known and not isinstance(x, list | tuple | bytes)


def stack_arrays(arrays: Sequence[Array], arg_name: str) -> Array:
    """Return the arrays stacked in new memory; `arg_name` names their container in errors.

    Raises
    ------
    ShapeError, DtypeError
        The arrays differ in shape or dtype.
    """
    first = arrays[0]
    for index, array in enumerate(arrays):
        if array.shape != first.shape:
            raise ShapeError(
                f"the arrays of {arg_name} are stacked, but item {index} has shape {array.shape} "
                f"and item 0 {first.shape}; first make them one size, by a call "
                'layoutkit.collate(arrays, "hwc->bchw", h=224, w=224) or by layoutkit.images.fit'
            )
        if array.dtype != first.dtype:
            raise DtypeError(
                f"the arrays of {arg_name} are stacked, but item {index} has dtype {array.dtype} "
                f"and item 0 {first.dtype}; give arrays of one dtype"
            )
    return np.stack(arrays, out=empty((len(arrays), *first.shape), first.dtype))


def column_values(values: Any, arg_name: str) -> Array:
    """Return the values of a column; a column of arrays is stacked."""
    result = as_numpy(values, arg_name)
    if (
        result.dtype == object
        and result.size
        and all(isinstance(v, np.ndarray) for v in result.flat)
    ):
        return stack_arrays(list(result.flat), arg_name)
    return result


def array_protocol_adapter(x: Any) -> Container | None:
    """Return the adapter for one of NumPy's array protocols, or None if x supports none of them."""
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
    """Return True for a View, which NumPy could read but which has its own layout."""
    return any(str(base.__module__).startswith(_PACKAGE) for base in type(x).__mro__)


def _has_member(x: Any, name: str) -> bool:
    """Return True if x has a member, without reading it, as that may load all data."""
    return hasattr(type(x), name) or name in getattr(x, "__dict__", ())


READ = Container()
INTERFACE = _Memory()
BUFFER = _Buffer()

"""`ArraySpace`: a space whose batch is one array. Shape, dtype and origin follow from its axes."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ..arrays.symbolic import NUMPY
from ..errors import DtypeError, ShapeError
from ..spec import DType, as_dtype, check_movable
from .base import Space, dtype_text
from .checks import Axis, Leaf, check_dtype, check_library, checked_size, wrong_shape

__all__ = ["ArraySpace"]


class ArraySpace(Space):
    """What vectors, images and labels have in common; a frozen dataclass derives from it.

    `_axes` says what the axes of a batch are, in order, with None for the size of the batch.
    """

    __match_args__: tuple[str, ...]  # the names of its fields, which the dataclass fills in
    _kinds = ""  # NumPy's letters of the kinds of dtype that it holds; "" for all
    _default = "float32"  # of an origin, where the dtype is None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__eq__" not in vars(cls):
            cls.__eq__ = ArraySpace.__eq__  # type: ignore[method-assign]  # a dataclass writes none then

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        # NumPy takes None for float64, but a space of any dtype is none of that one.
        if (self.dtype is None) is not (other.dtype is None):
            return False
        return self._values() == other._values()

    def _values(self) -> list[Any]:
        """The fields, in order."""
        return list(map(vars(self).__getitem__, self.__match_args__))

    @property
    def _axes(self) -> tuple[Axis, ...]:
        raise NotImplementedError

    def _hint(self, shape: tuple[Any, ...]) -> str:
        """What to do about a batch of a wrong shape, where more than the usual can be said."""
        return ""

    def _set_sizes(self, *names: str) -> None:
        for name in names:
            object.__setattr__(self, name, checked_size(name, getattr(self, name)))

    def _set_dtype(self) -> None:
        if self.dtype is None:
            return
        dtype = as_dtype(self.dtype)
        check_movable(dtype)
        object.__setattr__(self, "dtype", dtype)

    def _text(self, *fields: str) -> str:
        """The repr: the fields, `name=value` each, and the dtype."""
        shown = [f"{name}={getattr(self, name)!r}" for name in fields]
        shown.append(f"dtype={dtype_text(self.dtype)}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def get_total_dimension(self) -> int:
        """The product of all sizes but the batch's."""
        return prod(self._fixed[1])

    def get_origin(self) -> Any:
        """Zeros, in the order of the axes."""
        dtype = as_dtype(self._default if self.dtype is None else self.dtype)
        return self._zeros(self._shape(), dtype)

    def with_dtype(self, dtype: Any) -> Any:
        """This space with another dtype; None for any dtype."""
        return replace(self, dtype=dtype)  # type: ignore[type-var]  # all derived are dataclasses

    def _shape(self, *n: int) -> tuple[int, ...]:
        """The shape of a batch of n samples; without n, that of one sample."""
        at, fixed = self._fixed
        return fixed[:at] + n + fixed[at:]

    def arrays_in(self, batch: Any) -> list[Leaf]:
        """The array, checked by its shape and dtype."""
        # What is right in the plainest way is said so in a microsecond.
        library = NUMPY if type(batch) is np.ndarray else check_library(self, batch)
        shape, (at, fixed) = library.shape(batch), self._fixed
        if len(shape) != len(fixed) + 1 or shape[:at] + shape[at + 1 :] != fixed:
            raise wrong_shape(self, self._axes, shape, self._hint(shape))
        dtype = library.dtype(batch)
        if self.dtype is None or dtype != self.dtype:
            check_dtype(self, dtype, self._kinds)
        return [Leaf((), library, shape[at])]

    @cached_property
    def _fixed(self) -> tuple[int, tuple[int, ...]]:
        """Where the batch axis is, and the sizes of the others."""
        sizes = [axis.size for axis in self._axes]
        return sizes.index(None), tuple(size for size in sizes if size is not None)

    def _origin_batch(self, n: int, dtype: Any) -> Any:
        return self._zeros(self._shape(n), self._batch_dtype(dtype))

    def _zeros(self, shape: tuple[int, ...], dtype: DType) -> Any:
        try:
            return np.zeros(shape, dtype)
        except (ValueError, MemoryError) as error:
            raise ShapeError(
                f"an array of shape {shape} and dtype {dtype}, as {self!r} asks for, does not fit "
                "into memory; ask for fewer samples, or a smaller space"
            ) from error

    def symbolic_batch(self, n: int, dtype: Any, library: Any) -> Any:
        """A batch of n samples, in the order of the axes."""
        found = self._batch_dtype(dtype)
        library.check(found)
        return library.make(self._shape(n), found)

    def _batch_dtype(self, dtype: Any) -> DType:
        """The dtype of a new batch: the one given, as far as the space allows it, or its own."""
        found: DType | None = self.dtype if dtype is None else self.with_dtype(dtype).dtype
        if found is None:
            raise DtypeError(
                f"{self!r} takes any dtype, so it does not say which a new batch should have; "
                f'give one, such as dtype="{self._default}"'
            )
        return found

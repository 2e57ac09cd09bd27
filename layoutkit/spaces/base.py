"""`Space`: what every space can do. The kinds of spaces say how, in files of their own.

It knows of no kind. What a batch becomes is for routes.py to say, what Views are to it for
viewing.py, and what a view asks of it for asking.py.

`ArraySpace`: a space whose batch is one array. Shape, dtype and origin follow from its axes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ..backends.registry import framework_named
from ..backends.symbolic import NUMPY
from ..errors import DtypeError, ShapeError, SpaceError
from ..spec import DType, as_dtype, check_casting, check_movable
from ..views.base import View
from ..views.batch import Gradient
from . import views
from .convert import route
from .validation import (
    Axis,
    Leaf,
    check_dtype,
    check_library,
    checked_size,
    common_library,
    common_size,
    wrong_shape,
)
from .views import KINDS, view_of


class Space:
    """What a batch may look like; the base class of all spaces.

    Spaces are frozen and hashable, equal when they are of one class with equal fields, and
    their repr reads back.
    """

    family = ""  # which row and column of the table in routes.py
    dtype: Any

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "family" in vars(cls):
            KINDS.setdefault(cls.family, cls)  # a user's own class does not replace ours

    def validate(self, batch: Any) -> None:
        """Raise what is wrong with the batch, if it is not one of this space.

        Sees to the kind of batch, shape, dtype (NumPy's same_kind), range of labels, and, in a
        composite, to equal batch sizes. Of a symbolic batch (jax, torch) what is static.

        Raises
        ------
        ShapeError
            A shape, width, label or batch size; says the axis, what it means, and its place.
        DtypeError
            A dtype that same_kind does not cast to the space's.
        SpaceError
            Something that is no batch of this kind of space.
        """
        self._checked(batch)

    def format_as(self, batch: Any, other: Space, *, casting: str = "same_kind") -> Any:
        """The batch of this space as a batch of another one.

        It is checked once and then moved by `convert`: into pooled memory, or nowhere. Where
        nothing has to move, the result is the batch itself or a view of it, as with `convert`.
        A symbolic batch gives an expression of its own framework.

        Parameters
        ----------
        batch : array, or a nested tuple of arrays in a CompositeSpace
        other : Space
            An `other.dtype` of None keeps the batch's (one-hot: float32).
        casting : "same_kind", "safe", "unsafe" or "saturate"
            What may happen to the batch's dtype on its way to other's, as in `convert`.

        Raises
        ------
        SpaceError
            This space never converts into the other one.
        ShapeError, DtypeError
            As `validate`, and where `casting` does not allow a dtype.
        """
        check_casting(casting)
        leaves = self._checked(batch)
        return _run(route(self, _required(other), casting, False), batch, leaves)

    def undo_format_as(self, batch: Any, other: Space) -> Any:
        """The way back: a batch of `other`, made by `format_as`, as a batch of this space.

        Layout and dtype become this space's again, whatever the cast (in NumPy's words
        "unsafe": floats are cut off, integers wrap around).

        Raises
        ------
        SpaceError
            The other space never converts into this one, such as one-hot vectors into labels.
        ShapeError, DtypeError
            The batch is not one of `other`.
        """
        leaves = _required(other)._checked(batch)
        return _run(route(other, self, "unsafe", True), batch, leaves)

    # The names that these had when symbolic and numeric batches had methods of their own.
    np_validate = validate
    np_format_as = format_as
    undo_np_format_as = undo_format_as

    def batch_size(self, batch: Any) -> int:
        """The number of samples in the batch; 0 where there is no data. Validates."""
        return common_size(self._checked(batch))  # type: ignore[no-any-return]

    def get_total_dimension(self) -> int:
        """The numbers in one sample: a matrix that holds the same data has as many columns."""
        raise NotImplementedError

    def get_origin(self) -> Any:
        """Zeros in the shape of one sample (float32, labels int64, where the dtype is None)."""
        raise NotImplementedError

    def get_origin_batch(self, n: int, dtype: Any = None) -> Any:
        """A batch of n origins, in the space's dtype or the one given.

        Raises DtypeError where the space's dtype is None and none is given.
        """
        return self._origin_batch(checked_size("n", n, least=0), dtype)

    def make_symbolic_batch(
        self, batch_size: int = 1, *, dtype: Any = None, framework: str = "jax"
    ) -> Any:
        """A batch without data: a jax.ShapeDtypeStruct, or a torch tensor on the meta device.

        Widths are those that the framework's settings allow (JAX without x64: 32 bits). A
        sequence, whose length may be any, is one step long.

        Raises
        ------
        ArgumentError
            The framework is not installed, or is neither "jax" nor "torch".
        DtypeError
            The space's dtype is None and none is given, or the framework lacks it.
        """
        n = checked_size("batch_size", batch_size, least=0)
        return self.symbolic_batch(n, dtype, framework_named(framework))

    def with_dtype(self, dtype: Any) -> Any:
        """This space with another dtype; None for any dtype.

        A CompositeSpace takes one for all its components or a tuple, nested as it is.
        """
        raise NotImplementedError

    def view(self, batch: Any) -> Any:
        """The View that holds the batch, by reference; None for NullSpace.

        DataView, ImageView, SequenceView, ClassView or, for a composite, ListView. Validates. The
        batch may be of any library, and has data: SpaceError for one that is traced or abstract.
        """
        self._checked(batch)
        return view_of(self, batch)

    # -- what a view asks where this space stands in the place of a layout -----------------

    def check_from(self, view: View, dtype: Any, device: Any) -> None:
        """For views: raise what `get_from` would, before anything is made."""
        views.check_from(self, view, dtype, device)

    def get_from(self, view: View, dtype: Any, device: Any) -> Any:
        """For views: what `view.forward_get(self, dtype, device)` is."""
        return views.get_from(self, view, dtype, device)

    def gradients_for(self, view: View, grad: Any) -> list[Gradient]:
        """For views: what `view.backward_put(self, grad)` adds to each array of the view."""
        return views.gradients_for(self, view, grad)

    # -- what a kind of space has to say ---------------------------------------------------

    def _checked(self, batch: Any) -> list[Leaf]:
        """The arrays of a batch that has been found to be one of this space."""
        leaves = self.arrays_in(batch)
        if len(leaves) > 1:
            common_library(leaves)
            common_size(leaves)
        return leaves

    def arrays_in(self, batch: Any) -> list[Leaf]:
        """For composites: the arrays of a batch, each checked by itself."""
        raise NotImplementedError

    def symbolic_batch(self, n: int, dtype: Any, library: Any) -> Any:
        """For composites: a batch of a framework, without data."""
        raise NotImplementedError

    def _origin_batch(self, n: int, dtype: Any) -> Any:
        raise NotImplementedError


def _required(other: Any) -> Space:
    if not isinstance(other, Space):
        raise SpaceError(f"the other space is {other!r}; pass a Space such as VectorSpace(10)")
    return other


def _run(conversion: Any, batch: Any, leaves: list[Leaf]) -> Any:
    """Judge all dtypes before the first array moves, then move them."""
    library = leaves[0].library if leaves else NUMPY
    conversion.judge(batch, library)
    return library.apply(conversion.run, batch)


def dtype_text(dtype: Any) -> str:
    """A dtype as it is written in a repr."""
    if dtype is None:
        return "None"
    return repr(dtype) if np.dtype(dtype).fields is not None else f'"{dtype}"'


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

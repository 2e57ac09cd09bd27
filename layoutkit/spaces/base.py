"""`Space`, the base class of all spaces, and `ArraySpace`, whose batch is one array.

`convert.py` has the conversions between spaces, `views.py` those between spaces and Views.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from html import escape
from math import prod
from typing import Any

import numpy as np

from .._utils.pickling import UncachedState
from .._utils.validation import check_int, show
from ..backends.registry import import_framework
from ..backends.symbolic import NUMPY
from ..errors import DtypeError, ShapeError, SpaceError
from ..layout.parsing import parse_layout
from ..spec import DType, as_dtype, check_casting, check_supported_dtype
from ..views.base import View
from ..views.batch import ConversionGradient
from . import views
from .convert import find_conversion
from .validation import (
    Axis,
    Leaf,
    check_dtype,
    check_library,
    common_library,
    common_size,
    shape_error,
)
from .views import SPACE_CLASSES


class Space(UncachedState):
    """The shape and dtype of batches; the base class of all spaces.

    Spaces are immutable and hashable. Spaces of one class with equal fields compare equal, and
    `eval` of their repr gives an equal space.
    """

    family = ""  # key of the table of conversions in convert.py
    dtype: Any

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        SPACE_CLASSES.setdefault(cls.__name__, cls)  # a class of the user does not replace ours

    def _repr_html_(self) -> str:
        layout = getattr(self, "layout", None)
        batches = "" if layout is None else f"\nbatches of layout {layout}"
        return f"<pre>{escape(repr(self) + batches)}</pre>"

    def validate(self, batch: Any) -> None:
        """Raise an error if the batch is not a batch of this space.

        Checks the type, shape, dtype (NumPy's same_kind), range of labels, and, in a composite,
        equal batch sizes. Checks only the static properties of a symbolic batch (jax, torch).

        Raises
        ------
        ShapeError
            A wrong shape, width, label or batch size; the message has the axis, its meaning and
            the path of the array.
        DtypeError
            A dtype that same_kind does not cast to the space's.
        SpaceError
            The object cannot be a batch of this kind of space.
        """
        self._validated_leaves(batch)

    def format_as(self, batch: Any, other: Space, *, casting: str = "same_kind") -> Any:
        """Convert a batch of this space to a batch of another space.

        The batch is validated once and then converted by `convert`, into pooled memory. If nothing
        has to move, the result is the batch itself or a view of it, as with `convert`. A symbolic
        batch gives an expression of its framework.

        Parameters
        ----------
        batch : array, or a nested tuple of arrays in a CompositeSpace
        other : Space
            An `other.dtype` of None keeps the batch's (one-hot: float32).
        casting : "same_kind", "safe", "unsafe" or "saturate"
            The casting rule from the batch's dtype to other's, as in `convert`.

        Raises
        ------
        SpaceError
            There is no conversion from this space to the other one.
        ShapeError, DtypeError
            The batch is invalid (see `validate`), or `casting` does not allow a dtype.
        """
        check_casting(casting)
        leaves = self._validated_leaves(batch)
        return _convert(find_conversion(self, _check_space(other), casting, False), batch, leaves)

    def undo_format_as(self, batch: Any, other: Space) -> Any:
        """Convert a batch of `other`, made by `format_as`, back to a batch of this space.

        Layout and dtype become this space's again, with casting="unsafe": floats are truncated,
        integers wrap around.

        Raises
        ------
        SpaceError
            There is no conversion back, as from one-hot vectors to labels.
        ShapeError, DtypeError
            The batch is not one of `other`.
        """
        leaves = _check_space(other)._validated_leaves(batch)
        return _convert(find_conversion(other, self, "unsafe", True), batch, leaves)

    # The names from when symbolic and numeric batches had separate methods.
    np_validate = validate
    np_format_as = format_as
    undo_np_format_as = undo_format_as

    def batch_size(self, batch: Any) -> int:
        """Validate the batch and return its number of samples; 0 if it holds no data."""
        return common_size(self._validated_leaves(batch))

    def get_total_dimension(self) -> int:
        """Return the size of a sample in numbers: the columns of a matrix of the same data."""
        raise self._undefined("get_total_dimension")

    def get_origin(self) -> Any:
        """Return zeros in the shape of one sample (if dtype is None: float32, labels int64)."""
        raise self._undefined("get_origin")

    def get_origin_batch(self, n: int, dtype: Any = None) -> Any:
        """Return a batch of n origins, in `dtype` or the space's dtype.

        Raises DtypeError if both are None.
        """
        return self._origin_batch(check_int("n", n, 0, ShapeError), dtype)

    def make_symbolic_batch(
        self, batch_size: int = 1, *, dtype: Any = None, framework: str = "jax"
    ) -> Any:
        """Return a batch without data: jax.ShapeDtypeStruct or a torch tensor on device meta.

        The framework's settings limit the bit width (JAX without x64: 32 bits). A sequence, which
        may have any length, gets length 1.

        Raises
        ------
        ArgumentError
            The framework is not installed, or is neither "jax" nor "torch".
        DtypeError
            Both the space's dtype and `dtype` are None, or the framework does not support it.
        """
        n = check_int("batch_size", batch_size, 0, ShapeError)
        return self.symbolic_batch(n, dtype, import_framework(framework))

    def with_dtype(self, dtype: Any) -> Any:
        """Return this space with another dtype; None for any dtype.

        A CompositeSpace accepts one dtype for all components, or a tuple with its nesting.
        """
        raise self._undefined("with_dtype")

    def view(self, batch: Any) -> Any:
        """Validate the batch and return a View that holds a reference to it; None for NullSpace.

        The View is a DataView, ImageView, SequenceView, ClassView or, for a composite, a ListView.
        The batch may be of any library. Raises SpaceError if it is traced or abstract, since a
        View needs data.
        """
        self._validated_leaves(batch)
        return self._make_view(batch)

    # -- for Views that get or put data by a space in place of a layout ---------------------

    def check_from(self, view: View, dtype: Any, device: Any) -> None:
        """Raise the errors of `get_from` before anything is converted; called by views."""
        views.check_from(self, view, dtype, device)

    def get_from(self, view: View, dtype: Any, device: Any) -> Any:
        """Return the result of `view.forward_get(self, dtype, device)`; called by views."""
        return views.get_from(self, view, dtype, device)

    def gradients_for(self, view: View, grad: Any) -> list[ConversionGradient]:
        """Return the gradients that `view.backward_put(self, grad)` adds; called by views."""
        return views.gradients_for(self, view, grad)

    # -- implemented by subclasses ---------------------------------------------------------

    def _make_view(self, batch: Any) -> View | None:
        raise SpaceError(f"no View holds batches of {self!r}; define its _make_view")

    def _validated_leaves(self, batch: Any) -> list[Leaf]:
        leaves = self.arrays_in(batch)
        if len(leaves) > 1:
            common_library(leaves)
            common_size(leaves)
        return leaves

    def arrays_in(self, batch: Any) -> list[Leaf]:
        """Validate the arrays of a batch one by one and return them; called by composites."""
        raise self._undefined("arrays_in")

    def symbolic_batch(self, n: int, dtype: Any, library: Any) -> Any:
        """Return a batch of a framework, without data; called by composites."""
        raise self._undefined("symbolic_batch")

    def _origin_batch(self, n: int, dtype: Any) -> Any:
        raise self._undefined("_origin_batch")

    def _undefined(self, method: str) -> SpaceError:
        return SpaceError(
            f"{type(self).__name__} does not define {method}, which its batches need; define it as "
            "Conv2DSpace does, or use a space of layoutkit"
        )


def _check_space(other: Any) -> Space:
    if not isinstance(other, Space):
        raise SpaceError(f"the other space is {show(other)}; pass a Space such as VectorSpace(10)")
    return other


def _convert(conversion: Any, batch: Any, leaves: list[Leaf]) -> Any:
    """Check all dtypes before the first array is converted, then convert all arrays."""
    library = leaves[0].library if leaves else NUMPY
    conversion.check_dtype(batch, library)
    return library.apply(conversion.run, batch)


def dtype_text(dtype: Any) -> str:
    """Return a dtype as it is written in a repr."""
    if dtype is None:
        return "None"
    return repr(dtype) if np.dtype(dtype).fields is not None else f'"{dtype}"'


class ArraySpace(Space):
    """The base class of spaces whose batch is one array.

    A subclass of another package is a frozen dataclass with a field `dtype` and these attributes.
    Its batches are then validated, viewed, and converted to and from vectors, composites, and
    spaces of the same sizes in another layout.

    Attributes
    ----------
    layout : str
        One letter for each axis of a batch, in their order; b is the samples.
    sizes : dict
        The size of every other axis by its letter. Vectors have the numbers of a sample in the
        order of these letters, for any layout.
    dtype : dtype or None
        The dtype of batches; None for any.
    """

    family = "array"
    __match_args__: tuple[str, ...]  # the field names, set by the dataclass
    _dtype_kinds = ""  # NumPy's dtype kinds that are allowed; "" for all
    _default_dtype = "float32"  # of an origin, if the space's dtype is None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__eq__" not in vars(cls):
            cls.__eq__ = ArraySpace.__eq__  # type: ignore[method-assign]  # the dataclass keeps it

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        # NumPy treats a dtype of None as float64; for a space it means any dtype.
        if (self.dtype is None) is not (other.dtype is None):
            return False
        return self._field_values() == other._field_values()

    def _field_values(self) -> list[Any]:
        return list(map(vars(self).__getitem__, self.__match_args__))

    def __post_init__(self) -> None:
        """Check the dtype, and the layout and its sizes; called by the dataclass."""
        self._set_dtype()
        len(self._axes)  # raises if they do not match

    # Subclasses have `layout` and `sizes` as fields, attributes or properties, so none is declared.
    @cached_property
    def _axes(self: Any) -> tuple[Axis, ...]:
        """The axes of a batch in order; the size of the batch axis is None."""
        for name in ("layout", "sizes"):
            if not hasattr(self, name):
                raise self._undefined(name)
        letters = parse_layout(self.layout).groups
        if sorted(letters) != sorted(["b", *self.sizes]):
            raise SpaceError(
                f"{type(self).__name__} has layout={self.layout!r} and the sizes {self.sizes}; the "
                "layout has the letters of all sizes and b, once each"
            )
        sizes = {name: check_int(name, n, 1, ShapeError) for name, n in self.sizes.items()}
        return tuple(Axis("batch" if x == "b" else x, sizes.get(x)) for x in letters)

    @property
    def flat_layout(self: Any) -> str:
        """The layout of a batch as vectors, such as `b(hwc)`."""
        return f"b({''.join(self.sizes)})"

    def _make_view(self: Any, batch: Any) -> View:
        return views.view_for_layout(self.layout, views.check_has_data(batch))

    def _hint(self, shape: tuple[Any, ...]) -> str:
        """Return specific advice for a batch of a wrong shape, or an empty string."""
        return ""

    def _set_sizes(self, *names: str) -> None:
        for name in names:
            object.__setattr__(self, name, check_int(name, getattr(self, name), 1, ShapeError))

    def _set_dtype(self) -> None:
        if self.dtype is None:
            return
        dtype = as_dtype(self.dtype)
        check_supported_dtype(dtype)
        object.__setattr__(self, "dtype", dtype)

    def _repr_text(self, *fields: str) -> str:
        arguments = [f"{name}={getattr(self, name)!r}" for name in fields]
        arguments.append(f"dtype={dtype_text(self.dtype)}")
        return f"{type(self).__name__}({', '.join(arguments)})"

    def get_total_dimension(self) -> int:
        return prod(self._batch_axis_and_sizes[1])

    def get_origin(self) -> Any:
        """Return zeros, in the order of the axes."""
        dtype = as_dtype(self._default_dtype if self.dtype is None else self.dtype)
        return self._zeros(self._shape(), dtype)

    def with_dtype(self, dtype: Any) -> Any:
        """Return this space with another dtype; None for any dtype."""
        return replace(self, dtype=dtype)  # type: ignore[type-var]  # subclasses are dataclasses

    def _shape(self, *n: int) -> tuple[int, ...]:
        """Return the shape of a batch of n samples; without n, the shape of one sample."""
        axis, sizes = self._batch_axis_and_sizes
        return sizes[:axis] + n + sizes[axis:]

    def arrays_in(self, batch: Any) -> list[Leaf]:
        # Fast path: a plain NumPy array takes a microsecond.
        library = NUMPY if type(batch) is np.ndarray else check_library(self, batch)
        shape = library.shape(batch)
        axis, sizes = self._batch_axis_and_sizes
        if len(shape) != len(sizes) + 1 or shape[:axis] + shape[axis + 1 :] != sizes:
            raise shape_error(self, self._axes, shape, self._hint(shape))
        dtype = library.dtype(batch)
        if self.dtype is None or dtype != self.dtype:
            check_dtype(self, dtype, self._dtype_kinds)
        return [Leaf((), library, shape[axis])]

    @cached_property
    def _batch_axis_and_sizes(self) -> tuple[int, tuple[int, ...]]:
        sizes = [axis.size for axis in self._axes]
        return sizes.index(None), tuple(size for size in sizes if size is not None)

    def _origin_batch(self, n: int, dtype: Any) -> Any:
        return self._zeros(self._shape(n), self._batch_dtype(dtype))

    def _zeros(self, shape: tuple[int, ...], dtype: DType) -> Any:
        try:
            return np.zeros(shape, dtype)
        except (ValueError, MemoryError) as error:
            raise ShapeError(
                f"an array of shape {shape} and dtype {dtype}, as {self!r} needs, does not fit "
                "into memory; ask for fewer samples, or a smaller space"
            ) from error

    def symbolic_batch(self, n: int, dtype: Any, library: Any) -> Any:
        """Return a batch of n samples, in the order of the axes."""
        batch_dtype = self._batch_dtype(dtype)
        library.check(batch_dtype)
        return library.make(self._shape(n), batch_dtype)

    def _batch_dtype(self, dtype: Any) -> DType:
        """Return the dtype of a new batch: `dtype` if the space allows it, or the space's."""
        result: DType | None = self.dtype if dtype is None else self.with_dtype(dtype).dtype
        if result is None:
            raise DtypeError(
                f"{self!r} accepts any dtype, so the dtype of a new batch is unknown; "
                f'pass one, such as dtype="{self._default_dtype}"'
            )
        return result

"""Spaces of single arrays.

`VectorSpace`: a matrix with one row per sample; dense or of scipy.sparse.

`Conv2DSpace`: images, with their four axes in any order.

`IndexSpace`: labels, as integers from 0.

`VectorSequenceSpace` and `IndexSequenceSpace`: one sequence of any length.

`NullSpace`: no data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from math import prod
from typing import Any

import numpy as np

from .._utils.validation import check_int, show
from ..backends.symbolic import NUMPY
from ..errors import ArgumentError, DtypeError, PatternError, ShapeError, SpaceError
from ..layout.parsing import parse_layout, with_batch_axis
from ..spec import DType, dtype_kind
from ..views import ClassView, DataView, SequenceView
from . import sparse, views
from .base import ArraySpace, Space
from .validation import Axis, Leaf, check_dtype, describe, shape_error


@dataclass(frozen=True, repr=False)
class VectorSpace(ArraySpace):
    """Vectors of `dim` numbers: a batch is a matrix (batch, dim).

    >>> space = VectorSpace(3)
    >>> space
    VectorSpace(dim=3, dtype="float32")
    >>> space.validate(np.zeros((2, 4), np.float32))
    Traceback (most recent call last):
    layoutkit.errors.ShapeError: VectorSpace(dim=3, dtype="float32") accepts (batch, dim=3), ...

    It converts to and from a Conv2DSpace of equally many numbers, always in the order (rows,
    columns, channels), and to and from a CompositeSpace, whose components are concatenated.

    Parameters
    ----------
    dim : int
    sparse : bool
        True if the batch is a matrix of scipy.sparse. `format_as` returns csr format.
    dtype : dtype or None
        None: any.
    """

    dim: int
    sparse: bool = False
    dtype: Any = "float32"

    family = "vector"

    def _make_view(self, batch: Any) -> DataView:
        return DataView(
            "bf", sparse.to_dense(batch) if self.sparse else views.check_has_data(batch)
        )

    def __post_init__(self) -> None:
        if not isinstance(self.sparse, bool | np.bool_):
            raise ArgumentError(f"sparse={show(self.sparse)}; it must be True or False")
        object.__setattr__(self, "sparse", bool(self.sparse))
        self._set_sizes("dim")
        self._set_dtype()
        if self.sparse and self.dtype is not None:
            sparse.check_sparse_dtype(self.dtype)

    def __repr__(self) -> str:
        return self._repr_text("dim", *["sparse"] * self.sparse)

    @cached_property
    def _axes(self) -> tuple[Axis, ...]:
        return Axis("batch", None), Axis("dim", self.dim)

    def _hint(self, shape: tuple[Any, ...]) -> str:
        if len(shape) == 1 and self.dim == 1:
            return "one number a sample is a matrix of one column: batch.reshape(-1, 1)"
        if len(shape) == 1 and shape[0] == self.dim:
            return "a single sample is a matrix of one row: batch.reshape(1, -1)"
        if len(shape) > 2 and prod(shape[1:]) == self.dim:
            return "images are a batch of a Conv2DSpace, whose format_as makes vectors of them"
        return ""

    def arrays_in(self, batch: Any) -> list[Leaf]:
        if not self.sparse:
            return super().arrays_in(batch)
        if not sparse.is_sparse(batch):
            raise SpaceError(
                f"{self!r} needs a matrix of scipy.sparse, not {describe(batch)}; pass "
                "scipy.sparse.csr_matrix(batch), or use VectorSpace(dim) for dense arrays"
            )
        if batch.shape[1:] != (self.dim,):
            raise shape_error(self, self._axes, batch.shape, self._hint(batch.shape))
        check_dtype(self, batch.dtype)
        sparse.check_entries(batch)
        return [Leaf((), NUMPY, batch.shape[0])]

    def _origin_batch(self, n: int, dtype: Any) -> Any:
        zeros = super()._origin_batch(0 if self.sparse else n, dtype)
        return sparse.zeros((n, self.dim), zeros.dtype) if self.sparse else zeros

    def symbolic_batch(self, n: int, dtype: Any, library: Any) -> Any:
        """Return a dense matrix; raise SpaceError if the space is sparse."""
        if self.sparse:
            raise SpaceError(
                f"{self!r} does not have symbolic batches: a batch of {library.name} is dense; use "
                f"VectorSpace({self.dim})"
            )
        return super().symbolic_batch(n, dtype, library)

    def _batch_dtype(self, dtype: Any) -> DType:
        result = super()._batch_dtype(dtype)
        if self.sparse:
            sparse.check_sparse_dtype(result)
        return result


_LETTERS: dict[str | int, str] = {"b": "b", 0: "h", 1: "w", "c": "c"}
_AXIS_NAMES = {letter: name for name, letter in _LETTERS.items()}
_AXES_HINT = 'axes are "b", 0 (rows), 1 (columns) and "c" in any order, or text such as "bhwc"'


@dataclass(frozen=True, repr=False)
class Conv2DSpace(ArraySpace):
    """Images of `shape` (rows, columns) and `num_channels` channels.

    >>> space = Conv2DSpace((32, 48), num_channels=3, axes=("b", "c", 0, 1))
    >>> space
    Conv2DSpace(shape=(32, 48), num_channels=3, axes=('b', 'c', 0, 1), dtype="float32")
    >>> space.get_origin_batch(8).shape
    (8, 3, 32, 48)
    >>> space == Conv2DSpace((32, 48), 3, "bchw")
    True

    Vectors have the numbers always in the order (rows, columns, channels), for any `axes`, so
    a conversion through a VectorSpace never scrambles an image.

    Parameters
    ----------
    shape : (rows, columns), for any axes
    num_channels : int
    axes : the order of "b", 0 (rows), 1 (columns), "c", outermost first; or a layout ("bhwc")
    dtype : dtype or None
        None: any.
    """

    shape: tuple[int, int]
    num_channels: int
    axes: Any = ("b", 0, 1, "c")
    dtype: Any = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _check_shape(self.shape))
        object.__setattr__(self, "axes", _parse_axes(self.axes))
        self._set_sizes("num_channels")
        self._set_dtype()

    def __repr__(self) -> str:
        return self._repr_text("shape", "num_channels", "axes")

    @cached_property
    def layout(self) -> str:
        """The axes as layoutkit writes them: `bhwc`, `bchw`, ..."""
        return "".join(_LETTERS[axis] for axis in self.axes)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the axes h, w and c."""
        return {"h": self.shape[0], "w": self.shape[1], "c": self.num_channels}

    @cached_property
    def _axes(self) -> tuple[Axis, ...]:
        return self._axes_of(self.layout)

    def _axes_of(self, layout: Iterable[str]) -> tuple[Axis, ...]:
        known = {
            "b": Axis("batch", None),
            "h": Axis("rows", self.shape[0]),
            "w": Axis("columns", self.shape[1]),
            "c": Axis("channels", self.num_channels),
        }
        return tuple(known[letter] for letter in layout)

    def _hint(self, shape: tuple[Any, ...]) -> str:
        if len(shape) == 2 and shape[1] == self.get_total_dimension():
            return f"flat images are a batch of VectorSpace({shape[1]}); convert them by format_as"
        for layout in permutations("bhwc"):
            sizes = [axis.size for axis in self._axes_of(layout)]
            if len(shape) == 4 and all(n in (None, s) for n, s in zip(sizes, shape, strict=True)):
                axes = tuple(_AXIS_NAMES[letter] for letter in layout)
                return f"it would fit axes={axes}: pass these to the space, or convert the batch"
        return ""


def _check_shape(shape: Any) -> tuple[int, int]:
    try:
        rows, columns = shape
    except (TypeError, ValueError):
        raise ShapeError(f"shape={show(shape)}; it must be a pair (rows, columns)") from None
    return check_int("rows", rows, 1, ShapeError), check_int("columns", columns, 1, ShapeError)


def _parse_axes(axes: Any) -> tuple[str | int, ...]:
    if isinstance(axes, str):
        letters = _parse_layout_text(axes)
    elif isinstance(axes, list | tuple):
        letters = tuple(_letter(axis) for axis in axes)
    else:
        raise PatternError(f"axes={show(axes)}; {_AXES_HINT}")
    if sorted(letters) != sorted(_AXIS_NAMES):
        raise PatternError(
            f"axes={show(axes)} must contain each of the four axes once; {_AXES_HINT}"
        )
    return tuple(_AXIS_NAMES[letter] for letter in letters)


def _parse_layout_text(text: str) -> tuple[str, ...]:
    try:
        return with_batch_axis(parse_layout(text)).groups
    except PatternError as error:
        raise PatternError(f"{error}\n{_AXES_HINT}") from None


def _letter(axis: Any) -> str:
    # 0, 0.0 and False are one dict key.
    is_valid_type = isinstance(axis, str | int | np.integer) and not isinstance(axis, bool)
    if not is_valid_type or axis not in _LETTERS:
        raise PatternError(f"{show(axis)} is not an axis of images; {_AXES_HINT}")
    return _LETTERS[axis]


class LabelSpace(ArraySpace):
    """The base class of spaces of labels, per sample or in sequences."""

    max_labels: int
    dim: int
    _dtype_kinds = "bui"
    _default_dtype = "int64"

    def __post_init__(self) -> None:
        self._set_sizes("max_labels", "dim")
        self._set_dtype()
        if self.dtype is not None and dtype_kind(self.dtype) not in "ui":
            raise DtypeError(
                f"dtype={self.dtype} of {type(self).__name__}; labels are integers, such as int64"
            )

    def __repr__(self) -> str:
        return self._repr_text("max_labels", "dim")

    def _hint(self, shape: tuple[Any, ...]) -> str:
        if len(shape) == 1 and self.dim == 1:
            return "one label a sample is a matrix of one column: batch.reshape(-1, 1)"
        return ""

    def arrays_in(self, batch: Any) -> list[Leaf]:
        """Validate the labels (their range only for concrete arrays) and return them."""
        leaves = super().arrays_in(batch)
        if leaves[0].library is NUMPY:
            self._check_labels(np.asarray(batch))
        return leaves

    def _check_labels(self, labels: Any) -> None:
        """Raise ShapeError with the first label outside 0 to max_labels - 1, and its index."""
        if not labels.size or (labels.min() >= 0 and labels.max() < self.max_labels):
            return
        row, column = np.argwhere((labels < 0) | (labels >= self.max_labels))[0].tolist()
        raise ShapeError(
            f"{self!r} accepts labels 0 to {self.max_labels - 1}, but the batch has "
            f"{labels[row, column]} at [{row}, {column}] ({self._axes[0].meaning} {row}, label "
            f"{column}); correct it, or use a larger max_labels"
        )


@dataclass(frozen=True, repr=False)
class IndexSpace(LabelSpace):
    """Samples with `dim` labels, each an integer from 0 to `max_labels` - 1.

    >>> labels = IndexSpace(max_labels=4, dim=2)
    >>> from layoutkit import VectorSpace
    >>> labels.format_as(np.array([[0, 2]]), VectorSpace(4))           # which are there
    array([[1., 0., 1., 0.]], dtype=float32)
    >>> labels.format_as(np.array([[0, 2]]), VectorSpace(8))           # one block a label
    array([[1., 0., 0., 0., 0., 0., 1., 0.]], dtype=float32)

    It converts to a VectorSpace of dim `max_labels` or `dim * max_labels` (one-hot). No other space
    converts to labels.

    Parameters
    ----------
    max_labels : int
        The number of different labels.
    dim : int
        The number of labels of a sample: a batch is a matrix (batch, dim) of integers.
    dtype : dtype or None
        An integer dtype; None: any.
    """

    max_labels: int
    dim: int
    dtype: Any = "int64"

    family = "index"

    def _make_view(self, batch: Any) -> DataView:
        return ClassView("bt", views.check_has_data(batch), self.max_labels)

    @cached_property
    def _axes(self) -> tuple[Axis, ...]:
        return Axis("batch", None), Axis("dim", self.dim)


class SequenceSpace(ArraySpace):
    """The base class of sequences: one array (time, dim) of any length is a batch of size 1."""

    dim: int

    def get_total_dimension(self) -> int:
        """Raise SpaceError, since the length of a sequence is unknown."""
        raise self._unknown_error("total dimension")

    def get_origin(self) -> Any:
        """Raise SpaceError, since the length of a sequence is unknown."""
        raise self._unknown_error("origin")

    def make_symbolic_batch(
        self, batch_size: int = 1, *, dtype: Any = None, framework: str = "jax"
    ) -> Any:
        """Return a sequence of length 1 without data; see `Space.make_symbolic_batch`."""
        if batch_size != 1:
            raise ShapeError(
                f"batch_size={show(batch_size)}, but {self!r} holds one sequence; use 1"
            )
        return super().make_symbolic_batch(1, dtype=dtype, framework=framework)

    @cached_property
    def _axes(self) -> tuple[Axis, ...]:
        return Axis("time", None), Axis("dim", self.dim)

    def arrays_in(self, batch: Any) -> list[Leaf]:
        return [leaf._replace(size=1, is_sequence=True) for leaf in super().arrays_in(batch)]

    def _origin_batch(self, n: int, dtype: Any) -> Any:
        raise self._unknown_error("origin")

    def symbolic_batch(self, n: int, dtype: Any, library: Any) -> Any:
        return super().symbolic_batch(1, dtype, library)

    def _unknown_error(self, quantity: str) -> SpaceError:
        return SpaceError(
            f"{self!r} has no {quantity}, since its sequences may have any length; "
            "use a VectorSpace or an IndexSpace if the length is fixed"
        )


@dataclass(frozen=True, repr=False)
class VectorSequenceSpace(SequenceSpace):
    """One sequence of vectors: an array (time, dim) of any length, a batch of size 1.

    >>> VectorSequenceSpace(3)
    VectorSequenceSpace(dim=3, dtype="float32")
    """

    dim: int
    dtype: Any = "float32"

    family = "vector sequence"

    def _make_view(self, batch: Any) -> DataView:
        return SequenceView("bwc", views.check_has_data(batch)[None])

    def __post_init__(self) -> None:
        self._set_sizes("dim")
        self._set_dtype()

    def __repr__(self) -> str:
        return self._repr_text("dim")


@dataclass(frozen=True, repr=False)
class IndexSequenceSpace(SequenceSpace, LabelSpace):
    """One sequence of labels: an array (time, dim) of integers from 0 to `max_labels` - 1.

    It converts to a VectorSequenceSpace of one-hot vectors.

    >>> IndexSequenceSpace(10, 1)
    IndexSequenceSpace(max_labels=10, dim=1, dtype="int64")
    """

    max_labels: int
    dim: int
    dtype: Any = "int64"

    family = "index sequence"

    def _make_view(self, batch: Any) -> DataView:
        return SequenceView("bwc", views.check_has_data(batch)[None], self.max_labels)


@dataclass(frozen=True)
class NullSpace(Space):
    """The space of no data: its only batch is None, its source is ''.

    >>> NullSpace().format_as(None, NullSpace()) is None
    True
    """

    family = "null"
    dtype = None

    def _make_view(self, batch: Any) -> None:
        pass  # there is no data to view

    def get_total_dimension(self) -> int:
        return 0

    def get_origin(self) -> None:
        """Return None."""

    def with_dtype(self, dtype: Any) -> NullSpace:
        """Return this space, which does not have a dtype."""
        return self

    def arrays_in(self, batch: Any) -> list[Leaf]:
        """Return an empty list; raise SpaceError unless the batch is None."""
        if batch is not None:
            raise SpaceError(
                f"NullSpace() holds no data, but the batch is {describe(batch)}; give None"
            )
        return []

    def _origin_batch(self, n: int, dtype: Any) -> None:
        return None

    def symbolic_batch(self, n: int, dtype: Any, library: Any) -> None:
        return

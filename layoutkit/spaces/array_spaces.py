"""`VectorSpace`: a matrix, one row a sample; dense or of scipy.sparse.

`Conv2DSpace`: images, with their four axes in any order.

`IndexSpace`: labels, as integers from 0.

`VectorSequenceSpace` and `IndexSequenceSpace`: one sequence, as long as it is.

`NullSpace`: no data at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from math import prod
from typing import Any

import numpy as np

from ..backends.symbolic import NUMPY
from ..errors import ArgumentError, DtypeError, PatternError, ShapeError, SpaceError
from ..layout.parsing import parse_layout
from ..spec import DType, kind_of
from . import sparse
from .base import ArraySpace, Space
from .validation import Axis, Leaf, check_dtype, checked_size, describe, wrong_shape


@dataclass(frozen=True, repr=False)
class VectorSpace(ArraySpace):
    """Vectors of `dim` numbers: a batch is a matrix (batch, dim).

    >>> space = VectorSpace(3)
    >>> space
    VectorSpace(dim=3, dtype="float32")
    >>> space.validate(np.zeros((2, 4), np.float32))
    Traceback (most recent call last):
    layoutkit.errors.ShapeError: VectorSpace(dim=3, dtype="float32") takes (batch, dim=3), ...

    It becomes and comes from a Conv2DSpace of as many numbers, always in the order (rows,
    columns, channels), and from and to a CompositeSpace, whose components lie side by side.

    Parameters
    ----------
    dim : int
    sparse : bool
        The batch is a matrix of scipy.sparse. What `format_as` makes is in csr format.
    dtype : dtype or None
        None: any.
    """

    dim: int
    sparse: bool = False
    dtype: Any = "float32"

    family = "vector"

    def __post_init__(self) -> None:
        if not isinstance(self.sparse, bool | np.bool_):
            raise ArgumentError(f"sparse={self.sparse!r}; it is True or False")
        object.__setattr__(self, "sparse", bool(self.sparse))
        self._set_sizes("dim")
        self._set_dtype()
        if self.sparse and self.dtype is not None:
            sparse.check_sparse_dtype(self.dtype)

    def __repr__(self) -> str:
        return self._text("dim", *["sparse"] * self.sparse)

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
        """The matrix, dense or sparse as the space is."""
        if not self.sparse:
            return super().arrays_in(batch)
        if not sparse.is_sparse(batch):
            raise SpaceError(
                f"{self!r} takes a matrix of scipy.sparse, not {describe(batch)}; pass "
                "scipy.sparse.csr_matrix(batch), or use VectorSpace(dim) for dense arrays"
            )
        if batch.shape[1:] != (self.dim,):
            raise wrong_shape(self, self._axes, batch.shape, self._hint(batch.shape))
        check_dtype(self, batch.dtype)
        sparse.check_entries(batch)
        return [Leaf((), NUMPY, batch.shape[0])]

    def _origin_batch(self, n: int, dtype: Any) -> Any:
        zeros = super()._origin_batch(0 if self.sparse else n, dtype)
        return sparse.zeros((n, self.dim), zeros.dtype) if self.sparse else zeros

    def symbolic_batch(self, n: int, dtype: Any, library: Any) -> Any:
        """A dense matrix; SpaceError where the space is sparse."""
        if self.sparse:
            raise SpaceError(
                f"{self!r} has no symbolic batches: a batch of {library.name} is dense; use "
                f"VectorSpace({self.dim})"
            )
        return super().symbolic_batch(n, dtype, library)

    def _batch_dtype(self, dtype: Any) -> DType:
        found = super()._batch_dtype(dtype)
        if self.sparse:
            sparse.check_sparse_dtype(found)
        return found


_LETTERS: dict[str | int, str] = {"b": "b", 0: "h", 1: "w", "c": "c"}
_NAMES = {letter: name for name, letter in _LETTERS.items()}
_RULE = 'axes are "b", 0 (rows), 1 (columns) and "c" in any order, or text such as "bhwc"'


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

    As vectors the numbers are always in the order (rows, columns, channels), whatever the
    axes, so that going through a VectorSpace never scrambles an image.

    Parameters
    ----------
    shape : (rows, columns), whatever the axes
    num_channels : int
    axes : the order of "b", 0 (rows), 1 (columns), "c", outermost first; or a layout ("bhwc")
    dtype : dtype or None
        None: any.
    """

    shape: tuple[int, int]
    num_channels: int
    axes: Any = ("b", 0, 1, "c")
    dtype: Any = "float32"

    family = "conv2d"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _checked_shape(self.shape))
        object.__setattr__(self, "axes", _checked_axes(self.axes))
        self._set_sizes("num_channels")
        self._set_dtype()

    def __repr__(self) -> str:
        return self._text("shape", "num_channels", "axes")

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
            return f"flat images are a batch of VectorSpace({shape[1]}), whose format_as opens them"
        for layout in permutations("bhwc"):
            wanted = [axis.size for axis in self._axes_of(layout)]
            if len(shape) == 4 and all(w in (None, s) for w, s in zip(wanted, shape, strict=True)):
                axes = tuple(_NAMES[letter] for letter in layout)
                return f"it would fit axes={axes}: say so in the space, or convert the batch"
        return ""


def _checked_shape(shape: Any) -> tuple[int, int]:
    try:
        rows, columns = shape
    except (TypeError, ValueError):
        raise ShapeError(f"shape={shape!r}; it is a pair (rows, columns)") from None
    return checked_size("rows", rows), checked_size("columns", columns)


def _checked_axes(axes: Any) -> tuple[str | int, ...]:
    if isinstance(axes, str):
        letters = _read_axes(axes)
    elif isinstance(axes, list | tuple):
        letters = tuple(_letter(axis) for axis in axes)
    else:
        raise PatternError(f"axes={axes!r}; {_RULE}")
    if sorted(letters) != sorted(_NAMES):
        raise PatternError(f"axes={axes!r} are not all four axes, each once; {_RULE}")
    return tuple(_NAMES[letter] for letter in letters)


def _read_axes(text: str) -> tuple[str, ...]:
    try:
        return parse_layout(text).groups
    except PatternError as error:
        raise PatternError(f"{error}\n{_RULE}") from None


def _letter(axis: Any) -> str:
    # In a dict 0, 0.0 and False are one key.
    plain = isinstance(axis, str | int | np.integer) and not isinstance(axis, bool)
    if not plain or axis not in _LETTERS:
        raise PatternError(f"{axis!r} is no axis of images; {_RULE}")
    return _LETTERS[axis]


class LabelSpace(ArraySpace):
    """What labels of samples and labels of sequences have in common."""

    max_labels: int
    dim: int
    _kinds = "bui"
    _default = "int64"

    def __post_init__(self) -> None:
        self._set_sizes("max_labels", "dim")
        self._set_dtype()
        if self.dtype is not None and kind_of(self.dtype) not in "ui":
            raise DtypeError(
                f"dtype={self.dtype} of {type(self).__name__}; labels are integers, such as int64"
            )

    def __repr__(self) -> str:
        return self._text("max_labels", "dim")

    def _hint(self, shape: tuple[Any, ...]) -> str:
        if len(shape) == 1 and self.dim == 1:
            return "one label a sample is a matrix of one column: batch.reshape(-1, 1)"
        return ""

    def arrays_in(self, batch: Any) -> list[Leaf]:
        """The labels, their range checked where they are at hand."""
        leaves = super().arrays_in(batch)
        if leaves[0].library is NUMPY:
            self._check_labels(np.asarray(batch))
        return leaves

    def _check_labels(self, labels: Any) -> None:
        """ShapeError with the first label that is none of 0 to max_labels - 1, and its place."""
        if not labels.size or (labels.min() >= 0 and labels.max() < self.max_labels):
            return
        row, column = np.argwhere((labels < 0) | (labels >= self.max_labels))[0].tolist()
        raise ShapeError(
            f"{self!r} takes labels 0 to {self.max_labels - 1}, but the batch has "
            f"{labels[row, column]} at [{row}, {column}] ({self._axes[0].meaning} {row}, label "
            f"{column}); correct it, or use a larger max_labels"
        )


@dataclass(frozen=True, repr=False)
class IndexSpace(LabelSpace):
    """`dim` labels a sample, each an integer from 0 to `max_labels` - 1.

    >>> labels = IndexSpace(max_labels=4, dim=2)
    >>> from layoutkit import VectorSpace
    >>> labels.format_as(np.array([[0, 2]]), VectorSpace(4))           # which are there
    array([[1., 0., 1., 0.]], dtype=float32)
    >>> labels.format_as(np.array([[0, 2]]), VectorSpace(8))           # one block a label
    array([[1., 0., 0., 0., 0., 0., 1., 0.]], dtype=float32)

    It becomes a VectorSpace of `max_labels` or `dim * max_labels`; nothing becomes labels.

    Parameters
    ----------
    max_labels : int
        How many labels there are.
    dim : int
        How many of them a sample has: a batch is a matrix (batch, dim) of integers.
    dtype : dtype or None
        An integer dtype; None: any.
    """

    max_labels: int
    dim: int
    dtype: Any = "int64"

    family = "index"

    @cached_property
    def _axes(self) -> tuple[Axis, ...]:
        return Axis("batch", None), Axis("dim", self.dim)


class SequenceSpace(ArraySpace):
    """One array (time, dim) of any length is a batch of one."""

    dim: int

    def get_total_dimension(self) -> int:
        raise self._unknown("total dimension")

    def get_origin(self) -> Any:
        raise self._unknown("origin")

    def make_symbolic_batch(
        self, batch_size: int = 1, *, dtype: Any = None, framework: str = "jax"
    ) -> Any:
        """As `Space.make_symbolic_batch`; a batch is one sequence, here of one step."""
        if batch_size != 1:
            raise ShapeError(f"batch_size={batch_size!r}, but {self!r} holds one sequence; use 1")
        return super().make_symbolic_batch(1, dtype=dtype, framework=framework)

    @cached_property
    def _axes(self) -> tuple[Axis, ...]:
        return Axis("time", None), Axis("dim", self.dim)

    def arrays_in(self, batch: Any) -> list[Leaf]:
        """The sequence, which is a batch of one."""
        return [leaf._replace(size=1, is_sequence=True) for leaf in super().arrays_in(batch)]

    def _origin_batch(self, n: int, dtype: Any) -> Any:
        raise self._unknown("origin")

    def symbolic_batch(self, n: int, dtype: Any, library: Any) -> Any:
        """A sequence of one step."""
        return super().symbolic_batch(1, dtype, library)

    def _unknown(self, what: str) -> SpaceError:
        return SpaceError(
            f"{self!r} has no {what}, since its sequences may have any length; "
            "use a VectorSpace or an IndexSpace where the length is fixed"
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

    def __post_init__(self) -> None:
        self._set_sizes("dim")
        self._set_dtype()

    def __repr__(self) -> str:
        return self._text("dim")


@dataclass(frozen=True, repr=False)
class IndexSequenceSpace(SequenceSpace, LabelSpace):
    """One sequence of labels: an array (time, dim) of integers from 0 to `max_labels` - 1.

    Becomes a VectorSequenceSpace as an IndexSpace becomes a VectorSpace.

    >>> IndexSequenceSpace(10, 1)
    IndexSequenceSpace(max_labels=10, dim=1, dtype="int64")
    """

    max_labels: int
    dim: int
    dtype: Any = "int64"

    family = "index sequence"


@dataclass(frozen=True)
class NullSpace(Space):
    """What asks for no data: its only batch is None, its source is ''.

    >>> NullSpace().format_as(None, NullSpace()) is None
    True
    """

    family = "null"
    dtype = None

    def get_total_dimension(self) -> int:
        """Zero."""
        return 0

    def get_origin(self) -> None:
        """Nothing."""

    def with_dtype(self, dtype: Any) -> NullSpace:
        """This space: what has no data has no dtype."""
        return self

    def arrays_in(self, batch: Any) -> list[Leaf]:
        """No array; SpaceError unless the batch is None."""
        if batch is not None:
            raise SpaceError(f"NullSpace() holds no data, but the batch is {describe(batch)}")
        return []

    def _origin_batch(self, n: int, dtype: Any) -> None:
        return None

    def symbolic_batch(self, n: int, dtype: Any, library: Any) -> None:
        """None."""
        return

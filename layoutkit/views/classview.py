"""`ClassView`: labels, one or several a sample, and the conversion to their first column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from .._utils.validation import as_int, show
from ..backends.indexing import one_hot
from ..backends.inspection import asarray_like, inspect_array, to_cpu
from ..buffers import empty
from ..converter import Converter
from ..cpu.program import cast_into
from ..errors import ArgumentError, DataError, DtypeError, ShapeError, ViewError
from ..layout.parsing import parse_layout
from ..layout.pattern import check_rank
from ..memory import Array, as_numpy, check_out, check_writable
from ..spec import CPU, ArraySpec, DType, as_dtype, as_result_dtype, check_cast, dtype_kind
from .dataview import DataView
from .plans import ConversionCache, ConversionOptions, ConverterLike

if TYPE_CHECKING:
    from ..planning.plan import Plan


class FirstColumn:
    """The conversion of `bt` or `tb` to `b`, its first column; called like a Converter.

    >>> import numpy as np
    >>> first = FirstColumn("bt", columns=2)
    >>> first(np.array([[3, 1], [2, 0]]))
    array([3, 2])
    >>> first.backward(np.array([0.5, 0.25]))
    array([[0.5 , 0.  ],
           [0.25, 0.  ]])
    """

    def __init__(
        self, layout: str, *, columns: int, dtype: DType | None = None, device: str = CPU
    ) -> None:
        self._layout = parse_layout(layout)
        self._axis = self._layout.groups.index("t")
        self._columns = columns
        self._move = Converter("b->b", dtype=dtype, device=None if device == CPU else device)
        self._check_columns(self._shape(0))

    def __repr__(self) -> str:
        return f'FirstColumn("{self._layout}", columns={self._columns})'

    def __call__(self, x: Any, out: Any = None) -> Any:
        """Return the first column of `x`, as a view if no element has to move."""
        column = self._column(x)
        if isinstance(x, np.ndarray) and out is not None:
            check_writable(x, as_numpy(out, "out"))
        return self._move(column, out)

    def backward(self, grad: Any, *, like: Any = None, out: Any = None) -> Any:
        """Return the gradient of x: `grad` in the first column, zeros elsewhere.

        `like`, x or its spec, sets the shape and dtype; without it there are `columns` columns, in
        the dtype of `grad` or `out`. Never a view.

        Raises ShapeError, DtypeError or ArgumentError before anything is written.
        """
        array = to_cpu(grad, "grad")
        if dtype_kind(array.dtype) not in "fc":
            raise DtypeError(f"grad has dtype {array.dtype}; give a gradient of a floating dtype")
        check_rank(parse_layout("b"), array.shape)
        shape, dtype = self._described(array, like)
        target = empty(shape, dtype) if out is None else as_numpy(out, "out")
        if out is not None:
            check_out(target, shape, f"the gradient in {self._layout}")
            check_writable(array, target, "grad")
            if like is not None and as_dtype(target.dtype) != dtype:
                raise DtypeError(
                    f"out has dtype {target.dtype}, but the gradient has {dtype}; give that dtype"
                )
        check_cast(array.dtype, target.dtype, "same_kind")
        target[...] = 0
        cast_into(self._first_of(target), array)
        return asarray_like(target, grad) if out is None else out

    def inverse(self) -> Converter:
        """Return the Converter from `b` back; raise ShapeError if other columns would be lost."""
        if self._columns != 1:
            raise ShapeError(
                f"axis t has size {self._columns}, and b has the first column only; give an "
                f"array in {self._layout}"
            )
        return Converter(f"b->{self._layout}")

    def plan(self, x: Any) -> Plan:
        """Return the plan of the conversion of the first column."""
        return self._move.plan(self._column(x))

    def _column(self, x: Any) -> Any:
        array, _ = inspect_array(x, "x")
        check_rank(self._layout, array.shape)
        return self._first_of(array if isinstance(x, np.ndarray) else x)

    def _first_of(self, array: Any) -> Any:
        """Return the first column of an array in the layout, as a view."""
        self._check_columns(tuple(array.shape))
        return array[(slice(None),) * self._axis + (0,)]

    def _check_columns(self, shape: tuple[int, ...]) -> None:
        if shape[self._axis] == 0:
            raise ShapeError(
                f"labels of shape {shape} in {self._layout} have no first column, as axis t has "
                "size 0; give every sample a class"
            )

    def _shape(self, samples: int) -> tuple[int, ...]:
        return (samples, self._columns) if self._axis else (self._columns, samples)

    def _described(self, grad: Array, like: Any) -> tuple[tuple[int, ...], DType]:
        """Return the shape and dtype of the gradient of x."""
        if like is None:
            return self._shape(len(grad)), as_dtype(grad.dtype)
        source = like if isinstance(like, ArraySpec) else inspect_array(like, "like")[0]
        check_rank(self._layout, source.shape)
        if source.shape[1 - self._axis] != len(grad):
            raise ShapeError(
                f"grad has shape {grad.shape}, but x has {source.shape} in {self._layout}; "
                "pass the gradient of that result"
            )
        return source.shape, as_dtype(
            source.dtype if dtype_kind(source.dtype) in "fc" else grad.dtype
        )


class LabelConversionCache(ConversionCache):
    """The conversions of labels, for which `b` is the first column."""

    def _mover(
        self, name: str, dtype: DType, device: str, options: ConversionOptions
    ) -> ConverterLike:
        if name == "b" and self.layout in ("bt", "tb"):
            if options.formula is not None:
                raise ArgumentError(
                    "classes accept no scale, mean, std and clip; get them without these"
                )
            columns = self._shape[1 - self.batch_axis]
            return FirstColumn(self.layout, columns=columns, dtype=dtype, device=device)
        return super()._mover(name, dtype, device, options)


class ClassView(DataView):
    """Labels: indices into `classes`. `b` has one a sample, `bt` several, the primary one first.

    >>> import numpy as np
    >>> view = ClassView("bt", np.array([[3, 1], [2, 0], [1, 2]]), ["cat", "dog", "emu", "fox"])
    >>> view.forward_get("b")
    array([3, 2, 1])
    >>> view.one_hot("int8")
    array([[0, 0, 0, 1],
           [0, 0, 1, 0],
           [0, 1, 0, 0]], dtype=int8)
    >>> view.many_hot("int8")
    array([[0, 1, 0, 1],
           [1, 0, 1, 0],
           [0, 1, 1, 0]], dtype=int8)

    The gradient of `b` goes to the first column of `bt`, and zeros to the others.

    Parameters
    ----------
    layout, array
        As for `DataView`: `b`, `bt` or `tb`.
    classes : sequence or int, optional
        The classes that labels are indices of, or their number. Views of samples keep them.
    """

    _named_layouts: ClassVar = ("b", "bt")
    _cache_type: ClassVar = LabelConversionCache

    def __init__(
        self,
        layout: str | None = None,
        array: Any = None,
        classes: Sequence[Any] | int | None = None,
    ) -> None:
        self.classes = classes
        super().__init__(layout, array)

    @property
    def classes(self) -> Any:
        """The classes that labels are indices of: a sequence, a count, or None."""
        return self._classes

    @classes.setter
    def classes(self, classes: Any) -> None:
        self._max_labels = None if classes is None else _count(classes)
        self._classes = classes

    def bt(self, dtype: Any = None) -> Any:
        """Return the Converter to `bt`: all labels of a sample side by side."""
        return self.converter("bt", dtype)

    def one_hot(self, dtype: Any = "float32") -> Any:
        """Return an array (b, classes) of the base's library: 1 at each primary class, 0 elsewhere.

        Raises
        ------
        ViewError, DataError, DtypeError
            There are no classes; a label is out of range; labels are not integers, or `dtype` is
            not numeric.
        """
        return self._hot_array("b", dtype)

    def many_hot(self, dtype: Any = "float32") -> Any:
        """Return an array (b, classes) of the base's library: 1 at every class, 0 elsewhere.

        A class that a sample has twice is 1. Raises ViewError, DataError, DtypeError as `one_hot`.
        """
        return self._hot_array("bt", dtype)

    def _hot_array(self, layout: str, dtype: Any) -> Any:
        batch = self.batch
        dtype_of_result = as_result_dtype(dtype)
        if dtype_kind(dtype_of_result) not in "buifc":
            raise DtypeError(f"dtype is {dtype_of_result}; one_hot and many_hot make numbers")
        # Done on the CPU: labels are few.
        labels = to_cpu(batch.plans.find(layout, None, None).converter(batch.source))
        count = self._check_labels(labels)
        return asarray_like(one_hot(labels, count, dtype_of_result), batch.source)

    def _check_labels(self, labels: Array) -> int:
        """Return the number of classes; raise unless every label is one of them."""
        if self._max_labels is None:
            raise ViewError(
                "this ClassView has no classes; set view.classes to them or their count"
            )
        if dtype_kind(labels.dtype) not in "bui":
            raise DtypeError(
                f"labels have dtype {labels.dtype}; give ranks into classes, which are integers"
            )
        wrong = np.argwhere((labels < 0) | (labels >= self._max_labels))
        if len(wrong):
            index = tuple(int(i) for i in wrong[0])
            location = f"sample {index[0]}" + (f", column {index[1]}" if len(index) > 1 else "")
            raise DataError(
                f"label {labels[index]} of {location} is not one of {self._max_labels} classes; "
                f"labels are ranks from 0 to {self._max_labels - 1}"
            )
        return self._max_labels

    def _copy_state(self, parent: Self) -> None:
        super()._copy_state(parent)
        self._classes = parent._classes

    def _note(self) -> str:
        return "no classes" if self._max_labels is None else f"{self._max_labels} classes"


def _count(classes: Any) -> int:
    """Return the number of classes; raise ArgumentError if `classes` does not give one."""
    is_collection = isinstance(classes, Sequence) and not isinstance(classes, str | bytes)
    is_collection = is_collection or (isinstance(classes, np.ndarray) and classes.ndim > 0)
    count = len(classes) if is_collection else as_int(classes)
    if count is None or count < 1:
        raise ArgumentError(
            f"classes is {show(classes)}; give a sequence of at least one class, or their number"
        )
    return count

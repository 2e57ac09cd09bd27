"""The first column of labels: the primary class of samples that have several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.access import like_base, on_cpu, seen
from ..axes import check_rank, parse_layout
from ..buffers import empty
from ..converter import Converter
from ..cpu.casts import cast_into
from ..devices import CPU
from ..errors import DtypeError, ShapeError
from ..memory import Array, as_numpy, check_writable
from ..planning.task import check_out
from ..spec import ArraySpec, DType, as_dtype, check_cast, kind_of

if TYPE_CHECKING:
    from ..planning.plan import Plan

__all__ = ["FirstColumn"]


class FirstColumn:
    """Takes `bt` or `tb` to the `b` of its first column; called like a Converter.

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
        """The first column of `x`; where nothing has to move, a view of it."""
        column = self._column(x)
        if isinstance(x, np.ndarray) and out is not None:
            check_writable(x, as_numpy(out, "out"))
        return self._move(column, out)

    def backward(self, grad: Any, *, like: Any = None, out: Any = None) -> Any:
        """The gradient of x: `grad` in the first column, zeros elsewhere.

        `like`, x or its spec, gives its shape and dtype; without it there are as many columns as
        the FirstColumn was made for, in the dtype of `grad` or `out`. Never a view.

        Raises ShapeError, DtypeError or ArgumentError before anything is written.
        """
        array = on_cpu(grad, "grad")
        if kind_of(array.dtype) not in "fc":
            raise DtypeError(f"grad has dtype {array.dtype}; a gradient is floating")
        check_rank(parse_layout("b"), array.shape)
        shape, dtype = self._described(array, like)
        target = empty(shape, dtype) if out is None else as_numpy(out, "out")
        if out is not None:
            check_out(target, shape, f"the gradient in {self._layout}")
            check_writable(array, target, "grad")
            if like is not None and as_dtype(target.dtype) != dtype:
                raise DtypeError(f"out has dtype {target.dtype}, but the gradient has {dtype}")
        check_cast(array.dtype, target.dtype, "same_kind")
        target[...] = 0
        cast_into(self._first_of(target), array)
        return like_base(target, grad) if out is None else out

    def inverse(self) -> Converter:
        """The Converter from `b` back; ShapeError where other columns would be lost."""
        if self._columns != 1:
            raise ShapeError(
                f"axis t has size {self._columns}, and b has the first column only; give an "
                f"array in {self._layout}"
            )
        return Converter(f"b->{self._layout}")

    def plan(self, x: Any) -> Plan:
        """How the column of an array would be moved."""
        return self._move.plan(self._column(x))

    def _column(self, x: Any) -> Any:
        array, _ = seen(x, "x")
        check_rank(self._layout, array.shape)
        return self._first_of(array if isinstance(x, np.ndarray) else x)

    def _first_of(self, array: Any) -> Any:
        """The first column of an array in the layout; it shares the array's memory."""
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
        """The shape and dtype of the gradient of x."""
        if like is None:
            return self._shape(len(grad)), as_dtype(grad.dtype)
        source = like if isinstance(like, ArraySpec) else seen(like, "like")[0]
        check_rank(self._layout, source.shape)
        if source.shape[1 - self._axis] != len(grad):
            raise ShapeError(
                f"grad has shape {grad.shape}, but x has {source.shape} in {self._layout}; "
                "pass the gradient of that result"
            )
        return source.shape, as_dtype(source.dtype if kind_of(source.dtype) in "fc" else grad.dtype)

"""`ClassView`: labels, one or several a sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from ..arrays.access import like_base, on_cpu
from ..arrays.rows import one_hot
from ..checks import as_int
from ..errors import ArgumentError, DataError, DtypeError, ViewError
from ..memory import Array
from ..spec import DType, as_dtype, kind_of
from .column import FirstColumn
from .dataview import DataView
from .getting import How, Mover
from .gettings import Gettings

__all__ = ["ClassView"]


class LabelGettings(Gettings):
    """Those of labels, of which `b` is the first column."""

    def _mover(self, name: str, dtype: DType, device: str, how: How) -> Mover:
        if name == "b" and self.layout in ("bt", "tb"):
            if how.formula is not None:
                raise ArgumentError(
                    "classes take no scale, mean, std and clip; get them as they are"
                )
            columns = self._shape[1 - self.batch_axis]
            return FirstColumn(self.layout, columns=columns, dtype=dtype, device=device)
        return super()._mover(name, dtype, device, how)


class ClassView(DataView):
    """Labels: ranks, from 0, into `classes`; `b` is one a sample, `bt` several, the primary first.

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
        What the ranks stand for, or how many there are. Parts of the view have them too.
    """

    _own: ClassVar = ("b", "bt")
    _planner: ClassVar = LabelGettings

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
        """What labels are ranks into: a sequence, a count, or None."""
        return self._classes

    @classes.setter
    def classes(self, classes: Any) -> None:
        self._max_labels = None if classes is None else _count(classes)
        self._classes = classes

    def bt(self, dtype: Any = None) -> Any:
        """The Converter to `bt`: all labels of a sample side by side."""
        return self.converter("bt", dtype)

    def one_hot(self, dtype: Any = "float32") -> Any:
        """An array (b, classes), of the base's kind, with 1 at each primary class, 0 elsewhere.

        Raises
        ------
        ViewError, DataError, DtypeError
            There are no classes; a label is out of their range; labels are not integers, or
            `dtype` holds no numbers.
        """
        return self._hot("b", dtype)

    def many_hot(self, dtype: Any = "float32") -> Any:
        """An array (b, classes), of the base's kind, with 1 at each class, 0 elsewhere.

        A class that a sample has twice is 1. Raises what `one_hot` does.
        """
        return self._hot("bt", dtype)

    def _hot(self, layout: str, dtype: Any) -> Any:
        batch, wanted = self.batch, as_dtype(dtype)
        if kind_of(wanted) not in "buifc":
            raise DtypeError(f"dtype is {wanted}; one_hot and many_hot make numbers")
        # Counted on the CPU: labels are few.
        labels = on_cpu(batch.plans.find(layout, None, None).mover(batch.source))
        count = self._check_labels(labels)
        return like_base(one_hot(labels, count, wanted), batch.source)

    def _check_labels(self, labels: Array) -> int:
        """The number of classes; raises unless every label is one of them."""
        if self._max_labels is None:
            raise ViewError(
                "this ClassView has no classes; set view.classes to them or their count"
            )
        if kind_of(labels.dtype) not in "bui":
            raise DtypeError(f"labels have dtype {labels.dtype}; ranks into classes are integers")
        wrong = np.argwhere((labels < 0) | (labels >= self._max_labels))
        if len(wrong):
            at = tuple(int(place) for place in wrong[0])
            where = f"sample {at[0]}" + (f", column {at[1]}" if len(at) > 1 else "")
            raise DataError(
                f"label {labels[at]} of {where} is none of {self._max_labels} classes; labels are "
                f"ranks from 0 to {self._max_labels - 1}"
            )
        return self._max_labels

    def _inherit(self, parent: Self) -> None:
        super()._inherit(parent)
        self._classes = parent._classes

    def _note(self) -> str:
        return "no classes" if self._max_labels is None else f"{self._max_labels} classes"


def _count(classes: Any) -> int:
    """How many classes there are; ArgumentError where that cannot be said."""
    listed = isinstance(classes, Sequence) and not isinstance(classes, str | bytes)
    listed = listed or (isinstance(classes, np.ndarray) and classes.ndim > 0)
    count = len(classes) if listed else as_int(classes)
    if count is None or count < 1:
        raise ArgumentError(
            f"classes is {classes!r}; give a sequence of at least one class, or their number"
        )
    return count

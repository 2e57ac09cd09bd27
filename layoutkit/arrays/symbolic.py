"""What is said of arrays in the words of their library, so that it can be traced and
differentiated.

NumPy arrays are converted by layoutkit itself. Batches of JAX and PyTorch are *symbolic*: what
happens to them is said in operations of their own, which both have under other names (`jax.py`,
`torch.py`) or under one name (here).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ..axes import Move
from ..memory import Array
from ..spec import DType, integer_bounds, kind_of

__all__ = ["NUMPY", "Library", "Symbolic"]


class Library:
    """The facts of an array: its shape and its dtype. This one is NumPy's, and scipy.sparse's."""

    name = "NumPy"

    def shape(self, x: Any) -> tuple[Any, ...]:
        """The sizes; those of a traced batch need not all be ints."""
        return tuple(x.shape)

    def dtype(self, x: Any) -> DType:
        """The dtype in NumPy's words."""
        return x.dtype  # type: ignore[no-any-return]

    def is_sparse(self, x: Any) -> bool:
        """Whether it is no dense array."""
        return not isinstance(x, np.ndarray)

    def apply(self, function: Callable[[Any, Any], Any], batch: Any) -> Any:
        """Run `function(batch, library)`."""
        return function(batch, self)


NUMPY = Library()


class Symbolic(Library):
    """What both frameworks can do to an array, as `xp`, or under names of their own."""

    def __init__(self) -> None:
        self.xp: Any = import_module(self.module)

    module = ""

    def is_sparse(self, x: Any) -> bool:
        """No: its sparse arrays are of other classes."""
        return False

    def check(self, dtype: DType) -> None:
        """Raise DtypeError unless the framework has the dtype."""
        raise NotImplementedError

    def to(self, x: Any, dtype: DType) -> Any:
        """Cast without asking."""
        raise NotImplementedError

    def make(self, shape: tuple[int, ...], dtype: DType) -> Any:
        """An array without data."""
        raise NotImplementedError

    def order(self, x: Any, order: Sequence[int]) -> Any:
        """Permute the axes."""
        raise NotImplementedError

    def rearrange(
        self, x: Any, sizes: Sequence[Any], order: Sequence[int], shape: Sequence[Any]
    ) -> Any:
        """Unfold into `sizes`, permute, fold into `shape`."""
        return self.xp.reshape(self.order(self.xp.reshape(x, sizes), order), shape)

    def unfolded(self, x: Any, move: Move, given: Collection[str] = ()) -> Any:
        """An array whose folds are open, of axes whose sizes were `given` and of others."""
        return self.xp.reshape(x, move.sizes)

    def folded(self, x: Any, move: Move) -> Any:
        """The target of a move, of its open source."""
        return self.xp.reshape(self.order(x, move.permutation), move.target_shape)

    def rearranged(self, x: Any, move: Move) -> Any:
        """What a move makes of an array."""
        return self.folded(self.unfolded(x, move), move)

    def take(self, x: Any, axis: int, places: Sequence[int]) -> Any:
        """Places along an axis, which are there."""
        return self.xp.take(x, np.array(places), axis)

    def constant(self, values: Array, like: Any) -> Any:
        """Numbers for arithmetic with `like`."""
        return values

    def contiguous(self, x: Any) -> Any:
        """In memory as the shape says, where that can be told."""
        return x

    def join(self, parts: Sequence[Any]) -> Any:
        """Matrices side by side."""
        raise NotImplementedError

    def hot(self, labels: Any, count: int) -> Any:
        """A bool for every label and class: whether it is that one."""
        raise NotImplementedError

    def width(self, dtype: DType) -> DType:
        """The dtype that the framework gives where this one is asked for."""
        return dtype

    def cut(self, x: Any, dtype: DType) -> Any:
        """Floats as integers, cut off and wrapped around, as NumPy does on most machines."""
        # Frameworks clip what is out of range, or leave it open. NumPy goes this way.
        return self.to(self.to(x, np.dtype(np.int32)) if dtype.itemsize < 4 else x, dtype)

    def cast(self, x: Any, dtype: DType, casting: str) -> Any:
        """Cast as `convert` does; the caller has checked that the rule allows it."""
        source, dtype = self.dtype(x), self.width(dtype)
        if source == dtype:
            return x
        if kind_of(source) == "c" and kind_of(dtype) not in "cb":
            x = x.real
            source = self.dtype(x)
        if kind_of(source) == "f" and kind_of(dtype) in "ui":
            return self._whole(x, source, dtype, casting)
        if casting == "saturate" and kind_of(dtype) in "ui" and kind_of(source) in "ui":
            low, high = integer_bounds(dtype)
            limits = integer_bounds(source)
            x = self.xp.clip(x, max(low, limits[0]), min(high, limits[1]))
        return self.to(x, dtype)

    def _whole(self, x: Any, source: DType, dtype: DType, casting: str) -> Any:
        """Floats as integers: rounded and clipped, or cut off and wrapped."""
        low, high = integer_bounds(dtype)
        if casting != "saturate":
            return self.cut(x, dtype)
        if source.itemsize < 4:  # The bounds are beyond float16.
            x = self.to(x, np.dtype(np.float32))
        x = self.xp.round(x)
        x = self.xp.where(self.xp.isnan(x), self.xp.zeros_like(x), x)
        inside = self.xp.where(x >= float(high + 1), self.xp.zeros_like(x), x)
        y = self.to(self.xp.clip(inside, float(low), None), dtype)
        return self.xp.where(x >= float(high + 1), self.xp.full_like(y, high), y)

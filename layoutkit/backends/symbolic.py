"""What is said of arrays in the words of their library, so that it can be traced and
differentiated.

NumPy arrays are converted by layoutkit itself. Batches of JAX and PyTorch are *symbolic*: what
happens to them is said in operations of their own, which both have under other names (`jax.py`,
`torch.py`) or under one name (here).

Conversions and sums of what stands for data, said in the words of its library.

An array that is traced or differentiated by its library has no memory to read. A conversion of it
is judged as any other, by shape and dtype, and then said in operations of the library, which
compiles, maps and differentiates them: unfold, compute, permute, fold, cast. Constants of a formula
may be traced themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ..layout.pattern import Move
from ..memory import Array
from ..normalize import Traced
from ..planning.accumulate import computed_dtype
from ..spec import DType, integer_bounds, kind_of

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from ..normalize import Formula
    from ..planning.options import Task


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

    def unfold(self, x: Any, move: Move, given: Collection[str] = ()) -> Any:
        """An array whose folds are open, of axes whose sizes were `given` and of others."""
        return self.xp.reshape(x, move.sizes)

    def fold(self, x: Any, move: Move) -> Any:
        """The target of a move, of its open source."""
        return self.xp.reshape(self.order(x, move.permutation), move.target_shape)

    def apply_move(self, x: Any, move: Move) -> Any:
        """What a move makes of an array."""
        return self.fold(self.unfold(x, move), move)

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

    def cast_wrapping(self, x: Any, dtype: DType) -> Any:
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
            return self.cast_wrapping(x, dtype)
        if source.itemsize < 4:  # The bounds are beyond float16.
            x = self.to(x, np.dtype(np.float32))
        x = self.xp.round(x)
        x = self.xp.where(self.xp.isnan(x), self.xp.zeros_like(x), x)
        inside = self.xp.where(x >= float(high + 1), self.xp.zeros_like(x), x)
        y = self.to(self.xp.clip(inside, float(low), None), dtype)
        return self.xp.where(x >= float(high + 1), self.xp.full_like(y, high), y)


def convert_symbolic(task: Task, x: Any, words: Symbolic) -> Any:
    """What a task makes of `x`; raises what it raises of an array of that shape and dtype."""
    source = words.dtype(x)
    move, target = task.judge(words.shape(x), source)
    words.check(target)
    picks = task.picked(words.shape(x))[1]
    x = words.unfold(x, move if picks is None else picks.whole(move), task.sizes)
    if picks is not None:
        x = words.take(x, picks.axis(move), picks.order)
    if task.formula is not None:
        x = _computed(x, task.formula, move, task.formula.computed_dtype(source, target), words)
    return words.cast(words.fold(x, move), target, task.casting)


def sum_symbolic(
    accumulator: Accumulator,
    parts: Sequence[Any],
    facts: Sequence[tuple[tuple[int, ...], DType]],
    words: Symbolic,
) -> Any:
    """The sum from left to right, computed in the dtype that numeric sums are."""
    shapes, dtypes = zip(*facts, strict=True)
    moves, result = accumulator.resolve(shapes, dtypes)
    words.check(result)
    wide = computed_dtype(dtypes, result)
    given = accumulator.words[3]
    terms = [
        words.to(words.fold(words.unfold(part, move, given), move), wide)
        for part, move in zip(parts, moves, strict=True)
    ]
    return words.cast(sum(terms[1:], start=terms[0]), result, "unsafe")


def _computed(x: Any, formula: Formula, move: Move, dtype: DType, words: Symbolic) -> Any:
    """The formula of unfolded axes, with constants prepared in float64 unless they are traced."""
    x = _clipped(words.to(x, dtype), formula, dtype, words)
    if not formula.scales:
        return x
    letter = formula.letter(move)
    inside = letter is not None and letter in move.axes
    shape = [-1 if at == letter else 1 for at in move.axes] if inside else []
    count = move.sizes[move.axes.index(letter)] if letter is not None and inside else None
    factors, terms = (
        each.reshape(shape if each.ndim else [])
        for each in _coefficients(x, formula, 1 if letter and count is None else count, words)
    )
    return x * factors + terms


def _coefficients(x: Any, formula: Formula, count: Any, words: Symbolic) -> tuple[Any, Any]:
    """Factors and terms, each one or one for each of `count` indices of the axis."""
    wide = words.dtype(x)
    if not formula.is_traced:
        factors, terms = formula.coefficients(count)
        return words.constant(np.array(factors, wide), x), words.constant(np.array(terms, wide), x)
    mean, std = (
        words.to(v.value, wide) if isinstance(v, Traced) else words.constant(np.array(v, wide), x)
        for v in (formula.mean, formula.std)
    )
    return formula.scale / std, -mean / std


def _clipped(x: Any, formula: Formula, dtype: DType, words: Symbolic) -> Any:
    """x in the window of clip; its gradient is one within, bounds included, and zero outside."""
    bounds = formula.bounds(dtype)
    if bounds is None:
        return x
    low, high = (words.constant(np.array(bound, dtype), x) for bound in bounds)
    return words.xp.where(x < low, low, words.xp.where(x > high, high, x))

"""Conversions and sums of what stands for data, said in the words of its library.

An array that is traced or differentiated by its library has no memory to read. A conversion of it
is judged as any other, by shape and dtype, and then said in operations of the library, which
compiles, maps and differentiates them: unfold, compute, permute, fold, cast. Constants of a formula
may be traced themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..constants import Traced
from ..planning.sums import computed_dtype
from ..spec import DType
from .symbolic import Symbolic

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from ..axes import Move
    from ..formulas import Formula
    from ..planning.task import Task

__all__ = ["converted", "summed"]


def converted(task: Task, x: Any, words: Symbolic) -> Any:
    """What a task makes of `x`; raises what it raises of an array of that shape and dtype."""
    source = words.dtype(x)
    move, target = task.judge(words.shape(x), source)
    words.check(target)
    picks = task.picked(words.shape(x))[1]
    x = words.unfolded(x, move if picks is None else picks.whole(move), task.sizes)
    if picks is not None:
        x = words.take(x, picks.axis(move), picks.order)
    if task.formula is not None:
        x = _computed(x, task.formula, move, task.formula.computed_dtype(source, target), words)
    return words.cast(words.folded(x, move), target, task.casting)


def summed(
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
        words.to(words.folded(words.unfolded(part, move, given), move), wide)
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

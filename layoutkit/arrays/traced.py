"""Conversions and sums of what stands for data, said in the words of its library.

An array that is traced or differentiated by its library has no memory to read. A conversion of it
is judged as any other, by shape and dtype, and then said in operations of the library, which
compiles, maps and differentiates them: unfold, compute, permute, fold, cast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

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
    x = words.unfolded(x, move, task.sizes)
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
    given = accumulator.asked[3]
    terms = [
        words.to(words.folded(words.unfolded(part, move, given), move), wide)
        for part, move in zip(parts, moves, strict=True)
    ]
    return words.cast(sum(terms[1:], start=terms[0]), result, "unsafe")


def _computed(x: Any, formula: Formula, move: Move, dtype: DType, words: Symbolic) -> Any:
    """(x * scale - mean) / std of unfolded axes, with constants prepared in float64."""
    channels = move.sizes[move.axes.index("c")] if "c" in move.axes else 1
    shape = [channels if letter == "c" else 1 for letter in move.axes]
    factors, terms = (
        words.constant(np.broadcast_to(np.array(values, dtype), channels).reshape(shape), x)
        for values in formula.coefficients(channels if formula.per_channel else None)
    )
    return words.to(x, dtype) * factors + terms

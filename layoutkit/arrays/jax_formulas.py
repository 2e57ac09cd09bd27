"""The formula of a conversion in the words of JAX, whose constants may be traced themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..axes import Move
from ..constants import Traced
from ..converter import Converter, plan_of_spec
from ..formulas import Formula
from ..spec import DType
from .symbolic import Symbolic

if TYPE_CHECKING:
    from ..planning.plan import Plan

__all__ = ["computed", "plan_of"]


def plan_of(converter: Converter, x: Any) -> Plan:
    """How a conversion is checked; with ones in place of constants that are traced."""
    task = converter.task
    if task.formula is not None and task.formula.is_traced:
        task = task._replace(formula=task.formula.stand_in())
    return plan_of_spec(task, converter.spec_of(x))


def computed(x: Any, formula: Formula, move: Move, dtype: DType, words: Symbolic) -> Any:
    """The formula in the unfolded axes of x, constants prepared in float64 unless traced."""
    x = _clipped(words.to(words.xp.reshape(x, move.sizes), dtype), formula, dtype, words)
    if formula.scales:
        letter = formula.letter(move)
        shape = [-1 if at == letter else 1 for at in move.axes]
        factors, terms = _coefficients(formula, dtype, words)
        within = letter is not None and letter in move.axes
        x = x * factors.reshape(shape if within else ()) + terms.reshape(shape if within else ())
    return words.xp.reshape(x, move.source_shape)


def _coefficients(formula: Formula, dtype: DType, words: Symbolic) -> tuple[Any, Any]:
    """Factors and terms, each one or one for each index of the axis, as arrays of one length."""
    wide = words.width(dtype)
    if not formula.is_traced:
        found = formula.coefficients(formula.channels if formula.per_channel else None)
        return np.array(found[0], wide), np.array(found[1], wide)
    mean, std = (
        words.to(words.xp.asarray(v.value if isinstance(v, Traced) else v), dtype)
        for v in (formula.mean, formula.std)
    )
    pairs = words.xp.broadcast_arrays(formula.scale / std, -mean / std)
    return words.to(pairs[0], dtype), words.to(pairs[1], dtype)


def _clipped(x: Any, formula: Formula, dtype: DType, words: Symbolic) -> Any:
    """x in the window of clip; its gradient is one within, bounds included, and zero outside."""
    bounds = formula.bounds(dtype)
    if bounds is None:
        return x
    low, high = (words.xp.asarray(bound, x.dtype) for bound in bounds)
    return words.xp.where(x < low, low, words.xp.where(x > high, high, x))

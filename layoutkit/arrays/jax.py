"""Conversions and sums of arrays that JAX traces, in its own operations.

They are judged as numeric ones are, by the same plan; JAX compiles and differentiates the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .adapters import facts
from .symbolic import Jax

if TYPE_CHECKING:
    from ..accumulation import Accumulator
    from ..axes import Move
    from ..converter import Converter
    from ..formulas import Formula
    from ..spec import DType

__all__ = ["added", "converted"]


def converted(converter: Converter, x: Any, library: Jax) -> Any:
    """What `converter` makes of a traced array: unfold, compute, permute, fold, cast."""
    plan = converter.plan(converter.spec_of(x))
    library.check(plan.target.dtype)
    y = x
    if plan.formula is not None:
        computed = plan.formula.computed_dtype(plan.source.dtype, plan.target.dtype)
        y = _computed(y, plan.formula, plan.move, computed, library)
    return library.cast(_moved(y, plan.move, library), plan.target.dtype, converter.casting)


def added(accumulator: Accumulator, parts: Sequence[Any], library: Jax) -> Any:
    """The sum from left to right, computed in the dtype that numeric sums are."""
    from ..accumulation import computed_dtype

    shapes, dtypes, _ = zip(
        *(facts(part, f"part {n}") for n, part in enumerate(parts)), strict=True
    )
    moves, result = accumulator.resolve(shapes, dtypes)
    wide = computed_dtype(dtypes, result)
    terms = [
        library.to(_moved(library.xp.asarray(part), move, library), wide)
        for part, move in zip(parts, moves, strict=True)
    ]
    return library.cast(sum(terms[1:], start=terms[0]), result, "unsafe")


def _moved(x: Any, move: Move, library: Jax) -> Any:
    return library.rearrange(x, move.sizes, move.order + move.dropped, move.target_shape)


def _computed(x: Any, formula: Formula, move: Move, dtype: DType, library: Jax) -> Any:
    """(x * scale - mean) / std in the unfolded axes of x, constants prepared in float64."""
    channels = move.sizes[move.axes.index("c")] if "c" in move.axes else 1
    shape = [channels if letter == "c" else 1 for letter in move.axes]
    factors, terms = (
        np.broadcast_to(np.array(values, library.width(dtype)), channels).reshape(shape)
        for values in formula.coefficients(channels if formula.per_channel else None)
    )
    x = library.to(library.xp.reshape(x, move.sizes), dtype)
    return library.xp.reshape(x * factors + terms, move.source_shape)

"""How conversions of JAX are checked where constants of their formula are traced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..converter import Converter
from ..plans import plan_of_spec

if TYPE_CHECKING:
    from ..planning.plan import Plan

__all__ = ["plan_of"]


def plan_of(converter: Converter, x: Any) -> Plan:
    """How a conversion is checked; with ones in place of constants that are traced."""
    task = converter.task
    if task.formula is not None and task.formula.is_traced:
        task = task._replace(formula=task.formula.stand_in())
    return plan_of_spec(task, converter.spec_of(x))

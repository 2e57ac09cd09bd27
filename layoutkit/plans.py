"""Plans of conversions on whatever device does the work, of which only that knows its float16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import forks
from .devices import CPU
from .planning.task import Task
from .spec import ArraySpec, DType

if TYPE_CHECKING:
    from .planning.plan import Plan

__all__ = ["plan_of_spec", "planned"]


def plan_of_spec(task: Task, spec: ArraySpec) -> Plan:
    """How a contiguous array of a spec is converted, here or on a GPU that need not be there."""
    with forks.making:
        from .planning.plan import contiguous

    return planned(task, spec.shape, contiguous(spec.shape, spec.dtype), spec.dtype, spec.device)


def planned(
    task: Task, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: str,
    out: Any = None,
) -> Plan:  # fmt: skip
    """The plan of the device that does the work: a GPU, if one is part of the way."""
    # Imported with the first conversion, so that `import layoutkit` stays light.
    with forks.making:
        if device == CPU and task.device in (None, CPU):
            from .cpu.program import has_half
        else:
            from .cuda.launches import has_half
        from .planning import composed

        return composed.planned(task, shape, strides, dtype, device, out, has_half)

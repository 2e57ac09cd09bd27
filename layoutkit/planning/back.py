"""The ways back of a conversion, as the patterns and keywords of others.

The inverse takes a result back to x, and undoes its formula; the gradient's way takes the gradient
of a result to that of x, and only scales.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ArgumentError
from ..spec import DType, as_dtype
from .channels import turned
from .task import Task

__all__ = ["folded", "gradient", "inverse"]


def inverse(task: Task, dtype: Any) -> tuple[str, dict[str, Any]]:
    """The pattern and keywords of what makes x of a result, in `dtype` if given, saturating."""
    keywords: dict[str, Any] = dict(_sizes_of_source(task, task.sizes))
    formula, order = task.formula, None if task.channels is None else turned(task.channels)
    if formula is not None and formula.scales:
        inverted = formula.inverted()
        keywords |= (inverted if order is None else inverted.reordered(order)).keywords()
    if dtype is not None:
        keywords |= {"dtype": as_dtype(dtype), "casting": "saturate"}
    elif task.casting != "same_kind":
        keywords["casting"] = task.casting
    if task.channels is not None:
        keywords["channels"] = order
        if order is None:
            raise ArgumentError(
                f"channels={task.channels} are not 0 to {len(task.channels) - 1}, each once, after "
                "which x is not known; there is no inverse"
            )
    for name in ("copy", "threads"):
        if getattr(task, name) is not None:
            keywords[name] = getattr(task, name)
    return task.pattern.reversed().text, keywords


def folded(task: Task, sizes: Mapping[str, int]) -> dict[str, int]:
    """Those of these sizes that the way of the gradient has to know; never that of the batch."""
    folds = {axis for group in task.pattern.target.named if len(group) > 1 for axis in group}
    return {axis: size for axis, size in _sizes_of_source(task, sizes).items() if axis in folds}


def gradient(
    task: Task, known: Mapping[str, int], dtype: DType | None, device: str | None
) -> tuple[str, dict[str, Any]]:
    """The pattern and keywords of what takes gradients to an x of a dtype, of these folds.

    To the channels of x that are taken, where these are not all of them, each once.
    """
    keywords: dict[str, Any] = {"dtype": dtype, "device": device, "threads": task.threads, **known}
    keywords["copy"] = None if device else task.copy
    formula = task.formula
    if task.channels is not None:
        keywords["channels"] = order = turned(task.channels)
        formula = formula.reordered(order) if formula is not None and order else formula
    if formula is not None and formula.scales:
        keywords |= {"scale": formula.scale, **formula.along("std")}
    return task.pattern.reversed().text, keywords


def _sizes_of_source(task: Task, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes that the opposite pattern can use: those of x's unfolded axes."""
    there = {name for group in task.pattern.source.named for name in group}
    return {name: size for name, size in sizes.items() if name in there}

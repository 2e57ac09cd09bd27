"""Conversions that are one conversion and something more, said as the tasks of both.

memory=    new memory is laid out as another pattern says, and the result is a view of it
into=      x is converted into a window of a larger result, and what is around it is filled
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..axes import Layout, Pattern
from ..constants import CHANNEL
from ..errors import ArgumentError, ShapeError
from ..memory import Array
from ..notation import ARROW
from ..spec import ArraySpec, DType
from .canvas import Place
from .loops import steps_of
from .plan import Plan, contiguous
from .task import Task, check_out

__all__ = [
    "Larger",
    "Part",
    "around",
    "into_window",
    "larger",
    "made",
    "of_larger",
    "of_picked",
    "order",
    "place_of",
    "planned",
    "refuse_out",
    "window",
]

HasHalf = Callable[[], bool]


class Larger(NamedTuple):
    """A larger x: the sizes of x and its own, where x lies in it, and what is around that."""

    sizes: tuple[int, ...]
    full: tuple[int, ...]
    window: tuple[slice, ...]
    fill: Array  # of one place along every axis but c


class Part(NamedTuple):
    """What a plan wants to know of the caller's output, of a part of it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType


def planned(
    task: Task, shape: tuple[int, ...], strides: tuple[int, ...], source: DType, device: str,
    out: Any, has_half: HasHalf,
) -> Plan:  # fmt: skip
    """The plan of any task, as one of the whole; the arguments are those of `Task.plan`."""
    if task.memory is not None:
        refuse_out(task, out)
        found = planned(made(task), shape, strides, source, device, None, has_half)
        seen = tuple(found.target.shape[at] for at in order(task, len(found.target.shape)))
        found = replace(found, memory=str(task.memory))
    elif task.canvas is not None:
        found, place = window(task, shape, strides, source, device, out, has_half)
        seen = place.shape
        around = (prod(place.shape) - found.target.size) * found.target.dtype.itemsize
        found = replace(found, place=place, bytes_moved=found.bytes_moved + around)
    else:
        return task.plan(shape, strides, source, device, out, has_half)
    layout = task.pattern.completed(len(shape)).target
    target = ArraySpec.of(layout, seen, found.target.dtype, found.target.device)
    return replace(found, pattern=task.pattern.text, target=target)


# ---- memory= -----------------------------------------------------------------------------


def made(task: Task) -> Task:
    """The conversion to the layout of the memory, of which the result is a view."""
    if task.memory is None:
        raise RuntimeError(f"{task.pattern.text}: the result lies as the pattern says")
    left, memory = task.pattern.left, task.memory
    return task._replace(pattern=Pattern(left, memory, f"{left}{ARROW}{memory}"), memory=None)


def order(task: Task, ndim: int) -> tuple[int, ...]:
    """For each axis of a result of this rank, which axis of the memory it is."""
    right, memory = task.pattern.right, task.memory or task.pattern.right
    if right.is_open:
        staying = ndim - right.ndim
        right, memory = right.completed(staying), memory.completed(staying)
    return tuple(map(memory.groups.index, right.groups))


def refuse_out(task: Task, out: Any) -> None:
    """Raise where there is an output that lies as it lies."""
    if out is not None:
        raise ArgumentError(
            f'memory="{task.memory}" says how new memory is laid out, and out= has its own; leave '
            "one of them away"
        )


# ---- into= -------------------------------------------------------------------------------


def window(
    task: Task, shape: tuple[int, ...], strides: tuple[int, ...], source: DType, device: str,
    out: Any, has_half: HasHalf,
) -> tuple[Plan, Place]:  # fmt: skip
    """How x is converted into its window of a larger result, and where that is.

    Axes of the result are taken apart, as a window of one that is folded has no strides.
    """
    place = place_of(task, shape)
    dtype = task.target_dtype(source, out)
    if out is None:
        steps = contiguous(place.full, dtype)
    else:
        check_out(out, place.shape, f'"{task.pattern.text}" on {shape} with into=')
        target = task.pattern.completed(len(shape)).target
        steps = steps_of(target.groups, target.letters, place.full, out.strides)
    sizes = tuple(inside.stop - inside.start for inside in place.window)
    lies = Part(sizes, steps, dtype)
    return into_window(task).plan(shape, strides, source, device, lies, has_half), place


def into_window(task: Task) -> Task:
    """The conversion of x alone, whose result has every letter as an axis of its own."""
    target = task.pattern.target
    apart = Layout(tuple(target.letters), target.names)
    pattern = Pattern(task.pattern.source, apart, task.pattern.text)
    return task._replace(pattern=pattern, canvas=None, copy=None)


def of_larger(task: Task) -> Task:
    """The conversion of a larger x, whose source has every letter as an axis of its own."""
    source = task.pattern.source
    apart = Layout(tuple(source.letters), source.names)
    pattern = Pattern(apart, task.pattern.target, task.pattern.text)
    return task._replace(pattern=pattern, canvas=None, sizes={})


def of_picked(task: Task) -> Task:
    """The conversion of those channels alone, in the order in which they are taken.

    Its source has every letter as an axis of its own.
    """
    order, canvas = task.channels or (), task.canvas
    if canvas is not None and len(canvas.fill) > 1:
        canvas = replace(canvas, fill=tuple(canvas.fill[at] for at in order))
    return of_larger(task)._replace(channels=None, canvas=canvas)


def larger(task: Task, shape: tuple[int, ...], dtype: DType) -> Larger:
    """What x is a window of, where one is made: on GPUs, and in the words of a library."""
    place, move = place_of(task, shape), task.picked(shape)[0]
    if task.canvas is None:
        raise RuntimeError(f"{task.pattern.text}: the result is no larger than x")
    sizes = dict(zip(move.axes, move.sizes, strict=True))
    pixel = task.canvas.pixel(dtype, sizes.get(CHANNEL))
    spread = [len(pixel) if axis == CHANNEL else 1 for axis in move.axes]
    windows = dict(zip(move.target_axes, place.window, strict=True))
    window = tuple(windows.get(axis, slice(0, size)) for axis, size in sizes.items())
    larger = dict(zip(move.target_axes, place.full, strict=True))
    full = tuple(larger.get(axis, size) for axis, size in sizes.items())
    return Larger(move.sizes, full, window, pixel.reshape(spread))


def around(task: Task, shape: tuple[int, ...], dtype: DType) -> tuple[Task, Array]:
    """The conversion of what is around x, and the array that it takes: as small as can be."""
    canvas, place = task.canvas, place_of(task, shape)
    move, picks = task.picked(shape)
    if canvas is None:
        raise RuntimeError(f"{task.pattern.text}: there is nothing around x")
    sizes = dict(zip(move.axes, move.sizes, strict=True))
    sizes |= dict(zip(move.target_axes, place.full, strict=True))
    pixel = canvas.pixel(dtype, sizes.get(CHANNEL) if picks is None else picks.count)
    if picks is not None and len(pixel) > 1:
        pixel = pixel[list(picks.order)]
    along = None if task.formula is None else task.formula.letter(move)
    wide = {along} if task.formula is not None and task.formula.per_channel else set()
    counts = [
        n if at in wide or (at == CHANNEL and len(pixel) > 1) else 1 for at, n in sizes.items()
    ]
    spread = [len(pixel) if letter == CHANNEL else 1 for letter in sizes]
    array = np.array(np.broadcast_to(pixel.reshape(spread), counts))
    names = move.source.names + move.target.names
    apart = Layout(tuple(sizes), names), Layout(tuple(move.target_axes), names)
    pattern = Pattern(*apart, task.pattern.text)
    return task._replace(pattern=pattern, canvas=None, copy=True, sizes={}, channels=None), array


def place_of(task: Task, shape: tuple[int, ...]) -> Place:
    """Where an x of `shape` lies in the result."""
    if task.canvas is None:
        raise RuntimeError(f"{task.pattern.text}: the result is no larger than x")
    move = task.picked(shape)[0]
    try:
        return task.canvas.place(move)
    except ShapeError as error:
        raise ShapeError(f'"{task.pattern.text}" on shape {shape}: {error}') from None

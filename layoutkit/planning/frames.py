"""Where windows of samples go in the memory of a batch: boxes of places, and steps. Pure.

A `Frame` is what a batch of so many windows of one size and dtype is made by: the conversion of one
sample, the memory that it goes to, and what is done to all of it after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..axes import Layout, Move, Pattern
from ..constants import CHANNEL
from ..devices import CPU
from ..errors import ShapeError
from ..memory import Array
from ..spec import DType
from .canvas import Canvas
from .composed import _Window as Lies
from .loops import steps_of
from .plan import Plan, contiguous
from .task import Task
from .windows import Axes, Windows

__all__ = ["Box", "Collation", "Frame", "boxes", "make_frame", "paint", "pixel_of"]

HasHalf = Callable[[], bool]
_PAINT_RUN = 64  # places that paint has in a row, so that it is copied and not gathered


class Frame(NamedTuple):
    """What makes a batch of windows of one size.

    task        the conversion of one sample, to a memory in which every letter is an axis
    plan        of the conversion of all of them at once, if somebody had stacked them
    window      the sizes of a window
    shape, dtype, strides    of the memory, which is the batch unless there is more to do
    steps       for each axis of a window the bytes from place to place in the memory; 0 for folds
    step        the bytes from sample to sample there
    letters     of the memory but that of samples: each with its size, its step and which axis
                of a window it is (-1: none, as its size is always the same)
    along       the axis of a window that constants of the formula are along
    then        the conversion of the memory to the batch, None where it is the batch
    """

    task: Task
    plan: Plan
    window: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]
    steps: tuple[int, ...]
    step: int
    letters: tuple[tuple[int, int, int], ...]
    along: int | None
    then: Task | None

    def lies(self, counts: tuple[int, ...]) -> Lies:
        """What a box of a window is in the memory."""
        sizes = tuple(counts[at] if at >= 0 else size for size, _, at in self.letters)
        return Lies(sizes, tuple(step for _, step, _ in self.letters), self.dtype)


class Collation(NamedTuple):
    """How a batch will be made; `print` it. `plans`: of each kind of boxes that windows are of."""

    frame: Frame
    samples: int
    plans: tuple[Plan, ...]

    def __str__(self) -> str:
        whole, then = self.frame.plan, self.frame.then
        lines = [f"{whole.pattern}: {whole.source} -> {whole.target}"]
        kinds = Counter(plan.kernel for plan in self.plans)
        shown = ", ".join(f"{kernel} ({count})" for kernel, count in kinds.items())
        lines.append(f"  samples   {self.samples}, in {len(self.plans)} kinds of boxes: {shown}")
        if then is not None:
            lines.append("  before    windows are gathered as they are, and converted as one batch")
        lines += str(whole).splitlines()[1:]
        return "\n".join(lines)


class Box(NamedTuple):
    """A box of each of some windows: where it begins and ends along each axis, before flips.

    samples     the numbers of these samples
    """

    samples: Array
    starts: Array
    stops: Array

    def where(self, some: Array) -> Box:
        """Those of which it is true."""
        return Box(*(each[some] for each in self))


def make_frame(
    asked: Windows, axes: Axes, count: int, window: tuple[int, ...], source: DType, out: Any,
    has_half: HasHalf, raw: bool = False,
) -> Frame:  # fmt: skip
    """What makes a batch of so many windows; raises what a conversion of the stacked ones would."""
    task, pattern = asked.task, axes.pattern
    if asked.fill is not None:
        pixel_of(asked, axes, window, source)  # for its errors
    left = pattern.source
    shape = list(window)
    shape.insert(left.groups.index(asked.letter), count)
    whole = task._replace(pattern=pattern)
    move = pattern.resolve(shape, task.sizes)
    plan = whole.plan(tuple(shape), contiguous(tuple(shape), source), source, CPU, out, has_half)
    target, dtype = plan.target.shape, plan.target.dtype
    strides = contiguous(target, dtype) if out is None else tuple(out.strides)
    steps = steps_of(move.target.groups, move.target_axes, move.target_sizes, strides)
    at = move.target_axes.index(asked.letter)
    nearest = min(
        (abs(s) for s, n in zip(steps, move.target_sizes, strict=True) if n > 1), default=0
    )
    letter = None if task.formula is None else task.formula.letter(move)
    staged = plan.before is not None or plan.after is not None
    letter = letter if task.formula is not None and task.formula.per_channel else None
    varied = letter == asked.letter
    even = len(asked.runs) < 2
    innermost = count > 1 and abs(steps[at]) == nearest
    if raw or staged or varied or innermost or not even or task.device not in (None, CPU):
        return _raw(asked, axes, move, plan, window, source)
    found = zip(move.target_axes, move.target_sizes, steps, strict=True)
    lies = {axis: (size, step) for axis, size, step in found}
    sample = _of_sample(axes, move, asked.letter, tuple(lies))
    groups = axes.sample.groups
    along = groups.index(letter) if letter in groups else None
    one = task._replace(pattern=sample, sizes=_folded(axes, move), device=None)
    return _framed(asked, axes, one, plan, window, target, dtype, strides, lies, along, None)


def _raw(
    asked: Windows, axes: Axes, move: Move, plan: Plan, window: tuple[int, ...], source: DType
) -> Frame:
    """The windows as they are, one after the other, to be converted after."""
    size = dict(zip(move.axes, move.sizes, strict=True))
    letters = asked.letter + axes.sample.letters
    shape = tuple(size[letter] for letter in letters)
    strides = contiguous(shape, source)
    lies = {x: (size[x], step) for x, step in zip(letters, strides, strict=True)}
    sample = _of_sample(axes, move, asked.letter, letters)
    plain = Task(sample, None, None, "same_kind", None, None, _folded(axes, move))
    names = move.source.names + move.target.names
    stacked = Pattern(Layout(tuple(letters), names), axes.pattern.target, axes.pattern.text)
    then = asked.task._replace(pattern=stacked, sizes={})
    return _framed(asked, axes, plain, plan, window, shape, source, strides, lies, None, then)


def _framed(
    asked: Windows, axes: Axes, task: Task, plan: Plan, window: tuple[int, ...],
    shape: tuple[int, ...], dtype: DType, strides: tuple[int, ...],
    lies: dict[str, tuple[int, int]], along: int | None, then: Task | None,
) -> Frame:  # fmt: skip
    groups = axes.sample.groups
    return Frame(
        task, plan, window, shape, dtype, strides,
        tuple(lies[group][1] if group in lies else 0 for group in groups),
        lies[asked.letter][1],
        tuple(
            (size, step, groups.index(letter) if letter in groups else -1)
            for letter, (size, step) in lies.items()
            if letter != asked.letter
        ),
        along, then,
    )  # fmt: skip


def _of_sample(axes: Axes, move: Move, letter: str, letters: Any) -> Pattern:
    """The conversion of one sample to a memory in which every letter is an axis."""
    names = move.source.names + move.target.names
    apart = Layout(tuple(each for each in letters if each != letter), names)
    return Pattern(Layout(axes.sample.groups, names), apart, axes.pattern.text)


def _folded(axes: Axes, move: Move) -> dict[str, int]:
    """The sizes of the axes that samples fold, by name."""
    folded = _folds(axes.sample)
    sizes = zip(move.axes, move.sizes, strict=True)
    return {move.source.name(axis): size for axis, size in sizes if axis in folded}


# ---- boxes -------------------------------------------------------------------------------


def boxes(around: Box, window: tuple[int, ...]) -> Iterator[Box]:
    """What is around boxes in their windows: pieces that do not overlap."""
    samples, starts, stops = around
    for axis in range(len(window)):
        for before in (True, False):
            first, last = np.zeros_like(starts), np.tile(window, (len(starts), 1))
            first[:, :axis], last[:, :axis] = starts[:, :axis], stops[:, :axis]
            if before:
                last[:, axis] = starts[:, axis]
            else:
                first[:, axis] = stops[:, axis]
            found = Box(samples, first, last)
            found = found.where(np.all(first < last, axis=1))
            if len(found.samples):
                yield found


# ---- what is outside ---------------------------------------------------------------------


def pixel_of(asked: Windows, axes: Axes, window: tuple[int, ...], source: DType) -> Array:
    """What is outside: one number, or one for each channel of a window, in the dtype of samples."""
    values = asked.fill or (0.0,)
    canvas = Canvas((), (), values)
    if asked.channels is not None:
        if len(values) > 1 and max(asked.channels) >= len(values):
            raise ShapeError(
                f"fill has {len(values)} values, but channels has {max(asked.channels)}, counted "
                "from 0; give one for each channel of a sample"
            )
        pixel = canvas.pixel(source, len(values))
        return pixel[list(asked.channels)] if len(values) > 1 else pixel
    sizes = zip(axes.sample.groups, window, strict=True)
    own = [size for group, size in sizes if axes.sample.name(group[0]) == CHANNEL]
    folded = CHANNEL in map(axes.sample.name, axes.sample.letters) and not own
    return canvas.pixel(source, own[0] if own else len(values) if folded else None)


def paint(
    asked: Windows, axes: Axes, frame: Frame, source: DType, backward: bool
) -> tuple[Task, Array]:
    """What is outside of samples, in their units and layout, and its conversion to the memory's.

    Its size is 1 along axes where all is the same, but for the ones that are next to each other in
    the memory. `backward`: whether the result has the channels in reverse.
    """
    sample, task = axes.sample, frame.task
    pixel = pixel_of(asked, axes, frame.window, source)
    channel = [letter for letter in sample.letters if sample.name(letter) == CHANNEL]
    wide = _wide(axes, frame, channel[0] if len(pixel) > 1 else None)
    groups = zip(sample.groups, frame.window, strict=True)
    shape = tuple(size if group in wide else 1 for group, size in groups)
    sizes = dict(zip(sample.groups, shape, strict=True))
    sizes |= {letter: task.sizes.get(sample.name(letter), 1) for letter in _folds(sample)}
    apart = np.empty([sizes[letter] for letter in sample.letters], source)
    spread = [len(pixel) if letter in channel else 1 for letter in sample.letters]
    apart[...] = (pixel[::-1] if backward else pixel).reshape(spread if channel else ())
    added = [each for each in task.pattern.target.letters if each not in sample.letters]
    names = task.pattern.source.names
    target = Layout((*sample.groups, *added), names)
    pattern = Pattern(Layout(sample.groups, names), target, axes.pattern.text)
    return task._replace(pattern=pattern, dtype=frame.dtype, copy=True), apart.reshape(shape)


def _wide(axes: Axes, frame: Frame, channel: str | None) -> set[str]:
    """The axes of paint that have their full size."""
    groups, window = axes.sample.groups, dict(zip(axes.sample.groups, frame.window, strict=True))
    found = {group for group in groups if len(group) > 1 or group == channel}
    if frame.along is not None:
        found.add(groups[frame.along])
    own = [at for at, step in enumerate(frame.steps) if step]
    for at in sorted(own, key=lambda at: abs(frame.steps[at])):
        if prod(window[group] for group in found) >= _PAINT_RUN:
            break
        found.add(groups[at])
    return found


def _folds(sample: Layout) -> str:
    """The axes that a sample folds."""
    return "".join(group for group in sample.groups if len(group) > 1)

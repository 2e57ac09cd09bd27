"""Where windows of samples go in the memory of a batch. Pure.

A `Frame` is what a batch of so many windows of one size and dtype is made by: the conversion of one
sample, the memory that it goes to, and what is done to all of it after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from ..axes import Layout, Move, Pattern
from ..constants import CHANNEL
from ..devices import CPU
from ..errors import ShapeError
from ..memory import Array
from ..spec import DType
from .canvas import Canvas
from .composed import Part
from .loops import steps_of
from .plan import Plan, contiguous
from .task import Task
from .windows import Axes, Windows

__all__ = ["Collation", "Frame", "make_frame", "pixel_of"]

HasHalf = Callable[[], bool]


class Frame(NamedTuple):
    """What makes a batch of windows of one size.

    task        the conversion of one sample, to a memory in which every letter is an axis
    plan        of the conversion of all of them at once, if somebody had stacked them
    window      the sizes of a window
    shape, dtype, strides    of the memory, which is the batch unless there is more to do
    step        the bytes from sample to sample there
    lies        the part of the memory that one sample becomes
    then        the conversion of the memory to the batch, None where it is the batch
    """

    task: Task
    plan: Plan
    window: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]
    step: int
    lies: Part
    then: Task | None


class Collation(NamedTuple):
    """How a batch will be made; `print` it. `plans`: one for each kind of windows."""

    frame: Frame
    samples: int
    plans: tuple[Plan, ...]

    def __str__(self) -> str:
        whole, then = self.frame.plan, self.frame.then
        lines = [f"{whole.pattern}: {whole.source} -> {whole.target}"]
        kinds = Counter(plan.kernel for plan in self.plans)
        shown = ", ".join(f"{kernel} ({count})" for kernel, count in kinds.items())
        many = f"{len(self.plans)} kind{'s' if len(self.plans) != 1 else ''}"
        lines.append(f"  samples   {self.samples}, in {many} of windows: {shown}")
        if then is not None:
            lines.append("  before    windows are gathered as they are, and converted as one batch")
        lines += str(whole).splitlines()[1:]
        return "\n".join(lines)


def make_frame(
    asked: Windows, axes: Axes, count: int, window: tuple[int, ...], source: DType, out: Any,
    has_half: HasHalf,
) -> Frame:  # fmt: skip
    """What makes a batch of so many windows; raises what a conversion of the stacked ones would."""
    task, pattern = asked.task, axes.pattern
    if asked.fill is not None:
        pixel_of(asked, axes, window, source)  # for its errors
    sizes = list(window)
    sizes.insert(pattern.source.groups.index(asked.letter), count)
    shape = tuple(sizes)
    move = pattern.resolve(shape, task.sizes)
    whole = task._replace(pattern=pattern)
    plan = whole.plan(shape, contiguous(shape, source), source, CPU, out, has_half)
    target, dtype = plan.target.shape, plan.target.dtype
    strides = contiguous(target, dtype) if out is None else tuple(out.strides)
    steps = steps_of(move.target.groups, move.target_axes, move.target_sizes, strides)
    lies = dict(zip(move.target_axes, steps, strict=True))
    if _is_made_after(asked, move, plan, lies):
        return _raw(asked, axes, move, plan, window, source)
    sample = _of_sample(axes, move, asked.letter, move.target_axes)
    one = task._replace(pattern=sample, sizes=_folded(axes, move), device=None)
    part = _part(move, asked.letter, move.target_axes, lies, dtype)
    return Frame(one, plan, window, target, dtype, strides, lies[asked.letter], part, None)


def _is_made_after(asked: Windows, move: Move, plan: Plan, steps: dict[str, int]) -> bool:
    """Whether samples cannot become parts of the batch one by one, or only slowly."""
    formula, letter = asked.task.formula, asked.letter
    if plan.before is not None or plan.after is not None or asked.task.device not in (None, CPU):
        return True
    if formula is not None and formula.per_channel and formula.letter(move) == letter:
        return True
    sizes = dict(zip(move.target_axes, move.target_sizes, strict=True))
    nearest = min((abs(step) for axis, step in steps.items() if sizes[axis] > 1), default=0)
    return sizes[letter] > 1 and abs(steps[letter]) == nearest


def _raw(
    asked: Windows, axes: Axes, move: Move, plan: Plan, window: tuple[int, ...], source: DType
) -> Frame:
    """The windows as they are, one after the other, to be converted after."""
    size = dict(zip(move.axes, move.sizes, strict=True))
    letters = asked.letter + axes.sample.letters
    shape = tuple(size[letter] for letter in letters)
    strides = contiguous(shape, source)
    lies = dict(zip(letters, strides, strict=True))
    sample = _of_sample(axes, move, asked.letter, letters)
    plain = Task(sample, None, None, "same_kind", None, None, _folded(axes, move))
    names = move.source.names + move.target.names
    stacked = Pattern(Layout(tuple(letters), names), axes.pattern.target, axes.pattern.text)
    then = asked.task._replace(pattern=stacked, sizes={})
    part = _part(move, asked.letter, letters, lies, source)
    return Frame(plain, plan, window, shape, source, strides, strides[0], part, then)


def _part(move: Move, letter: str, letters: str, steps: dict[str, int], dtype: DType) -> Part:
    """What one sample becomes in a memory of these axes."""
    sizes = dict(zip(move.axes + move.target_axes, move.sizes + move.target_sizes, strict=True))
    own = [each for each in letters if each != letter]
    return Part(tuple(sizes[x] for x in own), tuple(steps[x] for x in own), dtype)


def _of_sample(axes: Axes, move: Move, letter: str, letters: Any) -> Pattern:
    """The conversion of one sample to a memory in which every letter is an axis."""
    names = move.source.names + move.target.names
    apart = Layout(tuple(each for each in letters if each != letter), names)
    return Pattern(Layout(axes.sample.groups, names), apart, axes.pattern.text)


def _folded(axes: Axes, move: Move) -> dict[str, int]:
    """The sizes of the axes that samples fold, by name."""
    folded = "".join(group for group in axes.sample.groups if len(group) > 1)
    sizes = zip(move.axes, move.sizes, strict=True)
    return {move.source.name(axis): size for axis, size in sizes if axis in folded}


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

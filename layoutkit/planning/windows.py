"""What a Collator is asked to do, checked: windows of samples, and the batch that they become.

Everything is said by one pattern, that of the stacked windows: it has the axis of samples on both
sides. Pure: of samples it wants sizes, and gives integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..axes import Layout, Pattern, check_rank
from ..constants import CHANNEL
from ..errors import ArgumentError, DtypeError, PatternError, ShapeError
from ..memory import Array
from ..spec import DType
from .canvas import fill_values
from .channels import checked_channels
from .task import Task, make_task

__all__ = ["Axes", "Windows", "check_alike", "make_windows", "of_channels"]

_SAMPLES = ("b", "batch")  # what the axis of samples is called


class Windows(NamedTuple):
    """What is asked of a Collator.

    task        the conversion of the stacked windows
    text        the pattern as it was given
    letter      of the axis of samples
    whole       whether samples come as one array, which has this axis
    fill        what is outside of samples; None: nothing may be
    channels    of samples, in the order of the result; None: all as they are
    """

    task: Task
    letter: str
    whole: bool
    fill: tuple[float, ...] | None
    channels: tuple[int, ...] | None

    def keywords(self) -> dict[str, Any]:
        """The keywords that ask for this, without those that say the default."""
        found: dict[str, Any] = {}
        if self.fill is not None:
            found["fill"] = self.fill if len(self.fill) > 1 else self.fill[0]
        if self.channels is not None:
            found["channels"] = self.channels
        return found | self.task.keywords()

    def asked(self) -> tuple[Any, ...]:
        """All of it in a form that hashes; equal where the same was asked."""
        return (self.task.asked(), self.letter, self.whole, self.fill, self.channels)

    def check_whole(self, shape: tuple[int, ...]) -> None:
        """Raise unless the one array that has all samples has an axis for each of the left side."""
        pattern = self.task.pattern
        try:
            check_rank(pattern.left, shape)
        except ShapeError as error:
            raise ShapeError(f'"{pattern.text}" on shape {shape}: {error}') from None

    def completed(self, ndim: int) -> Axes:
        """The axes of samples of a rank."""
        pattern = self.task.pattern
        return _axes(pattern, pattern.text, self.letter, ndim, tuple(sorted(self.task.sizes)))


class Axes(NamedTuple):
    """The axes of samples of one rank, and what they are in the batch.

    pattern     of the stacked windows, with an axis for each that `...` stands for
    sample      the layout of a sample
    windowed    for each axis of it, the name that a size was given for, None where none was
    """

    pattern: Pattern
    sample: Layout
    windowed: tuple[str | None, ...]

    def window(self, asked: Windows, shapes: Array) -> tuple[int, ...]:
        """The size of what is cut out of every sample; `shapes` has a row for each sample.

        Raises ShapeError where samples differ along an axis that has no size.
        """
        shapes = of_channels(asked, self, shapes)
        first = shapes[0].tolist()
        if len(shapes) > 1:
            free = np.array([name is None for name in self.windowed], bool)
            odd = (shapes != shapes[0]) & free
            if odd.any():
                number, at = map(int, np.argwhere(odd)[0])
                name = "".join(self.sample.named[at])
                fix = f"; or give its window, as in {name}=224" if len(name) == 1 else ""
                raise ShapeError(
                    f"sample {number} has size {shapes[number, at]} along {name}, but sample 0 has "
                    f"{first[at]}; give samples of one size{fix}"
                )
        return tuple(
            size if name is None else asked.task.sizes[name]
            for name, size in zip(self.windowed, first, strict=True)
        )

    def places(self) -> dict[str, int]:
        """The axes that windows can be cut along, by name, and where they are in a sample."""
        named = enumerate(self.sample.named)
        return {n[0]: at for at, n in named if len(n) == 1 and n[0] not in ("...", "1")}


def make_windows(pattern: str, *, fill: Any, channels: Any, **keywords: Any) -> Windows:
    """What is asked by arguments as users write them.

    Raises
    ------
    PatternError
        There is no axis of samples on the right, or it is part of a fold on the left.
    ArgumentError
        Another argument is not of its form.
    """
    task = make_task(pattern, **keywords)
    stacked, letter, whole = _stacked(task.pattern)
    known = None if fill is None else fill_values(fill)
    found = _checked_channels(channels, stacked, task)
    return Windows(task._replace(pattern=stacked), letter, whole, known, found)


def _stacked(pattern: Pattern) -> tuple[Pattern, str, bool]:
    """The pattern of the stacked windows, the letter of samples, and whether x has it."""
    left, right = pattern.left, pattern.right
    letters = [letter for letter in right.letters if right.name(letter) in _SAMPLES]
    if not letters:
        raise PatternError(
            f'"{pattern.text}" has no axis of samples on the right; name it b, as in "hwc->bchw"'
        )
    letter = letters[0]
    if letter in left.groups:
        return pattern, letter, True
    if letter in left.letters:
        raise PatternError(
            f'"{pattern.text}" folds {left.name(letter)}, the axis of samples, on the left; '
            "reshape the array so that it is an axis of its own"
        )
    names = tuple(pair for pair in right.names if pair[0] == letter)
    stacked = Layout((letter, *left.groups), names + left.names)
    return Pattern(stacked, right, pattern.text), letter, False


@lru_cache(maxsize=1024)
def _axes(pattern: Pattern, text: str, letter: str, ndim: int, given: tuple[str, ...]) -> Axes:
    # `text` is a key, as patterns of one meaning are equal.
    sample = Layout(tuple(g for g in pattern.left.groups if g != letter), pattern.left.names)
    try:
        check_rank(sample, (0,) * ndim)
    except ShapeError as error:
        raise ShapeError(f'"{text}" on samples of rank {ndim}: {error}') from None
    whole = pattern.completed(ndim + 1)
    groups = tuple(group for group in whole.source.groups if group != letter)
    sample = Layout(groups, whole.source.names)
    windowed = tuple(
        names[0] if len(names) == 1 and names[0] in given else None for names in sample.named
    )
    return Axes(whole, sample, windowed)


def _checked_channels(channels: Any, pattern: Pattern, task: Task) -> tuple[int, ...] | None:
    """The channels as plain ints, of samples that have them along an axis of its own."""
    found = checked_channels(channels, pattern)
    if found is None:
        return None
    if CHANNEL not in (pattern.source.name(g) for g in pattern.source.groups):
        raise PatternError(
            f'channels={channels!r}, but on the left of "{pattern.text}" there is no axis c of its '
            "own; name it c"
        )
    if CHANNEL in task.sizes:
        raise ArgumentError(
            f"channels={channels!r} and c={task.sizes[CHANNEL]} both say which channels are taken; "
            "leave c away"
        )
    return found


def check_alike(facts: Sequence[tuple[tuple[int, ...], DType]]) -> None:
    """Raise unless all samples, of these shapes and dtypes, are of one rank and dtype."""
    shape, dtype = facts[0]
    for number, (other, kind) in enumerate(facts):
        if kind != dtype:
            raise DtypeError(
                f"sample {number} has dtype {kind}, but sample 0 has {dtype}; give samples of one "
                "dtype"
            )
        if len(other) != len(shape):
            raise ShapeError(
                f"sample {number} has {len(other)} axes, but sample 0 has {len(shape)}; give "
                "samples of one rank"
            )


def of_channels(asked: Windows, axes: Axes, shapes: Array) -> Array:
    """The sizes of samples of which channels are taken; ShapeError where one has not these."""
    if asked.channels is None:
        return shapes
    channel = axes.places()[CHANNEL]
    few = np.flatnonzero(shapes[:, channel] <= max(asked.channels))
    if few.size:
        number = int(few[0])
        raise ShapeError(
            f"sample {number} has {shapes[number, channel]} channels, but channels has "
            f"{max(asked.channels)}, counted from 0; take those that are there"
        )
    found = shapes.copy()
    found[:, channel] = len(asked.channels)
    return found

"""Samples as memory, and the boxes that a batch of their windows is made of.

Nothing is moved here: what is found are addresses, steps and counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..constants import CHANNEL
from ..devices import CPU
from ..errors import DtypeError, ShapeError
from ..memory import Array, address, addresses
from ..planning.cuts import Cut, check_inside, cut
from ..planning.frames import Box, Frame, boxes, paint
from ..planning.task import Task
from ..planning.windows import Axes, Run, Windows, of_channels
from ..spec import DType
from .program import Program, has_half

__all__ = ["Part", "Parts", "Sources", "of_rows", "of_samples"]


class Sources(NamedTuple):
    """Samples as memory.

    forms        shape and strides of each sample, or one pair where all are alike
    addresses    of every sample
    """

    dtype: DType
    forms: list[tuple[tuple[int, ...], tuple[int, ...]]]
    addresses: Array

    @property
    def alike(self) -> Any:
        """A key of shape and strides where all samples have them; None where they do not."""
        return self.forms[0] if len(self.forms) == 1 else None

    def rows(self) -> tuple[Array, Array]:
        """Shapes and strides, a row for each form."""
        both = np.array(self.forms, np.int64)
        return both[:, 0], both[:, 1]


class Part(NamedTuple):
    """Boxes to be moved: the conversion of each, the dtype, and how it lies on either side.

    samples     of which sample each is; None: there is one of each
    counts, steps    a row for each box, or one for all
    src         where it begins, from the first place of its sample; an address of paint
    to          where it begins in the memory
    grid        a power of two for each, or for all, that divides `to` and the alignment
    """

    task: Task
    dtype: DType
    samples: Array | None
    counts: Array
    steps: Array
    src: Array
    to: Array
    grid: Any


class _Paint(NamedTuple):
    """What is outside of samples, in the dtype of the memory, and its steps along each axis."""

    array: Array
    steps: Array


class Parts:
    """The boxes of batches of one `Frame`."""

    def __init__(self, asked: Windows, axes: Axes, frame: Frame, source: DType) -> None:
        self.frame, self._asked, self._axes, self._source = frame, asked, axes, source
        self._window = np.array(frame.window, np.int64)
        self._steps = np.array(frame.steps, np.int64)
        self._moved = frame.task._replace(formula=None, dtype=None)
        self._paints: dict[bool, _Paint] = {}
        self._channel = axes.places().get(CHANNEL)

    def __call__(self, sources: Sources, corner: Any, flip: Any, alignment: int) -> Iterator[Part]:
        """All boxes of a batch: those that are read from samples first, then what is painted."""
        window, count = self._window, len(sources.addresses)
        shapes, strides = sources.rows()
        shapes = of_channels(self._asked, self._axes, shapes)
        found = cut(self._asked, self._axes, shapes, window, corner, flip, count)
        begins, flips = found
        outside = (begins < 0) | (begins + window > shapes)
        if not outside.any() and len(self._asked.runs) < 2:
            yield self._whole(found, strides, count, alignment)
            return
        if self._asked.fill is None:
            check_inside(self._axes, begins, shapes, self.frame.window, outside)
        form = (count, len(window))
        begins, flips, shapes, strides = (
            np.broadcast_to(a, form) for a in (begins, flips, shapes, strides)
        )
        starts = np.clip(-begins, 0, window)
        stops = np.clip(shapes - begins, starts, window)
        every = Box(np.arange(count), starts, stops)
        inside = every.where((starts < stops).all(axis=1))
        for run in self._asked.runs or (None,):
            if len(inside.samples):
                at = inside.samples
                yield self._inside(inside, Cut(begins[at], flips[at]), strides[at], run, alignment)
        around = every.where(((starts > 0) | (stops < window)).any(axis=1))
        for box in boxes(around, self.frame.window):
            yield from self._painted(box, flips[box.samples], alignment)

    def _whole(self, found: Cut, strides: Array, count: int, alignment: int) -> Part:
        """Windows that lie inside of all samples, in the shortest way."""
        begins, flips = found
        src: Any = 0
        if self._asked.runs:
            run, at = self._asked.runs[0], self._channel
            src = run.first * strides[:, at]
            strides = strides.copy()
            strides[:, at] *= run.apart
        steps = np.where(flips, -strides, strides)
        src = src + ((begins + flips * (self._window - 1)) * strides).sum(axis=1)
        src = np.broadcast_to(src, count)
        to = np.arange(count) * self.frame.step
        grid = _grid(self.frame.step, alignment)
        return Part(self.frame.task, self._source, None, self._window[None], steps, src, to, grid)

    def _inside(
        self, box: Box, found: Cut, strides: Array, run: Run | None, alignment: int
    ) -> Part:
        """What is read from samples: one run of their channels, or all as they are."""
        begins, flips = found
        starts, stops, src = box.starts, box.stops, 0
        if run is not None:
            at = self._channel
            starts, stops, strides = (a.copy() for a in (starts, stops, strides))
            starts[:, at], stops[:, at] = run.place, run.place + run.count
            step = strides[:, at].copy()
            strides[:, at] *= run.apart
            src = run.first * step - run.place * strides[:, at]
        steps = np.where(flips, -strides, strides)
        src = src + ((begins + np.where(flips, stops - 1, starts)) * strides).sum(axis=1)
        to = box.samples * self.frame.step + self._places(starts, stops, flips) @ self._steps
        grid = _grid(to, alignment)
        return Part(
            self.frame.task, self._source, box.samples, stops - starts, steps, src, to, grid
        )

    def _places(self, starts: Array, stops: Array, flips: Array) -> Array:
        """Where boxes begin in windows that were turned around."""
        return np.where(flips, self._window - stops, starts)

    def _painted(self, box: Box, flips: Array, alignment: int) -> Iterator[Part]:
        """What is around samples: boxes whose channels are in reverse, and the others."""
        at = self._channel
        turned = np.zeros(len(flips), bool) if at is None else flips[:, at]
        for backward in (False, True):
            some = turned == backward
            if some.any():
                samples, starts, stops = box.where(some)
                places, found = self._places(starts, stops, flips[some]), self._paint(backward)
                src = address(found.array) + places @ found.steps
                to = samples * self.frame.step + places @ self._steps
                yield Part(
                    self._moved, self.frame.dtype, samples, stops - starts, found.steps[None], src,
                    to, _grid(to, alignment),
                )  # fmt: skip

    def _paint(self, backward: bool) -> _Paint:
        """What is outside of samples, made once."""
        found = self._paints.get(backward)
        if found is None:
            task, pixel = paint(self._asked, self._axes, self.frame, self._source, backward)
            plan = task.plan(pixel.shape, pixel.strides, pixel.dtype, CPU, None, has_half)
            array = Program(plan)(pixel, pixel, None).reshape(pixel.shape)
            sizes = zip(array.strides, array.shape, strict=True)
            steps = np.array([step if size > 1 else 0 for step, size in sizes], np.int64)
            found = self._paints.setdefault(backward, _Paint(array, steps))
        return found


def _grid(to: Any, alignment: int) -> Any:
    """The power of two that divides both an alignment and places in the memory."""
    return (to | alignment) & -(to | alignment)


def of_samples(arrays: Sequence[Array]) -> Sources:
    """Samples that are arrays of their own; raises unless they are of one rank and dtype."""
    at = np.array(addresses(arrays), np.int64)
    facts = [(array.shape, array.strides, array.dtype) for array in arrays]
    shape, strides, dtype = facts[0]
    if facts.count(facts[0]) == len(facts):
        return Sources(dtype, [(shape, strides)], at)
    for number, (other, _, kind) in enumerate(facts):
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
    return Sources(dtype, [fact[:2] for fact in facts], at)


def of_rows(array: Array, axis: int, rows: Array) -> Sources:
    """Samples at proven positions of one array."""
    shape, strides = list(array.shape), list(array.strides)
    del shape[axis]
    at = address(array) + rows * strides.pop(axis)
    return Sources(array.dtype, [(tuple(shape), tuple(strides))], at)

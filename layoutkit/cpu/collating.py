"""Batches of windows, made by one job: a table of what every sample has to have done to it.

Windows that lie alike in their samples, with the same steps from place to place, are of one kind:
it is planned once and kept. `kernels/cpu/each.py` reads the table.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from .. import forks
from ..buffers import empty_with_address
from ..caching import PROGRAM_BYTES, Cache, remember
from ..constants import CHANNEL
from ..devices import CPU
from ..errors import DtypeError, ShapeError
from ..kernels.cpu.words import LINE
from ..memory import Array, address, addresses
from ..planning.frames import Box, boxes, check_inside, make_frame, paint
from ..planning.plan import Plan
from ..planning.task import Task
from ..planning.windows import Axes, Cut, Run, Windows, cut, of_channels
from ..spec import DType
from ..workers import Job
from .program import Program, has_half

__all__ = ["Gathering", "Sources", "of_rows", "of_samples"]


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


class _Kind(NamedTuple):
    """What is done to boxes that lie alike: rows of the table, and what they point to."""

    words: Array
    plan: Plan
    keep: Any


class _Part(NamedTuple):
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


class _Table(NamedTuple):
    """What is done to a batch, but for the addresses of its samples, and the job that does it.

    samples    for each of the first rows, the sample that it reads; None: these are all rows
    """

    words: Array
    samples: Array | None
    job: Job
    kinds: tuple[_Kind, ...]


class _Paint(NamedTuple):
    """What is outside of samples, in the dtype of the memory, and its steps along each axis."""

    array: Array
    steps: Array


class Gathering:
    """What makes the memory of a `Frame`, for samples of one dtype wherever they lie.

    Safe to call from many threads: it is not changed, except that what was planned is added.
    """

    def __init__(
        self, asked: Windows, axes: Axes, count: int, window: tuple[int, ...], source: DType,
        out: Array | None, raw: bool,
    ) -> None:  # fmt: skip
        frame = make_frame(asked, axes, count, window, source, out, has_half, raw)
        self.frame, self._asked, self._axes, self._source = frame, asked, axes, source
        self._window = np.array(frame.window, np.int64)
        self._steps = np.array(frame.steps, np.int64)
        self._moved = frame.task._replace(formula=None, dtype=None)
        self._kinds: Cache[_Kind | None] = Cache()
        self._tables: Cache[_Table] = Cache()
        self._jobs: dict[int, Job] = {}  # by the rows of a table
        self._paints: dict[bool, _Paint] = {}
        names = [axes.sample.name(group) if len(group) == 1 else "" for group in axes.sample.groups]
        self._channel = names.index(CHANNEL) if CHANNEL in names else None

    def __call__(self, sources: Sources, corner: Any, flip: Any, out: Array | None) -> Array | None:
        """The memory with what windows hold, or `out`; None where not all of it is one pass."""
        frame = self.frame
        if out is None:
            out, dst = empty_with_address(frame.shape, frame.dtype)
        else:
            dst = address(out)
        if 0 in frame.shape:
            list(self._parts(sources, corner, flip))  # for what they raise
            return out
        table = self._table(sources, corner, flip, min(dst & -dst, LINE))
        if table is None:
            return None
        words = table.words.copy()
        if table.samples is None:
            words[:, 2] += sources.addresses
        else:
            words[: len(table.samples), 2] += sources.addresses[table.samples]
        table.job.run(address(words), dst)
        return out

    def plans(self, sources: Sources, corner: Any, flip: Any) -> list[Plan] | None:
        """How the boxes of a batch are moved, one plan for each kind; None as for calls."""
        if 0 in self.frame.shape:
            return []
        table = self._table(sources, corner, flip, LINE)
        return None if table is None else [kind.plan for kind in table.kinds]

    def _table(self, sources: Sources, corner: Any, flip: Any, alignment: int) -> _Table | None:
        """The table of a batch, kept where all samples are alike and nothing else is said."""
        if sources.alike is None or corner is not None or flip is not None:
            return self._made(sources, corner, flip, alignment)
        key = (sources.alike, alignment)
        found = self._tables.get(key)
        if found is None:
            made = self._made(sources, corner, flip, alignment)
            if made is None:
                return None
            found = remember(self._tables, key, made, PROGRAM_BYTES + made.words.nbytes)
        return found

    def _made(self, sources: Sources, corner: Any, flip: Any, alignment: int) -> _Table | None:
        tables: list[Array] = []
        samples: list[Array] | None = []
        kinds: list[_Kind] = []
        for part in self._parts(sources, corner, flip, alignment):
            found = self._kinds_of(part)
            if found is None:
                return None
            words, of = _spread([kind.words for kind in found[0]], found[1])
            words[:, 2] += part.src[of]
            words[:, 3] += part.to[of]
            tables.append(words)
            kinds += found[0]
            if part.task is self.frame.task:
                every = np.arange(len(part.to)) if part.samples is None else part.samples
                samples.append(every[of])
        words = tables[0] if len(tables) == 1 else np.concatenate(tables)
        plain = len(tables) == 1 and len(words) == len(sources.addresses) and part.samples is None
        job = self._jobs.get(len(words)) or self._jobs.setdefault(len(words), self._job(len(words)))
        return _Table(words, None if plain else np.concatenate(samples), job, tuple(kinds))

    def _job(self, rows: int) -> Job:
        """The job of a table of so many rows, each of which is cut into as many shares."""
        with forks.making:
            from ..kernels.cpu.compiler import KernelSpec, load
            from ..kernels.cpu.launch import shares

            kernel = load(KernelSpec("each", ("each",)))
        plan = self.frame.plan
        moved = plan.source.nbytes + plan.target.nbytes
        count, grain = shares(rows, moved)
        return Job(kernel, struct.pack("q", count), rows * count, grain, moved)

    # -- boxes -----------------------------------------------------------------------------

    def _parts(self, sources: Sources, corner: Any, flip: Any, alignment: int) -> Iterator[_Part]:
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

    def _whole(self, found: Cut, strides: Array, count: int, alignment: int) -> _Part:
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
        return _Part(self.frame.task, self._source, None, self._window[None], steps, src, to, grid)

    def _inside(
        self, box: Box, found: Cut, strides: Array, run: Run | None, alignment: int
    ) -> _Part:
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
        return _Part(
            self.frame.task, self._source, box.samples, stops - starts, steps, src, to, grid
        )

    def _places(self, starts: Array, stops: Array, flips: Array) -> Array:
        """Where boxes begin in windows that were turned around."""
        return np.where(flips, self._window - stops, starts)

    def _painted(self, box: Box, flips: Array, alignment: int) -> Iterator[_Part]:
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
                yield _Part(
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

    # -- kinds -----------------------------------------------------------------------------

    def _kinds_of(self, part: _Part) -> tuple[list[_Kind], list[int]] | None:
        """The kinds of boxes, and which of them each is; None where one is not one pass."""
        axes = len(self._window)
        rows = max(len(part.counts), len(part.steps))
        facts = np.empty((rows, 2 * axes + 1), np.int64)
        facts[:, :axes], facts[:, axes:-1], facts[:, -1] = part.counts, part.steps, part.grid
        keys = facts.view(f"V{8 * (2 * axes + 1)}").ravel().tolist()
        numbers: dict[bytes, int] = {}
        which = [numbers.setdefault(key, len(numbers)) for key in keys]
        found, inside = [], part.task is self.frame.task
        for key in numbers:
            kind = self._kinds.get((key, inside), _MISSING)
            if kind is _MISSING:
                counts, steps, grid = np.split(facts[keys.index(key)], (axes, 2 * axes))
                kind = self._kind(part, tuple(counts.tolist()), tuple(steps.tolist()), int(grid[0]))
                nbytes = PROGRAM_BYTES if kind is None else PROGRAM_BYTES + len(kind.keep)
                remember(self._kinds, (key, inside), kind, nbytes)
            if kind is None:
                return None
            found.append(kind)
        return found, which if rows > 1 else which * len(part.to)

    def _kind(
        self, part: _Part, counts: tuple[int, ...], steps: tuple[int, ...], grid: int
    ) -> _Kind | None:
        """Plan boxes of a kind; None where this is more than one pass."""
        frame = self.frame
        inside = part.task is frame.task
        if inside and frame.along is not None and counts[frame.along] != frame.window[frame.along]:
            return None
        plan = part.task.plan(counts, steps, part.dtype, CPU, frame.lies(counts), has_half)
        if plan.choice is None or plan.before is not None or plan.after is not None:
            return None
        places = list(plan.launches())
        grid = gcd(grid, *(dst for _, dst in places))
        with forks.making:
            from ..kernels.cpu.compiler import load
            from ..kernels.cpu.launch import STREAM_BYTES, prepare

            stream = prod(frame.shape) * frame.dtype.itemsize >= STREAM_BYTES
            launch = prepare(plan.choice, plan.epilogue, grid, stream)
            code = load(launch.spec).address
        params = np.frombuffer(launch.params, np.uint8)
        words = [(code, address(params), src, dst, launch.units) for src, dst in places]
        return _Kind(np.array(words, np.int64), plan, params)


_MISSING: Any = object()


def _spread(words: list[Array], which: list[int]) -> tuple[Array, Array | slice]:
    """The rows of each box in turn, and for each row which box it is of."""
    if all(len(rows) == 1 for rows in words):
        return np.concatenate(words)[which], slice(None)
    rows = [words[kind] for kind in which]
    return np.concatenate(rows), np.repeat(np.arange(len(which)), list(map(len, rows)))


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

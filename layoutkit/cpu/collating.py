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
from ..memory import Array, address
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

    shapes, strides    a row for each sample, or one where all are alike
    addresses          of every sample
    alike              a key of shape and strides where all are alike, else None
    """

    dtype: DType
    shapes: Array
    strides: Array
    addresses: Array
    alike: Any


class _Kind(NamedTuple):
    """What is done to boxes that lie alike: rows of the table, and what they point to."""

    words: Array
    plan: Plan
    keep: Any


class _Part(NamedTuple):
    """Boxes to be moved: the conversion of each, the dtype, and how it lies on either side.

    samples    of which sample each is
    src        where it begins, from the first place of its sample; an address of paint
    to         where it begins in the memory, from the first place of what its sample becomes
    """

    task: Task
    dtype: DType
    samples: Array
    counts: Array
    steps: Array
    src: Array
    to: Array


class _Table(NamedTuple):
    """What is done to a batch, but for the addresses of its samples, and the job that does it.

    samples    for each of the first rows, the sample that it reads
    """

    words: Array
    samples: Array
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
        samples, kinds = [np.empty(0, np.int64)], []
        for part in self._parts(sources, corner, flip):
            found = self._kinds_of(part, alignment)
            if found is None:
                return None
            used, which = found
            words, of = _spread([kind.words for kind in used], which)
            words[:, 2] += part.src[of]
            words[:, 3] += part.to[of]
            tables.append(words)
            if part.task is self.frame.task:
                samples.append(part.samples[of])
            kinds += used
        words = np.concatenate(tables)
        return _Table(words, np.concatenate(samples), self._job(words), tuple(kinds))

    def _job(self, words: Array) -> Job:
        """The job of a table: every row of it is cut into as many shares."""
        with forks.making:
            from ..kernels.cpu.compiler import KernelSpec, load
            from ..kernels.cpu.launch import shares

            kernel = load(KernelSpec("each", ("each",)))
        plan = self.frame.plan
        moved = plan.source.nbytes + plan.target.nbytes
        count, grain = shares(len(words), moved)
        return Job(kernel, struct.pack("q", count), len(words) * count, grain, moved)

    # -- boxes -----------------------------------------------------------------------------

    def _parts(self, sources: Sources, corner: Any, flip: Any) -> Iterator[_Part]:
        """All boxes of a batch: those that are read from samples first, then what is painted."""
        frame, window, count = self.frame, self._window, len(sources.addresses)
        shapes = of_channels(self._asked, self._axes, sources.shapes)
        found = cut(self._axes, shapes, frame.window, corner, flip, count)
        form = (count, len(window))
        begins, flips, shapes, strides = (
            np.broadcast_to(a, form) for a in (*found, shapes, sources.strides)
        )
        starts = np.clip(-begins, 0, window)
        stops = np.clip(shapes - begins, starts, window)
        partial = ((starts > 0) | (stops < window)).any(axis=1)
        inside = Box(np.arange(count), starts, stops)
        if partial.any():
            if self._asked.fill is None:
                check_inside(self._axes, Cut(begins, flips), shapes, frame.window, partial)
            inside = inside.where((starts < stops).all(axis=1))
        for run in self._asked.runs or (None,):
            if len(inside.samples):
                yield self._inside(inside, begins, flips, strides, run)
        if partial.any():
            around = Box(np.arange(count), starts, stops).where(partial)
            for box in boxes(around, frame.window):
                yield from self._painted(box, flips[box.samples])

    def _inside(
        self, box: Box, begins: Array, flips: Array, strides: Array, run: Run | None
    ) -> _Part:
        """What is read from samples: one run of their channels, or all as they are."""
        begins, flips, strides = (a[box.samples] for a in (begins, flips, strides))
        starts, stops, src = box.starts, box.stops, 0
        if run is not None:
            at = self._channel
            starts, stops, begins, strides = (a.copy() for a in (starts, stops, begins, strides))
            starts[:, at], stops[:, at], begins[:, at] = run.place, run.place + run.count, 0
            step = strides[:, at].copy()
            strides[:, at] *= run.apart
            src = run.first * step - run.place * strides[:, at]
        signed = np.where(flips, -strides, strides)
        first = begins + np.where(flips, stops - 1, starts)
        src = src + (first * strides).sum(axis=1)
        return _Part(
            self.frame.task, self._source, box.samples, stops - starts, signed, src,
            self._places(box.samples, starts, stops, flips),
        )  # fmt: skip

    def _places(self, samples: Array, starts: Array, stops: Array, flips: Array) -> Array:
        """Where boxes begin in the memory."""
        places = np.where(flips, self._window - stops, starts)
        return samples * self.frame.step + places @ self._steps

    def _painted(self, box: Box, flips: Array) -> Iterator[_Part]:
        """What is around samples: boxes whose channels are in reverse, and the others."""
        at = self._channel
        turned = np.zeros(len(flips), bool) if at is None else flips[:, at]
        for backward in (False, True):
            some = turned == backward
            if some.any():
                samples, starts, stops = (a[some] for a in box)
                found = self._paint(backward)
                to = self._places(samples, starts, stops, flips[some])
                places = np.where(flips[some], self._window - stops, starts)
                varied = np.array([size > 1 for size in found.array.shape])
                src = address(found.array) + (places * (found.steps * varied)).sum(axis=1)
                steps = np.broadcast_to(found.steps, starts.shape)
                yield _Part(self._moved, self.frame.dtype, samples, stops - starts, steps, src, to)

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

    def _kinds_of(self, part: _Part, alignment: int) -> tuple[list[_Kind], list[int]] | None:
        """The kinds of boxes, and which of them each is; None where one is not one pass."""
        low = (part.to | alignment) & -(part.to | alignment)
        facts = np.column_stack((part.counts, part.steps, low))
        keys = facts.view(f"V{facts.itemsize * facts.shape[1]}").ravel().tolist()
        numbers: dict[bytes, int] = {}
        which = [numbers.setdefault(key, len(numbers)) for key in keys]
        found = []
        for key in numbers:
            kind = self._kinds.get((key, part.task is self.frame.task), _MISSING)
            if kind is _MISSING:
                at = keys.index(key)
                kind = self._kind(part, at, int(low[at]))
                nbytes = PROGRAM_BYTES if kind is None else PROGRAM_BYTES + len(kind.keep)
                remember(self._kinds, (key, part.task is self.frame.task), kind, nbytes)
            if kind is None:
                return None
            found.append(kind)
        return found, which

    def _kind(self, part: _Part, at: int, alignment: int) -> _Kind | None:
        """Plan boxes of a kind, one of which is at a place of a part."""
        frame = self.frame
        counts, steps = tuple(part.counts[at].tolist()), tuple(part.steps[at].tolist())
        inside = part.task is frame.task
        if inside and frame.along is not None and counts[frame.along] != frame.window[frame.along]:
            return None
        plan = part.task.plan(counts, steps, part.dtype, CPU, frame.lies(counts), has_half)
        if plan.choice is None or plan.before is not None or plan.after is not None:
            return None
        places = list(plan.launches())
        grid = gcd(alignment, *(dst for _, dst in places))
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


def of_samples(arrays: Sequence[Array]) -> Sources:
    """Samples that are arrays of their own; raises unless they are of one rank and dtype."""
    dtype = arrays[0].dtype
    for number, array in enumerate(arrays):
        if array.dtype is not dtype and array.dtype != dtype:
            raise DtypeError(
                f"sample {number} has dtype {array.dtype}, but sample 0 has {dtype}; give "
                "samples of one dtype"
            )
    at = np.array([address(array) for array in arrays], np.int64)
    keys = [(array.shape, array.strides) for array in arrays]
    if keys.count(keys[0]) == len(keys):
        return _alike(dtype, *keys[0], at)
    rank = len(keys[0][0])
    for number, (shape, _) in enumerate(keys):
        if len(shape) != rank:
            raise ShapeError(
                f"sample {number} has {len(shape)} axes, but sample 0 has {rank}; give samples of "
                "one rank"
            )
    both = np.array(keys, np.int64)
    return Sources(dtype, both[:, 0], both[:, 1], at, None)


def of_rows(array: Array, axis: int, rows: Array) -> Sources:
    """Samples at proven positions of one array."""
    shape, strides = list(array.shape), list(array.strides)
    del shape[axis]
    at = address(array) + rows * strides.pop(axis)
    return _alike(array.dtype, tuple(shape), tuple(strides), at)


def _alike(dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], at: Array) -> Sources:
    both = np.array((shape, strides), np.int64)
    return Sources(dtype, both[:1], both[1:], at, (shape, strides))

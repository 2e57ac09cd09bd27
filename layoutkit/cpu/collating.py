"""Batches of windows, made by one job: a table of what every sample has to have done to it.

Windows with the same steps from place to place in their samples are of one kind: it is planned
once and kept. `kernels/cpu/each.py` reads the table.
"""

from __future__ import annotations

import struct
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from .. import forks
from ..buffers import empty_with_address
from ..caching import PROGRAM_BYTES, Cache, remember
from ..constants import CHANNEL
from ..devices import CPU
from ..kernels.cpu.words import LINE
from ..memory import Array, address
from ..planning.cuts import Cut, check_inside, cut
from ..planning.frames import make_frame
from ..planning.plan import Plan, contiguous
from ..planning.windows import Axes, Windows, of_channels
from ..spec import DType
from ..workers import Job
from .parts import Sources, completed
from .program import has_half

__all__ = ["Gathering"]

# Kinds that a call plans, for 0.2 ms each; what else is new is copied this time, for 0.02 ms a
# window: pictures may be of a thousand widths.
MOST_PLANNED = 2
_UNSEEN = object()


class _Kind(NamedTuple):
    """What is done to windows that lie alike: rows of the table, and what they point to."""

    words: Array
    plan: Plan
    keep: Any


class _Table(NamedTuple):
    """What is done to a batch, but for the addresses of its samples, and the job that does it.

    samples    for each row the sample that it reads; None: these are all samples in turn
    copied     which samples are read from `memory`, to which they were copied; None: none is
    """

    words: Array
    samples: Array | None
    job: Job
    kinds: tuple[_Kind, ...]
    copied: Array | None
    memory: Array | None


class Gathering:
    """What makes the memory of a `Frame`, for samples of one dtype wherever they lie.

    Safe to call from many threads: it is not changed, except that what was planned is added.
    """

    def __init__(
        self, asked: Windows, axes: Axes, count: int, window: tuple[int, ...], source: DType,
        out: Array | None,
    ) -> None:  # fmt: skip
        self.frame = make_frame(asked, axes, count, window, source, out, has_half)
        self._asked, self._axes, self._source = asked, axes, source
        self._window = np.array(window, np.int64)
        self._packed = np.array([contiguous(window, source)], np.int64)
        self._channel = axes.places().get(CHANNEL)
        self._kinds: Cache[_Kind | None] = Cache()  # None: these windows are copied
        self._tables: Cache[_Table] = Cache()
        self._jobs: dict[int, Job] = {}  # by the rows of a table

    def __call__(self, sources: Sources, corner: Any, flip: Any, out: Array | None) -> Array:
        """The memory with what windows hold, or `out`."""
        frame = self.frame
        if out is None:
            out, dst = empty_with_address(frame.shape, frame.dtype)
        else:
            dst = address(out)
        if 0 in frame.shape:
            self._cut(sources, corner, flip)  # for what it raises
            return out
        table = self._table(sources, corner, flip, min(dst & -dst, LINE))
        words, at = table.words.copy(), sources.addresses
        if table.copied is not None:
            at = np.where(table.copied, 0, at)
        words[:, 2] += at if table.samples is None else at[table.samples]
        table.job.run(address(words), dst)
        return out

    def plans(self, sources: Sources, corner: Any, flip: Any) -> list[Plan]:
        """How windows are moved, one plan for each kind of them."""
        if 0 in self.frame.shape:
            return []
        return [kind.plan for kind in self._table(sources, corner, flip, LINE).kinds]

    # -- tables ----------------------------------------------------------------------------

    def _table(self, sources: Sources, corner: Any, flip: Any, alignment: int) -> _Table:
        """The table of a batch, kept where all samples are alike and nothing else is said."""
        if sources.alike is None or corner is not None or flip is not None:
            return self._made(sources, corner, flip, alignment)
        key = (sources.alike, alignment)
        found = self._tables.get(key)
        if found is None:
            found = self._made(sources, corner, flip, alignment)
            if found.copied is None:
                remember(self._tables, key, found, PROGRAM_BYTES + found.words.nbytes)
        return found

    def _made(self, sources: Sources, corner: Any, flip: Any, alignment: int) -> _Table:
        count, step = len(sources.addresses), self.frame.step
        found, copied = self._cut(sources, corner, flip)
        grid = (step | alignment) & -(step | alignment)
        src, steps = self._lie(found, *sources.rows())
        keys = _keys(steps, grid)
        copied = copied | self._unplanned(keys, steps, grid, copied)
        memory = None
        if copied.any():
            numbers = np.flatnonzero(copied)
            memory = completed(
                self._asked, self._axes, self.frame.window, sources, found.begins, numbers
            )
            turned, packed = self._lie(
                found._replace(begins=self._window[None] * 0), None, self._packed
            )
            src, steps = (np.array(np.broadcast_to(a, (count, *a.shape[1:]))) for a in (src, steps))
            first = address(memory) + np.arange(len(numbers)) * memory.strides[0]
            some = numbers if len(turned) > 1 else slice(None)
            src[numbers], steps[numbers] = first + turned[some], packed[some]
            keys = _keys(steps, grid)
        numbered = dict.fromkeys(keys)
        kinds = [self._made_kind(key, steps[keys.index(key)], grid) for key in numbered]
        at = {key: number for number, key in enumerate(numbered)}
        which = [at[key] for key in keys] if len(keys) > 1 else [0] * count
        words, samples = _spread([kind.words for kind in kinds], which)
        every = slice(None) if samples is None else samples
        words[:, 2] += np.broadcast_to(src, (count,))[every]
        words[:, 3] += (np.arange(count) * step)[every]
        job = self._jobs.get(len(words)) or self._jobs.setdefault(len(words), self._job(len(words)))
        marked = None if memory is None else copied
        return _Table(words, samples, job, tuple(kinds), marked, memory)

    def _cut(self, sources: Sources, corner: Any, flip: Any) -> tuple[Cut, Array]:
        """Where windows begin, and which have to be completed."""
        asked, axes, window, count = self._asked, self._axes, self._window, len(sources.addresses)
        shapes = of_channels(asked, axes, sources.rows()[0])
        found = cut(asked, axes, shapes, window, corner, flip, count)
        outside = (found.begins < 0) | (found.begins + window > shapes)
        if outside.any() and asked.fill is None:
            check_inside(axes, found.begins, shapes, self.frame.window, outside)
        return found, np.array(np.broadcast_to(outside.any(axis=1), (count,)))

    def _lie(self, found: Cut, shapes: Array | None, strides: Array) -> tuple[Array, Array]:
        """Where windows begin in the memory of their samples, and their steps.

        Where channels are taken, steps end with how many a sample has, less than 0 where those that
        are taken are reversed, or 0 where it has only these: `shapes` is None then.
        """
        flips = found.flips
        if self._asked.channels is None:
            counts = None
        elif shapes is None:
            counts = np.zeros(1, np.int64)
        else:
            at, flips = self._channel, flips.copy()
            counts = np.where(flips[:, at], -shapes[:, at], shapes[:, at])
            flips[:, at] = False
        steps = np.where(flips, -strides, strides)
        src = ((found.begins + flips * (self._window - 1)) * strides).sum(axis=1)
        if counts is None:
            return src, steps
        rows = max(len(steps), len(counts))
        parts = (np.broadcast_to(part, (rows, part.shape[1])) for part in (steps, counts[:, None]))
        return src, np.concatenate(list(parts), axis=1)

    # -- kinds -----------------------------------------------------------------------------

    def _unplanned(self, keys: list[bytes], steps: Array, grid: int, copied: Array) -> Array:
        """Which samples have to be copied first, or lie as none before, where these are too many
        to be planned now."""
        later, new, picks = set(), 0, self._asked.channels is not None
        for key in dict.fromkeys(keys) if len(keys) > 1 or picks else ():
            new += key not in self._kinds
            many = new > MOST_PLANNED
            if many or (picks and self._kind(key, steps[keys.index(key)], grid) is None):
                later.add(key)
        return np.array([key in later for key in keys], bool) if later else copied

    def _made_kind(self, key: bytes, steps: Array, grid: int) -> _Kind:
        found = self._kind(key, steps, grid)
        if found is None:
            raise RuntimeError(
                f"{self.frame.task.pattern}: channels are not copied that have to be"
            )
        return found

    def _kind(self, key: bytes, steps: Array, grid: int) -> _Kind | None:
        """The kind of windows with these steps, planned when they are first seen.

        None where their channels have to be copied first.
        """
        kept: Any = self._kinds.get(key, _UNSEEN)
        if kept is not _UNSEEN:
            return kept  # type: ignore[no-any-return]
        plan = self._plan(steps)
        if plan.picked_first:
            return remember(self._kinds, key, None, PROGRAM_BYTES)
        if plan.choice is None or not (plan.is_one_pass or plan.choice.beyond):
            raise RuntimeError(f"{plan.pattern}: a sample is more than one pass, and all are not")
        frame, places = self.frame, list(plan.launches())
        with forks.making:
            from ..kernels.cpu.compiler import load
            from ..kernels.cpu.launch import STREAM_BYTES, prepare

            stream = prod(frame.shape) * frame.dtype.itemsize >= STREAM_BYTES
            grid = gcd(grid, *(dst for _, dst in places))
            launch = prepare(plan.choice, plan.epilogue, grid, stream)
            code = load(launch.spec).address
        params = np.frombuffer(launch.params, np.uint8)
        words = [(code, address(params), src, dst, launch.units) for src, dst in places]
        kind = _Kind(np.array(words, np.int64), plan, params)
        return remember(self._kinds, key, kind, PROGRAM_BYTES + len(params))

    def _plan(self, steps: Array) -> Plan:
        """How a window with these steps is moved."""
        frame, lies = self.frame, steps.tolist()
        task, shape = frame.task, list(frame.window)
        if task.channels is not None and self._channel is not None:
            count = lies.pop()
            shape[self._channel] = abs(count) or len(task.channels)
            order = task.channels[:: 1 if count > 0 else -1] if count else None
            task = task._replace(channels=order)
        return task.plan(tuple(shape), tuple(lies), self._source, CPU, frame.lies, has_half)

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


def _keys(steps: Array, grid: int) -> list[bytes]:
    """A key for each row of steps."""
    facts = np.empty((len(steps), steps.shape[1] + 1), np.int64)
    facts[:, :-1], facts[:, -1] = steps, grid
    found: list[bytes] = facts.view(f"V{facts.itemsize * facts.shape[1]}").ravel().tolist()
    return found


def _spread(words: list[Array], which: list[int]) -> tuple[Array, Array | None]:
    """The rows of all windows, and for each row whose it is; None where each has one."""
    if all(len(rows) == 1 for rows in words):
        return np.concatenate(words)[which], None
    rows = [words[kind] for kind in which]
    return np.concatenate(rows), np.repeat(np.arange(len(which)), list(map(len, rows)))

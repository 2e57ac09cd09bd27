"""Batches of windows, made by one job: a table of what every sample has to have done to it.

Windows that lie alike in their samples, with the same steps from place to place, are of one kind:
it is planned once and kept. `kernels/cpu/each.py` reads the table.
"""

from __future__ import annotations

import struct
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from .. import forks
from ..buffers import empty_with_address
from ..caching import PROGRAM_BYTES, Cache, remember
from ..devices import CPU
from ..kernels.cpu.words import LINE
from ..memory import Array, address
from ..planning.frames import make_frame
from ..planning.plan import Plan
from ..planning.windows import Axes, Windows
from ..spec import DType
from ..workers import Job
from .parts import Part, Parts, Sources
from .program import has_half

__all__ = ["Gathering"]


class _Kind(NamedTuple):
    """What is done to boxes that lie alike: rows of the table, and what they point to."""

    words: Array
    plan: Plan
    keep: Any


class _Table(NamedTuple):
    """What is done to a batch, but for the addresses of its samples, and the job that does it.

    samples    for each of the first rows, the sample that it reads; None: these are all rows
    """

    words: Array
    samples: Array | None
    job: Job
    kinds: tuple[_Kind, ...]


class Gathering:
    """What makes the memory of a `Frame`, for samples of one dtype wherever they lie.

    Safe to call from many threads: it is not changed, except that what was planned is added.
    """

    def __init__(
        self, asked: Windows, axes: Axes, count: int, window: tuple[int, ...], source: DType,
        out: Array | None, raw: bool,
    ) -> None:  # fmt: skip
        frame = make_frame(asked, axes, count, window, source, out, has_half, raw)
        self.frame = frame
        self._parts = Parts(asked, axes, frame, source)
        self._kinds: Cache[_Kind | None] = Cache()
        self._tables: Cache[_Table] = Cache()
        self._jobs: dict[int, Job] = {}  # by the rows of a table

    def __call__(self, sources: Sources, corner: Any, flip: Any, out: Array | None) -> Array | None:
        """The memory with what windows hold, or `out`; None where not all of it is one pass."""
        frame = self.frame
        if out is None:
            out, dst = empty_with_address(frame.shape, frame.dtype)
        else:
            dst = address(out)
        if 0 in frame.shape:
            list(self._parts(sources, corner, flip, LINE))  # for what they raise
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
        samples = [np.empty(0, np.int64)]
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

    # -- kinds -----------------------------------------------------------------------------

    def _kinds_of(self, part: Part) -> tuple[list[_Kind], list[int]] | None:
        """The kinds of boxes, and which of them each is; None where one is not one pass."""
        axes = len(self.frame.window)
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
        self, part: Part, counts: tuple[int, ...], steps: tuple[int, ...], grid: int
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

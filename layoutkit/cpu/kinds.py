"""Kinds of windows: those that are moved by one plan, whatever lies between their lines.

A plan is integers: it tells kernels by how many bytes to step. Where a step of the samples only
changes numbers in the parameters of the kernel, and each of them evenly, one plan serves all
samples; that it does is tried with two other steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from .. import forks
from ..devices import CPU
from ..errors import LayoutkitError
from ..kernels.cpu import tables as t
from ..kernels.cpu.words import LINE
from ..memory import Array, address
from ..planning.frames import Frame
from ..planning.plan import Plan
from ..spec import DType
from .program import has_half

__all__ = ["Kind", "Known", "freed", "make_kind"]

# Bytes that are added to a step to see what changes: no others are fused or aligned by them.
TRIED = 3 << 12, 5 << 12


class Kind(NamedTuple):
    """Windows of some steps, and what serves them.

    least     for each axis, how long other steps have to be; -1: there are no others
    code      the machine code
    places    byte offsets in the source and the output at which it begins
    patches   rows of (parameter, axis, growth) for steps that are others
    tried     whether it was tried which steps can be others
    """

    plan: Plan
    steps: tuple[int, ...]
    least: tuple[int, ...]
    code: int
    params: Array
    units: int
    places: tuple[tuple[int, int], ...]
    patches: Array
    tried: bool

    def row(self) -> Iterator[int]:
        """As a row of the table of kinds (see kernels/cpu/tables.py)."""
        (source, output), *_ = self.places
        yield from (self.code, address(self.params), len(self.params), self.units, source, output)
        yield from (len(self.patches), address(self.patches))
        yield from self.steps
        yield from self.least


class Known(NamedTuple):
    """The kinds that are known for outputs of one alignment, and their table."""

    kinds: tuple[Kind, ...]
    table: Array
    address: int  # of the table
    longest: int  # words of the parameters that may have to be written anew
    is_spread: bool  # whether a kernel begins at several places of a window

    @classmethod
    def of(cls, kinds: Sequence[Kind]) -> Known:
        """These kinds."""
        rows = [list(kind.row()) for kind in kinds]
        longest = max((len(k.params) for k in kinds if max(k.least, default=-1) >= 0), default=0)
        table = np.array(rows, np.int64)
        is_spread = any(len(kind.places) > 1 for kind in kinds)
        return cls(tuple(kinds), table, address(table), longest, is_spread)


class _Ready(NamedTuple):
    """A plan for some steps, with all numbers that depend on them in one row."""

    plan: Plan
    spec: Any
    units: int
    places: tuple[tuple[int, int], ...]
    params: Array

    def numbers(self) -> Array:
        """The parameters, and behind them where the kernel begins in the source."""
        return np.append(self.params, self.places[0][0])

    def is_like(self, other: _Ready) -> bool:
        """Whether the same machine code does as much, and in one place of the output."""
        ours, theirs = ((r.spec, r.units, len(r.params)) for r in (self, other))
        one = len(self.places) == len(other.places) == 1
        return ours == theirs and one and self.places[0][1] == other.places[0][1]


def make_kind(frame: Frame, source: DType, steps: tuple[int, ...], grid: int, stream: bool) -> Kind:
    """The kind of windows with these steps alone, as long as nothing was tried."""
    ready = _ready(frame, source, steps, grid, stream)
    from ..kernels.cpu.compiler import load

    code = load(ready.spec).address
    none = np.empty((0, t.PATCH_WORDS), np.int64)
    least = (-1,) * len(steps)
    return Kind(
        ready.plan, steps, least, code, ready.params, ready.units, ready.places, none, False
    )


def freed(kind: Kind, frame: Frame, source: DType, grid: int, stream: bool) -> Kind:
    """The same kind, for all steps that only change numbers."""
    here = _ready(frame, source, kind.steps, grid, stream)
    least, patches = [], []
    for axis, step in enumerate(kind.steps):
        grown = [step + (more if step >= 0 else -more) for more in TRIED]
        found = _growth(here, frame, source, kind.steps, axis, grown, grid, stream)
        if found is None or (found.any() and abs(step) < LINE):
            least.append(-1)
            continue
        # Along shorter steps another kernel may do: it would be the wrong plan, if a right one.
        least.append(LINE if found.any() else 0)
        last = len(found) - 1
        patches += [(at if at < last else -1, axis, found[at]) for at in np.flatnonzero(found)]
    rows = np.array(patches, np.int64).reshape(-1, t.PATCH_WORDS)
    return kind._replace(least=tuple(least), patches=rows, tried=True)


def _growth(
    here: _Ready, frame: Frame, source: DType, steps: tuple[int, ...], axis: int,
    others: Sequence[int], grid: int, stream: bool,
) -> Array | None:  # fmt: skip
    """By how much all numbers grow for each byte of a step; None where this is not all."""
    found: Array | None = None
    for other in others:
        try:
            there = _ready(frame, source, (*steps[:axis], other, *steps[axis + 1 :]), grid, stream)
        except LayoutkitError:
            return None
        if not here.is_like(there):
            return None
        more = there.numbers() - here.numbers()
        growth, rest = np.divmod(more, other - steps[axis])
        if rest.any() or (found is not None and (growth != found).any()):
            return None
        found = growth
    return found


def _ready(frame: Frame, source: DType, steps: tuple[int, ...], grid: int, stream: bool) -> _Ready:
    """Plan one window, and cut it for the CPU."""
    plan = frame.task.plan(frame.window, steps, source, CPU, frame.lies, has_half)
    if plan.choice is None or not (plan.is_one_pass or plan.choice.beyond):
        raise RuntimeError(f"{plan.pattern}: a sample is more than one pass, and all are not")
    places = tuple(plan.launches())
    with forks.making:
        from ..kernels.cpu.launch import prepare

        grid = gcd(grid, *(dst for _, dst in places))
        launch = prepare(plan.choice, plan.epilogue, grid, stream)
    params = np.frombuffer(launch.params, np.int64)
    return _Ready(plan, launch.spec, launch.units, places, params)

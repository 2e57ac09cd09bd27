"""Kinds of windows: those that are moved by one plan, whatever lies between their lines.

A plan is integers: it tells kernels by how many bytes to step. Where a step of the samples only
changes numbers in the parameters of the kernel, and each of them evenly, one plan serves all
samples; that it does is tried with two other steps.

The sheet of a batch of windows: what kernels/cpu/collate.py reads and writes, as NumPy arrays.

Samples as memory: arrays of their own, or rows of one array.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate as added
from itertools import pairwise
from math import gcd
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from .._utils import fork
from ..errors import LayoutkitError
from ..kernels.cpu import collate_params as t
from ..kernels.cpu.params import LINE
from ..memory import HAS_KNOWN_HEADER, Array, address, addresses
from ..planning.collate import Frame, Said, check_alike
from ..planning.plan import Plan
from ..spec import CPU, DType
from .program import has_half

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
        """As a row of the table of kinds (see kernels/cpu/collate_params.py)."""
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
    here: _Ready,
    frame: Frame,
    source: DType,
    steps: tuple[int, ...],
    axis: int,
    others: Sequence[int],
    grid: int,
    stream: bool,
) -> Array | None:
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
    with fork.making:
        from ..kernels.cpu.launch import prepare

        grid = gcd(grid, *(dst for _, dst in places))
        launch = prepare(plan.choice, plan.epilogue, grid, stream)
    params = np.frombuffer(launch.params, np.int64)
    return _Ready(plan, launch.spec, launch.units, places, params)


class Places(NamedTuple):
    """Addresses of samples; sizes and strides, a row for each sample or one for all."""

    starts: Array
    sizes: Array
    strides: Array


class Sources(NamedTuple):
    """Samples as memory.

    shape     of the first sample, or of all
    arrays    the samples; none where they lie in one array
    places    where they are, None where machine code will ask the arrays
    """

    dtype: DType
    shape: tuple[int, ...]
    count: int  # type: ignore[assignment]  # hides tuple.count, which is of no use here
    arrays: Sequence[Array]
    places: Places | None


def of_samples(arrays: Sequence[Array]) -> Sources:
    """Samples that are arrays of their own."""
    first = arrays[0]
    found = Sources(first.dtype, first.shape, len(arrays), arrays, None)
    return found if HAS_KNOWN_HEADER else spelled_out(found)


def spelled_out(sources: Sources) -> Sources:
    """The same samples with their places; raises if one is of another rank or dtype."""
    if sources.places is not None:
        return sources
    arrays, rank = sources.arrays, len(sources.shape)
    check_alike([(array.shape, array.dtype) for array in arrays])
    found = ([array.shape for array in arrays], [array.strides for array in arrays])
    rows = (np.array(each, np.int64).reshape(len(arrays), rank) for each in found)
    return sources._replace(places=Places(np.array(addresses(arrays), np.int64), *rows))


def of_rows(array: Array, axis: int, rows: Array) -> Sources:
    """Samples at proven positions of one array."""
    array = np.moveaxis(array, axis, 0) if axis else array
    starts = address(array) + rows * array.strides[0]
    forms = (np.array([form[1:]], np.int64) for form in (array.shape, array.strides))
    return Sources(array.dtype, array.shape[1:], len(rows), (), Places(starts, *forms))


_EACH_TIME = Struct(f"{t.EACH_TIME}q").pack_into
HEADER = object.__basicsize__  # bytes of an object before what is NumPy's


class Sheet:
    """A sheet for so many samples of a rank, all in one array, which is used again."""

    def __init__(self, count: int, rank: int, longest: int) -> None:
        row = t.ROW + 4 * rank
        head = t.SHEET + t.LISTS * rank
        ends = list(added((head, count, count * row, count * t.ENTRY, count, count * longest)))
        self.words = np.zeros(ends[-1], np.int64)
        self.address = address(self.words)
        self.longest, self._rank = longest, rank
        parts = [self.words[first:last] for first, last in pairwise([0, *ends])]
        self.head, self._objects, rows, table, self.states, _ = parts
        self.rows, self.table = rows.reshape(count, row), table.reshape(count, t.ENTRY)
        self.head[[t.COUNT, t.AXES, t.HEADER]] = count, rank, HEADER
        begins = [self.address + 8 * end for end in ends]
        self._objects_at, *written = begins[:-1]
        self.head[[t.ROWS, t.TABLE, t.STATES, t.ARENA]] = written
        self._is_said = False  # of windows
        self._write_objects = Struct(f"{count}q").pack_into

    def of_axes(self, which: int) -> Array:
        """What is said of each axis in the head, such as its size in a window."""
        first = t.SHEET + which * self._rank
        return self.head[first : first + self._rank]

    def of_windows(self, which: int) -> Array:
        """What is known of each axis of all windows, such as where they begin."""
        first = t.ROW + which * self._rank
        return self.rows[:, first : first + self._rank]

    def describe(
        self, sources: Sources, known: Known, offsets: Said, flips: Said, out: tuple[int, int]
    ) -> None:
        """Write what is another in each batch. The arrays that it tells of have to live on."""
        kinds = len(known.kinds), known.address
        if sources.places is None:
            self._write_objects(self._objects.data, 0, *map(id, sources.arrays))
            samples = self._objects_at, id(sources.dtype), 0, 0, 0, 0
        else:
            starts, sizes, strides = map(address, sources.places)
            form = 8 * self._rank if len(sources.places.sizes) > 1 else 0
            samples = 0, 0, starts, sizes, strides, form
        _EACH_TIME(self.head.data, 0, *samples, *out, *kinds, 0, 0)
        if not (offsets or flips or self._is_said):
            return
        head, rank = self.head, self._rank
        head[t.SHEET : t.SHEET + t.WINDOW * rank] = 0
        self._is_said = bool(offsets or flips)
        for first, values in (t.CORNERS, offsets), (t.FLIPS, flips):
            for axis, value in values.items():
                at = t.SHEET + first * rank + axis
                head[at] = address(value)
                head[at + rank] = value.strides[0] if value.ndim else 0

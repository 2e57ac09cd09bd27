"""The kinds of windows, the argument block of a batch, and the addresses of samples.

`WindowPlan` is the plan of windows with many possible strides of their samples. A plan holds
integers that depend on strides. If a stride of the samples changes only numbers in the parameters
of the kernel, and each of them linearly, one plan is used for all such strides. Linearity is tested
by planning with two other strides.

`CollateArgs` is the argument block of a batch, which kernels/cpu/collate.py reads and writes, as
NumPy arrays. `SampleBatch` are the samples of a batch: separate arrays, or positions of one array.
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
from ..memory import HAS_KNOWN_HEADER, Array, addresses, data_pointer
from ..planning.collate import BatchLayout, PerSampleArgs, check_same_rank_and_dtype
from ..planning.plan import Plan, make_single_plan
from ..spec import CPU, DType
from .program import supports_float16

# Bytes that are added to a stride to test linearity: they do not change fusion or alignment.
TRIED = 3 << 12, 5 << 12


class WindowPlan(NamedTuple):
    """The windows that one plan converts, and its machine code and parameters.

    steps     the strides of the samples for which `params` were computed
    least     the minimum of other supported strides per axis; -1: no other stride
    code      the address of the machine code
    places    the byte offsets in the source and the output of each launch
    patches   rows of (parameter, axis, growth per byte of stride) for other strides
    tried     whether other strides were tested
    """

    plan: Plan
    steps: tuple[int, ...]
    min_stride: tuple[int, ...]
    code: int
    params: Array
    units: int
    places: tuple[tuple[int, int], ...]
    patches: Array
    tried: bool

    def row(self) -> Iterator[int]:
        """Yield the row of the table of kinds (see kernels/cpu/collate_params.py)."""
        (source, output), *_ = self.places
        yield from (
            self.code,
            data_pointer(self.params),
            len(self.params),
            self.units,
            source,
            output,
        )
        yield from (len(self.patches), data_pointer(self.patches))
        yield from self.steps
        yield from self.min_stride


class WindowPlanTable(NamedTuple):
    """The known kinds for outputs of one alignment, and their table."""

    kinds: tuple[WindowPlan, ...]
    table: Array
    address: int  # of the table's memory
    longest: int  # words of the longest parameters that other strides patch
    is_spread: bool  # whether a window needs several launches

    @classmethod
    def of(cls, kinds: Sequence[WindowPlan]) -> WindowPlanTable:
        """Return the table of these kinds."""
        rows = [list(kind.row()) for kind in kinds]
        longest = max(
            (len(k.params) for k in kinds if max(k.min_stride, default=-1) >= 0), default=0
        )
        table = np.array(rows, np.int64)
        is_spread = any(len(kind.places) > 1 for kind in kinds)
        return cls(tuple(kinds), table, data_pointer(table), longest, is_spread)


class _Ready(NamedTuple):
    """The plan and launch parameters for some strides."""

    plan: Plan
    spec: Any
    units: int
    places: tuple[tuple[int, int], ...]
    params: Array

    def numbers(self) -> Array:
        """Return the parameters, followed by the source offset of the first launch."""
        return np.append(self.params, self.places[0][0])

    def is_like(self, other: _Ready) -> bool:
        """Return whether both differ only in numbers: equal code, work and output offset."""
        ours, theirs = ((r.spec, r.units, len(r.params)) for r in (self, other))
        one = len(self.places) == len(other.places) == 1
        return ours == theirs and one and self.places[0][1] == other.places[0][1]


def make_window_plan(
    frame: BatchLayout, source: DType, steps: tuple[int, ...], grid: int, stream: bool
) -> WindowPlan:
    """Return a kind of windows with exactly these strides; others are tested later."""
    ready = _ready(frame, source, steps, grid, stream)
    from ..kernels.cpu.compiler import load

    code = load(ready.spec).address
    none = np.empty((0, t.PATCH_WORDS), np.int64)
    least = (-1,) * len(steps)
    return WindowPlan(
        ready.plan, steps, least, code, ready.params, ready.units, ready.places, none, False
    )


def generalize_strides(
    kind: WindowPlan, frame: BatchLayout, source: DType, grid: int, stream: bool
) -> WindowPlan:
    """Return `kind` generalized to all strides that only change numbers linearly."""
    base = _ready(frame, source, kind.steps, grid, stream)
    least = []
    patches = []
    for axis, step in enumerate(kind.steps):
        grown = [step + (more if step >= 0 else -more) for more in TRIED]
        growth = _find_growth(base, frame, source, kind.steps, axis, grown, grid, stream)
        if growth is None or (growth.any() and abs(step) < LINE):
            least.append(-1)
            continue
        # Shorter strides may select another kernel: this plan would be correct, but slower.
        least.append(LINE if growth.any() else 0)
        last = len(growth) - 1
        patches += [
            (index if index < last else -1, axis, growth[index]) for index in np.flatnonzero(growth)
        ]
    rows = np.array(patches, np.int64).reshape(-1, t.PATCH_WORDS)
    return kind._replace(min_stride=tuple(least), patches=rows, tried=True)


def _find_growth(
    base: _Ready,
    frame: BatchLayout,
    source: DType,
    steps: tuple[int, ...],
    axis: int,
    other_steps: Sequence[int],
    grid: int,
    stream: bool,
) -> Array | None:
    """Return the growth of all numbers per byte of stride; None if they are not linear."""
    growth: Array | None = None
    for other_step in other_steps:
        try:
            changed = _ready(
                frame, source, (*steps[:axis], other_step, *steps[axis + 1 :]), grid, stream
            )
        except LayoutkitError:
            return None
        if not base.is_like(changed):
            return None
        more = changed.numbers() - base.numbers()
        slope, rest = np.divmod(more, other_step - steps[axis])
        if rest.any() or (growth is not None and (slope != growth).any()):
            return None
        growth = slope
    return growth


def _ready(
    frame: BatchLayout, source: DType, steps: tuple[int, ...], grid: int, stream: bool
) -> _Ready:
    """Plan one window, and compute its launch parameters."""
    plan = make_single_plan(
        frame.options, frame.window, steps, source, CPU, frame.sample_region, supports_float16
    )
    if plan.choice is None or not (plan.is_one_pass or plan.choice.host_loops):
        raise RuntimeError(f"{plan.pattern}: a sample needs several passes, but the batch only one")
    places = tuple(plan.launches())
    with fork.init_lock:
        from ..kernels.cpu.launch import prepare

        grid = gcd(grid, *(dst for _, dst in places))
        launch = prepare(plan.choice, plan.epilogue, grid, stream)
    params = np.frombuffer(launch.params, np.int64)
    return _Ready(plan, launch.spec, launch.units, places, params)


class SampleAddresses(NamedTuple):
    """The addresses of samples, and their sizes and strides (one row per sample, or one row)."""

    starts: Array
    sizes: Array
    strides: Array


class SampleBatch(NamedTuple):
    """The samples of a batch.

    shape     the shape of the first sample
    arrays    the samples; empty if they are parts of one array
    places    the addresses of samples; None: machine code reads them from `arrays`
    """

    dtype: DType
    shape: tuple[int, ...]
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not needed
    arrays: Sequence[Array]
    places: SampleAddresses | None


def samples_of_arrays(arrays: Sequence[Array]) -> SampleBatch:
    """Return samples that are separate arrays."""
    first = arrays[0]
    samples = SampleBatch(first.dtype, first.shape, len(arrays), arrays, None)
    return samples if HAS_KNOWN_HEADER else with_addresses(samples)


def with_addresses(sources: SampleBatch) -> SampleBatch:
    """Return samples with their addresses; raise if their ranks or dtypes differ."""
    if sources.places is not None:
        return sources
    arrays = sources.arrays
    rank = len(sources.shape)
    check_same_rank_and_dtype([(array.shape, array.dtype) for array in arrays])
    shapes_and_strides = ([array.shape for array in arrays], [array.strides for array in arrays])
    rows = (np.array(lists, np.int64).reshape(len(arrays), rank) for lists in shapes_and_strides)
    return sources._replace(places=SampleAddresses(np.array(addresses(arrays), np.int64), *rows))


def samples_of_array(array: Array, axis: int, rows: Array) -> SampleBatch:
    """Return samples that are parts of one array, at validated positions along `axis`."""
    array = np.moveaxis(array, axis, 0) if axis else array
    starts = data_pointer(array) + rows * array.strides[0]
    forms = (np.array([form[1:]], np.int64) for form in (array.shape, array.strides))
    return SampleBatch(array.dtype, array.shape[1:], len(rows), (), SampleAddresses(starts, *forms))


_EACH_TIME = Struct(f"{t.PER_BATCH_WORDS}q").pack_into
HEADER = object.__basicsize__  # bytes of a Python object before NumPy's fields


class CollateArgs:
    """The reusable argument block for `count` samples of one rank, in a single array."""

    def __init__(self, count: int, rank: int, longest: int) -> None:
        row = t.ROW + 4 * rank
        head = t.SHEET_WORDS + t.AXIS_ARRAYS * rank
        ends = list(added((head, count, count * row, count * t.ENTRY, count, count * longest)))
        self.words = np.zeros(ends[-1], np.int64)
        self.address = data_pointer(self.words)
        self.longest = longest
        self._rank = rank
        parts = [self.words[first:last] for first, last in pairwise([0, *ends])]
        self.head, self._objects, rows, table, self.states, _ = parts
        self.rows = rows.reshape(count, row)
        self.table = table.reshape(count, t.ENTRY)
        self.head[[t.COUNT, t.AXES, t.OBJECT_HEADER]] = count, rank, HEADER
        begins = [self.address + 8 * end for end in ends]
        self._objects_at, *written = begins[:-1]
        self.head[[t.ROWS, t.TABLE, t.STATES, t.ARENA]] = written
        self._is_said = False  # whether the head has offsets or flips
        self._write_objects = Struct(f"{count}q").pack_into

    def of_axes(self, which: int) -> Array:
        """Return a per-axis list of the head, such as the window sizes."""
        first = t.SHEET_WORDS + which * self._rank
        return self.head[first : first + self._rank]

    def of_windows(self, which: int) -> Array:
        """Return a per-axis list of all windows, such as their starts."""
        first = t.ROW + which * self._rank
        return self.rows[:, first : first + self._rank]

    def describe(
        self,
        sources: SampleBatch,
        known: WindowPlanTable,
        offsets: PerSampleArgs,
        flips: PerSampleArgs,
        out: tuple[int, int],
    ) -> None:
        """Write the arguments that differ between batches; the caller keeps their arrays alive."""
        kinds = len(known.kinds), known.address
        if sources.places is None:
            self._write_objects(self._objects.data, 0, *map(id, sources.arrays))
            samples = self._objects_at, id(sources.dtype), 0, 0, 0, 0
        else:
            starts, sizes, strides = map(data_pointer, sources.places)
            form = 8 * self._rank if len(sources.places.sizes) > 1 else 0
            samples = 0, 0, starts, sizes, strides, form
        _EACH_TIME(self.head.data, 0, *samples, *out, *kinds, 0, 0)
        if not (offsets or flips or self._is_said):
            return
        head = self.head
        rank = self._rank
        head[t.SHEET_WORDS : t.SHEET_WORDS + t.WINDOW * rank] = 0
        self._is_said = bool(offsets or flips)
        for first, values in (t.OFFSETS, offsets), (t.FLIPS, flips):
            for axis, value in values.items():
                pos = t.SHEET_WORDS + first * rank + axis
                head[pos] = data_pointer(value)
                head[pos + rank] = value.strides[0] if value.ndim else 0

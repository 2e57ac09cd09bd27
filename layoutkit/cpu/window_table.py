"""The plans of windows, the argument block of a batch, and the addresses of samples.

A `WindowPlan` converts windows of samples with many possible strides. If a stride changes only the
parameters of the kernel, and each of them linearly, the plan is used for other strides with patched
parameters. Linearity is tested by planning with two other strides.

`CollateArgs` is the argument block of a batch, in NumPy arrays, which kernels/cpu/collate.py reads
and writes. A `SampleBatch` describes the samples: separate arrays, or parts of one array.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate as added
from itertools import pairwise
from math import gcd
from operator import attrgetter
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import byte_bounds

from .._utils import fork
from ..errors import LayoutkitError
from ..kernels.cpu import collate_params as t
from ..kernels.cpu.params import LINE
from ..memory import (
    HAS_KNOWN_HEADER,
    Array,
    addresses,
    check_writable,
    data_pointer,
    pack_words,
)
from ..planning.batch.arguments import PerSampleArgs
from ..planning.batch.layout import BatchLayout, check_same_rank_and_dtype
from ..planning.plan import Plan, make_single_plan
from ..spec import CPU, DType
from .program import supports_float16

# Bytes that are added to a stride to test linearity. They preserve alignment and loop fusion.
_STRIDE_CHANGES = 3 << 12, 5 << 12

_dtype_of = attrgetter("dtype")


class WindowPlan(NamedTuple):
    """The plan of windows of certain strides, with its machine code and parameters.

    steps       the strides of the samples for which `params` were computed
    min_stride  per axis, the minimum absolute value of other supported strides, which have the same
                sign; -1: no other stride
    code        the address of the machine code
    units       the number of work units
    launch_offsets  the byte offsets in the source and the output of each launch
    patches     rows of (parameter, axis, growth per byte of stride) for other strides
    tried       whether other strides were tested
    """

    plan: Plan
    steps: tuple[int, ...]
    min_stride: tuple[int, ...]
    code: int
    params: Array
    units: int
    launch_offsets: tuple[tuple[int, int], ...]
    patches: Array
    tried: bool

    def row(self) -> Iterator[int]:
        """Yield the words of this plan in the kernel's table (kernels/cpu/collate_params.py)."""
        (source, output), *_ = self.launch_offsets
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
    """The window plans for outputs of one alignment, and their table for the kernel."""

    kinds: tuple[WindowPlan, ...]
    table: Array
    address: int  # of the memory of the table
    longest: int  # words of the longest parameter block that is patched for other strides
    is_spread: bool  # whether a plan needs several launches per window

    @classmethod
    def of(cls, kinds: Sequence[WindowPlan]) -> WindowPlanTable:
        rows = [list(kind.row()) for kind in kinds]
        patched = [kind for kind in kinds if max(kind.min_stride, default=-1) >= 0]
        longest = max((len(kind.params) for kind in patched), default=0)
        table = np.array(rows, np.int64)
        is_spread = any(len(kind.launch_offsets) > 1 for kind in kinds)
        return cls(tuple(kinds), table, data_pointer(table), longest, is_spread)


class _PreparedWindow(NamedTuple):
    """The plan and the launch parameters of a window of certain strides."""

    plan: Plan
    spec: Any
    units: int
    launch_offsets: tuple[tuple[int, int], ...]
    params: Array

    def numbers(self) -> Array:
        """Return the parameters, followed by the source offset of the first launch."""
        return np.append(self.params, self.launch_offsets[0][0])

    def differs_only_in_numbers(self, other: _PreparedWindow) -> bool:
        """Return True if code, work units and output offset are equal, in one launch each."""
        ours, theirs = ((w.spec, w.units, len(w.params)) for w in (self, other))
        is_one_launch = len(self.launch_offsets) == len(other.launch_offsets) == 1
        return (
            ours == theirs
            and is_one_launch
            and self.launch_offsets[0][1] == other.launch_offsets[0][1]
        )


def make_window_plan(
    layout: BatchLayout, source: DType, strides: tuple[int, ...], alignment: int, stream: bool
) -> WindowPlan:
    """Return a plan for windows of exactly these strides; `generalize_strides` tests others."""
    window = _prepare_window(layout, source, strides, alignment, stream)
    from ..kernels.cpu.compiler import load

    return WindowPlan(
        plan=window.plan,
        steps=strides,
        min_stride=(-1,) * len(strides),
        code=load(window.spec).address,
        params=window.params,
        units=window.units,
        launch_offsets=window.launch_offsets,
        patches=np.empty((0, t.PATCH_WORDS), np.int64),
        tried=False,
    )


def generalize_strides(
    kind: WindowPlan, layout: BatchLayout, source: DType, alignment: int, stream: bool
) -> WindowPlan:
    """Return a window plan generalized to all strides that change its parameters linearly.

    They have the sign of the planned strides: bounds of the source are not linear across zero.
    """
    base = _prepare_window(layout, source, kind.steps, alignment, stream)
    min_strides = []
    patches = []
    for axis, stride in enumerate(kind.steps):
        others = [stride + (more if stride >= 0 else -more) for more in _STRIDE_CHANGES]
        growth = _find_growth(base, layout, source, kind.steps, axis, others, alignment, stream)
        if growth is None or (growth.any() and abs(stride) < LINE):
            min_strides.append(-1)
            continue
        # For shorter strides another kernel may be faster than this plan.
        min_strides.append(LINE if growth.any() else 0)
        last = len(growth) - 1
        patches += [
            (index if index < last else -1, axis, growth[index]) for index in np.flatnonzero(growth)
        ]
    rows = np.array(patches, np.int64).reshape(-1, t.PATCH_WORDS)
    return kind._replace(min_stride=tuple(min_strides), patches=rows, tried=True)


def _find_growth(
    base: _PreparedWindow,
    layout: BatchLayout,
    source: DType,
    strides: tuple[int, ...],
    axis: int,
    other_strides: Sequence[int],
    alignment: int,
    stream: bool,
) -> Array | None:
    """Return the growth of each number of `base` per byte of a stride, None if not linear."""
    growth: Array | None = None
    for other_stride in other_strides:
        changed_strides = (*strides[:axis], other_stride, *strides[axis + 1 :])
        try:
            changed = _prepare_window(layout, source, changed_strides, alignment, stream)
        except LayoutkitError:
            return None
        if not base.differs_only_in_numbers(changed):
            return None
        differences = changed.numbers() - base.numbers()
        slope, rest = np.divmod(differences, other_stride - strides[axis])
        if rest.any() or (growth is not None and (slope != growth).any()):
            return None
        growth = slope
    return growth


def _prepare_window(
    layout: BatchLayout, source: DType, strides: tuple[int, ...], alignment: int, stream: bool
) -> _PreparedWindow:
    """Return the plan and the launch parameters of a window of certain strides."""
    plan = make_single_plan(
        layout.options, layout.window, strides, source, CPU, layout.sample_region, supports_float16
    )
    if plan.choice is None or not (plan.is_one_pass or plan.choice.host_loops):
        raise RuntimeError(f"{plan.pattern}: a batch needs one pass, but a window several")
    launch_offsets = tuple(plan.launches())
    with fork.init_lock:
        from ..kernels.cpu.launch import prepare

        alignment = gcd(alignment, *(dst for _, dst in launch_offsets))
        launch = prepare(plan.choice, plan.epilogue, alignment, stream)
    params = np.frombuffer(launch.params, np.int64)
    return _PreparedWindow(plan, launch.spec, launch.units, launch_offsets, params)


def is_streamed(nbytes: int) -> bool:
    """Return True if a batch of this size is written past the caches."""
    with fork.init_lock:
        from ..kernels.cpu.launch import STREAM_BYTES
    return nbytes >= STREAM_BYTES


class SampleAddresses(NamedTuple):
    """The addresses of samples, and their sizes and strides: one row per sample, or one for all."""

    starts: Array
    sizes: Array
    strides: Array


class SampleBatch(NamedTuple):
    """The samples of a batch.

    shape     the shape of the first sample
    arrays    the samples, or what else must stay alive; empty if samples are parts of one array
    addresses the addresses of samples; None: the kernel reads them from `arrays`
    """

    dtype: DType
    shape: tuple[int, ...]
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not needed
    arrays: Sequence[Array]
    addresses: SampleAddresses | None

    @property
    def known_addresses(self) -> SampleAddresses:
        """The addresses of samples, of a batch that `with_addresses` returned."""
        if self.addresses is None:
            raise RuntimeError("samples without addresses")
        return self.addresses


def describe_arrays(arrays: Sequence[Array]) -> SampleBatch:
    """Return the SampleBatch of separate arrays."""
    first = arrays[0]
    samples = SampleBatch(first.dtype, first.shape, len(arrays), arrays, None)
    return samples if HAS_KNOWN_HEADER else with_addresses(samples)


def with_addresses(sources: SampleBatch) -> SampleBatch:
    """Return a SampleBatch with addresses; raise if the samples differ in rank or dtype.

    Samples in another byte order than the first are copied.
    """
    if sources.addresses is not None:
        return sources
    dtype = sources.dtype
    rank = len(sources.shape)
    arrays = sources.arrays
    if HAS_KNOWN_HEADER:
        known = _read_headers(arrays, dtype, rank)
        if known is not None:
            return SampleBatch(dtype, sources.shape, len(arrays), arrays, known)
    forms = [x.shape + x.strides for x in arrays]
    dtypes = [*map(_dtype_of, arrays)]
    if {*map(len, forms)} != {2 * rank} or dtypes.count(dtype) != len(dtypes):
        arrays = [
            x.astype(dtype)
            if x.dtype.isnative != dtype.isnative and x.dtype.newbyteorder() == dtype
            else x
            for x in arrays
        ]
        check_same_rank_and_dtype([(array.shape, array.dtype) for array in arrays])
        forms = [x.shape + x.strides for x in arrays]
    shapes, strides = pack_words(forms).reshape(len(arrays), 2, rank).swapaxes(0, 1).copy()
    known = SampleAddresses(np.array(addresses(arrays), np.int64), shapes, strides)
    return SampleBatch(dtype, sources.shape, len(arrays), arrays, known)


def _read_headers(arrays: Sequence[Array], dtype: DType, rank: int) -> SampleAddresses | None:
    """Return the addresses of arrays; None if an array has another rank or another dtype object."""
    count = len(arrays)
    objects = pack_words([map(id, arrays)])
    sheet = np.zeros(t.SHEET_WORDS, np.int64)
    words: Array = np.empty(count * (1 + 2 * rank), np.int64)
    objects_address, sheet_address, tables = addresses([objects, sheet, words])
    sheet[[t.OBJECTS, t.DTYPE]] = objects_address, id(dtype)
    sheet[[t.COUNT, t.AXES, t.OBJECT_HEADER]] = count, rank, HEADER
    load_table_kernel("headers")(b"", sheet_address, tables, 0, count)
    if sheet.item(t.ERRORS):
        return None
    sizes, strides = words[count:].reshape(2, count, rank)
    return SampleAddresses(words[:count], sizes, strides)


@cache
def load_table_kernel(role: str) -> Any:
    """Return a kernel of collate.py that keeps the GIL, which is slow to reacquire."""
    with fork.init_lock:
        from ..kernels.cpu.compiler import PROTOTYPE_WITH_GIL, KernelSpec, load

        return PROTOTYPE_WITH_GIL(load(KernelSpec("collate", (role,))).address)


def check_apart(sources: SampleBatch, out: Array) -> None:
    """Raise if `out` is read-only, or shares memory with one of the separate arrays `sources`."""
    arrays = sources.arrays
    check_writable(arrays[0], out, "sample 0")
    starts, sizes, strides = sources.known_addresses
    first, end = byte_bounds(out)
    reach = np.abs(sizes * strides).sum(1) + sources.dtype.itemsize  # at most, on either side
    is_near = (starts - reach < end) & (starts + reach > first)
    for number in np.flatnonzero(is_near).tolist():
        check_writable(arrays[number], out, f"sample {number}")


def describe_parts(array: Array, axis: int, rows: Array) -> SampleBatch:
    """Return the SampleBatch of one array at validated indices `rows` of `axis`."""
    array = np.moveaxis(array, axis, 0) if axis else array
    starts = data_pointer(array) + rows * array.strides[0]
    sizes = np.array([array.shape[1:]], np.int64)
    strides = np.array([array.strides[1:]], np.int64)
    addresses_of_rows = SampleAddresses(starts, sizes, strides)
    return SampleBatch(array.dtype, array.shape[1:], len(rows), (), addresses_of_rows)


_write_batch_args = Struct(f"{t.PER_BATCH_WORDS}q").pack_into
HEADER = object.__basicsize__  # bytes of an array object before the fields of NumPy


class CollateArgs:
    """The reusable argument block for `count` samples of one rank, in a single array."""

    def __init__(self, count: int, rank: int, longest: int) -> None:
        row = t.ROW + t.ROW_ARRAYS * rank
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
        part_addresses = [self.address + 8 * end for end in ends]
        self._objects_address, *result_addresses = part_addresses[:-1]
        self.head[[t.ROWS, t.TABLE, t.STATES, t.ARENA]] = result_addresses
        self._has_values = False  # whether the head has offsets, flips or positions
        self._values: Mapping[int, PerSampleArgs] = {}  # of the last batch
        self._write_objects = Struct(f"{count}q").pack_into

    def of_axes(self, which: int) -> Array:
        """Return a per-axis array of the head, such as t.WINDOW, the window sizes."""
        first = t.SHEET_WORDS + which * self._rank
        return self.head[first : first + self._rank]

    def of_windows(self, which: int) -> Array:
        """Return a per-axis array of each window, such as t.WINDOW_OFFSETS, one row per window."""
        first = t.ROW + which * self._rank
        return self.rows[:, first : first + self._rank]

    def describe(
        self,
        sources: SampleBatch,
        known: WindowPlanTable,
        values: Mapping[int, PerSampleArgs],
        out: tuple[int, int],
    ) -> None:
        """Write the arguments of a batch; the caller keeps the arrays of `sources` alive.

        `values` are the offsets, flips and positions, by t.OFFSETS, t.FLIPS and t.POSITIONS.
        """
        kinds = len(known.kinds), known.address
        if sources.addresses is None:
            self._write_objects(self._objects.data, 0, *map(id, sources.arrays))
            samples = self._objects_address, id(sources.dtype), 0, 0, 0, 0
        else:
            starts, sizes, strides = map(data_pointer, sources.addresses)
            row_bytes = 8 * self._rank if len(sources.addresses.sizes) > 1 else 0
            samples = 0, 0, starts, sizes, strides, row_bytes
        _write_batch_args(self.head.data, 0, *samples, *out, *kinds, 0, 0)
        self._values = values  # kept alive: kernels read positions when they move items
        has_values = any(values.values())
        if not (has_values or self._has_values):
            return
        head = self.head
        rank = self._rank
        head[t.SHEET_WORDS : t.SHEET_WORDS + t.WINDOW * rank] = 0
        self._has_values = has_values
        for which, by_axis in values.items():
            for axis, value in by_axis.items():
                word = t.SHEET_WORDS + which * rank + axis
                head[word] = data_pointer(value)
                head[word + rank] = value.strides[0] if value.ndim > (which == t.POSITIONS) else 0

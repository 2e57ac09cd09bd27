"""Collate windows on the CPU with one job, from a table with one row per window.

A kernel of `kernels/cpu/collate.py` writes the table: all windows of a known kind
(`window_table.py`) share one plan. Another kernel converts the windows of the table. A window that
reaches outside of its sample is first copied by the thread that converts it.
"""

from __future__ import annotations

import struct
from functools import cache
from math import prod
from typing import Any

import numpy as np

from .._utils import fork
from ..buffers import empty_with_address
from ..kernels.cpu import collate_params as t
from ..kernels.cpu.params import LINE
from ..memory import Array, check_writable, contiguous_strides, data_pointer
from ..normalize import CHANNEL
from ..planning.channels import as_slice
from ..planning.collate import (
    BatchLayout,
    CollateOptions,
    SampleAxes,
    check_windows_inside,
    fill_array_of,
    make_batch_layout,
    parse_crop_and_flip,
)
from ..planning.plan import Plan
from ..spec import DType
from ..threads.pool import Job
from .program import supports_float16
from .window_table import (
    CollateArgs,
    SampleBatch,
    WindowPlanTable,
    generalize_strides,
    make_window_plan,
    with_addresses,
)

KEPT_BYTES = 4 << 20  # a larger sheet, of a batch of thousands of samples, is not reused
MOST_KINDS = 64  # kinds of windows that are cached, unless a batch has more


class CollateProgram:
    """The executable collation of a `BatchLayout`, for samples of one dtype.

    Safe to call from many threads: only caches are ever changed.
    """

    def __init__(
        self,
        options: CollateOptions,
        axes: SampleAxes,
        count: int,
        window: tuple[int, ...],
        source: DType,
        out: Array | None,
    ) -> None:
        self.frame = make_batch_layout(options, axes, count, window, source, out, supports_float16)
        self._options = options
        self._axes = axes
        self._source = source
        self._count = count
        self._places = axes.places()
        # Selected channels without a common stride: each window is copied with only these channels.
        self._copies_channels = options.channels is not None and as_slice(options.channels) is None
        self._is_empty = 0 in self.frame.shape
        self._byte_span = _byte_span(self.frame)
        self._known: dict[int, WindowPlanTable] = {}  # by the alignment of samples in the output
        self._sheets: list[CollateArgs] = []
        self._jobs: dict[tuple[int, bool], Job] = {}  # by row count, and whether windows are copied
        self._copies, self._kept_alive = self._copy_params()

    def __call__(self, sources: SampleBatch, offset: Any, flip: Any, out: Array | None) -> Array:
        """Convert the windows of a batch into `out` or new memory, and return that."""
        frame = self.frame
        span = 0, 0
        if out is None:
            out, dst = empty_with_address(frame.shape, frame.dtype)
        else:
            dst = data_pointer(out)
            span = dst + self._byte_span[0], dst + self._byte_span[1]
        sheet, known = self._fill_table(sources, offset, flip, dst, span)
        try:
            if sheet.head.item(t.ERRORS) & t.OVERLAPS_OUTPUT:
                for number, array in enumerate(sources.arrays):
                    check_writable(array, out, f"sample {number}")
            if not self._is_empty:
                self._run(sheet, known, dst)
        finally:
            if sheet.words.nbytes <= KEPT_BYTES:
                self._sheets.append(sheet)
        return out

    def plans(self, sources: SampleBatch, offset: Any, flip: Any) -> list[Plan]:
        """Return the plan of each kind of windows."""
        if self._is_empty:
            return []
        sheet, known = self._fill_table(sources, offset, flip, LINE, (0, 0))
        return [known.kinds[number].plan for number in dict.fromkeys(sheet.states.tolist())]

    # -- the table of windows --------------------------------------------------------------

    def _fill_table(
        self, sources: SampleBatch, offset: Any, flip: Any, dst: int, span: tuple[int, int]
    ) -> tuple[CollateArgs, WindowPlanTable]:
        """Return the filled table of a batch and its kinds; raise the errors of invalid samples."""
        offsets, flips = parse_crop_and_flip(self._options, self._places, offset, flip, self._count)
        grid = self._grid(dst)
        known = self._known.get(grid) or WindowPlanTable.of(())
        lay = _table_kernel()
        while True:
            sheet = self._new_args(known)
            sheet.describe(sources, known, offsets, flips, span)
            lay(b"", sheet.address, 0, 0, self._count)
            flags = sheet.head.item(t.ERRORS) & ~t.OVERLAPS_OUTPUT
            if not flags or (self._is_empty and flags == t.NO_PLAN):
                return sheet, known
            if flags & (t.MISMATCH | t.OUT_OF_BOUNDS):
                sources = self._check_samples(sources, sheet, flags)
            else:
                known = self._add_kind(known, sheet, grid)

    def _grid(self, dst: int) -> int:
        """Return the alignment of all windows in the output: a power of two up to a cache line."""
        bits = self.frame.step | dst | LINE
        return bits & -bits

    def _new_args(self, known: WindowPlanTable) -> CollateArgs:
        """Return a sheet for this batch, reused from an earlier batch if it is long enough."""
        while self._sheets:
            try:
                sheet = self._sheets.pop()
            except IndexError:  # another thread took it
                break
            if sheet.longest >= known.longest:
                return sheet
        options = self._options
        frame = self.frame
        sheet = CollateArgs(self._count, len(frame.window), known.longest)
        head = sheet.head
        packed = contiguous_strides(frame.window, self._source)
        sheet.of_axes(t.WINDOW)[:] = frame.window
        sheet.of_axes(t.HAS_SIZE)[:] = [name is not None for name in self._axes.cropped_names]
        sheet.of_axes(t.COPY_STRIDES)[:] = packed
        head[t.STEP] = frame.step
        head[t.COPY_BYTES] = prod(frame.window) * self._source.itemsize
        head[t.MAY_PAD] = options.fill is not None
        head[t.COPY_ALL] = self._copies_channels
        head[t.CHANNEL] = -1
        if options.channels is not None:
            head[t.CHANNEL] = self._axes.places()[CHANNEL]
            head[t.MIN_CHANNELS] = max(options.channels) + 1
            head[t.FIRST_CHANNEL], head[t.CHANNEL_STEP] = as_slice(options.channels) or (0, 1)
        return sheet

    def _check_samples(self, sources: SampleBatch, sheet: CollateArgs, flags: int) -> SampleBatch:
        """Raise the error of invalid samples, or return them with their addresses.

        Samples are valid if only their dtype objects differ, which machine code compares by
        identity.
        """
        located = with_addresses(sources)
        if located.places is not None:
            self._axes.window(self._options, located.places.sizes)
        if not flags & t.MISMATCH:
            begins, sizes = sheet.of_windows(t.WINDOW_OFFSETS), sheet.of_windows(t.SAMPLE_SIZES)
            window = self.frame.window
            outside = (begins < 0) | (begins + np.array(window) > sizes)
            check_windows_inside(self._axes, begins, sizes, window, outside)
        if located is sources:
            raise RuntimeError("the table kernel refused valid samples")
        return located

    # -- kinds -----------------------------------------------------------------------------

    def _add_kind(self, known: WindowPlanTable, sheet: CollateArgs, grid: int) -> WindowPlanTable:
        """Return the kinds with one more for the first window of an unknown kind.

        If new kinds are not generalized to other strides yet, they are generalized instead.
        """
        frame = self.frame
        stream = self._is_streamed()
        kinds = known.kinds
        if all(kind.tried for kind in kinds):
            number = int(np.flatnonzero(sheet.states == -t.NO_PLAN)[0])
            steps = tuple(sheet.of_windows(t.WINDOW_STRIDES)[number].tolist())
            most = max(MOST_KINDS, self._count)
            kinds = (*kinds[1 - most :], make_window_plan(frame, self._source, steps, grid, stream))
        else:
            kinds = tuple(
                k if k.tried else generalize_strides(k, frame, self._source, grid, stream)
                for k in kinds
            )
        table = WindowPlanTable.of(kinds)
        with fork.init_lock:
            self._known[grid] = table
        return table

    def _is_streamed(self) -> bool:
        with fork.init_lock:
            from ..kernels.cpu.launch import STREAM_BYTES
        return prod(self.frame.shape) * self.frame.dtype.itemsize >= STREAM_BYTES

    # -- execution -------------------------------------------------------------------------

    def _run(self, sheet: CollateArgs, known: WindowPlanTable, dst: int) -> None:
        """Run the job of a filled table."""
        table = sheet.table
        copies = sheet.head.item(t.COPY_COUNT)
        if copies:
            memory = empty_with_address((copies * sheet.head.item(t.COPY_BYTES),), np.dtype("u1"))
            copied = table[:, t.E_COPY_ROW] != 0
            table[copied, t.E_SOURCE] += memory[1]
            sheet.rows[copied, t.TARGET] += memory[1]
        if known.is_spread:
            table = self._spread(sheet, known)
        key = len(table), copies > 0
        job = self._jobs.get(key) or self._jobs.setdefault(key, self._job(*key))
        job.run(data_pointer(table), dst)

    def _spread(self, sheet: CollateArgs, known: WindowPlanTable) -> Array:
        """Return the table with a row for each launch of a window."""
        rows = []
        for entry, state in zip(sheet.table, sheet.states.tolist(), strict=True):
            places = known.kinds[state].places
            for src, dst in places:
                row = entry.copy()
                row[t.E_SOURCE] += src - places[0][0]
                row[t.E_OUTPUT] += dst - places[0][1]
                rows.append(row)
        return np.array(rows)

    def _job(self, rows: int, copied: bool) -> Job:
        """Return the job of a table with `rows` rows; every row is cut into equal shares."""
        with fork.init_lock:
            from ..kernels.cpu.compiler import KernelSpec, load
            from ..kernels.cpu.launch import choose_shares

            kernel = load(KernelSpec("collate", ("each",)))
        plan = self.frame.plan
        moved = plan.source.nbytes + plan.target.nbytes
        count, grain = (1, 1) if copied else choose_shares(rows, moved)
        params = struct.pack("2q", count, data_pointer(self._copies))
        return Job(kernel, params, rows * count, grain, moved)

    def _copy_params(self) -> tuple[Array, Any]:
        """Return the parameters of window copies, and the arrays they point to."""
        options = self._options
        axes = self._axes
        window = self.frame.window
        channel = -1
        channels = np.array(options.channels or (), np.int64)
        if self._copies_channels:
            channel = axes.places()[CHANNEL]
        paint = np.empty(0, self._source)
        if options.fill is not None:
            pixel = fill_array_of(options, axes, window, self._source)
            channel_axis = axes.places().get(CHANNEL)
            pixel_shape = [len(pixel) if axis == channel_axis else 1 for axis in range(len(window))]
            paint = np.array(np.broadcast_to(pixel.reshape(pixel_shape), window), order="C")
        head = (
            len(window),
            self._source.itemsize,
            data_pointer(paint),
            channel,
            data_pointer(channels),
        )
        return np.array([*head, *window], np.int64), (paint, channels)


def _byte_span(frame: BatchLayout) -> tuple[int, int]:
    """Return the byte offsets of the memory of a batch, relative to its first element."""
    if 0 in frame.shape:
        return 0, 0
    extents = [(n - 1) * step for n, step in zip(frame.shape, frame.strides, strict=True)]
    return sum(min(0, f) for f in extents), sum(max(0, f) for f in extents) + frame.dtype.itemsize


@cache
def _table_kernel() -> Any:
    """Return the kernel that writes tables; it keeps the GIL, as reacquiring it is slower."""
    with fork.init_lock:
        from ..kernels.cpu.compiler import PROTOTYPE_WITH_GIL, KernelSpec, load

        return PROTOTYPE_WITH_GIL(load(KernelSpec("collate", ("windows",))).address)

"""Collate windows on the CPU with one job, from a table with one row per window.

The kernel "windows" of `kernels/cpu/collate.py` writes the table; windows of similar strides share
a plan (`window_table.py`). The kernel "each" converts the windows of the table. A window that
reaches outside of its sample, or whose positions in the sample are listed, is moved by position, in
boxes (`kernels/cpu/collate_launch.py`).
"""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .._utils import fork
from .._utils.cache import Cache, cache_replace
from ..buffers import empty, empty_with_address
from ..kernels.cpu import collate_params as t
from ..kernels.cpu.params import LINE
from ..memory import Array, check_writable, data_pointer
from ..normalize import CHANNEL
from ..options import CollateOptions
from ..placement import place
from ..planning.batch.arguments import CropArgs, PerSampleArgs, parse_offset_and_flip
from ..planning.batch.layout import BatchLayout, fill_array_of, make_batch_layout
from ..planning.batch.placement import Placements, check_windows_inside, place_padded
from ..planning.batch.samples import SampleAxes
from ..planning.batch.weights import (
    IgnoredBits,
    check_fill,
    check_ignored_value,
    find_ignored_bits,
    moves_items,
    nearest_positions,
    options_of_floats,
)
from ..planning.channels import as_slice
from ..planning.plan import Part, Plan
from ..spec import DType
from ..threads.limits import get_num_threads
from ..threads.pool import Job
from .program import supports_float16
from .resize import ResizeProgram
from .window_table import (
    CollateArgs,
    SampleBatch,
    WindowPlanTable,
    generalize_strides,
    is_streamed,
    load_table_kernel,
    make_window_plan,
    with_addresses,
)

if TYPE_CHECKING:
    from ..kernels.cpu.collate_launch import BoxLaunch

MAX_REUSED_BYTES = 4 << 20  # larger argument blocks, of thousands of samples, are not reused
ARGUMENT_BYTES = 1 << 10  # of an argument block, for each sample, with changed parameters
MOVING_COST = 4  # bytes that are converted in the time of moving one item by position
MAX_PLANS = 64  # cached window plans, or one per sample of a larger batch


class CollateProgram:
    """The program that collates samples of one rank, window size and dtype, whose items are moved.

    Several threads may call it at once: a call changes only caches. With `resize`, items are moved
    from the nearest positions.

    nbytes    the size of the memory that it keeps
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
        self.layout = lay_out_moved(options, axes, count, window, source, out)
        self._options = options
        self._axes = axes
        self._source = source
        self._count = count
        self._ignored = find_replaced(options, axes, self.layout, source)
        self._axis_indices = axes.axis_indices
        self._positions: PerSampleArgs = {}
        if options.channels is not None and as_slice(options.channels) is None:
            self._positions[self._axis_indices[CHANNEL]] = np.array(options.channels, np.int64)
        self._moves_all = options.resize is not None or bool(self._positions)
        self._is_empty = 0 in self.layout.shape
        self._byte_span = _byte_span(self.layout)
        self._plan_tables: dict[int, WindowPlanTable] = {}  # by output alignment
        self._free_args: list[CollateArgs] = []
        self._nearest: Cache[tuple[Any, PerSampleArgs]] = Cache()
        self._boxes: dict[int, BoxLaunch] = {}  # by output alignment
        self._jobs: dict[tuple[int, bool], Job] = {}  # by row count; True: windows are moved
        self._fill = make_fill_windows(options, axes, self.layout, source)
        self.nbytes = self._fill.nbytes + min(count * ARGUMENT_BYTES, MAX_REUSED_BYTES)

    def __call__(self, sources: SampleBatch, crops: CropArgs, out: Array | None) -> Array:
        """Return the converted windows of a batch, in `out` or new memory."""
        span = 0, 0
        if out is None:
            out, dst = empty_with_address(self.layout.shape, self.layout.dtype)
        else:
            dst = data_pointer(out)
            # An element that begins before the output may end in it.
            first = dst + self._byte_span[0] - self._source.itemsize + 1
            span = first, dst + self._byte_span[1]
        args, plan_table, sources = self._fill_table(sources, crops, dst, span)
        try:
            if args.head.item(t.ERRORS) & t.OVERLAPS_OUTPUT:
                for number, array in enumerate(sources.arrays):
                    check_writable(array, out, f"sample {number}")
            if not self._is_empty:
                self._run(args, plan_table, dst)
        finally:
            if args.words.nbytes <= MAX_REUSED_BYTES:
                self._free_args.append(args)
        return out

    def plans(self, sources: SampleBatch, crops: CropArgs) -> list[Plan]:
        """Return the distinct plans of the windows of a batch."""
        if self._is_empty:
            return []
        args, plan_table, _ = self._fill_table(sources, crops, LINE, (0, 0))
        return [
            self._find_boxes(LINE).plan if number == t.MOVED else plan_table.kinds[number].plan
            for number in dict.fromkeys(args.states.tolist())
        ]

    # -- the table of windows --------------------------------------------------------------

    def _fill_table(
        self, sources: SampleBatch, crops: CropArgs, dst: int, span: tuple[int, int]
    ) -> tuple[CollateArgs, WindowPlanTable, SampleBatch]:
        """Return the argument block of a batch, with its table, and the window plans.

        Also return the samples, which may have been copied: the caller keeps them alive. Raises
        ShapeError or DtypeError if samples are invalid.
        """
        if crops.placements is not None or self._needs_placements:
            sources = with_addresses(sources)
            values = self._list_placed(self._place(sources, crops))
        else:
            positions = self._positions
            if self._options.resize is not None:
                positions = positions | self._find_nearest(sources, crops)
                crops = CropArgs(flip=crops.flip)
            offsets, flips = parse_offset_and_flip(self._axes, crops, self._count)
            if self._axes.longest and self._options.resize is None:
                is_flipped = any(axis in flips for axis in self._axes.longest_axes)
                lengths = self._find_lengths(sources) if is_flipped else None
                offsets = offsets | place_padded(self._axes, self.layout.window, lengths, flips)
            values = {t.OFFSETS: offsets, t.FLIPS: flips, t.POSITIONS: positions}
        alignment = self._alignment(dst)
        plan_table = self._plan_tables.get(alignment) or WindowPlanTable.of(())
        write_table = load_table_kernel("windows")
        while True:
            args = self._new_args(plan_table)
            args.describe(sources, plan_table, values, span)
            write_table(b"", args.address, 0, 0, self._count)
            errors = args.head.item(t.ERRORS) & ~t.OVERLAPS_OUTPUT
            if not errors or (self._is_empty and errors == t.NO_PLAN):
                return args, plan_table, sources
            if errors & (t.MISMATCH | t.OUT_OF_BOUNDS):
                sources = self._check_samples(sources, args, errors)
            else:
                plan_table = self._add_plan(plan_table, args, alignment)

    @cached_property
    def _needs_placements(self) -> bool:
        """True if windows may pad samples along some axes only, which the kernel cannot check."""
        options = self._options
        pads = self._axes.longest and self._axes.resized and options.resize is None
        return bool(pads) and not options.may_fill

    def _list_placed(self, placed: Placements) -> dict[int, PerSampleArgs]:
        """Return the offsets, flips and positions of windows, as `CollateArgs.describe` accepts."""
        flips = dict(enumerate(placed.flips.T.astype(np.int64)))
        if self._options.resize is None:
            offsets, positions = dict(enumerate(placed.begins.T)), self._positions
        else:
            offsets, positions = {}, self._positions | nearest_positions(placed)
        return {t.OFFSETS: offsets, t.FLIPS: flips, t.POSITIONS: positions}

    def _find_nearest(self, sources: SampleBatch, crops: CropArgs) -> PerSampleArgs:
        """Return the index in its sample that is nearest to each position of a window, by axis.

        Indices are int64, a row for each sample, and -1 where the window is filled. The last ones
        are reused for samples of the same sizes.
        """
        if self._count == 0:
            return {}
        key: Any = None
        moves_flipped = crops.flip is not None and self._axes.longest
        if crops.offset is crops.crop is None and not moves_flipped:
            known = sources.addresses
            key = [x.shape for x in sources.arrays] if known is None else known.sizes.tobytes()
            last = self._nearest.get(None)
            if last is not None and last[0] == key:
                return last[1]
        nearest = nearest_positions(self._place(sources, crops))
        if key is not None:
            nbytes = sum(indices.nbytes for indices in nearest.values())
            cache_replace(self._nearest, None, (key, nearest), nbytes)
        return nearest

    def _place(self, sources: SampleBatch, crops: CropArgs) -> Placements:
        """Return the placements of the checked samples of a batch."""
        window = self.layout.window
        lengths = self._find_lengths(sources)
        self._axes.check(lengths, window)
        return place(self._options, self._axes, window, lengths, crops)

    def _find_lengths(self, sources: SampleBatch) -> Array:
        """Return the sizes of samples, int64 (samples, axes)."""
        addresses = with_addresses(sources).known_addresses
        return np.broadcast_to(addresses.sizes, (self._count, len(self.layout.window)))

    def _alignment(self, dst: int) -> int:
        """Return the alignment of all windows in the output: a power of two up to a cache line."""
        bits = self.layout.step | dst | LINE
        return bits & -bits

    def _new_args(self, plan_table: WindowPlanTable) -> CollateArgs:
        """Return an argument block, reused from an earlier batch if one is large enough."""
        while self._free_args:
            try:
                args = self._free_args.pop()
            except IndexError:  # another thread took it
                break
            if args.longest >= plan_table.longest:
                return args
        options = self._options
        layout = self.layout
        args = CollateArgs(self._count, len(layout.window), plan_table.longest)
        head = args.head
        args.of_axes(t.WINDOW)[:] = layout.window
        args.of_axes(t.HAS_SIZE)[:] = [name is not None for name in self._axes.cropped_names]
        head[t.STEP] = layout.step
        head[t.IS_FLOOR] = options.center == "floor"
        head[t.MAY_PAD] = options.fills
        head[t.MOVE_ALL] = self._moves_all
        head[t.CHANNEL] = -1
        if options.channels is not None:
            head[t.CHANNEL] = self._axis_indices[CHANNEL]
            head[t.MIN_CHANNELS] = max(options.channels) + 1
            head[t.FIRST_CHANNEL], head[t.CHANNEL_STEP] = as_slice(options.channels) or (0, 1)
        return args

    def _check_samples(self, sources: SampleBatch, args: CollateArgs, errors: int) -> SampleBatch:
        """Raise the error of an invalid sample, or return the samples with their addresses.

        The kernel compares dtypes by identity, so it also rejects valid samples whose dtypes are
        equal but not one object.
        """
        located = with_addresses(sources)
        if located.addresses is not None:
            self._axes.window(located.addresses.sizes)
        if not errors & t.MISMATCH:
            starts = args.of_windows(t.WINDOW_OFFSETS)
            sizes = args.of_windows(t.SAMPLE_SIZES)
            check_windows_inside(self._axes, self.layout.window, starts, sizes)
        if located is sources:
            raise RuntimeError("the table kernel rejected valid samples")
        return located

    # -- window plans ----------------------------------------------------------------------

    def _add_plan(
        self, plan_table: WindowPlanTable, args: CollateArgs, alignment: int
    ) -> WindowPlanTable:
        """Return the window plans with one more, for the first window without a plan.

        If some plans are not generalized to other strides yet, they are generalized instead.
        """
        layout = self.layout
        stream = is_streamed(prod(layout.shape) * layout.dtype.itemsize)
        plans = plan_table.kinds
        if all(plan.tried for plan in plans):
            number = int(np.flatnonzero(args.states == -t.NO_PLAN)[0])
            strides = tuple(args.of_windows(t.WINDOW_STRIDES)[number].tolist())
            limit = max(MAX_PLANS, self._count)
            plan = make_window_plan(layout, self._source, strides, alignment, stream)
            plans = (*plans[1 - limit :], plan)
        else:
            plans = tuple(
                plan
                if plan.tried
                else generalize_strides(plan, layout, self._source, alignment, stream)
                for plan in plans
            )
        table = WindowPlanTable.of(plans)
        with fork.init_lock:
            self._plan_tables[alignment] = table
        return table

    # -- execution -------------------------------------------------------------------------

    def _run(self, args: CollateArgs, plan_table: WindowPlanTable, dst: int) -> None:
        table = args.table
        is_moved, areas = bool(args.head.item(t.MOVED_COUNT)), None
        if is_moved:
            boxes = self._find_boxes(self._alignment(dst))
            areas, address = make_areas(boxes.area_bytes, self._options.convert.threads)
            columns = [t.E_SOURCE, t.E_PARAMETERS]
            table[np.ix_(args.states == t.MOVED, columns)] = address, data_pointer(boxes.params)
        if plan_table.is_spread:
            table = self._expand_launches(args, plan_table)
        key = len(table), is_moved
        job = self._jobs.get(key) or self._jobs.setdefault(key, self._job(*key))
        job.run(data_pointer(table), dst)
        del areas  # kept alive until the job has run

    def _expand_launches(self, args: CollateArgs, plan_table: WindowPlanTable) -> Array:
        """Return the table with one row per launch instead of one row per window."""
        rows = []
        for entry, number in zip(args.table, args.states.tolist(), strict=True):
            offsets = ((0, 0),) if number == t.MOVED else plan_table.kinds[number].launch_offsets
            for src, dst in offsets:
                row = entry.copy()
                row[t.E_SOURCE] += src - offsets[0][0]
                row[t.E_OUTPUT] += dst - offsets[0][1]
                rows.append(row)
        return np.array(rows)

    def _job(self, rows: int, is_moved: bool) -> Job:
        """Return the job of a table with `rows` rows, each divided into equal shares of work."""
        with fork.init_lock:
            from ..kernels.cpu.compiler import KernelSpec, load
            from ..kernels.cpu.launch import choose_shares

            kernel = load(KernelSpec("collate", ("each",)))
        plan = self.layout.plan
        nbytes = plan.source.nbytes + plan.target.nbytes
        nbytes += is_moved * prod(self.layout.shape) * MOVING_COST
        shares, grain = choose_shares(rows, nbytes)
        params = struct.pack("q", shares)
        threads = self._options.convert.threads
        return Job(kernel, params, rows * shares, grain, nbytes, threads)

    def _find_boxes(self, alignment: int) -> BoxLaunch:
        """Return the cached moves of windows, for outputs of an alignment."""
        boxes = self._boxes.get(alignment)
        if boxes is None:
            channel = self._axis_indices.get(CHANNEL, -1)
            with fork.init_lock:
                from ..kernels.cpu.collate_launch import prepare_boxes

                boxes = prepare_boxes(
                    self.layout,
                    self._source,
                    channel,
                    self._fill,
                    self._ignored,
                    alignment,
                    is_streamed(prod(self.layout.shape) * self.layout.dtype.itemsize),
                    supports_float16,
                )
            self._boxes[alignment] = boxes
        return boxes


def lay_out_moved(
    options: CollateOptions,
    axes: SampleAxes,
    count: int,
    window: tuple[int, ...],
    source: DType,
    out: Array | Part | None,
    plan: Plan | None = None,
) -> BatchLayout:
    """Return the layout of a batch whose items are moved, not averaged.

    plan    of windows of other sizes, as in `make_batch_layout`
    """
    batch = axes, count, window, source, out, supports_float16
    layout = make_batch_layout(options, *batch, plan)
    resize = options.resize
    if resize is None or moves_items(resize, source, supports_float16):
        return layout
    # Other filters average these items as floats; "nearest" has results of the same dtype.
    to_target = options_of_floats(options.convert, layout.plan.target.dtype)
    return make_batch_layout(replace(options, convert=to_target), *batch)


def find_replaced(
    options: CollateOptions, axes: SampleAxes, layout: BatchLayout, source: DType
) -> IgnoredBits | None:
    """Return the ignored items, which fill values replace; None if no item is replaced.

    Raises ArgumentError if samples cannot have the ignored value, or a batch its replacement.
    """
    resize = options.resize
    if resize is None or resize.ignore is None:
        return None
    check_ignored_value(resize.ignore, source)
    check_fill(fill_array_of(options, axes, layout.window, source), layout.plan.target.dtype)
    return find_ignored_bits(resize.ignore, source) if options.fills else None


def make_fill_windows(
    options: CollateOptions, axes: SampleAxes, layout: BatchLayout, source: DType
) -> Array:
    """Return a window of fill values, and one with reversed channels; none without `fill`."""
    window = layout.window
    if not options.fills:
        return np.empty(0, source)
    pixel = fill_array_of(options, axes, window, source)
    move = layout.options.pattern.resolve(window, layout.options.sizes)
    along = [-1 if move.source.name(x) == CHANNEL else 1 for x in move.axes]
    windows = empty((2, *window), source)
    for part, values in zip(windows, (pixel, pixel[::-1]), strict=True):
        part.reshape(move.sizes)[...] = values.reshape(along if len(pixel) > 1 else 1)
    return windows


def make_areas(area_bytes: int, threads: int | None) -> tuple[Array, int]:
    """Return memory with a scratch area for each thread, and its address."""
    threads = threads or get_num_threads()
    head = -(-8 * (3 + threads) // LINE) * LINE
    memory, address = empty_with_address((head + threads * area_bytes,), np.dtype("u1"))
    words = memory[: 8 * (3 + threads)].view(np.int64)
    words[:] = 0
    words[:3] = address + head, area_bytes, threads
    return memory, address


BatchProgram: TypeAlias = CollateProgram | ResizeProgram


def make_batch_program(
    options: CollateOptions,
    axes: SampleAxes,
    count: int,
    window: tuple[int, ...],
    source: DType,
    out: Array | None,
) -> BatchProgram:
    """Return the program of a batch, which moves items or averages them."""
    resize = options.resize
    if resize is None or resize.filter == "nearest":
        return CollateProgram(options, axes, count, window, source, out)
    return ResizeProgram(options, resize, axes, count, window, source, out)


def _byte_span(layout: BatchLayout) -> tuple[int, int]:
    """Return the start and end of the memory of a batch, in bytes from its first element."""
    if 0 in layout.shape:
        return 0, 0
    extents = [(n - 1) * stride for n, stride in zip(layout.shape, layout.strides, strict=True)]
    end = sum(max(0, extent) for extent in extents) + layout.dtype.itemsize
    return sum(min(0, extent) for extent in extents), end

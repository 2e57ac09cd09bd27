"""Pack samples of different sizes on the CPU with one job.

A table has one entry for each window, or for each launch of its plan. The kernel "each" of
`kernels/cpu/collate.py` runs the entries. Windows of equal sizes and strides share a plan. The
nearest pixels, positions outside of samples and uneven channels are moved in boxes. Windows of
samples that are averaged share the plan of their blocks, also with windows of other sizes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from .._utils import fork
from .._utils.cache import PROGRAM_SIZE_ESTIMATE, Cache, cache_put
from ..buffers import empty_with_address
from ..kernels.cpu import collate_params as collate
from ..kernels.cpu import resize_params as t
from ..kernels.cpu.collate_params import (
    E_CODE,
    E_OUTPUT,
    E_PARAMETERS,
    E_SOURCE,
    E_UNITS,
    ENTRY,
)
from ..kernels.cpu.params import LINE
from ..layout.pattern import Permutation
from ..memory import Array, contiguous_strides, data_pointer, pack_words, row_bytes
from ..normalize import CHANNEL
from ..options import CollateOptions
from ..planning.batch.arguments import CropArgs, PerSampleArgs
from ..planning.batch.layout import BatchLayout
from ..planning.batch.packing import PackedLayout, packs_constants
from ..planning.batch.placement import Placements
from ..planning.batch.samples import SampleAxes
from ..planning.batch.weights import can_replace_ignored, nearest_positions
from ..planning.channels import as_slice
from ..planning.loops import byte_strides
from ..planning.plan import Part, Plan
from ..planning.resize import ResizeOptions
from ..spec import DType
from ..taps import RESAMPLING_COST
from ..threads.limits import get_num_threads
from ..threads.pool import Job
from .collate import MOVING_COST, find_replaced, lay_out_moved, make_areas, make_fill_windows
from .program import supports_float16
from .resize import BlockedLaunch, PlacedSamples, ResizeProgram
from .window_table import SampleBatch, WindowPlan, is_streamed, make_window_plan

if TYPE_CHECKING:
    from ..kernels.cpu.collate_launch import BoxLaunch

# Shares per thread into which resized windows are divided, so that threads end at about the same
# time although windows differ in size.
SHARES = 64


_Made = TypeVar("_Made")


class _Moves(NamedTuple):
    """The moves of windows of one size, by position."""

    boxes: BoxLaunch
    fill: Array  # windows of fill values, which the moves refer to


class _Launches(NamedTuple):
    """The launches that convert windows of certain sizes and strides."""

    entries: bytes  # with offsets in the window, and in its rows of the batch
    plan: WindowPlan | None  # which keeps the parameters of the entries alive


class _Target(NamedTuple):
    """The memory of a batch, and the places of windows in it."""

    out: Array
    rows: Array  # (samples,) int64: bytes from the beginning of `out` to each window
    alignment: int  # of all windows
    stream: bool


class PackedProgram:
    """The program that packs samples of one dtype, whose items are moved.

    Samples have equal sizes along axes that are not packed. Several threads may call it at once: a
    call changes only caches.

    out    the shape, strides and dtype of a batch of any length; None: new memory
    """

    def __init__(
        self, options: CollateOptions, axes: SampleAxes, source: DType, out: Part | None
    ) -> None:
        self._options = options
        self._axes = axes
        self._source = source
        self._out = out
        self._layouts: Cache[BatchLayout] = Cache()  # by the shape of a window
        self._shared_plan: Plan | None = None
        # By the alignment of the batch, and whether it is streamed; then by the shape and strides
        # of a window.
        self._plans: defaultdict[tuple[int, bool], Cache[_Launches]] = defaultdict(Cache)
        self._moves: Cache[_Moves] = Cache()

    def find_layouts(self, packed: PackedLayout) -> list[BatchLayout]:
        """Return the layout of each window, in its part of the batch.

        Raises what converting a window would raise.
        """
        return _look_up(self._layouts, packed.keys, lambda n: self._lay_out(packed, n))

    def _lay_out(self, packed: PackedLayout, number: int) -> BatchLayout:
        window, move = tuple(packed.windows[number].tolist()), packed.moves[number]
        out = self._out
        part = None if out is None else Part(move.target_shape, out.strides, out.dtype)
        plan = self._shared_plan
        layout = lay_out_moved(self._options, self._axes, 1, window, self._source, part, plan)
        if 0 not in window and self._can_share_plans:
            self._shared_plan = layout.plan
        return layout

    @cached_property
    def _can_share_plans(self) -> bool:
        """True if the plans of all windows have equal dtypes and steps.

        Items are moved to contiguous rows, and the constants' axis has one size.
        """
        options, out = self._options, self._out
        is_contiguous = out is None or out.strides == contiguous_strides(out.shape, out.dtype)
        is_moved = options.resize is None
        return is_moved and is_contiguous and not packs_constants(options, self._axes)

    def __call__(
        self,
        sources: SampleBatch,
        placements: Placements | None,
        layouts: list[BatchLayout],
        packed: PackedLayout,
        out: Array,
    ) -> bool:
        """Write the converted windows to `out`, which has the memory of the batch; return True.

        placements    of the windows; None: each window is its whole sample, with all channels

        Returns False if kernels cannot write them in one pass; nothing has been written.
        """
        if any(layout.post_conversion is not None for layout in layouts):
            return False
        bits = data_pointer(out) | out.strides[0] | LINE
        rows = packed.offsets[:-1] * out.strides[0]
        target = _Target(out, rows, bits & -bits, is_streamed(out.nbytes))
        channels = self._options.channels
        is_even = channels is None or as_slice(channels) is not None
        has_folds = any(len(group) > 1 for group in self._axes.pattern.source.groups)
        is_moved = self._options.resize is not None or not is_even
        if placements is None or not (is_moved or placements.outside.any()):
            windows = self._locate_windows(sources, placements, packed.windows)
            self._convert(windows, layouts, packed, target)
        elif has_folds or not can_replace_ignored(self._options.resize, self._source):
            # Boxes of folded axes are whole windows, which are moved slower than sample by sample.
            return False
        else:
            self._move(sources, placements, layouts, target)
        return True

    def _convert(
        self,
        windows: tuple[Array, Array],
        layouts: list[BatchLayout],
        packed: PackedLayout,
        target: _Target,
    ) -> None:
        """Convert windows, of these addresses and strides."""
        starts, strides = windows
        plans = _look_up(
            self._plans[target.alignment, target.stream],
            row_bytes(np.concatenate([packed.windows, strides], 1)),
            lambda n: _make_launches(layouts[n], self._source, strides[n], target),
        )
        words = bytearray().join([plan.entries for plan in plans])
        if not words:
            return
        table = np.frombuffer(words, np.int64).reshape(-1, ENTRY)
        rows = target.rows
        if len(table) != len(plans):
            counts = [len(plan.entries) // (ENTRY * table.itemsize) for plan in plans]
            starts, rows = np.repeat(starts, counts), np.repeat(rows, counts)
        table[:, E_SOURCE] += starts
        table[:, E_OUTPUT] += rows
        self._run(table, target.out.size * self._source.itemsize, target.out)

    def _move(
        self,
        sources: SampleBatch,
        placements: Placements,
        layouts: list[BatchLayout],
        target: _Target,
    ) -> None:
        """Move windows by position, in boxes."""
        table, positions = self._describe_windows(sources, placements, layouts)
        numbered = [
            (number, self._find_moves(layout, target))
            for number, layout in enumerate(layouts)
            if 0 not in layout.shape
        ]
        if not numbered:
            return
        area_bytes = max(moves.boxes.area_bytes for _, moves in numbered)
        areas, address = make_areas(area_bytes, self._options.convert.threads)
        first = data_pointer(table)
        rows = target.rows.tolist()
        entries = [
            (
                0,
                data_pointer(moves.boxes.params),
                address,
                rows[number],
                0,
                first + number * table.strides[0],
            )
            for number, moves in numbered
        ]
        jobs = pack_words(entries).reshape(-1, ENTRY)
        self._run(jobs, MOVING_COST * target.out.size, target.out)
        del areas, positions  # kept alive until the job has run

    def _describe_windows(
        self, sources: SampleBatch, placements: Placements, layouts: list[BatchLayout]
    ) -> tuple[Array, PerSampleArgs]:
        """Return a row for each window that is moved (collate_params.py), and its positions."""
        starts, _, strides = sources.known_addresses
        count, axes = strides.shape
        windows = np.array([layout.window for layout in layouts], np.int64)
        positions = {}
        if self._options.resize is not None:
            resized = tuple((self._axes.resized | self._axes.resizable).values())
            positions = nearest_positions(replace(placements, resized=resized))
        if self._options.channels is not None:
            channel = self._axes.axis_indices[CHANNEL]
            selected = np.array(self._options.channels, np.int64)
            positions[channel] = np.broadcast_to(selected, (count, len(selected)))
        table = np.zeros((count, collate.ROW + collate.ROW_ARRAYS * axes), np.int64)
        table[:, collate.ORIGIN] = starts
        arrays = table[:, collate.ROW :].reshape(count, collate.ROW_ARRAYS, axes)
        arrays[:, collate.WINDOW_OFFSETS] = placements.begins
        arrays[:, collate.SAMPLE_SIZES] = placements.lengths
        arrays[:, collate.GAPS] = strides
        arrays[:, collate.WINDOW_STRIDES] = np.where(placements.flips, -1, 1)
        for axis, indices in positions.items():
            tables = data_pointer(indices) + np.arange(count) * indices.strides[0]
            arrays[:, collate.TABLES, axis] = tables
            arrays[:, collate.WINDOW_OFFSETS, axis] = 0
            arrays[:, collate.SAMPLE_SIZES, axis] = windows[:, axis]
        return table, positions

    def _find_moves(self, layout: BatchLayout, target: _Target) -> _Moves:
        alignment, stream = target.alignment, target.stream
        key = layout.window, layout.strides, layout.dtype, alignment, stream
        moves = self._moves.get(key)
        if moves is None:
            channel = self._axes.axis_indices.get(CHANNEL, -1)
            memory = self._options, self._axes, layout, self._source
            fill, ignored = make_fill_windows(*memory), find_replaced(*memory)
            with fork.init_lock:
                from ..kernels.cpu.collate_launch import prepare_boxes

                boxes = prepare_boxes(
                    layout,
                    self._source,
                    channel,
                    fill,
                    ignored,
                    alignment,
                    stream,
                    supports_float16,
                )
            moves = _Moves(boxes, fill)
            cache_put(self._moves, key, moves, PROGRAM_SIZE_ESTIMATE + fill.nbytes)
        return moves

    def _locate_windows(
        self, sources: SampleBatch, placements: Placements | None, windows: Array
    ) -> tuple[Array, Array]:
        """Return the address of the first element of each window, and its strides."""
        starts, _, strides = sources.known_addresses
        if placements is None:
            return starts, strides
        starts = starts + (placements.begins * strides).sum(1)
        strides = strides.copy()
        if self._options.channels is not None:
            channel = self._axes.axis_indices[CHANNEL]
            first, step = as_slice(self._options.channels) or (0, 1)
            starts += first * strides[:, channel]
            strides[:, channel] *= step
        starts += (placements.flips * (windows - 1) * strides).sum(1)
        return starts, np.where(placements.flips, -strides, strides)

    def _run(self, table: Array, read_bytes: int, out: Array) -> None:
        with fork.init_lock:
            from ..kernels.cpu.launch import choose_shares

        nbytes = read_bytes + out.nbytes
        shares, grain = choose_shares(len(table), nbytes)
        _run_entries(table, shares, grain, nbytes, self._options.convert.threads, out)


def _make_launches(
    layout: BatchLayout, source: DType, strides: Array, target: _Target
) -> _Launches:
    """Return the launches that convert windows of this layout and these strides."""
    if 0 in layout.shape:
        return _Launches(b"", None)
    steps = tuple(strides.tolist())
    with fork.init_lock:
        plan = make_window_plan(layout, source, steps, target.alignment, target.stream)
    address = data_pointer(plan.params)
    entries = [(plan.code, address, src, dst, plan.units, 0) for src, dst in plan.launch_offsets]
    return _Launches(pack_words(entries).tobytes(), plan)


def _look_up(cache: Cache[_Made], keys: list[bytes], make: Callable[[int], _Made]) -> list[_Made]:
    """Return the values of a cache under these keys; `make` makes value number n if it is missing.

    Values are true.
    """
    values = [*map(cache.get, keys)]  # for loops take three times as long
    if not all(values):
        for number, key in enumerate(keys):
            value = cache.get(key) or make(number)
            values[number] = cache_put(cache, key, value, PROGRAM_SIZE_ESTIMATE)
    return values  # type: ignore[return-value]


def _run_entries(
    table: Array, shares: int, grain: int, nbytes: int, threads: int | None, out: Array
) -> None:
    """Run the entries of a table; each entry is divided into shares."""
    with fork.init_lock:
        from ..kernels.cpu.compiler import KernelSpec, load

        kernel = load(KernelSpec("collate", ("each",)))
    params = np.array([shares], np.int64).tobytes()
    job = Job(kernel, params, len(table) * shares, grain, nbytes, threads)
    job.run(data_pointer(table), data_pointer(out))


class PackedResizeProgram(ResizeProgram):
    """The program that packs resized samples of one rank and dtype, averaged as floats.

    Samples have equal sizes along axes that are not packed.
    """

    def __init__(
        self,
        options: CollateOptions,
        resize: ResizeOptions,
        axes: SampleAxes,
        window: tuple[int, ...],
        source: DType,
        out: Part | None,
    ) -> None:
        super().__init__(options, resize, axes, 1, window, source, out)
        self.layout = self.layout._replace(step=0)  # a call block has one sample

    def _place(self, lengths: Array, args: CropArgs) -> Placements:
        placements: Placements = args.placements
        return placements

    def pack(
        self, sources: SampleBatch, placements: Placements, packed: PackedLayout, out: Array
    ) -> bool:
        """Write the windows to `out`, which has the memory of the batch, and return True.

        Returns False if kernels cannot write them in one pass; nothing has been written.
        """
        args = CropArgs(placements=placements)
        samples = self._place_samples(sources, args)
        outer = self._analyze_order(samples.order).roles.outer
        if any(len(self._folds.get(x, "xx")) != 2 for x in outer):
            return False
        stream = is_streamed(out.nbytes)
        windows = [self._find_packed_launch(samples, x, out, stream) for x in packed.moves]
        if len({window.launch.slots for window in windows}) > 1:
            return False
        self._run(samples, windows, packed.offsets, out)
        return True

    def _find_packed_launch(
        self, samples: PlacedSamples, move: Permutation, out: Array, stream: bool
    ) -> BlockedLaunch:
        """Return the cached launch of a window, by its move to the batch."""
        bits = data_pointer(out) | LINE
        alignment = gcd(bits & -bits, out.strides[0])  # samples begin at rows of the batch
        letters, sizes = move.target_axes, move.target_sizes
        strides = byte_strides(move.target.groups, letters, sizes, out.strides)
        steps = dict(zip(letters, strides, strict=True))
        window = dict(zip(letters, sizes, strict=True))
        return self._find_launch(samples, window, steps, alignment, stream)

    def _run(
        self, samples: PlacedSamples, windows: list[BlockedLaunch], offsets: Array, out: Array
    ) -> None:
        """Write the windows of samples to rows of `out`, from `offsets` on."""
        threads = self._options.convert.threads or get_num_threads()
        words, calls, memory = self._make_call_blocks(samples, windows, threads)
        address = data_pointer(words)
        areas, words[0] = empty_with_address((int(words[1]) * threads,), np.dtype(np.uint8))
        calls[:, t.C_AREAS] = address
        first = address + words.nbytes - calls.nbytes
        entries = np.zeros((len(windows), ENTRY), np.int64)
        entries[:, [E_CODE, E_PARAMETERS, E_UNITS]] = [
            (x.launch.kernel.address, data_pointer(x.params), x.units) for x in windows
        ]
        entries[:, E_SOURCE] = first + np.arange(len(windows)) * calls.strides[0]
        entries[:, E_OUTPUT] = offsets[:-1] * out.strides[0]
        shares = -(-SHARES * threads // len(windows))
        read = int(samples.placements.sizes.prod(1).sum()) * self._source.itemsize
        nbytes = (read + out.nbytes) * RESAMPLING_COST
        _run_entries(entries, shares, 1, nbytes, threads, out)
        del areas, memory  # kept alive until the job has run

    def _make_call_blocks(
        self, samples: PlacedSamples, windows: list[BlockedLaunch], threads: int
    ) -> tuple[Array, Array, Array]:
        """Return a block of areas and call blocks (resize_params.py), without addresses of areas.

        Also return the call blocks alone, a view with a row for each sample, and the tap tables.
        """
        largest = max(windows, key=lambda window: window.launch.area_bytes)
        taps = self._make_tap_tables(largest.columns, samples)
        rows, room, areas = self._fill_samples(
            largest.launch, samples, largest.columns, taps, threads
        )
        rows[:, 0] += samples.starts
        words = np.zeros(len(areas) + len(windows) * (t.CALL + rows.shape[1]), np.int64)
        words[: len(areas)] = areas
        calls = words[len(areas) :].reshape(len(windows), -1)
        calls[:, t.C_ROOM] = room
        calls[:, [t.C_UNITS, t.C_BLOCKS, t.C_PLACES]] = [
            (x.units, len(x.places), data_pointer(x.places)) for x in windows
        ]
        calls[:, [t.C_ROWS, t.C_COLUMNS]] = taps.counts[-2:].T
        calls[:, t.CALL :] = rows
        return words, calls, taps.memory

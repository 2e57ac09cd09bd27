"""Pack samples of different sizes on the CPU with one job.

A table has one entry for each window, or for each launch of its plan. The kernel "each" of
`kernels/cpu/collate.py` runs the entries. Windows of equal sizes and strides share a plan. Windows
of resized samples share the plan of their blocks, also with windows of other sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .._utils import fork
from .._utils.cache import PROGRAM_SIZE_ESTIMATE, Cache, cache_put
from ..buffers import empty_with_address
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
from ..memory import Array, data_pointer
from ..normalize import CHANNEL
from ..options import CollateOptions
from ..planning.batch.arguments import CropArgs
from ..planning.batch.blocks import Blocks, divide_window
from ..planning.batch.layout import BatchLayout, make_batch_layout
from ..planning.batch.packing import PackedLayout
from ..planning.batch.placement import Placements
from ..planning.batch.samples import SampleAxes
from ..planning.channels import as_slice
from ..planning.loops import byte_strides
from ..planning.plan import Part
from ..planning.resize import ResizeOptions
from ..spec import DType
from ..taps import RESAMPLING_COST
from ..threads.limits import get_num_threads
from ..threads.pool import Job
from .program import supports_float16
from .resize import PlacedSamples, ResizeProgram
from .window_table import SampleBatch, WindowPlan, is_streamed, make_window_plan, with_addresses

if TYPE_CHECKING:
    from ..kernels.cpu.resize_launch import BlockLaunch

# Shares per thread into which resized windows are divided, so that threads end at about the same
# time although windows differ in size.
SHARES = 64


class PackedProgram:
    """The program that packs samples of one rank and dtype, which are not resized.

    Several threads may call it at once: a call changes only caches.
    """

    def __init__(self, options: CollateOptions, axes: SampleAxes, source: DType) -> None:
        self._options = options
        self._axes = axes
        self._source = source
        # By the shape of a window, the strides of samples, and the memory of the batch.
        self._layouts: Cache[BatchLayout] = Cache()
        self._plans: Cache[WindowPlan] = Cache()

    def find_layouts(self, packed: PackedLayout, out: Part | None) -> list[BatchLayout]:
        """Return the layout of each window, in its part of the batch.

        out    the shape, strides and dtype of the batch; None: new memory

        Raises what converting a window would raise.
        """
        layouts = []
        for window, move in zip(packed.windows.tolist(), packed.moves, strict=True):
            part = None if out is None else Part(move.target_shape, out.strides, out.dtype)
            layouts.append(self._find_layout(tuple(window), part))
        return layouts

    def _find_layout(self, window: tuple[int, ...], out: Part | None) -> BatchLayout:
        key = window, out
        layout = self._layouts.get(key)
        if layout is None:
            layout = make_batch_layout(
                self._options, self._axes, 1, window, self._source, out, supports_float16
            )
            cache_put(self._layouts, key, layout, PROGRAM_SIZE_ESTIMATE)
        return layout

    def supports(self, layouts: list[BatchLayout], placements: Placements) -> bool:
        """Return True if every window is converted in one step, and is inside of its sample."""
        channels = self._options.channels
        is_even = channels is None or as_slice(channels) is not None
        is_direct = all(layout.post_conversion is None for layout in layouts)
        return is_even and is_direct and not placements.outside.any()

    def __call__(
        self,
        sources: SampleBatch,
        placements: Placements,
        layouts: list[BatchLayout],
        packed: PackedLayout,
        out: Array,
    ) -> None:
        """Write the converted windows to `out`, which has the memory of the batch."""
        starts, strides = self._locate_windows(sources, placements, packed.windows)
        row_bytes = out.strides[0]
        dst = data_pointer(out)
        bits = dst | row_bytes | LINE
        alignment = bits & -bits
        stream = is_streamed(out.nbytes)
        entries, plans = [], []
        columns = starts.tolist(), strides.tolist(), packed.offsets.tolist()
        for start, steps, row, layout in zip(*columns, layouts, strict=False):
            if 0 in layout.shape:
                continue
            plan = self._find_plan(layout, tuple(steps), alignment, stream)
            plans.append(plan)
            code, address = plan.code, data_pointer(plan.params)
            entries += [
                (code, address, start + source, row * row_bytes + target, plan.units, 0)
                for source, target in plan.launch_offsets
            ]
        if entries:
            self._run(
                np.array(entries, np.int64), sum(plan.plan.source.nbytes for plan in plans), out
            )

    def _locate_windows(
        self, sources: SampleBatch, placements: Placements, windows: Array
    ) -> tuple[Array, Array]:
        """Return the address of the first element of each window, and its strides."""
        if sources.addresses is None:
            raise RuntimeError("samples without addresses")
        starts, _, strides = sources.addresses
        starts = starts + (placements.begins * strides).sum(1)
        strides = strides.copy()
        if self._options.channels is not None:
            channel = self._axes.axis_indices[CHANNEL]
            first, step = as_slice(self._options.channels) or (0, 1)
            starts += first * strides[:, channel]
            strides[:, channel] *= step
        starts += (placements.flips * (windows - 1) * strides).sum(1)
        return starts, np.where(placements.flips, -strides, strides)

    def _find_plan(
        self, layout: BatchLayout, strides: tuple[int, ...], alignment: int, stream: bool
    ) -> WindowPlan:
        key = layout.window, layout.strides, layout.dtype, strides, alignment, stream
        plan = self._plans.get(key)
        if plan is None:
            with fork.init_lock:
                plan = make_window_plan(layout, self._source, strides, alignment, stream)
            cache_put(self._plans, key, plan, PROGRAM_SIZE_ESTIMATE)
        return plan

    def _run(self, table: Array, read_bytes: int, out: Array) -> None:
        with fork.init_lock:
            from ..kernels.cpu.launch import choose_shares

        nbytes = read_bytes + out.nbytes
        shares, grain = choose_shares(len(table), nbytes)
        _run_entries(table, shares, grain, nbytes, self._options.convert.threads, out)


def _run_entries(
    table: Array, shares: int, grain: int, nbytes: int, threads: int | None, out: Array
) -> None:
    """Run the entries of a table; each entry is divided into shares."""
    with fork.init_lock:
        from ..kernels.cpu.compiler import KernelSpec, load

        kernel = load(KernelSpec("collate", ("each",)))
    params = np.array([shares, 0], np.int64).tobytes()
    job = Job(kernel, params, len(table) * shares, grain, nbytes, threads)
    job.run(data_pointer(table), data_pointer(out))


class _ResizedWindow(NamedTuple):
    """The blocks of a window of a resized sample, and the launch that writes them."""

    launch: BlockLaunch
    params: Array  # of the launch
    places: Array  # of the blocks, as in `Blocks`

    @property
    def units(self) -> int:
        """The number of units of work."""
        return self.launch.repeats * len(self.places)


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
        # By the size of a window, the memory of the batch, and the memory order of samples.
        self._windows: Cache[_ResizedWindow] = Cache()
        self._block_launches: Cache[BlockLaunch] = Cache()  # by the sizes and strides of a block

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
        samples = self._place_samples(with_addresses(sources), args)
        if {*self._analyze_order(samples.order).roles.outer} & {*self._folds}:
            return False
        stream = is_streamed(out.nbytes)
        windows = [self._find_window(samples, move, out, stream) for move in packed.moves]
        if len({window.launch.slots for window in windows}) > 1:
            return False
        self._run(samples, windows, packed.offsets, out)
        return True

    def _find_window(
        self, samples: PlacedSamples, move: Permutation, out: Array, stream: bool
    ) -> _ResizedWindow:
        """Return the cached blocks of a window, by its move to the batch."""
        bits = data_pointer(out) | LINE
        alignment = gcd(bits & -bits, out.strides[0])  # samples begin at rows of the batch
        order = samples.order, samples.channels, samples.selects
        key = move.sizes, out.strides, alignment, stream, order
        window = self._windows.get(key)
        if window is None:
            letters, sizes = move.target_axes, move.target_sizes
            strides = byte_strides(move.target.groups, letters, sizes, out.strides)
            steps = dict(zip(letters, strides, strict=True))
            roles = self._analyze_order(samples.order).roles
            sizes_by_letter = dict(zip(letters, sizes, strict=True))
            blocks = divide_window(roles, self._folds, sizes_by_letter, steps, t.VECTOR, True)
            alignment = gcd(alignment, *blocks.places[:, 2].tolist())
            launch = self._find_block_launch(samples, blocks, steps, alignment, stream)
            params = np.frombuffer(launch.params, np.int64)
            window = _ResizedWindow(launch, params, blocks.places)
            cache_put(self._windows, key, window, PROGRAM_SIZE_ESTIMATE)
        return window

    def _find_block_launch(
        self,
        samples: PlacedSamples,
        blocks: Blocks,
        steps: Mapping[str, int],
        alignment: int,
        stream: bool,
    ) -> BlockLaunch:
        """Return the cached launch of blocks, which windows of other sizes may have, too."""
        used_steps = {x: step for x, step in steps.items() if blocks.sizes.get(x) != 1}
        order = samples.order, samples.channels, samples.selects
        key = *blocks.sizes.items(), *used_steps.items(), alignment, stream, order
        launch = self._block_launches.get(key)
        if launch is None:
            launch = self._prepare_launch(samples, blocks, steps, alignment, stream)
            cache_put(self._block_launches, key, launch, PROGRAM_SIZE_ESTIMATE)
        return launch

    def _run(
        self, samples: PlacedSamples, windows: list[_ResizedWindow], offsets: Array, out: Array
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
        self, samples: PlacedSamples, windows: list[_ResizedWindow], threads: int
    ) -> tuple[Array, Array, Array]:
        """Return a block of areas and call blocks (resize_params.py), without addresses of areas.

        Also return the call blocks alone, a view with a row for each sample, and the tap tables.
        """
        largest = max((x.launch for x in windows), key=lambda launch: launch.area_bytes)
        columns = self._find_slots(largest)
        taps = self._make_tap_tables(columns, samples)
        rows, room, areas = self._fill_samples(largest, samples, columns, taps, threads)
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

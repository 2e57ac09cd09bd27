"""Pack samples of different sizes on the CPU with one job.

A table has one entry for each window, or for each launch of its plan. The kernel "each" of
`kernels/cpu/collate.py` runs the entries. Windows of equal sizes and strides share a plan.
"""

from __future__ import annotations

from math import prod

import numpy as np

from .._utils import fork
from .._utils.cache import PROGRAM_SIZE_ESTIMATE, Cache, cache_put
from ..kernels.cpu.params import LINE
from ..memory import Array, data_pointer
from ..normalize import CHANNEL
from ..options import CollateOptions
from ..planning.batch.layout import BatchLayout, make_batch_layout
from ..planning.batch.packing import PackedLayout
from ..planning.batch.placement import Placements
from ..planning.batch.samples import SampleAxes
from ..planning.channels import as_slice
from ..planning.plan import Part
from ..spec import DType
from ..threads.pool import Job
from .program import supports_float16
from .window_table import SampleBatch, WindowPlan, make_window_plan


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
        with fork.init_lock:
            from ..kernels.cpu.launch import STREAM_BYTES

        stream = out.nbytes >= STREAM_BYTES
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
            from ..kernels.cpu.compiler import KernelSpec, load
            from ..kernels.cpu.launch import choose_shares

            kernel = load(KernelSpec("collate", ("each",)))
        nbytes = read_bytes + prod(out.shape) * out.itemsize
        shares, grain = choose_shares(len(table), nbytes)
        params = np.array([shares, 0], np.int64).tobytes()
        threads = self._options.convert.threads
        Job(kernel, params, len(table) * shares, grain, nbytes, threads).run(
            data_pointer(table), data_pointer(out)
        )

"""Pack samples of different sizes on a GPU by one launch, as `cpu/packed.py` does on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from .._utils import fork
from ..layout.pattern import Permutation
from ..memory import Array
from ..normalize import CHANNEL
from ..planning.batch.layout import fill_array_of
from ..planning.batch.packing import PackedLayout
from ..planning.batch.placement import Placements
from ..planning.batch.samples import SampleAxes
from ..planning.batch.weights import make_window_conversion, moves_items
from ..planning.loops import byte_strides
from ..planning.plan import Plan
from .collate import (
    DeviceCollateProgram,
    Samples,
    Table,
    find_ignored,
    find_pixel_order,
    kernel_items,
    make_fill_of_samples,
    make_sides,
    reads_of,
    upload_and_launch,
    window_dtype,
)
from .memory import DeviceAdapter, DeviceArray
from .program import supports_float16

if TYPE_CHECKING:
    from ..kernels.cuda.collate import PackedWindow
    from ..kernels.cuda.launch import CudaLaunch


class DevicePackedProgram(DeviceCollateProgram):
    """The GPU program of packed batches of a Collator."""

    def find_plan(
        self,
        axes: SampleAxes,
        packed: PackedLayout,
        arrays: Sequence[DeviceArray],
        out: DeviceArray | None,
    ) -> Plan | None:
        """Return the plan of the conversion of the first window, to `out` or new memory.

        Returns None if kernels cannot convert all windows as they write them: a dtype, a cast, or
        constants that differ along an axis whose size differs between samples.
        Raises unless all samples are on one GPU, and `out` is writeable memory of its own.
        """
        self._check_arrays(arrays)
        options, first = self._options, arrays[0]
        if out is not None:
            self._check_apart(arrays, Samples.of(arrays), out)
            out = replace(out, shape=packed.moves[0].target_shape)
        dtype = window_dtype(options.resize, first.dtype)
        shape = 1, *packed.windows[0].tolist()
        post = make_window_conversion(options, shape, first.dtype, supports_float16)
        plan = self._plan(replace(post, device=None, copy=True), shape, dtype, first, out)
        is_aligned = out is None or out.is_aligned  # as kernels write
        if plan.before is not None or plan.after is not None or not is_aligned:
            return None
        return plan if self._has_common_constants(axes, plan) else None

    def _has_common_constants(self, axes: SampleAxes, plan: Plan) -> bool:
        """Return True if all windows have as many constants and fill values."""
        options = self._options
        letters = {_find_coefficient_letter(plan)} - {""}
        if options.fill is not None and len(options.fill) > 1:
            letters |= {x for x in axes.sample.letters if axes.sample.name(x) == CHANNEL}
        folded = {x for group in axes.sample.groups for x in group if len(group) > 1}
        return not letters & ({*axes.packed} | folded)

    def write(
        self,
        arrays: Sequence[DeviceArray],
        axes: SampleAxes,
        placements: Placements,
        packed: PackedLayout,
        plan: Plan,
        out: DeviceArray,
        adapter: DeviceAdapter,
    ) -> None:
        """Write the windows of samples to `out`, which has the memory of the batch."""
        if out.size:
            launch = self.prepare_launch(arrays, axes, placements, packed, plan, out)
            upload_and_launch(out, *launch, adapter)

    def prepare_launch(
        self,
        arrays: Sequence[DeviceArray],
        axes: SampleAxes,
        placements: Placements,
        packed: PackedLayout,
        plan: Plan,
        out: DeviceArray,
    ) -> tuple[CudaLaunch, Array, int]:
        """Return the launch that writes `out`, its table, and the base address in the table."""
        with fork.init_lock:
            from ..kernels.cuda.collate import SampleTable, prepare_packed
            from ..kernels.cuda.launch import Side

        options, samples, table = self._options, Samples.of(arrays), Table()
        reads = reads_of(options, axes, placements)
        fill = fill_array_of(options, axes, tuple(packed.windows[0].tolist()), samples.dtype)
        ignored, fill = find_ignored(options, samples.dtype, fill)
        fills = make_fill_of_samples(axes, placements, fill)
        fill_offset = table.add(fills.tobytes())
        base = int(samples.addresses.min())
        numbers = range(axes.sample.ndim)
        starts, sides, heads = make_sides(samples, reads, numbers, table)
        resize = options.resize
        is_float = resize is not None and not moves_items(resize, samples.dtype, supports_float16)
        item, epilogue = kernel_items(samples.dtype, plan.epilogue, is_float, ignored)
        coefficient = _find_coefficient_letter(plan)
        windows = [
            _describe_window(axes, move, out, coefficient, len(fill) > 1, reads.resized, place)
            for move, place in zip(packed.moves, packed.offsets.tolist(), strict=False)
        ]
        launch, data = prepare_packed(
            windows,
            len(fill) if len(fills) > len(fill) else 0,
            SampleTable(
                samples.dtype.itemsize,
                starts - base,
                sides,
                heads,
                table.next_offset,
                fill_offset,
                samples.alignment(),
                reads.is_inside,
                find_pixel_order(samples, reads, numbers),
                ignored=ignored,
            ),
            item,
            epilogue,
            Side(out.dtype.itemsize, out.address),
            is_float=is_float,
        )
        table.add(data)
        return launch, table.array(), base


def _find_coefficient_letter(plan: Plan) -> str:
    """Return the letter of the axis along which the constants of a formula differ, or ""."""
    coefficients = None if plan.epilogue is None else plan.epilogue.coefficients
    if coefficients is None or len(coefficients.factor) < 2 or plan.formula is None:
        return ""
    return plan.formula.letter(plan.move) or ""


def _describe_window(
    axes: SampleAxes,
    move: Permutation,
    out: DeviceArray,
    coefficient: str,
    has_channel_fill: bool,
    resized: tuple[int, ...],
    row: int,
) -> PackedWindow:
    """Return a window, whose rows of the batch begin at `row`, as `prepare_packed` accepts it."""
    with fork.init_lock:
        from ..kernels.cuda.collate import PackedWindow, WindowAxis

    letters, sizes = move.target_axes, move.target_sizes
    strides = byte_strides(move.target.groups, letters, sizes, out.strides)
    steps = dict(zip(letters, strides, strict=True))
    counts = dict(zip(move.axes, move.sizes, strict=True))
    window = []
    for number, group in enumerate(axes.sample.groups):
        loops = [(counts[letter], steps.get(letter, 0)) for letter in reversed(group)]
        folds = [(count, step - count * before) for (count, before), (_, step) in pairwise(loops)]
        name = group[0] if len(group) == 1 else ""
        window.append(
            WindowAxis(
                int(np.prod([count for count, _ in loops])),
                loops[0][1] if loops else 0,
                int(bool(name) and name == coefficient),
                int(has_channel_fill and bool(name) and axes.sample.name(name) == CHANNEL),
                number in resized,
                tuple(folds),
            )
        )
    return PackedWindow(window, row * out.strides[0])

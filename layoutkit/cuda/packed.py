"""Pack samples of different sizes on a GPU by one launch, as `cpu/packed.py` does on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from .._utils import fork
from ..layout.pattern import Permutation
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
    PreparedBatch,
    Samples,
    find_ignored,
    make_fill_of_samples,
    prepare_launch,
    reads_of,
    window_dtype,
)
from .memory import DeviceArray
from .program import supports_float16

if TYPE_CHECKING:
    from ..kernels.cuda.collate import WindowAxis


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

    def prepare_windows(
        self,
        arrays: Sequence[DeviceArray],
        axes: SampleAxes,
        placements: Placements,
        packed: PackedLayout,
        plan: Plan,
        out: DeviceArray,
    ) -> PreparedBatch:
        """Return the batch of samples in `out`, which has its memory, and the launch."""
        if not out.size:
            return PreparedBatch(out)
        with fork.init_lock:
            from ..kernels.cuda.collate import WindowAxis

        options, samples = self._options, Samples.of(arrays)
        resize = options.resize
        reads = reads_of(options, axes, placements)
        fill = fill_array_of(options, axes, tuple(packed.windows[0].tolist()), samples.dtype)
        ignored, fill = find_ignored(options, samples.dtype, fill)
        fills = make_fill_of_samples(axes, placements, fill)
        coefficient = _find_coefficient_letter(plan)
        launch = prepare_launch(
            samples,
            reads,
            range(axes.sample.ndim),
            {},
            fills,
            [
                _describe_window(axes, move, out, coefficient, len(fill) > 1, reads.resized)
                for move in packed.moves
            ],
            WindowAxis(1, fill=len(fill) if len(fills) > len(fill) else 0),
            out,
            plan.epilogue,
            ignored,
            [row * out.strides[0] for row in packed.offsets[:-1].tolist()],
            is_float=resize is not None
            and not moves_items(resize, samples.dtype, supports_float16),
        )
        return PreparedBatch(out, launch=launch)


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
) -> list[WindowAxis]:
    """Return the axes of a window, as `prepare_collate` accepts them."""
    with fork.init_lock:
        from ..kernels.cuda.collate import WindowAxis

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
    return window

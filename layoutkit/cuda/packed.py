"""Pack samples of different sizes on a GPU by one launch, as `cpu/packed.py` does on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from .._utils.cache import PROGRAM_SIZE_ESTIMATE, cache_put
from ..kernels.cuda.collate import Places, WindowAxis
from ..layout.pattern import Permutation
from ..memory import Array
from ..normalize import CHANNEL
from ..planning.batch.packing import PackedLayout
from ..planning.batch.placement import Placements
from ..planning.batch.samples import SampleAxes
from ..planning.loops import byte_strides
from ..planning.plan import Plan
from .collate import (
    DeviceCollateProgram,
    LaunchPlan,
    PreparedBatch,
    Samples,
    describe_items,
    find_coefficient_letter,
    has_own_fill,
    layout_of,
    prepare_launch,
    reads_of,
)
from .memory import DeviceArray, DeviceArrays


class DevicePackedProgram(DeviceCollateProgram):
    """The GPU program of packed batches of a Collator."""

    def find_plan(
        self,
        axes: SampleAxes,
        packed: PackedLayout,
        arrays: DeviceArrays,
        out: DeviceArray | None,
    ) -> Plan | None:
        """Return the plan of the conversion of a window, to `out` or new memory.

        Returns None if kernels cannot convert all windows as they write them: a dtype, a cast, or
        constants that differ along an axis whose size differs between samples.
        Raises unless all samples are on one GPU, and `out` is writeable memory of its own.
        """
        samples, first = Samples.of(arrays), arrays[0]
        number = _choose_window(packed)
        if out is not None:
            self._check_apart(arrays, samples, out)
            out = out._replace(shape=packed.moves[number].target_shape)
        shape = 1, *packed.windows[number].tolist()
        key = shape, first.dtype, first.ordinal, layout_of(out)
        plan: Plan | None = self._plans.get(key)
        if plan is None:
            plan = self._plan_conversion(shape, first, out)[1]
            cache_put(self._plans, key, plan, PROGRAM_SIZE_ESTIMATE)
        is_aligned = out is None or out.is_aligned  # as kernels write
        if plan.before is not None or plan.after is not None or not is_aligned:
            return None
        return plan if self._has_common_constants(axes, plan) else None

    def _has_common_constants(self, axes: SampleAxes, plan: Plan) -> bool:
        """Return True if all windows have as many constants and fill values."""
        options = self._options
        letters = {find_coefficient_letter(plan)} - {""}
        if options.fill is not None and len(options.fill) > 1:
            letters |= {x for x in axes.sample.letters if axes.sample.name(x) == CHANNEL}
        folded = {x for group in axes.sample.groups for x in group if len(group) > 1}
        return not letters & ({*axes.packed} | folded)

    def prepare_windows(
        self,
        arrays: DeviceArrays,
        axes: SampleAxes,
        placements: Placements,
        packed: PackedLayout,
        plan: Plan,
        out: DeviceArray,
    ) -> PreparedBatch:
        """Return the batch of samples in `out`, which has its memory, and the launch."""
        if not out.size:
            return PreparedBatch(out)
        samples, reads = Samples.of(arrays), reads_of(self._options, axes, placements)
        shape = tuple(packed.windows[_choose_window(packed)].tolist())
        items, fill = describe_items(self._options, axes, shape, samples.dtype, plan.epilogue)
        coefficient = find_coefficient_letter(plan)
        # Windows of one size share their move.
        moves = {id(move): move for move in packed.moves}
        window = _describe_axes(axes, [*moves.values()], out, coefficient, fill, reads.resized)
        numbers = {key: number for number, key in enumerate(moves)}
        kinds = np.array([numbers[id(move)] for move in packed.moves])
        places = Places(packed.offsets[:-1] * out.strides[0], kinds)
        columns = range(axes.sample.ndim)
        layout = LaunchPlan(columns, {}, window, WindowAxis(1), items, fill, places)
        return PreparedBatch(out, launch=prepare_launch(axes, samples, reads, layout, out))


def _choose_window(packed: PackedLayout) -> int:
    """Return the number of the first window with elements, or 0: empty ones are not converted."""
    return int(packed.windows.all(1).argmax())


def _describe_axes(
    axes: SampleAxes,
    moves: Sequence[Permutation],
    out: DeviceArray,
    coefficient: str,
    fill: Array,
    resized: tuple[int, ...],
) -> list[WindowAxis]:
    """Return the axes of different windows, as `prepare_collate` accepts them."""
    move = moves[0]  # others differ in sizes only
    sizes = [*np.array([move.target_sizes for move in moves], np.int64).T]
    strides = byte_strides(move.target.groups, move.target_axes, sizes, out.strides)
    steps = dict(zip(move.target_axes, strides, strict=True))
    sizes = [*np.array([move.sizes for move in moves], np.int64).T]
    counts = dict(zip(move.axes, sizes, strict=True))
    window = []
    for number, group in enumerate(axes.sample.groups):
        loops = [(counts[letter], steps.get(letter, 0)) for letter in reversed(group)]
        folds = [(count, step - count * before) for (count, before), (_, step) in pairwise(loops)]
        name = group[0] if len(group) == 1 else ""
        length: Any = prod(count for count, _ in loops)
        step = loops[0][1] if loops else 0
        coef = int(bool(name) and name == coefficient)
        own_fill = int(has_own_fill(axes, name, fill))
        is_resized = number in resized
        window.append(WindowAxis(length, step, coef, own_fill, is_resized, tuple(folds)))
    return window

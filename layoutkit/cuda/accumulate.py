"""Execute the plan of a sum on a GPU; `layoutkit.cpu.accumulate` is the CPU's counterpart.

One launch adds up to `MAX_PARTS` arrays. More arrays are added in several launches, which
add to the previous sum in the accumulation dtype, so the result equals one launch's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from .._utils.cache import PROGRAM_SIZE_ESTIMATE, Cache, cache_put
from ..kernels.cuda.accumulate import prepare_sum
from ..kernels.cuda.policy import MAX_AXES, MAX_PARTS
from ..memory import layout_key
from ..planning.accumulate import (
    Stage,
    SumPlan,
    SumRequest,
    make_operand,
    make_sum_plan,
    plan_single_part,
)
from ..planning.loops import SumLoop
from ..spec import DType
from .memory import DeviceAdapter, DeviceArray, check_writable
from .program import (
    CachedSumLaunch,
    DeviceProgram,
    aligned,
    alignments,
    cast,
    cast_into,
    check_compiled,
    find_aligned_output,
    overlap_range,
    supports_float16,
)
from .runtime import runtime

Plan = Callable[[Sequence[Any], Any], SumRequest]


class DeviceSums:
    """The GPU sums that an `Accumulator` caches; `plan` makes the request for given parts."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._sums: Cache[_DeviceSum] = Cache()
        # By the library's description of the parts and of out; None if there is no fast path.
        self.quick: Cache[CachedSumLaunch | None] = Cache()

    def run(
        self, arrays: Sequence[DeviceArray], out: DeviceArray | None, adapter: DeviceAdapter
    ) -> Any:
        """Sum the arrays, and return the library's array of the result, or of `out` if given."""
        ready = self._find(arrays, out)
        if out is not None:
            for number, array in enumerate(arrays):
                check_writable(array, out, f"part {number}")
        adapter.check(ready.result)
        with runtime().on(arrays[0].ordinal):
            arrays = [array if array.is_aligned else aligned(array, adapter) for array in arrays]
            with find_aligned_output(out, adapter) as target:
                result = self._find(arrays, target)(arrays, target, adapter)
            return result if out is None else out.owner

    def cache_fast_path(
        self, key: Any, arrays: Sequence[DeviceArray], out: DeviceArray | None
    ) -> None:
        """Cache the fast path, by `key`, for parts like these, which were just summed."""
        if key not in self.quick and all(array.is_aligned for array in arrays):
            quick = self._find(arrays, out).quick(arrays, out)
            cache_put(self.quick, key, quick, PROGRAM_SIZE_ESTIMATE)

    def _find(self, arrays: Sequence[DeviceArray], out: DeviceArray | None) -> _DeviceSum:
        ordinal = arrays[0].ordinal
        key = (ordinal, *layout_key(*arrays, out))
        ready = self._sums.get(key)
        if ready is None:
            request = replace(self._plan(arrays, out), device=arrays[0].device)
            new_sum = _DeviceSum(request, ordinal)
            ready = cache_put(self._sums, key, new_sum, PROGRAM_SIZE_ESTIMATE * len(arrays))
        return ready


class _DeviceSum:
    """The sum of arrays of these shapes, strides and dtypes on one GPU."""

    def __init__(self, request: SumRequest, ordinal: int) -> None:
        self._request = request
        self._ordinal = ordinal
        self.result = request.result
        self._mover: DeviceProgram | None = None
        self._chained = len(request.moves) > MAX_PARTS
        # By the first part of the launch, and the alignment of its parts and its output.
        self._kernels: dict[tuple[int, ...], Any] = {}
        self._empty = 0 in request.shape
        if len(request.moves) == 1:
            self._mover = DeviceProgram(plan_single_part(request, supports_float16), ordinal)
        elif not self._empty:
            # Chained launches write contiguous memory, indexed by item for every dtype.
            alone = replace(request, out_strides=None) if self._chained else request
            self._sum = make_sum_plan(alone, supports_float16, MAX_AXES)
            self._stages = [self._make_stage_function(stage) for stage in self._sum.stages]

    def __call__(
        self, arrays: Sequence[DeviceArray], out: DeviceArray | None, adapter: DeviceAdapter
    ) -> Any:
        """Sum the arrays into `out` or a new array; return the library's array."""
        if self._mover is not None:
            return self._mover(arrays[0], out, adapter)
        final = out or adapter.empty(self._request.shape, self.result, self._ordinal)
        if not self._empty:
            self._fill(arrays, final, out is not None, adapter)
        return final.owner

    def quick(
        self, arrays: Sequence[DeviceArray], out: DeviceArray | None
    ) -> CachedSumLaunch | None:
        """Return the fast path; None unless the sum is exactly one kernel launch."""
        if self._mover is not None or self._empty or self._chained:
            return None
        if not self._sum.in_place or any(self._stages):
            return None
        nest = self._sum.nest
        overlaps = [] if out is None else [overlap_range(array, out) for array in arrays]
        result = self._ordinal, self._request.shape, self.result
        offsets = nest.src_offsets, nest.dst_offset
        return CachedSumLaunch(*result, self._kernels, *offsets, overlaps)

    def _fill(
        self,
        arrays: Sequence[DeviceArray],
        final: DeviceArray,
        is_given: bool,
        adapter: DeviceAdapter,
    ) -> None:
        """Sum into `final`, if needed through scratch memory; `is_given`: it is the caller's."""
        plan = self._sum
        in_place = plan.in_place and not (self._chained and is_given)
        total = final
        if not in_place:
            total = adapter.empty_temporary(self._request.shape, plan.written, self._ordinal)
        pairs = zip(arrays, self._stages, strict=True)
        parts = [array if stage is None else stage(array, adapter) for array, stage in pairs]
        self._launch_all(plan, parts, total, adapter)
        if total is not final:
            cast_into(final, total, adapter)

    def _make_stage_function(
        self, stage: Stage | None
    ) -> Callable[[DeviceArray, DeviceAdapter], DeviceArray] | None:
        """Return a function that executes a stage with kernels and the array's library."""
        if stage is None:
            return None
        if stage.plan is None:
            dtype = stage.dtype
            return lambda array, adapter: cast(array, dtype, adapter)
        return partial(_run_stage, DeviceProgram(stage.plan, self._ordinal), self._ordinal)

    def _launch_all(
        self, plan: SumPlan, parts: list[DeviceArray], total: DeviceArray, adapter: DeviceAdapter
    ) -> None:
        """Launch kernels until all parts are added, at most `MAX_PARTS` arrays per launch."""
        stream = adapter.stream(self._ordinal)
        computed = self._request.computed
        sum_so_far: DeviceArray | None = None
        start = 0
        while start < len(parts):
            end = min(len(parts), start + MAX_PARTS - (sum_so_far is not None))
            is_last = end == len(parts)
            target = (
                total if is_last else adapter.empty_temporary(total.shape, computed, self._ordinal)
            )
            sources = [] if sum_so_far is None else [sum_so_far.address]
            offsets = plan.nest.src_offsets[start:end]
            sources += [p.address + o for p, o in zip(parts[start:end], offsets, strict=True)]
            output = target.address + plan.nest.dst_offset
            aligned_to = alignments((*sources, output))
            kernel = self._kernels.get((start, *aligned_to)) or self._load(
                plan, start, end, aligned_to, stream
            )
            runtime().launch(kernel, [output, *sources], stream)
            sum_so_far = target
            start = end

    def _load(self, plan: SumPlan, start: int, end: int, aligned_to: list[int], stream: Any) -> Any:
        """Return the kernel of one launch for addresses that are multiples of `aligned_to`."""
        computed = self._request.computed
        written = plan.written if end == len(plan.dtypes) else computed
        loops = [self._place(loop, plan, written, start, end) for loop in plan.nest.loops]
        dtypes = ([computed] if start else []) + list(plan.dtypes[start:end])
        sides = make_operand(computed), make_operand(written)
        launch = prepare_sum(loops, [make_operand(dtype) for dtype in dtypes], *sides, aligned_to)
        check_compiled(launch, self._ordinal, stream, "a sum")
        kernel = runtime().load(launch, self._ordinal)
        return cache_put(self._kernels, (start, *aligned_to), kernel)

    def _place(self, loop: SumLoop, plan: SumPlan, written: DType, start: int, end: int) -> SumLoop:
        """Return a loop for one launch: over its output, the previous sum, and its parts."""
        if not self._chained:
            return loop
        item = plan.written.itemsize
        computed = self._request.computed.itemsize
        before = (loop.dst // item * computed,) if start else ()
        srcs = (*before, *loop.srcs[start:end])
        return SumLoop(loop.count, loop.dst // item * written.itemsize, srcs)


def _run_stage(
    program: DeviceProgram, ordinal: int, array: DeviceArray, adapter: DeviceAdapter
) -> DeviceArray:
    """Return a part after its stage: a view of it, or scratch memory."""
    if program.plan.kernel == "view":
        return adapter.device_array_of(program(array, None, adapter))
    target = program.plan.target
    converted = adapter.empty_temporary(target.shape, target.dtype, ordinal)
    program(array, converted, adapter)
    return converted

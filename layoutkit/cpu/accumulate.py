"""Execute the plan of a sum on the CPU: machine code, tiles, and NumPy casts before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from .._utils import fork
from ..buffers import empty, empty_with_address
from ..kernels.cpu.accumulate_launch import MAX_NESTED_LOOPS, SumLaunch, prepare_sum
from ..kernels.cpu.params import LINE
from ..memory import Array, data_pointer
from ..planning.accumulate import Stage, SumRequest, make_operand, make_sum_plan, plan_single_part
from ..threads.limits import get_num_threads
from ..threads.pool import Job
from .program import Program, cast_into, supports_float16

Run = Callable[[Sequence[Array], Array | None], Array]


def make_sum(request: SumRequest, threads: int | None = None) -> Run:
    """Return a function that sums arrays like a request's into `out` or new memory."""
    if len(request.moves) > 1:
        return SumProgram(request, threads)
    mover = Program(plan_single_part(request, supports_float16), threads)
    return lambda parts, out: mover(parts[0], parts[0], out)


@dataclass(frozen=True)
class _Ready:
    """The job of a sum for one alignment of the output."""

    job: Job
    area: int
    summation: SumLaunch = field(repr=False)  # owns the memory that the job's parameters point to


class SumProgram:
    """The executable sum that an `Accumulator` caches for given shapes, strides and dtypes.

    Safe to call from many threads: only the cache of jobs is ever changed.
    """

    def __init__(self, request: SumRequest, threads: int | None = None) -> None:
        self._request = request
        self._threads = threads
        self._empty = 0 in request.shape
        self._jobs: dict[int, _Ready] = {}  # by the alignment of the output
        if not self._empty:
            self._plan = make_sum_plan(request, supports_float16, MAX_NESTED_LOOPS)
            self._stages = [_make_stage_function(stage) for stage in self._plan.stages]

    def __call__(self, arrays: Sequence[Array], out: Array | None) -> Array:
        final = empty(self._request.shape, self._request.result) if out is None else out
        if self._empty:
            return final
        plan = self._plan
        total = final if plan.in_place else empty(self._request.shape, plan.written)
        pairs = zip(arrays, self._stages, strict=True)
        self._run([array if stage is None else stage(array) for array, stage in pairs], total)
        if total is not final:
            cast_into(final, total)
        return final

    def _run(self, parts: Sequence[Array], total: Array) -> None:
        nest = self._plan.nest
        dst = data_pointer(total) + nest.dst_offset
        alignment = min(dst & -dst, LINE)
        ready = self._jobs.get(alignment) or self._prepare(alignment)
        count = (
            1 if ready.job.run_serial else min(self._threads or get_num_threads(), ready.job.units)
        )
        areas, first = empty_with_address((count * ready.area,), np.dtype(np.uint8))
        sources = map(int.__add__, map(data_pointer, parts), nest.src_offsets)
        call = np.array([*sources, first, ready.area, count, *[0] * count], np.int64)
        ready.job.run(data_pointer(call), dst)
        del areas  # kept alive until the job has run

    def _prepare(self, alignment: int) -> _Ready:
        """Return the cached job for an alignment; threads that race build equal jobs."""
        plan, computed = self._plan, self._request.computed
        parts = [make_operand(dtype) for dtype in plan.dtypes]
        sides = make_operand(computed), make_operand(plan.written)
        with fork.init_lock:
            summation = prepare_sum(plan.nest.loops, parts, *sides, alignment)
        item = sum(dtype.itemsize for dtype in (*plan.dtypes, plan.written))
        job = Job(
            summation.kernel,
            summation.params,
            summation.units,
            summation.grain,
            item * prod(self._request.shape),
            self._threads,
        )
        return self._jobs.setdefault(alignment, _Ready(job, summation.area, summation))


def _make_stage_function(stage: Stage | None) -> Callable[[Array], Array] | None:
    """Return a function that executes a stage with NumPy and CPU kernels."""
    if stage is None:
        return None
    if stage.plan is not None:
        program = Program(stage.plan)
        return lambda array: program(array, array, None)
    computed = stage.dtype

    def cast(array: Array) -> Array:
        values = empty(array.shape, computed)
        cast_into(values, array)
        return values

    return cast

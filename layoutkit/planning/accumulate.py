"""The plan of a sum: its loops, the preparation of each part, and the memory that is written.

Parts whose dtype kernels do not support (float8, foreign byte orders, reals among complex numbers)
are cast first. If no loop nest fits all parts (`loops.nest`), each part is converted to the
output's layout first. Everything else is one pass over memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ..layout.pattern import Permutation
from ..memory import contiguous_strides
from ..spec import CPU, DType, dtype_kind, is_wide
from .epilogue import Operand, is_supported_dtype, kernel_dtype_name
from .loops import Nest, SumLoop, fuse_loops
from .plan import Plan, Request, make_plan


@dataclass(frozen=True)
class Stage:
    """The preparation of a part before it is added: a cast, or the conversion of a plan."""

    dtype: DType
    plan: Plan | None = None


@dataclass(frozen=True)
class SumRequest:
    """Everything that decides how a sum runs, checked by the caller.

    `moves` go from each part to the output. `out_strides` None: new contiguous memory.
    """

    moves: tuple[Permutation, ...]
    dtypes: tuple[DType, ...]
    strides: tuple[tuple[int, ...], ...]
    computed: DType
    result: DType
    out_strides: tuple[int, ...] | None
    device: str = CPU

    @property
    def shape(self) -> tuple[int, ...]:
        return self.moves[0].target_shape


@dataclass(frozen=True)
class SumPlan:
    """The loops of a sum kernel, the dtypes of its parts, and the preparation of each part.

    `written` is the dtype of the memory that the kernel writes, the caller's output if `in_place`.
    """

    nest: Nest
    dtypes: tuple[DType, ...]
    stages: tuple[Stage | None, ...]
    written: DType
    in_place: bool


def sum_dtype(dtypes: Sequence[DType], result: DType) -> DType:
    """Return the accumulation dtype: 64 bits for integers and wide dtypes, else float32."""
    kinds = {dtype_kind(dtype) for dtype in (*dtypes, result)}
    if kinds <= {"u", "i"}:
        return np.dtype(np.uint64 if dtype_kind(result) == "u" else np.int64)
    # Only NumPy's own dtypes of four bytes and more; shorter ones are added in float32.
    wide = [d for d in (*dtypes, result) if d.kind in "fc" and d.itemsize >= 4]
    if any(dtype_kind(d) in "ui" and is_wide(dtype_kind(d), d.itemsize) for d in dtypes):
        wide.append(np.dtype(np.float64))
    return np.result_type(np.complex64 if "c" in kinds else np.float32, *wide)


def plan_single_part(request: SumRequest, has_half: Callable[[], bool]) -> Plan:
    """Return the plan of a sum of a single part, which is a conversion."""
    return _plan_part(request, 0, request.result, request.out_strides, False, has_half)


def make_sum_plan(request: SumRequest, has_half: Callable[[], bool], most: int) -> SumPlan:
    """Plan a sum by a kernel that supports at most `most` loops."""
    cast = [not _can_add(dtype, request.computed, has_half) for dtype in request.dtypes]
    dtypes = list(request.dtypes)
    strides = list(request.strides)
    stages: list[Stage | None] = [None] * len(cast)
    for part in [part for part, needed in enumerate(cast) if needed]:
        dtypes[part] = request.computed
        stages[part] = Stage(request.computed)
        strides[part] = contiguous_strides(request.moves[part].source_shape, request.computed)
    written = (
        request.result
        if _can_write(request.computed, request.result, has_half)
        else request.computed
    )
    in_place = written == request.result and _writes_runs(request)
    out = request.out_strides if in_place else None
    out = contiguous_strides(request.shape, written) if out is None else out
    nest_plan = fuse_loops(request.moves, strides, out)
    if nest_plan is None or len(nest_plan.loops) > most:
        return _plan_converted_parts(request, written, has_half)
    return SumPlan(nest_plan, tuple(dtypes), tuple(stages), written, in_place)


def _plan_converted_parts(
    request: SumRequest, written: DType, has_half: Callable[[], bool]
) -> SumPlan:
    """Plan a sum that first converts every part to contiguous memory in the sum's layout."""
    computed = request.computed
    parts = len(request.moves)
    loop = SumLoop(prod(request.shape), written.itemsize, (computed.itemsize,) * parts)
    plans = [_plan_part(request, part, computed, None, True, has_half) for part in range(parts)]
    stages = tuple(Stage(computed, plan) for plan in plans)
    in_place = request.out_strides is None and written == request.result
    return SumPlan(Nest((loop,), 0, (0,) * parts), (computed,) * parts, stages, written, in_place)


def _plan_part(
    request: SumRequest,
    part: int,
    target: DType,
    strides: tuple[int, ...] | None,
    may_view: bool,
    has_half: Callable[[], bool],
) -> Plan:
    """Return the plan that converts a part to the layout of the sum, in memory of these strides."""
    move = request.moves[part]
    devices = request.device, request.device
    conversion_request = Request(
        f"{move.source}->{move.target}",
        move,
        request.dtypes[part],
        target,
        request.strides[part],
        strides,
        None,
        "unsafe",
        may_view,
        devices,
    )
    return make_plan(conversion_request, has_half)


def _can_add(dtype: DType, computed: DType, has_half: Callable[[], bool]) -> bool:
    if dtype_kind(computed) == "c":
        return dtype == computed and dtype.isnative
    return is_supported_dtype(dtype, has_half)


def _can_write(computed: DType, result: DType, has_half: Callable[[], bool]) -> bool:
    if computed == result:
        return result.isnative
    same_kind = (dtype_kind(computed) == "f") == (dtype_kind(result) == "f")
    return dtype_kind(computed) != "c" and same_kind and is_supported_dtype(result, has_half)


def _writes_runs(request: SumRequest) -> bool:
    """Return True if the caller's output can be written in contiguous runs."""
    if request.out_strides is None:
        return True
    pairs = zip(request.out_strides, request.shape, strict=True)
    steps = [abs(step) for step, count in pairs if count != 1]
    return not steps or min(steps) == request.result.itemsize


def make_operand(dtype: DType) -> Operand:
    """Return the kernel operand of a dtype; complex numbers are added as pairs."""
    if dtype.kind == "c":
        return Operand(dtype.itemsize, f"f{dtype.itemsize // 2}")
    return Operand(dtype.itemsize, kernel_dtype_name(dtype))

"""A plan made ready to run: machine code, parameter block, and where the memory comes from.

Programs that are one conversion and something more; see `planning/composed.py`.

The casts that kernels leave to NumPy: dtypes they do not know, and what C leaves undefined.

NumPy's own `astype` is not enough: it warns where an imaginary part goes, it cannot cast between
some dtypes of ml_dtypes, and it does not saturate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._utils import fork
from ..buffers import empty_with_address
from ..kernels.cpu.params import LINE
from ..layout.pattern import Move
from ..memory import Array, address
from ..planning.channels import Picks
from ..planning.options import Task
from ..planning.padding import of_paint
from ..planning.plan import Plan, around, made, order, refuse_out, window
from ..spec import CPU, DType, integer_bounds, kind_of
from ..threads.pool import Job, announce

if TYPE_CHECKING:
    from ..converter import Converter


def cast_into(out: Array, values: Array, *, saturate: bool = False) -> None:
    """Write `values` to `out` of the same shape: NumPy's unsafe cast, or the saturating one."""
    with np.errstate(all="ignore"):
        np.copyto(out, _prepared(values, out.dtype, saturate), casting="unsafe")


def _prepared(values: Array, target: DType, saturate: bool) -> Array:
    """Values that NumPy can cast to `target` without a word."""
    if kind_of(values.dtype) == "c":
        values = _real(values, target)
    if saturate and kind_of(target) in "ui":
        values = _saturated(values, target)
    if not np.can_cast(values.dtype, target, "unsafe"):
        # Only among the smallest dtypes of ml_dtypes, and these hold their values exactly.
        values = values.astype(np.complex64 if kind_of(target) == "c" else np.float32)
    return values


def _real(values: Array, target: DType) -> Array:
    """Complex values as NumPy's own, or their real part where the target has no other."""
    if values.dtype.kind != "c":
        values = values.astype(np.complex64)
    return values if kind_of(target) in "cb" else values.real


def _saturated(values: Array, target: DType) -> Array:
    """Values as 64-bit integers: rounded half to even, in the target's range, 0 for NaN."""
    low, high = integer_bounds(target)
    wide = np.uint64 if low == 0 else np.int64
    if kind_of(values.dtype) in "bui":
        values = values.astype(np.uint64 if kind_of(values.dtype) in "bu" else np.int64)
        limits = np.iinfo(values.dtype)
        return values.clip(max(low, int(limits.min)), min(high, int(limits.max)))
    if values.dtype.itemsize < 4:
        values = values.astype(np.float32)  # the bounds are beyond float16
    whole = np.rint(values)
    rounded = np.where(np.isnan(whole), 0, whole).astype(wide)
    # high + 1 is a power of two, which every float holds; high itself may not be one.
    rounded = np.where(whole >= float(high + 1), wide(high), rounded)
    return np.where(whole <= float(low), wide(low), rounded)


def has_half() -> bool:
    """Whether this CPU converts float16 in hardware."""
    with fork.making:
        from ..kernels.cpu.compiler import cpu_features

        return not cpu_features().isdisjoint({"f16c", "neon"})


_BYTES_A_CHANNEL = 32  # a factor and a term for each job, of which most have two


class Program:
    """What a Converter keeps for arrays of one shape, strides and dtype.

    Safe to call from many threads: it is not changed, except that jobs are added.

    threads    how many the conversion may use; None: as many as others
    is_part    whether results are written past the caches, however small they are
    nbytes     what the constants take beside the program
    """

    def __init__(self, plan: Plan, threads: int | None = None, is_part: bool = False) -> None:
        self.plan, self.threads, self._stream = plan, threads, is_part or None
        self.nbytes = plan.formula.channels * _BYTES_A_CHANNEL if plan.formula else 0
        self._shape, self._dtype = plan.target.shape, plan.target.dtype
        self._jobs: dict[int, Job] = {}  # by the alignment of the output
        self._simple, self._same = plan.is_one_pass, plan.move.is_identity
        if plan.loops is not None:
            self._src, self._dst = plan.loops.src_offset, plan.loops.dst_offset

    def __call__(self, x: Any, array: Array, out: Array | None) -> Any:
        """Convert `array`, which shares the memory of the user's `x`, into `out` or new memory."""
        if self._simple:
            if out is None:
                out, dst = empty_with_address(self._shape, self._dtype)
            else:
                dst = address(out)
            dst += self._dst
            alignment = min(dst & -dst, LINE)
            job = self._jobs.get(alignment) or self.prepare(alignment)
            job.run(address(array) + self._src, dst)
            return out
        if self.plan.kernel == "view":
            return x if self._same else self.plan.move.view_of(array)
        result = empty_with_address(self._shape, self._dtype)[0] if out is None else out
        if self.plan.choice is not None:
            self._stages(array, result)
        return result

    def _stages(self, array: Array, result: Array) -> None:
        """Run all stages of the plan, and the loops that are too many for a kernel."""
        before, after = self.plan.before, self.plan.after
        if self.plan.picked_first and self.plan.picks is not None:
            array = _copied(array, self.plan.move, self.plan.picks)
        if before is not None:
            with np.errstate(all="ignore"):
                array = array.astype(before, order="C")
        middle = result if after is None else empty_with_address(self._shape, after)[0]
        for src, dst in self.plan.launches():
            alignment = min((to := address(middle) + dst) & -to, LINE)
            (self._jobs.get(alignment) or self.prepare(alignment)).run(address(array) + src, to)
        if after is not None:
            cast_into(result, middle, saturate=self.plan.saturate)

    def prepare(self, alignment: int) -> Job:
        """Make the job; of two threads that do so at once, one wins, and both are right."""
        plan = self.plan
        if plan.choice is None:
            raise RuntimeError(f"no kernel for {plan.pattern}")
        with fork.making:
            from ..kernels.cpu.compiler import load
            from ..kernels.cpu.launch import prepare

            launch = prepare(plan.choice, plan.epilogue, alignment, self._stream)
            kernel = load(launch.spec)
        announce()
        job = Job(kernel, launch.params, launch.units, launch.grain, plan.bytes_moved, self.threads)
        return self._jobs.setdefault(alignment, job)


def _copied(array: Array, move: Move, picks: Picks) -> Array:
    """The channels that are taken, in an array of their own."""
    opened = array.reshape(picks.whole(move).sizes)
    found: Array = np.take(opened, picks.order, picks.axis(move))
    return found.reshape(move.source_shape)


class Laid:
    """What gives a view of memory that is laid out in another order."""

    nbytes = 0  # of its own

    def __init__(self, converter: Converter, out: Array | None) -> None:
        refuse_out(converter.task, out)
        self._made, self._task = converter.derived(made), converter.task

    def __call__(self, x: Any, array: Array, out: Array | None) -> Array:
        """Convert `array` into new memory, and turn its axes."""
        found: Array = self._made(x)
        return found.transpose(order(self._task, found.ndim))


class Placed:
    """What converts x into a window of a larger result, and fills what is around it."""

    def __init__(self, task: Task, array: Array, out: Array | None) -> None:
        shape, dtype = array.shape, array.dtype
        plan, self._place = window(task, shape, array.strides, dtype, CPU, out, has_half)
        self._inside, self._dtype = Program(plan, task.threads), plan.target.dtype
        self._borders = self._place.borders()
        self._paint = _paint(task, array, plan.target.dtype, self._place.full)
        self.nbytes = self._inside.nbytes + self._paint.nbytes

    def __call__(self, x: Any, array: Array, out: Array | None) -> Array:
        """Convert `array` into its window of `out` or new memory, and fill the rest."""
        if out is None:
            out = empty_with_address(self._place.shape, self._dtype)[0]
        full = out.reshape(self._place.full)  # folds are taken apart, which needs no copy
        self._inside(x, array, full[self._place.window])
        for border in self._borders:
            np.copyto(full[border], self._paint[of_paint(self._paint, border)])
        return out


def _paint(task: Task, array: Array, dtype: Any, full: tuple[int, ...]) -> Array:
    """What is around x, in the result's units: of size 1 along axes where it is all the same."""
    turned, pixel = around(task, array.shape, array.dtype)
    plan = turned._replace(dtype=dtype).plan(
        pixel.shape, pixel.strides, pixel.dtype, CPU, None, has_half
    )
    found: Array = Program(plan)(pixel, pixel, None)
    if found.shape[-1] > 1:
        # A whole row: NumPy copies long runs at the speed of memory, and pixels at a tenth of it.
        shape = (*found.shape[:-2], *full[-2:])
        found = np.array(np.broadcast_to(found, shape))
    return found

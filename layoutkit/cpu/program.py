"""Execute the plan of a conversion on the CPU: machine code, parameter block and memory.

`Program` executes one plan. `TransposedViewProgram` and `PaddedProgram` execute `memory=` and
`pad_to=`, which need one more step (see `planning/plan.py`).

`cast_into` is the cast that NumPy does for kernels: of dtypes that they do not support, and where C
leaves the value undefined. `ndarray.astype` is not enough: it warns when it drops an imaginary
part, cannot cast between some dtypes of ml_dtypes, and does not saturate.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from .._utils import fork
from .._utils.cache import MAX_KEPT
from ..buffers import empty_with_address
from ..kernels.cpu import direct_params as words
from ..kernels.cpu.compiler import KernelSpec, load
from ..kernels.cpu.launch import prepare
from ..kernels.cpu.params import LINE
from ..layout.parsing import identity_pattern
from ..layout.pattern import Permutation
from ..memory import HAS_KNOWN_HEADER, Array, data_pointer
from ..options import ConvertOptions, parse_options
from ..planning.channels import ChannelSelection
from ..planning.padding import fill_region_for
from ..planning.plan import (
    Part,
    Plan,
    check_no_out,
    fill_conversion,
    make_memory_order_options,
    make_single_plan,
    memory_permutation,
    plan_inner_region,
)
from ..spec import CPU, DType, dtype_kind, integer_bounds
from ..threads.pool import Job, current_team, register_threadpoolctl


def cast_into(out: Array, values: Array, *, saturate: bool = False) -> None:
    """Write `values` to `out` of the same shape: NumPy's unsafe cast, or the saturating one."""
    with np.errstate(all="ignore"):
        np.copyto(out, _limit_values(values, out.dtype, saturate), casting="unsafe")


def _limit_values(values: Array, target: DType, saturate: bool) -> Array:
    """Return values that NumPy can cast to `target` without a warning."""
    if dtype_kind(values.dtype) == "c":
        values = _as_numpy_complex(values, target)
    if saturate and dtype_kind(target) in "ui":
        values = _saturate(values, target)
    if not np.can_cast(values.dtype, target, "unsafe"):
        # Happens only among the smallest dtypes of ml_dtypes, which these dtypes represent exactly.
        values = values.astype(np.complex64 if dtype_kind(target) == "c" else np.float32)
    return values


def _as_numpy_complex(values: Array, target: DType) -> Array:
    """Return complex values in a dtype of NumPy, or their real part if the target is real."""
    if values.dtype.kind != "c":
        values = values.astype(np.complex64)
    return values if dtype_kind(target) in "cb" else values.real


def _saturate(values: Array, target: DType) -> Array:
    """Return values as 64-bit integers, rounded half to even and clipped, with 0 for NaN."""
    low, high = integer_bounds(target)
    wide = np.uint64 if low == 0 else np.int64
    if dtype_kind(values.dtype) in "bui":
        values = values.astype(np.uint64 if dtype_kind(values.dtype) in "bu" else np.int64)
        limits = np.iinfo(values.dtype)
        return values.clip(max(low, int(limits.min)), min(high, int(limits.max)))
    if values.dtype.itemsize < 4:
        values = values.astype(np.float32)  # float16 cannot represent the bounds
    rounded_values = np.rint(values)
    rounded = np.where(np.isnan(rounded_values), 0, rounded_values).astype(wide)
    # high + 1 is a power of two, which every float represents; high itself may be rounded.
    rounded = np.where(rounded_values >= float(high + 1), wide(high), rounded)
    return np.where(rounded_values <= float(low), wide(low), rounded)


def supports_float16() -> bool:
    """Return whether this CPU converts float16 in hardware."""
    with fork.init_lock:
        from ..kernels.cpu.compiler import cpu_features

        return not cpu_features().isdisjoint({"f16c", "neon"})


_BYTES_A_CHANNEL = 32  # a factor and a term per job; most programs have two jobs


class Program:
    """The executable plan that a Converter caches for one shape, strides and dtype.

    Safe to call from many threads: only the cache of jobs is ever changed.

    threads    the number of threads the conversion may use; None: as `set_num_threads`
    is_part    whether results are written past the caches, however small they are
    nbytes     the size of the constants, which are allocated beside the program
    """

    def __init__(self, plan: Plan, threads: int | None = None, is_part: bool = False) -> None:
        self.plan = plan
        self.threads = threads
        self._stream = is_part or None
        self.nbytes = plan.formula.channels * _BYTES_A_CHANNEL if plan.formula else 0
        self._shape = plan.target.shape
        self._dtype = plan.target.dtype
        self._jobs: dict[int, Job] = {}  # by the alignment of the output
        self._direct: dict[int, DirectCall | None] = {}  # by the alignment of the output
        self._direct_new: NewResultCall | None = None
        self._simple = plan.is_one_pass
        self._returns_x = plan.kernel == "view" and plan.move.is_identity
        if plan.loops is not None:
            self._src = plan.loops.src_offset
            self._dst = plan.loops.dst_offset

    def __call__(self, x: Any, array: Array, out: Array | None) -> Any:
        """Convert `array`, which shares the memory of the user's `x`, into `out` or new memory."""
        if self._simple:
            if out is None:
                out, dst = empty_with_address(self._shape, self._dtype)
            else:
                dst = data_pointer(out)
            dst += self._dst
            alignment = min(dst & -dst, LINE)
            job = self._jobs.get(alignment) or self.prepare(alignment)
            job.run(data_pointer(array) + self._src, dst)
            return out
        if self.plan.kernel == "view":
            return x if self._returns_x else self.plan.move.as_view(array)
        result = empty_with_address(self._shape, self._dtype)[0] if out is None else out
        if self.plan.choice is not None:
            self._run_stages(array, result)
        return result

    @property
    def offsets(self) -> tuple[int, int]:
        """The bytes from the start of x and of the result to the first items that are visited."""
        return self._src, self._dst

    def direct_call(self, x: Array, out: Array) -> DirectCall | None:
        """Return the cached call for arrays like these that works without Python, or None."""
        if not self._simple:
            return None
        dst = data_pointer(out) + self._dst
        alignment = min(dst & -dst, LINE)
        if alignment not in self._direct:
            with fork.init_lock:
                job = self._jobs[alignment]
                call = make_direct_call(job, x, out, self.offsets, alignment)
            self._direct[alignment] = call
        return self._direct[alignment]

    def make_direct_new_call(self, x: Array) -> NewResultCall | None:
        """Return the cached call for arrays like x with small new results, or None."""
        if not self._simple or self.plan.target.nbytes > NUMPY_BYTES:
            return None
        if self._direct_new is None:
            out = np.empty(self._shape, self._dtype)
            alignment = math.gcd(NUMPY_ALIGNMENT, self._dst)
            with fork.init_lock:
                job = self._jobs.get(alignment) or self.prepare(alignment)
                call = make_direct_call(job, x, out, self.offsets, alignment)
            # Calls of several threads have to look for changes of their number, and for forks.
            self._direct_new = call.with_new_results(out) if type(call) is DirectCall else None
        return self._direct_new

    def _run_stages(self, array: Array, result: Array) -> None:
        """Run all stages of the plan, with one launch per iteration of surplus outer loops."""
        before = self.plan.before
        after = self.plan.after
        if self.plan.selects_first and self.plan.picks is not None:
            array = _copy_channels(array, self.plan.move, self.plan.picks)
        if before is not None:
            with np.errstate(all="ignore"):
                array = array.astype(before, order="C")
        middle = result if after is None else empty_with_address(self._shape, after)[0]
        for src, dst in self.plan.launches():
            alignment = min((to := data_pointer(middle) + dst) & -to, LINE)
            (self._jobs.get(alignment) or self.prepare(alignment)).run(
                data_pointer(array) + src, to
            )
        if after is not None:
            cast_into(result, middle, saturate=self.plan.saturate)

    def prepare(self, alignment: int) -> Job:
        """Return the cached job for an alignment; threads that race build equal jobs."""
        plan = self.plan
        if plan.choice is None:
            raise RuntimeError(f"no kernel for {plan.pattern}")
        with fork.init_lock:
            launch = prepare(plan.choice, plan.epilogue, alignment, self._stream)
            kernel = load(launch.spec)
        register_threadpoolctl()
        job = Job(kernel, launch.params, launch.units, launch.grain, plan.bytes_moved, self.threads)
        return self._jobs.setdefault(alignment, job)


# ---- calls without Python ----------------------------------------------------------------

_ARGUMENTS = (ctypes.c_ssize_t, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)

# Larger results come from the pool (buffers.py), which costs 1 us more, but no page faults.
NUMPY_BYTES = 64 << 10
NUMPY_ALIGNMENT = 16  # bytes; of NumPy's new arrays

NewResultCall = Callable[[Array], Array | None]


class DirectCall:
    """The kernel "direct" for arrays like two arrays, and all memory that its block refers to."""

    def __init__(
        self, job: Job, x: Array, out: Array, starts: tuple[int, int], alignment: int
    ) -> None:
        sides = [_describe(array, start) for array, start in zip((x, out), starts, strict=True)]
        self._words = np.zeros(words.WORDS, np.int64)
        self._words[words.TYPE] = id(np.ndarray)
        self._words[words.ALIGNMENT] = alignment - 1
        self._words[words.CODE : words.END + 1] = job.entry()
        self._words[[words.X, words.OUT]] = [data_pointer(side) for side in sides]
        self._keep = job, sides, x.dtype, out.dtype
        self._block = data_pointer(self._words)
        kind = ctypes.PYFUNCTYPE if job.keeps_gil else ctypes.CFUNCTYPE
        self._run = kind(*_ARGUMENTS)(load(KernelSpec("direct", ())).address)

    def __call__(self, x: Array, out: Array) -> int:
        """Convert x into `out` and return 1, or return 0 if Python has to do it."""
        return self._run(self._block, x, out)

    def with_new_results(self, out: Array) -> NewResultCall:
        """Return a function that converts x into a new array like `out`, or returns None."""
        shape = out.shape
        dtype = out.dtype

        def convert_to_new(x: Array) -> Array | None:
            result = np.empty(shape, dtype)
            return result if self._run(self._block, x, result) else None

        return convert_to_new


class SharedDirectCall(DirectCall):
    """A DirectCall whose job the caller shares with the worker threads."""

    def __init__(
        self, job: Job, x: Array, out: Array, starts: tuple[int, int], alignment: int
    ) -> None:
        self._job = job
        self._team = current_team()
        super().__init__(job, x, out, starts, alignment)

    def __call__(self, x: Array, out: Array) -> int:
        """Convert x into `out` and return 1, or return 0 if Python has to do it."""
        team = current_team()
        if team != self._team:
            self._words[words.CODE : words.END + 1] = self._job.entry()
            self._team = team
        return self._run(self._block, x, out)


def make_direct_call(
    job: Job, x: Array, out: Array, starts: tuple[int, int], alignment: int
) -> DirectCall | None:
    """Return the kernel "direct" for arrays like x and out, or None if Python has to run the job.

    `starts` are the offsets of the first items that the kernel visits.
    """
    arrays_are_plain = type(x) is np.ndarray and type(out) is np.ndarray
    if not HAS_KNOWN_HEADER or not arrays_are_plain or not job.has_entry:
        return None
    make = DirectCall if job.run_serial is not None else SharedDirectCall
    return make(job, x, out, starts, alignment)


def _describe(array: Array, start: int) -> Array:
    """Return the descriptor of an array: 64-bit words."""
    low, high = np.lib.array_utils.byte_bounds(array)
    first = data_pointer(array)
    fields = id(array.dtype), array.ndim, low - first, high - first, start
    return np.array([*fields, *array.shape, *array.strides], np.int64)


def make_program(
    options: ConvertOptions, array: Array, out: Array | None
) -> Program | TransposedViewProgram | PaddedProgram:
    """Return the program for arrays of these shapes, strides and dtypes."""
    if options.memory is not None:
        return TransposedViewProgram(options, array, out)
    if options.padding is not None:
        return PaddedProgram(options, array, out)
    planned = array.shape, array.strides, array.dtype
    plan = make_single_plan(options, *planned, CPU, out, supports_float16)
    return Program(plan, options.threads, options.is_part)


# ---- conversions of several steps --------------------------------------------------------


def _copy_channels(array: Array, move: Permutation, picks: ChannelSelection) -> Array:
    opened = array.reshape(picks.with_all_channels(move).sizes)
    return np.take(opened, picks.order, picks.axis(move)).reshape(move.source_shape)


def copy_array(source: Array, target: Array) -> None:
    """Copy an array to another one of its shape and dtype with any strides."""
    if _sort_axes_by_stride(source) == _sort_axes_by_stride(target):
        np.copyto(target, source)  # as fast as a kernel, without a plan
        return
    program = _copy_program(source.shape, source.strides, source.dtype, target.strides)
    program(source, source, target)


def _sort_axes_by_stride(array: Array) -> list[int]:
    """Return the axes from the outermost to the innermost in memory."""
    return sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))


@lru_cache(maxsize=MAX_KEPT)
def _copy_program(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, target: tuple[int, ...]
) -> Program:
    options = parse_options(identity_pattern(len(shape)), copy=True)
    out = Part(shape, target, dtype)
    return Program(make_single_plan(options, shape, strides, dtype, CPU, out, supports_float16))


class TransposedViewProgram:
    """A program whose result is a view of new memory in another layout: `memory=`."""

    def __init__(self, options: ConvertOptions, array: Array, out: Array | None) -> None:
        check_no_out(options, out)
        self._program = make_program(make_memory_order_options(options), array, None)
        self._options = options
        self.nbytes: int = self._program.nbytes

    def __call__(self, x: Any, array: Array, out: Array | None) -> Array:
        """Convert `array` into new memory, and return a transposed view of it."""
        converted: Array = self._program(x, array, None)
        return converted.transpose(memory_permutation(self._options, converted.ndim))


class PaddedProgram:
    """A program that converts x into a region of a padded result and fills the rest: `pad_to=`."""

    def __init__(self, options: ConvertOptions, array: Array, out: Array | None) -> None:
        shape = array.shape
        dtype = array.dtype
        plan, self._place = plan_inner_region(
            options, shape, array.strides, dtype, CPU, out, supports_float16
        )
        self._inside = Program(plan, options.threads)
        self._dtype = plan.target.dtype
        self._borders = self._place.borders()
        self._fill_array = fill_array(
            options, array.shape, array.dtype, plan.target.dtype, self._place.full
        )
        self.nbytes = self._inside.nbytes + self._fill_array.nbytes

    def __call__(self, x: Any, array: Array, out: Array | None) -> Array:
        """Convert `array` into its region of `out` or new memory, and fill the rest."""
        if out is None:
            out = empty_with_address(self._place.shape, self._dtype)[0]
        full = out.reshape(self._place.full)  # splits folded axes without a copy
        self._inside(x, array, full[self._place.window])
        for border in self._borders:
            np.copyto(full[border], self._fill_array[fill_region_for(self._fill_array, border)])
        return out


def fill_array(
    options: ConvertOptions,
    shape: tuple[int, ...],
    source: DType,
    dtype: DType,
    full: tuple[int, ...],
) -> Array:
    """Return the converted fill values, of size 1 along axes where they are constant.

    `shape` and `source` refer to x, `dtype` and `full` to the result.
    """
    fill_options, pixel = fill_conversion(options, shape, source)
    plan = make_single_plan(
        replace(fill_options, dtype=dtype),
        pixel.shape,
        pixel.strides,
        pixel.dtype,
        CPU,
        None,
        supports_float16,
    )
    converted: Array = Program(plan)(pixel, pixel, None)
    if converted.shape[-1] > 1:
        # A full row: NumPy copies long runs at memory speed, single pixels at a tenth of it.
        shape = (*converted.shape[:-2], *full[-2:])
        converted = np.array(np.broadcast_to(converted, shape))
    return converted

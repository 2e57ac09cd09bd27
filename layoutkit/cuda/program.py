"""Execute the plan of a conversion on a GPU; `layoutkit.cpu.program` is the CPU's counterpart.

All work goes to one stream and is asynchronous, so conversions whose kernels are loaded can be
captured in a CUDA graph. Kernels are loaded once per alignment of x and the result, and cached.

`CachedLaunch` and `CachedSumLaunch` are the fast path for arrays of a layout that was converted
before: the checks and the plan are valid for all arrays of that layout. Only the addresses remain
to be checked: their alignment selects the kernel, and `out` must not overlap x. If the fast path
does not apply, it returns False and the caller uses the normal path.

`cast_into` casts before and after a conversion. A kernel casts if it supports both dtypes; the
array's library casts where C leaves the value undefined, and other dtypes (complex, float8).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from .._utils.cache import MAX_KEPT, PROGRAM_SIZE_ESTIMATE, Cache, cache_put
from ..cpu.program import fill_array
from ..errors import DeviceError
from ..kernels.cuda.launch import prepare
from ..layout.parsing import identity_pattern
from ..memory import contiguous_strides, data_pointer, layout_key
from ..options import ConvertOptions, parse_options
from ..planning.epilogue import is_supported_dtype
from ..planning.padding import Window, fill_region_for
from ..planning.plan import Plan, make_single_plan, plan_inner_region, unfold_strides
from ..spec import DType, device_name, dtype_kind
from .memory import ALIGNMENT, DeviceAdapter, DeviceArray, check_writable, span
from .runtime import runtime


def supports_float16() -> bool:
    """Return True: every GPU converts float16."""
    return True


class Launches:
    """The loaded kernels of a plan on one GPU.

    Thread-safe, because only the cache of kernels changes.
    """

    def __init__(self, plan: Plan, ordinal: int) -> None:
        self.plan = plan
        self.ordinal = ordinal
        self.kernels: dict[tuple[int, int], Any] = {}  # by the alignment of x and the result

    def __call__(self, source: int, target: int, stream: Any) -> None:
        """Launch the kernel from one address to another.

        It is launched once per iteration of the outer loops that it cannot run itself.
        """
        for src, dst in self.plan.launches():
            x, y = source + src, target + dst
            kernel = self.kernels.get((x & 15, y & 15)) or self._load(x & 15, y & 15, stream)
            runtime().launch(kernel, (y, x), stream)

    def steps(self) -> list[Step]:
        """Return the launches, relative to the addresses of x and of the result."""
        return [Step(self.kernels, src, dst) for src, dst in self.plan.launches()]

    def warm(self, x: int = 0, y: int = 0) -> str:
        """Load the kernels for addresses aligned as `x` and `y`, and return a description."""
        launch: Any = None
        for src, dst in self.plan.launches():
            launch = self._load((x + src) & 15, (y + dst) & 15).launch
        if launch is None:  # an empty array
            return f"{device_name(self.ordinal)} no kernel"
        defines = " ".join(f"{name}={value}" for name, value in launch.defines)
        return f"{device_name(self.ordinal)} {launch.family} {defines}"

    def _load(self, src: int, dst: int, stream: Any = None) -> Any:
        """Return the kernel for addresses whose last four bits are `src` and `dst`."""
        gpu = runtime()
        plan = self.plan
        if plan.choice is None:
            raise RuntimeError(f"no kernel for {plan.pattern}")
        launch = prepare(plan.choice, plan.epilogue, src, dst)
        if stream is not None:
            check_compiled(launch, self.ordinal, stream, f'the conversion "{plan.pattern}"')
        return self.kernels.setdefault((src, dst), gpu.load(launch, self.ordinal))


def check_compiled(launch: Any, ordinal: int, stream: Any, description: str) -> None:
    """Raise DeviceError if a kernel would have to be compiled while a graph is captured."""
    if not runtime().is_loaded(launch, ordinal):
        check_first_call(stream, description)


def check_first_call(stream: Any, description: str) -> None:
    """Raise DeviceError if a graph is captured during the first call of a conversion or sum."""
    if runtime().is_capturing(stream):
        raise DeviceError(
            f"{description} runs for the first time on arrays of this memory layout while a CUDA "
            "graph is captured; call it once on such arrays, or layoutkit.warmup, before capturing"
        )


class Step(NamedTuple):
    """A kernel launch of a conversion, relative to the addresses of x and of the result."""

    kernels: Mapping[tuple[int, int], Any]  # by the alignment of x and the result
    source: int  # the offset in x, or the address of a constant
    offset: int  # the offset in the result
    is_constant: bool = False


@dataclass
class CachedLaunch:
    """The cached kernel launches for arrays of one layout on one GPU: the fast path."""

    ordinal: int
    shape: tuple[int, ...]  # of the result
    dtype: DType
    steps: Sequence[Step]
    overlap: tuple[int, int] | None  # if `out` is given

    def __call__(self, x: int, y: int, stream: Any) -> bool:
        """Launch the kernels from address `x` to `y`; return False if the fast path cannot."""
        if self.overlap is not None:
            low, high = self.overlap
            if low < y - x < high:
                return False
        launches = []
        for kernels, source, offset, is_constant in self.steps:
            src = source if is_constant else x + source
            dst = y + offset
            kernel = kernels.get((src & 15, dst & 15))
            if kernel is None:
                return False
            launches.append((kernel, (dst, src)))
        gpu = runtime()
        for kernel, pointers in launches:
            gpu.launch(kernel, pointers, stream)
        return True


@dataclass
class CachedSumLaunch:
    """A cached kernel launch of a sum on one GPU: the fast path."""

    ordinal: int
    shape: tuple[int, ...]  # of the result
    dtype: DType
    kernels: Mapping[tuple[int, ...], Any]  # by 0 and the `alignments` of the parts and the output
    offsets: Sequence[int]  # bytes from the address of each part to the kernel's first element
    out_offset: int  # bytes from the address of the output to the kernel's first element
    overlaps: Sequence[tuple[int, int]]  # of each part, if `out` is given

    def __call__(self, parts: Sequence[int], out: int, stream: Any) -> bool:
        """Launch the kernel from `parts` to `out`; return False if the fast path cannot."""
        for x, (low, high) in zip(parts, self.overlaps, strict=False):
            if low < out - x < high:
                return False
        sources = [x + offset for x, offset in zip(parts, self.offsets, strict=True)]
        out += self.out_offset
        kernel = self.kernels.get((0, *alignments((*sources, out))))
        if kernel is None:
            return False
        runtime().launch(kernel, [out, *sources], stream)
        return True


def alignments(addresses: Sequence[int]) -> list[int]:
    """Return the powers of two that divide addresses, by which sums select a kernel."""
    return [gcd(address, ALIGNMENT) for address in addresses]


def overlap_range(array: DeviceArray, out: DeviceArray) -> tuple[int, int]:
    """Return the exclusive bounds of the distance from `array` to an `out` that may overlap it."""
    low, high = span(array)
    first, last = span(out)
    return low - last, high - first


def cast(array: DeviceArray, dtype: DType, adapter: DeviceAdapter) -> DeviceArray:
    """Return a contiguous copy in another dtype, by NumPy's unsafe cast."""
    copy = adapter.empty_temporary(array.shape, dtype, array.ordinal)
    cast_into(copy, array, adapter)
    return copy


def cast_into(
    out: DeviceArray, values: DeviceArray, adapter: DeviceAdapter, *, saturate: bool = False
) -> None:
    """Cast aligned values into `out` of equal shape: NumPy's unsafe cast, or the saturating one."""
    if values.dtype == out.dtype:
        _move(out, values, adapter)
        return
    if not out.is_aligned:
        temporary = adapter.empty_temporary(out.shape, out.dtype, out.ordinal)
        cast_into(temporary, values, adapter, saturate=saturate)
        _move(out, temporary, adapter)
        return
    if dtype_kind(values.dtype) == "c" and dtype_kind(out.dtype) not in "cb":
        values = adapter.real(values)
    saturate = saturate and dtype_kind(out.dtype) in "ui"
    if saturate and not is_supported_dtype(values.dtype, supports_float16):
        values = cast(values, np.dtype(np.float32), adapter)
    is_defined = saturate or dtype_kind(values.dtype) != "f" or dtype_kind(out.dtype) not in "ui"
    if is_defined and all(is_supported_dtype(x.dtype, supports_float16) for x in (values, out)):
        _move(out, values, adapter, "saturate" if saturate else "unsafe")
    else:
        adapter.cast_into(out, values)


def aligned(array: DeviceArray, adapter: DeviceAdapter) -> DeviceArray:
    """Return an aligned contiguous copy of an unaligned array."""
    copy = adapter.empty_temporary(array.shape, array.dtype, array.ordinal)
    with runtime().on(array.ordinal):
        _move(copy, array, adapter)
    return copy


@contextmanager
def find_aligned_output(
    out: DeviceArray | None, adapter: DeviceAdapter
) -> Iterator[DeviceArray | None]:
    """Yield `out`, or, if it is unaligned, temporary memory that is copied to it after the block.

    The temporary is contiguous, so its program differs from the program of `out`.
    """
    if out is None or out.is_aligned:
        yield out
        return
    temporary = adapter.empty_temporary(out.shape, out.dtype, out.ordinal)
    yield temporary
    _move(out, temporary, adapter)


def _move(
    out: DeviceArray, values: DeviceArray, adapter: DeviceAdapter, casting: str = "same_kind"
) -> None:
    """Copy or cast with a kernel; the arrays of a copy may be unaligned."""
    launches = _launches(
        values.shape, values.strides, values.dtype, out.strides, out.dtype, casting, out.ordinal
    )
    launches(values.address, out.address, adapter.stream(out.ordinal))


@lru_cache(maxsize=MAX_KEPT)
def _launches(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: DType,
    out_strides: tuple[int, ...],
    out_dtype: DType,
    casting: str,
    ordinal: int,
) -> Launches:
    """Return the cached kernels of a copy or cast between two layouts."""
    out = DeviceArray(0, shape, out_strides, out_dtype, ordinal, None)
    source = shape, strides, dtype, out.device
    plan = make_single_plan(_identity(len(shape), casting), *source, out, supports_float16)
    return Launches(plan, ordinal)


@lru_cache
def _identity(ndim: int, casting: str) -> ConvertOptions:
    return parse_options(identity_pattern(ndim), casting=casting)


def unallocated(shape: tuple[int, ...], dtype: DType, ordinal: int) -> DeviceArray:
    """Return the description of a contiguous array without memory, to prepare programs."""
    return DeviceArray(0, shape, contiguous_strides(shape, dtype), dtype, ordinal, None)


class DevicePrograms:
    """The GPU programs that a Converter caches, by GPU and memory layout.

    `others` caches other objects by memory layout, such as the plans of transfers.
    """

    def __init__(self, options: ConvertOptions) -> None:
        self.options = options
        self.others: dict[Any, Any] = {}
        self._programs: Cache[DeviceProgram] = Cache()
        self._same_device: dict[Any, DevicePrograms] = {}
        # By the library's description of x and of out; None if there is no fast path.
        self.quick: Cache[CachedLaunch | None] = Cache()

    def find(self, array: DeviceArray, out: DeviceArray | None) -> DeviceProgram:
        """Return the program for arrays with the layout of `array` (and of `out`)."""
        key = (array.ordinal, *layout_key(array, out))
        program = self._programs.get(key)
        if program is None:
            if self.options.padding is not None:
                program = PaddedDeviceProgram(self.options, array, out)
            else:
                plan = make_single_plan(self.options, *array.plan_args, out, supports_float16)
                program = DeviceProgram(plan, array.ordinal)
            cache_put(self._programs, key, program, PROGRAM_SIZE_ESTIMATE)
        return program

    def cache_fast_path(self, key: Any, array: DeviceArray, out: DeviceArray | None) -> None:
        """Cache under `key` the fast path for arrays with the layout of `array` (and of `out`).

        Does nothing if `key` is None.
        """
        if key is not None and key not in self.quick:
            program, launch = self.find(array, out), None
            if steps := program.steps():
                overlap = None if out is None else overlap_range(array, out)
                dtype = program.plan.target.dtype
                launch = CachedLaunch(array.ordinal, program.shape, dtype, steps, overlap)
            cache_put(self.quick, key, launch, PROGRAM_SIZE_ESTIMATE)

    def find_same_device_programs(self, dtype: DType, copy: bool | None) -> DevicePrograms:
        """Return the programs of this conversion to `dtype` without a change of device."""
        programs = self._same_device.get((dtype, copy))
        if programs is None:
            options = replace(self.options, dtype=dtype, device=None, copy=copy)
            programs = cache_put(self._same_device, (dtype, copy), DevicePrograms(options))
        return programs

    def run(self, array: DeviceArray, out: DeviceArray | None, adapter: DeviceAdapter) -> Any:
        """Convert `array` into `out` or a new array; return the result as its library's array."""
        program = self.find(array, out)
        if out is not None:
            check_writable(array, out)
        adapter.check(program.plan.target.dtype)
        with runtime().on(array.ordinal):
            if program.plan.epilogue is None:  # moves accept any address
                return program(array, out, adapter)
            if not array.is_aligned:
                array = aligned(array, adapter)
            with find_aligned_output(out, adapter) as target:
                result = self.find(array, target)(array, target, adapter)
            return result if out is None else out.owner


class DeviceProgram:
    """The executable plan for arrays of one shape, strides and dtype on one GPU.

    Thread-safe, because only the cache of kernels changes.
    """

    def __init__(self, plan: Plan, ordinal: int) -> None:
        self.plan = plan
        self.shape = plan.target.shape  # of the result
        self._ordinal = ordinal
        self.launches = Launches(plan, ordinal)

    def __call__(self, array: DeviceArray, out: DeviceArray | None, adapter: DeviceAdapter) -> Any:
        """Convert into `out` or a new array; return the result as its library's array."""
        plan = self.plan
        if plan.kernel == "view":
            return array.owner if plan.move.is_identity else adapter.view(array, plan.move)
        result = out or adapter.empty(self.shape, plan.target.dtype, self._ordinal)
        if plan.choice is not None:
            self._run_stages(array, result, adapter)
        return result.owner

    def _run_stages(self, array: DeviceArray, result: DeviceArray, adapter: DeviceAdapter) -> None:
        plan = self.plan
        if plan.before is not None:
            array = cast(array, plan.before, adapter)
        kernel_out = result
        if plan.after is not None:
            kernel_out = adapter.empty_temporary(result.shape, plan.after, self._ordinal)
        self.launches(array.address, kernel_out.address, adapter.stream(self._ordinal))
        if plan.after is not None:
            cast_into(result, kernel_out, adapter, saturate=plan.saturate)

    def steps(self) -> list[Step]:
        """Return the launches for the fast path; an empty list unless one launch is enough."""
        return self.launches.steps() if self.plan.is_one_pass else []

    def warm(self) -> str:
        """Load the kernel for the alignment of pool memory, and return a description of it."""
        return self.launches.warm()


class PaddedDeviceProgram(DeviceProgram):
    """A program for `pad_to=`: it converts x into a region of the result and fills the rest."""

    def __init__(
        self, options: ConvertOptions, array: DeviceArray, out: DeviceArray | None
    ) -> None:
        plan, self._region = plan_inner_region(options, *array.plan_args, out, supports_float16)
        super().__init__(plan, array.ordinal)
        self.shape = self._region.shape
        dtype = plan.target.dtype
        if out is None:
            self._strides = contiguous_strides(self._region.full, dtype)
        else:
            rank = len(array.shape)
            self._strides = unfold_strides(options, self._region, rank, out.strides)
        window = self._region.window
        self._inner_offset = self._offset(window)
        self._inner_shape = tuple([part.stop - part.start for part in window])
        cpu_options = replace(options, device=None)
        self._fill = np.ascontiguousarray(
            fill_array(cpu_options, array.shape, array.dtype, dtype, self._region.full)
        )
        self._borders: list[tuple[Launches, int, int]] | None = None

    def __call__(self, array: DeviceArray, out: DeviceArray | None, adapter: DeviceAdapter) -> Any:
        stream = adapter.stream(self._ordinal)
        if self._borders is None:
            check_first_call(stream, f'the conversion "{self.plan.pattern}"')
        borders = self._load_borders()
        dtype = self.plan.target.dtype
        result = out or adapter.empty(self.shape, dtype, self._ordinal)
        if self.plan.choice is not None:
            self._convert_inner(array, result, adapter)
        for launches, fill, border in borders:
            launches(fill, result.address + border, stream)
        return result.owner

    def steps(self) -> list[Step]:
        """Return the launches for the fast path: the conversion, then the fills of the borders."""
        steps = [step._replace(offset=step.offset + self._inner_offset) for step in super().steps()]
        if steps:
            for launches, fill, border in self._load_borders():
                steps += [
                    Step(step.kernels, fill + step.source, border + step.offset, True)
                    for step in launches.steps()
                ]
        return steps

    def warm(self) -> str:
        """Load the kernels of the conversion and of the borders."""
        for launches, fill, border in self._load_borders():
            launches.warm(fill, border)
        return self.launches.warm(y=self._inner_offset)

    def _convert_inner(
        self, array: DeviceArray, result: DeviceArray, adapter: DeviceAdapter
    ) -> None:
        """Convert x into the region of `result` for it, whose folded axes are split."""
        address = result.address + self._inner_offset
        region = DeviceArray(
            address, self._inner_shape, self._strides, result.dtype, result.ordinal, None
        )
        if self.plan.after is None:
            self._run_stages(array, region, adapter)
            return
        # Libraries cast into their own arrays, and none of them is the region.
        temporary = adapter.empty_temporary(self._inner_shape, result.dtype, self._ordinal)
        self._run_stages(array, temporary, adapter)
        _move(region, temporary, adapter)

    def _load_borders(self) -> list[tuple[Launches, int, int]]:
        """Return the launches that fill the borders; the first call uploads the fill values."""
        if self._borders is None:
            address = runtime().constants(self._fill.tobytes(), self._ordinal)
            self._borders = [self._prepare_border(address, part) for part in self._region.borders()]
        return self._borders

    def _prepare_border(self, address: int, border: Window) -> tuple[Launches, int, int]:
        """Return the kernels that fill a border, the address of their source, and its offset."""
        fill = self._fill
        part = fill[fill_region_for(fill, border)]
        sizes = tuple(side.stop - side.start for side in border)
        source = np.broadcast_to(part, sizes)
        layouts = source.strides, fill.dtype, self._strides, fill.dtype
        launches = _launches(sizes, *layouts, "same_kind", self._ordinal)
        part_address = address + data_pointer(part) - data_pointer(fill)
        return launches, part_address, self._offset(border)

    def _offset(self, window: Window) -> int:
        """Return the offset of a region of the result, in bytes."""
        return sum([part.start * step for part, step in zip(window, self._strides, strict=True)])

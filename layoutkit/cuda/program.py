"""Execute the plan of a conversion on a GPU; `layoutkit.cpu.program` is the CPU's counterpart.

All work goes to one stream and is asynchronous, so conversions whose kernels are loaded can be
captured in a CUDA graph. Kernels are loaded once per alignment of both sides, and cached.

`CachedLaunch` and `CachedSumLaunch` are the fast path for arrays of a layout that was converted
before: the checks and the plan are valid for all arrays of that layout. Only their addresses remain
to be checked: the alignment decides the kernel, and `out` must not overlap x. If the fast path
cannot decide this, it returns False and the caller takes the normal path.

`cast_into` is the cast before and after kernels. Kernels do it if they support both dtypes; the
array's library casts where C leaves the value undefined, and other dtypes (complex, float8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._utils import fork
from .._utils.cache import MAX_KEPT, PROGRAM_SIZE_ESTIMATE, Cache, cache_put
from ..cpu.program import fill_array
from ..errors import DeviceError
from ..layout.parsing import identity_pattern
from ..memory import Array, contiguous_strides, data_pointer, layout_key
from ..planning.epilogue import is_supported_dtype
from ..planning.options import ConvertOptions, parse_options
from ..planning.padding import Window, fill_region_for
from ..planning.plan import Plan, make_single_plan, plan_inner_region, unfolded_strides
from ..spec import DType, device_name, dtype_kind
from .memory import DeviceAdapter, DeviceArray, check_writable, span
from .runtime import runtime


def supports_float16() -> bool:
    """Return True: every GPU converts float16."""
    return True


class HasAddress(Protocol):
    """The operand of a launch."""

    @property
    def address(self) -> int:
        """The address of the first element."""


class Launches:
    """The loaded kernels of a plan on one GPU.

    Safe to use from many threads: only the cache of kernels is ever changed.
    """

    def __init__(self, plan: Plan, ordinal: int) -> None:
        self.plan = plan
        self.ordinal = ordinal
        self.kernels: dict[tuple[int, int], Any] = {}  # by the alignment of both sides

    def __call__(self, array: HasAddress, result: HasAddress, stream: Any) -> None:
        """Launch the kernel, once per iteration of surplus outer loops."""
        for src, dst in self.plan.launches():
            x, y = array.address + src, result.address + dst
            kernel = self.kernels.get((x & 15, y & 15)) or self._load(x & 15, y & 15, stream)
            runtime().launch(kernel, (y, x), stream)

    def warm(self) -> str:
        """Load the kernel for the alignment of pool memory, and return a description of it."""
        launch = self._load(0, 0).launch
        words = " ".join(f"{name}={value}" for name, value in launch.defines)
        return f"{device_name(self.ordinal)} {launch.family} {words}"

    def _load(self, src: int, dst: int, stream: Any = None) -> Any:
        """Return the kernel for addresses with these last four bits."""
        with fork.init_lock:
            from ..kernels.cuda.launch import prepare

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
    gpu = runtime()
    if not gpu.is_loaded(launch, ordinal) and gpu.is_capturing(stream):
        raise DeviceError(
            f"{description} runs for the first time while a CUDA graph is captured; call it once, "
            "or layoutkit.warmup, before the capture"
        )


class CachedLaunch:
    """A cached kernel launch for arrays of one layout on one GPU: the fast path.

    shape, dtype    the shape and dtype of the result
    """

    __slots__ = ("_from", "_kernels", "_near", "_to", "dtype", "ordinal", "shape")

    def __init__(
        self, plan: Plan, launches: Launches, array: DeviceArray, out: DeviceArray | None
    ) -> None:
        self.ordinal = array.ordinal
        self.shape = plan.target.shape
        self.dtype = plan.target.dtype
        self._kernels = launches.kernels
        ((self._from, self._to),) = plan.launches()
        self._near = None if out is None else _near(array, out)

    def __call__(self, x: int, y: int, stream: Any) -> bool:
        """Launch the kernel from address `x` to `y`; return False if the normal path has to."""
        if self._near is not None and self._near[0] < y - x < self._near[1]:
            return False
        x += self._from
        y += self._to
        kernel = self._kernels.get((x & 15, y & 15))
        if kernel is None:
            return False
        gpu = runtime()
        with gpu.on(self.ordinal):
            gpu.launch(kernel, (y, x), stream)
        return True


class CachedSumLaunch:
    """A cached kernel launch of a sum on one GPU: the fast path.

    `kernels` are the sum's, by 0 and the alignment of its parts and its output. `offsets` are the
    bytes from the address of each part, and last of the output, to the kernel's first element.
    """

    __slots__ = ("_kernels", "_near", "_offsets", "_to", "dtype", "ordinal", "shape")

    def __init__(
        self,
        kernels: Mapping[tuple[int, ...], Any],
        offsets: Sequence[int],
        arrays: Sequence[DeviceArray],
        out: DeviceArray | None,
        result: tuple[tuple[int, ...], DType],
    ) -> None:
        self.ordinal = arrays[0].ordinal
        self.shape, self.dtype = result
        self._kernels = kernels
        *self._offsets, self._to = offsets
        self._near = [] if out is None else [_near(array, out) for array in arrays]

    def __call__(self, parts: Sequence[int], out: int, stream: Any) -> bool:
        """Launch the kernel from `parts` to `out`; return False if the normal path has to."""
        for x, (low, high) in zip(parts, self._near, strict=False):
            if low < out - x < high:
                return False
        sources = [x + offset for x, offset in zip(parts, self._offsets, strict=True)]
        out += self._to
        kernel = self._kernels.get((0, *[x & 15 for x in sources], out & 15))
        if kernel is None:
            return False
        gpu = runtime()
        with gpu.on(self.ordinal):
            gpu.launch(kernel, [out, *sources], stream)
        return True


def _near(array: DeviceArray, out: DeviceArray) -> tuple[int, int]:
    """Return the range of address differences for which `out` may overlap `array`."""
    low, high = span(array)
    first, last = span(out)
    return low - last, high - first


def cache_launch(
    plan: Plan, launches: Launches, array: DeviceArray, out: DeviceArray | None
) -> CachedLaunch | None:
    """Return the fast path of a plan; None unless it is exactly one kernel launch."""
    return CachedLaunch(plan, launches, array, out) if plan.is_one_pass else None


def cast(array: DeviceArray, dtype: DType, adapter: DeviceAdapter) -> DeviceArray:
    """Return a contiguous copy in another dtype, by NumPy's unsafe cast."""
    copy = adapter.empty_temporary(array.shape, dtype, array.ordinal)
    cast_into(copy, array, adapter)
    return copy


def cast_into(
    out: DeviceArray, values: DeviceArray, adapter: DeviceAdapter, *, saturate: bool = False
) -> None:
    """Write `values` to `out` of the same shape: NumPy's unsafe cast, or the saturating one."""
    if values.dtype == out.dtype:
        _move(out, values, adapter)
        return
    values = values if values.is_aligned else aligned(values, adapter)
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
    if _kernel_casts(values.dtype, out.dtype, saturate):
        _move(out, values, adapter, "saturate" if saturate else "unsafe")
    else:
        adapter.cast_into(out, values)


def aligned(array: DeviceArray, adapter: DeviceAdapter) -> DeviceArray:
    """Return an aligned contiguous copy of an unaligned array."""
    copy = adapter.empty_temporary(array.shape, array.dtype, array.ordinal)
    with runtime().on(array.ordinal):
        _move(copy, array, adapter)
    return copy


def _kernel_casts(source: DType, target: DType, saturate: bool) -> bool:
    if not (
        is_supported_dtype(source, supports_float16)
        and is_supported_dtype(target, supports_float16)
    ):
        return False
    return saturate or dtype_kind(source) != "f" or dtype_kind(target) not in "ui"


def _move(
    out: DeviceArray, values: DeviceArray, adapter: DeviceAdapter, casting: str = "same_kind"
) -> None:
    """Copy or cast with a kernel. A pure copy may be unaligned."""
    launches = _launches(
        values.shape, values.strides, values.dtype, out.strides, out.dtype, casting, out.ordinal
    )
    launches(values, out, adapter.stream(out.ordinal))


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
    plan = make_single_plan(
        _identity(len(shape), casting),
        shape,
        strides,
        dtype,
        device_name(ordinal),
        out,
        supports_float16,
    )
    return Launches(plan, ordinal)


@lru_cache
def _identity(ndim: int, casting: str) -> ConvertOptions:
    return parse_options(identity_pattern(ndim), casting=casting)


class DevicePrograms:
    """The GPU programs that a Converter caches, by GPU and memory layout.

    `others` caches other objects by memory layout, such as the plans of transfers.
    """

    def __init__(self, task: ConvertOptions) -> None:
        self.options = task
        self.others: dict[Any, Any] = {}
        self._programs: Cache[DeviceProgram] = Cache()
        self._stays: dict[Any, DevicePrograms] = {}
        # By the library's description of x and of out; None if there is no fast path.
        self.quick: Cache[CachedLaunch | None] = Cache()

    def find(self, array: DeviceArray, out: DeviceArray | None) -> DeviceProgram:
        """Return the program for arrays with the layout of `array` (and of `out`)."""
        key = (array.ordinal, *layout_key(array, out))
        program = self._programs.get(key)
        if program is None:
            program = cache_put(
                self._programs, key, self._make_program(array, out), PROGRAM_SIZE_ESTIMATE
            )
        return program

    def _make_program(self, array: DeviceArray, out: DeviceArray | None) -> DeviceProgram:
        if self.options.padding is not None:
            return PaddedDeviceProgram(self.options, array, out)
        plan = make_single_plan(self.options, *array.facts, out, supports_float16)
        return DeviceProgram(plan, array.ordinal)

    def cache_fast_path(self, key: Any, array: DeviceArray, out: DeviceArray | None) -> None:
        """Cache the fast path, by `key`, for arrays like this one, which was just converted.

        Does nothing if the key is None, or if a padded result takes several kernels.
        """
        if key is not None and key not in self.quick and self.options.padding is None:
            program = self.find(array, out)
            quick = cache_launch(program.plan, program.launches, array, out)
            cache_put(self.quick, key, quick, PROGRAM_SIZE_ESTIMATE)

    def same_device_programs(self, dtype: DType, copy: bool | None) -> DevicePrograms:
        """Return the programs of this conversion to `dtype` without a change of device."""
        programs = self._stays.get((dtype, copy))
        if programs is None:
            new_programs = DevicePrograms(
                self.options._replace(dtype=dtype, device=None, copy=copy)
            )
            programs = cache_put(self._stays, (dtype, copy), new_programs)
        return programs

    def run(self, array: DeviceArray, out: DeviceArray | None, adapter: DeviceAdapter) -> Any:
        """Convert `array`, and return the library's array of the result, or of `out` if given."""
        program = self.find(array, out)
        if out is not None:
            check_writable(array, out)
        adapter.check(program.plan.target.dtype)
        with runtime().on(array.ordinal):
            if program.plan.epilogue is not None and not array.is_aligned:
                array = aligned(array, adapter)
                program = self.find(array, out)
            return program(array, out, adapter)


def device_programs_of(converter: Any) -> DevicePrograms:
    """Return the GPU programs of a Converter, created on its first conversion that uses a GPU."""
    if converter.cuda_programs is None:
        converter.cuda_programs = DevicePrograms(converter.options)
    programs: DevicePrograms = converter.cuda_programs
    return programs


class DeviceProgram:
    """The executable plan for arrays of one shape, strides and dtype on one GPU.

    Safe to call from many threads: only the cache of kernels is ever changed.
    """

    def __init__(self, plan: Plan, ordinal: int) -> None:
        self.plan = plan
        self._ordinal = ordinal
        self.launches = Launches(plan, ordinal)

    def __call__(self, array: DeviceArray, out: DeviceArray | None, adapter: DeviceAdapter) -> Any:
        """Convert into `out` or a new array; return the library's array."""
        plan = self.plan
        if plan.kernel == "view":
            return array.owner if plan.move.is_identity else adapter.view(array, plan.move)
        result = out or adapter.empty(plan.target.shape, plan.target.dtype, self._ordinal)
        if plan.choice is not None:
            self._stages(array, result, adapter)
        return result.owner

    def _stages(self, array: DeviceArray, result: DeviceArray, adapter: DeviceAdapter) -> None:
        plan = self.plan
        if plan.before is not None:
            array = cast(array, plan.before, adapter)
        after = plan.after
        if after is None and plan.epilogue is not None and not result.is_aligned:
            after = result.dtype
        middle = (
            result if after is None else adapter.empty_temporary(result.shape, after, self._ordinal)
        )
        self.launches(array, middle, adapter.stream(self._ordinal))
        if after is not None:
            cast_into(result, middle, adapter, saturate=plan.saturate)

    def warm(self) -> str:
        """Load the kernel for the alignment of pool memory, and return a description of it."""
        return self.launches.warm()


class _Pointer(NamedTuple):
    """The address of a region, which is all that a launch needs."""

    address: int


class PaddedDeviceProgram(DeviceProgram):
    """A program that converts x into a region of a padded result and fills the rest: `pad_to=`."""

    def __init__(
        self, options: ConvertOptions, array: DeviceArray, out: DeviceArray | None
    ) -> None:
        plan, self._region = plan_inner_region(options, *array.facts, out, supports_float16)
        super().__init__(plan, array.ordinal)
        dtype = plan.target.dtype
        if out is None:
            self._steps = contiguous_strides(self._region.full, dtype)
        else:
            rank = len(array.shape)
            self._steps = unfolded_strides(options, self._region, rank, out.strides)
        window = self._region.window
        self._inside_offset = self._offset(window)
        self._inside_shape = tuple([part.stop - part.start for part in window])
        on_cpu = options._replace(device=None)
        fill = np.ascontiguousarray(
            fill_array(on_cpu, array.shape, array.dtype, dtype, self._region.full)
        )
        address = runtime().constants(fill.tobytes(), array.ordinal)
        self._borders = [self._border(fill, address, part) for part in self._region.borders()]

    def __call__(self, array: DeviceArray, out: DeviceArray | None, adapter: DeviceAdapter) -> Any:
        """Convert into its region of `out` or a new array and fill the rest."""
        dtype = self.plan.target.dtype
        result = out or adapter.empty(self._region.shape, dtype, self._ordinal)
        if self.plan.choice is not None:
            self._stages(array, self._inside(result), adapter)
        stream = adapter.stream(self._ordinal)
        for launches, fill, border in self._borders:
            launches(fill, _Pointer(result.address + border), stream)
        return result.owner

    def _inside(self, result: DeviceArray) -> DeviceArray:
        """Return the region of x in a result whose folds are split."""
        return DeviceArray(
            result.address + self._inside_offset,
            self._inside_shape,
            self._steps,
            result.dtype,
            result.ordinal,
            result.owner,
        )

    def _border(self, fill: Array, address: int, border: Window) -> tuple[Launches, _Pointer, int]:
        """Return the kernels that fill a border, their source and the border's offset."""
        part = fill[fill_region_for(fill, border)]
        sizes = tuple(side.stop - side.start for side in border)
        source = np.broadcast_to(part, sizes)
        first = address + data_pointer(part) - data_pointer(fill)
        ordinal = self._ordinal
        launches = _launches(
            sizes, source.strides, fill.dtype, self._steps, fill.dtype, "same_kind", ordinal
        )
        return launches, _Pointer(first), self._offset(border)

    def _offset(self, window: Window) -> int:
        """Return the offset of a region in bytes."""
        return sum([part.start * step for part, step in zip(window, self._steps, strict=True)])

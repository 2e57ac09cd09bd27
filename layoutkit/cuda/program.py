"""A plan made ready to run on a GPU: kernels, and the stages before and after them.

What `layoutkit.cpu.program` is for the CPU. Nothing is waited for.

The kernels of a plan, put on a stream: loaded once for each alignment of both sides, and kept.

Everything is put on one stream and nothing is waited for, so that what is loaded already can be
captured in a CUDA graph.

The quick way of what came before: one kernel, on arrays that lie as those did.

What was checked and planned then holds for all arrays of the same layout. What is left is what
their addresses decide: how the kernel may read and write, and whether out shares memory with x.
Where that is not plain, the long way decides it.

The casts and copies before and after kernels, on arrays of a GPU.

What `layoutkit.cpu.program` is for the CPU. Kernels do them where they know both dtypes; the array's
library does what C leaves undefined, and what no kernel knows (complex, float8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from .._utils import fork
from .._utils.cache import MAX_KEPT, PROGRAM_BYTES, Cache, remember
from ..errors import DeviceError
from ..layout.parsing import identity
from ..memory import layout_key
from ..planning.epilogue import is_known
from ..planning.options import Task, make_task
from ..planning.plan import Plan
from ..spec import DType, kind_of, name_of
from .memory import DeviceAdapter, DeviceArray, check_writable, span
from .runtime import runtime


def has_half() -> bool:
    """Every GPU converts float16."""
    return True


class Launches:
    """The kernel of a plan on one GPU.

    Safe to use from many threads: it is not changed, except that kernels are added.
    """

    def __init__(self, plan: Plan, ordinal: int) -> None:
        self.plan, self.ordinal = plan, ordinal
        self.kernels: dict[tuple[int, int], Any] = {}  # by the alignment of both sides

    def __call__(self, array: DeviceArray, result: DeviceArray, stream: Any) -> None:
        """Launch it, once for each place of the loops that are too many for a kernel."""
        for src, dst in self.plan.launches():
            x, y = array.address + src, result.address + dst
            kernel = self.kernels.get((x & 15, y & 15)) or self._load(x & 15, y & 15, stream)
            runtime().launch(kernel, (y, x), stream)

    def warm(self) -> str:
        """Load the kernel for memory of the pool; what it is called."""
        launch = self._load(0, 0).launch
        words = " ".join(f"{name}={value}" for name, value in launch.defines)
        return f"{name_of(self.ordinal)} {launch.family} {words}"

    def _load(self, src: int, dst: int, stream: Any = None) -> Any:
        """The kernel for sides at such addresses, of which the last four bits matter."""
        with fork.making:
            from ..kernels.cuda.launch import prepare

        found, plan = runtime(), self.plan
        if plan.choice is None:
            raise RuntimeError(f"no kernel for {plan.pattern}")
        launch = prepare(plan.choice, plan.epilogue, src, dst)
        if stream is not None:
            check_warm(launch, self.ordinal, stream, f'the conversion "{plan.pattern}"')
        return self.kernels.setdefault((src, dst), found.load(launch, self.ordinal))


def check_warm(launch: Any, ordinal: int, stream: Any, what: str) -> None:
    """Raise where a kernel would have to be compiled while a graph is captured."""
    found = runtime()
    if not found.is_loaded(launch, ordinal) and found.is_capturing(stream):
        raise DeviceError(
            f"{what} runs for the first time while a CUDA graph is captured; call it once, or "
            "layoutkit.warmup, before the capture"
        )


class Quick:
    """One kernel for arrays that lie in one way on one GPU.

    shape, dtype    of the result
    """

    __slots__ = ("_from", "_kernels", "_near", "_to", "dtype", "ordinal", "shape")

    def __init__(
        self, plan: Plan, launches: Launches, array: DeviceArray, out: DeviceArray | None
    ) -> None:
        self.ordinal = array.ordinal
        self.shape, self.dtype = plan.target.shape, plan.target.dtype
        self._kernels = launches.kernels
        ((self._from, self._to),) = plan.launches()
        self._near = None if out is None else _near(array, out)

    def __call__(self, x: int, y: int, stream: Any) -> bool:
        """Put it on a stream, from address to address; whether that was possible."""
        if self._near is not None and self._near[0] < y - x < self._near[1]:
            return False
        x += self._from
        y += self._to
        kernel = self._kernels.get((x & 15, y & 15))
        if kernel is None:
            return False
        found = runtime()
        with found.on(self.ordinal):
            found.launch(kernel, (y, x), stream)
        return True


class QuickSum:
    """The same of a sum: one kernel, by the alignment of its parts and its output.

    `kernels` are the sum's own, with a 0 before that; `offsets` are bytes from the address of each
    part, and last of the output, to where the kernel begins.
    """

    __slots__ = ("_kernels", "_near", "_offsets", "_to", "dtype", "ordinal", "shape")

    def __init__(
        self,
        kernels: Mapping[tuple[int, ...], Any],
        offsets: Sequence[int],
        arrays: Sequence[DeviceArray],
        out: DeviceArray | None,
        made: tuple[tuple[int, ...], DType],
    ) -> None:
        self.ordinal, (self.shape, self.dtype) = arrays[0].ordinal, made
        self._kernels = kernels
        *self._offsets, self._to = offsets
        self._near = [] if out is None else [_near(array, out) for array in arrays]

    def __call__(self, parts: Sequence[int], out: int, stream: Any) -> bool:
        """Put it on a stream, from these addresses to that; whether that was possible."""
        for x, (low, high) in zip(parts, self._near, strict=False):
            if low < out - x < high:
                return False
        sources = [x + offset for x, offset in zip(parts, self._offsets, strict=True)]
        out += self._to
        kernel = self._kernels.get((0, *[x & 15 for x in sources], out & 15))
        if kernel is None:
            return False
        found = runtime()
        with found.on(self.ordinal):
            found.launch(kernel, [out, *sources], stream)
        return True


def _near(array: DeviceArray, out: DeviceArray) -> tuple[int, int]:
    """Between how many bytes behind an array's address an out may overlap it."""
    low, high = span(array)
    first, last = span(out)
    return low - last, high - first


def quick_of(
    plan: Plan, launches: Launches, array: DeviceArray, out: DeviceArray | None
) -> Quick | None:
    """The quick way of a plan; None where it is more than one kernel, or none."""
    return Quick(plan, launches, array, out) if plan.is_one_pass else None


def cast(array: DeviceArray, dtype: DType, adapter: DeviceAdapter) -> DeviceArray:
    """A contiguous copy in another dtype: NumPy's unsafe cast."""
    made = adapter.scratch(array.shape, dtype, array.ordinal)
    cast_into(made, array, adapter)
    return made


def cast_into(
    out: DeviceArray, values: DeviceArray, adapter: DeviceAdapter, *, saturate: bool = False
) -> None:
    """Write `values` to `out` of the same shape: NumPy's unsafe cast, or the saturating one."""
    if values.dtype == out.dtype:
        _move(out, values, adapter)
        return
    values = values if values.is_aligned else aligned(values, adapter)
    if not out.is_aligned:
        made = adapter.scratch(out.shape, out.dtype, out.ordinal)
        cast_into(made, values, adapter, saturate=saturate)
        _move(out, made, adapter)
        return
    if kind_of(values.dtype) == "c" and kind_of(out.dtype) not in "cb":
        values = adapter.real(values)
    saturate = saturate and kind_of(out.dtype) in "ui"
    if saturate and not is_known(values.dtype, has_half):
        values = cast(values, np.dtype(np.float32), adapter)
    if _is_for_kernels(values.dtype, out.dtype, saturate):
        _move(out, values, adapter, "saturate" if saturate else "unsafe")
    else:
        adapter.cast_into(out, values)


def aligned(array: DeviceArray, adapter: DeviceAdapter) -> DeviceArray:
    """A contiguous copy of an array whose elements begin anywhere."""
    made = adapter.scratch(array.shape, array.dtype, array.ordinal)
    with runtime().on(array.ordinal):
        _move(made, array, adapter)
    return made


def _is_for_kernels(source: DType, target: DType, saturate: bool) -> bool:
    if not (is_known(source, has_half) and is_known(target, has_half)):
        return False
    return saturate or kind_of(source) != "f" or kind_of(target) not in "ui"


def _move(
    out: DeviceArray, values: DeviceArray, adapter: DeviceAdapter, casting: str = "same_kind"
) -> None:
    """Write by a kernel. Where nothing is cast, elements may begin anywhere."""
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
    """What writes an array that lies so to one that lies so: kept, as they come again."""
    out = DeviceArray(0, shape, out_strides, out_dtype, ordinal, None)
    plan = _identity(len(shape), casting).plan(
        shape, strides, dtype, name_of(ordinal), out, has_half
    )
    return Launches(plan, ordinal)


@lru_cache
def _identity(ndim: int, casting: str) -> Task:
    return make_task(identity(ndim), casting=casting)


class DevicePrograms:
    """What a Converter keeps for GPUs: a program for each GPU and memory layout it has seen.

    `others` is for what else is kept by memory layout, such as ways between devices.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.others: dict[Any, Any] = {}
        self._programs: Cache[DeviceProgram] = Cache()
        self._stays: dict[Any, DevicePrograms] = {}
        # By what the library of an array says of it and of out; None where there is no quick way.
        self.quick: Cache[Quick | None] = Cache()

    def find(self, array: DeviceArray, out: DeviceArray | None) -> DeviceProgram:
        """What converts an array that lies so, into `out` if given."""
        key = (array.ordinal, *layout_key(array, out))
        found = self._programs.get(key)
        if found is None:
            plan = self.task.plan(*array.facts, out, has_half)
            program = DeviceProgram(plan, array.ordinal)
            found = remember(self._programs, key, program, PROGRAM_BYTES)
        return found

    def learn(self, key: Any, array: DeviceArray, out: DeviceArray | None) -> None:
        """Keep the quick way of arrays like these, which were converted, by a key of theirs.

        Where the key is None, there is none.
        """
        if key is not None and key not in self.quick:
            found = self.find(array, out)
            quick = quick_of(found.plan, found.launches, array, out)
            remember(self.quick, key, quick, PROGRAM_BYTES)

    def staying(self, dtype: DType, copy: bool | None) -> DevicePrograms:
        """The programs of the same conversion, to `dtype`, of an array that stays on its GPU."""
        found = self._stays.get((dtype, copy))
        if found is None:
            made = DevicePrograms(self.task._replace(dtype=dtype, device=None, copy=copy))
            found = remember(self._stays, (dtype, copy), made)
        return found

    def run(self, array: DeviceArray, out: DeviceArray | None, adapter: DeviceAdapter) -> Any:
        """The library's array that `array` is converted to; `out`'s where that is given."""
        program = self.find(array, out)
        if out is not None:
            check_writable(array, out)
        adapter.check(program.plan.target.dtype)
        with runtime().on(array.ordinal):
            if program.plan.epilogue is not None and not array.is_aligned:
                array = aligned(array, adapter)
                program = self.find(array, out)
            return program(array, out, adapter)


def programs_of(converter: Any) -> DevicePrograms:
    """What a Converter keeps for GPUs, made with the first array that is on one or goes there."""
    if converter.on_gpus is None:
        converter.on_gpus = DevicePrograms(converter.task)
    found: DevicePrograms = converter.on_gpus
    return found


class DeviceProgram:
    """What converts arrays of one shape, strides and dtype on one GPU.

    Safe to call from many threads: it is not changed, except that kernels are added.
    """

    def __init__(self, plan: Plan, ordinal: int) -> None:
        self.plan, self._ordinal = plan, ordinal
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
        middle = result if after is None else adapter.scratch(result.shape, after, self._ordinal)
        self.launches(array, middle, adapter.stream(self._ordinal))
        if after is not None:
            cast_into(result, middle, adapter, saturate=plan.saturate)

    def warm(self) -> str:
        """Load the kernel for memory of the pool; what it is called."""
        return self.launches.warm()

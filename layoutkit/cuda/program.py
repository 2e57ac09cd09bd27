"""A plan made ready to run on a GPU: kernels, and the stages before and after them.

What `layoutkit.cpu.program` is for the CPU. Everything is put on one stream and nothing is waited
for, so that a warm conversion can be captured in a CUDA graph.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from ..converter import Converter
from ..devices import name_of, runtime
from ..errors import DeviceError
from ..notation import identity
from ..planning.epilogue import Coefficients, Epilogue, is_known
from ..planning.plan import Plan
from ..spec import DType, kind_of
from .memory import DeviceArray, check_writable

if TYPE_CHECKING:
    from ..arrays.cupy import CudaAdapter

__all__ = ["DeviceProgram", "aligned", "cast", "cast_into", "check_warm", "has_half", "run"]


def has_half() -> bool:
    """Every GPU converts float16."""
    return True


def run(
    converter: Converter, array: DeviceArray, out: DeviceArray | None, adapter: CudaAdapter
) -> Any:
    """The library's array that `array` is converted to; `out`'s where that is given."""
    program = converter.device_program(array, out)
    if out is not None:
        check_writable(array, out)
    adapter.check(program.plan.target.dtype)
    with runtime().on(array.ordinal):
        if program.plan.names is not None and not array.is_aligned:
            array = aligned(array, adapter)
            program = converter.device_program(array, out)
        return program(array, out, adapter)


class DeviceProgram:
    """What a Converter keeps for arrays of one shape, strides and dtype on one GPU.

    Safe to call from many threads: it is not changed, except that kernels are added.
    """

    def __init__(self, plan: Plan, ordinal: int) -> None:
        self.plan, self._ordinal = plan, ordinal
        self._kernels: dict[tuple[int, int], Any] = {}  # by the alignment of both sides

    def __call__(self, array: DeviceArray, out: DeviceArray | None, adapter: CudaAdapter) -> Any:
        """Convert into `out` or a new array; return the library's array."""
        plan = self.plan
        if plan.kernel == "view":
            same = array.shape == plan.target.shape and plan.move.order == tuple(
                range(len(plan.move.sizes))
            )
            return array.owner if same else adapter.view(array, plan.move)
        result = out or adapter.empty(plan.target.shape, plan.target.dtype, self._ordinal)
        if plan.choice is not None:
            self._stages(array, result, adapter)
        return result.owner

    def _stages(self, array: DeviceArray, result: DeviceArray, adapter: CudaAdapter) -> None:
        plan = self.plan
        if plan.before is not None:
            array = cast(array, plan.before, adapter)
        after = plan.after
        if after is None and plan.names is not None and not result.is_aligned:
            after = result.dtype
        middle = result if after is None else adapter.empty(result.shape, after, self._ordinal)
        self._kernel(array, middle, adapter.stream(self._ordinal))
        if after is not None:
            cast_into(result, middle, adapter, saturate=plan.saturate)

    def _kernel(self, array: DeviceArray, result: DeviceArray, stream: Any) -> None:
        """Launch the kernel, once for each place of the loops that are too many for it."""
        loops, choice = self.plan.loops, self.plan.choice
        if loops is None or choice is None:
            raise RuntimeError(f"no kernel for {self.plan.pattern}")
        src, dst = array.address + loops.src_offset, result.address + loops.dst_offset
        for place in product(*(range(loop.count) for loop in choice.beyond)):
            x = src + sum(i * loop.src for i, loop in zip(place, choice.beyond, strict=True))
            y = dst + sum(i * loop.dst for i, loop in zip(place, choice.beyond, strict=True))
            kernel = self._kernels.get((x & 15, y & 15)) or self.load(x & 15, y & 15, stream)
            runtime().launch(kernel, [y, x], stream)

    def load(self, src: int, dst: int, stream: Any = None) -> Any:
        """The kernel for sides at such addresses, of which the last four bits matter."""
        from ..kernels.cuda.launch import prepare

        found, plan, finish = runtime(), self.plan, None
        if plan.names is not None:
            coefficients = Coefficients(*plan.coefficients) if plan.coefficients else None
            finish = Epilogue(*plan.names, plan.saturate, coefficients)
        launch = prepare(plan.choice, finish, src, dst)
        if stream is not None:
            check_warm(launch, self._ordinal, stream, f'the conversion "{plan.pattern}"')
        return self._kernels.setdefault((src, dst), found.load(launch, self._ordinal))

    def warm(self) -> str:
        """Load the kernel for memory of the pool; what it is called."""
        launch = self.load(0, 0).launch
        words = " ".join(f"{name}={value}" for name, value in launch.defines)
        return f"{name_of(self._ordinal)} {launch.family} {words}"


def check_warm(launch: Any, ordinal: int, stream: Any, what: str) -> None:
    """Raise where a kernel would have to be compiled while a graph is captured."""
    found = runtime()
    if not found.is_loaded(launch, ordinal) and found.is_capturing(stream):
        raise DeviceError(
            f"{what} runs for the first time while a CUDA graph is captured; call it once, or "
            "layoutkit.warmup, before the capture"
        )


# ---- what is done before and after kernels -----------------------------------------------


def cast(array: DeviceArray, dtype: DType, adapter: CudaAdapter) -> DeviceArray:
    """A contiguous copy in another dtype: NumPy's unsafe cast."""
    made = adapter.empty(array.shape, dtype, array.ordinal)
    cast_into(made, array, adapter)
    return made


def cast_into(
    out: DeviceArray, values: DeviceArray, adapter: CudaAdapter, *, saturate: bool = False
) -> None:
    """Write `values` to `out` of the same shape: NumPy's unsafe cast, or the saturating one.

    Kernels do it where they know both dtypes. The library does what C leaves undefined, and what
    no kernel knows (complex, float8).
    """
    if values.dtype == out.dtype:
        _copy_bytes(out, values, adapter)
        return
    values = values if values.is_aligned else aligned(values, adapter)
    if not out.is_aligned:
        made = adapter.empty(out.shape, out.dtype, out.ordinal)
        cast_into(made, values, adapter, saturate=saturate)
        _copy_bytes(out, made, adapter)
        return
    if kind_of(values.dtype) == "c" and kind_of(out.dtype) not in "cb":
        values = adapter.real(values)
    saturate = saturate and kind_of(out.dtype) in "ui"
    if saturate and not is_known(values.dtype, has_half):
        values = cast(values, np.dtype(np.float32), adapter)
    if _is_for_kernels(values.dtype, out.dtype, saturate):
        casting = "saturate" if saturate else "unsafe"
        converter = Converter(identity(len(out.shape)), dtype=out.dtype, casting=casting)
        converter.device_program(values, out)(values, out, adapter)
    else:
        adapter.cast_into(out, values)


def _is_for_kernels(source: DType, target: DType, saturate: bool) -> bool:
    if not (is_known(source, has_half) and is_known(target, has_half)):
        return False
    return saturate or kind_of(source) != "f" or kind_of(target) not in "ui"


def aligned(array: DeviceArray, adapter: CudaAdapter) -> DeviceArray:
    """A contiguous copy of an array whose elements begin anywhere."""
    made = adapter.empty(array.shape, array.dtype, array.ordinal)
    with runtime().on(array.ordinal):
        _copy_bytes(made, array, adapter)
    return made


def _copy_bytes(out: DeviceArray, values: DeviceArray, adapter: CudaAdapter) -> None:
    """Copy elements that begin anywhere: as bytes, of which the planner makes words again."""
    sides = _as_bytes(values), _as_bytes(out)
    Converter(identity(len(sides[0].shape))).device_program(*sides)(*sides, adapter)


def _as_bytes(array: DeviceArray) -> DeviceArray:
    """The array with a last axis of the bytes of an element."""
    shape, strides = (*array.shape, array.dtype.itemsize), (*array.strides, 1)
    return replace(array, shape=shape, strides=strides, dtype=np.dtype(np.uint8))

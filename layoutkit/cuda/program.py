"""A plan made ready to run on a GPU: kernels, and the stages before and after them.

What `layoutkit.cpu.program` is for the CPU. Nothing is waited for.
"""

from __future__ import annotations

from typing import Any

from ..caching import PROGRAM_BYTES, Cache, remember
from ..memory import layout_key
from ..planning.plan import Plan
from ..planning.task import Task
from ..spec import DType
from .casts import aligned, cast, cast_into
from .launches import Launches, has_half
from .memory import DeviceAdapter, DeviceArray, check_writable
from .quick import Quick, quick_of
from .runtime import runtime

__all__ = ["DeviceProgram", "DevicePrograms", "programs_of"]


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

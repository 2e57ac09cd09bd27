"""A plan made ready to run: machine code, parameter block, and where the memory comes from."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from ..buffers import empty_with_address
from ..kernels.cpu.words import LINE
from ..memory import Array, address
from ..planning.kernels import Choice
from ..planning.plan import Plan
from ..threads import Job
from .casts import cast_into

__all__ = ["Program", "has_half"]


def has_half() -> bool:
    """Whether this CPU converts float16 in hardware."""
    from ..kernels.cpu.compiler import cpu_features

    return not cpu_features().isdisjoint({"f16c", "neon"})


class Program:
    """What a Converter keeps for arrays of one shape, strides and dtype.

    Safe to call from many threads: it is not changed, except that jobs are added.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._shape, self._dtype = plan.target.shape, plan.target.dtype
        self._jobs: dict[int, Job] = {}  # by the alignment of the output
        choice = plan.choice
        self._simple = choice is not None and plan.before is plan.after is None
        self._simple = self._simple and not (choice and choice.beyond)
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
            return self._view(x, array)
        result = empty_with_address(self._shape, self._dtype)[0] if out is None else out
        if self.plan.choice is not None:
            self._stages(self.plan.choice, array, result)
        return result

    def _view(self, x: Any, array: Array) -> Any:
        move = self.plan.move
        order = move.order + move.dropped
        if x.shape == self._shape and order == tuple(range(len(order))):
            return x
        return array.reshape(move.sizes).transpose(order).reshape(self._shape)

    def _stages(self, choice: Choice, array: Array, result: Array) -> None:
        """Run all stages of the plan, and the loops that are too many for a kernel."""
        before, after = self.plan.before, self.plan.after
        if before is not None:
            with np.errstate(all="ignore"):
                array = array.astype(before, order="C")
        middle = result if after is None else empty_with_address(self._shape, after)[0]
        src, dst = address(array) + self._src, address(middle) + self._dst
        for place in product(*(range(loop.count) for loop in choice.beyond)):
            x = src + sum(i * loop.src for i, loop in zip(place, choice.beyond, strict=True))
            y = dst + sum(i * loop.dst for i, loop in zip(place, choice.beyond, strict=True))
            alignment = min(y & -y, LINE)
            (self._jobs.get(alignment) or self.prepare(alignment)).run(x, y)
        if after is not None:
            cast_into(result, middle, saturate=self.plan.saturate)

    def prepare(self, alignment: int) -> Job:
        """Make the job; of two threads that do so at once, one wins, and both are right."""
        from ..kernels.cpu.compiler import load
        from ..kernels.cpu.launch import prepare
        from ..planning.epilogue import Coefficients, Epilogue

        plan, finish = self.plan, None
        if plan.names is not None:
            coefficients = Coefficients(*plan.coefficients) if plan.coefficients else None
            finish = Epilogue(*plan.names, plan.saturate, coefficients)
        launch = prepare(plan.choice, finish, alignment)
        kernel = load(launch.spec)
        job = Job(kernel, launch.params, launch.units, launch.grain, plan.bytes_moved)
        return self._jobs.setdefault(alignment, job)

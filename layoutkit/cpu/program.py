"""A plan made ready to run: machine code, parameter block, and where the memory comes from."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import forks
from ..axes import Move
from ..buffers import empty_with_address
from ..kernels.cpu.words import LINE
from ..memory import Array, address
from ..planning.channels import Picks
from ..planning.plan import Plan
from ..threadpools import announce
from ..workers import Job
from .casts import cast_into

__all__ = ["Program", "has_half"]


def has_half() -> bool:
    """Whether this CPU converts float16 in hardware."""
    with forks.making:
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
        with forks.making:
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

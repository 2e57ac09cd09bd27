"""The kernels of a plan, put on a stream: loaded once for each alignment of both sides, and kept.

Everything is put on one stream and nothing is waited for, so that what is loaded already can be
captured in a CUDA graph.
"""

from __future__ import annotations

from typing import Any

from .. import forks
from ..devices import name_of
from ..errors import DeviceError
from ..planning.plan import Plan
from .memory import DeviceArray
from .runtime import runtime

__all__ = ["Launches", "check_warm", "has_half"]


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
        with forks.making:
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

"""How threadpoolctl sees and sets the number of threads, where it is installed.

It looks for pools of threads by the names of shared libraries. layoutkit has none of its own, but
its kernels are linked by that of llvmlite, so that this one is there when there are threads.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from . import forks
from .threads import get_num_threads, set_num_threads

__all__ = ["announce"]


@forks.once
def announce() -> None:
    """Let `threadpoolctl.threadpool_limits` and `threadpool_info` know of this process's threads.

    Called when kernels are there; `threadpool_limits(2)`, and of `user_api="layoutkit"`, are as
    `set_num_threads(2)` from then on, and are undone as they are for other libraries.
    """
    if find_spec("threadpoolctl") is None:
        return
    import threadpoolctl

    threadpoolctl.register(_controller(threadpoolctl.LibController))


def _controller(base: Any) -> Any:
    class LayoutkitController(base):  # type: ignore[misc]  # threadpoolctl has no types
        """The threads of layoutkit, as threadpoolctl speaks of pools."""

        user_api = internal_api = "layoutkit"
        filename_prefixes = ("libllvmlite", "llvmlite")
        check_symbols = ("LLVMPY_GetHostCPUName",)

        def get_num_threads(self) -> int:
            """How many threads a conversion uses."""
            return get_num_threads()

        def set_num_threads(self, num_threads: int) -> None:
            """Bound them."""
            set_num_threads(num_threads)

        def get_version(self) -> str | None:
            """That of layoutkit is not the library's."""
            return None

        def set_additional_attributes(self) -> None:
            """There are none."""

    return LayoutkitController

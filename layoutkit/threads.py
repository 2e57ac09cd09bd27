"""How many threads a conversion may use.

The number of threads is `LAYOUTKIT_NUM_THREADS`, else the first of `OMP_NUM_THREADS`, else one in a
worker process, else the CPUs that affinity and the container's quota allow (`limits.py`).
"""

from __future__ import annotations

import os

from .checks import as_int
from .errors import ArgumentError
from .limits import MAX_THREADS, default_threads
from .openmp import libraries

__all__ = ["get_num_threads", "set_num_threads", "set_threads"]

KINDS = ("auto", "own", "openmp")


def set_num_threads(n: int) -> None:
    """Let conversions use `n` threads from now on, the calling one included.

    Raises
    ------
    ArgumentError
        `n` is not a whole number from 1 to 256.
    """
    global _threads
    count = as_int(n)
    if count is None or not 1 <= count <= MAX_THREADS:
        raise ArgumentError(
            f"set_num_threads: {n!r} is no number of threads; give a whole number from 1 to "
            f"{MAX_THREADS}"
        )
    _threads = count


def get_num_threads() -> int:
    """The number of threads that a large conversion uses, the calling one included."""
    global _default
    if _threads is not None:
        return _threads
    if _default is None:
        _default = default_threads()[0]
    return _default


def set_threads(kind: str) -> None:
    """Say whose threads share a large conversion from now on.

    `"own"`: workers of layoutkit. `"openmp"`: the threads of an OpenMP library that is in the
    process already, such as PyTorch's; as many as it has, and at most `get_num_threads()`.
    `"auto"`, the default: those of OpenMP when they are awake, as they are for some milliseconds
    after an operation of PyTorch, else layoutkit's. Only conversions that read and write 12 MiB or
    more ask for others' threads, on Linux, in the main thread, and never in a forked child.

    Raises
    ------
    ArgumentError
        `kind` is none of the three, or `"openmp"` where no OpenMP library is loaded.
    """
    global kind_of_threads
    if kind not in KINDS:
        raise ArgumentError(f"set_threads: {kind!r} is none of {', '.join(map(repr, KINDS))}")
    if kind == "openmp" and not libraries():
        raise ArgumentError(
            "set_threads: 'openmp' was asked for, and no OpenMP library is loaded in this process; "
            "import the one whose threads are meant first (import torch), or use 'auto'"
        )
    kind_of_threads = kind


def origin_of_threads() -> str:
    """Who says how many threads there are."""
    return "set_num_threads" if _threads is not None else default_threads()[1]


kind_of_threads = "auto"  # whose
_threads: int | None = None  # what somebody has set
_default: int | None = None  # what is used otherwise, once it is known


def _after_fork() -> None:
    """The child may be one of many."""
    global _default
    _default = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

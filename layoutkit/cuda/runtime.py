"""The one runtime: what does things on GPUs. Made from CuPy when a GPU is first asked for.

It is a `layoutkit.cuda.cupy_runtime.CupyRuntime`, or what tests put in its place: everything
that layoutkit asks of a GPU is asked of it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .._utils import fork
from ..errors import DeviceError
from ..spec import CPU, canonical, follow, ordinal_of

if TYPE_CHECKING:
    from .cupy_runtime import Runtime

_runtime: Runtime | None = None
_forked = False  # from a process that had a runtime


def runtime() -> Runtime:
    """What does things on GPUs, made now if it was not before.

    Raises
    ------
    DeviceError
        CuPy or the driver is missing, or this process was forked from one that uses CUDA.
    """
    if _forked:
        raise DeviceError(
            "this process was forked from one that uses CUDA, and CUDA does not work after a fork; "
            'start it with multiprocessing.get_context("spawn"), or stay on the CPU in it'
        )
    global _runtime
    if _runtime is None:
        with fork.making:
            from .cupy_runtime import CupyRuntime

            _runtime = CupyRuntime()
        follow(_runtime.current)
    return _runtime


def check_device(device: Any) -> str:
    """The canonical name of a device that is there.

    Raises
    ------
    DeviceError
        It is no device; or CuPy, the driver or a GPU of that ordinal is missing.
    """
    if device is None or canonical(device) == CPU:
        return CPU
    found = runtime()
    name = canonical(device)  # again: only now it is known which one is current
    if ordinal_of(name) >= found.count:
        has = "one GPU, cuda:0" if found.count == 1 else f"{found.count} GPUs, from cuda:0 on"
        raise DeviceError(f"device={device!r}, but this machine has {has}; name one that is there")
    return name


def _after_fork() -> None:
    global _forked
    if _runtime is not None:
        _forked = True
        follow(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

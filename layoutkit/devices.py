"""Where arrays live: "cpu", and the GPUs of CUDA as "cuda" and "cuda:1".

Names are text and need no GPU, so that a plan or an ArraySpec can be made anywhere. What does
things on a GPU is the *runtime*, `layoutkit.kernels.cuda.runtime.Runtime`: made from CuPy the
first time that a device is asked to do something, and kept.
"""

from __future__ import annotations

import os
import re
from typing import Any

from .errors import DeviceError

__all__ = ["CPU", "canonical", "check_device", "name_of", "ordinal_of", "runtime", "use"]

CPU = "cpu"

_CUDA = re.compile(r"cuda(?::(\d{1,4}))?", re.ASCII)
_runtime: Any = None
_forked = False  # from a process that had a runtime


def canonical(device: Any) -> str:
    """The one name of a device: "cpu" or "cuda:<ordinal>"; None is the CPU.

    "cuda" is the current device of CuPy where it is in use already, else the first one. Pure
    otherwise: whether there is such a device is not asked.

    >>> canonical("cuda:1"), canonical("cuda"), canonical(None)
    ('cuda:1', 'cuda:0', 'cpu')

    Raises DeviceError for anything else.
    """
    if device is None or (isinstance(device, str) and device == CPU):
        return CPU
    found = _CUDA.fullmatch(device) if isinstance(device, str) else None
    if found is None:
        raise DeviceError(
            f'device={device!r} is no device that layoutkit knows; it is "cpu", "cuda" or one of '
            'several GPUs, such as "cuda:1"'
        )
    if found[1] is not None:
        return name_of(int(found[1]))
    return name_of(0 if _runtime is None or _forked else _runtime.current())


def name_of(ordinal: int) -> str:
    """The name of a GPU."""
    return f"cuda:{ordinal}"


def ordinal_of(device: str) -> int:
    """The ordinal of a GPU that has a canonical name."""
    return int(device.removeprefix("cuda:"))


def check_device(device: Any) -> str:
    """The canonical name of a device that is there.

    Raises
    ------
    DeviceError
        It is no device; or CuPy, the driver or a GPU of that number is missing.
    """
    if device is None or canonical(device) == CPU:
        return CPU
    found = runtime()
    name = canonical(device)  # again: only now it is known which one is current
    if ordinal_of(name) >= found.count:
        has = "one GPU, cuda:0" if found.count == 1 else f"{found.count} GPUs, from cuda:0 on"
        raise DeviceError(f"device={device!r}, but this machine has {has}; name one that is there")
    return name


def runtime() -> Any:
    """What does things on GPUs, made now if it was not before.

    Raises
    ------
    DeviceError
        CuPy or the driver is missing, or this process was forked from one that uses CUDA.
    """
    global _runtime
    if _forked:
        raise DeviceError(
            "this process was forked from one that uses CUDA, and CUDA does not work after a fork; "
            'start it with multiprocessing.get_context("spawn"), or stay on the CPU in it'
        )
    if _runtime is None:
        from .kernels.cuda.runtime import Runtime

        _runtime = Runtime()
    return _runtime


def use(runtime: Any) -> Any:
    """Let `runtime` do what is asked of GPUs from now on; return the one before, or None.

    For tests, which have none. None: make one from CuPy when it is needed.
    """
    global _runtime
    before, _runtime = _runtime, runtime
    return before


def _after_fork() -> None:
    global _forked
    _forked = _forked or _runtime is not None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

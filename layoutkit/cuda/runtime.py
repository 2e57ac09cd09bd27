"""The one GPU runtime of the process, created when a GPU is first used.

All GPU operations of layoutkit go through it. `cupy_runtime` is imported only when it is created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._utils import fork, system
from .._utils.validation import show
from ..errors import DeviceError
from ..spec import CPU, device_ordinal, normalize_device, set_current_device_fn

if TYPE_CHECKING:
    from .cupy_runtime import CupyRuntime

process_runtime: CupyRuntime | None = None
_forked = False  # from a process that had a runtime


def runtime() -> CupyRuntime:
    """Return the runtime, and create it on the first call.

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
    global process_runtime
    if process_runtime is None:
        with fork.init_lock:
            if process_runtime is None:  # no other thread was first
                from .cupy_runtime import CupyRuntime

                created = CupyRuntime()
                set_current_device_fn(created.current)
                process_runtime = created
    return process_runtime


def check_device(device: Any) -> str:
    """Return the canonical name of an existing device.

    Raises
    ------
    DeviceError
        `device` is invalid, or CuPy, the driver or a GPU of that ordinal is missing.
    """
    if device is None or normalize_device(device) == CPU:
        return CPU
    gpu = runtime()
    name = normalize_device(device)  # again: only the runtime knows the current device
    if device_ordinal(name) >= gpu.count:
        has = "one GPU, cuda:0" if gpu.count == 1 else f"{gpu.count} GPUs, from cuda:0 on"
        raise DeviceError(
            f"device={show(device)}, but this machine has {has}; name one that is there"
        )
    return name


def _after_fork() -> None:
    global _forked
    if process_runtime is not None:
        _forked = True
        set_current_device_fn(None)


system.register_at_fork(after_in_child=_after_fork)

"""CuPy, the compiler and the driver as they are found on a machine, and what is wrong in words.

CuPy's own errors say which call failed; these say what to install, or to do otherwise.
"""

from __future__ import annotations

import ctypes
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ..errors import DeviceError

__all__ = ["compiled", "count_devices", "described", "load_cupy", "relaxed"]

LEAST_CUPY = (14, 2)  # the first to load kernels from its disk cache whatever they are called

_EXTRA = 'pip install "layoutkit[cuda13]" (or "layoutkit[cuda12]" for a driver of CUDA 12)'


# ---- what is there -----------------------------------------------------------------------


def load_cupy() -> Any:
    """The module, of a version that does.

    Raises DeviceError where it is not installed, does not load or is too old.
    """
    try:
        cupy = import_module("cupy")
    except ImportError as error:
        raise DeviceError(f"a GPU needs CuPy, which does not load here: {_EXTRA}") from error
    except OSError as error:  # it makes the folder of its kernels when it is imported
        raise DeviceError(
            f"a GPU needs CuPy, which cannot keep its kernels here ({_line(error)}); let "
            "CUPY_CACHE_DIR name a folder that may be written"
        ) from error
    found = tuple(map(int, re.findall(r"\d+", cupy.__version__)[:2]))
    if found < LEAST_CUPY:
        least = ".".join(map(str, LEAST_CUPY))
        raise DeviceError(f"CuPy {cupy.__version__} is installed, {least} is needed: {_EXTRA}")
    return cupy


def count_devices(cupy: Any) -> int:
    """How many GPUs there are; DeviceError where there is none, or no driver for this CuPy."""
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:  # CuPy's own class, which has no base of its own
        raise DeviceError(_why_none(cupy.cuda.runtime, error)) from error
    if count == 0:
        raise DeviceError(_NO_GPU)
    return count


_NO_GPU = (
    "the NVIDIA driver finds no GPU; see what nvidia-smi says, and whether CUDA_VISIBLE_DEVICES "
    "hides it"
)


def _why_none(api: Any, error: Exception) -> str:
    """What to do where the driver counts no devices."""
    name = str(error).partition(":")[0]
    driver, wanted = api.driverGetVersion(), api.runtimeGetVersion()
    if driver == 0:
        return "a GPU needs the NVIDIA driver, and none was found: install one for CUDA 12 or newer"
    if driver // 1000 < min(12, wanted // 1000):
        return (
            f"a GPU needs the NVIDIA driver, and one for CUDA {version(driver)} was found: install "
            "one for CUDA 12 or newer"
        )
    if driver // 1000 < wanted // 1000:
        major, of = driver // 1000, wanted // 1000
        return (
            f"the NVIDIA driver is for CUDA {version(driver)}, but this CuPy is for CUDA {of}: pip "
            f'uninstall cupy-cuda{of}x, and then pip install "layoutkit[cuda{major}]"; or install '
            f"a driver for CUDA {of}"
        )
    if name == "cudaErrorInitializationError":
        return (
            "CUDA does not start in this process; if it was forked from one that uses CUDA, as by "
            'torch, start it with multiprocessing.get_context("spawn"), or stay on the CPU in it; '
            "else see what nvidia-smi says"
        )
    if name == "cudaErrorNoDevice":
        return _NO_GPU
    return (
        f"the NVIDIA driver for CUDA {version(driver)} does not answer ({_line(error)}); see what "
        "nvidia-smi says"
    )


def described(cupy: Any, count: int) -> str:
    """The GPUs, the driver and CuPy, in a line."""
    api = cupy.cuda.runtime
    names = [api.getDeviceProperties(n)["name"].decode() for n in range(count)]
    driver = version(api.driverGetVersion())
    return f"{', '.join(names)}; driver for CUDA {driver}, CuPy {cupy.__version__}"


def version(number: int) -> str:
    """A version of CUDA as people write it."""
    return f"{number // 1000}.{number % 1000 // 10}"


# ---- the compiler ------------------------------------------------------------------------


def compiled(cupy: Any, code: str, options: tuple[str, ...], name: str) -> Any:
    """The function of a kernel on the current device, which is loaded there.

    Raises DeviceError where there is no compiler, or it refuses the kernel.
    """
    module = cupy.RawModule(code=code, options=options, backend="nvrtc")
    try:
        found = module.get_function(name)
    except cupy.cuda.compiler.CompileException as error:
        raise DeviceError(
            f"NVRTC does not compile the kernel {name} for this GPU ({_line(error)}); a GPU older "
            "than CUDA 13 supports needs layoutkit[cuda12]"
        ) from error
    except Exception as error:
        # Of cuda-pathfinder, or what CuPy makes of it; both are classes of packages that need not
        # be there to be named.
        if type(error).__name__ == "DynamicLibNotFoundError" or "nvrtc" in str(error).lower():
            raise DeviceError(
                f"CuPy does not find NVRTC, which compiles the kernels ({_line(error)}): {_EXTRA}"
            ) from error
        raise
    # Asking loads it now, as a driver before CUDA 12.3 may not while a graph is captured.
    _ = found.num_regs
    return found.kernel


def _line(error: Exception) -> str:
    """The class of an error and the first line of what it says."""
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}"[:200]


# ---- captures ----------------------------------------------------------------------------


@contextmanager
def relaxed() -> Iterator[None]:
    """Lets this thread ask whether an event has happened, while others capture graphs.

    To ask breaks a capture that goes on in any thread, unless the one that asks has said that it
    knows what it does.
    """
    exchange = _exchange()
    before = exchange(_RELAXED)
    try:
        yield
    finally:
        exchange(before)


_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_making = threading.Lock()
_found: Callable[[int], int] | None = None


def _exchange() -> Callable[[int], int]:
    """What sets the mode of this thread and gives the one before; CuPy has no name for it."""
    global _found
    with _making:
        _found = _found or _of_driver()
    return _found


def _of_driver() -> Callable[[int], int]:
    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:  # where there is no driver, nothing is captured
        return lambda mode: mode

    def exchange(mode: int) -> int:
        word = ctypes.c_int(mode)
        library.cuThreadExchangeStreamCaptureMode(ctypes.byref(word))
        return word.value

    return exchange

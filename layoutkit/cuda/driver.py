"""Load CuPy, the compiler and the driver, and explain what is missing.

CuPy's own errors name the call that failed; the errors of this module name what to install or to
change.
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

LEAST_CUPY = (14, 2)  # the first that loads kernels of any name from its disk cache

_EXTRA = 'pip install "layoutkit[cuda13]" (or "layoutkit[cuda12]" for a driver of CUDA 12)'


# ---- CuPy, driver and GPUs ---------------------------------------------------------------


def import_cupy() -> Any:
    """Return the module `cupy`.

    Raises DeviceError if it is not installed, does not load or is too old.
    """
    try:
        cupy = import_module("cupy")
    except ImportError as error:
        raise DeviceError(f"a GPU needs CuPy, which does not load here: {_EXTRA}") from error
    except OSError as error:  # CuPy creates its kernel cache folder on import
        raise DeviceError(
            f"a GPU needs CuPy, which cannot keep its kernels here ({_line(error)}); let "
            "CUPY_CACHE_DIR name a folder that may be written"
        ) from error
    installed = tuple(map(int, re.findall(r"\d+", cupy.__version__)[:2]))
    if installed < LEAST_CUPY:
        least = ".".join(map(str, LEAST_CUPY))
        raise DeviceError(f"CuPy {cupy.__version__} is installed, {least} is needed: {_EXTRA}")
    return cupy


def count_devices(cupy: Any) -> int:
    """Return the number of GPUs; raise DeviceError if there is none, or no driver for CuPy."""
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:  # CuPy's own class, derived from Exception
        raise DeviceError(_explain_missing_gpu(cupy.cuda.runtime, error)) from error
    if count == 0:
        raise DeviceError(_NO_GPU)
    return count


_NO_GPU = (
    "the NVIDIA driver finds no GPU; see what nvidia-smi says, and whether CUDA_VISIBLE_DEVICES "
    "hides it"
)


def _explain_missing_gpu(api: Any, error: Exception) -> str:
    """Return the message for a driver that cannot count devices."""
    name = str(error).partition(":")[0]
    driver = api.driverGetVersion()
    needed = api.runtimeGetVersion()
    if driver == 0:
        return "a GPU needs the NVIDIA driver, and none was found: install one for CUDA 12 or newer"
    if driver // 1000 < min(12, needed // 1000):
        return (
            f"a GPU needs the NVIDIA driver, and one for CUDA {version(driver)} was found: install "
            "one for CUDA 12 or newer"
        )
    if driver // 1000 < needed // 1000:
        major = driver // 1000
        cupy_major = needed // 1000
        return (
            f"the NVIDIA driver is for CUDA {version(driver)}, but this CuPy is for CUDA "
            f"{cupy_major}: pip uninstall cupy-cuda{cupy_major}x, and then pip install "
            f'"layoutkit[cuda{major}]"; or install a driver for CUDA {cupy_major}'
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


def describe_gpus(cupy: Any, count: int) -> str:
    """Return the names of the GPUs and the versions of the driver and CuPy in one line."""
    api = cupy.cuda.runtime
    names = [api.getDeviceProperties(n)["name"].decode() for n in range(count)]
    driver = version(api.driverGetVersion())
    return f"{', '.join(names)}; driver for CUDA {driver}, CuPy {cupy.__version__}"


def version(number: int) -> str:
    """Return a CUDA version number as text, such as 13.0."""
    return f"{number // 1000}.{number % 1000 // 10}"


# ---- the compiler ------------------------------------------------------------------------


def compile_kernel(cupy: Any, code: str, options: tuple[str, ...], name: str) -> Any:
    """Compile a kernel, load it on the current device, and return its function.

    Raises DeviceError if there is no compiler, or it rejects the kernel.
    """
    module = cupy.RawModule(code=code, options=options, backend="nvrtc")
    try:
        function = module.get_function(name)
    except cupy.cuda.compiler.CompileException as error:
        raise DeviceError(
            f"NVRTC does not compile the kernel {name} for this GPU ({_line(error)}); a GPU older "
            "than CUDA 13 supports needs layoutkit[cuda12]"
        ) from error
    except Exception as error:
        # The error of cuda-pathfinder, or CuPy's error from it. Compared by name, as these packages
        # may not be installed.
        if type(error).__name__ == "DynamicLibNotFoundError" or "nvrtc" in str(error).lower():
            raise DeviceError(
                f"CuPy does not find NVRTC, which compiles the kernels ({_line(error)}): {_EXTRA}"
            ) from error
        raise
    # Reading an attribute loads it now: drivers before CUDA 12.3 cannot during a graph capture.
    _ = function.num_regs
    return function.kernel


def _line(error: Exception) -> str:
    """Return the class name of an error and the first line of its message."""
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}"[:200]


# ---- captures ----------------------------------------------------------------------------


@contextmanager
def relaxed_capture_mode() -> Iterator[None]:
    """Allow this thread to query events while other threads capture graphs.

    A query invalidates a capture in any thread, unless the querying thread has set the relaxed
    capture mode.
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
    """Return the driver's cuThreadExchangeStreamCaptureMode, which CuPy does not wrap."""
    global _found
    with _making:
        _found = _found or _of_driver()
    return _found


def _of_driver() -> Callable[[int], int]:
    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:  # without a driver there are no captures
        return lambda mode: mode

    def exchange(mode: int) -> int:
        word = ctypes.c_int(mode)
        library.cuThreadExchangeStreamCaptureMode(ctypes.byref(word))
        return word.value

    return exchange

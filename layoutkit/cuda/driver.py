"""Load CuPy, the compiler and the driver, and explain what is missing.

CuPy's own errors name the call that failed; the errors of this module name what to install or to
change.
"""

from __future__ import annotations

import ctypes
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from .._utils import system
from ..errors import DeviceError

LEAST_CUPY = (14, 2)  # the first that loads kernels of any name from the disk cache

_EXTRA = 'pip install "layoutkit[cuda13]" (or "layoutkit[cuda12]" for a driver of CUDA 12)'


# ---- CuPy, driver and GPUs ---------------------------------------------------------------


def import_cupy() -> Any:
    """Return the module `cupy`.

    Raises DeviceError if it is not installed, does not load or is too old.
    """
    try:
        cupy = import_module("cupy")
    except ImportError as error:
        raise DeviceError(f"a GPU needs CuPy, which cannot be imported: {_EXTRA}") from error
    except OSError as error:  # CuPy creates its kernel cache folder on import
        raise DeviceError(
            f"a GPU needs CuPy, which cannot create its kernel cache ({_line(error)}); set "
            "CUPY_CACHE_DIR to a writable folder"
        ) from error
    installed = tuple(map(int, re.findall(r"\d+", cupy.__version__)[:2]))
    if installed < LEAST_CUPY:
        required = ".".join(map(str, LEAST_CUPY))
        raise DeviceError(f"CuPy {cupy.__version__} is installed, {required} is needed: {_EXTRA}")
    return cupy


def count_devices(cupy: Any) -> int:
    """Return the number of GPUs; raise DeviceError without a GPU or a driver that CuPy supports."""
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:  # CuPy's own class, derived from Exception
        raise DeviceError(_explain_missing_gpu(cupy.cuda.runtime, error)) from error
    if count == 0:
        raise DeviceError(_NO_GPU)
    return count


_NO_GPU = (
    "the NVIDIA driver finds no GPU; run nvidia-smi, "
    "and check that CUDA_VISIBLE_DEVICES does not hide the GPU"
)


def _explain_missing_gpu(api: Any, error: Exception) -> str:
    """Return the message for a driver that cannot count devices."""
    error_name = str(error).partition(":")[0]
    driver = api.driverGetVersion()
    runtime = api.runtimeGetVersion()
    if driver == 0:
        return "a GPU needs the NVIDIA driver, and none was found: install one for CUDA 12 or newer"
    if driver // 1000 < min(12, runtime // 1000):
        return (
            f"the NVIDIA driver is for CUDA {version(driver)}, "
            "which is too old: install one for CUDA 12 or newer"
        )
    if driver // 1000 < runtime // 1000:
        major = driver // 1000
        cupy_major = runtime // 1000
        return (
            f"the NVIDIA driver is for CUDA {version(driver)}, but this CuPy is for CUDA "
            f"{cupy_major}: pip uninstall cupy-cuda{cupy_major}x, and then pip install "
            f'"layoutkit[cuda{major}]"; or install a driver for CUDA {cupy_major}'
        )
    if error_name == "cudaErrorInitializationError":
        return (
            "CUDA cannot be initialized in this process; if the process was forked from one that "
            'uses CUDA, start it with multiprocessing.get_context("spawn") or use only the CPU in '
            "it; otherwise run nvidia-smi"
        )
    if error_name == "cudaErrorNoDevice":
        return _NO_GPU
    return (
        f"the NVIDIA driver for CUDA {version(driver)} "
        f"does not answer ({_line(error)}); run nvidia-smi"
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

    Raises DeviceError if NVRTC is not found or rejects the kernel.
    """
    module = cupy.RawModule(code=code, options=options, backend="nvrtc")
    try:
        function = module.get_function(name)
    except cupy.cuda.compiler.CompileException as error:
        hint = ""
        if "--gpu-architecture" in str(error):
            hint = "; a GPU that CUDA 13 no longer supports needs layoutkit[cuda12]"
        raise DeviceError(
            f"NVRTC cannot compile the kernel {name} for this GPU ({_line(error)}){hint}"
        ) from error
    except Exception as error:
        # cuda-pathfinder raises this error, or CuPy raises one that quotes it. Compared by name,
        # because cuda-pathfinder may not be installed.
        if type(error).__name__ == "DynamicLibNotFoundError" or "nvrtc" in str(error).lower():
            raise DeviceError(
                f"CuPy cannot find NVRTC, which compiles the kernels ({_line(error)}): {_EXTRA}"
            ) from error
        raise
    finally:
        let_interrupts_end_waits()
    # Reading an attribute loads the function now: drivers before CUDA 12.3 cannot load it during a
    # graph capture.
    _ = function.num_regs
    return function.kernel


def let_interrupts_end_waits() -> None:
    """Let Ctrl-C and SIGTERM end a wait for a lock again, if Python handles them.

    NVRTC installs their handlers again, with SA_RESTART: system calls then go on after a signal.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        if callable(signal.getsignal(number)):
            system.interrupt_calls(number)


def _line(error: Exception) -> str:
    """Return the class name of an error and its first line, or the first that names an error.

    The log of a compiler may begin with warnings.
    """
    lines = str(error).splitlines() or [""]
    line = next((line for line in lines if "error" in line), lines[0])
    return f"{type(error).__name__}: {line}"[:200]


# ---- captures ----------------------------------------------------------------------------


@contextmanager
def relax_capture_mode() -> Iterator[None]:
    """Allow this thread to query events while other threads capture graphs.

    A query invalidates a capture in any thread, unless the querying thread has set the relaxed
    capture mode.
    """
    exchange = load_exchange_function()
    previous_mode = exchange(_RELAXED)
    try:
        yield
    finally:
        exchange(previous_mode)


DEFAULT_STREAMS = (0, 1)  # the pointers of the default stream
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_exchange_lock = threading.Lock()
exchange_capture_mode: Callable[[int], int] | None = None


def load_exchange_function() -> Callable[[int], int]:
    """Return the driver's cuThreadExchangeStreamCaptureMode, which CuPy does not wrap."""
    global exchange_capture_mode
    with _exchange_lock:
        exchange_capture_mode = exchange_capture_mode or _load_exchange_function()
    return exchange_capture_mode


def _load_exchange_function() -> Callable[[int], int]:
    """Return the driver's exchange of capture modes; without a driver, the identity function."""
    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:  # without a driver there are no captures
        return lambda mode: mode

    def exchange(mode: int) -> int:
        c_mode = ctypes.c_int(mode)
        library.cuThreadExchangeStreamCaptureMode(ctypes.byref(c_mode))
        return c_mode.value

    return exchange

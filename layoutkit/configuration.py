"""What layoutkit found on this machine, and compiling kernels before they are needed."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from . import buffers, forks, threads, workers
from .conversion import plan
from .cuda.runtime import check_device, runtime
from .devices import CPU, ordinal_of
from .errors import ArgumentError, DeviceError
from .threads import get_num_threads

if TYPE_CHECKING:
    from .planning.plan import Plan

__all__ = ["show_config", "warmup"]

# What layoutkit works with where it is installed, by the names of the packages.
_OTHERS = (
    "pillow",
    "opencv-python",
    "opencv-python-headless",
    "opencv-contrib-python",
    "opencv-contrib-python-headless",
    "torch",
    "jax",
    "keras",
    "scikit-learn",
    "scipy",
    "xarray",
    "pandas",
    "polars",
    "pyarrow",
    "h5py",
    "zarr",
    "tensorstore",
    "onnxruntime",
    "openvino",
    "fsspec",
    "urllib3",
    "safetensors",
    "matplotlib",
)


def show_config() -> None:
    """Print versions, CPU, threads, memory and compiled kernels, for reports of problems."""
    for name, value in _facts():
        print(f"{name:<10} {value}")


def _facts() -> Iterable[tuple[str, object]]:
    from . import __version__

    with forks.making:
        from .kernels.cpu.compiler import loaded, package_version, target_cpu
        from .kernels.cpu.registers import lanes

    stats = buffers.stats()
    yield "layoutkit", __version__
    yield "python", f"{platform.python_version()} on {sys.platform} {platform.machine()}"
    for package in ("numpy", "numba", "llvmlite", "ml_dtypes"):
        yield package, package_version(package)
    yield "beside", ", ".join(_others()) or "no other library that it works with"
    yield "cpu", f"{target_cpu()[0]}, vectors of {16 * lanes()} bytes"
    yield "cuda", _cuda()
    yield "threads", f"{get_num_threads()} of {os.cpu_count()} CPUs ({threads.origin_of_threads()})"
    yield "buffers", ", ".join(f"{name} {value:,}" for name, value in stats.items())
    yield "kernels", f"{len(loaded())} loaded, {_keeping()}"
    for kernel in loaded():
        yield "", f"{kernel.spec} ({kernel.origin})"


def _others() -> Iterable[str]:
    """Name and version of each that is installed; none of them is imported."""
    from importlib.metadata import PackageNotFoundError, version

    for package in _OTHERS:
        with suppress(PackageNotFoundError):
            yield f"{package} {version(package)}"


def _keeping() -> str:
    """Where kernels are kept, or why they are not."""
    from .kernels.cpu.compiler import cache_dir
    from .kernels.cpu.trust import complaint

    folder = cache_dir()
    if folder is None:
        return "kept in no folder (no home folder)"
    why = complaint(folder)
    return f"kept in {folder}" if why is None else f"not kept in {folder}: {why}"


def _cuda() -> str:
    """What there is for GPUs, or what is missing."""
    try:
        return str(runtime().describe())
    except DeviceError as error:
        return f"none: {error}"


def warmup(
    pattern: str | None = None,
    shape: Iterable[int] | None = None,
    dtype: Any = "float32",
    *,
    device: str = CPU,
    **keywords: Any,
) -> list[str]:
    """Compile, or load from disk, the kernels of a conversion, so that a first batch is fast.

    >>> import layoutkit
    >>> kernels = layoutkit.warmup("bhwc->bchw", (64, 32, 32, 3), "uint8", to_dtype="float32")
    >>> len(kernels)
    1

    Parameters
    ----------
    pattern, shape, dtype, device, **keywords
        As for `plan`; with `device="cuda"` for arrays that go to a GPU or are on it. Without a
        pattern: the layouts of images (`bhwc`, `bchw`, `chwb`) with 3 and
        with many channels, of uint8 and float32, and uint8 images to normalised float32.

    Returns
    -------
    list of str
        The names of the kernels, which are now loaded. They stay on disk for later processes.

    Raises
    ------
    ArgumentError, DeviceError
        A pattern without a shape, or the other way round; the device is not there.
    """
    place = check_device(device)
    if pattern is not None and shape is not None:
        return _load([plan(pattern, shape, dtype, device=place, **keywords)])
    if pattern is not None or shape is not None or keywords:
        raise ArgumentError("warmup takes a pattern and a shape, or nothing; give both")
    with forks.making:
        from .usual import image_plans

    return _load(image_plans(place))


def _load(plans: Iterable[Plan]) -> list[str]:
    plans = [found for found in plans if found.choice is not None]
    if any(found.target.device != CPU for found in plans):
        from .cuda.program import DeviceProgram

        kept = [DeviceProgram(found, ordinal_of(found.target.device)) for found in plans]
        return sorted({program.warm() for program in kept})
    with forks.making:
        from .cpu.program import Program
        from .kernels.cpu.words import LINE

    if get_num_threads() > 1:
        workers.pool.load()
    jobs = [Program(found).prepare(LINE) for found in plans]
    return sorted({str(job.kernel.spec) for job in jobs})

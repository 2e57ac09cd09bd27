"""What layoutkit found on this machine, and compiling kernels before they are needed.

The kernels that most programs want: what `warmup()` loads, and what wheels bring along.

They are found by planning conversions and sums, never by name, so that a change of the policy
changes what is compiled beforehand too. Every row of ROWS is planned in a small shape and in one
whose result is streamed past the caches, as those are two kernels.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from . import buffers
from ._utils import fork
from .accumulation import Accumulator
from .converter import plan
from .cpu.program import has_half
from .cuda.runtime import check_device, runtime
from .errors import ArgumentError, DeviceError
from .kernels.cpu.accumulate_launch import MAX_NEST, prepare_sum
from .kernels.cpu.compiler import KernelSpec, LoadedKernel
from .kernels.cpu.launch import prepare
from .kernels.cpu.params import LINE
from .planning.accumulate import make_sum_plan, operand
from .planning.options import make_task
from .planning.plan import Plan
from .spec import CPU, ordinal_of
from .threads import limits, pool
from .threads.limits import get_num_threads
from .threads.pool import POOL_KERNELS

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

    with fork.making:
        from .kernels.cpu.compiler import loaded, package_version, target_cpu
        from .kernels.cpu.tiling import lanes

    stats = buffers.stats()
    yield "layoutkit", __version__
    yield "python", f"{platform.python_version()} on {sys.platform} {platform.machine()}"
    for package in ("numpy", "numba", "llvmlite", "ml_dtypes"):
        yield package, package_version(package)
    yield "beside", ", ".join(_others()) or "no other library that it works with"
    yield "cpu", f"{target_cpu()[0]}, vectors of {16 * lanes()} bytes"
    yield "cuda", _cuda()
    yield "threads", f"{get_num_threads()} of {os.cpu_count()} CPUs ({limits.threads_origin()})"
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
    from .kernels.cpu.object_cache import complaint

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

    return _load(image_plans(place))


def _load(plans: Iterable[Plan]) -> list[str]:
    plans = [found for found in plans if found.choice is not None]
    if any(found.target.device != CPU for found in plans):
        from .cuda.program import DeviceProgram

        kept = [DeviceProgram(found, ordinal_of(found.target.device)) for found in plans]
        return sorted({program.warm() for program in kept})
    with fork.making:
        from .cpu.program import Program
        from .kernels.cpu.params import LINE

    if get_num_threads() > 1:
        pool.pool.load()
    jobs = [Program(found).prepare(LINE) for found in plans]
    return sorted({str(job.kernel.spec) for job in jobs})


NORMALISED: dict[str, Any] = {"scale": 1 / 255, "mean": (0.5,) * 3, "std": (0.25,) * 3}
PICTURES = ((8, 32, 32, 3), (64, 224, 224, 3))  # bhwc
WITH_ALPHA = ((8, 32, 32, 4), (64, 224, 224, 4))
FEATURES = ((8, 16, 16, 64), (64, 56, 56, 64))
BETWEEN = ("bhwc->bchw", "bchw->bhwc", "bchw->chwb", "chwb->bchw", "bhwc->chwb", "chwb->bhwc")
# Results from our own pool begin on cache lines. Memory of others (`out=`), and rows that are no
# whole lines, are often on 16 bytes only.
ALIGNMENTS = (LINE, 16)


class Row(NamedTuple):
    """Conversions that many programs make: patterns, shapes of their letters, dtypes."""

    patterns: tuple[str, ...]
    letters: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    keywords: dict[str, Any] = {}  # noqa: RUF012 (it is never changed)


ROWS = (
    # Photographs and their halves and floats, between all three orders of images.
    Row(BETWEEN, "bhwc", PICTURES, ("u1", "f2", "f4")),
    # Pictures with alpha, as screens and PNG files give them, to models and back.
    Row(BETWEEN[:2], "bhwc", WITH_ALPHA, ("u1", "f4")),
    # Feature maps, and with them every matrix: tiles for items of all sizes.
    Row(BETWEEN, "bhwc", FEATURES, ("u1", "f2", "f4", "f8")),
    # What a training loop does to photographs; with one number it is the same kernel.
    *(
        Row(BETWEEN[:1], "bhwc", PICTURES, ("u1",), {"to_dtype": to, **NORMALISED})
        for to in ("f4", "f2", "bfloat16")
    ),
    # The same where the model wants what the decoder gave, and where planes are planes already.
    Row(("bhwc->bhwc", "bchw->bchw"), "bhwc", PICTURES, ("u1",), {"to_dtype": "f4", **NORMALISED}),
    # And back into pictures.
    Row(
        BETWEEN[1:2],
        "bhwc",
        PICTURES,
        ("f4",),
        {"to_dtype": "u1", "casting": "saturate", "scale": 255},
    ),
    # Casts between what models compute in and what data is kept in.
    *(
        Row(("bf->bf",), "bf", ((8, 64), (4096, 4096)), dtypes, {"to_dtype": to})
        for dtypes, to in (
            (("u1", "f2", "bfloat16", "f8"), "f4"),
            (("f4",), "f2"),
            (("f4",), "bfloat16"),
            (("f4",), "f8"),
        )
    ),
    # Heads of attention: runs are copied.
    Row(("bshd->bhsd",), "bshd", ((2, 16, 4, 64), (8, 512, 16, 64)), ("f4", "f2")),
)

# Windows of photographs, as `collate` puts them into a batch.
WINDOW = (224, 224, 3)  # hwc
WINDOWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("hwc->chw", {"dtype": "f4", **NORMALISED}),
    ("hwc->chw", {}),
    ("hwc->hwc", {}),
)

# Gradients of layers that took one batch in two layouts.
SUMS = tuple(
    ((first, second), result)
    for first, second, result in product(("bhwc", "bchw"), ("bhwc", "bchw"), ("bhwc", "bchw"))
)


def image_plans(device: str) -> list[Plan]:
    """Conversions of images with 3 and with many channels, and of photographs for models."""
    shapes = ((8, 16, 16, 3), (64, 224, 224, 3), *FEATURES)
    plans = [
        plan(pattern, _ordered(pattern, "bhwc", shape), dtype, device=device)
        for pattern, shape, dtype in product(BETWEEN, shapes, ("uint8", "float32"))
    ]
    for size in (8, 64):
        shape, to = (size, 224, 224, 3), np.float32
        plans.append(plan("bhwc->bchw", shape, "uint8", to_dtype=to, device=device, **NORMALISED))
    return plans


def kernels() -> list[KernelSpec]:
    """Every kernel of ROWS and SUMS for this CPU, and those of threads; compiles nothing."""
    found = [KernelSpec("threadpool", (part,)) for part in POOL_KERNELS]
    found += _of_conversions(ROWS)
    found += _of_windows()
    found += _of_sums()
    return list(dict.fromkeys(found))


def _of_conversions(rows: Iterable[Row]) -> Iterator[KernelSpec]:
    for patterns, letters, shapes, dtypes, keywords in rows:
        for pattern, shape, dtype in product(patterns, shapes, dtypes):
            found = plan(pattern, _ordered(pattern, letters, shape), dtype, **keywords)
            if found.choice is not None:
                for alignment in ALIGNMENTS:
                    yield prepare(found.choice, found.epilogue, alignment).spec


def _of_windows() -> Iterator[KernelSpec]:
    """Batches of photographs, half of them flipped."""
    yield KernelSpec("collate", ("each",))
    _, width, channels = WINDOW
    for pattern, keywords in WINDOWS:
        for step in (channels, -channels):
            strides = 2 * width * channels, step, 1
            task = make_task(pattern, **keywords)
            found = task.plan(WINDOW, strides, np.dtype(np.uint8), CPU, None, has_half)
            if found.choice is not None:
                yield prepare(found.choice, found.epilogue, LINE, stream=True).spec


def _of_sums() -> list[KernelSpec]:
    asked: list[KernelSpec] = []

    def note(spec: KernelSpec) -> LoadedKernel:
        asked.append(spec)
        return LoadedKernel(spec, 0, None, "noted")

    for (layouts, layout), shape in product(SUMS, (*PICTURES[:1], FEATURES[1])):
        parts = [np.empty(_ordered(part, "bhwc", shape), np.float32) for part in layouts]
        request = Accumulator(layouts, layout).plan(parts, None)
        found = make_sum_plan(request, has_half, MAX_NEST)
        sides = [operand(dtype) for dtype in (request.computed, found.written)]
        for alignment in ALIGNMENTS:
            operands = [operand(dtype) for dtype in found.dtypes]
            prepare_sum(found.nest.loops, operands, sides[0], sides[1], alignment, note)
    return asked


def _ordered(pattern: str, letters: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape in the order of the pattern's left side."""
    sizes = dict(zip(letters, shape, strict=True))
    return tuple(sizes[letter] for letter in pattern.split("->")[0])

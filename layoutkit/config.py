"""`show_config` and `warmup`, and the list of the kernels that wheels contain.

Kernels are listed by planning conversions and sums, never by name, so that a change of the kernel
selection changes the list too. Every row of ROWS is planned for a small shape and for one whose
result is written with streaming stores, as those are two kernels.
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
from ._utils.validation import describe_type
from .accumulation import Accumulator
from .collator import Collator
from .converter import plan
from .cpu.program import supports_float16
from .cuda.runtime import check_device, runtime
from .errors import ArgumentError, DeviceError
from .kernels.cpu.accumulate_launch import MAX_NESTED_LOOPS, prepare_sum
from .kernels.cpu.compiler import KernelSpec, LoadedKernel
from .kernels.cpu.launch import prepare
from .kernels.cpu.params import LINE
from .kernels.cpu.resize_params import HALVING_TAPS
from .options import parse_call
from .planning.accumulate import make_operand, make_sum_plan
from .planning.plan import Plan, make_single_plan
from .plugins import list_plugins
from .spec import CPU, device_ordinal
from .threads import limits, pool
from .threads.limits import get_num_threads
from .threads.pool import POOL_KERNELS

# Optional packages that layoutkit works with.
OPTIONAL_PACKAGES = (
    "pillow",
    "opencv-python",
    "opencv-python-headless",
    "opencv-contrib-python",
    "opencv-contrib-python-headless",
    "torch",
    "jax",
    "dask",
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
    """Print versions, CPU, threads, memory and compiled kernels, for bug reports."""
    for name, value in _config():
        print(f"{name:<10} {value}")


def _config() -> Iterable[tuple[str, object]]:
    from . import __version__

    with fork.init_lock:
        from .kernels.cpu.compiler import cpu_features, loaded, package_version, target_cpu
        from .kernels.cpu.object_cache import describe_shipped
        from .kernels.cpu.tiling import lanes

    stats = buffers.stats()
    yield "layoutkit", __version__
    yield "python", f"{platform.python_version()} on {sys.platform} {platform.machine()}"
    for package in ("numpy", "numba", "llvmlite", "ml_dtypes"):
        yield package, package_version(package)
    yield "beside", ", ".join(_optional_packages()) or "no other library that it works with"
    yield "cpu", f"{target_cpu()[0]}, vectors of {16 * lanes()} bytes"
    yield "cuda", _cuda()
    yield "threads", f"{get_num_threads()} of {os.cpu_count()} CPUs ({limits.threads_origin()})"
    for plugin in list_plugins():
        problem = plugin.problem and f": {plugin.problem}"
        yield "plugin", f"{plugin.table} {plugin.name}: {plugin.package}, {plugin.target}{problem}"
    yield "buffers", ", ".join(f"{name} {value:,}" for name, value in stats.items())
    yield "kernels", f"{len(loaded())} loaded, {_cache_status()}"
    yield "", f"the installation has {describe_shipped(cpu_features())}"
    for kernel in loaded():
        yield "", f"{kernel.spec} ({kernel.origin})"


def _optional_packages() -> Iterable[str]:
    """Yield name and version of each installed optional package, without importing it."""
    from importlib.metadata import PackageNotFoundError, version

    for package in OPTIONAL_PACKAGES:
        with suppress(PackageNotFoundError):
            yield f"{package} {version(package)}"


def _cache_status() -> str:
    """Return the folder of cached kernels, or the reason why they are not cached."""
    from .kernels.cpu.compiler import cache_dir
    from .kernels.cpu.object_cache import cache_problem

    folder = cache_dir()
    if folder is None:
        return "kept in no folder (no home folder)"
    reason = cache_problem(folder)
    return f"kept in {folder}" if reason is None else f"not kept in {folder}: {reason}"


def _cuda() -> str:
    """Return the description of the CUDA runtime, or the reason why there is none."""
    try:
        return str(runtime().describe())
    except DeviceError as error:
        return f"none: {error}"


def warmup(
    pattern: str | None = None,
    shape: Iterable[int] | None = None,
    from_dtype: Any = "float32",
    *,
    device: str = CPU,
    **keywords: Any,
) -> list[str]:
    """Compile, or load from disk, the kernels of a conversion, so that the first batch is fast.

    >>> import layoutkit
    >>> kernels = layoutkit.warmup("bhwc->bchw", (64, 32, 32, 3), "uint8", dtype="float32")
    >>> len(kernels)
    1

    Parameters
    ----------
    pattern, shape, from_dtype, device, **keywords
        As for `plan`; with `device="cuda"` for arrays that go to a GPU or are on it. Without a
        pattern: conversions between the image layouts `bhwc`, `bchw` and `chwb`, with 3 and with
        many channels, of uint8 and float32, and of uint8 images to normalized float32; on the CPU
        also batches of uint8 images (`hwc->bchw`, normalized float32): resized, randomly cropped
        and flipped, and patches of 16 x 16 pixels. For other batches, call `Collator.warmup`.

    Returns
    -------
    list of str
        The names of the loaded kernels. They are cached on disk for later processes.

    Raises
    ------
    ArgumentError, DeviceError
        A pattern without a shape, or a shape without a pattern; the device does not exist.
    """
    device = check_device(device)
    if hasattr(pattern, "warmup"):  # a Collator, or one of fields
        raise ArgumentError(
            f"warmup got {describe_type(pattern)} in place of a pattern; call its own method, with "
            "the shapes of a batch: collator.warmup([shape] * 64)"
        )
    if pattern is not None and shape is not None:
        conversion = plan(pattern, shape, from_dtype, device=device, **keywords)
        if device != CPU and conversion.place is not None:
            return [_warm_padding(conversion, pattern, **keywords)]
        return _load([conversion])
    if pattern is not None or shape is not None or keywords:
        raise ArgumentError(
            "warmup needs a pattern and a shape, or nothing; give both, as in "
            'warmup("bhwc->bchw", (64, 224, 224, 3), "uint8")'
        )

    batches = _warm_batches() if device == CPU else []
    return sorted({*_load(image_plans(device)), *batches})


def _warm_batches() -> list[str]:
    """Load the kernels of BATCHES; return the names of the ones that were not loaded before."""
    names = []
    for (pattern, options), count in product(BATCHES, BATCH_SIZES):
        names += Collator(pattern, **options).warmup([PHOTO_SHAPE] * count)
    return names


def _warm_padding(conversion: Plan, pattern: str, **keywords: Any) -> str:
    """Load the kernels of a padded conversion on a GPU, which also fill the borders."""
    from .cuda.program import DevicePrograms, unallocated

    options = parse_call(pattern, keywords)
    ordinal = device_ordinal(conversion.target.device)
    source = unallocated(conversion.source.shape, conversion.source.dtype, ordinal)
    return DevicePrograms(options).find(source, None).warm()


def _load(plans: Iterable[Plan]) -> list[str]:
    plans = [p for p in plans if p.choice is not None]
    if any(p.target.device != CPU for p in plans):
        from .cuda.program import DeviceProgram

        programs = [DeviceProgram(p, device_ordinal(p.target.device)) for p in plans]
        return sorted({program.warm() for program in programs})
    with fork.init_lock:
        from .cpu.program import Program
        from .kernels.cpu.params import LINE

    if get_num_threads() > 1:
        pool.pool.load()
    jobs = [Program(p).prepare(LINE) for p in plans]
    return sorted({str(job.kernel.spec) for job in jobs})


NORMALIZED: dict[str, Any] = {"scale": 1 / 255, "mean": (0.5,) * 3, "std": (0.25,) * 3}
PHOTO_SHAPE = (336, 448, 3)  # of a sample, in whole patches
WINDOW = {"h": 224, "w": 224}
BATCH_SIZES = (8, 64)  # small and large batches have different kernels
BATCHES: tuple[tuple[str, dict[str, Any]], ...] = tuple(
    (pattern, {**options, **NORMALIZED, "dtype": "float32"})
    for pattern, options in (
        ("hwc->bchw", {**WINDOW, "resize": "bilinear", "crop": "random", "flip": "random"}),
        ("hwc->bchw", {**WINDOW, "offset": "random", "flip": "random"}),
        ("(hp)(wq)c->b(hw)(pqc)", {"p": 16, "q": 16}),
    )
)
PHOTOS = ((8, 32, 32, 3), (64, 224, 224, 3))  # bhwc
WITH_ALPHA = ((8, 32, 32, 4), (64, 224, 224, 4))
FEATURES = ((8, 16, 16, 64), (64, 56, 56, 64))
BETWEEN = ("bhwc->bchw", "bchw->bhwc", "bchw->chwb", "chwb->bchw", "bhwc->chwb", "chwb->bhwc")
# Results in memory of our pool begin on cache lines. Other memory (`out=`), and rows that are not a
# multiple of a cache line, are often aligned to 16 bytes only.
ALIGNMENTS = (LINE, 16)
# Larger results are streamed on CPUs with small caches. The kernels of both cases are listed, so
# that the list does not depend on the CPU.
MAY_STREAM = 1 << 20


class Row(NamedTuple):
    """Common conversions: patterns, shapes in the order of `letters`, and dtypes."""

    patterns: tuple[str, ...]
    letters: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    keywords: dict[str, Any] = {}  # noqa: RUF012 (never modified)


ROWS = (
    # Photos as uint8, float16 and float32, between all three image layouts.
    Row(BETWEEN, "bhwc", PHOTOS, ("u1", "f2", "f4")),
    # Images with alpha, such as screenshots and PNG files, to models and back.
    Row(BETWEEN[:2], "bhwc", WITH_ALPHA, ("u1", "f4")),
    # Feature maps, which use the kernels of all matrices: tiles for items of all sizes.
    Row(BETWEEN, "bhwc", FEATURES, ("u1", "f2", "f4", "f8")),
    # Normalization of photos in a training loop; scalar constants use this kernel too.
    *(
        Row(BETWEEN[:1], "bhwc", PHOTOS, ("u1",), {"dtype": to, **NORMALIZED})
        for to in ("f4", "f2", "bfloat16")
    ),
    # Normalization without a change of the layout.
    Row(("bhwc->bhwc", "bchw->bchw"), "bhwc", PHOTOS, ("u1",), {"dtype": "f4", **NORMALIZED}),
    # Back to images.
    Row(
        BETWEEN[1:2],
        "bhwc",
        PHOTOS,
        ("f4",),
        {"dtype": "u1", "casting": "saturate", "scale": 255},
    ),
    # Casts between dtypes of models and of data.
    *(
        Row(("bf->bf",), "bf", ((8, 64), (4096, 4096)), dtypes, {"dtype": to})
        for dtypes, to in (
            (("u1", "f2", "bfloat16", "f8"), "f4"),
            (("f4",), "f2"),
            (("f4",), "bfloat16"),
            (("f4",), "f8"),
        )
    ),
    # Attention heads: contiguous runs are copied.
    Row(("bshd->bhsd",), "bshd", ((2, 16, 4, 64), (8, 512, 16, 64)), ("f4", "f2")),
)


class WindowRow(NamedTuple):
    """Usual windows of samples, as `collate` puts them into a batch."""

    patterns: tuple[str, ...]  # of one window
    window: tuple[int, ...]  # sizes in the order of the patterns' left sides
    strides: tuple[tuple[int, ...], ...]  # of samples, in items
    dtype: str  # of samples
    options: tuple[dict[str, Any], ...]


# Strides of samples, in items. Windows are parts of larger samples; negative strides are mirrored.
PHOTO = (224, 224, 3)  # hwc
PHOTO_STRIDES = ((1344, 3, 1), (1344, -3, 1))
PLANES = (3, 224, 224)  # chw
PLANE_STRIDES = ((1 << 18, 448, 1), (1 << 18, 448, -1))
MASK = (224, 224)  # hw
MASK_STRIDES = ((448, 1), (448, -1), (224, 1), (224, -1))  # "nearest" gathers contiguous rows
# The kernel "resize" sums 16 rows of the result, which are contiguous.
PHOTO_BLOCK, PHOTO_BLOCK_STRIDES = (16, 224, 3), ((1, 48, 16),)
MASK_BLOCK, MASK_BLOCK_STRIDES = (16, 224), ((1, 16),)
PATCHES = ("(hp)(wq)c->(hw)(cpq)", "(hp)(wq)c->(hw)(pqc)")
PATCH_SIZES = {"p": 14, "q": 14}
PATCH_STRIDES = ((672, 3, 1),)
PATCH_BLOCK, PATCH_BLOCK_STRIDES = (14, 224, 3), ((1, 48, 16),)  # as PHOTO_BLOCK, of whole patches

TO_BYTES: dict[str, Any] = {"dtype": "u1", "casting": "saturate"}
TO_CLASSES: dict[str, Any] = {"dtype": "i8", "casting": "saturate"}
NORMALIZED_DTYPES: tuple[dict[str, Any], ...] = (
    {"dtype": "f4", **NORMALIZED},
    {"dtype": "bfloat16", **NORMALIZED},
)
TO_FLOATS: tuple[dict[str, Any], ...] = (
    {"dtype": "f4"},
    {"dtype": "f4", "scale": 1 / 255},
    *NORMALIZED_DTYPES,
)
PHOTO_PATTERNS = ("hwc->chw", "hwc->hwc")
WINDOWS = (
    # Crops of photos and masks, some of them mirrored.
    WindowRow(PHOTO_PATTERNS, PHOTO, PHOTO_STRIDES, "u1", ({}, *TO_FLOATS)),
    WindowRow(PHOTO_PATTERNS[:1], PHOTO, PHOTO_STRIDES, "f4", ({},)),
    WindowRow(("chw->chw",), PLANES, PLANE_STRIDES, "u1", ({}, NORMALIZED_DTYPES[0])),
    WindowRow(("hw->hw",), MASK, MASK_STRIDES, "u1", ({}, {"dtype": "i8"}, TO_CLASSES)),
    WindowRow(("hw->hw",), MASK, MASK_STRIDES, "i8", ({},)),
    # Resized photos and masks.
    WindowRow(PHOTO_PATTERNS, PHOTO_BLOCK, PHOTO_BLOCK_STRIDES, "f4", (TO_BYTES, *TO_FLOATS)),
    WindowRow(("hw->hw",), MASK_BLOCK, MASK_BLOCK_STRIDES, "f4", (TO_BYTES, TO_CLASSES)),
    # Patches for vision transformers, of photos and of resized photos.
    WindowRow(PATCHES, PHOTO, PATCH_STRIDES, "u1", ({}, *NORMALIZED_DTYPES)),
    WindowRow(PATCHES, PATCH_BLOCK, PATCH_BLOCK_STRIDES, "f4", (TO_BYTES, *NORMALIZED_DTYPES)),
)

# Sums of gradients of a batch that was used in two layouts.
SUMS = tuple(
    ((first, second), result)
    for first, second, result in product(("bhwc", "bchw"), ("bhwc", "bchw"), ("bhwc", "bchw"))
)


def image_plans(device: str) -> list[Plan]:
    """Return plans of images with 3 and with many channels, and of photos for models."""
    shapes = ((8, 16, 16, 3), (64, 224, 224, 3), *FEATURES)
    plans = [
        plan(pattern, _ordered(pattern, "bhwc", shape), dtype, device=device)
        for pattern, shape, dtype in product(BETWEEN, shapes, ("uint8", "float32"))
    ]
    for size in (8, 64):
        shape = (size, 224, 224, 3)
        options = {"dtype": np.float32, "device": device, **NORMALIZED}
        plans.append(plan("bhwc->bchw", shape, "uint8", **options))
    return plans


def kernels() -> list[KernelSpec]:
    """Return the kernels of ROWS, WINDOWS and SUMS for this CPU and of the thread pool."""
    specs = [KernelSpec("threadpool", (part,)) for part in POOL_KERNELS]
    specs += [KernelSpec("direct", ()), KernelSpec("xla", ())]
    specs += _conversion_kernels(ROWS)
    specs += _window_kernels()
    specs += _sum_kernels()
    return list(dict.fromkeys(specs))


def _conversion_kernels(rows: Iterable[Row]) -> Iterator[KernelSpec]:
    for patterns, letters, shapes, dtypes, keywords in rows:
        for pattern, shape, dtype in product(patterns, shapes, dtypes):
            p = plan(pattern, _ordered(pattern, letters, shape), dtype, **keywords)
            if p.choice is not None:
                streams = (False, True) if p.target.nbytes >= MAY_STREAM else (False,)
                for alignment, stream in product(ALIGNMENTS, streams):
                    yield prepare(p.choice, p.epilogue, alignment, stream).spec


def _window_kernels() -> Iterator[KernelSpec]:
    """Yield the kernels of batches of crops, resized samples and patches, and of video frames."""
    yield KernelSpec("collate", ("windows",))
    yield KernelSpec("collate", ("headers",))
    yield KernelSpec("collate", ("each",))
    for role in ("fit", "draw", "crop"):
        yield KernelSpec("placement", (role,))
    yield KernelSpec("taps", ())
    yield KernelSpec("yuv", ("frames",))
    yield KernelSpec("yuv", ("wide",))
    for dtype in ("u1", "f4"):
        for pixels in ("all", "valid"):
            yield KernelSpec("resize", (dtype, pixels))
    for taps in HALVING_TAPS:
        yield KernelSpec("halve", (PHOTO[-1], taps))
    for row in WINDOWS:
        source = np.dtype(row.dtype)
        sizes = PATCH_SIZES if row.patterns is PATCHES else {}
        for pattern, strides, options in product(row.patterns, row.strides, row.options):
            steps = tuple(source.itemsize * stride for stride in strides)
            p = make_single_plan(
                parse_call(pattern, {**options, **sizes}),
                row.window, steps, source, CPU, None, supports_float16,
            )  # fmt: skip
            if p.choice is not None:
                for stream in (False, True):
                    yield prepare(p.choice, p.epilogue, LINE, stream).spec


def _sum_kernels() -> list[KernelSpec]:
    specs: list[KernelSpec] = []

    def record(spec: KernelSpec) -> LoadedKernel:
        specs.append(spec)
        return LoadedKernel(spec, 0, None, "noted")

    for (layouts, layout), shape in product(SUMS, (*PHOTOS[:1], FEATURES[1])):
        parts = [np.empty(_ordered(part, "bhwc", shape), np.float32) for part in layouts]
        request = Accumulator(layouts, layout).plan(parts, None)
        sum_plan = make_sum_plan(request, supports_float16, MAX_NESTED_LOOPS)
        sides = [make_operand(dtype) for dtype in (request.computed, sum_plan.written)]
        for alignment in ALIGNMENTS:
            operands = [make_operand(dtype) for dtype in sum_plan.dtypes]
            prepare_sum(sum_plan.nest.loops, operands, sides[0], sides[1], alignment, record)
    return specs


def _ordered(pattern: str, letters: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape in the axis order of the pattern's left side."""
    sizes = dict(zip(letters, shape, strict=True))
    return tuple(sizes[letter] for letter in pattern.split("->")[0])

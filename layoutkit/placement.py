"""The placements and the random values of samples, computed by kernels, for every executor.

`planning.batch` defines both, in NumPy. Kernels compute the usual cases in a tenth of the time;
`kernels/cpu/placement_params.py` describes their parameter blocks.
"""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ._utils import fork
from .kernels.cpu import placement_params as t
from .memory import Array, addresses
from .planning.batch import placement
from .planning.batch.arguments import CropArgs, PerSampleArgs
from .planning.batch.placement import Fields, Placements, WindowArgs
from .planning.batch.random import Draws
from .planning.batch.random import draw_values as draw_by_numpy
from .planning.fitting import TRIES

if TYPE_CHECKING:
    from .options import CollateOptions
    from .planning.batch.samples import SampleAxes


def place(
    options: CollateOptions,
    axes: SampleAxes,
    window: tuple[int, ...],
    shapes: Array,
    args: CropArgs,
) -> Placements:
    """Return the placements of samples of `shapes`; see `planning.batch.placement.place`."""
    return placement.place(options, axes, window, shapes, args, _compute_fields)


def _compute_fields(
    options: CollateOptions,
    axes: SampleAxes,
    window: tuple[int, ...],
    lengths: Array,
    args: WindowArgs,
) -> Fields:
    resize = options.resize
    by_numpy = resize is not None and (resize.pad_before or resize.max_side is not None)
    if not (axes.longest or by_numpy):
        count, ndim = lengths.shape
        fit, may_fill, side = t.CROP, options.fill is not None, 0
        if resize is not None:
            side = resize.short_side or 0
            fit, may_fill = t.FITS.index(resize.fit) if side == 0 else t.SHORT, options.may_fill
        fields = np.empty((len(Fields._fields), count, ndim), np.int64)
        sizes = np.ascontiguousarray(lengths)
        source, target, *pointers = addresses(
            [sizes, fields, *args.crops.values(), *args.offsets.values()]
        )
        block = struct.pack(
            f"{t.FIT_WORDS + t.AXIS_ARRAYS * ndim}q",
            *(count, ndim, fit, side, options.center == "floor", may_fill),
            *window,
            *map(axes.resized.__contains__, axes.cropped_names),
            *_arrange_pointers((args.crops, args.offsets), pointers, ndim),
        )
        if not _load_kernel("fit")(block, source, target, 0, count):
            return Fields(*fields)
    return placement.compute_fields(options, axes, window, lengths, args)  # perhaps an error


def _arrange_pointers(
    arrays: tuple[PerSampleArgs, ...], pointers: list[int], ndim: int
) -> list[int]:
    """Return for each argument the pointer of each axis, or 0, and the bytes between two values."""
    words = [0] * (2 * ndim * len(arrays))
    remaining = iter(pointers)
    for first, by_axis in zip(range(0, len(words), 2 * ndim), arrays, strict=False):
        for axis, values in by_axis.items():
            words[first + axis] = next(remaining)
            words[first + ndim + axis] = values.strides[0] if values.ndim else 0
    return words


def draw_values(draws: Draws, shapes: Array) -> Array:
    """Return the drawn values of samples of `shapes`; see `planning.batch.random.draw_values`."""
    crop, keys = draws.crop, draws.keys
    if crop is not None and crop.exchanges:
        return draw_by_numpy(draws, shapes)
    count, ndim = shapes.shape
    shapes, positions = map(np.ascontiguousarray, (shapes, draws.positions))
    words, ratios = np.empty(count, np.uint64), np.empty((count, TRIES))  # of random crops
    values = np.empty((len(draws.offsets) + draws.flips + 4 * (crop is not None), count), np.int64)
    arrays = [shapes, values, positions, keys, words, ratios]
    sizes, target, *pointers = addresses(arrays)
    block = struct.pack(
        f"{t.RATIO}q2d{2 * len(draws.offsets)}q",
        *(count, ndim, *pointers[:2]),
        *((keys.strides[1] if keys.shape[1] > 1 else 0), keys.strides[0]),
        *(len(draws.offsets), draws.flips),
        *((0, 0) if crop is None else pointers[2:]),
        *((0, 0) if crop is None else crop.ratio_bounds),
        *chain.from_iterable(draws.offsets),
    )
    _load_kernel("draw")(block, sizes, target, 0, count)
    if crop is not None:
        if crop.is_log:  # by NumPy, as the functions of C libraries differ in the last bit
            np.exp(ratios, out=ratios)
        windows = values[-4:]
        block = struct.pack(
            f"{t.C_SCALE}q2d", count, ndim, *pointers[2:], *draws.sides, *crop.scale
        )
        target += values.nbytes - windows.nbytes
        if _load_kernel("crop")(block, sizes, target, 0, count):
            (central,) = (windows[2] == 0).nonzero()
            crops = crop.find_central(shapes[central][:, draws.sides])
            windows[:, central] = np.concatenate([columns.T for columns in crops])
    return values


@cache
def _load_kernel(role: str) -> Any:
    """Return a function that calls a kernel with the GIL held, and returns its number."""
    with fork.init_lock:
        from .kernels.cpu.compiler import TYPES, KernelSpec, load

        prototype = ctypes.PYFUNCTYPE(ctypes.c_ssize_t, *TYPES[1:])
        return prototype(load(KernelSpec("placement", (role,))).address)

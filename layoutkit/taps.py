"""The tap tables of resized samples, for the executors of every device.

A sample that is resized along an axis has, for each position of its window, the source positions
(taps) that contribute to it, and their weights. A kernel of the CPU computes them in float64, as
`kernels/cpu/resize_params.py` describes the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import numpy as np

from ._utils import fork
from .buffers import empty_with_address
from .kernels.cpu import resize_params as t
from .memory import Array, data_pointer
from .planning.resize import FILTERS, ResizeOptions
from .spec import DType
from .threads.pool import Job

RADIUS = {"nearest": 0.5, "bilinear": 1, "bicubic": 2, "lanczos": 3, "area": 0.5}
WORK = 8  # the time of resampling a byte, in bytes converted


class AxisPlacement(NamedTuple):
    """The placement of samples along one axis: arrays of one number per sample.

    length          positions of the window
    sizes, scaled, firsts   see `Placements`
    reversed        whether the window is flipped
    """

    length: int
    sizes: Array
    scaled: Array
    firsts: Array | int = 0
    reversed: Array | bool = False


def tap_tables(
    resize: ResizeOptions,
    axes: Sequence[AxisPlacement],
    summed: DType,
    threads: int | None = None,
) -> tuple[Array, list[Array], list[int]]:
    """Return memory with the tap tables of samples along several axes, with weights of a dtype.

    Also return, for each axis, the address of each sample's table (or one, if all samples share
    it), and the largest number of taps.
    """
    requests, longest = zip(*(_requests_of(resize, summed, *axis) for axis in axes), strict=True)
    nbytes = [_table_bytes(rows[0]) for rows in requests]
    total = sum(len(rows) * size for rows, size in zip(requests, nbytes, strict=True))
    memory, address = empty_with_address((total,), np.dtype(np.uint8))
    for rows, size in zip(requests, nbytes, strict=True):
        rows[:, t.T_TABLE] = address + np.arange(len(rows)) * size
        address += len(rows) * size
    every = np.concatenate(requests)
    with fork.init_lock:
        from .kernels.cpu.compiler import KernelSpec, load

        kernel = load(KernelSpec("resize", ("taps",)))
    Job(kernel, bytes(8), len(every), 1, total * WORK, threads).run(data_pointer(every), 0)
    return memory, [rows[:, t.T_TABLE] for rows in requests], list(longest)


def _requests_of(
    resize: ResizeOptions,
    summed: DType,
    count: int,
    sizes: Array,
    scaled: Array,
    firsts: Array | int,
    is_reversed: Array | bool,
) -> tuple[Array, int]:
    """Return the requests for tap tables of `count` positions, and the largest number of taps.

    The other arguments have an entry per sample. There is a single request if all are equal.
    """
    rows = np.zeros((len(sizes), t.REQUEST), np.int64)
    rows[:, t.T_COUNT] = count
    rows[:, t.T_SIZE] = sizes
    rows[:, t.T_SCALED] = scaled
    rows[:, t.T_FIRST] = firsts
    rows[:, t.T_FLAGS] = np.multiply(is_reversed, t.REVERSED)
    rows[:, t.T_FLAGS] += FILTERS.index(resize.filter) + t.ANTIALIAS * resize.antialias
    rows[:, t.T_FLAGS] += t.DOUBLE * (summed.itemsize == 8)
    if (rows == rows[0]).all():
        rows = rows[:1]
    scale = float((rows[:, t.T_SIZE] / rows[:, t.T_SCALED]).max())
    widens = resize.antialias or resize.filter == "area"
    taps = 2 * ceil(RADIUS[resize.filter] * (max(scale, 1) if widens else 1)) + 1
    rows[:, t.T_PITCH] = -(-taps * summed.itemsize // 8) * 8
    return rows, taps


def _table_bytes(request: Array) -> int:
    return int(8 * t.HEAD + request[t.T_COUNT] * (8 * t.POSITION + request[t.T_PITCH]))


def axis_taps(
    resize: ResizeOptions, count: int, size: int, scaled: int, first: int, summed: DType
) -> tuple[Array, Array]:
    """Return the source positions of `count` scaled positions from `first` on, and their weights.

    Both are (count, taps); the source position is -1 where a scaled position has fewer taps. Scaled
    positions outside of the scaled source have none. `summed` is the dtype of the weights, float32
    or float64.
    """
    axis = AxisPlacement(count, *np.array([[size], [scaled], [first]]))
    memory = tap_tables(resize, [axis], summed)[0]
    heads = memory[8 * t.HEAD :][: 8 * t.POSITION * count].view(np.int64)
    firsts, taps = heads.reshape(count, t.POSITION).T
    weights = memory[8 * (t.HEAD + t.POSITION * count) :].view(summed).reshape(count, -1)
    numbers = np.arange(max(1, taps.max(initial=0)))
    is_tap = numbers < taps[:, None]
    positions = np.where(is_tap, firsts[:, None] + numbers, -1)
    return positions, np.where(is_tap, weights[:, : len(numbers)], 0)

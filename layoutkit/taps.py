"""The tap tables of resized samples, for the executors of every device.

A sample that is resized along an axis has, for each position of its window, the source positions
(taps) that contribute to it, and their weights. A kernel of the CPU computes them in float64, as
`kernels/cpu/resize_params.py` describes the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ._utils import fork
from .buffers import empty_with_address
from .kernels.cpu import resize_params as t
from .memory import Array, data_pointer
from .planning.batch.placement import Placements
from .planning.batch.weights import tap_counts
from .planning.resize import FILTERS, ResizeOptions
from .spec import DType
from .threads.pool import Job

WORK = 8  # the time of resampling a byte, in bytes converted


def tap_tables(
    resize: ResizeOptions,
    placements: Placements,
    axes: Sequence[int | None],
    summed: DType,
    threads: int | None = None,
) -> tuple[Array, list[Array], list[int]]:
    """Return memory with the tap tables of samples along axes, with weights of a dtype.

    Also return, for each axis, the address of each sample's table (or one, if all samples share
    it), and the largest number of taps. The axis None has one position.
    """
    count = len(placements.sizes)
    rows = np.zeros((len(axes), count, t.REQUEST), np.int64)
    rows[..., t.T_COUNT : t.T_SCALED + 1] = 1
    for row, axis in zip(rows, axes, strict=True):
        if axis is not None:
            row[:, t.T_COUNT] = placements.window[axis]
            row[:, t.T_SIZE] = placements.sizes[:, axis]
            row[:, t.T_SCALED] = placements.scaled[:, axis]
            row[:, t.T_FIRST] = placements.firsts[:, axis]
            row[:, t.T_FLAGS] = placements.flips[:, axis] * t.REVERSED
    rows[..., t.T_FLAGS] += FILTERS.index(resize.filter) + t.ANTIALIAS * resize.antialias
    rows[..., t.T_FLAGS] += t.DOUBLE * (summed.itemsize == 8)
    longest = tap_counts(resize, rows[..., t.T_SIZE] / rows[..., t.T_SCALED]).tolist()
    are_equal = np.logical_and.reduce(rows == rows[:, :1], (1, 2))
    requests, total = [], 0
    for row, taps, is_shared in zip(rows, longest, are_equal, strict=True):
        row = row[:1] if is_shared else row
        pitch = -(-taps * summed.itemsize // 8) * 8
        nbytes = 8 * t.HEAD + int(row[0, t.T_COUNT]) * (8 * t.POSITION + pitch)
        row[:, t.T_PITCH] = pitch
        row[:, t.T_TABLE] = total + np.arange(len(row)) * nbytes
        total += len(row) * nbytes
        requests.append(row)
    memory, address = empty_with_address((total,), np.dtype(np.uint8))
    addresses = []
    for row in requests:
        row[:, t.T_TABLE] += address
        addresses.append(row[:, t.T_TABLE])
    every = np.concatenate(requests)
    job = Job(_taps_kernel(), bytes(8), len(every), 1, total * WORK, threads)
    job.run(data_pointer(every), 0)
    return memory, addresses, longest


@cache
def _taps_kernel() -> Any:
    with fork.init_lock:
        from .kernels.cpu.compiler import KernelSpec, load

        return load(KernelSpec("resize", ("taps",)))


def axis_taps(
    resize: ResizeOptions, placements: Placements, number: int, axis: int, summed: DType
) -> tuple[Array, Array]:
    """Return the source positions of a sample's window along an axis, and their weights.

    The window is not flipped. Both are (positions, taps); a source position is -1 where a position
    has fewer taps, or none outside of the scaled source. `summed` is the dtype of the weights,
    float32 or float64.
    """
    count = placements.window[axis]
    row = placements.rows([number])
    row.flips[:] = False
    memory = tap_tables(resize, row, [axis], summed)[0]
    heads = memory[8 * t.HEAD :][: 8 * t.POSITION * count].view(np.int64)
    firsts, taps = heads.reshape(count, t.POSITION).T
    weights = memory[8 * (t.HEAD + t.POSITION * count) :].view(summed).reshape(count, -1)
    numbers = np.arange(max(1, taps.max(initial=0)))
    is_tap = numbers < taps[:, None]
    positions = np.where(is_tap, row.begins[0, axis] + firsts[:, None] + numbers, -1)
    return positions, np.where(is_tap, weights[:, : len(numbers)], 0)

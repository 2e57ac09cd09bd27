"""The tap tables of resized samples, for the executors of every device.

A tap is a source position that contributes to a position of the window, with a weight. The table of
a sample and an axis lists the taps of each position. A CPU kernel computes the weights in float64;
`kernels/cpu/resize_params.py` describes the memory of tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np

from ._utils import fork
from .buffers import empty_with_address
from .kernels.cpu import resize_params as t
from .memory import Array, data_pointer
from .options import CollateOptions, parse_collate_options
from .planning.batch.placement import Placements
from .planning.batch.weights import count_taps
from .planning.resize import FILTERS, ResizeOptions
from .spec import DType
from .threads.pool import Job

RESAMPLING_COST = 8  # bytes that are converted in the time of resampling one


class TapTables(NamedTuple):
    """The tap tables of samples along some axes. Samples with equal taps share a table."""

    memory: Array  # of all tables, as bytes
    addresses: list[Array]  # by axis: of the tables of samples, or one if all share a table
    longest: list[int]  # by axis: an upper bound of the number of taps of a position
    counts: Array  # (axes, samples) int64: the numbers of positions
    pitches: list[int]  # by axis: the bytes between the weights of two positions
    numbers: list[Array]  # by axis: the number of each of `addresses` in the order of the memory

    def read_heads(self, axis: int) -> list[Array]:
        """Return the first tap and the number of taps of each position, in the distinct tables.

        The arrays are views, int64 (tables, positions, 2), one for each run of tables with the same
        number of positions.
        """
        numbers = self.numbers[axis]
        counts = np.zeros(numbers.max() + 1, np.int64)
        counts[numbers] = self.counts[axis, : len(numbers)]
        start = int(self.addresses[axis].min()) - data_pointer(self.memory)
        groups = []
        for count, group in groupby(counts.tolist()):
            tables = len([*group])
            nbytes = 8 * t.HEAD + count * (8 * t.POSITION + self.pitches[axis])
            rows = self.memory[start : start + tables * nbytes].reshape(tables, nbytes)
            heads = rows[:, 8 * t.HEAD : 8 * (t.HEAD + t.POSITION * count)].view(np.int64)
            groups.append(heads.reshape(tables, count, t.POSITION))
            start += tables * nbytes
        return groups


def make_tap_tables(
    resize: ResizeOptions,
    placements: Placements,
    axes: Sequence[int | None],
    summed: DType,
    threads: int | None = None,
) -> TapTables:
    """Return the tap tables of samples along axes, with weights of the dtype `summed`.

    The axis None has one position.
    """
    count = len(placements.sizes)
    rows = np.zeros((len(axes), count, t.REQUEST), np.int64)
    rows[..., t.T_COUNT : t.T_SCALED + 1] = 1
    windows = np.array([placements.window]) if placements.window else placements.scaled
    for row, axis in zip(rows, axes, strict=True):
        if axis is not None:
            row[:, t.T_COUNT] = windows[:, axis]
            row[:, t.T_SIZE] = placements.sizes[:, axis]
            row[:, t.T_SCALED] = placements.scaled[:, axis]
            row[:, t.T_FIRST] = placements.firsts[:, axis]
            row[:, t.T_FLAGS] = placements.flips[:, axis] * t.REVERSED
    rows[..., t.T_FLAGS] += FILTERS.index(resize.filter) + t.ANTIALIAS * resize.antialias
    rows[..., t.T_FLAGS] += t.DOUBLE * (summed.itemsize == 8)
    longest = count_taps(resize, rows[..., t.T_SIZE] / rows[..., t.T_SCALED])
    pitches = _compute_row_bytes(longest, summed.itemsize).tolist()
    requests, numbers, total = [], [], 0
    for row, pitch in zip(rows, pitches, strict=True):
        row, tables = _find_distinct(row)
        numbers.append(tables)
        ends = (8 * t.HEAD + row[:, t.T_COUNT] * (8 * t.POSITION + pitch)).cumsum()
        row[:, t.T_PITCH] = pitch
        row[1:, t.T_TABLE] = ends[:-1]
        row[:, t.T_TABLE] += total
        total += int(ends[-1])
        requests.append(row)
    memory, address = empty_with_address((total,), np.dtype(np.uint8))
    addresses = []
    for row, tables in zip(requests, numbers, strict=True):
        row[:, t.T_TABLE] += address
        addresses.append(row[tables, t.T_TABLE])
    table = np.concatenate(requests)
    job = Job(_load_kernel(), bytes(8), len(table), 1, total * RESAMPLING_COST, threads)
    job.run(data_pointer(table), 0)
    return TapTables(memory, addresses, longest.tolist(), rows[..., t.T_COUNT], pitches, numbers)


# Rows are compared by a sum of products with odd numbers, modulo 2**64, before they are compared
# word by word.
_KEY_FACTORS = np.uint64(0x9E3779B97F4A7C15) ** np.arange(t.REQUEST, dtype=np.uint64)


def _find_distinct(rows: Array) -> tuple[Array, Array]:
    """Return a copy of the distinct rows, and the number of each row among them; one for all."""
    if np.logical_and.reduce(rows == rows[:1], None):
        return rows[:1].copy(), np.zeros(1, np.int64)
    keys = rows.view(np.uint64) @ _KEY_FACTORS
    order = keys.argsort()  # as numpy.unique does, with fewer calls
    ordered = keys[order]
    is_first = np.empty(len(rows), bool)
    is_first[0], is_first[1:] = True, ordered[1:] != ordered[:-1]
    numbers = np.empty(len(rows), np.int64)
    numbers[order] = is_first.cumsum() - 1
    distinct = rows[order[is_first]]
    if np.logical_or.reduce(distinct[numbers] != rows, None):
        return rows.copy(), np.arange(len(rows))
    return distinct, numbers


def _compute_row_bytes(taps: Any, itemsize: int) -> Any:
    """Return the size of the weights of a position."""
    return -(-taps // t.TAP_GROUP) * t.TAP_GROUP * itemsize


@cache
def _load_kernel() -> Any:
    with fork.init_lock:
        from .kernels.cpu.compiler import KernelSpec, load

        return load(KernelSpec("taps", ()))


class _Taps(NamedTuple):
    """The contents of tap tables."""

    firsts: Array  # (tables, positions) int64: the first tap
    counts: Array  # (tables, positions) int64: the number of taps
    weights: Array  # (tables, positions, taps)

    @classmethod
    def read(cls, tables: Array, count: int, summed: DType) -> _Taps:
        """Return the contents of tables of `count` positions; `tables` is (tables, bytes) uint8."""
        ends = np.cumsum([8 * t.HEAD, 8 * t.POSITION * count])
        _, heads, weights = np.split(tables, ends, 1)
        heads = np.ascontiguousarray(heads).view(np.int64).reshape(-1, count, t.POSITION)
        weights = np.ascontiguousarray(weights).view(summed).reshape(len(tables), count, -1)
        return cls(heads[..., 0], heads[..., 1], weights)

    def to_bytes(self) -> Array:
        """Return the memory of the tables, (tables, bytes) uint8; the inverse of `read`."""
        tables, count, taps = self.weights.shape
        item = self.weights.itemsize
        pitch = _compute_row_bytes(taps, item)
        weights = np.zeros((tables, count, pitch // item), self.weights.dtype)
        weights[..., :taps] = self.weights
        heads = np.stack([self.firsts, self.counts], -1).reshape(tables, -1)
        parts = np.full((tables, t.HEAD), pitch), heads, weights.reshape(tables, -1).view(np.int64)
        return np.concatenate(parts, 1).view(np.uint8)

    def positions(self) -> tuple[Array, Array]:
        """Return the source position of each tap, and False for taps beyond `counts`."""
        numbers = np.arange(self.weights.shape[2])
        return self.firsts[..., None] + numbers, numbers < self.counts[..., None]

    def transposed(self, begins: Array, length: int, part: int | None) -> _Taps:
        """Return the transposed tables: the taps of a source position are window positions.

        There is a table for each item of `begins`, the index in a source of `length` positions
        that these taps call position 0. Weights of 0 fill gaps between taps; with `part` k, a table
        has only the taps after the k-th gap, up to the next one.
        """
        sources, is_tap = (
            np.broadcast_to(x, (len(begins), *x.shape[1:])) for x in self.positions()
        )
        sources = sources + begins[:, None, None]
        table, position, tap = np.nonzero(is_tap & (sources >= 0) & (sources < length))
        row = table * length + sources[table, position, tap]
        if part is not None:
            chosen = _count_gaps(row, position) == part
            table, position, tap, row = (x[chosen] for x in (table, position, tap, row))
        firsts, lasts = np.zeros((2, len(begins) * length), np.int64)
        lasts[:] = -1
        # Positions ascend, and the last assignment to an element remains.
        lasts[row] = position
        firsts[row[::-1]] = position[::-1]
        counts = lasts - firsts + 1
        weights = np.zeros((len(counts), counts.max(initial=1)), self.weights.dtype)
        weights[row, position - firsts[row]] = self.weights[
            table % len(self.weights), position, tap
        ]
        shape = len(begins), length
        return _Taps(firsts.reshape(shape), counts.reshape(shape), weights.reshape(*shape, -1))


def _count_gaps(rows: Array, positions: Array) -> Array:
    """Return, for each pair of a row and a position, the number of gaps before it in its row."""
    order = np.lexsort((positions, rows))
    rows, positions = rows[order], positions[order]
    is_first = np.diff(rows, prepend=-1) != 0
    gaps = np.cumsum((np.diff(positions, prepend=0) > 1) & ~is_first)
    starts = np.maximum.accumulate(np.where(is_first, np.arange(len(rows)), 0))
    result = np.empty_like(order)
    result[order] = gaps - gaps[starts]
    return result


def make_transposed_tap_tables(
    resize: ResizeOptions,
    placements: Placements,
    axes: Sequence[int | None],
    summed: DType,
    parts: Mapping[int, int],
    threads: int | None = None,
) -> TapTables:
    """Return the transposed tap tables of samples of one shape, in the form of `make_tap_tables`.

    The taps of a position of the sample are the positions of the window that depend on it. `parts`
    has the part to return (see `count_parts`) by axis; other axes have whole tables.
    """
    begins = placements.begins
    tables = []
    for axis in axes:
        axis_tables = make_tap_tables(resize, placements, [axis], summed, threads)
        (numbers,) = axis_tables.numbers
        count = 1 if axis is None else placements.window[axis]
        distinct = axis_tables.memory.reshape(numbers.max() + 1, -1)
        taps = _Taps.read(distinct[numbers], count, summed)
        along = np.zeros(len(begins), np.int64) if axis is None else begins[:, axis]
        along = along[:1] if len(numbers) == 1 and (along == along[0]).all() else along
        length = 1 if axis is None else int(placements.lengths[0, axis])
        tables.append(taps.transposed(along, length, None if axis is None else parts.get(axis)))
    stored = [taps.to_bytes() for taps in tables]
    memory = np.concatenate([rows.ravel().view(np.int64) for rows in stored]).view(np.uint8)
    address = data_pointer(memory)
    starts = []
    for rows in stored:
        starts.append(address + np.arange(len(rows)) * rows.shape[1])
        address += rows.nbytes
    longest = [taps.weights.shape[2] for taps in tables]
    pitches = [_compute_row_bytes(taps, summed.itemsize) for taps in longest]
    counts = np.array([[taps.counts.shape[1]] for taps in tables])
    return TapTables(
        memory, starts, longest, counts, pitches, [np.arange(len(rows)) for rows in stored]
    )


def make_gradient_options(
    placed_axes: Sequence[int], shape: tuple[int, ...], target: DType, threads: int | None = None
) -> CollateOptions:
    """Return the options of a batch of the gradients of samples of one shape and dtype.

    Stacked gradients of windows are resized to `shape` along `placed_axes`, by any filter that
    averages: its tap tables are replaced by transposed ones. Positions without taps are 0. Without
    placed axes, gradients are only stacked.
    """
    letters = [letter for letter in ascii_lowercase if letter not in "bcf"][: len(shape)]
    return parse_collate_options(
        f"b{''.join(letters)}->b{''.join(letters)}",
        {letters[axis]: shape[axis] for axis in placed_axes},
        fill=0,
        resize="bilinear" if placed_axes else None,
        dtype=target,
        threads=threads,
    )


def count_parts(resize: ResizeOptions) -> int:
    """Return the number of parts without gaps into which transposed taps are split.

    Gaps are where a filter is 0: bicubic and lanczos are 0 at whole distances from their center.
    """
    return {"bicubic": 3, "lanczos": 5}.get(resize.filter, 1)


def compute_axis_taps(
    resize: ResizeOptions, placements: Placements, number: int, axis: int, summed: DType
) -> tuple[Array, Array]:
    """Return the taps of each position of a sample's window along an axis, and their weights.

    Both arrays are (positions, taps), of the window before it is flipped. A tap is a position of
    the sample, or -1 where a position has fewer taps. Positions outside of the scaled crop have no
    taps. `summed` is the dtype of the weights, float32 or float64.
    """
    count = placements.window[axis]
    placed = placements.rows([number])
    placed.flips[:] = False
    memory = make_tap_tables(resize, placed, [axis], summed)[0]
    taps = _Taps.read(memory[None], count, summed)
    (positions,), (is_tap,) = taps.positions()
    longest = max(1, taps.counts.max(initial=0))
    positions = np.where(is_tap, placed.begins[0, axis] + positions, -1)[:, :longest]
    return positions, np.where(is_tap, taps.weights[0], 0)[:, :longest]

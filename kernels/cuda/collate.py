"""Prepare the launch that collates the windows of samples, cropped or resized, into a batch.

The launch has a table in device memory: the samples, each with its address and its axes, as
collate.cu declares them, and what they refer to by offsets: tables of positions, fill values, and
tap tables. A tap table has the first tap and the number of taps of every position, as int32, and
then for every tap the float32 weights of all positions. What is compiled depends on the window, the
batch and the order of the axes of the samples, not on their sizes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from ...memory import Array
from ...planning.epilogue import Epilogue
from ...planning.loops import Loop
from .launch import THREADS, CudaLaunch, Side, defines, pack_coefficients
from .tiling import TILE_BYTES, divisor, offsets

TILE_ITEMS = 4096  # of the output: 16 for each thread
WARPS = THREADS // 32  # each reads a line
MOST_LINES = 64
MOST_POSITIONS = 256  # of a line
LINE_POSITIONS = 64  # of the output, if the axis of lines is resized
SUM_BYTES = 2 * TILE_BYTES  # of shared memory for the sums of such lines
FEW_CHANNELS = 8  # channels of a pixel in a line; more of them are a line of their own
FEW_SUMS = 64  # the same if the axis of lines is resized

MAX_STEP = 1 << 62

SIDE = ("from", "low", "high", "map", "taps")  # columns of `SampleTable.sides`; see collate.cu
FROM, LOW, HIGH, MAP, TAPS = range(len(SIDE))


class WindowAxis(NamedTuple):
    """An axis of all windows: its length, and steps in the batch, coefficients and fill values."""

    length: int
    dst: int = 0
    coef: int = 0
    fill: int = 0
    is_resized: bool = False

    @property
    def loop(self) -> Loop:
        """The loop over the positions of the axis."""
        return Loop(self.length, self.fill, self.dst, self.coef)


NO_AXIS = WindowAxis(1)


class SampleTable(NamedTuple):
    """The samples of a batch.

    item        bytes of an item
    starts      bytes from a base address to each sample's index 0 on all axes, to its memory, and
                to the end of it: three columns
    sides       an array by sample, axis and SIDE
    offset, fill    the place of the samples and of the fill values in the table
    read        the alignment in bytes of all items
    is_inside   whether all windows lie inside of their samples
    """

    item: int
    starts: Array
    sides: Array
    offset: int
    fill: int
    read: int
    is_inside: bool


class _Tile(NamedTuple):
    """A tile of the batch, along the axes R, U and V (0, 1 and 2).

    axes        their numbers
    lengths     of the tile
    taps        the resized axes other than U, in their order
    order       R, U and V, outermost first in the batch
    width       items of a word
    write       the bytes that are written at once, less than a word if it is not aligned
    is_joined   whether a word may extend over the last two axes
    """

    axes: tuple[int, int, int]
    lengths: list[int]
    taps: list[int]
    order: list[int]
    width: int
    write: int
    is_joined: bool


def prepare_collate(
    window: Sequence[WindowAxis],
    samples: WindowAxis,
    table: SampleTable,
    item: str,
    epilogue: Epilogue | None,
    target: Side,
    *,
    is_float: bool,
) -> tuple[CudaLaunch, bytes]:
    """Return the launch, and the samples for its table.

    Parameters
    ----------
    window : the axes of a window; sums begin with the first resized one
    samples : the axis of the samples in the batch
    item : the kernels' name of the dtype of samples
    epilogue : from the dtype of samples, or from float32 if they are resized
    target : the batch
    is_float : whether samples are resized as float32
    """
    nest = [*window, NO_AXIS, NO_AXIS, samples]
    is_summed = any(axis.is_resized for axis in window)
    steps = np.abs(table.sides[0, :, FROM]).tolist()
    tile = _choose_tile(nest, steps, 4 if is_summed else table.item, target)
    rows, line, part = tile.axes
    # The order of the axes in the table: sums, U, V, and all others.
    numbers = [*tile.taps, line, part]
    numbers += [n for n in range(len(window)) if n not in numbers]
    around = [n for n in numbers if n not in tile.axes]
    are_rows_samples = rows == len(nest) - 1
    tiles = [
        -(-nest[n].length // length) for n, length in zip(tile.axes, tile.lengths, strict=True)
    ]
    groups = tiles[0] if are_rows_samples else samples.length
    blocks = prod(tiles[1:] if are_rows_samples else tiles) * prod(nest[n].length for n in around)

    def along(axis: int, count: int) -> bytes:
        number = numbers.index(axis) if axis in numbers else len(numbers)
        return divisor(count) + offsets(nest[axis].loop) + struct.pack("q", number)

    coefficients = pack_coefficients(epilogue)
    params = struct.pack("2Q", table.offset, table.fill) + divisor(blocks)
    params += b"".join(map(along, tile.axes, tiles))
    params += struct.pack("3Q", *(nest[n].length for n in tile.axes))
    params += b"".join(along(n, nest[n].length) for n in around or [len(window)])
    params += offsets(samples.loop)
    beside = [2] if nest[line].is_resized else tile.order[2 - tile.is_joined :]
    varies = any(nest[tile.axes[n]].coef for n in beside)
    macros = {
        "AXES": len(numbers), "TAPS": len(tile.taps), "LINE_TAPS": int(nest[line].is_resized),
        "R_AXIS": numbers.index(rows) if rows in numbers else len(numbers),
        "TILE_R": tile.lengths[0], "TILE_U": tile.lengths[1], "TILE_V": tile.lengths[2],
        "COLUMNS": _columns(tile, nest[line].is_resized),
        "FIRST": tile.order[0], "MIDDLE": tile.order[1], "LAST": tile.order[2],
        "WIDTH": tile.width, "JOINED": int(tile.is_joined),
        "READ": table.read, "WRITE": tile.write,
        "INSIDE": int(table.is_inside), "MAPS": int(table.sides[..., MAP].any()),
        "OTHERS": len(around),
        "NEAREST": int(is_float and not is_summed),
    }  # fmt: skip
    common = defines(Side(table.item, 0), epilogue, varies, **macros)
    launch = CudaLaunch(
        "collate",
        (*common, ("SAMPLE", item)),
        params,
        groups * blocks,
        pointers=4,
        coefficients=coefficients,
    )
    return launch, _pack_samples(table, window, numbers)


def _pack_samples(table: SampleTable, window: Sequence[WindowAxis], numbers: list[int]) -> bytes:
    """Return the samples as collate.cu declares them, with their axes in the order of `numbers`."""
    count = len(table.starts)
    absent = np.broadcast_to(np.array([0, 0, 1, 0, 0], np.int64), (count, 2, len(SIDE)))
    sides = np.concatenate([table.sides, absent], 1)[:, numbers]
    lengths = np.array([*(axis.length for axis in window), 1, 1], np.int64)[numbers]
    lengths = np.broadcast_to(lengths, sides.shape[:2])[..., None]
    rows = np.concatenate([sides, lengths], 2).reshape(count, -1)
    return np.concatenate([table.starts, rows], 1).tobytes()


def _choose_tile(nest: list[WindowAxis], steps: list[int], item: int, target: Side) -> _Tile:
    """Return the tile for samples of which the first one has these steps."""
    resized = [n for n, axis in enumerate(nest) if axis.is_resized]
    line, part = _choose_line(nest, steps, resized)
    used = [n for n, axis in enumerate(nest) if axis.length > 1]
    last = min(used, key=lambda n: abs(nest[n].dst), default=line)
    near = [n for n in used[:-1] if n < len(steps) and n not in (line, part)]
    rows = min(near, key=steps.__getitem__, default=len(nest) - 1)
    axes = rows if last in (line, part) else last, line, part

    def step(n: int) -> int:
        return abs(nest[axes[n]].dst) if axes[n] in used else MAX_STEP

    order = sorted(range(3), key=step, reverse=True)
    middle, inner = (nest[axes[n]] for n in order[1:])
    is_joined = (
        not nest[line].is_resized
        and order[1:] == [1, 2]
        and middle.dst == inner.length * inner.dst
        and inner.length > 1
    )
    run = [axes[n] for n in order[2 - is_joined :]]
    # Resized items are written one by one, so that neighbors have neighboring taps.
    is_word = inner.dst == target.item and not nest[line].is_resized
    write = _alignment(nest, target, run if is_word else ())
    width = max(1, write // target.item)
    lengths = _tile_lengths(
        [nest[n].length for n in axes], item, order[2] == 0, nest[line].is_resized
    )
    rounded = 1 if is_joined else order[2]
    unit = width // gcd(width, lengths[2]) if is_joined else width
    lengths[rounded] = -(-lengths[rounded] // unit) * unit
    taps = [n for n in resized if n != line]
    return _Tile(axes, lengths, taps, order, width, write, is_joined)


def _choose_line(nest: list[WindowAxis], steps: list[int], resized: list[int]) -> tuple[int, int]:
    """Return the axes U and V, along which a line of a sample extends; absent ones are NO_AXIS."""
    absent = len(steps), len(steps) + 1
    used = [n for n in range(len(steps)) if nest[n].length > 1 or nest[n].is_resized]
    first, second, *_ = *sorted(used, key=steps.__getitem__), *absent
    most = FEW_SUMS if resized else FEW_CHANNELS
    is_pixel = second not in absent and nest[first].length <= most and first not in resized
    line = second if is_pixel else first
    # Sums along the last resized axis are those of lines; a single axis may be summed before.
    if resized and line != resized[-1] and (len(resized) > 1 or line in resized):
        line = resized[-1]
        is_pixel = is_pixel and line != first
    return line, first if is_pixel and line == second else absent[0 if line != absent[0] else 1]


def _alignment(nest: list[WindowAxis], target: Side, run: Sequence[int] = ()) -> int:
    """Return the bytes that can be written at once along the axes `run`, or of an item."""
    steps = [axis.dst for n, axis in enumerate(nest) if axis.length > 1 and n not in run]
    if not run:
        return target.width(steps, target.item)
    return target.width([*steps, prod(nest[n].length for n in run) * target.item])


def _tile_lengths(
    lengths: list[int], item: int, are_rows_last: bool, is_resized: bool
) -> list[int]:
    """Return the lengths of a tile along axes of these lengths: R, U and V.

    `item`: bytes in shared memory. `are_rows_last`: R is the innermost axis of the batch.
    `is_resized`: U is.
    """
    rows, line, part = lengths
    if is_resized:
        rows = min(rows, 2 * WARPS if are_rows_last else WARPS)
        return [rows, _even_part(line, min(LINE_POSITIONS, TILE_ITEMS // (rows * part))), part]
    room = min(TILE_ITEMS, TILE_BYTES // item)
    if are_rows_last:
        rows = min(rows, MOST_LINES)
        return [rows, _even_part(line, room // (rows * part)), part]
    line = _even_part(line, min(MOST_POSITIONS, TILE_BYTES // item // (WARPS * part)))
    room = max(WARPS, room // (line * part) // WARPS * WARPS)
    return [min(rows, MOST_LINES, room), line, part]


def _even_part(length: int, most: int) -> int:
    """Return the longest of equal parts of a length, each of at most `most`."""
    return -(-length // -(-length // max(1, most)))


def _columns(tile: _Tile, is_resized: bool) -> int:
    """Return the positions of lines that are in shared memory at once."""
    rows, line, part = tile.lengths
    return max(1, SUM_BYTES // 4 // (rows * part)) if is_resized else line

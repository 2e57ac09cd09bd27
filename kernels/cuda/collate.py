"""Prepare the launch that collates the windows of samples, cropped or resized, into a batch.

The launch has a table in device memory: the samples, each with its address and its axes, as
samples.cuh declares them, and what they refer to by offsets: tables of positions, fill values, and
tap tables. A tap table has for every position the first tap and the number of taps, as int32, in
the first half of 16 bytes, and then the weights of the taps, in whole groups of four: float32, or
float64 for samples of float64. What
is compiled depends on the window, the batch and the order of the axes of the samples, not on their
sizes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain
from math import gcd, isnan, prod
from typing import NamedTuple

import numpy as np

from ...memory import Array
from ...planning.epilogue import Epilogue
from ...planning.loops import Loop
from .launch import CudaLaunch, Side, defines, pack_coefficients
from .tiling import MAX_COUNT, THREADS, TILE_BYTES, WARP, WORD, pack_divisor, pack_offsets

TILE_ITEMS = 4096  # of the output: 16 for each thread
WARPS = THREADS // WARP  # each reads a line
MOST_LINES = 64
MOST_POSITIONS = 256  # of a line
FEW_CHANNELS = 8  # channels of a pixel in a line; more of them are a line of their own
FEW_SUMS = 64  # the same if an axis is resized

# Resized samples: a tile for each warp.
SUM_THREADS = 128
MOST_SUMS = 1856  # of lines that a warp has in shared memory; half of it for float64
SHARED_BYTES = 48 << 10  # of a block
MOST_SUMMED = 8  # channels of a thread
SUM_LINES = 16, 8  # many, if there are tiles enough for all multiprocessors
MANY_TILES = 4096
SUM_POSITIONS = 8  # of a line, if the tile has many lines
STAGE_BYTES = 4096  # of a warp

MAX_STEP = 1 << 62

# Columns of `SampleTable.sides`; see samples.cuh.
SIDE = ("from", "low", "high", "map", "taps", "tap_bytes")
FROM, LOW, HIGH, MAP, TAPS, TAP_BYTES = range(len(SIDE))


class WindowAxis(NamedTuple):
    """An axis of all windows: its length, and steps in the batch, coefficients and fill values."""

    length: int
    dst: int = 0
    coef: int = 0
    fill: int = 0
    is_resized: bool = False
    # Of axes that are folded in a packed batch, from the innermost loop on: positions of an
    # iteration, and the distance in bytes between iterations, less the bytes of these positions.
    folds: tuple[tuple[int, int], ...] = ()

    @property
    def step(self) -> int:
        """The bytes by which all places in the batch differ, a divisor of all distances."""
        return gcd(self.dst, *(jump for _, jump in self.folds))

    @property
    def run(self) -> int:
        """The positions that are evenly spaced in the batch."""
        return self.folds[0][0] if self.folds else self.length

    @property
    def loop(self) -> Loop:
        """The loop over the positions of the axis."""
        return Loop(self.length, self.fill, self.dst, self.coef)


NO_AXIS = WindowAxis(1)


class PixelOrder(NamedTuple):
    """Selected channels: their axis, their places in a pixel of a sample, and its items.

    shifts, steps   by sample, the bytes from the first item of a pixel to the first selected one,
                    and from one item to the next
    """

    axis: int
    order: tuple[int, ...]
    items: int
    shifts: Array
    steps: Array


class Ignored(NamedTuple):
    """The value of items that are omitted, and the sum of weights above which a mean is valid."""

    value: float
    least: float

    @property
    def macros(self) -> dict[str, object]:
        """The macros of the kernels."""
        kind = 2 if isnan(self.value) else 1
        infinity = "(1e308 * 10)"
        literal = f"0 * {infinity}" if kind == 2 else repr(self.value).replace("inf", infinity)
        return {"IGNORES": kind, "IGNORED": f"({literal})", "LEAST": self.least}


NONE_IGNORED = {"IGNORES": 0, "IGNORED": 0, "LEAST": 0}


class SampleTable(NamedTuple):
    """The samples of a batch.

    item        bytes of an item
    starts      bytes from a base address to each sample's index 0 on all axes, to its memory, and
                to the end of it: three columns
    sides       an array by sample, axis and SIDE
    heads       of resized axes: the first tap and the number of taps, by sample (or one row for all
                samples) and position; several arrays if the number of positions differs
    offset, fill    the place of the samples and of the fill values in the table
    read        the alignment in bytes of all items
    is_inside   whether all windows are inside of their samples
    pixel       selected channels that lines may contain in the order of the samples
    has_gaps    whether weights of 0 are gaps between taps, whose items are omitted
    ignored     the items that are omitted; None: none
    """

    item: int
    starts: Array
    sides: Array
    heads: dict[int, Sequence[Array]]
    offset: int
    fill: int
    read: int
    is_inside: bool
    pixel: PixelOrder | None = None
    has_gaps: bool = False
    ignored: Ignored | None = None


class _Tile(NamedTuple):
    """A tile of the batch, along the axes R, U and V (0, 1 and 2).

    axes        their numbers
    lengths     of the tile
    order       R, U and V, outermost first in the batch
    width       items of a word
    write       the bytes that are written at once, less than a word if it is not aligned
    is_joined   whether a word may extend over the last two axes
    is_staged   whether items are put into shared memory before they are written
    """

    axes: tuple[int, int, int]
    lengths: list[int]
    order: list[int]
    width: int
    write: int
    is_joined: bool
    is_staged: bool = False


def prepare_collate(
    windows: Sequence[Sequence[WindowAxis]],
    samples: WindowAxis,
    table: SampleTable,
    item: str,
    epilogue: Epilogue | None,
    target: Side,
    places: Sequence[int] | None = None,
    *,
    is_float: bool,
) -> tuple[CudaLaunch, bytes]:
    """Return the launch, and the samples for its table.

    Parameters
    ----------
    windows : the axes of the window of all samples, or of a window for each sample of a packed
        batch; sums begin with the first resized one
    samples : the axis of the samples in the batch
    item : the kernels' name of the dtype of samples
    epilogue : from the dtype of samples, or from the dtype of sums if they are resized
    target : the batch
    places : of a packed batch, the bytes from its beginning to each window
    is_float : whether samples are resized as floats
    """
    window = [max(axes, key=lambda axis: axis.length) for axes in zip(*windows, strict=True)]
    nest = [*window, NO_AXIS, NO_AXIS, samples]
    nests = [[*axes, NO_AXIS, NO_AXIS, samples] for axes in windows]
    is_summed = any(axis.is_resized for axis in window)
    steps = np.abs(table.sides[0, :, FROM]).tolist()
    axes, order = _choose_axes(nest, nests, steps)
    if is_summed:
        tile = _choose_summed_tile(nest, nests, axes, order, target, places or ())
    else:
        tile = _choose_tile(nest, nests, axes, order, table.item, target, places or ())
    _, line, part = axes
    pixel = table.pixel
    if pixel is not None and (pixel.axis != part or (nest[part].fill and not table.is_inside)):
        pixel = None
    if pixel is not None:
        table = _whole_pixels(table, pixel)
    # The order of the axes in the table: summed axes before U, then U, V and all others.
    sums = [n for n, axis in enumerate(nest) if axis.is_resized and n != line]
    numbers = [*sums, line, part]
    numbers += [n for n in range(len(window)) if n not in numbers]
    packed = _pack_samples(table, numbers)
    folds = max(len(axis.folds) for axis in chain(*windows))
    macros = _tile_macros(tile, numbers, table)
    macros |= NONE_IGNORED if table.ignored is None else table.ignored.macros
    macros |= {"FOLDS": folds, "PACKED": int(places is not None)}
    if pixel is not None:
        macros |= {"PIXEL": pixel.items, "ORDER": ",".join(map(str, pixel.order))}
    if places is None:
        params, tiles = _pack_windows(nest, tile, numbers, table)
        if is_summed:
            params += struct.pack("2Q", table.offset + len(packed), tiles)
            if nest[line].is_resized:
                packed += _reaches(table.heads[line][0], tile.lengths[1], len(table.starts))
    else:
        params, tiles, packed = _pack_parts(
            nests, tile, numbers, table, packed, places, folds, samples.fill, is_summed
        )
    if tiles >= MAX_COUNT:
        raise RuntimeError(f"{tiles} tiles; a launch must have fewer than 2**31")
    if is_summed:
        macros |= _sum_macros(nest, tile, table, _room(tile, len(sums), target, epilogue, table))
        beside = [2]
    else:
        macros |= {"NEAREST": int(is_float), "REVERSED": int(_is_reversed(table, line))}
        beside = tile.order[2 - tile.is_joined :]
    varies = any(nest[axes[n]].coef for n in beside)
    common = defines(Side(table.item, 0), epilogue, varies, **macros)
    launch = CudaLaunch(
        "resize" if is_summed else "collate",
        (*common, ("SAMPLE", item)),
        params,
        -(-tiles * WARP // SUM_THREADS) if is_summed else tiles,
        SUM_THREADS if is_summed else THREADS,
        pointers=4,
        coefficients=pack_coefficients(epilogue),
    )
    return launch, packed


def _pack_parts(
    nests: Sequence[list[WindowAxis]],
    tile: _Tile,
    numbers: list[int],
    table: SampleTable,
    packed: bytes,
    places: Sequence[int],
    folds: int,
    fill_step: int,
    is_summed: bool,
) -> tuple[bytes, int, bytes]:
    """Return the parameters of a packed batch, the number of tiles, and the data for the table.

    `packed` has the samples; the part of each sample (`Part` in samples.cuh) follows.
    """
    line = tile.axes[1]
    sample_bytes = len(packed) // len(nests)
    reaches = [b""] * len(nests)
    if is_summed and nests[0][line].is_resized:
        heads = table.heads[line]
        rows = [row[None] for head in heads for row in head]
        rows = rows if len(rows) > 1 else rows * len(nests)
        reaches = [_reaches(row, tile.lengths[1], 1) for row in rows]
    offset = table.offset + len(packed)
    parts, total = [], 0
    for number, (nest, place) in enumerate(zip(nests, places, strict=True)):
        own = table._replace(
            offset=table.offset + number * sample_bytes,
            fill=table.fill + number * fill_step * table.item,
        )
        tiles = 0
        if all(axis.length for axis in nest):
            params, tiles = _pack_windows(nest, tile, numbers, own, folds)
            if is_summed:
                params += struct.pack("2Q", offset, tiles)
            parts.append(struct.pack("Qq", total, place) + params)
        offset += len(reaches[number])
        total += tiles
    data = packed + b"".join(reaches)
    data += bytes(-len(data) % 8)
    params = struct.pack("3Q", table.offset + len(data), len(parts), total)
    return params, total, data + b"".join(parts)


def _tile_macros(tile: _Tile, numbers: list[int], table: SampleTable) -> dict[str, object]:
    """Return the macros of both kernels; `numbers` are the axes of the table."""
    rows, line, _ = tile.axes
    return {
        "AXES": len(numbers), "TAPS": numbers.index(line),
        "R_AXIS": numbers.index(rows) if rows in numbers else len(numbers),
        "TILE_R": tile.lengths[0], "TILE_U": tile.lengths[1], "TILE_V": tile.lengths[2],
        "FIRST": tile.order[0], "MIDDLE": tile.order[1], "LAST": tile.order[2],
        "WIDTH": tile.width, "JOINED": int(tile.is_joined),
        "READ": table.read, "WRITE": tile.write,
        "INSIDE": int(table.is_inside), "MAPS": int(table.sides[..., MAP].any()),
        "OTHERS": len(_axes_around(tile, numbers)), "PIXEL": tile.lengths[2],
    }  # fmt: skip


def _sum_macros(
    nest: list[WindowAxis], tile: _Tile, table: SampleTable, room: int
) -> dict[str, object]:
    """Return the macros of `resize.cu` only."""
    rows, line, _ = tile.axes
    is_covered = all((head[..., 1] > 0).all() for heads in table.heads.values() for head in heads)
    return {
        "LINE_TAPS": int(nest[line].is_resized), "ROOM": room, "STAGED": int(tile.is_staged),
        "BY_ROW": int(bool(nest[rows].coef)), "COVERED": int(is_covered), "REVERSED": 0,
        "GAPS": int(table.has_gaps), "THREADS": SUM_THREADS,
    }  # fmt: skip


def _is_reversed(table: SampleTable, line: int) -> bool:
    """Return whether a sample is flipped along the axis of lines."""
    return line < table.sides.shape[1] and bool((table.sides[:, line, FROM] < 0).any())


def _pack_windows(
    nest: list[WindowAxis], tile: _Tile, numbers: list[int], table: SampleTable, folds: int = 0
) -> tuple[bytes, int]:
    """Return the parameters of both kernels (`Windows` in samples.cuh), and the number of tiles.

    `folds`: the folds of an axis in the parameters; axes with fewer are followed by idle ones.
    """
    rows = tile.axes[0]
    around = _axes_around(tile, numbers)
    tiles = [
        -(-nest[n].length // length) for n, length in zip(tile.axes, tile.lengths, strict=True)
    ]
    are_rows_samples = rows == len(nest) - 1
    each = prod(tiles[1:] if are_rows_samples else tiles) * prod(nest[n].length for n in around)

    def along(axis: int, count: int) -> bytes:
        number = numbers.index(axis) if axis in numbers else len(numbers)
        along = pack_divisor(count) + pack_offsets(nest[axis].loop) + struct.pack("q", number)
        return along + _pack_folds(nest[axis].folds, folds)

    params = struct.pack("2Q", table.offset, table.fill) + pack_divisor(each)
    params += b"".join(map(along, tile.axes, tiles))
    params += struct.pack("3Q", *(nest[n].length for n in tile.axes))
    params += b"".join(along(n, nest[n].length) for n in around or [len(nest) - 3])
    params += pack_offsets(nest[-1].loop)
    return params, each * (tiles[0] if are_rows_samples else nest[-1].length)


def _pack_folds(folds: Sequence[tuple[int, int]], count: int) -> bytes:
    """Return the folds of an axis as samples.cuh declares them: one at least."""
    turns = 1
    packed = b""
    for number in range(max(1, count)):
        positions, jump = folds[number] if number < len(folds) else (1, 0)
        turns *= positions
        packed += pack_divisor(turns) + struct.pack("q", jump)
    return packed


def _axes_around(tile: _Tile, numbers: list[int]) -> list[int]:
    """Return the axes outside of a tile."""
    return [n for n in numbers if n not in tile.axes]


def _pack_samples(table: SampleTable, numbers: list[int]) -> bytes:
    """Return the samples as samples.cuh declares them, their axes in the order of `numbers`."""
    count = len(table.starts)
    absent = np.broadcast_to(np.array([0, 0, 1, 0, 0, 0], np.int64), (count, 2, len(SIDE)))
    sides = np.concatenate([table.sides, absent], 1)[:, numbers]
    return np.concatenate([table.starts, sides.reshape(count, -1)], 1).tobytes()


def _whole_pixels(table: SampleTable, pixel: PixelOrder) -> SampleTable:
    """Return the table with all items of pixels along the axis of channels."""
    starts, sides = table.starts.copy(), table.sides.copy()
    starts[:, 0] -= pixel.shifts
    sides[:, pixel.axis] = 0
    sides[:, pixel.axis, FROM], sides[:, pixel.axis, HIGH] = pixel.steps, pixel.items
    return table._replace(starts=starts, sides=sides)


def _reaches(heads: Array, tile: int, samples: int) -> bytes:
    """Return the first source position that each tile along an axis needs, and their number."""
    if not heads.shape[1]:
        return b""
    is_used = heads[..., 1] > 0
    lows = np.where(is_used, heads[..., 0], np.iinfo(np.int32).max)
    ends = np.where(is_used, heads.sum(-1), 0)
    starts = np.arange(0, heads.shape[1], tile)
    lows = np.minimum.reduceat(lows, starts, axis=1)
    ends = np.maximum.reduceat(ends, starts, axis=1)
    lows = np.minimum(lows, ends)
    reaches = np.stack([lows, ends - lows], -1).astype(np.int32)
    return np.broadcast_to(reaches, (samples, *reaches.shape[1:])).tobytes()


def _choose_axes(
    nest: list[WindowAxis], nests: Sequence[list[WindowAxis]], steps: list[int]
) -> tuple[tuple[int, int, int], list[int]]:
    """Return the axes of a tile and their order in the batch (see _Tile).

    `steps` belong to the first sample.
    """
    line, part = _choose_line(nest, nests, steps)
    used = [n for n, axis in enumerate(nest) if axis.length > 1]
    last = min(used, key=lambda n: abs(nest[n].dst), default=line)
    near = [n for n in used[:-1] if n < len(steps) and n not in (line, part)]
    rows = min(near, key=steps.__getitem__, default=len(nest) - 1)
    axes = rows if last in (line, part) else last, line, part

    def step(n: int) -> int:
        return abs(nest[axes[n]].dst) if axes[n] in used else MAX_STEP

    return axes, sorted(range(3), key=step, reverse=True)


def _is_joined(nests: Sequence[list[WindowAxis]], axes: Sequence[int], order: list[int]) -> bool:
    """Return True if the last two axes of a tile are contiguous in the batch, and of lines."""
    pairs = [[nest[axes[n]] for n in order[1:]] for nest in nests]
    are_contiguous = all(middle.dst == inner.length * inner.dst for middle, inner in pairs)
    return order[1:] == [1, 2] and are_contiguous and pairs[0][1].length > 1


def _choose_tile(
    nest: list[WindowAxis],
    nests: Sequence[list[WindowAxis]],
    axes: tuple[int, int, int],
    order: list[int],
    item: int,
    target: Side,
    places: Sequence[int],
) -> _Tile:
    """Return the tile of a block of threads."""
    is_joined = _is_joined(nests, axes, order)
    run = [axes[n] for n in order[2 - is_joined :]]
    write = _alignment(nests, target, places, run)
    width = max(1, write // target.item)
    lengths = _tile_lengths([nest[n].length for n in axes], item, order[2] == 0)
    rounded = 1 if is_joined else order[2]
    unit = width // gcd(width, lengths[2]) if is_joined else width
    lengths[rounded] = -(-lengths[rounded] // unit) * unit
    return _Tile(axes, lengths, order, width, write, is_joined)


def _choose_summed_tile(
    nest: list[WindowAxis],
    nests: Sequence[list[WindowAxis]],
    axes: tuple[int, int, int],
    order: list[int],
    target: Side,
    places: Sequence[int],
) -> _Tile:
    """Return the tile of a warp that resizes samples."""
    rows, line, part = (nest[n].length for n in axes)
    groups = -(-part // MOST_SUMMED)
    most = WARP // groups
    many, few = SUM_LINES
    tiles = prod(axis.length for axis in nest) // (many * most * part)
    lines = _even_part(rows, many if tiles >= MANY_TILES else few)
    if order[2] == 1:  # threads next to each other write neighbors
        write = _alignment(nests, target, places)
        return _Tile(axes, [lines, _even_part(line, most), part], order, 1, write, False)
    are_rows_last = order[2] == 0
    line = _even_part(line, SUM_POSITIONS // groups if are_rows_last else most)
    is_joined = _is_joined(nests, axes, order)
    run = [axes[n] for n in order[2 - is_joined :]]
    write = _alignment(nests, target, places, run)
    width = max(1, write // target.item)
    if is_joined:
        while width // gcd(width, part) > most:
            width //= 2
            write //= 2
        unit = width // gcd(width, part)
        line = min(-(-line // unit), most // unit) * unit
    room = max(1, STAGE_BYTES // (line * part * target.item))
    rows = min(room, min(rows, WARP) if are_rows_last else lines)
    if are_rows_last:
        rows = min(WARP, -(-rows // width) * width)
    return _Tile(axes, [rows, line, part], order, width, write, is_joined, is_staged=True)


def _choose_line(
    nest: list[WindowAxis], nests: Sequence[list[WindowAxis]], steps: list[int]
) -> tuple[int, int]:
    """Return the axes U and V, along which a line of a sample extends; absent ones are NO_AXIS.

    V has the same positions in all windows.
    """
    resized = [n for n, axis in enumerate(nest) if axis.is_resized]
    absent = len(steps), len(steps) + 1
    used = [n for n in range(len(steps)) if nest[n].length > 1 or nest[n].is_resized]
    first, second, *_ = *sorted(used, key=steps.__getitem__), *absent
    most = FEW_SUMS if resized else FEW_CHANNELS
    is_even = all(x[first].length == nest[first].length and not x[first].folds for x in nests)
    is_pixel = second not in absent and nest[first].length <= most and first not in resized
    is_pixel = is_pixel and is_even
    line = second if is_pixel else first
    # The last resized axis is summed along lines; a single axis may be summed before.
    if resized and line != resized[-1] and (len(resized) > 1 or line in resized):
        line = resized[-1]
        is_pixel = is_pixel and line != first
    return line, first if is_pixel and line == second else absent[0 if line != absent[0] else 1]


def _alignment(
    nests: Sequence[list[WindowAxis]],
    target: Side,
    places: Sequence[int],
    run: Sequence[int] = (),
) -> int:
    """Return the size in bytes of the words that can be written along `run`, or of an item.

    The last axis of `run` is the innermost one of the batch, if its items are adjacent.
    """
    if run and any(nest[run[-1]].dst != target.item for nest in nests):
        run = ()
    steps = [*places]
    for nest in nests:
        steps += [axis.step for n, axis in enumerate(nest) if axis.length > 1 and n not in run]
        if run:
            steps.append(prod(nest[n].run for n in run) * target.item)
            steps += [jump for n in run for _, jump in nest[n].folds]
    return target.width(steps, WORD if run else target.item)


def _tile_lengths(lengths: list[int], item: int, are_rows_last: bool) -> list[int]:
    """Return the lengths of a tile along axes of these lengths: R, U and V.

    `item`: bytes. `are_rows_last`: R is the innermost axis of the batch.
    """
    rows, line, part = lengths
    room = min(TILE_ITEMS, TILE_BYTES // item)
    if are_rows_last:
        rows = min(rows, MOST_LINES)
        return [rows, _even_part(line, room // (rows * part)), part]
    line = _even_part(line, min(MOST_POSITIONS, TILE_BYTES // item // (WARPS * part)))
    room = max(WARPS, room // (line * part) // WARPS * WARPS)
    return [min(rows, MOST_LINES, room), line, part]


def _room(
    tile: _Tile, taps: int, target: Side, epilogue: Epilogue | None, table: SampleTable
) -> int:
    """Return how many partial line sums fit into the shared memory of a warp."""
    rows, line, part = tile.lengths
    item = 8 if epilogue is not None and epilogue.source == "f8" else 4
    item *= 1 if table.ignored is None else 2
    staged = tile.is_staged * (rows + 16 // target.item) * line * part * target.item
    used = staged + rows * (64 + 24 * max(1, taps)) + item * WARP * MOST_SUMMED
    return min(MOST_SUMS, (SHARED_BYTES * WARP // SUM_THREADS - used) // item // 64 * 64)


def _even_part(length: int, most: int) -> int:
    """Return the longest of equal parts of a length, each of at most `most`."""
    return -(-length // -(-length // max(1, most)))

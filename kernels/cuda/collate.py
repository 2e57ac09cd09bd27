"""Prepare the launch that collates the windows of samples, cropped or resized, into a batch.

The launch has a table in device memory: the samples, each with its address and its axes, as
samples.cuh declares them, and what they refer to by offsets: tables of positions, fill values, and
tap tables, which `kernels/cpu/resize_params.py` describes. What is compiled depends on the window,
the batch and the order of the axes of the samples, not on their sizes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from math import gcd, isnan, prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..._utils.cache import MAX_KEPT
from ...memory import Array
from ...planning.epilogue import Epilogue
from . import policy
from .launch import CudaLaunch, Side, defines, order_macros
from .policy import MAX_COUNT, THREADS, TILE_BYTES, WARP, WORD
from .tiling import make_divisors

# Words of a sample before its sides, and of a side; see samples.cuh.
START = ("first", "low", "end")
STARTS = len(START)
SIDE = ("from", "low", "high", "map", "taps", "weights", "tap_bytes")
FROM, LOW, HIGH, MAP, TAPS, WEIGHTS, TAP_BYTES = range(len(SIDE))


class WindowAxis(NamedTuple):
    """An axis of all windows: its length, and steps in the batch, coefficients and fill values.

    The windows of a packed batch differ in lengths, `dst` and folds: int64 arrays, an item for each
    different window.
    """

    length: Any
    dst: Any = 0
    coef: int = 0
    fill: int = 0
    is_resized: bool = False
    # Of axes that are folded in a packed batch, from the innermost loop on: positions of an
    # iteration, and the distance in bytes between iterations, less the bytes of these positions.
    folds: tuple[tuple[Array, Array], ...] = ()

    @property
    def longest(self) -> WindowAxis:
        """The axis of the longest window."""
        if isinstance(self.length, int):
            return self
        which = self.length.argmax()
        length, dst = (np.broadcast_to(x, self.length.shape).item(which) for x in self[:2])
        return self._replace(length=length, dst=dst, folds=())

    @property
    def step(self) -> Any:
        """The bytes by which all places in the batch differ, a divisor of all distances."""
        step = self.dst
        for _, jump in self.folds:
            step = np.gcd(step, jump)
        return step

    @property
    def run(self) -> Any:
        """The positions that are evenly spaced in the batch."""
        return self.folds[0][0] if self.folds else self.length


NO_AXIS = WindowAxis(1)


class Places(NamedTuple):
    """The windows of the samples of a packed batch.

    offsets     int64, the bytes from the beginning of the batch to the window of each sample
    kinds       int64, the number of the window of each sample among the different ones
    """

    offsets: Array
    kinds: Array


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


class Items(NamedTuple):
    """The items of samples, and their conversion.

    name        the kernels' name of the dtype of samples
    epilogue    from the dtype of samples, or from the dtype of sums if they are resized
    coefficients    the result of `pack_coefficients` for it
    ignored     the items that are omitted; None: none
    is_float    whether samples are resized as floats
    """

    name: str
    epilogue: Epilogue | None
    coefficients: bytes
    ignored: Ignored | None
    is_float: bool


class TapHeads(NamedTuple):
    """The first tap and the number of taps of each position, in distinct tables.

    groups      int64 (tables, positions, 2), an array for each run of tables of one length
    numbers     the number of the table of each sample, or of all samples
    """

    groups: Sequence[Array]
    numbers: Array


class SampleTable(NamedTuple):
    """The samples of a batch.

    item        bytes of an item
    rows        (samples, words) int64, as `make_rows` describes them
    heads       of resized axes, by number
    offset, fill    the place of the samples and of the fill values in the table
    read        the alignment in bytes of all items
    is_inside   whether all windows are inside of their samples
    pixel       selected channels that lines may contain in the order of the samples
    has_gaps    whether weights of 0 are gaps between taps, whose items are omitted
    """

    item: int
    rows: Array
    heads: dict[int, TapHeads]
    offset: int
    fill: int
    read: int
    is_inside: bool
    pixel: PixelOrder | None = None
    has_gaps: bool = False


def make_rows(samples: int, axes: int) -> Array:
    """Return the rows of a table: STARTS words, and SIDE words for each axis and two absent ones.

    The first words are bytes from a base address to a sample's index 0 on all axes, to its memory,
    and to the end of it.
    """
    rows = np.zeros((samples, STARTS + (axes + 2) * len(SIDE)), np.int64)
    sides_of(rows)[:, axes:, HIGH] = 1
    return rows


def sides_of(rows: Array) -> Array:
    """Return a view of the sides in rows, by sample, axis and SIDE."""
    return rows[:, STARTS:].reshape(len(rows), -1, len(SIDE))


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
    lengths: tuple[int, ...]
    order: tuple[int, ...]
    width: int
    write: int
    is_joined: bool
    is_staged: bool = False


def prepare_collate(
    window: Sequence[WindowAxis],
    samples: WindowAxis,
    table: SampleTable,
    items: Items,
    target: Side,
    places: Places | None = None,
) -> tuple[CudaLaunch, bytes]:
    """Return the launch, and the samples for its table.

    Parameters
    ----------
    window : the axes of the windows; sums begin with the first resized one
    samples : the axis of the samples in the batch
    target : the batch
    places : of a packed batch
    """
    nest = (*window, NO_AXIS, NO_AXIS, samples)
    target = Side(target.item, target.address % WORD)
    # Arrays cannot be compared as the key of a cache.
    plan = _plan_kernel if places is None else _plan_kernel.__wrapped__
    kernel = plan(nest, _describe_table(table), items, target, places)
    if kernel.has_pixels and table.pixel is not None:
        table = _whole_pixels(table, table.pixel)
    packed = _pack_samples(table, kernel.numbers)
    is_summed, line = kernel.launch.family == "resize", kernel.tile.axes[1]
    reaches = _list_reaches(table, line, kernel.tile) if nest[line].is_resized else []
    if places is None:
        tiles = kernel.tiles.item()
        params = struct.pack("2Q", table.offset, table.fill) + kernel.words.tobytes()
        if is_summed:
            params += struct.pack("2Q", table.offset + len(packed), tiles)
        packed += b"".join(reaches)
    else:
        params, tiles, packed = _pack_parts(kernel, table, packed, reaches, places, samples.fill)
    if tiles >= MAX_COUNT:
        raise RuntimeError(f"{tiles} tiles; a launch must have fewer than 2**31")
    grid = -(-tiles * WARP // policy.SUM_THREADS) if is_summed else tiles
    return replace(kernel.launch, params=params, grid=grid), packed


Pixel: TypeAlias = tuple[int, tuple[int, ...], int]  # the axis, order and items of PixelOrder


class _TableFacts(NamedTuple):
    """The properties of a SampleTable that kernels are compiled for; see there."""

    item: int
    steps: tuple[int, ...]  # bytes between positions of the first sample, by axis
    is_reversed: tuple[bool, ...]  # whether a sample is flipped, by axis
    has_map: tuple[bool, ...]  # by axis
    is_covered: bool  # whether all positions have taps
    pixel: Pixel | None
    read: int
    is_inside: bool
    has_gaps: bool


def _describe_table(table: SampleTable) -> _TableFacts:
    sides, pixel = sides_of(table.rows)[:, :-2], table.pixel
    lowest = np.minimum.reduce(sides[..., FROM])
    heads = chain.from_iterable([taps.groups for taps in table.heads.values()])
    return _TableFacts(
        table.item,
        tuple(map(abs, sides[0, :, FROM].tolist())),
        tuple([step < 0 for step in lowest.tolist()]),
        tuple([offset > 0 for offset in sides[0, :, MAP].tolist()]),
        all((head[..., 1] > 0).all() for head in heads),
        None if pixel is None else (pixel.axis, pixel.order, pixel.items),
        table.read,
        table.is_inside,
        table.has_gaps,
    )


class _Kernel(NamedTuple):
    """The kernel of a batch.

    launch      the launch, without its grid and parameters
    words, tiles    the result of `_describe_windows`
    numbers     the axes of the table, in its order
    has_pixels  whether lines contain whole pixels, whose channels are selected
    """

    launch: CudaLaunch
    words: Array
    tiles: Array
    tile: _Tile
    numbers: tuple[int, ...]
    has_pixels: bool


@lru_cache(maxsize=MAX_KEPT)
def _plan_kernel(
    nest: Sequence[WindowAxis],
    table: _TableFacts,
    items: Items,
    target: Side,
    places: Places | None,
) -> _Kernel:
    """Return the kernel of one window for all samples, or of one for each, at `places`.

    A nest has the axes of the windows, two absent ones, and the axis of samples.
    """
    is_summed = any(axis.is_resized for axis in nest)
    axes, order = _choose_axes(nest, table.steps)
    if is_summed:
        tile = _choose_summed_tile(nest, axes, order, target, places)
    else:
        tile = _choose_tile(nest, axes, order, table.item, target, places)
    _, line, part = axes
    # The order of the axes in the table: summed axes before U, then U, V and all others.
    sums = [n for n, axis in enumerate(nest) if axis.is_resized and n != line]
    numbers = [*sums, line, part]
    numbers += [n for n in range(len(nest) - 3) if n not in numbers]
    pixel = table.pixel
    if pixel is not None and (pixel[0] != part or (nest[part].fill and not table.is_inside)):
        pixel = None
    macros = _tile_macros(tile, numbers, table, pixel)
    macros |= NONE_IGNORED if items.ignored is None else items.ignored.macros
    macros |= {"FOLDS": _count_folds(nest), "PACKED": int(places is not None)}
    if is_summed:
        macros |= _sum_macros(nest, tile, table, _room(tile, len(sums), target, items))
        beside: tuple[int, ...] = (2,)
    else:
        is_reversed = line < len(table.steps) and table.is_reversed[line]
        macros |= {"NEAREST": int(items.is_float), "REVERSED": int(is_reversed)}
        beside = tile.order[2 - tile.is_joined :]
    varies = any(nest[axes[n]].coef for n in beside)
    common = defines(Side(table.item, 0), items.epilogue, varies, **macros)
    names = *common, ("SAMPLE", items.name)
    family, block = ("resize", policy.SUM_THREADS) if is_summed else ("collate", THREADS)
    launch = CudaLaunch(family, names, b"", 0, block, 4, items.coefficients)
    windows = _describe_windows(nest, tile, numbers)
    return _Kernel(launch, *windows, tile, tuple(numbers), pixel is not None)


def _count_folds(nest: Sequence[WindowAxis]) -> int:
    """Return the number of folds that each axis has in the parameters."""
    return max(len(axis.folds) for axis in nest)


def _pack_parts(
    kernel: _Kernel,
    table: SampleTable,
    packed: bytes,
    reaches: Sequence[bytes],
    places: Places,
    fill_step: int,
) -> tuple[bytes, int, bytes]:
    """Return the parameters of a packed batch, the number of tiles, and the data for the table.

    `packed` has the samples; the part of each sample (`Part` in samples.cuh) follows.
    """
    words, tiles = kernel.words[places.kinds], kernel.tiles[places.kinds]
    numbers = np.arange(len(tiles))
    columns: list[Array] = [
        tiles.cumsum() - tiles,
        places.offsets,
        table.offset + numbers * (len(packed) // len(tiles)),
        table.fill + numbers * (fill_step * table.item),
        *words.T,
    ]
    data = packed + b"".join(reaches)
    if kernel.launch.family == "resize":
        sizes = 0 * numbers  # of reaches; U may not be resized
        if reaches:
            sizes[:] = [*map(len, reaches)]
        columns += [table.offset + len(packed) + sizes.cumsum() - sizes, tiles]
    parts = np.stack(columns, 1)[tiles > 0]
    total = int(tiles.sum())
    params = struct.pack("3Q", table.offset + len(data), len(parts), total)
    return params, total, data + parts.tobytes()


def _tile_macros(
    tile: _Tile, numbers: list[int], table: _TableFacts, pixel: Pixel | None
) -> dict[str, object]:
    """Return the macros of both kernels; `numbers` are the axes of the table."""
    rows, line, _ = tile.axes
    channels, order, items = (None, None, tile.lengths[2]) if pixel is None else pixel
    mapped = [n for n, is_mapped in enumerate(table.has_map) if is_mapped and n != channels]
    macros: dict[str, object] = {} if order is None else order_macros(order)
    return macros | {
        "AXES": len(numbers), "TAPS": numbers.index(line),
        "R_AXIS": numbers.index(rows) if rows in numbers else len(numbers),
        "TILE_R": tile.lengths[0], "TILE_U": tile.lengths[1], "TILE_V": tile.lengths[2],
        "FIRST": tile.order[0], "MIDDLE": tile.order[1], "LAST": tile.order[2],
        "WIDTH": tile.width, "JOINED": int(tile.is_joined),
        "READ": table.read, "WRITE": tile.write,
        "INSIDE": int(table.is_inside), "OTHERS": len(_axes_around(tile, numbers)),
        "PIXEL": items, "MAPS": int(bool(mapped)),
    }  # fmt: skip


def _sum_macros(
    nest: Sequence[WindowAxis], tile: _Tile, table: _TableFacts, room: int
) -> dict[str, object]:
    """Return the macros of `resize.cu` only."""
    rows, line, _ = tile.axes
    return {
        "LINE_TAPS": int(nest[line].is_resized), "ROOM": room, "STAGED": int(tile.is_staged),
        "BY_ROW": int(bool(nest[rows].coef)), "COVERED": int(table.is_covered), "REVERSED": 0,
        "GAPS": int(table.has_gaps), "THREADS": policy.SUM_THREADS,
    }  # fmt: skip


def _describe_windows(
    nest: Sequence[WindowAxis], tile: _Tile, numbers: Sequence[int]
) -> tuple[Array, Array]:
    """Return `Windows` in samples.cuh after the places of its tables, and the numbers of tiles.

    Both have a row for each different window; rows are int64 words.
    """
    rows, folds = tile.axes[0], max(1, _count_folds(nest))
    around = _axes_around(tile, numbers)
    lengths = np.stack(np.broadcast_arrays(*[np.atleast_1d(axis.length) for axis in nest]))
    tiles = -(-lengths[[*tile.axes]] // np.array(tile.lengths)[:, None])
    are_rows_samples = rows == len(nest) - 1
    each = tiles[1 if are_rows_samples else 0 :].prod(0) * lengths[around].prod(0)
    words: list[Any] = []

    def add_divisor(counts: Array) -> None:
        # Empty windows have no tiles, and no thread reads their divisors.
        words.extend(make_divisors(np.maximum(counts, 1)).view(np.int64).T)

    def add_along(axis: int, counts: Array) -> None:
        of = nest[axis]
        number = numbers.index(axis) if axis in numbers else len(numbers)
        add_divisor(counts)
        words.extend((of.fill, of.dst, of.coef, number))
        turns = np.ones_like(each)
        for position in range(folds):
            positions, jump = of.folds[position] if position < len(of.folds) else (1, 0)
            turns = turns * positions
            add_divisor(turns)
            words.append(jump)

    add_divisor(each)
    for axis, counts in zip(tile.axes, tiles, strict=True):
        add_along(axis, counts)
    words.extend(lengths[[*tile.axes]])
    for axis in around or [len(nest) - 3]:
        add_along(axis, lengths[axis])
    words.extend((nest[-1].fill, nest[-1].dst, nest[-1].coef))
    columns = np.stack(np.broadcast_arrays(*words, each)[:-1], -1)
    return columns, each * (tiles[0] if are_rows_samples else lengths[-1])


def _axes_around(tile: _Tile, numbers: Sequence[int]) -> list[int]:
    """Return the axes outside of a tile."""
    return [n for n in numbers if n not in tile.axes]


def _pack_samples(table: SampleTable, numbers: Sequence[int]) -> bytes:
    """Return the samples as samples.cuh declares them, their axes in the order of `numbers`."""
    first_words = [STARTS + n * len(SIDE) for n in numbers]
    words = [*range(STARTS), *(word + n for word in first_words for n in range(len(SIDE)))]
    return table.rows.take(words, 1).tobytes()


def _whole_pixels(table: SampleTable, pixel: PixelOrder) -> SampleTable:
    """Return the table with all items of pixels along the axis of channels."""
    rows = table.rows.copy()
    rows[:, 0] -= pixel.shifts
    side = sides_of(rows)[:, pixel.axis]
    side[:] = 0
    side[:, FROM], side[:, HIGH] = pixel.steps, pixel.items
    return table._replace(rows=rows)


def _list_reaches(table: SampleTable, line: int, tile: _Tile) -> list[bytes]:
    """Return by sample the first source position that each tile of a line needs, and the number."""
    groups, numbers = table.heads[line]
    reaches = [row.tobytes() for heads in groups for row in _find_reaches(heads, tile.lengths[1])]
    rows = [reaches[number] for number in numbers.tolist()]
    return rows if len(rows) > 1 else rows * len(table.rows)


def _find_reaches(heads: Array, tile: int) -> Array:
    """Return the first source position of each tile of positions, and the number, as int32."""
    lows, ends = heads[..., 0], heads[..., 0] + heads[..., 1]
    is_used = heads[..., 1] > 0
    if not is_used.all():
        lows = np.where(is_used, lows, np.iinfo(np.int32).max)
        ends = np.where(is_used, ends, 0)
    starts = np.arange(0, heads.shape[1], tile)
    lows = np.minimum.reduceat(lows, starts, axis=1)
    ends = np.maximum.reduceat(ends, starts, axis=1)
    lows = np.minimum(lows, ends)
    return np.stack([lows, ends - lows], -1).astype(np.int32)


def _choose_axes(
    windows: Sequence[WindowAxis], steps: Sequence[int]
) -> tuple[tuple[int, int, int], tuple[int, ...]]:
    """Return the axes of a tile and their order in the batch (see _Tile).

    `steps` belong to the first sample.
    """
    line, part = _choose_line(windows, steps)
    nest = [axis.longest for axis in windows]
    used = [n for n, axis in enumerate(nest) if axis.length > 1]
    last = min(used, key=lambda n: abs(nest[n].dst), default=line)
    near = [n for n in used[:-1] if n < len(steps) and n not in (line, part)]
    rows = min(near, key=steps.__getitem__, default=len(nest) - 1)
    axes = rows if last in (line, part) else last, line, part

    def step(n: int) -> int:
        return abs(nest[axes[n]].dst) if axes[n] in used else 1 << 62  # outermost

    return axes, tuple(sorted(range(3), key=step, reverse=True))


def _choose_words(
    nest: Sequence[WindowAxis],
    axes: Sequence[int],
    order: Sequence[int],
    target: Side,
    places: Places | None,
) -> tuple[bool, int, int]:
    """Return is_joined, write and width of a tile (see _Tile)."""
    middle, inner = (nest[axes[n]] for n in order[1:])
    are_contiguous = bool(np.all(middle.dst == inner.length * inner.dst))
    is_joined = order[1:] == (1, 2) and are_contiguous and inner.longest.length > 1
    write = _alignment(nest, target, places, [axes[n] for n in order[2 - is_joined :]])
    return is_joined, write, max(1, write // target.item)


def _choose_tile(
    nest: Sequence[WindowAxis],
    axes: tuple[int, int, int],
    order: tuple[int, ...],
    item: int,
    target: Side,
    places: Places | None,
) -> _Tile:
    """Return the tile of a block of threads."""
    is_joined, write, width = _choose_words(nest, axes, order, target, places)
    rows, line, part = (nest[n].longest.length for n in axes)
    room, warps = min(policy.TILE_ITEMS, TILE_BYTES // item), THREADS // WARP
    if order[2] == 0:
        rows = min(rows, policy.MOST_LINES)
        line = _even_part(line, room // (rows * part))
    else:
        line = _even_part(line, min(policy.MOST_POSITIONS, TILE_BYTES // item // (warps * part)))
        most = max(warps, room // (line * part) // warps * warps)
        rows = min(rows, policy.MOST_LINES, most)
    lengths = [rows, line, part]
    rounded = 1 if is_joined else order[2]
    unit = width // gcd(width, lengths[2]) if is_joined else width
    lengths[rounded] = -(-lengths[rounded] // unit) * unit
    return _Tile(axes, tuple(lengths), order, width, write, is_joined)


def _choose_summed_tile(
    nest: Sequence[WindowAxis],
    axes: tuple[int, int, int],
    order: tuple[int, ...],
    target: Side,
    places: Places | None,
) -> _Tile:
    """Return the tile of a warp that resizes samples."""
    rows, line, part = (nest[n].longest.length for n in axes)
    groups = -(-part // policy.MOST_SUMMED)
    most = WARP // groups
    many, few = policy.SUM_LINES
    tiles = prod(axis.longest.length for axis in nest) // (many * most * part)
    lines = _even_part(rows, many if tiles >= policy.MANY_TILES else few)
    if order[2] == 1:  # threads next to each other write neighbors
        write = _alignment(nest, target, places)
        return _Tile(axes, (lines, _even_part(line, most), part), order, 1, write, False)
    are_rows_last = order[2] == 0
    line = _even_part(line, policy.SUM_POSITIONS // groups if are_rows_last else most)
    is_joined, write, width = _choose_words(nest, axes, order, target, places)
    if is_joined:
        while width // gcd(width, part) > most:
            width //= 2
            write //= 2
        unit = width // gcd(width, part)
        line = min(-(-line // unit), most // unit) * unit
    room = max(1, policy.STAGE_BYTES // (line * part * target.item))
    rows = min(room, min(rows, WARP) if are_rows_last else lines)
    if are_rows_last:
        rows = min(WARP, -(-rows // width) * width)
    return _Tile(axes, (rows, line, part), order, width, write, is_joined, is_staged=True)


def _choose_line(windows: Sequence[WindowAxis], steps: Sequence[int]) -> tuple[int, int]:
    """Return the axes U and V, along which a line of a sample extends; absent ones are NO_AXIS.

    V has the same positions in all windows.
    """
    nest = [axis.longest for axis in windows]
    resized = [n for n, axis in enumerate(nest) if axis.is_resized]
    absent = len(steps), len(steps) + 1
    used = [n for n in range(len(steps)) if nest[n].length > 1 or nest[n].is_resized]
    first, second, *_ = *sorted(used, key=steps.__getitem__), *absent
    most = policy.FEW_SUMS if resized else policy.FEW_CHANNELS
    is_even = np.all(windows[first].length == nest[first].length) and not windows[first].folds
    is_pixel = second not in absent and nest[first].length <= most and first not in resized
    is_pixel = is_pixel and is_even
    line = second if is_pixel else first
    # The last resized axis is summed along lines; a single axis may be summed before.
    if resized and line != resized[-1] and (len(resized) > 1 or line in resized):
        line = resized[-1]
        is_pixel = is_pixel and line != first
    return line, first if is_pixel and line == second else absent[0 if line != absent[0] else 1]


def _alignment(
    nest: Sequence[WindowAxis], target: Side, places: Places | None, run: Sequence[int] = ()
) -> int:
    """Return the size in bytes of the words that can be written along `run`, or of an item.

    The last axis of `run` is the innermost one of the batch, if its items are adjacent.
    """
    if run and np.any(nest[run[-1]].dst != target.item):
        run = ()
    steps = [] if places is None else [places.offsets]
    steps += [(axis.length > 1) * axis.step for n, axis in enumerate(nest) if n not in run]
    if run:
        steps.append(prod(nest[n].run for n in run) * target.item)
        steps += [jump for n in run for _, jump in nest[n].folds]
    divisors = [int(np.gcd.reduce(step, None)) for step in map(np.asarray, steps)]
    return target.width(divisors, WORD if run else target.item)


def _room(tile: _Tile, taps: int, target: Side, items: Items) -> int:
    """Return how many partial line sums fit into the shared memory of a warp."""
    rows, line, part = tile.lengths
    item = 8 if items.epilogue is not None and items.epilogue.source == "f8" else 4
    item *= 1 if items.ignored is None else 2
    staged = tile.is_staged * (rows + 16 // target.item) * line * part * target.item
    used = staged + rows * (64 + 24 * max(1, taps)) + item * WARP * policy.MOST_SUMMED
    free = policy.BLOCK_BYTES * WARP // policy.SUM_THREADS - used
    return min(policy.MOST_SUMS, free // item // 64 * 64)


def _even_part(length: int, most: int) -> int:
    """Return the longest of equal parts of a length, each of at most `most`."""
    return -(-length // -(-length // max(1, most)))

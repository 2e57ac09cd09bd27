"""Choose the axes and the shape of tiles, and pack the structs that `walk.cuh` declares.

A tile that is half empty has half of its bytes in flight, and a GPU needs about 40 KB in flight per
multiprocessor to saturate its memory. So a tile is as narrow as a short axis and longer along the
other one; if both are short, an axis is fused with a loop around it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd, log, prod
from typing import Any, NamedTuple

import numpy as np

from ...memory import Array
from ...planning.loops import Loop, SourcePixel, find_source_pixel
from . import policy
from .policy import BANK, LINE, MAX_COUNT, MAX_LOOPS, SECTOR, TILE_BYTES, WARP

NO_LOOP = Loop(1, 0, 0, 0)


def pack_divisor(count: int, *, is_ordered: bool = False) -> bytes:
    """Pack the divisor of a count as walk.cuh declares it.

    `is_ordered`: the loop of this count has a table of source offsets.
    """
    _check_turns(count)
    return struct.pack("4I", *_choose_divisor(count, (count - 1).bit_length()), is_ordered)


def make_divisors(counts: Array) -> Array:
    """Return the divisors of counts that `pack_divisor` packs, uint32 (counts, 4)."""
    _check_turns(counts.min(initial=1))
    _check_turns(counts.max(initial=1))
    lengths = np.frexp((counts - 1).astype(np.float64))[1].astype(np.int64)
    return np.stack([*_choose_divisor(counts, lengths), 0 * counts], -1).astype(np.uint32)


def _choose_divisor(count: Any, length: Any) -> tuple[Any, Any, Any]:
    """Return a count, its multiplier and its shift; `length` is the number of bits of count - 1.

    n // count is n * multiplier >> shift for every n < 2**31. Arguments may be int64 arrays.
    """
    shift = 31 + length
    return count, -(-(1 << shift) // count), shift


def _check_turns(count: int) -> None:
    if not 0 < count < MAX_COUNT:
        raise RuntimeError(f"{count} turns of one loop; kernels divide by 1 to 2**31 - 1")


def pack_offsets(loop: Loop) -> bytes:
    """Pack the steps of a loop in the source, the output and the coefficients."""
    return struct.pack("3q", loop.src, loop.dst, loop.coef_stride)


def channel_order(loop: Loop) -> tuple[Loop, tuple[int, ...]]:
    """Return a loop whose source stride is the unit of its offsets, and the offsets in this unit.

    The offsets are () if they are evenly spaced.
    """
    unit = gcd(*loop.offsets)
    if not unit:
        return loop, ()
    return loop._replace(src=unit), tuple([offset // unit for offset in loop.offsets])


def pack_loops(nest: Sequence[Loop]) -> bytes:
    """Pack loops, outermost first. One of them may have a table of source offsets."""
    if len(nest) > MAX_LOOPS:
        raise RuntimeError(f"{len(nest)} loops around a tile; kernels accept {MAX_LOOPS}")
    packed = b"".join(
        pack_divisor(loop.count, is_ordered=bool(loop.offsets))
        + pack_offsets(channel_order(loop)[0])
        for loop in nest
    )
    spare = (pack_divisor(1) + pack_offsets(NO_LOOP)) * (MAX_LOOPS - len(nest))
    return struct.pack("Q", len(nest)) + packed + spare


def pack_axis(fused: Sequence[Loop], tile: int) -> bytes:
    """Pack an axis of one loop, or of two contiguous ones, divided into tiles of length `tile`."""
    low = fused[-1]
    total = low.count
    wrap = NO_LOOP
    inner = pack_divisor(1)
    if len(fused) > 1:
        high = fused[0]
        total = high.count * low.count
        inner = pack_divisor(low.count)
        src, dst, coef = (a - low.count * b for a, b in zip(high.steps, low.steps, strict=True))
        wrap = Loop(high.count, src, dst, coef)
    packed = pack_divisor(-(-total // tile)) + inner + struct.pack("Q", total)
    return packed + pack_offsets(low) + pack_offsets(wrap)


@dataclass(frozen=True)
class TileAxis:
    """An axis of tiles: one loop or two, outermost first; `follow`: the two are contiguous."""

    loops: tuple[Loop, ...]
    follow: bool = True

    @property
    def count(self) -> int:
        """The length of the axis."""
        return prod(loop.count for loop in self.loops)

    @property
    def low(self) -> Loop:
        """The inner loop, whose iterations are contiguous."""
        return self.loops[-1]

    @property
    def loop_mode(self) -> int:
        """ONE, FOLLOW or APART of `transpose.cu`."""
        return 1 if len(self.loops) == 1 else 3 - self.follow

    @property
    def gap(self) -> tuple[Loop, ...]:
        """The outer loop if the axis is not contiguous between its iterations, else nothing."""
        return () if self.follow else self.loops[:1]

    def words(self, item: int) -> list[int]:
        """Return the sizes in bytes that a word must divide to stay within contiguous memory."""
        return [] if self.follow else [self.low.count * item]


def fit_axes(
    rows: Sequence[Loop], run: Sequence[Loop], outer: list[Loop], item: int
) -> tuple[TileAxis, TileAxis]:
    """Return both axes of a tile, moving loops between them and the outer loops.

    A short axis is fused with an outer loop with which it is contiguous on the axis' own side; if
    the tile is still mostly empty, with any outer loop.
    """
    axes = [TileAxis(tuple(rows)), TileAxis(tuple(run))]
    read, written = rows[-1].count * rows[-1].src, run[-1].count * run[-1].dst
    # The axis with fewer contiguous bytes gets a loop that follows both.
    for index in (0, 1) if min(LINE, read) <= min(LINE, written) else (1, 0):
        axes[index] = _fit_axis(axes[index].loops, outer, index + 1, policy.USUAL[item])
    few = is_few(prod(axis.count for axis in axes) * prod(loop.count for loop in outer), item)
    for index in (1, 0):
        room = TILE_BYTES // item // prod(axis.count for axis in axes)
        if room > 1 and not few and len(axes[index].loops) == 1:
            axes[index] = _fuse_any_outer(axes[index], outer)
    return axes[0], axes[1]


def is_few(places: int, item: int) -> bool:
    """Return True if an array is so small that no shape of tiles fills a GPU."""
    return places * item < policy.FEW_TILES * TILE_BYTES


def _fit_axis(axis: Sequence[Loop], outer: list[Loop], side: int, usual: int) -> TileAxis:
    loops = tuple(axis)
    if len(loops) > 1 and prod(loop.count for loop in loops) >= MAX_COUNT:
        outer.append(loops[0])
        loops = loops[1:]
    low = loops[0]
    if len(loops) == 1 and low.count % usual and low.count < policy.FUSED_TILES * usual:
        return fuse_next(low, outer, side, follow=True)
    return TileAxis(loops)


def _following(low: Loop, outer: Sequence[Loop], side: int) -> Iterator[Loop]:
    """Yield the loops that continue a loop on a side, and can be fused with it."""
    for high in outer:
        follows = high[side] == low.count * low[side] and not high.offsets
        if follows and high.count * low.count < MAX_COUNT:
            yield high


def fuse_next(low: Loop, outer: list[Loop], side: int, *, follow: bool) -> TileAxis:
    """Return the axis of a loop, fused with the first outer loop that continues it on a side.

    `follow`: the two are contiguous on the side of the axis.
    """
    for high in _following(low, outer, side):
        outer.remove(high)
        return TileAxis((high, low), follow)
    return TileAxis((low,))


def _fuse_any_outer(axis: TileAxis, outer: list[Loop]) -> TileAxis:
    """Fuse an axis with the outer loop of the smallest stride."""
    fit = [loop for loop in outer if loop.count * axis.count < MAX_COUNT and loop.src and loop.dst]
    if not fit:
        return axis
    high = min(fit, key=lambda loop: min(abs(loop.src), abs(loop.dst)))
    outer.remove(high)
    return TileAxis((high, axis.low), follow=False)


def choose_tile(
    rows: TileAxis,
    run: TileAxis,
    times: int,
    items: tuple[int, int],
    words: tuple[int, int],
    shifted: tuple[bool, bool] = (False, False),
    alignment: int = SECTOR,
) -> tuple[int, int]:
    """Return the lengths of a tile along rows and run; the axes occur `times` times.

    `items`: item sizes in the source and the output; `words`: items moved at once on each side;
    `shifted`: words may begin anywhere in the tile; `alignment`: bytes that divide the addresses of
    all output rows.
    """
    (source, target), (load, _) = items, words
    tall = policy.USUAL[source]
    usual = tall, max(tall, TILE_BYTES // source // tall)
    if is_few(times * rows.count * run.count, source):
        return usual
    overlap = SECTOR // target if shifted[1] else 0
    written = policy.LOST_BYTES
    if not shifted[1]:
        written += policy.WRITE_CUT * (SECTOR - alignment) // SECTOR
    talls, wides = _lengths_of_tiles(rows, run, items, words, shifted)
    unit = max(16, LINE // load)  # transpose.cu pads the rows of a tile to it
    best = (0.0, 0, 0)
    # Rows that begin anywhere in a sector have about one more.
    aligned = source if shifted[0] else load * source
    lost = policy.LOST_BYTES if 2 * aligned >= SECTOR else SECTOR - aligned
    for tall in talls:
        reached = _bandwidth_share(tall, rows, source, run.low.src, lost)
        for wide in wides:
            if tall * -(-wide * source // unit) * unit > policy.PADDED_BYTES:
                continue
            room, apart = tall * wide * source, wide - overlap
            score = _occupancy(rows, tall) * _occupancy(run, apart) * apart / wide * reached
            full = min(1, room / TILE_BYTES) ** policy.ROOM_POWER
            score *= _bandwidth_share(wide, run, target, rows.low.dst, written) * full
            if (tall, wide) != usual:
                score *= policy.RELUCTANCE
            if room > policy.MOST_TILE_BYTES:
                score *= policy.FEWER_BLOCKS
            best = max(best, (score, tall, wide))
    return best[1:]


def lost_bytes(alignment: int, *, is_read: bool) -> float:
    """Return the overhead of a row in bytes.

    `alignment`: bytes that divide the addresses of its beginning and its end.
    """
    cut = 1 - alignment / SECTOR
    if is_read:
        return policy.READ_LOST + policy.READ_CUT * cut
    return policy.WRITE_LOST + policy.WRITE_CUT * cut


def tile_share(
    rows: TileAxis,
    run: TileAxis,
    lengths: tuple[int, int],
    items: tuple[int, int],
    alignments: tuple[int, int],
    overlap: int,
) -> float:
    """Return the estimated speed of tiles of these lengths with wide words, relative to a copy.

    `alignments`: bytes that divide the addresses of all rows that are read, and of those that are
    written in parts; `overlap`: places of the run that two tiles have in common.
    """
    (tall, wide), (source, target) = lengths, items
    lost = lost_bytes(alignments[0], is_read=True), lost_bytes(alignments[1], is_read=False)
    read = _row_time(tall, rows, source, run.low.src, lost[0])
    write = _row_time(wide - overlap, run, target, rows.low.dst, lost[1])
    time = policy.FULL_TIME + (read * source + write * target) / (source + target)
    full = _occupancy(rows, tall) * _occupancy(run, wide - overlap)
    share: float = full**policy.EMPTY_POWER * (1 - overlap / wide) ** policy.OVERLAP_POWER / time
    return share * (policy.APART_SHARE if rows.gap or run.gap else 1)


def _row_time(length: int, axis: TileAxis, item: int, across: int, lost: float) -> float:
    """Return the relative overhead of rows of this length."""
    if length >= axis.low.count and across == axis.low.count * item:
        return 0.0
    return lost / (min(length, axis.count if axis.follow else axis.low.count) * item)


def tile_groups(along: int, across: int) -> tuple[int, int]:
    """Return the tiles of a group, and the number of groups.

    `along` and `across`: the tiles along the output, and along the source. Blocks that run at the
    same time move the tiles of a group at all places across, and so share the lines of memory at
    the borders of tiles on both sides.
    """
    groups = -(-along // policy.GROUP) if across > 1 else 1
    return -(-along // groups), groups


def is_long(axis: TileAxis, item: int) -> bool:
    """Return True if an axis is at least as long as a line of banks."""
    return axis.count * item >= LINE


def _lanes(rows: TileAxis, load: int, item: int) -> int:
    """Return the adjacent words that adjacent threads read: a sector, if the axis is long."""
    return min(8, -(-SECTOR // (load * item))) if is_long(rows, item) else 1


def _lengths_of_tiles(
    rows: TileAxis,
    run: TileAxis,
    items: tuple[int, int],
    words: tuple[int, int],
    shifted: tuple[bool, bool],
) -> tuple[set[int], set[int]]:
    """Return the lengths of tiles to try along rows, and along the run."""
    (source, target), (load, store) = items, words
    talls = _lengths(rows, LINE // source if shifted[0] else load * _lanes(rows, load, source))
    if shifted[1]:  # threads share the words of full lines, equally many in each iteration
        return talls, {LINE // target << more for more in range(6)}
    return talls, _lengths(run, max(store, 4 // source))


def _lengths(axis: TileAxis, word: int) -> set[int]:
    """Return the lengths to try: powers of two, 3 times these, and few equal parts of the axis."""
    powers = {word * odd << more for more in range(13) for odd in (1, 3)}
    parts = {-(-axis.count // (count * word)) * word for count in range(1, 9)}
    return powers | parts


def _occupancy(axis: TileAxis, length: int) -> float:
    """Return the fraction of the tiles along an axis that is not empty."""
    return axis.count / (-(-axis.count // length) * length)


def _bandwidth_share(
    length: int, axis: TileAxis, item: int, across: int, lost: int = policy.LOST_BYTES
) -> float:
    """Return the fraction of peak bandwidth for rows of a length; `across`: the row stride."""
    if length >= axis.low.count and across == axis.low.count * item:
        return 1.0
    return length * item / (length * item + lost)


# ---- lines -------------------------------------------------------------------------------


class Lines(NamedTuple):
    """Pixels that are packed in the source (`split`) or the output, and planes on the other."""

    split: bool
    pixels: TileAxis
    planes: Loop
    outer: list[Loop]
    pixel: SourcePixel

    @property
    def line_channels(self) -> int:
        """The items of a pixel in the line."""
        return self.pixel.items if self.split else self.planes.count

    @property
    def has_gaps(self) -> bool:
        """True if consecutive images are not adjacent in the line."""
        return len(self.pixels.loops) > 1 and self.pixels.follow


def find_lines(nest: Sequence[Loop], source: int, target: int) -> list[Lines]:
    """Return all ways to see the loops as packed pixels and planes, fewest channels first.

    Small images that follow each other in the line, or whose short rows do in the output, are
    fused, so that a chunk has several.
    """
    candidates = []
    for split, line, rows, item, other in (
        (True, 1, 2, source, target),
        (False, 2, 1, target, source),
    ):
        for planes, low, pixel in _pixels(nest, line, rows, (item, other)):
            around = [loop for loop in nest if loop is not planes]
            outer = [loop for loop in around if loop is not low]
            high = _next_row(low, outer, other) if split and not pixel.order else None
            if high is not None:
                apart = [loop for loop in outer if loop is not high]
                candidates.append(Lines(split, TileAxis((high, low)), planes, apart, pixel))
            # Words that do not cross images are narrow if images have odd sizes.
            small = policy.SMALL_IMAGE if low.count * other % BANK == 0 else policy.TINY_IMAGE
            few = low.count * pixel.items * source < small
            axis = fuse_next(low, outer if few else [], line, follow=False)
            candidates.append(Lines(split, axis, planes, outer, pixel))
    return sorted(candidates, key=lambda lines: lines.planes.count)


def _pixels(
    nest: Sequence[Loop], line: int, rows: int, items: tuple[int, int]
) -> Iterator[tuple[Loop, Loop, SourcePixel]]:
    """Yield the loop over the channels of a line, and the one over its pixels.

    `items`: item sizes in the line and in the rows.
    """
    (item, other) = items
    for planes in nest:
        if planes[line] != item or planes.count == 1:
            continue
        steps = planes.count * item, other
        low = next((n for n in nest if (n[line], n[rows]) == steps and not n.offsets), None)
        if low is not None and low is not planes:
            yield planes, low, SourcePixel(planes.count)
    if line != 1:
        return
    for low in nest:
        inside = [loop for loop in nest if loop.offsets or 0 < abs(loop.src) < low.src]
        if low.dst != other or low.src > policy.MOST_PIXEL or len(inside) != 1 or inside[0] is low:
            continue
        pixel = find_source_pixel(inside[0], low, item)
        if pixel is not None and pixel.order:
            yield inside[0], low, pixel


def _next_row(low: Loop, outer: list[Loop], item: int) -> Loop | None:
    """Return the loop that makes one long row of short rows of pixels; None if there is none."""
    if low.count * item >= LINE:
        return None
    least = policy.LONG_ROW / (low.count * item)
    return next((high for high in _following(low, outer, 2) if high.count >= least), None)


def line_share(lines: Lines, items: tuple[int, int], word: int, alignment: int, tile: int) -> float:
    """Return the estimated speed of chunks of `tile` pixels, relative to a copy.

    `items`: item sizes in the line and in the rows; `word`: bytes of a row moved at once;
    `alignment`: of the rows.
    """
    (_, item) = items
    length = lines.pixels.count if lines.has_gaps else lines.pixels.low.count
    own = length * item
    if not lines.split:  # the cache holds sectors that are read for other warps
        time = policy.MERGE_TIME if _beside(lines) == 1 else policy.BESIDE_TIME
        return own / (own + SECTOR - alignment) / time
    lost = lost_bytes(alignment, is_read=False)
    time = policy.FULL_TIME + lost / (min(tile, length) * sum(items))
    # A warp writes parts of sectors that another warp of the block completes soon.
    own = min(own, word * max(1, WARP // _beside(lines)))
    return (
        own / (own + (SECTOR - alignment) / 8) / time / pixel_time(lines.pixel, lines.planes, items)
    )


def pixel_time(pixel: SourcePixel | None, planes: Loop, items: tuple[int, int]) -> float:
    """Return the time of reading whole pixels, relative to reading only their selected items."""
    if pixel is None:
        return 1.0
    source, target = items
    return (source * max(1, pixel.items / planes.count) + target) / (source + target)


def _beside(lines: Lines) -> int:
    """Return the rows that a warp works on at once."""
    beside = lines.planes.count & -lines.planes.count
    if lines.pixel.order or lines.planes.offsets:
        return min(beside, policy.MOST_BESIDE)
    return beside


def choose_chunk(lines: Lines, items: tuple[int, int], word: int, shifted: bool) -> int | None:
    """Return the number of pixels in a chunk; None if rows are too short, due to many channels.

    `items`: item sizes in the source and in the rows; `word`: bytes of a row moved at once.
    """
    item, apart = items
    channels, beside = lines.line_channels, _beside(lines)
    if beside > policy.MOST_BESIDE:
        return None
    stretch = word // apart * (32 // beside)  # pixels of a row that a warp moves at once
    fits = policy.MOST_LINE_BYTES // (channels * item * stretch)
    if fits * stretch * apart < policy.LEAST_ROW_BYTES:
        return None
    usual = max(TILE_BYTES // (channels * item), policy.LEAST_ROW_BYTES // apart)
    if not is_few(lines.pixels.count * channels * prod(loop.count for loop in lines.outer), item):
        usual = min(usual, lines.pixels.count)
    # The number of stretches is such that a warp handles either one channel or one stretch.
    fitting = [n for n in policy.STRETCHES if n <= fits]
    many: int = min(fitting, key=lambda n: abs(log(n * stretch / usual)))
    length = many * stretch
    # Of rows that begin within a word, a transpose writes longer parts.
    if shifted and length * apart < LINE and length < lines.pixels.count:
        return None
    return length - (word // apart if shifted else 0)

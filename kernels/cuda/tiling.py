"""The axes of a tile and its shape, so that little of it is empty. Pure: integers in and out.

A tile that is half empty has half of the bytes under way, and a GPU needs some 40 KB in each of its
multiprocessors to be as fast as its memory. So a tile is as narrow as a short axis and longer along
the other one; and where both are short, an axis takes the turns of a loop around it as well.

The parts of parameter blocks, as bytes: what `walk.cuh` declares, in the same order.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from math import prod
from typing import NamedTuple

from ...planning.loops import Loop

MAX_LOOPS = 12  # of a nest in a parameter block: outer loops, and those of fused axes and items
MAX_COUNT = 1 << 31  # what a kernel divides is below
NO_LOOP = Loop(1, 0, 0, 0)


def divisor(count: int) -> bytes:
    """A number to divide by: n // count is n * multiplier >> shift for every n < 2**31."""
    if not 0 < count < MAX_COUNT:
        raise RuntimeError(f"{count} turns of one loop; kernels divide by less than 2**31")
    length = (count - 1).bit_length()
    multiplier = -(-(1 << 31 + length) // count)
    return struct.pack("4I", count, multiplier, 31 + length, 0)


def offsets(loop: Loop) -> bytes:
    """The steps of a loop in the source, the output and the coefficients."""
    return struct.pack("3q", loop.src, loop.dst, loop.coef)


def loops(nest: Sequence[Loop]) -> bytes:
    """Loops, outermost first."""
    if len(nest) > MAX_LOOPS:
        raise RuntimeError(f"{len(nest)} loops around a tile; kernels take {MAX_LOOPS}")
    packed = b"".join(divisor(loop.count) + offsets(loop) for loop in nest)
    spare = (divisor(1) + offsets(NO_LOOP)) * (MAX_LOOPS - len(nest))
    return struct.pack("Q", len(nest)) + packed + spare


def axis(fused: Sequence[Loop], tile: int) -> bytes:
    """An axis of one loop, or of two that follow each other, cut into tiles of so many places."""
    low = fused[-1]
    total = low.count
    wrap = NO_LOOP
    inner = divisor(1)
    if len(fused) > 1:
        high = fused[0]
        total = high.count * low.count
        inner = divisor(low.count)
        steps = (a - low.count * b for a, b in zip(high[1:], low[1:], strict=True))
        wrap = Loop(high.count, *steps)
    packed = divisor(-(-total // tile)) + inner + struct.pack("Q", total)
    return packed + offsets(low) + offsets(wrap)


TILE_BYTES = 16384  # 64 for each thread, all under way at once; and eight tiles fit any GPU
MOST_BYTES = TILE_BYTES * 5 // 4  # of a tile that is fuller for being a little larger
# Device memory gives its full speed to long rows: 7 % less to 128 bytes, 23 % less to 32.
LOST_BYTES = 10
SECTOR, LINE = 32, 128  # bytes that memory moves at once, and of all banks together
# How much fuller a tile of another shape has to be: each shape is compiled.
RELUCTANCE = 0.96
FEW_TILES = 64  # are too few for a GPU, whatever their shape
FUSED_TILES = 8  # an axis of fewer tiles is lengthened, for its last one is rarely full
USUAL = {1: 128, 2: 64, 4: 64, 8: 32, 16: 32}  # places along an axis, by the bytes of an item


@dataclass(frozen=True)
class TileAxis:
    """An axis of tiles: one loop or two, outermost first, and whether these FOLLOW each other."""

    loops: tuple[Loop, ...]
    follow: bool = True

    @property
    def count(self) -> int:
        """Its places."""
        return prod(loop.count for loop in self.loops)

    @property
    def low(self) -> Loop:
        """The loop whose places are neighbours."""
        return self.loops[-1]

    @property
    def kind(self) -> int:
        """ONE, FOLLOW or APART of `transpose.cu`."""
        return 1 if len(self.loops) == 1 else 3 - self.follow

    @property
    def gap(self) -> tuple[Loop, ...]:
        """The loop at whose turns the axis is not contiguous, if there is one."""
        return () if self.follow else self.loops[:1]

    def words(self, item: int) -> list[int]:
        """The bytes that words have to divide, where there is a gap: none may lie across it."""
        return [] if self.follow else [self.low.count * item]


def fitted(
    rows: Sequence[Loop], run: Sequence[Loop], outer: list[Loop], item: int
) -> tuple[TileAxis, TileAxis]:
    """Both axes of a tile; what they lose or gain is put among the outer loops or taken from them.

    A short axis is lengthened by the loop around it, where the two are one on the axis' own side;
    if a tile stays empty for the most part even so, by any.
    """
    axes = [_fit_axis(axis, outer, side, USUAL[item]) for side, axis in ((1, rows), (2, run))]
    few = is_few(prod(axis.count for axis in axes) * prod(loop.count for loop in outer), item)
    for at in (1, 0):
        room = TILE_BYTES // item // prod(axis.count for axis in axes)
        if room > 1 and not few and len(axes[at].loops) == 1:
            axes[at] = _fuse_any_outer(axes[at], outer)
    return axes[0], axes[1]


def is_few(places: int, item: int) -> bool:
    """Whether an array is so small that no shape of tiles fills a GPU."""
    return places * item < FEW_TILES * TILE_BYTES


def _fit_axis(axis: Sequence[Loop], outer: list[Loop], side: int, usual: int) -> TileAxis:
    loops = tuple(axis)
    if len(loops) > 1 and prod(loop.count for loop in loops) >= MAX_COUNT:
        outer.append(loops[0])
        loops = loops[1:]
    low = loops[0]
    if len(loops) == 1 and low.count % usual and low.count < FUSED_TILES * usual:
        for high in outer:
            if high[side] == low.count * low[side] and high.count * low.count < MAX_COUNT:
                outer.remove(high)
                return TileAxis((high, low))
    return TileAxis(loops)


def _fuse_any_outer(axis: TileAxis, outer: list[Loop]) -> TileAxis:
    """The axis with the turns of the outer loop whose turns lie closest to each other."""
    fit = [loop for loop in outer if loop.count * axis.count < MAX_COUNT and loop.src and loop.dst]
    if not fit:
        return axis
    high = min(fit, key=lambda loop: min(abs(loop.src), abs(loop.dst)))
    outer.remove(high)
    return TileAxis((high, axis.low), follow=False)


def shape(
    rows: TileAxis,
    run: TileAxis,
    times: int,
    items: tuple[int, int],
    words: tuple[int, int],
    shifted: tuple[bool, bool] = (False, False),
) -> tuple[int, int]:
    """Places of a tile along rows and run, of an array of so many `times` both.

    `items`: bytes of one in the source and the output; `words`: how many are moved at once;
    `shifted`: whether these begin anywhere in the tile. Of all shapes of words that fit, the
    fullest, and of those that are as full the one whose rows are longest.
    """
    (source, target) = items
    (load, store) = words
    usual = USUAL[source], max(USUAL[source], TILE_BYTES // source // USUAL[source])
    if is_few(times * rows.count * run.count, source):
        return usual
    shared = store if shifted[1] else 0
    talls = _lengths(rows, LINE // source if shifted[0] else load * _lanes(rows, load, source))
    wides = _lengths(run, max(store, 4 // source))
    if shifted[1]:  # threads share words in whole lines, as many in each turn
        wides = {LINE // target << more for more in range(6)}
    found = (0.0, 0, 0)
    for tall in talls:
        reached = _bandwidth_share(
            tall, rows, source, run.low.src, SECTOR if shifted[0] else LOST_BYTES
        )
        for wide in wides:
            room = tall * wide * source
            if room > MOST_BYTES:
                continue
            apart = wide - shared
            score = _occupancy(rows, tall) * _occupancy(run, apart) * apart / wide * reached
            score *= (
                _bandwidth_share(wide, run, target, rows.low.dst) * min(1, room / TILE_BYTES) ** 0.5
            )
            if (tall, wide) != usual:
                score *= RELUCTANCE
            found = max(found, (score, tall, wide))
    return found[1:]


def is_long(axis: TileAxis, item: int) -> bool:
    """Whether an axis has a line of banks."""
    return axis.count * item >= LINE


def _lanes(rows: TileAxis, load: int, item: int) -> int:
    """Words that threads next to each other read side by side: a sector, if the axis is long."""
    return min(8, -(-SECTOR // (load * item))) if is_long(rows, item) else 1


def _lengths(axis: TileAxis, word: int) -> set[int]:
    """The lengths that are tried: powers of two, and what cuts the axis into few equal parts."""
    powers = {word * odd << more for more in range(13) for odd in (1, 3)}
    parts = {-(-axis.count // (count * word)) * word for count in range(1, 9)}
    return powers | parts


def _occupancy(axis: TileAxis, length: int) -> float:
    """The share of tiles along an axis that is not empty."""
    return axis.count / (-(-axis.count // length) * length)


def _bandwidth_share(
    length: int, axis: TileAxis, item: int, across: int, lost: int = LOST_BYTES
) -> float:
    """The share of its speed that memory gives to rows so long; `across`: from row to row."""
    if length >= axis.low.count and across == axis.low.count * item:
        return 1.0
    return length * item / (length * item + lost)


# ---- lines -------------------------------------------------------------------------------

MOST_LINE_BYTES = 28672  # of a chunk whose rows would be shorter than a sector otherwise
LEAST_ROW = 64  # bytes of a row that a chunk has
MOST_BESIDE = 4  # rows that a warp moves at once; of more it would move less than sectors
STRETCHES = (1, 2, 4, *range(8, 129, 8))
SMALL_IMAGE, TINY_IMAGE = 4 * TILE_BYTES, TILE_BYTES // 4  # of which a chunk takes several
BANK = 4  # bytes of a word of a row, unless an item is larger


class Lines(NamedTuple):
    """Pixels that lie side by side on one side, which `split` says is the source's."""

    split: bool
    pixels: TileAxis
    planes: Loop
    outer: list[Loop]


def find_lines(nest: Sequence[Loop], source: int, target: int) -> list[Lines]:
    """What are pixels on one side and rows on the other, that of the fewest channels first.

    Chunks of small images take several, where they follow each other in the line.
    """
    found = []
    for split, line, rows, item, other in (
        (True, 1, 2, source, target),
        (False, 2, 1, target, source),
    ):
        for planes, low in permutations(nest, 2):
            size = planes.count * item
            if (planes[line], low[line], low[rows]) != (item, size, other) or planes.count == 1:
                continue
            outer = [loop for loop in nest if loop is not low and loop is not planes]
            # Words that lie in one image each are narrow where images are odd.
            small = SMALL_IMAGE if low.count * other % BANK == 0 else TINY_IMAGE
            few = low.count * planes.count * source < small
            axis = _fuse_images(low, outer if few else [], line)
            found.append(Lines(split, axis, planes, outer))
    return sorted(found, key=lambda lines: lines.planes.count)


def _fuse_images(low: Loop, outer: list[Loop], line: int) -> TileAxis:
    """The loop of pixels, and that of the images which follow each other in the line."""
    for high in outer:
        if high[line] == low.count * low[line] and low.count * high.count < MAX_COUNT:
            outer.remove(high)
            return TileAxis((high, low), follow=False)
    return TileAxis((low,))


def chunk(lines: Lines, items: tuple[int, int], word: int, shifted: bool) -> int | None:
    """Pixels of a chunk; None where rows of so many channels would be too short.

    `items`: bytes of one in the source and in rows, which move by words.
    """
    item, apart = items
    channels = lines.planes.count
    beside = channels & -channels  # rows that a warp works on at once
    if beside > MOST_BESIDE:
        return None
    stretch = word // apart * (32 // beside)  # pixels of a row that a warp moves at once
    fits = MOST_LINE_BYTES // (channels * item * stretch)
    if fits * stretch * apart < LEAST_ROW:
        return None
    usual = max(TILE_BYTES // (channels * item), LEAST_ROW // apart)
    if not is_few(lines.pixels.count * channels * prod(loop.count for loop in lines.outer), item):
        usual = min(usual, lines.pixels.count)
    # So many stretches that a warp takes all of the same channel, or the same one of all.
    many: int = max(n for n in STRETCHES if n <= min(fits, max(1, round(usual / stretch))))
    return many * stretch - (word // apart if shifted else 0)

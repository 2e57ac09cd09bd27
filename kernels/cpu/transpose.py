"""Register-tile transposes: one source run becomes one item of each of many output runs.

A block has n output-contiguous positions r and m source-contiguous positions q: item (r, q) goes
from source + src_offsets[r] + q * itemsize to output + dst_offsets[q] + r * itemsize. The tables
hold byte offsets: `dst_offsets` for the whole block, `src_offsets` for one period, from which a
step leads to the next. So an axis may be one array axis (a constant stride) or two fused ones
(`hwc` if c is too short to fill a register).

The block is divided into tiles of whole cache lines: 64 bytes of output by 16 to 64 of source.

    source rows          one 16-byte lane            output
    a0 a1 a2 a3          of the four vectors         a0 b0 c0 d0 | e0 ...
    b0 b1 b2 b3    ->    a0 b0 c0 d0           ->    a1 b1 c1 d1 | e1 ...
    c0 c1 c2 c3          ...                         ...
    d0 d1 d2 d3

Rows a, b, c, d fill lane 0 of four registers, the next four rows lane 1, and so on, so the
shuffles never cross a lane (one cycle each), and AVX-512, AVX2 and SSE differ in the number of
lanes only. Single bytes are first copied to a packed area: a tile of them is 16 wide, so every
source line would be visited four times, and rows whose distance is a power of two evict each other
from the cache in between.

A remainder at an end is covered by a tile that overlaps its neighbor and writes the same values
again. Blocks shorter than a tile use one-lane tiles, then single items.

Two microkernels have a side that is shorter than the k items of a lane, such as 5 to 15 channels of
one byte:

- `shortrows`: source rows of few items (bhwc -> bchw). 16 bytes of every row are read, and only the
  tile's rows that exist are stored. Rows so close to the end of the source that 16
  bytes cannot be read from them are copied first.
- `shortruns`: output rows of few items (bchw -> bhwc). The lanes hold different columns of the
  source, and 16 bytes are stored for each output row. The next row is stored over the surplus, so
  the target is always the scratch area.
"""

from __future__ import annotations

from numba import uintp

from .params import LANE, LINE, ROWS_TABLE, RUN_PERIOD, RUN_REACH, RUN_STEP, RUN_TABLE
from .simd import (
    i64_at,
    move_item,
    move_vector,
    prefetch_line,
    stack,
    transpose_short_rows,
    transpose_short_runs,
    transpose_tile,
)
from .walk import inline

PACKED_ROW = 128  # bytes of each source row in the packed copy of bytes


def transpose_microkernel(itemsize, channels, literal, streaming):
    """Make the microkernel.

    `literal` has the lanes, depth and squares of a tile, and the size of floats that are added to
    the output, or 0 ("4x2x2x0").
    """
    lanes, depth, squares, added = map(int, literal.split("x"))
    transpose = make_transpose(itemsize, lanes, depth, squares, streaming, added)

    @inline
    def move(params, src, end, dst, n, m, ahead):
        src_offsets = params + uintp(8 * i64_at(params, RUN_TABLE))
        dst_offsets = params + uintp(8 * i64_at(params, ROWS_TABLE))
        period = i64_at(params, RUN_PERIOD)
        step = i64_at(params, RUN_STEP)
        transpose(src, src_offsets, period, step, n, dst, dst_offsets, m, ahead)

    return move


def item_transpose(itemsize):
    """Build items(src, src_offsets, dst, dst_offsets, n, m): m columns of n rows, item by item."""

    @inline
    def items(src, src_offsets, dst, dst_offsets, n, m):
        for q in range(m):
            for r in range(n):
                x = src + uintp(i64_at(src_offsets, r) + q * itemsize)
                move_item(x, dst + uintp(i64_at(dst_offsets, q) + r * itemsize), itemsize)

    return items


def tile_transpose(itemsize, lanes, depth, squares, streaming, pitch=0, added=0):
    """Build tile(src, src_offsets, dst, dst_offsets, skip, aligned): see `transpose_tile`.

    A tile that is not `aligned` begins within a cache line of the output, and is not streamed.
    """

    @inline
    def tile(src, src_offsets, dst, dst_offsets, skip, aligned):
        # Two calls, because Numba must see `streaming` as a constant.
        if streaming and not aligned:
            transpose_tile(
                src,
                src_offsets,
                dst,
                dst_offsets,
                skip,
                itemsize,
                lanes,
                depth,
                squares,
                0,
                pitch,
                added,
            )
        else:
            transpose_tile(
                src,
                src_offsets,
                dst,
                dst_offsets,
                skip,
                itemsize,
                lanes,
                depth,
                squares,
                streaming,
                pitch,
                added,
            )

    return tile


def make_transpose(itemsize, lanes, depth, squares, streaming, added=0):
    """Build transpose(src, src_offsets, period, step, n, dst, dst_offsets, m, ahead).

    `ahead`: the offset in bytes of the next block's source, which is prefetched; 0: it is not. The
    L1 cache has no room for it beside the scratch area: transposes of 9 to 64 channels took 1.1 to
    2 times as long with prefetching into it (AMD EPYC, 2026-11-27).
    """
    side = LANE // itemsize
    deep = side * lanes * depth
    wide = side * squares
    packed = deep * PACKED_ROW
    items = item_transpose(itemsize)
    full = tile_transpose(itemsize, lanes, depth, squares, streaming, added=added)
    narrow = tile_transpose(itemsize, lanes, depth, 1, streaming, added=added)
    from_packed = tile_transpose(itemsize, lanes, depth, 1, streaming, PACKED_ROW)
    square = tile_transpose(itemsize, 1, 1, 1, 0)

    @inline
    def packed_lines(src, src_offsets, dst, dst_offsets, m, aligned, ahead):
        """Transpose the full cache lines of `deep` source rows via a packed copy."""
        packed_rows = stack(packed)
        q = 0
        while q + LINE <= m:
            count = min(m - q, PACKED_ROW) // LINE
            for i in range(deep):
                x = src + uintp(i64_at(src_offsets, i) + q)
                y = packed_rows + uintp(i * PACKED_ROW)
                for line in range(count):
                    if ahead:
                        prefetch_line(x + uintp(line * LINE) + ahead, 2)
                    move_vector(x + uintp(line * LINE), y + uintp(line * LINE), LINE, 0)
            for s in range(0, LINE, side):
                for line in range(count):
                    pos = line * LINE + s
                    x = packed_rows + uintp(pos)
                    table = dst_offsets + uintp(8 * (q + pos))
                    from_packed(x, src_offsets, dst, table, 0, aligned)
            q += count * LINE
        return q

    @inline
    def fetch(src, src_offsets, q, count, ahead):
        """Prefetch the next line of `count` rows of a later block, if item q begins a line."""
        if ahead and q * itemsize % LINE == 0:
            for i in range(count):
                prefetch_line(src + uintp(i64_at(src_offsets, i) + q * itemsize) + ahead, 2)

    @inline
    def band(src, src_offsets, dst, dst_offsets, m, aligned, ahead):
        """Transpose `deep` source rows, all m items of each."""
        q = 0
        if itemsize == 1:
            q = packed_lines(src, src_offsets, dst, dst_offsets, m, aligned, ahead)
        while q + wide <= m:
            fetch(src, src_offsets, q, deep, ahead)
            x = src + uintp(q * itemsize)
            full(x, src_offsets, dst, dst_offsets + uintp(8 * q), 0, aligned)
            q += wide
        while q < m:
            fetch(src, src_offsets, q, deep, ahead)
            skip = max(0, q + side - m)  # rows that the tile before has stored
            q -= skip
            x = src + uintp(q * itemsize)
            narrow(x, src_offsets, dst, dst_offsets + uintp(8 * q), skip, aligned)
            q += side

    @inline
    def small(src, src_offsets, dst, dst_offsets, n, m, ahead):
        """Transpose fewer rows than a tile, by squares or by items."""
        for first in range(0, m, side):
            fetch(src, src_offsets, first, min(side, n), ahead)
            q = max(min(first, m - side), 0)
            x = src + uintp(q * itemsize)
            table = dst_offsets + uintp(8 * q)
            if n >= side and m >= side:
                square(x, src_offsets, dst, table, 0, True)
            else:
                items(x, src_offsets, dst, table, min(side, n), min(side, m))

    @inline
    def transpose(src, src_offsets, period, step, n, dst, dst_offsets, m, ahead):
        large = n >= deep and m >= side
        reach = deep if large else side
        for first in range(0, n, reach):
            r = max(min(first, n - reach), 0)
            repeat = uintp(r) // uintp(period)
            pos = uintp(r) % uintp(period)
            x = src + repeat * uintp(step)
            y = dst + uintp(r * itemsize)
            table = src_offsets + pos * uintp(8)
            if large:
                band(x, table, y, dst_offsets, m, r == first, ahead)
            else:
                small(x, table, y, dst_offsets, n, m, ahead)

    return transpose


def shortrows_microkernel(itemsize, channels, literal, streaming):
    """Make the microkernel; `literal` has the lanes and the most items of a row ("4x8")."""
    lanes, most = map(int, literal.split("x"))
    wide, wide_reach = short_rows_tile(itemsize, lanes, most, streaming)
    narrow, narrow_reach = short_rows_tile(itemsize, 1, most, 0)
    items = item_transpose(itemsize)

    @inline
    def move(params, src, end, dst, n, m, ahead):
        src_offsets = params + uintp(8 * i64_at(params, RUN_TABLE))
        dst_offsets = params + uintp(8 * i64_at(params, ROWS_TABLE))
        period = i64_at(params, RUN_PERIOD)
        step = i64_at(params, RUN_STEP)
        near_end = src + uintp(i64_at(params, RUN_REACH) + LANE) > end
        reach = wide_reach if n >= wide_reach else narrow_reach
        for first in range(0, n, reach):
            r = max(min(first, n - reach), 0)
            x = src + uintp(r // period * step)
            table = src_offsets + uintp(8 * (r % period))
            y = dst + uintp(r * itemsize)
            if n >= wide_reach:
                wide(x, table, near_end, end, y, dst_offsets, m, r == first)
            elif n >= narrow_reach:
                narrow(x, table, near_end, end, y, dst_offsets, m, True)
            else:
                items(x, table, y, dst_offsets, n, m)

    return move


def short_rows_tile(itemsize, lanes, most, streaming):
    """Build tile(src, src_offsets, near_end, end, dst, dst_offsets, m, aligned), and its rows.

    `near_end`: some rows of the block may be so close to the end that they must be copied.
    """
    count = lanes * (LANE // itemsize)
    area = count * LANE

    @inline
    def reaches_beyond(src, src_offsets, end):
        farthest = i64_at(src_offsets, 0)
        for i in range(1, count):
            farthest = max(farthest, i64_at(src_offsets, i))
        return src + uintp(farthest + LANE) > end

    @inline
    def tile(src, src_offsets, near_end, end, dst, dst_offsets, m, aligned):
        if near_end and reaches_beyond(src, src_offsets, end):
            copied = stack(area)
            for i in range(count):
                x = src + uintp(i64_at(src_offsets, i))
                for q in range(m):
                    place = uintp(q * itemsize)
                    move_item(x + place, copied + uintp(i * LANE) + place, itemsize)
            transpose_short_rows(
                copied, src_offsets, dst, dst_offsets, m, itemsize, lanes, most, 0, LANE
            )
        elif streaming and aligned:
            transpose_short_rows(
                src, src_offsets, dst, dst_offsets, m, itemsize, lanes, most, streaming, 0
            )
        else:
            transpose_short_rows(src, src_offsets, dst, dst_offsets, m, itemsize, lanes, most, 0, 0)

    return tile, count


def shortruns_microkernel(itemsize, channels, literal, streaming):
    """Make the microkernel; `literal` has the lanes and the most items of a run ("4x8")."""
    lanes, most = map(int, literal.split("x"))
    side = LANE // itemsize
    items = item_transpose(itemsize)

    @inline
    def move(params, src, end, dst, n, m, ahead):
        src_offsets = params + uintp(8 * i64_at(params, RUN_TABLE))
        dst_offsets = params + uintp(8 * i64_at(params, ROWS_TABLE))
        reach = side * lanes if m >= side * lanes else side
        for first in range(0, m, reach):
            q = max(min(first, m - reach), 0)
            x = src + uintp(q * itemsize)
            table = dst_offsets + uintp(8 * q)
            if m >= side * lanes:
                transpose_short_runs(x, src_offsets, dst, table, n, itemsize, lanes, most)
            elif m >= side:
                transpose_short_runs(x, src_offsets, dst, table, n, itemsize, 1, most)
            else:
                items(x, src_offsets, dst, table, n, m)

    return move

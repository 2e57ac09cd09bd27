"""Register-tile transposes: one source run becomes one item of each of many output runs.

A block has n output-contiguous places (axis r) and m source-contiguous places (axis q): item
(r, q) goes from source + rows[r] + q * itemsize to output + cols[q] + r * itemsize. The tables
hold byte offsets, `cols` of the whole block and `rows` of one period, from which a step leads to
the next; so an axis may be one array axis (a constant stride) or two fused ones (`hwc` when c is
too short to fill a register).

The block is cut into tiles of whole cache lines: 64 bytes of output by 16 to 64 of source.

    source rows          one 16-byte lane            output
    a0 a1 a2 a3          of the four vectors         a0 b0 c0 d0 | e0 ...
    b0 b1 b2 b3    ->    a0 b0 c0 d0           ->    a1 b1 c1 d1 | e1 ...
    c0 c1 c2 c3          ...                         ...
    d0 d1 d2 d3

Rows a, b, c, d fill lane 0 of four registers, the next four rows lane 1, and so on, so the
shuffles never leave a lane (one cycle each) and AVX-512, AVX2 and SSE differ in lanes only.
What a tile leaves over at an end is covered by a tile that overlaps its neighbour: it writes
the same values again. Blocks shorter than a tile fall to one-lane tiles, then to items.
"""

from __future__ import annotations

from numba import uintp

from .simd import LANE, i64_at, move_item, transpose_tile
from .walk import inline


def mover(itemsize, lanes, depth, squares, nt):
    """move(src, rows, period, step, n, dst, cols, m)."""
    side = LANE // itemsize
    deep, wide = side * lanes * depth, side * squares

    @inline
    def band(src, rows, dst, cols, m, whole):
        """Transpose `deep` source rows, all m items of each."""
        for q0 in range(0, m, wide):
            q = q0 if q0 + wide <= m else m - wide
            x = src + uintp(q * itemsize)
            table = cols + uintp(8 * q)
            if whole:
                transpose_tile(x, rows, dst, table, itemsize, lanes, depth, squares, nt)
            else:
                transpose_tile(x, rows, dst, table, itemsize, lanes, depth, squares, 0)

    @inline
    def small(src, rows, period, step, n, dst, cols, m):
        """A block with an axis shorter than a tile, by squares or by items."""
        for q0 in range(0, m, side):
            q = q0 if q0 + side <= m else max(m - side, 0)
            for r0 in range(0, n, side):
                r = r0 if r0 + side <= n else max(n - side, 0)
                x = src + uintp(r // period * step + q * itemsize)
                y = dst + uintp(r * itemsize)
                table = rows + uintp(8 * (r % period))
                target = cols + uintp(8 * q)
                if n >= side and m >= side:
                    transpose_tile(x, table, y, target, itemsize, 1, 1, 1, 0)
                else:
                    items(x, table, y, target, min(side, n), min(side, m))

    @inline
    def items(src, rows, dst, cols, n, m):
        for q in range(m):
            for r in range(n):
                x = src + uintp(i64_at(rows, r) + q * itemsize)
                move_item(x, dst + uintp(i64_at(cols, q) + r * itemsize), itemsize)

    @inline
    def move(src, rows, period, step, n, dst, cols, m):
        if n < deep or m < wide:
            small(src, rows, period, step, n, dst, cols, m)
            return
        r = 0
        place = 0
        base = 0
        while r + deep <= n:
            x = src + uintp(base)
            band(x, rows + uintp(8 * place), dst + uintp(r * itemsize), cols, m, True)
            r += deep
            place += deep
            if place == period:
                place = 0
                base += step
        if r < n:
            r = n - deep
            x = src + uintp(r // period * step)
            band(x, rows + uintp(8 * (r % period)), dst + uintp(r * itemsize), cols, m, False)

    return move

"""Two, three or four channels taken apart (`split`) or put together (`merge`) in registers.

A pixel of so few channels fills no vector, so instead of tiles a step takes a whole vector of
items from memory for each channel and rearranges all of them by shuffles:

    split, 3 channels     r0 g0 b0 r1 | g1 b1 r2 g2 | b2 r3 g3 b3
                     ->   r0 r1 r2 r3 | g0 g1 g2 g3 | b0 b1 b2 b3

    merge is the same picture from below. Ends that fill no step are covered by a step that
    overlaps its neighbour; fewer pixels than one step go item by item.

`split` reads packed pixels and writes channel c to output + cols[c]; `merge` reads channel c
from source + rows[c] and writes packed pixels.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types, uintp
from numba.extending import intrinsic

from .simd import I64, i64_at, move_item, shuffle, vload, vstore
from .walk import inline


def pick(b, parts, wanted):
    """Items `wanted` (indexes into all parts in a row) as one vector, from up to three parts."""
    n = parts[0].type.count
    mask = [w if w < 2 * n else 0 for w in wanted]
    first = shuffle(b, parts[0], parts[1], mask)
    if len(parts) == 2:
        return first
    mask = [i if w < 2 * n else w - 2 * n + n for i, w in enumerate(wanted)]
    return shuffle(b, first, parts[2], mask)


def take_apart(b, parts):
    """Vectors of packed pixels -> one vector for each channel."""
    channels, n = len(parts), parts[0].type.count
    if channels == 4:
        even = [pick(b, parts[i : i + 2], list(range(0, 2 * n, 2))) for i in (0, 2)]
        odd = [pick(b, parts[i : i + 2], list(range(1, 2 * n, 2))) for i in (0, 2)]
        (c0, c2), (c1, c3) = take_apart(b, even), take_apart(b, odd)
        return [c0, c1, c2, c3]
    return [pick(b, parts, [c + channels * i for i in range(n)]) for c in range(channels)]


def put_together(b, parts):
    """One vector for each channel -> vectors of packed pixels."""
    channels, n = len(parts), parts[0].type.count
    if channels == 4:
        even, odd = put_together(b, parts[0::2]), put_together(b, parts[1::2])
        return [v for pair in zip(even, odd, strict=True) for v in put_together(b, list(pair))]
    items = [i % channels * n + i // channels for i in range(channels * n)]
    return [pick(b, parts, items[v * n : v * n + n]) for v in range(channels)]


def steps(itemsize, channels, width, nt):
    """The two intrinsics: split_step(src, dst, cols) and merge_step(src, rows, dst)."""
    n = width // itemsize
    type_ = ir.VectorType(ir.IntType(8 * itemsize), n)

    def split(context, b, signature, args):
        src, dst, cols = args
        parts = [vload(b, src, width * i, type_) for i in range(channels)]
        for c, value in enumerate(take_apart(b, parts)):
            vstore(b, value, b.add(dst, vload(b, cols, 8 * c, I64, 8)), 0, nt)
        return context.get_dummy_value()

    def merge(context, b, signature, args):
        src, rows, dst = args
        bases = [b.add(src, vload(b, rows, 8 * c, I64, 8)) for c in range(channels)]
        for i, value in enumerate(put_together(b, [vload(b, x, 0, type_) for x in bases])):
            vstore(b, value, dst, width * i, nt)
        return context.get_dummy_value()

    @intrinsic
    def split_step(typingctx, src, dst, cols):
        return types.void(types.uintp, types.uintp, types.uintp), split

    @intrinsic
    def merge_step(typingctx, src, rows, dst):
        return types.void(types.uintp, types.uintp, types.uintp), merge

    return split_step, merge_step


def splitter(itemsize, channels, width, nt):
    """split(src, n, dst, cols): n packed pixels to `channels` rows."""
    count, pixel = width // itemsize, itemsize * channels
    whole, plain = (steps(itemsize, channels, width, flag)[0] for flag in (nt, 0))

    @inline
    def split(src, n, dst, cols):
        if n < count:
            for p in range(n):
                for c in range(channels):
                    x = src + uintp(p * pixel + c * itemsize)
                    move_item(x, dst + uintp(i64_at(cols, c) + p * itemsize), itemsize)
            return
        for first in range(0, n, count):
            i = min(first, n - count)
            x, y = src + uintp(i * pixel), dst + uintp(i * itemsize)
            if nt and i != first:
                plain(x, y, cols)
            else:
                whole(x, y, cols)

    return split


def merger(itemsize, channels, width, nt):
    """merge(src, rows, n, dst): `channels` rows to n packed pixels."""
    count, pixel = width // itemsize, itemsize * channels
    whole, plain = (steps(itemsize, channels, width, flag)[1] for flag in (nt, 0))

    @inline
    def merge(src, rows, n, dst):
        if n < count:
            for p in range(n):
                for c in range(channels):
                    x = src + uintp(i64_at(rows, c) + p * itemsize)
                    move_item(x, dst + uintp(p * pixel + c * itemsize), itemsize)
            return
        for first in range(0, n, count):
            i = min(first, n - count)
            x, y = src + uintp(i * itemsize), dst + uintp(i * pixel)
            if nt and i != first:
                plain(x, rows, y)
            else:
                whole(x, rows, y)

    return merge

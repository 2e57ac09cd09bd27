"""Two, three or four channels taken apart or put together in registers: what split and merge share.

And pixels turned around in them, with their channels in another order.

A pixel of so few channels fills no vector, so instead of tiles a step takes a whole vector of
items from memory for each channel and rearranges all of them by shuffles:

    split, 3 channels     r0 g0 b0 r1 | g1 b1 r2 g2 | b2 r3 g3 b3
                     ->   r0 r1 r2 r3 | g0 g1 g2 g3 | b0 b1 b2 b3

    merge is the same picture from below. Ends that fill no step are covered by a step that
    overlaps its neighbour; fewer pixels than one step go item by item.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .simd import I64, prefetch, shuffle, vload, vstore
from .words import LINE


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


def turned_around(b, parts):
    """Vectors of packed pixels with the last pixel first."""
    channels, n = len(parts), parts[0].type.count
    items = [channels * (n - 1 - i // channels) + i % channels for i in range(channels * n)]
    return [_one_of(b, parts, items[v * n : v * n + n]) for v in range(channels)]


def _one_of(b, parts, wanted):
    """Items `wanted` as one vector, from as few of the parts as have them."""
    n = parts[0].type.count
    first = min(wanted) // n
    few = parts[first : max(wanted) // n + 1]
    return pick(b, few if len(few) > 1 else few * 2, [w - first * n for w in wanted])


def split_step(itemsize, channels, width, nt, backward=0):
    """step(src, dst, cols, ahead): one vector of packed pixels for each channel to its row.

    Memory is asked for what is so many bytes ahead in the source.
    """
    type_ = ir.VectorType(ir.IntType(8 * itemsize), width // itemsize)

    def split(context, b, signature, args):
        src, dst, cols, ahead = args
        for at in range(0, max(LINE, width * channels), LINE):
            prefetch(b, b.add(src, ahead), at)
        parts = [vload(b, src, width * i, type_) for i in range(channels)]
        for c, value in enumerate(take_apart(b, parts)):
            value = turned_around(b, [value])[0] if backward else value
            vstore(b, value, b.add(dst, vload(b, cols, 8 * c, I64, 8)), 0, nt)
        return context.get_dummy_value()

    @intrinsic
    def step(typingctx, src, dst, cols, ahead):
        return types.void(types.uintp, types.uintp, types.uintp, types.uintp), split

    return step


def merge_step(itemsize, channels, width, nt):
    """step(src, rows, dst): one vector of each channel's row to packed pixels."""
    type_ = ir.VectorType(ir.IntType(8 * itemsize), width // itemsize)

    def merge(context, b, signature, args):
        src, rows, dst = args
        bases = [b.add(src, vload(b, rows, 8 * c, I64, 8)) for c in range(channels)]
        for i, value in enumerate(put_together(b, [vload(b, x, 0, type_) for x in bases])):
            vstore(b, value, dst, width * i, nt)
        return context.get_dummy_value()

    @intrinsic
    def step(typingctx, src, rows, dst):
        return types.void(types.uintp, types.uintp, types.uintp), merge

    return step


def shuffle_step(itemsize, channels, order, width, nt, backward):
    """step(src, dst): a vector of packed pixels for each channel to pixels of channels `order`.

    `backward`: the last pixel first.
    """
    type_ = ir.VectorType(ir.IntType(8 * itemsize), width // itemsize)
    n, taken = type_.count, len(order)
    places = [n - 1 - i if backward else i for i in range(n)]
    items = [channels * place + channel for place in places for channel in order]

    def moved(context, b, signature, args):
        src, dst = args
        parts = [vload(b, src, width * i, type_) for i in range(channels)]
        for v in range(taken):
            value = _one_of(b, parts, items[v * n : v * n + n])
            vstore(b, value, dst, width * v, nt)
        return context.get_dummy_value()

    @intrinsic
    def step(typingctx, src, dst):
        return types.void(types.uintp, types.uintp), moved

    return step

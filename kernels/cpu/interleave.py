"""Microkernels for pixels of at most four channels, rearranged in registers.

A pixel of so few channels does not fill a vector. So instead of moving tiles, a step loads one
vector of items per channel and rearranges these vectors by shuffles:

    split, 3 channels     r0 g0 b0 r1 | g1 b1 r2 g2 | b2 r3 g3 b3
                     ->   r0 r1 r2 r3 | g0 g1 g2 g3 | b0 b1 b2 b3

An end of a run that does not fill a step is moved by a step that overlaps its neighbor. Shorter
runs are moved by steps of a lane or half of one, and runs that fill neither item by item.

- `split`: packed pixels of two to four channels to one row per channel; channel c goes to
  output + dst_offsets[c].
- `merge`: the inverse of `split`; channel c comes from source + src_offsets[c].
- `shuffle`: packed pixels to packed pixels of some of their channels, in any order, forward or in
  reverse.
- `flip`: packed pixels in reverse, channels unchanged. Single items are pixels of one channel.
- `flipsplit`: packed pixels in reverse to one row per channel.

In reverse, the source begins at the last pixel of a line, which is the first of the output. Except
in `split` and `flipsplit`, a position of the run is a pixel of all channels. Except in `merge`, a
block consists of lines of RUN_PERIOD pixels that are RUN_STEP bytes apart in the source and follow
each other in the output.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types, uintp
from numba.extending import intrinsic

from .params import HALF_LANE, LANE, LINE, ROWS_TABLE, RUN_PERIOD, RUN_STEP, RUN_TABLE
from .simd import I64, i64_at, is_for_x86, move_item, prefetch, shuffle, vload, vstore
from .walk import inline


def pick(b, parts, indices):
    """Gather items of two or more vectors into one; `indices` refer to their concatenation."""
    if is_half(parts):
        parts = join_halves(b, parts)
    n = parts[0].type.count
    value = shuffle(b, parts[0], parts[1], [w if w < 2 * n else 0 for w in indices])
    for number, part in enumerate(parts[2:], 2):
        mask = [w % n + n if w // n == number else i for i, w in enumerate(indices)]
        value = shuffle(b, value, part, mask)
    return value


def is_half(parts):
    """Return True if vectors are half a lane wide."""
    return parts[0].type.count * parts[0].type.element.width == 8 * HALF_LANE


def join_halves(b, parts):
    """Concatenate pairs of half lanes, since CPUs shuffle bytes of a lane, into two or more lanes.

    LLVM widens the items of half lanes instead, which took twice as long (AMD EPYC, 2026-11-27).
    """
    items = range(2 * parts[0].type.count)
    pairs = zip(parts[::2], [*parts[1::2], parts[-1]], strict=False)
    lanes = [shuffle(b, first, second, list(items)) for first, second in pairs]
    return lanes if len(lanes) > 1 else lanes * 2


def blends_lanes(b, parts):
    """Return True if the bytes of lanes are best blended: x86 shuffles one lane at once."""
    return is_for_x86(b) and parts[0].type.count * parts[0].type.element.width == 8 * LANE


def blend(b, parts, chosen):
    """Return a vector whose item i is item i of vector `chosen[i]` of three."""
    n = parts[0].type.count
    first = shuffle(b, parts[0], parts[1], [i + n * (v == 1) for i, v in enumerate(chosen)])
    return shuffle(b, first, parts[2], [i + n * (v == 2) for i, v in enumerate(chosen)])


def deinterleave(b, parts):
    """Convert vectors of packed pixels to one vector per channel."""
    channels = len(parts)
    n = parts[0].type.count
    if channels == 4 and not is_half(parts):
        even = [pick(b, parts[i : i + 2], list(range(0, 2 * n, 2))) for i in (0, 2)]
        odd = [pick(b, parts[i : i + 2], list(range(1, 2 * n, 2))) for i in (0, 2)]
        (c0, c2) = deinterleave(b, even)
        (c1, c3) = deinterleave(b, odd)
        return [c0, c1, c2, c3]
    if channels == 3 and blends_lanes(b, parts):
        # The items of a channel are at different places of the three vectors.
        blended = [blend(b, parts, [(c - i) * n % 3 for i in range(n)]) for c in range(3)]
        places = [[(c + 3 * i) % n for i in range(n)] for c in range(3)]
        return [shuffle(b, x, x, items) for x, items in zip(blended, places, strict=True)]
    return [pick(b, parts, [c + channels * i for i in range(n)]) for c in range(channels)]


def interleave(b, parts):
    """Convert one vector per channel to vectors of packed pixels."""
    channels = len(parts)
    n = parts[0].type.count
    if channels == 4 and not is_half(parts):
        even = interleave(b, parts[0::2])
        odd = interleave(b, parts[1::2])
        return [v for pair in zip(even, odd, strict=True) for v in interleave(b, list(pair))]
    if channels == 3 and blends_lanes(b, parts):
        places = [[pow(3, -1, n) * (i - c) % n for i in range(n)] for c in range(3)]
        moved = [shuffle(b, x, x, items) for x, items in zip(parts, places, strict=True)]
        return [blend(b, moved, [(v * n + i) % 3 for i in range(n)]) for v in range(3)]
    items = [i % channels * n + i // channels for i in range(channels * n)]
    return [pick(b, parts, items[v * n : v * n + n]) for v in range(channels)]


def reverse_pixels(b, parts):
    """Reverse the pixels in vectors of packed pixels."""
    channels = len(parts)
    n = parts[0].type.count
    items = [channels * (n - 1 - i // channels) + i % channels for i in range(channels * n)]
    return [select_items(b, parts, items[v * n : v * n + n]) for v in range(channels)]


def select_items(b, parts, indices):
    """Gather items into one vector, reading only the parts that contain them."""
    n = parts[0].type.count
    first = min(indices) // n
    few = parts[first : max(indices) // n + 1]
    return pick(b, few if len(few) > 1 else few * 2, [w - first * n for w in indices])


def split_step(itemsize, channels, width, streaming, backward=0):
    """Build step(src, dst, dst_offsets, ahead), which stores one vector to the row of each channel.

    The source is prefetched `ahead` bytes before it is read.
    """
    type_ = ir.VectorType(ir.IntType(8 * itemsize), width // itemsize)

    def split(context, b, signature, args):
        src, dst, dst_offsets, ahead = args
        for offset in range(0, max(LINE, width * channels), LINE):
            prefetch(b, b.add(src, ahead), offset)
        parts = [vload(b, src, width * i, type_) for i in range(channels)]
        for c, value in enumerate(deinterleave(b, parts)):
            value = reverse_pixels(b, [value])[0] if backward else value
            vstore(b, value, b.add(dst, vload(b, dst_offsets, 8 * c, I64, 8)), 0, streaming)
        return context.get_dummy_value()

    @intrinsic
    def step(typingctx, src, dst, dst_offsets, ahead):
        return types.void(types.uintp, types.uintp, types.uintp, types.uintp), split

    return step


def merge_step(itemsize, channels, width, streaming):
    """Build step(src, src_offsets, dst), which packs one vector from the row of each channel."""
    type_ = ir.VectorType(ir.IntType(8 * itemsize), width // itemsize)

    def merge(context, b, signature, args):
        src, src_offsets, dst = args
        bases = [b.add(src, vload(b, src_offsets, 8 * c, I64, 8)) for c in range(channels)]
        for i, value in enumerate(interleave(b, [vload(b, x, 0, type_) for x in bases])):
            vstore(b, value, dst, width * i, streaming)
        return context.get_dummy_value()

    @intrinsic
    def step(typingctx, src, src_offsets, dst):
        return types.void(types.uintp, types.uintp, types.uintp), merge

    return step


def shuffle_step(itemsize, channels, order, width, streaming, backward):
    """Build step(src, dst), which selects the channels `order` of n pixels.

    n is the number of items in a vector. If `backward`, the last pixel comes first.
    """
    type_ = ir.VectorType(ir.IntType(8 * itemsize), width // itemsize)
    n = type_.count
    out_channels = len(order)
    places = [n - 1 - i if backward else i for i in range(n)]
    items = [channels * place + channel for place in places for channel in order]

    def moved(context, b, signature, args):
        src, dst = args
        parts = [vload(b, src, width * i, type_) for i in range(channels)]
        for v in range(out_channels):
            value = select_items(b, parts, items[v * n : v * n + n])
            vstore(b, value, dst, width * v, streaming)
        return context.get_dummy_value()

    @intrinsic
    def step(typingctx, src, dst):
        return types.void(types.uintp, types.uintp), moved

    return step


# Without prefetching, memory idles while the epilogue reads the scratch area: uncached sources were
# converted to bfloat16 at 0.46 of the limit without prefetching, and at 0.57 with it.
PREFETCH_BYTES = 4096
# Lines of the next block are prefetched if they are at most this far away. Patches whose next lines
# are 157 to 360 KB away took 0.94 to 1.04 of the time with a limit of 1 MB (AMD EPYC, 2026-11-28).
FAR_BYTES = 128 << 10


@inline
def next_lines(n, period, step):
    """Return the distance in bytes at which a block of n pixels in several lines prefetches."""
    reach = (n + period - 1) // period * step
    if PREFETCH_BYTES <= abs(reach) <= FAR_BYTES:
        return reach
    return PREFETCH_BYTES if step > 0 else -PREFETCH_BYTES


def short_widths(itemsize):
    """Return the widths in bytes of the vectors of short runs: a lane, and half of one."""
    return LANE, max(HALF_LANE, itemsize)


def split_microkernel(itemsize, channels, literal, streaming):
    """Make the microkernel `split`; `literal` is the vector width in bytes."""
    return split_lines(itemsize, channels, int(literal), streaming, 0)


def split_lines(itemsize, channels, width, streaming, backward):
    """Make a microkernel that splits lines of pixels; if `backward`, from the last pixel on."""
    long = split_vectors(itemsize, channels, width, streaming, backward)
    lane, half_lane = short_widths(itemsize)
    short, half = (split_vectors(itemsize, channels, n, 0, backward) for n in (lane, half_lane))
    long_from, short_from, half_from = (n // itemsize for n in (width, lane, half_lane))
    pixel = -itemsize * channels if backward else itemsize * channels
    # The prefetch offset if a block is one line.
    near = -PREFETCH_BYTES if backward else PREFETCH_BYTES

    @inline
    def line(dst_offsets, src, dst, n, ahead):
        if n >= long_from:
            long(dst_offsets, src, dst, n, ahead)
        elif n >= short_from:
            short(dst_offsets, src, dst, n, ahead)
        elif n >= half_from:
            half(dst_offsets, src, dst, n, ahead)
        else:
            for p in range(n):
                for c in range(channels):
                    x = src + uintp(p * pixel + c * itemsize)
                    move_item(x, dst + uintp(i64_at(dst_offsets, c) + p * itemsize), itemsize)

    @inline
    def move(params, src, end, dst, n, m, ahead):
        dst_offsets = params + uintp(8 * i64_at(params, ROWS_TABLE))
        period = i64_at(params, RUN_PERIOD)
        step = i64_at(params, RUN_STEP)
        ahead = uintp(next_lines(n, period, step) if step else near)
        if not backward and half_from <= period < short_from and step >= period * pixel:
            # A full lane holds some pixels more: the next line, which is stored over them.
            while n > period:
                short(dst_offsets, src, dst, short_from, ahead)
                n -= period
                src += uintp(step)
                dst += uintp(period * itemsize)
        while n > 0:
            line(dst_offsets, src, dst, min(n, period), ahead)
            n -= period
            src += uintp(step)
            dst += uintp(period * itemsize)

    return move


def split_vectors(itemsize, channels, width, streaming, backward):
    """Build move(dst_offsets, src, dst, n, ahead), for n of at least the items of a vector."""
    count = width // itemsize
    pixel = itemsize * channels
    stream_step, plain_step = (
        split_step(itemsize, channels, width, flag, backward) for flag in (streaming, 0)
    )

    @inline
    def move(dst_offsets, src, dst, n, ahead):
        for first in range(0, n, count):
            i = min(first, n - count)
            place = -(i + count - 1) * pixel if backward else i * pixel
            x = src + uintp(place)
            y = dst + uintp(i * itemsize)
            if streaming and i != first:
                plain_step(x, y, dst_offsets, ahead)
            else:
                stream_step(x, y, dst_offsets, ahead)

    return move


def merge_microkernel(itemsize, channels, literal, streaming):
    """Make the microkernel `merge`; `literal` is the vector width in bytes."""
    width = int(literal)
    pixel = itemsize * channels
    long = merge_vectors(itemsize, channels, width, streaming)
    lane, half_lane = short_widths(itemsize)
    short, half = (merge_vectors(itemsize, channels, n, 0) for n in (lane, half_lane))
    long_from, short_from, half_from = (n // itemsize for n in (width, lane, half_lane))

    @inline
    def move(params, src, end, dst, n, m, ahead):
        src_offsets = params + uintp(8 * i64_at(params, RUN_TABLE))
        if n >= long_from:
            long(src_offsets, src, dst, n)
        elif n >= short_from:
            short(src_offsets, src, dst, n)
        elif n >= half_from:
            half(src_offsets, src, dst, n)
        else:
            for p in range(n):
                for c in range(channels):
                    x = src + uintp(i64_at(src_offsets, c) + p * itemsize)
                    move_item(x, dst + uintp(p * pixel + c * itemsize), itemsize)

    return move


def merge_vectors(itemsize, channels, width, streaming):
    """Build move(src_offsets, src, dst, n), for n of at least the items of a vector."""
    count = width // itemsize
    pixel = itemsize * channels
    stream_step, plain_step = (
        merge_step(itemsize, channels, width, flag) for flag in (streaming, 0)
    )

    @inline
    def move(src_offsets, src, dst, n):
        for first in range(0, n, count):
            i = min(first, n - count)
            x = src + uintp(i * itemsize)
            y = dst + uintp(i * pixel)
            if streaming and y % uintp(width) != 0:
                plain_step(x, src_offsets, y)
            else:
                stream_step(x, src_offsets, y)

    return move


def shuffle_microkernel(itemsize, channels, literal, streaming):
    """Make the microkernel `shuffle`.

    `literal`: vector width in bytes, channels of x, 1 for reverse or 0, then the selected channels.
    """
    width, count, backward, *order = map(int, literal.split("x"))
    return shuffle_lines(itemsize, width, tuple(order), count, backward, streaming)


def shuffle_lines(itemsize, width, order, channels, backward, streaming):
    """Make a microkernel that selects the channels `order` of all pixels of a block."""
    out_channels = len(order)
    pixel = channels * itemsize
    out_pixel = len(order) * itemsize
    lane, half_lane = short_widths(itemsize)
    long, short, half = (
        shuffle_vectors(itemsize, nbytes, order, channels, backward, flag)
        for nbytes, flag in ((width, streaming), (lane, 0), (half_lane, 0))
    )
    long_from, short_from, half_from = (n // itemsize for n in (width, lane, half_lane))

    @inline
    def line(src, dst, n):
        if n >= long_from:
            long(src, dst, n)
        elif n >= short_from:
            short(src, dst, n)
        elif n >= half_from:
            half(src, dst, n)
        else:
            for p in range(n):
                for c in range(out_channels):
                    x = src + uintp((-p if backward else p) * pixel + order[c] * itemsize)
                    move_item(x, dst + uintp(p * out_pixel + c * itemsize), itemsize)

    @inline
    def move(params, src, end, dst, n, m, ahead):
        period = i64_at(params, RUN_PERIOD)
        step = i64_at(params, RUN_STEP)
        while n > 0:
            line(src, dst, min(n, period))
            n -= period
            src += uintp(step)
            dst += uintp(period * out_pixel)

    return move


def shuffle_vectors(itemsize, width, order, channels, backward, streaming):
    """Build move(src, dst, n), for n of at least the items of a vector."""
    count = width // itemsize
    pixel = channels * itemsize
    out_pixel = len(order) * itemsize
    stream_step, plain_step = (
        shuffle_step(itemsize, channels, order, width, flag, backward) for flag in (streaming, 0)
    )

    @inline
    def move(src, dst, n):
        last = (n - 1) // count
        for k in range(last + 1):
            first = (last - k if backward else k) * count  # ascending source addresses
            i = min(first, n - count)
            place = -(i + count - 1) * pixel if backward else i * pixel
            x = src + uintp(place)
            y = dst + uintp(i * out_pixel)
            if streaming and y % uintp(width) != 0:
                plain_step(x, y)
            else:
                stream_step(x, y)

    return move


def flip_microkernel(itemsize, channels, literal, streaming):
    """Make the microkernel `flip`; `literal` is the vector width in bytes."""
    return shuffle_lines(itemsize, int(literal), tuple(range(channels)), channels, 1, streaming)


def flipsplit_microkernel(itemsize, channels, literal, streaming):
    """Make the microkernel `flipsplit`; `literal` is the vector width in bytes."""
    return split_lines(itemsize, channels, int(literal), streaming, 1)

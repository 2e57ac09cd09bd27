"""The kernel of video frames in planes: bands of rows become RGB bytes, then results.

A band is computed into a scratch area that stays in the cache, as planes of red, green and blue.
The kernel of the conversion writes it to the output. yuv_params.py describes the tables.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types, uintp
from numba.extending import intrinsic

from ...planning.yuv import REST_BITS, SUM_BITS
from . import yuv_params as t
from .accumulate import claim_area
from .atomics import call_kernel, store_release
from .casts import splat
from .epilogue import broadcast
from .params import LANE
from .simd import fence, i64_at, move_item, shuffle, stack, vload, vstore
from .walk import inline

HALF = t.PIXELS // 2
TAIL = 6 * t.PIXELS  # bytes of the planes and results of the last pixels of a row
WORD = ir.IntType(32)
row_bytes = inline(t.row_bytes)


def _load_words(b, base, count):
    """Return `count` bytes as 32-bit integers."""
    items = vload(b, base, 0, ir.VectorType(ir.IntType(8), count))
    return b.zext(items, ir.VectorType(WORD, count))


def _load_pair(b, base, number, count):
    """Return the two parts of a coefficient, each in `count` lanes."""
    type_ = ir.VectorType(WORD, count)
    return [broadcast(b, vload(b, base, 8 * (2 * number + i), WORD), type_) for i in (0, 1)]


def _sum(b, products, term):
    """Return the sum of (vector, factor) products and a term, in units of 2**-SUM_BITS."""
    high, rest = term
    for x, (factor, factor_rest) in products:
        high = b.add(high, b.mul(x, factor))
        rest = b.add(rest, b.mul(x, factor_rest))
    return b.add(high, b.ashr(rest, splat(rest.type, REST_BITS)))


def _to_bytes(b, x):
    """Return the integer parts of sums, limited to 0 and 255."""
    x = b.ashr(x, splat(x.type, SUM_BITS))
    x = b.select(b.icmp_signed(">", x, splat(x.type, 0)), x, splat(x.type, 0))
    x = b.select(b.icmp_unsigned("<", x, splat(x.type, 255)), x, splat(x.type, 255))
    return b.trunc(x, ir.VectorType(ir.IntType(8), t.PIXELS))


@intrinsic
def store_pixels(typingctx, y, u, v, coefficients, red, green, blue):
    """Write PIXELS bytes of red, green and blue, from PIXELS items of y and half of u and v."""

    def codegen(context, b, signature, args):
        y_at, u_at, v_at, base, *targets = args
        y_factor = _load_pair(b, base, 0, t.PIXELS)
        rv, gu, gv, bu, *terms = (_load_pair(b, base, i, HALF) for i in range(1, 8))
        us, vs = (_load_words(b, at, HALF) for at in (u_at, v_at))
        products = [(vs, rv)], [(us, gu), (vs, gv)], [(us, bu)]
        half = splat(ir.VectorType(WORD, t.PIXELS), 1 << REST_BITS - 1)
        brightness = _sum(
            b, [(_load_words(b, y_at, t.PIXELS), y_factor)], (splat(half.type, 0), half)
        )
        for product, term, target in zip(products, terms, targets, strict=True):
            color = _sum(b, product, term)
            each = shuffle(b, color, color, [i // 2 for i in range(t.PIXELS)])
            vstore(b, _to_bytes(b, b.add(brightness, each)), target)
        return context.get_dummy_value()

    return types.void(*[types.uintp] * 7), codegen


@intrinsic
def pack_pairs(typingctx, src, dst):
    """Write the first bytes of LANE pairs."""

    def codegen(context, b, signature, args):
        pairs = vload(b, args[0], 0, ir.VectorType(ir.IntType(8), 2 * LANE))
        vstore(b, shuffle(b, pairs, pairs, list(range(0, 2 * LANE, 2))), args[1])
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp), codegen


@inline
def copy_bytes(src, step, dst, first, last):
    for i in range(first, last):
        move_item(src + uintp(i * step), dst + uintp(i), 1)


@inline
def pack_row(src, step, area, n):
    """Return the address of n contiguous items: `src`, or copies of items `step` bytes apart."""
    if step == 1:
        return src
    done = 0
    if step == 2:
        while done + LANE < n:  # the second byte of the last pair may be outside of the memory
            pack_pairs(src + uintp(2 * done), area + uintp(done))
            done += LANE
    copy_bytes(src, step, area, done, n)
    return area


@inline
def convert_row(y, u, v, coefficients, width, tail, red, plane):
    """Write a row of red, green and blue bytes, `plane` bytes apart; `tail` has TAIL bytes."""
    green = red + uintp(plane)
    blue = green + uintp(plane)
    full = width // t.PIXELS * t.PIXELS
    for x in range(0, full, t.PIXELS):
        half = uintp(x // 2)
        at = uintp(x)
        store_pixels(y + at, u + half, v + half, coefficients, red + at, green + at, blue + at)
    rest = width - full
    if rest:
        size = uintp(t.PIXELS)
        colors = (rest + 1) // 2
        copy_bytes(y + uintp(full), 1, tail, 0, rest)
        copy_bytes(u + uintp(full // 2), 1, tail + size, 0, colors)
        copy_bytes(v + uintp(full // 2), 1, tail + 2 * size, 0, colors)
        result = tail + 3 * size
        store_pixels(
            tail, tail + size, tail + 2 * size, coefficients,
            result, result + size, result + 2 * size,
        )  # fmt: skip
        for channel in range(3):
            to = red + uintp(channel * plane + full)
            copy_bytes(result + uintp(channel * t.PIXELS), 1, to, 0, rest)


def build(role):
    """Build the kernel "frames", whose source argument is the call block."""
    if role != "frames":
        raise ValueError(role)

    def kernel(params, call, dst, lo, hi):
        tail = stack(TAIL)
        width = i64_at(params, t.WIDTH)
        rows = i64_at(params, t.ROWS)
        bands = i64_at(params, t.BANDS)
        coefficients = params + uintp(8 * t.WORDS)
        launches = coefficients + uintp(8 * t.COEFFICIENTS)
        number = claim_area(call)
        y_area = uintp(i64_at(call, 0) + number * i64_at(call, 1))
        size = uintp(row_bytes(width))
        u_area = y_area + size
        v_area = u_area + size
        band = v_area + size
        frames = call + uintp(8 * (t.AREAS + i64_at(call, 2)))
        for unit in range(lo, hi):
            frame = frames + uintp(8 * t.FRAME * (unit // bands))
            first = min(unit % bands * rows, i64_at(params, t.HEIGHT) - rows)
            u = v = uintp(0)
            for row in range(first, first + rows):
                y = uintp(i64_at(frame, 0) + row * i64_at(params, t.Y_ROW))
                y = pack_row(y, i64_at(params, t.Y_STEP), y_area, width)
                if row == first or row % 2 == 0:
                    u = uintp(i64_at(frame, 1) + row // 2 * i64_at(params, t.U_ROW))
                    v = uintp(i64_at(frame, 2) + row // 2 * i64_at(params, t.V_ROW))
                    u = pack_row(u, i64_at(params, t.U_STEP), u_area, (width + 1) // 2)
                    v = pack_row(v, i64_at(params, t.V_STEP), v_area, (width + 1) // 2)
                red = band + uintp((row - first) * width)
                convert_row(y, u, v, coefficients, width, tail, red, rows * width)
            to = dst + uintp(i64_at(frame, 3) + first * i64_at(params, t.OUT_ROW))
            for i in range(i64_at(params, t.LAUNCHES)):
                launch = launches + uintp(8 * t.LAUNCH * i)
                code = uintp(i64_at(launch, 0))
                x = band + uintp(i64_at(launch, 3))
                y = to + uintp(i64_at(launch, 4))
                call_kernel(code, uintp(i64_at(launch, 1)), x, y, 0, i64_at(launch, 2))
        fence()
        store_release(call + uintp(8 * (t.AREAS + number)), 0)

    return kernel

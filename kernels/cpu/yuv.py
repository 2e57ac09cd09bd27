"""The kernel of video frames in planes: bands of rows become RGB bytes, then results.

A band is computed into a scratch area that stays in the cache, as planes of red, green and blue.
The kernel of the conversion writes it to the output. yuv_params.py describes the tables.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types, uintp
from numba.extending import intrinsic

from ...planning.yuv import REST_BITS, SUM_BITS, WIDE_REST_BITS
from . import yuv_params as t
from .accumulate import claim_area
from .atomics import call_kernel, store_release
from .casts import splat
from .epilogue import broadcast
from .params import LANE, LINE
from .simd import fence, i64_at, move_item, shuffle, stack, vload, vstore
from .walk import inline

HALF = t.PIXELS // 2
TAIL = 6 * t.PIXELS  # bytes of the planes and results of the last pixels of a row
WORD = ir.IntType(32)
row_bytes = inline(t.row_bytes)
wide_row_bytes = inline(t.wide_row_bytes)


def _load_words(b, base, count):
    """Return `count` bytes as 32-bit integers."""
    items = vload(b, base, 0, ir.VectorType(ir.IntType(8), count))
    return b.zext(items, ir.VectorType(WORD, count))


def _load_pair(b, base, number, count):
    """Return the two parts of a coefficient, each in `count` lanes."""
    type_ = ir.VectorType(WORD, count)
    return [broadcast(b, vload(b, base, 8 * (2 * number + i), WORD), type_) for i in (0, 1)]


def _sum(b, products, term, rest_bits=REST_BITS):
    """Return the sum of (vector, factor) products and a term, in units of 2**-SUM_BITS."""
    high, rest = term
    for x, (factor, factor_rest) in products:
        high = b.add(high, b.mul(x, factor))
        rest = b.add(rest, b.mul(x, factor_rest))
    return b.add(high, b.ashr(rest, splat(rest.type, rest_bits)))


def _to_bytes(b, x):
    """Return the integer parts of sums, limited to 0 and 255."""
    x = b.ashr(x, splat(x.type, SUM_BITS))
    x = b.select(b.icmp_signed(">", x, splat(x.type, 0)), x, splat(x.type, 0))
    x = b.select(b.icmp_unsigned("<", x, splat(x.type, 255)), x, splat(x.type, 255))
    return b.trunc(x, ir.VectorType(ir.IntType(8), x.type.count))


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


@inline
def fill_band(params, frame, area, first, rows, band, coefficients, tail):
    """Write the red, green and blue bytes of a band of rows."""
    width = i64_at(params, t.WIDTH)
    size = uintp(row_bytes(width))
    u_area = area + size
    v_area = u_area + size
    u = v = uintp(0)
    for row in range(first, first + rows):
        y = uintp(i64_at(frame, 0) + row * i64_at(params, t.Y_ROW))
        y = pack_row(y, i64_at(params, t.Y_STEP), area, width)
        if row == first or row % 2 == 0:
            u = uintp(i64_at(frame, 1) + row // 2 * i64_at(params, t.U_ROW))
            v = uintp(i64_at(frame, 2) + row // 2 * i64_at(params, t.V_ROW))
            u = pack_row(u, i64_at(params, t.U_STEP), u_area, (width + 1) // 2)
            v = pack_row(v, i64_at(params, t.V_STEP), v_area, (width + 1) // 2)
        red = band + uintp((row - first) * width)
        convert_row(y, u, v, coefficients, width, tail, red, rows * width)


# ---- Interpolated colors, and samples of ten bits --------------------------------------------

ITEM = ir.IntType(16)
TEN_BITS = (1 << 10) - 1


def _splat_number(b, number, type_):
    """Return a vector of a 64-bit integer."""
    return broadcast(b, b.trunc(number, type_.element), type_)


def _load_items(b, base, offset, count):
    return vload(b, base, offset, ir.VectorType(ITEM, count))


def _extract_bits(b, x, shift):
    """Return 16-bit items shifted down by `shift` bits, whose last ten are kept."""
    shifted = b.lshr(x, _splat_number(b, shift, x.type))
    return b.and_(shifted, splat(x.type, TEN_BITS))


@intrinsic(prefer_literal=True)
def widen_items(typingctx, src, dst, shift, itemsize, step, count):
    """Write `count` 16-bit items, from items of 1 or 2 bytes, every one or every second."""
    size, stride, number = (x.literal_value for x in (itemsize, step, count))

    def codegen(context, b, signature, args):
        items = vload(b, args[0], 0, ir.VectorType(ir.IntType(8 * size), stride * number))
        if stride > 1:
            items = shuffle(b, items, items, list(range(0, stride * number, stride)))
        if size == 1:
            items = b.zext(items, ir.VectorType(ITEM, number))
        else:
            items = _extract_bits(b, items, args[2])
        vstore(b, items, args[1])
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp, types.int64, itemsize, step, count), codegen


def make_widen_row(itemsize):
    """Make a function that writes n items of 16 bits from items `step` bytes apart."""

    @inline
    def widen_row(src, step, shift, dst, n):
        done = 0
        if step == itemsize:
            while done + HALF <= n:
                at = src + uintp(itemsize * done)
                widen_items(at, dst + uintp(2 * done), shift, itemsize, 1, HALF)
                done += HALF
        elif step == 2 * itemsize:
            while done + HALF < n:  # the second item of the last pair may be outside of the memory
                at = src + uintp(2 * itemsize * done)
                widen_items(at, dst + uintp(2 * done), shift, itemsize, 2, HALF)
                done += HALF
        for i in range(done, n):
            widen_items(src + uintp(i * step), dst + uintp(2 * i), shift, itemsize, 1, 1)

    return widen_row


widen_bytes = make_widen_row(1)
widen_words = make_widen_row(2)


@inline
def widen_row(src, step, params, dst, n):
    shift = i64_at(params, t.SHIFT)
    if i64_at(params, t.ITEM) == 1:
        widen_bytes(src, step, shift, dst, n)
    else:
        widen_words(src, step, shift, dst, n)


def _blend(b, near, far, weight):
    """Return weight * near + (4 - weight) * far."""
    weights = _splat_number(b, weight, near.type)
    others = b.sub(splat(near.type, 4), weights)
    return b.add(b.mul(near, weights), b.mul(far, others))


@intrinsic
def blend_rows(typingctx, near, far, weight, dst):
    """Write HALF sums of the samples of two rows, in quarters."""

    def codegen(context, b, signature, args):
        near, far = (_load_items(b, base, 0, HALF) for base in args[:2])
        vstore(b, _blend(b, near, far, args[2]), args[3])
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp, types.int64, types.uintp), codegen


@intrinsic
def spread_colors(typingctx, src, even, odd, dst):
    """Write the sums of two columns each for PIXELS pixels, from HALF items and their neighbors."""

    def codegen(context, b, signature, args):
        base, even, odd, to = args
        left, middle, right = (_load_items(b, base, offset, HALF) for offset in (-2, 0, 2))
        pair = _blend(b, middle, left, even), _blend(b, middle, right, odd)
        order = [n for i in range(HALF) for n in (i, HALF + i)]
        vstore(b, shuffle(b, *pair, order), to)
        return context.get_dummy_value()

    return types.void(types.uintp, types.int64, types.int64, types.uintp), codegen


@inline
def interpolate_row(plane, row, row_step, step, params, area, dst):
    """Write 16 times the color of each pixel of a row; `area` has three rows of items."""
    height = i64_at(params, t.HEIGHT)
    width = i64_at(params, t.WIDTH)
    n = (width + 1) // 2
    size = uintp(wide_row_bytes(width))
    far_area = area + size
    sums = far_area + size + uintp(LINE)
    near = row // 2
    far = max(near - 1, 0)
    weight = i64_at(params, t.EVEN_ROW)
    if row % 2:
        far = min(near + 1, (height + 1) // 2 - 1)
        weight = i64_at(params, t.ODD_ROW)
    widen_row(plane + uintp(near * row_step), step, params, area, n)
    if weight == 4:
        far_area = area
    else:
        widen_row(plane + uintp(far * row_step), step, params, far_area, n)
    for i in range(0, n, HALF):
        at = uintp(2 * i)
        blend_rows(area + at, far_area + at, weight, sums + at)
    last = sums + uintp(2 * n)
    move_item(sums, sums - uintp(2), 2)  # the colors at the edges continue outside
    move_item(last - uintp(2), last, 2)
    even = i64_at(params, t.EVEN_COLUMN)
    odd = i64_at(params, t.ODD_COLUMN)
    for i in range(0, n, HALF):
        spread_colors(sums + uintp(2 * i), even, odd, dst + uintp(4 * i))


@intrinsic
def store_wide_pixels(typingctx, y, u, v, coefficients, red, green, blue):
    """Write HALF bytes of red, green and blue, from 16-bit items of y, u and v."""

    def codegen(context, b, signature, args):
        base, *targets = args[3:]
        lanes = ir.VectorType(WORD, HALF)
        ys, us, vs = (b.zext(_load_items(b, at, 0, HALF), lanes) for at in args[:3])
        factor, rv, gu, gv, bu, *terms = (_load_pair(b, base, i, HALF) for i in range(8))
        products = [(vs, rv)], [(us, gu), (vs, gv)], [(us, bu)]
        for product, term, target in zip(products, terms, targets, strict=True):
            total = _sum(b, [(ys, factor), *product], term, WIDE_REST_BITS)
            vstore(b, _to_bytes(b, total), target)
        return context.get_dummy_value()

    return types.void(*[types.uintp] * 7), codegen


@inline
def fill_wide_band(params, frame, area, first, rows, band, coefficients, tail):
    """Write the bytes of a band, as `fill_band`, with interpolated colors or of ten bits."""
    width = i64_at(params, t.WIDTH)
    size = uintp(wide_row_bytes(width))
    u_area = area + size
    v_area = u_area + size
    rest = v_area + size
    plane = uintp(rows * width)
    is_nearest = i64_at(params, t.EVEN_ROW) + i64_at(params, t.ODD_ROW) == 8
    for row in range(first, first + rows):
        y = uintp(i64_at(frame, 0) + row * i64_at(params, t.Y_ROW))
        widen_row(y, i64_at(params, t.Y_STEP), params, area, width)
        if row == first or row % 2 == 0 or not is_nearest:
            u = uintp(i64_at(frame, 1))
            v = uintp(i64_at(frame, 2))
            u_row = i64_at(params, t.U_ROW)
            v_row = i64_at(params, t.V_ROW)
            interpolate_row(u, row, u_row, i64_at(params, t.U_STEP), params, rest, u_area)
            interpolate_row(v, row, v_row, i64_at(params, t.V_STEP), params, rest, v_area)
        red = band + uintp((row - first) * width)
        for x in range(0, width, HALF):
            at = uintp(2 * x)
            to = red + uintp(x)
            step = plane
            if x + HALF > width:
                to = tail
                step = uintp(HALF)
            store_wide_pixels(
                area + at, u_area + at, v_area + at, coefficients, to, to + step, to + step + step
            )
        done = width // HALF * HALF
        if done < width:
            for channel in range(3):
                to = red + uintp(done) + uintp(channel) * plane
                copy_bytes(tail + uintp(channel * HALF), 1, to, 0, width - done)


@inline
def rows_bytes(width):
    return 3 * row_bytes(width)


@inline
def wide_rows_bytes(width):
    return t.WIDE_ROWS * wide_row_bytes(width)


ROLES = {"frames": (fill_band, rows_bytes), "wide": (fill_wide_band, wide_rows_bytes)}


def build(role):
    """Build the kernel "frames" or "wide", whose source argument is the call block."""
    if role not in ROLES:
        raise ValueError(role)
    fill, bytes_of_rows = ROLES[role]

    def kernel(params, call, dst, lo, hi):
        tail = stack(TAIL)
        rows = i64_at(params, t.ROWS)
        bands = i64_at(params, t.BANDS)
        coefficients = params + uintp(8 * t.WORDS)
        launches = coefficients + uintp(8 * t.COEFFICIENTS)
        number = claim_area(call)
        area = uintp(i64_at(call, 0) + number * i64_at(call, 1))
        band = area + uintp(bytes_of_rows(i64_at(params, t.WIDTH)))
        frames = call + uintp(8 * (t.AREAS + i64_at(call, 2)))
        for unit in range(lo, hi):
            frame = frames + uintp(8 * t.FRAME * (unit // bands))
            first = min(unit % bands * rows, i64_at(params, t.HEIGHT) - rows)
            fill(params, frame, area, first, rows, band, coefficients, tail)
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

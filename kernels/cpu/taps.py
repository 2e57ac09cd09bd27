"""The kernel "taps", which writes tap tables (resize_params.py), and weighted sums of items.

resize.py and halve.py resample by these tables and sums. The filters equal Pillow's and torch's
("antialias"), torch's without antialias, and OpenCV's ("area"); tests/helpers/resizing.py has their
definition.
"""

from __future__ import annotations

from llvmlite import ir
from numba import float32, float64, types, uintp
from numba.extending import intrinsic

from ...planning.epilogue import DTYPES
from . import resize_params as t
from .casts import COMPUTED, call, cast, element_type, mangle
from .epilogue import broadcast
from .resize_params import VECTOR
from .simd import I64, address, i64_at, i64_put, vload, vstore
from .walk import inline


def float_access(name):
    """Build at(base, index), put(base, index, value) and splat(dst, value) for floats of a dtype.

    `splat` writes VECTOR copies.
    """
    type_ = COMPUTED[name]
    number = float64 if name == "f8" else float32
    item = DTYPES[name].item

    def element(b, base, index):
        return b.add(base, b.mul(index, ir.Constant(I64, item)))

    def load(context, b, signature, args):
        return vload(b, element(b, *args), 0, type_, item)

    def store(context, b, signature, args):
        base, index, value = args
        b.store(value, address(b, element(b, base, index), 0, type_)).align = item
        return context.get_dummy_value()

    def fill(context, b, signature, args):
        vstore(b, broadcast(b, args[1], ir.VectorType(type_, VECTOR)), args[0])
        return context.get_dummy_value()

    @intrinsic
    def at(typingctx, base, index):
        return number(types.uintp, types.intp), load

    @intrinsic
    def put(typingctx, base, index, value):
        return types.void(types.uintp, types.intp, number), store

    @intrinsic
    def splat(typingctx, dst, value):
        return types.void(types.uintp, number), fill

    return at, put, splat


f4_put = float_access("f4")[1]
f8_put = float_access("f8")[1]


# ---- tap tables --------------------------------------------------------------------------


@inline
def sine_of_pi(x):
    """Return sin(pi * x) for |x| <= 3; the C library's function is not available to kernels."""
    nearest = int(x + 0.5) if x >= 0 else -int(0.5 - x)
    y = (x - nearest) * 3.141592653589793
    square = y * y
    total = 0.0
    for k in range(23, 2, -2):
        total = (1.0 + total) * (-square / (k * (k - 1)))
    result = y * (1.0 + total)
    return -result if nearest & 1 else result


@inline
def filter_value(kind, antialias, x):
    """Return the filter of a kind at distance x from its center."""
    x = abs(x)
    if kind == t.BILINEAR:
        return max(0.0, 1.0 - x)
    if kind == t.BICUBIC:
        a = -0.5 if antialias else -0.75
        if x < 1.0:
            return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
        if x < 2.0:
            return (((x - 5.0) * x + 8.0) * x - 4.0) * a
        return 0.0
    if x >= 3.0:
        return 0.0
    if x == 0.0:
        return 1.0
    pi_x = 3.141592653589793 * x
    return 3.0 * sine_of_pi(x) * sine_of_pi(x / 3.0) / (pi_x * pi_x)


@inline
def area_weight(position, tap, size, scaled):
    """Return the weight of a source position in a mean of areas, times the sum of the weights."""
    if scaled < size:
        first = max(position * size, tap * scaled)
        return float(min((position + 1) * size, (tap + 1) * scaled) - first)
    low = position * size // scaled
    above = (position + 1) * size - (low + 1) * scaled
    share = above % size if above > 0 and low + 1 < size else 0
    return float(share if tap > low else size - share)


@inline
def area_range(position, size, scaled):
    """Return the source range of a mean of areas: its first position and its end."""
    low = position * size // scaled
    if scaled < size:
        return low, ((position + 1) * size + scaled - 1) // scaled
    return low, min(size, low + 2)


@inline
def tap_weight(kind, antialias, position, tap, size, scaled):
    """Return the weight of a tap of a filter, before weights are divided by their sum."""
    scale = size / scaled
    center = (position + 0.5) * scale
    wide = scale if antialias and scale > 1.0 else 1.0
    return filter_value(kind, antialias, (tap - center + 0.5) / wide)


@inline
def tap_range(kind, antialias, position, size, scaled):
    """Return the range of the taps of a filter, first and end; some may be outside."""
    scale = size / scaled
    center = (position + 0.5) * scale
    support = 1.0 if kind == t.BILINEAR else (2.0 if kind == t.BICUBIC else 3.0)
    if antialias:
        support *= max(scale, 1.0)
        return max(0, int(center - support + 0.5)), min(size, int(center + support + 0.5))
    reach = int(support)
    low = int(center + 0.5) - 1  # the floor of center - 0.5, which may be -1
    return low - reach + 1, low + reach + 1


@inline
def put_weight(weights, index, value, is_double):
    """Write a weight in the dtype of the sums."""
    if is_double:
        f8_put(weights, index, value)
    else:
        f4_put(weights, index, float32(value))


@inline
def write_taps(table, pitch, count, index, position, size, scaled, kind, antialias, is_double):
    """Write the taps and the weights of one position."""
    head = table + uintp(8 * (t.HEAD + t.POSITION * index))
    weights = table + uintp(8 * (t.HEAD + t.POSITION * count) + pitch * index)
    if position < 0 or position >= scaled:
        i64_put(head, 0, 0)
        i64_put(head, 1, 0)
        return
    if size == scaled or kind == t.NEAREST:
        i64_put(head, 0, (2 * position + 1) * size // (2 * scaled))
        i64_put(head, 1, 1)
        put_weight(weights, 0, 1.0, is_double)
        return
    is_area = kind == t.AREA
    if is_area:
        first, last = area_range(position, size, scaled)
    else:
        first, last = tap_range(kind, antialias, position, size, scaled)
    low = max(first, 0)
    high = min(last, size)
    total = 0.0
    for tap in range(first, last):
        if is_area:
            total += area_weight(position, tap, size, scaled)
        else:
            total += tap_weight(kind, antialias, position, tap, size, scaled)
    start = high
    end = low
    for tap in range(low, high):
        weight = 0.0
        # Taps beyond an edge are taps of the pixel at the edge.
        for repeated in range(first if tap == low else tap, last if tap == high - 1 else tap + 1):
            if is_area:
                weight += area_weight(position, repeated, size, scaled)
            else:
                weight += tap_weight(kind, antialias, position, repeated, size, scaled)
        if weight != 0.0:
            start = min(start, tap)
            end = tap + 1
        if start < high:
            put_weight(weights, tap - start, weight / total, is_double)
    i64_put(head, 0, start)
    i64_put(head, 1, end - start)


def build():
    """Build the kernel "taps", which writes the tap tables of requests lo to hi."""

    def kernel(params, requests, dst, lo, hi):
        for number in range(lo, hi):
            request = requests + uintp(8 * t.REQUEST * number)
            table = uintp(i64_at(request, t.T_TABLE))
            pitch = i64_at(request, t.T_PITCH)
            count = i64_at(request, t.T_COUNT)
            size = i64_at(request, t.T_SIZE)
            scaled = i64_at(request, t.T_SCALED)
            flags = i64_at(request, t.T_FLAGS)
            kind = flags & t.FILTER_BITS
            antialias = flags & t.ANTIALIAS != 0
            is_double = flags & t.DOUBLE != 0
            i64_put(table, 0, pitch)
            for i in range(count):
                index = count - 1 - i if flags & t.REVERSED else i
                position = i + i64_at(request, t.T_FIRST)
                write_taps(
                    table, pitch, count, index, position, size, scaled, kind, antialias, is_double
                )

    return kernel


@inline
def taps_of(table, count, index):
    """Return the first tap of a position, the number of its taps, and the address of weights."""
    head = table + uintp(8 * (t.HEAD + t.POSITION * index))
    weights = table + uintp(8 * (t.HEAD + t.POSITION * count) + i64_at(table, 0) * index)
    return i64_at(head, 0), i64_at(head, 1), weights


# ---- weighted sums -----------------------------------------------------------------------


@intrinsic(prefer_literal=True)
def sum_taps(typingctx, src, step, weights, count, before, dst, dtype, summed, lanes, vectors):
    """Write the weighted sum of `count` >= 1 runs of `lanes` x `vectors` items of `dtype`.

    Run k begins at src + k * step. The sum begins with the values at `before`, and is of the dtype
    `summed`. Arguments from `dtype` on are literals.
    """
    literals = (dtype, summed, lanes, vectors)
    codegen = _emit_sums(*(literal.literal_value for literal in literals))
    pointers = types.uintp, types.intp, types.uintp, types.intp, types.uintp, types.uintp
    return types.void(*pointers, *literals), codegen


@intrinsic(prefer_literal=True)
def sum_valid_taps(
    typingctx, src, step, weights, count, before, dst, weights_before, weights_dst, ignored,
    dtype, summed, lanes, vectors,
):  # fmt: skip
    """As sum_taps(...), for the items that are not ignored, and write the sums of their weights.

    `ignored` is the address of the words IGNORED and IS_NUMBER.
    """
    literals = (dtype, summed, lanes, vectors)
    codegen = _emit_sums(*(literal.literal_value for literal in literals))
    pointers = types.uintp, types.intp, types.uintp, types.intp, *[types.uintp] * 5
    return types.void(*pointers, *literals), codegen


def _emit_sums(name, sum_name, n, width):
    """Return the code of sum_taps(...), or of sum_valid_taps(...) if it has their arguments."""
    item, sum_item = DTYPES[name].item, DTYPES[sum_name].item
    type_ = COMPUTED[sum_name]
    memory = ir.VectorType(element_type(name), n)
    result = ir.VectorType(type_, n)

    def find_valid(b, x, value, is_number):
        is_other = b.fcmp_unordered("une", x, value)
        if name[0] in "ui":
            return is_other
        return b.and_(is_other, b.or_(b.fcmp_ordered("ord", x, x), is_number))

    def codegen(context, b, signature, args):
        source, stride, table, taps, start, target, *more = args[:-4]
        starts, targets, value, is_number = [start], [target], None, None
        if more:
            starts, targets, ignored = [start, more[0]], [target, more[1]], more[2]
            value = broadcast(b, vload(b, ignored, 0, type_, 8), result)
            flag = b.trunc(vload(b, ignored, 8, I64, 8), ir.IntType(1))
            is_number = broadcast(b, flag, ir.VectorType(flag.type, n))
        zero = ir.Constant(result, None)
        before = [vload(b, x, sum_item * i * n, result) for x in starts for i in range(width)]
        entry = b.block
        body = b.append_basic_block("tap")
        end = b.append_basic_block("tap.end")
        b.branch(body)
        b.position_at_end(body)
        index, run = b.phi(I64), b.phi(I64)
        sums = [b.phi(result) for _ in before]
        place = b.add(table, b.mul(index, ir.Constant(I64, sum_item)))
        weight = vload(b, place, 0, type_, sum_item)
        weight = broadcast(b, weight, result)
        fused = "llvm.fmuladd." + mangle(result)
        added, added_weights = [], []
        for i, total in enumerate(sums[:width]):
            x = cast(b, vload(b, run, i * n * item, memory), name, sum_name, False)
            if value is not None:
                is_valid = find_valid(b, x, value, is_number)
                x = b.select(is_valid, x, zero)
                added_weights.append(b.fadd(sums[width + i], b.select(is_valid, weight, zero)))
            added.append(call(b, fused, result, x, weight, total))
        added += added_weights
        pairs = zip((index, run, *sums), (ir.Constant(I64, 0), source, *before), strict=True)
        following = b.add(index, ir.Constant(I64, 1)), b.add(run, stride), *added
        for (phi, first), next_value in zip(pairs, following, strict=True):
            phi.add_incoming(first, entry)
            phi.add_incoming(next_value, b.block)
        b.cbranch(b.icmp_signed("<", following[0], taps), body, end)
        b.position_at_end(end)
        for i, total in enumerate(added):
            vstore(b, total, targets[i // width], sum_item * (i % width) * n)
        return context.get_dummy_value()

    return codegen


@intrinsic(prefer_literal=True)
def divide_sums(typingctx, sums, weights, fill, least, summed, vectors):
    """Divide `vectors` vectors of sums, in place, by the sums of their weights.

    Where the sum of weights is not above `least`, write the fill value of the vector instead.
    `fill` and `least` are addresses. Arguments from `summed` on are literals.
    """
    name, width = summed.literal_value, vectors.literal_value
    item, type_ = DTYPES[name].item, COMPUTED[name]
    vector = ir.VectorType(type_, VECTOR)

    def codegen(context, b, signature, args):
        dividends, divisors, values, bound = args[:4]
        lowest = broadcast(b, vload(b, bound, 0, type_, 8), vector)
        one = broadcast(b, type_(1.0), vector)
        for i in range(width):
            divisor = vload(b, divisors, item * VECTOR * i, vector)
            is_valid = b.fcmp_ordered(">", divisor, lowest)
            mean = b.fdiv(
                vload(b, dividends, item * VECTOR * i, vector), b.select(is_valid, divisor, one)
            )
            filled = broadcast(b, vload(b, values, item * i, type_, item), vector)
            vstore(b, b.select(is_valid, mean, filled), dividends, item * VECTOR * i)
        return context.get_dummy_value()

    return types.void(*[types.uintp] * 4, summed, vectors), codegen

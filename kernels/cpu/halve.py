"""The kernel that halves both sides of images of bytes, as "resize" (resize.py), with integers.

The weights are 1/2 for two taps, or 1/8, 3/8, 3/8 and 1/8 for four, so sums of bytes are multiples
of 1/64 below 256, which float32 contains, and results have the same bits. Only at the edges, where
taps are outside of the sample, other weights need floats.

The kernel has the parameters and the call block of "resize". Rows of the result must be contiguous.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types, uintp
from numba.extending import intrinsic

from . import resize_params as t
from .accumulate import claim_area
from .atomics import store_release
from .casts import COMPUTED, cast, splat
from .params import LANE
from .resize_params import VECTOR
from .simd import fence, i64_at, i64_put, shuffle, vload, vstore
from .taps import sum_taps, taps_of
from .walk import inline

ITEMS = 2 * LANE  # bytes of a row that are summed together
WEIGHTS = {2: (1, 1), 4: (1, 3, 3, 1)}  # of taps, times 2 or 8
SPAN = 32  # steps of a piece of a row


def weigh(b, values):
    """Return the sum of vectors of 16-bit integers with the weights of their number."""
    weights = WEIGHTS[len(values)]
    outer = b.add(values[0], values[-1])
    if len(values) == 2:
        return outer
    inner = b.add(values[1], values[2])
    return b.add(outer, b.mul(inner, splat(inner.type, weights[1])))


@intrinsic(prefer_literal=True)
def sum_bytes(typingctx, src, stride, dst, taps):
    """Write the weighted sums of ITEMS bytes of `taps` rows, a literal, as 16-bit integers."""
    count = taps.literal_value
    wide = ir.VectorType(ir.IntType(16), ITEMS)

    def codegen(context, b, signature, args):
        source, step, target = args[:3]
        rows = []
        for _ in range(count):
            rows.append(b.zext(vload(b, source, 0, ir.VectorType(ir.IntType(8), ITEMS)), wide))
            source = b.add(source, step)
        vstore(b, weigh(b, rows), target)
        return context.get_dummy_value()

    return types.void(types.uintp, types.intp, types.uintp, taps), codegen


@intrinsic(prefer_literal=True)
def halve_sums(typingctx, src, dst, inner, taps):
    """Write the halves of sums as bytes, for as many columns of `inner` bytes as ITEMS hold.

    The first tap of the first column is at `src`. `inner` and `taps` are literals.
    """
    size, count = inner.literal_value, taps.literal_value
    shift = 2 if count == 2 else 6
    sums = ir.VectorType(ir.IntType(16), ITEMS)
    bytes_stored = ITEMS - ITEMS % size

    def codegen(context, b, signature, args):
        source, target = args[:2]
        low, high = (
            weigh(b, [vload(b, source, 2 * (first + k * size), sums) for k in range(count)])
            for first in (0, ITEMS)
        )
        # Every second column is a result; items after the last one have any value.
        chosen = [min(2 * size * (i // size) + i % size, 2 * ITEMS - 1) for i in range(ITEMS)]
        x = shuffle(b, low, high, chosen)
        is_odd = b.and_(b.lshr(x, splat(sums, shift)), splat(sums, 1))
        x = b.add(x, b.add(is_odd, splat(sums, (1 << shift - 1) - 1)))  # half to even
        result = b.trunc(b.lshr(x, splat(sums, shift)), ir.VectorType(ir.IntType(8), ITEMS))
        for first in (0, bytes_stored - LANE):
            vstore(b, shuffle(b, result, result, list(range(first, first + LANE))), target, first)
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp, inner, taps), codegen


@intrinsic(prefer_literal=True)
def round_floats(typingctx, src, dst, count):
    """Write `count` floats, a literal, as bytes: rounded half to even, and limited."""
    n = count.literal_value

    def codegen(context, b, signature, args):
        floats = vload(b, args[0], 0, ir.VectorType(COMPUTED["f4"], n), 4)
        vstore(b, cast(b, floats, "f4", "u1", True), args[1])
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp, count), codegen


def build_average(inner):
    """Build average_columns(...), which writes columns of a row by sums of floats."""

    @inline
    def average_columns(src, stride, tables, sizes, row, first, last, area, dst):
        """Write up to SPAN steps of result columns of a row, which begins at `dst`.

        `area` begins with VECTOR zeros.
        """
        row_table, column_table = tables
        rows, columns, row_bytes = sizes
        zeros = area
        sums = area + uintp(4 * VECTOR)
        top, row_taps, row_weights = taps_of(row_table, rows, row)
        tap, count, _ = taps_of(column_table, columns, last - 1)
        low, _, _ = taps_of(column_table, columns, first)
        low *= inner
        high = (tap + count) * inner
        low = max(0, min(low, row_bytes - VECTOR))
        for i in range(low, high, VECTOR):
            start = min(i, row_bytes - VECTOR)
            x = src + uintp(top * stride + start)
            y = sums + uintp(4 * (start - low))
            sum_taps(x, stride, row_weights, row_taps, zeros, y, "u1", "f4", VECTOR, 1)
        result = sums + uintp(4 * (high - low + VECTOR))
        for column in range(first, last):
            tap, count, weights = taps_of(column_table, columns, column)
            x = sums + uintp(4 * (tap * inner - low))
            sum_taps(x, 4 * inner, weights, count, zeros, result, "f4", "f4", inner, 1)
            round_floats(result, dst + uintp(column * inner), inner)

    return average_columns


def build(inner, taps):
    """Build the kernel for columns of `inner` bytes, and 2 or 4 taps along each axis."""
    edge = taps // 2 - 1  # rows and columns at each side with taps outside of the sample
    step = ITEMS // inner  # columns that are written together
    average_columns = build_average(inner)

    @inline
    def halve_row(src, stride, first, last, area, dst):
        """Write result columns `first` to `last`, at least `step`; `src` has their first taps."""
        while first < last:
            begin = min(first, last - step)
            end = min(begin + SPAN * step, last)
            x = src + uintp((2 * begin - edge) * inner)
            n = (2 * (end - begin) + 2 * edge) * inner
            for i in range(0, n, ITEMS):
                start = min(i, n - ITEMS)
                sum_bytes(x + uintp(start), stride, area + uintp(2 * start), taps)
            for column in range(begin, end, step):
                column = min(column, end - step)
                y = dst + uintp(column * inner)
                halve_sums(area + uintp(4 * (column - begin) * inner), y, inner, taps)
            first = end

    def kernel(params, call, dst, lo, hi):
        areas = uintp(i64_at(call, t.C_AREAS))
        number = claim_area(areas)
        area = uintp(i64_at(areas, 0) + number * i64_at(areas, 1))
        for i in range(VECTOR // 2):
            i64_put(area, i, 0)
        sums = area + uintp(4 * VECTOR)
        samples = call + uintp(8 * t.CALL)
        units = i64_at(call, t.C_UNITS)
        places = uintp(i64_at(call, t.C_PLACES))
        rows = i64_at(call, t.C_ROWS)
        lanes = i64_at(params, t.LANES)
        columns = i64_at(call, t.C_COLUMNS)
        sample_step = i64_at(params, t.SAMPLE_STEP)
        row_step = i64_at(params, t.ROW_STEP)
        sizes = rows, columns, 2 * columns * inner
        for unit in range(lo, hi):
            sample = samples + uintp(8 * (t.SAMPLE + 4) * (unit // units))
            src = uintp(i64_at(sample, 0))
            tables = uintp(i64_at(sample, t.SAMPLE)), uintp(i64_at(sample, t.SAMPLE + 2))
            stride = i64_at(sample, t.SAMPLE + 1)
            block = i64_at(places, t.PLACE * (unit % units))
            for row in range(block, block + lanes):
                y = dst + uintp(unit // units * sample_step + row * row_step)
                is_edge = row < edge or row >= rows - edge
                if not is_edge:
                    x = src + uintp((2 * row - edge) * stride)
                    halve_row(x, stride, edge, columns - edge, sums, y)
                if edge > 0:  # rows at an edge, piece by piece; both edges of other rows
                    distance = SPAN * step if is_edge else columns - edge
                    length = SPAN * step if is_edge else edge
                    first = 0
                    while first < columns:  # range with such a step would raise in Numba
                        last = min(first + length, columns)
                        average_columns(src, stride, tables, sizes, row, first, last, area, y)
                        first += distance
        fence()
        store_release(areas + uintp(8 * (t.AREAS + number)), 0)

    return kernel

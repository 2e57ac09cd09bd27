"""Kernels that resample images: a weighted sum of rows, then of columns, then the conversion.

A block of VECTOR result rows is one unit of work. For each of its rows, "rows" adds the source rows
that contribute to it, weighted, along contiguous memory. It transposes the sums in registers, so
that the block has VECTOR neighbors for each source element of a column, one per row. Each column of
the result is then a weighted sum of source columns, again of full vectors, whatever the number of
channels. Last, a conversion kernel (engine.py) applies the formula and moves the block into the
output. All sums are of float32, in the order of the taps, so results do not depend on threads and
blocks. CPUs with fused multiply-add round them once less.

resize_params.py describes the tables. The filters are those of Pillow and torch ("antialias"), of
torch without antialias, and of OpenCV ("area"); planning/resize.py has the definition in NumPy.
"""

from __future__ import annotations

from llvmlite import ir
from numba import float32, types, uintp
from numba.extending import intrinsic

from ...planning.epilogue import DTYPES
from . import resize_params as t
from .accumulate import claim_area
from .atomics import call_kernel, store_release
from .casts import COMPUTED, call, cast, element_type, mangle
from .epilogue import broadcast
from .params import LINE
from .resize_params import VECTOR, WIDE
from .simd import (
    I64,
    address,
    fence,
    i64_at,
    i64_put,
    prefetch_line,
    stack,
    transpose_tile,
    vload,
    vstore,
)
from .walk import inline

F4 = COMPUTED["f4"]
# Elements of a row that are summed before they are transposed. Few are best if the rows of a block
# lie within NEAR_BYTES, whose pages fit the first TLB of a CPU; then the next block is prefetched.
NEAR_SPAN = 64
FAR_SPAN = 512
NEAR_BYTES = 256 << 10
# Bytes between rows of sums, no power of two: such rows evict each other from the L1 cache.
NEAR_PITCH = 4 * NEAR_SPAN + LINE
FAR_PITCH = 4 * FAR_SPAN + LINE
BAND = VECTOR * FAR_PITCH
SQUARES = 8 * VECTOR  # bytes of the offsets of a transposed square
ZEROS = 4 * VECTOR * WIDE  # bytes of zeros behind them
CONSTANTS = SQUARES + ZEROS


@intrinsic
def f4_put(typingctx, base, index, value):
    """Write `value` to the index-th float32 from an address."""

    def codegen(context, b, signature, args):
        pointer = b.add(args[0], b.shl(args[1], ir.Constant(I64, 2)))
        b.store(args[2], address(b, pointer, 0, F4)).align = 4
        return context.get_dummy_value()

    return types.void(types.uintp, types.intp, types.float32), codegen


@intrinsic
def f4_at(typingctx, base, index):
    """Load the index-th float32 from an address."""

    def codegen(context, b, signature, args):
        pointer = b.add(args[0], b.shl(args[1], ir.Constant(I64, 2)))
        return vload(b, pointer, 0, F4, 4)

    return types.float32(types.uintp, types.intp), codegen


@intrinsic
def splat_f4(typingctx, dst, value):
    """Write VECTOR copies of a float32."""

    def codegen(context, b, signature, args):
        vstore(b, broadcast(b, args[1], ir.VectorType(F4, VECTOR)), args[0])
        return context.get_dummy_value()

    return types.void(types.uintp, types.float32), codegen


@intrinsic(prefer_literal=True)
def sum_taps(typingctx, src, step, weights, count, before, dst, dtype, lanes, vectors):
    """Write the weighted sum of `count` >= 1 runs of `lanes` x `vectors` items, as float32.

    Run k begins at src + k * step. The sum begins with the values at `before`. `dtype`, `lanes` and
    `vectors` are literals.
    """
    name, n, width = dtype.literal_value, lanes.literal_value, vectors.literal_value
    item = DTYPES[name].item

    def codegen(context, b, signature, args):
        source, stride, table, taps, start, target = args[:6]
        memory = ir.VectorType(element_type(name), n)
        result = ir.VectorType(F4, n)
        before = [vload(b, start, 4 * i * n, result) for i in range(width)]
        entry = b.block
        body = b.append_basic_block("tap")
        end = b.append_basic_block("tap.end")
        b.branch(body)
        b.position_at_end(body)
        index, run = b.phi(I64), b.phi(I64)
        sums = [b.phi(result) for _ in range(width)]
        weight = vload(b, b.add(table, b.shl(index, ir.Constant(I64, 2))), 0, F4, 4)
        weight = broadcast(b, weight, result)
        fused = "llvm.fmuladd." + mangle(result)
        more = []
        for i, total in enumerate(sums):
            x = cast(b, vload(b, run, i * n * item, memory), name, "f4", False)
            more.append(call(b, fused, result, x, weight, total))
        pairs = zip((index, run, *sums), (ir.Constant(I64, 0), source, *before), strict=True)
        following = b.add(index, ir.Constant(I64, 1)), b.add(run, stride), *more
        for (phi, first), next_value in zip(pairs, following, strict=True):
            phi.add_incoming(first, entry)
            phi.add_incoming(next_value, b.block)
        b.cbranch(b.icmp_signed("<", following[0], taps), body, end)
        b.position_at_end(end)
        for i, total in enumerate(more):
            vstore(b, total, target, 4 * i * n)
        return context.get_dummy_value()

    pointers = types.uintp, types.intp, types.uintp, types.intp, types.uintp, types.uintp
    return types.void(*pointers, dtype, lanes, vectors), codegen


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
    """Return the first source position of a mean of areas, and the one behind the last."""
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
    """Return the first tap of a filter and the one behind the last; some may be outside."""
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
def write_taps(table, pitch, count, index, position, size, scaled, kind, antialias):
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
        f4_put(weights, 0, float32(1.0))
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
            f4_put(weights, tap - start, float32(weight / total))
    i64_put(head, 0, start)
    i64_put(head, 1, end - start)


def build_taps():
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
            i64_put(table, 0, pitch)
            for i in range(count):
                index = count - 1 - i if flags & t.REVERSED else i
                position = i + i64_at(request, t.T_FIRST)
                kind = flags & t.FILTER_BITS
                antialias = flags & t.ANTIALIAS != 0
                write_taps(table, pitch, count, index, position, size, scaled, kind, antialias)

    return kernel


@inline
def taps_of(table, count, index):
    """Return the first tap of a position, the number of its taps, and the address of weights."""
    head = table + uintp(8 * (t.HEAD + t.POSITION * index))
    weights = table + uintp(8 * (t.HEAD + t.POSITION * count) + i64_at(table, 0) * index)
    return i64_at(head, 0), i64_at(head, 1), weights


# ---- resampling --------------------------------------------------------------------------


def build_columns(dtype):
    """Build columns(...), which sums rows of the source and transposes the sums."""
    item = DTYPES[dtype].item
    wide = VECTOR * WIDE

    @inline
    def sum_row(x, stride, weights, count, before, move, y, n):
        """Write the weighted sum of n elements of `count` rows; n is a multiple of VECTOR or less.

        `move` is 1 if the sums begin with the values at `before`, 0 if they begin with its first.
        """
        i = 0
        while i + wide <= n:
            to = y + uintp(4 * i)
            src = x + uintp(item * i)
            sum_taps(
                src, stride, weights, count, before + uintp(4 * i * move), to, dtype, VECTOR, WIDE
            )
            i += wide
        while i + VECTOR <= n:
            to = y + uintp(4 * i)
            src = x + uintp(item * i)
            sum_taps(
                src, stride, weights, count, before + uintp(4 * i * move), to, dtype, VECTOR, 1
            )
            i += VECTOR
        while i < n:
            to = y + uintp(4 * i)
            src = x + uintp(item * i)
            sum_taps(src, stride, weights, count, before + uintp(4 * i * move), to, dtype, 1, 1)
            i += 1

    @inline
    def columns(skip, stride, table, rows, row, lanes, outer, taps, n, ahead, band, squares, area):
        """Write n elements of each row of a block to `area`, VECTOR rows for each element.

        `outer` has the address and the weight of every tap of the outer axes; `skip` bytes behind
        the address are the first elements. Long rows are read in pieces, of which the last overlaps
        the one before. The same piece of the rows that the next block reads (`ahead`) is
        prefetched, since a CPU does not predict pieces of many rows.
        """
        next_rows, next_stride, next_count = ahead
        is_near = next_count * abs(next_stride) <= NEAR_BYTES
        span = NEAR_SPAN if is_near else FAR_SPAN
        pitch = NEAR_PITCH if is_near else FAR_PITCH
        zeros = squares + uintp(SQUARES)
        scaled = outer + uintp(16 * taps)
        width = min(span, n - n % VECTOR if n >= VECTOR else n)
        done = 0
        while done < n:
            pos = min(done, n - width)
            for tap in range(taps):
                src = uintp(i64_at(outer, 2 * tap) + skip + pos * item)
                factor = f4_at(outer, 4 * tap + 2)
                for lane in range(lanes):
                    first, count, weights = taps_of(table, rows, row + lane)
                    if factor != 1.0:
                        for k in range(count):
                            f4_put(scaled, k, f4_at(weights, k) * factor)
                        weights = scaled
                    x = src + uintp(first * stride)
                    y = band + uintp(lane * pitch)
                    if tap == 0 and count > 0:
                        sum_row(x, stride, weights, count, zeros, 0, y, width)
                    elif count > 0:
                        sum_row(x, stride, weights, count, y, 1, y, width)
            for first in range(0, width, VECTOR):
                x = band + uintp(4 * first)
                y = area + uintp(LINE * (pos + first))
                if is_near:
                    transpose_tile(x, x, y, squares, 0, 4, 4, 1, 4, 0, NEAR_PITCH)
                else:
                    transpose_tile(x, x, y, squares, 0, 4, 4, 1, 4, 0, FAR_PITCH)
            for i in range(next_count if is_near else 0):
                x = next_rows + uintp(i * next_stride + skip + pos * item)
                for line in range(0, width * item, LINE):
                    prefetch_line(x + uintp(line))
            done = pos + width

    return columns


def build_sum_columns(elements):
    """Build sum_columns(...), which sums source columns for result columns `first` to `last`."""

    @inline
    def sum_columns(params, table, first, last, low, area, zeros, result):
        """Write `elements` vectors of each column; `area` has the source columns from `low` on."""
        columns = i64_at(params, t.COLUMNS)
        step = LINE * i64_at(params, t.INNER)
        result_step = LINE * i64_at(params, t.INNER_OUT)
        for column in range(first, last):
            tap, count, weights = taps_of(table, columns, column)
            if count > 0:
                src = area + uintp((tap - low) * step)
                y = result + uintp(column * result_step)
                sum_taps(src, step, weights, count, zeros, y, "f4", VECTOR, elements)

    return sum_columns


@inline
def fill_columns(params, fill, first, last, result):
    """Write fill values to columns of a block."""
    inner = i64_at(params, t.INNER_OUT)
    for column in range(first, last):
        for element in range(inner):
            to = result + uintp(LINE * (column * inner + element))
            splat_f4(to, f4_at(fill, element))


@inline
def fill_row(params, fill, lane, result):
    """Write fill values to one row of a block."""
    inner = i64_at(params, t.INNER_OUT)
    for column in range(i64_at(params, t.COLUMNS)):
        for element in range(inner):
            to = result + uintp(LINE * (column * inner + element))
            f4_put(to, lane, f4_at(fill, element))


@inline
def block_columns(params, table, first, room):
    """Return a range of up to `room` source columns, and the result column behind its last one.

    The range covers the taps of result columns from `first` on; it is empty if all are filled.
    """
    columns = i64_at(params, t.COLUMNS)
    low = 0
    high = 0
    column = first
    while column < columns:
        start, count, _ = taps_of(table, columns, column)
        if count > 0:
            lowest = min(low, start) if high > low else start
            highest = max(high, start + count)
            if high > low and highest - lowest > room:
                break
            low = lowest
            high = highest
        column += 1
    return low, high, column


@inline
def outer_taps(params, sample, rest, outer):
    """Write offset and weight of each tap of the outer axes.

    Returns the number of taps, the offset in the output and the offset in the fill values.
    """
    taps = 1
    i64_put(outer, 0, i64_at(sample, 0))
    f4_put(outer, 2, float32(1.0))
    to = 0
    fill = 0
    for axis in range(i64_at(params, t.AXES) - 1, -1, -1):
        words = params + uintp(8 * (t.WORDS + t.AXIS * axis))
        size = i64_at(words, 0)
        index = rest % size
        rest //= size
        to += index * i64_at(words, 1)
        fill += index * i64_at(words, 2)
        table = uintp(i64_at(sample, t.SAMPLE + 2 * axis))
        stride = i64_at(sample, t.SAMPLE + 2 * axis + 1)
        first, count, weights = taps_of(table, size, index)
        for tap in range(count - 1, -1, -1):
            for k in range(taps - 1, -1, -1):
                word = 2 * (tap * taps + k)
                i64_put(outer, word, i64_at(outer, 2 * k) + (first + tap) * stride)
                f4_put(outer, 2 * word + 2, f4_at(outer, 4 * k + 2) * f4_at(weights, tap))
        taps *= count
    return taps, to, fill


@inline
def source_rows(params, sample, index, row):
    """Return the address of the first row that a block reads, the row stride and their number."""
    address = i64_at(sample, 0)
    axes = i64_at(params, t.AXES)
    for axis in range(axes - 1, -1, -1):
        size = i64_at(params, t.WORDS + t.AXIS * axis)
        table = uintp(i64_at(sample, t.SAMPLE + 2 * axis))
        first, _, _ = taps_of(table, size, index % size)
        address += first * i64_at(sample, t.SAMPLE + 2 * axis + 1)
        index //= size
    table = uintp(i64_at(sample, t.SAMPLE + 2 * axes))
    stride = i64_at(sample, t.SAMPLE + 2 * axes + 1)
    rows = i64_at(params, t.ROWS)
    low, count, _ = taps_of(table, rows, row)
    high = low + count
    for lane in range(1, i64_at(params, t.LANES)):
        first, count, _ = taps_of(table, rows, row + lane)
        if count > 0:
            low = min(low, first) if high > low else first
            high = max(high, first + count)
    return uintp(address + low * stride), stride, high - low


def build_planes(dtype):
    """Build plane(...), which resamples one block of rows of one plane into `result`."""
    columns = build_columns(dtype)
    sum_1, sum_2, sum_3, sum_4 = map(build_sum_columns, range(1, 5))

    @inline
    def plane(params, tables, row, outer, taps, fill, ahead, band, squares, area, room, result):
        rows = i64_at(params, t.ROWS)
        lanes = i64_at(params, t.LANES)
        width = i64_at(params, t.COLUMNS)
        inner = i64_at(params, t.INNER)
        row_taps = uintp(i64_at(tables, 0))
        row_stride = i64_at(tables, 1)
        column_taps = uintp(i64_at(tables, 2))
        column_stride = i64_at(tables, 3)
        groups = params + uintp(8 * (t.WORDS + t.AXIS * i64_at(params, t.AXES)))
        zeros = squares + uintp(SQUARES)
        inside = 0
        for lane in range(lanes if taps > 0 else 0):
            _, count, _ = taps_of(row_taps, rows, row + lane)
            inside += 1 if count > 0 else 0
        column = 0
        if inside == 0:
            fill_columns(params, fill, 0, width, result)
            column = width
        while column < width:
            low, high, last = block_columns(params, column_taps, column, room // inner)
            skip = low * column_stride
            n = (high - low) * inner
            columns(
                skip,
                row_stride,
                row_taps,
                rows,
                row,
                lanes,
                outer,
                taps,
                n,
                ahead,
                band,
                squares,
                area,
            )
            done = 0
            for i in range(i64_at(params, t.GROUPS)):
                x = area + uintp(LINE * i64_at(groups, t.GROUP * i))
                y = result + uintp(LINE * done)
                elements = i64_at(groups, t.GROUP * i + 1)
                if elements == 4:
                    sum_4(params, column_taps, column, last, low, x, zeros, y)
                elif elements == 3:
                    sum_3(params, column_taps, column, last, low, x, zeros, y)
                elif elements == 2:
                    sum_2(params, column_taps, column, last, low, x, zeros, y)
                else:
                    sum_1(params, column_taps, column, last, low, x, zeros, y)
                done += elements
            for x in range(column, last):
                _, count, _ = taps_of(column_taps, width, x)
                if count == 0:
                    fill_columns(params, fill, x, x + 1, result)
            column = last
        if 0 < inside < lanes:
            for lane in range(lanes):
                _, count, _ = taps_of(row_taps, rows, row + lane)
                if count == 0:
                    fill_row(params, fill, lane, result)

    return plane


def build_rows(dtype):
    """Build the kernel "rows" for sources of a dtype; the call block is passed as the source."""
    plane = build_planes(dtype)

    def kernel(params, call, dst, lo, hi):
        band = stack(BAND)
        squares = stack(CONSTANTS)
        for i in range(VECTOR):
            i64_put(squares, i, LINE * i)
        for i in range(ZEROS // 8):
            i64_put(squares, VECTOR + i, 0)
        for i in range(BAND // 8):
            i64_put(band, i, 0)
        number = claim_area(call)
        area = uintp(i64_at(call, 0) + number * i64_at(call, 1))
        units = i64_at(params, t.UNITS)
        blocks = i64_at(params, t.BLOCKS)
        planes = i64_at(params, t.PLANES)
        lanes = i64_at(params, t.LANES)
        axes = i64_at(params, t.AXES)
        plane_bytes = LINE * i64_at(params, t.COLUMNS) * i64_at(params, t.INNER_OUT)
        launches = params + uintp(8 * (t.WORDS + t.AXIS * axes))
        launches += uintp(8 * t.GROUP * i64_at(params, t.GROUPS))
        after_flags = call + uintp(8 * (t.AREAS + i64_at(call, 2)))
        room = i64_at(after_flags, 0)
        samples = after_flags + uintp(8)
        row_words = t.SAMPLE + 2 * (axes + 2)
        result = area + uintp(LINE * room)
        outer = result + uintp(planes * plane_bytes)
        rows = i64_at(params, t.ROWS)
        for unit in range(lo, hi):
            sample = samples + uintp(8 * row_words * (unit // units))
            tables = sample + uintp(8 * (t.SAMPLE + 2 * axes))
            rest = unit % units
            row = min(rest % blocks * lanes, rows - lanes)
            to = unit // units * i64_at(params, t.SAMPLE_STEP) + row * i64_at(params, t.ROW_STEP)
            step = 0
            for number_of_plane in range(planes):
                index = rest // blocks * planes + number_of_plane
                taps, step, shift = outer_taps(params, sample, index, outer)
                fill = uintp(i64_at(params, t.FILL) + i64_at(sample, 1) + 4 * shift)
                y = result + uintp(number_of_plane * plane_bytes)
                ahead = source_rows(params, sample, index, row)
                if number_of_plane + 1 < planes:
                    ahead = source_rows(params, sample, index + 1, row)
                elif unit + 1 < hi:
                    other = samples + uintp(8 * row_words * ((unit + 1) // units))
                    rest_ahead = (unit + 1) % units
                    row_ahead = min(rest_ahead % blocks * lanes, rows - lanes)
                    ahead = source_rows(params, other, rest_ahead // blocks * planes, row_ahead)
                plane(params, tables, row, outer, taps, fill, ahead, band, squares, area, room, y)
            for i in range(i64_at(params, t.LAUNCHES)):
                launch = launches + uintp(8 * t.LAUNCH * i)
                code = uintp(i64_at(launch, 0))
                x = result + uintp(i64_at(launch, 3))
                y = dst + uintp(to + step + i64_at(launch, 4))
                call_kernel(code, uintp(i64_at(launch, 1)), x, y, 0, i64_at(launch, 2))
        fence()
        store_release(call + uintp(8 * (t.AREAS + number)), 0)

    return kernel


def build(role, *literals):
    """Return the kernel of a role: "taps" writes tap tables, "rows" resamples a dtype."""
    return build_taps() if role == "taps" else build_rows(*literals)

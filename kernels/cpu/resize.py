"""The kernel that resamples images: a weighted sum of rows, then of columns, then the conversion.

A block of up to VECTOR result rows is one unit of work. For each row, the kernel adds the source
rows that contribute to it, weighted, along contiguous memory. It transposes the sums in registers,
so that the block has VECTOR neighbors for each source element of a column, one per row. Each column
of the result is then a weighted sum of source columns, again of full vectors, whatever the number
of channels. If most source columns have no taps, the columns with taps are gathered first. Last, a
conversion kernel (engine.py) applies the formula and moves the block into the output. Sums are of
float32, or of float64 for such samples, in the order of the taps, so results do not depend on
threads and blocks. CPUs with fused multiply-add round them once less.

If elements are ignored ("valid" in place of "all"), the weights of the others are summed beside
them, in the same order, and each result is divided by the sum of its weights.

resize_params.py describes the tables, which taps.py writes.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types, uintp
from numba.extending import intrinsic

from ...planning.epilogue import DTYPES, computation_dtype
from . import resize_params as t
from .accumulate import claim_area
from .atomics import call_kernel, store_release
from .params import LANE, LINE
from .resize_params import VECTOR, WIDE
from .simd import (
    I64,
    address,
    fence,
    i64_at,
    i64_put,
    move_item,
    prefetch_line,
    stack,
    transpose_tile,
    vload,
)
from .taps import divide_sums, float_access, sum_taps, sum_valid_taps, taps_of
from .walk import inline

SQUARES = 8 * VECTOR  # bytes of the offsets of a transposed square


def constants_bytes(item):
    """Return the size of the constants of a thread: offsets, zeros, offsets of gathered columns.

    They are followed by the sums of the valid weights of a result column.
    """
    return SQUARES + 2 * VECTOR * WIDE * item + 8 * t.FAR_SPAN


@intrinsic(prefer_literal=True)
def move_words(typingctx, row, offsets, to, step, nbytes, count):
    """Copy `count` words of `nbytes`, at 64-bit offsets in a row, to every `step`-th byte of `to`.

    `nbytes` and `count` are literals. Words may overlap; they are stored in order.
    """
    word = ir.IntType(8 * nbytes.literal_value)

    def codegen(context, b, signature, args):
        source, table, target, pitch = args[:4]
        for i in range(count.literal_value):
            place = b.add(source, vload(b, table, 8 * i, I64, 8))
            b.store(vload(b, place, 0, word), address(b, target, 0, word)).align = 1
            target = b.add(target, pitch)
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp, types.uintp, types.intp, nbytes, count), codegen


def build_gather(item):
    """Build find_columns(...) and gather(...), which copy the taps of result columns of a row."""

    @inline
    def find_columns(place, first, last, offsets):
        """Write the offset of each result column in a row; return the range of shifted ones.

        A column that is moved as a word, which would end after the row, is shifted.
        """
        table, width, step, _, row_bytes, word = place
        low = last
        high = first
        for column in range(first, last):
            tap, _, _ = taps_of(table, width, column)
            offset = tap * step
            if offset + word > row_bytes:
                low = min(low, column)
                high = column + 1
                offset = row_bytes - word
            i64_put(offsets, column - first, offset)
        return low, high

    def build_moves(word):
        @inline
        def move_columns(row, offsets, count, to, size):
            fours = count // 4
            for i in range(fours):
                move_words(row, offsets + uintp(32 * i), to + uintp(4 * size * i), size, word, 4)
            for i in range(4 * fours, count):
                move_words(row, offsets + uintp(8 * i), to + uintp(size * i), size, word, 1)

        return move_columns

    move_2, move_4, move_8, move_16 = (build_moves(word) for word in (2, 4, 8, LANE))

    @inline
    def gather(row, place, first, last, offsets, shifted, to):
        """Copy the taps of result columns `first` to `last` side by side, `size` bytes for each.

        Bytes after the taps of a column have any value.
        """
        table, width, step, size, _, word = place
        if word == 2:
            move_2(row, offsets, last - first, to, size)
        elif word == 4:
            move_4(row, offsets, last - first, to, size)
        elif word == 8:
            move_8(row, offsets, last - first, to, size)
        else:
            move_16(row, offsets, last - first, to, size)
        for column in range(shifted[0], shifted[1]):
            tap, count, _ = taps_of(table, width, column)
            src = row + uintp(tap * step)
            y = to + uintp((column - first) * size)
            for i in range(0, count * step, item):
                move_item(src + uintp(i), y + uintp(i), item)

    return find_columns, gather


def build_row_sums(dtype, summed, pixels):
    """Build sum_row(...), which sums rows of the source."""
    item = DTYPES[dtype].item
    sum_item = DTYPES[summed].item
    wide = VECTOR * WIDE
    shift = t.band_bytes(sum_item)  # from the sums to the sums of their valid weights

    def build_vectors(lanes, vectors):
        @inline
        def sum_all(src, stride, weights, count, before, move, y, ignored):
            sum_taps(src, stride, weights, count, before, y, dtype, summed, lanes, vectors)

        @inline
        def sum_valid(src, stride, weights, count, before, move, y, ignored):
            sum_valid_taps(
                src, stride, weights, count, before, y, before + uintp(shift * move),
                y + uintp(shift), ignored, dtype, summed, lanes, vectors,
            )  # fmt: skip

        return sum_valid if pixels == "valid" else sum_all

    sum_wide, sum_vector, sum_single = map(build_vectors, (VECTOR, VECTOR, 1), (WIDE, 1, 1))

    @inline
    def sum_row(x, stride, weights, count, before, move, y, n, ignored):
        """Write the weighted sum of n elements of `count` rows; n is a multiple of VECTOR or less.

        `move` is 1 if the sums begin with the values at `before`, 0 if they begin with its first.
        """
        i = 0
        while i + wide <= n:
            to = y + uintp(sum_item * i)
            src = x + uintp(item * i)
            start = before + uintp(sum_item * i * move)
            sum_wide(src, stride, weights, count, start, move, to, ignored)
            i += wide
        while i + VECTOR <= n:
            to = y + uintp(sum_item * i)
            src = x + uintp(item * i)
            start = before + uintp(sum_item * i * move)
            sum_vector(src, stride, weights, count, start, move, to, ignored)
            i += VECTOR
        while i < n:
            to = y + uintp(sum_item * i)
            src = x + uintp(item * i)
            start = before + uintp(sum_item * i * move)
            sum_single(src, stride, weights, count, start, move, to, ignored)
            i += 1

    return sum_row


def build_transposition(summed, pixels, pitch):
    """Build transpose_sums(...), which moves a band of rows to an area, for each of its sums."""
    item = DTYPES[summed].item
    line = VECTOR * item
    side = LANE // item
    # Vectors of a tile of VECTOR rows by VECTOR items.
    depth, beside = VECTOR // (4 * side), VECTOR // side
    shift = t.band_bytes(item)
    sums = t.SUMS[pixels]

    @inline
    def transpose_sums(band, areas, pos, width, squares):
        """Write `width` elements of each row to the areas, from element `pos` on."""
        for number in range(sums):
            for first in range(0, width, VECTOR):
                x = band + uintp(shift * number + item * first)
                y = areas[number] + uintp(line * (pos + first))
                transpose_tile(x, x, y, squares, 0, item, 4, depth, beside, 0, pitch, 0)

    return transpose_sums


def build_columns(dtype, summed, pixels):
    """Build functions that sum rows of the source and transpose the sums: all columns, or some."""
    item = DTYPES[dtype].item
    sum_item = DTYPES[summed].item
    zeros_bytes = sum_item * VECTOR * WIDE
    near_pitch, far_pitch = (t.band_pitch(span, sum_item) for span in (t.NEAR_SPAN, t.FAR_SPAN))
    find_columns, gather = build_gather(item)
    packed_pitch = t.gathered_bytes(item)
    at, put, _ = float_access(summed)
    sum_row = build_row_sums(dtype, summed, pixels)
    transpose_near, transpose_far = (
        build_transposition(summed, pixels, pitch) for pitch in (near_pitch, far_pitch)
    )

    @inline
    def columns(
        skip, stride, table, rows, row, lanes, outer, taps, n, ahead, ignored, band, squares, areas
    ):  # fmt: skip
        """Write n elements of each row of a block to `areas`, VECTOR rows for each element.

        `outer` has the address and the weight of every tap of the outer axes; the first
        elements are `skip` bytes after the address. Long rows are read in pieces; the last piece
        overlaps the one before. The same piece of the rows that the next block reads (`ahead`) is
        prefetched, since a CPU does not predict pieces of many rows.
        """
        next_rows, next_stride, next_count = ahead
        is_near = next_count * abs(next_stride) <= t.NEAR_BYTES
        span = t.NEAR_SPAN if is_near else t.FAR_SPAN
        pitch = near_pitch if is_near else far_pitch
        zeros = squares + uintp(SQUARES)
        scaled = outer + uintp(t.TAP * taps)
        width = min(span, n - n % VECTOR if n >= VECTOR else n)
        done = 0
        while done < n:
            pos = min(done, n - width)
            for tap in range(taps):
                src = uintp(i64_at(outer, 2 * tap) + skip + pos * item)
                factor = at(outer + uintp(t.TAP * tap + 8), 0)
                for lane in range(lanes):
                    first, count, weights = taps_of(table, rows, row + lane)
                    if factor != 1.0:
                        for k in range(count):
                            put(scaled, k, at(weights, k) * factor)
                        weights = scaled
                    x = src + uintp(first * stride)
                    y = band + uintp(lane * pitch)
                    if count > 0:
                        before = zeros if tap == 0 else y
                        sum_row(x, stride, weights, count, before, min(tap, 1), y, width, ignored)
            if is_near:
                transpose_near(band, areas, pos, width, squares)
            else:
                transpose_far(band, areas, pos, width, squares)
            for i in range(next_count if is_near else 0):
                x = next_rows + uintp(i * next_stride + skip + pos * item)
                for ahead_of in range(0, width * item, LINE):
                    prefetch_line(x + uintp(ahead_of), 1)
            done = pos + width

    @inline
    def gathered_columns(
        place, first, last, stride, table, rows, row, lanes, outer, taps, ignored, band, squares,
        areas,
    ):  # fmt: skip
        """As columns(...), for the taps of result columns `first` to `last` only, side by side.

        Each source row is gathered before it is summed, so the source columns between the taps are
        not summed.
        """
        size = place[3]
        zeros = squares + uintp(SQUARES)
        offsets = zeros + uintp(zeros_bytes)
        scaled = outer + uintp(t.TAP * taps)
        pieces = t.FAR_SPAN * item // size  # result columns at a time
        pos = 0
        while first < last:
            end = min(first + pieces, last)
            shifted = find_columns(place, first, end, offsets)
            width = -(-(end - first) * size // (VECTOR * item)) * VECTOR
            for tap in range(taps):
                src = uintp(i64_at(outer, 2 * tap))
                factor = at(outer + uintp(t.TAP * tap + 8), 0)
                for lane in range(lanes):
                    first_row, count, weights = taps_of(table, rows, row + lane)
                    packed = scaled + uintp(sum_item * count)
                    for k in range(count):
                        x = src + uintp((first_row + k) * stride)
                        y = packed + uintp(k * packed_pitch)
                        gather(x, place, first, end, offsets, shifted, y)
                        put(scaled, k, at(weights, k) * factor)
                    y = band + uintp(lane * far_pitch)
                    if count > 0:
                        before = zeros if tap == 0 else y
                        move = min(tap, 1)
                        sum_row(
                            packed, packed_pitch, scaled, count, before, move, y, width, ignored
                        )  # fmt: skip
            transpose_far(band, areas, pos, width, squares)
            pos += (end - first) * size // item
            first = end

    return columns, gathered_columns


def build_sum_columns(summed, pixels, elements):
    """Build sum_columns(...), which sums source columns for result columns `first` to `last`."""
    line = VECTOR * DTYPES[summed].item

    @inline
    def divide(params, src, step, weights, count, constants, fill, y):
        """Divide sums by the sums of the valid weights at `src`, which follow the zeros."""
        zeros, sums = constants
        sum_taps(src, step, weights, count, zeros, sums, summed, summed, VECTOR, elements)
        least = params + uintp(8 * t.LEAST)
        divide_sums(y, sums, fill, least, summed, elements)

    @inline
    def keep(params, src, step, weights, count, constants, fill, y):
        pass

    finish = divide if pixels == "valid" else keep

    @inline
    def sum_columns(params, block, areas, start, constants, fill, result):
        """Write `elements` vectors of each column, from element `start` of a source column on.

        The table has `columns` positions. The areas have the source columns from `low` on, or
        `gathered` of them for each result column.
        """
        table, columns, first, last, low, gathered = block
        step = line * i64_at(params, t.INNER)
        result_step = line * i64_at(params, t.INNER_OUT)
        for column in range(first, last):
            tap, count, weights = taps_of(table, columns, column)
            if count > 0:
                index = (column - first) * gathered if gathered > 0 else tap - low
                src = areas[0] + uintp(index * step + line * start)
                y = result + uintp(column * result_step)
                zeros = constants[0]
                sum_taps(src, step, weights, count, zeros, y, summed, summed, VECTOR, elements)
                src = areas[1] + uintp(index * step + line * start)
                finish(params, src, step, weights, count, constants, fill, y)

    return sum_columns


def build_fills(summed):
    """Build fill_columns(...) and fill_row(...), which write fill values to parts of a block."""
    line = VECTOR * DTYPES[summed].item
    at, put, splat = float_access(summed)

    @inline
    def fill_columns(params, fill, first, last, result):
        """Write fill values to columns of a block."""
        inner = i64_at(params, t.INNER_OUT)
        for column in range(first, last):
            for element in range(inner):
                to = result + uintp(line * (column * inner + element))
                splat(to, at(fill, element))

    @inline
    def fill_row(params, fill, lane, result):
        """Write fill values to one row of a block."""
        inner = i64_at(params, t.INNER_OUT)
        for column in range(i64_at(params, t.WIDTH)):
            for element in range(inner):
                to = result + uintp(line * (column * inner + element))
                put(to, lane, at(fill, element))

    return fill_columns, fill_row


@inline
def block_columns(table, columns, first, end, room):
    """Return a range of up to `room` source columns, and the end of its result columns.

    The range covers the taps of result columns from `first` on, up to `end`; it is empty if all are
    filled. The table has `columns` positions.
    """
    low = 0
    high = 0
    column = first
    while column < end:
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


def build_outer_taps(summed):
    """Build outer_taps(...), which writes offset and weight of each tap of the outer axes."""
    at, put, _ = float_access(summed)

    @inline
    def outer_taps(params, sample, rest, outer):
        """Return the number of taps, the offset in the output and the one in the fill values."""
        taps = 1
        i64_put(outer, 0, i64_at(sample, 0))
        put(outer + uintp(8), 0, 1.0)
        to = 0
        fill = 0
        for axis in range(i64_at(params, t.AXES) - 1, -1, -1):
            words = params + uintp(8 * (t.WORDS + t.AXIS * axis))
            size = i64_at(words, 0)
            index = rest % size
            rest //= size
            folded = i64_at(words, 3)
            to += index // folded * i64_at(words, 1) + index % folded * i64_at(words, 4)
            fill += index * i64_at(words, 2)
            table = uintp(i64_at(sample, t.SAMPLE + 2 * axis))
            stride = i64_at(sample, t.SAMPLE + 2 * axis + 1)
            first, count, weights = taps_of(table, size, index)
            for tap in range(count - 1, -1, -1):
                for k in range(taps - 1, -1, -1):
                    before = outer + uintp(t.TAP * k)
                    after = outer + uintp(t.TAP * (tap * taps + k))
                    i64_put(after, 0, i64_at(before, 0) + (first + tap) * stride)
                    put(after + uintp(8), 0, at(before + uintp(8), 0) * at(weights, tap))
            taps *= count
        return taps, to, fill

    return outer_taps


@inline
def source_rows(params, rows, sample, index, row):
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
    low, count, _ = taps_of(table, rows, row)
    high = low + count
    for lane in range(1, i64_at(params, t.LANES)):
        first, count, _ = taps_of(table, rows, row + lane)
        if count > 0:
            low = min(low, first) if high > low else first
            high = max(high, first + count)
    return uintp(address + low * stride), stride, high - low


def build_planes(dtype, summed, pixels):
    """Build plane(...), which resamples one block of one plane into `result`."""
    item = DTYPES[summed].item
    line = VECTOR * item
    columns, gathered_columns = build_columns(dtype, summed, pixels)
    fill_columns, fill_row = build_fills(summed)
    sum_1, sum_2, sum_3, sum_4 = (build_sum_columns(summed, pixels, n) for n in range(1, 5))
    sums_of_weights = constants_bytes(item) - VECTOR * WIDE * item

    @inline
    def plane(
        params, call, sample, tables, place, outer, taps, fill, ahead, band, squares, area, result
    ):
        rows = i64_at(call, t.C_ROWS)
        width = i64_at(call, t.C_COLUMNS)
        room = i64_at(call, t.C_ROOM)
        row = i64_at(place, 0)
        lanes = i64_at(params, t.LANES)
        column = i64_at(place, 1)
        end = column + i64_at(params, t.WIDTH)
        inner = i64_at(params, t.INNER)
        result_step = line * i64_at(params, t.INNER_OUT)
        origin = result - uintp(column * result_step)  # of column 0, which may be in another block
        row_taps = uintp(i64_at(tables, 0))
        row_stride = i64_at(tables, 1)
        column_taps = uintp(i64_at(tables, 2))
        column_stride = i64_at(tables, 3)
        groups = params + uintp(8 * (t.WORDS + t.AXIS * i64_at(params, t.AXES)))
        constants = squares + uintp(SQUARES), squares + uintp(sums_of_weights)
        areas = area, area + uintp(line * room)  # sums, and sums of valid weights
        ignored = params + uintp(8 * t.IGNORED)
        gathered = i64_at(sample, t.GATHERED)
        span, most = room // inner, end - column
        if gathered > 0:  # the last vector of a row has up to VECTOR - 1 unused elements
            span, most = t.UNLIMITED, (room - VECTOR) // (gathered * inner)
        inside = 0
        for lane in range(lanes if taps > 0 else 0):
            _, count, _ = taps_of(row_taps, rows, row + lane)
            inside += 1 if count > 0 else 0
        if inside == 0:
            fill_columns(params, fill, column, end, origin)
            column = end
        while column < end:
            stop = min(end, column + most)
            low, high, last = block_columns(column_taps, width, column, stop, span)
            if gathered > 0:
                size = gathered * column_stride
                row_bytes = i64_at(sample, t.CROPPED) * column_stride
                word = 2 if size <= 2 else 4 if size <= 4 else 8 if size <= 8 else LANE
                words = column_taps, width, column_stride, size, row_bytes, word
                gathered_columns(
                    words, column, last, row_stride, row_taps, rows, row, lanes, outer, taps,
                    ignored, band, squares, areas,
                )  # fmt: skip
            else:
                skip = low * column_stride
                n = (high - low) * inner
                columns(
                    skip, row_stride, row_taps, rows, row, lanes, outer, taps, n, ahead,
                    ignored, band, squares, areas,
                )  # fmt: skip
            done = 0
            block = column_taps, width, column, last, low, gathered
            for i in range(i64_at(params, t.GROUPS)):
                x = i64_at(groups, t.GROUP * i)
                y = origin + uintp(line * done)
                values = fill + uintp(item * done)
                elements = i64_at(groups, t.GROUP * i + 1)
                if elements == 4:
                    sum_4(params, block, areas, x, constants, values, y)
                elif elements == 3:
                    sum_3(params, block, areas, x, constants, values, y)
                elif elements == 2:
                    sum_2(params, block, areas, x, constants, values, y)
                else:
                    sum_1(params, block, areas, x, constants, values, y)
                done += elements
            for x in range(column, last):
                _, count, _ = taps_of(column_taps, width, x)
                if count == 0:
                    fill_columns(params, fill, x, x + 1, origin)
            column = last
        if 0 < inside < lanes:
            for lane in range(lanes):
                _, count, _ = taps_of(row_taps, rows, row + lane)
                if count == 0:
                    fill_row(params, fill, lane, result)

    return plane


def build(dtype, pixels):
    """Build the kernel for sources of a dtype; the call block is passed as the source.

    `pixels` is "valid" if elements are ignored, else "all".
    """
    summed = computation_dtype(dtype, dtype)
    item = DTYPES[summed].item
    line = VECTOR * item
    zeros_bytes = item * VECTOR * WIDE  # after the offsets
    stack_bytes = constants_bytes(item)
    sums = t.SUMS[pixels]
    band_bytes = sums * t.band_bytes(item)
    plane = build_planes(dtype, summed, pixels)
    outer_taps = build_outer_taps(summed)

    def kernel(params, call, dst, lo, hi):
        squares = stack(stack_bytes)
        for i in range(VECTOR):
            i64_put(squares, i, line * i)
        for i in range(zeros_bytes // 8):
            i64_put(squares, VECTOR + i, 0)
        areas = uintp(i64_at(call, t.C_AREAS))
        number = claim_area(areas)
        band = uintp(i64_at(areas, 0) + number * i64_at(areas, 1))
        for i in range(band_bytes // 8):
            i64_put(band, i, 0)
        area = band + uintp(band_bytes)
        units = i64_at(call, t.C_UNITS)
        blocks = i64_at(call, t.C_BLOCKS)
        places = uintp(i64_at(call, t.C_PLACES))
        rows = i64_at(call, t.C_ROWS)
        planes = i64_at(params, t.PLANES)
        axes = i64_at(params, t.AXES)
        plane_bytes = line * i64_at(params, t.WIDTH) * i64_at(params, t.INNER_OUT)
        launches = params + uintp(8 * (t.WORDS + t.AXIS * axes))
        launches += uintp(8 * t.GROUP * i64_at(params, t.GROUPS))
        samples = call + uintp(8 * t.CALL)
        row_words = t.SAMPLE + 2 * (axes + 2)
        result = area + uintp(sums * line * i64_at(call, t.C_ROOM))
        outer = result + uintp(planes * plane_bytes)
        for unit in range(lo, hi):
            sample = samples + uintp(8 * row_words * (unit // units))
            tables = sample + uintp(8 * (t.SAMPLE + 2 * axes))
            rest = unit % units
            place = places + uintp(8 * t.PLACE * (rest % blocks))
            to = unit // units * i64_at(params, t.SAMPLE_STEP) + i64_at(place, 2)
            step = 0
            for number_of_plane in range(planes):
                index = rest // blocks * planes + number_of_plane
                taps, step, shift = outer_taps(params, sample, index, outer)
                fill = uintp(i64_at(params, t.FILL) + i64_at(sample, 1) + item * shift)
                y = result + uintp(number_of_plane * plane_bytes)
                row = i64_at(place, 0)
                ahead = source_rows(params, rows, sample, index, row)
                if number_of_plane + 1 < planes:
                    ahead = source_rows(params, rows, sample, index + 1, row)
                elif unit + 1 < hi:
                    other = samples + uintp(8 * row_words * ((unit + 1) // units))
                    rest_ahead = (unit + 1) % units
                    row_ahead = i64_at(places, t.PLACE * (rest_ahead % blocks))
                    first_ahead = rest_ahead // blocks * planes
                    ahead = source_rows(params, rows, other, first_ahead, row_ahead)
                plane(
                    params, call, sample, tables, place, outer, taps, fill, ahead, band, squares,
                    area, y,
                )  # fmt: skip
            for i in range(i64_at(params, t.LAUNCHES)):
                launch = launches + uintp(8 * t.LAUNCH * i)
                code = uintp(i64_at(launch, 0))
                x = result + uintp(i64_at(launch, 3))
                y = dst + uintp(to + step + i64_at(launch, 4))
                call_kernel(code, uintp(i64_at(launch, 1)), x, y, 0, i64_at(launch, 2))
        fence()
        store_release(areas + uintp(8 * (t.AREAS + number)), 0)

    return kernel

"""Moves of windows by position: padding, selected channels, flips and the nearest pixels.

A window is divided into boxes. For each box, the offsets in the sample of one run of items are
written to a table, which all rows of the box share: item i of a row is read from the address of the
row + table[i]. Contiguous items, such as the channels of a pixel, are moved as one. A row that
repeats the row before it, as in enlarged images, is copied from the result.

Boxes are moved to the output, or to a scratch area in the cache from which a conversion kernel
writes them to the output. collate_params.py describes the parameters.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types, uintp
from numba.extending import intrinsic

from . import collate_params as t
from .atomics import call_kernel
from .copy import copy_bytes
from .epilogue import broadcast
from .params import LINE
from .simd import I64, i64_at, i64_put, move_item, stack, vload, vstore
from .walk import inline

STARTS = 8 * 64  # bytes of the start of a box along each axis; arrays have at most 64
OUTSIDE = -1 << 62  # the offset of a position that is outside of the sample


@inline
def axis_of(moves, axis):
    """Return the address of the words of an axis."""
    return moves + uintp(8 * (t.MOVES + t.EXTENT * axis))


@inline
def locate_box(moves, starts, number):
    """Write the start of a box along each axis to `starts`; return its offset in the output."""
    offset = 0
    for axis in range(i64_at(moves, t.M_AXES) - 1, -1, -1):
        extent = axis_of(moves, axis)
        box = i64_at(extent, t.X_BOX)
        count = i64_at(extent, t.X_COUNT)
        # The last box overlaps its neighbor.
        first = min(number % count * box, i64_at(extent, t.X_WINDOW) - box)
        number //= count
        i64_put(starts, axis, first)
        offset += first * i64_at(extent, t.X_OUTPUT)
    return offset


@inline
def read_axis(moves, row, axis):
    """Return what `position_offset` needs to know about an axis of a window and of its sample."""
    axes = i64_at(moves, t.M_AXES)
    offsets = row + uintp(8 * (t.ROW + axis))
    last = i64_at(axis_of(moves, axis), t.X_WINDOW) - 1
    is_reversed = i64_at(offsets, axes * t.WINDOW_STRIDES) < 0 and axis != i64_at(moves, t.M_FLIP)
    begin = i64_at(offsets, axes * t.WINDOW_OFFSETS)
    size = i64_at(offsets, axes * t.SAMPLE_SIZES)
    stride = i64_at(offsets, axes * t.GAPS)
    return last, is_reversed, begin, size, stride, i64_at(offsets, axes * t.TABLES)


@inline
def position_offset(words, index):
    """Return the offset in the sample of a position of the window, or OUTSIDE."""
    last, is_reversed, begin, size, stride, table = words
    pos = begin + (last - index if is_reversed else index)
    if pos < 0 or pos >= size:
        return OUTSIDE
    if table:
        pos = i64_at(uintp(table), pos)
        if pos < 0:
            return OUTSIDE
    return pos * stride


@inline
def is_whole(moves, axis):
    """Return True if boxes include all positions of an axis: its fill values are contiguous."""
    extent = axis_of(moves, axis)
    is_last = axis == i64_at(moves, t.M_AXES)
    return is_last or i64_at(extent, t.X_BOX) == i64_at(extent, t.X_WINDOW)


@inline
def fuse_axes(moves, row, starts):
    """Fuse the inner axes along which a box is contiguous in the sample and where it is moved to.

    Return the number of other axes, the bytes of a fused item, and its offset in the sample.
    """
    left = i64_at(moves, t.M_AXES)
    item = i64_at(moves, t.M_ITEM)
    offset = 0
    while left > 0 and is_whole(moves, left):
        extent = axis_of(moves, left - 1)
        box = i64_at(extent, t.X_BOX)
        start = i64_at(starts, left - 1)
        words = read_axis(moves, row, left - 1)
        low = position_offset(words, start)
        high = position_offset(words, start + box - 1)
        if low == OUTSIDE or high == OUTSIDE:
            break
        _, is_reversed, _, _, stride, positions = words
        is_apart = is_reversed or positions or stride != item or i64_at(extent, t.X_TARGET) != item
        if box > 1 and is_apart:
            break
        item *= box
        offset += low
        left -= 1
    return left, item, offset


@inline
def extend_run(moves, row, axis, start, count, table):
    """Repeat the `count` offsets of a table for each position of a box along an axis.

    Return the range of positions that are inside of the sample.
    """
    box = i64_at(axis_of(moves, axis), t.X_BOX)
    words = read_axis(moves, row, axis)
    first = 0
    last = 0
    for i in range(box - 1, -1, -1):  # the first `count` offsets are overwritten last
        offset = position_offset(words, start + i)
        if offset != OUTSIDE:
            first = i
            last = max(last, i + 1)
            for k in range(count):
                i64_put(table, i * count + k, i64_at(table, k) + offset)
    return first, last


@inline
def write_run(moves, row, starts, left, item, table):
    """Write the offsets of the items of a run to a table.

    Return the number of axes that are not part of the run, the number of its items, and the range
    of items that are inside of the sample: fill values are outside of one range only.
    """
    count = 1
    first = 0
    last = 1
    i64_put(table, 0, 0)
    while left > 0:
        extent = axis_of(moves, left - 1)
        box = i64_at(extent, t.X_BOX)
        is_apart = box > 1 and i64_at(extent, t.X_TARGET) != item * count
        is_long = count * box > i64_at(moves, t.M_RUN)
        if is_apart or is_long or last - first < count or not is_whole(moves, left):
            break
        left -= 1
        first, last = extend_run(moves, row, left, i64_at(starts, left), count, table)
        first *= count
        last *= count
        count *= box
    return left, count, first, last


@inline
def is_contiguous(moves, row, axis, item):
    """Return True if the items of a run along one axis are neighbors in the sample."""
    _, is_reversed, _, _, stride, positions = read_axis(moves, row, axis)
    return stride == item and not is_reversed and not positions


def move_of_items(width):
    """Build move(src, table, first, last, dst), which moves items of `width` bytes."""

    @inline
    def move(src, table, first, last, dst):
        for i in range(first, last):
            move_item(src + uintp(i64_at(table, i)), dst + uintp(i * width), width)

    return move


def move_of_pairs(width):
    """Build a move of items of 1.5 * `width` bytes, such as the three channels of a pixel."""
    half = width // 2
    item = width + half

    @inline
    def move(src, table, first, last, dst):
        for i in range(first, last):
            x = src + uintp(i64_at(table, i))
            y = dst + uintp(i * item)
            move_item(x, y, width)
            move_item(x + uintp(width), y + uintp(width), half)

    return move


move_1, move_2, move_4, move_8, move_16 = map(move_of_items, (1, 2, 4, 8, 16))
move_3, move_6, move_12 = map(move_of_pairs, (2, 4, 8))


@inline
def move_run(src, table, first, last, dst, item):
    """Move items `first` to `last` of a run, whose offsets are in a table."""
    if item == 1:
        move_1(src, table, first, last, dst)
    elif item == 2:
        move_2(src, table, first, last, dst)
    elif item == 3:
        move_3(src, table, first, last, dst)
    elif item == 4:
        move_4(src, table, first, last, dst)
    elif item == 6:
        move_6(src, table, first, last, dst)
    elif item == 8:
        move_8(src, table, first, last, dst)
    elif item == 12:
        move_12(src, table, first, last, dst)
    elif item == 16:
        move_16(src, table, first, last, dst)
    else:
        for i in range(first, last):
            copy_bytes(src + uintp(i64_at(table, i)), dst + uintp(i * item), item)


@inline
def fill_of_box(moves, row, starts):
    """Return the address of the fill values of a box; reversed channels have their own."""
    axes = i64_at(moves, t.M_AXES)
    channel = i64_at(moves, t.M_CHANNEL)
    steps = row + uintp(8 * (t.ROW + axes * t.WINDOW_STRIDES))
    fill = i64_at(moves, t.M_FILL)
    if channel >= 0 and i64_at(steps, channel) < 0:
        fill += i64_at(moves, t.M_TURNED)
    for axis in range(axes):
        fill += i64_at(starts, axis) * i64_at(axis_of(moves, axis), t.X_FILL)
    return uintp(fill)


@inline
def move_box(moves, row, starts, table, target):
    """Move a box of a window to `target`."""
    fill = fill_of_box(moves, row, starts)
    left, item, offset = fuse_axes(moves, row, starts)
    outer, run, first, last = write_run(moves, row, starts, left, item, table)
    is_copied = outer == left - 1 and is_contiguous(moves, row, outer, item)
    start = uintp(i64_at(table, first)) if is_copied else uintp(0)
    origin = uintp(i64_at(row, t.ORIGIN) + offset)
    before = first * item
    end = last * item
    rows = 1
    for axis in range(outer):
        rows *= i64_at(axis_of(moves, axis), t.X_BOX)
    previous_src = uintp(0)
    previous_y = uintp(0)
    for number in range(rows):
        rest = number
        src = origin
        y = target
        values = fill
        is_inside = True
        for axis in range(outer - 1, -1, -1):
            extent = axis_of(moves, axis)
            box = i64_at(extent, t.X_BOX)
            index = rest % box
            rest //= box
            offset = position_offset(read_axis(moves, row, axis), i64_at(starts, axis) + index)
            is_inside = is_inside and offset != OUTSIDE
            src += uintp(offset)
            y += uintp(index * i64_at(extent, t.X_TARGET))
            values += uintp(index * i64_at(extent, t.X_FILL))
        if not is_inside:
            copy_bytes(values, y, run * item)
            continue
        copy_bytes(values, y, before)
        if src == previous_src:
            copy_bytes(previous_y + uintp(before), y + uintp(before), end - before)
        elif is_copied:
            copy_bytes(src + start, y + uintp(before), end - before)
        else:
            move_run(src, table, first, last, y, item)
        copy_bytes(values + uintp(end), y + uintp(end), run * item - end)
        previous_src = src
        previous_y = y


@intrinsic(prefer_literal=True)
def replace_vector(typingctx, items, values, words, itemsize, count):
    """Replace ignored items of a vector by `values`; `words` begin with M_MASK.

    The last two arguments are literals.
    """
    vector = ir.VectorType(ir.IntType(8 * itemsize.literal_value), count.literal_value)

    def codegen(context, b, signature, args):
        def word(index):
            value = vload(b, args[2], 8 * index, I64, 8)
            return broadcast(b, b.trunc(value, vector.element), vector)

        x = vload(b, args[0], 0, vector)
        above = b.sub(b.and_(x, word(0)), word(1))
        is_ignored = b.icmp_unsigned("<=", above, word(2))
        vstore(b, b.select(is_ignored, vload(b, args[1], 0, vector), x), args[0])
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp, types.uintp, itemsize, count), codegen


def replacement_of(width):
    """Build replace(items, values, n, words), which replaces ignored items of `width` bytes."""
    lanes = LINE // width

    @inline
    def replace(items, values, n, words):
        i = 0
        while i + lanes <= n:
            offset = uintp(i * width)
            replace_vector(items + offset, values + offset, words, width, lanes)
            i += lanes
        while i < n:
            offset = uintp(i * width)
            replace_vector(items + offset, values + offset, words, width, 1)
            i += 1

    return replace


replace_1, replace_2, replace_4, replace_8 = map(replacement_of, (1, 2, 4, 8))


@inline
def replace_ignored(moves, row, starts, box):
    """Write fill values in place of the ignored items of a contiguous box."""
    words = moves + uintp(8 * t.M_MASK)
    item = i64_at(moves, t.M_ITEM)
    fill = fill_of_box(moves, row, starts)
    outer = i64_at(moves, t.M_AXES)
    run = 1
    while outer > 0 and is_whole(moves, outer):
        outer -= 1
        run *= i64_at(axis_of(moves, outer), t.X_BOX)
    rows = 1
    for axis in range(outer):
        rows *= i64_at(axis_of(moves, axis), t.X_BOX)
    for number in range(rows):
        items = box + uintp(number * run * item)
        rest = number
        values = fill
        for axis in range(outer - 1, -1, -1):
            extent = axis_of(moves, axis)
            values += uintp(rest % i64_at(extent, t.X_BOX) * i64_at(extent, t.X_FILL))
            rest //= i64_at(extent, t.X_BOX)
        if item == 1:
            replace_1(items, values, run, words)
        elif item == 2:
            replace_2(items, values, run, words)
        elif item == 4:
            replace_4(items, values, run, words)
        else:
            replace_8(items, values, run, words)


@inline
def is_flipped(moves, row):
    """Return True if the conversion of boxes reverses the window."""
    axis = i64_at(moves, t.M_FLIP)
    steps = row + uintp(8 * (t.ROW + i64_at(moves, t.M_AXES) * t.WINDOW_STRIDES))
    return axis >= 0 and i64_at(steps, axis) < 0


@inline
def move_boxes(moves, row, area, dst, lo, hi):
    """Move boxes lo to hi of a window to the output at `dst`, through a scratch area if needed."""
    starts = stack(STARTS)
    launches = axis_of(moves, i64_at(moves, t.M_AXES))
    count = i64_at(moves, t.M_LAUNCHES)
    flips = is_flipped(moves, row)
    flipped_axis = i64_at(moves, t.M_FLIP)
    extent = axis_of(moves, flipped_axis)
    if flips:
        launches += uintp(8 * t.LAUNCH * count)
        count = i64_at(moves, t.M_FLIPPED)
    scratch = area + uintp(8 * i64_at(moves, t.M_RUN))
    for number in range(lo, hi):
        to = dst + uintp(locate_box(moves, starts, number))
        if flips:
            first = i64_at(starts, flipped_axis)
            last_first = i64_at(extent, t.X_WINDOW) - i64_at(extent, t.X_BOX)
            i64_put(starts, flipped_axis, last_first - first)
        move_box(moves, row, starts, area, scratch if count else to)
        if i64_at(moves, t.M_IGNORES):
            replace_ignored(moves, row, starts, scratch)
        for i in range(count):
            launch = launches + uintp(8 * t.LAUNCH * i)
            code = uintp(i64_at(launch, 0))
            x = scratch + uintp(i64_at(launch, 3))
            y = to + uintp(i64_at(launch, 4))
            call_kernel(code, uintp(i64_at(launch, 1)), x, y, 0, i64_at(launch, 2))

"""Kernels for batches of windows; collate_params.py describes their tables.

The kernel "windows" validates the samples of a batch and writes one launch (entry) per window;
Python would need 100 us for 64 samples. The kernel also checks that every window is inside its
sample. It writes error bits to ERRORS, and Python raises the errors.

The kernel "each" executes all entries as one job; each entry calls a kernel of engine.py. Windows
that reach outside of their samples are first copied and padded, and windows of certain positions of
their samples (selected channels, the nearest pixels) are copied item by item. The parameter block
of "each" has two words: the number of shares that the units of each entry are divided into (1 if
windows are copied first), and the address of the arguments of the copies. Unit u is share
u % shares of entry u // shares. The table is passed as the source. Consecutive shares of an entry
run in one call.
"""

from __future__ import annotations

from numba import uintp

from ...planning.centering import halve_room
from . import collate_params as t
from .atomics import call_kernel
from .copy import copy_bytes
from .simd import i64_at, i64_put, move_item
from .walk import inline

FAR = 1 << 60  # offsets are clamped to -FAR and FAR, so that sums fit 64 bits
# Byte offsets of rank, sizes, strides and dtype in a NumPy array.
NUMPY = (8 * 1, 8 * 2, 8 * 3, 8 * 5)
centered_start = inline(halve_room)


@inline
def axis_words(sheet, which):
    """Return the address of array number `which` of the arrays of AXES words in the sheet."""
    return sheet + uintp(8 * (t.SHEET_WORDS + which * i64_at(sheet, t.AXES)))


@inline
def axis_value(values, value_steps, axis, number):
    """Return the value of an axis for a sample."""
    return i64_at(uintp(i64_at(values, axis) + number * i64_at(value_steps, axis)), 0)


@inline
def read_sample(sheet, number):
    """Return a flag, and the addresses of a sample's first element, sizes and strides.

    The flag is False and the addresses are 0 if the rank or the dtype is not the expected one.
    """
    if i64_at(sheet, t.OBJECTS) == 0:
        form = number * i64_at(sheet, t.FORM)
        start = i64_at(uintp(i64_at(sheet, t.STARTS)), number)
        return True, start, i64_at(sheet, t.SIZES) + form, i64_at(sheet, t.STRIDES) + form
    rank_at, sizes_at, strides_at, dtype_at = NUMPY
    header = uintp(i64_at(uintp(i64_at(sheet, t.OBJECTS)), number) + i64_at(sheet, t.OBJECT_HEADER))
    rank = i64_at(header + uintp(rank_at), 0) & 0xFFFFFFFF
    dtype = i64_at(header + uintp(dtype_at), 0)
    if rank != i64_at(sheet, t.AXES) or dtype != i64_at(sheet, t.DTYPE):
        return False, 0, 0, 0
    sizes = header + uintp(sizes_at)
    strides = header + uintp(strides_at)
    return True, i64_at(header, 0), i64_at(sizes, 0), i64_at(strides, 0)


@inline
def write_window(sheet, number, row, start, sizes, strides):
    """Write the offset of a window and the sizes and strides of its sample; return error bits."""
    axes = i64_at(sheet, t.AXES)
    channel = i64_at(sheet, t.CHANNEL)
    window = axis_words(sheet, t.WINDOW)
    has_size = axis_words(sheet, t.HAS_SIZE)
    given_offsets = axis_words(sheet, t.OFFSETS)
    offset_steps = axis_words(sheet, t.CORNER_STEPS)
    positions = axis_words(sheet, t.POSITIONS)
    position_steps = axis_words(sheet, t.POSITION_STEPS)
    offsets = row + uintp(8 * t.ROW)
    lengths = offsets + uintp(8 * axes * t.SAMPLE_SIZES)
    src_strides = offsets + uintp(8 * axes * t.GAPS)
    tables = offsets + uintp(8 * axes * t.TABLES)
    errors = 0
    low = start
    high = start
    for axis in range(axes):
        size = i64_at(uintp(sizes), axis)
        stride = i64_at(uintp(strides), axis)
        length = i64_at(window, axis)
        far = (size - 1) * stride
        low += min(far, 0)
        high += max(far, 0)
        if axis == channel:
            if size < i64_at(sheet, t.MIN_CHANNELS):
                errors |= t.MISMATCH
            start += i64_at(sheet, t.FIRST_CHANNEL) * stride
            stride *= i64_at(sheet, t.CHANNEL_STEP)
            size = length
        elif i64_at(has_size, axis) == 0 and size != length:
            errors |= t.MISMATCH
        table = i64_at(positions, axis)
        if table:
            table += number * i64_at(position_steps, axis)
            size = length
        begin = centered_start(size - length, i64_at(sheet, t.IS_FLOOR))
        if i64_at(given_offsets, axis):
            offset = axis_value(given_offsets, offset_steps, axis, number)
            begin = min(max(offset, -FAR), FAR)
        if begin < 0 or begin + length > size:
            errors |= t.OUT_OF_BOUNDS
        i64_put(offsets, axis, begin)
        i64_put(lengths, axis, size)
        i64_put(src_strides, axis, stride)
        i64_put(tables, axis, table)
    if low < i64_at(sheet, t.END) and high >= i64_at(sheet, t.OUT):
        i64_put(sheet, t.ERRORS, i64_at(sheet, t.ERRORS) | t.OVERLAPS_OUTPUT)
    i64_put(row, t.ORIGIN, start)
    return errors


@inline
def write_strides(sheet, number, row, is_copied):
    """Write the strides of a window; return the offset of its first element in sample or copy."""
    axes = i64_at(sheet, t.AXES)
    window = axis_words(sheet, t.WINDOW)
    packed = axis_words(sheet, t.COPY_STRIDES)
    flips = axis_words(sheet, t.FLIPS)
    flip_steps = axis_words(sheet, t.FLIP_STEPS)
    offsets = row + uintp(8 * t.ROW)
    src_strides = offsets + uintp(8 * axes * t.GAPS)
    steps = offsets + uintp(8 * axes * t.WINDOW_STRIDES)
    pos = 0
    for axis in range(axes):
        step = i64_at(packed, axis) if is_copied else i64_at(src_strides, axis)
        begin = 0 if is_copied else i64_at(offsets, axis)
        if i64_at(flips, axis) and axis_value(flips, flip_steps, axis, number):
            pos += (begin + i64_at(window, axis) - 1) * step
            step = -step
        else:
            pos += begin * step
        i64_put(steps, axis, step)
    return pos


@inline
def find_plan(sheet, steps):
    """Return the plan for windows with strides `steps` and its number, or (0, -1) without one."""
    axes = i64_at(sheet, t.AXES)
    for number in range(i64_at(sheet, t.KINDS)):
        nbytes = 8 * (t.KIND + 2 * axes)
        plan = uintp(i64_at(sheet, t.KNOWN) + number * nbytes)
        plan_strides = plan + uintp(8 * t.KIND)
        matches = True
        for axis in range(axes):
            step = i64_at(steps, axis)
            planned = i64_at(plan_strides, axis)
            least = i64_at(plan_strides, axes + axis)
            is_similar = least >= 0 and abs(step) >= least and (step < 0) == (planned < 0)
            if step != planned and not is_similar:
                matches = False
        if matches:
            return plan, number
    return uintp(0), -1


@inline
def has_equal_strides(one, other, axes):
    """Return True if two windows have the same strides."""
    is_same = True
    for axis in range(axes):
        if i64_at(one, axis) != i64_at(other, axis):
            is_same = False
    return is_same


@inline
def patch_params(plan, steps, block):
    """Write a plan's parameters for strides `steps` to `block`; return the source offset change."""
    plan_strides = plan + uintp(8 * t.KIND)
    params = uintp(i64_at(plan, t.PARAMETERS))
    for word in range(i64_at(plan, t.WORDS)):
        i64_put(block, word, i64_at(params, word))
    shift = 0
    for number in range(i64_at(plan, t.PATCHES)):
        patch = uintp(i64_at(plan, t.PATCH) + 8 * t.PATCH_WORDS * number)
        word = i64_at(patch, 0)
        axis = i64_at(patch, 1)
        growth = (i64_at(steps, axis) - i64_at(plan_strides, axis)) * i64_at(patch, 2)
        if word < 0:
            shift += growth
        else:
            i64_put(block, word, i64_at(block, word) + growth)
    return shift


def build_crop_table():
    """Build the kernel "windows" for samples lo to hi; the sheet is passed as the source."""

    def kernel(params, sheet, dst, lo, hi):
        axes = i64_at(sheet, t.AXES)
        row_bytes = 8 * (t.ROW + t.ROW_ARRAYS * axes)
        steps_at = 8 * (t.ROW + t.WINDOW_STRIDES * axes)
        arena = uintp(i64_at(sheet, t.ARENA))
        last = uintp(0)
        last_steps = uintp(0)
        last_block = uintp(0)
        last_shift = 0
        for number in range(lo, hi):
            row = uintp(i64_at(sheet, t.ROWS) + number * row_bytes)
            entry = uintp(i64_at(sheet, t.TABLE) + 8 * t.ENTRY * number)
            steps = row + uintp(steps_at)
            is_valid, start, sizes, strides = read_sample(sheet, number)
            errors = t.MISMATCH
            if is_valid:
                errors = write_window(sheet, number, row, start, sizes, strides)
            copied = i64_at(sheet, t.COPY_ALL)
            if errors & t.OUT_OF_BOUNDS and i64_at(sheet, t.MAY_PAD):
                errors &= ~t.OUT_OF_BOUNDS
                copied = 1
            state = -1
            if errors == 0:
                pos = write_strides(sheet, number, row, copied)
                plan, state = find_plan(sheet, steps)
                if state < 0:
                    errors = t.NO_PLAN
            i64_put(uintp(i64_at(sheet, t.STATES)), number, state if errors == 0 else -errors)
            i64_put(sheet, t.ERRORS, i64_at(sheet, t.ERRORS) | errors)
            if errors:
                continue
            if copied:
                target = i64_at(sheet, t.COPY_COUNT) * i64_at(sheet, t.COPY_BYTES)
                i64_put(sheet, t.COPY_COUNT, i64_at(sheet, t.COPY_COUNT) + 1)
                i64_put(row, t.TARGET, target)
                pos += target
            else:
                pos += i64_at(row, t.ORIGIN)
            if last == 0 or last != plan or not has_equal_strides(last_steps, steps, axes):
                last = plan
                last_steps = steps
                last_shift = 0
                last_block = uintp(i64_at(plan, t.PARAMETERS))
                if not has_equal_strides(steps, plan + uintp(8 * t.KIND), axes):
                    last_block = arena
                    last_shift = patch_params(plan, steps, last_block)
                    arena += uintp(8 * i64_at(plan, t.WORDS))
            i64_put(entry, t.E_CODE, i64_at(plan, t.CODE))
            i64_put(entry, t.E_PARAMETERS, last_block)
            i64_put(entry, t.E_SOURCE, pos + i64_at(plan, t.SOURCE) + last_shift)
            i64_put(entry, t.E_OUTPUT, number * i64_at(sheet, t.STEP) + i64_at(plan, t.OUTPUT))
            i64_put(entry, t.E_UNITS, i64_at(plan, t.UNITS))
            i64_put(entry, t.E_COPY_ROW, row if copied else 0)

    return kernel


def copy_of_items(width):
    """Build copy(src, stride, table, first, last, dst, fill, item), which copies items of a run.

    Items `first` to `last` have the positions in `table`, or are neighbors. `width` is the size of
    an item, or 0 if it is `item`.
    """

    @inline
    def move(src, dst, item):
        move_item(src, dst, width)

    move = move if width else copy_bytes

    @inline
    def copy(src, stride, table, first, last, dst, fill, item):
        for i in range(first, last):
            to = dst + uintp(i * item)
            pos = i64_at(table, i) if table else i
            x = src + uintp(pos * stride) if pos >= 0 else fill + uintp(i * item)
            move(x, to, item)

    return copy


copy_1, copy_2, copy_4, copy_8, copy_16, copy_any = map(copy_of_items, (1, 2, 4, 8, 16, 0))


@inline
def copy_run(copy, row, axis, item, src, dst, fill):
    """Copy one run of a window: fill values before the sample, the sample, fill values after it."""
    axes = i64_at(copy, t.C_AXES)
    offsets = row + uintp(8 * t.ROW)
    begin = i64_at(offsets, axis)
    size = i64_at(offsets, axes * t.SAMPLE_SIZES + axis)
    stride = i64_at(offsets, axes * t.GAPS + axis)
    table = uintp(i64_at(offsets, axes * t.TABLES + axis))
    width = i64_at(copy, t.COPY + axis)
    first = min(max(-begin, 0), width)
    last = min(max(size - begin, first), width)
    if first > 0:
        copy_bytes(fill, dst, first * item)
    if table:
        table += uintp(8 * begin)
    else:
        src += uintp(begin * stride)
    if stride == item and not table:
        to = dst + uintp(first * item)
        copy_bytes(src + uintp(first * item), to, (last - first) * item)
    elif item == 1:
        copy_1(src, stride, table, first, last, dst, fill, 1)
    elif item == 2:
        copy_2(src, stride, table, first, last, dst, fill, 2)
    elif item == 4:
        copy_4(src, stride, table, first, last, dst, fill, 4)
    elif item == 8:
        copy_8(src, stride, table, first, last, dst, fill, 8)
    elif item == 16:
        copy_16(src, stride, table, first, last, dst, fill, 16)
    else:
        copy_any(src, stride, table, first, last, dst, fill, item)
    if last < width:
        copy_bytes(fill + uintp(last * item), dst + uintp(last * item), (width - last) * item)


@inline
def fuse_axes(copy, row):
    """Fuse contiguous inner axes; return the number of other axes and the bytes of a fused item."""
    axes = i64_at(copy, t.C_AXES)
    offsets = row + uintp(8 * t.ROW)
    tables = offsets + uintp(8 * axes * t.TABLES)
    item = i64_at(copy, t.C_ITEM)
    left = axes
    while left > 0:
        axis = left - 1
        width = i64_at(copy, t.COPY + axis)
        is_whole = (
            i64_at(offsets, axis) == 0 and i64_at(offsets, axes * t.SAMPLE_SIZES + axis) == width
        )
        is_apart = i64_at(tables, axis) or i64_at(offsets, axes * t.GAPS + axis) != item
        if not is_whole or is_apart:
            break
        item *= width
        left -= 1
    return left, item


@inline
def copy_window(copy, row):
    """Copy the window of a row to its target, with padding."""
    axes = i64_at(copy, t.C_AXES)
    offsets = row + uintp(8 * t.ROW)
    tables = offsets + uintp(8 * axes * t.TABLES)
    origin = uintp(i64_at(row, t.ORIGIN))
    target = uintp(i64_at(row, t.TARGET))
    fill = uintp(i64_at(copy, t.C_PAINT))
    left, item = fuse_axes(copy, row)
    if left == 0:
        copy_bytes(origin, target, item)
        return
    count = 1
    for axis in range(left - 1):
        count *= i64_at(copy, t.COPY + axis)
    nbytes = i64_at(copy, t.COPY + left - 1) * item
    for number in range(count):
        rest = number
        src = origin
        is_inside = True
        for axis in range(left - 2, -1, -1):
            width = i64_at(copy, t.COPY + axis)
            pos = i64_at(offsets, axis) + rest % width
            if pos < 0 or pos >= i64_at(offsets, axes * t.SAMPLE_SIZES + axis):
                is_inside = False
            elif i64_at(tables, axis):
                pos = i64_at(uintp(i64_at(tables, axis)), pos)
                is_inside = is_inside and pos >= 0
            src += uintp(pos * i64_at(offsets, axes * t.GAPS + axis))
            rest //= width
        shift = uintp(number * nbytes)
        if is_inside:
            copy_run(copy, row, left - 1, item, src, target + shift, fill + shift)
        else:
            copy_bytes(fill + shift, target + shift, nbytes)


def build_batched_launch():
    """Build the kernel "each", which runs all entries of a table passed as the source."""

    def kernel(params, table, dst, lo, hi):
        shares = i64_at(params, 0)
        copy = uintp(i64_at(params, 1))
        unit = lo
        while unit < hi:
            number = unit // shares
            end = min(hi, (number + 1) * shares)
            entry = table + uintp(8 * t.ENTRY * number)
            code = uintp(i64_at(entry, t.E_CODE))
            block = uintp(i64_at(entry, t.E_PARAMETERS))
            src = uintp(i64_at(entry, t.E_SOURCE))
            to = dst + uintp(i64_at(entry, t.E_OUTPUT))
            units = i64_at(entry, t.E_UNITS)
            row = uintp(i64_at(entry, t.E_COPY_ROW))
            first = units * (unit - number * shares) // shares
            last = units * (end - number * shares) // shares
            if row:
                copy_window(copy, row)
            if first < last:
                call_kernel(code, block, src, to, first, last)
            unit = end

    return kernel


def build(role):
    """Return the kernel of a role: "windows" writes the table, "each" runs its entries."""
    return {"windows": build_crop_table, "each": build_batched_launch}[role]()

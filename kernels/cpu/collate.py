"""Kernels for batches of windows; collate_params.py describes their tables.

The kernel "windows" validates the samples of a batch and writes one launch (entry) per window;
Python would need 100 us for 64 samples. The kernel also checks that every window is inside its
sample. It writes error bits to ERRORS, and Python raises the errors.

The kernel "headers" writes the addresses, sizes and strides of samples to tables, for callers that
compute with them.

The kernel "each" executes all entries as one job; each entry calls a kernel of engine.py. Windows
that reach outside of their samples, and windows of certain positions of their samples (selected
channels, the nearest pixels) are moved in boxes (moves.py). The parameter block of "each" has two
words: the number of shares that the units of each entry are divided into, and the address of the
parameters of moves. Unit u is share u % shares of entry u // shares. The table is passed as the
source. Consecutive shares of an entry run in one call.
"""

from __future__ import annotations

from numba import uintp

from ...planning.centering import halve_room
from . import collate_params as t
from .accumulate import claim_area
from .atomics import call_kernel, store_release
from .moves import move_boxes
from .simd import i64_at, i64_put
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
def write_strides(sheet, number, row):
    """Write the strides of a window; return the offset of its first element in the sample."""
    axes = i64_at(sheet, t.AXES)
    window = axis_words(sheet, t.WINDOW)
    flips = axis_words(sheet, t.FLIPS)
    flip_steps = axis_words(sheet, t.FLIP_STEPS)
    offsets = row + uintp(8 * t.ROW)
    src_strides = offsets + uintp(8 * axes * t.GAPS)
    steps = offsets + uintp(8 * axes * t.WINDOW_STRIDES)
    pos = 0
    for axis in range(axes):
        step = i64_at(src_strides, axis)
        begin = i64_at(offsets, axis)
        if i64_at(flips, axis) and axis_value(flips, flip_steps, axis, number):
            pos += (begin + i64_at(window, axis) - 1) * step
            step = -step
        else:
            pos += begin * step
        i64_put(steps, axis, step)
    return pos


@inline
def write_directions(sheet, number, steps):
    """Write 1 for each axis of a window that is moved, -1 if it is reversed."""
    flips = axis_words(sheet, t.FLIPS)
    flip_steps = axis_words(sheet, t.FLIP_STEPS)
    for axis in range(i64_at(sheet, t.AXES)):
        is_reversed = i64_at(flips, axis) and axis_value(flips, flip_steps, axis, number)
        i64_put(steps, axis, -1 if is_reversed else 1)


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
            is_moved = i64_at(sheet, t.MOVE_ALL)
            if errors & t.OUT_OF_BOUNDS and i64_at(sheet, t.MAY_PAD):
                errors &= ~t.OUT_OF_BOUNDS
                is_moved = 1
            if errors == 0 and is_moved:
                write_directions(sheet, number, steps)
                i64_put(sheet, t.MOVED_COUNT, i64_at(sheet, t.MOVED_COUNT) + 1)
                i64_put(uintp(i64_at(sheet, t.STATES)), number, t.MOVED)
                i64_put(entry, t.E_OUTPUT, number * i64_at(sheet, t.STEP))
                i64_put(entry, t.E_MOVED_ROW, row)
                continue
            state = -1
            if errors == 0:
                pos = write_strides(sheet, number, row)
                plan, state = find_plan(sheet, steps)
                if state < 0:
                    errors = t.NO_PLAN
            i64_put(uintp(i64_at(sheet, t.STATES)), number, state if errors == 0 else -errors)
            i64_put(sheet, t.ERRORS, i64_at(sheet, t.ERRORS) | errors)
            if errors:
                continue
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
            i64_put(entry, t.E_MOVED_ROW, 0)

    return kernel


def build_headers():
    """Build the kernel "headers" for samples lo to hi; the sheet is passed as the source.

    It writes the tables of addresses, sizes and strides, one after the other, from `tables` on. It
    stops at a sample of another rank or dtype, with MISMATCH as the error.
    """

    def kernel(params, sheet, tables, lo, hi):
        axes = i64_at(sheet, t.AXES)
        count = i64_at(sheet, t.COUNT)
        for number in range(lo, hi):
            is_valid, start, sizes, strides = read_sample(sheet, number)
            if not is_valid:
                i64_put(sheet, t.ERRORS, t.MISMATCH)
                return
            i64_put(tables, number, start)
            for axis in range(axes):
                word = count + number * axes + axis
                i64_put(tables, word, i64_at(uintp(sizes), axis))
                i64_put(tables, word + count * axes, i64_at(uintp(strides), axis))

    return kernel


def build_batched_launch():
    """Build the kernel "each", which runs all entries of a table passed as the source."""

    def kernel(params, table, dst, lo, hi):
        shares = i64_at(params, 0)
        areas = uintp(0)
        area_number = 0
        unit = lo
        while unit < hi:
            number = unit // shares
            end = min(hi, (number + 1) * shares)
            entry = table + uintp(8 * t.ENTRY * number)
            src = uintp(i64_at(entry, t.E_SOURCE))
            to = dst + uintp(i64_at(entry, t.E_OUTPUT))
            row = uintp(i64_at(entry, t.E_MOVED_ROW))
            block = uintp(i64_at(entry, t.E_PARAMETERS))
            units = i64_at(block, t.M_BOXES) if row else i64_at(entry, t.E_UNITS)
            first = units * (unit - number * shares) // shares
            last = units * (end - number * shares) // shares
            if row:
                if areas == 0:
                    areas = src
                    area_number = claim_area(areas)
                area = uintp(i64_at(areas, 0) + area_number * i64_at(areas, 1))
                move_boxes(block, row, area, to, first, last)
            elif first < last:
                code = uintp(i64_at(entry, t.E_CODE))
                call_kernel(code, block, src, to, first, last)
            unit = end
        if areas != 0:
            store_release(areas + uintp(8 * (3 + area_number)), 0)

    return kernel


def build(role):
    """Return the kernel of a role: "windows", "headers" or "each"."""
    roles = {"windows": build_crop_table, "headers": build_headers, "each": build_batched_launch}
    return roles[role]()

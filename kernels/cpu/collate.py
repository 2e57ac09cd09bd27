"""Where the windows of a batch lie, and what has to be done to each: from a sheet to a table.

What Python would do in 100 us for 64 samples. It proves that every window lies in its sample; what
is wrong is said in FOUND, and Python finds the words for it. See tables.py.

Copies of windows, with what is outside of their samples filled in. See tables.py for rows.

Many conversions as one job: every entry of a table is one of the kernels of engine.py.

The parameter block is two words: the number of shares that the units of each entry are cut into,
which is 1 where windows are copied before, and what is said of these copies. Unit u is share
u % shares of entry u // shares. The table takes the place of the source; see tables.py. Shares that
follow each other in an entry are one call.
"""

from __future__ import annotations

from numba import uintp

from . import collate_params as t
from .atomics import call_kernel
from .copy import copy_bytes
from .simd import i64_at, i64_put
from .walk import inline

FAR = 1 << 60  # places: a corner that is further away is there, so that sums are still 64 bits
NUMPY = 8 * 1, 8 * 2, 8 * 3, 8 * 5  # rank, sizes, strides and dtype behind the address of an array


@inline
def listed(sheet, which):
    """What a sheet says of all axes."""
    return sheet + uintp(8 * (t.SHEET + which * i64_at(sheet, t.AXES)))


@inline
def said(values, value_steps, axis, number):
    """What was said of an axis of a sample."""
    return i64_at(uintp(i64_at(values, axis) + number * i64_at(value_steps, axis)), 0)


@inline
def read(sheet, number):
    """Whether a sample is of the rank and dtype of all; its start, sizes and strides."""
    if i64_at(sheet, t.OBJECTS) == 0:
        form = number * i64_at(sheet, t.FORM)
        start = i64_at(uintp(i64_at(sheet, t.STARTS)), number)
        return True, start, i64_at(sheet, t.SIZES) + form, i64_at(sheet, t.STRIDES) + form
    rank_at, sizes_at, strides_at, dtype_at = NUMPY
    header = uintp(i64_at(uintp(i64_at(sheet, t.OBJECTS)), number) + i64_at(sheet, t.HEADER))
    rank = i64_at(header + uintp(rank_at), 0) & 0xFFFFFFFF
    dtype = i64_at(header + uintp(dtype_at), 0)
    if rank != i64_at(sheet, t.AXES) or dtype != i64_at(sheet, t.DTYPE):
        return False, 0, 0, 0
    sizes = header + uintp(sizes_at)
    strides = header + uintp(strides_at)
    return True, i64_at(header, 0), i64_at(sizes, 0), i64_at(strides, 0)


@inline
def place(sheet, number, row, start, sizes, strides):
    """Write where the window begins, and the sample's sizes and strides; what is wrong."""
    axes = i64_at(sheet, t.AXES)
    channel = i64_at(sheet, t.CHANNEL)
    window = listed(sheet, t.WINDOW)
    given = listed(sheet, t.GIVEN)
    corners = listed(sheet, t.CORNERS)
    corner_steps = listed(sheet, t.CORNER_STEPS)
    begins = row + uintp(8 * t.ROW)
    lengths = begins + uintp(8 * axes * t.LENGTHS)
    gaps = begins + uintp(8 * axes * t.GAPS)
    wrong = 0
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
            if size < i64_at(sheet, t.MOST):
                wrong |= t.ODD
            start += i64_at(sheet, t.FIRST) * stride
            stride *= i64_at(sheet, t.APART)
            size = length
        elif i64_at(given, axis) == 0 and size != length:
            wrong |= t.ODD
        begin = (size - length) >> 1
        if i64_at(corners, axis):
            corner = said(corners, corner_steps, axis, number)
            begin = min(max(corner, -FAR), FAR)
        if begin < 0 or begin + length > size:
            wrong |= t.OUTSIDE
        i64_put(begins, axis, begin)
        i64_put(lengths, axis, size)
        i64_put(gaps, axis, stride)
    if low < i64_at(sheet, t.END) and high >= i64_at(sheet, t.OUT):
        i64_put(sheet, t.FOUND, i64_at(sheet, t.FOUND) | t.NEAR)
    i64_put(row, t.ORIGIN, start)
    return wrong


@inline
def begin_of(sheet, number, row, is_copied):
    """Put the steps of a window; its first element, from the start of its sample or copy."""
    axes = i64_at(sheet, t.AXES)
    window = listed(sheet, t.WINDOW)
    packed = listed(sheet, t.PACKED)
    flips = listed(sheet, t.FLIPS)
    flip_steps = listed(sheet, t.FLIP_STEPS)
    begins = row + uintp(8 * t.ROW)
    gaps = begins + uintp(8 * axes * t.GAPS)
    steps = begins + uintp(8 * axes * t.STEPS)
    at = 0
    for axis in range(axes):
        step = i64_at(packed, axis) if is_copied else i64_at(gaps, axis)
        begin = 0 if is_copied else i64_at(begins, axis)
        if i64_at(flips, axis) and said(flips, flip_steps, axis, number):
            at += (begin + i64_at(window, axis) - 1) * step
            step = -step
        else:
            at += begin * step
        i64_put(steps, axis, step)
    return at


@inline
def kind_of(sheet, steps):
    """The kind of a window with these steps, 0 if it is none of them."""
    axes = i64_at(sheet, t.AXES)
    for number in range(i64_at(sheet, t.KINDS)):
        nbytes = 8 * (t.KIND + 2 * axes)
        kind = uintp(i64_at(sheet, t.KNOWN) + number * nbytes)
        own = kind + uintp(8 * t.KIND)
        is_it = True
        for axis in range(axes):
            step = i64_at(steps, axis)
            least = i64_at(own, axes + axis)
            if step != i64_at(own, axis) and (least < 0 or abs(step) < least):
                is_it = False
        if is_it:
            return kind, number
    return uintp(0), -1


@inline
def same(one, other, axes):
    """Whether two windows have the same steps."""
    is_same = True
    for axis in range(axes):
        if i64_at(one, axis) != i64_at(other, axis):
            is_same = False
    return is_same


@inline
def patched(kind, steps, block):
    """Write the parameters of a kind for other steps; what is added to the source offset."""
    own = kind + uintp(8 * t.KIND)
    params = uintp(i64_at(kind, t.PARAMETERS))
    for word in range(i64_at(kind, t.WORDS)):
        i64_put(block, word, i64_at(params, word))
    more = 0
    for number in range(i64_at(kind, t.PATCHES)):
        patch = uintp(i64_at(kind, t.PATCH) + 8 * t.PATCH_WORDS * number)
        word = i64_at(patch, 0)
        axis = i64_at(patch, 1)
        grown = (i64_at(steps, axis) - i64_at(own, axis)) * i64_at(patch, 2)
        if word < 0:
            more += grown
        else:
            i64_put(block, word, i64_at(block, word) + grown)
    return more


def build_crop_table():
    """The kernel "windows": samples lo to hi of the sheet that is the source."""

    def kernel(params, sheet, dst, lo, hi):
        axes = i64_at(sheet, t.AXES)
        row_bytes = 8 * (t.ROW + 4 * axes)
        steps_at = 8 * (t.ROW + t.STEPS * axes)
        arena = uintp(i64_at(sheet, t.ARENA))
        last = uintp(0)
        last_steps = uintp(0)
        last_block = uintp(0)
        last_more = 0
        for number in range(lo, hi):
            row = uintp(i64_at(sheet, t.ROWS) + number * row_bytes)
            entry = uintp(i64_at(sheet, t.TABLE) + 8 * t.ENTRY * number)
            steps = row + uintp(steps_at)
            is_like, start, sizes, strides = read(sheet, number)
            wrong = t.ODD
            if is_like:
                wrong = place(sheet, number, row, start, sizes, strides)
            copied = i64_at(sheet, t.COPIED)
            if wrong & t.OUTSIDE and i64_at(sheet, t.FILLED):
                wrong &= ~t.OUTSIDE
                copied = 1
            state = -1
            if wrong == 0:
                at = begin_of(sheet, number, row, copied)
                kind, state = kind_of(sheet, steps)
                if state < 0:
                    wrong = t.UNKNOWN
            i64_put(uintp(i64_at(sheet, t.STATES)), number, state if wrong == 0 else -wrong)
            i64_put(sheet, t.FOUND, i64_at(sheet, t.FOUND) | wrong)
            if wrong:
                continue
            if copied:
                target = i64_at(sheet, t.COPIES) * i64_at(sheet, t.BYTES)
                i64_put(sheet, t.COPIES, i64_at(sheet, t.COPIES) + 1)
                i64_put(row, t.TARGET, target)
                at += target
            else:
                at += i64_at(row, t.ORIGIN)
            if last == 0 or last != kind or not same(last_steps, steps, axes):
                last = kind
                last_steps = steps
                last_more = 0
                last_block = uintp(i64_at(kind, t.PARAMETERS))
                if not same(steps, kind + uintp(8 * t.KIND), axes):
                    last_block = arena
                    last_more = patched(kind, steps, last_block)
                    arena += uintp(8 * i64_at(kind, t.WORDS))
            i64_put(entry, t.E_CODE, i64_at(kind, t.CODE))
            i64_put(entry, t.E_PARAMETERS, last_block)
            i64_put(entry, t.E_SOURCE, at + i64_at(kind, t.SOURCE) + last_more)
            i64_put(entry, t.E_OUTPUT, number * i64_at(sheet, t.STEP) + i64_at(kind, t.OUTPUT))
            i64_put(entry, t.E_UNITS, i64_at(kind, t.UNITS))
            i64_put(entry, t.E_BEFORE, row if copied else 0)

    return kernel


@inline
def run(copy, row, axis, item, src, dst, paint):
    """One run of a window: what is before the sample, inside of it, and behind."""
    axes = i64_at(copy, t.C_AXES)
    begins = row + uintp(8 * t.ROW)
    begin = i64_at(begins, axis)
    size = i64_at(begins, axes * t.LENGTHS + axis)
    stride = i64_at(begins, axes * t.GAPS + axis)
    width = i64_at(copy, t.COPY + axis)
    first = min(max(-begin, 0), width)
    last = min(max(size - begin, first), width)
    is_listed = axis == i64_at(copy, t.C_CHANNEL)
    if first > 0:
        copy_bytes(paint, dst, first * item)
    if stride == item and not is_listed:
        inside = src + uintp((begin + first) * stride)
        copy_bytes(inside, dst + uintp(first * item), (last - first) * item)
    else:
        listed = uintp(i64_at(copy, t.C_CHANNELS))
        for place in range(first, last):
            at = i64_at(listed, place) if is_listed else begin + place
            copy_bytes(src + uintp(at * stride), dst + uintp(place * item), item)
    if last < width:
        copy_bytes(paint + uintp(last * item), dst + uintp(last * item), (width - last) * item)


@inline
def fused(copy, row):
    """How many axes are left, and the bytes of an item, without those that are copied as one."""
    axes = i64_at(copy, t.C_AXES)
    channel = i64_at(copy, t.C_CHANNEL)
    begins = row + uintp(8 * t.ROW)
    item = i64_at(copy, t.C_ITEM)
    left = axes
    while left > 0:
        axis = left - 1
        width = i64_at(copy, t.COPY + axis)
        is_whole = i64_at(begins, axis) == 0 and i64_at(begins, axes * t.LENGTHS + axis) == width
        if not is_whole or axis == channel or i64_at(begins, axes * t.GAPS + axis) != item:
            break
        item *= width
        left -= 1
    return left, item


@inline
def complete(copy, row):
    """Copy the window of a row to its target."""
    axes = i64_at(copy, t.C_AXES)
    channel = i64_at(copy, t.C_CHANNEL)
    begins = row + uintp(8 * t.ROW)
    origin = uintp(i64_at(row, t.ORIGIN))
    target = uintp(i64_at(row, t.TARGET))
    listed = uintp(i64_at(copy, t.C_CHANNELS))
    paint = uintp(i64_at(copy, t.C_PAINT))
    left, item = fused(copy, row)
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
            at = i64_at(begins, axis) + rest % width
            if at < 0 or at >= i64_at(begins, axes * t.LENGTHS + axis):
                is_inside = False
            elif axis == channel:
                at = i64_at(listed, at)
            src += uintp(at * i64_at(begins, axes * t.GAPS + axis))
            rest //= width
        shift = uintp(number * nbytes)
        if is_inside:
            run(copy, row, left - 1, item, src, target + shift, paint + shift)
        else:
            copy_bytes(paint + shift, target + shift, nbytes)


def build_batched_launch():
    """The driver "each", with a kernel's signature: its source is the table."""

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
            row = uintp(i64_at(entry, t.E_BEFORE))
            first = units * (unit - number * shares) // shares
            last = units * (end - number * shares) // shares
            if row:
                complete(copy, row)
            if first < last:
                call_kernel(code, block, src, to, first, last)
            unit = end

    return kernel


def build(role):
    """Return the kernel of a role: "windows" fills the crop table, "each" runs a batch of kernels."""
    return {"windows": build_crop_table, "each": build_batched_launch}[role]()

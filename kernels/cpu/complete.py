"""Copies of windows, with what is outside of their samples filled in. See tables.py for rows."""

from __future__ import annotations

from numba import uintp

from . import tables as t
from .pieces import copy_bytes
from .simd import i64_at
from .walk import inline


@inline
def run(copy, row, axis, item, src, dst, paint):
    """One run of a window: what is before the sample, inside of it, and behind."""
    axes = i64_at(copy, t.C_AXES)
    begins = row + uintp(8 * t.ROW)
    begin, size = i64_at(begins, axis), i64_at(begins, axes * t.LENGTHS + axis)
    stride, width = i64_at(begins, axes * t.GAPS + axis), i64_at(copy, t.COPY + axis)
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
    axes, channel = i64_at(copy, t.C_AXES), i64_at(copy, t.C_CHANNEL)
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
    axes, channel = i64_at(copy, t.C_AXES), i64_at(copy, t.C_CHANNEL)
    begins = row + uintp(8 * t.ROW)
    origin, target = uintp(i64_at(row, t.ORIGIN)), uintp(i64_at(row, t.TARGET))
    listed, paint = uintp(i64_at(copy, t.C_CHANNELS)), uintp(i64_at(copy, t.C_PAINT))
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

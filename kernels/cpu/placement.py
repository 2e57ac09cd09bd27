"""Kernels that place samples in windows; placement_params.py describes their blocks.

NumPy takes about 1 us for each of up to 150 operations on 64 samples. `planning` defines the
results, and finds the errors: kernels return the number of samples that need it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import float64, int64, uint64, uintp
from numba.extending import intrinsic

from ...planning import fitting
from ...planning.centering import halve_room
from . import placement_params as t
from .simd import i64_at, i64_put
from .taps import float_access
from .walk import inline

RETURNS_NUMBER = True  # instead of nothing, as other kernels

f8_at, f8_put, _ = float_access("f8")
centered_start = inline(halve_room)
round_half_even = inline(fitting.round_half_even)
limit_size = inline(fitting.limit_size)
interpolate = inline(fitting.interpolate)
scale_with_short_side = inline(fitting.scale_with_short_side)


@inline
def axis_words(block, which):
    """Return the address of array number `which` of the arrays of AXES words in a block."""
    return block + uintp(8 * (t.FIT_WORDS + which * i64_at(block, t.AXES)))


@inline
def value_of_sample(block, which, axis, number, default):
    """Return the value of an axis for a sample, or the default if the caller gave none."""
    values = i64_at(axis_words(block, which), axis)
    if values == 0:
        return default
    return i64_at(uintp(values + number * i64_at(axis_words(block, which + 1), axis)), 0)


# ---- placements --------------------------------------------------------------------------


@inline
def place_crop(block, number, lengths, begins, sizes):
    """Write the first position and the size of a crop along each axis; return False for errors."""
    fit = i64_at(block, t.FIT)
    may_fill = i64_at(block, t.MAY_FILL)
    is_valid = True
    for axis in range(i64_at(block, t.AXES)):
        length = i64_at(lengths, axis)
        size = i64_at(axis_words(block, t.WINDOW), axis)
        begin = 0
        if fit == t.CROP or i64_at(axis_words(block, t.IS_RESIZED), axis):
            if fit != t.CROP:
                size = value_of_sample(block, t.CROPS, axis, number, length)
                is_valid &= 1 <= size <= fitting.MAX_SIDE
            begin = centered_start(length - size, i64_at(block, t.IS_FLOOR))
            begin = value_of_sample(block, t.OFFSETS, axis, number, begin)
            if fit == t.CROP:
                begin = min(max(begin, -fitting.FAR), fitting.FAR)
            is_valid &= may_fill != 0 or (begin >= 0 and begin + size <= length)
        i64_put(begins, axis, begin)
        i64_put(sizes, axis, size)
    return is_valid


@inline
def find_scale(block, sizes):
    """Return the scale of a sample, and the size of the shortest side of its crop."""
    covers = i64_at(block, t.FIT) == t.COVER
    scale = 0.0
    shortest = 0
    for axis in range(i64_at(block, t.AXES)):
        if i64_at(axis_words(block, t.IS_RESIZED), axis):
            size = i64_at(sizes, axis)
            ratio = i64_at(axis_words(block, t.WINDOW), axis) / size
            is_first = shortest == 0
            shortest = size if is_first else min(size, shortest)
            if is_first or (ratio > scale if covers else ratio < scale):
                scale = ratio
    return scale, shortest


@inline
def scale_crop(block, begins, sizes, scaled, firsts):
    """Scale the crop of a sample into its window; return False for errors."""
    fit = i64_at(block, t.FIT)
    is_floor = i64_at(block, t.IS_FLOOR)
    scale, shortest = find_scale(block, sizes)
    is_valid = True
    for axis in range(i64_at(block, t.AXES)):
        window = i64_at(axis_words(block, t.WINDOW), axis)
        size = i64_at(sizes, axis)
        result = window
        first = 0
        if fit >= t.COVER and i64_at(axis_words(block, t.IS_RESIZED), axis):
            if fit == t.COVER:
                part = int64(limit_size(round_half_even(window / scale), size))
                i64_put(begins, axis, i64_at(begins, axis) + centered_start(size - part, is_floor))
                i64_put(sizes, axis, part)
            elif fit == t.PAD:
                result = int64(limit_size(round_half_even(size * scale), window))
            else:
                result = scale_with_short_side(size, shortest, i64_at(block, t.SHORT_SIDE))
                is_valid &= result <= fitting.MAX_SIDE
                is_valid &= i64_at(block, t.MAY_FILL) != 0 or result >= window
            first = centered_start(result - window, is_floor)
        i64_put(scaled, axis, result)
        i64_put(firsts, axis, first)
    return is_valid


def build_fit():
    """Build the kernel "fit", which returns the number of samples that cannot be placed."""

    def kernel(block, lengths, fields, lo, hi):
        width = 8 * i64_at(block, t.AXES)
        field = width * i64_at(block, t.SAMPLES)
        failures = 0
        for number in range(lo, hi):
            row = lengths + uintp(number * width)
            copy = fields + uintp(number * width)
            begins = copy + uintp(field)
            sizes = begins + uintp(field)
            scaled = sizes + uintp(field)
            firsts = scaled + uintp(field)
            for axis in range(i64_at(block, t.AXES)):
                i64_put(copy, axis, i64_at(row, axis))
            is_valid = place_crop(block, number, row, begins, sizes)
            if is_valid:
                is_valid = scale_crop(block, begins, sizes, scaled, firsts)
            failures += not is_valid
        return failures

    return kernel


# ---- random values -----------------------------------------------------------------------


@inline
def hash_position(key, position):
    """Return `hash64` (_utils/random.py) of two uint64."""
    x = position * uint64(0x9E3779B97F4A7C15) + key
    x = (x ^ (x >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> uint64(27))) * uint64(0x94D049BB133111EB)
    return x ^ (x >> uint64(31))


@inline
def draw_fraction(word, counter):
    """Return a number in [0, 1) for a counter of a sample with these 64 random bits."""
    return float(hash_position(word, uint64(counter)) >> uint64(11)) * 2.0**-53


@inline
def draw_below(key, word, count):
    """Return `limit_bits` (_utils/random.py) of a uint64 `count`."""
    threshold = (uint64(0) - count) % count
    while word < threshold:
        word = hash_position(key, word)
    return int64(word % count)


def build_draw():
    """Build the kernel "draw", which draws offsets, flips and the ratios of random crops."""

    def kernel(block, lengths, values, lo, hi):
        samples = i64_at(block, t.SAMPLES)
        positions = uintp(i64_at(block, t.POSITIONS))
        windows = block + uintp(8 * t.DRAW_WORDS)
        offsets = i64_at(block, t.DRAWN_OFFSETS)
        drawn = offsets + i64_at(block, t.DRAWN_FLIPS)
        words = uintp(i64_at(block, t.WORDS))
        ratios = uintp(i64_at(block, t.RATIOS))
        low = f8_at(block, t.RATIO)
        high = f8_at(block, t.RATIO + 1)
        for number in range(lo, hi):
            keys = i64_at(block, t.KEYS) + number * i64_at(block, t.KEY_STEP)
            position = uint64(i64_at(positions, number))
            row = lengths + uintp(8 * number * i64_at(block, t.AXES))
            for value in range(drawn):
                key = uint64(i64_at(uintp(keys), 0))
                word = hash_position(key, position)
                result = int64(word & uint64(1))
                if value < offsets:
                    pair = windows + uintp(16 * value)
                    spare = i64_at(row, i64_at(pair, 0)) - i64_at(pair, 1)
                    # Windows that are larger than their samples begin before them.
                    result = draw_below(key, word, uint64(abs(spare) + 1)) + min(spare, 0)
                i64_put(values + uintp(8 * value * samples), number, result)
                keys += i64_at(block, t.NEXT_KEY)
            if words != 0:
                word = hash_position(uint64(i64_at(uintp(keys), 0)), position)
                i64_put(words, number, int64(word))
                for attempt in range(fitting.TRIES):
                    counter = attempt * fitting.DRAWS_PER_TRY + fitting.RATIO
                    ratio = interpolate(low, high, draw_fraction(word, counter))
                    f8_put(ratios, number * fitting.TRIES + attempt, ratio)
        return 0

    return kernel


@intrinsic
def sqrt(typingctx: Any, x: Any) -> Any:
    """Return the square root of a float64 by an instruction, without the C library."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.call(b.module.declare_intrinsic("llvm.sqrt", [ir.DoubleType()]), args)

    return float64(float64), codegen


def build_crop():
    """Build the kernel "crop", which returns the number of samples in which no try fits."""

    def kernel(block, lengths, values, lo, hi):
        samples = i64_at(block, t.SAMPLES)
        words = uintp(i64_at(block, t.C_WORDS))
        ratios = uintp(i64_at(block, t.C_RATIOS))
        low = f8_at(block, t.C_SCALE)
        high = f8_at(block, t.C_SCALE + 1)
        lefts = values + uintp(8 * samples)
        heights = lefts + uintp(8 * samples)
        widths = heights + uintp(8 * samples)
        failures = 0
        for number in range(lo, hi):
            row = lengths + uintp(8 * number * i64_at(block, t.AXES))
            height = i64_at(row, i64_at(block, t.C_HEIGHT))
            width = i64_at(row, i64_at(block, t.C_WIDTH))
            word = uint64(i64_at(words, number))
            i64_put(heights, number, 0)
            i64_put(widths, number, 0)
            failures += 1
            for attempt in range(fitting.TRIES):
                counter = attempt * fitting.DRAWS_PER_TRY
                share = interpolate(low, high, draw_fraction(word, counter + fitting.SHARE))
                ratio = f8_at(ratios, number * fitting.TRIES + attempt)
                area = height * width * share
                rows = round_half_even(sqrt(area / ratio))
                columns = round_half_even(sqrt(area * ratio))
                if 0 < rows <= height and 0 < columns <= width:
                    top = draw_fraction(word, counter + fitting.TOP) * (height - rows + 1)
                    left = draw_fraction(word, counter + fitting.LEFT) * (width - columns + 1)
                    i64_put(values, number, int64(top))
                    i64_put(lefts, number, int64(left))
                    i64_put(heights, number, int64(rows))
                    i64_put(widths, number, int64(columns))
                    failures -= 1
                    break
        return failures

    return kernel


def build(role):
    """Return the kernel of a role: "fit" computes placements, "draw" and "crop" draw values."""
    return {"fit": build_fit, "draw": build_draw, "crop": build_crop}[role]()

"""The dtypes of resized samples that are averaged as floats, or moved from the nearest positions.

`layoutkit/taps.py` computes the weights of averages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import ArgumentError, DtypeError
from ...memory import Array
from ...spec import DType, as_dtype, dtype_kind, integer_bounds
from ..epilogue import is_supported_dtype, kernel_dtype_name
from ..plan import SupportsFloat16
from ..resize import LEAST_WEIGHT, ResizeOptions
from .placement import Placements

if TYPE_CHECKING:
    from ...options import CollateOptions, ConvertOptions


EXACT = frozenset({"b1", "i1", "i2", "u1", "u2", "f2", "bf", "f4"})  # dtypes that float32 contains
FLOATS = tuple(map(as_dtype, ("float16", "bfloat16", "float32", "float64")))
AVERAGED = (EXACT - {"b1"}) | {"f8"}
# Source positions from the center of a filter to its end, if the scale is 1.
RADII = {"nearest": 0.5, "bilinear": 1, "bicubic": 2, "lanczos": 3, "area": 0.5}


class IgnoredPixels(NamedTuple):
    """The elements of samples that averages omit."""

    value: float  # of these elements, exact in the dtype of the samples; NaN is math.nan
    least: float  # positions whose valid weights have no larger sum are filled


def choose_summed_dtype(source: DType) -> DType:
    """Return the dtype in which samples are averaged: float64 for float64, else float32."""
    return source if source == np.float64 else np.dtype(np.float32)


def count_taps(resize: ResizeOptions, scales: Array) -> Array:
    """Return an upper bound of the number of taps of a position, for each row of `scales`.

    scales : float64 (axes, samples)    source positions in one position of the result
    """
    radius = RADII[resize.filter]
    if resize.filter == "nearest" or not (resize.antialias or resize.filter == "area"):
        return np.full(len(scales), int(2 * radius))
    width = np.maximum.reduce(scales, 1, initial=1)
    return 2 * np.ceil(radius * width).astype(np.int64) + 1


def find_read_ends(resize: ResizeOptions | None, placements: Placements, column: int) -> Array:
    """Return the end of the positions of samples that are read along an axis, int64 (samples,).

    resize : None if windows are not resized
    """
    begins, sizes = placements.begins[:, column], placements.sizes[:, column]
    if resize is not None:
        scaled, firsts = placements.scaled[:, column], placements.firsts[:, column]
        last = np.minimum(firsts + placements.window[column], scaled)
        scale = sizes / scaled
        is_wider = resize.antialias or resize.filter == "area"
        radii = RADII[resize.filter] * (np.maximum(scale, 1) if is_wider else np.ones_like(scale))
        # One more, as the positions of taps are rounded.
        sizes = np.minimum(sizes, np.ceil(last * scale + radii).astype(np.int64) + 1)
    ends: Array = np.minimum(np.maximum(begins + sizes, 0), placements.lengths[:, column])
    return ends


def count_halving_taps(
    resize: ResizeOptions, placements: Placements, resized: Sequence[int | None]
) -> int:
    """Return the number of taps of samples that are twice as long as the window along some axes.

    The weights are 1/2 for 2 taps; for 4, they are 1/8, 3/8, 3/8 and 1/8, except at the edges. The
    result is 0 for other filters, for samples of other sizes, and for flipped samples.
    """
    if resize.filter not in ("area", "bilinear"):
        return 0
    window = np.array(placements.window)
    is_halved = (placements.sizes == 2 * window) & (placements.scaled == window)
    is_halved &= (placements.firsts == 0) & ~placements.flips
    axes = [axis for axis in resized if axis is not None]
    if not np.logical_and.reduce(is_halved[:, axes], None):
        return 0
    return 4 if resize.filter == "bilinear" and resize.antialias else 2


def check_ignored_value(ignore: float, source: DType) -> None:
    """Raise ArgumentError if samples of a dtype are integers that cannot be `ignore`."""
    low, high = integer_bounds(source) if dtype_kind(source) in "ui" else (-inf, inf)
    is_integer = low <= ignore <= high and ignore % 1 == 0
    if dtype_kind(source) in "ui" and not is_integer:
        raise ArgumentError(
            f"ignore={ignore}, but samples are {source}, which have no such value; give "
            "the number that marks ignored pixels"
        )


def find_ignored(resize: ResizeOptions, source: DType) -> IgnoredPixels | None:
    """Return the ignored elements of averaged samples of a dtype; None: no element is ignored.

    Raises ArgumentError if samples cannot have the ignored value.
    """
    ignore = resize.ignore
    if ignore is None:
        return None
    check_ignored_value(ignore, source)
    with np.errstate(over="ignore"):
        value = float(np.array(ignore).astype(source))
    return IgnoredPixels(value, LEAST_WEIGHT.get(resize.filter, 0))


class IgnoredBits(NamedTuple):
    """The ignored items of a dtype: bits & mask are from low to low + span, as unsigned numbers."""

    mask: int
    low: int
    span: int


def find_ignored_bits(ignore: float, source: DType) -> IgnoredBits | None:
    """Return the bits of ignored items of a dtype; None for dtypes without such numbers.

    Floats are equal to 0 with either sign, and NaN with any payload.
    """
    is_float = source in FLOATS
    if source.itemsize > 8 or not (is_float or (dtype_kind(source) in "bui" and ignore == ignore)):
        return None
    everything = (1 << 8 * source.itemsize) - 1
    magnitude = everything >> 1
    unsigned = f"u{source.itemsize}"
    if ignore != ignore:
        infinity = int(np.array(inf).astype(source).view(unsigned))
        return IgnoredBits(magnitude, infinity + 1, magnitude - infinity - 1)
    with np.errstate(over="ignore"):
        bits = int(np.array(ignore).astype(source).view(unsigned))
    is_zero = ignore == 0 and is_float
    return IgnoredBits(magnitude, 0, 0) if is_zero else IgnoredBits(everything, bits, 0)


def can_replace_ignored(resize: ResizeOptions | None, source: DType) -> bool:
    """Return True if kernels can compare items of a dtype with the ignored value, if any."""
    if resize is None or resize.ignore is None:
        return True
    return find_ignored_bits(resize.ignore, source) is not None


def check_fill(fill: Array, target: DType) -> None:
    """Raise ArgumentError if positions without a valid tap are NaN in a batch of integers."""
    if dtype_kind(target) in "ui" and dtype_kind(fill.dtype) == "f" and np.isnan(fill).any():
        raise ArgumentError(
            f"positions without a valid pixel are nan, which a batch of {target} does not have; "
            "give fill=, as in fill=0"
        )


def moves_items(resize: ResizeOptions, source: DType, has_half: SupportsFloat16) -> bool:
    """Return True if items are moved unchanged; False if they are averaged as floats.

    Raises DtypeError unless samples of the dtype can be resized.
    """
    name = kernel_dtype_name(source) if is_supported_dtype(source, has_half) else ""
    if resize.filter == "nearest":
        return name not in EXACT
    if name in AVERAGED:
        return False
    raise DtypeError(
        f'samples have dtype {source}, which resize="{resize.filter}" does not average; convert '
        'them to float32 first, or move pixels unchanged by resize="nearest"'
    )


def make_window_conversion(
    options: CollateOptions, shape: tuple[int, ...], source: DType, has_half: SupportsFloat16
) -> ConvertOptions:
    """Return the conversion of stacked windows of `shape`, of samples of the dtype `source`.

    Windows are floats if their items are averaged.
    """
    convert, resize = options.convert, options.resize
    if resize is None or moves_items(resize, source, has_half):
        return convert
    return options_of_floats(convert, convert.infer_result(shape, source)[2])


def options_of_floats(options: ConvertOptions, target: DType) -> ConvertOptions:
    """Return the conversion of resampled values, which are floats: integers are rounded."""
    casting = "saturate" if dtype_kind(target) in "ui" else "unsafe"
    return replace(options, dtype=target, casting=casting)


def nearest_positions(placements: Placements) -> dict[int, Array]:
    """Return the index in its sample that is nearest to each position of a window, by resized axis.

    Indices are int64 (samples, positions), and -1 for positions outside of the sample. The windows
    are not flipped. There are as many positions as in the longest window.
    """
    indices = {}
    for axis in placements.resized:
        column = np.s_[:, axis, None]
        scaled = placements.scaled[column]
        longest = placements.window[axis] if placements.window else scaled.max(initial=0)
        position = placements.firsts[column] + np.arange(longest)
        nearest = (2 * position + 1) * placements.sizes[column] // (2 * scaled)
        nearest += placements.begins[column]
        is_inside = (position >= 0) & (position < scaled) & (nearest >= 0)
        is_inside &= nearest < placements.lengths[column]
        indices[axis] = np.where(is_inside, nearest, -1)
    return indices

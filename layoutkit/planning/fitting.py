"""The arithmetic of windows that are fitted or drawn, of numbers and of arrays alike.

Kernels compile these functions, too, so they use no function that needs the C library.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MAX_SIDE = (1 << 31) - 1  # positions of a resized axis: products of two fit 64 bits
FAR = 1 << 60  # elements; sums of two still fit 64 bits
TRIES = 10  # crops that are drawn for a sample before the central one is used
DRAWS_PER_TRY = 5  # of a crop: share of the area, ratio, exchange of the sides, top, left
SHARE, RATIO, EXCHANGE, TOP, LEFT = range(DRAWS_PER_TRY)  # their counters in the first try
WHOLE = 2.0**52  # floats from here on have no fraction, so a sum with it is rounded


def round_half_even(x: Any) -> Any:
    """Return a float from 0 to 2**51, rounded to the nearest whole number, or the even one."""
    return (x + WHOLE) - WHOLE


def limit_size(size: Any, largest: Any) -> Any:
    """Return a size, but at least 1 and at most `largest`."""
    return np.minimum(np.maximum(size, 1.0), largest)


def scale_with_short_side(extent: Any, shortest: Any, side: Any) -> Any:
    """Return the size to which a side is scaled if the shortest one is scaled to `side`."""
    return extent * side // shortest


def scale_sides(extents: Any, side: int, most: int | None) -> Any:
    """Return the sizes to which images are scaled so that their shortest side is `side`.

    If the longest side would be more than `most`, it becomes `most` instead; then the shortest
    side is rounded to the nearest number, and the others are rounded down, as in transformers'
    `get_size_with_aspect_ratio` (the sizes of DETR).

    extents    int64 (images, axes)
    """
    shortest = extents.min(1, keepdims=True)
    scaled = scale_with_short_side(extents, shortest, side)
    if most is None:
        return scaled
    longest = extents.max(1, keepdims=True)
    reduced = most * shortest / longest
    others = np.trunc(reduced * extents / shortest)
    limited = np.where(extents == shortest, round_half_even(reduced), others)
    is_long = longest / shortest * side > most
    return np.where(is_long, np.maximum(limited, 1), scaled).astype(np.int64)


def interpolate(low: Any, high: Any, fraction: Any) -> Any:
    """Return the number between two bounds at a fraction of their distance."""
    return low + (high - low) * fraction

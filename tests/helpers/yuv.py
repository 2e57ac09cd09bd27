"""Slow RGB bytes of video frames in planes: exact rational numbers, and float64."""

from fractions import Fraction
from math import lcm

import numpy as np

SHARES = {"bt601": ("0.299", "0.114"), "bt709": ("0.2126", "0.0722")}  # of red and blue
SCALES = {"limited": (16, 219, 224), "full": (0, 255, 255)}  # black, and the ranges of y and u, v
TEN_BITS = {"limited": (64, 876, 896), "full": (0, 1023, 1023)}


def sums_of(matrix, color_range, bits=8):
    """Return (y, u, v) factors and the term of red, green and blue, as fractions."""
    red, blue = map(Fraction, SHARES[matrix])
    green = 1 - red - blue
    black, bright, color = (SCALES if bits == 8 else TEN_BITS)[color_range]
    gray = 1 << bits - 1
    # y = red * R + green * G + blue * B, u = (B - y) / 2 (1 - blue), v = (R - y) / 2 (1 - red)
    y = Fraction(255, bright)
    u, v = ((2 - 2 * share) * Fraction(255, color) for share in (blue, red))
    rows = [(y, 0, v), (y, -u * blue / green, -v * red / green), (y, u, 0)]
    return [(*row, -black * row[0] - gray * (row[1] + row[2])) for row in rows]


POSITIONS = {  # of color samples, in rows and columns of pixels from the first
    "left": (0.5, 0.0),
    "center": (0.5, 0.5),
    "topleft": (0.0, 0.0),
}


def interpolated(plane, h, w, siting):
    """Return a plane of colors at every pixel in float64, linear between the nearest samples."""
    for axis, size, first in zip((-2, -1), (h, w), POSITIONS[siting], strict=True):
        last = plane.shape[axis] - 1
        place = ((np.arange(size) - first) / 2).clip(0, last)
        before = np.floor(place).astype(int)
        after = np.minimum(before + 1, last)
        share = (place - before).reshape((-1, 1) if axis == -2 else -1)
        plane = np.take(plane, before, axis) * (1 - share) + np.take(plane, after, axis) * share
    return plane


def doubled(plane, h, w):
    """Return a plane of colors with every sample repeated for 2 x 2 pixels."""
    return np.repeat(np.repeat(plane, 2, -2), 2, -1)[..., :h, :w]


def exact_rgb(y, u, v, matrix, color_range):
    """Return RGB bytes that are rounded half up from exact sums."""
    u, v = (doubled(plane, *y.shape[-2:]).astype(np.int64) for plane in (u, v))
    channels = []
    for row in sums_of(matrix, color_range):
        unit = lcm(2, *(Fraction(x).denominator for x in row))
        a, b, c, term = (int(x * unit) for x in row)
        total = a * y.astype(np.int64) + b * u + c * v + term
        channels.append(np.clip((total + unit // 2) // unit, 0, 255))
    return np.stack(channels, -1).astype(np.uint8)


def float_rgb(y, u, v, matrix, color_range, bits=8, siting=None):
    """Return red, green and blue in float64, neither rounded nor clipped."""
    size = y.shape[-2:]
    full = [
        doubled(plane, *size) if siting is None else interpolated(plane, *size, siting)
        for plane in (u, v)
    ]
    planes = 1, y, *full
    rows = [[float(x) for x in row] for row in sums_of(matrix, color_range, bits)]
    return np.stack(
        [sum(f * p for f, p in zip([row[3], *row[:3]], planes, strict=True)) for row in rows], -1
    )

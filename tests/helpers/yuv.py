"""Slow RGB bytes of video frames in planes: exact rational numbers, and float64."""

from fractions import Fraction
from math import lcm

import numpy as np

SHARES = {"bt601": ("0.299", "0.114"), "bt709": ("0.2126", "0.0722")}  # of red and blue
SCALES = {"limited": (16, 219, 224), "full": (0, 255, 255)}  # black, and the ranges of y and u, v


def sums_of(matrix, color_range):
    """Return (y, u, v) factors and the term of red, green and blue, as fractions."""
    red, blue = map(Fraction, SHARES[matrix])
    green = 1 - red - blue
    black, bright, color = SCALES[color_range]
    # y = red * R + green * G + blue * B, u = (B - y) / 2 (1 - blue), v = (R - y) / 2 (1 - red)
    y = Fraction(255, bright)
    u, v = ((2 - 2 * share) * Fraction(255, color) for share in (blue, red))
    rows = [(y, 0, v), (y, -u * blue / green, -v * red / green), (y, u, 0)]
    return [(*row, -black * row[0] - 128 * (row[1] + row[2])) for row in rows]


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


def float_rgb(y, u, v, matrix, color_range):
    """Return red, green and blue in float64, neither rounded nor clipped."""
    planes = 1, y, *(doubled(plane, *y.shape[-2:]) for plane in (u, v))
    rows = [[float(x) for x in row] for row in sums_of(matrix, color_range)]
    return np.stack(
        [sum(f * p for f, p in zip([row[3], *row[:3]], planes, strict=True)) for row in rows], -1
    )

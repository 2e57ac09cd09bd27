"""Slow, obvious implementations of the steps of `images.Augmenter`, pixel by pixel."""

import colorsys
import math

import numpy as np

COMPONENTS = [
    (55.46, (-0.5675, -0.5808, -0.5836)),
    (4.794, (0.7192, -0.0045, -0.6948)),
    (1.148, (0.4009, -0.8140, 0.4203)),
]


def to_8_bits(value):
    """Round half to even and clip to 0...255."""
    return min(255, max(0, round(value)))


def map_pixels(pixels, change):
    """Return an image with a function applied to the channels of every pixel."""
    height, width = pixels.shape[:2]
    rows = [
        [[to_8_bits(v) for v in change(*pixels[y, x].astype(float))] for x in range(width)]
        for y in range(height)
    ]
    return np.array(rows, np.uint8)


def gray(r, g, b):
    return 0.299 * r + 0.587 * g + 0.114 * b


def adjust_brightness(pixels, factor):
    return map_pixels(pixels, lambda *values: [factor * v for v in values])


def adjust_contrast(pixels, factor):
    all_grays = [gray(*pixel) for row in pixels.astype(float) for pixel in row]
    mean = math.fsum(all_grays) / len(all_grays)
    return map_pixels(pixels, lambda *values: [mean + factor * (v - mean) for v in values])


def adjust_saturation(pixels, factor):
    def change(*values):
        return [gray(*values) + factor * (v - gray(*values)) for v in values]

    return map_pixels(pixels, change)


def add_pca_noise(pixels, numbers):
    def change(*values):
        return [
            value
            + sum(
                number * d * part[c] for number, (d, part) in zip(numbers, COMPONENTS, strict=True)
            )
            for c, value in enumerate(values)
        ]

    return map_pixels(pixels, change)


def shift_hls(pixels, hue, lightness, saturation):
    """Shift the colors with colorsys, whose hue, lightness and saturation are from 0 to 1."""

    def change(*values):
        h, light, s = colorsys.rgb_to_hls(*[v / 255 for v in values])
        light = min(1, max(0, light + lightness / 255))
        s = min(1, max(0, s + saturation / 255))
        return [255 * v for v in colorsys.hls_to_rgb((h + hue / 180) % 1, light, s)]

    return map_pixels(pixels, change)


def interpolate(pixels, y, x, fill):
    """Interpolate linearly between pixels; pixels outside of the image are `fill`."""
    top, left = math.floor(y), math.floor(x)
    total = 0.0
    for row, down in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, right in ((left, 1 - (x - left)), (left + 1, x - left)):
            inside = 0 <= row < pixels.shape[0] and 0 <= column < pixels.shape[1]
            total += down * right * (float(pixels[row, column]) if inside else fill)
    return total


def resize(pixels, height, width):
    """Resize one channel bilinearly; the first pixel's center is half a pixel from the edge."""
    found = np.empty((height, width))
    edge = np.pad(pixels, 1, mode="edge")
    for y in range(height):
        for x in range(width):
            at = [(p + 0.5) * n / m - 0.5 for p, n, m in
                  ((y, pixels.shape[0], height), (x, pixels.shape[1], width))]  # fmt: skip
            at = [min(max(p, 0), n - 1) for p, n in zip(at, pixels.shape, strict=True)]
            found[y, x] = interpolate(edge, at[0] + 1, at[1] + 1, 0)
    return found


def warp(pixels, angle, shear, scale, ratio, canvas, fill):
    """Rotate one channel about its center, shear and scale it, with bilinear interpolation.

    canvas : (height, width) of the result, which has the same center as the image
    """
    height, width = pixels.shape
    a, b = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    across = 2 * scale / (1 + ratio)
    down = ratio * across
    found = np.empty((int(canvas[0]), int(canvas[1])))
    for y in range(found.shape[0]):
        for x in range(found.shape[1]):
            v = (y - canvas[0] / 2) / down + height / 2
            u = (x - canvas[1] / 2 - shear * down * (v - height / 2)) / across + width / 2
            u, v = u - (width - 1) / 2, v - (height - 1) / 2
            u, v = a * u - b * v + (width - 1) / 2, b * u + a * v + (height - 1) / 2
            found[y, x] = interpolate(pixels, v, u, fill)
    return found


def formula(pixels, mean=0.0, k=1.0, i=0.0, scale=1.0, std=1.0):
    """Return ((x - mean) * k + i) * scale / std in float64, channels first."""
    x = pixels.astype(np.float64).transpose(2, 0, 1)
    flat = [np.asarray(v, np.float64) for v in (mean, std)]
    mean, std = (v.reshape(-1, 1, 1) if v.ndim == 1 else v for v in flat)
    return ((x - mean) * k + i) * scale / std

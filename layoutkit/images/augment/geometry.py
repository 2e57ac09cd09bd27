"""Crop windows and affine warps of an augmentation, and resizing and warping with OpenCV.

The options come from `Options`, the random numbers from `ImageRng`; interpolation methods have
OpenCV's numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import ArgumentError, ShapeError
from ...memory import Array
from ...planning.batch.random import RandomCrop
from ...planning.centering import centered_start
from ..fitting import opencv
from .options import ANY, AUTO, NO_LIMIT, Options
from .random import ImageRng, Slot


class Window(NamedTuple):
    """A window of an image, in pixels; it may extend beyond the image."""

    top: int
    left: int
    height: int
    width: int

    def extract(self, pixels: Array, fill: Sequence[float]) -> Array:
        """Return the pixels of the window: a view, or new memory padded with `fill`."""
        starts = max(0, self.top), max(0, self.left)
        stops = max(0, self.top + self.height), max(0, self.left + self.width)
        inside = pixels[starts[0] : stops[0], starts[1] : stops[1]]
        if inside.shape[:2] == (self.height, self.width):
            return inside
        padded = np.empty((self.height, self.width, pixels.shape[2]), pixels.dtype)
        padded[...] = fill
        top = starts[0] - self.top
        left = starts[1] - self.left
        padded[top : top + inside.shape[0], left : left + inside.shape[1]] = inside
        return padded


class AffineWarp(NamedTuple):
    """An affine warp onto a canvas.

    matrix : float64 (2, 3)    maps a point (x, y, 1) of the image to the canvas
    height, width : int        the canvas's
    """

    matrix: Array
    height: int
    width: int


def shorter_side_size(height: int, width: int, shorter: int) -> tuple[int, int]:
    """Return (height, width) scaled so that the shorter side is `shorter`, the other rounded down.

    >>> shorter_side_size(375, 500, 256)
    (256, 341)
    """
    if height <= width:
        return shorter, max(1, shorter * width // height)
    return max(1, shorter * height // width), shorter


def needs_warp(options: Options) -> bool:
    """Return True if the options need more than rotations by multiples of 90 degrees."""
    angle = options.max_rotate_angle if options.rotate is None else options.rotate % 90
    return (
        angle != 0
        or options.max_shear_ratio != 0
        or (options.min_random_scale, options.max_random_scale) != (1, 1)
        or (options.ratios != (1, 1) and not options.random_resized_crop)
        or (options.min_img_size, options.max_img_size) != (0, NO_LIMIT)
    )


def random_warp(options: Options, rng: ImageRng, height: int, width: int) -> AffineWarp:
    """Return a warp that rotates, shears and scales, in this order, about the image's center.

    The caller applies a `rotate` by a multiple of 90 degrees before, exactly.
    """
    angle = rng.integer(Slot.ANGLE, -options.max_rotate_angle, options.max_rotate_angle)
    if options.rotate is not None:
        angle = options.rotate if options.rotate % 90 else 0
    shear = rng.uniform(Slot.SHEAR, -options.max_shear_ratio, options.max_shear_ratio)
    scale = rng.uniform(Slot.SCALE, options.min_random_scale, options.max_random_scale)
    ratio = rng.uniform(Slot.ASPECT, *options.ratios)
    low = options.min_img_size
    high = options.max_img_size
    canvas = tuple(max(low, min(high, scale * side)) for side in (width, height))
    if min(canvas) < 1:
        raise ShapeError(
            f"an image of {height}x{width} at {scale:g} of its size has no pixels left; raise "
            "min_random_scale or min_img_size"
        )
    x_scale = 2 * scale / (1 + ratio)
    stretch = np.array([[x_scale, shear * ratio * x_scale], [0, ratio * x_scale]])
    matrix = _matrix(angle, stretch, np.array([width, height]), np.array(canvas))
    return AffineWarp(matrix, int(canvas[1]), int(canvas[0]))


def _matrix(angle: float, stretch: Array, size: Array, canvas: Array) -> Array:
    """Return the matrix that rotates about the central pixel, then stretches onto the canvas.

    The center of the stretched area is the center of the canvas.
    """
    cos = math.cos(math.radians(angle))
    sin = math.sin(math.radians(angle))
    rotation = np.array([[cos, sin], [-sin, cos]])
    center = (size - 1) / 2
    offset = stretch @ (center - rotation @ center) + (canvas - stretch @ size) / 2
    linear = stretch @ rotation
    if np.array_equal(linear, np.eye(2)):  # crop or padding only: copy pixels exactly
        offset = np.floor(offset)
    return np.column_stack([linear, offset])


def random_resized_window(options: Options, rng: ImageRng, height: int, width: int) -> Window:
    """Return the window of random_resized_crop: of random area, aspect ratio and offset.

    If no try is inside the image: the largest central window with the result's aspect ratio.
    """
    result_ratio = options.width / options.height
    crop = RandomCrop(
        (options.min_random_area, options.max_random_area), options.ratios,
        is_log=False, exchanges=True, fallback_ratio=(result_ratio, result_ratio),
    )  # fmt: skip
    offsets, sides = crop.draw(np.array([[height, width]]), rng.crop_draws)
    return Window(*offsets[0].tolist(), *sides[0].tolist())


def crop_window(options: Options, rng: ImageRng, height: int, width: int) -> Window:
    """Return the crop window, of the result's size or of a size that is resized to it.

    Raises ShapeError if the image is too small.
    """
    size = options.height, options.width
    if options.max_crop_size is not None and options.min_crop_size is not None:
        size = (rng.integer(Slot.SIDE, options.min_crop_size, options.max_crop_size),) * 2
    if size[0] > height or size[1] > width:
        raise ShapeError(
            f"the image is {height}x{width} before the crop, smaller than {size[0]}x{size[1]}; "
            "make it large enough with resize=, pad= or random_resized_crop=True"
        )
    last_top = height - size[0]
    last_left = width - size[1]
    offsets = [
        _crop_offset(
            "crop_y_start", options.crop_y_start, last_top, options.rand_crop, rng, Slot.TOP
        ),
        _crop_offset(
            "crop_x_start", options.crop_x_start, last_left, options.rand_crop, rng, Slot.LEFT
        ),
    ]
    return Window(offsets[0], offsets[1], *size)


def _crop_offset(
    name: str, fixed: int | None, last: int, is_random: bool, rng: ImageRng, use: int
) -> int:
    if fixed is None:
        return rng.integer(use, 0, last) if is_random else centered_start(last, "floor")
    if fixed > last:
        raise ShapeError(
            f"{name}={fixed}, but the largest possible value for this image is {last}; pass that "
            "or less, or resize or pad the images"
        )
    return fixed


_NEAREST, _LINEAR, _CUBIC, _AREA, _LANCZOS = range(5)


def check_opencv(option: str) -> None:
    """Raise ArgumentError if OpenCV, which `option` needs, is not installed."""
    if opencv() is None:
        raise ArgumentError(
            f'{option} needs OpenCV, which is not installed: pip install "layoutkit[augment]"'
        )


def interpolation_for(
    option: int, rng: ImageRng, before: tuple[int, int], after: tuple[int, int]
) -> int:
    """Return OpenCV's number, 0 to 4, for `option`: itself, chosen by the sizes, or random."""
    if option == ANY:
        return rng.integer(Slot.METHOD, _NEAREST, _LANCZOS)
    if option != AUTO:
        return option
    if after[0] > before[0] and after[1] > before[1]:
        return _CUBIC
    return _AREA if after[0] < before[0] and after[1] < before[1] else _LINEAR


def resize_pixels(pixels: Array, size: tuple[int, int], method: int) -> Array:
    """Resize an image to (height, width); return it unchanged if it already has that size."""
    if pixels.shape[:2] == size:
        return pixels
    result = opencv().resize(pixels, size[::-1], interpolation=method)
    return _with_channel_axis(result)


def rotate_quarters(pixels: Array, angle: int) -> Array:
    """Rotate an image counter-clockwise by a multiple of 90 degrees, exactly."""
    return np.ascontiguousarray(np.rot90(pixels, angle // 90 % 4))


def warp_affine(pixels: Array, warp: AffineWarp, method: int, fill: Sequence[float]) -> Array:
    """Warp an image; pixels outside it become `fill`, one value per channel."""
    cv2: Any = opencv()
    # warpAffine has no area interpolation; OpenCV itself would use bilinear instead.
    flags = _LINEAR if method == _AREA else method
    result = cv2.warpAffine(
        pixels,
        warp.matrix,
        (warp.width, warp.height),
        flags=flags,
        borderMode=cv2.BORDER_CONSTANT,
        borderValue=tuple(fill),
    )
    return _with_channel_axis(result)


def _with_channel_axis(pixels: Array) -> Array:
    """Add the channel axis that OpenCV drops for images with one channel."""
    return pixels if pixels.ndim == 3 else pixels[..., None]

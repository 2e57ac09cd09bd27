"""Where a picture is cut, and which matrix warps it: sizes and numbers in, sizes and numbers out.

Options are in `Options`; what is random is asked of `Draws`.

Pictures resized and warped by OpenCV, with the methods that it numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import ArgumentError, ShapeError
from ...memory import Array
from ..resize import opencv
from .options import ANY, AUTO, NO_LIMIT, Options
from .random import TRIES, Draws, Use


class Window(NamedTuple):
    """A part of a picture, in pixels; it may reach outside."""

    top: int
    left: int
    height: int
    width: int

    def of(self, pixels: Array, fill: Sequence[float]) -> Array:
        """The pixels in it: a view, or where it reaches outside new memory with `fill` there."""
        inside = max(0, self.top), max(0, self.left)
        ends = max(0, self.top + self.height), max(0, self.left + self.width)
        found = pixels[inside[0] : ends[0], inside[1] : ends[1]]
        if found.shape[:2] == (self.height, self.width):
            return found
        whole = np.empty((self.height, self.width, pixels.shape[2]), pixels.dtype)
        whole[...] = fill
        top, left = inside[0] - self.top, inside[1] - self.left
        whole[top : top + found.shape[0], left : left + found.shape[1]] = found
        return whole


class Canvas(NamedTuple):
    """What a picture is warped onto.

    matrix : float64 (2, 3)    takes a point (x, y, 1) of the picture to its place
    height, width : int
    """

    matrix: Array
    height: int
    width: int


def resized(height: int, width: int, shorter: int) -> tuple[int, int]:
    """The sides of a picture whose shorter one becomes `shorter`; the other is rounded down.

    >>> resized(375, 500, 256)
    (256, 341)
    """
    if height <= width:
        return shorter, max(1, shorter * width // height)
    return max(1, shorter * height // width), shorter


def is_warped(options: Options) -> bool:
    """Whether there is more to do to a picture than turning it by quarters."""
    turned = options.max_rotate_angle if options.rotate is None else options.rotate % 90
    return (
        turned != 0
        or options.max_shear_ratio != 0
        or (options.min_random_scale, options.max_random_scale) != (1, 1)
        or (options.ratios != (1, 1) and not options.random_resized_crop)
        or (options.min_img_size, options.max_img_size) != (0, NO_LIMIT)
    )


def warped(options: Options, draws: Draws, height: int, width: int) -> Canvas:
    """How a picture is turned, sheared and scaled, in this order, about its middle.

    What `rotate` turns by whole quarters is turned before, exactly.
    """
    angle = draws.whole(Use.ANGLE, -options.max_rotate_angle, options.max_rotate_angle)
    if options.rotate is not None:
        angle = options.rotate if options.rotate % 90 else 0
    shear = draws.uniform(Use.SHEAR, -options.max_shear_ratio, options.max_shear_ratio)
    scale = draws.uniform(Use.SCALE, options.min_random_scale, options.max_random_scale)
    ratio = draws.uniform(Use.ASPECT, *options.ratios)
    low, high = options.min_img_size, options.max_img_size
    canvas = tuple(max(low, min(high, scale * side)) for side in (width, height))
    if min(canvas) < 1:
        raise ShapeError(
            f"a picture of {height}x{width} at {scale:g} of its size has no pixels left; raise "
            "min_random_scale or min_img_size"
        )
    across = 2 * scale / (1 + ratio)
    stretch = np.array([[across, shear * ratio * across], [0, ratio * across]])
    matrix = _matrix(angle, stretch, np.array([width, height]), np.array(canvas))
    return Canvas(matrix, int(canvas[1]), int(canvas[0]))


def _matrix(angle: float, stretch: Array, size: Array, canvas: Array) -> Array:
    """Turned about the middle of its pixels, then stretched so that the middles of areas agree."""
    a, b = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    turn = np.array([[a, b], [-b, a]])
    middle = (size - 1) / 2
    offset = stretch @ (middle - turn @ middle) + (canvas - stretch @ size) / 2
    linear = stretch @ turn
    if np.array_equal(linear, np.eye(2)):  # cut or extended only: whole pixels stay what they are
        offset = np.floor(offset)
    return np.column_stack([linear, offset])


def area_window(options: Options, draws: Draws, height: int, width: int) -> Window:
    """The part of a picture that random_resized_crop takes: of random area, ratio and place.

    Where no try lies inside, it is as large a part of the middle as has the ratio of the result.
    """
    for number in range(TRIES):
        first = Use.TRY + 5 * number
        area = height * width * draws.uniform(
            first, options.min_random_area, options.max_random_area
        )  # fmt: skip
        ratio = draws.uniform(first + 1, *options.ratios)
        sides = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        rows, columns = sides[::-1] if draws.coin(first + 2) else sides
        if 1 <= rows <= height and 1 <= columns <= width:
            top = draws.whole(first + 3, 0, height - rows)
            return Window(top, draws.whole(first + 4, 0, width - columns), rows, columns)
    scale = min(height / options.height, width / options.width)
    rows = max(1, min(height, round(options.height * scale)))
    columns = max(1, min(width, round(options.width * scale)))
    return Window((height - rows) // 2, (width - columns) // 2, rows, columns)


def crop_window(options: Options, draws: Draws, height: int, width: int) -> Window:
    """The part of a picture that becomes the result, which is of its size or is resized to it.

    Raises ShapeError where the picture is too small.
    """
    size = options.height, options.width
    if options.max_crop_size is not None and options.min_crop_size is not None:
        size = (draws.whole(Use.SIDE, options.min_crop_size, options.max_crop_size),) * 2
    if size[0] > height or size[1] > width:
        raise ShapeError(
            f"the picture is {height}x{width} where it is cropped, smaller than {size[0]}x{size[1]}"
            "; resize=, pad= or random_resized_crop=True make it large enough"
        )
    top, left = height - size[0], width - size[1]
    places = [
        _place("crop_y_start", options.crop_y_start, top, options.rand_crop, draws, Use.TOP),
        _place("crop_x_start", options.crop_x_start, left, options.rand_crop, draws, Use.LEFT),
    ]
    return Window(places[0], places[1], *size)


def _place(name: str, fixed: int | None, last: int, is_random: bool, draws: Draws, use: int) -> int:
    if fixed is None:
        return draws.whole(use, 0, last) if is_random else last // 2
    if fixed > last:
        raise ShapeError(
            f"{name}={fixed}, but the last place of the crop in this picture is {last}; give that "
            "or less, or resize or pad pictures"
        )
    return fixed


_NEAREST, _LINEAR, _CUBIC, _AREA, _LANCZOS = range(5)


def check_opencv(why: str) -> None:
    """ArgumentError where OpenCV is not installed; `why` it is needed."""
    if opencv() is None:
        raise ArgumentError(
            f'{why} needs OpenCV, which is not installed: pip install "layoutkit[augment]"'
        )


def method_for(asked: int, draws: Draws, before: tuple[int, int], after: tuple[int, int]) -> int:
    """One of OpenCV's numbers 0 to 4: as asked, by the sizes before and after, or any of them."""
    if asked == ANY:
        return draws.whole(Use.METHOD, _NEAREST, _LANCZOS)
    if asked != AUTO:
        return asked
    if after[0] > before[0] and after[1] > before[1]:
        return _CUBIC
    return _AREA if after[0] < before[0] and after[1] < before[1] else _LINEAR


def resized_to(pixels: Array, size: tuple[int, int], method: int) -> Array:
    """A picture of another (height, width); itself where that is its own."""
    if pixels.shape[:2] == size:
        return pixels
    found = opencv().resize(pixels, size[::-1], interpolation=method)
    return _three_axes(found)


def turned(pixels: Array, angle: int) -> Array:
    """A picture turned counter-clockwise by quarters, exactly."""
    return np.ascontiguousarray(np.rot90(pixels, angle // 90 % 4))


def warped_onto(pixels: Array, canvas: Canvas, method: int, fill: Sequence[float]) -> Array:
    """What a matrix makes of a picture; `fill`, one a channel, is where there is no picture."""
    cv2: Any = opencv()
    # Warps know no areas: OpenCV itself would take bilinear ones.
    flags = _LINEAR if method == _AREA else method
    found = cv2.warpAffine(
        pixels, canvas.matrix, (canvas.width, canvas.height), flags=flags,
        borderMode=cv2.BORDER_CONSTANT, borderValue=tuple(fill),
    )  # fmt: skip
    return _three_axes(found)


def _three_axes(pixels: Array) -> Array:
    """OpenCV drops an axis of one channel."""
    return pixels if pixels.ndim == 3 else pixels[..., None]

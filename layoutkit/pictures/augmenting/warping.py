"""Pictures resized and warped by OpenCV, with the methods that it numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ArgumentError
from ...memory import Array
from ..fitting import opencv
from .draws import Draws, Use
from .options import ANY, AUTO
from .places import Canvas

__all__ = ["check_opencv", "method_for", "resized_to", "turned", "warped_onto"]

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

"""`Augmenter`: the bytes of a picture become an array, changed at random.

Knows one picture and its place among all; batches and files of many are known to its caller.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import ArgumentError, ShapeError
from ...checks import as_count
from ...memory import Array
from ..decoding import pillow
from ..pixels import Pixels, pixels_of
from . import places
from .colours import recoloured
from .draws import Draws, Use
from .finishing import Finish, check_layout
from .options import Options
from .warping import check_opencv, method_for, resized_to, turned, warped_onto

__all__ = ["Augmenter"]


@dataclass(frozen=True, eq=False)
class Augmenter(Options):
    """Decodes a picture and changes it at random, in the order of its keywords.
    """

    _: KW_ONLY
    layout: str = "chw"
    dtype: Any = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        as_count("seed", self.seed, None, ArgumentError)
        check_layout(self.layout)
        pillow()
        why = self._needs_opencv()
        if why:
            check_opencv(why)
        if self.mean_img is not None:
            mean = np.asarray(self.mean_img)
            if mean.dtype.kind not in "iuf":
                raise ArgumentError(f"mean_img is {self.mean_img!r}; it is an array of numbers")
            object.__setattr__(self, "mean_img", mean)
        _ = self._finish  # says what is wrong with dtype and shapes

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what it makes of a picture."""
        return self._finish.shape

    def __call__(
        self, data: Any, out: Array | None = None, *, epoch: int = 0, position: int = 0
    ) -> Array:
        """The picture of some bytes, in `out` if it is given.

        data : what `read` takes, or uint8 pixels (height, width, channels) that are decoded
        epoch, position : of what is random; the same ones give the same picture
        """
        draws = Draws(self.seed, epoch, position)
        found = self._pixels(data)
        pixels = self._cropped(self._placed(found, draws), draws)
        if self.has_colours:
            pixels = recoloured(pixels, self, draws)
        is_mirrored = self.mirror or (self.rand_mirror and draws.coin(Use.MIRROR))
        gain, lift = 1.0, 0.0
        if self.max_random_contrast:
            most = self.max_random_contrast
            gain = draws.uniform(Use.GAIN, 1 - most, 1 + most)
        if self.max_random_illumination:
            most = self.max_random_illumination
            lift = draws.uniform(Use.LIFT, -most, most)
        return self._finish(pixels, is_mirrored, gain, lift, out)

    def unaugmented(self) -> Augmenter:
        """What gives uint8 (channels, height, width) with nothing random, for a mean of all."""
        size = self.resize
        if self.random_resized_crop:
            size = max(self.height, self.width)
        return Augmenter(
            self.data_shape, dtype="uint8", resize=size, pad=self.pad, fill=self.fill,
            crop_y_start=self.crop_y_start, crop_x_start=self.crop_x_start,
            min_crop_size=self.max_crop_size, max_crop_size=self.max_crop_size,
            max_pixels=self.max_pixels,
        )  # fmt: skip

    @cached_property
    def _finish(self) -> Finish:
        return Finish(self, self.layout, self.dtype, self.mean_img)

    @cached_property
    def _is_warped(self) -> bool:
        return places.is_warped(self)

    def _needs_opencv(self) -> str:
        """Which option does, None of them where it is empty."""
        for name in ("resize", "random_resized_crop", "max_crop_size"):
            if getattr(self, name):
                return name
        if any((self.random_h, self.random_s, self.random_l)):
            return "random_h, random_s or random_l"
        return "turning, shearing or scaling pictures" if self._is_warped else ""

    def _pixels(self, data: Any) -> Pixels:
        if isinstance(data, np.ndarray) and data.ndim > 1:
            if data.ndim != 3 or data.shape[2] != self.channels or data.dtype != np.uint8:
                raise ShapeError(
                    f"the picture has shape {data.shape} and {data.dtype}; pixels that are decoded "
                    f"already are uint8 (height, width, {self.channels})"
                )
            return Pixels(data, *data.shape[:2])
        enough = None if self.resize is None else (self.resize, self.resize)
        return pixels_of(data, self.channels, enough, self.max_pixels)

    def _placed(self, found: Pixels, draws: Draws) -> Array:
        """Resized, and turned, sheared and scaled."""
        pixels = found.array
        if self.resize is not None:
            pixels = self._resized(pixels, places.resized(*found[1:], self.resize), draws)
        if self.random_resized_crop:
            window = places.area_window(self, draws, *pixels.shape[:2])
            pixels = window.of(pixels, self.fill)
            return self._resized(pixels, (self.height, self.width), draws)
        if self.rotate is not None and self.rotate % 90 == 0:
            pixels = turned(pixels, self.rotate)
        if not self._is_warped:
            return pixels
        canvas = places.warped(self, draws, *pixels.shape[:2])
        method = method_for(self.inter_method, draws, pixels.shape[:2], canvas[1:])
        return warped_onto(pixels, canvas, method, self.fill)

    def _resized(self, pixels: Array, size: tuple[int, int], draws: Draws) -> Array:
        method = method_for(self.inter_method, draws, pixels.shape[:2], size)
        return resized_to(pixels, size, method)

    def _cropped(self, pixels: Array, draws: Draws) -> Array:
        """The window that becomes the result, padded where it reaches outside."""
        height, width = (side + 2 * self.pad for side in pixels.shape[:2])
        window = places.crop_window(self, draws, height, width)
        window = window._replace(top=window.top - self.pad, left=window.left - self.pad)
        return self._resized(window.of(pixels, self.fill), (self.height, self.width), draws)

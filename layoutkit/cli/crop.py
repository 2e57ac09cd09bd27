"""The option --crop: a window of every image."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import ShapeError
from ..memory import Array
from ..options import CollateOptions, parse_collate_options
from ..planning.batch.arguments import CropArgs
from ..planning.batch.placement import place
from ..planning.centering import DEFAULT_CENTERING


@dataclass(frozen=True)
class Crop:
    """A window of every image.

    size : (height, width)
    offset : (top, left); None: in the middle, unless there is a seed
    seed : seed of a random offset, together with the index of the image
    center : the rounding of half of an odd margin in the middle
    """

    size: tuple[int, int]
    offset: tuple[int, int] | None = None
    seed: int | None = None
    center: str = DEFAULT_CENTERING

    @property
    def is_centered(self) -> bool:
        """True if the window is in the middle of every image."""
        return self.offset is None and self.seed is None

    def offset_for(self, number: int, height: int, width: int) -> tuple[int, int]:
        """Return the window's offset in an image; raise ShapeError if it does not fit."""
        offset = None if self.offset is None else dict(zip("hw", self.offset, strict=True))
        shapes = np.array([[height, width]], np.int64)
        axes = self._options.find_sample_axes(2)
        placements = place(self._options, axes, self.size, shapes, CropArgs(offset))
        if placements.outside.any():
            position = "" if self.offset is None else f" at {self.offset[0]},{self.offset[1]}"
            raise ShapeError(
                f"--crop {self.size[0]}x{self.size[1]}{position} reaches "
                f"beyond an image of {height}x{width} (height x width); "
                "give a smaller window, or --resize images before"
            )
        top, left = placements.begins[0].tolist()
        if self.seed is not None:
            draw = np.random.default_rng([self.seed, number])
            rooms = height - self.size[0], width - self.size[1]
            top, left = (int(draw.integers(0, room + 1)) for room in rooms)
        return top, left

    @cached_property
    def _options(self) -> CollateOptions:
        """The options of a Collator of windows of this size that may reach outside of images."""
        sizes = dict(zip("hw", self.size, strict=True))
        return parse_collate_options("hw->bhw", sizes, fill=0, center=self.center)

    def crop_image(self, pixels: Array, number: int) -> Array:
        """Return the window of one image, whose first axes are height and width."""
        top, left = self.offset_for(number, *pixels.shape[:2])
        return pixels[top : top + self.size[0], left : left + self.size[1]]

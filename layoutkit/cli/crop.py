"""The option --crop: a window of every image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import ShapeError
from ..memory import Array
from ..planning.centering import DEFAULT_CENTERING, centered_start


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
        margins = height - self.size[0], width - self.size[1]
        offsets = self.offset or (0, 0)
        if any(margin < offset for margin, offset in zip(margins, offsets, strict=True)):
            position = "" if self.offset is None else f" at {offsets[0]},{offsets[1]}"
            raise ShapeError(
                f"--crop {self.size[0]}x{self.size[1]}{position} reaches "
                f"beyond an image of {height}x{width} (height x width); "
                "give a smaller window, or --resize images before"
            )
        if self.seed is not None:
            draw = np.random.default_rng([self.seed, number])
            return tuple(int(draw.integers(0, margin + 1)) for margin in margins)  # type: ignore[return-value]
        if self.offset is not None:
            return offsets
        top, left = (centered_start(margin, self.center) for margin in margins)
        return top, left

    def crop_image(self, pixels: Array, number: int) -> Array:
        """Return the window of one image, whose first axes are height and width."""
        top, left = self.offset_for(number, *pixels.shape[:2])
        return pixels[top : top + self.size[0], left : left + self.size[1]]

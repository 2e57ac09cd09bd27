"""Photographs as records: the bytes of a file become pixels of one size.

As in `images.py`, a picture is upright and has three channels. It keeps its shape: it is scaled
until it covers the size that is asked for, and what juts out is cut off on both sides alike.

Knows one record at a time; batches and layouts are known to its caller.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from ..memory import Array
from .images import ORIENTATION, SIDEWAYS, pillow, to_rgb, upright

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Decoder"]

# A JPEG is decoded at an eighth, a quarter or half of its size while it stays this many times
# larger than the result: what is left to the filter keeps the pixels within a few units of those
# from the whole picture.
_SPARE = 2


class Decoder:
    """Decodes the bytes of a picture into uint8 (height, width, 3); a processor of batches.

    Raises what Pillow raises for a damaged picture, and ArgumentError for what is no picture.
    """

    def __init__(self, height: int, width: int) -> None:
        self.height, self.width = height, width

    def __call__(self, data: bytes, out: Array) -> Array:
        """Write the pixels into `out` and return it."""
        with self._opened(data) as image:
            self._draft(image)
            picture = to_rgb(upright(image))
        out[...] = np.asarray(self._fitted(picture))
        return out

    def _opened(self, data: bytes) -> Any:
        module = pillow()
        try:
            return module.open(io.BytesIO(data))
        except module.UnidentifiedImageError:
            raise ArgumentError("it is no picture of a kind that Pillow can read") from None

    def _draft(self, image: Image) -> None:
        size = self.width * _SPARE, self.height * _SPARE
        sideways = image.getexif().get(ORIENTATION) in SIDEWAYS
        image.draft(None, size[::-1] if sideways else size)

    def _fitted(self, picture: Image) -> Image:
        from PIL import ImageOps

        # Pillow's bilinear filter widens with the scale, so shrinking does not alias.
        return ImageOps.fit(picture, (self.width, self.height), pillow().Resampling.BILINEAR)

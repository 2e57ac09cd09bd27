"""The pixels of a picture's bytes, by whoever decodes them fastest.

simplejpeg where it is installed and the bytes are a JPEG that it reads, else Pillow: the same bits.
Knows one picture, and how large it has to be at least.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..memory import Array
from . import jpegs
from .decoding import as_rgb, check_pixels, opened, orientation_of, pillow, shrink_of, size_of

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Pixels", "pixels_of"]


class Pixels(NamedTuple):
    """A picture as it was decoded.

    array : uint8 (height, width, channels)    upright, perhaps at a fraction of its size
    height, width : int                        of the whole picture, upright
    """

    array: Array
    height: int
    width: int


def pixels_of(
    source: Any,
    channels: int = 3,
    enough: tuple[int, int] | None = None,
    most: int | None = None,
) -> Pixels:
    """Decode the bytes of a picture, or the file at a path; the pixels are not to be written to.

    Parameters
    ----------
    source : str, path, bytes or vector of uint8
        The file, or its bytes.
    channels : 1, 3 or 4
        Grey, as Pillow weighs colours; red, green and blue; the same with alpha, which is 255
        where the file has none.
    enough : (int, int), optional
        Height and width that it has to cover: a JPEG is decoded at a half, a quarter or an eighth
        of its size where that is still at least twice as large.
    most : int, optional
        Pixels that it may have, by default as many as Pillow allows; more are refused before they
        are decoded.

    Raises what `read` raises.
    """
    header = jpegs.header_of(source) if type(source) is bytes and channels != 4 else None
    if header is not None:
        found = _quick(source, header, channels, enough, most)
        if found is not None:
            return found
    with opened(source, most) as image:
        height, width = size_of(image)
        shrink = shrink_of(height, width, enough)
        if shrink > 1:
            image.draft(None, (image.width // shrink, image.height // shrink))
        upright = as_rgb(image, alpha=channels == 4)
        return Pixels(_array(upright, channels), height, width)


def _quick(
    data: bytes,
    header: jpegs.Header,
    channels: int,
    enough: tuple[int, int] | None,
    most: int | None,
) -> Pixels | None:
    """The pixels of a JPEG that lies upright; None where Pillow has to look at it."""
    height, width = header.height, header.width
    check_pixels(height, width, most)
    if header.may_turn and _is_turned(data, most):
        return None
    array = jpegs.decoded(data, header, shrink_of(height, width, enough))
    if array is None:
        return None
    if array.shape[2] != channels:
        grey = array.shape[2] == 1
        image = pillow().fromarray(array[..., 0] if grey else array)
        array = _array(image.convert("RGB") if grey else image, channels)
    return Pixels(array, height, width)


def _is_turned(data: bytes, most: int | None) -> bool:
    with opened(data, most) as image:
        return orientation_of(image) != 1


def _array(image: Image, channels: int) -> Array:
    array = np.asarray(image.convert("L") if channels == 1 else image)
    return array.reshape(*array.shape[:2], channels)

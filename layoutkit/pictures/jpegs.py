"""JPEGs decoded by simplejpeg, where it is installed: the bits that Pillow gives, in less time.

What it refuses, or decodes only with a warning, and every file of another kind is Pillow's. Knows
the bytes of one picture; whether it lies on its side is asked of Pillow, and only where the file
has a place to say so.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from .. import buffers
from ..memory import Array

__all__ = ["Header", "decoded", "header_of"]

_START = b"\xff\xd8\xff"
_BEGIN_OF_SCAN, _APP1 = 0xDA, 0xE1
_ALONE = {0x01, *range(0xD0, 0xD9)}  # markers without a length
_COLOURS = {"Gray": "GRAY", "YCbCr": "RGB", "RGB": "RGB"}


class Header(NamedTuple):
    """What a JPEG says of itself.

    height, width : int    as stored, before it is turned
    colours : str          "GRAY" or "RGB", as which it is decoded
    may_turn : bool        it has EXIF or XMP, which may say that it lies on its side
    """

    height: int
    width: int
    colours: str
    may_turn: bool


def header_of(data: bytes) -> Header | None:
    """The header of a JPEG that simplejpeg decodes; None for all else, and without simplejpeg."""
    library = _simplejpeg()
    if library is None or data[:3] != _START:
        return None
    try:
        height, width, colours, _ = library.decode_jpeg_header(data)
    except ValueError:
        return None
    if colours not in _COLOURS:
        return None  # CMYK, which Pillow makes red, green and blue of in a way of its own
    return Header(height, width, _COLOURS[colours], _has_app1(data))


def decoded(data: bytes, header: Header, shrink: int) -> Array | None:
    """Pixels (height, width, channels) at a whole fraction of their size, in new memory.

    shrink : 1, 2, 4 or 8. None where simplejpeg warns: Pillow then says what is wrong, or decodes.
    """
    height, width = (-(-side // shrink) for side in header[:2])
    channels = 1 if header.colours == "GRAY" else 3
    pixels = buffers.empty((height, width, channels), "uint8")
    try:
        _simplejpeg().decode_jpeg(
            data, header.colours, min_height=height, min_width=width, min_factor=shrink,
            buffer=pixels,
        )  # fmt: skip
    except ValueError:
        return None
    return pixels


@cache
def _simplejpeg() -> Any:
    """The module; None where it is not installed."""
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg


def _has_app1(data: bytes) -> bool:
    """Whether a segment before the pixels holds EXIF or XMP."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in (_APP1, _BEGIN_OF_SCAN):
            return marker == _APP1
        if marker == 0xFF:  # a byte of filling
            at += 1
        elif marker in _ALONE:
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return True  # Pillow, which knows more, looks

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
_FRAMES = (0xC0, 0xC1, 0xC2)  # markers of pictures: baseline, extended, progressive
_SCAN, _APP1 = 0xDA, 0xE1
_ALONE = {0x01, *range(0xD0, 0xD9)}  # markers without a length
_COLOURS = {1: "GRAY", 3: "RGB"}  # by components; those of CMYK Pillow has a way of its own for
_BITS = 8


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
    """The header of a JPEG that simplejpeg decodes; None for all else, and without simplejpeg.

    Read here, since to ask simplejpeg and then Pillow takes several times as long.
    """
    if _simplejpeg() is None or data[:3] != _START:
        return None
    at, end, may_turn, frame = 2, len(data) - 10, False, 0
    while at < end and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == _SCAN:
            return _header(data, frame, may_turn)
        if marker == 0xFF:  # a byte of filling
            at += 1
        elif marker in _ALONE:
            at += 2
        else:
            may_turn = may_turn or marker == _APP1
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
                frame = at
            at += 2 + (data[at + 2] << 8 | data[at + 3])
    return None


def _header(data: bytes, frame: int, may_turn: bool) -> Header | None:
    """What the frame at a place says."""
    if data[frame + 1] not in _FRAMES or data[frame + 4] != _BITS:
        return None
    height, width = (data[at] << 8 | data[at + 1] for at in (frame + 5, frame + 7))
    colours = _COLOURS.get(data[frame + 9])
    if not height or not width or colours is None:
        return None
    return Header(height, width, colours, may_turn)


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

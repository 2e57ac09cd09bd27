"""Files and bytes of pictures as upright RGB, three channels of uint8; Pillow decodes them.

A picture is turned as its EXIF orientation says, an alpha channel is dropped, grey, palette and
CMYK become RGB, and 16-bit grey is scaled to 8 bits. Knows one picture at a time, and no sizes but
the one below which it need not be decoded.

JPEGs decoded by simplejpeg, where it is installed: the bits that Pillow gives, in less time.

What it refuses, or decodes only with a warning, and every file of another kind is Pillow's. Knows
the bytes of one picture; whether it lies on its side is asked of Pillow, and only where the file
has a place to say so.

The pixels of a picture's bytes, by whoever decodes them fastest.

simplejpeg where it is installed and the bytes are a JPEG that it reads, else Pillow: the same bits.
Knows one picture, and how large it has to be at least.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import buffers
from .._utils.validation import kind_text
from ..errors import ArgumentError, DataError, LayoutkitError
from ..memory import Array

if TYPE_CHECKING:
    from PIL.Image import Image


# What allows a picture of more pixels; the command line says it in words of its own.
ALLOW_MORE = "raise PIL.Image.MAX_IMAGE_PIXELS"

_ORIENTATION = 0x0112  # the EXIF tag
_SIDEWAYS = range(5, 9)  # its values that swap height and width
_MAX_16_BIT = 65535
_GREY_OF_16_BITS = ("I", "I;16", "I;16B", "I;16L", "I;16N")

# A JPEG is decoded at an eighth, a quarter or half of its size while it stays this many times
# larger than what is needed: what is left to the filter keeps the pixels within a few units of
# those from the whole picture.
_SPARE = 2


def read(source: Any) -> Array:
    """A picture as uint8 (height, width, 3): upright, channels red, green, blue.

    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("L", (4, 2), 200).save(file, "PNG")
    >>> read(file.getvalue()).tolist()[0][0], read(file.getvalue()).shape
    ([200, 200, 200], (2, 4, 3))

    Parameters
    ----------
    source : str, path, bytes or vector of uint8
        The file, or its bytes. Of an animation the first picture is read.

    Returns
    -------
    array
        New memory, which may be written to. Alpha is dropped, not blended; grey, palette and CMYK
        become RGB, and 16-bit grey is scaled to 8 bits.

    Raises
    ------
    DataError
        It is no picture, or a damaged one; grey values that are floats or do not fit 16 bits; more
        pixels than PIL.Image.MAX_IMAGE_PIXELS, as a decompression bomb has.
    OSError
        There is no such file, or it may not be read.
    ArgumentError
        Pillow is not installed, or `source` is none of these.
    """
    with opened(source) as image:
        return np.array(as_rgb(image))


@contextmanager
def opened(source: Any, most: int | None = None) -> Iterator[Image]:
    """The picture in a file or in bytes, for the block, in which whatever it raises is named.

    most : pixels that it may have; by default as many as Pillow allows. What `read` raises is
    raised here.
    """
    module = pillow()
    file, name = _file_of(source)
    with _named(name):
        try:
            image = module.open(file)
        except module.UnidentifiedImageError:
            raise ValueError("it is of no kind that Pillow can read") from None
        except module.DecompressionBombError:
            raise _bomb(f"it has more than twice {module.MAX_IMAGE_PIXELS:,} pixels") from None
        with image:
            width, height = image.size
            check_pixels(height, width, most)
            yield image


def shrink_of(height: int, width: int, enough: tuple[int, int] | None) -> int:
    """At which fraction of its size, 1, 2, 4 or 8, a JPEG is decoded that has to cover `enough`."""
    if enough is None:
        return 1
    spare = min(height // (enough[0] * _SPARE), width // (enough[1] * _SPARE))
    return next((shrink for shrink in (8, 4, 2) if spare >= shrink), 1)


def as_rgb(image: Image, alpha: bool = False) -> Image:
    """The picture upright, in red, green and blue; DataError where grey values do not fit.

    alpha : with a fourth channel, which is 255 where the file has none.
    """
    from PIL import ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode == "F" or image.mode in _GREY_OF_16_BITS:
        image = _eight_bit_grey(image)
    if alpha:
        return image.convert("RGBA")
    # Alpha is dropped; Pillow would warn of that where a palette carries it.
    image.info.pop("transparency", None)
    return image.convert("RGB")


def upright_size(source: Any) -> tuple[int, int]:
    """Height and width of a picture, as its header says; what `read` raises."""
    with opened(source) as image:
        return size_of(image)


def size_of(image: Image) -> tuple[int, int]:
    """Height and width of an opened picture, as it is upright."""
    width, height = image.size
    return (width, height) if orientation_of(image) in _SIDEWAYS else (height, width)


def orientation_of(image: Image) -> int:
    """How it was turned when it was stored, 1 for not at all, as EXIF numbers it."""
    found: Any = image.getexif().get(_ORIENTATION)
    return int(found) if found in range(2, 9) else 1


def pillow() -> Any:
    """The module `PIL.Image`; an ArgumentError where Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        message = 'pictures need Pillow, which is not installed: pip install "layoutkit[images]"'
        raise ArgumentError(message) from error
    return Image


def _file_of(source: Any) -> tuple[Any, str | None]:
    """What Pillow opens, and what errors call it; None for bytes."""
    if isinstance(source, str | os.PathLike):
        if "://" in os.fsdecode(source):
            raise ArgumentError(
                f"{source} is a URL; read gives the picture of a path or of bytes, and "
                "layoutkit.data.sampled_batcher(..., size=) those of URLs in a table"
            )
        return source, os.fsdecode(source)
    if isinstance(source, np.ndarray) and (source.ndim != 1 or source.dtype != np.uint8):
        raise ArgumentError(
            f"an array of shape {source.shape} and {source.dtype} is no file's bytes, which are a "
            "vector of uint8; pixels need no reading: pictures.fit takes them"
        )
    try:
        return io.BytesIO(source if isinstance(source, bytes) else bytes(memoryview(source))), None
    except TypeError:
        raise ArgumentError(
            f"a picture is read from a path or from bytes, not from {kind_text(source)}"
            f"{_instead_of(source)}"
        ) from None


def _instead_of(source: Any) -> str:
    """What to do with something that is no file's name and no bytes."""
    if hasattr(source, "read"):
        return "; pass what its read() gives"
    if hasattr(source, "__array_interface__"):
        return ", which needs no reading: pictures.fit and convert take it"
    return ""


@contextmanager
def _named(name: str | None) -> Iterator[None]:
    """Turn whatever a decoder raises into an error that names the picture."""
    where = "" if name is None else f"{name}: "
    try:
        yield
    except DataError as error:
        raise DataError(f"{where}{error}") from error
    except (LayoutkitError, MemoryError):
        raise
    # Decoders raise OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error and
    # more on damaged files; there is no common base class to catch.
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:  # the system's, of the file
            raise
        raise DataError(
            f"{where}cannot be read as a picture ({error}); mend it or take it away"
        ) from error


def check_pixels(height: int, width: int, most: int | None) -> None:
    """Raise where Pillow would only warn: a small file may hold more than the memory.

    most : pixels that it may have; None for as many as Pillow allows
    """
    limit = pillow().MAX_IMAGE_PIXELS if most is None else most
    if limit is not None and width * height > limit:
        fix = ALLOW_MORE if most is None else "raise max_pixels"
        raise _bomb(f"{height}x{width} are {width * height:,} pixels, more than {limit:,}", fix)


def _bomb(words: str, fix: str = ALLOW_MORE) -> DataError:
    return DataError(f"{words}, as of a decompression bomb; {fix} if you trust it")


def _eight_bit_grey(image: Image) -> Image:
    """Scale 0..65535 to 0..255 (Pillow itself would clip at 255)."""
    values = np.asarray(image)
    if values.dtype.kind == "f":
        raise DataError(
            f"its grey values are floats from {values.min():g} to {values.max():g}, and nothing "
            "says which of them is white; save it with 8 or 16 bits, or the values as a .npy file"
        )
    if values.min() < 0 or values.max() > _MAX_16_BIT:
        raise DataError(
            f"its grey values are from {values.min()} to {values.max()}, outside 0..{_MAX_16_BIT}; "
            "save it with 8 or 16 bits"
        )
    scaled = np.rint(values / np.float32(_MAX_16_BIT / 255))
    grey: Image = pillow().fromarray(scaled.astype(np.uint8))
    return grey


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
    header = header_of(source) if type(source) is bytes and channels != 4 else None
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
    header: Header,
    channels: int,
    enough: tuple[int, int] | None,
    most: int | None,
) -> Pixels | None:
    """The pixels of a JPEG that lies upright; None where Pillow has to look at it."""
    height, width = header.height, header.width
    check_pixels(height, width, most)
    if header.may_turn and _is_turned(data, most):
        return None
    array = decoded(data, header, shrink_of(height, width, enough))
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

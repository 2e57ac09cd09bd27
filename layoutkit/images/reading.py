"""Decode image files and encoded bytes to upright pixels: colors, gray or class numbers.

`ReadOptions` decides what the pixels become, for `read`, `Reader` and `Decoder`. By default they
are uint8 RGB: the EXIF orientation is applied, an alpha channel is dropped, gray, palette and CMYK
become RGB, and 16-bit values v are rounded to v / 257.

Pillow decodes all formats. JPEGs are decoded by simplejpeg if it is installed: the same bits in
less time. Pillow decodes JPEGs that simplejpeg rejects or decodes only with a warning, and
it reads the EXIF orientation of JPEGs that have a segment for it. `UprightJpeg.decode` can stop
after some rows.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Never, cast

import numpy as np

from .. import buffers
from .._utils.errors import as_data_errors, explain_missing, prefix_errors, reason
from .._utils.spelling import find_choice, find_similar
from .._utils.validation import as_int, check_bool, check_choice, describe_type, show
from ..errors import ArgumentError, DataError
from ..memory import Array
from .suffixes import DECODERS

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile


# How to allow more pixels; layoutkit/cli/printing.py replaces this text by its own option.
ALLOW_MORE = "raise PIL.Image.MAX_IMAGE_PIXELS"
_FIX = "repair or remove it"

_ORIENTATION_TAG = 0x0112  # of EXIF
_BITS_TAG, _SAMPLES_TAG, _PLANES_TAG, _SAMPLE_FORMAT_TAG = 258, 277, 284, 339  # of TIFF
_SEPARATE_PLANES = 2
# By sample format (1: unsigned, 2: signed) and bits, where Pillow's dtype is another one.
_TIFF_DTYPES = {(1, 32): np.uint32, (2, 16): np.int16, (2, 8): np.int8}
_SWAPPED_ORIENTATIONS = range(5, 9)  # EXIF orientations that swap height and width
_MAX_8_BIT = 255
_MAX_16_BIT = 65535
_MAX_12_BIT = 4095
_GRAY_16_BIT_MODES = ("I", "I;16", "I;16B", "I;16L", "I;16N")
# The most channels of the pixels that a decoder of another package returns, by dtype.
_DECODED_CHANNELS = {"uint8": 4, "uint16": 4, "int32": 1, "float32": 1}
_COLOR_16_BIT_MODES = ("RGB", "RGBX", "RGBA", "CMYK")  # raw modes of files, before ";16"
_OTHER_BYTE_ORDERS = {"B": "L", "L": "B", "N": "B" if sys.byteorder == "little" else "L"}

CHANNELS = {"rgb": 3, "rgba": 4, "gray": 1}  # by mode
MODES = (*CHANNELS, "index", "unchanged")

# Formats that keep values exactly. Pillow scales the gray values of others, such as PGM, or their
# compression changes them.
_FORMATS_OF_CLASS_NUMBERS = ("PNG", "TIFF", "GIF", "BMP", "PCX", "TGA")
_MODES_OF_CLASS_NUMBERS = ("1", "L", "P", *_GRAY_16_BIT_MODES)
# Pillow multiplies gray values of 2 and 4 bits, so that white is 255.
_GRAY_SCALES = {"2": 85, "4": 17}

# A JPEG is decoded at an eighth, a quarter or half of its size while it stays this many times
# larger than needed. The filter that does the rest keeps the pixels within a few units of a
# full decode.
_OVERSAMPLING = 2

# Keywords of other libraries that say what the pixels of a file become: yes or no, or a number.
_GRAY_KEYWORDS = ("as_gray", "as_grey", "gray", "grey", "grayscale", "greyscale", "to_gray")
_COLOR_KEYWORDS = ("as_color", "color", "colored", "is_color", "rgb", "to_rgb")
_COUNT_KEYWORDS = ("channels", "desired_channels", "n_channels", "num_channels")
_MODE_KEYWORDS = ("color_mode", "colorspace", "convert", "flags", "image_type", "pilmode")


class ReadOptions(NamedTuple):
    """The checked options of `read`: what the pixels of a file become."""

    mode: str = "rgb"  # one of MODES
    background: tuple[int, int, int] | None = None  # the color under alpha; None: alpha is dropped
    frames: str | tuple[int, ...] | None = None  # "all" or numbers; None: the first, without t
    to_srgb: bool = False  # True: colors are converted from the ICC profile of the file


_DEFAULT_OPTIONS = ReadOptions()


def parse_read_options(
    mode: Any, background: Any, frames: Any = None, to_srgb: Any = False
) -> ReadOptions:
    """Return the options; raise ArgumentError if one is invalid or has no effect."""
    check_choice("mode", mode, MODES, ArgumentError)
    if check_bool("to_srgb", to_srgb, ArgumentError) and mode not in CHANNELS:
        raise ArgumentError(
            f"to_srgb=True converts colors of 8 bits, but mode={mode!r} keeps the stored values; "
            'omit to_srgb, or give mode="rgb", "rgba" or "gray"'
        )
    color = None if background is None else _parse_background(background, mode)
    return ReadOptions(mode, color, _parse_frames(frames), bool(to_srgb))


def find_mode(name: str, value: Any) -> str | None:
    """Return the `mode` that a keyword of another library asks for; None for other keywords.

    >>> find_mode("as_gray", True), find_mode("channels", 4), find_mode("color_mode", "L")
    ('gray', 'rgba', 'gray')
    """
    if name in _GRAY_KEYWORDS:
        return "gray" if value else "rgb"
    if name in _COLOR_KEYWORDS:
        return "rgb" if value else "gray"
    if name in _COUNT_KEYWORDS:
        counts = {count: mode for mode, count in CHANNELS.items()}
        return counts.get(value) if isinstance(value, int) else None
    return find_choice(value, MODES) if name in _MODE_KEYWORDS else None


def make_mode_error(function: str, name: str, value: Any, known: Sequence[str]) -> ArgumentError:
    """Return the error for an unknown keyword of `read`, a Reader or a Decoder."""
    mode = find_mode(name, value)
    similar = find_similar(name, known)
    cure = f"there are {', '.join(known)}" if similar is None else f"did you mean {similar}=?"
    if mode is not None:
        cure = f'give mode="{mode}"'
    return ArgumentError(f"{function} has no {name}=; {cure}")


def _parse_background(background: Any, mode: str) -> tuple[int, int, int]:
    if mode not in ("rgb", "gray"):
        raise ArgumentError(
            f"background={show(background)} replaces alpha in mode='rgb' and mode='gray', but mode "
            f"is {mode!r}; omit background, or give one of these modes"
        )
    is_one = not isinstance(background, Sequence) and getattr(background, "ndim", 0) == 0
    values = [background] * 3 if is_one or isinstance(background, bytes) else background
    color = [as_int(value) for value in values]
    if len(color) != 3 or not all(x is not None and 0 <= x <= _MAX_8_BIT for x in color):
        raise ArgumentError(
            f"background is {show(background)}; it must be an integer in 0..255, or three of them"
        )
    return color[0], color[1], color[2]  # type: ignore[return-value]  # none is None


def _parse_frames(frames: Any) -> str | tuple[int, ...] | None:
    if frames is None or (isinstance(frames, str) and frames == "all"):
        return frames
    is_sequence = isinstance(frames, Iterable) and not isinstance(frames, str | bytes)
    numbers = [as_int(number) for number in frames] if is_sequence else []
    if not numbers or None in numbers:
        raise ArgumentError(
            f'frames is {show(frames)}; it must be "all" or numbers of frames, such as range(8)'
        )
    return tuple(number for number in numbers if number is not None)


def read(
    source: Any,
    mode: str = "rgb",
    *,
    background: Any = None,
    frames: Any = None,
    to_srgb: bool = False,
    **unknown: Never,
) -> Array:
    """Decode an image to upright pixels, by default uint8 RGB (height, width, 3).

    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("L", (4, 2), 200).save(file, "PNG")
    >>> read(file.getvalue()).tolist()[0][0], read(file.getvalue()).shape
    ([200, 200, 200], (2, 4, 3))
    >>> read(file.getvalue(), "index").shape
    (2, 4)

    Parameters
    ----------
    source : str, path, bytes or vector of uint8
        The file, or its bytes.
    mode : "rgb", "rgba", "gray", "index" or "unchanged"
        "rgb", "rgba" and "gray" are uint8 (height, width, 3, 4 or 1). Gray is weighted as Pillow
        does, and alpha is 255 if the file has none. "index" reads class numbers: the stored values
        (height, width) of a palette or gray image, never its colors, as uint8, or as uint16 or
        a 32-bit integer if the file has more bits. "unchanged" keeps the dtype and the channels of
        the file: (height, width, channels), where a palette becomes RGB or RGBA and fewer than 8
        bits become 8. Color keys, which make one color transparent, are not channels.
    background : int or 3 ints, optional
        With "rgb" and "gray": the color, 0 to 255, under pixels that are transparent. Without it,
        alpha is dropped, which shows the colors that transparent pixels hide.
    frames : "all" or sequence of int, optional
        Numbers of frames of an animation, or of pages of a TIFF: the result has another axis for
        them, the first one. Negative numbers count from the end. By default, the first frame is
        read, without that axis.
    to_srgb : bool
        With "rgb", "rgba" and "gray": convert the colors of a file that has an ICC profile to sRGB,
        by Pillow's ImageCms and the intent of the profile. By default, profiles are ignored.

    Returns
    -------
    array
        New, writable memory. Gray, palette and CMYK become RGB, and values v of 16 bits are rounded
        to v / 257, gray of 12 bits to v / 4095 * 255. (Pillow keeps the high byte of 16-bit colors
        in SGI and JPEG 2000 files, and so does this function.) TIFFs that have more bits or bands
        than Pillow reads need tifffile and mode="unchanged".

    Raises
    ------
    DataError
        The source is not an image, or is damaged; its gray values are floats or do not fit 16 bits;
        it has no class numbers; its ICC profile is damaged or is for other pixels; a frame does not
        exist, or frames differ in shape; or it has more pixels than PIL.Image.MAX_IMAGE_PIXELS (a
        possible decompression bomb). All frames count, and a pixel of more than four bands counts
        once per four bands.
    OSError
        The file does not exist or cannot be read.
    ArgumentError
        Pillow or, where it is needed, tifffile is not installed, `source` has another type, another
        argument is invalid, or a keyword does not exist (the message names the `mode`).
    """
    others: Mapping[str, Any] = unknown
    for name, value in others.items():
        raise make_mode_error("read", name, value, ("mode", "background", "frames", "to_srgb"))
    pixels = decode_pixels(source, parse_read_options(mode, background, frames, to_srgb)).array
    return pixels if pixels.flags.writeable else pixels.copy()


@contextmanager
def open_image(source: Any, max_pixels: int | None = None) -> Iterator[Image]:
    """Open an image file or encoded bytes; errors raised in the block name the file.

    max_pixels : the most pixels that are accepted; by default Pillow's limit. Raises the errors of
    `read`.
    """
    with _open_source(source) as file, _open_with_pillow(file, max_pixels) as image:
        yield image


def is_recognized(path: str | os.PathLike[str]) -> bool:
    """Return True if Pillow or a decoder of another package knows the format of a file.

    The file may be damaged. Raises the errors of `read` if it cannot be opened, or is too large.
    """
    with _open_source(path) as file:
        return _identify(file) is not None or _find_decoder(file, []) is not None


def _open_with_pillow(file: IO[bytes], max_pixels: int | None) -> ImageFile:
    image = _identify(file)
    if image is None:
        image = _open_with_decoder(file)
    width, height = image.size
    check_pixel_count(height, width, max_pixels)
    return image


def _identify(file: IO[bytes]) -> Any:
    """Return the image that Pillow opens; None for formats that it does not decode."""
    module = pillow()
    from PIL.ImageFile import StubImageFile

    file.seek(0)
    try:
        image = module.open(file)
    except module.UnidentifiedImageError:
        return None
    except module.DecompressionBombError:
        raise _bomb_error(f"it has more than twice {module.MAX_IMAGE_PIXELS:,} pixels") from None
    return None if isinstance(image, StubImageFile) else image  # such as HDF5


def _open_with_decoder(file: IO[bytes]) -> Any:
    """Return the image of the first decoder of another package that accepts a file.

    Raises ValueError if there is none, with the decoders that do not load, or if it fails.
    """
    problems = [', but mode="unchanged" may read this TIFF'] if _is_tiff(file) else []
    match = _find_decoder(file, problems)
    if match is None:
        raise ValueError(f"its format is not one that Pillow can read{''.join(problems)}")
    name, decoder = match
    file.seek(0)
    try:
        pixels = decoder.decode(file.read())
        array = np.asarray(pixels)
    except MemoryError:
        raise
    except Exception as error:  # a package may raise anything
        raise ValueError(f"the decoder {name} failed: {reason(error)}") from error
    _check_decoded(array, name, pixels)
    return _image_of(array, name)


def _find_decoder(file: IO[bytes], problems: list[str]) -> tuple[str, Any] | None:
    """Return the name and the first decoder of another package that accepts a file, or None.

    A clause about each decoder that does not load or raises an exception is added to `problems`.
    """
    data = None
    for name in DECODERS:
        try:
            decoder = DECODERS.find(name)
            if decoder is None:
                continue
            if data is None:
                file.seek(0)
                data = file.read()
            if decoder.accepts(data):
                return name, decoder
        except ArgumentError as error:
            problems.append(f"; {error}")
        except Exception as error:  # a package may raise anything
            problems.append(f"; the decoder {name} failed: {reason(error)}")
    return None


def _check_decoded(array: Array, name: str, pixels: Any) -> None:
    """Raise DataError unless the pixels that a decoder returned, as an array, are an image."""
    channels = (*array.shape, 1)[2] if array.ndim in (2, 3) else 0
    if not array.size or not 1 <= channels <= _DECODED_CHANNELS.get(array.dtype.name, 0):
        result = f"{array.dtype} {array.shape}" if array.ndim else describe_type(pixels)
        raise DataError(
            f"the decoder {name} returned {result}, but (height, width) or (height, width, 1 to 4) "
            "of uint8 or uint16, or (height, width) of int32 or float32 is needed; correct the "
            "decoder, or update its package"
        )


def _image_of(array: Array, name: str) -> Any:
    """Return the image of the pixels of a decoder, with 16-bit colors in `colors_16_bit`."""
    shape = array.shape[:2] if array.shape[2:] == (1,) else array.shape
    # A copy, because a decoder may use its memory again.
    values = array.reshape(shape).astype(array.dtype.newbyteorder("="))
    has_deep_colors = values.dtype == np.uint16 and values.ndim > 2
    pixels = (values >> 8).astype(np.uint8) if has_deep_colors else values
    image: Any = pillow().fromarray(pixels)
    image.colors_16_bit = values if has_deep_colors else None  # which Pillow cannot hold
    image.format = name.upper()
    image.tile = []  # as of a file that is loaded
    return image


def shrink_factor(height: int, width: int, min_size: tuple[int, int] | None) -> int:
    """Return the factor, 1, 2, 4 or 8, by which a JPEG decoder may shrink and cover `min_size`."""
    if min_size is None:
        return 1
    spare = min(height // (min_size[0] * _OVERSAMPLING), width // (min_size[1] * _OVERSAMPLING))
    return next((shrink for shrink in (8, 4, 2) if spare >= shrink), 1)


def _to_colors(image: Image, options: ReadOptions, white: int) -> Array:
    """Return the pixels of an upright image; raise DataError if its gray values do not fit.

    white : the largest gray value of a file of more than 8 bits
    """
    if image.mode == "F" or image.mode in _GRAY_16_BIT_MODES:
        image = _to_8_bit_gray(image, white)
    if options.to_srgb:
        image = _to_srgb(image)
    if options.mode == "rgba":
        return np.asarray(image.convert("RGBA"))
    if options.background is not None and image.has_transparency_data:
        image = _put_over(image, options.background)
    # Alpha is dropped; Pillow would warn about that if it is in a palette.
    image.info.pop("transparency", None)
    return _pixel_array(image.convert("RGB"), CHANNELS[options.mode])


# The mode of images by the color space of ICC profiles.
_PROFILE_MODES = {"RGB": "RGB", "GRAY": "L", "CMYK": "CMYK"}
_GRAY_MODES = ("1", "L", "LA")


def _to_srgb(image: Image) -> Image:
    """Return an image in sRGB, converted from its ICC profile; unchanged if it has none."""
    data = image.info.get("icc_profile")
    if not data:
        return image
    from PIL import ImageCms

    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(data))
        colors: Any = ImageCms.profileToProfile(
            _to_profile_mode(image, profile.profile.xcolor_space.strip()),
            profile,
            ImageCms.createProfile("sRGB"),
            ImageCms.Intent(profile.profile.rendering_intent),
            "RGB",
        )
    except (ImageCms.PyCMSError, OSError, ValueError) as error:
        raise DataError(f"its ICC profile cannot be used ({error}); omit to_srgb") from None
    if image.has_transparency_data:
        colors.putalpha(image.convert("RGBA").getchannel("A"))
    return colors


def _to_profile_mode(image: Image, space: str) -> Image:
    """Return an image in the mode of a profile's color space; raise ValueError if it differs."""
    mode = _PROFILE_MODES.get(space)
    is_gray = image.mode in _GRAY_MODES
    if mode is None or (mode == "L") > is_gray or (mode == "CMYK") != (image.mode == "CMYK"):
        raise ValueError(f"it is for {space} pixels, but the file has {image.mode}")
    if image.mode == "P" and image.has_transparency_data:
        image = image.convert("RGBA")  # Pillow would warn about the palette's alpha
    return image if image.mode == mode else image.convert(mode)


def _put_over(image: Image, background: tuple[int, int, int]) -> Image:
    """Return an image over a color: the mean of both, weighted by alpha and rounded."""
    pixels = np.asarray(image.convert("RGBA")).astype(np.uint16)
    alpha = pixels[..., 3:]
    # At most 255 * 255 + 127, which 16 bits hold.
    mixed = pixels[..., :3] * alpha + np.array(background, np.uint16) * (_MAX_8_BIT - alpha)
    mixed += _MAX_8_BIT // 2
    return pillow().fromarray((mixed // _MAX_8_BIT).astype(np.uint8))


def _to_class_numbers(upright: Image, image: ImageFile, raw_mode: str) -> Array:
    """Return the stored values (height, width) of a palette or gray image.

    raw_mode : Pillow's name of the pixel format of `image`, the file before it is upright
    """
    if image.format not in _FORMATS_OF_CLASS_NUMBERS or image.info.get("compression") == "jpeg":
        raise DataError(
            f"it is a {image.format} image, whose values may differ from the class numbers that "
            f'were saved; save it as PNG, or give mode="gray" to read its gray values'
        )
    if upright.mode not in _MODES_OF_CLASS_NUMBERS:
        raise DataError(
            f"its pixels are {upright.mode} colors, not class numbers, which are a palette or gray "
            'image; give mode="rgb" and compare the colors with those of the classes'
        )
    values = _stored_array(upright, image)
    if values.dtype == np.bool_:
        values = values.astype(np.uint8)
    kind, _, details = raw_mode.partition(";")  # such as L;2I: gray, 2 bits, 0 is white
    if "I" in details:
        values = (1 if upright.mode == "1" else _MAX_8_BIT) - values
    if kind == "L":
        values = values // _GRAY_SCALES.get(details[:1], 1)
    return values


def _to_channels(upright: Image, image: ImageFile) -> Array:
    """Return the pixels (height, width, channels) in the dtype of the file.

    image : the file, which has the tags of a TIFF, before it is upright
    """
    if upright.mode in ("P", "PA"):
        upright = upright.convert("RGBA" if upright.has_transparency_data else "RGB")
    elif upright.mode == "1":
        upright = upright.convert("L")
    values = _stored_array(upright, image)
    return values.reshape(*values.shape[:2], -1)


def _stored_array(upright: Image, image: ImageFile) -> Array:
    """Return the array of an image in the dtype of its file, which Pillow widens for TIFFs."""
    values = np.asarray(upright)
    tags = getattr(image, "tag_v2", {})
    key = tags.get(_SAMPLE_FORMAT_TAG, (1,))[0], tags.get(_BITS_TAG, (1,))[0]
    dtype = _TIFF_DTYPES.get(key, values.dtype.newbyteorder("="))
    return values.astype(dtype, copy=False)


def pixels_of(image: Image) -> Array:
    """Return the pixels of an image of Pillow as upright RGB, (height, width, 3)."""
    from PIL.ImageOps import exif_transpose

    return _to_colors(exif_transpose(image), _DEFAULT_OPTIONS, _MAX_16_BIT)


def upright_size(source: Any) -> tuple[int, int]:
    """Return the upright height and width from an image's header; raise the errors of `read`."""
    with open_image(source) as image:
        return upright_size_of(image)


def upright_size_of(image: Image) -> tuple[int, int]:
    """Return the upright height and width of an opened image."""
    orientation = exif_orientation(image)  # before the size: Pillow may load the image for it
    width, height = image.size
    # The size that Pillow gives for a TIFF is upright by the tag of the file.
    is_upright = getattr(image, "tag_v2", {}).get(_ORIENTATION_TAG) in _SWAPPED_ORIENTATIONS
    is_swapped = orientation in _SWAPPED_ORIENTATIONS and not is_upright
    return (width, height) if is_swapped else (height, width)


def exif_orientation(image: Image) -> int:
    """Return the EXIF orientation of the stored pixels, 1 (upright) to 8."""
    orientation: Any = image.getexif().get(_ORIENTATION_TAG)
    return int(orientation) if orientation in range(2, 9) else 1


def pillow() -> Any:
    """Return the module `PIL.Image`; raise ArgumentError if Pillow is not installed."""
    with explain_missing("images need Pillow", "images"):
        from PIL import Image
    return Image


@contextmanager
def _open_source(source: Any) -> Iterator[IO[bytes]]:
    """Open a path or encoded bytes as a file; errors raised in the block name the path.

    Pillow gets a file and never a path: it maps uncompressed files at a path into memory, with the
    sides of a TIFF swapped if its orientation swaps them.
    """
    if not isinstance(source, str | os.PathLike):
        with as_data_errors("", noun="an image", fix=_FIX):
            yield io.BytesIO(_as_bytes(source))
        return
    name = os.fsdecode(source)
    if "://" in name:
        raise ArgumentError(
            f"{source} is a URL; read needs a path or bytes. To read the images of URLs in a "
            "table, use layoutkit.data.sampled_batcher(..., size=)"
        )
    with (
        prefix_errors(f"{name}: ", DataError),
        as_data_errors("", noun="an image", fix=_FIX),
        open(source, "rb") as file,  # noqa: PTH123
    ):
        yield file


def _as_bytes(source: Any) -> bytes:
    if isinstance(source, np.ndarray) and (source.ndim != 1 or source.dtype != np.uint8):
        raise ArgumentError(
            f"an array of shape {source.shape} and dtype {source.dtype} cannot be the bytes of a "
            "file, which are a vector of uint8; pass decoded pixels to images.fit instead"
        )
    try:
        return source if isinstance(source, bytes) else bytes(memoryview(source))
    except TypeError:
        raise ArgumentError(
            f"an image is read from a path or from bytes, not from {describe_type(source)}"
            f"{_hint_for(source)}"
        ) from None


def _hint_for(source: Any) -> str:
    """Return advice on a source that is neither a path nor bytes."""
    if hasattr(source, "read"):
        return "; pass the result of its read()"
    if hasattr(source, "__array_interface__"):
        return ", which is decoded already: pass it to images.fit or convert"
    return ""


def check_pixel_count(height: int, width: int, max_pixels: int | None, images: int = 1) -> None:
    """Raise DataError if there are too many pixels, for which Pillow would only warn.

    A small file can decode to more than the memory.

    max_pixels : the most pixels that are accepted; None for Pillow's limit
    images : the number of images of this size, such as frames
    """
    limit = pillow().MAX_IMAGE_PIXELS if max_pixels is None else max_pixels
    count = width * height * images
    if limit is not None and count > limit:
        fix = ALLOW_MORE if max_pixels is None else "raise max_pixels"
        size = f"{height}x{width}" if images == 1 else f"{images} images of {height}x{width}"
        raise _bomb_error(f"{size} are {count:,} pixels, more than {limit:,}", fix)


def _bomb_error(reason: str, fix: str = ALLOW_MORE) -> DataError:
    return DataError(f"{reason}, possibly a decompression bomb; {fix} if you trust it")


def _to_8_bit_gray(image: Image, white: int) -> Image:
    """Scale 0..white to 0..255 (Pillow itself would clip at 255)."""
    values = np.asarray(image)
    if values.dtype.kind == "f":
        raise DataError(
            f"its gray values are floats from {values.min():g} to {values.max():g}, and the value "
            "of white is unknown; save it with 8 or 16 bits, or read the values with "
            'layoutkit.images.read(..., mode="unchanged")'
        )
    if values.min() < 0 or values.max() > _MAX_16_BIT:
        raise DataError(
            f"its gray values are from {values.min()} to {values.max()}, outside 0..{_MAX_16_BIT}; "
            "save it with 8 or 16 bits, or read the values with "
            'layoutkit.images.read(..., mode="unchanged")'
        )
    gray = pillow().fromarray(_round_to_8_bits(values, white))
    _apply_color_key(gray, values[..., None], image.info.get("transparency"))
    return gray


def _apply_color_key(image: Image, values: Array, key: Any) -> None:
    """Make the pixels of one color transparent, as PNG files of 16 bits store transparency.

    values : (height, width, channels), before they are rounded
    key : the color; None for a file without one
    """
    if key is not None:
        is_opaque = (values != np.asarray(key)).any(axis=2)
        image.putalpha(pillow().fromarray(is_opaque.astype(np.uint8) * np.uint8(_MAX_8_BIT)))


def _round_to_8_bits(values: Array, white: int = _MAX_16_BIT) -> Array:
    return np.rint(values / np.float32(white / 255)).astype(np.uint8)


def _load_16_bit_colors(
    upright: Image, image: ImageFile, tiles: list[Any], file: IO[bytes], frame: int
) -> Array | None:
    """Return the 16-bit colors of a file upright, in the channels of `upright`; None for others.

    Pillow keeps the high byte of 16-bit colors. Reading the file again in the other byte order
    gives the low byte.
    """
    if (colors := getattr(image, "colors_16_bit", None)) is not None:
        return cast("Array", colors)
    low_tiles = [_low_byte_tile(tile) for tile in tiles]
    if not tiles or None in low_tiles:
        return None
    if frame and image.format == "PNG":
        raise DataError(
            f"frame {frame} is a part of an animation whose colors have 16 bits, of which only "
            "frame 0 can be read; save it with 8 bits"
        )
    from PIL.ImageOps import exif_transpose

    file.seek(0)
    with pillow().open(file) as other:
        other.seek(frame)
        other.tile = low_tiles
        low = np.asarray(exif_transpose(other))
    if low_tiles[0].args == "RGBA":  # a gray value and its alpha, as four bytes
        low = low[..., [1, 1, 1, 3]]
    return np.asarray(upright).astype(np.uint16) << 8 | low


def _round_colors(upright: Image, values: Array) -> Image:
    """Return the image of 16-bit colors rounded to 8 bits; `upright` has their high bytes."""
    rounded = pillow().frombytes(upright.mode, upright.size, _round_to_8_bits(values).tobytes())
    _apply_color_key(rounded, values, upright.info.get("transparency"))
    return rounded


def _low_byte_tile(tile: Any) -> Any:
    """Return the tile of Pillow that decodes the low bytes of 16-bit colors, or None for others."""
    raw_mode = _raw_mode(tile)
    mode, _, order = raw_mode.partition(";16")
    if raw_mode == "LA;16B":
        raw_mode = "RGBA"
    elif mode in _COLOR_16_BIT_MODES and order in _OTHER_BYTE_ORDERS:
        raw_mode = f"{mode};16{_OTHER_BYTE_ORDERS[order]}"
    else:
        return None
    return tile._replace(args=raw_mode if isinstance(tile[3], str) else (raw_mode, *tile[3][1:]))


def _raw_mode(tile: Any) -> str:
    """Return Pillow's name of a pixel format in a file; a tile is (codec, box, offset, args)."""
    arguments = tile[3]
    return str(arguments[0]) if isinstance(arguments, tuple) and arguments else str(arguments)


_JPEG_START = b"\xff\xd8\xff"
_FRAME_MARKERS = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive
_ONE_SCAN_MARKERS = (0xC0, 0xC1)  # frames that are not progressive
_SCAN_MARKER = 0xDA
_RESTART_MARKER = 0xDD
_APP1_MARKER = 0xE1
_MARKERS_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD9)}  # RST0 to RST7, SOI and TEM
_COLOR_SPACES = {1: "GRAY", 3: "RGB"}  # by components; Pillow decodes CMYK its own way
_BITS = 8
_BLOCK_ROWS = 8
# The warning of libjpeg-turbo about what follows the rows that a shortened header announces. It
# reports the first warning of an image only, so damage in these rows has another text.
_ROWS_ARE_LEFT = "extraneous bytes before marker 0xd9"


class JpegHeader(NamedTuple):
    """The header of a JPEG."""

    height: int  # as stored, before the EXIF orientation is applied
    width: int
    color_space: str  # "GRAY" or "RGB", the space it is decoded to
    may_be_rotated: bool  # True if it has EXIF or XMP data, which may contain an orientation
    height_at: int  # the index of the two bytes of the height
    # The height of a row of blocks of all components; 0 if the first rows cannot be decoded alone:
    # the file is progressive, has a scan for each component, or restart markers.
    block_rows: int


def read_jpeg_header(data: bytes) -> JpegHeader | None:
    """Return the header of a JPEG that simplejpeg can decode; None for another JPEG.

    Parsed here, since calling simplejpeg's header function and then Pillow takes several times as
    long.
    """
    pos = 2
    end = len(data) - 10
    may_be_rotated = has_restarts = False
    frame = 0
    while pos < end and data[pos] == 0xFF:
        marker = data[pos + 1]
        if marker == _SCAN_MARKER:
            return _parse_frame(data, frame, may_be_rotated, pos, has_restarts)
        if marker == 0xFF:  # a fill byte
            pos += 1
        elif marker in _MARKERS_WITHOUT_LENGTH:
            pos += 2
        else:
            may_be_rotated = may_be_rotated or marker == _APP1_MARKER
            has_restarts = has_restarts or marker == _RESTART_MARKER
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
                frame = pos
            pos += 2 + (data[pos + 2] << 8 | data[pos + 3])
    return None


def _parse_frame(
    data: bytes, frame: int, may_be_rotated: bool, scan: int, has_restarts: bool
) -> JpegHeader | None:
    """Return the header in the frame segment at index `frame`, or None if it is unsupported.

    scan : the index of the first scan
    """
    if data[frame + 1] not in _FRAME_MARKERS or data[frame + 4] != _BITS:
        return None
    height, width = (data[pos] << 8 | data[pos + 1] for pos in (frame + 5, frame + 7))
    color_space = _COLOR_SPACES.get(data[frame + 9])
    if not height or not width or color_space is None:
        return None
    components = data[frame + 9]
    is_one_scan = data[frame + 1] in _ONE_SCAN_MARKERS and data[scan + 4] == components
    factors = [data[pos] & 15 for pos in range(frame + 11, frame + 10 + 3 * components, 3)]
    block_rows = _BLOCK_ROWS * max(factors) if is_one_scan and not has_restarts else 0
    return JpegHeader(height, width, color_space, may_be_rotated, frame + 5, block_rows)


def decode_jpeg(
    data: bytes, header: JpegHeader, shrink: int, rows: int | None = None
) -> Array | None:
    """Decode a JPEG to (height, width, channels), both sides divided by `shrink` (1, 2, 4 or 8).

    Return new memory, or None if simplejpeg warns: Pillow then decodes it, or raises the error.
    Only the first `rows` have to be decoded; other rows may have any values.
    """
    height, width = (-(-side // shrink) for side in header[:2])
    channels = 1 if header.color_space == "GRAY" else 3
    pixels = buffers.empty((height, width, channels), "uint8")
    end = _find_end(header, shrink, rows)
    if end < header.height:
        at = header.height_at
        shorter = b"".join((data[:at], end.to_bytes(2, "big"), data[at + 2 :]))
        warning = _decode_into(shorter, header.color_space, shrink, pixels[: -(-end // shrink)])
        if not warning or _ROWS_ARE_LEFT in warning:
            return pixels
    return None if _decode_into(data, header.color_space, shrink, pixels) else pixels


def _find_end(header: JpegHeader, shrink: int, rows: int | None) -> int:
    """Return the height at which a JPEG can end so that the first `rows` have the same bits."""
    if rows is None or not header.block_rows:
        return header.height
    # Colors of fewer rows are interpolated: the last row depends on the row after it.
    return -(-(rows + 1) * shrink // header.block_rows) * header.block_rows


def _decode_into(data: bytes, color_space: str, shrink: int, pixels: Array) -> str:
    """Decode a JPEG into `pixels`, of its size; return the first warning of simplejpeg or ""."""
    height, width = pixels.shape[:2]
    try:
        simplejpeg_module().decode_jpeg(
            data, color_space, min_height=height, min_width=width, min_factor=shrink, buffer=pixels
        )
    except ValueError as error:
        return str(error) or type(error).__name__
    return ""


@cache
def simplejpeg_module() -> Any:
    """Return the module, or None if it is not installed."""
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg


class DecodedImage(NamedTuple):
    """A decoded image.

    array : array       upright, possibly shrunk by 2, 4 or 8; its shape is as `read` describes
    height, width : int    of the full-size image, upright
    """

    array: Array
    height: int
    width: int


def decode_pixels(
    source: Any,
    options: ReadOptions = _DEFAULT_OPTIONS,
    min_size: tuple[int, int] | None = None,
    max_pixels: int | None = None,
) -> DecodedImage:
    """Decode encoded bytes, or the file at a path. The caller must not modify the pixels.

    Raises the errors of `read`.

    Parameters
    ----------
    source : str, path, bytes or vector of uint8
        The file, or its bytes.
    options : ReadOptions
        What the pixels become.
    min_size : (int, int), optional
        Height and width that the image has to cover: a JPEG is decoded at a half, a quarter or an
        eighth of its size if that is still at least twice as large.
    max_pixels : int, optional
        The most pixels that are accepted, by default Pillow's limit; images with more raise an
        error before they are decoded.
    """
    with _open_source(source) as file:
        if options.mode in ("rgb", "gray") and options.frames is None and not options.to_srgb:
            channels = CHANNELS[options.mode]
            decoded = _decode_upright_jpeg(file, channels, min_size, max_pixels)
            if decoded is not None:
                return decoded
        if options.mode == "unchanged" and _needs_tifffile(file):
            array = _read_tiff(file, options.frames, max_pixels)
            return DecodedImage(array, *array.shape[-3:-1])
        with _open_with_pillow(file, max_pixels) as image:
            if options.frames is not None:
                array = _read_frames(image, file, options, max_pixels)
                height, width = array.shape[1:3]
                return DecodedImage(array, height, width)
            tiles = image.tile  # before the header is searched for an orientation, which may load
            height, width = upright_size_of(image)
            shrink = shrink_factor(height, width, min_size)
            if shrink > 1:
                image.draft(None, (image.width // shrink, image.height // shrink))
            return DecodedImage(_read_pixels(image, tiles, file, options), height, width)


def _read_pixels(
    image: ImageFile, tiles: list[Any], file: IO[bytes], options: ReadOptions, frame: int = 0
) -> Array:
    """Return the upright pixels of an opened file; `tiles` are its tiles before it is loaded."""
    from PIL.ImageOps import exif_transpose

    upright: Image = exif_transpose(image)
    raw_mode = _raw_mode(tiles[0]) if tiles else ""
    if options.mode == "index":
        return _to_class_numbers(upright, image, raw_mode)
    colors = _load_16_bit_colors(upright, image, tiles, file, frame)
    if options.mode == "unchanged":
        if colors is None:
            return _to_channels(upright, image)
        return colors[..., ::3] if raw_mode.startswith("LA") else colors
    if colors is not None:
        upright = _round_colors(upright, colors)
    return _to_colors(upright, options, _MAX_12_BIT if raw_mode == "I;12" else _MAX_16_BIT)


def _read_frames(
    image: ImageFile, file: IO[bytes], options: ReadOptions, max_pixels: int | None
) -> Array:
    numbers = _select_frames(options.frames, getattr(image, "n_frames", 1))

    def read_frame(number: int) -> Array:
        image.seek(number)
        # Pages of a TIFF have sizes of their own.
        check_pixel_count(image.height, image.width, max_pixels, len(numbers))
        return _read_pixels(image, image.tile, file, options, number)

    return _join_frames(numbers, read_frame)


def _select_frames(frames: str | tuple[int, ...] | None, count: int) -> Sequence[int]:
    """Return the numbers of frames in a file of `count`; raise DataError if one does not exist."""
    if frames is None:
        return [0]
    if isinstance(frames, str):
        return range(count)
    for number in frames:
        if not -count <= number < count:
            raise DataError(
                f"frame {number} does not exist: the file has {count}, numbered from 0; "
                'frames="all" reads all of them'
            )
    return [number % count for number in frames]


def _join_frames(numbers: Sequence[int], read_frame: Callable[[int], Array]) -> Array:
    """Return frames joined along a new first axis; raise DataError if their shapes differ."""
    first = read_frame(numbers[0])
    frames = buffers.empty((len(numbers), *first.shape), first.dtype)
    frames[0] = first
    for row, number in enumerate(numbers[1:], 1):
        frame = read_frame(number)
        if (frame.shape, frame.dtype) != (first.shape, first.dtype):
            raise DataError(
                f"frame {number} is {frame.dtype} {frame.shape}, but frame {numbers[0]} is "
                f"{first.dtype} {first.shape}; read frames of one shape, or give "
                'mode="rgb" if only their channels or bits differ'
            )
        frames[row] = frame
    return frames


# ---- TIFFs that Pillow does not read, or not entirely ----------------------------------------

_BANDS_PER_PIXEL = 4  # of the images that Pillow's limit of pixels is meant for
_AXES = ("YX", "YXS", "SYX")  # of tifffile; S: bands
_TIFF_STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def _is_tiff(file: IO[bytes]) -> bool:
    """Return True if a file begins as a TIFF or BigTIFF does."""
    file.seek(0)
    return file.read(4) in _TIFF_STARTS


def _needs_tifffile(file: IO[bytes]) -> bool:
    """Return True for a TIFF that has bits or bands that Pillow and decoders do not read."""
    if not _is_tiff(file):
        return False
    module = pillow()
    file.seek(0)
    try:
        with module.open(file) as image:
            bands = len(image.getbands())
            raw_mode = _raw_mode(image.tile[0]) if image.tile else ""
            tags = getattr(image, "tag_v2", {})
    except module.UnidentifiedImageError:
        return _find_decoder(file, []) is None
    except module.DecompressionBombError:
        return False  # which the caller reports when it opens the file
    is_separate = tags.get(_PLANES_TAG) == _SEPARATE_PLANES
    is_premultiplied = raw_mode.startswith("RGBa")  # Pillow divides colors by alpha
    return tags.get(_SAMPLES_TAG, 1) != bands or is_premultiplied or (is_separate and bands > 1)


def _read_tiff(
    file: IO[bytes], frames: str | tuple[int, ...] | None, max_pixels: int | None
) -> Array:
    """Return the upright pixels of a TIFF as stored.

    frames : the pages that are read, as in `ReadOptions`
    Returns (height, width, bands), or (pages, height, width, bands) with `frames`. Raises
    ArgumentError if tifffile is not installed, and DataError for pages that cannot be read.
    """
    with explain_missing("this TIFF has more bits or bands than Pillow reads and", "tiff"):
        from tifffile import TiffFile
    file.seek(0)
    with TiffFile(file) as tiff:
        numbers = _select_frames(frames, len(tiff.pages))
        pixels = _join_frames(
            numbers, lambda number: _read_page(tiff.pages[number], max_pixels, len(numbers))
        )
    return pixels[0] if frames is None else pixels


def _read_page(page: Any, max_pixels: int | None, pages: int) -> Array:
    if page.axes not in _AXES or page.dtype is None:
        raise DataError(
            f"its page has axes {page.axes} and dtype {page.dtype}, but an image has height, width "
            "and bands of numbers; read it with tifffile and pass the array"
        )
    sizes = dict(zip(page.axes, page.shape, strict=True))
    groups = -(-sizes.get("S", 1) // _BANDS_PER_PIXEL)
    check_pixel_count(sizes["Y"], sizes["X"], max_pixels, pages * groups)
    pixels: Array = page.asarray(maxworkers=1)
    if page.axes == "SYX":
        pixels = np.moveaxis(pixels, 0, 2)
    orientation = page.tags.valueof("Orientation", 1)
    upright = _turn_upright(pixels.reshape(*pixels.shape[:2], -1), int(orientation))
    return np.ascontiguousarray(upright, upright.dtype.newbyteorder("="))


def _turn_upright(pixels: Array, orientation: int) -> Array:
    """Return a view of pixels that are stored in an orientation of TIFF, 1 (upright) to 8."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels[::-1] if orientation in (3, 4, 7, 8) else pixels


def _decode_upright_jpeg(
    file: IO[bytes], channels: int, min_size: tuple[int, int] | None, max_pixels: int | None
) -> DecodedImage | None:
    """Decode a JPEG that is stored upright; return None if Pillow has to decode the file."""
    if simplejpeg_module() is None or file.read(len(_JPEG_START)) != _JPEG_START:
        return None
    file.seek(0)
    jpeg = open_jpeg(file.read(), channels, min_size, max_pixels)
    array = None if jpeg is None else jpeg.decode()
    if jpeg is None or array is None:
        return None
    return DecodedImage(array, jpeg.header.height, jpeg.header.width)


class UprightJpeg(NamedTuple):
    """A JPEG that is stored upright, before simplejpeg decodes it."""

    data: bytes
    header: JpegHeader
    shrink: int  # 1, 2, 4 or 8: both sides of the pixels are divided by it
    channels: int  # of the pixels, 1 or 3

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the pixels."""
        height, width = (-(-side // self.shrink) for side in self.header[:2])
        return height, width, self.channels

    def decode(self, rows: int | None = None) -> Array | None:
        """Return the pixels, or None if Pillow has to decode the file.

        Only the first `rows` have to be decoded; other rows may have any values.
        """
        array = decode_jpeg(self.data, self.header, self.shrink, rows)
        if array is None or array.shape[2] == self.channels:
            return array
        is_gray = array.shape[2] == 1
        image = pillow().fromarray(array[..., 0] if is_gray else array)
        return _pixel_array(image.convert("RGB") if is_gray else image, self.channels)


def open_jpeg(
    data: bytes, channels: int, min_size: tuple[int, int] | None, max_pixels: int | None = None
) -> UprightJpeg | None:
    """Return a JPEG that is stored upright; None if Pillow has to decode the data.

    Raises DataError if it has too many pixels. `decode_pixels` describes the arguments.
    """
    is_jpeg = simplejpeg_module() is not None and data.startswith(_JPEG_START)
    header = read_jpeg_header(data) if is_jpeg else None
    if header is None:
        return None
    check_pixel_count(header.height, header.width, max_pixels)
    if header.may_be_rotated and _is_rotated(data, max_pixels):
        return None
    shrink = shrink_factor(header.height, header.width, min_size)
    return UprightJpeg(data, header, shrink, channels)


def _is_rotated(data: bytes, max_pixels: int | None) -> bool:
    with open_image(data, max_pixels) as image:
        return exif_orientation(image) != 1


def _pixel_array(image: Image, channels: int) -> Array:
    array = np.asarray(image.convert("L") if channels == 1 else image)
    return array.reshape(*array.shape[:2], channels)

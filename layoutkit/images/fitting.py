"""Resize images to one size, and decode and resize records (`Decoder`).

`collate` resizes images, or OpenCV or Pillow if their exact bits are needed. A window of the image
is resampled onto a window of the result. Both have integer bounds, so the placement of the image is
exact and does not depend on the library.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Never, Self

import numpy as np

from .. import buffers
from .._utils.errors import reject_unknown
from .._utils.validation import as_int, check_choice, show
from ..backends.dispatch import as_array
from ..collator import Collator, collate
from ..errors import ArgumentError, DtypeError, ShapeError
from ..memory import Array, as_numpy, check_writable
from ..planning.batch.placement import Placement, Placements, place_samples
from ..planning.centering import CENTERINGS, DEFAULT_CENTERING
from ..planning.fitting import MAX_SIDE
from ..planning.resize import FIT_MODES, ResizeOptions, parse_resize
from ..spec import DType, can_cast
from .reading import (
    CHANNELS,
    ReadOptions,
    UprightJpeg,
    decode_pixels,
    make_mode_error,
    open_jpeg,
    parse_read_options,
    pillow,
)

LIBRARIES = ("opencv", "pillow")

_DTYPES = (np.dtype(np.uint8), np.dtype(np.float32))
_OPENCV_CHANNELS = 4  # that OpenCV averages in one call


def fit(
    image: Any,
    size: Sequence[int],
    how: str = "cover",
    *,
    fill: Any = None,
    short_side: int | None = None,
    center: str = "round",
    resize: str = "bilinear",
    library: str | None = None,
    out: Array | None = None,
    **unknown: Never,
) -> Array:
    """Resize an image of shape (height, width) or (height, width, channels).

    >>> image = np.full((30, 40, 3), 200, np.uint8)
    >>> fit(image, (8, 8)).shape
    (8, 8, 3)
    >>> fit(image, (8, 8), "pad", fill=114)[:, 0, 0].tolist()
    [114, 200, 200, 200, 200, 200, 200, 114]

    Parameters
    ----------
    image : array of uint8 or float32
        One image, of any library whose arrays are on the CPU.
    size : (int, int)
        Height and width of the result.
    how : "cover", "pad" or "stretch"
        "cover" scales the image until it covers the size and crops it centrally; "pad" scales it
        to fit inside the size, centered, and pads the rest (letterbox); "stretch" ignores the
        aspect ratio.
    fill : number, or one for each channel, optional
        With "pad": the value of the padding, by default 0.
    short_side : int, optional
        With "cover": scale the image until its shorter side has this size, and crop it centrally.
    center : "round" or "floor"
        How half of an odd difference of sizes is rounded: to the nearest even number, or down.
    resize : "nearest", "bilinear", "bicubic", "lanczos" or "area"
        The filter of `collate`, which resizes the image. Bytes of "bilinear" are within 1 of
        Pillow's. Pillow limits bytes of "bicubic" and "lanczos" to 0..255 after the rows, before
        the columns: they are within 1 where no value leaves this range, within 5 in photographs,
        and up to 70 apart at edges from 0 to 255. "nearest" is equal except at ties, and "area"
        is another filter than Pillow's BOX.
    library : "opencv" or "pillow", optional
        Resize with the bilinear filter of this library, to its exact bits; OpenCV averages areas
        along sides that shrink.
    out : array, optional
        An array of the result's shape and dtype to write to, such as a buffer that a loop reuses.

    Returns
    -------
    array
        `out`, or new memory of the image's dtype.

    Raises
    ------
    ShapeError, DtypeError, ArgumentError
        The image has an unsupported shape or dtype, another argument is invalid, or the library is
        not installed.
    """
    reject_unknown(fit, unknown, _CURES)
    pixels = _check_image(image)
    height, width = as_size(size)
    _check_filter(resize, library)
    placed = _place(pixels.shape[:2], (height, width), how, short_side, center)
    _check_fill(fill, how)
    fill_values = _fill_values(0 if fill is None else fill, pixels)
    shape = (height, width, *pixels.shape[2:])
    if out is not None:
        _check_out(out, shape, pixels)
    if library is None:
        layout = "hwc" if pixels.ndim == 3 else "hw"
        options: dict[str, Any] = {"fit": how} if short_side is None else {"short_side": short_side}
        options["center"] = center
        if how == "pad":
            options["fill"] = fill_values
        pattern = f"{layout}->b{layout}"
        into = None if out is None else out[None]
        batch = collate([pixels], pattern, out=into, h=height, w=width, resize=resize, **options)
        return batch[0] if out is None else out
    fields = placed.begins, placed.sizes, placed.scaled, placed.firsts
    begins, sizes, scaled, firsts = (field[0].tolist() for field in fields)
    resampled = _resample(pixels[_slices(begins, sizes)], scaled[0], scaled[1], library)
    result = buffers.empty(shape, pixels.dtype) if out is None else out
    result[...] = fill_values
    overlap = [min(n, size) for n, size in zip(scaled, (height, width), strict=True)]
    target = _slices([max(0, -first) for first in firsts], overlap)
    result[target] = resampled[_slices([max(0, first) for first in firsts], overlap)]
    return result


# Equivalents of the keywords of Pillow, OpenCV, torchvision and albumentations.
_CURES = {
    **dict.fromkeys(
        ("interpolation", "interp", "resample", "filter", "method"),
        'resize= is the filter, as in resize="bilinear"',
    ),
    **dict.fromkeys(("fit", "mode", "letterbox", "keep_ratio"), 'how= is the way, as in how="pad"'),
    **dict.fromkeys(("h", "w", "height", "width", "dsize"), "give size, (height, width)"),
    **dict.fromkeys(("value", "color", "cval", "pad_value"), "fill= is the value of the padding"),
    "antialias": "collate has antialias=",
    "dtype": "convert what it returns: convert(image, pattern, dtype=...)",
}


def placement(
    shape: Sequence[int],
    size: Sequence[int],
    how: str = "cover",
    *,
    short_side: int | None = None,
    center: str = "round",
) -> Placement:
    """Return the placement in the result of `fit` of an image of shape (height, width, ...).

    `Placement.to_image` maps boxes detected in the result back to the image. Raises the errors of
    `fit` for an invalid argument.
    """
    sides = as_size(shape[:2], "shape"), as_size(size)
    return _place(*sides, how, short_side, center)[0]


def _place(
    shape: Sequence[int], size: tuple[int, int], how: str, short_side: int | None, center: str
) -> Placements:
    options = _resize_options(how, short_side, center)
    sizes = np.array([shape], np.int64)
    return place_samples(options, ("h", "w"), sizes, size, {}, {}, how == "pad", center)


def _resize_options(how: str, short_side: int | None, center: str) -> ResizeOptions:
    """Return the options of a method of `fit`; raise ArgumentError if they are invalid."""
    check_choice("how", how, FIT_MODES, ArgumentError)
    check_choice("center", center, CENTERINGS, ArgumentError)
    if how == "stretch" and center != DEFAULT_CENTERING:
        raise ArgumentError(
            f'center={center!r}, but how="stretch" neither crops nor pads; remove center'
        )
    if short_side is not None and how != "cover":
        raise ArgumentError(
            f"short_side={show(short_side)} and how={how!r} "
            "both say how the image is scaled; remove one"
        )
    fit_mode = "stretch" if short_side is not None else how
    options = parse_resize("bilinear", fit=fit_mode, short_side=short_side)
    return options or ResizeOptions("bilinear")


def _check_fill(fill: Any, how: str) -> None:
    if fill is not None and how != "pad":
        raise ArgumentError(
            f'fill={show(fill)} is the padding of how="pad", and how is {how!r}; omit it, or give '
            '"pad"'
        )


def _check_filter(resize: str, library: str | None) -> None:
    parse_resize(resize)
    if library is not None and resize != "bilinear":
        raise ArgumentError(
            f"resize={show(resize)} is a filter of layoutkit, and library={library!r} resizes with "
            "its own bilinear one; remove one"
        )


def _slices(begins: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(n, n + size) for n, size in zip(begins, sizes, strict=True))


# ---- resampling --------------------------------------------------------------------------


def _resample(pixels: Array, height: int, width: int, library: str) -> Array:
    """Return the pixels resampled to another size, in new memory."""
    use_opencv = check_resize_library(library)
    if pixels.shape[:2] == (height, width):
        return pixels.copy()
    parts = pixels.reshape(*pixels.shape[:2], -1)
    result = buffers.empty((height, width, parts.shape[2]), pixels.dtype)
    step = _OPENCV_CHANNELS if use_opencv else _pillow_channels(parts)
    resize = _resize_opencv if use_opencv else _resize_pillow
    for first in range(0, parts.shape[2], step):
        part = np.ascontiguousarray(parts[..., first : first + step])
        result[..., first : first + step] = resize(part, height, width)
    return result.reshape(height, width, *pixels.shape[2:])


def check_resize_library(library: str | None) -> bool:
    """Return True if OpenCV resamples; raise ArgumentError if `library` is not installed."""
    if library is None:
        return False
    check_choice("library", library, LIBRARIES, ArgumentError)
    if library == "opencv" and opencv() is None:
        raise ArgumentError(
            'library="opencv", which is not installed: pip install opencv-python-headless'
        )
    if library == "pillow":
        pillow()
    return library == "opencv"


@cache
def opencv() -> Any:
    """Return the module `cv2`, or None if OpenCV is not installed."""
    try:
        import cv2
    except ImportError:
        return None
    return cv2


def _resize_opencv(pixels: Array, height: int, width: int) -> Array:
    """Resize by area averaging along axes that shrink, then bilinearly along axes that grow."""
    cv2 = opencv()
    smaller = min(height, pixels.shape[0]), min(width, pixels.shape[1])
    if smaller != pixels.shape[:2]:
        pixels = cv2.resize(pixels, smaller[::-1], interpolation=cv2.INTER_AREA)
    if smaller != (height, width):
        pixels = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR)
    return pixels.reshape(height, width, -1)


def _pillow_channels(pixels: Array) -> int:
    """Return the number of channels that Pillow resizes in one call.

    Not four: Pillow would treat the fourth as alpha and weight the colors by it.
    """
    return 3 if pixels.dtype == np.uint8 and pixels.shape[2] == 3 else 1


def _resize_pillow(pixels: Array, height: int, width: int) -> Array:
    module = pillow()
    image = module.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    # Pillow's bilinear filter widens with the scale, so shrinking does not alias.
    resized = np.asarray(image.resize((width, height), module.Resampling.BILINEAR))
    return resized.reshape(height, width, -1)


# ---- arguments ---------------------------------------------------------------------------


def _check_image(image: Any) -> Array:
    pixels = as_array(image, "the image")
    if pixels.ndim not in (2, 3) or not pixels.size:
        raise ShapeError(
            f"the image has shape {pixels.shape}; it must be (height, width) or "
            "(height, width, channels), with no size 0"
        )
    if pixels.dtype not in _DTYPES:
        axes = "hwc"[: pixels.ndim]
        raise DtypeError(
            f"the image has dtype {pixels.dtype}; it must be uint8 or float32: convert it with "
            f'convert(image, "{axes}->{axes}", dtype="float32")'
        )
    return pixels


def as_size(size: Sequence[int], name: str = "size") -> tuple[int, int]:
    """Return (height, width) as two ints; raise ShapeError unless both are at least 1."""
    has_sides = isinstance(size, Iterable) and getattr(size, "ndim", 1) == 1
    sides = [as_int(side) or 0 for side in size] if has_sides else []
    if len(sides) != 2 or min(sides) < 1 or max(sides) > MAX_SIDE:
        raise ShapeError(
            f"{name} is {show(size)}; it must be (height, width), "
            f"each at least 1 and at most {MAX_SIDE}"
        )
    return sides[0], sides[1]


def _fill_values(fill: Any, pixels: Array) -> Array:
    """Return the fill in the image's dtype: one value, or one for each channel."""
    values = np.asarray(fill)
    if values.dtype.kind not in "uif" or values.shape not in {(), pixels.shape[2:]}:
        raise ArgumentError(f"fill is {show(fill)}; it must be a number, or one for each channel")
    with np.errstate(invalid="ignore"):  # NaN is detected below
        cast = values.astype(pixels.dtype)
    if pixels.dtype == np.uint8 and not np.array_equal(cast, values):
        raise ArgumentError(
            f"fill is {show(fill)}; for uint8 images it must be an integer in 0..255"
        )
    return cast


class _KnownKeywords:
    """A base class of dataclasses that names the `mode` for keywords of other libraries."""

    def __new__(cls, *args: Any, **keywords: Any) -> Self:
        known = [field.name for field in fields(cls)]  # type: ignore[arg-type]  # a subclass
        for name, value in keywords.items():
            if name not in known:
                raise make_mode_error(cls.__name__, name, value, known)
        return super().__new__(cls)


@dataclass(frozen=True)
class Decoder(_KnownKeywords):
    """A decoder of encoded images into upright pixels of one size, by default uint8 RGB.

    >>> decode = Decoder((224, 224), "pad", fill=114)
    >>> decode.input_dims
    (224, 224, 3)

    Called as ``decoder(data, out=None)``, so it can be the `processor=` of `sampled_batcher`; with
    `out` the pixels are written there. `data` is a source that `read` accepts, or decoded pixels of
    the same shape, which are only resized. `mode`, `background` and `to_srgb` are passed to `read`,
    other arguments to `fit`; class numbers (mode="index") need resize="nearest" and 8 bits: a
    Reader and a Collator accept more. JPEGs are decoded at a half, a quarter or an eighth of their
    size if that is still at least twice the needed size.
    Decoders with equal arguments compare equal; they can be pickled.

    A call raises the errors of `read` and `fit`. Invalid arguments, and a missing Pillow, raise an
    error when the Decoder is created.
    """

    size: tuple[int, int]
    how: str = "cover"
    fill: Any = None
    library: str | None = None
    short_side: int | None = None
    resize: str = "bilinear"
    center: str = "round"
    mode: str = "rgb"
    background: Any = None
    to_srgb: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", as_size(self.size))
        options = parse_read_options(self.mode, self.background, to_srgb=self.to_srgb)
        object.__setattr__(self, "background", options.background)
        if self.mode == "unchanged":
            raise ArgumentError(
                'mode="unchanged" has the channels of each file, but the results of a Decoder have '
                'one shape; give processor=Reader(mode="unchanged") and a Collator that resizes'
            )
        if self.mode == "index" and self.resize != "nearest":
            raise ArgumentError(
                f'mode="index" reads class numbers, which resize={self.resize!r} would average; '
                'give resize="nearest"'
            )
        _resize_options(self.how, self.short_side, self.center)
        _check_filter(self.resize, self.library)
        _check_fill(self.fill, self.how)
        if isinstance(self.fill, list | np.ndarray):
            object.__setattr__(self, "fill", tuple(np.asarray(self.fill).tolist()))
        pillow()
        check_resize_library(self.library)

    @property
    def input_dims(self) -> tuple[int, ...]:
        """The shape of the decoded image."""
        return self.size if self.mode == "index" else (*self.size, CHANNELS[self.mode])

    def __call__(self, data: Any, out: Array | None = None) -> Array:
        """Decode and resize an image, into `out` if it is given."""
        into = None if out is None or as_numpy(out, "out").dtype != np.uint8 else out
        pixels = self.decode(data)
        if pixels.dtype != np.uint8:
            height, width = self.size
            raise DtypeError(
                f"the class numbers are {pixels.dtype}, but a Decoder resizes uint8; give "
                f'sampled_batcher processor=Reader(mode="index") and collate=Collator("hw->bhw", '
                f'h={height}, w={width}, resize="nearest"), which moves values of any dtype'
            )
        fitted = fit(
            pixels,
            self.size,
            self.how,
            fill=self.fill,
            short_side=self.short_side,
            center=self.center,
            resize=self.resize,
            library=self.library,
            out=into,
        )
        if out is None or fitted is out:
            return fitted
        if out.shape != fitted.shape:
            raise ShapeError(f"out has shape {out.shape}, but the result has {fitted.shape}")
        out[...] = fitted
        return out

    def collator(self) -> Collator:
        """Return the Collator that resizes decoded images as this Decoder does, a batch at once.

        Raises ArgumentError if a library resizes.
        """
        if self.library is not None:
            raise ArgumentError(f"library={self.library!r} resizes image by image; omit it")
        options: dict[str, Any] = {"fit": self.how}
        if self.short_side is not None:
            options = {"short_side": self.short_side}
        if self.how == "pad":
            options["fill"] = 0 if self.fill is None else self.fill
        height, width = self.size
        options |= {"h": height, "w": width, "center": self.center}
        pattern = "hw->bhw" if self.mode == "index" else "hwc->bhwc"
        return Collator(pattern, resize=self.resize, **options)

    @property
    def reader(self) -> Reader:
        """The Reader that decodes images as this Decoder does, before it resizes them."""
        return Reader(self.min_size, self.mode, self.background, to_srgb=self.to_srgb)

    @property
    def min_size(self) -> tuple[int, int]:
        """The size that a decoded JPEG has to cover twice before it is resized."""
        return self.size if self.short_side is None else (self.short_side, self.short_side)

    def decode(self, data: Any) -> Array:
        """Return the pixels of an image before they are resized; do not modify them.

        A JPEG may be decoded at a part of its size, if that is at least twice the needed one.
        """
        options = ReadOptions(self.mode, self.background, to_srgb=self.to_srgb)
        return _decode(data, self.min_size, options)


@dataclass(frozen=True)
class Reader(_KnownKeywords):
    """A decoder of encoded images into upright pixels of any size, by default uint8 RGB.

    >>> from layoutkit.data import sampled_batcher
    >>> views = Collator("hwc->bchw", h=224, w=224, resize="bilinear")
    >>> sampled_batcher("photos", collate=views, processor=Reader((448, 448)))  # doctest: +SKIP

    `sampled_batcher(collate=...)` uses one for files of images. With `min_size` (height, width),
    JPEGs are decoded at a half, a quarter or an eighth of their size if that is still at least
    twice as large, which takes less time and memory. The pixels are means of blocks, so results
    differ by a few units from a full decode. `mode`, `background`, `frames` and `to_srgb` are
    passed to `read`.

    Called as ``reader(data, out=None)`` with a source that `read` accepts, or decoded pixels. It
    raises the errors of `read`. Readers with equal arguments compare equal; they can be pickled.
    """

    min_size: tuple[int, int] | None = None
    mode: str = "rgb"
    background: Any = None
    frames: Any = None
    to_srgb: bool = False

    def __post_init__(self) -> None:
        options = parse_read_options(self.mode, self.background, self.frames, self.to_srgb)
        object.__setattr__(self, "background", options.background)
        object.__setattr__(self, "frames", options.frames)
        if self.min_size is not None:
            object.__setattr__(self, "min_size", as_size(self.min_size, "min_size"))

    def __call__(self, data: Any, out: Array | None = None) -> Array:
        """Return the pixels of an image, in `out` or in memory that is not used again.

        `out` has the shape of the pixels, and a dtype that holds all of their values.
        """
        options = ReadOptions(self.mode, self.background, self.frames, self.to_srgb)
        pixels = _decode(data, self.min_size, options)
        if out is None:
            return pixels.copy() if pixels is data else pixels
        if not can_cast(pixels.dtype, as_numpy(out, "out").dtype, "safe"):
            rounded = ', or mode="gray" or "rgb", which round 16 bits to 8'
            raise DtypeError(
                f"out is {out.dtype}, but the pixels are {pixels.dtype}; give an out of that dtype"
                f"{rounded if self.mode == 'unchanged' else ''}"
            )
        _check_out(out, pixels.shape, pixels, out.dtype)
        out[...] = pixels
        return out

    def open_jpeg(self, data: Any) -> UprightJpeg | None:
        """Return a JPEG whose first rows can be decoded alone; None for other data.

        Raises DataError if it has too many pixels.
        """
        if self.mode not in ("rgb", "gray") or self.frames is not None or self.to_srgb:
            return None
        if type(data) is not bytes:
            return None
        jpeg = open_jpeg(data, CHANNELS[self.mode], self.min_size)
        return jpeg if jpeg is not None and jpeg.header.block_rows else None


def _check_out(
    out: Array, shape: tuple[int, ...], pixels: Array, dtype: DType | None = None
) -> None:
    """Raise unless `out` accepts a result of this shape, made of `pixels`.

    dtype : of `out`; None: the dtype of the pixels
    """
    as_numpy(out, "out")
    if (out.shape, out.dtype) != (shape, dtype or pixels.dtype):
        raise ShapeError(
            f"out is {out.dtype} {out.shape}, but the result is {pixels.dtype} {shape}; "
            "give such an array"
        )
    check_writable(pixels, out, "the image")


def _decode(data: Any, min_size: tuple[int, int] | None, options: ReadOptions) -> Array:
    """Return the pixels of encoded bytes, or `data` if it is decoded already."""
    if not isinstance(data, np.ndarray) or data.ndim == 1:
        return decode_pixels(data, options, min_size).array
    channels = CHANNELS.get(options.mode)
    axes = ["height", "width"] if options.mode == "index" else ["height", "width", "channels"]
    axes = axes if options.frames is None else ["frames", *axes]
    is_valid = channels is None or (data.shape[-1] == channels and data.dtype == np.uint8)
    if data.ndim != len(axes) or not is_valid:
        shape = ", ".join(axes if channels is None else [*axes[:-1], str(channels)])
        raise ShapeError(
            f"the image has shape {data.shape} and dtype {data.dtype}; decoded pixels must "
            f"be {'' if channels is None else 'uint8 '}({shape})"
        )
    return data

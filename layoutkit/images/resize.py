"""Arrays of pixels brought to one size: which part of a picture goes where, and who resamples it.

A part of the picture, a window, becomes a place in the result: both are whole pixels, so that
where a picture lies is known exactly, whoever resamples. Knows arrays; files are not known here.

The bytes of a record become pixels of one size: a processor of batches.

Knows one record at a time; batches and layouts are known to its caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from .. import buffers
from .._utils.validation import as_int, as_word
from ..backends.dispatch import as_array
from ..errors import ArgumentError, DtypeError, ShapeError
from ..memory import Array
from .decode import pillow, pixels_of

WAYS = ("cover", "pad", "stretch")
LIBRARIES = ("opencv", "pillow")

_DTYPES = (np.dtype(np.uint8), np.dtype(np.float32))
_MOST_CHANNELS = 4  # that OpenCV averages at once


class Placement(NamedTuple):
    """Where a picture lies in what `fit` makes of it.

    scale : (float, float)    vertical and horizontal
    top, left : float         pixels of the result; below 0 where the picture juts out

    Its point (x, y) is at (x * scale[1] + left, y * scale[0] + top).
    """

    scale: tuple[float, float]
    top: float
    left: float

    def to_fitted(self, points: Any) -> Array:
        """Points or boxes of the picture as they are in the result.

        points : array (..., 2) of x, y, or (..., 4) of x1, y1, x2, y2, in pixels
        """
        found, scale, offset = self._in_floats(points)
        result: Array = found * scale + offset
        return result

    def to_picture(self, points: Any) -> Array:
        """The way back: points or boxes of the result as they are in the picture.

        >>> where = placement((480, 640), (640, 640), "pad")
        >>> where
        Placement(scale=(1.0, 1.0), top=80.0, left=0.0)
        >>> where.to_picture([[10, 90, 20, 100]]).tolist()
        [[10.0, 10.0, 20.0, 20.0]]
        """
        found, scale, offset = self._in_floats(points)
        result: Array = (found - offset) / scale
        return result

    def _in_floats(self, points: Any) -> tuple[Array, Array, Array]:
        """The points, and the scale and offset of each of their numbers."""
        found = as_array(np.asarray(points) if isinstance(points, list | tuple) else points)
        if not found.ndim or found.shape[-1] not in (2, 4):
            raise ShapeError(
                f"points have shape {found.shape}; the last axis is (x, y) or (x1, y1, x2, y2)"
            )
        dtype = found.dtype if found.dtype.kind == "f" else np.dtype(np.float64)
        pair = np.array([self.scale[::-1], (self.left, self.top)], dtype)
        scale, offset = np.tile(pair, found.shape[-1] // 2)
        return found.astype(dtype), scale, offset


def fit(
    picture: Any,
    size: Sequence[int],
    how: str = "cover",
    *,
    fill: Any = 0,
    library: str | None = None,
) -> Array:
    """A picture of another size: (height, width) or (height, width, channels).

    >>> picture = np.full((30, 40, 3), 200, np.uint8)
    >>> fit(picture, (8, 8)).shape
    (8, 8, 3)
    >>> fit(picture, (8, 8), "pad", fill=114)[:, 0, 0].tolist()
    [114, 200, 200, 200, 200, 200, 200, 114]

    Parameters
    ----------
    picture : array of uint8 or float32
        One picture, of any library whose arrays are on the CPU.
    size : (int, int)
        Height and width of the result.
    how : "cover", "pad" or "stretch"
        Scaled until it covers the size, and what juts out cut off on both sides alike; scaled to
        lie in the middle of it, and the rest filled (a letterbox); or not in its own proportions.
    fill : number, or one for each channel
        What "pad" puts beside the picture.
    library : "opencv" or "pillow", optional
        Who resamples: by default OpenCV where it is installed, else Pillow. Both average what
        shrinks and are bilinear where something grows, with other weights: results differ by some
        units at edges. Name one where two machines have to agree.

    Returns
    -------
    array
        New memory of the picture's dtype.

    Raises
    ------
    ShapeError, DtypeError, ArgumentError
        It is no picture; another word or number is none; the library is not installed.
    """
    pixels = _checked(picture)
    height, width = as_size(size)
    window, place = _areas(pixels.shape[0], pixels.shape[1], (height, width), how)
    found = _resampled(pixels[window.slices], place.height, place.width, library)
    if (place.height, place.width) == (height, width):
        return found
    result = buffers.empty((height, width, *pixels.shape[2:]), pixels.dtype)
    result[...] = _fill(fill, pixels)
    result[place.slices] = found
    return result


def placement(shape: Sequence[int], size: Sequence[int], how: str = "cover") -> Placement:
    """Where a picture of a shape (height, width, ...) lies in what `fit` makes of it.

    Boxes that were found in the result are those of the picture by `Placement.to_picture`. What
    `fit` raises for a shape, a size and a word is raised here.
    """
    height, width = as_size(shape[:2], "shape")
    window, place = _areas(height, width, as_size(size), how)
    scale = place.height / window.height, place.width / window.width
    return Placement(scale, place.top - window.top * scale[0], place.left - window.left * scale[1])


class _Area(NamedTuple):
    top: int
    left: int
    height: int
    width: int

    @property
    def slices(self) -> tuple[slice, slice]:
        return (
            slice(self.top, self.top + self.height),
            slice(self.left, self.left + self.width),
        )


def _areas(height: int, width: int, size: tuple[int, int], how: str) -> tuple[_Area, _Area]:
    """The window of the picture that is shown, and its place in the result."""
    as_word("how", how, WAYS, ArgumentError)
    if how == "cover":
        scale = max(size[0] / height, size[1] / width)
        window = _middle(height, width, size[0] / scale, size[1] / scale)
        return window, _Area(0, 0, *size)
    whole = _Area(0, 0, height, width)
    if how == "stretch":
        return whole, _Area(0, 0, *size)
    scale = min(size[0] / height, size[1] / width)
    return whole, _middle(*size, height * scale, width * scale)


def _middle(height: int, width: int, inner_height: float, inner_width: float) -> _Area:
    """The middle of an area, in whole pixels, at least one."""
    rows = min(height, max(1, round(inner_height)))
    columns = min(width, max(1, round(inner_width)))
    return _Area((height - rows) // 2, (width - columns) // 2, rows, columns)


# ---- who resamples -----------------------------------------------------------------------


def _resampled(pixels: Array, height: int, width: int, library: str | None) -> Array:
    """The pixels in another size, in new memory."""
    use_opencv = check_library(library)
    if pixels.shape[:2] == (height, width):
        return pixels.copy()
    parts = pixels.reshape(*pixels.shape[:2], -1)
    result = buffers.empty((height, width, parts.shape[2]), pixels.dtype)
    step = _MOST_CHANNELS if use_opencv else _together(parts)
    resize = _by_opencv if use_opencv else _by_pillow
    for first in range(0, parts.shape[2], step):
        part = np.ascontiguousarray(parts[..., first : first + step])
        result[..., first : first + step] = resize(part, height, width)
    return result.reshape(height, width, *pixels.shape[2:])


def check_library(library: str | None) -> bool:
    """Whether OpenCV resamples; ArgumentError where who was asked for is not installed."""
    if library is not None:
        as_word("library", library, LIBRARIES, ArgumentError)
    if library == "opencv" and opencv() is None:
        raise ArgumentError(
            'library="opencv", which is not installed: pip install opencv-python-headless'
        )
    if library == "pillow" or opencv() is None:
        pillow()
        return False
    return True


@cache
def opencv() -> Any:
    """The module `cv2`; None where it is not installed."""
    try:
        import cv2
    except ImportError:
        return None
    return cv2


def _by_opencv(pixels: Array, height: int, width: int) -> Array:
    """Averages over areas first, along what shrinks, then lines between pixels where it grows."""
    cv2 = opencv()
    smaller = min(height, pixels.shape[0]), min(width, pixels.shape[1])
    if smaller != pixels.shape[:2]:
        pixels = cv2.resize(pixels, smaller[::-1], interpolation=cv2.INTER_AREA)
    if smaller != (height, width):
        pixels = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR)
    return pixels.reshape(height, width, -1)


def _together(pixels: Array) -> int:
    """How many channels Pillow takes at once; four would be colours that the last one weighs."""
    return 3 if pixels.dtype == np.uint8 and pixels.shape[2] == 3 else 1


def _by_pillow(pixels: Array, height: int, width: int) -> Array:
    module = pillow()
    image = module.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    # Pillow's bilinear filter widens with the scale, so shrinking does not alias.
    found = np.asarray(image.resize((width, height), module.Resampling.BILINEAR))
    return found.reshape(height, width, -1)


# ---- what is asked -----------------------------------------------------------------------


def _checked(picture: Any) -> Array:
    pixels = as_array(picture, "the picture")
    if pixels.ndim not in (2, 3) or not pixels.size:
        raise ShapeError(
            f"the picture has shape {pixels.shape}; it is (height, width) or "
            "(height, width, channels), none of them 0"
        )
    if pixels.dtype not in _DTYPES:
        raise DtypeError(
            f"the picture is {pixels.dtype}; pictures are uint8 or float32: convert(picture, "
            '"hwc->hwc", dtype=...) makes them so'
        )
    return pixels


def as_size(size: Sequence[int], name: str = "size") -> tuple[int, int]:
    """(height, width) as two ints of at least 1; ShapeError for anything else."""
    sides = [as_int(side) or 0 for side in size] if isinstance(size, Iterable) else []
    if len(sides) != 2 or min(sides) < 1:
        raise ShapeError(f"{name} is {size!r}; it is (height, width), each at least 1")
    return sides[0], sides[1]


def _fill(fill: Any, pixels: Array) -> Array:
    """The fill as values of the picture's dtype, one or as many as it has channels."""
    values = np.asarray(fill)
    if values.dtype.kind not in "uif" or values.shape not in {(), pixels.shape[2:]}:
        raise ArgumentError(f"fill is {fill!r}; it is a number, or one for each channel")
    with np.errstate(invalid="ignore"):  # NaN is found out below
        kept = values.astype(pixels.dtype)
    if pixels.dtype == np.uint8 and not np.array_equal(kept, values):
        raise ArgumentError(f"fill is {fill!r}; in a picture of uint8 it is whole, from 0 to 255")
    return kept


@dataclass(frozen=True)
class Decoder:
    """Decodes the bytes of a picture into uint8 (height, width, 3), upright, red, green, blue.

    >>> decode = Decoder((224, 224), "pad", fill=114)
    >>> decode.input_dims
    (224, 224, 3)

    Called as ``decoder(data, out=None)``, as a processor of `sampled_batcher` is; with `out` the
    pixels are written there. `data` is whatever `read` takes, or pixels (height, width, 3) that are
    decoded already and only fitted. The arguments are those of `fit`;
    JPEGs are decoded at a half, a quarter or an eighth of their size where that is still at least
    twice what is needed. Decoders are equal where their arguments are, and pickle.

    Raises what `read` and `fit` raise, and when it is made: for arguments, and where Pillow is not
    installed.
    """

    size: tuple[int, int]
    how: str = "cover"
    fill: Any = 0
    library: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", as_size(self.size))
        as_word("how", self.how, WAYS, ArgumentError)
        if isinstance(self.fill, list | np.ndarray):
            object.__setattr__(self, "fill", tuple(np.asarray(self.fill).tolist()))
        pillow()
        check_library(self.library)

    @property
    def input_dims(self) -> tuple[int, int, int]:
        """The shape of what it makes of a record."""
        return *self.size, 3

    def __call__(self, data: Any, out: Array | None = None) -> Array:
        """The pixels of a picture, in `out` if it is given."""
        found = fit(self._pixels(data), self.size, self.how, fill=self.fill, library=self.library)
        if out is None:
            return found
        out[...] = found
        return out

    def _pixels(self, data: Any) -> Array:
        if isinstance(data, np.ndarray) and data.ndim > 1:
            if data.ndim != 3 or data.shape[2] != 3 or data.dtype != np.uint8:
                raise ShapeError(
                    f"the picture has shape {data.shape} and {data.dtype}; pixels that are decoded "
                    "already are uint8 (height, width, 3)"
                )
            return data
        return pixels_of(data, enough=self.size).array

"""`Augmenter`: decode an image and augment it randomly.

The final step mirrors, computes ((x - mean) * k + i) * scale / std, and converts layout and dtype.
It is one pass over the pixels if k is 1, i is 0 and the mean is one number per channel. A mean
image, and a k and i drawn per image, are applied to the result while it is in the cache.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..._utils.validation import check_int, show
from ...converter import Converter
from ...errors import ArgumentError, DtypeError, ShapeError
from ...layout.parsing import parse_layout
from ...memory import Array
from ...spec import as_result_dtype
from ..reading import CHANNELS, DecodedImage, ReadOptions, decode_pixels, pillow
from . import geometry
from .color import adjust_colors
from .geometry import check_opencv, interpolation_for, resize_pixels, rotate_quarters, warp_affine
from .options import Options
from .random import ImageRng, Slot

_FLOATS = ("float32", "float64", "float16", "bfloat16")
_INTEGERS = ("uint8", "int8")
# A conversion is planned (0.3 ms) for each of this many row strides; windows with other strides are
# copied first (0.01 ms), since images may have a thousand different widths.
_MAX_PLANNED_WIDTHS = 64
_READ_OPTIONS = {channels: ReadOptions(mode) for mode, channels in CHANNELS.items()}


class AugmentedPixels(NamedTuple):
    """The pixels before the final step, and the random values that step needs.

    pixels : uint8 (height, width, channels)    not mirrored yet; must not be modified
    gain, lift : float                          k and i of the formula
    """

    pixels: Array
    is_mirrored: bool
    gain: float
    lift: float


class FinalStep:
    """The final step for images of one size, planned once.

    layout : str      of one image: `chw`, `hwc`, `(hwc)`
    mean : array      float (channels, height, width), instead of one number per channel
    varies : bool     the formula differs between pixels or images; if it does not, `constants` are
                      the keywords of a conversion with the same effect
    """

    def __init__(self, options: Options, layout: str, dtype: Any, mean: Array | None) -> None:
        self.dtype = _check_dtype(dtype)
        self._options = options
        self._layout = layout
        saturate = {"casting": "saturate"} if self.dtype.name in _INTEGERS else {}
        self.varies = bool(
            mean is not None or options.max_random_contrast or options.max_random_illumination
        )
        factors = [options.scale / std for std in options.std]
        compute_dtype = "float64" if self.dtype.name == "float64" else "float32"
        if not self.varies:
            self.constants = saturate | _formula_keywords(options.mean, [1 / f for f in factors])
            self._to_layout = _final_converter(f"hwc->{layout}", self.dtype, **self.constants)
        else:
            means = _formula_keywords(options.mean, None) if mean is None else {}
            self._to_layout = Converter(f"hwc->{layout}", dtype=compute_dtype, threads=1, **means)
            self._to_dtype = _final_converter(f"{layout}->{layout}", self.dtype, **saturate)
            self._factors = self._per_channel_array(factors, compute_dtype)
            self._means = None if mean is None else self._mean_images(mean, compute_dtype)
        self._planned_strides: set[int] = set()
        shape = (options.height, options.width, options.channels)
        self.shape: tuple[int, ...] = self._to_layout.target_shape(shape)

    def __call__(self, image: AugmentedPixels, out: Array | None) -> Array:
        """Apply the final step to an image, into `out` if it is given."""
        pixels, is_mirrored, gain, lift = image
        if pixels.strides[0] not in self._planned_strides:
            if len(self._planned_strides) < _MAX_PLANNED_WIDTHS:
                self._planned_strides.add(pixels.strides[0])
            else:
                pixels = np.ascontiguousarray(pixels)
        if is_mirrored:
            pixels = pixels[:, ::-1]
        if not self.varies:
            return self._to_layout(pixels, out=out)
        direct = self._to_dtype.options.dtype == self._to_layout.options.dtype
        values: Array = self._to_layout(pixels, out=out if direct else None)
        if self._means is not None:
            values -= self._means[is_mirrored]
        if gain != 1:
            values *= values.dtype.type(gain)
        if lift:
            values += values.dtype.type(lift)
        values *= self._factors
        return values if direct else self._to_dtype(values, out=out)

    def _per_channel_array(self, values: list[float], dtype: str) -> Array:
        """Return one number per channel as an array that broadcasts with results."""
        if len(set(values)) == 1:
            return np.array(values[0], dtype)
        options = self._options
        groups = parse_layout(self._layout).groups
        if "c" in groups:
            shape = [1] * len(groups)
            shape[groups.index("c")] = options.channels
            return np.array(values, dtype).reshape(shape)
        image = np.empty((options.height, options.width, options.channels), dtype)
        image[...] = values
        return Converter(f"hwc->{self._layout}")(image)

    def _mean_images(self, mean: Array, dtype: str) -> tuple[Array, Array]:
        if mean.shape != self._options.data_shape:
            raise ShapeError(
                f"mean_img has shape {mean.shape}, but images are {self._options.data_shape}; "
                "its shape must be data_shape"
            )
        convert = Converter(f"chw->{self._layout}", dtype=dtype)
        return convert(mean), convert(mean[:, :, ::-1])


def _final_converter(pattern: str, dtype: Any, **keywords: Any) -> Converter:
    """Return a Converter that writes one image of a batch.

    It runs on one thread, since other threads process other images, and is marked as a part: its
    result is not read again before the whole batch is.
    """
    converter = Converter(pattern, dtype=dtype, threads=1, **keywords)
    return Converter.from_options(replace(converter.options, is_part=True))


def _formula_keywords(means: tuple[float, ...], stds: list[float] | None) -> dict[str, Any]:
    """Return the keywords of `convert` for the formula, without keywords that have no effect."""
    keywords: dict[str, Any] = {}
    if any(means):
        keywords["mean"] = means
    if stds is not None and set(stds) != {1.0}:
        keywords["std"] = stds
    return keywords


def _check_dtype(dtype: Any) -> np.dtype[Any]:
    result = as_result_dtype(dtype)
    if result.name not in (*_FLOATS, *_INTEGERS):
        raise DtypeError(
            f"dtype {result} is not supported for images; use one of "
            f"{', '.join(_FLOATS + _INTEGERS)}"
        )
    return result


def check_layout(layout: str) -> None:
    """Raise ArgumentError unless a layout has the axes h, w and c, in any order and folding."""
    if sorted(parse_layout(layout).letters) != ["c", "h", "w"]:
        raise ArgumentError(
            f'layout={show(layout)}; the layout of an image has h, w and c, as "chw", "hwc" or '
            '"(hwc)"'
        )


@dataclass(frozen=True, eq=False)
class Augmenter(Options):
    """A decoder that augments images randomly; the steps run in the order of the parameters below.

    >>> import numpy as np
    >>> image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    >>> augment = Augmenter((3, 2, 2), rand_crop=True, rand_mirror=True, scale=1 / 255)
    >>> augment(image, epoch=1, position=7).shape
    (3, 2, 2)
    >>> Augmenter((3, 2, 2), dtype="uint8", crop_y_start=0, crop_x_start=1)(image)[0].tolist()
    [[3, 6], [15, 18]]

    The random numbers are a function of `seed` and of the epoch and position of each call: equal
    on any thread and in any process, and different for every image and epoch. Resizing, warping
    and hue changes need OpenCV (`pip install "layoutkit[augment]"`).

    Parameters
    ----------
    data_shape : (int, int, int)
        Channels, height and width of the result. 1 channel is gray, 3 are RGB, 4 are RGBA.
    layout : str
        The layout of the result: `chw`, `hwc`, `(hwc)`.
    dtype : dtype
        float32, float64, float16, bfloat16; or uint8 or int8, which are rounded half to even and
        clipped.
    seed : int
        The seed of the random numbers.
    max_pixels : int
        Files with more pixels raise an error before they are decoded.
    resize : int, optional
        Length of the shorter side after resizing; the aspect ratio is kept.
    random_resized_crop : bool
        Crop a random window and resize it to the result. Its area is `min_random_area` to
        `max_random_area` of the image's, its aspect ratio is in the range of `max_aspect_ratio`, or
        the inverse. If ten windows do not fit, the largest central window with the aspect ratio of
        the result is taken.
    rotate : int, optional
        Degrees, counter-clockwise. Multiples of 90 are exact and swap the sides; other angles keep
        the size. Replaces `max_rotate_angle`, the limit of a random angle in either direction.
    max_shear_ratio : float
        Largest random shift, in either direction, of a row relative to the next row.
    min_random_scale, max_random_scale : float
        Range of the random scale.
    min_aspect_ratio, max_aspect_ratio : float
        Range of the random ratio of height to width; without the first, the second is the largest
        difference from 1.
    min_img_size, max_img_size : float
        Limits of the sides of the canvas for the scaled image, which is centrally cropped or
        padded.
    inter_method : int
        Interpolation: 0 nearest, 1 bilinear, 2 cubic, 3 area, 4 Lanczos, 9 cubic to enlarge and
        area to shrink, 10 a random one of the first five.
    fill, fill_value : int
        Value of padding pixels; `fill` may have one value per channel.
    pad : int
        Pixels of padding on each side of the image.
    rand_crop : bool
        Crop at a random offset; by default at the center.
    crop_y_start, crop_x_start : int, optional
        The first row and column of the crop.
    min_crop_size, max_crop_size : int, optional
        Range of the side of a random square crop, which is resized to the result.
    brightness, contrast, saturation : float
        Largest relative change of each, in either direction, applied in random order.
    random_h, random_l, random_s : int
        Largest random change of hue (0 to 180, wraps around), lightness and saturation, drawn like
        MXNet: the whole part of ``limit * (2 * (u1 + 4 * u2) / 5 - 1)`` for uniform u1 and u2.
    pca_noise : float
        Standard deviation of a random color that is added, in principal components of the colors of
        natural images.
    mirror, rand_mirror : bool
        Flip left and right: always, or half of the time.
    mean_img : array, optional
        Mean image to subtract: (channels, height, width), not mirrored.
    mean_r, mean_g, mean_b, mean_a, std_r, ... : float
        Mean and std of each channel, or of all in `mean` and `std`. Gray uses red's.
    max_random_contrast, max_random_illumination : float
        Ranges of the k and i that are drawn for each image: k is 1 plus or minus the first, i is 0
        plus or minus the second, in ``((x - mean) * k + i) * scale / std``.
    scale : float
        The scale in the formula above.

    Raises
    ------
    ArgumentError, DtypeError, ShapeError, PatternError
        An option is invalid, two options contradict each other, or a library that they need is not
        installed. Raised on construction.
    """

    _: KW_ONLY
    layout: str = "chw"
    dtype: Any = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("seed", self.seed, None, ArgumentError)
        check_layout(self.layout)
        pillow()
        option = self._option_needing_opencv()
        if option:
            check_opencv(option)
        if self.mean_img is not None:
            mean = np.asarray(self.mean_img)
            if mean.dtype.kind not in "iuf":
                raise ArgumentError(
                    f"mean_img is {show(self.mean_img)}; it must be an array of numbers"
                )
            object.__setattr__(self, "mean_img", mean)
        _ = self.finish  # validates dtype and shapes

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an augmented image."""
        return self.finish.shape

    def __call__(
        self, data: Any, out: Array | None = None, *, epoch: int = 0, position: int = 0
    ) -> Array:
        """Decode and augment an image, into `out` if it is given.

        data : a source that `read` accepts, or decoded uint8 pixels (height, width, channels)
        epoch, position : select the random numbers; equal values give an equal result

        Raises the errors of `read`, and ShapeError if the image is smaller than the crop.
        """
        check_int("epoch", epoch, None, ArgumentError)
        check_int("position", position, None, ArgumentError)
        return self.finish(self.cut(data, epoch, position), out)

    def cut(self, data: Any, epoch: int, position: int) -> AugmentedPixels:
        """Run all steps but `finish`, which a caller may run for many images at once."""
        rng = ImageRng(self.seed, epoch, position)
        pixels = self._crop(self._resize_and_warp(self._decode(data), rng), rng)
        if self._changes_colors:
            pixels = adjust_colors(pixels, self, rng)
        is_mirrored = self.mirror or (self.rand_mirror and rng.coin(Slot.MIRROR))
        gain = 1.0
        lift = 0.0
        if self.finish.varies:
            limit = self.max_random_contrast
            gain = rng.uniform(Slot.GAIN, 1 - limit, 1 + limit) if limit else gain
            limit = self.max_random_illumination
            lift = rng.uniform(Slot.LIFT, -limit, limit) if limit else lift
        return AugmentedPixels(pixels, is_mirrored, gain, lift)

    def unaugmented(self) -> Augmenter:
        """Return an Augmenter to uint8 `chw` without random steps, to compute a mean image."""
        size = self.resize
        if self.random_resized_crop:
            size = max(self.height, self.width)
        return Augmenter(
            self.data_shape, dtype="uint8", resize=size, pad=self.pad, fill=self.fill,
            crop_y_start=self.crop_y_start, crop_x_start=self.crop_x_start,
            min_crop_size=self.max_crop_size, max_crop_size=self.max_crop_size,
            max_pixels=self.max_pixels,
        )  # fmt: skip

    @cached_property
    def finish(self) -> FinalStep:
        """The step that mirrors, applies the formula, and converts layout and dtype."""
        return FinalStep(self, self.layout, self.dtype, self.mean_img)

    @cached_property
    def _changes_colors(self) -> bool:
        return self.changes_colors

    @cached_property
    def _needs_warp(self) -> bool:
        return geometry.needs_warp(self)

    def _option_needing_opencv(self) -> str:
        """Return the name of an option that needs OpenCV, or an empty string."""
        for name in ("resize", "random_resized_crop", "max_crop_size"):
            if getattr(self, name):
                return name
        if any((self.random_h, self.random_s, self.random_l)):
            return "random_h, random_s or random_l"
        return "rotating, shearing or scaling images" if self._needs_warp else ""

    def _decode(self, data: Any) -> DecodedImage:
        if isinstance(data, np.ndarray) and data.ndim > 1:
            if data.ndim != 3 or data.shape[2] != self.channels or data.dtype != np.uint8:
                raise ShapeError(
                    f"the image has shape {data.shape} and dtype {data.dtype}; decoded pixels must "
                    f"be uint8 (height, width, {self.channels})"
                )
            return DecodedImage(data, *data.shape[:2])
        min_size = None if self.resize is None else (self.resize, self.resize)
        return decode_pixels(data, _READ_OPTIONS[self.channels], min_size, self.max_pixels)

    def _resize_and_warp(self, image: DecodedImage, rng: ImageRng) -> Array:
        """Return the pixels resized, rotated, sheared and scaled."""
        pixels = image.array
        if self.resize is not None:
            pixels = self._resize(pixels, geometry.shorter_side_size(*image[1:], self.resize), rng)
        if self.random_resized_crop:
            sides = [side + 2 * self.pad for side in pixels.shape[:2]]
            window = geometry.random_resized_window(self, rng, *sides)
            pixels = self._extract_padded(window, pixels)
            return self._resize(pixels, (self.height, self.width), rng)
        if self.rotate is not None and self.rotate % 90 == 0:
            pixels = rotate_quarters(pixels, self.rotate)
        if not self._needs_warp:
            return pixels
        warp = geometry.random_warp(self, rng, *pixels.shape[:2])
        method = interpolation_for(self.inter_method, rng, pixels.shape[:2], warp[1:])
        return warp_affine(pixels, warp, method, self.fill)

    def _resize(self, pixels: Array, size: tuple[int, int], rng: ImageRng) -> Array:
        method = interpolation_for(self.inter_method, rng, pixels.shape[:2], size)
        return resize_pixels(pixels, size, method)

    def _extract_padded(self, window: geometry.Window, pixels: Array) -> Array:
        inside = window._replace(top=window.top - self.pad, left=window.left - self.pad)
        return inside.extract(pixels, self.fill)

    def _crop(self, pixels: Array, rng: ImageRng) -> Array:
        """Return the cropped pixels, padded where the window extends beyond the image."""
        height = pixels.shape[0] + 2 * self.pad
        width = pixels.shape[1] + 2 * self.pad
        window = geometry.crop_window(self, rng, height, width)
        crop = self._extract_padded(window, pixels)
        if self.max_crop_size is None:
            return crop
        return self._resize(crop, (self.height, self.width), rng)

"""`Augmenter`: the bytes of a picture become an array, changed at random.

Knows one picture and its place among all; batches and files of many are known to its caller.

What ends the way of a picture: mirrored, ((x - mean) * k + i) * scale / std, layout and dtype.

One pass over the pixels where k and i are 1 and 0 and the mean is one number a channel. Other
means, and a k and i of each picture's own, are applied to the result while it is in the cache.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..._utils.validation import as_count
from ...converter import Converter
from ...errors import ArgumentError, DtypeError, ShapeError
from ...layout.parsing import parse_layout
from ...memory import Array
from ...spec import as_dtype
from ..decode import Pixels, pillow, pixels_of
from . import geometry
from .color import recoloured
from .geometry import check_opencv, method_for, resized_to, turned, warped_onto
from .options import Options
from .random import Draws, Use

_FLOATS = ("float32", "float64", "float16", "bfloat16")
_INTEGERS = ("uint8", "int8")
# Of windows in pictures of so many widths the pass is planned, for 0.3 ms each; those of others are
# copied first, for 0.01 ms, as pictures may be of a thousand widths.
_MOST_WIDTHS = 64


class Cut(NamedTuple):
    """The part of a picture that becomes the result, and what is random about the rest of its way.

    pixels : uint8 (height, width, channels)    not yet mirrored, and not to be written to
    gain, lift : float                          k and i
    """

    pixels: Array
    is_mirrored: bool
    gain: float
    lift: float


class Finish:
    """The last step for pictures of one size, planned once.

    layout : str      of one picture: `chw`, `hwc`, `(hwc)`
    mean : array      float (channels, height, width), in place of one number a channel
    varies : bool     it is more than one formula for all pictures; else `constants` are those of a
                      conversion that does the same
    """

    def __init__(self, options: Options, layout: str, dtype: Any, mean: Array | None) -> None:
        self.dtype = _checked_dtype(dtype)
        self._options, self._layout = options, layout
        saturate = {"casting": "saturate"} if self.dtype.name in _INTEGERS else {}
        self.varies = bool(
            mean is not None or options.max_random_contrast or options.max_random_illumination
        )
        factors = [options.scale / each for each in options.std]
        found = "float64" if self.dtype.name == "float64" else "float32"
        if not self.varies:
            self.constants = saturate | _constants(options.mean, [1 / each for each in factors])
            self._pass = _pass(f"hwc->{layout}", self.dtype, **self.constants)
        else:
            means = _constants(options.mean, None) if mean is None else {}
            self._pass = Converter(f"hwc->{layout}", dtype=found, threads=1, **means)
            self._end = _pass(f"{layout}->{layout}", self.dtype, **saturate)
            self._factors = self._laid_out(factors, found)
            self._means = None if mean is None else self._mean_images(mean, found)
        self._widths: set[int] = set()
        shape = (options.height, options.width, options.channels)
        self.shape: tuple[int, ...] = self._pass.target_shape(shape)

    def __call__(self, cut: Cut, out: Array | None) -> Array:
        """What becomes of a picture's window, in `out` if it is given."""
        pixels, is_mirrored, gain, lift = cut
        if pixels.strides[0] not in self._widths:
            if len(self._widths) < _MOST_WIDTHS:
                self._widths.add(pixels.strides[0])
            else:
                pixels = np.ascontiguousarray(pixels)
        if is_mirrored:
            pixels = pixels[:, ::-1]
        if not self.varies:
            found: Array = self._pass(pixels, out=out)
            return found
        direct = self._end.task.dtype == self._pass.task.dtype
        values: Array = self._pass(pixels, out=out if direct else None)
        if self._means is not None:
            values -= self._means[is_mirrored]
        if gain != 1:
            values *= values.dtype.type(gain)
        if lift:
            values += values.dtype.type(lift)
        values *= self._factors
        return values if direct else self._end(values, out=out)

    def _laid_out(self, values: list[float], dtype: str) -> Array:
        """One number a channel, in a shape that goes with results."""
        if len(set(values)) == 1:
            return np.array(values[0], dtype)
        options, groups = self._options, parse_layout(self._layout).groups
        if "c" in groups:
            shape = [1] * len(groups)
            shape[groups.index("c")] = options.channels
            return np.array(values, dtype).reshape(shape)
        whole = np.empty((options.height, options.width, options.channels), dtype)
        whole[...] = values
        found: Array = Converter(f"hwc->{self._layout}")(whole)
        return found

    def _mean_images(self, mean: Array, dtype: str) -> tuple[Array, Array]:
        """What is subtracted of pictures, and of mirrored ones."""
        if mean.shape != self._options.data_shape:
            raise ShapeError(
                f"mean_img has shape {mean.shape}, but pictures are {self._options.data_shape}; "
                "its shape is that of data_shape"
            )
        convert = Converter(f"chw->{self._layout}", dtype=dtype)
        return convert(mean), convert(mean[:, :, ::-1])


def _pass(pattern: str, dtype: Any, **keywords: Any) -> Converter:
    """What writes a row of a batch: it is not read again before the batch is, and is one thread's
    work, as other threads have pictures of their own."""
    asked = Converter(pattern, dtype=dtype, threads=1, **keywords)
    return Converter.of_task(asked.task._replace(is_part=True))


def _constants(means: tuple[float, ...], stds: list[float] | None) -> dict[str, Any]:
    """The keywords of a formula that changes something."""
    found: dict[str, Any] = {}
    if any(means):
        found["mean"] = means
    if stds is not None and set(stds) != {1.0}:
        found["std"] = stds
    return found


def _checked_dtype(dtype: Any) -> np.dtype[Any]:
    found = as_dtype(dtype)
    if found.name not in (*_FLOATS, *_INTEGERS):
        raise DtypeError(
            f"pictures of dtype {found} are not made; there are {', '.join(_FLOATS + _INTEGERS)}"
        )
    return found


def check_layout(layout: str) -> None:
    """ArgumentError unless a layout is one of a picture: h, w and c, in any order and folds."""
    if sorted(parse_layout(layout).letters) != ["c", "h", "w"]:
        raise ArgumentError(
            f'layout={layout!r}; that of a picture has h, w and c, as "chw", "hwc" or "(hwc)"'
        )


@dataclass(frozen=True, eq=False)
class Augmenter(Options):
    """Decodes a picture and changes it at random, step by step in the order of its keywords.

    >>> import numpy as np
    >>> picture = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    >>> augment = Augmenter((3, 2, 2), rand_crop=True, rand_mirror=True, scale=1 / 255)
    >>> augment(picture, epoch=1, position=7).shape
    (3, 2, 2)
    >>> Augmenter((3, 2, 2), dtype="uint8", crop_y_start=0, crop_x_start=1)(picture)[0].tolist()
    [[3, 6], [15, 18]]

    What is random is a function of `seed`, and of the epoch and position of each call: the same
    on any thread and in any process, and another one for every picture and epoch. Resizing,
    warping and changes of hue need OpenCV (`pip install "layoutkit[augment]"`).

    Parameters
    ----------
    data_shape : (int, int, int)
        Channels, height and width of the result. 1 is grey, 3 red, green and blue, 4 with alpha.
    layout : str
        That of the result: `chw`, `hwc`, `(hwc)`.
    dtype : dtype
        float32, float64, float16, bfloat16; or uint8 or int8, which are rounded half to even and
        cut off at their ends.
    seed : int
        Another seed, other pictures.
    max_pixels : int
        A file with more is refused before it is decoded.
    resize : int, optional
        The shorter side becomes this, the other one follows.
    random_resized_crop : bool
        A part of random place, of `min_random_area` to `max_random_area` of the picture and a
        ratio of its sides as `max_aspect_ratio` says, or the inverse, resized to the result.
    rotate : int, optional
        Degrees, counter-clockwise. Multiples of 90 are exact, and turn the sides, too; others
        keep them. In place of `max_rotate_angle`, up to which it is random, either way.
    max_shear_ratio : float
        How far a row may move, either way, against the one below it.
    min_random_scale, max_random_scale : float
        Between which the picture is scaled.
    min_aspect_ratio, max_aspect_ratio : float
        Between which height is stretched against width; without the first, the second is how far
        it may be from 1.
    min_img_size, max_img_size : float
        Sides of what a picture is scaled onto: it is cut off, or filled up, in the middle.
    inter_method : int
        Between pixels: 0 nearest, 1 bilinear, 2 cubic, 3 area, 4 Lanczos, 9 cubic to enlarge and
        area to shrink, 10 any of the first five.
    fill, fill_value : int
        What is where there is no picture; `fill` may be one a channel.
    pad : int
        Pixels around the picture.
    rand_crop : bool
        The result is cut out of anywhere; by default out of the middle.
    crop_y_start, crop_x_start : int, optional
        The row and the column where it begins.
    min_crop_size, max_crop_size : int, optional
        Sides of a square between which one is cut out, and resized to the result.
    brightness, contrast, saturation : float
        Up to which share each may change, either way, in random order.
    random_h, random_l, random_s : int
        Up to what is added to hue (0 to 180, which goes round), lightness and saturation.
    pca_noise : float
        Deviation of the noise of one colour, in components of those of natural pictures.
    mirror, rand_mirror : bool
        Left and right are exchanged: always, half of the time.
    mean_img : array, optional
        What is subtracted of each pixel: (channels, height, width), of pictures not mirrored.
    mean_r, mean_g, mean_b, mean_a, std_r, ... : float
        For each channel, or all in `mean` and `std`. Grey has those of red.
    max_random_contrast, max_random_illumination : float
        A picture's own k, 1 and up to this more or less, and i, up to this above or below 0, in
        ``((x - mean) * k + i) * scale / std``.
    scale : float
        As the formula says.

    Raises
    ------
    ArgumentError, DtypeError, ShapeError, PatternError
        An option is wrong, two do not fit together, or what they need is not installed; at once.
    """

    _: KW_ONLY
    layout: str = "chw"
    dtype: Any = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        as_count("seed", self.seed, None, ArgumentError)
        check_layout(self.layout)
        pillow()
        why = self._needs_opencv()
        if why:
            check_opencv(why)
        if self.mean_img is not None:
            mean = np.asarray(self.mean_img)
            if mean.dtype.kind not in "iuf":
                raise ArgumentError(f"mean_img is {self.mean_img!r}; it is an array of numbers")
            object.__setattr__(self, "mean_img", mean)
        _ = self.finish  # says what is wrong with dtype and shapes

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what it makes of a picture."""
        return self.finish.shape

    def __call__(
        self, data: Any, out: Array | None = None, *, epoch: int = 0, position: int = 0
    ) -> Array:
        """The picture of some bytes, in `out` if it is given.

        data : what `read` takes, or uint8 pixels (height, width, channels) that are decoded
        epoch, position : of what is random; the same ones give the same picture

        Raises what `read` raises, and ShapeError where the picture is smaller than what is cut out.
        """
        return self.finish(self.cut(data, epoch, position), out)

    def cut(self, data: Any, epoch: int, position: int) -> Cut:
        """All but the last step, which is `finish`: for who does that for many pictures at once."""
        draws = Draws(self.seed, epoch, position)
        pixels = self._cropped(self._placed(self._pixels(data), draws), draws)
        if self._has_colours:
            pixels = recoloured(pixels, self, draws)
        is_mirrored = self.mirror or (self.rand_mirror and draws.coin(Use.MIRROR))
        gain, lift = 1.0, 0.0
        if self.finish.varies:
            most = self.max_random_contrast
            gain = draws.uniform(Use.GAIN, 1 - most, 1 + most) if most else gain
            most = self.max_random_illumination
            lift = draws.uniform(Use.LIFT, -most, most) if most else lift
        return Cut(pixels, is_mirrored, gain, lift)

    def unaugmented(self) -> Augmenter:
        """What gives uint8 (channels, height, width) with nothing random, for a mean of all."""
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
    def finish(self) -> Finish:
        """The last step."""
        return Finish(self, self.layout, self.dtype, self.mean_img)

    @cached_property
    def _has_colours(self) -> bool:
        return self.has_colours

    @cached_property
    def _is_warped(self) -> bool:
        return geometry.is_warped(self)

    def _needs_opencv(self) -> str:
        """Which option does, None of them where it is empty."""
        for name in ("resize", "random_resized_crop", "max_crop_size"):
            if getattr(self, name):
                return name
        if any((self.random_h, self.random_s, self.random_l)):
            return "random_h, random_s or random_l"
        return "turning, shearing or scaling pictures" if self._is_warped else ""

    def _pixels(self, data: Any) -> Pixels:
        if isinstance(data, np.ndarray) and data.ndim > 1:
            if data.ndim != 3 or data.shape[2] != self.channels or data.dtype != np.uint8:
                raise ShapeError(
                    f"the picture has shape {data.shape} and {data.dtype}; pixels that are decoded "
                    f"already are uint8 (height, width, {self.channels})"
                )
            return Pixels(data, *data.shape[:2])
        enough = None if self.resize is None else (self.resize, self.resize)
        return pixels_of(data, self.channels, enough, self.max_pixels)

    def _placed(self, found: Pixels, draws: Draws) -> Array:
        """Resized, and turned, sheared and scaled."""
        pixels = found.array
        if self.resize is not None:
            pixels = self._resized(pixels, geometry.resized(*found[1:], self.resize), draws)
        if self.random_resized_crop:
            window = geometry.area_window(self, draws, *pixels.shape[:2])
            pixels = window.of(pixels, self.fill)
            return self._resized(pixels, (self.height, self.width), draws)
        if self.rotate is not None and self.rotate % 90 == 0:
            pixels = turned(pixels, self.rotate)
        if not self._is_warped:
            return pixels
        canvas = geometry.warped(self, draws, *pixels.shape[:2])
        method = method_for(self.inter_method, draws, pixels.shape[:2], canvas[1:])
        return warped_onto(pixels, canvas, method, self.fill)

    def _resized(self, pixels: Array, size: tuple[int, int], draws: Draws) -> Array:
        method = method_for(self.inter_method, draws, pixels.shape[:2], size)
        return resized_to(pixels, size, method)

    def _cropped(self, pixels: Array, draws: Draws) -> Array:
        """The window that becomes the result, padded where it reaches outside."""
        height, width = pixels.shape[0] + 2 * self.pad, pixels.shape[1] + 2 * self.pad
        window = geometry.crop_window(self, draws, height, width)
        if self.pad:
            window = window._replace(top=window.top - self.pad, left=window.left - self.pad)
        found = window.of(pixels, self.fill)
        if self.max_crop_size is None:
            return found
        return self._resized(found, (self.height, self.width), draws)

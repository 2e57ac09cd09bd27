"""Validation of augmentation options, which have the keywords of MXNet's image record iterator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from numbers import Real
from typing import Any

from ..._utils.pickling import UncachedState
from ..._utils.validation import as_int, check_bool
from ...errors import ArgumentError

NO_LIMIT = 1e10
AUTO = 9
ANY = 10
_INTERPOLATIONS = (0, 1, 2, 3, 4, AUTO, ANY)
_CHANNELS = (1, 3, 4)
_LETTERS = "rgba"


@dataclass(frozen=True)
class Options(UncachedState):
    """The keywords of `Augmenter`, which documents them, with their defaults.

    Options that a negative number disables in MXNet become None then.
    """

    data_shape: tuple[int, int, int]
    _: KW_ONLY
    resize: int | None = None
    random_resized_crop: bool = False
    min_random_area: float = 1
    max_random_area: float = 1
    rotate: int | None = None
    max_rotate_angle: int = 0
    max_shear_ratio: float = 0
    min_random_scale: float = 1
    max_random_scale: float = 1
    min_aspect_ratio: float | None = None
    max_aspect_ratio: float = 0
    min_img_size: float = 0
    max_img_size: float = NO_LIMIT
    inter_method: int = 1
    fill_value: int = 255
    fill: Any = None
    pad: int = 0
    rand_crop: bool = False
    crop_y_start: int | None = None
    crop_x_start: int | None = None
    min_crop_size: int | None = None
    max_crop_size: int | None = None
    brightness: float = 0
    contrast: float = 0
    saturation: float = 0
    random_h: int = 0
    random_s: int = 0
    random_l: int = 0
    pca_noise: float = 0
    mirror: bool = False
    rand_mirror: bool = False
    mean_img: Any = None
    mean_r: float = 0
    mean_g: float = 0
    mean_b: float = 0
    mean_a: float = 0
    mean: Any = None
    max_random_contrast: float = 0
    max_random_illumination: float = 0
    scale: float = 1
    std_r: float = 1
    std_g: float = 1
    std_b: float = 1
    std_a: float = 1
    std: Any = None
    max_pixels: int = 1 << 27

    def __post_init__(self) -> None:
        shape = self.data_shape
        sizes = [as_int(side) or 0 for side in shape] if isinstance(shape, tuple | list) else []
        if len(sizes) != 3 or min(sizes) < 1 or sizes[0] not in _CHANNELS:
            raise ArgumentError(
                f"data_shape={shape!r}; it must be (channels, height, width) with 1, 3 or 4 "
                "channels"
            )
        object.__setattr__(self, "data_shape", tuple(sizes))
        for field in fields(self):
            check = _VALIDATORS.get(field.name)
            if check is not None:
                object.__setattr__(self, field.name, check(field.name, getattr(self, field.name)))
        for name, per_letter in (("mean", "mean_"), ("std", "std_"), ("fill", None)):
            object.__setattr__(self, name, self._per_channel(name, per_letter))
        _check_combinations(self)

    @property
    def channels(self) -> int:
        """The number of channels: 1 for gray, 3 for RGB, 4 for RGBA."""
        return self.data_shape[0]

    @property
    def height(self) -> int:
        """The height of the result, in pixels."""
        return self.data_shape[1]

    @property
    def width(self) -> int:
        """The width of the result, in pixels."""
        return self.data_shape[2]

    @property
    def ratios(self) -> tuple[float, float]:
        """The range of the random aspect ratio."""
        if self.min_aspect_ratio is None:
            return 1 - self.max_aspect_ratio, 1 + self.max_aspect_ratio
        return self.min_aspect_ratio, self.max_aspect_ratio

    @property
    def changes_colors(self) -> bool:
        """True if an option changes colors, before the formula."""
        names = ("brightness", "contrast", "saturation", "random_h", "random_s", "random_l")
        return any(getattr(self, name) for name in (*names, "pca_noise"))

    def _per_channel(self, name: str, per_letter: str | None) -> tuple[float, ...]:
        """Return one number per channel, from the keyword for all or the keywords for one."""
        value = getattr(self, name)
        letters = _LETTERS[: self.channels]
        if value is None:
            if per_letter is None:
                return (self.fill_value,) * self.channels
            return tuple(getattr(self, per_letter + letter) for letter in letters)
        single = ["fill_value"] if per_letter is None else [per_letter + x for x in letters]
        defaults = {field.name: field.default for field in fields(self)}
        for other in single:
            if getattr(self, other) != defaults[other]:
                raise ArgumentError(f"{name} and {other} are both given; pass only one of them")
        numbers = (value,) * self.channels if isinstance(value, Real) else tuple(value)
        if len(numbers) != self.channels:
            raise ArgumentError(
                f"{name}={value!r} for {self.channels} channels; pass one number, or one for each"
            )
        check = _VALIDATORS["fill_value" if per_letter is None else per_letter + "r"]
        return tuple(check(name, number) for number in numbers)


Validator = Callable[[str, Any], Any]


def _number(low: float = -math.inf, high: float = math.inf, *, above: bool = False) -> Validator:
    def check(name: str, value: Any) -> float:
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or not low <= value <= high:
            raise ArgumentError(
                f"{name}={value!r}; it must be {_range_text(low, high, 'a finite number')}"
            )
        if above and value == low:
            raise ArgumentError(f"{name}={value!r}; it must be a number above {low:g}")
        return float(value)

    return check


def _count(low: int, high: float = math.inf) -> Validator:
    def check(name: str, value: Any) -> int:
        number = as_int(value)
        if number is None or not low <= number <= high:
            raise ArgumentError(
                f"{name}={value!r}; it must be {_range_text(low, high, 'an integer')}"
            )
        return number

    return check


def _optional_or_minus_one(check: Validator) -> Validator:
    """Return a validator that maps None, and MXNet's -1 for it, to None."""

    def checked(name: str, value: Any) -> Any:
        return None if value is None or as_int(value) == -1 else check(name, value)

    return checked


def _optional(check: Validator) -> Validator:
    return lambda name, value: None if value is None else check(name, value)


def _flag(name: str, value: Any) -> bool:
    return check_bool(name, value, ArgumentError)


def _method(name: str, value: Any) -> int:
    if as_int(value) not in _INTERPOLATIONS:
        raise ArgumentError(
            f"{name}={value!r}; it must be 0 nearest, 1 bilinear, 2 cubic, 3 area, 4 Lanczos, 9 "
            "chosen by the sizes, or 10 a random one of the first five"
        )
    return int(value)


def _divisor(name: str, value: Any) -> float:
    if _number()(name, value) == 0:
        raise ArgumentError(f"{name}={value!r}; it must be a number other than 0")
    return float(value)


def _range_text(low: float, high: float, noun: str) -> str:
    bounds = [f"of at least {low:g}" if low > -math.inf else "", ""]
    bounds[1] = f"at most {high:g}" if high < math.inf else ""
    return " ".join([noun, *[" and ".join(filter(None, bounds))]]).strip()


_fraction, _ratio, _size = _number(0, 1), _number(0), _optional_or_minus_one(_count(1))
_VALIDATORS: Mapping[str, Validator] = {
    "resize": _size,
    "min_crop_size": _size,
    "max_crop_size": _size,
    "crop_y_start": _optional_or_minus_one(_count(0)),
    "crop_x_start": _optional_or_minus_one(_count(0)),
    "rotate": _optional(_count(-360_000, 360_000)),
    "max_rotate_angle": _count(0, 360),
    "inter_method": _method,
    "fill_value": _count(0, 255),
    "pad": _count(0),
    "min_aspect_ratio": _optional(_number(0, above=True)),
    "min_random_area": _number(0, 1, above=True),
    "max_random_area": _number(0, 1, above=True),
    "min_random_scale": _number(0, above=True),
    "max_random_scale": _number(0, above=True),
    "max_img_size": _number(1),
    "scale": _divisor,
    "max_pixels": _count(1),
    **dict.fromkeys(("max_shear_ratio", "max_aspect_ratio", "min_img_size", "pca_noise"), _ratio),
    **dict.fromkeys(("brightness", "contrast", "saturation"), _fraction),
    **dict.fromkeys(("max_random_contrast", "max_random_illumination"), _ratio),
    **dict.fromkeys(("random_h", "random_s", "random_l"), _count(0, 255)),
    **dict.fromkeys(("random_resized_crop", "rand_crop", "mirror", "rand_mirror"), _flag),
    **{f"mean_{letter}": _number() for letter in _LETTERS},
    **{f"std_{letter}": _divisor for letter in _LETTERS},
}


def _check_combinations(options: Options) -> None:
    """Raise ArgumentError if two options contradict each other."""
    for low, high in (
        ("min_random_area", "max_random_area"),
        ("min_random_scale", "max_random_scale"),
        ("min_img_size", "max_img_size"),
        ("min_crop_size", "max_crop_size"),
    ):
        first = getattr(options, low)
        last = getattr(options, high)
        if (first is None) != (last is None):
            raise ArgumentError(f"{low} and {high} are the ends of one range; pass both")
        if first is not None and first > last:
            raise ArgumentError(f"{low}={first:g} is above {high}={last:g}; swap them")
    _check_ratios(options)
    if options.channels == 1:
        names = ("random_h", "random_s", "random_l", "saturation", "pca_noise")
        color_options = [name for name in names if getattr(options, name)]
        if color_options:
            raise ArgumentError(
                f"{color_options[0]} changes colors, which images of 1 channel do not have; remove "
                "it, or use 3 channels"
            )
    if options.random_resized_crop:
        _check_random_resized(options)


def _check_ratios(options: Options) -> None:
    low, high = options.ratios
    if low > high:
        raise ArgumentError(
            f"min_aspect_ratio={low:g} is above max_aspect_ratio={high:g}; swap them"
        )
    if low <= 0:
        raise ArgumentError(
            f"max_aspect_ratio={options.max_aspect_ratio:g} allows ratios down to {low:g}; pass "
            "less than 1, or add min_aspect_ratio="
        )


def _check_random_resized(options: Options) -> None:
    """Raise ArgumentError for options that contradict the window of random_resized_crop."""
    defaults = {field.name: field.default for field in fields(options)}
    for name in (
        "rand_crop",
        "min_crop_size",
        "rotate",
        "max_rotate_angle",
        "max_shear_ratio",
        "min_random_scale",
        "max_random_scale",
        "min_img_size",
        "max_img_size",
    ):
        if getattr(options, name) != defaults[name]:
            raise ArgumentError(
                f"random_resized_crop=True crops and resizes by itself and cannot be combined with "
                f"{name}; remove one of them"
            )

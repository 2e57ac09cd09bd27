"""Validation of augmentation options, which have the keywords of MXNet's image record iterator."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field, fields
from numbers import Real
from typing import Any, NamedTuple

from ..._utils.pickling import UncachedState
from ..._utils.validation import as_int, check_bool, show
from ...errors import ArgumentError

NO_LIMIT = 1e10
AUTO = 9
ANY = 10
_INTERPOLATIONS = {
    **dict(enumerate(("nearest", "bilinear", "cubic", "area", "Lanczos"))),
    AUTO: "chosen by the sizes",
    ANY: "a random one of the first five",
}
_CHANNELS = (1, 3, 4)
_LETTERS = "rgba"


class Limits(NamedTuple):
    """The values of an option: numbers from `low` to `high`, True and False, or `choices`."""

    kind: type[bool] | type[int] | type[float]
    low: float = -math.inf
    high: float = math.inf
    excludes_zero: bool = False
    choices: dict[int, str] | None = None  # with their meanings, for the error
    disabled: int | None = None  # MXNet's number for None, which is accepted, too
    is_optional: bool = False

    def check(self, name: str, value: Any) -> Any:
        """Return an option's value; raise ArgumentError if it is not within the limits."""
        if self.kind is bool:
            return check_bool(name, value, ArgumentError)
        if self.is_optional and value is None:
            return None
        if self.disabled is not None and as_int(value) == self.disabled:
            return None
        number = as_int(value) if self.kind is int else _as_finite(value)
        is_valid = number is not None and self.low <= number <= self.high
        if not is_valid or (self.choices and number not in self.choices):
            raise ArgumentError(f"{name}={show(value)}; it must be {self._expected()}")
        if self.excludes_zero and number == 0:
            allowed = "above 0" if self.low == 0 else "other than 0"
            raise ArgumentError(f"{name}={show(value)}; it must be a number {allowed}")
        return number

    def _expected(self) -> str:
        if self.choices:
            *most, last = (f"{choice} {meaning}" for choice, meaning in self.choices.items())
            return f"{', '.join(most)}, or {last}"
        low = [f"of at least {self.low:g}"] if self.low > -math.inf else []
        high = [f"at most {self.high:g}"] if self.high < math.inf else []
        noun = "an integer" if self.kind is int else "a finite number"
        return f"{noun} {' and '.join(low + high)}".strip()


def _option(default: Any, *limits: Any, **more: Any) -> Any:
    return field(default=default, metadata={"limits": Limits(*limits, **more)})


def _as_finite(value: Any) -> float | None:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None


@dataclass(frozen=True)
class Options(UncachedState):
    """The keywords of `Augmenter`, which documents them, with their defaults and limits.

    Options that a negative number disables in MXNet become None then.
    """

    data_shape: tuple[int, int, int]
    _: KW_ONLY
    resize: int | None = _option(None, int, 1, is_optional=True, disabled=-1)
    random_resized_crop: bool = _option(False, bool)
    min_random_area: float = _option(1, float, 0, 1, excludes_zero=True)
    max_random_area: float = _option(1, float, 0, 1, excludes_zero=True)
    rotate: int | None = _option(None, int, -360_000, 360_000, is_optional=True)
    max_rotate_angle: int = _option(0, int, 0, 360)
    max_shear_ratio: float = _option(0, float, 0)
    min_random_scale: float = _option(1, float, 0, excludes_zero=True)
    max_random_scale: float = _option(1, float, 0, excludes_zero=True)
    min_aspect_ratio: float | None = _option(None, float, 0, excludes_zero=True, is_optional=True)
    max_aspect_ratio: float = _option(0, float, 0)
    min_img_size: float = _option(0, float, 0)
    max_img_size: float = _option(NO_LIMIT, float, 1)
    inter_method: int = _option(1, int, choices=_INTERPOLATIONS)
    fill_value: int = _option(255, int, 0, 255)
    fill: Any = None
    pad: int = _option(0, int, 0)
    rand_crop: bool = _option(False, bool)
    crop_y_start: int | None = _option(None, int, 0, is_optional=True, disabled=-1)
    crop_x_start: int | None = _option(None, int, 0, is_optional=True, disabled=-1)
    min_crop_size: int | None = _option(None, int, 1, is_optional=True, disabled=-1)
    max_crop_size: int | None = _option(None, int, 1, is_optional=True, disabled=-1)
    brightness: float = _option(0, float, 0, 1)
    contrast: float = _option(0, float, 0, 1)
    saturation: float = _option(0, float, 0, 1)
    random_h: int = _option(0, int, 0, 255)
    random_s: int = _option(0, int, 0, 255)
    random_l: int = _option(0, int, 0, 255)
    pca_noise: float = _option(0, float, 0)
    mirror: bool = _option(False, bool)
    rand_mirror: bool = _option(False, bool)
    mean_img: Any = None
    mean_r: float = _option(0, float)
    mean_g: float = _option(0, float)
    mean_b: float = _option(0, float)
    mean_a: float = _option(0, float)
    mean: Any = None
    max_random_contrast: float = _option(0, float, 0)
    max_random_illumination: float = _option(0, float, 0)
    scale: float = _option(1, float, excludes_zero=True)
    std_r: float = _option(1, float, excludes_zero=True)
    std_g: float = _option(1, float, excludes_zero=True)
    std_b: float = _option(1, float, excludes_zero=True)
    std_a: float = _option(1, float, excludes_zero=True)
    std: Any = None
    max_pixels: int = _option(1 << 27, int, 1)

    def __post_init__(self) -> None:
        shape = self.data_shape
        sizes = [as_int(side) or 0 for side in shape] if isinstance(shape, tuple | list) else []
        if len(sizes) != 3 or min(sizes) < 1 or sizes[0] not in _CHANNELS:
            raise ArgumentError(
                f"data_shape={show(shape)}; it must be (channels, "
                "height, width) with 1, 3 or 4 channels"
            )
        object.__setattr__(self, "data_shape", tuple(sizes))
        for name, option in _OPTIONS.items():
            if "limits" in option.metadata:
                value = option.metadata["limits"].check(name, getattr(self, name))
                object.__setattr__(self, name, value)
        letters = _LETTERS[: self.channels]
        for name, single in (
            ("mean", [f"mean_{letter}" for letter in letters]),
            ("std", [f"std_{letter}" for letter in letters]),
            ("fill", ["fill_value"] * self.channels),
        ):
            object.__setattr__(self, name, self._per_channel(name, single))
        _check_ranges(self)
        _check_colors(self)
        if self.random_resized_crop:
            _check_random_resized(self)

    def _is_default(self, name: str) -> bool:
        return bool(getattr(self, name) == _OPTIONS[name].default)

    @property
    def channels(self) -> int:
        """The number of channels: 1 for gray, 3 for RGB, 4 for RGBA."""
        return self.data_shape[0]

    @property
    def height(self) -> int:
        return self.data_shape[1]

    @property
    def width(self) -> int:
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

    def _per_channel(self, name: str, single: list[str]) -> tuple[float, ...]:
        value = getattr(self, name)
        if value is None:
            return tuple(getattr(self, each) for each in single)
        for each in single:
            if not self._is_default(each):
                raise ArgumentError(f"{name} and {each} are both given; pass only one of them")
        is_one = isinstance(value, Real) or not isinstance(value, Iterable)
        numbers = (value,) * self.channels if is_one else tuple(value)
        if len(numbers) != self.channels:
            raise ArgumentError(
                f"{name}={show(value)} for {self.channels} channels; pass one number, or one for "
                "each"
            )
        limits: Limits = _OPTIONS[single[0]].metadata["limits"]
        return tuple(limits.check(name, number) for number in numbers)


_OPTIONS = {option.name: option for option in fields(Options)}


def _check_ranges(options: Options) -> None:
    """Raise ArgumentError if the smallest value of a range is above the largest."""
    for name in ("random_area", "random_scale", "img_size", "crop_size"):
        first = getattr(options, f"min_{name}")
        last = getattr(options, f"max_{name}")
        if (first is None) != (last is None):
            raise ArgumentError(f"min_{name} and max_{name} are the ends of one range; pass both")
        if first is not None and first > last:
            raise ArgumentError(f"min_{name}={first:g} is above max_{name}={last:g}; swap them")
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


def _check_colors(options: Options) -> None:
    if options.channels > 1:
        return
    for name in ("random_h", "random_s", "random_l", "saturation", "pca_noise"):
        if getattr(options, name):
            raise ArgumentError(
                f"{name} changes colors, which images of 1 channel do not have; "
                "remove it, or use 3 channels"
            )


def _check_random_resized(options: Options) -> None:
    """Raise ArgumentError for options that contradict the window of random_resized_crop."""
    for name in (
        *("rand_crop", "min_crop_size", "rotate", "max_rotate_angle", "max_shear_ratio"),
        *("min_random_scale", "max_random_scale", "min_img_size", "max_img_size"),
    ):
        if not options._is_default(name):
            raise ArgumentError(
                f"random_resized_crop=True crops and resizes by itself and cannot be combined with "
                f"{name}; remove one of them"
            )

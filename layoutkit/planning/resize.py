"""The checked resize options of a Collator."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .._utils.validation import as_int, check_bool, check_choice, show
from ..errors import ArgumentError
from .fitting import MAX_SIDE
from .keywords import collect_keywords, find_filter_cure
from .padding import parse_axis_sizes

FILTERS = ("nearest", "bilinear", "bicubic", "lanczos", "area")
FIT_MODES = ("cover", "pad", "stretch")

# The sum of weights of valid pixels above which their mean is valid: filters with negative weights
# amplify noise where the sum is near 0.
LEAST_WEIGHT = {"bicubic": 0.1, "lanczos": 0.1}


class ResizeOptions(NamedTuple):
    """The checked resize options.

    filter      the name of the filter, one of FILTERS
    antialias   whether the filter widens with the scale of a sample that shrinks
    fit         how a sample fills its window, one of FIT_MODES
    short_side  the scaled size of the shorter side, before the central crop, or None
    max_side    the largest scaled size of the longer side, or None
    pad_before  the positions before the sample by axis, for fit="pad"; other axes: centered
    multiple    chooses the sizes of samples of a packed batch: both sides of an image are multiples
                of it; or None
    min_pixels, max_pixels    bounds of the area of an image whose size is chosen, or None
    ignore      the value of pixels that are omitted, NaN is math.nan; None: no pixel is
    """

    filter: str
    antialias: bool = True
    fit: str = "stretch"
    short_side: int | None = None
    max_side: int | None = None
    pad_before: tuple[tuple[str, int], ...] = ()
    multiple: int | None = None
    min_pixels: int | None = None
    max_pixels: int | None = None
    ignore: float | None = None

    def keywords(self) -> dict[str, Any]:
        """Return the keyword arguments of these options, without defaults."""
        return {"resize": self.filter} | collect_keywords(self, self._field_defaults)


# The keyword arguments of a Collator that need `resize=`, and their defaults.
RESIZE_DEFAULTS: dict[str, Any] = {**ResizeOptions._field_defaults, "pad_before": None}


def parse_resize(resize: Any, **options: Any) -> ResizeOptions | None:
    """Return the checked options, or None without `resize`.

    `options` are keyword arguments of RESIZE_DEFAULTS; omitted ones have their default.

    Raises ArgumentError if an option is invalid, or two contradict each other.
    """
    options = RESIZE_DEFAULTS | options
    if resize is None:
        _check_unused(options)
        return None
    if not isinstance(resize, str) or resize not in FILTERS:
        raise ArgumentError(
            f"resize={show(resize)} is not one of {', '.join(FILTERS)}; {find_filter_cure(resize)}"
        )
    antialias, fit = options["antialias"], options["fit"]
    check_bool("antialias", antialias, ArgumentError)
    check_choice("fit", fit, FIT_MODES, ArgumentError)
    if resize == "lanczos" and not antialias:
        raise ArgumentError(
            'resize="lanczos" is defined with antialias only; remove antialias=False, or give '
            'resize="bicubic"'
        )
    return ResizeOptions(
        resize,
        antialias,
        fit,
        *_parse_sides(options["short_side"], options["max_side"], fit),
        _parse_pad_before(options["pad_before"], fit),
        *_parse_sizing(*map(options.get, ("multiple", "min_pixels", "max_pixels"))),
        _parse_ignore(options["ignore"]),
    )


def _check_unused(options: dict[str, Any]) -> None:
    """Raise ArgumentError if an option that needs a filter is not its default."""
    for name, value in options.items():
        default = RESIZE_DEFAULTS[name]
        if type(value) is not type(default) or value != default:
            raise ArgumentError(
                f'{name}={show(value)} needs a filter; give resize="bilinear" or another one of '
                f"{', '.join(FILTERS)}"
            )


def _parse_sides(short_side: Any, max_side: Any, fit: str) -> tuple[int | None, int | None]:
    """Return the checked sizes of the shorter and of the longer side of scaled samples."""
    side, most = (
        _parse_number(name, value)
        for name, value in (("short_side", short_side), ("max_side", max_side))
    )
    if side is not None and fit != "stretch":
        raise ArgumentError(
            f"short_side={side} and fit={fit!r} both say how samples are scaled; remove one"
        )
    if most is not None and (side is None or most < side):
        raise ArgumentError(
            f"max_side={most} limits the longer side of samples whose shorter side becomes "
            f"short_side, which is {side}; give one of at most {most}, as in short_side=800, "
            "max_side=1333"
        )
    return side, most


def _parse_number(name: str, value: Any) -> int | None:
    """Return a number of positions or pixels as an int, or None; raise ArgumentError for others."""
    number = None if value is None else as_int(value)
    if value is not None and (number is None or not 1 <= number <= MAX_SIDE):
        raise ArgumentError(f"{name}={show(value)}; it must be a whole number from 1 to {MAX_SIDE}")
    return number


def _parse_sizing(
    multiple: Any, min_pixels: Any, max_pixels: Any
) -> tuple[int | None, int | None, int | None]:
    """Return the checked options that choose the sizes of the samples of a packed batch."""
    numbers = {"multiple": multiple, "min_pixels": min_pixels, "max_pixels": max_pixels}
    for name, value in numbers.items():
        numbers[name] = _parse_number(name, value)
        if value is not None and multiple is None:
            raise ArgumentError(f"{name}={value} bounds the sizes that multiple= chooses; give it")
    multiple, low, high = numbers.values()
    if low is not None and high is not None and low > high:
        raise ArgumentError(f"min_pixels={low} is above max_pixels={high}; exchange them")
    return multiple, low, high


def _parse_ignore(ignore: Any) -> float | None:
    """Return the ignored value as a number of Python; equal options have one NaN."""
    if ignore is None:
        return None
    if isinstance(ignore, bool) or not isinstance(ignore, int | float | np.number):
        raise ArgumentError(
            f"ignore={show(ignore)}; give the number of pixels that are omitted, as in "
            'ignore=-9999, or float("nan")'
        )
    value = ignore.item() if isinstance(ignore, np.number) else ignore
    return math.nan if value != value else value


def _parse_pad_before(pad_before: Any, fit: str) -> tuple[tuple[str, int], ...]:
    if pad_before is None:
        return ()
    if fit != "pad":
        raise ArgumentError(
            f'pad_before={show(pad_before)} applies to fit="pad", and fit is {fit!r}'
        )
    return parse_axis_sizes("pad_before", pad_before, MAX_SIDE + 1)

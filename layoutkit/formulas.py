"""The constants of y = (x * scale - mean) / std, checked once and prepared in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from .errors import ArgumentError, DtypeError, ShapeError
from .spec import DType, kind_of

__all__ = ["Formula", "computed_dtype", "make_formula"]

Constants: TypeAlias = float | tuple[float, ...]

_TINY, _HUGE = (float(v) for v in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))


@dataclass(frozen=True)
class Formula:
    """y = (x * scale - mean) / std; `mean` and `std` are numbers, or one number a channel."""

    scale: float = 1.0
    mean: Constants = 0.0
    std: Constants = 1.0

    def keywords(self) -> dict[str, Constants]:
        """The keyword arguments that make this formula."""
        return {"scale": self.scale, "mean": self.mean, "std": self.std}

    @property
    def per_channel(self) -> bool:
        """Whether there is one constant for each channel."""
        return isinstance(self.mean, tuple) or isinstance(self.std, tuple)

    def coefficients(self, channels: int | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """(factors, terms) such that y = x * factor + term, one pair or one for each channel.

        Raises
        ------
        ShapeError
            `mean` or `std` has not one value for each of `channels` (None: no axis `c`).
        """
        for name, values in (("mean", self.mean), ("std", self.std)):
            if isinstance(values, tuple):
                _check_channels(name, values, channels)
        return self._coefficients

    @property
    def channels(self) -> int:
        """How many pairs of coefficients there are."""
        return max(len(v) if isinstance(v, tuple) else 1 for v in (self.mean, self.std))

    @cached_property
    def _coefficients(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """One pair for all plans: of many channels they take more than all the rest of a plan."""
        count = self.channels
        mean, std = (v if isinstance(v, tuple) else (v,) * count for v in (self.mean, self.std))
        factors = tuple(self.scale / s for s in std)
        return factors, tuple(-m / s for m, s in zip(mean, std, strict=True))

    def computed_dtype(self, source: DType, target: DType) -> DType:
        """What to compute in: float64 also where float32 cannot hold the coefficients."""
        lengths = [len(v) for v in (self.mean, self.std) if isinstance(v, tuple)]
        fits = all(map(_fits_float32, sum(self.coefficients(max(lengths, default=None)), ())))
        return computed_dtype(source, target) if fits else np.dtype(np.float64)


def make_formula(scale: Any, mean: Any, std: Any) -> Formula | None:
    """The formula of three keyword arguments, or None when all of them are None.

    Raises
    ------
    ArgumentError
        A constant is no finite number, or a std is zero.
    ShapeError
        `mean` or `std` has more than one axis, or no value.
    """
    if scale is None and mean is None and std is None:
        return None
    formula = Formula(
        1.0 if scale is None else _number("scale", scale),
        0.0 if mean is None else _numbers("mean", mean),
        1.0 if std is None else _numbers("std", std),
    )
    for name, divided in (("scale", formula.scale), ("mean", formula.mean)):
        _check_divisible(name, divided, formula.std)
    return formula


def computed_dtype(source: DType, target: DType | None) -> DType:
    """The dtype that the formula is computed in: float64 if either side is, else float32.

    Raises
    ------
    DtypeError
        The formula has no meaning for `source` or `target`.
    """
    for dtype in (source, target):
        if dtype is not None and kind_of(dtype) not in "buif":
            raise DtypeError(
                f"scale, mean and std do not apply to dtype {dtype}; convert real numbers, or "
                "leave them out"
            )
    wide = any(d is not None and kind_of(d) == "f" and d.itemsize >= 8 for d in (source, target))
    return np.dtype(np.float64 if wide else np.float32)


def _number(name: str, value: Any) -> float:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    real = isinstance(value, np.generic) and kind_of(value.dtype) in "buif"
    try:
        number = float(value) if real or isinstance(value, Real) else math.nan
    except (TypeError, OverflowError):  # beyond every float, such as 10**400
        number = math.nan
    if not math.isfinite(number):
        raise ArgumentError(f"{name} is {_shorten(repr(value), 60)}; give a finite real number")
    return number


def _numbers(name: str, value: Any) -> Constants:
    if isinstance(value, np.ndarray):
        items, shape = list(value.flat), value.shape
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        items, shape = list(value), (len(value),)
    else:
        return _number(name, value)
    if shape == ():
        return _number(name, items[0])
    if len(shape) > 1 or not items or any(map(_nests, items)):
        raise ShapeError(
            f"{name} is {_shorten(repr(value), 60)}; give one number, or a flat list of one number "
            "for each channel"
        )
    return tuple(_number(f"{name}[{at}]", item) for at, item in enumerate(items))


def _nests(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)


def _shorten(text: str, length: int) -> str:
    """The text on one line, cut where it is too long for a message."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 3] + "..."


def _check_divisible(name: str, divided: Constants, std: Constants) -> None:
    """Raise unless every quotient is a number."""
    below = std if isinstance(std, tuple) else (std,)
    above = divided if isinstance(divided, tuple) else (divided,) * len(below)
    if 0.0 in below:
        shown = _shorten(repr(std), 60)
        raise ArgumentError(f"std is {shown} and would divide by zero; give numbers other than 0")
    below = below if len(below) > 1 else below * len(above)
    # Lengths that differ are for the axes to judge, when they are known.
    if not all(math.isfinite(a / b) for a, b in zip(above, below, strict=False)):
        shown = f"{_shorten(repr(divided), 60)} / {_shorten(repr(std), 60)}"
        raise ArgumentError(f"{name}/std is beyond float64: {shown}; scale both down")


def _fits_float32(value: float) -> bool:
    """Whether float32 holds a coefficient in full precision."""
    return value == 0.0 or _TINY <= abs(value) <= _HUGE


def _check_channels(name: str, values: tuple[float, ...], channels: int | None) -> None:
    if channels is None:
        raise ShapeError(
            f"{name} has {len(values)} values, one a channel, but neither layout has an axis c; "
            f"name the channel axis c, or give {name} as one number"
        )
    if len(values) != channels:
        raise ShapeError(
            f"{name} has {len(values)} values and axis c has size {channels}; give {channels} "
            "values, or one number"
        )

"""The constants of y = (x * scale - mean) / std, checked once and prepared in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from .errors import ArgumentError, DtypeError, ShapeError
from .spec import DType, kind_of

__all__ = ["Formula", "computed_dtype", "make_formula"]

Constants: TypeAlias = float | tuple[float, ...]


@dataclass(frozen=True)
class Formula:
    """y = (x * scale - mean) / std; `mean` and `std` are numbers, or one number a channel."""

    scale: float = 1.0
    mean: Constants = 0.0
    std: Constants = 1.0

    @property
    def slope(self) -> Formula:
        """The formula of the gradient: only scale / std is left."""
        return Formula(self.scale, 0.0, self.std)

    @property
    def per_channel(self) -> bool:
        return isinstance(self.mean, tuple) or isinstance(self.std, tuple)

    def coefficients(self, channels: int | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """(factors, terms) such that y = x * factor + term, one pair or one for each channel.

        Raises
        ------
        ShapeError
            `mean` or `std` has not one value for each of `channels` (None: no axis `c`).
        """
        count = 1
        for name, values in (("mean", self.mean), ("std", self.std)):
            if isinstance(values, tuple):
                _check_channels(name, values, channels)
                count = len(values)
        mean, std = (v if isinstance(v, tuple) else (v,) * count for v in (self.mean, self.std))
        factors = tuple(self.scale / s for s in std)
        return factors, tuple(-m / s for m, s in zip(mean, std, strict=True))


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
    if 0.0 in (formula.std if isinstance(formula.std, tuple) else (formula.std,)):
        raise ArgumentError(f"std={std!r} would divide by zero; give positive numbers")
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
    if isinstance(value, Real | np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number) and not isinstance(value, np.complexfloating):
            return number
    raise ArgumentError(f"{name}={value!r} holds something that is not a finite number")


def _numbers(name: str, value: Any) -> Constants:
    if isinstance(value, Real | np.generic | str) or not hasattr(value, "__len__"):
        return _number(name, value)
    if getattr(value, "ndim", 1) == 0:
        return _number(name, value)
    if len(value) == 0 or any(hasattr(v, "__len__") and not isinstance(v, str) for v in value):
        shape = np.shape(value)
        raise ShapeError(
            f"{name} has shape {shape}; give a number, or one number for each channel"
        )
    return tuple(_number(name, v) for v in value)


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

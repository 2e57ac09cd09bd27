"""The formula y = (clip(x) * scale - mean) / std, checked once and prepared in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from .axes import Move
from .caching import MAX_KEPT
from .constants import (
    CHANNEL,
    Along,
    Bounds,
    Constants,
    Traced,
    check_count,
    check_divisible,
    is_by_value,
    number,
    plain,
    read_clip,
    several,
)
from .errors import ArgumentError, DtypeError, LayoutkitError
from .spec import DType, as_dtype, integer_bounds, kind_of

__all__ = ["Formula", "computed_dtype", "formula_of", "make_formula"]

_TINY, _HUGE = (float(v) for v in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))


@dataclass(frozen=True)
class Formula:
    """y = (clip(x) * scale - mean) / std; `mean` and `std` are numbers, or several along `axis`."""

    scale: float = 1.0
    mean: Constants = 0.0
    std: Constants = 1.0
    axis: str = CHANNEL
    clip: Bounds | None = None
    scales: bool = True  # False: there is nothing but clip

    def keywords(self) -> dict[str, Any]:
        """The keyword arguments that make this formula."""
        found: dict[str, Any] = {}
        if self.scales:
            found = {"scale": self.scale, **self.along("mean"), **self.along("std")}
        if self.clip is not None:
            found["clip"] = tuple(None if math.isinf(bound) else bound for bound in self.clip)
        return found

    def along(self, name: str) -> dict[str, Any]:
        """`mean` or `std` as the keyword that gives it."""
        values = getattr(self, name)
        in_dict = isinstance(values, tuple) and self.axis != CHANNEL
        return {name: {self.axis: values} if in_dict else values}

    @property
    def per_channel(self) -> bool:
        """Whether there is one constant for each index of the axis."""
        return any(map(_is_several, (self.mean, self.std)))

    @property
    def is_traced(self) -> bool:
        """Whether jax traces a constant, whose value is not known yet."""
        return isinstance(self.mean, Traced) or isinstance(self.std, Traced)

    def letter(self, move: Move) -> str | None:
        """The axis of a move that the constants are along; None where it has none."""
        for layout in (move.source, move.target):
            for letter in layout.letters:
                if layout.name(letter) == self.axis:
                    return letter
        return None

    def indices(self, move: Move) -> int | None:
        """The size of the axis that constants are along, or None where there is none."""
        letter = self.letter(move)
        for axes, sizes in ((move.axes, move.sizes), (move.target_axes, move.target_sizes)):
            if letter is not None and letter in axes:
                return sizes[axes.index(letter)]
        return None

    def coefficients(self, count: int | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """(factors, terms) such that y = x * factor + term, one pair or one for each index.

        Raises
        ------
        ShapeError
            `mean` or `std` has not one value for each of `count` (None: there is no such axis).
        ArgumentError
            A constant is traced.
        """
        for name in ("mean", "std"):
            values = getattr(self, name)
            if isinstance(values, Traced):
                raise ArgumentError(
                    f"{name} is traced by {values.library} or requires its gradient, but x is no "
                    f"array of {values.library}; give one, or constants that are numbers"
                )
            if isinstance(values, tuple):
                check_count(name, values, self.axis, count)
        return self._coefficients

    @property
    def channels(self) -> int:
        """How many pairs of coefficients there are."""
        return max(len(v) if isinstance(v, tuple | Traced) else 1 for v in (self.mean, self.std))

    @cached_property
    def _coefficients(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """One pair for all plans: of many channels they take more than all the rest of a plan."""
        count = self.channels
        pair: list[Any] = [self.mean, self.std]  # not traced: `coefficients` has looked
        mean, std = (v if isinstance(v, tuple) else (v,) * count for v in pair)
        factors = tuple(self.scale / s for s in std)
        return factors, tuple(-m / s for m, s in zip(mean, std, strict=True))

    def computed_dtype(self, source: DType, target: DType) -> DType:
        """What to compute in: float64 also where float32 cannot hold the coefficients.

        Integers that are only clipped, to other integers, stay what they are.
        """
        if self.keeps(source, target):
            return as_dtype(source)
        count = self.channels if self.per_channel else None
        fits = self.is_traced or all(map(_fits_float32, sum(self.coefficients(count), ())))
        return computed_dtype(source, target) if fits else np.dtype(np.float64)

    def keeps(self, source: DType, target: DType | None = None) -> bool:
        """Whether integers stay integers, only clipped; DtypeError for bounds that are none."""
        if (
            self.scales
            or source.kind not in "ui"
            or (target is not None and target.kind not in "ui")
        ):
            return False
        for bound in self.clip or ():
            if not math.isinf(bound) and bound != int(bound):
                raise DtypeError(
                    f"clip={self.clip} of {source} x, which keeps its dtype; give whole numbers, "
                    "or a floating dtype"
                )
        return True

    def bounds(self, dtype: DType) -> Bounds | None:
        """The window of clip in the dtype that it is looked at in."""
        if self.clip is None or kind_of(dtype) == "f":
            return self.clip
        low, high = integer_bounds(dtype)
        a, b = (min(max(bound, low), high) for bound in self.clip)
        return int(a), int(b)

    def reordered(self, order: Sequence[int]) -> Formula:
        """The formula of channels in another order."""
        if self.axis != CHANNEL:
            return self
        mean, std = (_in_order(v, order) if _is_several(v) else v for v in (self.mean, self.std))
        return replace(self, mean=mean, std=std)

    def inverted(self) -> Formula:
        """The formula of x = (y * std + mean) / scale, whatever was clipped.

        Raises ArgumentError for a scale of 0, after which x is not known.
        """
        if isinstance(self.mean, Traced) or isinstance(self.std, Traced):
            raise ArgumentError("mean or std is traced or requires a gradient; invert with numbers")
        if self.scale == 0:
            raise ArgumentError("scale is 0, after which x is not known; there is no inverse")
        if not isinstance(self.std, tuple):
            mean = tuple(-m for m in self.mean) if isinstance(self.mean, tuple) else -self.mean
            return Formula(self.std, mean, self.scale, self.axis)
        count = len(self.std)
        means = self.mean if isinstance(self.mean, tuple) else (self.mean,) * count
        return Formula(
            1.0,
            tuple(-m / s for m, s in zip(means, self.std, strict=True)),
            tuple(self.scale / s for s in self.std),
            self.axis,
        )

    def stand_in(self) -> Formula:
        """The formula with ones in place of what is traced, to be checked as any other."""
        ones: dict[str, Any] = {
            name: (1.0,) * len(values) if _is_several(values) else 1.0
            for name in ("mean", "std")
            if isinstance(values := getattr(self, name), Traced)
        }
        return replace(self, **ones)


def make_formula(scale: Any, mean: Any, std: Any, clip: Any = None) -> Formula | None:
    """The formula of four keyword arguments, or None when all of them are None.

    Raises
    ------
    ArgumentError
        A constant is no finite number, a std is zero, clip is no window, or mean and std are along
        two axes.
    ShapeError
        `mean` or `std` has more than one axis, or no value.
    """
    scales = not (scale is None and mean is None and std is None)
    if not scales and clip is None:
        return None
    found = {"mean": 0.0 if mean is None else several("mean", mean)}
    found["std"] = 1.0 if std is None else several("std", std)
    axes = [value.axis for value in found.values() if isinstance(value, Along)]
    if len(set(axes)) > 1:
        raise ArgumentError(
            f"mean is along axis {axes[0]} and std along axis {axes[1]}; give both along one, or "
            "one of them as a number"
        )
    values = {name: v.values if isinstance(v, Along) else v for name, v in found.items()}
    formula = Formula(
        scale=1.0 if scale is None else number("scale", scale),
        axis=axes[0] if axes else CHANNEL,
        clip=read_clip(clip),
        scales=scales,
        **values,
    )
    for name in ("scale", "mean"):
        check_divisible(name, getattr(formula, name), formula.std)
    return formula


def formula_of(
    scale: Any = None, mean: Any = None, std: Any = None, clip: Any = None
) -> Formula | None:
    """The same, kept: equal constants are one formula, whatever holds them."""
    if scale is mean is std is clip is None:
        return None
    try:
        return _kept(scale, mean, std, clip)
    except LayoutkitError:
        raise
    except TypeError:  # no keys, as a list or an array is none
        pass
    given = {"scale": scale, "mean": mean, "std": std, "clip": clip}
    constants = [plain(*each) for each in given.items()]
    try:
        return _kept(*constants)
    except LayoutkitError:
        raise
    except TypeError:  # what has no plain form
        return make_formula(*constants)


@lru_cache(maxsize=MAX_KEPT, typed=True)
def _kept(*constants: Any) -> Formula | None:
    """The formula of constants; TypeError for those that are no keys, as for what does not hash."""
    if not all(map(is_by_value, constants)):
        raise TypeError("an array is no key")
    return make_formula(*constants)


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
                f"scale, mean, std and clip do not apply to dtype {dtype}; convert real numbers, "
                "or leave them out"
            )
    wide = any(d is not None and kind_of(d) == "f" and d.itemsize >= 8 for d in (source, target))
    return np.dtype(np.float64 if wide else np.float32)


def _is_several(constant: Constants) -> bool:
    """Whether it is one for each index of an axis."""
    return isinstance(constant, tuple) or (isinstance(constant, Traced) and constant.value.ndim > 0)


def _in_order(constants: Any, order: Sequence[int]) -> Constants:
    """Those of channels in another order."""
    if isinstance(constants, Traced):
        return Traced("a constant", constants.value[np.array(order)])
    if len(constants) != len(order):  # for whoever knows how many channels there are to refuse
        return constants  # type: ignore[no-any-return]
    return tuple(constants[at] for at in order)


def _fits_float32(value: float) -> bool:
    """Whether float32 holds a coefficient in full precision."""
    return value == 0.0 or _TINY <= abs(value) <= _HUGE

"""The formula y = (clip(x) * scale - mean) / std, checked once and prepared in float64.

Constants of a formula as users give them, read into plain numbers.

One number, or several along an axis: a flat list along `c`, a dict as `{"f": [...]}` along any.
Lists, tuples and arrays of every library hold several. Knows no formula.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ._utils.cache import MAX_KEPT
from ._utils.validation import kind_text
from .errors import ArgumentError, DtypeError, LayoutkitError, ShapeError
from .layout.pattern import Move, axis_name
from .spec import DType, as_dtype, integer_bounds, kind_of

CHANNEL = "c"  # the axis of a flat list

Bounds: TypeAlias = tuple[float, float]  # an int where an int was given, which may be beyond floats


class Along(NamedTuple):
    """One number for each index of an axis."""

    axis: str
    values: tuple[Any, ...]


class Traced:
    """A constant that jax or torch traces or differentiates: it has no value that could be read.

    It has a shape. Equal to itself only.
    """

    def __init__(self, name: str, value: Any) -> None:
        self.value = value
        self.library = "torch" if type(value).__module__.partition(".")[0] == "torch" else "jax"
        if value.ndim > 1:
            raise _not_flat(name, value)

    def __len__(self) -> int:
        return int(self.value.shape[0]) if self.value.ndim else 1

    def __repr__(self) -> str:
        return f"<traced by {self.library}, of shape {tuple(self.value.shape)}>"


Constants: TypeAlias = float | tuple[float, ...] | Traced


def is_by_value(constant: Any) -> bool:
    """Whether a constant is a key: arrays often hash, but not by their values, which may change."""
    if isinstance(constant, tuple):
        return all(map(is_by_value, constant))
    array = hasattr(type(constant), "__array__") and not isinstance(constant, np.generic)
    return not array and not isinstance(constant, Traced)


def plain(name: str, value: Any) -> Any:
    """The same constant as a key where it has values, whatever holds them.

    What is no constant stays what it is, for `several` to refuse.
    """
    if isinstance(value, Mapping):
        return several(name, value)
    array = _array(name, value)
    if isinstance(array, np.ndarray):
        return array[()] if array.ndim == 0 else tuple(array) if array.ndim == 1 else array
    if isinstance(array, list) or type(array) is tuple:
        return tuple(plain(name, item) for item in array)
    return array


def several(name: str, value: Any) -> float | Along | Traced:
    """The finite number, or the numbers along an axis, of a constant.

    Raises
    ------
    ArgumentError
        A constant is no finite number, or a dict has not one axis.
    ShapeError
        There is more than one axis, or no value.
    """
    if isinstance(value, Along):
        return _along(value.axis, several(name, value.values))
    if isinstance(value, Mapping):
        if len(value) != 1 or not all(isinstance(axis, str) and axis for axis in value):
            raise ArgumentError(
                f"{name} is {shorten(repr(value), 60)}; a dict has one axis and a number for each "
                f'of its indices: {name}={{"f": [...]}}'
            )
        [(axis, values)] = value.items()
        return _along(axis_name(axis), several(f'{name}["{axis}"]', values))
    array = _array(name, value)
    if isinstance(array, Traced):
        return array
    if isinstance(array, np.ndarray):
        items, shape = list(array.flat), array.shape
    elif isinstance(array, Sequence) and not isinstance(array, str | bytes):
        items, shape = list(array), (len(array),)
    else:
        return number(name, array)
    if shape == ():
        return number(name, items[0])
    if len(shape) > 1 or not items or any(map(_nests, items)):
        raise _not_flat(name, value)
    return Along(CHANNEL, tuple(number(f"{name}[{at}]", item) for at, item in enumerate(items)))


def number(name: str, value: Any) -> float:
    """The finite real number of a value; ArgumentError where it is none."""
    value = _array(name, value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    real = isinstance(value, np.generic) and kind_of(value.dtype) in "buif"
    try:
        found = float(value) if real or isinstance(value, Real) else math.nan
    except (TypeError, OverflowError):  # beyond every float, such as 10**400
        found = math.nan
    if not math.isfinite(found):
        shown = dict([value]) if isinstance(value, Along) else value
        hint = "; std takes several" if name == "scale" and _is_sequence_of_several(value) else ""
        raise ArgumentError(
            f"{name} is {shorten(repr(shown), 60)}; give a finite real number{hint}"
        )
    return found


def read_clip(value: Any) -> Bounds | None:
    """The window of `clip=(lo, hi)`, either of which may be None; ArgumentError for no window."""
    if value is None:
        return None
    pair = _array("clip", value)
    listed = isinstance(pair, Sequence | np.ndarray) and not isinstance(pair, str | bytes)
    if not listed or len(pair) != 2 or all(bound is None for bound in pair):
        raise ArgumentError(
            f"clip is {shorten(repr(value), 60)}; give (lo, hi), of which one may be None"
        )
    low, high = (_bound(*each) for each in zip(pair, (-math.inf, math.inf), strict=True))
    if not low <= high:
        raise ArgumentError(f"clip is ({low}, {high}), in which nothing lies; give lo <= hi")
    return low, high


def check_divisible(name: str, divided: Constants, std: Constants) -> None:
    """Raise unless every quotient is a number; what is traced is not known."""
    if isinstance(divided, Traced) or isinstance(std, Traced):
        return
    below = std if isinstance(std, tuple) else (std,)
    above = divided if isinstance(divided, tuple) else (divided,) * len(below)
    if 0.0 in below:
        shown = shorten(repr(std), 60)
        raise ArgumentError(f"std is {shown} and would divide by zero; give numbers other than 0")
    below = below if len(below) > 1 else below * len(above)
    # Lengths that differ are for the axes to judge, when they are known.
    if not all(math.isfinite(a / b) for a, b in zip(above, below, strict=False)):
        shown = f"{shorten(repr(divided), 60)} / {shorten(repr(std), 60)}"
        raise ArgumentError(f"{name}/std is beyond float64: {shown}; scale both down")


def check_count(name: str, values: tuple[float, ...], axis: str, count: int | None) -> None:
    """Raise ShapeError unless there is one value for each of `count` indices (None: no axis)."""
    if count is None and axis == CHANNEL:
        raise ShapeError(
            f"{name} has {len(values)} values, one a channel, but neither layout has an axis c; "
            f'say which axis they are along, as in {name}={{"f": [...]}}, or give {name} as one '
            "number"
        )
    if count is None:
        there = "neither layout has" + (" once f is spelled out" if axis == "f" else "")
        raise ShapeError(f"{name} is along axis {axis}, which {there}; name one of their axes")
    if len(values) != count:
        raise ShapeError(
            f"{name} has {len(values)} values and axis {axis} has size {count}; give {count} "
            "values, or one number"
        )


def shorten(text: str, length: int) -> str:
    """The text on one line, cut where it is too long for a message."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 3] + "..."


def _bound(value: Any, absent: float) -> float:
    if value is None or (isinstance(value, float) and value == absent):
        return absent
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return number("a bound of clip", value)


def _along(axis: str, found: float | Along | Traced) -> float | Along | Traced:
    if isinstance(found, Traced):
        raise ArgumentError("a constant that is traced is along axis c, in no dict")
    return Along(axis, found.values) if isinstance(found, Along) else found


def _array(name: str, value: Any) -> Any:
    """The NumPy array of an array of another library; anything else as it is."""
    kind = type(value)
    if isinstance(value, np.ndarray | np.generic | Traced) or not hasattr(kind, "__array__"):
        return value
    try:
        return np.asarray(value)
    except Exception as error:  # every library has its own
        library, _, inside = kind.__module__.partition(".")
        # Of fake tensors of torch, tolist makes symbols.
        if library in ("jax", "jaxlib") or (library == "torch" and inside.startswith("_")):
            return Traced(name, value)
        values = _listed(value)
        if values is None and library == "torch":
            return Traced(name, value)
        if values is None:
            raise ArgumentError(
                f"the values of {name}, a {kind_text(value)}, cannot be read: "
                f"{shorten(str(error), 80)}; give numbers that are constant"
            ) from error
        return values


def _listed(value: Any) -> Any:
    """The numbers of an array that NumPy cannot read, such as one on a GPU; None for none."""
    # Of one that requires a gradient, the gradient would be lost without a word.
    if getattr(value, "requires_grad", False) or not hasattr(value, "tolist"):
        return None
    try:
        return value.tolist()
    except Exception:
        return None


def _is_sequence_of_several(value: Any) -> bool:
    return _nests(value) and len(value) > 1


def _nests(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)


def _not_flat(name: str, value: Any) -> ShapeError:
    return ShapeError(
        f"{name} is {shorten(repr(value), 60)}; give one number, or a flat list of one number "
        "for each channel"
    )


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

"""The formula y = (clip(x) * scale - mean) / std: parsing of its constants, and its coefficients.

`mean` and `std` are one number, or several along an axis: a flat list, tuple or array along `c`, a
dict such as `{"f": [...]}` along any axis. Coefficients are computed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ._utils.cache import MAX_KEPT
from ._utils.pickling import UncachedState
from ._utils.validation import describe_type, shorten, show
from ._utils.warnings import warn
from .errors import ArgumentError, DtypeError, LayoutkitError, ShapeError
from .layout.pattern import Permutation, axis_name
from .spec import DType, as_dtype, dtype_kind, integer_bounds, is_wide

CHANNEL = "c"  # the axis of a flat list

Bounds: TypeAlias = tuple[float, float]  # ints stay ints, since they may be beyond floats


class AxisConstants(NamedTuple):
    """Constants along an axis: one number for each index."""

    axis: str
    values: tuple[Any, ...]


class Traced:
    """A constant that jax or torch traces or differentiates: its values cannot be read.

    Only its shape is known. It is equal only to itself.
    """

    def __init__(self, name: str, value: Any) -> None:
        self.value = value
        self.library = "torch" if type(value).__module__.partition(".")[0] == "torch" else "jax"
        if value.ndim > 1:
            raise _make_not_flat_error(name, value)

    def __len__(self) -> int:
        return int(self.value.shape[0]) if self.value.ndim else 1

    def __repr__(self) -> str:
        return f"<traced by {self.library}, of shape {tuple(self.value.shape)}>"


Constants: TypeAlias = float | tuple[float, ...] | Traced


def is_hashable_constant(constant: Any) -> bool:
    """Return True if a constant hashes by value; arrays of some libraries hash by identity."""
    if isinstance(constant, tuple):
        return all(map(is_hashable_constant, constant))
    array = hasattr(type(constant), "__array__") and not isinstance(constant, np.generic)
    return not array and not isinstance(constant, Traced)


def to_hashable(name: str, value: Any) -> Any:
    """Return a constant as a hashable number or tuple, if its values can be read.

    An invalid constant is returned unchanged; `parse_constant` raises for it.
    """
    if isinstance(value, Mapping):
        return parse_constant(name, value)
    array = _array(name, value)
    if isinstance(array, np.ndarray):
        if array.dtype.kind in "bc":  # invalid, but its items equal valid numbers as cache keys
            return array
        return array[()] if array.ndim == 0 else tuple(array) if array.ndim == 1 else array
    if isinstance(array, list) or type(array) is tuple:
        return tuple(to_hashable(name, item) for item in array)
    return array


def parse_constant(name: str, value: Any) -> float | AxisConstants | Traced:
    """Parse a constant: a finite number, or numbers along an axis.

    Raises
    ------
    ArgumentError
        A constant is not a finite number, or a dict does not have one axis.
    ShapeError
        There is more than one axis, or no value.
    """
    if isinstance(value, AxisConstants):
        return _along(value.axis, parse_constant(name, value.values))
    if isinstance(value, Mapping):
        if len(value) != 1 or not all(isinstance(axis, str) and axis for axis in value):
            raise ArgumentError(
                f"{name} is {show(value)}; a dict has one axis and a number for each "
                f'of its indices: {name}={{"f": [...]}}'
            )
        [(axis, values)] = value.items()
        constant = parse_constant(f'{name}["{axis}"]', values)
        if isinstance(constant, float):
            raise ArgumentError(
                f"{name} is {show(value)}, one number along an axis; give {name}={show(values)}, "
                f'or a number for each index, as in {name}={{"{axis}": [...]}}'
            )
        return _along(axis_name(axis), constant)
    array = _array(name, value)
    if isinstance(array, Traced):
        return array
    if isinstance(array, np.ndarray):
        items = list(array.flat)
        shape = array.shape
    elif isinstance(array, Sequence) and not isinstance(array, str | bytes):
        items = list(array)
        shape = (len(array),)
    else:
        return parse_number(name, array)
    if shape == ():
        return parse_number(name, items[0])
    if len(shape) > 1 or not items or any(map(_is_nested, items)):
        raise _make_not_flat_error(name, value)
    return AxisConstants(
        CHANNEL, tuple(parse_number(f"{name}[{i}]", item) for i, item in enumerate(items))
    )


def parse_number(name: str, value: Any) -> float:
    """Return a value as a float; raise ArgumentError unless it is a finite real number."""
    value = _array(name, value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    is_number = isinstance(value, Real) and not isinstance(value, bool)  # mean=True is a mistake
    is_scalar = isinstance(value, np.generic) and dtype_kind(value.dtype) in "uif"
    try:
        # Adding 0.0 replaces -0.0, which equals 0.0 but may make other bits.
        result = float(value) + 0.0 if is_number or is_scalar else math.nan
    except (TypeError, OverflowError):  # beyond float64, such as 10**400
        result = math.nan
    if not math.isfinite(result):
        shown = dict([value]) if isinstance(value, AxisConstants) else value
        raise ArgumentError(f"{name} is {show(shown)}; {_find_number_cure(name, value)}")
    return result


def _find_number_cure(name: str, value: Any) -> str:
    """Return what to give in place of a value that is no finite number."""
    if name in ("mean", "std") and isinstance(value, str):
        return (
            "give finite real numbers; ImageNet's are scale=1 / 255, mean=(0.485, 0.456, 0.406), "
            "std=(0.229, 0.224, 0.225), and other models name theirs in preprocessor_config.json, "
            "which layoutkit.from_preprocessor_config reads"
        )
    if name == "scale" and _is_sequence_of_several(value):
        return "give a finite real number; std accepts several"
    example = ", such as scale=1 / 255" if name == "scale" else ""
    return f"give a finite real number{example}"


def parse_clip(value: Any) -> Bounds | None:
    """Return the bounds of `clip=(lo, hi)`; one may be None. Raise if they are invalid."""
    if value is None:
        return None
    pair = _array("clip", value)
    is_sequence = isinstance(pair, Sequence | np.ndarray) and not isinstance(pair, str | bytes)
    is_pair = is_sequence and getattr(pair, "ndim", 1) == 1 and len(pair) == 2
    if not is_pair or all(bound is None for bound in pair):
        raise ArgumentError(f"clip is {show(value)}; give (lo, hi); one of them may be None")
    low, high = (_bound(*item) for item in zip(pair, (-math.inf, math.inf), strict=True))
    if not low <= high:
        raise ArgumentError(f"clip is ({low}, {high}), which contains no number; give lo <= hi")
    return low, high


def check_divisible(name: str, divided: Constants, std: Constants) -> None:
    """Raise ArgumentError unless every quotient is finite; traced constants are not checked."""
    if isinstance(divided, Traced) or isinstance(std, Traced):
        return
    denominators = std if isinstance(std, tuple) else (std,)
    numerators = divided if isinstance(divided, tuple) else (divided,) * len(denominators)
    if 0.0 in denominators:
        shown = show(std)
        raise ArgumentError(f"std is {shown} and would divide by zero; give numbers other than 0")
    denominators = denominators if len(denominators) > 1 else denominators * len(numerators)
    # Different lengths are an error of `check_count`, when the axis size is known.
    if not all(math.isfinite(a / b) for a, b in zip(numerators, denominators, strict=False)):
        shown = f"{show(divided)} / {show(std)}"
        raise ArgumentError(f"{name}/std is beyond float64: {shown}; scale both down")


def check_count(name: str, values: tuple[float, ...], axis: str, count: int | None) -> None:
    """Raise ShapeError unless there are `count` values (None: neither layout has the axis)."""
    if count is None and axis == CHANNEL:
        raise ShapeError(
            f"{name} has {len(values)} values, one a channel, but neither layout has an axis c; "
            f'say which axis they are along, as in {name}={{"f": [...]}}, or give {name} as one '
            "number"
        )
    if count is None:
        fact = "neither layout has" + (" once f is spelled out" if axis == "f" else "")
        raise ShapeError(f"{name} is along axis {axis}, which {fact}; name one of their axes")
    if len(values) != count:
        needed = f"{count} value{'s' if count != 1 else ''}"
        hint = "; or is the layout another one, with channels first?" if axis == CHANNEL else ""
        raise ShapeError(
            f"{name} has {len(values)} values and axis {axis} has size {count}; "
            f"give {needed}, or one number{hint}"
        )


def _bound(value: Any, absent: float) -> float:
    if value is None or (isinstance(value, float) and value == absent):
        return absent
    number = parse_number("a bound of clip", value)
    is_int = isinstance(value, Integral) and not isinstance(value, bool)
    return int(value) if is_int else number


def _along(axis: str, constant: float | AxisConstants | Traced) -> float | AxisConstants | Traced:
    if isinstance(constant, Traced):
        raise ArgumentError(
            f"a dict names axis {axis!r} of a constant that jax or torch traces; pass the constant "
            "itself, which is along axis c"
        )
    return AxisConstants(axis, constant.values) if isinstance(constant, AxisConstants) else constant


def _array(name: str, value: Any) -> Any:
    """Return an array of another library as a NumPy array, and any other value unchanged."""
    cls = type(value)
    if isinstance(value, np.ndarray | np.generic | Traced) or not hasattr(cls, "__array__"):
        return value
    try:
        return np.asarray(value)
    except Exception as error:  # every library has its own exception
        library, _, submodule = cls.__module__.partition(".")
        # tolist of torch's fake tensors returns symbols.
        if library in ("jax", "jaxlib") or (library == "torch" and submodule.startswith("_")):
            return Traced(name, value)
        values = _to_list(value)
        if values is None and library == "torch":
            return Traced(name, value)
        if values is None:
            raise ArgumentError(
                f"the values of {name}, {describe_type(value)}, cannot be read: "
                f"{shorten(str(error), 80)}; give numbers that are constant"
            ) from error
        return values


def _to_list(value: Any) -> Any:
    """Return the numbers of an array that NumPy cannot read, such as one on a GPU, or None."""
    # The gradient of a tensor that requires one would be lost silently.
    if getattr(value, "requires_grad", False) or not hasattr(value, "tolist"):
        return None
    try:
        return value.tolist()
    except Exception:
        return None


def _is_sequence_of_several(value: Any) -> bool:
    return _is_nested(value) and len(value) > 1


def _is_nested(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)


def _make_not_flat_error(name: str, value: Any) -> ShapeError:
    return ShapeError(
        f"{name} is {show(value)}; give one number, or a flat list of one number for each channel"
    )


class End(NamedTuple):
    """A bound of x, and the result of the formula for it."""

    x: float
    y: float


class ClippedResults(NamedTuple):
    """The formula x * factor + term, whose results reach y at both ends, and then are clipped."""

    factor: float
    term: float
    low: End  # of the smaller result, which is -inf without a bound
    high: End


_TINY, _HUGE = (float(v) for v in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))


@dataclass(frozen=True)
class Normalization(UncachedState):
    """The formula y = (clip(x) * scale - mean) / std; `mean` and `std` may be along `axis`."""

    scale: float = 1.0
    mean: Constants = 0.0
    std: Constants = 1.0
    axis: str = CHANNEL
    clip: Bounds | None = None
    scales: bool = True  # False: only clip was passed

    def keywords(self) -> dict[str, Any]:
        """Return the keyword arguments of this formula."""
        kwargs: dict[str, Any] = {}
        if self.scales:
            kwargs = {"scale": self.scale, **self.along("mean"), **self.along("std")}
        if self.clip is not None:
            kwargs["clip"] = self._format_clip()
        return kwargs

    def _format_clip(self) -> tuple[float | None, ...]:
        return tuple(None if math.isinf(bound) else bound for bound in self.clip or ())

    def along(self, name: str) -> dict[str, Any]:
        """Return the keyword argument of `mean` or `std`."""
        values = getattr(self, name)
        in_dict = isinstance(values, tuple) and self.axis != CHANNEL
        return {name: {self.axis: values} if in_dict else values}

    def linear(self) -> Normalization:
        """Return the formula of derivatives: without `mean`, and not for a formula with `clip`."""
        return replace(self, mean=0.0)

    @property
    def per_channel(self) -> bool:
        """True if there is one constant for each index of the axis."""
        return any(map(_is_several, (self.mean, self.std)))

    @property
    def is_traced(self) -> bool:
        """True if jax or torch traces a constant, whose value is unknown."""
        return isinstance(self.mean, Traced) or isinstance(self.std, Traced)

    def letter(self, move: Permutation) -> str | None:
        """Return the letter of the constants' axis in a `Permutation`, or None."""
        for layout in (move.source, move.target):
            for letter in layout.letters:
                if layout.name(letter) == self.axis:
                    return letter
        return None

    def indices(self, move: Permutation) -> int | None:
        """Return the size of the constants' axis in a `Permutation`, or None."""
        letter = self.letter(move)
        for axes, sizes in ((move.axes, move.sizes), (move.target_axes, move.target_sizes)):
            if letter is not None and letter in axes:
                return sizes[axes.index(letter)]
        return None

    def coefficients(self, count: int | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return (factors, terms) such that y = x * factor + term, one pair or one per index.

        Raises
        ------
        ShapeError
            `mean` or `std` does not have `count` values (None: there is no such axis).
        ArgumentError
            A constant is traced.
        """
        for name in ("mean", "std"):
            values = getattr(self, name)
            if isinstance(values, Traced):
                raise ArgumentError(
                    f"{name} is traced by {values.library} or requires its gradient, but x is not "
                    f"an array of {values.library}; give one, or constants that are numbers"
                )
            if isinstance(values, tuple):
                check_count(name, values, self.axis, count)
        return self._coefficients

    @property
    def channels(self) -> int:
        """The number of pairs of coefficients."""
        return max(len(v) if isinstance(v, tuple | Traced) else 1 for v in (self.mean, self.std))

    @cached_property
    def _coefficients(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The cached coefficients; for many channels they take longer than the rest of a plan."""
        count = self.channels
        pair: list[Any] = [self.mean, self.std]  # not traced: `coefficients` has checked
        mean, std = (v if isinstance(v, tuple) else (v,) * count for v in pair)
        factors = tuple(self.scale / s for s in std)
        return factors, tuple(-m / s for m, s in zip(mean, std, strict=True))

    def clip_results(self, dtype: DType) -> ClippedResults | None:
        """Return the formula with bounds of its results in place of bounds of x, or None.

        The product x * factor is rounded, so bounds of x would not become exactly the values that
        the formula gives, such as 0 and 1. `dtype` is the dtype of the computation.
        """
        if self.clip is None or self.per_channel or self.is_traced or not self.scales:
            return None
        [factor], [term] = self._coefficients
        constants: list[Any] = [self.mean, self.std]  # one number each
        mean, std = constants
        round_to = as_dtype(dtype).type
        ends = [
            End(float(round_to(x)), float(round_to((x * self.scale - mean) / std)))
            for x in self.clip
        ]
        if factor == 0 or ends[0].x == ends[1].x:
            return None
        low, high = ends if factor > 0 else ends[::-1]
        return _reach_ends(factor, term, low, high, as_dtype(dtype))

    def computed_dtype(self, source: DType, target: DType) -> DType:
        """Return the dtype of the computation: float64 also if float32 cannot hold coefficients.

        Integers that are only clipped, to an integer dtype, are computed in their own dtype.
        """
        if self.preserves_dtype(source, target):
            return as_dtype(source)
        count = self.channels if self.per_channel else None
        fits = self.is_traced or all(map(_fits_float32, sum(self.coefficients(count), ())))
        return computed_dtype(source, target) if fits else np.dtype(np.float64)

    def preserves_dtype(self, source: DType, target: DType | None = None) -> bool:
        """Return True if integers are only clipped; raise DtypeError for non-integer bounds."""
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
        """Return the bounds of clip, limited to the range of an integer dtype."""
        if self.clip is None or dtype_kind(dtype) == "f":
            return self.clip
        low, high = integer_bounds(dtype)
        a, b = (min(max(bound, low), high) for bound in self.clip)
        return int(a), int(b)

    def check_clip(self, source: DType) -> None:
        """Raise ArgumentError if every value of an integer dtype is outside of the bounds."""
        if self.clip is None or dtype_kind(source) not in "ui":
            return
        low, high = integer_bounds(source)
        if self.clip[0] > high or self.clip[1] < low:
            raise ArgumentError(
                f"clip={self._format_clip()} of {source} x, whose values are {low} to {high}: none "
                "is between the bounds; give bounds in the units of x, before scale and mean"
            )

    def check_scale(self, source: DType) -> None:
        """Warn once if bytes have constants of values of another range than their scale."""
        if source == np.uint8 and not self.is_traced:
            _check_scale_of_bytes(self)

    def with_channel_order(self, order: Sequence[int]) -> Normalization:
        """Return the formula for channels in another order."""
        if self.axis != CHANNEL:
            return self
        mean, std = (_in_order(v, order) if _is_several(v) else v for v in (self.mean, self.std))
        return replace(self, mean=mean, std=std)

    def inverse(self) -> Normalization:
        """Return the formula x = (y * std + mean) / scale, without clip.

        Raises ArgumentError if scale is 0, because x cannot be computed then.
        """
        if isinstance(self.mean, Traced) or isinstance(self.std, Traced):
            raise ArgumentError("mean or std is traced or requires a gradient; invert with numbers")
        if self.scale == 0:
            raise ArgumentError("scale is 0, after which x is not known; there is no inverse")
        if not isinstance(self.std, tuple):
            mean = tuple(-m for m in self.mean) if isinstance(self.mean, tuple) else -self.mean
            return Normalization(self.std, mean, self.scale, self.axis)
        count = len(self.std)
        means = self.mean if isinstance(self.mean, tuple) else (self.mean,) * count
        return Normalization(
            1.0,
            tuple(-m / s for m, s in zip(means, self.std, strict=True)),
            tuple(self.scale / s for s in self.std),
            self.axis,
        )

    def without_traced(self) -> Normalization:
        """Return the formula with ones in place of traced constants, for checks."""
        ones: dict[str, Any] = {
            name: (1.0,) * len(values) if _is_several(values) else 1.0
            for name in ("mean", "std")
            if isinstance(values := getattr(self, name), Traced)
        }
        return replace(self, **ones)


def _reach_ends(
    factor: float, term: float, low: End, high: End, dtype: DType
) -> ClippedResults | None:
    """Return the formula, moved by the least margin with which both ends are reached."""
    numbers = term, factor * low.x, factor * high.x, low.y, high.y
    largest = max(abs(number) for number in numbers if math.isfinite(number))
    if largest > float(np.finfo(dtype).max) / 4:
        return None
    for rounding in (0, 0.5, 1, 2):  # 2: the sum of all roundings, of constants and of results
        margin = rounding * float(np.finfo(dtype).eps) * largest
        pair = (factor, term) if not margin else _move_ends(factor, low, high, margin)
        line = ClippedResults(float(dtype.type(pair[0])), float(dtype.type(pair[1])), low, high)
        if rounding == 2 or _reaches(line, dtype):
            return line
    return None


def _move_ends(factor: float, low: End, high: End, margin: float) -> tuple[float, float]:
    """Return the factor and the term of the line that passes both ends by a margin."""
    least, most = low.y - margin, high.y + margin
    if math.isinf(low.x):
        return factor, most - factor * high.x
    if math.isfinite(high.x):
        factor = (most - least) / (high.x - low.x)
    return factor, least - factor * low.x


def _reaches(line: ClippedResults, dtype: DType) -> bool:
    """Return True if results reach both ends, with and without a fused multiply-add."""
    differences = []
    for sign, end in ((1, line.low), (-1, line.high)):
        if math.isfinite(end.x):
            fused = float(Fraction(end.x) * Fraction(line.factor) + Fraction(line.term))
            results = fused, float(dtype.type(end.x * line.factor)) + line.term
            differences += [sign * (end.y - float(dtype.type(y))) for y in results]
    return min(differences) >= 0


def make_normalization(scale: Any, mean: Any, std: Any, clip: Any = None) -> Normalization | None:
    """Return the formula of four keyword arguments, or None if all of them are None.

    Raises
    ------
    ArgumentError
        A constant is not a finite number, a std is zero, clip is invalid, or mean and std are along
        different axes.
    ShapeError
        `mean` or `std` has more than one axis, or no value.
    """
    scales = not (scale is None and mean is None and std is None)
    if not scales and clip is None:
        return None
    constants = {"mean": 0.0 if mean is None else parse_constant("mean", mean)}
    constants["std"] = 1.0 if std is None else parse_constant("std", std)
    axes = [value.axis for value in constants.values() if isinstance(value, AxisConstants)]
    if len(set(axes)) > 1:
        raise ArgumentError(
            f"mean is along axis {axes[0]} and std along axis {axes[1]}; give both along one, or "
            "one of them as a number"
        )
    values = {
        name: v.values if isinstance(v, AxisConstants) else v for name, v in constants.items()
    }
    formula = Normalization(
        scale=1.0 if scale is None else parse_number("scale", scale),
        axis=axes[0] if axes else CHANNEL,
        clip=parse_clip(clip),
        scales=scales,
        **values,
    )
    for name in ("scale", "mean"):
        check_divisible(name, getattr(formula, name), formula.std)
    return formula


def find_normalization(
    scale: Any = None, mean: Any = None, std: Any = None, clip: Any = None
) -> Normalization | None:
    """Return the formula of four keyword arguments from a cache; see `make_normalization`."""
    if scale is mean is std is clip is None:
        return None
    try:
        return _cached(scale, mean, std, clip)
    except LayoutkitError:
        raise
    except TypeError:  # unhashable, such as a list or an array
        pass
    arguments = {"scale": scale, "mean": mean, "std": std, "clip": clip}
    constants = [to_hashable(*item) for item in arguments.items()]
    try:
        return _cached(*constants)
    except LayoutkitError:
        raise
    except TypeError:  # still unhashable
        return make_normalization(*constants)


@lru_cache(maxsize=MAX_KEPT, typed=True)
def _cached(*constants: Any) -> Normalization | None:
    """Return the cached formula of constants; raise TypeError if they do not hash by value."""
    if not all(map(is_hashable_constant, constants)):
        raise TypeError("an array cannot be a cache key")
    return make_normalization(*constants)


@lru_cache(maxsize=MAX_KEPT)
def _check_scale_of_bytes(formula: Normalization) -> None:
    """Warn if scaled bytes and the constants differ in range; cached: each formula warns once."""
    constants: list[Any] = [formula.mean, formula.std]  # not traced
    mean, std = map(np.abs, constants)
    names, scaled = ["mean", "std"], " and no scale"
    cure = "from 0 to 1, give scale=1/255 as well"
    if formula.scale != 1:
        names, scaled, cure = ["scale", *names], "", "from 0 to 255, omit scale="
        if (mean <= 2 * 255 * abs(formula.scale)).any():
            return
    elif (mean >= 1).any() or (std > 1).any() or not (mean.any() or (std < 1).any()):
        return
    factors, terms = formula.coefficients(formula.channels)
    largest = max(255 * factor + term for factor, term in zip(factors, terms, strict=True))
    keywords = formula.keywords()
    shown = ", ".join(f"{name}={keywords[name]}" for name in names if name in keywords)
    warn(
        f"uint8 x with {shown}{scaled}: 255 becomes {largest:.4g}; if these constants are of "
        f"values {cure}"
    )


def computed_dtype(source: DType, target: DType | None) -> DType:
    """Return float64 for a wide source or a float64 target, else float32; see `is_wide`.

    Raises
    ------
    DtypeError
        The formula does not apply to the dtype of `source` or `target`.
    """
    for dtype in (source, target):
        if dtype is not None and dtype_kind(dtype) not in "buif":
            raise DtypeError(
                f"scale, mean, std and clip do not apply to dtype {dtype}; "
                "convert real numbers, or omit them"
            )
    wide = is_wide(dtype_kind(source), source.itemsize)
    wide = wide or (target is not None and dtype_kind(target) == "f" and target.itemsize > 4)
    return np.dtype(np.float64 if wide else np.float32)


def _is_several(constant: Constants) -> bool:
    """Return True if a constant has one value for each index of an axis."""
    return isinstance(constant, tuple) or (isinstance(constant, Traced) and constant.value.ndim > 0)


def _in_order(constants: Any, order: Sequence[int]) -> Constants:
    if isinstance(constants, Traced):
        return Traced("a constant", constants.value[np.array(order)])
    if len(constants) != len(order):  # `check_count` raises, when the number of channels is known
        return constants
    return tuple(constants[i] for i in order)


def _fits_float32(value: float) -> bool:
    """Return True if a coefficient is zero or within float32's normal range."""
    return value == 0.0 or _TINY <= abs(value) <= _HUGE

"""Constants of a formula as users give them, read into plain numbers.

One number, or several along an axis: a flat list along `c`, a dict as `{"f": [...]}` along any.
Lists, tuples and arrays of every library hold several. Knows no formula.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .axes import axis_name
from .checks import kind_text
from .errors import ArgumentError, ShapeError
from .spec import kind_of

__all__ = [
    "CHANNEL",
    "Along",
    "Bounds",
    "Constants",
    "Traced",
    "check_count",
    "check_divisible",
    "is_by_value",
    "number",
    "plain",
    "read_clip",
    "several",
    "shorten",
]

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
        hint = "; std takes several" if name == "scale" and _is_several(value) else ""
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


def _is_several(value: Any) -> bool:
    return _nests(value) and len(value) > 1


def _nests(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)


def _not_flat(name: str, value: Any) -> ShapeError:
    return ShapeError(
        f"{name} is {shorten(repr(value), 60)}; give one number, or a flat list of one number "
        "for each channel"
    )

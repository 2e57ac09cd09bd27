"""Where windows begin and which are reversed: `corner=`, `flip=` and `rows=` of a call. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..axes import axis_name
from ..checks import as_int, kind_text
from ..constants import CHANNEL
from ..errors import ArgumentError, ShapeError
from ..memory import Array
from .windows import Axes, Windows

__all__ = ["Cut", "Said", "check_inside", "cut", "positions", "said"]

_FAR = 1 << 60  # places; sums of them are still 64 bits


class Cut(NamedTuple):
    """Where windows begin in their samples, and which axes are reversed after: a row for each."""

    begins: Array
    flips: Array


def positions(rows: Any, count: int) -> Array:
    """Positions from 0 along the axis of samples for `rows`, None for all.

    Raises
    ------
    ArgumentError
        They are not whole numbers in one row.
    ShapeError
        One of them is out of range.
    """
    if rows is None:
        return np.arange(count)
    found = _whole_numbers(rows)
    if found is None or found.ndim != 1:
        raise _refused("rows", rows, "one list or array of whole numbers")
    wrong = np.flatnonzero((found < -count) | (found >= count))
    if wrong.size:
        at = int(wrong[0])
        raise ShapeError(
            f"rows[{at}] is {found[at]}, but the array has {count} samples; give rows from "
            f"{-count} to {count - 1}"
        )
    return np.where(found < 0, found + count, found)


Said: TypeAlias = dict[int, Array]


def said(
    asked: Windows, places: Mapping[str, int], corner: Any, flip: Any, count: int
) -> tuple[Said, Said]:
    """Where the windows of so many samples begin, and which are reversed, as far as it is said.

    For axes of which something is said an int64, or one for each sample. `places`: those of `axes`,
    along which windows are cut.

    Raises
    ------
    ArgumentError
        `corner` or `flip` is not of its form, or names no axis of samples.
    ShapeError
        It has not one value for each sample.
    """
    corners: Said = {}
    flips: Said = {}
    if corner is flip is None:
        return corners, flips
    if flip is not None:
        turned = {flip: True} if isinstance(flip, str) else flip
        if not isinstance(turned, Mapping):
            raise ArgumentError(f'flip={flip!r}; it is an axis, or a dict such as {{"w": [True]}}')
        for name, value in turned.items():
            flips[_place("flip", flip, name, places)] = _flags(name, value, count)
    if corner is not None:
        if not isinstance(corner, Mapping):
            raise ArgumentError(f'corner={corner!r}; it is a dict, such as {{"h": 0, "w": [4, 7]}}')
        if asked.channels is not None:
            places = {name: at for name, at in places.items() if name != CHANNEL}
        for name, value in corner.items():
            corners[_place("corner", corner, name, places)] = _corners(name, value, count)
    return corners, flips


def cut(
    asked: Windows, axes: Axes, shapes: Array, window: Array, corner: Any, flip: Any, count: int
) -> Cut:
    """The same in full, for samples of these shapes."""
    corners, flips = said(asked, axes.places(), corner, flip, count)
    begins = np.array(np.broadcast_to((shapes - window) >> 1, (count, len(window))))
    flags = np.zeros((count, len(window)), bool)
    for at, values in corners.items():
        begins[:, at] = np.clip(values, -_FAR, _FAR)
    for at, values in flips.items():
        flags[:, at] = values
    return Cut(begins, flags)


def _place(what: str, value: Any, name: Any, places: Mapping[str, int]) -> int:
    at = places.get(axis_name(name)) if isinstance(name, str) else None
    if at is None:
        raise ArgumentError(
            f"{what}={value!r}, but {name!r} is no axis that windows of samples are cut along; "
            f"these are {', '.join(places)}"
        )
    return at


def _corners(name: str, value: Any, count: int) -> Array:
    if type(value) is np.ndarray and value.dtype == np.int64 and value.shape == (count,):
        return value if value.flags.aligned else value.copy()
    number = as_int(value)
    if number is None or abs(number) <= _FAR:
        found = _whole_numbers(value) if number is None else np.array(number, np.int64)
        if found is not None and found.ndim <= 1:
            _check_count(f"corner[{name!r}]", found, count)
            return found
    raise _refused(f"corner[{name!r}]", value, "a whole number, or one for each sample")


def _flags(name: str, value: Any, count: int) -> Array:
    if value is True or value is False:
        return np.array(value, np.int64)
    found = _read(value)
    if found is None:
        raise _refused(f"flip[{name!r}]", value, "a bool, or one for each sample")
    found = found.astype(bool) if found.shape == (0,) else found
    if found.dtype.kind != "b" or found.ndim > 1:
        raise _refused(f"flip[{name!r}]", value, "a bool, or one for each sample")
    _check_count(f"flip[{name!r}]", found, count)
    return found.astype(np.int64)


def _check_count(what: str, found: Array, count: int) -> None:
    if found.ndim and len(found) != count:
        raise ShapeError(
            f"{what} has {len(found)} values for {count} samples; give one for each, or one for all"
        )


def _read(values: Any) -> Array | None:
    """An array; None for what is none, and for what holds no numbers that could be read."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError):  # the last of tensors that stand for data
        return None


def _refused(what: str, value: Any, wanted: str) -> ArgumentError:
    """The error of what says nothing of samples, in other words where it is traced."""
    first = next(iter(value), None) if isinstance(value, list | tuple) else value
    if not hasattr(first, "dtype") or _read(first) is not None:
        return ArgumentError(f"{what} is {value!r}; give {wanted}")
    return ArgumentError(
        f"{what} is a {kind_text(first)}, whose numbers cannot be read: it is on another device, "
        "or stands for data while a function is compiled. Give numbers or lists of them, and make "
        "batches outside of compiled functions where these differ from call to call"
    )


def _whole_numbers(values: Any) -> Array | None:
    """An array of ints; None for anything else."""
    found = _read(values)
    if found is None:
        return None
    if found.size == 0 and isinstance(values, list | tuple | range):
        return found.astype(np.int64)
    listed = isinstance(values, list | tuple)
    if found.dtype.kind not in "iu" or (listed and any(isinstance(v, bool) for v in values)):
        return None
    return found.astype(np.int64) if found.dtype.kind == "i" or (found <= _FAR).all() else None


def check_inside(
    axes: Axes, begins: Array, shapes: Array, window: tuple[int, ...], outside: Array
) -> None:
    """Raise where a window reaches outside of its sample; `outside` says which do, where."""
    for number, at in np.argwhere(outside).tolist():
        begin, size = (a[number if len(a) > 1 else 0, at] for a in (begins, shapes))
        name = axes.sample.named[at][0]
        raise ShapeError(
            f"sample {number} has size {size} along {name}, but its window of {window[at]} goes "
            f"from {begin} to {begin + window[at]}; give another corner or size, or what is "
            "outside: fill=0"
        )

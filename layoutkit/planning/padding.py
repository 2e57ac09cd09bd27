"""The padding of a result: `pad_to=`, `pad_before=` and `fill=`.

Fill values are in the units of x: the result equals the conversion of a padded x, which is never
allocated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from math import prod
from numbers import Integral
from typing import Any

import numpy as np

from .._utils.validation import as_int, check_choice, show
from ..errors import ArgumentError, DtypeError, ShapeError
from ..layout.pattern import MAX_ELEMENTS, Permutation, axis_name
from ..memory import Array
from ..spec import DType, dtype_kind, integer_bounds
from .centering import CENTERINGS, DEFAULT_CENTERING, centered_start
from .keywords import collect_keywords

Window = tuple[slice, ...]


@dataclass(frozen=True)
class Padding:
    """The padded sizes of some axes, the padding before x along them, and the fill values."""

    sizes: tuple[tuple[str, int], ...]
    pad_before: tuple[tuple[str, int], ...] = ()  # axes not listed: x is centered
    fill: tuple[float, ...] = (0,)  # ints are exact in 64-bit dtypes
    center: str = DEFAULT_CENTERING

    def keywords(self) -> dict[str, Any]:
        """Return the keyword arguments of this padding."""
        defaults = {field.name: field.default for field in fields(self) if field.name != "sizes"}
        return {"pad_to": dict(self.sizes)} | collect_keywords(self, defaults)

    def place(self, move: Permutation) -> PaddedRegion:
        """Return the region of the padded result that x fills; `move` is the unpadded conversion.

        Raises
        ------
        ShapeError
            x is larger than the result, reaches outside of it, or does not have such an axis.
        """
        sizes = dict(zip(move.target_axes, move.target_sizes, strict=True))
        letters = {move.target.name(letter): letter for letter in sizes}
        begins = dict.fromkeys(sizes, 0)
        full = dict(sizes)
        pad_before = dict(self.pad_before)
        for name, size in self.sizes:
            if name not in letters or name in ("...", "1"):
                axes = ", ".join(letters)
                raise ShapeError(f"pad_to has {name}={size}, but the axes are {axes}; name these")
            letter = letters[name]
            before = pad_before.get(name)
            begins[letter] = _start_of_x(name, sizes[letter], size, before, self.center)
            full[letter] = size
        folds = (prod(full[letter] for letter in group) for group in move.target.groups)
        window = tuple(slice(begins[n], begins[n] + size) for n, size in sizes.items())
        return PaddedRegion(tuple(folds), tuple(full.values()), window)

    def pixel(self, dtype: DType, channels: int | None) -> Array:
        """Return the fill values in the dtype of x: one number, or one per channel.

        Raises
        ------
        DtypeError
            The dtype of x cannot represent a value.
        ShapeError
            The number of values is neither 1 nor `channels` (None: there is no axis `c`).
        """
        values = self.fill
        if len(values) > 1 and len(values) != channels:
            reason = "there is no axis c; give one number"
            if channels is not None:
                reason = f"axis c has size {channels}; give one number, or {channels} values"
            raise ShapeError(f"fill has {len(values)} values, but {reason}")
        for value in values:
            if not _can_represent(dtype, value):
                raise DtypeError(
                    f"fill={value} cannot be represented in {dtype}, "
                    "the dtype of x; give a value that can"
                )
        kind = dtype_kind(dtype)
        if kind in "fc":
            return np.array(values, np.float64).astype(dtype)
        if kind in "bui":
            return np.array([int(value) for value in values]).astype(dtype)
        return np.zeros(len(values), dtype)  # the only fill value of times and structs


@dataclass(frozen=True)
class PaddedRegion:
    """The region of a padded result that x fills.

    shape : tuple of int        the result's shape
    full : tuple of int         the result's shape with all folds split into axes
    window : tuple of slice     the region of x in an array of shape `full`
    """

    shape: tuple[int, ...]
    full: tuple[int, ...]
    window: Window

    def __str__(self) -> str:
        slices = ", ".join(f"{part.start}:{part.stop}" for part in self.window)
        return f"[{slices}] of {self.full}"

    def borders(self) -> list[Window]:
        """Return the regions around x; they do not overlap, the largest come first."""
        regions = []
        everything = tuple(slice(0, size) for size in self.full)
        for axis, (size, inside) in enumerate(zip(self.full, self.window, strict=True)):
            for side in (slice(0, inside.start), slice(inside.stop, size)):
                if side.start < side.stop:
                    regions.append((*self.window[:axis], side, *everything[axis + 1 :]))
        return regions


def fill_region_for(paint: Array, border: Window) -> Window:
    """Return the region of a fill array that goes to a border: all of it along axes of size 1."""
    pairs = zip(border, paint.shape, strict=True)
    return tuple(part if size > 1 else slice(None) for part, size in pairs)


def parse_padding(pad_to: Any, pad_before: Any, fill: Any, center: Any) -> Padding | None:
    """Return the padding of four keyword arguments, None without `pad_to`.

    Raises
    ------
    ArgumentError
        An argument is malformed, or another one is given without `pad_to`.
    """
    check_choice("center", center, CENTERINGS, ArgumentError)
    if pad_to is None:
        rule = None if center == DEFAULT_CENTERING else center
        for name, value in (("pad_before", pad_before), ("fill", fill), ("center", rule)):
            if value is not None:
                shown = dict(value) if isinstance(value, tuple) and name == "pad_before" else value
                raise ArgumentError(
                    f"{name}={show(shown)} needs pad_to=, the size of the padded result; give it "
                    'too, such as pad_to={"h": 640, "w": 640}'
                )
        return None
    sizes = parse_axis_sizes("pad_to", pad_to, MAX_ELEMENTS)
    if not sizes:
        raise ArgumentError('pad_to names no axis; give sizes such as {"h": 640, "w": 640}')
    before = () if pad_before is None else pad_before
    begins = parse_axis_sizes("pad_before", before, MAX_ELEMENTS)
    for name, _ in begins:
        if name not in dict(sizes):
            raise ArgumentError(
                f"pad_before has {name}, but pad_to does not; give its size there too"
            )
    return Padding(sizes, begins, fill_values(fill), center)


def _start_of_x(name: str, size: int, full: int, pad_before: int | None, center: str) -> int:
    """Return the number of elements before x along an axis."""
    if size > full:
        raise ShapeError(
            f"pad_to has {name}={full}, but x has {size} along {name}; crop it with a slice, "
            "resize it (layoutkit.images.fit, or resize= of Collator), or give a larger size"
        )
    if pad_before is not None and pad_before > full - size:
        raise ShapeError(
            f"pad_before has {name}={pad_before}, after which {size} of {full} do not fit; give at "
            f"most {full - size}"
        )
    return centered_start(full - size, center) if pad_before is None else pad_before


def parse_axis_sizes(name: str, value: Any, limit: int) -> tuple[tuple[str, int], ...]:
    """Return (axis, number) pairs sorted by axis, of a dict or a sequence of pairs."""
    pairs = value.items() if isinstance(value, Mapping) else value
    form = f'{name}={show(value)}; give a dict of whole numbers by axis, such as {{"h": 640}}'
    if not isinstance(pairs, Iterable) or isinstance(pairs, str) or getattr(pairs, "ndim", 1) == 0:
        raise ArgumentError(form)
    sizes = {}
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ArgumentError(form)
        number = as_int(pair[1])
        if number is None or not 0 <= number < limit:
            raise ArgumentError(form)
        sizes[axis_name(pair[0])] = number
    return tuple(sorted(sizes.items()))


def fill_values(fill: Any) -> tuple[float, ...]:
    """Return `fill` as ints and floats: one, or one per channel."""
    try:
        values = np.asanyarray(0 if fill is None else fill)
        is_real = dtype_kind(values.dtype) in "buifO" and not isinstance(values, np.ma.MaskedArray)
        numbers = tuple(map(_fill_number, values.flat)) if is_real and values.ndim < 2 else ()
    except (TypeError, ValueError, OverflowError):
        numbers = ()
    if not numbers:
        shown = show(fill)
        raise ArgumentError(f"fill={shown}; give a number, or a flat list with one per channel")
    return numbers


def _fill_number(value: Any) -> float:
    """Return a number as an int if it is one, else as a float; both are within float64."""
    number = float(value) + 0.0  # no -0.0, which equals 0.0
    number = math.nan if math.isnan(number) else number  # the object that equals itself in tuples
    return int(value) if isinstance(value, Integral | np.bool_) else number


def _can_represent(dtype: DType, value: float) -> bool:
    kind = dtype_kind(dtype)
    if kind in "fc":
        return True
    if kind not in "bui":
        return value == 0
    low, high = (0, 1) if kind == "b" else integer_bounds(dtype)
    return value == value // 1 and low <= value <= high

"""The checked resize options of a Collator, and the placement of each sample in its window.

A sample is placed along every resized axis by four integers: the first position and the size of its
crop, the size to which the crop is scaled, and the scaled position at which the window begins.
Positions of the window outside of the scaled crop are filled. All ways to fit a sample into a
window are reduced to these integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .._utils.validation import as_int, check_bool, check_choice
from ..errors import ArgumentError, ShapeError
from ..layout.pattern import axis_name
from ..memory import Array
from ..spec import DType
from .centering import centered_start
from .keywords import filter_cure

FILTERS = ("nearest", "bilinear", "bicubic", "lanczos", "area")
FIT_MODES = ("cover", "pad", "stretch")
MAX_SIDE = (1 << 31) - 1  # positions of a resized axis: products of two fit 64 bits


class ResizeOptions(NamedTuple):
    """The checked resize options.

    filter      the name of the filter, one of FILTERS
    antialias   whether the filter widens with the scale of a sample that shrinks
    fit         how a sample fills its window, one of FIT_MODES
    short_side  the scaled size of the shorter side, before the central crop, or None
    pad_before  the positions before the sample by axis, for fit="pad"; other axes: centered
    """

    filter: str
    antialias: bool = True
    fit: str = "stretch"
    short_side: int | None = None
    pad_before: tuple[tuple[str, int], ...] = ()

    def keywords(self) -> dict[str, Any]:
        """Return the keyword arguments of these options, without defaults."""
        keywords: dict[str, Any] = {"resize": self.filter}
        if not self.antialias:
            keywords["antialias"] = False
        if self.fit != "stretch":
            keywords["fit"] = self.fit
        if self.short_side is not None:
            keywords["short_side"] = self.short_side
        if self.pad_before:
            keywords["pad_before"] = dict(self.pad_before)
        return keywords


class Placement(NamedTuple):
    """The scale and offset of an image in a result of another size.

    scale : (float, float)    vertical and horizontal; negative along an axis that is flipped
    top, left : float         the position of the image's point (0, 0) in pixels of the result;
                              negative where the image is cropped

    The image's point (x, y) is at (x * scale[1] + left, y * scale[0] + top).
    """

    scale: tuple[float, float]
    top: float
    left: float

    @property
    def flip(self) -> tuple[bool, bool]:
        """True along an axis that is flipped, vertical and horizontal."""
        return self.scale[0] < 0, self.scale[1] < 0

    def to_fitted(self, points: Any) -> Array:
        """Map points or boxes of the image to the result.

        A box of a flipped image has x1 <= x2 and y1 <= y2, too.

        points : array (..., 2) of x, y, or (..., 4) of x1, y1, x2, y2, in pixels
        """
        values, scale, offset = self._as_floats(points)
        return self._with_ordered_corners(values * scale + offset)

    def to_image(self, points: Any) -> Array:
        """Map points or boxes of the result back to the image; the inverse of `to_fitted`.

        >>> where = Placement(scale=(1.0, 1.0), top=80.0, left=0.0)
        >>> where.to_image([[10, 90, 20, 100]]).tolist()
        [[10.0, 10.0, 20.0, 20.0]]
        """
        values, scale, offset = self._as_floats(points)
        return self._with_ordered_corners((values - offset) / scale)

    def _with_ordered_corners(self, values: Array) -> Array:
        """Return points or boxes; exchange the corners of boxes along flipped axes."""
        corners = np.arange(values.shape[-1])
        for axis, is_flipped in enumerate(reversed(self.flip)):
            if is_flipped and len(corners) == 4:
                corners[[axis, axis + 2]] = corners[[axis + 2, axis]]
        return values[..., corners]

    def _as_floats(self, points: Any) -> tuple[Array, Array, Array]:
        """Return the points as floats, and the scale and offset of each coordinate."""
        array = np.asarray(points)
        if not array.ndim or array.shape[-1] not in (2, 4):
            raise ShapeError(
                f"points have shape {array.shape}; the last axis is (x, y) or (x1, y1, x2, y2)"
            )
        dtype = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
        pair = np.array([self.scale[::-1], (self.left, self.top)], dtype)
        scale, offset = np.tile(pair, array.shape[-1] // 2)
        return array.astype(dtype), scale, offset


class Placements(NamedTuple):
    """The placement of samples: a row for each sample, a column for each resized axis.

    begins, sizes   the first position and the size of the crop in the sample
    scaled          the size that the crop is scaled to
    firsts          the position in the scaled crop of the first position of the window
    """

    begins: Array
    sizes: Array
    scaled: Array
    firsts: Array

    def placement(
        self, vertical: int, horizontal: int, window: Any = (0, 0), flips: Any = (False, False)
    ) -> Placement:
        """Return the placement of the first sample, whose axes have these indices.

        window, flips    the size of the window along both axes, and whether it is flipped
        """
        begins, sizes, scaled, firsts = (field[0, [vertical, horizontal]] for field in self)
        scale = scaled / sizes
        offset = -begins * scale - firsts
        offset = np.where(flips, window - offset, offset)
        scale = np.where(flips, -scale, scale)
        top, left = (offset + 0.0).tolist()  # no -0.0
        return Placement((float(scale[0]), float(scale[1])), top, left)


def parse_resize(
    resize: Any, antialias: Any, fit: Any, short_side: Any, pad_before: Any
) -> ResizeOptions | None:
    """Return the checked options, or None without `resize`.

    Raises ArgumentError if an option is invalid, or two contradict each other.
    """
    if resize is None:
        defaults = {"antialias": True, "fit": "stretch", "short_side": None, "pad_before": None}
        options = {"antialias": antialias, "fit": fit, "short_side": short_side}
        for name, value in (options | {"pad_before": pad_before}).items():
            default = defaults[name]
            if type(value) is not type(default) or value != default:
                raise ArgumentError(
                    f'{name}={value!r} needs a filter; give resize="bilinear" or another one of '
                    f"{', '.join(FILTERS)}"
                )
        return None
    if not isinstance(resize, str) or resize not in FILTERS:
        raise ArgumentError(
            f"resize={resize!r} is not one of {', '.join(FILTERS)}; {filter_cure(resize)}"
        )
    check_bool("antialias", antialias, ArgumentError)
    check_choice("fit", fit, FIT_MODES, ArgumentError)
    if resize == "lanczos" and not antialias:
        raise ArgumentError(
            'resize="lanczos" is defined with antialias only; remove antialias=False, or give '
            'resize="bicubic"'
        )
    side = None if short_side is None else as_int(short_side)
    if short_side is not None and (side is None or not 1 <= side <= MAX_SIDE):
        raise ArgumentError(
            f"short_side={short_side!r}; it must be a whole number from 1 to {MAX_SIDE}"
        )
    if side is not None and fit != "stretch":
        raise ArgumentError(
            f"short_side={side} and fit={fit!r} both say how samples are scaled; remove one"
        )
    return ResizeOptions(resize, antialias, fit, side, _parse_pad_before(pad_before, fit))


def _parse_pad_before(pad_before: Any, fit: str) -> tuple[tuple[str, int], ...]:
    if pad_before is None:
        return ()
    if fit != "pad":
        raise ArgumentError(f'pad_before={pad_before!r} applies to fit="pad", and fit is {fit!r}')
    result = []
    for name, value in pad_before.items() if isinstance(pad_before, Mapping) else [(None, None)]:
        number = as_int(value)
        if not isinstance(name, str) or number is None or not 0 <= number <= MAX_SIDE:
            raise ArgumentError(
                f"pad_before={pad_before!r}; it must be a dict of whole numbers up to {MAX_SIDE}, "
                'such as {"h": 0}'
            )
        result.append((axis_name(name), number))
    return tuple(result)


def place_samples(
    options: ResizeOptions,
    names: tuple[str, ...],
    sizes: Array,
    window: tuple[int, ...],
    crops: Mapping[int, Array],
    offsets: Mapping[int, Array],
    may_fill: bool,
    center: str,
) -> Placements:
    """Return the placement of samples in their windows.

    Parameters
    ----------
    names, window : the name of each resized axis, and the size of the window along it
    sizes : the sizes of the samples along these axes, a row for each sample
    crops, offsets : the sizes and first positions of crops, by index of the axis: one, or one
        per sample. Other axes: the whole sample, and centered crops
    may_fill : whether there are values for positions outside of samples
    center : the rule of centering.py

    Raises
    ------
    ShapeError
        A crop is empty, too large or outside of its sample, or a window is not covered.
    """
    extents = sizes.copy()
    for axis, values in crops.items():
        extents[:, axis] = values
    begins = centered_start(sizes - extents, center)
    for axis, values in offsets.items():
        begins[:, axis] = values
    _check_crops(names, sizes, begins, extents, may_fill)
    target = np.array(window, np.int64)
    firsts = np.zeros(sizes.shape, np.int64)
    scaled = firsts + target
    if options.short_side is not None:
        shorter = extents.min(1, keepdims=True)
        scaled = extents * options.short_side // shorter
        _check_scaled(names, scaled, options.short_side)
        _check_covered(names, scaled, target, options.short_side, may_fill)
        firsts = centered_start(scaled - target, center)
    elif options.fit == "cover":
        scale = (target / extents).max(1, keepdims=True)
        parts = np.clip(np.rint(target / scale).astype(np.int64), 1, extents)
        begins = begins + centered_start(extents - parts, center)
        extents = parts
    elif options.fit == "pad":
        scale = (target / extents).min(1, keepdims=True)
        scaled = np.clip(np.rint(extents * scale).astype(np.int64), 1, target)
        firsts = centered_start(scaled - target, center)
        for name, before in options.pad_before:
            axis = _axis_index(name, names)
            firsts[:, axis] = -before
            if before + int(scaled[:, axis].max()) > window[axis]:
                raise ShapeError(
                    f"pad_before has {name}={before}, but a sample is scaled to "
                    f"{scaled[:, axis].max()} of {window[axis]} positions; give at most "
                    f"{window[axis] - scaled[:, axis].max()}"
                )
    return Placements(begins, extents, scaled, firsts)


def _axis_index(name: str, names: tuple[str, ...]) -> int:
    if name not in names:
        raise ArgumentError(f"pad_before has {name!r}, but the resized axes are {', '.join(names)}")
    return names.index(name)


def _first_true(flags: Array) -> list[list[int]]:
    """Return a list of the indices of the first True, empty if there is none."""
    indices: list[list[int]] = np.argwhere(flags)[:1].tolist() if flags.any() else []
    return indices


def _check_scaled(names: tuple[str, ...], scaled: Array, side: int) -> None:
    for number, axis in _first_true(scaled > MAX_SIDE):
        raise ShapeError(
            f"sample {number} has size {scaled[number, axis]} along {names[axis]} after "
            f"short_side={side}, and at most {MAX_SIDE} is possible; give a smaller short_side"
        )


def _check_crops(
    names: tuple[str, ...], sizes: Array, begins: Array, extents: Array, may_fill: bool
) -> None:
    for number, axis in _first_true((extents < 1) | (extents > MAX_SIDE)):
        is_sample = sizes[number, axis] == extents[number, axis]
        raise ShapeError(
            f"sample {number} has {'size' if is_sample else 'a crop of'} "
            f"{extents[number, axis]} along {names[axis]}; a resized part has from 1 to "
            f"{MAX_SIDE} positions"
        )
    if may_fill:
        return
    outside = (begins < 0) | (begins + extents > sizes)
    for number, axis in _first_true(outside):
        begin, extent = begins[number, axis], extents[number, axis]
        raise ShapeError(
            f"sample {number} has size {sizes[number, axis]} along {names[axis]}, but its crop of "
            f"{extent} goes from {begin} to {begin + extent}; give another crop or offset, or "
            "fill=0 to pad"
        )


def _check_covered(
    names: tuple[str, ...], scaled: Array, target: Array, side: int, may_fill: bool
) -> None:
    for number, axis in () if may_fill else _first_true(scaled < target):
        raise ShapeError(
            f"sample {number} has size {scaled[number, axis]} along {names[axis]} after "
            f"short_side={side}, but the window has {target[axis]}; give a short_side of at least "
            f"{target[axis]}, or fill=0 to pad"
        )


def summed_dtype(source: DType) -> DType:
    """Return the dtype in which samples are averaged: float64 if they are, else float32."""
    return source if source == np.float64 else np.dtype(np.float32)


class AxisRoles(NamedTuple):
    """The letters of the axes of a sample, by their role when it is resized on a CPU.

    columns     the resized axis with the smallest stride
    rows        the axis whose neighbors are resampled together, resized if there are several
    inner       axes within a column
    outer       all others, outermost first

    A sample without rows or columns has one row or column, whose letter is "".
    """

    outer: str
    rows: str
    columns: str
    inner: str

    @property
    def slots(self) -> tuple[str, ...]:
        """The axes that have tap tables, in the order of the kernel's arguments."""
        return (*self.outer, self.rows, self.columns)


def assign_roles(
    order: str, resized: str, sizes: Mapping[str, int], single: str, lanes: int
) -> AxisRoles:
    """Return the roles of the axes `order`, which are in the order of a sample's memory.

    `sizes` belong to the window; `single` are the axes that cannot be rows. If one axis is resized
    and at least `lanes` elements are within it, it becomes the rows.
    """
    last = max(map(order.index, resized))
    before, column, inner = order[:last], order[last], order[last + 1 :]
    if len(resized) == 1 and prod(sizes[x] for x in inner) >= lanes:
        return AxisRoles(before, column, "", inner)
    rows = [x for x in before if x in resized] or [x for x in before if x not in single]
    row = rows[-1] if rows else ""
    return AxisRoles("".join(x for x in before if x != row), row, column, inner)


def nearest_positions(
    window: Sequence[int], resized: Sequence[int], placements: Placements, lengths: Array
) -> dict[int, Array]:
    """Return the nearest index in each sample of the positions of its window, by resized axis.

    Indices are int64, a row for each sample; -1: the position is outside of the sample, whose
    size is in `lengths`.
    """
    positions = {}
    for column, axis in enumerate(resized):
        begins, sizes, scaled, firsts = (field[:, column, None] for field in placements)
        place = firsts + np.arange(window[axis])
        nearest = begins + (2 * place + 1) * sizes // (2 * scaled)
        is_inside = (place >= 0) & (place < scaled) & (nearest >= 0)
        is_inside &= nearest < lengths[:, axis, None]
        positions[axis] = np.where(is_inside, nearest, -1)
    return positions

"""The placement of samples in windows: where each window is read from, for every executor.

A sample is placed along every resized axis by four integers: the first position and the size of its
crop, the size to which the crop is scaled, and the scaled position at which the window begins.
Positions of the window outside of the scaled crop are filled. All ways to fit a sample into a
window are reduced to these integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import ArgumentError, ShapeError
from ...memory import Array
from ..centering import centered_start
from ..resize import MAX_SIDE, ResizeOptions
from .arguments import FAR, CropArgs, parse_offset_and_flip, parse_per_sample
from .samples import SampleAxes

if TYPE_CHECKING:
    from ...options import CollateOptions


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


class CropPlacement(NamedTuple):
    """The start of each window in its sample, and its reversed axes: one row per sample."""

    starts: Array
    flips: Array


def resolve_crops(
    options: CollateOptions,
    axes: SampleAxes,
    shapes: Array,
    window: Array,
    args: CropArgs,
    count: int,
) -> CropPlacement:
    """Return the start and flips of every window; axes without an offset are center-cropped."""
    offsets, flips = parse_offset_and_flip(axes.places(), axes.channels is not None, args, count)
    centered = centered_start(shapes - window, options.center)
    begins = np.array(np.broadcast_to(centered, (count, len(window))))
    flags = np.zeros((count, len(window)), bool)
    for axis, values in offsets.items():
        begins[:, axis] = np.clip(values, -FAR, FAR)
    for axis, values in flips.items():
        flags[:, axis] = values
    return CropPlacement(begins, flags)


def check_windows_inside(
    axes: SampleAxes, begins: Array, shapes: Array, window: tuple[int, ...], outside: Array
) -> None:
    """Raise ShapeError if a window reaches outside of its sample, as `outside` marks."""
    for number, axis in np.argwhere(outside).tolist():
        begin, size = (a[number if len(a) > 1 else 0, axis] for a in (begins, shapes))
        name = axes.sample.named[axis][0]
        raise ShapeError(
            f"sample {number} has size {size} along {name}, but its window of {window[axis]} goes "
            f"from {begin} to {begin + window[axis]}; give another offset or size, or fill=0 to pad"
        )


def place_resized(
    options: CollateOptions, axes: SampleAxes, shapes: Array, args: CropArgs
) -> tuple[list[int], Placements]:
    """Return the indices of the resized axes, and the placement of samples of `shapes` along them.

    Raises ShapeError or ArgumentError if a crop does not fit its sample; see `place_samples`.
    """
    resize = options.resize
    if resize is None:
        raise RuntimeError("samples are not resized")
    indices = [i for i, name in enumerate(axes.cropped_names) if name is not None]
    names = tuple(name for name in axes.cropped_names if name is not None)
    columns = {name: i for i, name in enumerate(names)}
    count = len(shapes)
    return indices, place_samples(
        resize,
        names,
        shapes[:, indices],
        tuple(options.convert.sizes[name] for name in names),
        parse_per_sample("crop", args.crop, columns, count),
        parse_per_sample("offset", args.offset, columns, count),
        options.fill is not None or resize.fit == "pad",
        options.center,
    )


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
            f"sample {number} has size {sizes[number, axis]} along {names[axis]}, "
            f"but its crop of {extent} goes from {begin} to {begin + extent}; "
            "give another crop or offset, or fill=0 to pad"
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

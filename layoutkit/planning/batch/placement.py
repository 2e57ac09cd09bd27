"""The placement of samples in windows: where each window is read from, for every executor.

A sample is placed along an axis by four integers and a flag: the first position and the size of its
crop, the size to which the crop is scaled, the scaled position at which the window begins, and
whether the window is flipped. All ways to crop a sample, or to fit it into a window, are reduced to
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import ArgumentError, ShapeError
from ...memory import Array
from ..centering import centered_start
from ..resize import MAX_SIDE, ResizeOptions
from .arguments import FAR, CropArgs, PerSampleArgs, parse_offset_and_flip, parse_per_sample
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
        """Return points unchanged, and boxes with x1 <= x2 and y1 <= y2 along flipped axes."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Placements:
    """The source regions of windows: a row for each sample, a column for each axis.

    Along an axis, the crop of a sample begins at `begins`, has `sizes` positions and is scaled to
    `scaled` positions. The window begins at position `firsts` of the scaled crop, and is flipped
    last. Positions outside of the sample or of the scaled crop are filled. Without resizing, the
    crop has the size of the window, and is scaled to the same size.
    """

    window: tuple[int, ...]  # its size along each axis
    resized: tuple[int, ...]  # the axes along which crops are scaled
    lengths: Array  # (samples, axes) int64: the sizes of the samples
    begins: Array  # (samples, axes) int64; a crop may begin outside of its sample
    sizes: Array  # (samples, axes) int64
    scaled: Array  # (samples, axes) int64
    firsts: Array  # (samples, axes) int64; negative if a window begins before the scaled crop
    flips: Array  # (samples, axes) bool

    @property
    def _fields(self) -> tuple[Array, ...]:
        """The arrays, in the order of the fields."""
        return self.lengths, self.begins, self.sizes, self.scaled, self.firsts, self.flips

    @property
    def outside(self) -> Array:  # (samples, axes) bool
        """True for crops that reach outside of their samples."""
        return (self.begins < 0) | (self.begins + self.sizes > self.lengths)

    def along(
        self, columns: Sequence[int], window: tuple[int, ...], resized: tuple[int, ...]
    ) -> Placements:
        """Return the placements along the parts of folded axes.

        Parts whose sizes differ from the size of their axis are neither cropped nor flipped.

        columns    the index of the axis that each part belongs to
        window     the size of the window along each part
        resized    the parts along which crops are scaled
        """
        if window == self.window and len(columns) == len(window):  # nothing is folded
            return self
        lengths, begins, sizes, scaled, firsts, flips = (
            field[:, columns] for field in self._fields
        )
        for part, column in enumerate(columns):
            if window[part] != self.window[column]:
                for field in (lengths, sizes, scaled):
                    field[:, part] = window[part]
        return Placements(window, resized, lengths, begins, sizes, scaled, firsts, flips)

    def rows(self, numbers: Any) -> Placements:
        """Return the placements of some samples, in this order."""
        return Placements(self.window, self.resized, *(field[numbers] for field in self._fields))

    def placement(self, vertical: int, horizontal: int) -> Placement:
        """Return the placement of the first sample along two axes, given by their indices."""
        axes = [vertical, horizontal]
        _, begins, sizes, scaled, firsts, flips = (field[0, axes] for field in self._fields)
        scale = scaled / sizes
        offset = -begins * scale - firsts
        offset = np.where(flips, np.array(self.window)[axes] - offset, offset)
        scale = np.where(flips, -scale, scale)
        top, left = (offset + 0.0).tolist()  # no -0.0
        return Placement((float(scale[0]), float(scale[1])), top, left)


def place(
    options: CollateOptions,
    axes: SampleAxes,
    window: tuple[int, ...],
    shapes: Array,
    args: CropArgs,
) -> Placements:
    """Return the placements of samples of `shapes` (samples, axes), along each of their axes.

    Raises ArgumentError or ShapeError if an argument is malformed, or if a window does not fit.
    """
    lengths = shapes if axes.channels is None else axes.select_channels(shapes)
    if options.resize is None:
        return _place_crops(options, axes, window, lengths, args)
    return _place_resized(options, options.resize, axes, window, lengths, args)


def _place_crops(
    options: CollateOptions,
    axes: SampleAxes,
    window: tuple[int, ...],
    lengths: Array,
    args: CropArgs,
) -> Placements:
    offsets, flips = parse_offset_and_flip(axes, args, len(lengths))
    if axes.longest:
        offsets = offsets | place_padded(axes, window, lengths, flips)
    return place_crops(options, axes, window, lengths, offsets, flips)


def place_crops(
    options: CollateOptions,
    axes: SampleAxes,
    window: tuple[int, ...] | Array,
    lengths: Array,
    offsets: PerSampleArgs,
    flips: PerSampleArgs,
) -> Placements:
    """Return the placements of windows that are not resized.

    window      the size of all windows, or of each one: (samples, axes) int64
    lengths     (samples, axes) int64, the sizes of the samples
    offsets, flips    of the windows, by index of the axis

    Raises ShapeError if a window reaches outside of its sample, and cannot be filled.
    """
    sizes = np.empty(lengths.shape, np.int64)
    sizes[:] = window
    begins = centered_start(lengths - sizes, options.center)
    for axis, values in offsets.items():
        begins[:, axis] = np.clip(values, -FAR, FAR)
    if options.fill is None:
        check_windows_inside(axes, window, begins, lengths)
    flags = _make_flags_by_axis(flips, lengths.shape)
    common = window if isinstance(window, tuple) else ()
    return Placements(common, (), lengths, begins, sizes, sizes, 0 * sizes, flags)


def place_padded(
    axes: SampleAxes, window: tuple[int, ...], lengths: Array | None, flips: PerSampleArgs
) -> PerSampleArgs:
    """Return the first positions of windows along axes that are padded to the longest sample.

    The padding is after the sample. A window is flipped after it is placed, so before a flip the
    padding is before the sample.

    lengths    (samples, axes) int64, the sizes of the samples; None if no padded axis is flipped
    flips      of the windows, by index of the axis
    """
    begins = dict.fromkeys(axes.longest_axes, np.zeros((), np.int64))
    if lengths is not None:
        for axis in begins.keys() & flips.keys():
            begins[axis] = flips[axis] * (lengths[:, axis] - window[axis])
    return begins


def _make_flags_by_axis(flips: PerSampleArgs, shape: tuple[int, ...]) -> Array:
    flags = np.zeros(shape, bool)
    for axis, values in flips.items():
        flags[:, axis] = values
    return flags


def check_windows_inside(
    axes: SampleAxes, window: tuple[int, ...] | Array, begins: Array, lengths: Array
) -> None:
    """Raise ShapeError if a window reaches outside of its sample; they may have own sizes."""
    windows = np.broadcast_to(window, lengths.shape)
    outside = (begins < 0) | (begins + windows > lengths)
    for number, axis in zip(*outside.nonzero(), strict=True):
        begin, size = begins[number, axis], lengths[number, axis]
        extent = windows[number, axis]
        name = axes.sample.named[axis][0]
        raise ShapeError(
            f"sample {number} has size {size} along {name}, but its window of {extent} goes "
            f"from {begin} to {begin + extent}; give another offset or size, or fill=0 to pad"
        )


def _place_resized(
    options: CollateOptions,
    resize: ResizeOptions,
    axes: SampleAxes,
    window: tuple[int, ...],
    lengths: Array,
    args: CropArgs,
) -> Placements:
    names, resized = tuple(axes.resized), tuple(axes.resized.values())
    columns = dict(zip(names, range(len(names)), strict=True))
    count = len(lengths)
    placed = place_samples(
        resize,
        names,
        lengths[:, resized],
        tuple(map(window.__getitem__, resized)),
        parse_per_sample("crop", args.crop, columns, count),
        parse_per_sample("offset", args.offset, columns, count),
        options.may_fill,
        options.center,
    )
    begins = np.zeros(lengths.shape, np.int64)
    sizes = begins + np.array(window, np.int64)
    scaled, firsts = sizes.copy(), begins.copy()
    begins[:, resized], sizes[:, resized] = placed.begins, placed.sizes
    scaled[:, resized], firsts[:, resized] = placed.scaled, placed.firsts
    flips = parse_per_sample("flip", args.flip, axes.axis_indices, count)
    for axis, first in place_padded(axes, window, lengths, flips).items():  # scaled by 1
        sizes[:, axis] = scaled[:, axis] = lengths[:, axis]
        firsts[:, axis] = first
    if axes.longest:
        resized = tuple(axes.cropped.values())
        fields = lengths[:, resized], begins[:, resized], sizes[:, resized]
        _check_crops(tuple(axes.cropped), *fields, may_fill=True)
    flags = _make_flags_by_axis(flips, lengths.shape)
    return Placements(window, resized, lengths, begins, sizes, scaled, firsts, flags)


def place_samples(
    resize: ResizeOptions,
    names: tuple[str, ...],
    lengths: Array,
    window: tuple[int, ...],
    crops: Mapping[int, Array],
    offsets: Mapping[int, Array],
    may_fill: bool,
    center: str,
) -> Placements:
    """Return the placements of samples along their resized axes.

    Parameters
    ----------
    names, window : the name of each of these axes, and the size of the window along it
    lengths : (samples, axes) int64, the sizes of the samples
    crops, offsets : the sizes and first positions of crops, by index of the axis: one number, or
        one per sample. Along an axis that is omitted, the crop is the whole sample, or is centered
    may_fill : True if there are values for positions outside of samples
    center : one of CENTERINGS

    Raises
    ------
    ShapeError
        A crop is empty, too large or outside of its sample, or a window is larger than the scaled
        crop and cannot be filled.
    """
    extents = lengths.copy()
    for axis, values in crops.items():
        extents[:, axis] = values
    begins = np.zeros(lengths.shape, np.int64)
    if len(offsets) < len(names):
        begins = centered_start(lengths - extents, center)
    for axis, values in offsets.items():
        begins[:, axis] = values
    _check_crops(names, lengths, begins, extents, may_fill)
    target = np.array(window, np.int64)
    firsts = np.zeros(lengths.shape, np.int64)
    scaled = firsts + target
    if resize.short_side is not None:
        scaled = _scale_short_side(resize.short_side, names, extents, target, may_fill)
        firsts = centered_start(scaled - target, center)
    elif resize.fit == "cover":
        scale = (target / extents).max(1, keepdims=True)
        parts = np.clip(np.rint(target / scale).astype(np.int64), 1, extents)
        begins = begins + centered_start(extents - parts, center)
        extents = parts
    elif resize.fit == "pad":
        scale = (target / extents).min(1, keepdims=True)
        scaled = np.clip(np.rint(extents * scale).astype(np.int64), 1, target)
        firsts = centered_start(scaled - target, center)
        _set_pad_before(firsts, resize.pad_before, names, scaled, window)
    resized = tuple(range(len(window)))
    flips = np.zeros(lengths.shape, bool)
    return Placements(window, resized, lengths, begins, extents, scaled, firsts, flips)


def _scale_short_side(
    side: int, names: tuple[str, ...], extents: Array, target: Array, may_fill: bool
) -> Array:
    """Return the sizes of crops that are scaled so that their shorter side is `side`."""
    scaled: Array = extents * side // extents.min(1, keepdims=True)
    for number, axis in zip(*(scaled > MAX_SIDE).nonzero(), strict=True):
        raise ShapeError(
            f"sample {number} has size {scaled[number, axis]} along {names[axis]} after "
            f"short_side={side}; the maximum is {MAX_SIDE}; give a smaller short_side"
        )
    if may_fill:
        return scaled
    for number, axis in zip(*(scaled < target).nonzero(), strict=True):
        raise ShapeError(
            f"sample {number} has size {scaled[number, axis]} along {names[axis]} after "
            f"short_side={side}, but the window has {target[axis]}; give a short_side of at least "
            f"{target[axis]}, or fill=0 to pad"
        )
    return scaled


def _set_pad_before(
    firsts: Array,
    pad_before: Iterable[tuple[str, int]],
    names: tuple[str, ...],
    scaled: Array,
    window: tuple[int, ...],
) -> None:
    """Set the first position of windows along the axes that `pad_before` names."""
    for name, before in pad_before:
        if name not in names:
            raise ArgumentError(
                f"pad_before has {name!r}, but the resized axes are {', '.join(names)}"
            )
        axis = names.index(name)
        firsts[:, axis] = -before
        largest = int(scaled[:, axis].max())
        if before + largest > window[axis]:
            raise ShapeError(
                f"pad_before has {name}={before}, but a sample is scaled to {largest} of "
                f"{window[axis]} positions; give at most {window[axis] - largest}"
            )


def _check_crops(
    names: tuple[str, ...], lengths: Array, begins: Array, extents: Array, may_fill: bool
) -> None:
    for number, axis in zip(*((extents < 1) | (extents > MAX_SIDE)).nonzero(), strict=True):
        is_sample = lengths[number, axis] == extents[number, axis]
        raise ShapeError(
            f"sample {number} has {'size' if is_sample else 'a crop of'} "
            f"{extents[number, axis]} along {names[axis]}; a resized part has from 1 to "
            f"{MAX_SIDE} positions"
        )
    if may_fill:
        return
    outside = (begins < 0) | (begins + extents > lengths)
    for number, axis in zip(*outside.nonzero(), strict=True):
        begin, extent = begins[number, axis], extents[number, axis]
        raise ShapeError(
            f"sample {number} has size {lengths[number, axis]} along {names[axis]}, "
            f"but its crop of {extent} goes from {begin} to {begin + extent}; "
            "give another crop or offset, or fill=0 to pad"
        )

"""The placement of samples in windows: where each window is read from, for every executor.

A sample is placed along an axis by four integers and a flag: the first position and the size of its
crop, the size to which the crop is scaled, the scaled position at which the window begins, and
whether the window is flipped. All ways to crop a sample, or to fit it into a window, are reduced to
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Never, TypeAlias, overload

import numpy as np

from ..._utils.cache import MAX_KEPT
from ..._utils.errors import reject_unknown
from ..._utils.indexing import as_array, normalize_index, normalize_indices, normalize_slice
from ..._utils.validation import as_int, check_bool, describe_type, show, type_name
from ...errors import ArgumentError, DtypeError, ShapeError
from ...memory import Array
from ...normalize import CHANNEL
from ..centering import centered_start
from ..fitting import FAR, MAX_SIDE, limit_size, round_half_even, scale_sides
from ..resize import ResizeOptions
from .arguments import (
    HEIGHTS,
    WIDTHS,
    CropArgs,
    PerSampleArgs,
    parse_offset_and_flip,
    parse_per_sample,
)
from .samples import SampleAxes, as_slice

if TYPE_CHECKING:
    from ...options import CollateOptions


class Placement(NamedTuple):
    """The scale and offset of an image in its window: where points and boxes of it are.

    scale : (float, float)    vertical and horizontal; negative along an axis that is flipped
    top, left : float         the position of the image's point (0, 0) in pixels of the window;
                              negative where the image is cropped
    region : (float, float, float, float)    x1, y1, x2, y2 of the part of the window that boxes can
                              be in: the window without padding in place of pixels that are cut off;
                              infinite along an axis that is not placed

    The image's point (x, y) is at (x * scale[1] + left, y * scale[0] + top).
    """

    scale: tuple[float, float]
    top: float
    left: float
    region: tuple[float, float, float, float]

    @property
    def flip(self) -> tuple[bool, bool]:
        """True along an axis that is flipped, vertical and horizontal."""
        return self.scale[0] < 0, self.scale[1] < 0

    @property
    def matrix(self) -> Array:
        """The 2 x 3 matrix (float64) that maps (x, y, 1) of the image to x, y of the window."""
        return np.array([[self.scale[1], 0, self.left], [0, self.scale[0], self.top]])

    def to_fitted(self, points: Any, **unknown: Never) -> Array:
        """Map points or boxes of the image to the window.

        A box of a flipped image has x1 <= x2 and y1 <= y2, too.

        points : array (..., 2) of x, y, or (..., 4) of x1, y1, x2, y2, in pixels
        """
        if unknown:
            reject_unknown(Placement.to_fitted, unknown, _POINT_CURES)
        values, scale, offset = self._as_floats(points)
        return self._with_ordered_corners(values * scale + offset)

    def to_image(self, points: Any, **unknown: Never) -> Array:
        """Map points or boxes of the window back to the image; the inverse of `to_fitted`.

        >>> where = Placement((1.0, 1.0), top=80.0, left=0.0, region=(0, 0, 320, 320))
        >>> where.to_image([[10, 90, 20, 100]]).tolist()
        [[10.0, 10.0, 20.0, 20.0]]
        """
        if unknown:
            reject_unknown(Placement.to_image, unknown, _POINT_CURES)
        values, scale, offset = self._as_floats(points)
        return self._with_ordered_corners((values - offset) / scale)

    def fit_boxes(
        self,
        boxes: Any,
        clip: bool = True,
        min_size: float = 0,
        min_visible: float = 0.0,
        **unknown: Never,
    ) -> tuple[Array, Array]:
        """Map boxes of the image to the window, without the boxes that are not visible there.

        >>> where = Placement((0.5, 0.5), top=0.0, left=-20.0, region=(0, 0, 50, 50))
        >>> boxes, kept = where.fit_boxes([[10, 10, 30, 30], [30, 10, 50, 30], [60, 10, 80, 30]])
        >>> boxes.tolist(), kept.tolist()
        ([[0.0, 5.0, 5.0, 15.0], [10.0, 5.0, 20.0, 15.0]], [1, 2])

        Parameters
        ----------
        boxes : array (n, 4) of x1, y1, x2, y2, in pixels of the image
            With x1 <= x2 and y1 <= y2; n may be 0.
        clip : bool
            True: limit the boxes to `region`, the visible part of the window.
        min_size : float
            Boxes whose visible part is smaller along an axis, in pixels of the window, are dropped.
            Boxes without a visible part always are.
        min_visible : float, from 0 to 1
            Boxes are dropped if a smaller share of their area is visible.

        Returns
        -------
        boxes : array (m, 4)
            In pixels of the window, with the dtype of `boxes` (float64 for integers).
        kept : int64 array (m,)
            The index in `boxes` of each box, in ascending order.

        Raises
        ------
        ShapeError, DtypeError, ArgumentError
            `boxes` is not (n, 4), not of numbers, not finite or a box has its corners in another
            order; `min_size` or `min_visible` is not a number in its range.
        """
        if unknown:
            reject_unknown(Placement.fit_boxes, unknown, _BOX_CURES)
        check_bool("clip", clip, ArgumentError)
        _check_limit("min_size", min_size, inf)
        _check_limit("min_visible", min_visible, 1)
        fitted = self.to_fitted(_check_boxes(boxes))
        low, high = np.split(np.array(self.region, fitted.dtype), 2)
        clipped = np.clip(fitted, np.tile(low, 2), np.tile(high, 2))
        sides, whole = (
            np.subtract(x[:, 2:], x[:, :2], dtype=np.float64) for x in (clipped, fitted)
        )
        is_kept = ((sides > 0) & (sides >= min_size)).all(1)
        is_kept &= sides.prod(1) >= min_visible * whole.prod(1)
        kept = np.flatnonzero(is_kept)
        return (clipped if clip else fitted)[kept], kept

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


def _box_sides(boxes: Array) -> Array:
    """Return the widths and heights of boxes, float64 (n, 2)."""
    return np.subtract(boxes[:, 2:], boxes[:, :2], dtype=np.float64)


def _check_limit(name: str, value: Any, most: float) -> None:
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (is_number and 0 <= value <= most):
        limits = "0 or more" if most == inf else f"from 0 to {most}"
        raise ArgumentError(f"{name}={show(value)}; it must be a number, {limits}")


_XYWH = "a box of x, y, width and height is x, y, x + width, y + height"
_BOX_CURES = dict.fromkeys(
    ("bbox_format", "box_format", "fmt", "format", "in_fmt"),
    f"boxes are x1, y1, x2, y2 in pixels; {_XYWH}",
)

_POINT_CURES = _BOX_CURES | dict.fromkeys(
    ("clip", "min_size", "min_visible"), "fit_boxes clips boxes, and drops small ones"
)


def _check_boxes(boxes: Any) -> Array:
    """Return boxes as an array (n, 4); raise if they are not boxes of numbers in order."""
    array = as_array(boxes)
    if array is None or (array.shape[1:] != (4,) and array.shape != (0,)):
        shown = type_name(boxes) if array is None else f"an array of shape {array.shape}"
        raise ShapeError(
            f"boxes is {shown}; give an array (n, 4) of x1, y1, x2, y2, one row for each box"
        )
    array = array.reshape(-1, 4)
    if array.dtype.kind not in "iuf":
        raise DtypeError(f"boxes has dtype {array.dtype}; give pixels as integers or floats")
    is_valid = (array[:, :2] <= array[:, 2:]).all(1) & np.isfinite(array).all(1)
    for number in np.flatnonzero(~is_valid):
        raise ArgumentError(
            f"box {number} is {array[number].tolist()}; give finite x1, y1, x2, y2 with x1 <= x2 "
            f"and y1 <= y2 ({_XYWH})"
        )
    return array


# weakref_slot: torch.compile compiles a function again for other placements
@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Placements:
    """The crop, scale, position and flip of samples in their windows, as `Collator.place` returns.

    A sequence: `placements[3]` is the Placement of a sample, which maps its points and boxes, and
    `placements[2:4]` and `placements[[7, 0]]` are the Placements of some samples. Placements are
    immutable, can be pickled and are equal if all their numbers are. `print` shows a line for each
    sample.

    Arrays have a row for each sample and a column for each axis. Along an axis, the crop of a
    sample begins at `begins`, has `sizes` positions and is scaled to `scaled` positions. The window
    begins at position `firsts` of the scaled crop, and is flipped last. Positions outside of the
    sample or of the scaled crop are filled. Without resizing, the crop has the size of the window,
    and is scaled to the same size. Samples are placed along axes that are not in `axes` as they
    are.
    """

    axes: tuple[str, ...]  # their names; "" for an axis without a name of its own
    window: tuple[int, ...]  # its size along each axis; (): each is the whole scaled crop
    resized: tuple[int, ...]  # the columns of the axes along which crops are scaled
    lengths: Array  # (samples, axes) int64: the sizes of the samples
    begins: Array  # (samples, axes) int64; a crop may begin outside of its sample
    sizes: Array  # (samples, axes) int64
    scaled: Array  # (samples, axes) int64
    firsts: Array  # (samples, axes) int64; negative if a window begins before the scaled crop
    flips: Array  # (samples, axes) bool

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[Placement]:
        return map(self._find_placement, range(len(self)))

    @overload
    def __getitem__(self, key: int) -> Placement: ...
    @overload
    def __getitem__(self, key: Any) -> Placements: ...
    def __getitem__(self, key: Any) -> Placement | Placements:
        if as_int(key) is not None:
            return self._find_placement(normalize_index(key, len(self), "samples"))
        if isinstance(key, slice):
            key = normalize_slice(key, len(self))
        return self.rows(normalize_indices(key, len(self), "samples")).as_read_only()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Placements):
            return NotImplemented
        return self._key() == other._key() and all(map(np.array_equal, self._fields, other._fields))

    def __hash__(self) -> int:
        return hash((*self._key(), len(self)))

    def __reduce__(self) -> Any:
        return _restore, (*self._key(), *self._fields)

    def __repr__(self) -> str:
        return "\n".join([f"sample {n}: {self._describe(n)}" for n in range(len(self))])

    def _key(self) -> tuple[Any, ...]:
        return self.axes, self.window, self.resized

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

        The parts of an axis that has several are neither cropped nor flipped.

        columns    the index of the axis that each part belongs to
        window     the size of the window along each part
        resized    the parts along which crops are scaled
        """
        if len(columns) == len(self.axes):  # nothing is folded
            return self
        lengths, begins, sizes, scaled, firsts, flips = (
            field[:, columns] for field in self._fields
        )
        for part, column in enumerate(columns):
            if columns.count(column) > 1:
                for field in (lengths, sizes, scaled):
                    field[:, part] = window[part]
        axes = tuple([self.axes[column] for column in columns])
        window = window if self.window else ()
        return Placements(axes, window, resized, lengths, begins, sizes, scaled, firsts, flips)

    def append_whole_axis(self, name: str, size: int) -> Placements:
        """Return the placements of samples with one more axis, along which nothing is cropped."""
        sizes = np.full((len(self), 1), size)
        zeros = 0 * sizes
        columns = sizes, zeros, sizes, sizes, zeros, zeros.astype(bool)
        arrays = [np.hstack(pair) for pair in zip(self._fields, columns, strict=True)]
        return Placements((*self.axes, name), (*self.window, size), self.resized, *arrays)

    def rows(self, numbers: Any) -> Placements:
        """Return the placements of some samples, in this order."""
        return Placements(*self._key(), *(field[numbers] for field in self._fields))

    def select(self, axes: Iterable[str]) -> Placements:
        """Return the read-only placements along some axes, given by name."""
        names = tuple(axes)
        columns, window, resized = _select_columns(names, *self._key())
        fields = [field[:, columns] for field in self._fields]
        return Placements(names, window, resized, *fields).as_read_only()

    def as_read_only(self) -> Placements:
        """Return these placements, after making their arrays read-only."""
        for field in self._fields:
            field.flags.writeable = False
        return self

    def _find_placement(self, number: int) -> Placement:
        if not {*HEIGHTS, *WIDTHS} & {*self.axes}:
            raise ArgumentError(
                "a Placement maps points along h and w, but these samples are placed along "
                f"{', '.join(self.axes) or 'no axis'}; read the arrays, such as begins and sizes"
            )
        y, top, y1, y2 = self._find_map(number, HEIGHTS)
        x, left, x1, x2 = self._find_map(number, WIDTHS)
        return Placement((y, x), top, left, (x1, y1, x2, y2))

    def _find_map(self, number: int, names: Iterable[str]) -> tuple[float, float, float, float]:
        """Return the scale and offset of a sample along an axis, and the ends of its region."""
        column = next((self.axes.index(name) for name in names if name in self.axes), None)
        if column is None:
            return 1.0, 0.0, -inf, inf
        length, begin, size, scaled, first, is_flipped = (
            field[number, column].item() for field in self._fields
        )
        window = self.window[column] if self.window else scaled
        scale = scaled / size if size else 1.0
        offset = -begin * scale - first
        low = max(0, -first) if begin > 0 else 0
        high = min(window, scaled - first) if begin + size < length else window
        if is_flipped:
            scale, offset, low, high = -scale, window - offset, window - high, window - low
        return scale, offset + 0.0, float(low), float(high)  # no -0.0

    def _describe(self, number: int) -> str:
        """Return the placement of a sample as text, such as "h[10:210] of 480 -> 224"."""
        parts = []
        for column, name in enumerate(self.axes):
            length, begin, size, scaled, first, is_flipped = (
                field[number, column].item() for field in self._fields
            )
            window = self.window[column] if self.window else scaled
            text = f"{name}[{begin}:{begin + size}] of {length} -> {scaled}"
            text += f"[{first}:{first + window}]" if (first, scaled) != (0, window) else ""
            parts.append(text + " flipped" * is_flipped)
        return ", ".join(parts)


@lru_cache(maxsize=MAX_KEPT)
def _select_columns(
    names: tuple[str, ...], axes: tuple[str, ...], window: tuple[int, ...], resized: tuple[int, ...]
) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """Return the index of the columns of the axes `names`, their windows and the resized ones."""
    columns = [axes.index(name) for name in names]
    own_window = tuple([window[column] for column in columns]) if window else ()
    own_resized = tuple([n for n, column in enumerate(columns) if column in resized])
    return as_slice(columns), own_window, own_resized


def _restore(*fields: Any) -> Placements:
    return Placements(*fields).as_read_only()


def placements_as_lists(placements: Placements) -> dict[str, Any]:
    """Return the fields of placements as JSON values; raise ArgumentError for other objects."""
    _check_type(placements)
    values = {field.name: getattr(placements, field.name) for field in fields(Placements)}
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else list(value)
        for name, value in values.items()
    }


def _check_type(placements: Any) -> Placements:
    if not isinstance(placements, Placements):
        raise ArgumentError(
            f"placements is {describe_type(placements)}; give what Collator.place returns, or a "
            "part of it, such as placements[:1] or placements[[2, 0]]"
        )
    return placements


def placements_from_lists(lists: Mapping[str, Any]) -> Placements:
    """Return the placements of `placements_as_lists`."""
    axes, window, resized, *rows, flips = lists.values()
    shape = -1, len(axes)
    arrays = [np.array(row, np.int64).reshape(shape) for row in rows]
    arrays.append(np.array(flips, bool).reshape(shape))
    return Placements(tuple(axes), tuple(window), tuple(resized), *arrays)


class WindowArgs(NamedTuple):
    """The arguments that place the windows of a call, by index of the axis of a sample."""

    crops: PerSampleArgs  # the sizes of the parts that are resized
    offsets: PerSampleArgs
    flips: PerSampleArgs


class Fields(NamedTuple):
    """Fields of Placements, each (samples, axes) int64."""

    lengths: Array
    begins: Array
    sizes: Array
    scaled: Array
    firsts: Array


ComputeFields: TypeAlias = Callable[
    ["CollateOptions", SampleAxes, tuple[int, ...], Array, WindowArgs], Fields
]


def compute_fields(
    options: CollateOptions,
    axes: SampleAxes,
    window: tuple[int, ...],
    lengths: Array,
    args: WindowArgs,
) -> Fields:
    """Return the fields of the placements of samples of sizes `lengths` (samples, axes).

    This definition decides; `layoutkit/placement.py` calls a faster kernel.

    Raises ShapeError if a window does not fit.
    """
    if options.resize is None:
        return _compute_crops(options, axes, window, lengths, args.offsets)
    return _compute_resized(options, options.resize, axes, window, lengths, args)


def place(
    options: CollateOptions,
    axes: SampleAxes,
    window: tuple[int, ...],
    shapes: Array,
    args: CropArgs,
    compute_fields: ComputeFields = compute_fields,
) -> Placements:
    """Return the placements of samples of `shapes` (samples, axes), along each of their axes.

    Raises ArgumentError or ShapeError if an argument is malformed, or if a window does not fit.
    """
    lengths = shapes if axes.channels is None else axes.select_channels(shapes)
    if args.placements is not None:
        return _use_placements(options, axes, window, lengths, args)
    values = _parse_window_args(options, axes, args, len(lengths))
    if axes.longest and options.resize is None:
        padded = place_padded(axes, window, lengths, values.flips)
        values = values._replace(offsets=values.offsets | padded)
    fields = compute_fields(options, axes, window, lengths, values)
    resized = () if options.resize is None else axes.scaled_axes
    flags = _make_flags_by_axis(values.flips, lengths.shape)
    return Placements(axes.names, window, resized, *fields, flags)


def _parse_window_args(
    options: CollateOptions, axes: SampleAxes, args: CropArgs, count: int
) -> WindowArgs:
    if options.resize is None:
        return WindowArgs({}, *parse_offset_and_flip(axes, args, count))
    return WindowArgs(
        parse_per_sample("crop", args.crop, axes.resized, count),
        parse_per_sample("offset", args.offset, axes.resized, count),
        parse_per_sample("flip", args.flip, axes.axis_indices, count),
    )


def place_crops(
    options: CollateOptions,
    axes: SampleAxes,
    windows: Array,
    lengths: Array,
    offsets: PerSampleArgs,
    flips: PerSampleArgs,
) -> Placements:
    """Return the placements of windows that are not resized, and have sizes of their own.

    windows     (samples, axes) int64, their sizes
    lengths     (samples, axes) int64, the sizes of the samples
    offsets, flips    of the windows, by index of the axis

    Raises ShapeError if a window reaches outside of its sample, and cannot be filled.
    """
    fields = _compute_crops(options, axes, windows, lengths, offsets)
    return Placements(axes.names, (), (), *fields, _make_flags_by_axis(flips, lengths.shape))


def _compute_crops(
    options: CollateOptions,
    axes: SampleAxes,
    window: tuple[int, ...] | Array,
    lengths: Array,
    offsets: PerSampleArgs,
) -> Fields:
    sizes = np.empty(lengths.shape, np.int64)
    sizes[:] = window
    begins = centered_start(lengths - sizes, options.center)
    for axis, values in offsets.items():
        begins[:, axis] = np.maximum(np.minimum(values, FAR), -FAR)  # faster than numpy.clip
    if options.fill is None:
        check_windows_inside(axes, window, begins, lengths)
    return Fields(lengths, begins, sizes, sizes, 0 * sizes)


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
    windows = np.array(window)  # one size, or one per sample
    outside = (begins < 0) | (begins + windows > lengths)
    outside[:, [*axes.longest_axes]] = False
    for number, axis in zip(*outside.nonzero(), strict=True):
        begin, size = begins[number, axis], lengths[number, axis]
        extent = np.broadcast_to(windows, lengths.shape)[number, axis]
        name = axes.sample.named[axis][0]
        cure = "give another offset, or fill=0 to pad"
        if extent > size:
            end = f' (at the end with offset={{"{name}": 0}})' if begin < 0 else ""
            cure = f'give a smaller size, fill=0 to pad{end}, or resize="bilinear"'
            if name == CHANNEL:  # is not resized
                cure = "give a smaller size, or fill=0 to pad"
        raise ShapeError(
            f"sample {number} has size {size} along {name}, but its window of {extent} goes "
            f"from {begin} to {begin + extent}; {cure}"
            f"{axes.find_channels_first(lengths[number].tolist())}"
        )


def _compute_resized(
    options: CollateOptions,
    resize: ResizeOptions,
    axes: SampleAxes,
    window: tuple[int, ...],
    lengths: Array,
    args: WindowArgs,
) -> Fields:
    names, resized = tuple(axes.resized), tuple(axes.resized.values())
    columns = axes.resized_columns
    begins = np.zeros(lengths.shape, np.int64)
    sizes = begins + np.array(window, np.int64)
    scaled, firsts = sizes.copy(), begins.copy()
    if resized:
        placed = place_samples(
            resize,
            names,
            lengths[:, columns],
            tuple(map(window.__getitem__, resized)),
            {resized.index(axis): values for axis, values in args.crops.items()},
            {resized.index(axis): values for axis, values in args.offsets.items()},
            options.may_fill,
            options.center,
        )
        begins[:, columns], sizes[:, columns] = placed.begins, placed.sizes
        scaled[:, columns], firsts[:, columns] = placed.scaled, placed.firsts
    if axes.longest:
        padded = axes.scale_padded(lengths)
        for axis, first in place_padded(axes, window, padded, args.flips).items():
            sizes[:, axis], scaled[:, axis] = lengths[:, axis], padded[:, axis]
            firsts[:, axis] = first
        cropped = axes.scaled_axes
        fields = lengths[:, cropped], begins[:, cropped], sizes[:, cropped]
        _check_crops(tuple(axes.cropped), *fields, may_fill=True)
    return Fields(lengths, begins, sizes, scaled, firsts)


def place_resized_windows(
    options: CollateOptions,
    resize: ResizeOptions,
    axes: SampleAxes,
    windows: Array,
    lengths: Array,
    args: Mapping[str, PerSampleArgs],
) -> Placements:
    """Return the placements of samples that are resized to windows of sizes of their own.

    windows, lengths    (samples, axes) int64, the sizes of windows and of samples
    args                the arguments `offset`, `flip` and `crop`, by index of the axis
    """
    named = sorted((axes.resized | axes.resizable).items(), key=lambda pair: pair[1])
    names, columns = (list(part) for part in zip(*named, strict=True))
    crops, offsets = (
        {columns.index(axis): values for axis, values in args[name].items()}
        for name in ("crop", "offset")
    )
    placed = place_samples(
        resize,
        tuple(names),
        lengths[:, columns],
        windows[:, columns],
        crops,
        offsets,
        options.may_fill,
        options.center,
    )
    begins, sizes = np.zeros(lengths.shape, np.int64), windows.copy()
    begins[:, columns], sizes[:, columns] = placed.begins, placed.sizes
    flips = _make_flags_by_axis(args["flip"], lengths.shape)
    rows = lengths, begins, sizes, windows, np.zeros_like(begins), flips
    return Placements(axes.names, (), tuple(columns), *rows)


def place_samples(
    resize: ResizeOptions,
    names: tuple[str, ...],
    lengths: Array,
    window: tuple[int, ...] | Array,
    crops: Mapping[int, Array],
    offsets: Mapping[int, Array],
    may_fill: bool,
    center: str,
) -> Placements:
    """Return the placements of samples along their resized axes.

    Parameters
    ----------
    names, window : the name of each of these axes, and the size of the window along it, for all
        samples, or for each one (samples, axes) if they are stretched
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
    if crops and len(offsets) < len(names):
        begins = centered_start(lengths - extents, center)
    for axis, values in offsets.items():
        begins[:, axis] = values
    _check_crops(names, lengths, begins, extents, may_fill or not (crops or offsets))
    target = np.array(window, np.int64)
    firsts = np.zeros(lengths.shape, np.int64)
    scaled = firsts + target
    if resize.short_side is not None:
        scaled = scale_sides(extents, resize.short_side, resize.max_side)
        _check_scaled(resize.short_side, names, scaled, target, may_fill)
        firsts = centered_start(scaled - target, center)
    elif resize.fit == "cover":
        scale = (target / extents).max(1, keepdims=True)
        parts = limit_size(round_half_even(target / scale), extents).astype(np.int64)
        begins = begins + centered_start(extents - parts, center)
        extents = parts
    elif resize.fit == "pad":
        scale = (target / extents).min(1, keepdims=True)
        scaled = limit_size(round_half_even(extents * scale), target).astype(np.int64)
        firsts = centered_start(scaled - target, center)
        _set_pad_before(firsts, resize.pad_before, names, scaled, target)
    common = window if isinstance(window, tuple) else ()
    resized = tuple(range(len(names)))
    flips = np.zeros(lengths.shape, bool)
    return Placements(names, common, resized, lengths, begins, extents, scaled, firsts, flips)


def _check_scaled(
    side: int, names: tuple[str, ...], scaled: Array, target: Array, may_fill: bool
) -> None:
    """Raise ShapeError if crops whose shorter side is scaled to `side` are too large or small."""
    for number, axis in zip(*(scaled > MAX_SIDE).nonzero(), strict=True):
        raise ShapeError(
            f"sample {number} has size {scaled[number, axis]} along {names[axis]} after "
            f"short_side={side}; the maximum is {MAX_SIDE}; give a smaller short_side"
        )
    if may_fill:
        return
    for number, axis in zip(*(scaled < target).nonzero(), strict=True):
        raise ShapeError(
            f"sample {number} has size {scaled[number, axis]} along {names[axis]} after "
            f"short_side={side}, but the window has {target[axis]}; give a short_side of at least "
            f"{target[axis]}, or fill=0 to pad"
        )


def _set_pad_before(
    firsts: Array,
    pad_before: Iterable[tuple[str, int]],
    names: tuple[str, ...],
    scaled: Array,
    window: Array,
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


# ---- placements of another call ----------------------------------------------------------


def _use_placements(
    options: CollateOptions,
    axes: SampleAxes,
    window: tuple[int, ...],
    lengths: Array,
    args: CropArgs,
) -> Placements:
    """Return the placements of a call, with a column for each axis of samples.

    Without resizing, windows are crops: they begin at `begins`.
    """
    placements = _check_placements(args, len(lengths))
    text = options.convert.pattern.text
    columns = _match_columns(text, axes, placements)
    if not placements.window:
        raise ArgumentError(
            f'placements are of a packed batch, whose windows differ in size, but "{text}" has '
            'windows of one size; pack these samples, too, as in "hwc->(bhw)c"'
        )
    _check_window(axes, window, placements, columns)
    expected = np.empty(lengths.shape, np.int64)
    expected[:] = window  # along axes that are not placed
    _check_lengths(axes, expected, lengths, placements, columns)
    begins = np.zeros(lengths.shape, np.int64)
    sizes = begins + np.array(window, np.int64)
    scaled, firsts, flips = sizes.copy(), begins.copy(), np.zeros(lengths.shape, bool)
    begins[:, columns], sizes[:, columns] = placements.begins, placements.sizes
    scaled[:, columns], firsts[:, columns] = placements.scaled, placements.firsts
    flips[:, columns] = placements.flips
    resized = () if options.resize is None else tuple(axes.cropped.values())
    placed = Placements(axes.names, window, resized, lengths, begins, sizes, scaled, firsts, flips)
    if options.resize is None:
        return _as_crops(text, axes, placed, options.fill is not None)
    _check_resized(text, axes, placed, options.may_fill)
    return placed


def _check_placements(args: CropArgs, count: int) -> Placements:
    """Return the placements of a call of `count` samples; raise if they are not, or not alone."""
    placements = _check_type(args.placements)
    for name, value in zip(CropArgs._fields[:4], args[:4], strict=True):
        if value is not None:
            raise ArgumentError(
                f"{name}={show(value)} and placements= both place the samples; remove one of them"
            )
    if len(placements) != count:
        raise ShapeError(
            f"placements has {len(placements)} samples, but there are {count}; select them, as in "
            f"placements[:{count}]"
        )
    return placements


def _match_columns(text: str, axes: SampleAxes, placements: Placements) -> list[int]:
    """Return the axis of samples for each axis of placements."""
    lacking = [name for name in placements.axes if name not in axes.axis_indices]
    if lacking:
        raise ArgumentError(
            f'samples are placed along {", ".join(placements.axes)}, but samples of "{text}" have '
            f"no axis {lacking[0]} of their own; name it on the left"
        )
    return [axes.axis_indices[name] for name in placements.axes]


def match_placements(
    options: CollateOptions, axes: SampleAxes, lengths: Array, args: CropArgs
) -> Placements:
    """Return the placements of a call of a packed batch, with a column for each axis of samples.

    Each window is a whole scaled crop. Along an axis that is not placed, it is the whole sample.

    Raises ArgumentError or ShapeError if the placements are of other samples, or cannot be packed.
    """
    placements = _check_placements(args, len(lengths))
    text = options.convert.pattern.text
    columns = _match_columns(text, axes, placements)
    _check_lengths(axes, lengths, lengths, placements, columns)
    is_padded = placements.firsts != 0
    if placements.window:
        is_padded |= placements.scaled != np.array(placements.window)
    for number, axis in zip(*is_padded.nonzero(), strict=True):
        raise ArgumentError(
            f"sample {number} is padded or cropped along {placements.axes[axis]} after it is "
            f'scaled, but "{text}" packs whole scaled samples; give placements of another '
            'Collator, without short_side= and fit="pad"'
        )
    begins, sizes, flips = 0 * lengths, lengths.copy(), np.zeros(lengths.shape, bool)
    begins[:, columns], sizes[:, columns], flips[:, columns] = (
        placements.begins,
        placements.sizes,
        placements.flips,
    )
    scaled = sizes.copy()
    scaled[:, columns] = placements.scaled
    if options.resize is None:
        _check_unscaled(text, axes.names, sizes, scaled)
    expected = scaled.copy()
    for name, axis in axes.resized.items():
        expected[:, axis] = axes.sizes[name]
    fixed = [
        n for n in range(axes.sample.ndim) if n not in (axes.cropped | axes.resizable).values()
    ]
    expected[:, fixed] = lengths[:, fixed]
    for number, axis in zip(*(scaled != expected).nonzero(), strict=True):
        raise ShapeError(
            f"sample {number} has a window of {expected[number, axis]} along {axes.names[axis]}, "
            f"but is placed in one of {scaled[number, axis]}; give both one size"
        )
    return Placements(axes.names, (), (), lengths, begins, sizes, scaled, 0 * begins, flips)


def _check_window(
    axes: SampleAxes, window: tuple[int, ...], placements: Placements, columns: list[int]
) -> None:
    """Raise ShapeError unless windows have the sizes of the placements."""
    for name, placed, axis in zip(placements.axes, placements.window, columns, strict=True):
        if window[axis] != placed:
            raise ShapeError(
                f"windows have size {window[axis]} along {name}, but sample 0 is placed in a "
                f"window of {placed}; give {name}={placed}"
            )


def _check_lengths(
    axes: SampleAxes, others: Array, lengths: Array, placements: Placements, columns: list[int]
) -> None:
    """Raise ShapeError unless samples have the sizes of the placements.

    others    (samples, axes), the sizes that samples need along axes that are not placed
    """
    expected = others.copy()
    expected[:, columns] = placements.lengths
    for number, axis in zip(*(lengths != expected).nonzero(), strict=True):
        name, size = axes.names[axis], lengths[number, axis]
        if axis in columns:
            raise ShapeError(
                f"sample {number} has size {size} along {name}, but placements[{number}] is of a "
                f"sample of size {expected[number, axis]}; give the samples in the order of the "
                "placements, or the placements of these samples"
            )
        raise ShapeError(
            f"sample {number} has size {size} along {name}, and its window "
            f"{expected[number, axis]}, but "
            f"placements are along {', '.join(placements.axes)} only; give a {name} of one size"
        )


def _as_crops(text: str, axes: SampleAxes, placed: Placements, may_fill: bool) -> Placements:
    """Return the placements of windows that are not resized, so that `firsts` are 0."""
    _check_unscaled(text, axes.names, placed.sizes, placed.scaled)
    window = np.array(placed.window)
    is_cut = (placed.begins > 0) | (placed.begins + placed.sizes < placed.lengths)
    is_padded = (placed.firsts < 0) | (placed.firsts + window > placed.scaled)
    for number, axis in zip(*(is_cut & is_padded).nonzero(), strict=True):
        raise ArgumentError(
            f"sample {number} is cropped to size {placed.sizes[number, axis]} along "
            f"{axes.names[axis]} and padded to {placed.window[axis]}, which needs resize=; give a "
            'filter, such as resize="nearest"'
        )
    begins = placed.begins + placed.firsts
    if not may_fill:
        check_windows_inside(axes, placed.window, begins, placed.lengths)
    sizes = 0 * begins + window
    return replace(placed, begins=begins, sizes=sizes, scaled=sizes, firsts=0 * begins)


def _check_unscaled(text: str, names: Sequence[str], sizes: Array, scaled: Array) -> None:
    """Raise ArgumentError if a crop is scaled, for samples that are not resized."""
    for number, axis in zip(*(scaled != sizes).nonzero(), strict=True):
        raise ArgumentError(
            f"sample {number} is scaled from size {sizes[number, axis]} to "
            f'{scaled[number, axis]} along {names[axis]}, but "{text}" is not resized; '
            'give resize=, such as "nearest"'
        )


def _check_resized(text: str, axes: SampleAxes, placed: Placements, may_fill: bool) -> None:
    """Raise if samples are cropped along axes that are not resized, or need a fill value."""
    window = np.array(placed.window)
    is_moved = (placed.begins != 0) | (placed.sizes != window)
    is_moved[:, placed.resized] = False
    for number, axis in zip(*is_moved.nonzero(), strict=True):
        name, size = axes.names[axis], placed.window[axis]
        raise ArgumentError(
            f"sample {number} is cropped to size {placed.sizes[number, axis]} along {name}, but "
            f'"{text}" has no size of windows there; give {name}={size}'
        )
    if may_fill:
        return
    outside = placed.outside | (placed.firsts < 0) | (placed.firsts + window > placed.scaled)
    outside[:, [*axes.longest_axes]] = False
    for number, axis in zip(*outside.nonzero(), strict=True):
        raise ShapeError(
            f"sample {number} of size {placed.lengths[number, axis]} along {axes.names[axis]} is "
            f"padded to a window of {placed.window[axis]}; give a value for the padding: fill=0"
        )

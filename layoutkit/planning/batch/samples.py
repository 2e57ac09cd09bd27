"""The axes of the samples of a batch: the cropped ones, and the pattern that stacks windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import lcm, prod
from typing import Any

import numpy as np

from ..._utils.validation import show
from ...errors import ShapeError
from ...layout.parsing import DOTS, Layout
from ...layout.pattern import MAX_ELEMENTS, Pattern, check_rank
from ...memory import Array
from ...normalize import CHANNEL
from ..fitting import scale_sides

LONGEST = "longest"  # in place of a window size: the size of the longest sample of a batch
MAX_IMAGE_CHANNELS = 4  # samples with more channels are not images, but spectra


def find_packed(pattern: Pattern, letter: str, sizes: Mapping[str, int]) -> str:
    """Return the letters of the axes that may differ between samples; "" if none may.

    They follow the axis of samples, `letter`, in the first fold of the batch, and have no size.
    Channels alone are not packed, because images have equally many: "hwc->(bc)hw" returns an array.
    """
    source, fold = pattern.source, pattern.target.groups[0]
    if fold[0] != letter or DOTS in source.letters:
        return ""
    rest = [x for x in fold[1:] if x in source.letters]
    free = [x for x in rest if source.name(x) not in (*sizes, "1")]
    return "" if [*map(source.name, free)] == [CHANNEL] else "".join(free)


@dataclass(frozen=True)
class SampleAxes:
    """The axes of samples of one rank, and their conversion to the batch."""

    pattern: Pattern  # of the stacked windows, with `...` expanded
    sample: Layout  # of one sample
    sizes: Mapping[str, int] = field(hash=False)  # of windows, by the name of the axis
    channels: tuple[int, ...] | None  # of samples, in result order; None: all
    longest: tuple[str, ...] = ()  # names of axes padded to the longest sample of a batch
    packed: str = ""  # letters of axes that may differ between samples, in the order of the fold
    # The shorter side, and the largest longer one, to which padded axes are scaled; None: they
    # are not.
    sides: tuple[int, int | None] | None = None

    @cached_property
    def cropped_names(self) -> tuple[str | None, ...]:
        """The name of each axis of a sample that has a window size, else None."""
        sized = {*self.sizes, *self.longest}
        return tuple(
            names[0] if len(names) == 1 and names[0] in sized else None
            for names in self.sample.named
        )

    def find_channels_first(self, shape: Sequence[int]) -> str:
        """Return a cure for a sample in `hwc` with the shape of a `chw` image, "" for others.

        shape    of the sample
        """
        *others, last = self.sample.to_text(" ").split(" ")
        if len(shape) < 3 or last != CHANNEL or len(others) != len(shape) - 1:
            return ""
        if not shape[0] <= MAX_IMAGE_CHANNELS < shape[-1]:
            return ""
        left = ("" if max(map(len, others)) == 1 else " ").join([last, *others])
        return f"; or are its channels first? Then the pattern begins with {left}->"

    def _suggest_packing(self, axis: int) -> str:
        """Return how to pack samples that differ along an axis to which the options give a size.

        "" for axes that are not folded with the axis of samples.
        """
        groups, fold = self.sample.groups, self.pattern.target.groups[0]
        # One size of each group can be inferred: of its first axis, as h in (hp).
        inferred = [next((x for x in group if x in fold), "") for group in groups]
        names = [self.pattern.target.name(letter) for letter in fold if letter in inferred]
        omitted = [name for name in names if name in self.sizes]
        others = {name: size for name, size in self.sizes.items() if name not in omitted}
        is_batch = fold[0] not in self.sample.letters
        packed = find_packed(self.pattern, fold[0], others) if is_batch else ""
        if not omitted or not {*packed} & {*groups[axis]}:
            return ""
        omissions = " and ".join(f"{name}=" for name in omitted)
        return f"; omit {omissions} to pack samples of different sizes"

    @cached_property
    def cropped(self) -> dict[str, int]:
        """The index in a sample of each axis that has a window size, by name."""
        return {name: axis for axis, name in enumerate(self.cropped_names) if name is not None}

    @cached_property
    def resized(self) -> dict[str, int]:
        """The index in a sample of each axis that has a size of its own, by name."""
        return {name: axis for name, axis in self.cropped.items() if name in self.sizes}

    @cached_property
    def resized_columns(self) -> Any:
        """The axes of `resized` as an index of the columns of arrays (samples, axes)."""
        return as_slice([*self.resized.values()])

    @cached_property
    def scaled_axes(self) -> tuple[int, ...]:
        """The index in a sample of each axis along which resized samples are scaled, or padded."""
        return tuple((self.cropped if self.longest else self.resized).values())

    @cached_property
    def longest_axes(self) -> tuple[int, ...]:
        """The index in a sample of each axis that is padded to the longest sample."""
        return tuple(axis for name, axis in self.cropped.items() if name in self.longest)

    @cached_property
    def _fixed_columns(self) -> Any:
        """The axes that have no window size, and may not differ, as an index of columns."""
        names = enumerate(self.cropped_names)
        return as_slice([n for n, name in names if name is None and n not in self.packed_axes])

    @cached_property
    def packed_axes(self) -> tuple[int, ...]:
        """The indices in a sample of the axes that may differ, in the order of the sample."""
        groups = enumerate(self.sample.groups)
        return tuple(axis for axis, group in groups if {*group} & {*self.packed})

    @cached_property
    def packed_names(self) -> tuple[str, ...]:
        """The names of the axes that may differ, in the order of the sample."""
        letters = "".join(self.sample.groups)
        return tuple(self.sample.name(x) for x in letters if x in self.packed)

    @cached_property
    def patch_side(self) -> int:
        """The least number of pixels that all axes of patches divide, or 28 without patches."""
        folds = [names for names in self.sample.named if len(names) > 1]
        return lcm(*[prod(self.sizes.get(name, 1) for name in names) for names in folds] or [28])

    @cached_property
    def resizable(self) -> dict[str, int]:
        """The indices of the axes that may differ and can be resized, by name."""
        named = zip(self.packed_names, self.packed_axes, strict=True)
        return {name: axis for name, axis in named if name != CHANNEL}

    def window(self, shapes: Array, *, is_padded: bool = False) -> tuple[int, ...]:
        """Return the shape of the windows of samples of `shapes` (samples, axes).

        is_padded    whether `shapes` are results of `pad_shape`

        Raises ShapeError if samples differ along an axis without a window size, or if a window is
        too large for any memory.
        """
        shapes = self.select_channels(shapes)
        first = shapes[0].tolist()
        if len(shapes) > 1:
            fixed = shapes[:, self._fixed_columns]
            differs = fixed != fixed[0]
            if np.count_nonzero(differs):  # faster than differs.any()
                number, column = map(int, np.argwhere(differs)[0])
                axis = np.arange(self.sample.ndim)[self._fixed_columns][column]
                name = "".join(self.sample.named[axis])
                fix = self.find_channels_first(first) if name == CHANNEL else ""
                fix = fix or self._suggest_packing(int(axis))
                fix = fix or _suggest_size(name, shapes[:, axis], int(axis), bool(self.packed))
                raise ShapeError(
                    f"sample {number} has size {shapes[number, axis]} along {name}, but sample 0 "
                    f"has {first[axis]}; give samples of one size{fix}"
                )
        pads = self.longest and not is_padded
        padded = self.pad_shape(first, shapes.tolist()) if pads else first
        named = zip(self.cropped_names, padded, strict=True)
        window = tuple(
            [size if name is None else self.sizes.get(name, size) for name, size in named]
        )
        if prod(window) >= MAX_ELEMENTS:
            raise ShapeError(
                f'"{self.pattern.text}" has windows of shape {window}, which no memory '
                "holds; give smaller sizes"
            )
        return window

    def pad_shape(self, shape: Sequence[int], shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Return `shape` with the largest size of `shapes` along each axis that is padded.

        If these axes are scaled, the largest scaled size.
        """
        padded = [*shape]
        if self.sides is not None:
            shapes = self.scale_padded(np.array(shapes, np.int64)).tolist()
        for axis in self.longest_axes:
            padded[axis] = max([sizes[axis] for sizes in shapes])
        return tuple(padded)

    def scale_padded(self, shapes: Array) -> Array:
        """Return the shapes of samples (samples, axes) after their padded axes are scaled."""
        if self.sides is None or not len(shapes):
            return shapes
        scaled = shapes.copy()
        columns = [*self.longest_axes]
        scaled[:, columns] = scale_sides(shapes[:, columns], *self.sides)
        return scaled

    def check(self, shapes: Array, window: tuple[int, ...]) -> None:
        """Raise ShapeError unless samples have the sizes of `window` along uncropped axes."""
        fixed = self._fixed_columns
        if self.channels is not None or (shapes[:, fixed] != np.array(window)[fixed]).any():
            self.window(shapes)

    def select_channels(self, shapes: Array) -> Array:
        """Return the shapes after the channel selection; raise ShapeError if a sample lacks any."""
        if self.channels is None:
            return shapes
        channel = self.axis_indices[CHANNEL]
        lacking = np.flatnonzero(shapes[:, channel] <= max(self.channels))
        if lacking.size:
            number = int(lacking[0])
            raise ShapeError(
                f"channels={show(self.channels)} selects channel {max(self.channels)}, but sample "
                f"{number} has {shapes[number, channel]} channels, counted from 0; select only "
                f"channels of every sample{_suggest_rgb(shapes[:, channel], channel)}"
            )
        sizes = shapes.copy()
        sizes[:, channel] = len(self.channels)
        return sizes

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each axis of a sample; "" for an axis without a name of its own."""
        names = {axis: name for name, axis in self.axis_indices.items()}
        return tuple([names.get(axis, "") for axis in range(self.sample.ndim)])

    @cached_property
    def axis_indices(self) -> dict[str, int]:
        """The index in a sample of each axis that windows can be placed along, by name."""
        named = enumerate(self.sample.named)
        indices = {n[0]: axis for axis, n in named if len(n) == 1 and n[0] not in ("...", "1")}
        return indices | dict(zip(self.packed_names, self.packed_axes, strict=True))

    @cached_property
    def offset_axes(self) -> dict[str, int]:
        """The index in a sample of each axis along which a window may have an offset, by name.

        Windows include all selected channels, and begin where samples do if they are padded.
        """
        fixed = {*self.longest, *([] if self.channels is None else [CHANNEL])}
        return {name: axis for name, axis in self.axis_indices.items() if name not in fixed}


def as_slice(columns: list[int]) -> Any:
    """Return adjacent columns as a slice, with which NumPy makes a view; others unchanged."""
    first = columns[0] if columns else 0
    adjacent = range(first, first + len(columns))
    return slice(first, adjacent.stop) if columns == [*adjacent] else columns


def _suggest_rgb(sizes: Array, axis: int) -> str:
    """Return a clause for gray images, of 1 or 2 channels along an axis, among others."""
    is_mixed = sizes.min() < 3 <= sizes.max() <= MAX_IMAGE_CHANNELS
    cure = f"; make gray samples RGB before the call: numpy.take(x, [0, 0, 0], axis={axis})"
    return cure if is_mixed else ""


def _suggest_size(name: str, sizes: Array, axis: int, is_packed: bool) -> str:
    """Return a clause with a way to samples of one size along an axis, if it has a name."""
    smallest = int(sizes.min())
    if name == CHANNEL and smallest <= MAX_IMAGE_CHANNELS:
        channels = f"; or give channels={tuple(range(smallest))}, which all samples have"
        return _suggest_rgb(sizes, axis) or channels
    example = f"={smallest}" if name == CHANNEL else "=224"
    longest = "" if is_packed else f' or {name}="{LONGEST}"'
    return f"; or give its window, as in {name}{example}{longest}" if len(name) == 1 else ""


@lru_cache(maxsize=1024)
def make_sample_axes(
    pattern: Pattern,
    text: str,  # of the pattern, as equal patterns may have different texts
    letter: str,
    ndim: int,
    sizes: tuple[tuple[str, int], ...],
    channels: tuple[int, ...] | None,
    longest: tuple[str, ...],
    packed: str,
    sides: tuple[int, int | None] | None,
) -> SampleAxes:
    """Return the axes of samples of rank `ndim`; `letter` is the axis of samples in the pattern.

    Raises ShapeError if samples do not have this rank.
    """
    sample = Layout(tuple(g for g in pattern.left.groups if g != letter), pattern.left.names)
    check_rank(sample, ndim)
    expanded = pattern.expand_ellipsis(ndim + 1)
    groups = tuple(group for group in expanded.source.groups if group != letter)
    layout = Layout(groups, expanded.source.names)
    return SampleAxes(expanded, layout, dict(sizes), channels, longest, packed, sides)

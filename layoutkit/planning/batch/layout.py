"""The memory of a batch of windows, and the roles of the axes of a sample.

A `BatchLayout` describes a batch of windows of one size and dtype: the conversion of one window,
the memory of the batch, and the conversion of the whole batch that follows, if any.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..._utils import fork
from ...errors import DtypeError, ShapeError
from ...layout.parsing import Layout
from ...layout.pattern import MAX_ELEMENTS, Pattern, Permutation, as_shape
from ...memory import Array, contiguous_strides, pack_words
from ...normalize import CHANNEL
from ...spec import CPU, DType
from ..loops import byte_strides
from ..padding import Padding
from ..plan import Part, Plan, SupportsFloat16, make_single_plan
from .samples import MAX_IMAGE_CHANNELS, SampleAxes

if TYPE_CHECKING:
    from ...options import CollateOptions, ConvertOptions
    from ..resize import ResizeOptions
    from .placement import Placements


def check_same_rank_and_dtype(samples: Sequence[tuple[tuple[int, ...], DType]]) -> None:
    """Raise unless all samples, of these shapes and dtypes, have one rank and dtype."""
    shape, dtype = samples[0]
    for number, (other_shape, other_dtype) in enumerate(samples):
        if other_dtype != dtype:
            raise DtypeError(
                f"sample {number} has dtype {other_dtype}, but sample 0 has {dtype}; give "
                "samples of one dtype"
            )
        if len(other_shape) != len(shape):
            raise _make_rank_error(number, other_shape, shape)


def _make_rank_error(number: int, shape: tuple[int, ...], first: tuple[int, ...]) -> ShapeError:
    """Return the error for samples of two ranks, with a cure for gray images among others."""
    cure = ""
    gray, image = sorted((shape, first), key=len)
    if len(gray) == 2 and len(image) == 3 and min(image[0], image[2]) <= MAX_IMAGE_CHANNELS:
        axis = 2 if image[2] <= MAX_IMAGE_CHANNELS else 0
        count = 3 if image[axis] >= 3 else 1
        cure = f", as numpy.stack([x] * {count}, axis={axis}) of a gray image"
    return ShapeError(
        f"sample {number} has {len(shape)} axes, but sample 0 has {len(first)}; give samples of "
        f"one rank{cure}"
    )


def stack_shapes(shapes: Sequence[tuple[int, ...]], ndim: int) -> Array:
    """Return the shapes of samples of rank `ndim`, int64 (samples, axes).

    Raises ShapeError for samples of another rank, and for sizes that no memory can hold.
    """
    if {*map(len, shapes)} <= {ndim}:
        try:  # faster than numpy.array, and unlike numpy.fromiter it refuses floats
            sizes = pack_words(shapes)
        except struct.error:  # as_shape names the size
            sizes = np.array([-1])
        # As unsigned numbers, negative sizes are larger than MAX_ELEMENTS.
        if np.maximum.reduce(sizes.view(np.uint64), initial=0) < MAX_ELEMENTS:
            return sizes.reshape(len(shapes), ndim)
    plain = [as_shape(shape) for shape in shapes]
    for number, shape in enumerate(plain):
        if len(shape) != ndim:
            raise _make_rank_error(number, shape, plain[0])
        if max(shape, default=0) >= MAX_ELEMENTS:
            raise ShapeError(
                f"sample {number} has shape {shape}, too large for any memory; give image.shape"
            )
    return np.array(plain, np.int64).reshape(len(plain), ndim)


PLACED = 4  # samples whose placements a printed plan has


class BatchLayout(NamedTuple):
    """The memory of a batch of windows of one size, and the conversion of a window into it.

    options     the conversion of one window, to memory in which every letter is an axis
    plan        the plan of the conversion of all stacked windows, or of windows of other sizes
    window      the sizes of a window
    shape, dtype, strides    of the memory, which is the batch unless there is a `post_conversion`
    step        the stride of the sample axis in that memory
    sample_region      the shape and strides of one window in that memory
    post_conversion    the conversion of the memory to the batch, None if it is the batch
    """

    options: ConvertOptions
    plan: Plan
    window: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]
    step: int
    sample_region: Part
    post_conversion: ConvertOptions | None


class Collation(NamedTuple):
    """The plan of a batch, for `print`; `plans` has the plan of each kind of windows."""

    layout: BatchLayout
    samples: int
    plans: tuple[Plan, ...]
    resize: ResizeOptions | None = None
    placements: Placements | None = None  # of the caller

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        with fork.init_lock:
            from ...drawing import notebook_html

        plan = self.layout.plan
        return notebook_html(str(self), plan.pattern, plan.move)

    def __str__(self) -> str:
        plan = self.layout.plan
        post_conversion = self.layout.post_conversion
        lines = [f"{plan.pattern}: {plan.source} -> {plan.target}"]
        kinds = Counter(window_plan.kernel for window_plan in self.plans)
        shown = ", ".join(f"{kernel} ({count})" for kernel, count in kinds.items())
        kinds_text = f"{len(self.plans)} kind{'s' if len(self.plans) != 1 else ''}"
        lines.append(f"  samples   {self.samples}, in {kinds_text} of windows: {shown}")
        if self.resize is not None:
            shown = ", ".join(f"{k}={v!r}" for k, v in self.resize.keywords().items())
            is_moved = self.resize.filter == "nearest"
            method = "items are moved" if is_moved else "rows, then columns of blocks, as floats"
            lines.append(f"  resize    {shown}: {method}")
        if self.placements is not None:
            placed = str(self.placements[:PLACED]).splitlines()
            more = self.samples - len(placed)
            placed += [f"... and {more} more"] if more else []
            lines += [f"  {'placed' * (i == 0):10}{line}" for i, line in enumerate(placed)]
        if post_conversion is not None:
            lines.append("  before    windows are gathered as they are, and converted as one batch")
        lines += str(plan).splitlines()[1:]
        return "\n".join(lines)


def make_batch_layout(
    options: CollateOptions,
    axes: SampleAxes,
    count: int,
    window: tuple[int, ...],
    source: DType,
    out: Any,
    has_half: SupportsFloat16,
    plan: Plan | None = None,
) -> BatchLayout:
    """Return the memory layout of a batch.

    plan    of windows of other sizes, which have equal dtypes and steps; None: it is made, and
            what converting the stacked windows would raise is raised
    """
    convert = options.convert
    pattern = axes.pattern
    if options.fills:
        fill_array_of(options, axes, window, source)  # raises its errors
    sizes = list(window)
    sizes.insert(pattern.source.groups.index(options.letter), count)
    shape = tuple(sizes)
    move = pattern.resolve(shape, convert.sizes)
    if plan is None:
        batch_options = replace(convert, pattern=pattern)
        plan = make_single_plan(
            batch_options, shape, contiguous_strides(shape, source), source, CPU, out, has_half
        )
    target, dtype = move.target_shape, plan.target.dtype
    strides = contiguous_strides(target, dtype) if out is None else tuple(out.strides)
    steps = byte_strides(move.target.groups, move.target_axes, move.target_sizes, strides)
    strides_by_letter = dict(zip(move.target_axes, steps, strict=True))
    if _needs_post_conversion(options, move, plan, strides_by_letter):
        return _make_unconverted_layout(options, axes, move, plan, window, source)
    sample = _make_sample_pattern(axes, move, options.letter, move.target_axes)
    one = replace(convert, pattern=sample, sizes=_find_folded_sizes(axes, move), device=None)
    part = _find_window_part(move, options.letter, move.target_axes, strides_by_letter, dtype)
    return BatchLayout(
        one, plan, window, target, dtype, strides, strides_by_letter[options.letter], part, None
    )


def _needs_post_conversion(
    options: CollateOptions, move: Permutation, plan: Plan, steps: dict[str, int]
) -> bool:
    """Return True if converting windows one by one is impossible or slow."""
    formula = options.convert.formula
    letter = options.letter
    if (
        plan.before is not None
        or plan.after is not None
        or options.convert.device not in (None, CPU)
    ):
        return True
    if formula is not None and formula.per_channel and formula.letter(move) == letter:
        return True
    sizes = dict(zip(move.target_axes, move.target_sizes, strict=True))
    nearest = min((abs(step) for axis, step in steps.items() if sizes[axis] > 1), default=0)
    return sizes[letter] > 1 and abs(steps[letter]) == nearest


def _make_unconverted_layout(
    options: CollateOptions,
    axes: SampleAxes,
    move: Permutation,
    plan: Plan,
    window: tuple[int, ...],
    source: DType,
) -> BatchLayout:
    """Return the layout of unconverted windows, whose stack is converted afterwards."""
    size = dict(zip(move.axes, move.sizes, strict=True))
    letters = options.letter + axes.sample.letters
    shape = tuple(size[letter] for letter in letters)
    strides = contiguous_strides(shape, source)
    strides_by_letter = dict(zip(letters, strides, strict=True))
    sample = _make_sample_pattern(axes, move, options.letter, letters)
    plain = replace(
        options.convert,
        pattern=sample,
        dtype=None,
        formula=None,
        casting="same_kind",
        device=None,
        sizes=_find_folded_sizes(axes, move),
    )
    names = move.source.names + move.target.names
    stacked = Pattern(Layout(tuple(letters), names), axes.pattern.target, axes.pattern.text)
    post_conversion = replace(options.convert, pattern=stacked, sizes={})
    part = _find_window_part(move, options.letter, letters, strides_by_letter, source)
    return BatchLayout(
        plain, plan, window, shape, source, strides, strides[0], part, post_conversion
    )


def _find_window_part(
    move: Permutation, letter: str, letters: str, steps: dict[str, int], dtype: DType
) -> Part:
    """Return the shape and strides of one window in memory with these axes."""
    sizes = dict(zip(move.axes + move.target_axes, move.sizes + move.target_sizes, strict=True))
    sample_letters = [axis for axis in letters if axis != letter]
    return Part(
        tuple(sizes[x] for x in sample_letters), tuple(steps[x] for x in sample_letters), dtype
    )


def _make_sample_pattern(axes: SampleAxes, move: Permutation, letter: str, letters: Any) -> Pattern:
    """Return the conversion of one window to memory in which every letter is an axis."""
    names = move.source.names + move.target.names
    unfolded = Layout(tuple(axis for axis in letters if axis != letter), names)
    return Pattern(Layout(axes.sample.groups, names), unfolded, axes.pattern.text)


def _find_folded_sizes(axes: SampleAxes, move: Permutation) -> dict[str, int]:
    folded = "".join(group for group in axes.sample.groups if len(group) > 1)
    sizes = zip(move.axes, move.sizes, strict=True)
    return {move.source.name(axis): size for axis, size in sizes if axis in folded}


def fill_array_of(
    options: CollateOptions, axes: SampleAxes, window: tuple[int, ...], source: DType
) -> Array:
    """Return the fill values in the dtype of samples: one, or one per channel of a window."""
    values = options.fill or (options.default_fill,)
    padding = Padding((), (), values)
    if options.channels is not None:
        if len(values) > 1 and max(options.channels) >= len(values):
            raise ShapeError(
                f"fill has {len(values)} values, but channels has {max(options.channels)}, counted "
                "from 0; give one for each channel of a sample"
            )
        pixel = padding.pixel(source, len(values))
        return pixel[list(options.channels)] if len(values) > 1 else pixel
    sizes = zip(axes.sample.named, window, strict=True)
    channel_sizes = [size for names, size in sizes if names == (CHANNEL,)]
    folded = CHANNEL in map(axes.sample.name, axes.sample.letters) and not channel_sizes
    return padding.pixel(
        source, channel_sizes[0] if channel_sizes else len(values) if folded else None
    )


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
    """Return the roles of the axes of a sample; `order` lists them as in memory, outermost first.

    `sizes` are the window's, by axis; the axes `single` cannot be rows. If only one axis is resized
    and at least `lanes` elements are within it, it becomes the rows.
    """
    last = max(map(order.index, resized))
    before, column, inner = order[:last], order[last], order[last + 1 :]
    if len(resized) == 1 and prod(sizes[x] for x in inner) >= lanes:
        return AxisRoles(before, column, "", inner)
    rows = [x for x in before if x in resized] or [x for x in before if x not in single]
    row = rows[-1] if rows else ""
    return AxisRoles("".join(x for x in before if x != row), row, column, inner)

"""Prepare the moves of windows by position: the parameters of moves.py (collate_params.py).

A window is moved in boxes. A box is moved to the output if it has the order and the dtype of the
output, else to a scratch area, from which a conversion kernel writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import gcd, prod

import numpy as np

from ...memory import Array, contiguous_strides, data_pointer
from ...planning.batch.layout import BatchLayout
from ...planning.batch.weights import IgnoredBits
from ...planning.plan import Part, Plan, SupportsFloat16, make_single_plan
from ...spec import CPU, DType
from . import collate_params as t
from .compiler import load
from .launch import prepare
from .params import LINE

# Bytes of a box in the order of the sample, which stays in the cache until it is converted.
BOX_BYTES = 32 << 10
SHORT = 16  # positions of an axis that is cut last
RUN = 2048  # items of the table of offsets, which is in the cache, too


@dataclass(frozen=True)
class _Launches:
    """The kernels that convert a box."""

    words: Sequence[int] = ()  # t.LAUNCH words for each of them
    params: Array = field(default_factory=lambda: np.empty(0, np.uint8))  # the block of all

    @property
    def count(self) -> int:
        return len(self.words) // t.LAUNCH


@dataclass(frozen=True)
class BoxLaunch:
    """The prepared moves of windows of one size and dtype."""

    plan: Plan  # of the conversion of a box
    params: Array  # (words,) int64
    area_bytes: int  # of the scratch area of a thread
    keep: tuple[Array, ...] = field(repr=False)  # arrays that `params` points to


def prepare_boxes(
    layout: BatchLayout,
    source: DType,
    channel: int,
    fill: Array,
    ignored: IgnoredBits | None,
    alignment: int,
    stream: bool,
    has_half: SupportsFloat16,
) -> BoxLaunch:
    """Return the launch of windows that are moved by position.

    Parameters
    ----------
    channel : the index of the channel axis of a sample, or -1
    fill : two windows of fill values, the second one for reversed channels; or none
    ignored : the items that fill values replace; None: no item is replaced
    alignment : a power of two, at most a cache line, that divides the addresses of windows
    stream : bypass the caches
    has_half : returns whether the CPU supports float16
    """
    groups = layout.options.pattern.source.groups
    steps = _output_strides(layout)
    output = [steps.get(group, 0) for group in groups]  # folded axes and axes `1` are not cut
    sizes = _choose_box(layout, source, output)
    target = contiguous_strides(sizes, source)
    plan = _plan_box(layout, source, sizes, target, has_half)
    launches = flipped = _Launches()
    flip = -1
    is_converted = ignored is not None or stream or plan.epilogue is not None
    if is_converted or not _has_order_of_output(layout, output):
        for lengths in (sizes, layout.window):  # of boxes, and of the last, overlapping ones
            alignment = gcd(alignment, *[n * step for n, step in zip(lengths, output, strict=True)])
        launches = _prepare_conversion(plan, alignment, stream)
        flip = max([i for i, x in enumerate(groups) if len(x) == 1 and i != channel], default=-1)
        if flip >= 0:
            strides, start = _reverse_axis(sizes, target, flip)
            flipped_plan = _plan_box(layout, source, sizes, strides, has_half)
            flipped = _prepare_conversion(flipped_plan, alignment, stream, start)
    else:
        target = tuple(output)
    counts = [-(-n // size) for n, size in zip(layout.window, sizes, strict=True)]
    run = max(RUN, *sizes)
    words = [len(sizes), source.itemsize, channel, data_pointer(fill), fill.nbytes // 2]
    words += [prod(counts), run, launches.count, flip, flipped.count]
    words += [0, 0, 0, 0] if ignored is None else [1, *map(_as_signed, ignored)]
    fill_strides = contiguous_strides(layout.window, source)
    for axis in zip(layout.window, sizes, counts, target, output, fill_strides, strict=True):
        words += axis
    words += [*launches.words, *flipped.words]
    area_bytes = -(-(8 * run + prod(sizes) * source.itemsize) // LINE) * LINE
    keep = fill, launches.params, flipped.params
    return BoxLaunch(plan, np.array(words, np.int64), area_bytes, keep)


def _as_signed(word: int) -> int:
    """Return the signed 64-bit number of the same bits."""
    return word - (1 << 64) if word >> 63 else word


def _reverse_axis(
    sizes: tuple[int, ...], strides: tuple[int, ...], axis: int
) -> tuple[tuple[int, ...], int]:
    """Return the strides of an array with a reversed axis, and the offset of its first element."""
    reversed_strides = *strides[:axis], -strides[axis], *strides[axis + 1 :]
    return reversed_strides, (sizes[axis] - 1) * strides[axis]


def _output_strides(layout: BatchLayout) -> dict[str, int]:
    """Return the strides of the output by letter."""
    letters = "".join(layout.options.pattern.target.groups)
    return dict(zip(letters, layout.sample_region.strides, strict=True))


def _plan_box(
    layout: BatchLayout,
    source: DType,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    has_half: SupportsFloat16,
) -> Plan:
    """Return the plan of the conversion of a box to its part of the output."""
    pattern, region = layout.options.pattern, layout.sample_region
    letters = "".join(pattern.target.groups)
    block = dict(zip(letters, region.shape, strict=True))
    block |= {x: n for x, n in zip(pattern.source.groups, sizes, strict=True) if x in block}
    part = Part(tuple(block.values()), region.strides, region.dtype)
    return make_single_plan(layout.options, sizes, strides, source, CPU, part, has_half)


def _prepare_conversion(plan: Plan, alignment: int, stream: bool, start: int = 0) -> _Launches:
    """Return the launches that convert a box.

    `alignment` divides the address of every box in the output; `start` is the offset in bytes of
    the box's first element.
    """
    if plan.choice is None or not (plan.is_one_pass or plan.choice.host_loops):
        raise RuntimeError(f"{plan.pattern}: a box needs one pass, but has several")
    launch_offsets = list(plan.launches())
    alignment = gcd(alignment, *(dst for _, dst in launch_offsets))
    launch = prepare(plan.choice, plan.epilogue, alignment, stream)
    params = np.frombuffer(launch.params, np.uint8)
    code, address = load(launch.spec).address, data_pointer(params)
    words: list[int] = []
    for src, dst in launch_offsets:
        words += [code, address, launch.units, start + src, dst]
    return _Launches(words, params)


def _choose_box(layout: BatchLayout, source: DType, output: Sequence[int]) -> tuple[int, ...]:
    """Return the size of a box along each axis.

    Short axes, such as channels, are cut last, because parts of a pixel are moved item by item, and
    the output's innermost axis is cut after other axes. Folded axes and the axis of the formula's
    constants are not cut.
    """
    pattern, formula = layout.options.pattern, layout.options.formula
    constants = formula.axis if formula is not None and formula.per_channel else None
    sizes = list(layout.window)
    groups = enumerate(pattern.source.groups)
    axes = [i for i, x in groups if len(x) == 1 and pattern.source.name(x) != constants]
    innermost = min((abs(output[i]) for i in axes if sizes[i] > 1), default=0)
    for axis in sorted(axes, key=lambda i: (sizes[i] <= SHORT, abs(output[i]) == innermost)):
        nbytes = prod(sizes) * source.itemsize
        if nbytes > BOX_BYTES:
            sizes[axis] = _cut_axis(sizes[axis], BOX_BYTES * sizes[axis] // nbytes, output[axis])
    return tuple(sizes)


def _cut_axis(size: int, most: int, step: int) -> int:
    """Return the size of parts of an axis: about equal, and whole cache lines of the output.

    most    the maximum size
    step    the stride of the axis in the output
    """
    most = max(1, most)
    aligned = LINE // gcd(LINE, step)
    equal = -(-size // -(-size // most))
    equal += -equal % aligned
    return equal if equal <= most else most - most % aligned or most


def _has_order_of_output(layout: BatchLayout, output: Sequence[int]) -> bool:
    """Return True if the innermost axis of a window is contiguous in the output."""
    groups = layout.options.pattern.source.groups
    if any(len(group) > 1 for group in groups):
        return False
    steps = [step for n, step in zip(layout.window, output, strict=True) if n > 1]
    return not steps or steps[-1] == layout.dtype.itemsize

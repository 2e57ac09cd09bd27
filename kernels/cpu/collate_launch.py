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
from ...planning.plan import Part, Plan, SupportsFloat16, make_single_plan
from ...spec import CPU, DType
from . import collate_params as t
from .compiler import load
from .launch import prepare
from .params import LINE

# Bytes of a box in the order of the sample, which stays in the cache until it is converted.
BOX_BYTES = 32 << 10
ALIGNED_POSITIONS = 16  # parts of an axis begin at multiples, so that their output is aligned
RUN = 2048  # items of the table of offsets, which is in the cache, too


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
    alignment: int,
    stream: bool,
    has_half: SupportsFloat16,
) -> BoxLaunch:
    """Return the launch of windows that are moved by position.

    Parameters
    ----------
    channel : the index of the channel axis of a sample, or -1
    fill : two windows of fill values, the second one for reversed channels; or none
    alignment : a power of two, at most a cache line, that divides the addresses of windows
    stream : bypass the caches
    has_half : returns whether the CPU supports float16
    """
    groups = layout.options.pattern.source.groups
    steps = _output_strides(layout)
    output = [steps.get(group, 0) for group in groups]  # folded axes and axes `1` are not cut
    sizes = _choose_box(layout, source, output)
    plan = _plan_box(layout, source, sizes, has_half)
    launches: list[int] = []
    conversion = np.empty(0, np.uint8)
    target: Sequence[int] = output
    if stream or plan.epilogue is not None or not _has_order_of_output(layout, output):
        offsets = [size * step for size, step in zip(sizes, output, strict=True)]
        offsets += [n * step for n, step in zip(layout.window, output, strict=True)]
        launches, conversion = _prepare_conversion(plan, gcd(alignment, *offsets), stream)
        target = contiguous_strides(sizes, source)
    counts = [-(-n // size) for n, size in zip(layout.window, sizes, strict=True)]
    run = max(RUN, *sizes)
    words = [len(sizes), source.itemsize, channel, data_pointer(fill), fill.nbytes // 2]
    words += [prod(counts), run, len(launches) // t.LAUNCH]
    fill_strides = contiguous_strides(layout.window, source)
    for axis in zip(layout.window, sizes, counts, target, output, fill_strides, strict=True):
        words += axis
    area_bytes = -(-(8 * run + prod(sizes) * source.itemsize) // LINE) * LINE
    params = np.array(words + launches, np.int64)
    return BoxLaunch(plan, params, area_bytes, (fill, conversion))


def _output_strides(layout: BatchLayout) -> dict[str, int]:
    """Return the strides of the output by letter."""
    letters = "".join(layout.options.pattern.target.groups)
    return dict(zip(letters, layout.sample_region.strides, strict=True))


def _plan_box(
    layout: BatchLayout, source: DType, sizes: tuple[int, ...], has_half: SupportsFloat16
) -> Plan:
    """Return the plan of the conversion of a contiguous box to its part of the output."""
    pattern, region = layout.options.pattern, layout.sample_region
    letters = "".join(pattern.target.groups)
    block = dict(zip(letters, region.shape, strict=True))
    block |= {x: n for x, n in zip(pattern.source.groups, sizes, strict=True) if x in block}
    part = Part(tuple(block.values()), region.strides, region.dtype)
    strides = contiguous_strides(sizes, source)
    return make_single_plan(layout.options, sizes, strides, source, CPU, part, has_half)


def _prepare_conversion(plan: Plan, alignment: int, stream: bool) -> tuple[list[int], Array]:
    """Return the launches that convert a box, t.LAUNCH words each, and their parameter block.

    `alignment` divides the address of every box in the output.
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
        words += [code, address, launch.units, src, dst]
    return words, params


def _choose_box(layout: BatchLayout, source: DType, output: Sequence[int]) -> tuple[int, ...]:
    """Return the size of a box along each axis.

    The output's innermost axis is cut last. Folded axes and the axis of the formula's constants
    are not cut.
    """
    pattern, formula = layout.options.pattern, layout.options.formula
    constants = formula.axis if formula is not None and formula.per_channel else None
    sizes = list(layout.window)
    groups = enumerate(pattern.source.groups)
    axes = [i for i, x in groups if len(x) == 1 and pattern.source.name(x) != constants]
    innermost = min((abs(output[i]) for i in axes if sizes[i] > 1), default=0)
    for axis in sorted(axes, key=lambda i: abs(output[i]) == innermost):
        nbytes = prod(sizes) * source.itemsize
        if nbytes > BOX_BYTES:
            size = max(1, BOX_BYTES * sizes[axis] // nbytes)
            sizes[axis] = size - size % ALIGNED_POSITIONS or size
    return tuple(sizes)


def _has_order_of_output(layout: BatchLayout, output: Sequence[int]) -> bool:
    """Return True if the innermost axis of a window is contiguous in the output."""
    groups = layout.options.pattern.source.groups
    if any(len(group) > 1 for group in groups):
        return False
    steps = [step for n, step in zip(layout.window, output, strict=True) if n > 1]
    return not steps or steps[-1] == layout.dtype.itemsize

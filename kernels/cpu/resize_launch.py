"""Prepare the resizing of samples: the parameter block of the kernel "resize" (resize.py).

launch.py prepares the conversion of each block of resampled rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd, prod
from typing import Any

import numpy as np

from ...layout.parsing import Layout
from ...layout.pattern import Pattern
from ...memory import Array, data_pointer
from ...normalize import CHANNEL
from ...planning.batch.blocks import Blocks, FoldedAxis
from ...planning.batch.layout import AxisRoles, BatchLayout
from ...planning.batch.weights import IgnoredPixels
from ...planning.plan import Part, Plan, make_single_plan
from ...spec import CPU, DType
from . import resize_params as t
from .compiler import KernelSpec, LoadedKernel, load
from .launch import prepare


@dataclass(frozen=True)
class BlockLaunch:
    """The prepared kernel "resize" for samples of one memory order.

    plan            the conversion of a block of resampled rows
    slots           the axes that have tap tables
    repeats         units of each block: indices of the outer axes that it does not include
    inner           elements of a source column
    can_halve       True if the kernel "halve" (halve.py) may resample bytes
    flipped_fill    bytes from the fill values of a column to the values with flipped channels
    line            bytes of an element of all rows of a block
    column_bytes    bytes of a source element of all rows in a scratch area
    area_bytes      bytes of a scratch area for the band and a block of resampled rows
    """

    plan: Plan
    kernel: LoadedKernel
    params: bytes
    slots: tuple[str, ...]
    repeats: int
    inner: int
    can_halve: bool
    flipped_fill: int
    line: int
    column_bytes: int
    area_bytes: int
    keep: tuple[Array, ...] = field(repr=False)  # arrays that `params` points to

    def find_kernel(self, halving_taps: int) -> LoadedKernel:
        """Return the kernel of samples that are halved by this many taps; 0: of other samples."""
        if halving_taps == 0:
            return self.kernel
        return load(KernelSpec("halve", (self.inner, halving_taps)))


def prepare_blocks(
    layout: BatchLayout,
    sizes: Mapping[str, int],
    roles: AxisRoles,
    blocks: Blocks,
    steps: Mapping[str, int],
    channels: tuple[int, ...] | None,
    source_channels: int,
    fill: Array,
    ignored: IgnoredPixels | None,
    source: str,
    alignment: int,
    stream: bool,
    has_half: Any,
) -> BlockLaunch:
    """Return the launch for samples whose axes have certain roles.

    Parameters
    ----------
    layout : of a batch; only its options, dtype and sample step matter
    sizes : the size of the window along each axis of a sample, in the order of the left side
    blocks : of a window; they may have several letters in place of the rows, and of the columns
    steps : the strides in the output, by letter
    channels : the channels of a sample that are selected from inner elements; None: all
    source_channels : the number of channels of a sample
    fill : the fill values in the dtype of sums: one, or one for each channel of the window
    ignored : the elements that are omitted; None: no element is
    source : the kernels' name of the dtype of samples
    alignment : a power of two, at most a cache line, that divides the address of each block
    stream : True if the batch is written past the caches
    has_half : returns whether the CPU supports float16
    """
    pattern = layout.options.pattern
    targets = "".join(pattern.target.groups)
    long = [x for x in steps if blocks.sizes.get(x, sizes.get(x, 1)) > 1]
    planes = _plane_axes(layout, long, steps, roles)
    outer = [x for x in roles.outer if x not in planes]
    parts = blocks.parts
    line = t.VECTOR * fill.itemsize
    letters = [letter for x in sizes for letter in parts.get(x, x)]
    block, block_steps = dict.fromkeys(letters, 1), dict.fromkeys(letters, line)
    size = line
    for x in reversed((*planes, *parts.get(roles.columns, ""), *roles.inner)):
        block[x], block_steps[x] = blocks.sizes.get(x, sizes.get(x, 1)), size
        size *= block[x]
    lane_step = fill.itemsize
    for x in reversed(parts.get(roles.rows, "")):
        block[x], block_steps[x] = blocks.sizes[x], lane_step
        lane_step *= block[x]
    plan = make_single_plan(
        replace(
            layout.options,
            pattern=Pattern(
                Layout(tuple(letters), pattern.source.names), pattern.target, pattern.text
            ),
            sizes={},
        ),
        tuple(block.values()),
        tuple(block_steps.values()),
        fill.dtype,
        CPU,
        Part(
            tuple(block.get(x, 1) for x in targets),
            tuple(steps[x] for x in targets),
            layout.dtype,
        ),
        has_half,
    )
    if plan.choice is None or not (plan.is_one_pass or plan.choice.host_loops):
        raise RuntimeError(f"{plan.pattern}: a block needs one pass, but has several")
    launch_offsets = list(plan.launches())
    offsets = [dst for _, dst in launch_offsets]
    offsets += [layout.step, *blocks.places[:, 2].tolist()]
    offsets += [steps.get(letter, 0) for x in outer for letter in parts.get(x, x)]
    launch = prepare(plan.choice, plan.epilogue, gcd(alignment, *offsets), stream)
    conversion = np.frombuffer(launch.params, np.uint8)
    groups, inner = _groups(sizes, roles, pattern.source, channels, source_channels)
    straight, fill_steps = _fill_columns(sizes, roles, pattern.source, fill)
    flipped = _fill_columns(sizes, roles, pattern.source, fill[::-1])[0]
    columns = np.concatenate([straight, flipped])
    words = [0] * t.WORDS
    words[t.PLANES], words[t.LANES] = prod(sizes[x] for x in planes), blocks.rows
    words[t.SAMPLE_STEP], words[t.ROW_STEP] = layout.step, steps.get(roles.rows, 0)
    words[t.AXES], words[t.WIDTH] = len(roles.outer), blocks.columns
    words[t.INNER], words[t.INNER_OUT] = inner, prod(sizes[x] for x in roles.inner)
    words[t.FILL], words[t.GROUPS] = data_pointer(columns), len(groups)
    words[t.LAUNCHES] = len(launch_offsets)
    pixels = "all"
    if ignored is not None:
        pixels = "valid"
        words[t.IS_NUMBER] = ignored.value == ignored.value
        words[t.IGNORED], words[t.LEAST] = _as_words(fill.dtype, ignored.value, ignored.least)
    for x in (*outer, *planes):
        fold = blocks.outer.get(x) or FoldedAxis(sizes[x], 1, 0)
        step = 0 if x in planes else steps.get(x, 0)
        words += [fold.size, step, fill_steps.get(x, 0), fold.inner, fold.inner_step]
    for group in groups:
        words += group
    for src, dst in launch_offsets:
        code = load(launch.spec).address
        words += [code, data_pointer(conversion), launch.units, src, dst]
    return BlockLaunch(
        plan,
        load(KernelSpec("resize", (source, pixels))),
        np.array(words, np.int64).tobytes(),
        (*outer, *planes, roles.rows, roles.columns),
        prod(blocks.outer[x].size if x in blocks.outer else sizes[x] for x in outer),
        inner,
        source == "u1"
        and channels is None
        and ignored is None
        and _writes_bytes(layout, sizes, steps, roles),
        flipped.nbytes,
        line,
        line * t.SUMS[pixels],
        t.band_bytes(fill.itemsize) * t.SUMS[pixels] + size,
        (columns, conversion),
    )


def _as_words(dtype: DType, *values: float) -> list[int]:
    """Return numbers of a dtype, each at the beginning of a 64-bit word."""
    words = np.zeros((len(values), 8 // dtype.itemsize), dtype)
    words[:, 0] = values
    return words.view(np.int64).ravel().tolist()


def _plane_axes(
    layout: BatchLayout, long: Sequence[str], steps: Mapping[str, int], roles: AxisRoles
) -> list[str]:
    """Return the outer axes that a block includes, because its conversion has to see all of them.

    They are the axis of the formula's constants, and the innermost axis of the output, one of the
    axes `long` that have several positions.
    """
    formula = layout.options.formula
    along = formula.axis if formula is not None and formula.per_channel else None
    innermost = min(long, key=lambda x: abs(steps[x]), default="")
    name = layout.options.pattern.source.name
    return [x for x in roles.outer if x == innermost or name(x) == along]


def _writes_bytes(
    layout: BatchLayout, sizes: Mapping[str, int], steps: Mapping[str, int], roles: AxisRoles
) -> bool:
    """Return True if rows of the result are contiguous bytes that the kernel "halve" can write."""
    is_formula = layout.options.formula is not None
    if roles.outer or not roles.rows or not roles.columns or is_formula or layout.dtype != np.uint8:
        return False
    size = 1
    for x in reversed((*roles.columns, *roles.inner)):
        if sizes[x] != 1 and steps.get(x, 0) != size:
            return False
        size *= sizes[x]
    return size // sizes[roles.columns] in t.HALVED and size >= t.HALVED_BYTES


def _groups(
    sizes: Mapping[str, int],
    roles: AxisRoles,
    source: Layout,
    channels: tuple[int, ...] | None,
    source_channels: int,
) -> tuple[list[list[int]], int]:
    """Return the elements of a result column, in groups that are contiguous in the source column.

    A group is the first element and the number of elements. The second result is the number of
    elements of a source column.
    """
    elements = np.zeros(1, np.int64)
    count = 1
    for x in reversed(roles.inner):
        indices: Sequence[int] = range(sizes[x])
        is_selected = channels is not None and source.name(x) == CHANNEL
        if is_selected and channels is not None:
            indices = channels
        elements = np.add.outer(np.array(indices) * count, elements).ravel()
        count *= source_channels if is_selected else sizes[x]
    groups: list[list[int]] = []
    for element in elements.tolist():
        if groups and groups[-1][1] < t.WIDE and sum(groups[-1]) == element:
            groups[-1][1] += 1
        else:
            groups.append([element, 1])
    return groups, count


def _fill_columns(
    sizes: Mapping[str, int], roles: AxisRoles, source: Layout, fill: Array
) -> tuple[Array, dict[str, int]]:
    """Return the fill values of the elements of a column, and the steps along outer axes."""
    inner_sizes = [sizes[x] for x in roles.inner]
    count = prod(inner_sizes)
    for x in roles.inner:
        if source.name(x) == CHANNEL:
            shape = [sizes[x] if y == x else 1 for y in roles.inner]
            values = np.broadcast_to(fill, (sizes[x],)).reshape(shape)
            return np.ascontiguousarray(np.broadcast_to(values, inner_sizes)).ravel(), {}
    for x in roles.outer:
        if source.name(x) == CHANNEL:
            return np.repeat(np.broadcast_to(fill, (sizes[x],)), count), {x: count}
    return np.repeat(fill[:1], count), {}

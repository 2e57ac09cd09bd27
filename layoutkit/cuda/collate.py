"""Collate samples on a GPU: crop, resize, convert and stack their windows in one launch.

`layoutkit.cpu.collate` and `layoutkit.cpu.resize` do this on the CPU, with the same placement and
weights. A table of the samples of a batch is uploaded with each call. If kernels cannot write the
batch (they do not support a dtype, or C leaves a cast undefined), the launch gathers the windows as
they are, or resized as floats, and a conversion follows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from math import gcd, prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .._utils.cache import PROGRAM_SIZE_ESTIMATE, Cache, cache_put
from ..errors import DtypeError
from ..kernels.cpu.resize_params import HEAD, POSITION
from ..kernels.cuda import collate as launcher
from ..kernels.cuda.launch import CudaLaunch, Side, pack_coefficients
from ..memory import Array, contiguous_strides, data_pointer
from ..normalize import CHANNEL
from ..options import CollateOptions, ConvertOptions
from ..placement import place
from ..planning.batch.arguments import CropArgs
from ..planning.batch.layout import check_same_rank_and_dtype, fill_array_of
from ..planning.batch.placement import Placements
from ..planning.batch.samples import SampleAxes
from ..planning.batch.weights import (
    choose_summed_dtype,
    make_window_conversion,
    moves_items,
    nearest_positions,
)
from ..planning.channels import as_slice
from ..planning.epilogue import Epilogue, kernel_dtype_name
from ..planning.loops import byte_strides
from ..planning.plan import Part, Plan, make_single_plan
from ..planning.resize import LEAST_WEIGHT, ResizeOptions
from ..spec import ArraySpec, DType
from ..taps import TapTables, make_tap_tables
from .memory import (
    ALIGNMENT,
    DeviceAdapter,
    DeviceArray,
    DeviceArrays,
    check_same_device,
    check_writable,
    span,
)
from .program import supports_float16
from .runtime import runtime
from .transfers import STAGING_BYTES, Conversion, Fill, find_staging, refuse_capture

Rows: TypeAlias = Array | list[Array]  # a row for each sample; a list if their lengths differ

_MOVED_BYTES = (1, 2, 4, 8, 16)
_IDENTITY = ResizeOptions("nearest")
_MOST_ITEMS = 8  # items of a pixel that is read as a whole to select channels


class PreparedBatch(NamedTuple):
    """A batch on a GPU that is still to be written.

    array       the memory of the batch
    post_conversion     the conversion that follows, if any
    launch      the launch that writes the array, the table that it reads from device memory, and
                the base of the addresses in that table; None: the batch is empty
    """

    array: DeviceArray
    post_conversion: ConvertOptions | None = None
    launch: tuple[CudaLaunch, Table, int] | None = None

    def write(self, adapter: DeviceAdapter) -> DeviceArray:
        """Upload the table, launch the kernel, and return the array."""
        if self.launch is not None:
            prepared, table, base = self.launch
            gpu, result = runtime(), self.array
            stream = adapter.stream(result.ordinal)
            refuse_capture(stream)
            kernel = gpu.load(prepared, result.ordinal)

            def launch(staged: DeviceArray, out: Any, adapter: DeviceAdapter) -> None:
                gpu.launch(kernel, (result.address, staged.address, base), stream)

            find_staging(result.ordinal).send(_TableUpload(table, launch), table, result, adapter)
        return self.array


class LaunchPlan(NamedTuple):
    """The part of launches that batches of one layout have in common.

    columns     the axis of samples that each axis of a window is, or is a part of
    parts       of axes of windows that are a part of an axis of samples, by number: their length,
                and the number of positions of the parts that are nested in them
    window, along, items, places    the arguments of `prepare_collate`; along: `samples`
    fill        the fill values of a window that is not flipped
    """

    columns: Sequence[int]
    parts: Mapping[int, tuple[int, int]]
    window: Sequence[launcher.WindowAxis]
    along: launcher.WindowAxis
    items: launcher.Items
    fill: Array
    places: launcher.Places | None = None


class DeviceCollateProgram:
    """The GPU program of a Collator."""

    def __init__(self, options: CollateOptions) -> None:
        self._options = options
        self._plans: Cache[Any] = Cache()  # by the layout of windows and batch
        self._fixed: Cache[Any] = Cache()  # launches, by the layout of one array and of `out`

    def prepare(
        self,
        arrays: DeviceArrays,
        indices: Any,
        crops: CropArgs,
        out: DeviceArray | None,
        adapter: DeviceAdapter,
        *,
        may_convert: bool,
    ) -> PreparedBatch:
        """Return the batch of samples, in `out` or a new array, and the launch that writes it.

        Without `may_convert`, if `out` is unaligned, or if kernels do not support the conversion,
        windows are gathered into a new array. Raises all errors of a call.
        """
        first, fixed_key = arrays[0], None
        if self._options.is_one_array and all(x is None for x in (indices, *crops)):
            fixed_key = layout_of(first), layout_of(out), may_convert
            batch = self._find_fixed(fixed_key, first, out, adapter)
            if batch is not None:
                return batch
        samples, axes, sample_axis = self._select_samples(arrays, indices)
        if out is not None:
            self._check_apart(arrays, samples, out)
        count, window = len(samples.addresses), axes.window(samples.shapes)
        shape = (*window[:sample_axis], count, *window[sample_axis:])
        reads = None
        if self._options.resize is None or 0 not in shape:
            reads = self._place(axes, window, samples, crops)
        may_convert &= out is None or out.is_aligned  # as kernels write
        resized = () if reads is None else reads.resized
        key = shape, first.dtype, first.ordinal, may_convert, resized, layout_of(out)
        plans = self._plans.get(key)
        if plans is None:
            plans = self._make_plans(axes, window, shape, first, out, may_convert, resized)
            cache_put(self._plans, key, plans, PROGRAM_SIZE_ESTIMATE)
        post_conversion, target, plan = plans
        batch = _make_result(post_conversion, target, first, out, adapter)
        if reads is None or plan is None:
            return batch
        prepared, table, base = prepare_launch(axes, samples, reads, plan, batch.array)
        if fixed_key is not None:
            alignment = batch.array.address % ALIGNMENT
            table = table.join()
            fixed = post_conversion, target, alignment, prepared, table, base - first.address
            cache_put(self._fixed, fixed_key, fixed, table.nbytes)
        return batch._replace(launch=(prepared, table, base))

    def _find_fixed(
        self, key: Any, first: DeviceArray, out: DeviceArray | None, adapter: DeviceAdapter
    ) -> PreparedBatch | None:
        """Return the batch of the windows of one array, if its layout alone decides the launch.

        Returns None if the launch is not prepared. Its table has no absolute address.
        """
        fixed = self._fixed.get(key)
        if fixed is None:
            return None
        post_conversion, target, alignment, prepared, table, base = fixed
        if out is not None:
            check_writable(first, out)
        batch = _make_result(post_conversion, target, first, out, adapter)
        if batch.array.address % ALIGNMENT != alignment:
            return None
        return batch._replace(launch=(prepared, table, first.address + base))

    def _make_plans(
        self,
        axes: SampleAxes,
        window: tuple[int, ...],
        shape: tuple[int, ...],
        first: DeviceArray,
        out: DeviceArray | None,
        may_convert: bool,
        resized: tuple[int, ...],
    ) -> tuple[ConvertOptions | None, ArraySpec, LaunchPlan | None]:
        """Return the conversion after a launch, if any; the array that it writes; and its plan.

        The plan is None if that array is empty. Windows are resized along the axes `resized`.
        """
        post, plan = self._plan_conversion(shape, first, out)
        if may_convert and plan.before is plan.after is None:
            post_conversion, target, epilogue = None, plan.target, plan.epilogue
            sides = plan.move.target.groups, plan.move.target_axes, plan.move.target_sizes
            coefficient = find_coefficient_letter(plan)
        else:
            post_conversion, target, epilogue = post, plan.source, None
            sides = plan.move.source.groups, plan.move.axes, plan.move.sizes
            coefficient, out = "", None
        items, fill = describe_items(self._options, axes, window, first.dtype, epilogue)
        if 0 in shape:
            return post_conversion, target, None
        strides = contiguous_strides(target.shape, target.dtype) if out is None else out.strides
        steps = dict(zip(sides[1], byte_strides(*sides, strides), strict=True))
        letter, count = self._options.letter, prod(shape) // prod(window)
        along = launcher.WindowAxis(count, steps[letter], int(letter == coefficient))
        sizes = dict(zip(plan.move.axes, plan.move.sizes, strict=True))
        columns: list[int] = []
        parts: dict[int, tuple[int, int]] = {}
        described = []
        for axis, (group, size) in enumerate(zip(axes.sample.groups, window, strict=True)):
            for number, name in enumerate(group):
                if len(group) > 1:  # such axes are not cropped, resized or flipped
                    size = sizes[name]
                    inner = prod(sizes[other] for other in group[number + 1 :])
                    parts[len(columns)] = size, inner
                columns.append(axis)
                step, coef = steps.get(name, 0), int(name == coefficient)
                own_fill = int(has_own_fill(axes, name, fill))
                is_resized = axis in resized
                described.append(launcher.WindowAxis(size, step, coef, own_fill, is_resized))
        return post_conversion, target, LaunchPlan(columns, parts, described, along, items, fill)

    def _place(
        self, axes: SampleAxes, window: tuple[int, ...], samples: Samples, crops: CropArgs
    ) -> Reads:
        """Return the regions of samples that their windows read."""
        shapes, count = samples.shapes, len(samples.addresses)
        if len(shapes) != count:
            shapes = np.repeat(shapes, count, 0)
        return reads_of(self._options, axes, place(self._options, axes, window, shapes, crops))

    def _check_apart(self, arrays: DeviceArrays, samples: Samples, out: DeviceArray) -> None:
        """Raise unless `out` is writeable and shares no memory with the arrays."""
        if self._options.is_one_array or not out.writeable:
            check_writable(arrays[0], out, "x" if self._options.is_one_array else "sample 0")
            return
        begin, end = (out.address + offset for offset in span(out))
        low, high = samples.spans
        for number in np.flatnonzero((low < end) & (begin < high)).tolist():
            check_writable(arrays[number], out, f"sample {number}")

    def _select_samples(
        self, arrays: DeviceArrays, indices: Any
    ) -> tuple[Samples, SampleAxes, int]:
        """Return the selected samples, their axes, and the index of the sample axis."""
        options = self._options
        first = arrays[0]
        if not options.is_one_array:
            return Samples.of(arrays), options.find_sample_axes(len(first.shape)), 0
        axes, sample_axis, numbers = options.select_samples(first.shape, indices)
        return Samples.along(first, sample_axis, numbers), axes, sample_axis

    def _plan_conversion(
        self, shape: tuple[int, ...], first: DeviceArray, out: DeviceArray | None
    ) -> tuple[ConvertOptions, Plan]:
        """Return the conversion of contiguous windows, and its plan for any strides of `out`."""
        options = self._options
        dtype = window_dtype(options.resize, first.dtype)
        post = make_window_conversion(options, shape, first.dtype, supports_float16)
        convert = replace(post, device=None, copy=True)
        planned = shape, contiguous_strides(shape, dtype), dtype, first.device
        plan = make_single_plan(convert, *planned, out, supports_float16)
        if out is not None:
            dense = Part(out.shape, contiguous_strides(out.shape, out.dtype), out.dtype)
            plan = make_single_plan(convert, *planned, dense, supports_float16)
        return post, plan


def layout_of(array: DeviceArray | None) -> Any:
    """Return a key of the shape, strides, dtype, device and alignment of an array, or None."""
    if array is None:
        return None
    return *array.plan_args, array.address % ALIGNMENT


def _make_result(
    post_conversion: ConvertOptions | None,
    target: ArraySpec,
    first: DeviceArray,
    out: DeviceArray | None,
    adapter: DeviceAdapter,
) -> PreparedBatch:
    """Return a batch without a launch, in `out` if no conversion follows, or in a new array."""
    adapter.check(target.dtype)
    result = out if post_conversion is None else None
    result = result or adapter.empty(target.shape, target.dtype, first.ordinal)
    return PreparedBatch(result, post_conversion)


def has_own_fill(axes: SampleAxes, letter: str, fill: Array) -> bool:
    """Return True if each position along the axis of a letter has a fill value."""
    return len(fill) > 1 and letter != "" and axes.sample.name(letter) == CHANNEL


def find_coefficient_letter(plan: Plan) -> str:
    """Return the letter of the axis along which the constants of a formula differ, or ""."""
    coefficients = None if plan.epilogue is None else plan.epilogue.coefficients
    if coefficients is None or len(coefficients.factor) < 2 or plan.formula is None:
        return ""
    return plan.formula.letter(plan.move) or ""


def describe_items(
    options: CollateOptions,
    axes: SampleAxes,
    window: tuple[int, ...],
    source: DType,
    epilogue: Epilogue | None,
) -> tuple[launcher.Items, Array]:
    """Describe items of samples of a dtype, converted by the epilogue of a plan.

    Also return the fill values of a window that is not flipped.
    """
    resize, ignored = options.resize, None
    fill = fill_array_of(options, axes, window, source)
    if resize is not None and resize.ignore is not None:
        value = np.array([resize.ignore]).astype(source)
        ignored = launcher.Ignored(float(value[0]), LEAST_WEIGHT.get(resize.filter, 0))
        if not options.fills:
            fill = value
    is_float = resize is not None and not moves_items(resize, source, supports_float16)
    item = f"m{source.itemsize}" if epilogue is None else epilogue.source
    if is_float or ignored is not None:  # ignored items are compared, also where they are moved
        item = kernel_dtype_name(source)
        computed = kernel_dtype_name(choose_summed_dtype(source)) if is_float else item
        epilogue = epilogue or Epilogue(computed, computed)
    return launcher.Items(item, epilogue, pack_coefficients(epilogue), ignored, is_float), fill


@dataclass(frozen=True)
class Samples:
    """The memory of samples of one dtype: an address, a shape and strides in bytes for each.

    Shapes or strides have one row if all are equal.
    """

    dtype: DType
    addresses: Array  # (samples,) int64
    shapes: Array  # (samples or 1, axes) int64
    strides: Array  # (samples or 1, axes) int64

    @classmethod
    def of(cls, arrays: DeviceArrays) -> Samples:
        """Return the memory of arrays; raise unless all are on one GPU, of one rank and dtype."""
        shapes, dtypes = arrays.shapes, arrays.dtypes
        ranks = [*map(len, shapes)]
        if not all(x.count(x[0]) == len(arrays) for x in (ranks, dtypes, arrays.ordinals)):
            for number, array in enumerate(arrays):
                check_same_device(arrays[0], "sample 0", array.device, f"sample {number}")
            check_same_rank_and_dtype([*zip(shapes, dtypes, strict=True)])
        addresses = np.array(arrays.addresses, np.int64)
        return cls(dtypes[0], addresses, _stack(shapes), _stack(arrays.strides))

    @classmethod
    def along(cls, array: DeviceArray, axis: int, numbers: Array) -> Samples:
        """Return the memory of the parts of an array at validated indices of an axis."""
        sides = [[side[:axis] + side[axis + 1 :]] for side in (array.shape, array.strides)]
        addresses = array.address + numbers * array.strides[axis]
        return cls(array.dtype, addresses, *map(_stack, sides))

    @cached_property
    def spans(self) -> tuple[Array, Array]:
        """The first address of each non-empty sample, and the end of its memory."""
        ends = (self.shapes - 1) * self.strides
        low, high = np.minimum(ends, 0).sum(1), np.maximum(ends, 0).sum(1)
        return self.addresses + low, self.addresses + high + self.dtype.itemsize

    def alignment(self) -> int:
        """Return the alignment of all items in bytes, at most the item size."""
        steps = np.where(self.shapes > 1, self.strides, 0)
        # Bits are enough, because items have 1, 2, 4, 8 or 16 bytes.
        bits = [np.bitwise_or.reduce(x, None) for x in (self.addresses, steps)]
        return gcd(self.dtype.itemsize, *map(int, bits))


def _stack(rows: Sequence[tuple[int, ...]]) -> Array:
    """Return rows of one length as an array, or one of them if all are equal."""
    if rows.count(rows[0]) == len(rows):
        rows = rows[:1]
    # Faster than numpy.array of tuples.
    numbers = struct.pack(f"{len(rows) * len(rows[0])}q", *chain.from_iterable(rows))
    return np.frombuffer(numbers, np.int64).reshape(len(rows), len(rows[0]))


def window_dtype(resize: ResizeOptions | None, source: DType) -> DType:
    """Return the dtype of windows before the conversion.

    Raises DtypeError if samples cannot be resized or moved.
    """
    if resize is not None and not moves_items(resize, source, supports_float16):
        return choose_summed_dtype(source)
    if source.itemsize not in _MOVED_BYTES:
        raise DtypeError(
            f"samples have dtype {source}, whose items of {source.itemsize} bytes a GPU does not "
            "move; collate them on the CPU"
        )
    return source


# ---- the placement of windows ------------------------------------------------------------


class Reads(NamedTuple):
    """The indices of samples that windows read: a row per sample, a column per axis.

    Position p of a window reads index begins + p * steps of the sample. Along resized axes, p is a
    position of the crop, to which taps refer.

    resized     the axes that are resized by weighted sums
    maps        for some axes, the index of each position of each window; -1: it is filled
    channels    the axis of channels that are selected in the same order from all samples, and the
                order
    make_taps   returns the tap tables of samples along resized axes, with weights of a dtype
    has_gaps    whether weights of 0 are gaps between taps
    """

    placements: Placements
    begins: Array
    steps: Array  # one row if no window is flipped
    resized: tuple[int, ...]
    maps: dict[int, Rows]
    channels: tuple[int, tuple[int, ...]] | None
    make_taps: Callable[[Sequence[int], DType], TapTables]
    has_gaps: bool = False

    @property
    def is_inside(self) -> bool:
        """True if all positions are inside of samples."""
        outside = self.placements.outside
        for axis, index in self.maps.items():
            outside[:, axis] = (np.concatenate(index) < 0).any()
        return not outside.any()


def reads_of(options: CollateOptions, axes: SampleAxes, placements: Placements) -> Reads:
    """Return the regions of samples that windows at these placements read."""
    windows, flips = window_sizes(placements), placements.flips
    resized = placements.resized
    maps: dict[int, Rows] = {}
    if options.resize is not None and options.resize.filter == "nearest":
        maps = _map_nearest(placements)
        resized = ()
    begins, steps = placements.begins.copy(), np.ones((1, len(axes.sample.groups)), np.int64)
    if flips.any():
        is_reversed = flips.copy()
        is_reversed[:, resized] = False
        steps = np.where(is_reversed, -1, 1)
        begins += is_reversed * (windows - 1)
    channels = None
    if options.channels is not None:
        channel = axes.axis_indices[CHANNEL]
        if windows[0, channel] == len(options.channels) and not flips[:, channel].any():
            channels = channel, tuple(options.channels)
        spaced = as_slice(options.channels)
        if spaced is not None:
            begins[:, channel] = spaced[0] + begins[:, channel] * spaced[1]
            steps[:, channel] *= spaced[1]
        else:
            order = np.array(options.channels, np.int64)
            maps[channel] = np.where(flips[:, channel, None], order[::-1], order)

    def make_taps(axes: Sequence[int], summed: DType) -> TapTables:
        return make_tap_tables(options.resize or _IDENTITY, placements, axes, summed)

    return Reads(placements, begins, steps, resized, maps, channels, make_taps)


def window_sizes(placements: Placements) -> Array:
    """Return the sizes of windows, int64 (samples, axes), or one row if all are equal."""
    return np.array([placements.window]) if placements.window else placements.scaled


def _map_nearest(placements: Placements) -> dict[int, Rows]:
    """Return the nearest index in its sample of each position of each window, by resized axis."""
    if placements.window:
        flips = placements.flips[..., None]
        rows_by_axis = nearest_positions(placements)
        return {x: np.where(flips[:, x], y[:, ::-1], y) for x, y in rows_by_axis.items()}
    maps: dict[int, list[Array]] = {}
    for n, size in enumerate(placements.scaled.tolist()):
        row = _map_nearest(replace(placements.rows([n]), window=tuple(size)))
        for axis, (index,) in row.items():
            maps.setdefault(axis, []).append(index)
    return {**maps}


# ---- the launch --------------------------------------------------------------------------


class Table:
    """Bytes for a GPU, each part at a multiple of ALIGNMENT; offset 0 means no part."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, Array]] = []  # their offsets and bytes
        self.nbytes = 0
        self.add(np.zeros(ALIGNMENT, np.uint8))

    @property
    def shape(self) -> tuple[int]:
        """The shape of the table as an array of bytes."""
        return (self.nbytes,)

    def add(self, part: Array) -> int:
        """Append a contiguous array, and return its offset."""
        offset, padding = self.nbytes, np.zeros(-part.nbytes % ALIGNMENT, np.uint8)
        for piece in (part.reshape(-1).view(np.uint8), padding):
            self._parts.append((self.nbytes, piece))
            self.nbytes += piece.nbytes
        return offset

    def join(self) -> Table:
        """Return this table with one part, which is faster to copy."""
        joined, memory = Table(), np.empty(self.nbytes, np.uint8)
        self.copy_to(memory)
        joined._parts, joined.nbytes = [(0, memory)], self.nbytes
        return joined

    def copy_to(self, out: Array, start: int = 0) -> None:
        """Fill `out` with the bytes from `start` on."""
        for offset, part in self._parts:
            first, begin = max(start - offset, 0), max(offset - start, 0)
            piece = part[first : first + max(len(out) - begin, 0)]
            out[begin : begin + len(piece)] = piece


def prepare_launch(
    axes: SampleAxes, samples: Samples, reads: Reads, plan: LaunchPlan, out: DeviceArray
) -> tuple[CudaLaunch, Table, int]:
    """Return the launch that writes windows to `out`, its table, and the base address."""
    table, fill, columns = Table(), plan.fill, plan.columns
    fills = _make_fill_of_samples(axes, reads.placements, fill)
    fill_offset = table.add(fills)
    fill_step = len(fill) if len(fills) > len(fill) else 0
    base = int(samples.addresses.min())
    rows, heads = _make_rows(samples, reads, columns, base, table)
    for number, (length, inner) in plan.parts.items():
        sides = launcher.sides_of(rows)[:, number]
        sides[:, launcher.FROM] *= inner
        sides[:, launcher.HIGH] = length
    launch, packed = launcher.prepare_collate(
        plan.window,
        plan.along._replace(fill=fill_step),
        launcher.SampleTable(
            samples.dtype.itemsize,
            rows,
            heads,
            table.nbytes,
            fill_offset,
            samples.alignment(),
            reads.is_inside,
            _find_pixel_order(samples, reads, columns),
            reads.has_gaps,
        ),
        plan.items,
        Side(out.dtype.itemsize, out.address),
        plan.places,
    )
    table.add(np.frombuffer(packed, np.uint8))
    return launch, table, base


def _make_fill_of_samples(axes: SampleAxes, placements: Placements, fill: Array) -> Array:
    """Return the fill values in the order of windows: common ones, or each sample's in turn."""
    channel = axes.axis_indices.get(CHANNEL)
    if len(fill) == 1 or channel is None or not placements.flips[:, channel].any():
        return fill
    return np.where(placements.flips[:, channel, None], fill[::-1], fill).ravel()


def _make_rows(
    samples: Samples, reads: Reads, axes: Sequence[int], base: int, table: Table
) -> tuple[Array, dict[int, launcher.TapHeads]]:
    """Return the rows and heads of samples (see SampleTable), for axes of the samples.

    What they refer to is added to the table.
    """
    begins, steps = reads.begins, reads.steps
    if reads.maps:
        begins, steps = begins.copy(), steps.copy()
        begins[:, [*reads.maps]], steps[:, [*reads.maps]] = 0, 1
    columns = slice(None) if [*axes] == [*range(begins.shape[1])] else [*axes]
    low, is_reversed = -begins, steps < 0
    if np.count_nonzero(is_reversed):  # faster than is_reversed.any()
        low = np.where(is_reversed, begins - samples.shapes + 1, low)
    high = low + samples.shapes
    is_spaced = np.abs(steps) != 1  # selected channels, which all exist
    if np.count_nonzero(is_spaced):
        low = np.where(is_spaced, 0, low)
        high = np.where(is_spaced, window_sizes(reads.placements), high)
    rows = launcher.make_rows(len(begins), len(axes))
    sides = launcher.sides_of(rows)[:, :-2]
    heads: dict[int, launcher.TapHeads] = {}
    strides = samples.strides * steps
    for field, values in (launcher.FROM, strides), (launcher.LOW, low), (launcher.HIGH, high):
        sides[..., field] = values[:, columns]
    for axis, maps in reads.maps.items():
        offset = table.add(np.concatenate(maps))
        offsets = offset + 8 * _starts_of([len(row) for row in maps])
        parts = [n for n, other in enumerate(axes) if other == axis]
        sides[:, parts, launcher.MAP] = offsets[:, None]
    if reads.resized:
        taps = reads.make_taps(reads.resized, choose_summed_dtype(samples.dtype))
        begin = table.add(taps.memory) - data_pointer(taps.memory) + 8 * HEAD
        for index, axis in enumerate(reads.resized):
            number, positions = axes.index(axis), taps.addresses[index] + begin
            sides[:, number, launcher.TAPS] = positions
            sides[:, number, launcher.WEIGHTS] = positions + 8 * POSITION * taps.counts[index]
            sides[:, number, launcher.TAP_BYTES] = taps.pitches[index]
            heads[number] = launcher.TapHeads(taps.read_heads(index), taps.numbers[index])
    firsts = samples.addresses + np.einsum("ij,ij->i", begins, samples.strides)
    for column, values in enumerate((firsts, *samples.spans)):
        rows[:, column] = values - base
    return rows, heads


def _find_pixel_order(
    samples: Samples, reads: Reads, axes: Sequence[int]
) -> launcher.PixelOrder | None:
    """Return the channel order of pixels that are read whole; None if they are large or differ."""
    if reads.channels is None:
        return None
    axis, order = reads.channels
    items = {*samples.shapes[:, axis].tolist()}
    numbers = [n for n, other in enumerate(axes) if other == axis]
    if len(items) > 1 or len(numbers) > 1 or not 1 < len(order) <= _MOST_ITEMS:
        return None
    (count,), (number,) = items, numbers
    if count > min(_MOST_ITEMS, 2 * len(order)) or order == tuple(range(count)):
        return None
    strides = samples.strides[:, axis]
    shifts = 0 * strides if axis in reads.maps else reads.begins[:, axis] * strides
    return launcher.PixelOrder(number, order, count, shifts, strides)


def _starts_of(counts: Sequence[int]) -> Array:
    """Return the first position of each part of these lengths."""
    return np.cumsum([0, *counts[:-1]])


class _TableUpload:
    """The copy of a table to a GPU, with the launch that reads it as its conversion."""

    def __init__(self, table: Table, launch: Conversion) -> None:
        self.nbytes = table.nbytes
        self.program = launch

    def pieces(self, x: Table) -> Iterator[tuple[int, int, Fill]]:
        for start in range(0, self.nbytes, STAGING_BYTES):
            yield start, min(start + STAGING_BYTES, self.nbytes), partial(x.copy_to, start=start)

    def at(
        self, address: int, shape: tuple[int, ...], ordinal: int, owner: Any = None
    ) -> DeviceArray:
        return DeviceArray(address, shape, (1,), np.dtype(np.uint8), ordinal, owner)

"""Collate samples on a GPU: crop, resize, convert and stack their windows in one launch.

`layoutkit.cpu.collate` and `layoutkit.cpu.resize` do this on the CPU, with the same placement and
weights. A table of the samples of a batch is uploaded with each call. If kernels cannot write the
batch (they do not support a dtype, or C leaves a cast undefined), the launch gathers the windows as
they are, or resized as floats, and a conversion follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import gcd, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._utils import fork
from .._utils.cache import PROGRAM_SIZE_ESTIMATE, Cache, cache_put
from ..errors import DtypeError
from ..kernels.cpu.resize_params import HEAD, POSITION
from ..layout.pattern import Permutation
from ..memory import Array, contiguous_strides
from ..normalize import CHANNEL
from ..options import CollateOptions, ConvertOptions
from ..placement import place
from ..planning.batch.arguments import CropArgs
from ..planning.batch.layout import check_same_rank_and_dtype, fill_array_of
from ..planning.batch.placement import (
    Placements,
)
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
from ..spec import DType
from ..taps import TapTables, make_tap_tables
from .memory import DeviceAdapter, DeviceArray, check_same_device, check_writable, span
from .program import supports_float16
from .runtime import runtime
from .transfers import STAGING_BYTES, Conversion, Fill, find_staging, refuse_capture

if TYPE_CHECKING:
    from ..kernels.cuda.collate import Ignored, PixelOrder, WindowAxis
    from ..kernels.cuda.launch import CudaLaunch

_ALIGNMENT = 16  # bytes; the alignment of every part of a table
_MOVED_BYTES = (1, 2, 4, 8, 16)
TAP_HEAD_BYTES = 16  # before the weights of a position: the first tap and the number of taps
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
    launch: tuple[CudaLaunch, Array, int] | None = None

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


class DeviceCollateProgram:
    """The GPU program of a Collator."""

    def __init__(self, options: CollateOptions) -> None:
        self._options = options
        self._plans: Cache[Plan] = Cache()  # by the layout of windows and batch

    def prepare(
        self,
        arrays: Sequence[DeviceArray],
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
        options = self._options
        first = arrays[0]
        self._check_arrays(arrays)
        samples, axes, sample_axis = self._select_samples(arrays, indices)
        if out is not None:
            self._check_apart(arrays, samples, out)
        count = len(samples.addresses)
        window = axes.window(samples.shapes)
        dtype = window_dtype(options.resize, first.dtype)
        shape = (*window[:sample_axis], count, *window[sample_axis:])
        fill = fill_array_of(options, axes, window, first.dtype)
        ignored, fill = find_ignored(options, first.dtype, fill)
        reads = None
        if options.resize is None or 0 not in shape:
            shapes = samples.shapes[:count]
            reads = self._place(axes, window, shapes, crops)
        post = make_window_conversion(options, shape, first.dtype, supports_float16)
        plan = self._plan(replace(post, device=None, copy=True), shape, dtype, first, out)
        is_aligned = out is None or out.is_aligned  # as kernels write
        is_converted = may_convert and is_aligned and plan.before is plan.after is None
        if is_converted:
            adapter.check(plan.target.dtype)
            result = out or adapter.empty(plan.target.shape, plan.target.dtype, first.ordinal)
        else:
            adapter.check(dtype)
            result = adapter.empty(shape, dtype, first.ordinal)
        remaining = None if is_converted else post
        if reads is None or not result.size:
            return PreparedBatch(result, remaining)
        written = _describe_written(plan, result, options.letter, is_converted)
        resize = options.resize
        is_float = resize is not None and not moves_items(resize, first.dtype, supports_float16)
        launch = _prepare_launch(axes, samples, reads, fill, written, ignored, is_float)
        return PreparedBatch(result, remaining, launch)

    def _place(
        self, axes: SampleAxes, window: tuple[int, ...], shapes: Array, crops: CropArgs
    ) -> Reads:
        """Return the regions of samples that their windows read."""
        return reads_of(self._options, axes, place(self._options, axes, window, shapes, crops))

    @staticmethod
    def _check_arrays(arrays: Sequence[DeviceArray]) -> None:
        """Raise unless all arrays are on one GPU, and of one rank and dtype."""
        for number, array in enumerate(arrays):
            if array.ordinal != arrays[0].ordinal:
                check_same_device(arrays[0], "sample 0", array.device, f"sample {number}")
        check_same_rank_and_dtype([(array.shape, array.dtype) for array in arrays])

    def _check_apart(
        self, arrays: Sequence[DeviceArray], samples: Samples, out: DeviceArray
    ) -> None:
        """Raise unless `out` is writeable and shares no memory with the arrays."""
        if self._options.is_one_array or not out.writeable:
            check_writable(arrays[0], out, "x" if self._options.is_one_array else "sample 0")
            return
        begin, end = (out.address + offset for offset in span(out))
        low, high = samples.spans()
        for number in np.flatnonzero((low < end) & (begin < high)).tolist():
            check_writable(arrays[number], out, f"sample {number}")

    def _select_samples(
        self, arrays: Sequence[DeviceArray], indices: Any
    ) -> tuple[Samples, SampleAxes, int]:
        """Return the selected samples, their axes, and the index of the sample axis."""
        options = self._options
        first = arrays[0]
        if not options.is_one_array:
            return Samples.of(arrays), options.find_sample_axes(len(first.shape)), 0
        axes, sample_axis, numbers = options.select_samples(first.shape, indices)
        return Samples.along(first, sample_axis, numbers), axes, sample_axis

    def _plan(
        self,
        options: ConvertOptions,
        shape: tuple[int, ...],
        dtype: DType,
        first: DeviceArray,
        out: DeviceArray | None,
    ) -> Plan:
        """Return the plan of the conversion of contiguous windows, for any strides of `out`."""
        planned = shape, contiguous_strides(shape, dtype), dtype, first.device
        # Resized windows are floats, but a batch has the dtype of the samples by default.
        key = (*planned, first.dtype, out and (out.shape, out.strides, out.dtype))
        plan = self._plans.get(key)
        if plan is None:
            plan = make_single_plan(options, *planned, out, supports_float16)
            if out is not None:
                dense = Part(out.shape, contiguous_strides(out.shape, out.dtype), out.dtype)
                plan = make_single_plan(options, *planned, dense, supports_float16)
            cache_put(self._plans, key, plan, PROGRAM_SIZE_ESTIMATE)
        return plan


def find_ignored(
    options: CollateOptions, source: DType, fill: Array
) -> tuple[Ignored | None, Array]:
    """Return the value of items that are omitted, if any, and the fill values of a batch."""
    ignore = None if options.resize is None else options.resize.ignore
    if ignore is None or options.resize is None:
        return None, fill
    with fork.init_lock:
        from ..kernels.cuda.collate import Ignored

    value = np.array([ignore]).astype(source)
    if options.fill is None and not options.may_fill:
        fill = value
    return Ignored(float(value[0]), LEAST_WEIGHT.get(options.resize.filter, 0)), fill


class Samples(NamedTuple):
    """The memory of samples of one dtype: an address, a shape and strides in bytes for each.

    Shapes and strides have one row if there are no samples.
    """

    dtype: DType
    addresses: Array
    shapes: Array
    strides: Array

    @classmethod
    def of(cls, arrays: Sequence[DeviceArray]) -> Samples:
        fields = zip(*((x.address, x.shape, x.strides) for x in arrays), strict=True)
        return cls(arrays[0].dtype, *(np.array(field, np.int64) for field in fields))

    @classmethod
    def along(cls, array: DeviceArray, axis: int, numbers: Array) -> Samples:
        rows = max(1, len(numbers)), 1
        shapes, strides = (
            np.tile(np.array(side[:axis] + side[axis + 1 :], np.int64), rows)
            for side in (array.shape, array.strides)
        )
        return cls(array.dtype, array.address + numbers * array.strides[axis], shapes, strides)

    def spans(self) -> tuple[Array, Array]:
        """Return the first address of each non-empty sample, and the end of its memory."""
        ends = (self.shapes - 1) * self.strides
        low, high = np.minimum(ends, 0).sum(1), np.maximum(ends, 0).sum(1)
        return self.addresses + low, self.addresses + high + self.dtype.itemsize

    def alignment(self) -> int:
        """Return the alignment of all items in bytes, at most the item size."""
        steps = self.strides[self.shapes > 1]
        divisors = map(int, map(np.gcd.reduce, (self.addresses, steps)))
        return gcd(self.dtype.itemsize, *divisors)


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
    make_taps   returns the tap tables of samples along a resized axis, with weights of a dtype
    has_gaps    whether weights of 0 are gaps between taps
    """

    placements: Placements
    begins: Array
    steps: Array
    resized: tuple[int, ...]
    maps: dict[int, Sequence[Array]]
    channels: tuple[int, tuple[int, ...]] | None
    make_taps: Callable[[int, DType], TapTables]
    has_gaps: bool = False

    @property
    def is_inside(self) -> bool:
        """True if all positions are inside of samples."""
        outside = self.placements.outside
        for axis, index in self.maps.items():
            outside[:, axis] = any((row < 0).any() for row in index)
        return not outside.any()


def reads_of(options: CollateOptions, axes: SampleAxes, placements: Placements) -> Reads:
    """Return the regions of samples that windows at these placements read."""
    windows, flips = window_sizes(placements), placements.flips
    resized = placements.resized
    maps: dict[int, Sequence[Array]] = {}
    if options.resize is not None and options.resize.filter == "nearest":
        maps = _map_nearest(placements)
        resized = ()
    is_reversed = flips.copy()
    is_reversed[:, resized] = False
    steps = np.where(is_reversed, -1, 1)
    begins = placements.begins + is_reversed * (windows - 1)
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
            maps[channel] = [order[::-1] if flip else order for flip in flips[:, channel]]

    def make_taps(axis: int, summed: DType) -> TapTables:
        return make_tap_tables(options.resize or _IDENTITY, placements, [axis], summed)

    return Reads(placements, begins, steps, resized, maps, channels, make_taps)


def window_sizes(placements: Placements) -> Array:
    """Return the sizes of windows, int64 (samples, axes), or one row if all are equal."""
    return np.array([placements.window]) if placements.window else placements.scaled


def _map_nearest(placements: Placements) -> dict[int, Sequence[Array]]:
    """Return the nearest index in its sample of each position of each window, by resized axis."""
    if placements.window:
        maps = nearest_positions(placements)
        flips = placements.flips[..., None]
        return {x: [*np.where(flips[:, x], rows[:, ::-1], rows)] for x, rows in maps.items()}
    rows = (
        _map_nearest(replace(placements.rows([n]), window=tuple(size)))
        for n, size in enumerate(placements.scaled.tolist())
    )
    return _join_rows(rows)


def _join_rows(rows: Iterable[dict[int, Sequence[Array]]]) -> dict[int, Sequence[Array]]:
    joined: dict[int, list[Array]] = {}
    for row in rows:
        for axis, (index,) in row.items():
            joined.setdefault(axis, []).append(index)
    return {**joined}


# ---- the launch --------------------------------------------------------------------------


class _Written(NamedTuple):
    """The memory that a launch writes: bytes from one position to the next, by axis.

    letter      the axis of samples
    coef        the axis of the coefficients of the epilogue, if they differ
    """

    array: DeviceArray
    move: Permutation
    letter: str
    steps: dict[str, int]
    epilogue: Epilogue | None
    coef: str | None


def _describe_written(plan: Plan, result: DeviceArray, letter: str, is_converted: bool) -> _Written:
    """Return the memory that a launch writes: converted windows, or windows as they are."""
    move = plan.move
    if not is_converted:
        sides = move.source.groups, move.axes, move.sizes
        steps = byte_strides(*sides, result.strides)
        return _Written(result, move, letter, dict(zip(move.axes, steps, strict=True)), None, None)
    sides = move.target.groups, move.target_axes, move.target_sizes
    steps = byte_strides(*sides, result.strides)
    epilogue = plan.epilogue
    coefficients = None if epilogue is None else epilogue.coefficients
    varies = coefficients is not None and len(coefficients.factor) > 1
    coef = plan.formula.letter(move) if varies and plan.formula is not None else None
    return _Written(
        result, move, letter, dict(zip(move.target_axes, steps, strict=True)), epilogue, coef
    )


class Table:
    """Bytes for a GPU, each part at a multiple of _ALIGNMENT; offset 0 means no part."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._nbytes = 0
        self.add(bytes(_ALIGNMENT))

    def add(self, part: bytes) -> int:
        offset = self._nbytes
        self._parts.append(part + bytes(-len(part) % _ALIGNMENT))
        self._nbytes += len(self._parts[-1])
        return offset

    @property
    def next_offset(self) -> int:
        return self._nbytes

    def array(self) -> Array:
        return np.frombuffer(b"".join(self._parts), np.uint8)


class _AxisExtent(NamedTuple):
    """The size of an axis and of the axes nested in it."""

    name: str
    axis: int
    size: int
    inner: int


def _list_axis_extents(
    axes: SampleAxes, window: tuple[int, ...], sizes: dict[str, int]
) -> list[_AxisExtent]:
    """Return the extents of samples. Only axes of one letter are cropped, resized or flipped."""
    extents = []
    for axis, (group, size) in enumerate(zip(axes.sample.groups, window, strict=True)):
        for number, name in enumerate(group):
            inner = prod(sizes[other] for other in group[number + 1 :])
            extents.append(_AxisExtent(name, axis, sizes[name] if len(group) > 1 else size, inner))
    return extents


def _prepare_launch(
    axes: SampleAxes,
    samples: Samples,
    reads: Reads,
    fill: Array,
    written: _Written,
    ignored: Ignored | None,
    is_float: bool,
) -> tuple[CudaLaunch, Array, int]:
    """Return the launch that writes the windows of samples, its table, and the base address.

    `is_float`: samples are resized as floats.
    """
    with fork.init_lock:
        from ..kernels.cuda.collate import WindowAxis

    window = reads.placements.window
    sizes = dict(zip(written.move.axes, written.move.sizes, strict=True))
    extents = _list_axis_extents(axes, window, sizes)
    parts = {
        number: (x.size, x.inner)
        for number, x in enumerate(extents)
        if x.size != window[x.axis] or x.inner > 1
    }
    fills = make_fill_of_samples(axes, reads.placements, fill)
    return prepare_launch(
        samples,
        reads,
        [x.axis for x in extents],
        parts,
        fills,
        [_window_axes(axes, reads, written, extents, has_channel_fill=len(fill) > 1)],
        WindowAxis(
            len(samples.addresses),
            written.steps[written.letter],
            int(written.letter == written.coef),
            len(fill) if len(fills) > len(fill) else 0,
        ),
        written.array,
        written.epilogue,
        ignored,
        is_float=is_float,
    )


def prepare_launch(
    samples: Samples,
    reads: Reads,
    columns: Sequence[int],
    parts: Mapping[int, tuple[int, int]],
    fills: Array,
    windows: Sequence[Sequence[WindowAxis]],
    along: WindowAxis,
    out: DeviceArray,
    epilogue: Epilogue | None,
    ignored: Ignored | None,
    places: Sequence[int] | None = None,
    *,
    is_float: bool,
) -> tuple[CudaLaunch, Array, int]:
    """Return the launch that writes windows to `out`, its table, and the base address.

    Parameters
    ----------
    columns : the axis of samples that each axis of a window belongs to
    parts : of axes of windows that are a part of an axis of samples, by number: the length, and
        the number of positions of the parts that are nested in it
    fills : the fill values in the order of windows
    windows, along, places : `windows`, `samples` and `places` of `prepare_collate`
    is_float : samples are resized as floats
    """
    with fork.init_lock:
        from ..kernels.cuda.collate import SampleTable, prepare_collate
        from ..kernels.cuda.launch import Side

    table = Table()
    fill_offset = table.add(fills.tobytes())
    base = int(samples.addresses.min())
    starts, sides, heads = make_sides(samples, reads, columns, table)
    for number, (length, inner) in parts.items():
        sides[:, number, 0] *= inner
        sides[:, number, 2] = length
    item, epilogue = kernel_items(samples.dtype, epilogue, is_float, ignored)
    launch, packed = prepare_collate(
        windows,
        along,
        SampleTable(
            samples.dtype.itemsize,
            starts - base,
            sides,
            heads,
            table.next_offset,
            fill_offset,
            samples.alignment(),
            reads.is_inside,
            find_pixel_order(samples, reads, columns),
            reads.has_gaps,
            ignored,
        ),
        item,
        epilogue,
        Side(out.dtype.itemsize, out.address),
        places,
        is_float=is_float,
    )
    table.add(packed)
    return launch, table.array(), base


def kernel_items(
    source: DType, epilogue: Epilogue | None, is_float: bool, ignored: Ignored | None
) -> tuple[str, Epilogue | None]:
    """Return the name of the items that a kernel reads from samples, and its epilogue."""
    if is_float:
        summed = kernel_dtype_name(choose_summed_dtype(source))
        return kernel_dtype_name(source), epilogue or Epilogue(summed, summed)
    if ignored is not None:  # items are compared, also where they are only moved
        name = kernel_dtype_name(source)
        return name, epilogue or Epilogue(name, name)
    return f"m{source.itemsize}" if epilogue is None else epilogue.source, epilogue


def _window_axes(
    axes: SampleAxes,
    reads: Reads,
    written: _Written,
    extents: list[_AxisExtent],
    *,
    has_channel_fill: bool,
) -> list[WindowAxis]:
    """Return the axes of a window, as `prepare_collate` accepts them."""
    with fork.init_lock:
        from ..kernels.cuda.collate import WindowAxis

    return [
        WindowAxis(
            extent.size,
            written.steps.get(extent.name, 0),
            int(extent.name == written.coef),
            int(has_channel_fill and axes.sample.name(extent.name) == CHANNEL),
            extent.axis in reads.resized,
        )
        for extent in extents
    ]


def make_fill_of_samples(axes: SampleAxes, placements: Placements, fill: Array) -> Array:
    """Return the fill values in the order of windows: common ones, or each sample's in turn."""
    channel = axes.axis_indices.get(CHANNEL)
    if len(fill) == 1 or channel is None or not placements.flips[:, channel].any():
        return fill
    return np.where(placements.flips[:, channel, None], fill[::-1], fill).ravel()


def make_sides(
    samples: Samples, reads: Reads, axes: Sequence[int], table: Table
) -> tuple[Array, Array, dict[int, Sequence[Array]]]:
    """Return the starts, sides and heads of samples (see SampleTable), for axes of the samples.

    What they refer to is added to the table.
    """
    begins = reads.begins.copy()
    begins[:, [*reads.maps]] = 0
    steps = reads.steps.copy()
    steps[:, [*reads.maps]] = 1
    low = np.where(steps < 0, begins - samples.shapes + 1, -begins)
    high = np.where(steps < 0, begins + 1, samples.shapes - begins)
    is_spaced = np.abs(steps) != 1  # selected channels, which all exist
    low = np.where(is_spaced, 0, low)
    high = np.where(is_spaced, window_sizes(reads.placements), high)
    tables = np.zeros((3, *begins.shape), np.int64)  # of positions and taps, and bytes of taps
    heads: dict[int, Sequence[Array]] = {}
    for axis, maps in reads.maps.items():
        offset = table.add(np.concatenate(maps).tobytes())
        tables[0, :, axis] = offset + 8 * _starts_of([len(row) for row in maps])
    for axis in reads.resized:
        rows, counts, numbers = _make_tap_rows(reads, axis, choose_summed_dtype(samples.dtype))
        first_rows = _starts_of(counts)
        tables[1, :, axis] = table.add(rows.tobytes()) + rows.strides[0] * first_rows[numbers]
        tables[2, :, axis] = rows.strides[0]
        firsts = rows.view(np.int32)[:, :POSITION]
        if len({*counts}) == 1:
            heads[axes.index(axis)] = [firsts.reshape(len(counts), -1, POSITION)[numbers]]
        else:
            parts = np.split(firsts, first_rows[1:])
            heads[axes.index(axis)] = [parts[number][None] for number in numbers.tolist()]
    fields = samples.strides * steps, low, high, *tables
    sides = np.stack(fields, -1)[:, axes]
    starts = samples.addresses + (begins * samples.strides).sum(1), *samples.spans()
    return np.stack(starts, 1), sides, heads


def find_pixel_order(samples: Samples, reads: Reads, axes: Sequence[int]) -> PixelOrder | None:
    """Return the channel order of pixels that are read whole; None if they are large or differ."""
    if reads.channels is None:
        return None
    axis, order = reads.channels
    items = {*samples.shapes[:, axis].tolist()}
    numbers = [n for n, other in enumerate(axes) if other == axis]
    if len(items) > 1 or len(numbers) > 1 or not 1 < len(order) <= _MOST_ITEMS:
        return None
    with fork.init_lock:
        from ..kernels.cuda.collate import PixelOrder
    (count,), (number,) = items, numbers
    if count > min(_MOST_ITEMS, 2 * len(order)) or order == tuple(range(count)):
        return None
    strides = samples.strides[:, axis]
    shifts = 0 * strides if axis in reads.maps else reads.begins[:, axis] * strides
    return PixelOrder(number, order, count, shifts, strides)


def _starts_of(counts: Sequence[int]) -> Array:
    """Return the first position of each part of these lengths."""
    return np.cumsum([0, *counts[:-1]])


def _make_tap_rows(reads: Reads, axis: int, summed: DType) -> tuple[Array, list[int], Array]:
    """Return the distinct tap tables of samples along an axis, one after the other.

    Tables have a row for each position: the first tap and the number of taps as int32 in the first
    TAP_HEAD_BYTES, and weights of the dtype `summed` in whole groups of four, which a GPU reads
    together. Also return the number of rows of each table, and the table of each sample, or of all.
    """
    tables = reads.make_taps(axis, summed)
    memory, (addresses,), (numbers,) = tables.memory, tables.addresses, tables.numbers
    starts, sizes = np.zeros((2, numbers.max() + 1), np.int64)
    starts[numbers] = addresses
    sizes[numbers] = window_sizes(reads.placements)[: len(numbers), axis]
    counts = sizes.tolist()
    if len({*counts}) == 1:
        parts = [memory.reshape(len(counts), -1)]
    else:
        parts = [part[None] for part in np.split(memory, (starts[1:] - starts[0]).tolist())]
    heads, weights = [], []
    for part, count in zip(parts, counts, strict=False):
        _, head, weight = np.split(part, [8 * HEAD, 8 * HEAD + 8 * POSITION * count], 1)
        heads.append(head.ravel())
        weights.append(weight.ravel())
    total = sum(counts)
    values = np.concatenate(weights).view(summed).reshape(total, -1)
    before = TAP_HEAD_BYTES // summed.itemsize
    taps = values.shape[1]
    rows = np.zeros((total, before + -(-taps // 4) * 4), summed)
    rows.view(np.int32)[:, :POSITION] = np.concatenate(heads).view(np.int64).reshape(total, -1)
    rows[:, before : before + taps] = values
    return rows, counts, numbers


class _TableUpload:
    """The copy of a table to a GPU, with the launch that reads it as its conversion."""

    def __init__(self, table: Array, launch: Conversion) -> None:
        self.nbytes = table.nbytes
        self.program = launch

    def pieces(self, x: Array) -> Iterator[tuple[int, int, Fill]]:
        for start in range(0, self.nbytes, STAGING_BYTES):
            part = x[start : start + STAGING_BYTES]
            yield start, start + part.nbytes, partial(np.copyto, src=part)

    def at(
        self, address: int, shape: tuple[int, ...], ordinal: int, owner: Any = None
    ) -> DeviceArray:
        return DeviceArray(address, shape, (1,), np.dtype(np.uint8), ordinal, owner)

"""Resize windows of samples on a GPU into one array, which is then converted as one batch.

`layoutkit.cpu.resize` does this on the CPU, with the same placement and weights. Each resized axis
is resampled in one launch for all samples, outermost first, through float32 memory; other dtypes
than the CPU averages are moved. The tables of all launches are uploaded together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._utils import fork
from ..cpu.resize import EXACT, F4, AxisPlacement, check_resizable, tap_tables
from ..errors import DtypeError, ShapeError
from ..memory import Array, contiguous_strides, data_pointer
from ..normalize import CHANNEL
from ..planning.collate import (
    CollateOptions,
    SampleAxes,
    fill_array_of,
    parse_per_sample,
    place_resized,
    select_channel_sizes,
)
from ..planning.crops import CropArgs
from ..planning.resize import Placements, ResizeOptions
from ..spec import DType
from .memory import DeviceAdapter, DeviceArray
from .program import aligned, check_compiled
from .runtime import runtime
from .transfers import to_device

if TYPE_CHECKING:
    from ..kernels.cuda.resize import SamplePass

_ALIGNMENT = 16  # bytes, of everything in a table
_MOVED_BYTES = (1, 2, 4, 8, 16)
_MOST = (1 << 31) - 1  # elements of a sample, or of its window


class _Table:
    """Bytes for a GPU, each part at a multiple of _ALIGNMENT; offset 0 stands for no part."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._nbytes = 0
        self.add(bytes(_ALIGNMENT))

    def add(self, part: bytes) -> int:
        """Add a part and return its offset."""
        offset = self._nbytes
        self._parts.append(part + bytes(-len(part) % _ALIGNMENT))
        self._nbytes += len(self._parts[-1])
        return offset

    @property
    def next_offset(self) -> int:
        """The offset of the next part."""
        return self._nbytes

    def array(self) -> Array:
        """Return all parts."""
        return np.frombuffer(b"".join(self._parts), np.uint8)


class _Tables(NamedTuple):
    """Offsets in the table of a batch: a row per sample, a column per axis.

    positions       tables of positions
    taps            tap tables
    fill            the fill values: one offset
    fill_axis       the axis along which fill values differ, if any
    """

    positions: Array
    taps: Array
    fill: int
    fill_axis: int | None


class _Pass(NamedTuple):
    """One launch: its samples, the resampled axis, and the bytes of its output.

    is_bounded      whether positions lie outside of samples
    """

    samples: list[SamplePass]
    axis: int
    nbytes: int
    is_bounded: bool


def resized_dtype(resize: ResizeOptions, source: DType) -> DType:
    """Return the dtype of resized windows; raise DtypeError if samples cannot be resized."""
    name = check_resizable(resize, source)
    if resize.filter != "nearest" or name in EXACT:
        return F4
    if source.itemsize not in _MOVED_BYTES:
        raise DtypeError(f"samples have dtype {source}, whose items a GPU does not move")
    return source


@dataclass(frozen=True)
class Resizing:
    """The windows of samples, resized into `batch`, whose sample axis has the given index."""

    options: CollateOptions
    axes: SampleAxes
    window: tuple[int, ...]
    samples: Sequence[DeviceArray]
    batch: DeviceArray
    sample_axis: int
    adapter: DeviceAdapter

    def run(self, crops: CropArgs) -> None:
        """Launch a kernel for each resized axis; raise before that if a crop does not fit."""
        shapes = np.array([sample.shape for sample in self.samples], np.int64)
        lengths = select_channel_sizes(self.options, self.axes, shapes)
        resized, placements = place_resized(self.options, self.axes, lengths, crops)
        flips = parse_per_sample("flip", crops.flip, self.axes.places(), len(self.samples))
        table = _Table()
        tables = self._tables(resized, placements, flips, table)
        with runtime().on(self.batch.ordinal):
            samples = [x if x.is_aligned else aligned(x, self.adapter) for x in self.samples]
            passes = list(self._passes(samples, resized, placements, tables))
            self._launch(samples, passes, tables, table)

    def _tables(
        self,
        resized: list[int],
        placements: Placements,
        flips: dict[int, Array],
        table: _Table,
    ) -> _Tables:
        """Add fill values, positions and taps to the table."""
        source = self.samples[0].dtype
        fill = fill_array_of(self.options, self.axes, self.window, source)
        channel = self.axes.places().get(CHANNEL) if len(fill) > 1 else None
        return _Tables(
            self._positions(flips, table),
            self._taps(resized, placements, flips, table),
            table.add(fill.astype(self.batch.dtype).tobytes()),
            channel,
        )

    def _positions(self, flips: dict[int, Array], table: _Table) -> Array:
        """Return the offsets of tables of positions, for selected channels and flipped axes."""
        count = len(self.samples)
        offsets = np.zeros((count, len(self.window)), np.int64)
        channel = self.axes.places().get(CHANNEL)
        for axis, name in enumerate(self.axes.cropped_names):
            if name is not None:
                continue
            order = np.arange(self.window[axis])
            if axis == channel and self.options.channels is not None:
                order = np.array(self.options.channels, np.int64)
                offsets[:, axis] = table.add(order.tobytes())
            if axis in flips:
                is_flipped = np.broadcast_to(flips[axis] != 0, (count,))
                offsets[is_flipped, axis] = table.add(order[::-1].tobytes())
        return offsets

    def _taps(
        self, resized: list[int], placements: Placements, flips: dict[int, Array], table: _Table
    ) -> Array:
        """Return the offsets of the tap tables."""
        count = len(self.samples)
        offsets = np.zeros((count, len(self.window)), np.int64)
        along = [
            AxisPlacement(
                self.window[axis],
                placements.sizes[:, column],
                placements.scaled[:, column],
                placements.firsts[:, column],
                np.broadcast_to(flips.get(axis, 0), (count,)) != 0,
            )
            for column, axis in enumerate(resized)
        ]
        memory, addresses, _ = tap_tables(self._resize, along)
        start = table.add(memory.tobytes()) - data_pointer(memory)
        for axis, rows in zip(resized, addresses, strict=True):
            offsets[:, axis] = rows + start
        return offsets

    @property
    def _resize(self) -> ResizeOptions:
        if self.options.resize is None:
            raise RuntimeError("samples are not resized")
        return self.options.resize

    def _passes(
        self,
        samples: Sequence[DeviceArray],
        resized: list[int],
        placements: Placements,
        tables: _Tables,
    ) -> Iterator[_Pass]:
        """Yield the launches; addresses of samples are relative to the lowest one."""
        with fork.init_lock:
            from ..kernels.cuda.resize import SampleAxis, SamplePass

        base = min(sample.address for sample in samples)
        sources = [(sample.address - base, sample.strides) for sample in samples]
        sizes = np.array([sample.shape for sample in samples])
        counts = np.tile(np.array(self.window), (len(samples), 1))
        counts[:, resized] = placements.sizes
        begins = np.zeros_like(counts)
        begins[:, resized] = placements.begins
        positions = tables.positions
        for axis in resized:
            outside = (begins < 0) | (begins + counts > sizes)
            counts = counts.copy()
            counts[:, axis] = self.window[axis]
            _check_sizes(counts)
            if axis == resized[-1]:
                targets, nbytes = _windows_in(self.batch, self.sample_axis)
            else:
                targets, nbytes = _in_turn(counts.tolist(), self.batch.dtype)
            rows = zip(sources, targets, counts, begins, sizes, positions, tables.taps, strict=True)
            passed = [
                SamplePass(
                    source[0],
                    target[0],
                    tuple(map(SampleAxis, *_columns(source[1], target[1], *numbers))),
                )
                for source, target, *numbers in rows
            ]
            yield _Pass(passed, axis, nbytes, bool(outside[:, resized].any()))
            sources, sizes, begins, positions = targets, counts, begins * 0, positions * 0

    def _launch(
        self,
        samples: Sequence[DeviceArray],
        passes: Sequence[_Pass],
        tables: _Tables,
        table: _Table,
    ) -> None:
        """Upload the table and launch the passes, through temporary memory."""
        with fork.init_lock:
            from ..kernels.cuda.resize import prepare_pass

        names = _kernel_names(samples[0].dtype, self.batch.dtype)
        ordinal, adapter = self.batch.ordinal, self.adapter
        stream = adapter.stream(ordinal)
        launches = []
        for number, one in enumerate(passes):
            launch, packed = prepare_pass(
                one.samples,
                names if number == 0 else (names[1], names[1]),
                one.axis,
                table.next_offset,
                (tables.fill_axis, tables.fill),
                is_bounded=one.is_bounded,
                is_last=one is passes[-1],
            )
            table.add(packed)
            check_compiled(launch, ordinal, stream, "a resizing Collator")
            launches.append(launch)
        uploaded = adapter.device_array_of(to_device(table.array(), self.batch.device, adapter))
        source = min(samples, key=lambda sample: sample.address)
        for launch, one in zip(launches, passes, strict=True):
            target = self.batch
            if one is not passes[-1]:
                target = adapter.empty_temporary((one.nbytes,), np.dtype(np.uint8), ordinal)
            kernel = runtime().load(launch, ordinal)
            pointers = target.address, uploaded.address, source.address
            runtime().launch(kernel, pointers, stream)
            source = target


def _columns(source: Sequence[int], target: Sequence[int], *rows: Array) -> list[Sequence[int]]:
    """Return the fields of a sample's axes, each for all axes."""
    counts, *others = (row.tolist() for row in rows)
    return [counts, source, target, *others]


def _windows_in(batch: DeviceArray, sample_axis: int) -> tuple[list[Any], int]:
    """Return the offset and strides of each window in the batch, and the batch's bytes."""
    strides = list(batch.strides)
    step = strides.pop(sample_axis)
    return [(number * step, strides) for number in range(batch.shape[sample_axis])], 0


def _in_turn(shapes: list[list[int]], dtype: DType) -> tuple[list[Any], int]:
    """Return the offset and strides of arrays of these shapes, one after another, and all bytes."""
    ends = [0, *accumulate(prod(shape) * dtype.itemsize for shape in shapes)]
    strides = (contiguous_strides(tuple(shape), dtype) for shape in shapes)
    return list(zip(ends, strides, strict=False)), ends[-1]


def _check_sizes(counts: Array) -> None:
    wrong = np.flatnonzero(counts.prod(1) > _MOST)
    if wrong.size:
        number = int(wrong[0])
        raise ShapeError(
            f"sample {number} has {counts[number].prod()} elements while it is resized, and a GPU "
            f"resizes at most {_MOST}; crop it, or resize it on the CPU"
        )


def _kernel_names(source: DType, target: DType) -> tuple[str, str]:
    """Return the kernels' names of the dtypes of samples and of windows."""
    if target != F4:
        return f"m{target.itemsize}", f"m{target.itemsize}"
    name = check_resizable(ResizeOptions("nearest"), source)
    return name, "f4"

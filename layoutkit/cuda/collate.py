"""Gather windows of samples on a GPU into one array, which is then converted as one batch.

`layoutkit.cpu.collate` does this on the CPU. Conversion kernels copy a window, with one launch for
its part inside of the sample and one for each border of padding. All launches are asynchronous.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import numpy as np

from ..layout.parsing import identity_pattern
from ..memory import Array
from ..normalize import CHANNEL
from ..planning.collate import (
    CollateOptions,
    SampleAxes,
    check_same_rank_and_dtype,
    check_windows_inside,
    fill_array_of,
    normalize_indices,
    resolve_crops,
    select_channel_sizes,
)
from ..planning.crops import CropArgs
from ..planning.options import parse_options
from ..planning.padding import PaddedRegion
from ..spec import DType
from .memory import DeviceAdapter, DeviceArray, check_same_device, check_writable
from .program import DevicePrograms
from .resize import Resizing, resized_dtype
from .runtime import runtime
from .transfers import to_device


class DeviceCollateProgram:
    """The GPU program of a Collator, which gathers windows of samples into one array."""

    def __init__(self, options: CollateOptions) -> None:
        self._options = options
        self._programs: dict[int, DevicePrograms] = {}  # by rank

    def __call__(
        self,
        arrays: Sequence[DeviceArray],
        indices: Any,
        crops: CropArgs,
        out: DeviceArray | None,
        adapter: DeviceAdapter,
    ) -> DeviceArray:
        """Return the windows in one array, whose sample axis has its index in the pattern."""
        options = self._options
        first = arrays[0]
        for number, array in enumerate(arrays):
            name = "x" if options.whole else f"sample {number}"
            check_same_device(first, "x" if options.whole else "sample 0", array.device, name)
            if out is not None:
                check_writable(array, out, name)
        check_same_rank_and_dtype([(array.shape, array.dtype) for array in arrays])
        samples, axes, sample_axis = self._samples(arrays, indices)
        shapes = np.array([array.shape for array in (samples or arrays)], np.int64)
        if not samples:
            shapes = np.delete(shapes, sample_axis, axis=1)
        window = axes.window(options, shapes)
        if options.resize is not None:
            dtype = resized_dtype(options.resize, first.dtype)
            batch = _empty_batch(window, len(samples), sample_axis, dtype, first, adapter)
            if batch.size:
                Resizing(options, axes, window, samples, batch, sample_axis, adapter).run(crops)
            return batch
        sizes = select_channel_sizes(options, axes, shapes)
        cropped = resolve_crops(options, axes, sizes, np.array(window), crops, len(samples))
        outside = (cropped.starts < 0) | (cropped.starts + np.array(window) > sizes)
        pixel = fill_array_of(options, axes, window, first.dtype)
        if options.fill is None:
            check_windows_inside(axes, cropped.starts, sizes, window, outside)
        batch = _empty_batch(window, len(samples), sample_axis, first.dtype, first, adapter)
        if not batch.size:
            return batch
        tables = (
            np.broadcast_to(table, (len(samples), len(window))) for table in (*cropped, sizes)
        )
        with runtime().on(batch.ordinal):
            fill = self._fill_on_device(pixel, axes, batch, adapter) if outside.any() else None
            for number, (sample, *rows) in enumerate(zip(samples, *tables, strict=True)):
                starts, flips, lengths = (row.tolist() for row in rows)
                target = _flip_axes(_select_index(batch, sample_axis, number), flips)
                pieces = self._window_pieces(axes, sample, starts, lengths, window, fill)
                for source, region in pieces:
                    self._copy(source, _crop(target, region), adapter)
        return batch

    def _samples(
        self, arrays: Sequence[DeviceArray], indices: Any
    ) -> tuple[list[DeviceArray], SampleAxes, int]:
        """Return the selected samples, their axes, and the index of the sample axis."""
        options = self._options
        first = arrays[0]
        if not options.whole:
            return [*arrays], options.completed(len(first.shape)), 0
        options.check_batch_rank(first.shape)
        axes = options.completed(len(first.shape) - 1)
        sample_axis = axes.pattern.source.groups.index(options.letter)
        numbers = normalize_indices(indices, first.shape[sample_axis]).tolist()
        samples = [_select_index(first, sample_axis, number) for number in numbers]
        return samples, axes, sample_axis

    def _fill_on_device(
        self, pixel: Array, axes: SampleAxes, batch: DeviceArray, adapter: DeviceAdapter
    ) -> DeviceArray:
        """Return the fill values on the GPU, broadcast with stride 0."""
        device_pixel = adapter.device_array_of(to_device(pixel, batch.device, adapter))
        ndim = len(axes.sample.groups)
        channel = axes.places().get(CHANNEL)
        strides = [0] * ndim
        if len(pixel) > 1 and channel is not None:
            strides[channel] = pixel.itemsize
        return replace(device_pixel, shape=(1,) * ndim, strides=tuple(strides))

    def _window_pieces(
        self,
        axes: SampleAxes,
        sample: DeviceArray,
        starts: list[int],
        sizes: list[int],
        window: tuple[int, ...],
        fill: DeviceArray | None,
    ) -> Iterator[tuple[DeviceArray, tuple[slice, ...]]]:
        """Yield (source, region of the window) for the inside of a window and its padding."""
        spans = zip(starts, sizes, window, strict=True)
        ends = [(min(max(-b, 0), w), min(max(n - b, 0), w)) for b, n, w in spans]
        inner = tuple(slice(first, max(first, last)) for first, last in ends)
        source_region = tuple(
            slice(part.start + start, part.stop + start)
            for part, start in zip(inner, starts, strict=True)
        )
        if self._options.channels is None:
            yield _crop(sample, source_region), inner
        else:
            channel = axes.places()[CHANNEL]
            for first, step, channel_slice in _even_runs(self._options.channels):
                selected = _slice_axis(sample, channel, first, step)
                channel_region = (
                    *source_region[:channel],
                    slice(0, channel_slice.stop - channel_slice.start),
                    *source_region[channel + 1 :],
                )
                yield (
                    _crop(selected, channel_region),
                    (*inner[:channel], channel_slice, *inner[channel + 1 :]),
                )
        if fill is not None:
            for border in PaddedRegion(window, window, inner).borders():
                yield _crop(fill, border), border

    def _copy(self, source: DeviceArray, target: DeviceArray, adapter: DeviceAdapter) -> None:
        """Copy a piece on the stream of the adapter."""
        if not target.size:
            return
        if not target.shape:
            source, target = (replace(side, shape=(1,), strides=(0,)) for side in (source, target))
        ndim = len(target.shape)
        programs = self._programs.get(ndim)
        if programs is None:
            task = parse_options(identity_pattern(ndim), copy=True)
            programs = self._programs.setdefault(ndim, DevicePrograms(task))
        programs.find(source, target)(source, target, adapter)


def _empty_batch(
    window: tuple[int, ...],
    count: int,
    sample_axis: int,
    dtype: DType,
    first: DeviceArray,
    adapter: DeviceAdapter,
) -> DeviceArray:
    """Return memory for the windows of `count` samples, on the GPU of the first one."""
    adapter.check(first.dtype)
    shape = (*window[:sample_axis], count, *window[sample_axis:])
    return adapter.empty(shape, dtype, first.ordinal)


def _select_index(array: DeviceArray, axis: int, index: int) -> DeviceArray:
    """Return the array at one index of an axis, without that axis."""
    shape, strides = (side[:axis] + side[axis + 1 :] for side in (array.shape, array.strides))
    address = array.address + index * array.strides[axis]
    return replace(array, address=address, shape=shape, strides=strides)


def _crop(array: DeviceArray, region: tuple[slice, ...]) -> DeviceArray:
    """Return a region of an array; each slice must have a start and a stop."""
    pairs = zip(region, array.strides, strict=True)
    address = array.address + sum(part.start * stride for part, stride in pairs)
    return replace(array, address=address, shape=tuple(p.stop - p.start for p in region))


def _flip_axes(array: DeviceArray, flips: list[bool]) -> DeviceArray:
    """Return the array with the axes reversed whose flag in `flips` is True."""
    axes = list(zip(array.shape, array.strides, flips, strict=True))
    address = array.address + sum(
        (size - 1) * stride for size, stride, is_flipped in axes if is_flipped
    )
    strides = tuple(-stride if is_flipped else stride for _, stride, is_flipped in axes)
    return replace(array, address=address, strides=strides)


def _even_runs(channels: Sequence[int]) -> Iterator[tuple[int, int, slice]]:
    """Yield each run of evenly spaced channels: first channel, step, and slice of the result."""
    start = 0
    while start < len(channels):
        rest = channels[start:]
        step = rest[1] - rest[0] if len(rest) > 1 else 1
        evenly_spaced = takewhile(lambda n: rest[n] == rest[0] + n * step, range(len(rest)))  # noqa: B023
        stop = start + sum(1 for _ in evenly_spaced)
        yield rest[0], step, slice(start, stop)
        start = stop


def _slice_axis(array: DeviceArray, axis: int, first: int, step: int) -> DeviceArray:
    """Return the array with every `step`-th index of an axis, from `first` on."""
    stride = array.strides[axis]
    strides = (*array.strides[:axis], stride * step, *array.strides[axis + 1 :])
    return replace(array, address=array.address + first * stride, strides=strides)

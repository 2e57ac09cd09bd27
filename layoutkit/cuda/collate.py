"""Gather windows of samples on a GPU into one array, to be converted as one batch.

`layoutkit.cpu.collate` is the CPU's counterpart. A window is an address and strides, and is copied
by the kernels of conversions, with one launch per piece. Everything is asynchronous.
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
from ..planning.options import parse_options
from ..planning.padding import PaddedRegion
from .memory import DeviceAdapter, DeviceArray, check_same_device, check_writable
from .program import DevicePrograms
from .runtime import runtime
from .transfers import to_device


class DeviceCollateProgram:
    """The GPU programs of a Collator: gathers windows of samples into one array."""

    def __init__(self, options: CollateOptions) -> None:
        self._options = options
        self._programs: dict[int, DevicePrograms] = {}  # by rank

    def __call__(
        self,
        arrays: Sequence[DeviceArray],
        indices: Any,
        offset: Any,
        flip: Any,
        out: DeviceArray | None,
        adapter: DeviceAdapter,
    ) -> DeviceArray:
        """Return the windows in one array, with the sample axis at its index in the pattern."""
        options = self._options
        first = arrays[0]
        for number, array in enumerate(arrays):
            name = "x" if options.whole else f"sample {number}"
            check_same_device(first, "x" if options.whole else "sample 0", array.device, name)
            if out is not None:
                check_writable(array, out, name)
        check_same_rank_and_dtype([(array.shape, array.dtype) for array in arrays])
        samples, axes, sample_axis = self._samples(arrays, indices)
        shapes = np.array([window_rows.shape for window_rows in (samples or arrays)], np.int64)
        if not samples:
            shapes = np.delete(shapes, sample_axis, axis=1)
        window = axes.window(options, shapes)
        sizes = select_channel_sizes(options, axes, shapes)
        cropped = resolve_crops(options, axes, sizes, np.array(window), offset, flip, len(samples))
        outside = (cropped.starts < 0) | (cropped.starts + np.array(window) > sizes)
        pixel = fill_array_of(options, axes, window, first.dtype)
        if options.fill is None:
            check_windows_inside(axes, cropped.starts, sizes, window, outside)
        adapter.check(first.dtype)
        batch = adapter.empty(
            (*window[:sample_axis], len(samples), *window[sample_axis:]), first.dtype, first.ordinal
        )
        if not batch.size:
            return batch
        rows_of = (
            np.broadcast_to(window_rows, (len(samples), len(window)))
            for window_rows in (*cropped, sizes)
        )
        with runtime().on(batch.ordinal):
            paint = self._paint(pixel, axes, batch, adapter) if outside.any() else None
            for number, (sample, *window_rows) in enumerate(zip(samples, *rows_of, strict=True)):
                begins, flips, of = (row.tolist() for row in window_rows)
                to = _flip_axes(_without(batch, sample_axis, number), flips)
                for source, region in self._window_pieces(axes, sample, begins, of, window, paint):
                    self._move(source, _part(to, region), adapter)
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
        return [_without(first, sample_axis, row) for row in numbers], axes, sample_axis

    def _paint(
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
        begins: list[int],
        sizes: list[int],
        window: tuple[int, ...],
        paint: DeviceArray | None,
    ) -> Iterator[tuple[DeviceArray, tuple[slice, ...]]]:
        """Yield (source, region of the window) for the inside and for the padding around it."""
        spans = zip(begins, sizes, window, strict=True)
        ends = [(min(max(-b, 0), w), min(max(n - b, 0), w)) for b, n, w in spans]
        inner = tuple(slice(start, max(start, stop)) for start, stop in ends)
        source_region = tuple(
            slice(p.start + b, p.stop + b) for p, b in zip(inner, begins, strict=True)
        )
        if self._options.channels is None:
            yield _part(sample, source_region), inner
        else:
            channel = axes.places()[CHANNEL]
            for first, step, channel_slice in _runs(self._options.channels):
                taken = _slice_axis(sample, channel, first, step)
                channel_region = (
                    *source_region[:channel],
                    slice(0, channel_slice.stop - channel_slice.start),
                    *source_region[channel + 1 :],
                )
                yield (
                    _part(taken, channel_region),
                    (*inner[:channel], channel_slice, *inner[channel + 1 :]),
                )
        if paint is not None:
            for border in PaddedRegion(window, window, inner).borders():
                yield _part(paint, border), border

    def _move(self, source: DeviceArray, to: DeviceArray, adapter: DeviceAdapter) -> None:
        """Copy a piece on the stream of the adapter."""
        if not to.size:
            return
        if not to.shape:
            source, to = (replace(side, shape=(1,), strides=(0,)) for side in (source, to))
        ndim = len(to.shape)
        programs = self._programs.get(ndim)
        if programs is None:
            task = parse_options(identity_pattern(ndim), copy=True)
            programs = self._programs.setdefault(ndim, DevicePrograms(task))
        programs.find(source, to)(source, to, adapter)


def _without(array: DeviceArray, axis: int, number: int) -> DeviceArray:
    """Return the array at one index of an axis, without that axis."""
    shape, strides = (side[:axis] + side[axis + 1 :] for side in (array.shape, array.strides))
    address = array.address + number * array.strides[axis]
    return replace(array, address=address, shape=shape, strides=strides)


def _part(array: DeviceArray, window: tuple[slice, ...]) -> DeviceArray:
    """Return a region of an array; slices must have both ends."""
    pairs = zip(window, array.strides, strict=True)
    address = array.address + sum(part.start * step for part, step in pairs)
    return replace(array, address=address, shape=tuple(p.stop - p.start for p in window))


def _flip_axes(array: DeviceArray, flips: list[bool]) -> DeviceArray:
    """Return the array with some axes reversed."""
    facts = list(zip(array.shape, array.strides, flips, strict=True))
    address = array.address + sum(
        (size - 1) * step for size, step, is_flipped in facts if is_flipped
    )
    strides = tuple(-step if is_flipped else step for _, step, is_flipped in facts)
    return replace(array, address=address, strides=strides)


def _runs(channels: Sequence[int]) -> Iterator[tuple[int, int, slice]]:
    """Yield runs of evenly spaced channels: start, step, and their slice of the result."""
    start = 0
    while start < len(channels):
        rest = channels[start:]
        step = rest[1] - rest[0] if len(rest) > 1 else 1
        evenly_spaced = takewhile(lambda n: rest[n] == rest[0] + n * step, range(len(rest)))  # noqa: B023
        stop = start + sum(1 for _ in evenly_spaced)
        yield rest[0], step, slice(start, stop)
        start = stop


def _slice_axis(array: DeviceArray, axis: int, first: int, step: int) -> DeviceArray:
    """Return the array with one axis starting at `first`, with a step of `step`."""
    stride = array.strides[axis]
    strides = (*array.strides[:axis], stride * step, *array.strides[axis + 1 :])
    return replace(array, address=array.address + first * stride, strides=strides)

"""Collate samples in the operations of their library, for libraries that record or trace.

Conversions of the stacked windows are then recorded by the library too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..memory import Array
from ..planning.collate import (
    CollateOptions,
    CropPlacement,
    check_windows_inside,
    fill_array_of,
    normalize_indices,
    resolve_crops,
    select_channel_sizes,
)
from .base import Adapter
from .dispatch import adapter_for_any
from .registry import backend_of, library_of
from .symbolic import ArrayNamespace


def choose_adapter(samples: Sequence[Any]) -> tuple[Adapter, Any, bool]:
    """Return the adapter that collates, its sample, and True if operations are recorded.

    The adapter is that of the first sample whose operations are recorded, else of the first. If
    they are recorded, windows must be built in the operations of that library.
    """
    adapters = [adapter_for_any(sample) for sample in samples]
    for adapter, sample in zip(adapters, samples, strict=True):
        if adapter.is_recorded(sample):
            return adapter, sample, True
    return adapters[0], samples[0], False


def numpy_views(samples: Sequence[Any]) -> list[Array] | None:
    """Return NumPy views of the samples if their library has a fast path to them, else None."""
    memory_of = getattr(backend_of(samples[0]), "numpy_views_of", None)
    memory: list[Array] | None = None if memory_of is None else memory_of(samples)
    return memory


def stack_windows(
    options: CollateOptions, samples: Sequence[Any], indices: Any, offset: Any, flip: Any, like: Any
) -> Any:
    """Return the windows of the samples, stacked as one array of the library of `like`."""
    adapter = adapter_for_any(like)
    batch_axis = 0
    if options.whole:
        shape = adapter.facts(like, "x")[0]
        options.check_batch_rank(shape)
        axes = options.completed(len(shape) - 1)
        batch_axis = axes.pattern.source.groups.index(options.letter)
        count = shape[batch_axis]
        samples = [
            samples[0][(slice(None),) * batch_axis + (int(index),)]
            for index in normalize_indices(indices, count)
        ]
        if not samples:
            raise ArgumentError("indices is empty, and samples are recorded; give one")
    samples = [_to_library(sample, adapter, like, n) for n, sample in enumerate(samples)]
    axes = options.completed(len(samples[0].shape))
    shapes = np.array([adapter.facts(sample, "a sample")[0] for sample in samples], np.int64)
    window = axes.window(options, shapes)
    sizes_in_sample = select_channel_sizes(options, axes, shapes)
    placement = resolve_crops(
        options, axes, sizes_in_sample, np.array(window), offset, flip, len(samples)
    )
    is_outside = (placement.starts < 0) | (placement.starts + np.array(window) > sizes_in_sample)
    pixel = fill_array_of(options, axes, window, adapter.facts(like, "sample 0")[1])
    if options.fill is None:
        check_windows_inside(axes, placement.starts, sizes_in_sample, window, is_outside)
    channel = axes.places().get("c")
    builder = _SymbolicWindows(adapter, like, pixel, channel)
    per_sample = (np.broadcast_to(fields, shapes.shape) for fields in placement)
    windows = [
        builder.window(sample, sizes, window, CropPlacement(*fields), options.channels)
        for sample, sizes, *fields in zip(
            samples, sizes_in_sample.tolist(), *per_sample, strict=True
        )
    ]
    return builder.xp.stack(windows, batch_axis)


def _to_library(sample: Any, adapter: Adapter, like: Any, number: int) -> Any:
    """Return a sample as an array of the library of `like`."""
    if type(adapter_for_any(sample)) is type(adapter) or library_of(sample) is library_of(like):
        return sample
    return adapter.from_numpy(adapter_for_any(sample).to_numpy(sample, f"sample {number}"), like)


class _SymbolicWindows:
    """A builder of windows in the operations of a library whose arrays support NumPy's slicing."""

    def __init__(self, adapter: Adapter, like: Any, pixel: Array, channel: int | None) -> None:
        library = library_of(like)
        package = type(like).__module__.partition(".")[0]
        self.xp: Any = getattr(library, "xp", sys.modules[package])
        self.adapter = adapter
        self.like = like
        self.pixel = pixel
        self.channel = channel

    def window(
        self,
        x: Any,
        sizes: list[int],
        window: tuple[int, ...],
        placement: CropPlacement,
        channels: tuple[int, ...] | None,
    ) -> Any:
        """Return one window of a sample that has `sizes` after channels were selected."""
        if channels is not None and self.channel is not None:
            x = x[(slice(None),) * self.channel + (np.array(channels),)]
        begins = placement.starts.tolist()
        spans = zip(begins, window, sizes, strict=True)
        inside = [
            (min(size, max(0, begin)), max(0, min(size, begin + width)))
            for begin, width, size in spans
        ]
        x = x[tuple(slice(*span) for span in inside)]
        shape = [stop - start for start, stop in inside]
        pads_before = [
            min(width, max(0, -begin)) for begin, width in zip(begins, window, strict=True)
        ]
        for axis in sorted(range(len(window)), key=lambda axis: axis == self.channel):
            before = pads_before[axis]
            after = window[axis] - before - shape[axis]
            channel_offset = 0 if self.channel is None else pads_before[self.channel]
            if axis == self.channel:
                parts = [(0, before), x, (window[axis] - after, after)]
            else:
                parts = [(channel_offset, before), x, (channel_offset, after)]
            if before or after:
                x = self._joined(parts, axis, shape)
            shape[axis] = window[axis]
        flipped_axes = tuple(np.flatnonzero(placement.flips).tolist())
        return self.xp.flip(x, flipped_axes) if flipped_axes else x

    def _constant(self, values: Array) -> Any:
        """Return a small NumPy array as an array of the library, on the device of the samples."""
        library = library_of(self.like)
        if isinstance(library, ArrayNamespace):
            return library.constant(values, self.like)
        return self.adapter.from_numpy(values, self.like)

    def _joined(self, parts: list[Any], axis: int, inside: list[int]) -> Any:
        """Return the array padded on both sides of `axis`.

        `parts` is (first channel, size) of the padding before, the array, and the padding after.
        """
        for side in (0, 2):
            channel, count = parts[side]
            shape = [*inside[:axis], count, *inside[axis + 1 :]]
            pixel = self.pixel
            if len(pixel) > 1 and self.channel is not None:
                pixel = pixel[channel : channel + shape[self.channel]]
            broadcast_shape = [1] * len(shape)
            if self.channel is not None:
                broadcast_shape[self.channel] = len(pixel)
            parts[side] = self.xp.broadcast_to(
                self._constant(pixel.reshape(broadcast_shape)), shape
            )
        return self.xp.concatenate(parts, axis)

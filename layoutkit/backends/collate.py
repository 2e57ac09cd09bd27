"""Collate samples with the operations of their own library, for libraries that record or trace.

The library then also records the conversion of the stacked windows.
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
    CropArgs,
    CropPlacement,
    check_windows_inside,
    fill_array_of,
    normalize_indices,
    resolve_crops,
    select_channel_sizes,
)
from .base import Adapter
from .dispatch import adapter_for_any
from .registry import backend_of, call_backend_hook, library_of
from .symbolic import ArrayNamespace


def choose_adapter(samples: Sequence[Any]) -> tuple[Adapter, Any, bool]:
    """Return the adapter to collate with, its sample, and True if operations are recorded.

    The adapter is that of the first sample whose operations are recorded, or else of the first
    sample. Recorded windows must be built with the operations of the adapter's library.
    """
    adapters = [adapter_for_any(sample) for sample in samples]
    for adapter, sample in zip(adapters, samples, strict=True):
        if adapter.is_recorded(sample):
            return adapter, sample, True
    return adapters[0], samples[0], False


def numpy_views(samples: Sequence[Any]) -> list[Array] | None:
    """Return NumPy views of the samples if their library has a fast path for that, else None."""
    views_of = getattr(backend_of(samples[0]), "numpy_views_of", None)
    views: list[Array] | None = None if views_of is None else views_of(samples)
    return views


def stack_windows(
    options: CollateOptions, samples: Sequence[Any], indices: Any, crops: CropArgs, like: Any
) -> Any:
    """Return the windows of the samples as one stacked array of the library of `like`."""
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
            raise ArgumentError(
                "indices is empty, but a recorded batch needs a sample; give an index"
            )
    samples = [_to_library(sample, adapter, like, n) for n, sample in enumerate(samples)]
    axes = options.completed(len(samples[0].shape))
    shapes = np.array([adapter.facts(sample, "a sample")[0] for sample in samples], np.int64)
    window = axes.window(options, shapes)
    sizes_in_sample = select_channel_sizes(options, axes, shapes)
    placement = resolve_crops(options, axes, sizes_in_sample, np.array(window), crops, len(samples))
    is_outside = (placement.starts < 0) | (placement.starts + np.array(window) > sizes_in_sample)
    fill = fill_array_of(options, axes, window, adapter.facts(like, "sample 0")[1])
    if options.fill is None:
        check_windows_inside(axes, placement.starts, sizes_in_sample, window, is_outside)
    channel = axes.places().get("c")
    builder = _SymbolicWindows(adapter, like, fill, channel)
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
    """A builder of windows with the operations of a library that slices arrays like NumPy."""

    def __init__(self, adapter: Adapter, like: Any, fill: Array, channel: int | None) -> None:
        package = type(like).__module__.partition(".")[0]
        xp = getattr(library_of(like), "xp", None) or call_backend_hook("array_namespace", like)
        self.xp: Any = xp or sys.modules[package]
        self.adapter = adapter
        self.like = like
        self.fill = fill
        self.channel = channel

    def window(
        self,
        x: Any,
        sizes: list[int],
        window: tuple[int, ...],
        placement: CropPlacement,
        channels: tuple[int, ...] | None,
    ) -> Any:
        """Return one window of the sample `x`, which has `sizes` after channels are selected."""
        if channels is not None and self.channel is not None:
            x = x[(slice(None),) * self.channel + (np.array(channels),)]
        starts = placement.starts.tolist()
        overlaps = [
            (min(size, max(0, start)), max(0, min(size, start + width)))
            for start, width, size in zip(starts, window, sizes, strict=True)
        ]
        x = x[tuple(slice(*overlap) for overlap in overlaps)]
        shape = [stop - start for start, stop in overlaps]
        pads_before = [
            min(width, max(0, -start)) for start, width in zip(starts, window, strict=True)
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
                x = self._padded(parts, axis, shape)
            shape[axis] = window[axis]
        flipped_axes = tuple(np.flatnonzero(placement.flips).tolist())
        return self.xp.flip(x, flipped_axes) if flipped_axes else x

    def _constant(self, values: Array) -> Any:
        """Return a small NumPy array as an array of the library, on the device of the samples."""
        library = library_of(self.like)
        if isinstance(library, ArrayNamespace):
            return library.constant(values, self.like)
        return self.adapter.from_numpy(values, self.like)

    def _padded(self, parts: list[Any], axis: int, sizes: list[int]) -> Any:
        """Return an array of `sizes`, padded before and after along `axis`.

        `parts` is [padding before, array, padding after]; a padding is (first channel, size).
        """
        for side in (0, 2):
            channel, count = parts[side]
            shape = [*sizes[:axis], count, *sizes[axis + 1 :]]
            fill = self.fill
            if len(fill) > 1 and self.channel is not None:
                fill = fill[channel : channel + shape[self.channel]]
            broadcast_shape = [1] * len(shape)
            if self.channel is not None:
                broadcast_shape[self.channel] = len(fill)
            constant = self._constant(fill.reshape(broadcast_shape))
            parts[side] = self.xp.broadcast_to(constant, shape)
        return self.xp.concatenate(parts, axis)

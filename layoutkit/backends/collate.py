"""Collate samples with the operations of their own library, for libraries that record or trace.

The library then also records the conversion of the stacked windows.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._utils.validation import type_name
from ..cpu.program import supports_float16
from ..errors import ArgumentError
from ..memory import Array, in_native_order
from ..normalize import CHANNEL
from ..options import CollateOptions, ConvertOptions
from ..planning.batch.arguments import CropArgs, normalize_indices
from ..planning.batch.layout import fill_array_of
from ..planning.batch.placement import place
from ..planning.batch.samples import SampleAxes
from ..planning.batch.weights import converted_options, moves_items, nearest_positions, summed_dtype
from ..planning.resize import ResizeOptions
from ..spec import DType
from ..taps import axis_taps
from .base import Adapter
from .dispatch import adapter_for_any
from .registry import backend_of, call_backend_hook, library_of
from .symbolic import ArrayNamespace


def choose_adapter(samples: Sequence[Any]) -> tuple[list[Adapter], int, bool]:
    """Return all adapters, the number of the one to collate with, and if operations are recorded.

    The adapter belongs to the first sample whose operations are recorded, or else to the first
    sample. Recorded windows must be built with the operations of the adapter's library.
    """
    adapters = [adapter_for_any(sample) for sample in samples]
    for number, (adapter, sample) in enumerate(zip(adapters, samples, strict=True)):
        if adapter.is_recorded(sample):
            return adapters, number, True
    return adapters, 0, False


def numpy_views(samples: Sequence[Any]) -> list[Array] | None:
    """Return NumPy views of the samples if their library has a fast path for that, else None."""
    views_of = getattr(backend_of(samples[0]), "numpy_views_of", None)
    views: list[Array] | None = None if views_of is None else views_of(samples)
    return views


def stack_windows(
    options: CollateOptions, samples: Sequence[Any], indices: Any, crops: CropArgs, like: Any
) -> tuple[Any, ConvertOptions]:
    """Return the windows of the samples as one array of the library of `like`.

    Also return the options of the conversion of that array to the batch.
    """
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
    axes = options.completed(len(samples[0].shape), tuple(samples[0].shape))
    shapes = np.array([adapter.facts(sample, "a sample")[0] for sample in samples], np.int64)
    dtype = adapter.facts(like, "sample 0")[1]
    builder = _SymbolicWindows(options, axes, adapter, like, dtype)
    if options.resize is not None:
        builder = _ResizedWindows(options, options.resize, axes, adapter, like, dtype)
    windows = builder.windows(samples, shapes, crops)
    return builder.xp.stack(windows, batch_axis), builder.convert


def _to_library(sample: Any, adapter: Adapter, like: Any, number: int) -> Any:
    if type(adapter_for_any(sample)) is type(adapter) or library_of(sample) is library_of(like):
        return sample
    array = adapter_for_any(sample).to_numpy(sample, f"sample {number}")
    return adapter.from_numpy(in_native_order(array), like)


class _SymbolicWindows:
    """A builder of windows with the operations of a library that slices arrays like NumPy.

    convert    the conversion of the stacked windows
    """

    def __init__(
        self, options: CollateOptions, axes: SampleAxes, adapter: Adapter, like: Any, dtype: DType
    ) -> None:
        package = type(like).__module__.partition(".")[0]
        xp = getattr(library_of(like), "xp", None) or call_backend_hook("array_namespace", like)
        self.xp: Any = xp or sys.modules[package]
        self.adapter = adapter
        self.like = like
        self.options = options
        self.axes = axes
        self.dtype = dtype
        self.channel = axes.places().get(CHANNEL)
        self.convert = options.convert

    def windows(self, samples: list[Any], shapes: Array, args: CropArgs) -> list[Any]:
        options, axes = self.options, self.axes
        window = axes.window(shapes)
        placements = place(options, axes, window, shapes, args)
        self.fill = fill_array_of(options, axes, window, self.dtype)
        lengths = placements.lengths.tolist()
        places = zip(lengths, placements.begins, placements.flips, strict=True)
        return [
            self._window(self._select_channels(sample), *place, window)
            for sample, place in zip(samples, places, strict=True)
        ]

    def _select_channels(self, x: Any) -> Any:
        channels = self.options.channels
        if channels is None or self.channel is None:
            return x
        return x[(slice(None),) * self.channel + (np.array(channels),)]

    def _window(
        self, x: Any, sizes: list[int], begins: Array, flips: Array, window: tuple[int, ...]
    ) -> Any:
        starts = begins.tolist()
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
        return self._flipped(x, flips)

    def _flipped(self, x: Any, flips: Array) -> Any:
        axes = tuple(np.flatnonzero(flips).tolist())
        return self.xp.flip(x, axes) if axes else x

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


class _ResizedWindows(_SymbolicWindows):
    """A builder of resized windows.

    Along each resized axis, the taps of every position are gathered and added with the weights of
    the kernels, in float32, or in float64 if samples are. `resize="nearest"` selects positions. A
    product with a matrix of weights would spread a NaN over its rows, and its gradient over its
    columns: 0 * NaN is NaN.
    """

    def __init__(self, options: CollateOptions, resize: ResizeOptions, *args: Any) -> None:
        super().__init__(options, *args)
        namespace = library_of(self.like)
        if not isinstance(namespace, ArrayNamespace):
            raise ArgumentError(
                f"resize= does not record operations of {type_name(self.like)}; "
                "compute the samples first"
            )
        self.namespace = namespace
        self.resize = resize
        self.is_nearest = resize.filter == "nearest"
        is_moved = moves_items(resize, self.dtype, supports_float16)
        self.computed = self.dtype if is_moved else summed_dtype(self.dtype)

    def windows(self, samples: list[Any], shapes: Array, args: CropArgs) -> list[Any]:
        options, axes = self.options, self.axes
        window = axes.window(shapes)
        placements = place(options, axes, window, shapes, args)
        fill = fill_array_of(options, axes, window, self.dtype)
        batch = list(window)
        batch.insert(axes.pattern.source.groups.index(options.letter), len(shapes))
        self.convert = converted_options(options, tuple(batch), self.dtype, supports_float16)
        result = []
        nearest = nearest_positions(placements) if self.is_nearest else {}
        for number, sample in enumerate(samples):
            x = self.namespace.to(self._select_channels(sample), self.computed)
            sizes = placements.lengths[number].tolist()  # sizes of x itself may be tensors
            covered = np.ones((1,) * axes.sample.ndim)
            for axis in placements.resized:
                if self.is_nearest:
                    places, weights = nearest[axis][number, :, None], None
                else:
                    places, weights = axis_taps(
                        self.resize, placements, number, axis, self.computed
                    )
                x, share = self._resampled(x, sizes, axis, places, weights)
                sizes[axis] = window[axis]
                covered = covered * self._along(axis, share)
            x = self._filled(x, 1 - covered, self._along(self.channel, fill))
            result.append(self._flipped(x, placements.flips[number]))
        return result

    def _along(self, axis: int | None, values: Array) -> Array:
        """Return values along an axis of samples; axis=None: a single value."""
        return values.reshape([-1 if i == axis else 1 for i in range(self.axes.sample.ndim)])

    def _resampled(
        self, x: Any, sizes: list[int], axis: int, places: Array, weights: Array | None
    ) -> tuple[Any, Array]:
        """Return x of `sizes` resampled along an axis, and the sum of the weights of each position.

        `places` (positions, taps) are indices of x; the weights of those outside of x are omitted.
        A sum is less than 1 if some are.
        """
        is_inside = (places >= 0) & (places < sizes[axis])
        shares = (is_inside if weights is None else weights * is_inside).sum(1)
        outer, inner = sizes[:axis], sizes[axis + 1 :]
        if not is_inside.any():  # an empty slice keeps the result a function of x
            empty = x[(slice(None),) * axis + (slice(0, 0),)]
            zero = self._constant(np.zeros((1,) * len(sizes), self.computed))
            zeros = self.xp.broadcast_to(zero, (*outer, len(places), *inner))
            return self.xp.concatenate([empty, zeros], axis), shares
        indices = places.clip(0, sizes[axis] - 1)
        gathered = self.namespace.gather(x, axis, indices.ravel())
        if weights is None:
            return gathered, shares
        along = *places.shape, *(1 for _ in inner)
        terms = self.xp.reshape(gathered, (*outer, *places.shape, *inner))
        terms = terms * self._constant(weights.reshape(along))
        if not is_inside.all():  # omitted terms may be NaN
            zero = self._constant(np.zeros((), self.computed))
            terms = self.xp.where(self._constant(is_inside.reshape(along)), terms, zero)
        return self.xp.sum(terms, axis + 1), shares

    def _filled(self, x: Any, share: Array, fill: Array) -> Any:
        """Return x with `share` of its values, from 0 to 1, replaced by fill values."""
        is_kept = np.abs(share) < 1e-5  # with negative weights, a sum may be more than 1
        if is_kept.all():
            return x
        fill = fill.astype(self.computed)
        if self.is_nearest:
            filled = self._constant(fill)
        else:
            filled = x + self._constant(share.astype(self.computed)) * self._constant(fill)
        return self.xp.where(self._constant(is_kept), x, filled)

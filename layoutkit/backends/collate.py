"""Collate samples with the operations of their own library, for libraries that record or trace.

The library then also records the conversion of the stacked windows.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .._utils.validation import type_name
from ..cpu.program import supports_float16
from ..errors import ArgumentError
from ..layout.parsing import Layout
from ..layout.pattern import Pattern
from ..memory import Array, in_native_order
from ..normalize import CHANNEL
from ..options import CollateOptions, ConvertOptions
from ..planning.batch.arguments import CropArgs, normalize_indices, parse_per_sample
from ..planning.batch.layout import check_same_rank_and_dtype
from ..planning.batch.samples import SampleAxes
from ..planning.batch.weights import converted_options
from ..planning.resize import ResizeOptions
from ..spec import DType
from ..taps import axis_taps
from .base import Adapter
from .dispatch import adapter_for_any
from .registry import backend_of, call_backend_hook, library_of
from .symbolic import ArrayNamespace
from .windows import Windows


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
    one, batch_axis = None, None  # the array that has all samples
    if options.whole:
        shape = adapter.facts(like, "x")[0]
        options.check_batch_rank(shape)
        axes = options.completed(len(shape) - 1)
        batch_axis = axes.pattern.source.groups.index(options.letter)
        numbers = normalize_indices(indices, shape[batch_axis])
        if not len(numbers):
            raise ArgumentError(
                "indices is empty, but a recorded batch needs a sample; give an index"
            )
        if indices is None:
            one = samples[0]
        elif not adapter.is_traced:
            one = adapter.take(samples[0], batch_axis, numbers)
        samples = adapter.samples_of(samples[0], batch_axis, numbers)
    samples = [_to_library(sample, adapter, like, n) for n, sample in enumerate(samples)]
    axes = options.completed(len(samples[0].shape), tuple(samples[0].shape))
    facts = [adapter.facts(sample, f"sample {n}") for n, sample in enumerate(samples)]
    check_same_rank_and_dtype(facts)
    dtype = facts[0][1]
    shapes = np.array([shape for shape, _ in facts], np.int64)
    if options.channels is not None and _must_select_first(options, axes, shapes, crops):
        samples = [_select_channels(x, axes.places()[CHANNEL], options.channels) for x in samples]
        shapes = axes.select_channels(shapes)
        options, one = _without_channels(options), None
    windows = Windows.of(options, shapes, dtype, crops)
    run = getattr(backend_of(like), "stack_recorded", None) if windows.has_kernels else None
    stack = None
    if run is not None and one is not None:
        stack = run(replace(windows, axis=batch_axis), [one])
    elif run is not None:
        stack = run(windows, samples)
    if stack is None:
        stack = SymbolicWindows(windows, dtype, adapter, like).stack(samples)
    return stack, _conversion_of_stack(options, windows.shape, dtype)


def _must_select_first(
    options: CollateOptions, axes: SampleAxes, shapes: Array, args: CropArgs
) -> bool:
    """Return True if channels cannot be selected from the stack of windows."""
    channel = axes.places()[CHANNEL]
    flips = parse_per_sample("flip", args.flip, axes.places(), len(shapes))
    return bool((shapes[:, channel] != shapes[0, channel]).any() or np.any(flips.get(channel, 0)))


def _select_channels(x: Any, axis: int, channels: tuple[int, ...]) -> Any:
    return x[(slice(None),) * axis + (np.array(channels),)]


def _without_channels(options: CollateOptions) -> CollateOptions:
    """Return the options of samples that have only the selected channels."""
    fill, channels = options.fill, options.channels or ()
    if fill is not None and len(fill) > 1:
        fill = tuple(fill[channel] for channel in channels)
    return replace(options, channels=None, fill=fill)


def _conversion_of_stack(
    options: CollateOptions, shape: tuple[int, ...], source: DType
) -> ConvertOptions:
    """Return the conversion of stacked windows whose channels are still to be selected."""
    left = options.convert.pattern.left
    groups = (group for group in left.groups if group != options.letter)
    stack = Layout((options.letter, *groups), left.names)
    pattern = Pattern(stack, options.convert.pattern.right, options.convert.pattern.text)
    convert = replace(options.convert, pattern=pattern, channels=options.channels)
    return converted_options(replace(options, convert=convert), shape, source, supports_float16)


def _to_library(sample: Any, adapter: Adapter, like: Any, number: int) -> Any:
    """Return a sample as an array of the library of `like`."""
    if type(adapter_for_any(sample)) is type(adapter) or library_of(sample) is library_of(like):
        return sample
    array = adapter_for_any(sample).to_numpy(sample, f"sample {number}")
    return adapter.from_numpy(in_native_order(array), like)


class SymbolicWindows:
    """The windows of a batch in the operations of a library that slices arrays like NumPy.

    Along each axis, the taps of every position are gathered and added with the weights of the
    kernels. A product with a matrix of weights would spread a NaN over its rows, and its gradient
    over its columns: 0 * NaN is NaN.
    """

    def __init__(self, windows: Windows, dtype: DType, adapter: Adapter, like: Any) -> None:
        package = type(like).__module__.partition(".")[0]
        namespace = library_of(like)
        self.namespace = namespace if isinstance(namespace, ArrayNamespace) else None
        if windows.resize is not None and self.namespace is None:
            raise ArgumentError(
                f"resize= does not record operations of {type_name(like)}; compute the "
                "samples first"
            )
        xp = getattr(namespace, "xp", None) or call_backend_hook("array_namespace", like)
        self.xp: Any = xp or sys.modules[package]
        self.adapter = adapter
        self.like = like
        self.windows = windows
        self.dtype = windows.window_dtype if windows.is_averaged else dtype

    def stack(self, samples: Sequence[Any]) -> Any:
        """Return the stacked windows of samples."""
        if self.windows.axis is not None:
            numbers = np.arange(len(self.windows.shapes))
            samples = self.adapter.samples_of(samples[0], self.windows.axis, numbers)
        return self.xp.stack([self._window(x, number) for number, x in enumerate(samples)], 0)

    def _window(self, x: Any, number: int) -> Any:
        sizes = list(self.windows.shapes[number])  # sizes of x itself may be tensors
        covered = np.ones((1,) * len(sizes))
        if self.windows.is_averaged and self.namespace is not None:
            x = self.namespace.to(x, self.dtype)
        for axis in self.windows.placed_axes:
            x, share = self._resampled(x, sizes, axis, *self._taps(axis, number))
            sizes[axis] = self.windows.placements.window[axis]
            covered = covered * self._along(axis, share)
        return self._filled(x, 1 - covered, number)

    def _along(self, axis: int | None, values: Array) -> Array:
        """Return values along an axis of samples; axis=None: a single value."""
        ndim = len(self.windows.shape) - 1
        return values.reshape([-1 if i == axis else 1 for i in range(ndim)])

    def _taps(self, axis: int, number: int) -> tuple[Array, Array | None]:
        """Return the indices in a sample of the taps of each position, and their weights.

        An index is -1 where a position has fewer taps. Weights of None are 1.
        """
        placements = self.windows.placements
        if not placements.window[axis]:
            return np.empty((0, 1), np.int64), None
        resize = self.windows.resize or ResizeOptions("nearest")
        dtype = np.dtype(np.float64 if self.dtype == np.float64 else np.float32)
        places, weights = axis_taps(resize, placements, number, axis, dtype)
        order = slice(None, None, -1 if placements.flips[number, axis] else 1)
        return places[order], None if resize.filter == "nearest" else weights[order]

    def _constant(self, values: Array) -> Any:
        """Return a small NumPy array as an array of the library, on the device of the samples."""
        if self.namespace is not None:
            return self.namespace.constant(values, self.like)
        return self.adapter.from_numpy(values, self.like)

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
            zero = self._constant(np.zeros((1,) * len(sizes), self.dtype))
            zeros = self.xp.broadcast_to(zero, (*outer, len(places), *inner))
            return self.xp.concatenate([empty, zeros], axis), shares
        indices = places.clip(0, sizes[axis] - 1)
        if weights is None:
            return self._taken(x, axis, indices[:, 0], bool(is_inside.all())), shares
        gathered = self._gathered(x, axis, indices.ravel())
        along = *places.shape, *(1 for _ in inner)
        terms = self.xp.reshape(gathered, (*outer, *places.shape, *inner))
        terms = terms * self._constant(weights.reshape(along))
        if not is_inside.all():  # omitted terms may be NaN
            zero = self._constant(np.zeros((), self.dtype))
            terms = self.xp.where(self._constant(is_inside.reshape(along)), terms, zero)
        return self.xp.sum(terms, axis + 1), shares

    def _taken(self, x: Any, axis: int, indices: Array, is_inside: bool) -> Any:
        """Return the elements at indices of an axis; neighbors as a slice, which libraries fuse."""
        steps = np.diff(indices)
        if not is_inside or not (
            abs(steps[:1]).sum() == len(steps[:1]) and (steps == steps[:1]).all()
        ):
            return self._gathered(x, axis, indices)
        low, high = int(indices.min()), int(indices.max()) + 1
        part = x[(slice(None),) * axis + (slice(low, high),)]
        return part if indices[0] == low else self.xp.flip(part, (axis,))

    def _gathered(self, x: Any, axis: int, indices: Array) -> Any:
        if self.namespace is not None:
            return self.namespace.gather(x, axis, indices)
        return self.xp.take(x, indices, axis)

    def _filled(self, x: Any, share: Array, number: int) -> Any:
        """Return x with `share` of its values, from 0 to 1, replaced by fill values."""
        is_kept = np.abs(share) < 1e-5  # with negative weights, a sum may be more than 1
        if is_kept.all():
            return x
        fill, channel = self.windows.fill, self.windows.channel
        if channel is not None and self.windows.placements.flips[number, channel]:
            fill = fill[::-1]
        fill = self._along(channel if len(fill) > 1 else None, fill.astype(self.dtype))
        filled = self._constant(fill)
        if self.windows.resize is not None and self.windows.resize.filter != "nearest":
            filled = x + self._constant(share.astype(self.dtype)) * filled
        return self.xp.where(self._constant(is_kept), x, filled)

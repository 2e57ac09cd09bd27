"""Collate samples with the operations of their library, which records or traces them.

The library also records the conversion of the stacked windows, which follows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import isnan
from typing import Any

import numpy as np

from .._utils.validation import describe_type, type_name
from ..cpu.program import supports_float16
from ..cuda.memory import DeviceArray, DeviceArrays
from ..errors import ArgumentError, DeviceError
from ..layout.parsing import Layout
from ..layout.pattern import Pattern
from ..memory import Array, in_native_order
from ..normalize import CHANNEL
from ..options import CollateOptions, ConvertOptions
from ..planning.batch.arguments import CropArgs, parse_per_sample
from ..planning.batch.layout import check_same_rank_and_dtype
from ..planning.batch.samples import SampleAxes
from ..planning.batch.weights import (
    check_fill,
    check_ignored_value,
    choose_summed_dtype,
    make_window_conversion,
)
from ..planning.resize import LEAST_WEIGHT, ResizeOptions
from ..spec import DType, as_dtype
from ..taps import compute_axis_taps
from .base import Adapter
from .cupy import CudaAdapter
from .dispatch import adapter_for_any
from .registry import backend_of, call_backend_hook, library_of
from .symbolic import ArrayNamespace
from .windows import Windows


def choose_adapter(samples: Sequence[Any]) -> tuple[list[Adapter], int, bool]:
    """Return all adapters, the number of the leading one, and True if operations are recorded.

    The leading adapter belongs to the first sample whose operations are recorded, or else to the
    first sample. Recorded windows must be made by operations of its library.
    """
    adapters = [adapter_for_any(sample) for sample in samples]
    for number, (adapter, sample) in enumerate(zip(adapters, samples, strict=True)):
        if adapter.is_recorded(sample):
            return adapters, number, True
    return adapters, 0, False


def view_memory(samples: Sequence[Any]) -> Sequence[Any] | None:
    """Return the memory of samples at once, as NumPy arrays or as arrays on a GPU.

    Returns None if their library has no fast path to it.
    """
    if {*map(type, samples)} == {np.ndarray}:
        return [*samples]
    memory_of = getattr(backend_of(samples[0]), "memory_of", None)
    return None if memory_of is None else memory_of(samples)


def import_device_samples(
    memory: Sequence[Any] | None,
    adapters: Sequence[Adapter],
    samples: Sequence[Any],
    name_of: Callable[[int], str],
) -> tuple[DeviceArrays, list[CudaAdapter]]:
    """Return the device arrays of samples, whose first one is on a GPU, and their adapters.

    `memory` is the result of `view_memory`, for which the adapter of the first sample is enough.
    Raises DeviceError if another one is not on a GPU; `name_of` names samples in errors.
    """
    if isinstance(memory, DeviceArrays) and isinstance(adapters[0], CudaAdapter):
        return memory, [adapters[0]] * len(samples)
    arrays: list[DeviceArray] = []
    on_gpu: list[CudaAdapter] = []
    for number, (adapter, sample) in enumerate(zip(adapters, samples, strict=True)):
        if not isinstance(adapter, CudaAdapter):
            raise DeviceError(
                f"sample {number} is {describe_type(sample)} on cpu, but sample 0 is on "
                f"{arrays[0].device}; move all samples to one device first"
            )
        on_gpu.append(adapter)
        arrays.append(adapter.device_array(sample, name_of(number)))
    return DeviceArrays.of(arrays), on_gpu


def stack_recorded_windows(
    options: CollateOptions, samples: Sequence[Any], indices: Any, crops: CropArgs, like: Any
) -> tuple[Any, ConvertOptions]:
    """Return the windows of the samples as one array of the library of `like`.

    Also return the options of the conversion of that array to the batch.
    """
    adapter = adapter_for_any(like)
    array, batch_axis = None, None  # that has all samples, and their axis
    if options.is_one_array:
        _, batch_axis, numbers = options.select_samples(adapter.inspect(like, "x")[0], indices)
        if not len(numbers):
            raise ArgumentError(
                "indices is empty, but a recorded batch needs a sample; give an index"
            )
        if indices is None:
            array = samples[0]
        elif not adapter.is_traced:
            array = adapter.take(samples[0], batch_axis, numbers)
        samples = adapter.samples_of(samples[0], batch_axis, numbers)
    samples = [_to_library(sample, adapter, like, n) for n, sample in enumerate(samples)]
    axes = options.find_sample_axes(len(samples[0].shape), tuple(samples[0].shape))
    inspected = [adapter.inspect(sample, f"sample {n}") for n, sample in enumerate(samples)]
    check_same_rank_and_dtype(inspected)
    dtype = inspected[0][1]
    shapes = np.array([shape for shape, _ in inspected], np.int64)
    if options.channels is not None and _must_select_first(options, axes, shapes, crops):
        samples = [
            _select_channels(x, axes.axis_indices[CHANNEL], options.channels) for x in samples
        ]
        shapes = axes.select_channels(shapes)
        options, array = _drop_channels(options), None
    resize = options.resize
    if resize is not None and resize.ignore is not None:
        options = replace(options, resize=resize._replace(ignore=None))
    windows = Windows.of(options, shapes, dtype, crops)
    convert = make_stack_conversion(options, windows.shape, dtype)
    stack_windows = partial(_stack_windows, adapter, like)
    if resize is not None and resize.ignore is not None:
        valid = ValidWindows(windows, resize.ignore, like)
        check_fill(valid.fill, convert.dtype or dtype)
        return valid.stack(samples, stack_windows), convert
    if array is not None and windows.has_kernels and _find_hook(like) is not None:
        windows, samples = replace(windows, axis=batch_axis), [array]
    return stack_windows(windows, samples), convert


def _find_hook(like: Any) -> Any:
    """Return the function of a library that stacks windows by kernels, None if it has none."""
    return getattr(backend_of(like), "stack_recorded", None)


def _stack_windows(adapter: Adapter, like: Any, windows: Windows, samples: Sequence[Any]) -> Any:
    """Return the stacked windows of samples, or of one array, of the library of `like`."""
    if isinstance(like, np.ndarray):
        return windows.stack(list(samples))
    hook = _find_hook(like) if windows.has_kernels else None
    stack = None if hook is None else hook(windows, samples)
    if stack is None:
        dtype = as_dtype(windows.dtype)
        stack = SymbolicWindows(windows, dtype, adapter, like).stack(samples)
    return stack


def find_functions(like: Any) -> Any:
    """Return the module of the functions of the library of `like`, such as `stack`.

    Raises ArgumentError if the library does not stack arrays.
    """
    xp = getattr(library_of(like), "xp", None) or call_backend_hook("array_namespace", like)
    xp = xp or sys.modules[type(like).__module__.partition(".")[0]]
    if not hasattr(xp, "concatenate"):
        raise ArgumentError(
            f"samples are {type_name(like)}s, whose library does not stack arrays; give the arrays "
            "inside, as in [x.to_numpy() for x in samples]"
        )
    return xp


def _must_select_first(
    options: CollateOptions, axes: SampleAxes, shapes: Array, args: CropArgs
) -> bool:
    """Return True if channels must be selected before windows are stacked."""
    channel = axes.axis_indices[CHANNEL]
    if args.placements is not None and CHANNEL in args.placements.axes:
        return True
    flips = parse_per_sample("flip", args.flip, axes.axis_indices, len(shapes))
    return bool((shapes[:, channel] != shapes[0, channel]).any() or np.any(flips.get(channel, 0)))


def _select_channels(x: Any, axis: int, channels: tuple[int, ...]) -> Any:
    return x[(slice(None),) * axis + (np.array(channels),)]


def _drop_channels(options: CollateOptions) -> CollateOptions:
    """Return the options of samples that have only the selected channels."""
    fill, channels = options.fill, options.channels or ()
    if fill is not None and len(fill) > 1:
        fill = tuple(fill[channel] for channel in channels)
    return replace(options, channels=None, fill=fill)


def make_stack_conversion(
    options: CollateOptions, shape: tuple[int, ...], source: DType
) -> ConvertOptions:
    """Return the conversion of the stacked windows, which also selects channels."""
    left = options.convert.pattern.left
    groups = (group for group in left.groups if group != options.letter)
    stack = Layout((options.letter, *groups), left.names)
    pattern = Pattern(stack, options.convert.pattern.right, options.convert.pattern.text)
    convert = replace(options.convert, pattern=pattern, channels=options.channels)
    return make_window_conversion(
        replace(options, convert=convert), shape, source, supports_float16
    )


def _to_library(sample: Any, adapter: Adapter, like: Any, number: int) -> Any:
    """Return a sample as an array of the library of `like`."""
    if type(adapter_for_any(sample)) is type(adapter) or library_of(sample) is library_of(like):
        return sample
    array = adapter_for_any(sample).to_numpy(sample, f"sample {number}")
    return adapter.from_numpy(in_native_order(array), like)


class SymbolicWindows:
    """The windows of a batch in the operations of a library that slices arrays like NumPy.

    Along each axis, the taps of every position are gathered, multiplied by the weights of the
    kernels and added. A product with a matrix of weights would spread a NaN over its rows, and its
    gradient over its columns, because 0 * NaN is NaN.
    """

    def __init__(self, windows: Windows, dtype: DType, adapter: Adapter, like: Any) -> None:
        self.xp = find_functions(like)
        namespace = library_of(like)
        self.namespace = namespace if isinstance(namespace, ArrayNamespace) else None
        if windows.resize is not None and self.namespace is None:
            raise ArgumentError(
                f"resize= does not record operations of {type_name(like)}; compute the "
                "samples first"
            )
        self.adapter = adapter
        self.like = like
        self.windows = windows
        self.dtype = windows.window_dtype if windows.is_averaged else dtype

    def stack(self, samples: Sequence[Any]) -> Any:
        """Return the stacked windows of samples."""
        if self.windows.axis is not None:
            numbers = np.arange(len(self.windows.shapes))
            samples = self.adapter.samples_of(samples[0], self.windows.axis, numbers)
        return self.xp.stack([self._make_window(x, number) for number, x in enumerate(samples)], 0)

    def _make_window(self, x: Any, number: int) -> Any:
        sizes = list(self.windows.shapes[number])  # x.shape may contain tensors
        covered = np.ones((1,) * len(sizes))  # share of the weights that is inside the sample
        if self.windows.is_averaged and self.namespace is not None:
            x = self.namespace.to(x, self.dtype)
        for axis in self.windows.placed_axes:
            x, share = self._resample(x, sizes, axis, *self._find_taps(axis, number))
            sizes[axis] = self.windows.placements.window[axis]
            covered = covered * self._reshape_along(axis, share)
        return self._fill(x, 1 - covered, number)

    def _reshape_along(self, axis: int | None, values: Array) -> Array:
        """Return `values` (n,) with the rank of samples, along `axis`; None: a single value."""
        ndim = len(self.windows.shape) - 1
        return values.reshape([-1 if i == axis else 1 for i in range(ndim)])

    def _find_taps(self, axis: int, number: int) -> tuple[Array, Array | None]:
        """Return the indices in a sample of the taps of each position, and their weights.

        Both are (positions, taps). An index is -1 where a position has fewer taps. None instead of
        weights: all are 1.
        """
        placements = self.windows.placements
        if not placements.window[axis]:
            return np.empty((0, 1), np.int64), None
        resize = self.windows.resize or ResizeOptions("nearest")
        dtype = np.dtype(np.float64 if self.dtype == np.float64 else np.float32)
        taps, weights = compute_axis_taps(resize, placements, number, axis, dtype)
        order = slice(None, None, -1 if placements.flips[number, axis] else 1)
        return taps[order], None if resize.filter == "nearest" else weights[order]

    def _make_constant(self, values: Array) -> Any:
        """Return a small NumPy array as an array of the library, on the device of the samples."""
        if self.namespace is not None:
            return self.namespace.constant(values, self.like)
        return self.adapter.from_numpy(values, self.like)

    def _resample(
        self, x: Any, sizes: list[int], axis: int, taps: Array, weights: Array | None
    ) -> tuple[Any, Array]:
        """Return x of `sizes` resampled along an axis, and the sum of the weights of each position.

        `taps` (positions, taps) are indices of x. Taps outside of x are omitted, so that the sum of
        the weights of their position is less than 1.
        """
        is_inside = (taps >= 0) & (taps < sizes[axis])
        shares = (is_inside if weights is None else weights * is_inside).sum(1)
        outer, inner = sizes[:axis], sizes[axis + 1 :]
        if not is_inside.any():  # an empty slice keeps the result a function of x
            empty = x[(slice(None),) * axis + (slice(0, 0),)]
            zero = self._make_constant(np.zeros((1,) * len(sizes), self.dtype))
            zeros = self.xp.broadcast_to(zero, (*outer, len(taps), *inner))
            return self.xp.concatenate([empty, zeros], axis), shares
        indices = taps.clip(0, sizes[axis] - 1)
        if weights is None:
            return self._take(x, axis, indices[:, 0], bool(is_inside.all())), shares
        gathered = self._gather(x, axis, indices.ravel())
        along = *taps.shape, *(1 for _ in inner)
        terms = self.xp.reshape(gathered, (*outer, *taps.shape, *inner))
        terms = terms * self._make_constant(weights.reshape(along))
        if not is_inside.all():  # omitted terms may be NaN
            zero = self._make_constant(np.zeros((), self.dtype))
            terms = self.xp.where(self._make_constant(is_inside.reshape(along)), terms, zero)
        return self.xp.sum(terms, axis + 1), shares

    def _take(self, x: Any, axis: int, indices: Array, is_inside: bool) -> Any:
        """Return the elements at indices of an axis; libraries fuse the slice of adjacent ones."""
        steps = np.diff(indices)
        are_adjacent = (abs(steps[:1]) == 1).all() and (steps == steps[:1]).all()
        if not is_inside or not are_adjacent:
            return self._gather(x, axis, indices)
        low, high = int(indices.min()), int(indices.max()) + 1
        part = x[(slice(None),) * axis + (slice(low, high),)]
        return part if indices[0] == low else self.xp.flip(part, (axis,))

    def _gather(self, x: Any, axis: int, indices: Array) -> Any:
        if self.namespace is not None:
            return self.namespace.gather(x, axis, indices)
        return self.xp.take(x, indices, axis)

    def _fill(self, x: Any, share: Array, number: int) -> Any:
        """Return x with fill values for the taps outside of the sample.

        `share` is the part of the weights of each element that belongs to these taps. Averages add
        the fill value by its share; without averages it replaces x.
        """
        is_kept = np.abs(share) < 1e-5  # with negative weights, a sum may be more than 1
        if is_kept.all():
            return x
        fill, channel = self.windows.fill, self.windows.channel
        if channel is not None and self.windows.placements.flips[number, channel]:
            fill = fill[::-1]
        fill = self._reshape_along(channel if len(fill) > 1 else None, fill.astype(self.dtype))
        filled = self._make_constant(fill)
        if self.windows.resize is not None and self.windows.resize.filter != "nearest":
            filled = x + self._make_constant(share.astype(self.dtype)) * filled
        return self.xp.where(self._make_constant(is_kept), x, filled)


@dataclass(frozen=True)
class ValidWindows:
    """The resized windows of samples, without the pixels that have the value `ignore`.

    A position of a window is the sum of weight * value over its valid taps, divided by the sum of
    the weights of these taps. Both sums are windows of the same map: of the samples with 0 in place
    of ignored pixels, and of masks that are 1 where pixels are valid. So they are resized together,
    as the two elements of a last axis, by the kernels or operations that resize other windows.
    """

    windows: Windows  # of all pixels
    ignore: float
    like: Any  # an array of the library that computes

    def __post_init__(self) -> None:
        check_ignored_value(self.ignore, as_dtype(self.windows.dtype))
        if not isinstance(self.like, np.ndarray) and not isinstance(self._library, ArrayNamespace):
            raise ArgumentError(
                f"ignore= is computed on arrays of NumPy, torch and jax, not of "
                f"{type_name(self.like)}; give the samples as tensors, or on the CPU"
            )

    @cached_property
    def _library(self) -> Any:
        return library_of(self.like)

    @cached_property
    def _xp(self) -> Any:
        """The module of the library's functions."""
        return np if isinstance(self.like, np.ndarray) else self._library.xp

    def _cast(self, x: Any, dtype: DType) -> Any:
        return x.astype(dtype) if self._xp is np else self._library.to(x, dtype)

    def _make_constant(self, values: Array) -> Any:
        return values if self._xp is np else self._library.constant(values, self.like)

    @cached_property
    def fill(self) -> Array:
        """The values of positions without a valid tap, which can be broadcast to the stack."""
        windows = self.windows
        shape = [1] * len(windows.shape)
        if "fill" not in windows.keywords:
            return np.full(shape, self.ignore).astype(as_dtype(windows.dtype))
        values, channel = windows.fill[None], windows.channel
        if channel is None or values.size == 1:
            return values.reshape(shape)
        flips = windows.placements.flips[:, channel, None]
        values = np.where(flips, values[:, ::-1], values)
        shape[0], shape[channel + 1] = values.shape
        return values.reshape(shape)

    def stack(
        self, samples: Sequence[Any], stack_windows: Callable[[Windows, Sequence[Any]], Any]
    ) -> Any:
        """Return the stacked windows of samples; `stack_windows` returns the stack of a map."""
        if not self.windows.is_averaged:
            return self._replace_moved(samples, stack_windows)
        summed = choose_summed_dtype(as_dtype(self.windows.dtype))
        keywords = self.windows.keywords
        both = replace(
            self.windows.append_axis(2),
            dtype=summed.name,
            keywords={**keywords, "fill": 0} if "fill" in keywords else keywords,
        )
        sums = stack_windows(both, [self._mask(x, summed) for x in samples])
        total, weight = sums[..., 0], sums[..., 1]
        is_valid = weight > LEAST_WEIGHT.get(keywords["resize"], 0)
        mean = total / self._xp.where(is_valid, weight, self._xp.ones_like(weight))
        return self._xp.where(is_valid, mean, self._make_constant(self.fill.astype(summed)))

    def _mask(self, x: Any, summed: DType) -> Any:
        """Return x with 0 in place of ignored pixels, and 1 where pixels are valid, else 0."""
        is_valid = ~self._is_ignored(x)
        values = self._cast(x, summed)
        values = self._xp.where(is_valid, values, self._xp.zeros_like(values))
        return self._xp.stack([values, self._cast(is_valid, summed)], -1)

    def _is_ignored(self, x: Any) -> Any:
        return x != x if isnan(self.ignore) else x == self.ignore

    def _replace_moved(
        self, samples: Sequence[Any], stack_windows: Callable[[Windows, Sequence[Any]], Any]
    ) -> Any:
        """Return the windows of samples whose items are moved: the nearest pixel is the one tap."""
        keywords = self.windows.keywords
        moved = {**keywords, "fill": self.ignore} if "fill" in keywords else keywords
        stack = stack_windows(replace(self.windows, keywords=moved), samples)
        return self._xp.where(self._is_ignored(stack), self._make_constant(self.fill), stack)


def check_ignored(options: CollateOptions, dtype: DType) -> None:
    """Raise ArgumentError if samples have no value `ignore`, or their batch has none to fill."""
    ignore = None if options.resize is None else options.resize.ignore
    if ignore is None:
        return
    check_ignored_value(ignore, dtype)
    if not options.fills:
        check_fill(np.array([ignore]).astype(dtype), options.convert.dtype or dtype)

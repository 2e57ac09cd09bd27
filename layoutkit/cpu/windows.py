"""The stacked windows of samples, and the gradients of samples from the gradients of windows.

The kernels of `resize.py` resize gradients, with transposed taps. Without resizing, the crop of a
sample is scaled to its own size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np

from .._utils.cache import MAX_KEPT
from ..memory import Array
from ..options import CollateOptions
from ..planning.batch.arguments import CropArgs
from ..planning.batch.placement import Placements
from ..planning.resize import ResizeOptions
from ..spec import DType
from ..taps import (
    TapTables,
    count_parts,
    make_gradient_options,
    make_transposed_tap_tables,
)
from .collate import BatchProgram, make_batch_program
from .resize import ResizeProgram
from .window_table import SampleBatch, describe_arrays, describe_parts

_IDENTITY = ResizeOptions("nearest")


def stack_windows(
    options: CollateOptions,
    samples: Sequence[Array],
    axis: int | None,
    shape: tuple[int, ...],
    args: CropArgs,
) -> Array:
    """Return the windows of samples, an array of `shape`.

    Samples are arrays, or parts of one array along `axis`. The options convert only the dtype.
    """
    if axis is None:
        sources = describe_arrays(samples)
    else:
        sources = describe_parts(samples[0], axis, np.arange(shape[0]))
    return _find_stacking_program(options, shape[0], shape[1:], sources.dtype)(sources, args, None)


@lru_cache(maxsize=MAX_KEPT)
def _find_stacking_program(
    options: CollateOptions, count: int, window: tuple[int, ...], source: DType
) -> BatchProgram:
    return make_batch_program(
        options, options.find_sample_axes(len(window)), count, window, source, None
    )


class GradientWindows(NamedTuple):
    """The windows whose gradients are resized to the gradients of samples of one shape."""

    resize: ResizeOptions
    placements: Placements
    parts: Mapping[int, int]  # of transposed tap tables, by axis; other axes: whole tables

    def as_key(self) -> tuple[Any, ...]:
        """Return a hashable tuple, equal for equal windows."""
        x = self.placements
        fields = x.lengths, x.begins, x.sizes, x.scaled, x.firsts, x.flips
        numbers = tuple(field.tobytes() for field in fields)
        return self.resize, x.window, numbers, tuple(self.parts.items())


class GradientProgram(ResizeProgram):
    """The program of gradients of samples; a call has GradientWindows in place of CropArgs."""

    def _make_crop_key(self, crops: Any) -> Any:
        return crops.as_key()

    def _place_samples(self, sources: SampleBatch, args: Any) -> Any:
        return super()._place_samples(sources, CropArgs())._replace(windows=args)

    def _make_tap_tables(self, columns: list[int | None], samples: Any) -> TapTables:
        resize, placements, parts = samples.windows
        threads = self._options.convert.threads
        return make_transposed_tap_tables(resize, placements, columns, self._summed, parts, threads)


def compute_sample_gradients(
    grad: Array,
    numbers: Sequence[int],
    target: DType,
    resize: ResizeOptions | None,
    placements: Placements,
    axes: Sequence[int],
    threads: int | None = None,
) -> Array:
    """Return the stacked gradients of samples of one shape.

    Parameters
    ----------
    grad : the gradient of the stacked windows of all samples
    numbers : the numbers of the samples of this shape
    target : the dtype of samples
    resize : the filter; None: windows are only cropped
    placements : of all windows
    axes : the axes along which windows differ from samples
    """
    rows = np.array(numbers)
    placed = placements.rows(rows)
    shape = tuple(placed.lengths[0].tolist())
    if 0 in grad.shape or 0 in shape:
        return np.zeros((len(rows), *shape), target)
    if not axes:
        return grad.take(rows, 0).astype(target)
    resize = resize or _IDENTITY
    program = _find_gradient_program(
        tuple(axes), shape, grad.shape[1:], len(rows), grad.dtype, target, threads
    )
    samples = describe_parts(grad, 0, rows)
    results = []
    for parts in _choose_parts(resize, axes, grad):
        windows: Any = GradientWindows(resize, placed, parts)
        results.append(program(samples, windows, None))
    return reduce(np.add, results)


def _choose_parts(resize: ResizeOptions, axes: Sequence[int], grad: Array) -> list[dict[int, int]]:
    """Return the parts of tables whose results are added: whole tables, or parts without gaps.

    Whole tables of some filters fill gaps with weights of 0. Parts are needed only if gradients are
    not finite, because 0 * NaN is NaN.
    """
    count = count_parts(resize)
    if count == 1 or np.isfinite(np.sum(grad)):
        return [{}]
    return [dict(zip(axes, parts, strict=True)) for parts in np.ndindex(*(count for _ in axes))]


@lru_cache(maxsize=MAX_KEPT)
def _find_gradient_program(
    placed_axes: tuple[int, ...],
    shape: tuple[int, ...],
    window: tuple[int, ...],
    count: int,
    source: DType,
    target: DType,
    threads: int | None,
) -> GradientProgram:
    """Return the cached program of the gradients of samples of one shape."""
    options = make_gradient_options(placed_axes, shape, target, threads)
    if options.resize is None:
        raise RuntimeError("gradients are resized")
    axes = options.find_sample_axes(len(shape))
    return GradientProgram(options, options.resize, axes, count, shape, source, None)

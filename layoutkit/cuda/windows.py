"""The stacked windows of samples on a GPU, and the gradients of samples, as in `cpu/windows.py`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from .._utils.cache import MAX_KEPT
from ..options import CollateOptions
from ..planning.batch.arguments import CropArgs
from ..planning.batch.placement import Placements
from ..planning.batch.samples import SampleAxes
from ..planning.resize import ResizeOptions
from ..spec import DType
from ..taps import TapTables, make_gradient_options, make_transposed_tap_tables
from .collate import DeviceCollateProgram, Reads, Samples
from .memory import DeviceAdapter, DeviceArray, DeviceArrays

_IDENTITY = ResizeOptions("nearest")


def stack_windows(
    options: CollateOptions,
    samples: DeviceArrays,
    placements: Placements,
    adapter: DeviceAdapter,
) -> DeviceArray:
    """Return the stacked windows of samples. The options convert only the dtype."""
    args = CropArgs(placements=placements)
    program = _find_stacking_program(options)
    return program.prepare(samples, None, args, None, adapter, may_convert=True).write(adapter)


@lru_cache(maxsize=MAX_KEPT)
def _find_stacking_program(options: CollateOptions) -> DeviceCollateProgram:
    return DeviceCollateProgram(options)


class _GradientWindows(NamedTuple):
    """The windows whose gradients are resized to the gradients of samples of one shape."""

    resize: ResizeOptions
    placements: Placements

    def make_taps(self, axes: Sequence[int], summed: DType) -> TapTables:
        """Return transposed tap tables: their taps are positions of the windows."""
        return make_transposed_tap_tables(self.resize, self.placements, axes, summed, {})


class _GradientProgram(DeviceCollateProgram):
    """The program of gradients of samples; a call has _GradientWindows in place of CropArgs."""

    def _place(
        self, axes: SampleAxes, window: tuple[int, ...], samples: Samples, crops: Any
    ) -> Reads:
        reads = super()._place(axes, window, samples, CropArgs())
        return reads._replace(make_taps=crops.make_taps, has_gaps=True)


def compute_sample_gradients(
    grad: DeviceArray,
    numbers: Sequence[int],
    target: DType,
    resize: ResizeOptions | None,
    placements: Placements,
    axes: Sequence[int],
    adapter: DeviceAdapter,
) -> DeviceArray:
    """Return the stacked gradients of samples of one shape, made by one launch.

    The function of this name in cpu/windows.py describes the parameters.
    """
    placed = placements.rows([*numbers])
    shape = tuple(placed.lengths[0].tolist())
    program = _find_gradient_program(tuple(axes), shape, target)
    windows: Any = _GradientWindows(resize or _IDENTITY, placed)
    grads = DeviceArrays.of([grad])
    return program.prepare(grads, numbers, windows, None, adapter, may_convert=True).write(adapter)


@lru_cache(maxsize=MAX_KEPT)
def _find_gradient_program(
    axes: tuple[int, ...], shape: tuple[int, ...], target: DType
) -> DeviceCollateProgram:
    return _GradientProgram(make_gradient_options(axes, shape, target))

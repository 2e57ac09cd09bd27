"""Predict the time of a planned conversion by measuring it, on arrays of the same kind."""

from __future__ import annotations

import time
from functools import lru_cache
from statistics import median

import numpy as np

from .converter import Converter
from .errors import DeviceError, ShapeError
from .planning.plan import Plan
from .spec import CPU, ArraySpec
from .threads.limits import get_num_threads

_MAX_BYTES = 256 << 20  # read and written by a measured call
_SECONDS = 0.5
_MIN_CALLS = 3


def predict_seconds(plan: Plan) -> float:
    """Return the median duration of calls, extrapolated if the arrays of the plan are large."""
    if plan.devices != (CPU, CPU):
        raise DeviceError(
            "predicted_ms is measured on the CPU, but the plan is for "
            f"{' to '.join(plan.devices)}; layoutkit bench --device cuda measures there"
        )
    if plan.bytes_moved == 0:
        return 0.0
    if plan.options is None:
        raise RuntimeError(f"{plan.pattern}: this plan was not made from options of a conversion")
    converter = Converter.from_options(plan.options)
    measured = _affordable(converter, plan)
    factor = plan.bytes_moved / max(1, converter.plan(measured).bytes_moved)
    return factor * _measured_seconds(converter, measured, get_num_threads())


def _affordable(converter: Converter, plan: Plan) -> ArraySpec:
    """Return the source of a plan, or one with a shorter first axis if it is large."""
    source = plan.source
    if plan.bytes_moved <= _MAX_BYTES:
        return source
    count = max(1, source.shape[0] * _MAX_BYTES // plan.bytes_moved)
    shorter = ArraySpec(source.axes, (count, *source.shape[1:]), source.dtype)
    try:
        converter.plan(shorter)
    except ShapeError:  # a fold, or constants for each index of the axis
        return source
    return shorter


@lru_cache(maxsize=64)
def _measured_seconds(converter: Converter, source: ArraySpec, _num_threads: int) -> float:
    ones = 1 if source.dtype == bool else 0x3F  # bytes of ordinary floats
    x = np.full(source.nbytes, ones, np.uint8).view(source.dtype).reshape(source.shape)
    converter(x)  # compiles
    times: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(times) < _MIN_CALLS or time.perf_counter() < end:
        start = time.perf_counter()
        converter(x)
        times.append(time.perf_counter() - start)
    return median(times)

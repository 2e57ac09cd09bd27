"""Channels in the words of an array's library: copies of those that are taken, and the way back of
their gradients.

Gradients under a clip: nothing comes back from where x was outside of its window.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from ..layout.pattern import Move
from ..normalize import Bounds
from ..planning.channels import Picks, evenly
from ..spec import DType
from .base import Adapter, on_device_of

if TYPE_CHECKING:
    from ..planning.options import Task


def take_channels(task: Task, adapter: Adapter, x: Any) -> Any:
    """A copy of the channels that are taken, where the conversion itself does not; else None."""
    if task.channels is None:
        return None
    move, picks = task.picked(adapter.facts(x, "x")[0])
    steps = adapter.is_traced or (picks is not None and evenly(picks.order) is not None)
    if picks is None or task.copy is False or (steps and task.canvas is None):
        return None
    sizes, axis, order = picks.whole(move).sizes, picks.axis(move), np.array(picks.order)
    if adapter.pads_input:
        return adapter.take(x if sizes == tuple(x.shape) else x.reshape(sizes), axis, order)
    return adapter.leave(np.take(adapter.arrive(x, "x").reshape(sizes), order, axis), x)


def spread(gradient: Any, move: Move, picks: Picks, dtype: DType) -> Any:
    """The gradient of x, of one for the channels that were taken: 0 for those that were not, and
    the sum where one was taken several times.

    move    of these channels; `gradient` lies as on its left side
    dtype   of the result
    """
    words = _words(gradient)
    axis = picks.axis(move)
    before = (slice(None),) * axis
    sums: dict[int, Any] = {}
    with np.errstate(all="ignore"), on_device_of(gradient):
        opened = gradient.reshape(move.sizes)
        for place, channel in enumerate(picks.order):
            part = opened[(*before, place)]
            sums[channel] = sums[channel] + part if channel in sums else part
        nothing = words.zeros_like(next(iter(sums.values())))
        parts = [sums.get(channel, nothing) for channel in range(picks.count)]
        found = words.stack(parts, axis).reshape(picks.shape)
        if words.__name__ == "torch":
            return found.to(getattr(words, dtype.name))
        return found.astype(dtype)


def _words(gradient: Any) -> Any:
    """The library whose functions take a gradient."""
    if isinstance(gradient, np.ndarray):
        return np
    library = type(gradient).__module__.partition(".")[0]
    words = import_module("jax.numpy") if library in ("jax", "jaxlib") else sys.modules[library]
    if not hasattr(words, "stack") or not hasattr(words, "zeros_like"):
        raise ArgumentError(
            f"gradients of channels are known of NumPy, torch, jax and CuPy, not of {library}; "
            "convert them first"
        )
    return words


def stopped(gradient: Any, x: Any, clip: Bounds, out: Any = None) -> Any:
    """`gradient` with zeros where `x`, an array of the same library and shape, was clipped.

    A new array, as `gradient` may share the memory of the caller's; or `out`, whose memory it is.
    """
    with on_device_of(gradient):
        return _stopped(gradient, x, clip, out)


def _stopped(gradient: Any, x: Any, clip: Bounds, out: Any) -> Any:
    low, high = clip
    outside = (x < low) | (x > high)  # a NaN is not, and passes as NaN
    if isinstance(gradient, np.ndarray):
        found = np.array(gradient) if out is None else gradient
        found[np.asarray(outside)] = 0
        return found if out is None else out
    if out is not None:
        out[outside] = 0
        return out
    library = type(gradient).__module__.partition(".")[0]
    words = import_module("jax.numpy") if library in ("jax", "jaxlib") else sys.modules[library]
    if not hasattr(words, "where"):
        raise ArgumentError(
            f"gradients under clip are known of NumPy, torch, jax and CuPy, not of {library}; "
            "convert them first"
        )
    return words.where(outside, 0, gradient)

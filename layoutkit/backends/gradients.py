"""Gradients of selected channels and of clipping, in the operations of an array's library."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from ..layout.pattern import Permutation
from ..normalize import Bounds
from ..planning.channels import ChannelSelection
from ..spec import DType
from .base import Adapter, on_device_of
from .registry import call_backend_hook

if TYPE_CHECKING:
    from ..options import ConvertOptions


def take_channels(options: ConvertOptions, adapter: Adapter, x: Any, *, pads: bool) -> Any:
    """Return a copy of the selected channels, or None if the conversion itself selects them.

    `pads`: the conversion also pads, and not a copy of x.
    """
    if options.channels is None or options.padding is None or pads or options.copy is False:
        return None
    move, picks = options.select_channels(adapter.inspect(x, "x")[0])
    if picks is None:
        return None
    sizes = picks.with_all_channels(move).sizes
    axis = picks.axis(move)
    order = np.array(picks.order)
    if adapter.pads_input:
        return adapter.take(x if sizes == tuple(x.shape) else x.reshape(sizes), axis, order)
    return adapter.from_numpy(np.take(adapter.to_numpy(x, "x").reshape(sizes), order, axis), x)


def scatter_channel_grad(
    gradient: Any, move: Permutation, picks: ChannelSelection, dtype: DType
) -> Any:
    """Return the gradient of x from the gradient of the selected channels.

    It is 0 for channels that were not selected, and a sum if one was selected several times.

    move    of the selected channels; `gradient` has the layout of its left side
    dtype   of the result
    """
    xp = _namespace_of(gradient, "gradients of channels", "stack", "zeros_like")
    axis = picks.axis(move)
    before = (slice(None),) * axis
    sums: dict[int, Any] = {}
    with np.errstate(all="ignore"), on_device_of(gradient):
        opened = gradient.reshape(move.sizes)
        for index, channel in enumerate(picks.order):
            part = opened[(*before, index)]
            sums[channel] = sums[channel] + part if channel in sums else part
        zeros = xp.zeros_like(next(iter(sums.values())))
        parts = [sums.get(channel, zeros) for channel in range(picks.count)]
        grad_x = xp.stack(parts, axis).reshape(picks.shape)
        if xp.__name__ == "torch":
            return grad_x.to(getattr(xp, dtype.name))
        return grad_x.astype(dtype)


def _namespace_of(gradient: Any, purpose: str, *functions: str) -> Any:
    """Return the module whose functions accept the gradient: numpy, or its library's.

    Raises ArgumentError, which names the purpose, if the module lacks one of the functions.
    """
    if isinstance(gradient, np.ndarray):
        return np
    library = type(gradient).__module__.partition(".")[0]
    xp = call_backend_hook("array_namespace", gradient) or sys.modules[library]
    if not all(hasattr(xp, name) for name in functions):
        raise ArgumentError(
            f"{purpose} are supported for NumPy, torch, JAX and CuPy, not for {library}; convert "
            "the gradient to one of them first"
        )
    return xp


def mask_clipped_grad(gradient: Any, x: Any, clip: Bounds, out: Any = None) -> Any:
    """Return `gradient` with zeros where `x`, an array of equal shape and library, was clipped.

    The result is a new array, as `gradient` may share memory with the caller's; or it is `out`,
    which is `gradient` itself.
    """
    with on_device_of(gradient):
        return _mask_clipped(gradient, x, clip, out)


def _mask_clipped(gradient: Any, x: Any, clip: Bounds, out: Any) -> Any:
    low, high = clip
    outside = (x < low) | (x > high)  # False for NaN, which is not clipped
    if isinstance(gradient, np.ndarray):
        result = np.array(gradient) if out is None else gradient
        result[np.asarray(outside)] = 0
        return result if out is None else out
    if out is not None:
        out[outside] = 0
        return out
    xp = _namespace_of(gradient, "gradients of clip=", "where")
    return xp.where(outside, 0, gradient)

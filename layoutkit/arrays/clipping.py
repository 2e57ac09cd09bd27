"""Gradients under a clip: nothing comes back from where x was outside of its window."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np

from ..constants import Bounds
from ..errors import ArgumentError
from .base import beside

__all__ = ["stopped"]


def stopped(gradient: Any, x: Any, clip: Bounds, out: Any = None) -> Any:
    """`gradient` with zeros where `x`, an array of the same library and shape, was clipped.

    A new array, as `gradient` may share the memory of the caller's; or `out`, whose memory it is.
    """
    with beside(gradient):
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

"""The dtypes that are averaged as floats, and the nearest positions of items that are moved.

`layoutkit/taps.py` computes the weights of averages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...errors import DtypeError
from ...memory import Array
from ...spec import DType, dtype_kind
from ..epilogue import is_supported_dtype, kernel_dtype_name
from ..plan import SupportsFloat16
from ..resize import ResizeOptions
from .placement import Placements

if TYPE_CHECKING:
    from ...options import CollateOptions, ConvertOptions


EXACT = frozenset({"b1", "i1", "i2", "u1", "u2", "f2", "bf", "f4"})  # dtypes that float32 contains
AVERAGED = (EXACT - {"b1"}) | {"f8"}


def summed_dtype(source: DType) -> DType:
    """Return the dtype in which samples are averaged: float64 if they are, else float32."""
    return source if source == np.float64 else np.dtype(np.float32)


def moves_items(resize: ResizeOptions, source: DType, has_half: SupportsFloat16) -> bool:
    """Return True if items are moved, instead of averaged as floats.

    Raises DtypeError unless samples of the dtype can be resized.
    """
    name = kernel_dtype_name(source) if is_supported_dtype(source, has_half) else ""
    if resize.filter == "nearest":
        return name not in EXACT
    if name in AVERAGED:
        return False
    raise DtypeError(
        f'samples have dtype {source}, which resize="{resize.filter}" does not average; convert '
        'them to float32 first, or move pixels unchanged by resize="nearest"'
    )


def converted_options(
    options: CollateOptions, shape: tuple[int, ...], source: DType, has_half: SupportsFloat16
) -> ConvertOptions:
    """Return the conversion of stacked windows of `shape`, of samples of the dtype `source`.

    Windows that are resized, unless their items are moved, are floats.
    """
    convert, resize = options.convert, options.resize
    if resize is None or moves_items(resize, source, has_half):
        return convert
    return options_of_floats(convert, convert.check_and_infer_dtype(shape, source)[1])


def options_of_floats(options: ConvertOptions, target: DType) -> ConvertOptions:
    """Return the conversion of resampled values, which are floats: integers are rounded."""
    casting = "saturate" if dtype_kind(target) in "ui" else "unsafe"
    return replace(options, dtype=target, casting=casting)


def nearest_positions(
    window: Sequence[int], resized: Sequence[int], placements: Placements, lengths: Array
) -> dict[int, Array]:
    """Return the nearest index in each sample of the positions of its window, by resized axis.

    Indices are int64, a row for each sample; -1: the position is outside of the sample, whose
    size is in `lengths`.
    """
    positions = {}
    for column, axis in enumerate(resized):
        begins, sizes, scaled, firsts = (field[:, column, None] for field in placements)
        place = firsts + np.arange(window[axis])
        nearest = begins + (2 * place + 1) * sizes // (2 * scaled)
        is_inside = (place >= 0) & (place < scaled) & (nearest >= 0)
        is_inside &= nearest < lengths[:, axis, None]
        positions[axis] = np.where(is_inside, nearest, -1)
    return positions

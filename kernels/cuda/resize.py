"""Prepare the launches that resample the samples of a batch, one for each resized axis.

A launch has a table in device memory: the samples, each with its blocks, offsets and axes, as
resize.cu declares them, and what they refer to by offsets: tap tables
(`kernels/cpu/resize_params.py`), positions of selected channels, and fill values.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from .launch import THREADS, CudaLaunch
from .tiling import divisor


class SampleAxis(NamedTuple):
    """An axis of a sample in one launch.

    length          positions of the output
    source, target  bytes from one position to the next
    begin, size     the first position of the source, and the number of its positions
    positions       the offset of a table of positions after `begin`; 0: consecutive ones
    taps            the offset of the tap table; 0: the axis is not resized
    """

    length: int
    source: int
    target: int
    begin: int
    size: int
    positions: int = 0
    taps: int = 0


class SamplePass(NamedTuple):
    """A sample in one launch: bytes to its first element on both sides, and its axes."""

    source: int
    target: int
    axes: tuple[SampleAxis, ...]


def prepare_pass(
    samples: Sequence[SamplePass],
    dtypes: tuple[str, str],
    tapped: int,
    table: int,
    fill: tuple[int | None, int],
    *,
    is_bounded: bool,
    is_last: bool,
) -> tuple[CudaLaunch, bytes]:
    """Return the launch that resamples the axis `tapped`, and the samples for its table.

    Parameters
    ----------
    dtypes : the kernels' names of the dtypes of the source and of the output
    table : the offset of the samples in the table
    fill : the axis along which fill values differ, if any, and the offset of the values
    is_bounded : whether positions may lie outside of samples
    is_last : whether all other axes have been resampled
    """
    axes = len(samples[0].axes)
    filled = axes if fill[0] is None else fill[0]
    packed, blocks = [], 0
    for sample in samples:
        size = prod(axis.length for axis in sample.axes)
        packed.append(struct.pack("2Q2q", blocks, size, sample.source, sample.target))
        packed += [divisor(axis.length) + struct.pack("6q", *axis[1:]) for axis in sample.axes]
        blocks += -(-size // THREADS)
    defines = {
        "AXES": axes, "INSIDE": int(not is_bounded), "LAST": int(is_last),
        "MOVES": int(dtypes[0] == dtypes[1] and dtypes[0][0] == "m"),
        "SOURCE": dtypes[0], "TARGET": dtypes[1], "THREADS": THREADS,
    }  # fmt: skip
    launch = CudaLaunch(
        "resize",
        tuple((name, str(value)) for name, value in sorted(defines.items())),
        struct.pack("5Q", len(samples), table, tapped, filled, fill[1]),
        blocks,
        pointers=4,
    )
    return launch, b"".join(packed)

"""Convert video frames in planes on the CPU with one job: RGB bytes in the cache, then the result.

The kernel of `kernels/cpu/yuv.py` computes bands of rows in a scratch area of each thread, and
calls the kernel that converts a band.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from .._utils import fork
from ..buffers import empty_with_address
from ..kernels.cpu import yuv_params as t
from ..kernels.cpu.params import LINE
from ..memory import Array, contiguous_strides, data_pointer
from ..options import ConvertOptions
from ..planning.plan import Part, Plan, make_single_plan
from ..planning.yuv import FrameFormat, FramePlan, plan_frame
from ..spec import CPU, DType
from ..threads.limits import get_num_threads
from ..threads.pool import Job
from .program import supports_float16

BAND_BYTES = 32 << 10  # of RGB bytes, which stay in the first-level cache or the second
MIN_CHUNKS = 16  # chunks per thread, so that threads end at about the same time
COST = 4  # bytes that are converted in the time of computing one byte of RGB
RGB = np.dtype(np.uint8)


@dataclass(frozen=True)
class _Launch:
    """The parameter block for outputs of an alignment, and the memory that it refers to."""

    params: bytes
    conversion: Array


class FrameProgram:
    """The program of frames of one size and memory layout; safe to call from several threads."""

    def __init__(
        self,
        frame: FramePlan,
        planes: Sequence[Array],
        frame_format: FrameFormat,
        strides: tuple[int, ...],
        dtype: DType,
        threads: int | None,
    ) -> None:
        """`strides` and `dtype` describe the output with unfolded axes."""
        self._frame = frame
        self._format = frame_format
        self._threads = threads
        self._height, self._width = planes[0].shape[-2:]
        self._itemsize = planes[0].itemsize
        self.dtype = dtype
        self._nbytes = prod(frame.result) * dtype.itemsize
        self._row_step = strides[frame.row_axis]
        self._plane_strides = [step for plane in planes for step in plane.strides[-2:]]
        self._rows = self._choose_rows()
        self._bands = -(-self._height // self._rows)
        self.plan = self._plan_band(strides)
        self._out_steps = [strides[axis] for axis in frame.leading_axes]
        plane_steps = [plane.strides[:-2] for plane in planes]
        self._table = np.stack(
            [_list_offsets(frame.leading, s) for s in (*plane_steps, self._out_steps)], 1
        )  # (frames, 4) int64
        self.nbytes = self._table.nbytes
        self._launches: dict[int, _Launch] = {}  # by the alignment of the output

    def __call__(self, planes: Sequence[Array], out: Array) -> None:
        """Convert planes into `out`, an array of the shape and strides of the program."""
        if not self._nbytes:
            return
        dst = data_pointer(out)
        launch = self._find_launch(dst)
        units = self._bands * len(self._table)
        threads = min(self._threads or get_num_threads(), units)
        is_wide = self._format.is_wide
        rows = (
            t.WIDE_ROWS * t.wide_row_bytes(self._width) if is_wide else 3 * t.row_bytes(self._width)
        )
        size = -(-(rows + 3 * self._rows * self._width) // LINE) * LINE
        areas, address = empty_with_address((size * threads,), RGB)
        starts = [*map(data_pointer, planes), 0]
        call = np.array([address, size, threads, *[0] * threads], np.int64)
        call = np.concatenate([call, (self._table + starts).ravel()])
        with fork.init_lock:
            from ..kernels.cpu.compiler import KernelSpec, load

            kernel = load(KernelSpec("yuv", ("wide" if is_wide else "frames",)))
        grain = max(1, units // (MIN_CHUNKS * threads))
        cost = 3 * self._height * self._width * len(self._table) * COST
        Job(kernel, launch.params, units, grain, self._nbytes + cost, self._threads).run(
            data_pointer(call), dst
        )
        del areas  # kept alive until the job has run

    def _choose_rows(self) -> int:
        """Return the number of rows of a band, which share rows of color by two."""
        most = BAND_BYTES // max(1, 3 * self._width)
        return min(self._height, max(2, most - most % 2))

    def _plan_band(self, strides: tuple[int, ...]) -> Plan:
        """Return the plan of the conversion of a band, whose colors are planes, to the output."""
        frame = self._frame
        part = Part(
            frame.band_shape(self._rows),
            tuple(strides[axis] for _, axis in frame.groups),
            self.dtype,
        )
        shape = self._rows, self._width, 3
        source_strides = self._width, 1, self._rows * self._width
        return make_single_plan(
            frame.options, shape, source_strides, RGB, CPU, part, supports_float16
        )

    def _find_launch(self, dst: int) -> _Launch:
        """Return the cached parameter block for outputs of the alignment of `dst`."""
        last = (self._height - self._rows) * self._row_step
        steps = [self._rows * self._row_step, last, *self._out_steps]
        offsets = [dst for _, dst in self.plan.launches()]
        alignment = gcd(LINE, dst, *steps, *offsets)
        known = self._launches.get(alignment)
        return known or self._launches.setdefault(alignment, self._prepare(alignment))

    def _prepare(self, alignment: int) -> _Launch:
        with fork.init_lock:
            from ..kernels.cpu.compiler import load
            from ..kernels.cpu.launch import STREAM_BYTES, prepare

        if self.plan.choice is None:
            raise RuntimeError(f"{self.plan.pattern}: a band needs a kernel")
        stream = self._nbytes >= STREAM_BYTES
        launch = prepare(self.plan.choice, self.plan.epilogue, alignment, stream)
        conversion = np.frombuffer(launch.params, np.uint8)
        code, address = load(launch.spec).address, data_pointer(conversion)
        words = [self._width, self._height, self._rows, self._bands, *self._plane_strides]
        launches = list(self.plan.launches())
        words += [self._row_step, len(launches), self._itemsize, self._format.shift]
        words += self._format.weights
        params = struct.pack(f"{t.WORDS + t.COEFFICIENTS}q", *words, *self._format.coefficients())
        for src, dst in launches:
            params += struct.pack(f"{t.LAUNCH}q", code, address, launch.units, src, dst)
        return _Launch(params, conversion)


def _list_offsets(sizes: tuple[int, ...], steps: Sequence[int]) -> Array:
    """Return the byte offset of each index of some axes, int64."""
    offsets = np.zeros(1, np.int64)
    for size, step in zip(sizes, steps, strict=True):
        offsets = np.add.outer(offsets, np.arange(size) * step).ravel()
    return offsets


def make_frame_program(
    options: ConvertOptions,
    planes: Sequence[Array],
    frame_format: FrameFormat,
    out: Array | None,
) -> FrameProgram | None:
    """Return the program for frames, or None if they are first converted to RGB bytes.

    Raises the errors of a conversion of RGB bytes.
    """
    shape = *planes[0].shape, 3
    frame = plan_frame(options, shape, RGB)
    if frame is None:
        return None
    _, _, dtype = options.infer_result(shape, RGB, out)
    strides = contiguous_strides(frame.result, dtype)
    if out is not None:
        strides = out.reshape(frame.result).strides  # splits folded axes without a copy
    program = FrameProgram(frame, planes, frame_format, strides, dtype, options.threads)
    plan = program.plan
    is_single = plan.is_one_pass or (plan.choice is not None and bool(plan.choice.host_loops))
    return program if is_single else None

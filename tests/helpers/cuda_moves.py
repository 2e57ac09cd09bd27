"""Conversions and sums as a GPU runs them, with its kernels on the CPU (`cuda_shim`)."""

from __future__ import annotations

import cuda_shim
import numpy as np

from layoutkit import Converter
from layoutkit.accumulation import Accumulator
from layoutkit.cpu.resize import AxisPlacement, tap_tables
from layoutkit.cuda.program import supports_float16
from layoutkit.kernels.cuda.accumulate import MAX_AXES, prepare_sum
from layoutkit.kernels.cuda.launch import prepare
from layoutkit.kernels.cuda.resize import SampleAxis, SamplePass, prepare_pass
from layoutkit.planning.accumulate import make_operand, make_sum_plan
from layoutkit.planning.plan import make_single_plan
from layoutkit.planning.resize import ResizeOptions

EDGE = 256  # the alignment of addresses before they are shifted


def placed(shape, dtype, shift=0):
    """Return contiguous memory whose address is `shift` bytes after a multiple of EDGE."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.full(size + 2 * EDGE, 0x77, np.uint8)
    start = -raw.__array_interface__["data"][0] % EDGE + shift
    return raw[start : start + size].view(dtype).reshape(shape)


def copied(values, shift):
    """Copy values to memory whose address is `shift` bytes after a multiple of EDGE."""
    memory = placed(values.shape, values.dtype, shift)
    memory[...] = values
    return memory


def converted(x, pattern, out=None, *, shift=0, how=None, **keywords):
    """Return the result of `layoutkit.convert` by CUDA kernels; `how`: options of cuda_shim.run."""
    return prepared(x, pattern, out, shift=shift, **keywords)(**(how or {}))


def prepared(x, pattern, out=None, *, shift=0, **keywords):
    """Start compiling a conversion; return a function of the options of `cuda_shim.run`."""
    plan, launches = planned(x, pattern, out, shift=shift, **keywords)
    assert plan.before is plan.after is None
    for launch, _, _ in launches:
        cuda_shim.compiling(launch.family, launch.defines, "checked")

    def run(**how):
        for launch, output, shifts in launches:
            cuda_shim.run(launch, output, [x], shifts=shifts, **how)
        return output

    return run


def planned(x, pattern, out=None, *, shift=0, **keywords):
    """Return the plan, and for each launch: it, the output, and the shifts of both sides."""
    task = Converter(pattern, copy=True, **keywords).options
    plan = make_single_plan(task, x.shape, x.strides, x.dtype, "cuda:0", out, supports_float16)
    out = placed(plan.target.shape, plan.target.dtype, shift) if out is None else out
    launches = []
    for src, dst in plan.launches():
        launch = prepare(plan.choice, plan.epilogue, address(x) + src, address(out) + dst)
        launches.append((launch, out, (dst, src)))
    return plan, launches


def summed(parts, layout, *, how=None, out=None, **keywords):
    """Return the result of `layoutkit.accumulate` for parts that one CUDA kernel adds."""
    launch, out, arrays, shifts = planned_sum(parts, layout, out, **keywords)
    cuda_shim.run(launch, out, arrays, shifts=shifts, **(how or {}))
    return out


def planned_sum(parts, layout, out=None, **keywords):
    """Return the launch of a sum, its output, its sources and the shifts of all."""
    accumulator = Accumulator(tuple(of for _, of in parts), layout, **keywords)
    request = accumulator.plan([array for array, _ in parts], out)
    plan = make_sum_plan(request, supports_float16, MAX_AXES)
    assert plan.in_place
    assert not any(plan.stages)
    arrays = [array for array, _ in parts]
    out = placed(request.shape, plan.written) if out is None else out
    operands = [make_operand(dtype) for dtype in (*plan.dtypes, request.computed, plan.written)]
    shifts = plan.nest.dst_offset, *plan.nest.src_offsets
    starts = [address(array) + shift for array, shift in zip([out, *arrays], shifts, strict=True)]
    launch = prepare_sum(plan.nest.loops, operands[:-2], *operands[-2:], [*starts[1:], starts[0]])
    return launch, out, arrays, shifts


def planned_resize(x, axis, size, name="bilinear", *, outside=0, is_last=True, target="f4"):
    """Return a launch that resizes an axis of x and of x reversed, its output and its sources.

    The first and last position of the output are filled; the crop begins `outside` positions
    before the samples and ends as many behind them. The last axis is read backwards.
    """
    options = ResizeOptions(name)
    extent = x.shape[axis] + 2 * outside
    placement = AxisPlacement(size, *np.array([[extent], [size - 2], [-1]]))
    taps = tap_tables(options, [placement])[0]
    counts = [size if i == axis else n for i, n in enumerate(x.shape)]
    out = placed((2, *counts), target)
    parts = [bytes(16), np.arange(1, counts[-1] + 1).astype(target).tobytes()]
    parts += [taps.tobytes(), np.arange(counts[-1], dtype=np.int64)[::-1].tobytes()]
    offsets = [0]
    for n, part in enumerate(parts):
        parts[n] = part + bytes(-len(part) % 16)
        offsets.append(offsets[-1] + len(parts[n]))
    last = x.ndim - 1
    columns = [
        counts, x.strides, out.strides[1:],
        [-outside * (i == axis) for i in range(x.ndim)], x.shape,
        [offsets[3] * (i == last) for i in range(x.ndim)],
        [offsets[2] * (i == axis) for i in range(x.ndim)],
    ]  # fmt: skip
    forward = tuple(SampleAxis(*numbers) for numbers in zip(*columns, strict=True))
    reverse = (forward[0]._replace(source=-x.strides[0]), *forward[1:])
    begin = (x.shape[0] - 1) * x.strides[0]
    samples = [SamplePass(0, 0, forward), SamplePass(begin, out.strides[0], reverse)]
    item = make_operand(x.dtype).name
    dtypes = (f"m{x.itemsize}",) * 2 if target == x.dtype and name == "nearest" else (item, "f4")
    launch, packed = prepare_pass(
        samples, dtypes, axis, offsets[-1], (last, offsets[1]), is_bounded=outside > 0,
        is_last=is_last,
    )  # fmt: skip
    table = copied(np.frombuffer(b"".join([*parts, packed]), np.uint8), 0)
    return launch, out, [table, x]


def resize_of(dtype, name="bilinear", **options):
    """Return a launch that resizes small images."""
    return planned_resize(placed((20, 24, 3), dtype), 0, 9, name, **options)[0]


def launch_of(pattern, shape, item="u4", shift=0, **keywords):
    """Return the launch of a conversion of a contiguous array."""
    return planned(placed(shape, item, shift), pattern, **keywords)[1][0][0]


def sum_of(*dtypes, sizes=(40, 72), **keywords):
    """Return the launch of a sum of two layouts."""
    parts = [(placed(sizes, dtypes[0]), "bc"), (placed(sizes[::-1], dtypes[-1]), "cb")]
    return planned_sum(parts, "bc", **keywords)[0]


def address(array):
    """Return the address of the first element."""
    return array.__array_interface__["data"][0]

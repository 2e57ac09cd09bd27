"""Conversions and sums as a GPU runs them, with its kernels on the CPU (`cuda_shim`)."""

from __future__ import annotations

from itertools import product

import cuda_shim
import numpy as np

from layoutkit import Converter
from layoutkit.accumulation import Accumulator
from layoutkit.kernels.cuda.launch import prepare
from layoutkit.kernels.cuda.tiles import MAX_AXES, prepare_sum
from layoutkit.planning.epilogue import Coefficients, Epilogue
from layoutkit.planning.sums import lay_out, operand

EDGE = 256  # what addresses are a multiple of, before they are shifted


def placed(shape, dtype, shift=0):
    """Contiguous memory whose address is `shift` bytes beyond a multiple of EDGE."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.full(size + 2 * EDGE, 0x77, np.uint8)
    start = -raw.__array_interface__["data"][0] % EDGE + shift
    return raw[start : start + size].view(dtype).reshape(shape)


def copied(values, shift):
    """The same values in such memory."""
    memory = placed(values.shape, values.dtype, shift)
    memory[...] = values
    return memory


def converted(x, pattern, out=None, *, shift=0, how=None, **keywords):
    """What `layoutkit.convert` returns, made by CUDA kernels; `how` is for `cuda_shim.run`."""
    return prepared(x, pattern, out, shift=shift, **keywords)(**(how or {}))


def prepared(x, pattern, out=None, *, shift=0, **keywords):
    """The same as a function of `how`, for which compiling begins at once."""
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
    """The plan, and for each launch: it, the output, and the shifts of both sides."""
    converter = Converter(pattern, copy=True, **keywords)
    plan = converter.task.plan(x.shape, x.strides, x.dtype, "cuda:0", out)
    out = placed(plan.target.shape, plan.target.dtype, shift) if out is None else out
    finish = None
    if plan.names is not None:
        coefficients = plan.coefficients and Coefficients(*plan.coefficients)
        finish = Epilogue(*plan.names, plan.saturate, coefficients)
    launches = []
    for place in product(*(range(loop.count) for loop in plan.choice.beyond)):
        turns = list(zip(place, plan.choice.beyond, strict=True))
        src = plan.loops.src_offset + sum(i * loop.src for i, loop in turns)
        dst = plan.loops.dst_offset + sum(i * loop.dst for i, loop in turns)
        launch = prepare(plan.choice, finish, address(x) + src, address(out) + dst)
        launches.append((launch, out, (dst, src)))
    return plan, launches


def summed(parts, layout, *, how=None, out=None, **keywords):
    """What `layoutkit.accumulate` returns for two or more parts that one kernel adds."""
    launch, out, arrays, shifts = planned_sum(parts, layout, out, **keywords)
    cuda_shim.run(launch, out, arrays, shifts=shifts, **(how or {}))
    return out


def planned_sum(parts, layout, out=None, **keywords):
    """The launch of a sum, its output, its sources and the shifts of all."""
    accumulator = Accumulator(tuple(of for _, of in parts), layout, **keywords)
    request = accumulator.plan([array for array, _ in parts], out)
    lay = lay_out(request, lambda: True, MAX_AXES - 1)
    assert lay.in_place
    assert not any(lay.stages)
    arrays = [array for array, _ in parts]
    out = placed(request.shape, lay.written) if out is None else out
    operands = [operand(dtype) for dtype in (*lay.dtypes, request.computed, lay.written)]
    launch = prepare_sum(lay.nest.loops, operands[:-2], *operands[-2:])
    return launch, out, arrays, (lay.nest.dst_offset, *lay.nest.src_offsets)


def address(array):
    """Where the first element is."""
    return array.__array_interface__["data"][0]

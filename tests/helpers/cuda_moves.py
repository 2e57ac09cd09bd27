"""Conversions and sums as a GPU runs them, with its kernels on the CPU (`cuda_shim`)."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from unittest.mock import patch

import numpy as np

from layoutkit import Collator, Converter
from layoutkit.accumulation import Accumulator
from layoutkit.cuda.collate import DeviceCollateProgram
from layoutkit.cuda.memory import DeviceArray, DeviceArrays
from layoutkit.cuda.packed import DevicePackedProgram
from layoutkit.cuda.program import supports_float16
from layoutkit.kernels.cuda import boxes, policy
from layoutkit.kernels.cuda import launch as launches_of
from layoutkit.kernels.cuda.accumulate import prepare_sum
from layoutkit.kernels.cuda.launch import prepare
from layoutkit.kernels.cuda.policy import MAX_AXES
from layoutkit.packing import PackedCollation
from layoutkit.planning.accumulate import make_operand, make_sum_plan
from layoutkit.planning.batch.arguments import CropArgs
from layoutkit.planning.plan import make_single_plan
from layoutkit.spec import as_dtype

from . import cuda_shim

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
    """Return the plan and its launches as (launch, output, shifts of output and source)."""
    options = Converter(pattern, copy=True, **keywords).options
    plan = make_single_plan(options, x.shape, x.strides, x.dtype, "cuda:0", out, supports_float16)
    out = placed(plan.target.shape, plan.target.dtype, shift) if out is None else out
    launches = []
    for src, dst in plan.launches():
        launch = prepare(plan.choice, plan.epilogue, address(x) + src, address(out) + dst)
        launches.append((launch, out, (dst, src)))
    return plan, launches


@contextmanager
def by_boxes(lengths=(), word=None):
    """Plan with `permute` only, also for small arrays.

    `lengths` fixes the iterations of the loops that boxes divide, and `word` the items that a
    thread writes at once; without them the best ones are chosen.
    """

    def in_lengths(count, most):
        return {n for n in (*lengths, count) if n <= min(count, most)} - {count} or {count}

    make_box = boxes._box

    def in_words(parts, items):
        box = make_box(parts, items)
        return replace(box, share=box.share if items == word else 0.0)

    makers = (launches_of.make_permute,)
    kernels = ("transpose", "split", "merge", "shuffle", "gather", "copy", "cast")
    with (
        patch.object(policy, "FEW_TILES", 0),
        patch.object(launches_of, "MAKERS", dict.fromkeys(kernels, makers)),
        patch.object(boxes, "_lengths", in_lengths if lengths else boxes._lengths),
        patch.object(boxes, "_box", in_words if word else make_box),
    ):
        yield


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


class _Memory:
    """The memory of a collation, which allocates the result unless it is given."""

    def __init__(self, out):
        self.out = out

    def check(self, dtype):
        """Accept every dtype."""

    def empty(self, shape, dtype, ordinal):
        if self.out is None:
            self.out = placed(shape, dtype)
        return device_array(self.out)


def device_array(x):
    """Return the memory of a NumPy array as a DeviceArray."""
    return DeviceArray(address(x), x.shape, x.strides, x.dtype, 0, x)


def together(arrays, shift=0):
    """Return memory with copies of arrays, the first one `shift` bytes after a multiple of EDGE.

    Also return the copies. Each later copy begins one item after the end of the previous one.
    """
    strides = [np.zeros(x.shape, x.dtype).strides if x.size else x.strides for x in arrays]
    sizes = [x.nbytes + x.itemsize for x in arrays]
    raw = placed((sum(sizes) - arrays[-1].itemsize,), np.uint8, shift)
    copies = []
    for x, step, end in zip(arrays, strides, np.cumsum(sizes), strict=True):
        copy = np.ndarray(x.shape, x.dtype, raw, end - x.nbytes - x.itemsize, step)
        copy[...] = x
        copies.append(copy)
    return raw, copies


def planned_collate(samples, pattern, out=None, *, shift=0, call=None, **keywords):
    """Return a launch that collates copies of samples, its output, its sources and their shifts.

    `call` has the arguments of one call.
    """
    raw, copies = together(samples, shift)
    return planned_in_place(raw, copies, pattern, out, call=call, **keywords)


def planned_in_place(raw, samples, pattern, out=None, *, call=None, **keywords):
    """Return a launch that collates samples in `raw`, its output, its sources and their shifts."""
    program = DeviceCollateProgram(Collator(pattern, **keywords).windows)
    memory = _Memory(out)
    arrays = DeviceArrays.of([device_array(x) for x in samples])
    target = None if out is None else device_array(out)
    crops = CropArgs(**(call or {}))
    batch = program.prepare(arrays, None, crops, target, memory, may_convert=True)
    launch, table, base = batch.launch
    return launch, memory.out, [bytes_of(table), raw], (0, 0, base - address(raw))


def bytes_of(table):
    """Return the bytes of the table of a launch in memory that a kernel may read."""
    memory = placed((table.nbytes,), np.uint8)
    table.copy_to(memory)
    return memory


def planned_packed(samples, pattern, *, shift=0, call=None, **keywords):
    """Return a launch that packs copies of samples, its output, its sources and their shifts."""
    raw, copies = together(samples, shift)
    options = Collator(pattern, **keywords).windows
    packing = PackedCollation(options, Collator.from_options)
    batch = packing._check_all([(x.shape, x.dtype) for x in copies], CropArgs(**(call or {})))
    program = DevicePackedProgram(options)
    arrays = DeviceArrays.of([device_array(x) for x in copies])
    plan = program.find_plan(batch.axes, batch.layout, arrays, None)
    out = placed(batch.layout.shape, plan.target.dtype)
    placements = packing._place(batch.axes, batch.shapes, batch.args, batch.layout)
    launch, table, base = program.prepare_windows(
        arrays, batch.axes, placements, batch.layout, plan, device_array(out)
    ).launch
    return launch, out, [bytes_of(table), raw], (0, 0, base - address(raw))


def packed(samples, pattern, *, how=None, **keywords):
    """Return the packed batch that a CUDA kernel makes; `how`: options of cuda_shim.run."""
    launch, out, sources, shifts = planned_packed(samples, pattern, **keywords)
    cuda_shim.run(launch, out, sources, shifts=shifts, **(how or {}))
    return out


def collated(samples, pattern, *, how=None, **keywords):
    """Return the batch that a CUDA kernel makes; `how`: options of cuda_shim.run."""
    launch, out, sources, shifts = planned_collate(samples, pattern, **keywords)
    cuda_shim.run(launch, out, sources, shifts=shifts, **(how or {}))
    return out


def collate_of(item, pattern="hwc->bchw", shape=(20, 24, 3), count=2, **keywords):
    """Return a launch that collates small images."""
    samples = [np.ones(shape, item)] * count
    return planned_collate(samples, pattern, **keywords)[0]


def packed_of(item, pattern="(hp)(wq)c->(bhw)(cpq)", shapes=((18, 24, 3), (6, 30, 3)), **keywords):
    """Return a launch that packs patches of small images."""
    samples = [np.ones(shape, item) for shape in shapes]
    return planned_packed(samples, pattern, p=3, q=3, **keywords)[0]


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


def planned_row(row):
    """Return the launch of a row of the benchmark, its output, its sources and their shifts."""
    sources = [_untouched(row.shape(of), row.dtype) for of in row.sources]
    out = _untouched(row.result_shape, row.to_dtype)
    if row.kind == "accumulate":
        return planned_sum(list(zip(sources, row.sources, strict=True)), row.target, out)
    (x,) = sources
    if row.kind == "collate":
        samples = [*np.moveaxis(x, row.sources[0].index("b"), 0)]
        pattern = row.pattern.replace("b", "", 1)
        return planned_in_place(x, samples, pattern, out, **row.keywords)
    _, [(launch, _, shifts)] = planned(x, row.pattern, out, **row.keywords)
    return launch, out, [x], shifts


def _untouched(shape, dtype):
    """Return memory that is allocated lazily by the system and aligned to 256 bytes."""
    size = prod(shape) * as_dtype(dtype).itemsize
    memory = np.zeros(size + 256, np.uint8)
    return memory[-memory.ctypes.data % 256 :][:size].view(as_dtype(dtype)).reshape(shape)


def whole_only(text):
    """Return the text of a family without the code for ragged edges."""
    text = re.sub(r"else\s+(move|Box)<false>.*?\);", "", text, flags=re.DOTALL)
    return re.sub(r"\n +copy_bytes\(.*?\);", ";", text, flags=re.DOTALL)

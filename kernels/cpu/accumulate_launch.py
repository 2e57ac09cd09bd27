"""Prepare a sum of arrays: tiles that fit the cache, and a kernel for each step of a tile.

launch.py prepares conversions. The constants are tuned; docs/performance.md has the measurements.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from ...memory import data_pointer
from ...planning.epilogue import Epilogue, Operand
from ...planning.loops import Loop, SumLoop, canonicalize_loops, grow_block, smallest_stride_loop
from ...planning.select import select_row
from .caches import l2_cache_bytes
from .compiler import KernelSpec, LoadedKernel, load
from .launch import CHUNK_BYTES, STREAM_BYTES, prepare
from .params import LINE, MAX_LOOPS
from .tiling import streams_single_lines

MAX_NESTED_LOOPS = 8  # maximum nested loops that every kernel of a tile accepts
# Bytes of a tile along an axis on which a part is contiguous. Runs of 256 bytes reached 85 % of the
# memory bandwidth, and single cache lines a third of it. If not all axes can be so long, all of
# them are shortened. The axis of the output is a line long where single lines are streamed as fast
# as pairs: bchw+chwb+bhwc+bchw -> bhwc of (64, 56, 56, 64) float32 took 13.3 ms with tiles of
# 64 x 128 x 16, 15.7 with 64 x 64 x 32 and 16.9 with 32 x 64 x 32 (AMD EPYC with 1 MB of L2,
# 2026-11-27).
PIECE_BYTES = 256
# Bytes of a tile, for the L1 cache, if all parts are contiguous along the output's last axis.
ROWS_BYTES = 16384
# Tiles then grow to 1 / NEAR_SHARE of the L2 cache along axes on which a part is contiguous (the
# source passes through this cache too), and to 1 / FAR_SHARE along other axes.
NEAR_SHARE = 2
FAR_SHARE = 8
PAGE = 4096  # rows whose distance is a multiple of a page evict each other from the L1 cache
EVEN = 16  # tile lengths are multiples of EVEN, as kernels process full registers
FEWEST = 32  # minimum tiles of a large sum, so that threads end together


Load = Callable[[KernelSpec], LoadedKernel]


@dataclass(frozen=True)
class SumLaunch:
    """A prepared sum: code and parameters of the kernel "sum", its tiles and its scratch areas."""

    kernel: object
    params: bytes
    units: int
    grain: int
    area: int  # bytes of the scratch area of each thread
    keep: tuple[object, ...]  # parameter blocks that `params` points to


@dataclass(frozen=True)
class _TileStep:
    """A kernel call for a box: code, parameters, units, and the offsets of source and output."""

    code: int
    block: int
    units: int
    src_offset: int
    dst_offset: int
    keep: object


def prepare_sum(
    loops: Sequence[SumLoop],
    parts: Sequence[Operand],
    computed: Operand,
    target: Operand,
    alignment: int,
    load: Load = load,
) -> SumLaunch:
    """Divide a sum of at most MAX_NESTED_LOOPS loops (the caller checks that) into tiles.

    `alignment`: a power of two, at most a cache line, that divides the output's address. `load`:
    returns the kernel of a spec.
    """
    tile = tile_lengths(loops, [part.item for part in parts], computed.item, target.item)
    area_steps = _steps(tile, computed.item)
    count = prod(loop.count for loop in loops)
    steps = []
    for number, part in enumerate(parts):
        box = [
            Loop(length, loop.srcs[number], step)
            for length, loop, step in zip(tile, loops, area_steps, strict=True)
        ]
        source_bytes = count * part.item
        steps.append(_step(box, part, computed, load, add=number > 0, source_bytes=source_bytes))
    box = [
        Loop(length, step, loop.dst)
        for length, loop, step in zip(tile, loops, area_steps, strict=True)
    ]
    total = count * target.item
    tile_alignment = gcd(alignment, *_tile_offsets(loops, tile))
    stream = total >= STREAM_BYTES
    steps.append(_step(box, computed, target, load, alignment=tile_alignment, stream=stream))
    words = list(_words(loops, tile, steps))
    units = prod(-(-loop.count // length) for loop, length in zip(loops, tile, strict=True))
    bytes_moved = total + sum(part.item for part in parts) * count
    grain = max(1, min(CHUNK_BYTES * units // bytes_moved, units // 16))
    area = -(-(tile[0] * area_steps[0]) // LINE) * LINE + LINE
    params = struct.pack(f"{len(words)}q", *words)
    keep = tuple(step.keep for step in steps)
    return SumLaunch(load(KernelSpec("accumulate", ("sum",))), params, units, grain, area, keep)


# ---- tiles -------------------------------------------------------------------------------


def tile_lengths(
    loops: Sequence[SumLoop], items: Sequence[int], item: int, out_item: int
) -> tuple[int, ...]:
    """Return the tile length along each loop.

    `items`: item sizes of the parts; `item`, `out_item`: of the computed dtype and of the output.
    """
    inner = len(loops) - 1
    smallest: dict[int, int] = {}  # the smallest item size of parts that are contiguous on an axis
    for part, size in enumerate(items):
        axis = smallest_stride_loop(loops, part)
        smallest[axis] = min(size, smallest.get(axis, size))
    rows_only = smallest.keys() == {inner}
    cache_bytes = l2_cache_bytes()
    max_items = (ROWS_BYTES if rows_only else cache_bytes // NEAR_SHARE) // item
    total = prod(loop.count for loop in loops)
    max_items = min(max_items, max(ROWS_BYTES // item, total // FEWEST))
    axes = [*[axis for axis in smallest if axis != inner], inner]
    out_bytes = LINE if streams_single_lines() else PIECE_BYTES
    lengths = [1] * len(loops)
    for nbytes in (LINE, PIECE_BYTES):
        longest = {axis: nbytes // size for axis, size in smallest.items()}
        longest[inner] = min(nbytes, out_bytes) // out_item
        limited = [
            loop._replace(count=min(loop.count, longest.get(axis, 1)))
            for axis, loop in enumerate(loops)
        ]
        grow_block(lengths, limited, axes, max_items)
    grow_block(lengths, loops, axes, max_items)
    other_axes = [axis for axis in reversed(range(len(loops))) if axis not in axes]
    for axis in other_axes:
        grow_block(lengths, loops, [axis], min(max_items, cache_bytes // FAR_SHARE // item))
    return tuple(_even(loop.count, count) for loop, count in zip(loops, lengths, strict=True))


def _even(total: int, count: int) -> int:
    """Return a tile length of about `count` that divides `total` into nearly equal tiles."""
    tiles = -(-total // count)
    length = -(-total // tiles)
    return min(total, -(-length // EVEN) * EVEN) if count > EVEN else count


def _steps(tile: Sequence[int], item: int) -> list[int]:
    """Return the byte strides of a tile: contiguous, plus a line where they are whole pages."""
    steps: list[int] = []
    step = item
    for count in reversed(tile):
        steps.insert(0, step)
        step *= count
        if step % PAGE == 0:
            step += LINE
    return steps


def _tile_offsets(loops: Sequence[SumLoop], tile: Sequence[int]) -> Iterator[int]:
    """Yield a common divisor of the output offsets of tiles along each divided loop."""
    for loop, count in zip(loops, tile, strict=True):
        if count < loop.count:
            yield gcd(count, loop.count - count) * loop.dst


# ---- steps -------------------------------------------------------------------------------


def _step(
    box: list[Loop],
    source: Operand,
    target: Operand,
    load: Load,
    *,
    add: bool = False,
    alignment: int = LINE,
    stream: bool = False,
    source_bytes: int | None = None,
) -> _TileStep:
    """Return the step that moves (or adds) one box, with its parameters in memory.

    `source_bytes`: the size of the array that contains the box, if the source is a part.
    """
    pure = source == target and not add
    loops = canonicalize_loops(box, source.item, pure=pure)
    choice = select_row(loops, target.item, pure=pure)
    epilogue = None if pure else Epilogue(source.name, target.name, add=add)
    launch = prepare(choice, epilogue, alignment, stream, source_bytes)
    params = np.frombuffer(launch.params, np.uint8)
    code = load(launch.spec).address
    offsets = loops.src_offset, loops.dst_offset
    return _TileStep(code, data_pointer(params), launch.units, *offsets, params)


def _words(
    loops: Sequence[SumLoop], tile: Sequence[int], steps: Sequence[_TileStep]
) -> Iterator[int]:
    """Yield the words of the parameter block, which accumulate.py describes."""
    if len(loops) > MAX_LOOPS:
        raise RuntimeError(f"{len(loops)} loops around a tile; the kernel takes {MAX_LOOPS}")
    yield from (len(loops), len(steps) - 1)
    for loop, count in zip(loops, tile, strict=True):
        yield from (-(-loop.count // count), count, loop.count - count, loop.dst)
    for number, step in enumerate(steps):
        yield from (step.code, step.block, step.units, step.src_offset, step.dst_offset)
        if number < len(steps) - 1:
            yield from (loop.srcs[number] for loop in loops)

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

MAX_NESTED_LOOPS = 8  # maximum nested loops that every kernel of a tile accepts
# Bytes of a tile along an axis on which a part is contiguous. Runs of 256 bytes reached 85 % of the
# memory bandwidth, and single cache lines a third of it.
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
    tile = tile_lengths(loops, [part.item for part in parts], computed.item)
    area_steps = _steps(tile, computed.item)
    steps = []
    for number, part in enumerate(parts):
        box = [
            Loop(count, loop.srcs[number], step)
            for count, loop, step in zip(tile, loops, area_steps, strict=True)
        ]
        steps.append(_step(box, part, computed, load, add=number > 0))
    box = [
        Loop(count, step, loop.dst)
        for count, loop, step in zip(tile, loops, area_steps, strict=True)
    ]
    total = prod(loop.count for loop in loops) * target.item
    tile_alignment = gcd(alignment, *_tile_offsets(loops, tile))
    stream = total >= STREAM_BYTES
    steps.append(_step(box, computed, target, load, alignment=tile_alignment, stream=stream))
    words = list(_words(loops, tile, steps))
    units = prod(-(-loop.count // count) for loop, count in zip(loops, tile, strict=True))
    bytes_moved = total + sum(part.item for part in parts) * prod(loop.count for loop in loops)
    grain = max(1, min(CHUNK_BYTES * units // bytes_moved, units // 16))
    area = -(-(tile[0] * area_steps[0]) // LINE) * LINE + LINE
    params = struct.pack(f"{len(words)}q", *words)
    keep = tuple(step.keep for step in steps)
    return SumLaunch(load(KernelSpec("accumulate", ("sum",))), params, units, grain, area, keep)


# ---- tiles -------------------------------------------------------------------------------


def tile_lengths(loops: Sequence[SumLoop], items: Sequence[int], item: int) -> tuple[int, ...]:
    """Return the tile length along each loop.

    `items`: item sizes of the parts; `item`: item size of the computed dtype.
    """
    fast_axes = {part: smallest_stride_loop(loops, part) for part in range(len(items))}
    lengths = [1] * len(loops)
    inner = len(loops) - 1
    rows_only = all(axis == inner for axis in fast_axes.values())
    cache_bytes = l2_cache_bytes()
    max_items = (ROWS_BYTES if rows_only else cache_bytes // NEAR_SHARE) // item
    total = prod(loop.count for loop in loops)
    max_items = min(max_items, max(ROWS_BYTES // item, total // FEWEST))
    for part_item, axis in (item, inner), *((items[p], axis) for p, axis in fast_axes.items()):
        longest = max(lengths[axis], PIECE_BYTES // part_item)
        max_length = max(1, lengths[axis] * max_items // prod(lengths))
        lengths[axis] = min(loops[axis].count, longest, max_length)
    grow_block(lengths, loops, list(dict.fromkeys([inner, *fast_axes.values()])), max_items)
    other_axes = [axis for axis in reversed(range(len(loops))) if axis not in fast_axes.values()]
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
) -> _TileStep:
    """Return the step that moves (or adds) one box, with its parameters in memory."""
    pure = source == target and not add
    loops = canonicalize_loops(box, source.item, pure=pure)
    choice = select_row(loops, target.item, pure=pure)
    epilogue = None if pure else Epilogue(source.name, target.name, add=add)
    launch = prepare(choice, epilogue, alignment, stream)
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

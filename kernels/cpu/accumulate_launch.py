"""From the loops of a sum to a `Summation`: tiles that fit the cache and a kernel for each step.

What `launch.py` is for conversions. The numbers are policy; what was measured for them is in
docs/performance.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import gcd, prod
from pathlib import Path

import numpy as np

from ...memory import address
from ...planning.epilogue import Epilogue, Operand
from ...planning.loops import Loop, SumLoop, canonical, grow, nearest
from ...planning.select import choose
from .compiler import KernelSpec, LoadedKernel, load
from .launch import CHUNK_BYTES, STREAM_BYTES, prepare
from .params import LINE, MAX_LOOPS

__all__ = ["MAX_NEST", "Summation", "prepare_sum"]

MAX_NEST = 8  # loops of a nest that every kernel of a tile can take
# Source bytes that a tile takes in a row wherever a part is contiguous: from 256 on memory
# answered at 85 % of its speed, whereas single lines got a third of it.
PIECE_BYTES = 256
# A tile in which all parts run along the output stays in the first-level cache.
ROWS_BYTES = 16384
# Beyond the pieces, tiles grow along axes that some part is contiguous in up to half of the second
# level, where the source passes through too, and along others up to an eighth.
NEAR_SHARE = 2
FAR_SHARE = 8
PAGE = 4096  # rows a multiple of it apart push each other out of the first-level cache
EVEN = 16  # places that tiles are rounded to, as kernels take whole registers
FEWEST = 32  # tiles of a large sum, so that threads end together


Load = Callable[[KernelSpec], LoadedKernel]


@dataclass(frozen=True)
class Summation:
    """A sum made ready: the driver's code and parameter block, its tiles, and what it needs."""

    kernel: object
    params: bytes
    units: int
    grain: int
    area: int  # bytes of memory for each thread
    keep: tuple[object, ...]  # parameter blocks that `params` points to


@dataclass(frozen=True)
class _TileStep:
    """A kernel on a box: its code, parameters and units, and where it begins on both sides."""

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
) -> Summation:
    """Cut a sum into tiles. The caller has proved that there are at most MAX_NEST loops.

    `alignment`: a power of two, at most a cache line, that divides the output's address. `load`:
    what gives the code of a kernel.
    """
    tile = tile_places(loops, [part.item for part in parts], computed.item)
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
    grid = gcd(alignment, *_tile_offsets(loops, tile))
    steps.append(_step(box, computed, target, load, alignment=grid, stream=total >= STREAM_BYTES))
    words = list(_words(loops, tile, steps))
    units = prod(-(-loop.count // count) for loop, count in zip(loops, tile, strict=True))
    moved = total + sum(part.item for part in parts) * prod(loop.count for loop in loops)
    grain = max(1, min(CHUNK_BYTES * units // moved, units // 16))
    area = -(-(tile[0] * area_steps[0]) // LINE) * LINE + LINE
    params = struct.pack(f"{len(words)}q", *words)
    keep = tuple(step.keep for step in steps)
    return Summation(load(KernelSpec("accumulate", ("sum",))), params, units, grain, area, keep)


# ---- tiles -------------------------------------------------------------------------------


def tile_places(loops: Sequence[SumLoop], items: Sequence[int], item: int) -> tuple[int, ...]:
    """How many places of each loop one tile takes. `items`: of the parts; `item`: computed."""
    near = {part: nearest(loops, part) for part in range(len(items))}
    places = [1] * len(loops)
    inner = len(loops) - 1
    rows_only = all(at == inner for at in near.values())
    cache_bytes = second_level_bytes()
    room = (ROWS_BYTES if rows_only else cache_bytes // NEAR_SHARE) // item
    total = prod(loop.count for loop in loops)
    room = min(room, max(ROWS_BYTES // item, total // FEWEST))
    for part_item, at in (item, inner), *((items[p], at) for p, at in near.items()):
        piece = max(places[at], PIECE_BYTES // part_item)
        places[at] = min(loops[at].count, piece, max(1, places[at] * room // prod(places)))
    grow(places, loops, list(dict.fromkeys([inner, *near.values()])), room)
    others = [at for at in reversed(range(len(loops))) if at not in near.values()]
    for at in others:
        grow(places, loops, [at], min(room, cache_bytes // FAR_SHARE // item))
    return tuple(_even(loop.count, count) for loop, count in zip(loops, places, strict=True))


def _even(total: int, count: int) -> int:
    """Places of a tile when `total` are shared out evenly among tiles of at most about `count`."""
    tiles = -(-total // count)
    each = -(-total // tiles)
    return min(total, -(-each // EVEN) * EVEN) if count > EVEN else count


def _steps(tile: Sequence[int], item: int) -> list[int]:
    """Byte steps of a tile in its area: contiguous, but for a line between rows that would meet."""
    steps: list[int] = []
    step = item
    for count in reversed(tile):
        steps.insert(0, step)
        step *= count
        if step % PAGE == 0:
            step += LINE
    return steps


def _tile_offsets(loops: Sequence[SumLoop], tile: Sequence[int]) -> Iterator[int]:
    """Numbers whose multiples are all offsets of tiles in the output."""
    for loop, count in zip(loops, tile, strict=True):
        if count < loop.count:
            yield gcd(count, loop.count - count) * loop.dst


@cache
def second_level_bytes() -> int:
    """The size of a core's second-level cache; 1 MiB where the system does not tell."""
    path = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="utf-8").strip().removesuffix("K")) << 10
    return 1 << 20


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
    """The kernel that moves (or adds) one box, its parameters in memory."""
    pure = source == target and not add
    loops = canonical(box, source.item, pure=pure)
    choice = choose(loops, target.item, pure=pure)
    epilogue = None if pure else Epilogue(source.name, target.name, add=add)
    launch = prepare(choice, epilogue, alignment, stream)
    params = np.frombuffer(launch.params, np.uint8)
    code = load(launch.spec).address
    offsets = loops.src_offset, loops.dst_offset
    return _TileStep(code, address(params), launch.units, *offsets, params)


def _words(
    loops: Sequence[SumLoop], tile: Sequence[int], steps: Sequence[_TileStep]
) -> Iterator[int]:
    """The parameter block of accumulate.py."""
    if len(loops) > MAX_LOOPS:
        raise RuntimeError(f"{len(loops)} loops around a tile; the kernel takes {MAX_LOOPS}")
    yield from (len(loops), len(steps) - 1)
    for loop, count in zip(loops, tile, strict=True):
        yield from (-(-loop.count // count), count, loop.count - count, loop.dst)
    for number, step in enumerate(steps):
        yield from (step.code, step.block, step.units, step.src_offset, step.dst_offset)
        if number < len(steps) - 1:
            yield from (loop.srcs[number] for loop in loops)

"""Prepare the launch of a CUDA kernel: its source and macros, parameter block and grid.

`kernels/cpu/launch.py` does this for CPUs. The functions are pure: they need no GPU and no CUDA
library. They divide the loops into tiles that suit shared memory and full sectors of device memory,
and compute the number of bytes that each access may read or write.

Every kernel has the same two arguments, both passed by value:

    Params    the bytes `CudaLaunch.params`
    Pointers  64-bit words: the output, the coefficients (or 0), and the sources: one for a
              conversion, `MAX_PARTS` for a sum (unused sources are 0)

`source` returns the complete text of a kernel family, so that compilers need no include path.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, islice, product
from math import gcd, prod
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ...planning.epilogue import Coefficients, Epilogue
from ...planning.loops import Loop, SourcePixel, find_source_pixel
from ...planning.select import KernelChoice, count_iterations
from . import policy
from .boxes import find_box
from .policy import BANK, LINE, MAX_COUNT, MAX_LOOPS, SECTOR, THREADS, WARP, WORD
from .tiling import (
    NO_LOOP,
    Lines,
    TileAxis,
    channel_order,
    choose_chunk,
    choose_tile,
    find_lines,
    fit_axes,
    fuse_next,
    is_few,
    is_long,
    line_share,
    lost_bytes,
    pack_axis,
    pack_divisor,
    pack_loops,
    pack_offsets,
    pixel_time,
    tile_groups,
    tile_share,
)


@dataclass(frozen=True)
class CudaLaunch:
    """A prepared launch: a kernel, the macros to compile it with, and its arguments.

    `family` is the name of the file and of the `extern "C"` function in it. `defines` are the
    macros. The second pointer must point to a device copy of `coefficients`. `share` is the
    estimated speed relative to a copy, of launches that are compared with others.
    """

    family: str
    defines: tuple[tuple[str, str], ...]
    params: bytes
    grid: int
    block: int = THREADS
    pointers: int = 3
    coefficients: bytes = b""
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.grid >= MAX_COUNT:
            raise RuntimeError(f"{self.grid} thread blocks; a launch must have fewer than 2**31")


@dataclass(frozen=True)
class Side:
    """The source or the output: the bytes of an item, and the address of the first item."""

    item: int
    address: int

    def width(self, steps: Iterable[int], most: int = WORD) -> int:
        """Return the largest power of two, at most `most`, that divides the address and `steps`."""
        return gcd(self.address, most, *steps)


def byte_strides(nest: Iterable[Loop]) -> tuple[list[int], list[int]]:
    """Return the byte strides of loops in the source, or their offsets, and in the output."""
    nest = list(nest)
    sources = [step for loop in nest for step in loop.offsets or (loop.src,)]
    return sources, [loop.dst for loop in nest]


def defines(
    source: Side, epilogue: Epilogue | None, along: bool, **extra: object
) -> tuple[tuple[str, str], ...]:
    """Return the macros of a conversion; `along`: coefficients differ between output neighbors."""
    macros: dict[str, object] = {"THREADS": THREADS, **extra}
    if epilogue is None:
        macros |= {"SOURCE": f"m{source.item}", "TARGET": f"m{source.item}"}
    else:
        macros |= {"SOURCE": epilogue.source, "TARGET": epilogue.target}
        if epilogue.saturate:
            macros["SATURATE"] = 1
        if epilogue.coefficients is not None:
            macros |= {"COMPUTED": epilogue.computed, "COEFFICIENTS": 1 + along}
        if epilogue.clip is not None:
            macros["BOUNDED"] = epilogue.clip_stage
    return tuple((name, str(value)) for name, value in sorted(macros.items()))


def order_macros(order: Sequence[int]) -> dict[str, object]:
    """Return the macro for the positions of channels that are not evenly spaced."""
    return {"ORDER": ",".join(map(str, order))}


def _plane_macros(order: Sequence[int]) -> dict[str, object]:
    """Return the macros for planes with these positions in the source; (): all in their order."""
    return {**order_macros(order), "PLANES_ORDERED": 1} if order else {}


def _pixel_macros(pixel: SourcePixel) -> dict[str, object]:
    """Return the macros for the pixels of a source whose channels are together."""
    order = _plane_macros(pixel.order)
    return {"SOURCE_CHANNELS": pixel.items, "SPAN": pixel.span, **order}


def _make_launch(
    family: str,
    source: Side,
    epilogue: Epilogue | None,
    along: Sequence[Loop],
    macros: dict[str, object],
    params: bytes,
    grid: int,
    share: float = 1.0,
) -> CudaLaunch:
    """Return the launch of a conversion; `along`: the loops between output neighbors."""
    names = defines(source, epilogue, coefficients_vary(along, epilogue), **macros)
    coefficients = pack_coefficients(epilogue)
    return CudaLaunch(family, names, params, grid, coefficients=coefficients, share=share)


def pack_coefficients(epilogue: Epilogue | None) -> bytes:
    """Return the clip bounds, then scale and shift per channel, as bytes."""
    if epilogue is None or (epilogue.coefficients is None and epilogue.clip is None):
        return b""
    coefficients = epilogue.coefficients or Coefficients((), ())
    pairs = zip(coefficients.factor, coefficients.term, strict=True)
    numbers = [*(epilogue.clip or ()), *chain.from_iterable(pairs)]
    with np.errstate(over="ignore"):
        return np.array(numbers, epilogue.clip_dtype).tobytes()


def coefficients_vary(nest: Sequence[Loop], epilogue: Epilogue | None) -> bool:
    """Return True if coefficients differ along one of these loops."""
    if epilogue is None or epilogue.coefficients is None:
        return False
    return len(epilogue.coefficients.factor) > 1 and any(loop.coef_stride for loop in nest)


def tile_count(axis: Sequence[Loop], tile: int) -> int:
    """Return the number of tiles of length `tile` along an axis."""
    return -(-count_iterations(axis) // tile)


# ---- interleave --------------------------------------------------------------------------


def _fills_chunks(pixels: int, chunk: int) -> bool:
    """Return True if chunks that pixels are divided into are full, or nearly all of them are."""
    return pixels % chunk == 0 or pixels >= policy.FULL * chunk


def make_interleave(
    choice: KernelChoice, source: Side, target: Side, epilogue: Epilogue | None
) -> CudaLaunch | None:
    """Return a launch of "interleave"; None if words are not aligned or chunks not full."""
    # Channels are together on the side of the source, of the output, or of both.
    splits, merges = choice.kernel != "merge", choice.kernel != "split"
    low, planes = choice.run if merges else (*choice.run, *choice.rows)
    pixel = find_source_pixel(planes, low, source.item) if splits else None
    group = max(1, 4 // source.item)
    pixels_per_chunk = THREADS * group * policy.CHUNK[source.item]
    outer = list(choice.outer)
    few = is_few(choice.count, source.item)
    fuses = not (few or low.count % group or _fills_chunks(low.count, pixels_per_chunk))
    around = outer if fuses and splits != merges else []
    pixels = fuse_next(low, around, 1 + merges, follow=False)
    if not (few or _fills_chunks(pixels.count, pixels_per_chunk)):
        return None
    load = WORD if splits else min(WORD, group * source.item)
    store = WORD if merges else min(WORD, group * target.item)
    together, apart = byte_strides(outer), byte_strides([*outer, planes, *pixels.gap])
    lowest = pixel.lowest if pixel else 0
    first = Side(source.item, source.address + lowest)
    load_steps, store_steps = (together if splits else apart)[0], (together if merges else apart)[1]
    if (first.width(load_steps, load), target.width(store_steps, store)) != (load, store):
        return None
    time = pixel_time(pixel, planes, (source.item, target.item))
    if pixels.gap:  # rows of consecutive images are apart
        side, steps = (target, apart[1]) if splits else (source, apart[0])
        lost = lost_bytes(side.width(steps, SECTOR), is_read=not splits)
        time += lost / (pixels.low.count * (source.item + target.item))
    planes, order = (planes, ()) if splits else channel_order(planes)
    macros = _pixel_macros(pixel or SourcePixel(planes.count)) | _plane_macros(order)
    macros |= {"SPLIT": 1} if splits else {}
    macros |= {"MERGE": 1} if merges else {}
    macros |= {"LOAD": load, "STORE": store, "GROUPS": policy.CHUNK[source.item]}
    macros |= {"CHANNELS": planes.count, "PIXELS_LOOPS": len(pixels.loops)}
    along = (*pixels.loops, planes) if merges else pixels.loops
    params = pack_loops(outer) + pack_axis(pixels.loops, pixels_per_chunk)
    params += pack_offsets(planes) + struct.pack("q", lowest)
    grid = count_iterations(outer) * tile_count(pixels.loops, pixels_per_chunk)
    return _make_launch("interleave", source, epilogue, along, macros, params, grid, 1 / time)


# ---- lines -------------------------------------------------------------------------------


def make_lines(
    choice: KernelChoice, source: Side, target: Side, epilogue: Epilogue | None
) -> CudaLaunch | None:
    """Return a launch of "lines" (any channel count and address); None if no axis has pixels."""
    launches = []
    for candidate in find_lines(choice.nest, source.item, target.item):
        if candidate.pixel.order and choice.kernel == "transpose":
            continue  # tiles read only the channels that are taken
        plane_side = target if candidate.split else source
        most = min(WORD, max(4, plane_side.item * max(1, 4 // source.item)))
        around = *candidate.outer, candidate.planes, *candidate.pixels.loops[:-1]
        steps = byte_strides(around)[candidate.split]
        word = plane_side.width([*steps, *candidate.pixels.words(plane_side.item)], most)
        shifted = word < most and candidate.pixels.follow
        word = most if shifted else word
        alignment = word if shifted else plane_side.width(steps, SECTOR)
        line_word = _line_word(candidate, source)
        tile = choose_chunk(candidate, (source.item, plane_side.item), word, shifted)
        if tile and line_word >= BANK:
            macros: dict[str, object] = {"PIXELS": tile, "WORD": word, "SHIFTED": int(shifted)}
            macros |= {"GAP_WORD": line_word} if candidate.has_gaps else {}
            items = source.item + target.item - plane_side.item, plane_side.item
            share = line_share(candidate, items, word, alignment, tile)
            launch = _launch_lines(candidate, source, epilogue, tile, macros, share)
            if launch is not None:
                launches.append(launch)
    return max(launches, key=lambda launch: launch.share, default=None)


def _line_word(candidate: Lines, source: Side) -> int:
    """Return the size in bytes of the words in which a line is read: they do not cross its gaps."""
    if not candidate.has_gaps:
        return WORD
    low = candidate.pixels.low
    steps = byte_strides((*candidate.outer, *candidate.pixels.loops[:1]))[0]
    return source.width([*steps, low.count * low.src])


def _launch_lines(
    candidate: Lines,
    source: Side,
    epilogue: Epilogue | None,
    tile: int,
    macros: dict[str, object],
    share: float,
) -> CudaLaunch | None:
    """Return the launch of "lines" for a candidate, adding to `macros`; None if no grid fits it."""
    pixels = candidate.pixels.loops
    grid = count_iterations(candidate.outer) * tile_count(pixels, tile)
    if not _is_launchable(candidate.outer, grid):
        return None
    planes = candidate.planes
    macros |= {"CHANNELS": planes.count, "PIXELS_LOOPS": len(pixels)}
    macros["PIXEL_COEFFICIENTS"] = int(coefficients_vary(pixels, epilogue))
    if candidate.split:
        macros |= {"SPLIT": 1, **_pixel_macros(candidate.pixel)}
    elif planes.offsets:
        planes, order = channel_order(planes)
        macros |= _plane_macros(order)
    along = pixels if candidate.split else (*pixels, planes)
    params = pack_loops(candidate.outer) + pack_axis(pixels, tile) + pack_offsets(planes)
    params += struct.pack("q", candidate.pixel.lowest)
    return _make_launch("lines", source, epilogue, along, macros, params, grid, share)


def prepare(choice: KernelChoice, epilogue: Epilogue | None, src: int, dst: int) -> CudaLaunch:
    """Return the launch of a choice. `epilogue` None: a pure move of `choice.source_item` bytes.

    `src` and `dst` are the addresses of the first elements visited; only their remainders by 16
    matter. A pure move accepts any address; with an `epilogue` the caller must have checked that
    addresses and strides are multiples of the item size on their side.
    """
    launch = _prepare(choice, epilogue, src, dst)
    orders = [loop for loop in choice.nest if loop.offsets]
    if orders and "ORDER" not in dict(launch.defines):
        order = ",".join(map(str, channel_order(orders[0])[1]))
        return replace(launch, defines=tuple(sorted((*launch.defines, ("ORDER", order)))))
    return launch


def _prepare(choice: KernelChoice, epilogue: Epilogue | None, src: int, dst: int) -> CudaLaunch:
    if epilogue is None:
        launch = _runs(choice, src, dst)
        if launch is not None:
            return launch
        item = _common_alignment(choice, src, dst)
        if item < choice.source_item:
            # Items are split into smaller ones.
            nest = *choice.nest, Loop(choice.source_item // item, item, item)
            return _gather(nest, Side(item, src), Side(item, dst), None)
    source = Side(choice.source_item, src % WORD)
    target = Side(choice.target_item, dst % WORD)
    # With more outer iterations than a grid has blocks, each iteration is too small to be tiled.
    if _iterations_around_tile(choice) < MAX_COUNT:
        launches: list[CudaLaunch] = []
        for make in MAKERS.get(choice.kernel, ()):
            launch = make(choice, source, target, epilogue)
            if launch is not None:
                launches.append(launch)
                if launch.share >= policy.FAST_SHARE:
                    break
        if launches:
            return max(launches, key=lambda launch: launch.share)
    return _gather(choice.nest, source, target, epilogue)


def _is_launchable(outer: Sequence[Loop], grid: int) -> bool:
    """Return True if a kernel has enough loops around its blocks, and a grid enough blocks."""
    return len(outer) <= MAX_LOOPS and grid < MAX_COUNT


def _common_alignment(choice: KernelChoice, src: int, dst: int) -> int:
    """Return the alignment of all items of a pure move, at most the size of an item."""
    steps = byte_strides(choice.nest)
    return gcd(choice.source_item, src, dst, *steps[0], *steps[1])


def _iterations_around_tile(choice: KernelChoice) -> int:
    """Return the iterations of the loops around a tile, including loops that `fit_axes` adds."""
    fused = (choice.rows, choice.run) if choice.kernel == "transpose" else ()
    long = [axis[0] for axis in fused if len(axis) > 1 and count_iterations(axis) >= MAX_COUNT]
    return count_iterations((*choice.outer, *long))


# ---- transpose ---------------------------------------------------------------------------


def make_transpose(
    choice: KernelChoice, source: Side, target: Side, epilogue: Epilogue | None
) -> CudaLaunch | None:
    """Return a launch of "transpose"; None if the tiles need more blocks than a grid can have."""
    outer = list(choice.outer)
    rows, run = fit_axes(choice.rows, choice.run, outer, source.item)
    load_steps = byte_strides((*outer, *run.loops, *rows.gap))[0] + rows.words(source.item)
    load = source.width(load_steps)
    # A stored word is read from one row of shared memory banks.
    most = max(target.item, WORD * target.item // max(source.item, target.item))
    store_steps = byte_strides((*outer, *rows.loops, *run.gap))[1]
    alignment = target.width(store_steps + run.words(target.item), SECTOR)
    store = min(alignment, most)
    shifted = _shifted(rows, run, (source, target), (load, alignment), most)
    load = WORD if shifted[0] else load
    store = most if shifted[1] else store
    words = load // source.item, store // target.item
    items = source.item, target.item
    tile_rows, tile_run = choose_tile(
        rows, run, count_iterations(outer), items, words, shifted, alignment
    )
    overlap = SECTOR // target.item if shifted[1] else 0
    alignments = source.width(load_steps, SECTOR), SECTOR if overlap else alignment
    share = tile_share(rows, run, (tile_rows, tile_run), items, alignments, overlap)
    if load < 2 * BANK and is_long(rows, source.item):
        share *= policy.NARROW_READ_SHARE
    run_step = tile_run - overlap  # from one tile to the next
    tiles, rows_tiles = tile_count(run.loops, run_step), tile_count(rows.loops, tile_rows)
    # Tiles that read whole lines need not be near those that read the next ones.
    cut = rows_tiles if source.width(load_steps, LINE) < LINE else 1
    group, groups = tile_groups(tiles, cut)
    grid = count_iterations(outer) * rows_tiles * group * groups
    if not _is_launchable(outer, grid):
        return None
    macros: dict[str, object] = {
        "TILE_ROWS": tile_rows, "TILE_RUN": tile_run, "LOAD": load, "STORE": store,
        "LOAD_SHIFTED": int(shifted[0]), "STORE_SHIFTED": int(shifted[1]),
        "ROWS_LOOPS": rows.loop_mode, "RUN_LOOPS": run.loop_mode,
    }  # fmt: skip
    params = pack_loops(outer) + pack_axis(rows.loops, tile_rows) + pack_axis(run.loops, run_step)
    params += struct.pack("2q", *_readable_range(choice, source.item))
    params += pack_divisor(group) + pack_divisor(groups)
    share *= _word_share(tile_rows, tile_run, items, (load, store), most)
    return _make_launch("transpose", source, epilogue, run.loops, macros, params, grid, share)


def _word_share(
    tall: int, wide: int, items: tuple[int, int], words: tuple[int, int], most: int
) -> float:
    """Return the speed of a tile with words of these bytes, relative to one with wide words.

    `most`: bytes of the widest word that is written.
    """
    (source, target), (load, store) = items, words
    share = policy.NARROW_SHARES[most // store]
    if load == target == 1:
        share *= policy.SINGLE_SHARE
    row_words = tall * source // load
    if gcd(row_words, 8) * load < WORD and row_words > WARP:
        share *= policy.SPREAD_SHARE
    beside = -(-wide * source // BANK)  # words of shared memory that threads write together
    if beside < WARP:
        share *= (beside / (1 << (beside - 1).bit_length())) ** policy.IDLE_POWER
    return share


def _readable_range(choice: KernelChoice, item: int) -> tuple[int, int]:
    """Return the lowest source offset, and the number of offsets at which two words are readable.

    Both are 0 if the source has gaps: words of its rows then may contain bytes of other arrays.
    """
    nest = choice.nest
    if any(loop.offsets for loop in nest):
        return 0, 0
    lowest, highest = (sum((n.count - 1) * end(n.src, 0) for n in nest) for end in (min, max))
    size = highest + item - lowest
    return (lowest, max(0, size - 2 * WORD + 1)) if size == item * choice.count else (0, 0)


def _shifted(
    rows: TileAxis,
    run: TileAxis,
    sides: tuple[Side, Side],
    alignments: tuple[int, int],
    most: int,
) -> tuple[bool, bool]:
    """Return, for each side, True if it moves wide words at unaligned addresses.

    Aligned words would be narrow there, or write parts of sectors. Shared memory is read in words
    of at least one bank, and short axes do not have full words. Rows of half a line are read in
    wide words, although the last one is partly unused: narrow words would be many more.
    """
    (source, target) = sides
    (load, store) = alignments
    fills_bank = most // target.item * source.item >= BANK
    return (
        load < BANK and rows.follow and is_long(rows, 2 * source.item),
        store < SECTOR and fills_bank and run.follow and is_long(run, target.item),
    )


def make_transpose_any(
    choice: KernelChoice, source: Side, target: Side, epilogue: Epilogue | None
) -> CudaLaunch | None:
    """Return a launch of "transpose" for axes too short for CPU registers, but not for tiles."""
    nest = choice.nest
    run = [loop for loop in nest if loop.dst == target.item and not loop.offsets]
    run = [loop for loop in run if loop.count * target.item >= BANK]
    rows = [loop for loop in nest if loop.src == source.item and loop.count * source.item >= BANK]
    if not run or not rows or run[0] is rows[0]:
        return None
    outer = tuple(loop for loop in nest if loop is not run[0] and loop is not rows[0])
    transposed = replace(choice, outer=outer, rows=(rows[0],), run=(run[0],))
    return make_transpose(transposed, source, target, epilogue)


def make_gather_rows(
    choice: KernelChoice, source: Side, target: Side, epilogue: Epilogue | None
) -> CudaLaunch | None:
    """Return a launch of "gather" if its blocks read whole lines of the source.

    None if they read parts of lines, or if the instructions of a warp, or the many lines that it
    reads at once, take more time than the memory does. Small arrays use the usual tiles.
    """
    if is_few(choice.count, source.item):
        return None
    nest = sorted(choice.nest, key=lambda loop: loop.dst, reverse=True)
    _, split, stretch, inner = loops_of_block(nest)
    # Several blocks may execute parts of the first inner loop.
    together = inner[1:] if count_iterations(inner) > THREADS else inner
    if contiguous_source([split, *together], source.item) < LINE:
        return None
    lines = _source_lines([split, *inner] if stretch > 1 else inner)
    lines += -(-WARP * target.item // LINE)
    if max(lines, policy.LEAST_LINES) * policy.LINE_TIME > WARP * (source.item + target.item):
        return None
    return replace(_gather(nest, source, target, epilogue), share=policy.GATHERED_SHARE)


def contiguous_source(nest: Sequence[Loop], item: int) -> int:
    """Return the size in bytes of the contiguous source from the first item on."""
    length = item
    while following := next((n.count for n in nest if n.src == length and n.count > 1), None):
        length *= following
    return length


def _source_lines(nest: Sequence[Loop]) -> int:
    """Return the number of source cache lines that the first warp reads."""
    steps = [n.offsets[:WARP] or [i * n.src for i in range(min(WARP, n.count))] for n in nest]
    return len({sum(places) // LINE for places in islice(product(*steps), WARP)})


# ---- permute -----------------------------------------------------------------------------


def make_permute(
    choice: KernelChoice, source: Side, target: Side, epilogue: Epilogue | None
) -> CudaLaunch | None:
    """Return a launch of "permute"; None if no loop is contiguous on a side.

    None, too, for small arrays, which use the usual tiles; for channels in any order; and for runs
    that "gather" moves in wide words.
    """
    nest = choice.nest
    if is_few(choice.count, source.item) or any(loop.offsets for loop in nest):
        return None
    is_run = nest[-1].steps[:2] == (source.item, target.item)
    width = _items_per_access(nest[:-1], nest[-1], source, target)
    if is_run and width * source.item >= policy.ALIGNED:
        return None
    box = find_box(nest, (source.item, target.item), (source.address, target.address))
    if box is None:
        return None
    outer = [loop for loop in nest if loop not in box.loops]
    tiles = [-(-n.count // count) for n, count in zip(box.loops, box.counts, strict=True)]
    run_end = len(box.loops) - box.run_loops
    group, groups = tile_groups(tiles[run_end], prod(tiles) // tiles[run_end])
    grid = count_iterations(outer) * prod(tiles) // tiles[run_end] * group * groups
    if not _is_launchable(outer, grid):
        return None
    macros: dict[str, object] = {
        "COUNTS": ",".join(map(str, box.counts)), "SLOTS": ",".join(map(str, box.slots)),
        "IN_ROW": ",".join(str(int(is_row)) for is_row in box.in_row), "ROW_END": box.row_end,
        "RUN_LOOPS": box.run_loops, "WORD": box.word * target.item, "GROUP": box.group,
        "ROW_ALIGNMENT": min(WORD, box.alignment[0]), "RUN_ALIGNMENT": min(WORD, box.alignment[1]),
    }  # fmt: skip
    params = pack_loops(outer)
    for loop, tile in zip(box.loops, tiles, strict=True):
        params += pack_divisor(tile) + struct.pack("Q", loop.count) + pack_offsets(loop)
    params += pack_divisor(group) + pack_divisor(groups)
    params += struct.pack("2q", *_readable_range(choice, source.item))
    along = box.loops[-box.run_loops :]
    return _make_launch("permute", source, epilogue, along, macros, params, grid, box.share)


# The kernels that may execute a choice; the fastest is selected. `make_permute` is the last one,
# as its planning takes longest; `_gather` executes all others.
_Maker: TypeAlias = Callable[[KernelChoice, Side, Side, Epilogue | None], CudaLaunch | None]
MAKERS: dict[str, tuple[_Maker, ...]] = {
    "transpose": (make_transpose, make_lines, make_gather_rows, make_permute),
    "split": (make_interleave, make_transpose_any, make_lines, make_permute),
    "merge": (make_interleave, make_transpose_any, make_lines, make_permute),
    "shuffle": (make_interleave,),
    "gather": (make_transpose_any, make_lines, make_gather_rows, make_permute),
}


# ---- runs --------------------------------------------------------------------------------


def _runs(choice: KernelChoice, src: int, dst: int) -> CudaLaunch | None:
    """Return a launch of "runs", or of "permute" if it is faster.

    None if runs are shorter than a word, long or aligned, or out has gaps.
    """
    nest = choice.nest
    # The loops in the order of the output, and the first elements in this order.
    backward = [loop for loop in nest if loop.dst < 0]
    src_first, dst_first = (sum((n.count - 1) * n.steps[i] for n in backward) for i in (0, 1))
    outer = [n if n.dst >= 0 else n.backward() for n in nest]
    outer.sort(key=lambda loop: loop.dst, reverse=True)
    length = choice.source_item
    while outer and outer[-1].steps[:2] == (length, length):
        length *= outer.pop().count
    size, count = length * count_iterations(outer), count_iterations(outer)
    steps = byte_strides(outer)
    follows = [length * count_iterations(outer[i + 1 :]) for i in range(len(outer))]
    is_aligned = gcd(policy.ALIGNED, src, dst, *steps[0], *steps[1]) == policy.ALIGNED
    if not outer or is_aligned or steps[1] != follows:
        return None
    longest = MAX_COUNT // (policy.RUN_WORDS * WORD)
    if not WORD <= length < longest or not _is_launchable(outer, count):
        return None
    if length < policy.LONG_RUN and _common_alignment(choice, src, dst) == choice.source_item:
        sides = Side(choice.source_item, src % WORD), Side(choice.source_item, dst % WORD)
        launch = make_permute(choice, *sides, None)
        if launch is not None and launch.share > policy.RUN_SHARE - policy.RUN_LOST / length:
            return launch
    head = -(dst + dst_first) % WORD
    lasts = [loop.offsets[-1] if loop.offsets else (loop.count - 1) * loop.src for loop in outer]
    end = src_first + length + sum(lasts)
    tiles = max(1, -(-((size - head) // WORD) // policy.RUN_WORDS))
    params = pack_loops(outer) + pack_divisor(length) + _tile_order(outer, follows, tiles)
    params += struct.pack("4q", src_first, dst_first, head, size)
    params += struct.pack("3q", end, *_readable_range(choice, choice.source_item))
    macros = (("THREADS", str(THREADS)), ("TURNS", str(policy.RUN_WORDS // THREADS)))
    return CudaLaunch("runs", macros, params, tiles)


def _tile_order(outer: Sequence[Loop], follows: Sequence[int], tiles: int) -> bytes:
    """Pack the tile order: tiles that share source lines are adjacent.

    `follows`: the bytes of the output from one iteration of each loop to the next.
    """
    nearest = min(range(len(outer)), key=lambda i: abs(outer[i].src))
    across = outer[nearest].count
    apart = follows[nearest] // (policy.RUN_WORDS * WORD)
    if apart < 2 or across * apart > tiles:
        across = apart = 1
    group = across * apart
    return (
        pack_divisor(group)
        + pack_divisor(across)
        + struct.pack("2q", apart, tiles // group * group)
    )


# ---- gather, copy and cast ---------------------------------------------------------------


def _gather(
    nest: Sequence[Loop], source: Side, target: Side, epilogue: Epilogue | None
) -> CudaLaunch:
    """Return a launch of "gather", which accepts any loops."""
    around, inner, period = _fuse_channels(nest)
    width = _items_per_access(around, inner, source, target)
    accesses = inner._replace(
        count=-(-inner.count // width),
        src=width * inner.src,
        dst=width * inner.dst,
        coef_stride=0 if period else width * inner.coef_stride,
    )
    outer, split, stretch, inner_loops = loops_of_block([*around, accesses])
    turns = policy.TURNS[width * source.item < 8]
    several = -(-split.count // stretch)
    if several < policy.FULL * turns and not is_few(count_iterations(nest), source.item):
        turns = -(-several // -(-several // turns))  # the same number in all blocks
    parts = tile_count(inner_loops, THREADS)
    params = pack_loops(outer) + pack_axis([split], stretch * turns)
    params += pack_divisor(parts) + pack_loops(inner_loops)
    params += struct.pack("4q", stretch, inner.count, accesses.count - 1, inner.coef_stride)
    along = [inner] if width > 1 else []
    macros: dict[str, object] = {"WIDTH": width, "TURNS": turns, "PERIOD": period}
    macros["RUN"] = int(not inner_loops)
    grid = count_iterations(outer) * tile_count([split], stretch * turns) * parts
    return _make_launch("gather", source, epilogue, along, macros, params, grid)


def loops_of_block(nest: Sequence[Loop]) -> tuple[list[Loop], Loop, int, list[Loop]]:
    """Return the loops around a block, its split axis, the iterations of a turn, and inner loops.

    A thread takes turns along the loop with the smallest stride in the source, so that they read
    the same sectors, or along the innermost loop that has more iterations than a block has threads.
    """
    outer = list(nest)
    inner: list[Loop] = []
    while outer and count_iterations(inner) * outer[-1].count <= THREADS:
        inner.insert(0, outer.pop())
    if not outer:
        return [], NO_LOOP, 1, inner
    last = outer[-1]
    stretch = THREADS // count_iterations(inner)
    others = [n for n in outer[:-1] if n.count >= policy.LEAST_TURNS and n.src and not n.offsets]
    near = min(others, key=lambda loop: abs(loop.src), default=NO_LOOP)
    is_near = 0 < abs(near.src) < abs(last.src)
    is_short = last.offsets or last.count < policy.LEAST_TURNS * stretch
    if last.count * count_iterations(inner) < MAX_COUNT - THREADS and (is_near or is_short):
        inner.insert(0, outer.pop())
        return [loop for loop in outer if loop is not near], near, 1, inner
    return outer[:-1], last, stretch, inner


def _fuse_channels(nest: Sequence[Loop]) -> tuple[list[Loop], Loop, int]:
    """Return the outer loops, the run and its period; contiguous channels are fused with pixels.

    The period is the number of channels, after which coefficients repeat; 0: nothing is fused.
    """
    if len(nest) > 1:
        *around, pixels, last = nest
        gapless = not last.offsets and all(
            a == last.count * b for a, b in zip(pixels.steps[:2], last.steps[:2], strict=True)
        )
        count = pixels.count * last.count
        if gapless and last.coef_stride and not pixels.coef_stride and count < MAX_COUNT:
            return around, last._replace(count=count), last.count
    return list(nest[:-1]), nest[-1], 0


def _items_per_access(around: Sequence[Loop], inner: Loop, source: Side, target: Side) -> int:
    """Return the number of items per access, which are contiguous and aligned on both sides."""
    if (inner.src, inner.dst) != (source.item, target.item):
        return 1
    src, dst = byte_strides(around)
    width = min(source.width(src) // source.item, target.width(dst) // target.item)
    width = min(width, WORD // max(source.item, target.item))
    # A partly empty last access is wasteful in a short run, which has few accesses.
    while width > 1 and inner.count % width and inner.count < 8 * width:
        width //= 2
    return max(1, width)


FAMILIES = (
    "transpose", "interleave", "lines", "permute", "runs", "gather", "accumulate", "collate",
    "resize",
)  # fmt: skip

_INCLUDE = re.compile(r'^#include "(\w+\.cuh)"$', re.MULTILINE)


@cache
def source(family: str) -> str:
    """Return the CUDA C++ code of a kernel family, with the project's headers inlined."""
    return _read(f"{family}.cu")


def _read(name: str) -> str:
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda match: _read(match[1]), text)

"""Divide conversions into blocks that fit the caches of this CPU: one Tiling for every kernel.

A block has two axes: the *run*, contiguous in the output, and the *rows* beside it. A pure move
whose output rows can be stored directly is *direct*. Any other block is *staged*: the microkernel
writes it in the order of the output to the scratch area, and the epilogue stores its rows. A
`Tiling` is the working state of one conversion; TILINGS has a subclass for each kernel of
planning/select.py.

This module does not import Numba. Its constants were tuned by measurement (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import gcd, lcm

import numpy as np

from ...planning.epilogue import DTYPES, Epilogue
from ...planning.loops import Loop
from ...planning.select import MAX_TABLE, KernelChoice, count_iterations
from .compiler import KernelSpec, cpu_features
from .params import LANE, LINE, SCRATCH

RUN_BYTES = 1024  # output bytes of one block along its run: long enough for DRAM pages
TRANSPOSED_BYTES = 512  # likewise of transposes, which prefetch the source of the next block
# Scratch bytes of a block with few rows: windows of normalized uint8 ran at 0.87 of the limit with
# 1.4 to 4 KB, at 0.84 with 8 KB, and at 0.80 with all 32 KB, which leaves no room for the source in
# the first-level cache.
NARROW_BYTES = 4096
# Other staged blocks use SMALL_SCRATCH, or what rows of SEGMENT_BYTES need, for the same reason:
# 11 float32 channels (bhwc -> bchw) ran at 50 GB/s on one thread with 8 KB, at 33 with 32 KB.
SMALL_SCRATCH = 8192
SEGMENT_BYTES = 768
# Shorter runs of the output are not streamed, as most of their lines would be stored in two parts,
# except for runs of full lines: plain stores of 64 bytes to many rows in turn took 1.3 times as
# long (AMD EPYC, 2026-11-27), as each line is read before it is overwritten. Up to the following
# sizes, streaming casts and pixels whose rows have parts of lines took 1.2 to 2.4 of the time of
# plain stores, and 0.5 to 1.0 beyond them (the same EPYC, 32 and 160 MB).
STREAMED_BYTES = {"run": 512, "cast": 1024, "pixels": 3000}
# Shorter rows that follow each other, as in patches, are not joined. Converted rows of 256 to 784
# bytes took 0.4 to 0.6 of the time of plain stores, moved ones of 576 to 1,089 bytes 0.4 to 0.7,
# and shorter moved ones 0.8 to 1.8, since they are copied once more (AMD EPYC, 2026-11-28).
SHORTEST_JOINED = {"converted": 64, "moved": 512}
REPEAT_BYTES = 4096  # bytes of a run with repeated coefficients, whose copies need L1 as well
TABLE_POSITIONS = 256  # of the offset table of a fused run, or all iterations of its inner loops
SLACK = 512  # bytes beyond the coefficients that a full vector may read


@dataclass
class BlockAxis:
    """An axis of blocks, and a periodic table of offsets that is set once the blocks are known."""

    total: int  # positions
    block: int  # positions of each block but the last one
    blocks: int = field(init=False)
    longest_block: int = field(init=False)  # the last block, which includes the remainder
    table: tuple[int, ...] = ()
    period: int = 1
    step: int = 0

    def __post_init__(self) -> None:
        self.blocks = max(1, self.total // self.block)
        self.longest_block = self.total - (self.blocks - 1) * self.block


def loop_offsets(loops: Sequence[Loop], side: str, count: int) -> tuple[int, ...]:
    """Return the offsets of the first `count` iterations; the outermost loop is unlimited.

    `side`: the stride of Loop to use: "src", "dst" or "coef_stride".
    """
    if not loops:
        return (0,) * count
    inner = count_iterations(loops)
    offsets = [0]
    for loop in loops:
        inner //= loop.count
        needed = -(-count // inner)
        indices = range(needed if loop is loops[0] else min(loop.count, needed))
        step = getattr(loop, side)
        offsets = [offset + index * step for offset in offsets for index in indices][:needed]
    return tuple(offsets)


def make_row_axis(loops: tuple[Loop, ...], block: int) -> BlockAxis:
    """Return the axis of rows, with the output offsets of the rows of a block."""
    total = count_iterations(loops)
    axis = BlockAxis(total, min(total, block))
    axis.table = loop_offsets(loops, "dst", axis.longest_block)
    return axis


def rows_alignment(choice: KernelChoice, alignment: int) -> int:
    """Return the alignment of all output rows: a power of two, at most a cache line.

    `alignment`: likewise of the output's address.
    """
    return gcd(alignment, *[loop.dst for loop in (*choice.outer, *choice.rows)])


class Tiling:
    """The tiling of microkernels that accept runs of any length: blocks have one row.

    Subclasses override parts of it. `alignment` and `stream` are the arguments of
    `launch.prepare`.
    """

    scratch_bytes = NARROW_BYTES  # maximum bytes of the scratch area that a staged block uses
    run_bytes = RUN_BYTES  # output bytes of a direct block along its run
    streamed = "run"  # the row of STREAMED_BYTES
    width = 1  # output items of one position of the run
    rows_contiguous = False  # rows are contiguous in the output and in the scratch area

    def __init__(
        self, choice: KernelChoice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        self.choice = choice
        self.epilogue = epilogue
        self.src_itemsize = choice.source_item
        self.dst_itemsize = choice.target_item
        is_wide = epilogue is not None and epilogue.computed == "f8"
        self.coefficient_bytes = 8 if is_wide else 4
        # The positions of the run that are processed at once.
        self.tile = LINE // min(self.src_itemsize, self.dst_itemsize)
        grid = rows_alignment(choice, alignment)
        is_aligned = grid % min(self.dst_itemsize, 8) == 0
        shortest = LINE if grid == LINE else STREAMED_BYTES[self.streamed]
        self.stream = stream  # which `contiguous_bytes` assumes
        self.stream = stream and is_aligned and self.contiguous_bytes() >= shortest
        self.direct = self.can_store_directly(grid) if epilogue is None else self.adds_directly()
        self.staged = not self.direct

    def contiguous_bytes(self) -> int:
        """Return the size in bytes of the stretch of output that a thread stores sequentially."""
        return self.extend_run(self.choice.outer)

    def extend_run(self, loops: Sequence[Loop], *, any_coefficients: bool = False) -> int:
        """Return the size in bytes of the run, with `loops` that continue it in the output.

        `any_coefficients`: also loops whose iterations have different coefficients.
        """
        size = count_iterations(self.choice.run) * self.dst_itemsize
        if self.choice.run[-1].dst != self.dst_itemsize:
            return self.dst_itemsize
        for loop in sorted(loops, key=lambda loop: loop.dst):
            continues = loop.dst == size and (any_coefficients or not loop.coef_stride)
            size *= loop.count if continues else 1
        return size

    # -- overridden by kernels -------------------------------------------------------------

    def microkernel_name(self) -> str:
        """Return the name of the microkernel (see engine.py) with its number of channels."""
        channels = self.choice.channels
        return f"{self.choice.kernel}-{channels}" if channels else self.choice.kernel

    def microkernel_item(self) -> int:
        """Return the item size that the microkernel is built for."""
        return self.src_itemsize

    def literal(self) -> str:
        """Return the arguments that only this microkernel is built with, as text."""
        return ""

    def can_store_directly(self, grid: int) -> bool:
        """Return True if a pure move can bypass the scratch area: full lines, or no streaming."""
        return not self.stream or grid == LINE

    def adds_directly(self) -> bool:
        """Return True if the microkernel adds to the output, without the scratch area."""
        return False

    def rows(self) -> BlockAxis:
        """Return the axis of rows."""
        return BlockAxis(1, 1, table=(0,))

    def run_loops(self) -> tuple[Loop, ...]:
        """Return the loops whose iterations are the positions of the run."""
        return self.choice.run

    def period(self, run: BlockAxis) -> int:
        """Return the number of run positions after which the table of source offsets repeats."""
        inner = count_iterations(self.run_loops()[1:])
        if len(self.run_loops()) == 1:
            return self.tile
        return min(run.longest_block, -(-TABLE_POSITIONS // inner) * inner)

    def shrink_blocks(self) -> None:
        """Reduce the minimum size of blocks, which exceeds the scratch area."""
        raise RuntimeError(f"no block of {self.choice} fits the scratch area")

    # -- axes ------------------------------------------------------------------------------

    def axes(self) -> tuple[BlockAxis, BlockAxis]:
        """Return the axes of run and rows; staged blocks fit the scratch area."""
        while True:
            rows = self.rows()
            run = self.run(rows)
            if not self.staged or self.pitch(run.longest_block) * rows.longest_block <= SCRATCH:
                return run, rows
            self.shrink_blocks()

    def run(self, rows: BlockAxis) -> BlockAxis:
        """Return the axis of the run for blocks with these rows."""
        loops = self.run_loops()
        total = count_iterations(loops)
        inner = count_iterations(loops[1:])
        # Blocks end at the ends of fused axes and, if stored directly, of cache lines.
        quantum = self.tile if len(loops) == 1 else lcm(inner, self.tile) if self.direct else inner
        run = BlockAxis(total, min(total, self.run_block(total, quantum, rows)))
        self.add_offsets(run, loops)
        return run

    def add_offsets(self, run: BlockAxis, loops: tuple[Loop, ...]) -> None:
        """Set the table of source offsets of a run, whose positions are iterations of `loops`."""
        run.period = self.period(run)
        run.table = loop_offsets(loops, "src", run.period + max(self.tile, self._line_positions()))
        run.step = run.period // count_iterations(loops[1:]) * loops[0].src

    def run_block(self, total: int, quantum: int, rows: BlockAxis) -> int:
        """Return the number of run positions in one block, a multiple of the quantum."""
        if self.staged:
            return self._staged_block(total, quantum, rows)
        position_bytes = self.width * max(self.src_itemsize, self.dst_itemsize)
        limit = self.run_bytes // position_bytes * (4 if rows.longest_block <= 4 else 1)
        return max(quantum, limit // quantum * quantum)

    def _staged_block(self, total: int, quantum: int, rows: BlockAxis) -> int:
        """Return the longest block whose longer last block also fits the scratch area."""
        room = min(self.scratch_bytes, max(SMALL_SCRATCH, rows.longest_block * SEGMENT_BYTES))
        limit = room // (rows.longest_block * self.width * self.src_itemsize)
        if self.coefficient_mode() == "each" and len(self.choice.run) > 1:
            limit = min(limit, REPEAT_BYTES // (self.width * self.coefficient_bytes))
        block = limit // quantum * quantum
        while block > quantum:
            longest = BlockAxis(total, min(total, block)).longest_block
            if self.pitch(longest) * rows.longest_block <= room:
                return block
            block -= quantum
        return quantum

    def pitch(self, positions: int) -> int:
        """Return the distance in bytes of rows of the scratch area, for `positions` of the run."""
        if self.rows_contiguous:
            return positions * self.width * self.src_itemsize
        positions += self._line_positions() if self.stream else 0
        # One more line, so that rows of full pages do not share cache sets.
        return -(-positions * self.width * self.src_itemsize // LINE) * LINE + LINE

    def _line_positions(self) -> int:
        """Return the positions of the run that cover any part of a cache line of the output."""
        return -(-LINE // (self.width * self.dst_itemsize))

    def halo(self, run: BlockAxis) -> int:
        """Return the positions that a staged, streamed block moves beyond its end (params.py)."""
        positions = self._line_positions()
        streamed = self.staged and self.stream and not self.rows_contiguous
        return positions if streamed and run.blocks > 1 and run.block >= positions else 0

    def run_reach(self, run: BlockAxis) -> int:
        """Return a bound of the source offsets of the positions that a block moves."""
        loops = self.run_loops()
        positions = run.longest_block + self._line_positions()
        counts = [-(-positions // count_iterations(loops[1:])), *(loop.count for loop in loops[1:])]
        pairs = zip(counts, loops, strict=True)
        return sum([(count - 1) * max(0, loop.src) for count, loop in pairs])

    def can_prefetch(self) -> bool:
        """Return True if the next block of a large source is prefetched into the L2 cache."""
        return False

    @property
    def out_stride(self) -> int:
        """The bytes between positions of a run in the memory that the microkernel writes to."""
        return self.width * (self.choice.run[-1].dst if self.direct else self.src_itemsize)

    def row_offsets(self, rows: BlockAxis, pitch: int) -> tuple[int, ...]:
        """Return the offset of each row of a block, in the output or in the scratch area."""
        return rows.table if self.direct else tuple(range(0, rows.longest_block * pitch, pitch))

    # -- the walk --------------------------------------------------------------------------

    def walk(self, run: BlockAxis, rows: BlockAxis) -> tuple[list[Loop], int, int]:
        """Return all loops, and the indices of the loops over blocks along run and rows."""
        outer = self.outer_loops()
        along, beside = self.run_block_loop(run), self.row_block_loop(rows)
        if self.rows_first():
            return [*outer, along, beside], len(outer), len(outer) + 1
        return [*outer, beside, along], len(outer) + 1, len(outer)

    def rows_first(self) -> bool:
        """Return True if blocks are visited across runs first."""
        return False

    def outer_loops(self) -> list[Loop]:
        """Return the loops around blocks, with all strides in bytes."""
        return [
            loop._replace(coef_stride=loop.coef_stride * self.coefficient_bytes)
            for loop in self.choice.outer
        ]

    def run_block_loop(self, run: BlockAxis) -> Loop:
        """Return the loop over blocks along the run."""
        loops = self.run_loops()
        src = run.block // count_iterations(loops[1:]) * loops[0].src
        dst = run.block * self.width * self.choice.run[-1].dst
        coef = loops[-1].coef_stride * run.block * self.coefficient_bytes if len(loops) == 1 else 0
        return Loop(run.blocks, src, dst, coef)

    def row_block_loop(self, rows: BlockAxis) -> Loop:
        """Return the loop over blocks along the rows."""
        loops = self.choice.rows
        if not loops:
            return Loop(1, 0, 0)
        iterations = rows.block // count_iterations(loops[1:])
        coef = iterations * loops[0].coef_stride * self.coefficient_bytes
        return Loop(rows.blocks, iterations * loops[0].src, iterations * loops[0].dst, coef)

    # -- the epilogue ----------------------------------------------------------------------

    def coefficient_mode(self) -> str:
        """Return "none", "run" (one pair per run), "each" (one pair per item) or "add" (a sum)."""
        if self.epilogue is not None and self.epilogue.add:
            return "add"
        if self.epilogue is None or self.epilogue.coefficients is None:
            return "none"
        return "each" if self.choice.run[-1].coef_stride else "run"

    def coefficients(self, run: BlockAxis, rows: BlockAxis) -> tuple[bytes, tuple[int, ...]]:
        """Return the packed factors and terms, and the offset of each row's coefficients."""
        indices = loop_offsets(self.choice.rows, "coef_stride", rows.longest_block)
        row_table = tuple([index * self.coefficient_bytes for index in indices])
        if self.epilogue is None or self.epilogue.coefficients is None:
            return b"", row_table
        pair = (self.epilogue.coefficients.factor, self.epilogue.coefficients.term)
        if self.coefficient_mode() == "each" and (len(self.choice.run) > 1 or self.rows_contiguous):
            loops = (
                (*self.choice.rows, *self.choice.run) if self.rows_contiguous else self.choice.run
            )
            count = (run.longest_block + self.halo(run)) * self.width
            count *= rows.longest_block if self.rows_contiguous else 1
            indices = loop_offsets(loops, "coef_stride", count)
            pair = (tuple([pair[0][i] for i in indices]), tuple([pair[1][i] for i in indices]))
        with np.errstate(over="ignore"):
            packed = [np.array(values, self.epilogue.computed).tobytes() for values in pair]
        padded = -(-(len(packed[0]) + SLACK) // 8) * 8
        return b"".join(p.ljust(padded, b"\0") for p in packed), row_table

    def bounds(self) -> bytes:
        """Return the packed clip bounds."""
        if self.epilogue is None or self.epilogue.clip is None:
            return b""
        with np.errstate(over="ignore"):
            return np.array(self.epilogue.clip, self.epilogue.clip_dtype).tobytes().ljust(16, b"\0")

    def spec(self) -> KernelSpec:
        """Return the spec of the kernel for this tiling."""
        epilogue = "" if self.direct else self._epilogue()
        literals = (
            self.microkernel_name(),
            self.microkernel_item(),
            self.literal(),
            epilogue,
            int(self.stream),
        )
        return KernelSpec("engine", literals)

    def _epilogue(self) -> str:
        if self.epilogue is None:
            name = f"u{min(self.src_itemsize, 8)}"
            return f"{name}-{name}-none-0-0"
        epilogue = self.epilogue
        flags = f"{int(epilogue.saturate)}-{epilogue.clip_stage}"
        return f"{epilogue.source}-{epilogue.target}-{self.coefficient_mode()}-{flags}"


PIECE_BYTES = 128  # shorter rows and runs are processed several at a time
COPY_BYTES = 32768  # bytes of one unit of a plain copy
# Source bytes of the rows of a block that are neighbors in the source. Copies of 128 to 2,048 bytes
# per row reached the limit with these blocks, and half of it with neighbors in the output.
NEIGHBOR_BYTES = 4096
RUNS_BYTES = 1024  # likewise of shorter runs, whose rows are put together in the scratch area


def group_short_runs(choice: KernelChoice) -> KernelChoice:
    """Return `choice` with outer loops as rows if runs are short: neighbors in the source.

    If no loop continues the run in the source, the rows are neighbors in the output.
    """
    run = count_iterations(choice.run) * max(choice.source_item, choice.target_item)
    if not choice.outer or run > COPY_BYTES // 2:
        return choice
    rows = _source_neighbors(choice, NEIGHBOR_BYTES) or choice.outer[-1:]
    return replace(choice, rows=rows, outer=_without(choice.outer, rows))


def _source_neighbors(choice: KernelChoice, room: int) -> tuple[Loop, ...]:
    """Return the outer loops that continue rows and run in the source, until they fill `room`."""
    taken = choice.rows
    for loop in sorted(choice.outer, key=lambda loop: loop.src):
        size = count_iterations((*taken, *choice.run)) * choice.source_item
        if size < room and loop.src == size:
            taken = (loop, *taken)
    return taken


def _without(loops: tuple[Loop, ...], taken: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """Return `loops` without the loops in `taken`, compared by identity."""
    return tuple(loop for loop in loops if not any(loop is other for other in taken))


def fuse_lines(choice: KernelChoice, room: int) -> KernelChoice:
    """Return `choice` with the loop over lines in its run, if lines are contiguous in the output.

    `room`: the maximum bytes of a line per channel.
    """
    run = choice.run
    if any(loop.coef_stride for loop in run) or run[0].count * choice.source_item > room:
        return choice
    for loop in choice.outer:
        if loop.dst == run[0].count * run[0].dst and not loop.coef_stride:
            return replace(choice, run=(loop, *run), outer=_without(choice.outer, (loop,)))
    return choice


def lengthen_rows(choice: KernelChoice) -> KernelChoice:
    """Return `choice` with one outer loop among the rows, if it lengthens short rows and runs."""
    rows, run = (
        count_iterations(loops) * choice.source_item for loops in (choice.rows, choice.run)
    )
    if max(rows, run) >= PIECE_BYTES or len(choice.rows) > 1 or len(choice.run) > 1:
        return choice
    for loop in choice.outer:
        if (loop.src, loop.dst) == (rows, run):
            rest = _without(choice.outer, (loop,))
            return replace(choice, rows=(loop, *choice.rows), outer=rest)
    return choice


def lanes() -> int:
    """Return the number of 128-bit lanes of the widest register."""
    features = cpu_features()
    return 4 if "avx512f" in features else 2 if "avx2" in features else 1


def streams_single_lines() -> bool:
    """Return True if single cache lines of many rows are streamed as fast as pairs of lines.

    This holds for AMD (which alone has SSE4a) with AVX-512, and not for Intel.
    """
    return lanes() * LANE == LINE and "sse4a" in cpu_features()


def vector_bytes(itemsize: int) -> int:
    """Return the size in bytes of the widest vector whose items are shuffled across lanes."""
    features = cpu_features()
    if "avx512f" in features:
        needed = {1: "avx512vbmi", 2: "avx512bw"}.get(itemsize, "avx512f")
        return 64 if needed in features else 16
    return 32 if "avx2" in features and itemsize >= 4 else 16


# ---- split and merge ---------------------------------------------------------------------


class SplitTiling(Tiling):
    """The tiling of pixels to one row per channel, or per selected channel, in any order.

    Lines of pixels with gaps between them in the source (as in windows of images) that are
    contiguous in the output are processed several at a time, so that full cache lines are streamed.
    """

    streamed = "pixels"

    def __init__(
        self, choice: KernelChoice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        self._fused = fuse_lines(choice, self.scratch_bytes // (2 * choice.channels))
        super().__init__(choice, epilogue, alignment, stream)
        self.choice = self._fused

    def contiguous_bytes(self) -> int:
        """Return the size in bytes of a run, or of the rows that continue it, as in patches.

        If a block has whole rows, the lines of the output that they share are joined.
        """
        rows, run = count_iterations(self.choice.rows), count_iterations(self._fused.run)
        shortest = SHORTEST_JOINED["moved" if self.epilogue is None else "converted"]
        has_whole_rows = self.pitch(run) * rows <= self.scratch_bytes
        if run * self.dst_itemsize < shortest or not has_whole_rows:
            return super().contiguous_bytes()
        return self.extend_run((*self.choice.rows, *self.choice.outer), any_coefficients=True)

    def can_store_directly(self, grid: int) -> bool:
        """Return True only if all channels go to the output."""
        order = self.choice.order
        all_channels = not order or len(order) == self.choice.channels
        return all_channels and super().can_store_directly(grid)

    def literal(self) -> str:
        """Return the vector width in bytes."""
        return str(vector_bytes(self.src_itemsize))

    def rows(self) -> BlockAxis:
        """Return one row for each selected channel."""
        return make_row_axis(self.choice.rows, count_iterations(self.choice.rows))

    def row_offsets(self, rows: BlockAxis, pitch: int) -> tuple[int, ...]:
        """Return the offset of each channel of x; unselected channels are stored after all rows.

        The scratch area has space for them, because a block of few rows uses a small part of it.
        """
        order = self.choice.order
        offsets = super().row_offsets(rows, pitch)
        if not order:
            return offsets
        offset_by_channel = dict(zip(order, offsets, strict=True))
        unselected = len(order) * pitch
        return tuple(
            offset_by_channel.get(channel, unselected) for channel in range(self.choice.channels)
        )

    def add_offsets(self, run: BlockAxis, loops: tuple[Loop, ...]) -> None:
        """Set the period of a run to a line; its pixels are contiguous, so it needs no table."""
        set_line_period(run, loops)


def set_line_period(run: BlockAxis, loops: tuple[Loop, ...]) -> None:
    """Set the period of a run of pixels to a line."""
    if len(loops) == 1:
        run.period = run.total
    else:
        run.period, run.step = loops[1].count, loops[0].src


class MergeTiling(Tiling):
    """The tiling of planes merged into pixels: a run position is a pixel."""

    streamed = "pixels"

    def __init__(
        self, choice: KernelChoice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        self.width = choice.channels

    def literal(self) -> str:
        """Return the vector width in bytes."""
        return str(vector_bytes(self.src_itemsize))

    def run_loops(self) -> tuple[Loop, ...]:
        """Return the loop over pixels."""
        return self.choice.run[:1]

    def add_offsets(self, run: BlockAxis, loops: tuple[Loop, ...]) -> None:
        """Set the table of a run to the source offsets of the channels."""
        order = self.choice.order or range(self.width)
        run.table = tuple([self.choice.run[1].src * channel for channel in order])


# ---- flip and shuffle --------------------------------------------------------------------


class FlipTiling(MergeTiling):
    """The tiling of reversed pixels; a staged block has lines that are contiguous in the output."""

    # Flipped lines of 672 bytes ran at 0.71 of the speed of a copy, and at 0.60 with 4096.
    scratch_bytes = 8192

    def __init__(
        self, choice: KernelChoice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        self.choice = fuse_lines(choice, self.scratch_bytes // (2 * self.width))
        self._lines = len(self.choice.run) - len(choice.run)

    def run_loops(self) -> tuple[Loop, ...]:
        """Return the loop over pixels, and the loop over lines if blocks have several lines."""
        return self.choice.run[: self._lines + 1]

    def add_offsets(self, run: BlockAxis, loops: tuple[Loop, ...]) -> None:
        """Set the period of a run to a line; its pixels are contiguous, so it needs no table."""
        set_line_period(run, loops)


class ShuffleTiling(FlipTiling):
    """The tiling of pixels from which some channels are selected."""

    def literal(self) -> str:
        """Return the vector width, the channels of x, the direction and the selected channels."""
        pixel = self.choice.run[self._lines].src
        channels = abs(pixel) // self.src_itemsize
        numbers = vector_bytes(self.src_itemsize), channels, int(pixel < 0), *self.choice.order
        return "x".join(map(str, numbers))


# Positions of a run at multiples of this distance share a set of the L2 cache (1 MB, 8 ways): lines
# that are prefetched there are evicted before they are read. bwc->cwb of (256, 512, 64) items of
# 4 bytes and bhwc->chwb of (255, 64, 64, 32) took 1.1 to 1.2 times as long with prefetching. At
# 64 KiB, it took 0.6 to 0.8 of the time (AMD EPYC, 2026-11-27).
CONFLICT_BYTES = 128 << 10
ROW_BYTES = 512  # bytes of each contiguous source segment of a direct block: eight cache lines
# Bytes of each source segment of a staged block; longer ones shorten its runs. Segments of single
# bytes shorter than a cache line are not copied first, which takes longer than it saves here.
STAGED_BYTES = 256
STAGED_ROWS_OF_BYTES = 32
ADDED_ROWS = 64  # rows of a staged block of a sum, whose runs are short
JOINED_BYTES = 2048  # shorter contiguous rows of the output are stored as one, in full lines
SHORT_RUN_ROWS = 128  # rows of a staged block of short runs that are not contiguous in the output
FUSED_ROWS = 64  # maximum rows if two axes are fused, or if short runs are copied


# ---- copy and cast -----------------------------------------------------------------------


class RowsTiling(Tiling):
    """The tiling of long runs: the epilogue reads rows directly from the source."""

    scratch_bytes = SCRATCH

    def __init__(
        self, choice: KernelChoice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        if epilogue is not None:
            self.streamed = "cast"
        super().__init__(group_short_runs(choice), epilogue, alignment, stream)
        self.staged = False
        # Streamed runs are full cache lines.
        self.lines = self.stream and rows_alignment(self.choice, alignment) == LINE

    def microkernel_name(self) -> str:
        """Return "rows", a loop over rows."""
        return "rows"

    def can_store_directly(self, grid: int) -> bool:
        """Return False, because the epilogue stores all rows."""
        return False

    def rows(self) -> BlockAxis:
        """Return the axis of rows, with as many rows per block as a unit of a copy has."""
        loops = self.choice.rows
        if not loops:
            return super().rows()
        run = count_iterations(self.choice.run) * max(self.src_itemsize, self.dst_itemsize)
        inner = count_iterations(loops[1:])
        return make_row_axis(loops, max(1, min(FUSED_ROWS, COPY_BYTES // run) // inner) * inner)

    def run_block(self, total: int, quantum: int, rows: BlockAxis) -> int:
        """Return a long block, as only repeated coefficients have to stay in a cache."""
        nbytes = COPY_BYTES if len(self.choice.run) == 1 else REPEAT_BYTES
        limit = nbytes // max(self.src_itemsize, self.dst_itemsize)
        return max(quantum, limit // quantum * quantum)

    def add_offsets(self, run: BlockAxis, loops: tuple[Loop, ...]) -> None:
        """Leave the run without a table, as it is contiguous on both sides."""

    def row_offsets(self, rows: BlockAxis, pitch: int) -> tuple[int, ...]:
        """Return the source offset of each row of a block."""
        return loop_offsets(self.choice.rows, "src", rows.longest_block)


class BlockTiling(Tiling):
    """The base of tilings whose blocks have many rows and short, possibly fused, axes."""

    scratch_bytes = SCRATCH
    row_quantum = 1  # rows of one tile

    def __init__(
        self, choice: KernelChoice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        self.max_rows = STAGED_BYTES // self.src_itemsize
        if self.src_itemsize == 1:
            self.max_rows = STAGED_ROWS_OF_BYTES
        if self.coefficient_mode() == "add":
            self.max_rows = ADDED_ROWS
        self.rows_contiguous = self._rows_are_contiguous()

    def contiguous_bytes(self) -> int:
        """Return the size in bytes of a run, or of short rows that are stored as one."""
        run = count_iterations(self.choice.run) * self.dst_itemsize
        rows = self.choice.rows
        is_ordered = sorted(rows, key=lambda loop: -loop.dst) == list(rows)
        return self.extend_run(rows) if run <= JOINED_BYTES and is_ordered else run

    def _rows_are_contiguous(self) -> bool:
        """Return True if the rows of a staged block are short and contiguous in the output."""
        run = count_iterations(self.choice.run)
        if self.direct or run * max(self.src_itemsize, self.dst_itemsize) > JOINED_BYTES:
            return False
        expected = run * self.dst_itemsize
        for loop in reversed(self.choice.rows):
            if loop.dst != expected or loop.coef_stride:
                return False
            expected *= loop.count
        return True

    def joined_rows(self) -> int:
        """Return the number of rows of a block that are stored as one: half of the scratch area."""
        inner = count_iterations(self.choice.rows[1:])
        room = SCRATCH // (2 * self.src_itemsize * count_iterations(self.choice.run))
        unit = inner if inner > 1 else min(self.row_quantum, room)
        return max(room // unit, 1) * unit

    def shrink_blocks(self) -> None:
        """Move the outermost loop of a fused axis to the outer loops, or use fewer rows."""
        choice = self.choice
        if len(choice.rows) > 1:
            self.choice = replace(
                choice, rows=choice.rows[1:], outer=(*choice.outer, choice.rows[0])
            )
        elif len(self.run_loops()) > 1:
            self.choice = replace(choice, run=choice.run[1:], outer=(*choice.outer, choice.run[0]))
        elif self.max_rows > 1:
            self.max_rows //= 2  # one row always fits: the shortest run of a block is a line
        else:
            super().shrink_blocks()
        self.rows_contiguous = self._rows_are_contiguous()

    def rows(self) -> BlockAxis:
        """Return the axis of rows; blocks have full source lines, or full inner loops if fused."""
        loops = self.choice.rows
        if not loops:
            return super().rows()
        inner = count_iterations(loops[1:])
        position_bytes = self.width * self.src_itemsize
        room = ROW_BYTES // position_bytes if self.direct else self.max_rows
        if self.rows_contiguous:
            block = self.joined_rows()
        elif len(loops) > 1:
            # Transposes of bytes copy PIECE_BYTES of each source row first.
            piece = PIECE_BYTES if self.src_itemsize == 1 else ROW_BYTES
            limit = piece // position_bytes if self.direct else FUSED_ROWS
            block = _best_multiple(inner, self.row_quantum, max(inner, limit))
        else:
            block = room // self.row_quantum * self.row_quantum or max(1, room)
        return make_row_axis(loops, block)

    def rows_first(self) -> bool:
        """Return True for staged blocks, so that the source is read in its order."""
        return self.staged

    def run_block(self, total: int, quantum: int, rows: BlockAxis) -> int:
        """Return the length of a block: the complete run if rows are stored as one."""
        return total if self.rows_contiguous else super().run_block(total, quantum, rows)


# ---- short runs --------------------------------------------------------------------------


class RunsTiling(BlockTiling):
    """The tiling of runs that are shorter than the vectors and lines of a copy.

    A position of a block's run is such a run. Rows are neighbors in the source, positions in the
    output, so that both are accessed in long pieces.
    """

    def __init__(
        self, choice: KernelChoice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        self._inner = len(choice.run)
        self.width = count_iterations(choice.run)
        super().__init__(group_runs(choice), epilogue, alignment, stream)
        self.tile = 1
        self.max_rows = max(1, RUNS_BYTES // (self.width * self.src_itemsize))

    def microkernel_name(self) -> str:
        """Return "runs"."""
        return "runs"

    def microkernel_item(self) -> int:
        """Return 1, because the microkernel reads the length of runs in bytes."""
        return 1

    def can_store_directly(self, grid: int) -> bool:
        """Return False if the output is streamed, as runs are not full cache lines."""
        return not self.stream

    def run_loops(self) -> tuple[Loop, ...]:
        """Return the loops around the runs that are contiguous on both sides."""
        return self.choice.run[: -self._inner]

    def period(self, run: BlockAxis) -> int:
        """Return the positions of a block, as the table holds all of them."""
        return run.longest_block


def group_runs(choice: KernelChoice) -> KernelChoice:
    """Return `choice` with loops around its runs among the run (at least one) and the rows."""
    run = choice.run
    for loop in reversed(choice.outer):
        size = count_iterations(run) * choice.target_item
        if size < ROW_BYTES and loop.dst == size and not loop.coef_stride:
            run = (loop, *run)
    choice = replace(choice, outer=_without(choice.outer, run))
    rows = _source_neighbors(choice, RUNS_BYTES)
    if len(run) == len(choice.run):
        run = (Loop(1, 0, 0), *run)
    return replace(choice, run=run, rows=rows, outer=_without(choice.outer, rows))


def copy_tiling(
    choice: KernelChoice, epilogue: Epilogue | None, alignment: int, stream: bool
) -> Tiling:
    """Return the tiling of a copy or a cast.

    Casts of runs of a line and less are faster after a copy to the scratch area. Longer runs took
    0.5 to 1.0 of that time when they were read directly, and up to 1.1 in results that do not fit
    the L2 cache; copies of 192 to 511 bytes 0.9 to 1.3 (AMD EPYC with AVX-512, 2026-11-27).
    """
    long = RowsTiling(choice, epilogue, alignment, stream)
    items = count_iterations(choice.run)
    if epilogue is None or stream:
        is_long = items * choice.target_item >= ROW_BYTES
    else:
        is_long = items * choice.source_item > LINE
    if is_long or long.lines:
        return long
    short = RunsTiling(choice, epilogue, alignment, stream)
    grouped = count_iterations(short.run_loops()) > 1 or (short.direct and short.choice.rows)
    return short if grouped else long


# ---- transpose ---------------------------------------------------------------------------


class TransposeTiling(BlockTiling):
    """The tiling of transposes; short contiguous output rows are stored as one."""

    run_bytes = TRANSPOSED_BYTES

    def __init__(
        self, choice: KernelChoice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        if self.direct:
            self.choice = lengthen_rows(choice)
        side = LANE // self.src_itemsize
        self.tile = max(side * lanes() * self._depth(), LINE // self.src_itemsize)
        self.row_quantum = side * self._squares()

    def adds_directly(self) -> bool:
        """Return True for floats of the sum's dtype in full tiles, so that none is added twice.

        In registers, a box in the caches took 0.6 of the time that adding from the scratch area
        takes (AMD EPYC, 2026-11-27).
        """
        epilogue = self.epilogue
        if epilogue is None or not epilogue.add or epilogue.source != epilogue.target:
            return False
        is_full = count_iterations(self.choice.run) * self.src_itemsize % LINE == 0
        return is_full and DTYPES[epilogue.source].kind == "f"

    def literal(self) -> str:
        """Return the lanes of a register, depth and squares of a tile, size of added floats."""
        added = DTYPES[self.epilogue.source].item if self.direct and self.epilogue else 0
        return f"{lanes()}x{self._depth()}x{self._squares()}x{added}"

    def _rows_are_contiguous(self) -> bool:
        """Return True if short rows are stored as one, and a block of them fills tiles.

        Blocks of fewer rows than a lane has items are moved item by item: 1,301 x 16,000 bytes took
        3.1 times as long in blocks of 12 rows (AMD EPYC, 2026-11-27).
        """
        return super()._rows_are_contiguous() and self.joined_rows() >= LANE // self.src_itemsize

    def outer_loops(self) -> list[Loop]:
        """Return the loops around blocks in the order of the source, whose pages are read once."""
        return sort_by_source(super().outer_loops())

    def can_prefetch(self) -> bool:
        """Return True unless the positions of a run share a set of the L2 cache.

        The hardware prefetches too little: the loads of a tile jump from row to row, and pause
        while the epilogue runs. It suffices for direct blocks whose positions share lines: with
        several prefetches per line, 5 to 8 channels of 4 bytes took 0.9 to 1.6 times as long, and
        10 to 15 channels 1.01 to 1.03 times (AMD EPYC, 2026-11-27).
        """
        if self.src_itemsize == 1 and not streams_single_lines():
            return False  # a Xeon with AVX-512 took 1.2 times as long with prefetching (2026-11-26)
        distance = abs(self.run_loops()[-1].src)
        return distance % CONFLICT_BYTES != 0 and (self.staged or distance >= LINE)

    def _depth(self) -> int:
        """Return the vectors per output row of a tile.

        Direct tiles store full cache lines, because streamed parts of lines are slower than memory:
        pairs of lines if tiles of pairs do not overlap, else single lines.
        """
        size, vector = count_iterations(self.choice.run) * self.src_itemsize, LANE * lanes()
        depth = LINE // vector if self.direct else 1
        pairs = size % (2 * LINE) == 0 and not streams_single_lines()
        if self.src_itemsize > 1 and (self.staged or pairs):
            depth = max(2, depth)
        return depth if size >= depth * vector else 1

    def _squares(self) -> int:
        """Return the squares of a tile side by side."""
        if self.src_itemsize == 1:
            return 1
        if streams_single_lines():
            return 2 if self.direct or self._depth() == 1 else 1
        return 2 if self.src_itemsize == 2 else 4


def sort_by_source(loops: list[Loop]) -> list[Loop]:
    """Return loops from the largest to the smallest step in the source."""
    return sorted(loops, key=lambda loop: -abs(loop.src))


class ShortRowsTiling(BlockTiling):
    """The tiling of transposes with fewer items in a source row than in a lane."""

    scratch_bytes = 8192

    def __init__(
        self, choice: KernelChoice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        self.rows_contiguous = False  # all rows are in one block, and they may be long
        self.tile = LANE // self.src_itemsize * lanes()

    def microkernel_name(self) -> str:
        """Return "shortrows"."""
        return "shortrows"

    def literal(self) -> str:
        """Return the lanes of a register, and the most items of a row."""
        return short_side_literal(self.choice.rows, self.src_itemsize)

    def rows(self) -> BlockAxis:
        """Return the axis of rows: all of them."""
        return make_row_axis(self.choice.rows, count_iterations(self.choice.rows))

    def outer_loops(self) -> list[Loop]:
        """Return the loops around blocks in the order of the source: 0.6 to 1.04 of the time."""
        return sort_by_source(super().outer_loops())


class ShortRunsTiling(BlockTiling):
    """The tiling of transposes with fewer items in an output row than in a lane."""

    def __init__(
        self, choice: KernelChoice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        self.row_quantum = LANE // self.src_itemsize * lanes()
        self.max_rows = SHORT_RUN_ROWS

    def microkernel_name(self) -> str:
        """Return "shortruns"."""
        return "shortruns"

    def literal(self) -> str:
        """Return the lanes of a register, and the most items of a run."""
        return short_side_literal(self.choice.run, self.src_itemsize)

    def can_store_directly(self, grid: int) -> bool:
        """Return False, because stored vectors are longer than the runs."""
        return False

    def run_block(self, total: int, quantum: int, rows: BlockAxis) -> int:
        """Return the complete run."""
        return total


def short_side_literal(loops: tuple[Loop, ...], itemsize: int) -> str:
    """Return the lanes of a register, and the most items of a short side: a half lane or a lane."""
    side = LANE // itemsize
    most = side // 2 if count_iterations(loops) <= side // 2 else side
    return f"{lanes()}x{most}"


def has_full_lanes(choice: KernelChoice) -> bool:
    """Return True for a transpose whose rows and runs have as many items as a lane, or more."""
    side = LANE // choice.source_item
    return choice.kernel == "transpose" and all(
        count_iterations(loops) >= side for loops in (choice.rows, choice.run)
    )


def transpose_tiling(
    choice: KernelChoice, epilogue: Epilogue | None, alignment: int, stream: bool
) -> Tiling:
    """Return the tiling of a transpose, by the side that is shorter than a lane."""
    side = LANE // choice.source_item
    if count_iterations(choice.run) < side:
        return ShortRunsTiling(choice, epilogue, alignment, stream)
    if count_iterations(choice.rows) < side:
        return ShortRowsTiling(choice, epilogue, alignment, stream)
    return TransposeTiling(choice, epilogue, alignment, stream)


def _best_multiple(inner: int, unit: int, limit: int) -> int:
    """Return the multiple of `inner` up to `limit` that fills units best, or the largest such."""
    multiples = range(inner, limit + 1, inner)
    return max(multiples, key=lambda n: (n / (-(-n // unit) * unit), n))


# ---- gather ------------------------------------------------------------------------------


class GatherTiling(Tiling):
    """The tiling of copies item by item, with a table of source offsets."""

    def __init__(
        self, choice: KernelChoice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        self.tile = 1
        self.stream = self.stream and self.staged  # single items are never streamed

    def can_store_directly(self, grid: int) -> bool:
        """Return True if output items are stored one by one: not contiguous, or not streamed."""
        return self.choice.run[-1].dst != self.dst_itemsize or not self.stream

    def period(self, run: BlockAxis) -> int:
        """Return the number of positions in the full inner loops that fit the table."""
        loops = self.run_loops()
        inner = count_iterations(loops[1:])
        return max(1, min(MAX_TABLE // inner, loops[0].count)) * inner

    def walk(self, run: BlockAxis, rows: BlockAxis) -> tuple[list[Loop], int, int]:
        """Return all loops; the last outer loop is inside, as its items share cache lines of x."""
        outer = self.outer_loops()
        if not outer:
            return super().walk(run, rows)
        loops = [*outer[:-1], self.run_block_loop(run), outer[-1], self.row_block_loop(rows)]
        return loops, len(outer) - 1, len(outer) + 1


MakeTiling = Callable[[KernelChoice, Epilogue | None, int, bool], Tiling]
TILINGS: dict[str, MakeTiling] = {
    "copy": copy_tiling,
    "cast": copy_tiling,
    "split": SplitTiling,
    "merge": MergeTiling,
    "flip": FlipTiling,
    "shuffle": ShuffleTiling,
    "flipsplit": SplitTiling,
    "transpose": transpose_tiling,
    "gather": GatherTiling,
}

"""Divide conversions into blocks that fit this CPU's caches: one Tiling for every kernel.

A block has two axes: the *run*, contiguous in the output, and the *rows* beside it. A pure move
whose output rows can be stored directly is *direct*. Any other block is *staged*: the microkernel
brings it into the output's order in the scratch area, and the epilogue stores its rows. A `Tiling`
is the working state of one conversion; each kernel of planning/select.py has a subclass in TILINGS.

Imports no Numba. The constants are policy; docs/performance.md has the measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from itertools import product as cartesian
from math import gcd, lcm
from operator import mul

import numpy as np

from ...planning.epilogue import Epilogue
from ...planning.loops import Loop
from ...planning.select import MAX_TABLE, KernelChoice, count_iterations
from .compiler import KernelSpec, cpu_features
from .params import LANE, LINE, SCRATCH

RUN_BYTES = 1024  # output bytes of one block along its run: long enough for DRAM pages
# Scratch bytes of a block with few rows: windows of normalized uint8 ran at 0.87 of the limit with
# 1.4 to 4 KB, at 0.84 with 8 KB, and at 0.80 with all 32 KB, which leaves no room for the source in
# the first-level cache.
NARROW_BYTES = 4096
REPEAT_BYTES = 4096  # of a run along which coefficients repeat: their copies share L1
SLACK = 512  # bytes after the coefficients that a full vector may read


@dataclass(frozen=True)
class BlockAxis:
    """One axis of a block: total length, block length, and a periodic table of offsets."""

    total: int
    block: int
    table: tuple[int, ...] = ()
    period: int = 1
    step: int = 0

    @property
    def blocks(self) -> int:
        """The number of blocks along the axis."""
        return max(1, self.total // self.block)

    @property
    def longest_block(self) -> int:
        """The length of the last block, which includes the remainder."""
        return self.total - (self.blocks - 1) * self.block


def loop_offsets(loops: Sequence[Loop], side: int, count: int) -> tuple[int, ...]:
    """Return the offsets of the first `count` iterations, the outermost loop being unlimited.

    `side`: the field of Loop to use (1 source, 2 output, 3 coefficients).
    """
    if not loops:
        return (0,) * count
    inner = count_iterations(loops[1:])
    ranges = [range(-(-count // inner)), *(range(loop.count) for loop in loops[1:])]
    steps = [loop[side] for loop in loops]
    places = islice(cartesian(*ranges), count)
    return tuple([sum(map(mul, place, steps)) for place in places])


def make_row_axis(loops: tuple[Loop, ...], block: int) -> BlockAxis:
    """Return the rows of a block with their output offsets."""
    total = count_iterations(loops)
    axis = BlockAxis(total, min(total, block))
    return replace(axis, table=loop_offsets(loops, 2, axis.longest_block))


class Tiling:
    """A division into blocks of one row, for a microkernel that takes runs of any length.

    `alignment` and `stream` are the arguments of `launch.prepare`.
    """

    scratch_bytes = NARROW_BYTES  # bytes of the scratch area that a staged block uses
    width = 1  # output items of one position of the run
    rows_contiguous = False  # rows follow each other in the output, so also in the scratch area

    def __init__(
        self, choice: KernelChoice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        self.choice = choice
        self.epilogue = epilogue
        self.src_itemsize = choice.source_item
        self.dst_itemsize = choice.target_item
        # Positions of the run that are processed at once.
        self.tile = LINE // min(self.src_itemsize, self.dst_itemsize)
        grid = self._grid(alignment)
        self.stream = stream and grid % min(self.dst_itemsize, 8) == 0
        self.direct = epilogue is None and self.can_store_directly(grid)
        self.staged = not self.direct

    def _grid(self, alignment: int) -> int:
        """Return the power of two, at most a line, on which all output rows begin."""
        for loop in (*self.choice.outer, *self.choice.rows):
            alignment = gcd(alignment, loop.dst)
        return alignment

    # -- overridden by kernels -------------------------------------------------------------

    def microkernel_name(self) -> str:
        """Return the name of the microkernel (see engine.py) with its number of channels."""
        channels = self.choice.channels
        return f"{self.choice.kernel}-{channels}" if channels else self.choice.kernel

    def literal(self) -> str:
        """Return the kernel's own arguments for building its microkernel."""
        return ""

    def can_store_directly(self, grid: int) -> bool:
        """Return True if a pure move needs no scratch area: full lines, or no streaming."""
        return not self.stream or grid == LINE

    def rows(self) -> BlockAxis:
        """Return the rows of a block."""
        return BlockAxis(1, 1, (0,))

    def run_loops(self) -> tuple[Loop, ...]:
        """Return the loops whose iterations are the positions of the run."""
        return self.choice.run

    def period(self, run: BlockAxis) -> int:
        """Return the number of run positions after which the table of source offsets repeats."""
        return self.tile if len(self.run_loops()) == 1 else run.longest_block

    def shrink_blocks(self) -> None:
        """Change the loops so that blocks get smaller: the smallest exceed the scratch area."""
        raise RuntimeError(f"no block of {self.choice} fits the scratch area")

    # -- axes ------------------------------------------------------------------------------

    def axes(self) -> tuple[BlockAxis, BlockAxis]:
        """Return the run and the rows of a block, which fits the scratch area if it is staged."""
        while True:
            rows = self.rows()
            run = self.run(rows)
            if not self.staged or self.pitch(run.longest_block) * rows.longest_block <= SCRATCH:
                return run, rows
            self.shrink_blocks()

    def run(self, rows: BlockAxis) -> BlockAxis:
        """Return the run of a block that has these rows."""
        loops = self.run_loops()
        total = count_iterations(loops)
        inner = count_iterations(loops[1:])
        # Blocks end at the ends of fused axes and, if stored directly, of cache lines.
        quantum = self.tile if len(loops) == 1 else lcm(inner, self.tile) if self.direct else inner
        return self.add_offsets(BlockAxis(total, min(total, self.run_block(total, quantum, rows))))

    def add_offsets(self, run: BlockAxis) -> BlockAxis:
        """Return the run with the table of its source offsets."""
        loops = self.run_loops()
        period = self.period(run)
        table = loop_offsets(loops, 1, period + self.tile)
        step = period // count_iterations(loops[1:]) * loops[0].src
        return replace(run, table=table, period=period, step=step)

    def run_block(self, total: int, quantum: int, rows: BlockAxis) -> int:
        """Return the number of run positions in one block, a multiple of the quantum."""
        if self.staged:
            return self._staged_block(total, quantum, rows)
        place = self.width * max(self.src_itemsize, self.dst_itemsize)
        room = RUN_BYTES // place * (4 if rows.longest_block <= 4 else 1)
        return max(quantum, room // quantum * quantum)

    def _staged_block(self, total: int, quantum: int, rows: BlockAxis) -> int:
        """Return the longest block such that also the longer last block fits the scratch area."""
        room = self.scratch_bytes // (rows.longest_block * self.width * self.src_itemsize)
        if self.coefficient_mode() == "each" and len(self.choice.run) > 1:
            room = min(room, REPEAT_BYTES // (self.width * self._coefficient_size()))
        block = room // quantum * quantum
        while block > quantum:
            longest = BlockAxis(total, min(total, block)).longest_block
            if self.pitch(longest) * rows.longest_block <= self.scratch_bytes:
                return block
            block -= quantum
        return quantum

    def pitch(self, places: int) -> int:
        """Return the bytes between rows of the scratch area, never a multiple of a page."""
        if self.rows_contiguous:
            return places * self.src_itemsize
        return -(-places * self.width * self.src_itemsize // LINE) * LINE + LINE

    @property
    def out_stride(self) -> int:
        """Bytes between neighbors of a run in the memory that the microkernel writes to."""
        return self.choice.run[-1].dst if self.direct else self.src_itemsize

    def row_offsets(self, rows: BlockAxis, pitch: int) -> tuple[int, ...]:
        """Return the offset of each row of a block, in the output or in the scratch area."""
        return rows.table if self.direct else tuple(range(0, rows.longest_block * pitch, pitch))

    # -- the walk --------------------------------------------------------------------------

    def walk(self, run: BlockAxis, rows: BlockAxis) -> tuple[list[Loop], int, int]:
        """Return all loops, and the indices of the loops over blocks of the run and of the rows."""
        outer = self.outer_loops()
        return (
            [*outer, self.row_block_loop(rows), self.run_block_loop(run)],
            len(outer) + 1,
            len(outer),
        )

    def outer_loops(self) -> list[Loop]:
        """Return the loops around blocks, with all steps in bytes."""
        return [
            loop._replace(coef_stride=loop.coef_stride * self._coefficient_size())
            for loop in self.choice.outer
        ]

    def run_block_loop(self, run: BlockAxis) -> Loop:
        """Return the loop over blocks along the run."""
        loops = self.run_loops()
        src = run.block // count_iterations(loops[1:]) * loops[0].src
        dst = run.block * self.width * self.choice.run[-1].dst
        coef = (
            loops[-1].coef_stride * run.block * self._coefficient_size() if len(loops) == 1 else 0
        )
        return Loop(run.blocks, src, dst, coef)

    def row_block_loop(self, rows: BlockAxis) -> Loop:
        """Return the loop over blocks along the rows."""
        loops = self.choice.rows
        if not loops:
            return Loop(1, 0, 0)
        turns = rows.block // count_iterations(loops[1:])
        coef = turns * loops[0].coef_stride * self._coefficient_size()
        return Loop(rows.blocks, turns * loops[0].src, turns * loops[0].dst, coef)

    # -- the epilogue ----------------------------------------------------------------------

    def coefficient_mode(self) -> str:
        """Return "none", "run" (one pair for a run), "each" (one per item) or "add" (a sum)."""
        if self.epilogue is not None and self.epilogue.add:
            return "add"
        if self.epilogue is None or self.epilogue.coefficients is None:
            return "none"
        return "each" if self.choice.run[-1].coef_stride else "run"

    def _coefficient_size(self) -> int:
        return 8 if self.epilogue is not None and self.epilogue.computed == "f8" else 4

    def coefficients(self, run: BlockAxis, rows: BlockAxis) -> tuple[bytes, tuple[int, ...]]:
        """Return the packed factors and terms, and the offset of the coefficients of each row."""
        size = self._coefficient_size()
        of_rows = tuple(
            step * size for step in loop_offsets(self.choice.rows, 3, rows.longest_block)
        )
        if self.epilogue is None or self.epilogue.coefficients is None:
            return b"", of_rows
        both = (self.epilogue.coefficients.factor, self.epilogue.coefficients.term)
        if self.coefficient_mode() == "each" and (len(self.choice.run) > 1 or self.rows_contiguous):
            loops = (
                (*self.choice.rows, *self.choice.run) if self.rows_contiguous else self.choice.run
            )
            count = run.longest_block * (rows.longest_block if self.rows_contiguous else self.width)
            places = loop_offsets(loops, 3, count)
            both = (tuple(both[0][i] for i in places), tuple(both[1][i] for i in places))
        with np.errstate(over="ignore"):
            packed = [np.array(values, self.epilogue.computed).tobytes() for values in both]
        room = -(-(len(packed[0]) + SLACK) // 8) * 8
        return b"".join(p.ljust(room, b"\0") for p in packed), of_rows

    def bounds(self) -> bytes:
        """Return the packed clip bounds."""
        if self.epilogue is None or self.epilogue.clip is None:
            return b""
        with np.errstate(over="ignore"):
            return np.array(self.epilogue.clip, self.epilogue.clip_dtype).tobytes().ljust(16, b"\0")

    def spec(self) -> KernelSpec:
        """Return the spec of the kernel for these blocks."""
        epilogue = "" if self.direct else self._epilogue()
        literals = (
            self.microkernel_name(),
            self.src_itemsize,
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
        flags = f"{int(epilogue.saturate)}-{int(epilogue.clip is not None)}"
        return f"{epilogue.source}-{epilogue.target}-{self.coefficient_mode()}-{flags}"


PIECE_BYTES = 128  # shorter rows and runs are read and written several at a time
COPY_BYTES = 32768  # bytes of one unit of a plain copy


def group_short_runs(choice: KernelChoice) -> KernelChoice:
    """Return a choice whose short runs are processed several at a time, as rows."""
    run = count_iterations(choice.run) * max(choice.source_item, choice.target_item)
    if not choice.outer or run > COPY_BYTES // 2:
        return choice
    return replace(choice, rows=choice.outer[-1:], outer=choice.outer[:-1])


def fuse_outer_rows(choice: KernelChoice, most: int) -> KernelChoice:
    """Return a choice with the next outer loop among the rows, if rows stay contiguous.

    `most`: the maximum number of rows of a block, which has full iterations of the inner loop then.
    """
    rows = choice.rows[0]
    if not choice.outer or rows.count > most:
        return choice
    if rows.count * rows.dst != choice.outer[-1].dst or choice.outer[-1].coef_stride:
        return choice
    return replace(choice, rows=choice.outer[-1:] + choice.rows, outer=choice.outer[:-1])


def fuse_lines(choice: KernelChoice, room: int) -> KernelChoice:
    """Return a choice with the loop over lines in its run, if lines have gaps only in the source.

    `room`: the maximum bytes of a line per channel.
    """
    run = choice.run
    if any(loop.coef_stride for loop in run) or run[0].count * choice.source_item > room:
        return choice
    for loop in choice.outer:
        if loop.dst == run[0].count * run[0].dst and not loop.coef_stride:
            outer = tuple(other for other in choice.outer if other is not loop)
            return replace(choice, run=(loop, *run), outer=outer)
    return choice


def lengthen_rows(choice: KernelChoice) -> KernelChoice:
    """Return a choice whose short rows and runs are both lengthened by one outer loop."""
    rows, run = (
        count_iterations(loops) * choice.source_item for loops in (choice.rows, choice.run)
    )
    if max(rows, run) >= PIECE_BYTES or len(choice.rows) > 1 or len(choice.run) > 1:
        return choice
    for loop in choice.outer:
        if (loop.src, loop.dst) == (rows, run):
            outer = tuple(other for other in choice.outer if other is not loop)
            return replace(choice, rows=(loop, *choice.rows), outer=outer)
    return choice


def lanes() -> int:
    """Return the number of 128-bit lanes of the widest register."""
    features = cpu_features()
    return 4 if "avx512f" in features else 2 if "avx2" in features else 1


def vector_bytes(itemsize: int) -> int:
    """Return the bytes of the vectors in which small items are shuffled across lanes."""
    features = cpu_features()
    if "avx512f" in features:
        needed = {1: "avx512vbmi", 2: "avx512bw"}.get(itemsize, "avx512f")
        return 64 if needed in features else 16
    return 32 if "avx2" in features and itemsize >= 4 else 16


# ---- split and merge ---------------------------------------------------------------------


class SplitTiling(Tiling):
    """The tiling of pixels to one row per channel, or per selected channel, in any order.

    Lines of pixels that have gaps in the source (as in windows of images) and follow each other in
    the output are processed several at a time, so that full cache lines are streamed.
    """

    def __init__(
        self, choice: KernelChoice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        if self.staged:
            self.choice = fuse_lines(choice, self.scratch_bytes // (2 * choice.channels))

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
        """Return the offset of each channel of x; unselected channels go after all rows.

        The scratch area has room for them: a block of few rows uses a small part of it.
        """
        order = self.choice.order
        columns = super().row_offsets(rows, pitch)
        if not order:
            return columns
        places = dict(zip(order, columns, strict=True))
        return tuple(
            places.get(channel, len(order) * pitch) for channel in range(self.choice.channels)
        )

    def add_offsets(self, run: BlockAxis) -> BlockAxis:
        """Return the run without a table: pixels of a line are contiguous; a period is a line."""
        return set_line_period(run, self.run_loops())


def set_line_period(run: BlockAxis, loops: tuple[Loop, ...]) -> BlockAxis:
    """Return a run of pixels whose period is a line."""
    if len(loops) == 1:
        return replace(run, period=run.longest_block)
    return replace(run, period=loops[1].count, step=loops[0].src)


class MergeTiling(Tiling):
    """The tiling of merged pixels: a run position is a pixel; the table has channel offsets."""

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

    def add_offsets(self, run: BlockAxis) -> BlockAxis:
        """Return the run with the source offsets of the channels."""
        order = self.choice.order or range(self.width)
        return replace(run, table=tuple(self.choice.run[1].src * channel for channel in order))


# ---- flip and shuffle --------------------------------------------------------------------


class FlipTiling(MergeTiling):
    """The tiling of flipped pixels; staged lines that are contiguous in the output share blocks."""

    scratch_bytes = (
        8192  # bytes: flipped lines of 672 bytes ran at 0.71 of a copy, and at 0.60 with half
    )

    def __init__(
        self, choice: KernelChoice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        if self.staged:
            self.choice = fuse_lines(choice, self.scratch_bytes // (2 * self.width))
        self._lines = len(self.choice.run) - len(choice.run)

    def run_loops(self) -> tuple[Loop, ...]:
        """Return the loop over pixels, and the loop over lines if blocks have several lines."""
        return self.choice.run[: self._lines + 1]

    def add_offsets(self, run: BlockAxis) -> BlockAxis:
        """Return the run without a table: pixels of a line are contiguous; a period is a line."""
        return set_line_period(run, self.run_loops())


class ShuffleTiling(FlipTiling):
    """The tiling of pixels from which some channels are selected."""

    def literal(self) -> str:
        """Return the vector width, the channels of x, the direction and the selected channels."""
        pixel = self.choice.run[self._lines].src
        facts = abs(pixel) // self.src_itemsize, int(pixel < 0), *self.choice.order
        return "x".join(map(str, (vector_bytes(self.src_itemsize), *facts)))


ROW_BYTES = 512  # source bytes of one block across: four cache lines of every source row
SQUARES = {1: {1: 1, 2: 4, 4: 4, 8: 4, 16: 4}, 2: {2: 2, 4: 4, 8: 4, 16: 4}}  # by depth and item
STAGED_ROWS = 32  # rows of a staged block: fewer waste source lines, more shorten its runs
ADDED_ROWS = 64  # rows of a staged block that is added to a tile, which is short along its runs
JOINED_BYTES = 512  # shorter output rows that follow each other are stored as one
FUSED_ROWS = 64  # maximum rows if two axes are fused, or if short runs are copied


# ---- copy and cast -----------------------------------------------------------------------


class RowsTiling(Tiling):
    """The tiling of copies and casts: the epilogue reads rows from the source, several if short.

    Short rows that follow each other in a streamed output, and begin within its cache lines, are
    first copied to the scratch area.
    """

    scratch_bytes = SCRATCH

    def __init__(
        self, choice: KernelChoice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(group_short_runs(choice), epilogue, alignment, stream)
        self.rows_contiguous = self.stream and self._rows_are_contiguous(alignment)
        self.staged = self.rows_contiguous
        if self.rows_contiguous:
            self.choice = fuse_outer_rows(self.choice, SCRATCH // (2 * self._run_bytes()))

    def _rows_are_contiguous(self, alignment: int) -> bool:
        """Return True if rows are short, not full cache lines, and contiguous in the output."""
        run = count_iterations(self.choice.run) * self.dst_itemsize
        rows = self.choice.rows
        if not rows or self._grid(alignment) == LINE or run > JOINED_BYTES:
            return False
        return rows[0].dst == run and not rows[0].coef_stride and self.coefficient_mode() != "add"

    def microkernel_name(self) -> str:
        """Return "rows" (the engine's loop over rows), or "pieces" if rows are contiguous."""
        return "pieces" if self.rows_contiguous else "rows"

    def can_store_directly(self, grid: int) -> bool:
        """Return False: the epilogue stores."""
        return False

    def rows(self) -> BlockAxis:
        """Return as many rows as one unit of a plain copy holds."""
        loops = self.choice.rows
        if not loops:
            return super().rows()
        inner = count_iterations(loops[1:])
        run = self._run_bytes()
        most = SCRATCH // (2 * run) if self.rows_contiguous else min(FUSED_ROWS, COPY_BYTES // run)
        return make_row_axis(loops, max(1, most // inner) * inner)

    def _run_bytes(self) -> int:
        return count_iterations(self.choice.run) * max(self.src_itemsize, self.dst_itemsize)

    def run_block(self, total: int, quantum: int, rows: BlockAxis) -> int:
        """Return a long block: only repeated coefficients have to stay in a cache."""
        if self.rows_contiguous:
            return total
        room = COPY_BYTES if len(self.choice.run) == 1 else REPEAT_BYTES
        return max(quantum, room // max(self.src_itemsize, self.dst_itemsize) // quantum * quantum)

    def add_offsets(self, run: BlockAxis) -> BlockAxis:
        """Return the run unchanged: it is contiguous on both sides."""
        return run

    def row_offsets(self, rows: BlockAxis, pitch: int) -> tuple[int, ...]:
        """Return the source offset of each row of a block."""
        return loop_offsets(self.choice.rows, 1, rows.longest_block)


# ---- transpose ---------------------------------------------------------------------------


class TransposeTiling(Tiling):
    """The tiling of transposes; short output rows that are contiguous are stored as one."""

    scratch_bytes = SCRATCH

    def __init__(
        self, choice: KernelChoice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        if self.direct:
            self.choice = lengthen_rows(choice)
        side = LANE // self.src_itemsize
        self.tile = max(side * lanes() * self._depth(), LINE // self.src_itemsize)
        self._row_quantum = side * self._squares()  # rows of one tile
        self._max_rows = ADDED_ROWS if self.coefficient_mode() == "add" else STAGED_ROWS
        self.rows_contiguous = self._rows_are_contiguous()

    def literal(self) -> str:
        """Return the lanes of a register, and the vectors and squares of a tile."""
        return f"{lanes()}x{self._depth()}x{self._squares()}"

    def _depth(self) -> int:
        """Return the vectors per output row of a tile: 2 if possible, as DRAM pairs cache lines."""
        long = count_iterations(self.choice.run) * self.src_itemsize >= 2 * LANE * lanes()
        return 2 if long and self.src_itemsize > 1 else 1

    def _squares(self) -> int:
        """Return the squares side by side: as much of a source line as registers hold."""
        return SQUARES[self._depth()][self.src_itemsize]

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

    def shrink_blocks(self) -> None:
        """Move the outermost loop of a fused axis to the outer loops, or use fewer rows."""
        choice = self.choice
        if len(choice.rows) > 1:
            self.choice = replace(
                choice, rows=choice.rows[1:], outer=(*choice.outer, choice.rows[0])
            )
        elif len(choice.run) > 1:
            self.choice = replace(choice, run=choice.run[1:], outer=(*choice.outer, choice.run[0]))
        elif self._max_rows > 1:
            self._max_rows //= 2  # one row always fits: the shortest blocks of a run are lines
        else:
            super().shrink_blocks()
        self.rows_contiguous = self._rows_are_contiguous()

    def rows(self) -> BlockAxis:
        """Return rows of full source lines, or of full inner loops if two axes are fused."""
        loops = self.choice.rows
        inner = count_iterations(self.choice.rows[1:])
        room = ROW_BYTES // self.src_itemsize if self.direct else self._max_rows
        if self.rows_contiguous:
            room = SCRATCH // (2 * self.src_itemsize * count_iterations(self.choice.run))
            unit = inner if inner > 1 else min(self._row_quantum, room)
            block = max(room // unit, 1) * unit
        elif len(loops) > 1:
            limit = PIECE_BYTES // self.src_itemsize if self.direct else FUSED_ROWS
            block = _best_multiple(inner, self._row_quantum, max(inner, limit))
        else:
            block = room // self._row_quantum * self._row_quantum or room
        return make_row_axis(loops, block)

    def run_block(self, total: int, quantum: int, rows: BlockAxis) -> int:
        """Return the length of one block; if rows are stored as one, the complete run."""
        return total if self.rows_contiguous else super().run_block(total, quantum, rows)


def _best_multiple(inner: int, unit: int, limit: int) -> int:
    """Return the multiple of `inner` up to `limit` that fills units best; the largest of equals."""
    multiples = range(inner, limit + 1, inner)
    return max(multiples, key=lambda n: (n / (-(-n // unit) * unit), n))


# ---- gather ------------------------------------------------------------------------------


class GatherTiling(Tiling):
    """The tiling of copies item by item, from a table of source offsets."""

    def __init__(
        self, choice: KernelChoice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        self.tile = 1
        self.stream = self.stream and self.staged  # single items are never streamed

    def can_store_directly(self, grid: int) -> bool:
        """Return True if items can be stored one by one: not contiguous, or not streamed."""
        return self.choice.run[-1].dst != self.dst_itemsize or not self.stream

    def period(self, run: BlockAxis) -> int:
        """Return the positions of as many full inner loops as the table holds."""
        loops = self.run_loops()
        inner = count_iterations(loops[1:])
        return max(1, min(MAX_TABLE // inner, loops[0].count)) * inner

    def walk(self, run: BlockAxis, rows: BlockAxis) -> tuple[list[Loop], int, int]:
        """Return all loops, the source's nearest loop innermost: its items share cache lines."""
        outer = self.outer_loops()
        if not outer:
            return super().walk(run, rows)
        loops = [*outer[:-1], self.run_block_loop(run), outer[-1], self.row_block_loop(rows)]
        return loops, len(outer) - 1, len(outer) + 1


TILINGS: dict[str, type[Tiling]] = {
    "copy": RowsTiling,
    "cast": RowsTiling,
    "split": SplitTiling,
    "merge": MergeTiling,
    "flip": FlipTiling,
    "shuffle": ShuffleTiling,
    "flipsplit": SplitTiling,
    "transpose": TransposeTiling,
    "gather": GatherTiling,
}

"""How a conversion is cut into blocks that suit this CPU's caches: what all kernels do alike.

A block has two axes: the *run*, contiguous in the output, and *rows* beside it. A pure move whose
output rows can be stored as they come is *direct*; any other block is *staged*, brought into the
output's order in the scratch area before its rows are finished. A `Tiling` is the working state of
one conversion; what a kernel does its own way is a subclass in `cutters.py`.

Knows the planner's loops and what the words of a parameter block mean (`words.py`), not where they
stand. Imports no Numba. The numbers are policy; what was measured for them is in
docs/performance.md.

The Cutter of every kernel of planning/kernels.py: what it does its own way. Imports no Numba.

The numbers are policy; what was measured for them is in docs/performance.md.

The Cutters of kernels that take pixels of few channels. Imports no Numba.

The numbers are policy; what was measured for them is in docs/performance.md.

The loops of a choice arranged another way, so that blocks are longer. Imports no Numba.

How wide the registers of this CPU are, as far as launchers choose by it. Imports no Numba.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from itertools import product as cartesian
from math import gcd, lcm, prod
from operator import mul

import numpy as np

from ...planning.epilogue import Epilogue
from ...planning.loops import Loop
from ...planning.select import MAX_TABLE, Choice
from .compiler import KernelSpec, cpu_features
from .params import LANE, LINE, SCRATCH

RUN_BYTES = 1024  # output bytes of one block along its run: long enough for DRAM pages
# Scratch bytes of a block with few rows: windows of normalised uint8 ran at 0.87 of the limit with
# 1.4 to 4 KB, at 0.84 with 8 KB, and at 0.80 with all 32 KB, which leave the source no room in the
# first-level cache.
NARROW_BYTES = 4096
REPEAT_BYTES = 4096  # of a run where coefficients repeat along it: their copies share L1
SLACK = 512  # bytes behind the coefficients that a full vector may read


@dataclass(frozen=True)
class BlockAxis:
    """One axis of a block: its length, block length, and a table of offsets with its period."""

    total: int
    block: int
    table: tuple[int, ...] = ()
    period: int = 1
    step: int = 0

    @property
    def blocks(self) -> int:
        """How many there are along the axis."""
        return max(1, self.total // self.block)

    @property
    def longest_block(self) -> int:
        """The last block takes all that is left."""
        return self.total - (self.blocks - 1) * self.block


def iteration_count(loops: Sequence[Loop]) -> int:
    """Places of nested loops."""
    return prod(loop.count for loop in loops)


def loop_offsets(loops: Sequence[Loop], side: int, count: int) -> tuple[int, ...]:
    """Offsets of the first `count` places of nested loops, the outermost without an end."""
    if not loops:
        return (0,) * count
    inner = iteration_count(loops[1:])
    ranges = [range(-(-count // inner)), *(range(loop.count) for loop in loops[1:])]
    steps = [loop[side] for loop in loops]
    places = islice(cartesian(*ranges), count)
    return tuple(sum(map(mul, place, steps)) for place in places)


def make_row_axis(loops: tuple[Loop, ...], block: int) -> BlockAxis:
    """The rows of a block, and where each is in the output."""
    total = iteration_count(loops)
    axis = BlockAxis(total, min(total, block))
    return replace(axis, table=loop_offsets(loops, 2, axis.longest_block))


class Tiling:
    """Cuts a conversion into blocks of a run alone, for a mover that takes any number of places.

    `alignment` and `stream` are those of `launch.prepare`.
    """

    scratch_bytes = NARROW_BYTES  # bytes of the scratch area that a staged block takes
    width = 1  # output items of one place of the run
    rows_contiguous = False  # whether rows lie end to end in the output, and so in the scratch area

    def __init__(
        self, choice: Choice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        self.choice = choice
        self.epilogue = epilogue
        self.src_itemsize = choice.source_item
        self.dst_itemsize = choice.target_item
        self.tile = LINE // min(
            self.src_itemsize, self.dst_itemsize
        )  # places of the run that are taken at once
        grid = self._grid(alignment)
        self.stream = stream and grid % min(self.dst_itemsize, 8) == 0
        self.direct = epilogue is None and self.can_store_directly(grid)
        self.staged = not self.direct

    def _grid(self, alignment: int) -> int:
        """The power of two, at most a line, on which all output rows begin."""
        for loop in (*self.choice.outer, *self.choice.rows):
            alignment = gcd(alignment, loop.dst)
        return alignment

    # -- what kernels do their own way -----------------------------------------------------

    def microkernel_name(self) -> str:
        """The module that moves a block (see engine.py), and its channels."""
        channels = self.choice.channels
        return f"{self.choice.kernel}-{channels}" if channels else self.choice.kernel

    def literal(self) -> str:
        """What else the mover is built with."""
        return ""

    def can_store_directly(self, grid: int) -> bool:
        """Whether a pure move needs no scratch area: rows are whole lines, or not streamed."""
        return not self.stream or grid == LINE

    def rows(self) -> BlockAxis:
        """The rows of a block."""
        return BlockAxis(1, 1, (0,))

    def run_loops(self) -> tuple[Loop, ...]:
        """The loops of the run whose places are counted."""
        return self.choice.run

    def period(self, run: BlockAxis) -> int:
        """How many places of the run the table of their source offsets has before it repeats."""
        return self.tile if len(self.run_loops()) == 1 else run.longest_block

    def shrink_blocks(self) -> None:
        """Make blocks smaller, whose shortest ones are too large for the scratch area."""
        raise RuntimeError(f"no block of {self.choice} fits the scratch area")

    # -- axes ------------------------------------------------------------------------------

    def axes(self) -> tuple[BlockAxis, BlockAxis]:
        """The run and the rows of a block, which fits the scratch area if it is staged."""
        while True:
            rows = self.rows()
            run = self.run(rows)
            if not self.staged or self.pitch(run.longest_block) * rows.longest_block <= SCRATCH:
                return run, rows
            self.shrink_blocks()

    def run(self, rows: BlockAxis) -> BlockAxis:
        """The run of a block that has these rows."""
        loops = self.run_loops()
        total = iteration_count(loops)
        inner = iteration_count(loops[1:])
        # Blocks end where fused axes and, where lines go straight to the output, lines do.
        quantum = self.tile if len(loops) == 1 else lcm(inner, self.tile) if self.direct else inner
        return self.add_offsets(BlockAxis(total, min(total, self.run_block(total, quantum, rows))))

    def add_offsets(self, run: BlockAxis) -> BlockAxis:
        """The run with the table of source offsets of its places."""
        loops = self.run_loops()
        period = self.period(run)
        table = loop_offsets(loops, 1, period + self.tile)
        step = period // iteration_count(loops[1:]) * loops[0].src
        return replace(run, table=table, period=period, step=step)

    def run_block(self, total: int, quantum: int, rows: BlockAxis) -> int:
        """How many places of the run one block takes: a multiple of the quantum."""
        if self.staged:
            return self._staged_block(total, quantum, rows)
        place = self.width * max(self.src_itemsize, self.dst_itemsize)
        room = RUN_BYTES // place * (4 if rows.longest_block <= 4 else 1)
        return max(quantum, room // quantum * quantum)

    def _staged_block(self, total: int, quantum: int, rows: BlockAxis) -> int:
        """The longest block that fits the scratch area together with its longer last one."""
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
        """Bytes between rows of the scratch area; never a multiple of a page."""
        if self.rows_contiguous:
            return places * self.src_itemsize
        return -(-places * self.width * self.src_itemsize // LINE) * LINE + LINE

    @property
    def out_stride(self) -> int:
        """Bytes between neighbours of a run where the mover puts them."""
        return self.choice.run[-1].dst if self.direct else self.src_itemsize

    def row_offsets(self, rows: BlockAxis, pitch: int) -> tuple[int, ...]:
        """Where the mover puts each row of a block: in the output or in the scratch area."""
        return rows.table if self.direct else tuple(range(0, rows.longest_block * pitch, pitch))

    # -- the walk --------------------------------------------------------------------------

    def walk(self, run: BlockAxis, rows: BlockAxis) -> tuple[list[Loop], int, int]:
        """All loops, and which of them count the blocks of the run and of the rows."""
        outer = self.outer_loops()
        return (
            [*outer, self.row_block_loop(rows), self.run_block_loop(run)],
            len(outer) + 1,
            len(outer),
        )

    def outer_loops(self) -> list[Loop]:
        """The loops around blocks, all steps in bytes."""
        return [
            loop._replace(coef=loop.coef * self._coefficient_size()) for loop in self.choice.outer
        ]

    def run_block_loop(self, run: BlockAxis) -> Loop:
        """The loop from block to block along the run."""
        loops = self.run_loops()
        src = run.block // iteration_count(loops[1:]) * loops[0].src
        dst = run.block * self.width * self.choice.run[-1].dst
        coef = loops[-1].coef * run.block * self._coefficient_size() if len(loops) == 1 else 0
        return Loop(run.blocks, src, dst, coef)

    def row_block_loop(self, rows: BlockAxis) -> Loop:
        """The loop from block to block across the rows."""
        loops = self.choice.rows
        if not loops:
            return Loop(1, 0, 0)
        turns = rows.block // iteration_count(loops[1:])
        coef = turns * loops[0].coef * self._coefficient_size()
        return Loop(rows.blocks, turns * loops[0].src, turns * loops[0].dst, coef)

    # -- the epilogue ----------------------------------------------------------------------

    def coefficient_mode(self) -> str:
        """Which coefficients a run has: "none", one pair ("run"), "each", or a sum ("add")."""
        if self.epilogue is not None and self.epilogue.add:
            return "add"
        if self.epilogue is None or self.epilogue.coefficients is None:
            return "none"
        return "each" if self.choice.run[-1].coef else "run"

    def _coefficient_size(self) -> int:
        return 8 if self.epilogue is not None and self.epilogue.computed == "f8" else 4

    def coefficients(self, run: BlockAxis, rows: BlockAxis) -> tuple[bytes, tuple[int, ...]]:
        """Factors and terms as the kernel reads them, and the offset of each row's."""
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
        """The two that items are clipped to, as the kernel reads them."""
        if self.epilogue is None or self.epilogue.clip is None:
            return b""
        with np.errstate(over="ignore"):
            return np.array(self.epilogue.clip, self.epilogue.clipped_in).tobytes().ljust(16, b"\0")

    def spec(self) -> KernelSpec:
        """The machine code for these blocks."""
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


PIECE_BYTES = 128  # shorter rows and runs are read and written several together
COPY_BYTES = 32768  # bytes of one unit of a plain copy


def group_short_runs(choice: Choice) -> Choice:
    """The same choice of runs with short ones taken several at a time."""
    run = iteration_count(choice.run) * max(choice.source_item, choice.target_item)
    if not choice.outer or run > COPY_BYTES // 2:
        return choice
    return replace(choice, rows=choice.outer[-1:], outer=choice.outer[:-1])


def fuse_outer_rows(choice: Choice, most: int) -> Choice:
    """The same choice with the next loop among the rows, if they follow each other there too.

    `most`: rows of a block, which has whole turns of the inner loop then.
    """
    rows = choice.rows[0]
    if not choice.outer or rows.count > most:
        return choice
    if rows.count * rows.dst != choice.outer[-1].dst or choice.outer[-1].coef:
        return choice
    return replace(choice, rows=choice.outer[-1:] + choice.rows, outer=choice.outer[:-1])


def fuse_lines(choice: Choice, room: int) -> Choice:
    """The same choice with the loop over lines in its run, where these are apart in x alone.

    `room`: the most bytes of a line for each channel.
    """
    run = choice.run
    if any(loop.coef for loop in run) or run[0].count * choice.source_item > room:
        return choice
    for loop in choice.outer:
        if loop.dst == run[0].count * run[0].dst and not loop.coef:
            outer = tuple(other for other in choice.outer if other is not loop)
            return replace(choice, run=(loop, *run), outer=outer)
    return choice


def lengthen_rows(choice: Choice) -> Choice:
    """The same choice with short rows and runs made longer, by a loop that lengthens both."""
    rows, run = (iteration_count(loops) * choice.source_item for loops in (choice.rows, choice.run))
    if max(rows, run) >= PIECE_BYTES or len(choice.rows) > 1 or len(choice.run) > 1:
        return choice
    for loop in choice.outer:
        if (loop.src, loop.dst) == (rows, run):
            outer = tuple(other for other in choice.outer if other is not loop)
            return replace(choice, rows=(loop, *choice.rows), outer=outer)
    return choice


def lanes() -> int:
    """128-bit lanes of the widest register."""
    features = cpu_features()
    return 4 if "avx512f" in features else 2 if "avx2" in features else 1


def vector_bytes(itemsize: int) -> int:
    """Width of the vectors that rearrange whole registers of small items."""
    features = cpu_features()
    if "avx512f" in features:
        needed = {1: "avx512vbmi", 2: "avx512bw"}.get(itemsize, "avx512f")
        return 64 if needed in features else 16
    return 32 if "avx2" in features and itemsize >= 4 else 16


# ---- split and merge ---------------------------------------------------------------------


class SplitTiling(Tiling):
    """Pixels to one row for each channel, or for those that are taken, in any order.

    Lines of pixels with gaps between them, as windows of pictures have, that follow each other in
    the output are taken several at a time, so that whole lines of the cache are streamed.
    """

    def __init__(
        self, choice: Choice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        if self.staged:
            self.choice = fuse_lines(choice, self.scratch_bytes // (2 * choice.channels))

    def can_store_directly(self, grid: int) -> bool:
        """Only where all channels go to the output."""
        order = self.choice.order
        whole = not order or len(order) == self.choice.channels
        return whole and super().can_store_directly(grid)

    def literal(self) -> str:
        """The width of vectors."""
        return str(vector_bytes(self.src_itemsize))

    def rows(self) -> BlockAxis:
        """All channels that are taken."""
        return make_row_axis(self.choice.rows, iteration_count(self.choice.rows))

    def row_offsets(self, rows: BlockAxis, pitch: int) -> tuple[int, ...]:
        """Where the mover puts each channel of x: those that are not taken behind all rows.

        The scratch area has many times the room that a block of few rows takes.
        """
        order = self.choice.order
        columns = super().row_offsets(rows, pitch)
        if not order:
            return columns
        places = dict(zip(order, columns, strict=True))
        return tuple(places.get(at, len(order) * pitch) for at in range(self.choice.channels))

    def add_offsets(self, run: BlockAxis) -> BlockAxis:
        """Without a table: pixels of a line are neighbours, and a period is a line."""
        return set_line_period(run, self.run_loops())


def set_line_period(run: BlockAxis, loops: tuple[Loop, ...]) -> BlockAxis:
    """A run of pixels, whose period is a line."""
    if len(loops) == 1:
        return replace(run, period=run.longest_block)
    return replace(run, period=loops[1].count, step=loops[0].src)


class MergeTiling(Tiling):
    """A place of the run is a pixel; the table holds where each channel is in the source."""

    def __init__(
        self, choice: Choice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        self.width = choice.channels

    def literal(self) -> str:
        """The width of vectors."""
        return str(vector_bytes(self.src_itemsize))

    def run_loops(self) -> tuple[Loop, ...]:
        """The loop over pixels."""
        return self.choice.run[:1]

    def add_offsets(self, run: BlockAxis) -> BlockAxis:
        """The run with the source offsets of the channels."""
        order = self.choice.order or range(self.width)
        return replace(run, table=tuple(self.choice.run[1].src * at for at in order))


# ---- flip and shuffle --------------------------------------------------------------------


class FlipTiling(MergeTiling):
    """Pixels to pixels. Staged lines that follow each other in the output are taken together."""

    scratch_bytes = (
        8192  # bytes: flipped lines of 672 bytes ran at 0.71 of a copy, and at 0.60 with half
    )

    def __init__(
        self, choice: Choice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        if self.staged:
            self.choice = fuse_lines(choice, self.scratch_bytes // (2 * self.width))
        self._lines = len(self.choice.run) - len(choice.run)

    def run_loops(self) -> tuple[Loop, ...]:
        """The loops over lines, where these are taken together, and pixels."""
        return self.choice.run[: self._lines + 1]

    def add_offsets(self, run: BlockAxis) -> BlockAxis:
        """Without a table: pixels of a line are neighbours, and a period is a line."""
        return set_line_period(run, self.run_loops())


class ShuffleTiling(FlipTiling):
    """Pixels to pixels of some of their channels."""

    def literal(self) -> str:
        """The width of vectors, the channels of x, the direction, and those that are taken."""
        pixel = self.choice.run[self._lines].src
        facts = abs(pixel) // self.src_itemsize, int(pixel < 0), *self.choice.order
        return "x".join(map(str, (vector_bytes(self.src_itemsize), *facts)))


ROW_BYTES = 512  # source bytes of one block across: four cache lines of every source row
SQUARES = {1: {1: 1, 2: 4, 4: 4, 8: 4, 16: 4}, 2: {2: 2, 4: 4, 8: 4, 16: 4}}  # by depth and item
STAGED_ROWS = 32  # rows of a staged block: fewer waste source lines, more shorten its runs
ADDED_ROWS = 64  # the same where a block is added to a tile, which is short along its runs
JOINED_BYTES = 512  # shorter output rows that follow each other are finished as one
FUSED_ROWS = 64  # at most so many rows where two axes are fused, or short runs are copied


# ---- copy and cast -----------------------------------------------------------------------


class RowsTiling(Tiling):
    """Nothing is moved: rows are finished from the source to the output, several if short.

    Short ones that lie end to end in a streamed output, and begin within its lines, are brought
    together before that.
    """

    scratch_bytes = SCRATCH

    def __init__(
        self, choice: Choice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(group_short_runs(choice), epilogue, alignment, stream)
        self.rows_contiguous = self.stream and self._rows_are_contiguous(alignment)
        self.staged = self.rows_contiguous
        if self.rows_contiguous:
            self.choice = fuse_outer_rows(self.choice, SCRATCH // (2 * self._run_bytes()))

    def _rows_are_contiguous(self, alignment: int) -> bool:
        """Whether rows are short, no whole lines, and lie end to end in the output."""
        run = iteration_count(self.choice.run) * self.dst_itemsize
        rows = self.choice.rows
        if not rows or self._grid(alignment) == LINE or run > JOINED_BYTES:
            return False
        return rows[0].dst == run and not rows[0].coef and self.coefficient_mode() != "add"

    def microkernel_name(self) -> str:
        """The engine's own loop over rows, or what brings them together."""
        return "pieces" if self.rows_contiguous else "rows"

    def can_store_directly(self, grid: int) -> bool:
        """Never: it is the epilogue that stores."""
        return False

    def rows(self) -> BlockAxis:
        """As many rows as one unit of a plain copy holds."""
        loops = self.choice.rows
        if not loops:
            return super().rows()
        inner = iteration_count(loops[1:])
        run = self._run_bytes()
        most = SCRATCH // (2 * run) if self.rows_contiguous else min(FUSED_ROWS, COPY_BYTES // run)
        return make_row_axis(loops, max(1, most // inner) * inner)

    def _run_bytes(self) -> int:
        return iteration_count(self.choice.run) * max(self.src_itemsize, self.dst_itemsize)

    def run_block(self, total: int, quantum: int, rows: BlockAxis) -> int:
        """Long runs, as nothing has to stay in a cache but coefficients that repeat."""
        if self.rows_contiguous:
            return total
        room = COPY_BYTES if len(self.choice.run) == 1 else REPEAT_BYTES
        return max(quantum, room // max(self.src_itemsize, self.dst_itemsize) // quantum * quantum)

    def add_offsets(self, run: BlockAxis) -> BlockAxis:
        """Without a table: neighbours are neighbours on both sides."""
        return run

    def row_offsets(self, rows: BlockAxis, pitch: int) -> tuple[int, ...]:
        """Where each row of a block is in the source."""
        return loop_offsets(self.choice.rows, 1, rows.longest_block)


# ---- transpose ---------------------------------------------------------------------------


class TransposeTiling(Tiling):
    """Tiles of whole registers; short output rows that lie end to end are finished as one."""

    scratch_bytes = SCRATCH

    def __init__(
        self, choice: Choice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        if self.direct:
            self.choice = lengthen_rows(choice)
        side = LANE // self.src_itemsize
        self.tile = max(side * lanes() * self._depth(), LINE // self.src_itemsize)
        self._row_quantum = side * self._squares()  # rows that are taken at once
        self._max_rows = ADDED_ROWS if self.coefficient_mode() == "add" else STAGED_ROWS
        self.rows_contiguous = self._rows_are_contiguous()

    def literal(self) -> str:
        """Lanes of a register, and the vectors and squares side by side in a tile."""
        return f"{lanes()}x{self._depth()}x{self._squares()}"

    def _depth(self) -> int:
        """Vectors side by side in an output row: two cache lines, which DRAM takes as one."""
        long = iteration_count(self.choice.run) * self.src_itemsize >= 2 * LANE * lanes()
        return 2 if long and self.src_itemsize > 1 else 1

    def _squares(self) -> int:
        """Squares side by side: as much of a source line as registers hold."""
        return SQUARES[self._depth()][self.src_itemsize]

    def _rows_are_contiguous(self) -> bool:
        """Whether the rows of a staged block are short and lie end to end in the output."""
        run = iteration_count(self.choice.run)
        if self.direct or run * max(self.src_itemsize, self.dst_itemsize) > JOINED_BYTES:
            return False
        expected = run * self.dst_itemsize
        for loop in reversed(self.choice.rows):
            if loop.dst != expected or loop.coef:
                return False
            expected *= loop.count
        return True

    def shrink_blocks(self) -> None:
        """Put the outermost loop of a fused axis among the outer loops, or take fewer rows."""
        choice = self.choice
        if len(choice.rows) > 1:
            self.choice = replace(
                choice, rows=choice.rows[1:], outer=(*choice.outer, choice.rows[0])
            )
        elif len(choice.run) > 1:
            self.choice = replace(choice, run=choice.run[1:], outer=(*choice.outer, choice.run[0]))
        elif self._max_rows > 1:
            self._max_rows //= 2  # one row fits, whatever the run: its shortest blocks are lines
        else:
            super().shrink_blocks()
        self.rows_contiguous = self._rows_are_contiguous()

    def rows(self) -> BlockAxis:
        """Whole source lines; whole turns of the inner loop where two are fused."""
        loops = self.choice.rows
        inner = iteration_count(self.choice.rows[1:])
        room = ROW_BYTES // self.src_itemsize if self.direct else self._max_rows
        if self.rows_contiguous:
            room = SCRATCH // (2 * self.src_itemsize * iteration_count(self.choice.run))
            unit = inner if inner > 1 else min(self._row_quantum, room)
            block = max(room // unit, 1) * unit
        elif len(loops) > 1:
            limit = PIECE_BYTES // self.src_itemsize if self.direct else FUSED_ROWS
            block = _best_multiple(inner, self._row_quantum, max(inner, limit))
        else:
            block = room // self._row_quantum * self._row_quantum or room
        return make_row_axis(loops, block)

    def run_block(self, total: int, quantum: int, rows: BlockAxis) -> int:
        """All of a run whose rows are finished as one."""
        return total if self.rows_contiguous else super().run_block(total, quantum, rows)


def _best_multiple(inner: int, unit: int, limit: int) -> int:
    """The multiple of `inner` up to `limit` that fills whole units best; of equals the largest."""
    multiples = range(inner, limit + 1, inner)
    return max(multiples, key=lambda n: (n / (-(-n // unit) * unit), n))


# ---- gather ------------------------------------------------------------------------------


class GatherTiling(Tiling):
    """Item by item, from a table of source offsets."""

    def __init__(
        self, choice: Choice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        self.tile = 1
        self.stream = self.stream and self.staged  # single items are never streamed

    def can_store_directly(self, grid: int) -> bool:
        """Whether items can be stored one by one: they are apart, or not streamed."""
        return self.choice.run[-1].dst != self.dst_itemsize or not self.stream

    def period(self, run: BlockAxis) -> int:
        """As many whole turns of the inner loops as the table holds."""
        loops = self.run_loops()
        inner = iteration_count(loops[1:])
        return max(1, min(MAX_TABLE // inner, loops[0].count)) * inner

    def walk(self, run: BlockAxis, rows: BlockAxis) -> tuple[list[Loop], int, int]:
        """The nearest loop of the source innermost, as its turns share cache lines."""
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

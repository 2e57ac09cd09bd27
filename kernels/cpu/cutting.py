"""How a conversion is cut into blocks that suit this CPU's caches: what all kernels do alike.

A block has two axes: the *run*, contiguous in the output, and *rows* beside it. A pure move whose
output rows can be stored as they come is *direct*; any other block is *staged*, brought into the
output's order in the scratch area before its rows are finished. A `Cutter` is the working state of
one conversion; what a kernel does its own way is a subclass in `cutters.py`.

Knows the planner's loops and what the words of a parameter block mean (`words.py`), not where they
stand. Imports no Numba. The numbers are policy; what was measured for them is in
docs/performance.md.
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
from ...planning.kernels import Choice
from ...planning.loops import Loop
from .compiler import KernelSpec
from .words import LINE, SCRATCH

__all__ = ["REPEAT_BYTES", "BlockAxis", "Cutter", "axis_of_rows", "length", "offsets"]

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
    def longest(self) -> int:
        """The last block takes all that is left."""
        return self.total - (self.blocks - 1) * self.block


def length(loops: Sequence[Loop]) -> int:
    """Places of nested loops."""
    return prod(loop.count for loop in loops)


def offsets(loops: Sequence[Loop], side: int, count: int) -> tuple[int, ...]:
    """Offsets of the first `count` places of nested loops, the outermost without an end."""
    if not loops:
        return (0,) * count
    inner = length(loops[1:])
    ranges = [range(-(-count // inner)), *(range(loop.count) for loop in loops[1:])]
    steps = [loop[side] for loop in loops]
    places = islice(cartesian(*ranges), count)
    return tuple(sum(map(mul, place, steps)) for place in places)


def axis_of_rows(loops: tuple[Loop, ...], block: int) -> BlockAxis:
    """The rows of a block, and where each is in the output."""
    total = length(loops)
    axis = BlockAxis(total, min(total, block))
    return replace(axis, table=offsets(loops, 2, axis.longest))


class Cutter:
    """Cuts a conversion into blocks of a run alone, for a mover that takes any number of places.

    `alignment` and `stream` are those of `launch.prepare`.
    """

    area = NARROW_BYTES  # bytes of the scratch area that a staged block takes
    width = 1  # output items of one place of the run
    joined = False  # whether rows lie end to end in the output, and so in the scratch area

    def __init__(
        self, choice: Choice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        self.choice, self.epilogue = choice, epilogue
        self.item, self.out = choice.source_item, choice.target_item
        self.tile = LINE // min(self.item, self.out)  # places of the run that are taken at once
        grid = self._grid(alignment)
        self.stream = stream and grid % min(self.out, 8) == 0
        self.direct = epilogue is None and self.stores_as_it_comes(grid)
        self.staged = not self.direct

    def _grid(self, alignment: int) -> int:
        """The power of two, at most a line, on which all output rows begin."""
        for loop in (*self.choice.outer, *self.choice.rows):
            alignment = gcd(alignment, loop.dst)
        return alignment

    # -- what kernels do their own way -----------------------------------------------------

    def mover(self) -> str:
        """The module that moves a block (see engine.py), and its channels."""
        channels = self.choice.channels
        return f"{self.choice.kernel}-{channels}" if channels else self.choice.kernel

    def literal(self) -> str:
        """What else the mover is built with."""
        return ""

    def stores_as_it_comes(self, grid: int) -> bool:
        """Whether a pure move needs no scratch area: rows are whole lines, or not streamed."""
        return not self.stream or grid == LINE

    def rows(self) -> BlockAxis:
        """The rows of a block."""
        return BlockAxis(1, 1, (0,))

    def along(self) -> tuple[Loop, ...]:
        """The loops of the run whose places are counted."""
        return self.choice.run

    def period(self, run: BlockAxis) -> int:
        """How many places of the run the table of their source offsets has before it repeats."""
        return self.tile if len(self.along()) == 1 else run.longest

    def unfuse(self) -> None:
        """Make blocks smaller, whose shortest ones are too large for the scratch area."""
        raise RuntimeError(f"no block of {self.choice} fits the scratch area")

    # -- axes ------------------------------------------------------------------------------

    def axes(self) -> tuple[BlockAxis, BlockAxis]:
        """The run and the rows of a block, which fits the scratch area if it is staged."""
        while True:
            rows = self.rows()
            run = self.run(rows)
            if not self.staged or self.pitch(run.longest) * rows.longest <= SCRATCH:
                return run, rows
            self.unfuse()

    def run(self, rows: BlockAxis) -> BlockAxis:
        """The run of a block that has these rows."""
        loops = self.along()
        total, inner = length(loops), length(loops[1:])
        # Blocks end where fused axes and, where lines go straight to the output, lines do.
        quantum = self.tile if len(loops) == 1 else lcm(inner, self.tile) if self.direct else inner
        return self.looked_up(BlockAxis(total, min(total, self.run_block(total, quantum, rows))))

    def looked_up(self, run: BlockAxis) -> BlockAxis:
        """The run with the table of source offsets of its places."""
        loops, period = self.along(), self.period(run)
        table = offsets(loops, 1, period + self.tile)
        step = period // length(loops[1:]) * loops[0].src
        return replace(run, table=table, period=period, step=step)

    def run_block(self, total: int, quantum: int, rows: BlockAxis) -> int:
        """How many places of the run one block takes: a multiple of the quantum."""
        if self.staged:
            return self._staged_block(total, quantum, rows)
        place = self.width * max(self.item, self.out)
        room = RUN_BYTES // place * (4 if rows.longest <= 4 else 1)
        return max(quantum, room // quantum * quantum)

    def _staged_block(self, total: int, quantum: int, rows: BlockAxis) -> int:
        """The longest block that fits the scratch area together with its longer last one."""
        room = self.area // (rows.longest * self.width * self.item)
        if self.coefs() == "each" and len(self.choice.run) > 1:
            room = min(room, REPEAT_BYTES // (self.width * self._coef_size()))
        block = room // quantum * quantum
        while block > quantum:
            longest = BlockAxis(total, min(total, block)).longest
            if self.pitch(longest) * rows.longest <= self.area:
                return block
            block -= quantum
        return quantum

    def pitch(self, places: int) -> int:
        """Bytes between rows of the scratch area; never a multiple of a page."""
        if self.joined:
            return places * self.item
        return -(-places * self.width * self.item // LINE) * LINE + LINE

    @property
    def pace(self) -> int:
        """Bytes between neighbours of a run where the mover puts them."""
        return self.choice.run[-1].dst if self.direct else self.item

    def columns(self, rows: BlockAxis, pitch: int) -> tuple[int, ...]:
        """Where the mover puts each row of a block: in the output or in the scratch area."""
        return rows.table if self.direct else tuple(range(0, rows.longest * pitch, pitch))

    # -- the walk --------------------------------------------------------------------------

    def walk(self, run: BlockAxis, rows: BlockAxis) -> tuple[list[Loop], int, int]:
        """All loops, and which of them count the blocks of the run and of the rows."""
        outer = self.outer_loops()
        return [*outer, self.row_loop(rows), self.run_loop(run)], len(outer) + 1, len(outer)

    def outer_loops(self) -> list[Loop]:
        """The loops around blocks, all steps in bytes."""
        return [loop._replace(coef=loop.coef * self._coef_size()) for loop in self.choice.outer]

    def run_loop(self, run: BlockAxis) -> Loop:
        """The loop from block to block along the run."""
        loops = self.along()
        src = run.block // length(loops[1:]) * loops[0].src
        dst = run.block * self.width * self.choice.run[-1].dst
        coef = loops[-1].coef * run.block * self._coef_size() if len(loops) == 1 else 0
        return Loop(run.blocks, src, dst, coef)

    def row_loop(self, rows: BlockAxis) -> Loop:
        """The loop from block to block across the rows."""
        loops = self.choice.rows
        if not loops:
            return Loop(1, 0, 0)
        turns = rows.block // length(loops[1:])
        coef = turns * loops[0].coef * self._coef_size()
        return Loop(rows.blocks, turns * loops[0].src, turns * loops[0].dst, coef)

    # -- the epilogue ----------------------------------------------------------------------

    def coefs(self) -> str:
        """Which coefficients a run has: "none", one pair ("run"), "each", or a sum ("add")."""
        if self.epilogue is not None and self.epilogue.add:
            return "add"
        if self.epilogue is None or self.epilogue.coefficients is None:
            return "none"
        return "each" if self.choice.run[-1].coef else "run"

    def _coef_size(self) -> int:
        return 8 if self.epilogue is not None and self.epilogue.computed == "f8" else 4

    def coefficients(self, run: BlockAxis, rows: BlockAxis) -> tuple[bytes, tuple[int, ...]]:
        """Factors and terms as the kernel reads them, and the offset of each row's."""
        size = self._coef_size()
        of_rows = tuple(step * size for step in offsets(self.choice.rows, 3, rows.longest))
        if self.epilogue is None or self.epilogue.coefficients is None:
            return b"", of_rows
        both = (self.epilogue.coefficients.factor, self.epilogue.coefficients.term)
        if self.coefs() == "each" and (len(self.choice.run) > 1 or self.joined):
            loops = (*self.choice.rows, *self.choice.run) if self.joined else self.choice.run
            count = run.longest * (rows.longest if self.joined else self.width)
            places = offsets(loops, 3, count)
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
        literals = self.mover(), self.item, self.literal(), epilogue, int(self.stream)
        return KernelSpec("engine", literals)

    def _epilogue(self) -> str:
        if self.epilogue is None:
            name = f"u{min(self.item, 8)}"
            return f"{name}-{name}-none-0-0"
        epilogue = self.epilogue
        flags = f"{int(epilogue.saturate)}-{int(epilogue.clip is not None)}"
        return f"{epilogue.source}-{epilogue.target}-{self.coefs()}-{flags}"

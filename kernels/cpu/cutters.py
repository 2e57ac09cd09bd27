"""The Cutter of every kernel of planning/kernels.py: what it does its own way. Imports no Numba.

The numbers are policy; what was measured for them is in docs/performance.md.
"""

from __future__ import annotations

from dataclasses import replace

from ...planning.epilogue import Epilogue
from ...planning.kernels import MAX_TABLE, Choice
from ...planning.loops import Loop
from .choices import COPY_BYTES, PIECE_BYTES, lengthened, more_rows, rows_together
from .cutting import REPEAT_BYTES, BlockAxis, Cutter, axis_of_rows, length, offsets
from .pixels import FlipCutter, MergeCutter, ShuffleCutter, SplitCutter
from .registers import lanes
from .words import LANE, LINE, SCRATCH

__all__ = ["CUTTERS"]

ROW_BYTES = 512  # source bytes of one block across: four cache lines of every source row
SQUARES = {1: {1: 1, 2: 4, 4: 4, 8: 4, 16: 4}, 2: {2: 2, 4: 4, 8: 4, 16: 4}}  # by depth and item
STAGED_ROWS = 32  # rows of a staged block: fewer waste source lines, more shorten its runs
ADDED_ROWS = 64  # the same where a block is added to a tile, which is short along its runs
JOINED_BYTES = 512  # shorter output rows that follow each other are finished as one
FUSED_ROWS = 64  # at most so many rows where two axes are fused, or short runs are copied


# ---- copy and cast -----------------------------------------------------------------------


class RowsCutter(Cutter):
    """Nothing is moved: rows are finished from the source to the output, several if short.

    Short ones that lie end to end in a streamed output, and begin within its lines, are brought
    together before that.
    """

    area = SCRATCH

    def __init__(
        self, choice: Choice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(rows_together(choice), epilogue, alignment, stream)
        self.joined = self.stream and self._follows_on(alignment)
        self.staged = self.joined
        if self.joined:
            self.choice = more_rows(self.choice, SCRATCH // (2 * self._run_bytes()))

    def _follows_on(self, alignment: int) -> bool:
        """Whether rows are short, no whole lines, and lie end to end in the output."""
        run, rows = length(self.choice.run) * self.out, self.choice.rows
        if not rows or self._grid(alignment) == LINE or run > JOINED_BYTES:
            return False
        return rows[0].dst == run and not rows[0].coef and self.coefs() != "add"

    def mover(self) -> str:
        """The engine's own loop over rows, or what brings them together."""
        return "pieces" if self.joined else "rows"

    def stores_as_it_comes(self, grid: int) -> bool:
        """Never: it is the epilogue that stores."""
        return False

    def rows(self) -> BlockAxis:
        """As many rows as one unit of a plain copy holds."""
        loops = self.choice.rows
        if not loops:
            return super().rows()
        inner, run = length(loops[1:]), self._run_bytes()
        most = SCRATCH // (2 * run) if self.joined else min(FUSED_ROWS, COPY_BYTES // run)
        return axis_of_rows(loops, max(1, most // inner) * inner)

    def _run_bytes(self) -> int:
        return length(self.choice.run) * max(self.item, self.out)

    def run_block(self, total: int, quantum: int, rows: BlockAxis) -> int:
        """Long runs, as nothing has to stay in a cache but coefficients that repeat."""
        if self.joined:
            return total
        room = COPY_BYTES if len(self.choice.run) == 1 else REPEAT_BYTES
        return max(quantum, room // max(self.item, self.out) // quantum * quantum)

    def looked_up(self, run: BlockAxis) -> BlockAxis:
        """Without a table: neighbours are neighbours on both sides."""
        return run

    def columns(self, rows: BlockAxis, pitch: int) -> tuple[int, ...]:
        """Where each row of a block is in the source."""
        return offsets(self.choice.rows, 1, rows.longest)


# ---- transpose ---------------------------------------------------------------------------


class TransposeCutter(Cutter):
    """Tiles of whole registers; short output rows that lie end to end are finished as one."""

    area = SCRATCH

    def __init__(
        self, choice: Choice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        if self.direct:
            self.choice = lengthened(choice)
        side = LANE // self.item
        self.tile = max(side * lanes() * self._depth(), LINE // self.item)
        self._wide = side * self._squares()  # rows that are taken at once
        self._most = ADDED_ROWS if self.coefs() == "add" else STAGED_ROWS
        self.joined = self._follows_on()

    def literal(self) -> str:
        """Lanes of a register, and the vectors and squares side by side in a tile."""
        return f"{lanes()}x{self._depth()}x{self._squares()}"

    def _depth(self) -> int:
        """Vectors side by side in an output row: two cache lines, which DRAM takes as one."""
        long = length(self.choice.run) * self.item >= 2 * LANE * lanes()
        return 2 if long and self.item > 1 else 1

    def _squares(self) -> int:
        """Squares side by side: as much of a source line as registers hold."""
        return SQUARES[self._depth()][self.item]

    def _follows_on(self) -> bool:
        """Whether the rows of a staged block are short and lie end to end in the output."""
        run = length(self.choice.run)
        if self.direct or run * max(self.item, self.out) > JOINED_BYTES:
            return False
        expected = run * self.out
        for loop in reversed(self.choice.rows):
            if loop.dst != expected or loop.coef:
                return False
            expected *= loop.count
        return True

    def unfuse(self) -> None:
        """Put the outermost loop of a fused axis among the outer loops, or take fewer rows."""
        choice = self.choice
        if len(choice.rows) > 1:
            self.choice = replace(
                choice, rows=choice.rows[1:], outer=(*choice.outer, choice.rows[0])
            )
        elif len(choice.run) > 1:
            self.choice = replace(choice, run=choice.run[1:], outer=(*choice.outer, choice.run[0]))
        elif self._most > 1:
            self._most //= 2  # one row fits, whatever the run: its shortest blocks are lines
        else:
            super().unfuse()
        self.joined = self._follows_on()

    def rows(self) -> BlockAxis:
        """Whole source lines; whole turns of the inner loop where two are fused."""
        loops, inner = self.choice.rows, length(self.choice.rows[1:])
        room = ROW_BYTES // self.item if self.direct else self._most
        if self.joined:
            room = SCRATCH // (2 * self.item * length(self.choice.run))
            unit = inner if inner > 1 else min(self._wide, room)
            block = max(room // unit, 1) * unit
        elif len(loops) > 1:
            limit = PIECE_BYTES // self.item if self.direct else FUSED_ROWS
            block = _best_multiple(inner, self._wide, max(inner, limit))
        else:
            block = room // self._wide * self._wide or room
        return axis_of_rows(loops, block)

    def run_block(self, total: int, quantum: int, rows: BlockAxis) -> int:
        """All of a run whose rows are finished as one."""
        return total if self.joined else super().run_block(total, quantum, rows)


def _best_multiple(inner: int, unit: int, limit: int) -> int:
    """The multiple of `inner` up to `limit` that fills whole units best; of equals the largest."""
    multiples = range(inner, limit + 1, inner)
    return max(multiples, key=lambda n: (n / (-(-n // unit) * unit), n))


# ---- gather ------------------------------------------------------------------------------


class GatherCutter(Cutter):
    """Item by item, from a table of source offsets."""

    def __init__(
        self, choice: Choice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        self.tile = 1
        self.stream = self.stream and self.staged  # single items are never streamed

    def stores_as_it_comes(self, grid: int) -> bool:
        """Whether items can be stored one by one: they are apart, or not streamed."""
        return self.choice.run[-1].dst != self.out or not self.stream

    def period(self, run: BlockAxis) -> int:
        """As many whole turns of the inner loops as the table holds."""
        loops = self.along()
        inner = length(loops[1:])
        return max(1, min(MAX_TABLE // inner, loops[0].count)) * inner

    def walk(self, run: BlockAxis, rows: BlockAxis) -> tuple[list[Loop], int, int]:
        """The nearest loop of the source innermost, as its turns share cache lines."""
        outer = self.outer_loops()
        if not outer:
            return super().walk(run, rows)
        loops = [*outer[:-1], self.run_loop(run), outer[-1], self.row_loop(rows)]
        return loops, len(outer) - 1, len(outer) + 1


CUTTERS: dict[str, type[Cutter]] = {
    "copy": RowsCutter,
    "cast": RowsCutter,
    "split": SplitCutter,
    "merge": MergeCutter,
    "flip": FlipCutter,
    "shuffle": ShuffleCutter,
    "flipsplit": SplitCutter,
    "transpose": TransposeCutter,
    "gather": GatherCutter,
}

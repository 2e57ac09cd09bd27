"""From a chosen kernel to a `Launch`: which machine code, which parameter block, how many units.

This is the only place that knows both the planner's loops and the words that kernels read. It
cuts the loops into blocks that suit this CPU's caches, and decides between plain and streaming
stores. The numbers are policy; what was measured for them is in docs/performance.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from itertools import product as cartesian
from math import gcd, lcm, prod
from operator import mul

import numpy as np

from ...planning.epilogue import Epilogue
from ...planning.kernels import MAX_TABLE, Choice
from ...planning.loops import Loop
from .compiler import KernelSpec, cpu_features
from .words import HEAD, LANE, LINE, MAX_LOOPS, SCRATCH, WORDS

__all__ = ["Launch", "prepare"]

# Outputs from this size on bypass the caches: a later reader finds them evicted anyway, and a
# plain store would first read the line that it is about to overwrite.
STREAM_BYTES = 1 << 20
RUN_BYTES = 1024  # output bytes of one block along its run: long enough for DRAM pages
ROW_BYTES = 512  # source bytes of one block across: four cache lines of every source row
SQUARES = {1: {1: 1, 2: 4, 4: 4, 8: 4, 16: 4}, 2: {2: 2, 4: 4, 8: 4, 16: 4}}  # by depth and item
STAGED_ROWS = 32  # rows of a staged block: fewer waste source lines, more shorten its runs
ADDED_ROWS = 64  # the same where a block is added to a tile, which is short along its runs
JOINED_BYTES = 512  # shorter output rows that follow each other are finished as one
# Scratch bytes of a block with few rows: normalised uint8 ran at 0.88 of the limit with 8 KB, and
# at 0.80 with all 32 KB, which then share the first-level cache with the source.
NARROW_BYTES = 8192
FUSED_ROWS = 64  # at most so many rows where two axes are fused, or short runs are copied
COPY_BYTES = 32768  # bytes of one unit of a plain copy
REPEAT_BYTES = 4096  # the same where coefficients repeat along the run: their copies share L1
# Bytes that a thread takes at a time: two threads that go on side by side in small chunks got 0.77
# of the limit where they got 0.82 in chunks of this size.
CHUNK_BYTES = 1 << 20
SLACK = 512  # bytes behind the coefficients that a full vector may read


@dataclass(frozen=True)
class Launch:
    """A kernel's code, its parameter block, its work units and how many to take at once."""

    spec: KernelSpec
    params: bytes
    units: int
    grain: int


def _product(loops: Sequence[Loop]) -> int:
    return prod(loop.count for loop in loops)


def _offsets(loops: Sequence[Loop], side: int, count: int) -> tuple[int, ...]:
    """Offsets of the first `count` places of nested loops, the outermost without an end."""
    if not loops:
        return (0,) * count
    inner = _product(loops[1:])
    ranges = [range(-(-count // inner)), *(range(loop.count) for loop in loops[1:])]
    steps = [loop[side] for loop in loops]
    places = islice(cartesian(*ranges), count)
    return tuple(sum(map(mul, place, steps)) for place in places)


def _best_multiple(inner: int, unit: int, limit: int) -> int:
    """The multiple of `inner` up to `limit` that fills whole units best; of equals the largest."""
    multiples = range(inner, limit + 1, inner)
    return max(multiples, key=lambda n: (n / (-(-n // unit) * unit), n))


def _less_fused(choice: Choice) -> Choice:
    """The same choice with the outermost loop of a fused axis among the outer loops."""
    if len(choice.rows) > 1:
        return replace(choice, rows=choice.rows[1:], outer=(*choice.outer, choice.rows[0]))
    if len(choice.run) > 1 and choice.kernel != "merge":
        return replace(choice, run=choice.run[1:], outer=(*choice.outer, choice.run[0]))
    raise RuntimeError(f"no block of {choice} fits the scratch area")


def _rows_together(choice: Choice) -> Choice:
    """The same choice of runs with short ones taken several at a time."""
    run = _product(choice.run) * max(choice.source_item, choice.target_item)
    if not choice.outer or run > COPY_BYTES // 2:
        return choice
    return replace(choice, rows=choice.outer[-1:], outer=choice.outer[:-1])


@dataclass(frozen=True)
class _Axis:
    """One axis of a block: its length, block length, and a table of offsets with its period."""

    total: int
    block: int
    table: tuple[int, ...]
    period: int
    step: int

    @property
    def blocks(self) -> int:
        return max(1, self.total // self.block)

    @property
    def longest(self) -> int:
        """The last block takes all that is left."""
        return self.total - (self.blocks - 1) * self.block


def prepare(
    choice: Choice, finish: Epilogue | None, alignment: int, stream: bool | None = None
) -> Launch:
    """Cut a choice into work units. `finish` None: a pure move of `choice.source_item` bytes.

    `alignment`: a power of two, at most a cache line, that divides the output's address. `stream`:
    whether to write past the caches where rows allow it; None: if the output is large.
    """
    if stream is None:
        stream = choice.count * choice.target_item >= STREAM_BYTES
    return _Cutter(choice, finish, alignment, stream).launch()


def vector_bytes(itemsize: int) -> int:
    """Width of the vectors that rearrange whole registers of small items."""
    features = cpu_features()
    if "avx512f" in features:
        needed = {1: "avx512vbmi", 2: "avx512bw"}.get(itemsize, "avx512f")
        return 64 if needed in features else 16
    return 32 if "avx2" in features and itemsize >= 4 else 16


def lanes() -> int:
    """128-bit lanes of the widest register."""
    features = cpu_features()
    return 4 if "avx512f" in features else 2 if "avx2" in features else 1


class _Cutter:
    """The working state of `prepare`."""

    def __init__(
        self, choice: Choice, finish: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        self.choice, self.finish = choice, finish
        self.item, self.out = choice.source_item, choice.target_item
        self.width = choice.channels if choice.kernel == "merge" else 1  # output items of a place
        self.merge = choice.kernel == "merge"
        self.rowwise = choice.kernel in ("copy", "cast")
        if self.rowwise:
            self.choice = _rows_together(choice)
        grid = self._grid(alignment)
        self.stream = stream and grid % min(self.out, 8) == 0
        self.direct = not self.rowwise and finish is None and self._stores_as_it_comes(grid)
        self.joined = self._follows_on()

    def _grid(self, alignment: int) -> int:
        """The power of two, at most a line, on which all output rows begin."""
        for loop in (*self.choice.outer, *self.choice.rows):
            alignment = gcd(alignment, loop.dst)
        return alignment

    def _stores_as_it_comes(self, grid: int) -> bool:
        """Whether a pure move needs no scratch area: rows are whole lines, or not streamed."""
        if self.choice.run[-1].dst != self.out:
            return True
        return not self.stream or (self.choice.kernel != "gather" and grid == LINE)

    def _follows_on(self) -> bool:
        """Whether the rows of a staged transpose are short and lie end to end in the output."""
        run = _product(self.choice.run)
        if self.direct or self.choice.kernel != "transpose":
            return False
        if run * max(self.item, self.out) > JOINED_BYTES:
            return False
        expected = run * self.out
        for loop in reversed(self.choice.rows):
            if loop.dst != expected or loop.coef:
                return False
            expected *= loop.count
        return True

    # -- axes ------------------------------------------------------------------------------

    def launch(self) -> Launch:
        run, rows = self._axes()
        loops, r_loop, q_loop = self._loops(run, rows)
        coefficients, coef_rows = self._coefficients(run, rows)
        pitch = self._pitch(run.longest)
        cols = self._columns(rows, pitch)
        if len(loops) > MAX_LOOPS:  # kernels would read all that follows from the wrong words
            raise RuntimeError(f"{len(loops)} loops around a block; kernels take {MAX_LOOPS}")
        words = [len(loops), *(step for loop in loops for step in loop)]
        words += [0] * (HEAD - len(words))
        tables, starts = self._place(run.table, cols, rows.table, coef_rows)
        words += [r_loop, run.total, run.block, run.blocks - 1, starts[0], run.period, run.step]
        words += [q_loop, rows.total, rows.block, rows.blocks - 1, starts[1]]
        end = WORDS + len(tables)
        half = len(coefficients) // 16
        pace = self.choice.run[-1].dst if self.direct else self.item
        words += [pitch, starts[2], starts[3], end, end + half, pace, self.joined]
        params = struct.pack(f"{end}q", *words, *tables) + coefficients
        units = prod(loop.count for loop in loops)
        return Launch(self._spec(), params, units, self._grain(units))

    def _columns(self, rows: _Axis, pitch: int) -> tuple[int, ...]:
        """Where each row of a block is: in the source, the output or the scratch area."""
        if self.rowwise:
            return _offsets(self.choice.rows, 1, rows.longest)
        return rows.table if self.direct else tuple(range(0, rows.longest * pitch, pitch))

    def _axes(self) -> tuple[_Axis, _Axis]:
        """Blocks of both axes; fused axes are taken apart where the scratch area is too small."""
        deep, wide = self._tile()
        while True:
            rows = self._rows(wide)
            run = self._run(deep, rows)
            fits = self._pitch(run.longest) * rows.longest <= SCRATCH
            if fits or self.direct or self.rowwise:
                return run, rows
            self.choice = _less_fused(self.choice)
            self.joined = self._follows_on()

    def _tile(self) -> tuple[int, int]:
        """Places of the run and rows that the mover takes at once."""
        kernel, side = self.choice.kernel, 16 // self.item
        if kernel == "transpose":
            return max(side * lanes() * self._depth(), LINE // self.item), side * self._squares()
        line = LINE // min(self.item, self.out)
        return (1 if kernel == "gather" else line), 1

    def _depth(self) -> int:
        """Vectors side by side in an output row: two cache lines, which DRAM takes as one."""
        long = _product(self.choice.run) * self.item >= 2 * LANE * lanes()
        return 2 if long and self.item > 1 else 1

    def _squares(self) -> int:
        """Squares side by side: as much of a source line as registers hold."""
        return SQUARES[self._depth()][self.item]

    def _rows(self, wide: int) -> _Axis:
        loops = self.choice.rows
        if not loops:
            return _Axis(1, 1, (0,), 1, 0)
        total, inner = _product(loops), _product(loops[1:])
        staged = ADDED_ROWS if self._coefs() == "add" else STAGED_ROWS
        room = ROW_BYTES // self.item if self.direct else staged
        if self.choice.kernel == "split":
            block = total
        elif self.rowwise:
            run = _product(self.choice.run) * self.width * max(self.item, self.out)
            block = max(1, min(FUSED_ROWS, COPY_BYTES // run))
        elif self.joined:
            room = SCRATCH // (2 * self.item * _product(self.choice.run))
            unit = inner if inner > 1 else min(wide, room)
            block = max(room // unit, 1) * unit
        elif len(loops) > 1:
            block = _best_multiple(inner, wide, max(inner, FUSED_ROWS))
        else:
            block = max(wide, room // wide * wide)
        axis = _Axis(total, min(total, block), (), 1, 0)
        return replace(axis, table=_offsets(loops, 2, axis.longest))

    def _run(self, deep: int, rows: _Axis) -> _Axis:
        loops = self.choice.run[:1] if self.merge else self.choice.run
        total, inner = _product(loops), _product(loops[1:])
        # Blocks end where fused axes and, where lines go straight to the output, lines do.
        quantum = deep if len(loops) == 1 else lcm(inner, deep) if self.direct else inner
        axis = _Axis(total, min(total, self._run_block(total, quantum, rows)), (), 1, 0)
        if self.merge:
            return replace(axis, table=_offsets(self.choice.run[1:], 1, self.choice.channels))
        if self.rowwise:
            return axis
        if self.choice.kernel == "gather":
            period = max(1, min(MAX_TABLE // inner, loops[0].count)) * inner
        else:
            period = deep if len(loops) == 1 else axis.longest
        table = _offsets(loops, 1, period + deep)
        return replace(axis, table=table, period=period, step=period // inner * loops[0].src)

    def _run_block(self, total: int, quantum: int, rows: _Axis) -> int:
        """How many places of the run one block takes: a multiple of the quantum."""
        if self.joined:
            return total
        place = self.width * max(self.item, self.out)
        if self.rowwise:
            room = (COPY_BYTES if len(self.choice.run) == 1 else REPEAT_BYTES) // place
        elif self.direct:
            room = RUN_BYTES // place * (4 if rows.longest <= 4 else 1)
        else:
            return self._staged_block(total, quantum, rows)
        return max(quantum, room // quantum * quantum)

    def _staged_block(self, total: int, quantum: int, rows: _Axis) -> int:
        """The longest block that fits the scratch area together with its longer last one."""
        area = SCRATCH if self.choice.kernel == "transpose" else NARROW_BYTES
        room = area // (rows.longest * self.width * self.item)
        if self._coefs() == "each" and len(self.choice.run) > 1:
            room = min(room, REPEAT_BYTES // (self.width * self._coef_size()))
        block = room // quantum * quantum
        while block > quantum:
            longest = _Axis(total, min(total, block), (), 1, 0).longest
            if self._pitch(longest) * rows.longest <= area:
                return block
            block -= quantum
        return quantum

    def _pitch(self, places: int) -> int:
        """Bytes between rows of the scratch area; never a multiple of a page."""
        if self.joined:
            return places * self.item
        return -(-places * self.width * self.item // LINE) * LINE + LINE

    # -- the walk --------------------------------------------------------------------------

    def _loops(self, run: _Axis, rows: _Axis) -> tuple[list[Loop], int, int]:
        """All loops of the walk, and which of them count the blocks of the two axes."""
        size = self._coef_size()
        outer = [loop._replace(coef=loop.coef * size) for loop in self.choice.outer]
        r_block = self._run_loop(run)
        q_block = self._row_loop(rows)
        if self.choice.kernel == "gather" and outer:
            loops = [*outer[:-1], r_block, outer[-1], q_block]
            return loops, len(outer) - 1, len(outer) + 1
        return [*outer, q_block, r_block], len(outer) + 1, len(outer)

    def _run_loop(self, run: _Axis) -> Loop:
        loops = self.choice.run[:1] if self.merge else self.choice.run
        inner = _product(loops[1:])
        src = run.block // inner * loops[0].src
        dst = run.block * self.width * self.choice.run[-1].dst
        each = loops[-1].coef * run.block * self._coef_size() if len(loops) == 1 else 0
        return Loop(run.blocks, src, dst, 0 if self.merge else each)

    def _row_loop(self, rows: _Axis) -> Loop:
        loops = self.choice.rows
        if not loops:
            return Loop(1, 0, 0)
        turns = rows.block // _product(loops[1:])
        coef = turns * loops[0].coef * self._coef_size()
        return Loop(rows.blocks, turns * loops[0].src, turns * loops[0].dst, coef)

    def _grain(self, units: int) -> int:
        total = self.choice.count * (self.item + self.out)
        return max(1, min(CHUNK_BYTES * units // max(1, total), units // 16))

    # -- coefficients ----------------------------------------------------------------------

    def _coef_size(self) -> int:
        return 8 if self.finish is not None and self.finish.computed == "f8" else 4

    def _coefs(self) -> str:
        if self.finish is not None and self.finish.add:
            return "add"
        if self.finish is None or self.finish.coefficients is None:
            return "none"
        return "each" if self.choice.run[-1].coef else "run"

    def _coefficients(self, run: _Axis, rows: _Axis) -> tuple[bytes, tuple[int, ...]]:
        """Factors and terms as the kernel reads them, and the offset of each row's."""
        size = self._coef_size()
        steps = _offsets(self.choice.rows, 3, rows.longest)
        offsets = tuple(step * size for step in steps)
        if self.finish is None or self.finish.coefficients is None:
            return b"", offsets
        both = (self.finish.coefficients.factor, self.finish.coefficients.term)
        if self._coefs() == "each" and (len(self.choice.run) > 1 or self.joined):
            loops = (*self.choice.rows, *self.choice.run) if self.joined else self.choice.run
            count = run.longest * (rows.longest if self.joined else self.width)
            places = _offsets(loops, 3, count)
            both = (tuple(both[0][i] for i in places), tuple(both[1][i] for i in places))
        with np.errstate(over="ignore"):
            packed = [np.array(values, self.finish.computed).tobytes() for values in both]
        room = -(-(len(packed[0]) + SLACK) // 8) * 8
        return b"".join(p.ljust(room, b"\0") for p in packed), offsets

    @staticmethod
    def _place(*tables: tuple[int, ...]) -> tuple[list[int], list[int]]:
        """All tables in a row, and the word index of each."""
        starts, words = [], []
        for table in tables:
            starts.append(WORDS + len(words))
            words += table
        return words, starts

    # -- the code --------------------------------------------------------------------------

    def _spec(self) -> KernelSpec:
        move = "rows" if self.rowwise else self.choice.kernel
        if self.choice.channels:
            move += f"-{self.choice.channels}"
        nt = 0 if self.direct and move == "gather" else int(self.stream)
        finish = "" if self.direct else self._finish()
        return KernelSpec("engine", (move, self.item, self._shape(), finish, nt))

    def _shape(self) -> str:
        if self.choice.kernel == "transpose":
            return f"{lanes()}x{self._depth()}x{self._squares()}"
        if self.choice.kernel in ("split", "merge"):
            return str(vector_bytes(self.item))
        return ""

    def _finish(self) -> str:
        if self.finish is None:
            name = f"u{min(self.item, 8)}"
            return f"{name}-{name}-none-0"
        saturate = int(self.finish.saturate)
        return f"{self.finish.source}-{self.finish.target}-{self._coefs()}-{saturate}"

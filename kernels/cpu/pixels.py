"""The Cutters of kernels that take pixels of few channels. Imports no Numba.

The numbers are policy; what was measured for them is in docs/performance.md.
"""

from __future__ import annotations

from dataclasses import replace

from ...planning.epilogue import Epilogue
from ...planning.kernels import Choice
from ...planning.loops import Loop
from .choices import of_lines
from .cutting import BlockAxis, Cutter, axis_of_rows, length
from .registers import vector_bytes

__all__ = ["FlipCutter", "MergeCutter", "ShuffleCutter", "SplitCutter"]

# ---- split and merge ---------------------------------------------------------------------


class SplitCutter(Cutter):
    """Pixels to one row for each channel, or for those that are taken, in any order.

    Lines of pixels with gaps between them, as windows of pictures have, that follow each other in
    the output are taken several at a time, so that whole lines of the cache are streamed.
    """

    def __init__(
        self, choice: Choice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        if self.staged:
            self.choice = of_lines(choice, self.area // (2 * choice.channels))

    def stores_as_it_comes(self, grid: int) -> bool:
        """Only where all channels go to the output."""
        order = self.choice.order
        whole = not order or len(order) == self.choice.channels
        return whole and super().stores_as_it_comes(grid)

    def literal(self) -> str:
        """The width of vectors."""
        return str(vector_bytes(self.item))

    def rows(self) -> BlockAxis:
        """All channels that are taken."""
        return axis_of_rows(self.choice.rows, length(self.choice.rows))

    def columns(self, rows: BlockAxis, pitch: int) -> tuple[int, ...]:
        """Where the mover puts each channel of x: those that are not taken behind all rows.

        The scratch area has many times the room that a block of few rows takes.
        """
        order, columns = self.choice.order, super().columns(rows, pitch)
        if not order:
            return columns
        places = dict(zip(order, columns, strict=True))
        return tuple(places.get(at, len(order) * pitch) for at in range(self.choice.channels))

    def looked_up(self, run: BlockAxis) -> BlockAxis:
        """Without a table: pixels of a line are neighbours, and a period is a line."""
        return _of_lines(run, self.along())


def _of_lines(run: BlockAxis, loops: tuple[Loop, ...]) -> BlockAxis:
    """A run of pixels, whose period is a line."""
    if len(loops) == 1:
        return replace(run, period=run.longest)
    return replace(run, period=loops[1].count, step=loops[0].src)


class MergeCutter(Cutter):
    """A place of the run is a pixel; the table holds where each channel is in the source."""

    def __init__(
        self, choice: Choice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        self.width = choice.channels

    def literal(self) -> str:
        """The width of vectors."""
        return str(vector_bytes(self.item))

    def along(self) -> tuple[Loop, ...]:
        """The loop over pixels."""
        return self.choice.run[:1]

    def looked_up(self, run: BlockAxis) -> BlockAxis:
        """The run with the source offsets of the channels."""
        order = self.choice.order or range(self.width)
        return replace(run, table=tuple(self.choice.run[1].src * at for at in order))


# ---- flip and shuffle --------------------------------------------------------------------


class FlipCutter(MergeCutter):
    """Pixels to pixels. Staged lines that follow each other in the output are taken together."""

    area = 8192  # bytes: flipped lines of 672 bytes ran at 0.71 of a copy, and at 0.60 with half

    def __init__(
        self, choice: Choice, epilogue: Epilogue | None, alignment: int, stream: bool
    ) -> None:
        super().__init__(choice, epilogue, alignment, stream)
        if self.staged:
            self.choice = of_lines(choice, self.area // (2 * self.width))
        self._lines = len(self.choice.run) - len(choice.run)

    def along(self) -> tuple[Loop, ...]:
        """The loops over lines, where these are taken together, and pixels."""
        return self.choice.run[: self._lines + 1]

    def looked_up(self, run: BlockAxis) -> BlockAxis:
        """Without a table: pixels of a line are neighbours, and a period is a line."""
        return _of_lines(run, self.along())


class ShuffleCutter(FlipCutter):
    """Pixels to pixels of some of their channels."""

    def literal(self) -> str:
        """The width of vectors, the channels of x, the direction, and those that are taken."""
        pixel = self.choice.run[self._lines].src
        facts = abs(pixel) // self.item, int(pixel < 0), *self.choice.order
        return "x".join(map(str, (vector_bytes(self.item), *facts)))

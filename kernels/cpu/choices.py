"""The loops of a choice arranged another way, so that blocks are longer. Imports no Numba."""

from __future__ import annotations

from dataclasses import replace

from ...planning.kernels import Choice
from .cutting import length

__all__ = ["COPY_BYTES", "PIECE_BYTES", "lengthened", "more_rows", "of_lines", "rows_together"]

PIECE_BYTES = 128  # shorter rows and runs are read and written several together
COPY_BYTES = 32768  # bytes of one unit of a plain copy


def rows_together(choice: Choice) -> Choice:
    """The same choice of runs with short ones taken several at a time."""
    run = length(choice.run) * max(choice.source_item, choice.target_item)
    if not choice.outer or run > COPY_BYTES // 2:
        return choice
    return replace(choice, rows=choice.outer[-1:], outer=choice.outer[:-1])


def more_rows(choice: Choice, most: int) -> Choice:
    """The same choice with the next loop among the rows, if they follow each other there too.

    `most`: rows of a block, which has whole turns of the inner loop then.
    """
    rows = choice.rows[0]
    if not choice.outer or rows.count > most:
        return choice
    if rows.count * rows.dst != choice.outer[-1].dst or choice.outer[-1].coef:
        return choice
    return replace(choice, rows=choice.outer[-1:] + choice.rows, outer=choice.outer[:-1])


def of_lines(choice: Choice, room: int) -> Choice:
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


def lengthened(choice: Choice) -> Choice:
    """The same choice with short rows and runs made longer, by a loop that lengthens both."""
    rows, run = (length(loops) * choice.source_item for loops in (choice.rows, choice.run))
    if max(rows, run) >= PIECE_BYTES or len(choice.rows) > 1 or len(choice.run) > 1:
        return choice
    for loop in choice.outer:
        if (loop.src, loop.dst) == (rows, run):
            outer = tuple(other for other in choice.outer if other is not loop)
            return replace(choice, rows=(loop, *choice.rows), outer=outer)
    return choice

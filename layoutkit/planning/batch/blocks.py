"""The blocks of resized windows, which the CPU kernel resamples and converts one at a time.

A block has some neighboring rows and columns of a window. Rows and columns that are folded, such as
the pixels of patches, are divided between patches as far as possible, so that a block is a box of
the letters of both folds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from ...memory import Array
from .layout import AxisRoles

COLUMN_ROOM = 256  # columns of a block whose sums fit the L2 cache beside its source
# Columns that are resampled in the time of beginning one block more: their taps overlap.
BLOCK_COST = 32
COLUMN_STEP = 16  # block widths are multiples of it, so that windows of many sizes share plans


class FoldedAxis(NamedTuple):
    """An outer axis of two letters; position i is i // inner of the first, and i % inner."""

    size: int
    inner: int  # the size of the last letter
    inner_step: int  # bytes in the output between its neighbors


class Blocks(NamedTuple):
    """The blocks of a window, all of one size; the last ones along an axis may overlap others."""

    # The letters of the rows, the columns and folded outer axes, by their first letter.
    parts: Mapping[str, str]
    sizes: Mapping[str, int]  # of a block, by these letters
    rows: int  # of a block
    columns: int  # of a block
    places: Array  # (blocks, 3) int64: the first row, the first column, bytes in the output
    outer: Mapping[str, FoldedAxis]  # by the first letter; a block has one position


def divide_window(
    roles: AxisRoles,
    folds: Mapping[str, str],
    sizes: Mapping[str, int],
    steps: Mapping[str, int],
    rows: int,
    divides_columns: bool,
) -> Blocks:
    """Return the blocks of a window along the axes of its rows and columns.

    roles       the axes; a folded one is named by its first letter
    folds       the letters of folded axes, by the first one
    sizes       of the window, by letter
    steps       bytes in the output between neighbors, by letter
    rows        the maximum number of rows of a block
    divides_columns    False: a block has all columns

    Folded outer axes have two letters.
    """
    parts = {x: folds.get(x, x) for x in (roles.rows, roles.columns) if x}
    outer_parts = {x: folds[x] for x in roles.outer if x in folds}
    outer = {
        x: FoldedAxis(sizes[x] * sizes[fold[1]], sizes[fold[1]], steps.get(fold[1], 0))
        for x, fold in outer_parts.items()
    }
    ones = dict.fromkeys("".join(outer_parts.values()), 1)
    along_rows = _divide(parts.get(roles.rows, ""), sizes, steps, rows, min)
    room = COLUMN_ROOM if divides_columns else 1 << 62
    along_columns = _divide(parts.get(roles.columns, ""), sizes, steps, room, _choose_width)
    places = np.empty((len(along_columns.firsts), len(along_rows.firsts), 3), np.int64)
    places[..., 0] = along_rows.firsts
    places[..., 1] = along_columns.firsts[:, None]
    places[..., 2] = along_columns.offsets[:, None] + along_rows.offsets
    return Blocks(
        parts | outer_parts,
        {**along_rows.sizes, **along_columns.sizes, **ones},
        along_rows.length,
        along_columns.length,
        places.reshape(-1, 3),
        outer,
    )


class _Division(NamedTuple):
    """An axis, which may be folded, that is divided into pieces of one size."""

    sizes: dict[str, int]  # of a piece, by letter
    length: int  # of a piece, in positions of the axis
    firsts: Array  # (pieces,) int64: the first position of each piece
    offsets: Array  # (pieces,) int64: bytes in the output


def _divide(
    letters: str,
    sizes: Mapping[str, int],
    steps: Mapping[str, int],
    room: int,
    choose: Callable[[int, int], int],
) -> _Division:
    """Return pieces of up to `room` positions.

    The last letters are whole, as far as there is room. Of the one before, `choose` returns the
    number of positions in a piece, for its size and the number that has room. A piece has one
    position of the letters before.
    """
    piece: dict[str, int] = {}
    firsts = offsets = np.zeros(1, np.int64)
    length = inner = 1
    for letter in reversed(letters):
        size = sizes[letter]
        if length < inner:  # a later letter is divided
            part = 1
        elif inner * size <= room:
            part = size
        else:
            part = min(choose(size, room // inner), size)
        starts = np.minimum(np.arange(0, size, part), size - part)
        firsts = np.add.outer(starts * inner, firsts).ravel()
        offsets = np.add.outer(starts * steps.get(letter, 0), offsets).ravel()
        piece[letter] = part
        length *= part
        inner *= size
    return _Division(piece, length, firsts, offsets)


def _choose_width(size: int, most: int) -> int:
    """Return a number of columns, or of patches, so that blocks overlap little and are few."""
    step = COLUMN_STEP if most == COLUMN_ROOM else 1
    cost = BLOCK_COST * most / COLUMN_ROOM
    return min(range(most // step * step, 0, -step), key=lambda n: -(-size // n) * (n + cost))

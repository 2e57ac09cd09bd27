"""The text files beside a RecordIO file: `.idx`, where records begin, and `.lst`, their labels.

Knows lines and columns; the files that they speak of are not opened.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError
from ...memory import Array
from ..reading.urls import opened

__all__ = ["Listed", "offsets_in", "read_list"]

_TAB, _NEWLINE, _RETURN, _SPACE, _ZERO = b"\t\n\r 0"
_DIGITS = 18  # of an offset: what int64 holds whatever they are


def offsets_in(path: str) -> Array:
    """The second column of an `.idx`, int64, in the order of its lines.

    Raises DataError with the line that is not a key, whitespace and a number of bytes.
    """
    with opened(path) as file:
        data = np.frombuffer(file.read() + b"\n", np.uint8)
    white = (data == _SPACE) | (data == _TAB) | (data == _RETURN) | (data == _NEWLINE)
    ends = np.flatnonzero(data == _NEWLINE)
    edges = np.diff(white.astype(np.int8), prepend=1)
    starts, behind = np.flatnonzero(edges == -1), np.flatnonzero(edges == 1)
    words = np.diff(np.searchsorted(starts, ends), prepend=0)
    wrong = np.flatnonzero((words != 2) & (words != 0))
    if len(wrong):
        raise _no_line(path, data, ends, int(wrong[0]))
    offsets, bad = _numbers(data, starts[1::2], behind[1::2])
    if len(bad):
        raise _no_line(path, data, ends, int(np.searchsorted(ends, starts[1::2][bad[0]])))
    return offsets


def _numbers(data: Array, starts: Array, behind: Array) -> tuple[Array, Array]:
    """The numbers that stand between these places, and the rows in which none does."""
    widths = behind - starts
    numbers = np.zeros(len(starts), np.int64)
    good = widths <= _DIGITS
    for digit in range(min(int(widths.max(initial=0)), _DIGITS)):
        rows = (
            slice(None) if digit < widths.min(initial=_DIGITS) else np.flatnonzero(widths > digit)
        )
        values = data[starts[rows] + digit] - np.uint8(_ZERO)  # below "0" it wraps around
        good[rows] &= values <= 9
        numbers[rows] = 10 * numbers[rows] + values
    return numbers, np.flatnonzero(~good)


def _no_line(path: str, data: Array, ends: Array, line: int) -> DataError:
    start = int(ends[line - 1]) + 1 if line else 0
    text = bytes(data[start : min(int(ends[line]), start + 80)]).decode(errors="replace")
    return DataError(
        f"{path}, line {line + 1}: {text!r} is no key, tab and number of bytes, as a line of an "
        "index is"
    )


class Listed(NamedTuple):
    """The lines of a `.lst`: of each an id, its labels, and a path.

    widths, values      how many labels each line has, and all of them
    """

    ids: Array
    widths: Array
    values: Array
    paths: list[str]


def read_list(path: str) -> Listed:
    """The lines of a `.lst`: id, one label or more, a path, with tabs between them.

    Raises DataError with the line that is none.
    """
    ids: list[int] = []
    widths: list[int] = []
    values: list[float] = []
    paths: list[str] = []
    with opened(path) as file:
        for number, line in enumerate(file, 1):
            try:
                cells = line.decode("utf-8-sig" if number == 1 else "utf-8").strip().split("\t")
                if cells == [""]:
                    continue
                if len(cells) < 3:
                    raise ValueError(f"{len(cells)} columns; it has an id, labels and a path")
                ids.append(_id(cells[0]))
                found = [_label(cell) for cell in cells[1:-1]]
            except ValueError as error:
                raise DataError(f"{path}, line {number}: {error}") from error
            widths.append(len(found))
            values += found
            paths.append(cells[-1])
    labels: Any = np.array(values, np.float32)
    return Listed(np.array(ids, np.uint64), np.array(widths, np.int64), labels, paths)


def _id(cell: str) -> int:
    digits = cell.strip()
    if not (digits.isascii() and digits.isdigit()) or int(digits) >> 64:
        raise ValueError(f"{cell!r} is no id; it is a whole number")
    return int(digits)


def _label(cell: str) -> float:
    try:
        if "_" in cell:  # which Python takes in numbers
            raise ValueError
        return float(cell)
    except ValueError:
        raise ValueError(f"{cell!r} is no label; it is a number") from None

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

_NEWLINE, _SPACE, _ZERO = b"\n 0"
_DIGITS = 18  # of an offset: what int64 holds whatever they are
_LONGEST = 1 << 20  # bytes of a line
_BLOCK = 1 << 18  # bytes of text whose arrays stay in the cache


def offsets_in(path: str) -> Array:
    """The second column of an `.idx`, int64, in the order of its lines.

    Raises DataError with the line that is not a key, whitespace and a number of bytes.
    """
    found, lines, rest = [np.zeros(0, np.int64)], 0, b""
    with opened(path) as file:
        while block := file.read(_BLOCK):
            cut = block.rfind(b"\n") + 1
            if cut:
                found.append(_offsets(path, rest + block[:cut], lines))
                lines += (rest + block[:cut]).count(b"\n")
            rest = block[cut:] if cut else rest + block
            if len(rest) > _LONGEST:
                raise DataError(f"{path}, line {lines + 1} has more than {_LONGEST} bytes")
    found.append(_offsets(path, rest + b"\n", lines))
    return np.concatenate(found)


def _offsets(path: str, text: bytes, lines: int) -> Array:
    """Those of whole lines, before which there are `lines` others."""
    data = np.frombuffer(b"\n" + text, np.uint8)
    white = data <= _SPACE
    edges = np.flatnonzero(white[1:] != white[:-1]) + 1
    ends = np.flatnonzero(data == _NEWLINE)[1:]
    starts, behind = edges[::2], edges[1::2]
    words = np.diff(np.searchsorted(starts, ends), prepend=0)
    wrong = np.flatnonzero((words != 2) & (words != 0))
    if not len(wrong):
        offsets, wrong = _numbers(data, starts[1::2], behind[1::2])
        wrong = np.flatnonzero(words)[wrong]
    if len(wrong):
        row = int(wrong[0])
        line = text.split(b"\n")[row][:80].decode(errors="replace")
        raise DataError(
            f"{path}, line {lines + row + 1}: {line!r} is no key, tab and number of bytes, as a "
            "line of an index is"
        )
    return offsets


def _numbers(data: Array, starts: Array, behind: Array) -> tuple[Array, Array]:
    """The numbers that stand between these places, and the rows in which none does."""
    widths = behind - starts
    numbers = np.zeros(len(starts), np.int64)
    good = widths <= _DIGITS
    narrow = int(widths.min(initial=_DIGITS))
    for digit in range(min(int(widths.max(initial=0)), _DIGITS)):
        rows = slice(None) if digit < narrow else np.flatnonzero(widths > digit)
        values = data[starts[rows] + digit] - np.uint8(_ZERO)  # below "0" it wraps around
        good[rows] &= values <= 9
        numbers[rows] = 10 * numbers[rows] + values
    return numbers, np.flatnonzero(~good)


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

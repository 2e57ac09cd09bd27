"""Rows of numbers in a text file, read by row index; line starts are found once.

A line holds numbers separated by commas. NumPy (`loadtxt`) parses it, and a cell that is not a
number, or is too large for its dtype, raises an error with file and line. Spaces around numbers,
one trailing comma, blank lines, Windows line ends and a byte order mark are ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..._utils.errors import as_data_errors
from ...errors import DataError, DtypeError
from ...memory import Array
from ...spec import dtype_kind
from ..errors import check_has_records
from .filesystem import OpenFile, describe_encoding, local_path, read_at

BLOCK_BYTES = 1 << 20
_MAX_LINE = 1 << 26  # bytes
_MAX_DIGITS = 4300  # of an integer
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # in UTF-8, as some Windows programs write it
_NEWLINE = 10
_COMMA = 44
_IS_SPACE = np.isin(np.arange(256), [9, 13, 32])
# The bytes that rows may contain. NumPy would accept some control characters as spaces.
_INTEGER_BYTES = b"0123456789+-, \t\r\n"
_FLOAT_BYTES = _INTEGER_BYTES + b".eEiInNfFaAtTyY"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(
    r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|inf|infinity)", re.IGNORECASE
)
_OTHER_DELIMITERS = re.compile(r"[;|\t ]+")


class CSVRows:
    """The rows of a text file; only 16 bytes per row are kept in memory.

    An unpickled object opens the file again, which must not have changed.
    """

    def __init__(self, path: str) -> None:
        local = local_path(path)
        if local is None:
            raise DataError(f"{path} is a URL; rows of numbers are read from local files only")
        self.path = path
        self._file: OpenFile | None = None
        with as_data_errors(path):
            self._starts, self._ends, self._state = _scan(self._open().descriptor)
        check_has_records(len(self), path, "it has no rows of numbers")

    def __len__(self) -> int:
        return len(self._starts)

    def read(self, numbers: Array, width: int, dtype: np.dtype[Any]) -> Array:
        """Return the rows with these indices, `width` values each, in `parsed_dtype(dtype)`.

        Raises DataError, with file and line, for a row that is not `width` numbers of `dtype`.
        """
        with as_data_errors(self.path):
            text, lines = self._read_lines(numbers)
        rows = None
        if all(lines) and not text.translate(None, _allowed_bytes(dtype)):
            with suppress(ValueError):
                rows = np.loadtxt(lines, parsed_dtype(dtype), delimiter=",", comments=None, ndmin=2)
        if rows is None or rows.shape != (len(lines), width):
            self._check(lines, numbers, range(len(lines)), width, dtype)
            raise DataError(f"{self.describe(numbers[0])} or a later one: NumPy cannot parse it")
        if rows.dtype.kind == "f":
            too_large = (np.abs(rows) > _max_value(dtype)).any(1)  # "inf" in the file, or overflow
            self._check(lines, numbers, np.flatnonzero(too_large), width, dtype)
        return rows

    def describe(self, number: int) -> str:
        """Return the file and line of a row."""
        return f"{self.path}, line {self._line_number(number)}"

    def close(self) -> None:
        """Close the file after the reads in progress; the next read opens it again."""
        self._file = None

    def _open(self) -> OpenFile:
        file = self._file
        if file is None:
            file = self._file = OpenFile(local_path(self.path) or "")
        return file

    def _read_lines(self, numbers: Array) -> tuple[bytes, list[str]]:
        """Read some rows; return the whole text as bytes, and the stripped line of each row."""
        file = self._open()
        if _file_state(file.descriptor) != self._state:
            raise DataError(f"{self.path} has changed since it was opened; create a new provider")
        lines: list[str] = []
        pieces = []
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):
            starts = self._starts[run]
            ends = self._ends[run]
            first = int(starts[0])
            pieces.append(_read(file.descriptor, first, int(ends[-1]) - first))
            text = pieces[-1].decode("latin-1")
            spans = zip((starts - first).tolist(), (ends - first).tolist(), strict=True)
            lines += [text[start:end] for start, end in spans]
        return b"".join(pieces), lines

    def _check(
        self, lines: Sequence[str], numbers: Array, rows: Iterable[int], width: int, dtype: Any
    ) -> None:
        """Raise DataError for the first of `rows` that is not `width` numbers of `dtype`."""
        for row in rows:
            # Latin-1, one character a byte, for the offsets of rows; the text is UTF-8.
            line = lines[row].encode("latin-1").decode(errors="replace")
            error = _row_error(line, width, dtype)
            number = numbers[row]
            if error:
                hint = "; remove the header" if number == 0 and "not a number" in error else ""
                raise self._encoding_error() or DataError(f"{self.describe(number)}: {error}{hint}")

    def _encoding_error(self) -> DataError | None:
        """Return the error for a file that is not UTF-8 text, None for others."""
        file = self._open()
        reason = describe_encoding(_read(file.descriptor, 0, min(8, self._state[0])))
        return DataError(f"{self.path} {reason}") if reason else None

    def _line_number(self, number: Any) -> int:
        """Return the line number of a row in the file, counted from 1."""
        file = self._open()
        return _line_at(file.descriptor, int(self._starts[number]))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}


def parsed_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which numbers are parsed; raise DtypeError if it is not numeric."""
    if dtype.kind in "iu" or dtype in (np.float32, np.float64):
        return dtype
    if dtype_kind(dtype) != "f":
        raise DtypeError(f"dtype is {dtype}; rows are read as integers of NumPy or floats")
    return np.dtype(np.float64)


def _allowed_bytes(dtype: np.dtype[Any]) -> bytes:
    return _INTEGER_BYTES if dtype.kind in "iu" else _FLOAT_BYTES


def _max_value(dtype: np.dtype[Any]) -> float:
    if dtype.kind == "f":
        return float(np.finfo(dtype).max)
    import ml_dtypes  # because NumPy's finfo does not support the dtypes of ml_dtypes

    return float(ml_dtypes.finfo(dtype).max)


def _row_error(line: str, width: int, dtype: Any) -> str:
    """Return a description of the first error in a row, or "" if the row is valid."""
    cells = line.split(",")
    for number, cell in enumerate(cells, 1):
        text = cell.strip(" \t")
        if not text:
            return f"cell {number} is empty"
        pattern = _INTEGER if dtype.kind in "iu" else _FLOAT
        if not pattern.fullmatch(text):
            if text[0] in "\"'" and _FLOAT.fullmatch(text.strip("\"'")):
                return f"cell {number} is {text[:40]!r}, a number in quotes; remove the quotes"
            parts = _OTHER_DELIMITERS.split(text)
            if len(parts) > 1 and all(map(_FLOAT.fullmatch, parts)):
                return f"cell {number} is {text[:40]!r}; put commas between the numbers of a row"
            noun = "whole number" if dtype.kind in "iu" and _FLOAT.fullmatch(text) else "number"
            return f"cell {number} is {text[:40]!r}, which is not a {noun}"
        if not _fits(text, dtype):
            return f"cell {number} is {text[:40]}, which {dtype.name} cannot hold"
    if len(cells) != width:
        return f"it has {len(cells)} numbers, but a row must have {width}"
    return ""


def _fits(text: str, dtype: Any) -> bool:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        # Python refuses to parse integers of thousands of digits.
        return len(text) <= _MAX_DIGITS and bool(limits.min <= int(text) <= limits.max)
    with np.errstate(over="ignore"):
        return "n" in text.lower() or bool(np.isfinite(dtype.type(float(text))))


# ---- files -----------------------------------------------------------------------------------


def _file_state(file: int) -> tuple[int, int]:
    """Return the size and modification time of a file, to detect changes."""
    state = os.fstat(file)
    return state.st_size, state.st_mtime_ns


def _read(file: int, start: int, size: int) -> bytes:
    """Return `size` bytes from `start`, thread-safely; raise OSError if the file ends before."""
    data = read_at(file, size, start)
    if len(data) < size:
        raise OSError("the file is shorter than when it was opened")
    return data


def _line_at(file: int, stop: int) -> int:
    """Return the number of the line that begins at byte `stop`, counted from 1."""
    blocks = range(0, stop, BLOCK_BYTES)
    return 1 + sum(_read(file, pos, min(BLOCK_BYTES, stop - pos)).count(b"\n") for pos in blocks)


def _scan(file: int) -> tuple[Array, Array, tuple[int, int]]:
    """Return the starts and ends of all rows, and the state of the file before the scan."""
    state = _file_state(file)
    empty = np.zeros(0, np.int64)
    spans = [(empty, empty), *(_row_spans(text, start) for text, start in _complete_lines(file))]
    starts, ends = zip(*spans, strict=True)
    return np.concatenate(starts), np.concatenate(ends), state


def _complete_lines(file: int) -> Iterator[tuple[bytes, int]]:
    """Yield a file's text in pieces that end at a line end, each with its offset in the file."""
    pos = 0
    offset = 0
    pieces: list[bytes] = []
    while piece := read_at(file, BLOCK_BYTES, pos):
        if pos == 0 and piece.startswith(_BYTE_ORDER_MARK):
            piece = piece[len(_BYTE_ORDER_MARK) :]
            pos = len(_BYTE_ORDER_MARK)
            offset = len(_BYTE_ORDER_MARK)
        pos += len(piece)
        end = piece.rfind(b"\n") + 1
        if end:
            text = b"".join([*pieces, piece[:end]])
            yield text, offset
            offset += len(text)
            pieces = []
        pieces.append(piece[end:])
        if pos - offset > _MAX_LINE:
            raise ValueError(
                f"line {_line_at(file, offset)} has more than {_MAX_LINE} bytes; a row of numbers "
                "ends with a newline"
            )
    if any(pieces):
        yield b"".join(pieces), offset


def _row_spans(text: bytes, offset: int) -> tuple[Array, Array]:
    """Return the file offsets where the rows of `text` start and end; `text` is at `offset`."""
    block = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(block == _NEWLINE)
    if not text.endswith(b"\n"):
        ends = np.append(ends, len(text))
    starts = np.concatenate([[0], ends[:-1] + 1])
    _skip_spaces(block, starts, ends, 1)
    _skip_spaces(block, starts, ends, -1)
    nonblank = np.flatnonzero(starts < ends)
    starts = starts[nonblank]
    ends = ends[nonblank]
    ends -= block[ends - 1] == _COMMA
    return starts + offset, ends + offset


def _skip_spaces(block: Array, starts: Array, ends: Array, step: int) -> None:
    """Move the starts of lines forward over spaces (`step` 1) or their ends backward (-1)."""
    bounds = starts if step > 0 else ends
    offset = 0 if step > 0 else -1
    lines = np.arange(len(starts))
    while True:
        lines = lines[starts[lines] < ends[lines]]
        lines = lines[_IS_SPACE[block[bounds[lines] + offset]]]
        if not lines.size:
            return
        bounds[lines] += step

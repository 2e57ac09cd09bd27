"""Rows of numbers in a text file, read by their numbers: where lines begin is found once.

A line is numbers with commas between, parsed by NumPy (`loadtxt`), and strictly so: what is not a
number, or too large for its dtype, is an error that names file and line. Spaces around numbers, one
comma behind the last, blank lines, line ends of Windows and a byte order mark are no part of rows.

Knows text; what rows are for is not known here.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from ...errors import DataError, DtypeError
from ...memory import Array
from ...spec import kind_of
from .filesystem import local_path, opened_file, read_at

__all__ = ["CSVRows", "as_read"]

_BLOCK = 1 << 20
_MARK = b"\xef\xbb\xbf"  # the byte order mark that Windows puts before UTF-8
_BREAK, _COMMA = 10, 44
_SPACE = np.isin(np.arange(256), [9, 13, 32])
# All that numbers are made of. NumPy would take some control characters for spaces.
_WHOLE_BYTES = b"0123456789+-, \t\r\n"
_FLOAT_BYTES = _WHOLE_BYTES + b".eEiInNfFaAtTyY"
_WHOLE = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(
    r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|inf|infinity)", re.IGNORECASE
)


class CSVRows:
    """The rows of a file; 16 bytes of memory for each, and no text.

    Who unpickles one opens the file again, which must not have changed.
    """

    def __init__(self, path: str) -> None:
        local = local_path(path)
        if local is None:
            raise DataError(f"{path} is a URL; rows of numbers are read from local files")
        self.path = path
        self._file: int | None = None
        with _reading(path):
            self._starts, self._ends, self._state = _scanned(self._opened())
        if not len(self):
            raise DataError(f"{path} has no rows; it is empty")

    def __len__(self) -> int:
        return len(self._starts)

    def read(self, numbers: Array, width: int, dtype: np.dtype[Any]) -> Array:
        """The rows of these numbers, each of `width` values of a dtype, in the dtype `as_read`.

        Raises DataError, with file and line, for a row that is anything else.
        """
        with _reading(self.path):
            text, lines = self._texts(numbers)
        found = None
        if all(lines) and not text.translate(None, _bytes_of(dtype)):
            with suppress(ValueError):
                found = np.loadtxt(lines, as_read(dtype), delimiter=",", comments=None, ndmin=2)
        if found is None or found.shape != (len(lines), width):
            self._check(lines, numbers, range(len(lines)), width, dtype)
            raise DataError(f"{self.path}: NumPy cannot read line {self._line(numbers[0])} ff.")
        if found.dtype.kind == "f":
            large = (np.abs(found) > _largest(dtype)).any(1)  # written so, or only read so
            self._check(lines, numbers, np.flatnonzero(large), width, dtype)
        return found

    def close(self) -> None:
        """Let go of the file; what reads next opens it again."""
        if self._file is not None:
            self._finalizer()
            self._file = None

    def _opened(self) -> int:
        if self._file is None:
            self._file, _ = opened_file(local_path(self.path) or "")
            self._finalizer = weakref.finalize(self, os.close, self._file)
        return self._file

    def _texts(self, numbers: Array) -> tuple[bytes, list[str]]:
        """The lines of rows, without what is around them; and all that was read for them."""
        file = self._opened()
        if _state_of(file) != self._state:
            raise DataError(f"{self.path} has changed since it was opened; make a new provider")
        lines: list[str] = []
        pieces = []
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):
            starts, ends = self._starts[run], self._ends[run]
            first = int(starts[0])
            pieces.append(_read(file, first, int(ends[-1]) - first))
            text = pieces[-1].decode("latin-1")
            spans = zip((starts - first).tolist(), (ends - first).tolist(), strict=True)
            lines += [text[start:end] for start, end in spans]
        return b"".join(pieces), lines

    def _check(
        self, lines: Sequence[str], numbers: Array, rows: Iterable[int], width: int, dtype: Any
    ) -> None:
        """DataError for the first of some rows that is not `width` numbers of a dtype."""
        for row in rows:
            wrong, number = _fault(lines[row], width, dtype), numbers[row]
            if wrong:
                at = self._line(number)
                hint = "; leave a header out" if number == 0 and "no number" in wrong else ""
                raise DataError(f"{self.path}, line {at}: {wrong}{hint}")

    def _line(self, number: Any) -> int:
        """Which line of the file a row is, from 1."""
        file, stop = self._opened(), int(self._starts[number])
        blocks = range(0, stop, _BLOCK)
        return 1 + sum(_read(file, at, min(_BLOCK, stop - at)).count(b"\n") for at in blocks)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None, "_finalizer": None}


def as_read(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which numbers of a dtype are read; DtypeError for what is no number."""
    if dtype.kind in "iu" or dtype in (np.float32, np.float64):
        return dtype
    if kind_of(dtype) != "f":
        raise DtypeError(f"dtype is {dtype}; rows are read as integers of NumPy's or floats")
    return np.dtype(np.float64)


def _bytes_of(dtype: np.dtype[Any]) -> bytes:
    return _WHOLE_BYTES if dtype.kind in "iu" else _FLOAT_BYTES


def _largest(dtype: np.dtype[Any]) -> float:
    if dtype.kind == "f":
        return float(np.finfo(dtype).max)
    import ml_dtypes  # whose dtype it is

    return float(ml_dtypes.finfo(dtype).max)


def _fault(line: str, width: int, dtype: Any) -> str:
    """What is wrong with a row, in words; nothing if it is right."""
    cells = line.split(",")
    for number, cell in enumerate(cells, 1):
        text = cell.strip(" \t")
        if not text:
            return f"cell {number} is empty"
        form = _WHOLE if dtype.kind in "iu" else _FLOAT
        if not form.fullmatch(text):
            kind = "whole number" if dtype.kind in "iu" and _FLOAT.fullmatch(text) else "number"
            return f"cell {number} is {text[:40]!r}, which is no {kind}"
        if not _fits(text, dtype):
            return f"cell {number} is {text[:40]}, which is no {dtype.name}"
    if len(cells) != width:
        return f"it has {len(cells)} numbers, but a row has {width}"
    return ""


def _fits(text: str, dtype: Any) -> bool:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return bool(limits.min <= int(text) <= limits.max)
    with np.errstate(over="ignore"):
        return "n" in text.lower() or bool(np.isfinite(dtype.type(float(text))))


# ---- files -----------------------------------------------------------------------------------


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """DataError, with the file's name, for whatever the system says of it."""
    try:
        yield
    except DataError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name with a null byte
        said = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {said}") from error


def _state_of(file: int) -> tuple[int, int]:
    """What changes when somebody writes a file."""
    found = os.fstat(file)
    return found.st_size, found.st_mtime_ns


def _read(file: int, start: int, size: int) -> bytes:
    """Bytes from a place of a file that others may read, too; OSError where it ends before."""
    pieces = []
    while size:
        piece = read_at(file, min(size, 1 << 30), start)
        if not piece:
            raise OSError("it ends before its last line did")
        pieces.append(piece)
        start, size = start + len(piece), size - len(piece)
    return b"".join(pieces)


def _scanned(file: int) -> tuple[Array, Array, tuple[int, int]]:
    """Where rows begin and end, and the state of the file then."""
    state = _state_of(file)
    nothing = np.zeros(0, np.int64)
    found = [(nothing, nothing), *(_rows(text, at) for text, at in _whole_lines(file))]
    starts, ends = zip(*found, strict=True)
    return np.concatenate(starts), np.concatenate(ends), state


def _whole_lines(file: int) -> Iterator[tuple[bytes, int]]:
    """The text of a file in pieces that end with lines, and where each begins."""
    at = begin = 0
    pieces: list[bytes] = []
    while piece := read_at(file, _BLOCK, at):
        if at == 0 and piece.startswith(_MARK):
            piece, at, begin = piece[len(_MARK) :], len(_MARK), len(_MARK)
        at += len(piece)
        end = piece.rfind(b"\n") + 1
        if end:
            text = b"".join([*pieces, piece[:end]])
            yield text, begin
            begin, pieces = begin + len(text), []
        pieces.append(piece[end:])
    if any(pieces):
        yield b"".join(pieces), begin


def _rows(text: bytes, at: int) -> tuple[Array, Array]:
    """Where the rows of a text begin and end that stands at a place of its file."""
    block = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(block == _BREAK)
    if not text.endswith(b"\n"):
        ends = np.append(ends, len(text))
    starts = np.concatenate([[0], ends[:-1] + 1])
    _skip(block, starts, ends, 1)
    _skip(block, starts, ends, -1)
    there = np.flatnonzero(starts < ends)
    starts, ends = starts[there], ends[there]
    ends -= block[ends - 1] == _COMMA
    return starts + at, ends + at


def _skip(block: Array, starts: Array, ends: Array, step: int) -> None:
    """Move the starts of lines forward over spaces, or their ends backward."""
    moved, offset = (starts, 0) if step > 0 else (ends, -1)
    live = np.arange(len(starts))
    while True:
        live = live[starts[live] < ends[live]]
        live = live[_SPACE[block[moved[live] + offset]]]
        if not live.size:
            return
        moved[live] += step

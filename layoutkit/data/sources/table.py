"""A csv or tsv file: a row per file or part of a file, with any number of labels.

The files that it names are not opened.
"""

from __future__ import annotations

import csv
import io
import os
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError
from ...memory import Array
from ..errors import check_has_records
from ..formats import TABLE_DELIMITERS
from ..io.filesystem import exists, join_path, open_binary, parent_folder
from ..records import Record, records_of
from .base import Index, NamePolicy, Partition


class TableColumns(NamedTuple):
    """The positions of the columns in a row."""

    number: int
    filename: int
    offset: int | None
    length: int | None
    labels: tuple[int, ...]


@dataclass
class TableRows:
    """The rows of a table by column, and its records: one per label of a row."""

    filenames: list[str] = field(default_factory=list)
    offsets: list[int | None] = field(default_factory=list)
    lengths: list[int | None] = field(default_factory=list)
    row_of: list[int] = field(default_factory=list)
    label_of: list[int] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    naming: NamePolicy = field(kw_only=True)

    def add(self, cells: list[str], columns: TableColumns) -> None:
        """Append a row; ValueError if it is invalid."""
        name = cells[columns.filename]
        if not name:
            raise ValueError("the file name is empty")
        self.naming.check(name)
        offset = _number(cells, columns.offset, "offset")
        length = _number(cells, columns.length, "length")
        labels = [cells[column] for column in columns.labels if cells[column]]
        row = len(self.filenames)
        known = self.labels
        codes = [known.setdefault(label, len(known)) for label in labels] or [-1]
        # One string for all rows of a file: less memory, and look-ups hit the CPU cache.
        self.filenames.append(self.names.setdefault(name, name))
        if columns.offset is not None:
            self.offsets.append(offset)
        if columns.length is not None:
            self.lengths.append(length)
        self.row_of += [row] * len(codes)
        self.label_of += codes


def open_table(
    path: str, kind: str, partition: Partition, schemes: tuple[str, ...] | None = None
) -> Index:
    """Open a csv or tsv file."""
    naming = NamePolicy(path, schemes or ())
    rows = _read(path, TABLE_DELIMITERS[f".{kind}"], naming)
    check_has_records(len(rows.filenames), path, "there is no row after the header")
    return TableIndex(kind, _prefix(path, kind, naming), rows, partition)


class TableIndex(Index):
    """The records of a csv or tsv file, in file order.

    Every partition keeps the whole table, by column, as the labels of one record can be in several
    partitions.
    """

    def __init__(self, kind: str, prefix: str, rows: TableRows, partition: Partition) -> None:
        labels = sorted(rows.labels)
        ranks = np.empty(len(labels) + 1, np.int64)
        ranks[[rows.labels[label] for label in labels]] = np.arange(len(labels))
        ranks[-1] = -1
        self._partition = partition
        self._filenames = rows.filenames
        self._offsets = _compact(rows.offsets)
        self._lengths = _compact(rows.lengths)
        row_of = np.array(rows.row_of, np.int64)
        starts = np.searchsorted(row_of, np.arange(len(rows.filenames) + 1))
        self._row_of = _to_array(row_of)
        self._row_starts = _to_array(starts)
        codes = ranks[np.array(rows.label_of, np.int64)]
        self._all_codes = _to_array(codes)
        self._count = partition.count(len(rows.row_of))
        super().__init__(kind, prefix, labels, codes[partition.rows])

    def __len__(self) -> int:
        return self._count

    def record(self, number: int) -> Record:
        """Return a file, or a part of one, with one of its row's labels."""
        place = self._partition.place(number)
        row = self._row_of[place]
        code = self._all_codes[place]
        return Record(
            url=join_path(self.url_prefix, self._filenames[row]),
            offset=_cell(self._offsets, row),
            length=_cell(self._lengths, row),
            label=None if code < 0 else self.labels[code],
            labels=self._labels_of(row),
            position=number,
        )

    def records(self, numbers: Array) -> list[Record]:
        """Return records column by column, several times faster than record by record."""
        places = self._partition.place(numbers)
        row_array = np.frombuffer(self._row_of, np.int64)[places]
        rows = row_array.tolist()
        return records_of(
            self._urls(rows),
            _cells(self._offsets, row_array),
            _cells(self._lengths, row_array),
            repeat(None),
            *self._labels_of_records(rows, places),
            numbers.tolist(),
        )

    def _urls(self, rows: list[int]) -> list[str]:
        """Return the URLs of rows; each is joined only once, as many rows may share a file."""
        filenames = [self._filenames[row] for row in rows]
        urls = {name: join_path(self.url_prefix, name) for name in set(filenames)}
        return [urls[name] for name in filenames]

    def _labels_of_records(
        self, rows: list[int], places: Array
    ) -> tuple[Iterable[Any], Iterable[Any]]:
        """Return the label of each record, and all labels of its row."""
        if not self.labels:
            return repeat(None), repeat(())
        codes = np.frombuffer(self._all_codes, np.int64)[places].tolist()
        names = [*self.labels, None]
        single: list[Any] = [names[code] for code in codes]
        if len(self._all_codes) > len(self._filenames):  # some rows have several labels
            return single, [self._labels_of(row) for row in rows]
        tuples = [*((label,) for label in self.labels), ()]
        return single, [tuples[code] for code in codes]

    def _labels_of(self, row: int) -> tuple[Any, ...]:
        """Return all labels of a row, whose records are contiguous."""
        first = self._row_starts[row]
        end = self._row_starts[row + 1]
        if end == first + 1:
            code = self._all_codes[first]
            return () if code < 0 else (self.labels[code],)
        return tuple(self.labels[code] for code in self._all_codes[first:end])


def _read(path: str, delimiter: str, naming: NamePolicy) -> TableRows:
    rows = TableRows(naming=naming)
    with open_binary(path) as file:
        # utf-8-sig: a byte order mark is not part of the first column's name.
        text = io.TextIOWrapper(file, "utf-8-sig", newline="")
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        try:
            columns = _columns(next(_nonblank(reader), None))
            for cells in _nonblank(reader):
                rows.add(_pad_row(cells, columns), columns)
        except UnicodeDecodeError as error:  # in a block of many lines
            raise DataError(
                f"{path}, line {_first_invalid_line(path)}: it is not UTF-8 text"
            ) from error
        except (ValueError, csv.Error) as error:
            line = max(reader.line_num, 1)
            raise DataError(f"{path}, line {line}: {error}") from error
        text.detach()
    return rows


def _first_invalid_line(path: str) -> int:
    """Return the number of the first line that is not UTF-8."""
    number = 0
    with open_binary(path) as file, suppress(UnicodeDecodeError):
        for line in file:
            number += 1
            line.decode()
    return number


def _nonblank(reader: Any) -> Iterator[list[str]]:
    """Return the rows that are not blank."""
    return (cells for cells in reader if len(cells) > 1 or (cells and cells[0].strip()))


def _columns(header: list[str] | None) -> TableColumns:
    names = [name.strip() for name in header or ()]
    if "filename" not in names:
        text = ", ".join(names) or "an empty file"
        raise ValueError(f"the header row needs a column filename; found {text}")
    unique = {name: [pos for pos, n in enumerate(names) if n == name] for name in _UNIQUE}
    for name, columns in unique.items():
        if len(columns) > 1:
            raise ValueError(f"the header row has {len(columns)} columns {name}; it may have one")
    offset, length = (next(iter(unique[name]), None) for name in ("offset", "length"))
    labels = tuple(pos for pos, name in enumerate(names) if name.startswith("label"))
    return TableColumns(len(names), names.index("filename"), offset, length, labels)


_MAX = (1 << 63) - 1
_UNIQUE = ("filename", "offset", "length")


def _pad_row(cells: list[str], columns: TableColumns) -> list[str]:
    """Return the cells of a row, with empty ones added to a short row."""
    missing = columns.number - len(cells)
    if missing < 0 and any(cells[columns.number :]):
        raise ValueError(f"{len(cells)} cells under {columns.number} columns")
    return cells + [""] * missing if missing else cells


def _number(cells: list[str], column: int | None, name: str) -> int | None:
    if column is None or not cells[column]:
        return None
    digits = cells[column].strip()
    if not (digits.isascii() and digits.isdigit()) or int(digits) > _MAX:
        raise ValueError(f"{name} {cells[column]!r} is not a number of bytes")
    return int(digits)


def _compact(numbers: list[int | None]) -> array[int]:
    """Return numbers in 8 bytes each; -1 for None."""
    return array("q", [-1 if number is None else number for number in numbers])


def _to_array(numbers: Array) -> array[int]:
    """Return an `array.array`, whose items are read several times faster than NumPy's."""
    return array("q", numbers.astype(np.int64).tobytes())


def _cell(column: array[int], row: int) -> int | None:
    """Return a number of a column; None if it is empty or the column does not exist."""
    return None if not column or column[row] < 0 else column[row]


def _cells(column: array[int], rows: Array) -> Iterable[int | None]:
    """Return the numbers of several rows."""
    if not column:
        return repeat(None)
    cells = np.frombuffer(column, np.int64)[rows]
    numbers: list[int | None] = cells.tolist()
    return numbers if cells.min(initial=0) >= 0 else [None if n == -1 else n for n in numbers]


def _prefix(path: str, kind: str, naming: NamePolicy) -> str:
    """Return the prefix of file names: the second line of the meta file, else the folder."""
    stem = os.path.splitext(path)[0]  # noqa: PTH122 - URLs, too
    for suffix in sorted(TABLE_DELIMITERS, key=lambda suffix: suffix != f".{kind}"):
        meta = f"{stem}-meta{suffix}"
        if exists(meta):
            return _second_line(meta, naming)
    return parent_folder(path)


def _second_line(path: str, naming: NamePolicy) -> str:
    with open_binary(path) as file:
        lines = file.read().splitlines()
    try:
        second = lines[1].decode().strip() if len(lines) > 1 else ""
        naming.check_prefix(second)
    except ValueError as error:  # not UTF-8, or a prefix that is not allowed
        raise DataError(f"{path}, line 2: {error}") from error
    if not second:
        raise DataError(f"{path} has no second line; it says what file names begin with")
    return second

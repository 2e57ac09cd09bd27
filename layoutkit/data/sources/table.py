"""A csv or tsv file, or a data frame: a row per file or part of a file, with any number of labels.

The files that it names are not opened.
"""

from __future__ import annotations

import csv
import io
import os
from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError
from ...memory import Array
from ..errors import check_has_records
from ..formats import FORMATS, is_dataframe
from ..io.filesystem import describe_encoding, exists, join_path, open_binary, parent_folder
from ..labels import (
    FILE_COLUMNS,
    TARGET_DTYPE,
    Missing,
    column_values,
    fill_targets,
    find_columns,
    is_missing,
    rank_classes,
    select_labeled,
    whole_number,
)
from ..records import Record, records_of
from .base import Index, NamePolicy, Partition
from .files import as_path, open_files


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

    source: str  # the name of the table in messages
    has_labels: bool = False
    is_text: bool = True  # cells are text, also where they mean numbers
    filenames: list[str] = field(default_factory=list)
    offsets: list[int | None] = field(default_factory=list)
    lengths: list[int | None] = field(default_factory=list)
    row_of: list[int] = field(default_factory=list)
    label_of: list[int] = field(default_factory=list)
    labels: dict[Any, int] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    unlabeled: str = ""  # the name of the first row without a label

    def add(self, name: str, offset: int | None, length: int | None, labels: list[Any]) -> bool:
        """Append a row: a file and labels; return True if it has a label."""
        row = len(self.filenames)
        known = self.labels
        codes = []
        for label in labels:
            if label in known:
                codes.append(known[label])
            elif not is_missing(label):
                codes.append(known.setdefault(label, len(known)))
        # One string for all rows of a file: less memory, and look-ups hit the CPU cache.
        self.filenames.append(self.names.setdefault(name, name))
        self.offsets.append(offset)
        self.lengths.append(length)
        self.row_of += [row] * (len(codes) or 1)
        self.label_of += codes or [-1]
        return bool(codes)


def open_table(
    path: str,
    kind: str,
    partition: Partition,
    schemes: tuple[str, ...] | None = None,
    columns: Mapping[str, Any] | None = None,
    missing: Missing = "error",
) -> Index:
    """Open a csv or tsv file."""
    naming = NamePolicy(path, schemes or ())
    rows = _read(path, FORMATS.rows[kind].delimiter, naming, columns)
    check_has_records(len(rows.filenames), path, "there is no row after the header")
    return TableIndex(kind, _prefix(path, kind, naming), rows, partition, missing)


def open_frame(
    frame: Any,
    kind: str,
    partition: Partition,
    columns: Mapping[str, Any] | None = None,
    missing: Missing = "error",
) -> Index:
    """Open a data frame with a column of paths, which are relative to the current folder."""
    names = [str(name).strip() for name in frame.columns]
    positions = _find(names, columns, "the data frame")
    check_has_records(frame.shape[0], "the data frame", "there is no row")
    used = (positions.filename, positions.offset, positions.length, *positions.labels)
    cells = {place: _cells_of(frame[frame.columns[place]]) for place in used if place is not None}
    if len(positions.labels) == 1 and any(isinstance(y, _ROWS) for y in cells[positions.labels[0]]):
        # Targets of several numbers each, which have no place in a table.
        source = {"x": cells[positions.filename], "y": cells[positions.labels[0]]}
        return open_files(source, kind, partition, missing)
    rows = TableRows("the data frame", bool(positions.labels), is_text=False)
    for number in range(frame.shape[0]):
        row = {place: column[number] for place, column in cells.items()}
        name = as_path(row[positions.filename], number)
        labels = [row[place] for place in positions.labels]
        place = f"row {number} of the data frame"
        if not all(isinstance(label, Hashable) for label in labels):
            raise DataError(f"{place} has the labels {labels!r}; they must be numbers or words")
        if not rows.add(name, *_span(row, positions), labels) and not rows.unlabeled:
            rows.unlabeled = place
    return TableIndex(kind, None, rows, partition, missing)


_ROWS = (list, tuple, np.ndarray)


def _cells_of(column: Any) -> list[Any]:
    values = column_values(column)
    if isinstance(values, list):
        return values
    # Items of NumPy for dates, as `tolist` makes numbers of them.
    return [*values] if values.dtype.kind in "mM" else values.tolist()


def is_file_frame(source: Any, columns: Any) -> bool:
    """Return True for a data frame of files: it has a column of paths, or begins with text."""
    if not is_dataframe(source) or len(source.shape) != 2:
        return False
    names = {str(name).strip() for name in getattr(source, "columns", ())}
    if columns is not None or not names.isdisjoint(FILE_COLUMNS):
        return True
    first = np.ravel(source[:1].to_numpy())[:1] if names else ()
    return any(isinstance(x, str | os.PathLike) for x in first)


class TableIndex(Index):
    """The records of a csv or tsv file, in file order.

    Every partition keeps the whole table, by column, as the labels of one record can be in several
    partitions.
    """

    def __init__(
        self,
        kind: str,
        prefix: str | None,
        rows: TableRows,
        partition: Partition,
        missing: Missing,
    ) -> None:
        row_of = np.array(rows.row_of, np.int64)
        label_of = np.array(rows.label_of, np.int64)
        kept = self._find_kept(rows, row_of, label_of, missing)
        filenames = rows.filenames
        offsets = rows.offsets
        lengths = rows.lengths
        if kept is not None:
            self.skipped = len(filenames) - len(kept)
            filenames = [filenames[row] for row in kept.tolist()]
            offsets = [offsets[row] for row in kept.tolist()]
            lengths = [lengths[row] for row in kept.tolist()]
            row_of = row_of[label_of >= 0]
            label_of = label_of[label_of >= 0]
            row_of = np.cumsum(np.diff(row_of, prepend=row_of[:1]) > 0)
        ranked = rank_classes([*rows.labels], rows.is_text)
        self._targets: Array | None = None
        if ranked is None:
            row_of, self._targets = _targets(rows, row_of, label_of)
            ranked = ([], np.zeros(0, np.int64))
            label_of = np.full(len(row_of), -1)
        labels, ranks = ranked
        codes = np.append(ranks, -1)[label_of]
        self._partition = partition
        self._filenames = filenames
        self._offsets = _compact(offsets)
        self._lengths = _compact(lengths)
        self._row_of = _to_array(row_of)
        self._row_starts = _to_array(np.searchsorted(row_of, np.arange(len(filenames) + 1)))
        self._all_codes = _to_array(codes)
        self._count = partition.count(len(row_of))
        is_classified = rows.has_labels and self._targets is None
        super().__init__(kind, prefix, labels, codes[partition.rows] if is_classified else None)

    @staticmethod
    def _find_kept(
        rows: TableRows, row_of: Array, label_of: Array, missing: Missing
    ) -> Array | None:
        """Return the rows to keep, None for all."""
        if not rows.has_labels:
            return None
        unlabeled = np.zeros(len(rows.filenames), bool)
        unlabeled[row_of[label_of < 0]] = True
        return select_labeled(unlabeled, missing, lambda _: f"{rows.unlabeled} has no label")

    def targets(self, numbers: Array) -> Array | None:
        return None if self._targets is None else self._targets[self._partition.place(numbers)]

    def __len__(self) -> int:
        return self._count

    def record(self, number: int) -> Record:
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
            *self._labels_of_records(rows, numbers),
            numbers.tolist(),
        )

    def _urls(self, rows: list[int]) -> list[str]:
        """Return the URLs of rows; each is joined only once, as many rows may share a file."""
        filenames = [self._filenames[row] for row in rows]
        urls = {name: join_path(self.url_prefix, name) for name in set(filenames)}
        return [urls[name] for name in filenames]

    def _labels_of_records(
        self, rows: list[int], numbers: Array
    ) -> tuple[Iterable[Any], Iterable[Any]]:
        if not self.labels:
            return repeat(None), repeat(())
        single = self._labels_at(numbers)
        if len(self._all_codes) > len(self._filenames):  # some rows have several labels
            return single, [self._labels_of(row) for row in rows]
        return single, [() if label is None else (label,) for label in single]

    def _labels_of(self, row: int) -> tuple[Any, ...]:
        first = self._row_starts[row]
        end = self._row_starts[row + 1]
        if end == first + 1:
            code = self._all_codes[first]
            return () if code < 0 else (self.labels[code],)
        return tuple(self.labels[code] for code in self._all_codes[first:end])


def _targets(rows: TableRows, row_of: Array, label_of: Array) -> tuple[Array, Array]:
    """Return the row of each record, and the float32 targets: a number, or one per column."""
    unlabeled = label_of < 0
    numbers = np.array([*map(float, rows.labels)], TARGET_DTYPE)
    values = fill_targets(numbers[label_of[~unlabeled]], unlabeled)
    widths = np.bincount(row_of)
    width = int(widths.max(initial=1))
    if width == 1:
        return row_of, values
    if (widths != width).any():
        raise DataError(
            f"{rows.source} has numbers as labels, {width} in some rows and fewer in others; give "
            "as many in every row, or one column: open_index(source, columns={'label': ...})"
        )
    return np.arange(len(widths)), values.reshape(-1, width)


def _read(
    path: str, delimiter: str, naming: NamePolicy, given: Mapping[str, Any] | None
) -> TableRows:
    with open_binary(path) as file:
        # utf-8-sig: a byte order mark is not part of the first column's name.
        text = io.TextIOWrapper(file, "utf-8-sig", newline="")
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        try:
            header = [name.strip() for name in next(_nonblank(reader), ())]
            columns = _find(header, given, "the header row")
            rows = TableRows(path, bool(columns.labels))
            for cells in _nonblank(reader):
                _add(rows, _pad_row(cells, columns), columns, naming, reader.line_num)
        except (ValueError, csv.Error) as error:
            raise _row_error(path, error, max(reader.line_num, 1)) from error
        text.detach()
    return rows


def _add(
    rows: TableRows, cells: list[str], columns: TableColumns, naming: NamePolicy, line: int
) -> None:
    """Append a row of text; ValueError if it is invalid."""
    name = cells[columns.filename]
    if not name:
        raise ValueError("the file name is empty")
    naming.check(name)
    labels = [cells[place] for place in columns.labels]
    if not rows.add(name, *_span(cells, columns), labels) and not rows.unlabeled:
        rows.unlabeled = f"{rows.source}, line {line}"


def _row_error(path: str, error: Exception, line: int) -> DataError:
    with open_binary(path) as file:
        reason = describe_encoding(file.read(8))
    if reason:
        return DataError(f"{path} {reason}")
    if isinstance(error, UnicodeDecodeError):  # in a block of many lines
        line = _first_invalid_line(path)
        error = ValueError("it is not UTF-8 text")
    return DataError(f"{path}, line {line}: {error}")


def _first_invalid_line(path: str) -> int:
    """Return the number of the first line that is not UTF-8."""
    number = 0
    with open_binary(path) as file, suppress(UnicodeDecodeError):
        for line in file:
            number += 1
            line.decode()
    return number


def _nonblank(reader: Any) -> Iterator[list[str]]:
    return (cells for cells in reader if len(cells) > 1 or (cells and cells[0].strip()))


_MAX = (1 << 63) - 1
_SPAN = ("offset", "length")


def _find(names: list[str], given: Mapping[str, Any] | None, source: str) -> TableColumns:
    positions = find_columns(names, given, source, known=_SPAN)
    offset, length = (names.index(name) if name in names else None for name in _SPAN)
    return TableColumns(len(names), positions.image, offset, length, positions.labels)


def _pad_row(cells: list[str], columns: TableColumns) -> list[str]:
    """Return the cells of a row, with empty ones added to a short row."""
    missing = columns.number - len(cells)
    if missing < 0 and any(cells[columns.number :]):
        raise ValueError(f"{len(cells)} cells under {columns.number} columns")
    return cells + [""] * missing if missing else cells


def _span(cells: Any, columns: TableColumns) -> tuple[int | None, int | None]:
    """Return the offset and the length in a row; None for a missing one."""
    offset = None if columns.offset is None else _number(cells[columns.offset], "offset")
    length = None if columns.length is None else _number(cells[columns.length], "length")
    return offset, length


def _number(cell: Any, noun: str) -> int | None:
    """Return the number of bytes in a cell; None if it is empty."""
    if cell == "" or is_missing(cell):
        return None
    number = whole_number(cell)
    if number is None or not 0 <= number <= _MAX:
        raise DataError(f"{noun} {cell!r} is not a number of bytes")
    return number


def _compact(numbers: list[int | None]) -> array[int]:
    """Return numbers in 8 bytes each, -1 for None; none if all are None."""
    if all(number is None for number in numbers):
        return array("q")
    return array("q", [-1 if number is None else number for number in numbers])


def _to_array(numbers: Array) -> array[int]:
    """Return an `array.array`, whose items are read several times faster than NumPy's."""
    return array("q", numbers.astype(np.int64).tobytes())


def _cell(column: array[int], row: int) -> int | None:
    """Return a number of a column; None if it is empty or the column does not exist."""
    return None if not column or column[row] < 0 else column[row]


def _cells(column: array[int], rows: Array) -> Iterable[int | None]:
    if not column:
        return repeat(None)
    cells = np.frombuffer(column, np.int64)[rows]
    numbers: list[int | None] = cells.tolist()
    return numbers if cells.min(initial=0) >= 0 else [None if n == -1 else n for n in numbers]


def _prefix(path: str, kind: str, naming: NamePolicy) -> str:
    """Return the prefix of file names: the second line of the meta file, else the folder."""
    stem = os.path.splitext(path)[0]
    for own_or_other in (kind, "csv", "tsv"):
        meta = f"{stem}-meta.{own_or_other}"
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

"""RangedIndex, the base class of containers: records that are byte ranges in files, with labels.

`RecordColumns` holds the locations and labels of all records; the module of each container format
fills it. `NumberLabels` and `label_columns` store labels, which `data/labels.py` reads;
`expand_shards` expands wildcards and braces in a path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, partial
from itertools import product, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError
from ...memory import Array
from ..errors import check_has_records
from ..io.filesystem import (
    expand_pattern,
    has_wildcards,
    is_url,
    join_path,
    list_files,
    local_path,
)
from ..io.reader import RangeFile, Reader
from ..io.responses import FileVersion
from ..labels import Missing, is_missing, read_labels, select_labelled
from ..records import Label, Record, records_of
from .base import Index, Partition


class NumberLabels:
    """The labels of n records as float32: 4 bytes a label if all records have equally many.

    width : int or None     labels per record, ignoring records without labels; None if it varies
    are_classes : bool      True if each record has at most one, integral label
    """

    def __init__(self, widths: Array, values: Array) -> None:
        """Store labels: `widths` is the number per record; `values` has them record by record."""
        positive = widths[widths > 0]
        self._starts: Array | None = None
        self.width: int | None = int(positive[0]) if len(positive) else 0
        if (positive != self.width).any():
            self.width = None
            self._starts = np.concatenate(([0], np.cumsum(widths, dtype=np.int64)))
        self.are_classes = self.width in (0, 1) and bool(_is_integral(values).all())
        self._without: frozenset[int] = frozenset()
        if self.width and len(positive) < len(widths):  # a record without labels has a row of NaN
            self._without = frozenset(np.flatnonzero(widths == 0).tolist())
            rows = np.full((len(widths), self.width), np.nan, np.float32)
            rows[widths > 0] = values.reshape(-1, self.width)
            values = rows
        self._values = np.ascontiguousarray(values, np.float32)
        if self.width is not None:
            self._values = self._values.reshape(len(widths), self.width)

    def fill_missing(self, number: float) -> None:
        """Set the label of records without labels."""
        if self._without:
            self._values[sorted(self._without)] = number

    def chosen(self, rows: slice | Array) -> NumberLabels:
        """Return the labels of some records, with the width and are_classes of all records."""
        part = object.__new__(NumberLabels)
        part.width = self.width
        part.are_classes = self.are_classes
        part._starts = None
        part._without = frozenset()
        if self._starts is None:
            part._values = self._values[rows].copy()
            if self._without:
                places = enumerate(np.arange(len(self._values))[rows].tolist())
                part._without = frozenset(n for n, place in places if place in self._without)
            return part
        starts = self._starts[:-1][rows]
        widths = np.diff(self._starts)[rows]
        part._starts = np.concatenate(([0], np.cumsum(widths)))
        part._values = self._values[concatenated_ranges(starts, widths)]
        return part

    def rows(self, numbers: Array) -> Array:
        """Return float32 (n,), or (n, width) for more than one label; NaN for missing labels.

        Raises DataError if the number of labels varies.
        """
        if self._starts is not None:
            raise DataError(
                "records differ in how many labels they have, so the labels are not an array"
            )
        rows: Array = self._values[numbers]
        return rows[:, 0] if self.width == 1 else rows

    def tuples(self, numbers: Array) -> list[tuple[float, ...]]:
        """Return the labels of records as tuples."""
        if self._starts is None:
            tuples = [*map(tuple, self._values[numbers].tolist())]
            if self._without:
                pairs = zip(numbers.tolist(), tuples, strict=True)
                return [() if number in self._without else row for number, row in pairs]
            return tuples
        ends = zip(self._starts[numbers].tolist(), self._starts[numbers + 1].tolist(), strict=True)
        return [tuple(self._values[start:end].tolist()) for start, end in ends]

    def classes(self) -> tuple[list[int], Array]:
        """Return the sorted integral labels of records with one label, and each record's rank.

        The rank is -1 for records with no label, several, or one that is not integral.
        """
        values = self._single()
        integral = _is_integral(values)
        codes = np.full(len(values), -1, np.int32)
        labels, codes[integral] = unique_ranks(values[integral].astype(np.int64))
        return labels, codes

    def _single(self) -> Any:
        """Return the label of each record that has one; NaN for other records."""
        if self.width == 1:
            return self._values[:, 0]
        if self._starts is None:
            return np.full(len(self._values), np.nan, np.float32)
        values = np.full(len(self._starts) - 1, np.nan, np.float32)
        single = np.flatnonzero(np.diff(self._starts) == 1)
        values[single] = self._values[self._starts[single]]
        return values


def unique_ranks(numbers: Array) -> tuple[list[int], Array]:
    """Return the sorted unique numbers, and the rank of each number."""
    low = int(numbers.min(initial=0))
    high = int(numbers.max(initial=0))
    if high - low > 4 * len(numbers):
        labels, codes = np.unique(numbers, return_inverse=True)
        return labels.tolist(), codes
    # Several times faster than sorting.
    present = np.zeros(high - low + 1, bool)
    present[numbers - low] = True
    return (np.flatnonzero(present) + low).tolist(), (np.cumsum(present) - 1)[numbers - low]


def concatenated_ranges(starts: Array, widths: Array) -> Array:
    """Return the concatenation of `arange(start, start + width)` for all starts and widths."""
    first: Array = np.repeat(starts - (np.cumsum(widths) - widths), widths)
    return first + np.arange(len(first))


def _is_integral(values: Array) -> Any:
    """Return a mask of the labels that are integers within int64."""
    with np.errstate(invalid="ignore"):
        return (np.abs(values) < 2.0**62) & (values == np.floor(values))


# Returns a record's content, from the bytes of its range, the URL and the offset.
Unwrap = Callable[[bytes, str, int], Any]
# Returns the error for a record of unknown length, from the URL and the offset.
Explain = Callable[[str, int], Exception]


class RecordColumns(NamedTuple):
    """The locations and labels of all records of a source, in order.

    files            the files; `file` is each record's index in them, None if there is one file
    offsets, lengths int64; length -1 where no record can be read
    positions        positions in the whole source; None if no record is omitted
    names, codes     class labels in order, and the rank of each record's label; -1 for no label
    numbers          all labels, if they are numbers
    unlabelled       True for records without a label; None if the source has no labels
    skipped          the number of omitted records
    found            the text about a source without records: what it has, and what selects some
    """

    files: Sequence[str]
    file: Array | None
    offsets: Array
    lengths: Array
    positions: Array | None = None
    names: Sequence[Label] = ()
    codes: Array | None = None
    numbers: NumberLabels | None = None
    unlabelled: Array | None = None
    skipped: int = 0
    found: str = ""

    def chosen(self, rows: slice | Array) -> RecordColumns:
        """Return copies of the columns with some records."""
        chosen: dict[str, Any] = {}
        for name in ("file", "offsets", "lengths", "positions", "codes"):
            column = getattr(self, name)
            chosen[name] = None if column is None else column[rows].copy()
        if self.positions is None:
            chosen["positions"] = np.arange(len(self.offsets))[rows].copy()
        if self.numbers is not None:
            chosen["numbers"] = self.numbers.chosen(rows)
        return self._replace(**chosen)

    def labelled(self, missing: Missing, describe: Callable[[int], str]) -> RecordColumns:
        """Return the columns with records without a label omitted, or with the target -1.

        Raise DataError if there are any, unless `missing` allows them. `describe` returns a clause
        about a record.
        """
        kept = select_labelled(self.unlabelled, missing, describe)
        if self.numbers is not None and self.unlabelled is not None and missing == -1:
            self.numbers.fill_missing(-1)
        if kept is None:
            return self._replace(unlabelled=None)
        skipped = self.skipped + len(self.offsets) - len(kept)
        return self.chosen(kept)._replace(unlabelled=None, skipped=skipped)


# The versions of the remote files of a source, by URL; filled while they are read.
Versions = dict[str, FileVersion]


def open_part(path: str, versions: Versions) -> RangeFile:
    """Open one of a source's files, and note its version; DataError if it has no bytes."""
    file = RangeFile(path)
    file.check_has_bytes()
    file.note_version(versions)
    return file


class RangedIndex(Index):
    """Records that are byte ranges in files.

    `load` returns their Columns, and enters the versions of remote files into the dict that it
    gets; it is called at the first access to more than the attributes that are known without
    reading.
    """

    _pickled_caches = frozenset({"_data_columns"})  # other processes need not read the files again

    def __init__(
        self,
        kind: str,
        url_prefix: str | None,
        partition: Partition,
        load: Callable[[Versions], RecordColumns],
        unwrap: Unwrap,
        explain: Explain,
    ) -> None:
        self.kind = kind
        self.url_prefix = url_prefix
        self._partition = partition
        self._load = load
        self._versions: Versions = {}
        self._unwrap = unwrap
        self._explain = explain

    def __len__(self) -> int:
        return len(self._data_columns.offsets)

    @property
    def has_images(self) -> bool:  # type: ignore[override]
        """True if records are image files."""
        return self.kind in ("image", "tar")

    @property
    def skipped(self) -> int:  # type: ignore[override]
        """The number of records of the whole source that are omitted: empty, or without a label."""
        return self._data_columns.skipped

    @property
    def label_width(self) -> int | None:
        """The number of labels per record; None if it varies."""
        numbers = self._data_columns.numbers
        return numbers.width if numbers is not None else int(self._codes is not None)

    def label_values(self, numbers: Array) -> Array:
        """Return the labels of these records as float32: (n,), or (n, width) for more than one.

        NaN for a record without labels. Raises DataError if labels are not numbers, or their
        number varies.
        """
        if self._data_columns.numbers is None:
            raise DataError(f"the records of this {self.kind} index have no numbers as labels")
        return self._data_columns.numbers.rows(numbers)

    def record(self, number: int) -> Record:
        return self.records(np.array([number]))[0]

    def records(self, numbers: Array) -> list[Record]:
        """Return records column by column, several times faster than record by record."""
        here = self._data_columns
        offsets, lengths = self._extents(numbers)
        places = numbers if here.positions is None else here.positions[numbers]
        classes = self._classes_of(numbers)
        return records_of(
            self._urls(numbers),
            offsets,
            lengths,
            repeat(None),
            classes,
            self._labels_of(numbers, classes),
            places.tolist(),
        )

    def ranks(self, numbers: Array) -> Array | None:
        """Return the ranks of these records' labels, -1 for no label.

        None if the source has no labels, or their number varies.
        """
        if self.label_width is None:
            return None
        ranks = super().ranks(numbers)
        return None if ranks is None else ranks.astype(np.int64)

    def targets(self, numbers: Array) -> Array | None:
        """Return the labels as float32, unless they are one integral label per record.

        None also if the number of labels varies; a Record has all of its labels.
        """
        labels = self._data_columns.numbers
        if labels is None or not labels.width or labels.are_classes:
            return None
        return labels.rows(numbers)

    def getter(self, reader: Reader) -> Callable[[Record], Any]:
        """Return a function that reads a record's original content through a Reader."""
        return partial(self._read_record, reader)

    @cached_property
    def labels(self) -> list[Label]:  # type: ignore[override]
        """The sorted labels of all partitions."""
        return list(self._data_columns.names)

    @cached_property
    def label_index(self) -> dict[Label, int]:  # type: ignore[override]
        """The rank of each label in `labels`."""
        return {label: rank for rank, label in enumerate(self.labels)}

    @property
    def _codes(self) -> Array | None:  # type: ignore[override]
        return self._data_columns.codes

    @cached_property
    def _data_columns(self) -> RecordColumns:
        columns = self._load(self._versions)
        first, *rest = columns.files
        name = f"{first} and {len(rest)} other files" if rest else first
        check_has_records(len(columns.offsets), name, columns.found)
        return columns if self._partition.parts == 1 else columns.chosen(self._partition.rows)

    def file_version(self, url: str) -> FileVersion | None:
        return self._versions.get(url)

    def _read_record(self, reader: Reader, record: Record) -> Any:
        url = str(record.url)
        offset = record.offset or 0
        if record.length is None:
            raise self._explain(url, offset)
        data = reader.read(url, offset, record.length, self.file_version(url))
        return self._unwrap(data, url, offset)

    def _extents(self, numbers: Array) -> tuple[Any, Any]:
        """Return offsets and lengths; None for unknown ones."""
        lengths = self._data_columns.lengths[numbers].tolist()
        if -1 in lengths:
            lengths = [None if length < 0 else length for length in lengths]
        return self._data_columns.offsets[numbers].tolist(), lengths

    def _urls(self, numbers: Array) -> Any:
        files = self._data_columns.files
        file = self._data_columns.file
        if file is None:
            return repeat(files[0] if files else None)
        return [files[number] for number in file[numbers].tolist()]

    def _classes_of(self, numbers: Array) -> list[Label | None]:
        if self._codes is None:
            return [None] * len(numbers)
        names = [*self.labels, None]
        return [names[code] for code in self._codes[numbers].tolist()]

    def _labels_of(self, numbers: Array, classes: list[Label | None]) -> list[tuple[Any, ...]]:
        """Return all labels per record: its class if it has one, else the numbers."""
        values = self._data_columns.numbers
        if values is None or values.are_classes:
            return [() if label is None else (label,) for label in classes]
        rows = zip(classes, values.tuples(numbers), strict=True)
        return [row if label is None else (label,) for label, row in rows]


_EXACT = 1 << 24  # float32 represents every integer up to this one


class LabelColumns(NamedTuple):
    """The label columns of `RecordColumns`."""

    names: Sequence[Label] = ()
    codes: Array | None = None
    numbers: NumberLabels | None = None
    unlabelled: Array | None = None


def label_columns(values: Sequence[Any], is_labelled: bool = False) -> LabelColumns:
    """Return the columns for labels: per record a number, text, a list of numbers, or None.

    If there is none, records are without a label if the source `is_labelled`.

    Raises ValueError with the position and text for the first value that is not a label, or a list
    beside single labels.
    """
    missing = np.fromiter(map(is_missing, values), bool, len(values))
    present = np.flatnonzero(~missing).tolist()
    if not present:
        codes = np.full(len(values), -1, np.int32)
        return LabelColumns((), codes, None, missing) if is_labelled else LabelColumns()
    are_lists = isinstance(values[present[0]], list)
    for place in present:
        value = values[place]
        if isinstance(value, dict) or (isinstance(value, list) and not _are_numbers(value)):
            raise ValueError(
                place, f"{value!r} is not a label; it must be a number, a word or numbers"
            )
        if isinstance(value, list) is not are_lists:
            noun = "list of numbers" if are_lists else "single label"
            raise ValueError(place, f"{value!r} is not a {noun}, as the labels before it are")
    if are_lists:
        rows = [values[place] for place in present]
        widths = np.zeros(len(values), np.int64)
        widths[present] = [*map(len, rows)]
        numbers = NumberLabels(widths, np.array([x for row in rows for x in row], np.float32))
        return LabelColumns(*numbers.classes(), numbers, missing)
    names, ranks, targets, _ = read_labels(values, "the labels")
    if ranks is None:
        flat = targets[present]
    elif all(isinstance(name, int) and abs(name) <= _EXACT for name in names):
        flat = np.array(names, np.float32)[ranks[present]]
    else:
        return LabelColumns(names, ranks.astype(np.int32), None, missing)
    numbers = NumberLabels((~missing).astype(np.int64), flat)
    return LabelColumns(*numbers.classes(), numbers, missing)


def _are_numbers(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, int | float) for value in values)


_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})")
_MAX_FILES = 10_000_000  # that braces may stand for


def expand_shards(path: str) -> list[str]:
    """Return the files that a path or URL stands for, in the order of its braces; `*` sorted.

    `part-{000..119}.tar`, `{train,test}.tar`, `parts/*.tar`. The path of an existing file stands
    for that file.

    Raises DataError if there are none.
    """
    local = local_path(path)
    if local is not None and Path(local).exists():
        return [path]
    return [file for name in _expanded(path) for file in _matching(name)]


def _expanded(path: str) -> list[str]:
    """Return the paths that braces stand for, the last braces changing fastest."""
    texts = _BRACES.split(path)
    choices = [[*_choices(text)] if index % 2 else [text] for index, text in enumerate(texts)]
    count = 1
    for options in choices:
        count *= len(options)
    if count > _MAX_FILES:
        raise DataError(f"{path} names {count} files, and the most is {_MAX_FILES}")
    return ["".join(parts) for parts in product(*choices)]


def _choices(text: str) -> Iterator[str]:
    """Yield the options of one pair of braces; without `..` and commas, its text with braces."""
    match = _RANGE.fullmatch(text)
    if match is None:
        yield from text.split(",") if "," in text else ["{" + text + "}"]
        return
    first = int(match[1])
    last = int(match[2])
    if abs(last - first) >= _MAX_FILES:
        raise DataError(
            f"{{{text}}} names {abs(last - first) + 1} files, and the most is {_MAX_FILES}"
        )
    width = max(map(len, match.groups())) if "0" in (match[1][0], match[2][0]) else 0
    step = 1 if last >= first else -1
    for number in range(first, last + step, step):
        yield f"{number:0{width}d}"


def _matching(path: str) -> list[str]:
    """Return the sorted files that match a pattern; a path without wildcards as it is."""
    name = path.rpartition("/")[2]
    if is_url(path) and not path.startswith("file://"):
        if not set("*[") & set(name):  # a question mark begins the query of a URL
            return [path]
        folder = path.rpartition("/")[0]
        files = list_files(folder)
        names = [name] if name in files else [file for file in files if fnmatchcase(file, name)]
        paths = [join_path(folder, file) for file in names]
    else:
        if not has_wildcards(path):
            return [path]
        paths = expand_pattern(path.removeprefix("file://"))
    if not paths:
        raise DataError(f"{path} matches no file; check the path")
    return paths

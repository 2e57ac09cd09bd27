"""RangedIndex, the base class of containers: records that are byte ranges in files, with labels.

`RecordColumns` holds the locations and labels of all records; the module of each container format
fills it, with labels of `data/labels.py`. `expand_shards` expands wildcards and braces in a path.
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
    compression_of,
    expand_pattern,
    has_wildcards,
    is_url,
    join_path,
    list_files,
    local_path,
    parent_folder,
)
from ..io.reader import RangeFile, Reader
from ..io.responses import FileVersion
from ..labels import Missing, NumberLabels, select_labeled
from ..records import Label, Record, records_of
from .base import Index, Partition


def concatenated_ranges(starts: Array, widths: Array) -> Array:
    """Return the concatenation of `arange(start, start + width)` for all starts and widths."""
    first: Array = np.repeat(starts - (np.cumsum(widths) - widths), widths)
    return first + np.arange(len(first))


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
    unlabeled       True for records without a label; None if the source has no labels
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
    unlabeled: Array | None = None
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

    def labeled(self, missing: Missing, describe: Callable[[int], str]) -> RecordColumns:
        """Return the columns with records without a label omitted, or with the target -1.

        Raise DataError if there are any, unless `missing` allows them. `describe` returns a clause
        about a record.
        """
        kept = select_labeled(self.unlabeled, missing, describe)
        if self.numbers is not None and self.unlabeled is not None and missing == -1:
            self.numbers.fill_missing(-1)
        if kept is None:
            return self._replace(unlabeled=None)
        skipped = self.skipped + len(self.offsets) - len(kept)
        return self.chosen(kept)._replace(unlabeled=None, skipped=skipped)


# The versions of the remote files of a source, by URL; filled while they are read.
Versions = dict[str, FileVersion]


def open_part(path: str, versions: Versions) -> RangeFile:
    """Open one of a source's files, and note its version; DataError if it has no bytes."""
    file = RangeFile(path)
    file.check_has_bytes()
    file.note_version(versions)
    return file


def check_uncompressed(file: RangeFile) -> None:
    """Raise DataError for a file that is compressed as a whole, in which no record is found."""
    head = file.read_at(0, 8)
    # The header of zlib: method 8, a window of 32 KiB, and a multiple of 31.
    is_zlib = head[:1] == b"\x78" and int.from_bytes(head[:2], "big") % 31 == 0
    name = compression_of(head) or ("zlib" if is_zlib else None)
    if name is not None:
        raise DataError(
            f"{file.url} is compressed ({name}), so that records cannot be read one by one; unpack "
            "it; compression makes images hardly smaller"
        )


def number_files(counts: Sequence[int]) -> Array | None:
    """Return the number of each record's file, from the records of each; None for one file."""
    return np.repeat(np.arange(len(counts), dtype=np.int32), counts) if len(counts) > 1 else None


class RangedIndex(Index):
    """Records that are byte ranges in files.

    `load(versions)` returns their columns, and adds the versions of remote files to the dict
    `versions`. It is called at once for local files, and for remote files at the first access to
    records or labels.
    """

    _pickled_caches = frozenset({"_data_columns"})  # other processes need not read the files again

    def __init__(
        self,
        kind: str,
        files: list[str],
        partition: Partition,
        load: Callable[[Versions], RecordColumns],
        unwrap: Unwrap,
        explain: Explain,
    ) -> None:
        self.kind = kind
        self.url_prefix = parent_folder(files[0])
        self._partition = partition
        self._load = load
        self._versions: Versions = {}
        self._unwrap = unwrap
        self._explain = explain
        if all(local_path(file) is not None for file in files):
            len(self)  # loads local files now, so that their errors are raised here

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
        classes = self._labels_at(numbers)
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

    def _labels_of(self, numbers: Array, classes: list[Label | None]) -> list[tuple[Any, ...]]:
        """Return all labels per record: its class if it has one, else the numbers."""
        values = self._data_columns.numbers
        if values is None or values.are_classes:
            return [() if label is None else (label,) for label in classes]
        rows = zip(classes, values.tuples(numbers), strict=True)
        return [row if label is None else (label,) for label, row in rows]


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

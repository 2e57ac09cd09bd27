"""Records that are parts of files: byte ranges in one file or several, with labels.

What all containers of records share. Knows columns; which file holds what, and what is around a
record's bytes, only the kinds of container know.

The labels of records that are numbers: any number of them a record.

Knows numbers; where they come from only the kinds of index know.

Labels of any kind, one thing a record, as the columns of an index.

Knows whole numbers, words, and numbers of which a record may have several; where they come from
only the kinds of index know.

The files that a path with wildcards or braces means.

Knows names; opens nothing.
"""

from __future__ import annotations

import glob
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
from ..io.filesystem import is_url, join_path, list_files, local_path
from ..io.reader import Reader
from ..records import Label, Record, records_of
from .base import Index, Partition


class NumberLabels:
    """The labels of n records, as float32: 4 bytes a label, where all records have as many.

    width : int or None     how many each record has, those left aside that have none; None where
                            they differ
    are_classes : bool      whether each is one integral label
    """

    def __init__(self, widths: Array, values: Array) -> None:
        """`widths` says how many each record has; `values` are all of them, record by record."""
        given = widths[widths > 0]
        self._starts: Array | None = None
        self.width: int | None = int(given[0]) if len(given) else 0
        if (given != self.width).any():
            self.width = None
            self._starts = np.concatenate(([0], np.cumsum(widths, dtype=np.int64)))
        self.are_classes = self.width in (0, 1) and bool(_is_whole(values).all())
        self._without: frozenset[int] = frozenset()
        if self.width and len(given) < len(widths):  # those without have a row all the same
            self._without = frozenset(np.flatnonzero(widths == 0).tolist())
            rows = np.full((len(widths), self.width), np.nan, np.float32)
            rows[widths > 0] = values.reshape(-1, self.width)
            values = rows
        self._values = np.ascontiguousarray(values, np.float32)
        if self.width is not None:
            self._values = self._values.reshape(len(widths), self.width)

    def chosen(self, rows: slice) -> NumberLabels:
        """Those of some records; width and are_classes stay those of all."""
        part = object.__new__(NumberLabels)
        part.width, part.are_classes = self.width, self.are_classes
        part._starts, part._without = None, frozenset()
        if self._starts is None:
            part._values = self._values[rows].copy()
            if self._without:
                places = enumerate(range(len(self._values))[rows])
                part._without = frozenset(n for n, place in places if place in self._without)
            return part
        starts, widths = self._starts[:-1][rows], np.diff(self._starts)[rows]
        part._starts = np.concatenate(([0], np.cumsum(widths)))
        part._values = self._values[spread(starts, widths)]
        return part

    def rows(self, numbers: Array) -> Array:
        """float32 (n,), or (n, width) for more than one; NaN for a record without.

        Raises DataError where records differ in how many they have.
        """
        if self._starts is not None:
            raise DataError("records differ in how many labels they have, which are no array then")
        found: Array = self._values[numbers]
        return found[:, 0] if self.width == 1 else found

    def tuples(self, numbers: Array) -> list[tuple[float, ...]]:
        """The labels of records as they are."""
        if self._starts is None:
            found = [*map(tuple, self._values[numbers].tolist())]
            if self._without:
                pairs = zip(numbers.tolist(), found, strict=True)
                return [() if number in self._without else row for number, row in pairs]
            return found
        ends = zip(self._starts[numbers].tolist(), self._starts[numbers + 1].tolist(), strict=True)
        return [tuple(self._values[start:end].tolist()) for start, end in ends]

    def classes(self) -> tuple[list[int], Array]:
        """The integral labels of records that have one, sorted, and each record's rank.

        It is -1 for records that have none, several, or one that is not integral.
        """
        values = self._single()
        whole = _is_whole(values)
        codes = np.full(len(values), -1, np.int32)
        labels, codes[whole] = ranked(values[whole].astype(np.int64))
        return labels, codes

    def _single(self) -> Any:
        """The label of each record that has one; NaN for the others."""
        if self.width == 1:
            return self._values[:, 0]
        if self._starts is None:
            return np.full(len(self._values), np.nan, np.float32)
        found = np.full(len(self._starts) - 1, np.nan, np.float32)
        alone = np.flatnonzero(np.diff(self._starts) == 1)
        found[alone] = self._values[self._starts[alone]]
        return found


def ranked(numbers: Array) -> tuple[list[int], Array]:
    """The numbers that there are, sorted, and the rank of each."""
    low, high = int(numbers.min(initial=0)), int(numbers.max(initial=0))
    if high - low > 4 * len(numbers):
        labels, codes = np.unique(numbers, return_inverse=True)
        return labels.tolist(), codes
    # Several times faster than to sort them all.
    there = np.zeros(high - low + 1, bool)
    there[numbers - low] = True
    return (np.flatnonzero(there) + low).tolist(), (np.cumsum(there) - 1)[numbers - low]


def spread(starts: Array, widths: Array) -> Array:
    """start, start + 1, ... start + width - 1 of each, one after the other."""
    first: Array = np.repeat(starts - (np.cumsum(widths) - widths), widths)
    return first + np.arange(len(first))


def _is_whole(values: Array) -> Any:
    """Which labels are whole numbers of which int64 has room."""
    with np.errstate(invalid="ignore"):
        return (np.abs(values) < 2.0**62) & (values == np.floor(values))


# What a record is, by the bytes of its range, the URL and the offset.
Unwrap = Callable[[bytes, str, int], Any]
# Why a record of unknown length cannot be read, by the URL and the offset.
Explain = Callable[[str, int], Exception]


class Columns(NamedTuple):
    """What there is to know of all records of a source, in their order.

    files            the files; `file` has the number of each record's, None where there is one
    offsets, lengths int64; length -1 for a place where no record can be read
    positions        places in the whole source; None where none is left out
    names, codes     labels that are classes, sorted, and the rank of each record's; -1 for none
    numbers          all labels, where they are numbers
    skipped          how many records are left out
    """

    files: Sequence[str]
    file: Array | None
    offsets: Array
    lengths: Array
    positions: Array | None = None
    names: Sequence[Label] = ()
    codes: Array | None = None
    numbers: NumberLabels | None = None
    skipped: int = 0

    def chosen(self, partition: Partition) -> Columns:
        """The records of a partition, in memory of their own."""
        if partition.parts == 1:
            return self
        rows: dict[str, Any] = {}
        for name in ("file", "offsets", "lengths", "positions", "codes"):
            column = getattr(self, name)
            rows[name] = None if column is None else column[partition.rows].copy()
        if self.positions is None:
            rows["positions"] = np.arange(len(self.offsets))[partition.rows].copy()
        if self.numbers is not None:
            rows["numbers"] = self.numbers.chosen(partition.rows)
        return self._replace(**rows)


class RangedIndex(Index):
    """Records that lie in files side by side, each a range of bytes.

    `load` gives what is known of them; it is called when somebody first asks for more than the
    index itself.
    """

    def __init__(
        self, kind: str, url_prefix: str | None, partition: Partition,
        load: Callable[[], Columns], unwrap: Unwrap, explain: Explain,
    ) -> None:  # fmt: skip
        self.kind, self.url_prefix, self._partition = kind, url_prefix, partition
        self._load, self._unwrap, self._explain = load, unwrap, explain

    def __len__(self) -> int:
        return len(self._here.offsets)

    @property
    def of_pictures(self) -> bool:  # type: ignore[override]
        """Whether records are files of pictures."""
        return self.kind in ("image", "tar")

    @property
    def skipped(self) -> int:
        """How many records of the whole source are left out, as there is nothing in them."""
        return self._here.skipped

    @property
    def label_width(self) -> int | None:
        """How many labels each record has; None where they differ in that."""
        numbers = self._here.numbers
        return numbers.width if numbers is not None else int(self._codes is not None)

    def label_values(self, numbers: Array) -> Array:
        """The labels of these records as float32: (n,), or (n, width) for more than one.

        NaN for a record that has none. Raises DataError where they are no numbers, or records
        differ in how many they have.
        """
        if self._here.numbers is None:
            raise DataError(f"the records of this {self.kind} index have no numbers as labels")
        return self._here.numbers.rows(numbers)

    def record(self, number: int) -> Record:
        """A range of bytes, with its labels."""
        return self.records(np.array([number]))[0]

    def records(self, numbers: Array) -> list[Record]:
        """Column by column, several times faster than record by record."""
        here = self._here
        offsets, lengths = self._extents(numbers)
        places = numbers if here.positions is None else here.positions[numbers]
        found = self._classes_of(numbers)
        return records_of(
            self._urls(numbers),
            offsets,
            lengths,
            repeat(None),
            found,
            self._labels_of(numbers, found),
            places.tolist(),
        )

    def ranks(self, numbers: Array) -> Array | None:
        """The ranks of these records' labels, -1 for none; None where the source has no labels.

        Or where records differ in how many labels they have.
        """
        if self.label_width is None:
            return None
        found = super().ranks(numbers)
        return None if found is None else found.astype(np.int64)

    def targets(self, numbers: Array) -> Array | None:
        """The labels as float32, where they are other than one integral label a record.

        None where records differ in how many they have; a Record has them all.
        """
        found = self._here.numbers
        if found is None or not found.width or found.are_classes:
            return None
        return found.rows(numbers)

    def getter(self, reader: Reader) -> Callable[[Record], Any]:
        """What gives a record as it was put into its file, through a Reader."""
        return partial(self._got, reader)

    @cached_property
    def labels(self) -> list[Label]:  # type: ignore[override]
        """Of all partitions, sorted."""
        return list(self._here.names)

    @cached_property
    def label_index(self) -> dict[Label, int]:  # type: ignore[override]
        """From a label to its rank."""
        return {label: rank for rank, label in enumerate(self.labels)}

    @property
    def _codes(self) -> Array | None:  # type: ignore[override]
        return self._here.codes

    @cached_property
    def _here(self) -> Columns:
        return self._load().chosen(self._partition)

    def _got(self, reader: Reader, record: Record) -> Any:
        url, offset = str(record.url), record.offset or 0
        if record.length is None:
            raise self._explain(url, offset)
        return self._unwrap(reader.read(url, offset, record.length), url, offset)

    def _extents(self, numbers: Array) -> tuple[Any, Any]:
        """Offsets and lengths, None for what is unknown."""
        lengths = self._here.lengths[numbers].tolist()
        if -1 in lengths:
            lengths = [None if length < 0 else length for length in lengths]
        return self._here.offsets[numbers].tolist(), lengths

    def _urls(self, numbers: Array) -> Any:
        files, file = self._here.files, self._here.file
        if file is None:
            return repeat(files[0] if files else None)
        return [files[number] for number in file[numbers].tolist()]

    def _classes_of(self, numbers: Array) -> list[Label | None]:
        if self._codes is None:
            return [None] * len(numbers)
        names = [*self.labels, None]
        return [names[code] for code in self._codes[numbers].tolist()]

    def _labels_of(self, numbers: Array, found: list[Label | None]) -> list[tuple[Any, ...]]:
        """All labels: the class where there is one, else the numbers."""
        known = self._here.numbers
        if known is None or known.are_classes:
            return [() if label is None else (label,) for label in found]
        rows = zip(found, known.tuples(numbers), strict=True)
        return [row if label is None else (label,) for label, row in rows]


_EXACT = 1 << 24  # up to which float32 has every integer


class Labelled(NamedTuple):
    """What an index keeps of labels, as `Columns` has them."""

    names: Sequence[Label] = ()
    codes: Array | None = None
    numbers: NumberLabels | None = None


def labelled(values: Sequence[Any]) -> Labelled:
    """The columns of labels: of each record a whole number, a word, numbers, or None for none.

    Raises ValueError with the place of the first that is another kind of thing than those before.
    """
    known: str | None = None
    for place, value in enumerate(values):
        kind = _kind(value)
        if kind is None and value is not None:
            raise ValueError(place, f"{value!r} is no label; it is a number, a word, or numbers")
        if kind is not None and known not in (None, kind):
            raise ValueError(place, f"{value!r} is no {known}, as the labels before it are")
        known = known or kind
    if known is None:
        return Labelled()
    if known == "number":
        numbers = _numbers(values)
        if numbers is not None:
            return Labelled(*numbers.classes(), numbers)
    names = sorted({value for value in values if value is not None})
    ranks = {name: rank for rank, name in enumerate(names)}
    codes = [-1 if value is None else ranks[value] for value in values]
    return Labelled(names, np.array(codes, np.int32))


def _numbers(values: Sequence[Any]) -> NumberLabels | None:
    """Of records that have one number or several; None for integers that float32 cannot hold."""
    rows = [() if v is None else v if isinstance(v, list) else (v,) for v in values]
    flat = [number for row in rows for number in row]
    if all(isinstance(v, int | None) for v in values) and any(abs(v) > _EXACT for v in flat):
        return None
    return NumberLabels(np.array([*map(len, rows)], np.int64), np.array(flat, np.float32))


def _kind(value: Any) -> str | None:
    """ "word", or "number"; None for what is neither."""
    if isinstance(value, str):
        return "word"
    several = value if isinstance(value, list) else [value]
    plain = all(isinstance(each, int | float) for each in several)
    return "number" if plain and several else None


_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})")
_MOST = 10_000_000  # files that braces may mean


def shards_of(path: str) -> list[str]:
    """The files that a path or URL means: in the order of its braces, those of `*` by name.

    `part-{000..119}.tar`, `{train,test}.tar`, `parts/*.tar`. A path that is a file is that file.

    Raises DataError where there are none.
    """
    local = local_path(path)
    if local is not None and Path(local).exists():
        return [path]
    return [file for name in _expanded(path) for file in _matching(name)]


def _expanded(path: str) -> list[str]:
    """The names that braces stand for, the last braces changing fastest."""
    texts = _BRACES.split(path)
    choices = [[*_choices(text)] if place % 2 else [text] for place, text in enumerate(texts)]
    count = 1
    for each in choices:
        count *= len(each)
    if count > _MOST:
        raise DataError(f"{path} names {count} files, and the most is {_MOST}")
    return ["".join(parts) for parts in product(*choices)]


def _choices(text: str) -> Iterator[str]:
    """What one pair of braces may be; without `..` and commas it is what it says."""
    span = _RANGE.fullmatch(text)
    if span is None:
        yield from text.split(",") if "," in text else ["{" + text + "}"]
        return
    first, last = int(span[1]), int(span[2])
    if abs(last - first) >= _MOST:
        raise DataError(f"{{{text}}} names {abs(last - first) + 1} files, and the most is {_MOST}")
    width = max(map(len, span.groups())) if "0" in (span[1][0], span[2][0]) else 0
    step = 1 if last >= first else -1
    for number in range(first, last + step, step):
        yield f"{number:0{width}d}"


def _matching(path: str) -> list[str]:
    """The files whose names fit, sorted; a path without wildcards is itself."""
    name = path.rpartition("/")[2]
    if is_url(path) and not path.startswith("file://"):
        if not set("*[") & set(name):  # a question mark begins the query of a URL
            return [path]
        folder = path.rpartition("/")[0]
        found = [join_path(folder, each) for each in list_files(folder) if fnmatchcase(each, name)]
    else:
        if not set("*?[") & set(path):
            return [path]
        found = sorted(glob.glob(path.removeprefix("file://")))  # noqa: PTH207  # absolute ones, too
    if not found:
        raise DataError(f"{path} names no file; check the path")
    return found

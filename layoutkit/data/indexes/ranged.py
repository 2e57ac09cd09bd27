"""Records that are parts of files: byte ranges in one file or several, with labels.

What all containers of records share. Knows columns; which file holds what, and what is around a
record's bytes, only the kinds of container know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError
from ...memory import Array
from ..reading.reader import Reader
from ..records import Label, Record, records_of
from .base import Index
from .numberlabels import NumberLabels
from .partition import Partition

__all__ = ["Columns", "Explain", "RangedIndex", "Unwrap"]

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

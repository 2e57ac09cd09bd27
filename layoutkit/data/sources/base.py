"""Index, the base class of all sources: a sequence of records, also by label.

Also partitions of a source, and the policy for file names in a table. A table may come from an
untrusted author, and file systems of fsspec do more than read: chains of them unpack, cache and
render templates. So by default a cell may only name files at the table's own scheme or on web
servers; other schemes have to be allowed by the caller.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from html import escape
from typing import Any, NamedTuple, overload

import numpy as np

from ..._utils.indexing import normalize_index, normalize_slice
from ..._utils.pickling import UncachedState
from ...errors import DataError
from ...memory import Array
from ..errors import OutOfRange
from ..io.filesystem import is_url
from ..io.reader import Reader
from ..io.responses import FileVersion
from ..records import Label, Record


class Partition(NamedTuple):
    """Part `part` of `parts`: records part, part + parts, part + 2 parts, ... of the source."""

    part: int
    parts: int

    @property
    def rows(self) -> slice:
        """The records of this partition, as a slice of the source."""
        return slice(self.part, None, self.parts)

    def __str__(self) -> str:
        return f"{self.part} of {self.parts}"

    def count(self, total: int) -> int:
        """Return the number of records in this partition of a source of `total` records."""
        return len(range(self.part, total, self.parts))

    def place(self, number: Any) -> Any:
        """Return the source's number of record `number` of this partition; also for arrays."""
        return self.part + number * self.parts


class Groups(NamedTuple):
    """Record numbers by group: group g is `members[starts[g] : starts[g] + counts[g]]`."""

    members: Array
    starts: Any
    counts: Any


def group_by_code(codes: Array, number: int) -> Groups:
    """Return the ascending positions of 0, 1, .. number-1 in `codes`; -1 is in no group."""
    members = np.argsort(codes, kind="stable")
    counts = np.bincount(codes[codes >= 0], minlength=number)
    return Groups(members[np.count_nonzero(codes < 0) :], np.cumsum(counts) - counts, counts)


class Index(UncachedState, Sequence[Record]):
    """A source of records: their order and their labels.

    Returned by `open_index`. A sequence of `Record`: numbers count from 0, negative ones from the
    end.

    `records`, `rows`, `ranks` and `targets` read many records at once, as columns; they accept an
    int64 array of nonnegative numbers.

    Attributes
    ----------
    kind : str
        "csv", "tsv", "directory", "files", "items", "parts", "tensor", "zarr" or the kind of a
        container.
    url_prefix : str
        The prefix of relative file names; None for arrays.
    labels : list
        The labels of all partitions, also those without records in this one, in order: whole
        numbers, also as text, as numbers, other names as text; the `classes` of a file of arrays
        in their own order.
    label_index : dict
        The rank of each label in `labels`.
    partition : (part, parts)
        The part of the source's records that this index contains.
    skipped : int
        The number of records of the whole source that are omitted, such as those without a label
        if `missing="drop"`.
    """

    skipped = 0  # records of the whole source that are omitted
    in_memory = False  # True if the records are rows of a NumPy array
    # Records in a chunk, and the number of chunks to shuffle together; None: not in chunks.
    chunk_window: tuple[int, int] | None = None
    has_images = False  # True if the records are image files, whatever their names are
    _partition = Partition(0, 1)

    def __init__(
        self, kind: str, url_prefix: str | None, labels: Sequence[Label], codes: Array | None
    ) -> None:
        self.kind = kind
        self.url_prefix = url_prefix
        self.labels = list(labels)
        self.label_index = {label: rank for rank, label in enumerate(labels)}
        self._codes = codes  # the rank of each record's label, -1 if it has no label

    @property
    def partition(self) -> Partition:
        """The part of the source's records that this index contains: (part, parts)."""
        return self._partition

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def record(self, number: int) -> Record:
        """Return the record of a valid number: `item_at` without checks."""

    def records(self, numbers: Array) -> list[Record]:
        """Return the records of valid numbers."""
        return [self.record(number) for number in numbers.tolist()]

    def rows(self, numbers: Array) -> Array:
        """Return the arrays of these records, copied into one; only if they are `in_memory`."""
        raise DataError(f"the records of a {self.kind} index are not rows of an array")

    @property
    def source(self) -> Array:
        """The array whose rows are all records; only if they are `in_memory`."""
        raise DataError(f"the records of a {self.kind} index are not rows of an array")

    def ranks(self, numbers: Array) -> Array | None:
        """Return the ranks of the records' labels, -1 for no label; None without any labels."""
        if self._codes is None:
            return None
        return self._codes[numbers]

    def _label_at(self, number: int) -> tuple[Label | None, tuple[Label, ...]]:
        """Return the label of a record, and all of its labels."""
        code = -1 if self._codes is None else int(self._codes[number])
        return (None, ()) if code < 0 else (self.labels[code], (self.labels[code],))

    def _labels_at(self, numbers: Array) -> list[Label | None]:
        """Return the label of each of these records."""
        if self._codes is None:
            return [None] * len(numbers)
        names = [*self.labels, None]
        return [names[code] for code in self._codes[numbers].tolist()]

    def targets(self, numbers: Array) -> Array | None:
        """Return the source's targets of these records, other than labels; or None."""
        return None

    def getter(self, reader: Reader) -> Callable[[Record], Any]:
        """Return a function that reads a record's array or bytes through a Reader."""
        return reader.get

    def file_version(self, url: str) -> FileVersion | None:
        """Return the version that a remote file had when its records were located, if known."""
        return None

    def members(self, label: Label) -> Array:
        """Return the numbers of the records with a label; DataError if the label is unknown."""
        rank = self._rank(label)
        start = self.groups.starts[rank]
        return self.groups.members[start : start + self.groups.counts[rank]]

    @cached_property
    def groups(self) -> Groups:
        """The records of each label."""
        codes = np.full(len(self), -1) if self._codes is None else self._codes
        return group_by_code(codes, len(self.labels))

    def item_count(self, label: Label | None = None) -> int:
        """Return the number of records in this partition, with a label if one is given.

        Raises
        ------
        DataError
            No partition of the source has this label.
        """
        if label is None:
            return len(self)
        return int(self.groups.counts[self._rank(label)])

    def item_at(self, i: int, label: Label | None = None) -> Record:
        """Return record number i, or the i-th of the records with a label, in index order.

        Raises
        ------
        DataError
            There is no such record (an IndexError, too) or no such label.
        """
        if label is None:
            return self.record(normalize_index(i, len(self), "records", OutOfRange))
        members = self.members(label)
        noun = f"records with label {label!r}"
        return self.record(int(members[normalize_index(i, len(members), noun, OutOfRange)]))

    @overload
    def __getitem__(self, i: int) -> Record: ...

    @overload
    def __getitem__(self, i: slice) -> list[Record]: ...

    def __getitem__(self, i: int | slice) -> Record | list[Record]:
        if not isinstance(i, slice):
            return self.item_at(i)
        return [self.record(number) for number in normalize_slice(i, len(self), OutOfRange)]

    def _repr_html_(self) -> str:
        shown = "\n".join(repr(record) for record in self[:5])
        rest = "\n..." if len(self) > 5 else ""
        return f"<pre>{escape(repr(self))}\n{escape(shown)}{rest}</pre>"

    def __repr__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"<{self.kind} index of {len(self)} records, {len(self.labels)} labels{skipped}>"

    def _rank(self, label: Any) -> int:
        try:
            return self.label_index[label]
        except (KeyError, TypeError):
            raise DataError(f"no label {label!r}; there are {label_list(self.labels)}") from None


def label_list(labels: Sequence[Any]) -> str:
    """Return the first ten labels as text for a message."""
    shown = ", ".join(map(repr, labels[:10]))
    return (shown + (", ..." if len(labels) > 10 else "")) or "none"


_LOCAL = "file"
_WEB = ("http", "https")


class NamePolicy:
    """The rules for the file names that the cells of a table may contain.

    Parameters
    ----------
    index : str
        The path or URL of the table, whose scheme is always allowed.
    schemes : tuple of str
        Other schemes that are allowed; "file" for local files.
    """

    def __init__(self, index: str, schemes: tuple[str, ...]) -> None:
        self._own = _scheme_of(index)
        self._allowed = tuple(dict.fromkeys((self._own, *_WEB, *schemes)))

    def check(self, name: str) -> None:
        """Raise ValueError if a file name is not allowed."""
        if is_url(name):
            self._check_scheme(name, _scheme_of(name))
        elif name.startswith("/") or os.path.isabs(name):  # as `join_path` decides
            self._check_scheme(name, _LOCAL)
        if "::" in name and (is_url(name) or self._own != _LOCAL):
            raise ValueError(f"{name!r} chains file systems (::), which an index may not")

    def check_prefix(self, prefix: str) -> None:
        """Raise ValueError if a prefix of names is not allowed: a URL's relative one is local."""
        self._check_scheme(prefix, _scheme_of(prefix))
        if is_url(prefix) and "::" in prefix:
            raise ValueError(f"{prefix!r} chains file systems (::), which an index may not")

    def _check_scheme(self, name: str, scheme: str) -> None:
        if scheme in self._allowed:
            return
        target = "a local file" if scheme == _LOCAL else f"a file at {scheme}://"
        raise ValueError(
            f"{name!r} names {target}, and an index of this kind names {', '.join(self._allowed)}; "
            f"open_index(..., schemes=({scheme!r},)) allows it"
        )


def check_schemes(schemes: Any) -> tuple[str, ...]:
    """Return the allowed schemes as a tuple; DataError unless they are words."""
    if not isinstance(schemes, tuple | list | set | frozenset) or not all(
        isinstance(scheme, str) and scheme and "://" not in scheme for scheme in schemes
    ):
        raise DataError(f"schemes={schemes!r}; they must be a tuple of words, as in ('file', 's3')")
    return tuple(schemes)


def _scheme_of(path: str) -> str:
    """Return the scheme of a path or URL; for a chain, the last one, where the files are."""
    return path.partition("://")[0].rpartition("::")[2] if is_url(path) else _LOCAL

"""What every index can do: a sequence of records, also by label.

Knows numbers, labels and ranks; where records come from only the kinds of index know.

Which records a partition holds.

Knows arithmetic, and nothing of records.

Which files an index may name.

A table may come from anybody, and a file system of fsspec may do more than read: chains of them
unpack, cache and render templates. So a cell names what its index is made of, or what a web server
has; all else has to be asked for.

Knows names and schemes; opens nothing.
"""

from __future__ import annotations

import operator
import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np

from ...errors import DataError
from ...memory import Array
from ..errors import OutOfRange
from ..io.filesystem import is_url
from ..io.reader import Reader
from ..records import Label, Record


class Partition(NamedTuple):
    """Number `part` of `parts`: records part, part + parts, part + 2 parts, ... of the whole."""

    part: int
    parts: int

    @property
    def rows(self) -> slice:
        """The records here, as a slice of the whole."""
        return slice(self.part, None, self.parts)

    def __str__(self) -> str:
        return f"{self.part} of {self.parts}"

    def count(self, whole: int) -> int:
        """How many of `whole` records are here."""
        return len(range(self.part, whole, self.parts))

    def place(self, number: Any) -> Any:
        """Where record `number` of this partition stands in the whole; an array of them, too."""
        return self.part + number * self.parts


class Groups(NamedTuple):
    """The numbers of records, group by group: `members[starts[g] : starts[g] + counts[g]]`."""

    members: Array
    starts: Any
    counts: Any


def grouped(codes: Array, number: int) -> Groups:
    """The places of 0, 1, .. number-1 in `codes`, each in rising order; -1 is in no group."""
    members = np.argsort(codes, kind="stable")
    counts = np.bincount(codes[codes >= 0], minlength=number)
    return Groups(members[np.count_nonzero(codes < 0) :], np.cumsum(counts) - counts, counts)


class Index(Sequence[Record]):
    """Which records there are, in which order, with which labels.

    Made by `open_index`. A sequence of `Record`: numbers count from 0, negative ones from the
    end.

    Who reads many records at once takes `records`, `rows`, `ranks` and `targets`: columns, by an
    int64 array of numbers that count from 0.

    Attributes
    ----------
    kind : str
        "csv", "tsv", "directory", "parts", "tensor", "zarr" or that of a container.
    url_prefix : str
        What relative file names begin with; None for arrays.
    labels : list
        Sorted, of all partitions, whether this one has such records or not.
    label_index : dict
        From a label to its rank among them.
    partition : (part, parts)
        Which of the whole source's records are here.
    """

    in_memory = False  # whether the records are rows of a NumPy array
    of_pictures = False  # whether they are files of pictures, whatever their names are
    _partition = Partition(0, 1)

    def __init__(
        self, kind: str, url_prefix: str | None, labels: Sequence[Label], codes: Array | None
    ) -> None:
        self.kind = kind
        self.url_prefix = url_prefix
        self.labels = list(labels)
        self.label_index = {label: rank for rank, label in enumerate(labels)}
        self._codes = codes  # the rank of each record's label here, -1 for none

    @property
    def partition(self) -> Partition:
        """Which of the whole source's records are here: (part, parts)."""
        return self._partition

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def record(self, number: int) -> Record:
        """The record of a number that is known to be there: `item_at` without its checks."""

    def records(self, numbers: Array) -> list[Record]:
        """The records of numbers that are known to be there."""
        return [self.record(number) for number in numbers.tolist()]

    def rows(self, numbers: Array) -> Array:
        """The arrays of these records, copied into one; only where they are `in_memory`."""
        raise DataError(f"the records of a {self.kind} index are no rows of an array")

    @property
    def source(self) -> Array:
        """The array of which all records are rows; only where they are `in_memory`."""
        raise DataError(f"the records of a {self.kind} index are no rows of an array")

    def ranks(self, numbers: Array) -> Array | None:
        """The ranks of these records' labels, -1 for none; None where the source has no labels."""
        if not self.labels or self._codes is None:
            return None
        found: Array = self._codes[numbers]
        return found

    def targets(self, numbers: Array) -> Array | None:
        """What the source gives as targets of these records besides labels, or None."""
        return None

    def getter(self, reader: Reader) -> Callable[[Record], Any]:
        """What gives a record's array or bytes, through a Reader."""
        return reader.get

    def members(self, label: Label) -> Array:
        """The numbers of the records with a label; DataError where the source has no such label."""
        rank = self._rank(label)
        start = self.groups.starts[rank]
        return self.groups.members[start : start + self.groups.counts[rank]]

    @cached_property
    def groups(self) -> Groups:
        """The records of each label."""
        codes = np.full(len(self), -1) if self._codes is None else self._codes
        return grouped(codes, len(self.labels))

    def item_count(self, label: Label | None = None) -> int:
        """The number of records here, or of those with a label.

        Raises
        ------
        DataError
            The whole source has no such label.
        """
        if label is None:
            return len(self)
        return int(self.groups.counts[self._rank(label)])

    def item_at(self, i: int, label: Label | None = None) -> Record:
        """Record number i, or the i-th of those with a label, in index order.

        Raises
        ------
        DataError
            There is no such record (an IndexError, too) or no such label.
        """
        if label is None:
            return self.record(in_range(i, len(self), "record"))
        members = self.members(label)
        return self.record(int(members[in_range(i, len(members), f"record with label {label!r}")]))

    @overload
    def __getitem__(self, i: int) -> Record: ...

    @overload
    def __getitem__(self, i: slice) -> list[Record]: ...

    def __getitem__(self, i: int | slice) -> Record | list[Record]:
        if not isinstance(i, slice):
            return self.item_at(i)
        try:
            numbers = range(len(self))[i]
        except (TypeError, ValueError) as error:
            raise OutOfRange(f"{i!r} is no slice: {error}") from None
        return [self.record(number) for number in numbers]

    def __repr__(self) -> str:
        return f"<{self.kind} index of {len(self)} records, {len(self.labels)} labels>"

    def _record(self, number: int) -> Record:
        """`record`, as samplers call it that come out of pickles of earlier versions."""
        return self.record(number)

    def _rank(self, label: Any) -> int:
        try:
            return self.label_index[label]
        except (KeyError, TypeError):
            raise DataError(f"no label {label!r}; there are {known(self.labels)}") from None


def in_range(i: Any, count: int, what: str) -> int:
    """The number that a Python index means; OutOfRange where there is none."""
    try:
        number = operator.index(i)
    except TypeError:
        raise DataError(f"{what} {i!r} is no whole number") from None
    if not -count <= number < count:
        raise OutOfRange(f"no {what} {number}; there are {count}")
    return number % count


def known(labels: Sequence[Any]) -> str:
    """The labels for a message, not all of many."""
    shown = ", ".join(map(repr, labels[:10]))
    return (shown + (", ..." if len(labels) > 10 else "")) or "none"


_LOCAL = "file"
_WEB = ("http", "https")


class Naming:
    """What the cells of an index may name.

    Parameters
    ----------
    index : str
        The path or URL of the index, whose scheme they may name.
    schemes : tuple of str
        What else they may name; "file" for local files.
    """

    def __init__(self, index: str, schemes: tuple[str, ...]) -> None:
        self._own = _scheme_of(index)
        self._allowed = tuple(dict.fromkeys((self._own, *_WEB, *schemes)))

    def check(self, name: str) -> None:
        """ValueError for the name of a file that may not be named."""
        if is_url(name):
            self._check_scheme(name, _scheme_of(name))
        elif name.startswith("/") or os.path.isabs(name):  # noqa: PTH117  # as `join_path` asks
            self._check_scheme(name, _LOCAL)
        if "::" in name and (is_url(name) or self._own != _LOCAL):
            raise ValueError(f"{name!r} chains file systems (::), which an index may not")

    def check_prefix(self, prefix: str) -> None:
        """ValueError for what names may not begin with; relative to a URL, it would be local."""
        self._check_scheme(prefix, _scheme_of(prefix))
        if is_url(prefix) and "::" in prefix:
            raise ValueError(f"{prefix!r} chains file systems (::), which an index may not")

    def _check_scheme(self, name: str, scheme: str) -> None:
        if scheme in self._allowed:
            return
        what = "a local file" if scheme == _LOCAL else f"a file at {scheme}://"
        raise ValueError(
            f"{name!r} names {what}, and an index of this kind names {', '.join(self._allowed)}; "
            f"open_index(..., schemes=({scheme!r},)) allows it"
        )


def as_schemes(schemes: Any) -> tuple[str, ...]:
    """The schemes that a caller allows; DataError where they are none."""
    if not isinstance(schemes, tuple | list | set | frozenset) or not all(
        isinstance(each, str) and each and "://" not in each for each in schemes
    ):
        raise DataError(f"schemes={schemes!r}; they are a tuple of words, as in ('file', 's3')")
    return tuple(schemes)


def _scheme_of(path: str) -> str:
    """The scheme of a path or URL; of a chain, that of its end, where the files lie."""
    return path.partition("://")[0].rpartition("::")[2] if is_url(path) else _LOCAL

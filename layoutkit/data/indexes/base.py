"""What every index can do: a sequence of records, also by label."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np

from ...errors import DataError
from ...memory import Array
from ..protocolerrors import OutOfRange
from ..records import Label, Record

__all__ = ["Groups", "Index", "grouped"]


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

    kind : str          "csv", "tsv", "directory", "parts" or "tensor"
    url_prefix : str    what relative file names begin with; None for arrays
    labels : list       sorted, of all partitions, whether this one has such records or not
    label_index : dict  from a label to its rank among them
    """

    def __init__(
        self, kind: str, url_prefix: str | None, labels: Sequence[Label], codes: Array | None
    ) -> None:
        self.kind = kind
        self.url_prefix = url_prefix
        self.labels = list(labels)
        self.label_index = {label: rank for rank, label in enumerate(labels)}
        self._codes = codes  # the rank of each record's label here, -1 for none

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _record(self, number: int) -> Record:
        """The record of a number that has been checked."""

    def _records(self, numbers: Array) -> list[Record]:
        """The records of numbers that have been checked."""
        return [self._record(number) for number in numbers.tolist()]

    def _target(self, number: int) -> Any:
        """What the source gives as target of a record besides its label, or None."""
        return None

    def item_count(self, label: Label | None = None) -> int:
        """The number of records here, or of those with a label.

        Raises
        ------
        DataError
            The whole source has no such label.
        """
        if label is None:
            return len(self)
        return int(self._groups.counts[self._rank(label)])

    def item_at(self, i: int, label: Label | None = None) -> Record:
        """Record number i, or the i-th of those with a label, in index order.

        Raises
        ------
        DataError
            There is no such record (an IndexError, too) or no such label.
        """
        if label is None:
            return self._record(in_range(i, len(self), "record"))
        members = self._members(label)
        return self._record(int(members[in_range(i, len(members), f"record with label {label!r}")]))

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
        return [self._record(number) for number in numbers]

    def __repr__(self) -> str:
        return f"<{self.kind} index of {len(self)} records, {len(self.labels)} labels>"

    @cached_property
    def _groups(self) -> Groups:
        """The records of each label."""
        codes = np.full(len(self), -1) if self._codes is None else self._codes
        return grouped(codes, len(self.labels))

    def _members(self, label: Label) -> Array:
        """The numbers of the records with a label."""
        rank = self._rank(label)
        start = self._groups.starts[rank]
        return self._groups.members[start : start + self._groups.counts[rank]]

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

"""Record: the location of a record or its array, and its labels."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

Label = str | int


class Record(NamedTuple):
    """One record of an index; attributes that do not apply are None.

    Two records are equal if they have the same location and labels; their arrays are not compared.
    (A named tuple, as no other immutable class is created in 0.3 us.)

    Attributes
    ----------
    url : str
        The file that contains it.
    offset, length : int
        Its bytes in the file.
    array : array
        The record itself, a view of the source.
    label : str or int
        The label that groups it.
    labels : tuple
        All its labels.
    position : int
        Its number in the index, or in the index that it was selected from; in part files, its line.
    """

    url: str | None = None
    offset: int | None = None
    length: int | None = None
    array: Any = None
    label: Label | None = None
    labels: tuple[Label, ...] = ()
    position: int | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self[:3] + self[4:] == other[:3] + other[4:]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:3] + self[4:])


def records_of(*columns: Iterable[Any]) -> list[Record]:
    """Return Records from columns in the order of the fields; at least one column is finite.

    Faster than `Record(...)`, which spends half of its time on keywords and defaults.
    """
    return list(map(_new_record, zip(*columns, strict=False)))


_new_record: Any = partial(tuple.__new__, Record)

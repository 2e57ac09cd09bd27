"""What a record is: where it lies, or the array itself, and its label.

Knows nothing of sources, orders and bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

__all__ = ["Label", "Record", "records_of"]

Label = str | int


class Record(NamedTuple):
    """One record of an index; what does not apply is None.

    Two records are equal when they lie in the same place and have the same labels; their arrays
    are not compared. (A named tuple, because nothing else that is frozen is made in 0.3 us.)

    Attributes
    ----------
    url : str
        The file it lies in.
    offset, length : int
        Where in the file, in bytes.
    array : array
        The record itself, a window on the source.
    label : str or int
        The label that it is listed under.
    labels : tuple
        All labels that it has.
    position : int
        Its number in the index; in part files, its line.
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
    """Records from columns, in the order of the fields; at least one has an end.

    Exists because half of what `Record(...)` takes is for keywords and defaults.
    """
    return list(map(_record, zip(*columns, strict=False)))


_record: Any = partial(tuple.__new__, Record)

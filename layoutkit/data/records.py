"""What a record is: where it lies, or the array itself, and its label."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Label", "Record"]

Label = str | int


@dataclass(frozen=True, slots=True)
class Record:
    """One record of an index; what does not apply is None.

    Two records are equal when they lie in the same place and have the same labels; their arrays
    are not compared.

    url : str               the file it lies in
    offset, length : int    where in the file, in bytes
    array : array           the record itself, a window on the source
    label                   the label that it is listed under
    labels : tuple          all labels that it has
    position : int          its number in the index; in part files, its line
    """

    url: str | None = None
    offset: int | None = None
    length: int | None = None
    array: Any = field(default=None, compare=False)
    label: Label | None = None
    labels: tuple[Label, ...] = ()
    position: int | None = None

"""Arrays in files: mapped into memory, or read, when they are selected from.

Knows when a file is mapped and who may write to it; formats are the business of `reading/`.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from ...memory import Array
from ..formats import explained
from ..reading.npy import StoredArray
from .sources import ArraySource

__all__ = ["FileSource"]


class FileSource(ArraySource):
    """An array in a `.npy` file, or in a member of a `.npz` archive.

    It is mapped into memory: a read touches what is selected, and what is written, where that was
    asked for, lands in the file. A compressed member is read whole, and kept, when something of it
    is selected first. Members are never written to.

    Raises DataError where the file cannot be opened, or cannot be written to and is to be.
    """

    def __init__(self, path: Path, member: str | None = None, writable: bool = False) -> None:
        with explained(str(path)):
            self._keep(StoredArray(path, member), writable)

    @classmethod
    def of(cls, stored: StoredArray, writable: bool) -> FileSource:
        """The source of an array whose header has been read."""
        source = cls.__new__(cls)
        source._keep(stored, writable)
        return source

    @cached_property
    def array(self) -> Array:  # type: ignore[override]
        """The array, mapped where that is possible."""
        with explained(str(self.stored.path)):
            array = self.stored.mapped(self.writable)
        array.flags.writeable = self.writable
        return array

    def same(self, other: Any) -> bool:
        """Whether both are one array of one file."""
        ours = (self.stored.path, self.stored.member)
        return isinstance(other, FileSource) and ours == (other.stored.path, other.stored.member)

    def _keep(self, stored: StoredArray, writable: bool) -> None:
        self.stored, self.shape, self.dtype = stored, stored.shape, stored.dtype
        self.writable = writable and stored.member is None
        if self.writable:
            self.array  # noqa: B018 - what cannot be written to is to be known now

    def __reduce__(self) -> Any:
        return FileSource, (self.stored.path, self.stored.member, self.writable)

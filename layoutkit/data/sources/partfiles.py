"""A folder of part files, whose lines are records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from ..._utils import fork
from ..._utils.validation import as_int
from ...errors import DataError
from ...memory import Array
from ..errors import check_has_records
from ..io.filesystem import is_url, join_path, list_files, open_binary, stream_version
from ..io.reader import Reader
from ..io.responses import FileVersion
from ..records import Label, Record
from .base import Index, Partition

BLOCK_BYTES = 1 << 20
_NEWLINE = 10


class PartsIndex(Index):
    """The lines of part files, file after file.

    A file is opened at the first access to one of its lines, or to their number; the line starts
    are kept (8 bytes a line), so that no file is opened twice.

    parts : list of str      the files of this partition
    """

    reads_in_order = True

    def __init__(self, folder: str, kind: str, partition: Partition) -> None:
        prefix = folder.rstrip("/") or folder
        super().__init__(kind, prefix, (), None)
        self._partition = partition
        names = list_files(folder)
        check_has_records(len(names), folder, "there are no files in the folder")
        for name in names:  # fsspec would open such a name of the listing as a chain
            if "::" in name and is_url(folder):
                raise DataError(f"{folder} lists {name!r}; names with :: chain file systems")
        self.parts = [join_path(prefix, name) for name in names][partition.rows]
        self._starts: list[Array | None] = [None] * len(self.parts)
        self._versions: dict[str, FileVersion] = {}

    def __len__(self) -> int:
        count = sum(self.line_count(part) for part in range(len(self.parts)))
        if self.partition.parts == 1:  # another partition may have all of the lines
            number = len(self.parts)
            check_has_records(count, str(self.url_prefix), f"its {number} files have no lines")
        return count

    @property
    def known_count(self) -> int | None:
        """The number of records, or None while some parts have not been opened."""
        if any(starts is None for starts in self._starts):
            return None
        return len(self)

    def line_count(self, part: int) -> int:
        """Return the number of records in a part."""
        return len(self._line_starts(part)) - 1

    def line(self, part: int, line: int) -> Record:
        start, end = self._line_starts(part)[line : line + 2].tolist()
        return Record(url=self.parts[part], offset=start, length=end - start - 1, position=line)

    def item_at(self, i: int, label: Label | None = None) -> Record:
        """Return record number i, opening parts up to its own; for a negative number all parts.

        Raises
        ------
        DataError
            There is no such record (an IndexError, too), or a label is passed.
        """
        left = as_int(i)
        if label is None and left is not None and left >= 0:
            for part in range(len(self.parts)):
                if left < self.line_count(part):
                    return self.line(part, left)
                left -= self.line_count(part)
        return super().item_at(i, label)

    def places(self, numbers: Array) -> Array:
        return numbers  # of lines: partitions consist of files

    def record(self, number: int) -> Record:
        """Return a line; opens the parts up to the one that contains it."""
        return self.item_at(number)

    def getter(self, reader: Reader) -> Callable[[Record], bytes]:
        """Return a function that reads a line through a Reader."""
        return partial(self._read_line, reader)

    def file_version(self, url: str) -> FileVersion | None:
        return self._versions.get(url)

    def _read_line(self, reader: Reader, record: Record) -> bytes:
        url = str(record.url)
        return reader.read(url, record.offset, record.length, self.file_version(url))

    def __repr__(self) -> str:
        return f"<index of {len(self.parts)} part files>"

    def _line_starts(self, part: int) -> Array:
        """Return the line starts of a part, and the position after the last newline."""
        starts = self._starts[part]
        if starts is None:
            with open_binary(self.parts[part]) as file:
                starts = scan_line_starts(file)
                version = stream_version(file)
            starts = self._store_line_starts(part, starts, version)
        return starts

    def _store_line_starts(self, part: int, starts: Array, version: FileVersion | None) -> Array:
        """Store the line starts of a part with its version, and return the stored ones.

        If several threads scan a part, the starts and the version are of the first that ends.
        """
        with fork.init_lock:
            stored = self._starts[part]
            if stored is not None:
                return stored
            if version is not None:
                self._versions[self.parts[part]] = version
            self._starts[part] = starts
        return starts


def scan_line_starts(file: BinaryIO) -> Array:
    """Return the start of each line, and of the line after the last one; read in blocks."""
    starts = [np.zeros(1, np.int64)]
    size = 0
    last = _NEWLINE
    while block := file.read(BLOCK_BYTES):
        data: Any = np.frombuffer(block, np.uint8)
        starts.append(np.flatnonzero(data == _NEWLINE) + (size + 1))
        size += len(block)
        last = block[-1]
    if last != _NEWLINE:  # a last line without a newline counts as if it had one
        starts.append(np.array([size + 1]))
    return np.concatenate(starts)

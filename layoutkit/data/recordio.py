"""RecordIO files written and read: records one after the other, in frames, with an index beside.

    RecordWriter        writes a file, which appears when it is whole
    read_records        the records of a file, in order
    pack_image          the payload of an image record, from a picture's file, labels and an id
    unpack_image        ImageHeader and picture's file of such a payload
    read_mean, write_mean   the file of a mean picture

The files are those of MXNet and of what reads its files, byte for byte. `open_index` gives their
records in any order.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import Any

from .._utils.files import replacing
from ..errors import DataError
from .io.image_record import ImageHeader, pack_image, read_mean, to_bytes, unpack_image, write_mean
from .io.reader import BLOCK, RangeFile
from .io.recordio import pack_frames, span_at, unframed

__all__ = [
    "ImageHeader",
    "RecordWriter",
    "pack_image",
    "read_mean",
    "read_records",
    "unpack_image",
    "write_mean",
]


class RecordWriter:
    """Writes a RecordIO file and, beside it, its `.idx`. Both appear when it is closed.

    A context manager: leaving it closes the files, and an exception leaves whatever stood there
    before as it was.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "two.rec")
    ...     with RecordWriter(path) as writer:
    ...         offsets = writer.write(b"hello"), writer.write(b"")
    ...     offsets, path.with_suffix(".idx").read_text(), list(read_records(path))
    ((0, 16), '0\\t0\\n1\\t16\\n', [b'hello', b''])

    Parameters
    ----------
    path : path
        The file, which replaces one that is there. Its folder has to be there.
    index : bool or path
        Whether to write an index, and where: by default under the same name, as `.idx`. With
        False an index that belongs to the file that is replaced is removed, as it would lie.

    Raises OSError where a file cannot be written.
    """

    def __init__(self, path: str | PathLike[str], index: bool | str | PathLike[str] = True) -> None:
        self._path = Path(fspath(path))
        beside = self._path.with_suffix(".idx")
        self._index = beside if isinstance(index, bool) else Path(fspath(index))
        self._stale = index is False
        if self._index == self._path:
            raise DataError(f"{path} would be its own index; call it .rec")
        self._keys: list[Any] | None = None  # None as long as they count from 0
        self._offsets = array("q")
        self._at = 0
        self._files = ExitStack()
        self._text = None if self._stale else self._files.enter_context(replacing(self._index))
        try:
            self._file = self._files.enter_context(replacing(self._path))
        except BaseException as error:
            self._files.__exit__(type(error), error, error.__traceback__)
            raise
        self._closed = False

    def write(self, payload: bytes, key: int | str | None = None) -> int:
        """Append a record, and give the offset where it begins.

        Parameters
        ----------
        payload : bytes
            Anything, of less than 512 MiB.
        key : int or str, optional
            What the index calls it, in one word; by default its number, from 0 on.

        Raises
        ------
        DataError
            The payload is too long, the key is no word, or the file is closed.
        """
        if self._closed:
            raise DataError(f"{self._path} is closed; open a new RecordWriter")
        frames = pack_frames(to_bytes("payload", payload))
        if key is not None:
            self._check_key(key)
            if self._keys is None:
                self._keys = list(range(len(self._offsets)))
        self._file.write(frames)
        if self._keys is not None:
            self._keys.append(len(self._offsets) if key is None else key)
        self._offsets.append(self._at)
        self._at += len(frames)
        return self._offsets[-1]

    def close(self) -> None:
        """Give the files their names; twice is fine."""
        self.__exit__(None, None, None)

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._closed:
            return
        self._closed = True
        if kind is None and self._text is not None:
            try:
                self._write_index(self._text)
            except BaseException as failure:
                self._files.__exit__(type(failure), failure, failure.__traceback__)
                raise
        self._files.__exit__(kind, error, trace)
        if kind is None and self._stale:
            self._index.unlink(missing_ok=True)

    def _write_index(self, file: Any) -> None:
        keys: Any = range(len(self._offsets)) if self._keys is None else self._keys
        lines = (f"{key}\t{offset}\n" for key, offset in zip(keys, self._offsets, strict=True))
        file.writelines(line.encode() for line in lines)

    def _check_key(self, key: Any) -> None:
        if isinstance(key, bool) or len(str(key).split()) != 1 or str(key).strip() != str(key):
            raise DataError(f"key={key!r}; it is a number, or one word")


def read_records(path: str | PathLike[str]) -> Iterator[bytes]:
    """The records of a RecordIO file or URL, one after the other, in the order of the file.

    Raises
    ------
    DataError
        It cannot be opened; or, when the records before were given, a frame is damaged or the file
        ends inside one. The file and the offset are named.
    """
    return _records(RangeFile(fspath(path)))


def _records(file: RangeFile) -> Iterator[bytes]:
    with file:
        at, begin, block = 0, 0, b""
        while at < file.size:
            length = span_at(file, at)
            if at + length > begin + len(block):
                begin, block = at, file.read_at(at, max(length, BLOCK))
            if at - begin + length > len(block):
                raise DataError(
                    f"{file.url} is cut: it ends after {file.size} bytes, inside the record that "
                    f"begins at byte {at}"
                )
            yield unframed(block[at - begin : at - begin + length], file.url, at)
            at += length

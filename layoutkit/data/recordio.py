"""Write and read RecordIO files: framed records without gaps, and an index file.

    RecordWriter        write a file, which appears when it is complete
    read_records        iterate over the records of a file, in order
    pack_image          the payload of an image record, from an encoded image, labels and an id
    unpack_image        the ImageHeader and the encoded image of a payload
    read_mean, write_mean   the file of a mean image

The files equal MXNet's byte for byte. `open_index` gives random access to their records.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import Any

from .._utils.files import AtomicFiles
from .._utils.validation import check_path, show
from ..errors import DataError
from .io.image_record import ImageHeader, pack_image, read_mean, to_bytes, unpack_image, write_mean
from .io.reader import BLOCK, RangeFile
from .io.recordio import pack_frames, record_span, unpack_frames

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
    """A context manager that writes a RecordIO file and its `.idx`. Both appear when it is closed.

    Leaving the context closes the files; after an exception, files that existed before are
    unchanged.

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
        The file, which is replaced if it exists. Its folder has to exist.
    index : bool or path
        Whether to write an index, and its path: by default the file's name with the suffix `.idx`.
        With False an index of the file that is replaced is removed, as it would be wrong.

    Raises
    ------
    DataError
        The index and the file have the same path.
    OSError
        A file cannot be written.
    """

    def __init__(self, path: str | PathLike[str], index: bool | str | PathLike[str] = True) -> None:
        self._path = Path(check_path("path", path))
        default = self._path.with_suffix(".idx")
        self._index = default if isinstance(index, bool) else Path(check_path("index", index))
        self._stale = index is False
        if self._index == self._path:
            raise DataError(f"{path} would be its own index; call it .rec")
        self._files = AtomicFiles()
        self._text = None if self._stale else self._files.open(self._index)
        try:
            self._records = RecordAppender(self._files.open(self._path))
        except BaseException:
            self._files.discard()
            raise
        self._closed = False

    def write(self, payload: bytes, key: int | str | None = None) -> int:
        """Append a record; return its offset in the file.

        Parameters
        ----------
        payload : bytes
            Anything, of less than 512 MiB.
        key : int or str, optional
            The key in the index, one word; by default the record's number, from 0.

        Raises
        ------
        DataError
            The payload is too long, the key is not one word, or the file is closed.
        """
        if self._closed:
            raise DataError(f"{self._path} is closed; open a new RecordWriter")
        return self._records.write(payload, key)

    def close(self) -> None:
        """Give the files their final names; closing twice is allowed."""
        self.__exit__(None, None, None)

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._closed:
            return
        self._closed = True
        if exc_type is None and self._text is not None:
            try:
                self._records.write_index(self._text)
            except BaseException:
                self._files.discard()
                raise
        self._files.__exit__(exc_type, error, trace)
        if exc_type is None and self._stale:
            self._index.unlink(missing_ok=True)


class RecordAppender:
    """The records of an open file, with their keys and offsets."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._keys: list[Any] | None = None  # None as long as they are 0, 1, 2, ...
        self._offsets = array("q")
        self._pos = 0

    def write(self, payload: bytes, key: int | str | None = None) -> int:
        """Append a record as `RecordWriter.write`; return its offset in the file."""
        frames = pack_frames(to_bytes("payload", payload))
        if key is not None:
            self._check_key(key)
            if self._keys is None:
                self._keys = list(range(len(self._offsets)))
        self._file.write(frames)
        if self._keys is not None:
            self._keys.append(len(self._offsets) if key is None else key)
        self._offsets.append(self._pos)
        self._pos += len(frames)
        return self._offsets[-1]

    def write_index(self, file: Any) -> None:
        """Write a line for each record into a file."""
        keys: Any = range(len(self._offsets)) if self._keys is None else self._keys
        lines = (f"{key}\t{offset}\n" for key, offset in zip(keys, self._offsets, strict=True))
        file.writelines(line.encode() for line in lines)

    def _check_key(self, key: Any) -> None:
        text = str(key)
        is_word = text.split() == [text] and text.encode(errors="ignore").decode() == text
        if isinstance(key, bool) or not is_word:
            raise DataError(
                f"key={show(key)}; it must be a number or one word that UTF-8 can encode"
            )


def read_records(path: str | PathLike[str]) -> Iterator[bytes]:
    """Iterate over the records of a RecordIO file or URL, in the order of the file.

    Raises
    ------
    DataError
        It is empty or cannot be opened; or, after the records before it, a frame is damaged or the
        file ends inside a frame. The message has the file and the offset.
    """
    file = RangeFile(fspath(path))
    file.check_has_bytes()
    return _records(file)


def _records(file: RangeFile) -> Iterator[bytes]:
    with file:
        pos = 0
        block_start = 0
        block = b""
        while pos < file.size:
            length = record_span(file, pos)
            if pos + length > block_start + len(block):
                block_start = pos
                block = file.read_at(pos, max(length, BLOCK))
            if pos - block_start + length > len(block):
                raise DataError(
                    f"{file.url} is truncated: it ends after {file.size} bytes, inside the record "
                    f"that begins at byte {pos}"
                )
            yield unpack_frames(
                block[pos - block_start : pos - block_start + length], file.url, pos
            )
            pos += length

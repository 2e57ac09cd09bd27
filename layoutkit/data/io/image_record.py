"""Image records (a header with labels and ids, then an encoded image), and mean-image files.

A mean-image file is a list of arrays in any of the format's three versions; the mean is the array
named `mean_img`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..._utils.files import replace_atomically
from ..._utils.validation import type_name
from ...errors import DataError, ShapeError
from ...memory import Array
from .filesystem import open_binary
from .recordio import HEAD, MAGIC

_HEADER = struct.Struct("<IfQQ")
HEADER = _HEADER.size
_FRAME = struct.Struct("<III")  # magic, part flag and length, label flag


class ImageHeader(NamedTuple):
    """The header of an image record.

    flag : int             the number of labels after the header; 0 if the only label is in it
    labels : tuple         floats, at least one
    id, id2 : int          ids of the image; id2 is 0 in all known files
    """

    flag: int
    labels: tuple[float, ...]
    id: int
    id2: int


def pack_image(data: Any, label: Any, id: int = 0, id2: int = 0) -> bytes:  # noqa: A002
    """Return the payload of an image record.

    >>> pack_image(b"....", 3.0, id=7).hex(" ", 4)
    '00000000 00004040 07000000 00000000 00000000 00000000 2e2e2e2e'

    Parameters
    ----------
    data : bytes
        An encoded image; b"" for a record that only has labels.
    label : number or sequence of numbers
        One label, or several. They are stored as float32.
    id, id2 : int
        0 .. 2^64 - 1.

    Raises
    ------
    DataError
        A label is not a number, or does not fit float32; an id is out of range.
    """
    labels = _labels(label)
    is_scalar = np.ndim(label) == 0
    try:
        header = _HEADER.pack(
            0 if is_scalar else len(labels), labels[0] if is_scalar else 0.0, id, id2
        )
    except struct.error:
        raise DataError(f"id={id!r}, id2={id2!r}; each is a whole number, 0 .. 2^64 - 1") from None
    rest = b"" if is_scalar else struct.pack(f"<{len(labels)}f", *labels)
    return b"".join((header, rest, to_bytes("data", data)))


def to_bytes(name: str, value: Any) -> bytes:
    """Return a bytes-like object as bytes; DataError for numbers, text and other types."""
    if isinstance(value, bytes):
        return value
    try:
        return memoryview(value).cast("B").tobytes()
    except TypeError:
        raise DataError(f"{name} is a {type_name(value)}; it is bytes") from None


def unpack_image(payload: bytes) -> tuple[ImageHeader, bytes]:
    """Return (ImageHeader, image bytes) of an image record; DataError if it is not one.

    >>> unpack_image(pack_image(b"...", [1, 0.5]))
    (ImageHeader(flag=2, labels=(1.0, 0.5), id=0, id2=0), b'...')
    """
    if len(payload) < HEADER:
        raise DataError(f"it is no image record: {len(payload)} bytes, and a header has {HEADER}")
    flag, label, id, id2 = _HEADER.unpack_from(payload)  # noqa: A001
    end = HEADER + 4 * flag
    if end > len(payload):
        raise DataError(f"it is no image record: {len(payload)} bytes cannot have {flag} labels")
    labels = struct.unpack_from(f"<{flag}f", payload, HEADER) if flag else (label,)
    return ImageHeader(flag, labels, id, id2), payload[end:]


def extract_image(frame: bytes) -> bytes | None:
    """Return the image in an image record of one frame, copied once; None for anything else.

    Faster than `unframed` and `unpack_image`, which search for another record inside the frame;
    that search takes longer than the copy. Decoders ignore bytes after the image.
    """
    if len(frame) < _FRAME.size:
        return None
    magic, length, flag = _FRAME.unpack_from(frame)
    end = HEAD + length
    start = HEAD + HEADER + 4 * flag
    if magic != MAGIC or end + -length % 4 != len(frame) or start > end:
        return None
    return frame[start:end]


def _labels(label: Any) -> list[float]:
    values = list(label) if isinstance(label, Sequence | np.ndarray) and np.ndim(label) else [label]
    try:
        labels = [float(value) for value in values]
        if isinstance(label, str | bytes) or not labels:
            raise TypeError
        with np.errstate(over="raise"):
            stored = np.array(labels).astype(np.float32)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"label={label!r}; it is a number, or some numbers") from None
    except FloatingPointError:
        raise DataError(f"label={label!r}, which float32 does not hold") from None
    for value, number in zip(values, stored.tolist(), strict=True):
        if isinstance(value, int | np.integer) and number != value:
            raise DataError(
                f"label={value!r}, of which float32, as labels are kept, makes {number:.0f}"
            )
    return labels


_NAME = b"mean_img"
_LIST = 0x112
_DENSE = 0xF993FAC9  # magic of an array with a storage type
_PLAIN = 0xF993FAC8  # of an array without a storage type
_NUMPY = 0xF993FACA  # as _DENSE, of arrays that may be 0-d
_DTYPES = ("<f4", "<f8", "<f2", "u1", "<i4", "i1", "<i8")
_MAX_AXES = 32


def read_mean(path: str | PathLike[str]) -> Array:
    """Return the mean image in a file or at a URL, as stored: usually float32 (c, h, w).

    Raises
    ------
    DataError
        It cannot be read, is damaged, or is not a mean-image file.
    """
    name = fspath(path)
    with open_binary(name) as file:
        data = _ByteReader(file.read())
    try:
        arrays = _arrays(data)
    except (struct.error, ValueError) as error:
        raise DataError(f"{name} is no file of a mean image: {error}") from error
    if len(arrays) > 1 and _NAME.decode() not in arrays:
        raise DataError(f"{name} has the arrays {', '.join(arrays)}, and none is called mean_img")
    return arrays[_NAME.decode()] if _NAME.decode() in arrays else next(iter(arrays.values()))


def write_mean(path: str | PathLike[str], array: Any) -> None:
    """Write a mean image of shape (c, h, w) as float32; the file appears when it is complete.

    Raises
    ------
    ShapeError
        It does not have three axes.
    OSError
        The file cannot be written.
    """
    mean = np.asarray(array, "<f4", order="C")
    if mean.ndim != 3:
        raise ShapeError(f"a mean image has the axes (c, h, w), and this shape is {mean.shape}")
    head = struct.pack("<QQQ", _LIST, 0, 1)
    header = struct.pack("<Ii I3q iii", _DENSE, 0, 3, *mean.shape, 1, 0, 0)
    names = struct.pack("<QQ", 1, len(_NAME)) + _NAME
    with replace_atomically(Path(fspath(path))) as file:
        file.write(b"".join((head, header, mean.tobytes(), names)))


class _ByteReader:
    """A sequential reader of bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pos = 0

    def numbers(self, layout: str) -> tuple[int, ...]:
        """Read the next numbers; struct.error if the data ends before."""
        values = struct.unpack_from(f"<{layout}", self._data, self._pos)
        self._pos += struct.calcsize(f"<{layout}")
        return values

    def take(self, count: int) -> bytes:
        """Read the next bytes; ValueError if there are fewer."""
        if not 0 <= count <= len(self._data) - self._pos:
            raise ValueError(f"it is cut: {count} bytes are missing after byte {self._pos}")
        self._pos += count
        return self._data[self._pos - count : self._pos]


def _arrays(data: _ByteReader) -> dict[str, Array]:
    """Read the arrays of a file, by name."""
    magic, _, count = data.numbers("QQQ")
    if magic != _LIST or not count:
        raise ValueError("it does not begin as a list of arrays does")
    arrays = []
    for _ in range(count):
        arrays.append(_array(data))
    names = [data.take(data.numbers("Q")[0]).decode() for _ in range(data.numbers("Q")[0])]
    if not names and count == 1:
        return {_NAME.decode(): arrays[0]}
    return dict(zip(names, arrays, strict=True))


def _array(data: _ByteReader) -> Array:
    """Read the next array, of any version of the format."""
    (magic,) = data.numbers("I")
    if magic in (_DENSE, _NUMPY):
        (storage,) = data.numbers("i")
        if storage:
            raise ValueError(f"it has an array of storage {storage}; only dense ones are read")
    rank = data.numbers("I")[0] if magic in (_DENSE, _NUMPY, _PLAIN) else magic
    if rank > _MAX_AXES:
        raise ValueError(f"an array of it has {rank} axes")
    shape = data.numbers(f"{rank}q" if magic > _MAX_AXES else f"{rank}I")
    _, _, code = data.numbers("iii")
    if not 0 <= code < len(_DTYPES) or min(shape, default=1) < 0:
        raise ValueError(f"it has an array of shape {shape} and dtype number {code}")
    dtype = np.dtype(_DTYPES[code])
    size = int(np.prod(shape, dtype=object)) * dtype.itemsize
    return np.frombuffer(data.take(size), dtype).reshape(shape).copy()

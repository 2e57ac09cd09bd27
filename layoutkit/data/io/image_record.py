"""Image records (a header with labels and ids, then an encoded image), and mean-image files.

A mean-image file is a list of arrays in any version of MXNet's format; the mean is the array named
`mean_img`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..._utils.files import replace_atomically
from ..._utils.validation import check_int, describe_type
from ...errors import DataError, ShapeError
from ...memory import Array
from .filesystem import open_binary
from .recordio import HEAD, MAGIC

_HEADER = struct.Struct("<IfQQ")
HEADER = _HEADER.size
_LARGEST_ID = 2**64 - 1
_FRAME = struct.Struct("<III")  # magic, part flag and length, number of labels


class ImageHeader(NamedTuple):
    """The header of an image record.

    flag : int             the number of labels after the header; 0 if the header has the only label
    labels : tuple         floats, at least one
    id, id2 : int          ids of the image; id2 is 0 in all known files
    """

    flag: int
    labels: tuple[float, ...]
    id: int
    id2: int


def pack_image(data: Any, label: Any, id: int = 0, id2: int = 0) -> bytes:
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
        A label is not a number, or float32 cannot store it; an id is out of range.
    """
    labels = _labels(label)
    is_scalar = np.ndim(label) == 0
    first = check_int("id", id, maximum=_LARGEST_ID)
    second = check_int("id2", id2, maximum=_LARGEST_ID)
    header = _HEADER.pack(
        0 if is_scalar else len(labels), labels[0] if is_scalar else 0.0, first, second
    )
    extra_labels = b"" if is_scalar else struct.pack(f"<{len(labels)}f", *labels)
    return b"".join((header, extra_labels, to_bytes("data", data)))


def to_bytes(name: str, value: Any) -> bytes:
    """Return a bytes-like object as bytes; DataError for numbers, text and other types."""
    if isinstance(value, bytes):
        return value
    try:
        return memoryview(value).cast("B").tobytes()
    except TypeError:
        raise DataError(f"{name} is {describe_type(value)}; it must be bytes") from None


def unpack_image(payload: bytes) -> tuple[ImageHeader, bytes]:
    """Return (ImageHeader, image bytes) of an image record; DataError if it is not one.

    >>> unpack_image(pack_image(b"...", [1, 0.5]))
    (ImageHeader(flag=2, labels=(1.0, 0.5), id=0, id2=0), b'...')
    """
    if len(payload) < HEADER:
        raise DataError(f"not an image record: it has {len(payload)} bytes, a header {HEADER}")
    flag, label, id, id2 = _HEADER.unpack_from(payload)
    end = HEADER + 4 * flag
    if end > len(payload):
        raise DataError(f"not an image record: {len(payload)} bytes are too few for {flag} labels")
    labels = struct.unpack_from(f"<{flag}f", payload, HEADER) if flag else (label,)
    return ImageHeader(flag, labels, id, id2), payload[end:]


def extract_image(frame: bytes) -> bytes | None:
    """Return a copy of the image in an image record of one frame; None for other data.

    Unlike `unpack_frames`, it does not search the frame for the next record, which a damaged length
    would include: the search takes longer than the copy, and decoders ignore bytes after the image.
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
        raise DataError(f"label={label!r}; it must be a number or a sequence of numbers") from None
    except FloatingPointError:
        raise DataError(f"label={label!r}, which is out of the range of float32") from None
    for value, rounded in zip(values, stored.tolist(), strict=True):
        if isinstance(value, int | np.integer) and rounded != value:
            raise DataError(
                f"label={value!r}; labels are stored as float32, which rounds it to {rounded:.0f}"
            )
    return labels


_NAME = b"mean_img"
_LIST = 0x112
_DENSE = 0xF993FAC9  # magic of an array with a storage type
_PLAIN = 0xF993FAC8  # magic of an array without a storage type
_NUMPY = 0xF993FACA  # magic of an array with a storage type that may be 0-d
_DTYPES = ("<f4", "<f8", "<f2", "u1", "<i4", "i1", "<i8")
_MAX_AXES = 32
_MAX_MEAN_BYTES = 1 << 30


def read_mean(path: str | PathLike[str]) -> Array:
    """Return the mean image in a file or at a URL, as stored: usually float32 (c, h, w).

    Raises
    ------
    DataError
        The file cannot be read, is damaged, or is not a mean-image file.
    """
    name = fspath(path)
    with open_binary(name) as file:
        data = file.read(_MAX_MEAN_BYTES + 1)
    if len(data) > _MAX_MEAN_BYTES:
        raise DataError(
            f"{name} is not a mean-image file: it has more than {_MAX_MEAN_BYTES} bytes"
        )
    reader = _ByteReader(data)
    try:
        arrays = _read_arrays(reader)
    except (struct.error, ValueError) as error:
        raise DataError(f"{name} is not a mean-image file: {error}") from error
    if len(arrays) > 1 and _NAME.decode() not in arrays:
        raise DataError(f"{name} has the arrays {', '.join(arrays)}, but none is named mean_img")
    return arrays[_NAME.decode()] if _NAME.decode() in arrays else next(iter(arrays.values()))


def write_mean(path: str | PathLike[str], array: Any) -> None:
    """Write a mean image of shape (c, h, w) as float32; the file is replaced atomically.

    Raises
    ------
    ShapeError
        The array does not have three axes.
    OSError
        The file cannot be written.
    """
    mean = np.asarray(array, "<f4", order="C")
    if mean.ndim != 3:
        raise ShapeError(f"the array has shape {mean.shape}, but a mean image has axes (c, h, w)")
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
        """Read the numbers of a struct layout; struct.error if the data is too short."""
        values = struct.unpack_from(f"<{layout}", self._data, self._pos)
        self._pos += struct.calcsize(f"<{layout}")
        return values

    def take(self, count: int) -> bytes:
        """Read the next `count` bytes; ValueError if the data is too short."""
        if not 0 <= count <= len(self._data) - self._pos:
            raise ValueError(f"it is truncated: {count} bytes must follow byte {self._pos}")
        self._pos += count
        return self._data[self._pos - count : self._pos]


def _read_arrays(reader: _ByteReader) -> dict[str, Array]:
    magic, _, count = reader.numbers("QQQ")
    if magic != _LIST or not count:
        raise ValueError("it does not begin with the header of a list of arrays")
    arrays = []
    for _ in range(count):
        arrays.append(_read_array(reader))
    names = [reader.take(reader.numbers("Q")[0]).decode() for _ in range(reader.numbers("Q")[0])]
    if not names and count == 1:
        return {_NAME.decode(): arrays[0]}
    return dict(zip(names, arrays, strict=True))


def _read_array(reader: _ByteReader) -> Array:
    """Read the next array, of any version of the format."""
    (magic,) = reader.numbers("I")
    if magic in (_DENSE, _NUMPY):
        (storage,) = reader.numbers("i")
        if storage:
            raise ValueError(f"it has an array of storage type {storage}; it must be dense")
    rank = reader.numbers("I")[0] if magic in (_DENSE, _NUMPY, _PLAIN) else magic
    if rank > _MAX_AXES:
        raise ValueError(f"it has an array of {rank} axes; the maximum is {_MAX_AXES}")
    shape = reader.numbers(f"{rank}q" if magic > _MAX_AXES else f"{rank}I")
    _, _, code = reader.numbers("iii")
    if not 0 <= code < len(_DTYPES) or min(shape, default=1) < 0:
        raise ValueError(f"it has an array of shape {shape} and dtype number {code}")
    dtype = np.dtype(_DTYPES[code])
    size = int(np.prod(shape, dtype=object)) * dtype.itemsize
    return np.frombuffer(reader.take(size), dtype).reshape(shape).copy()

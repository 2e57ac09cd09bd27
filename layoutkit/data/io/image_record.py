"""Image records: a header with labels and an id, and then the bytes of a picture's file.

Knows the header; the picture is bytes.

The file of a mean picture: a list of arrays, one of which is called `mean_img`.

Knows the format, in the three versions that there are; what a mean is for is not known here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..._utils.files import replacing
from ..._utils.validation import kind_text
from ...errors import DataError, ShapeError
from ...memory import Array
from .filesystem import open_binary
from .recordio import HEAD, MAGIC

_HEADER = struct.Struct("<IfQQ")
HEADER = _HEADER.size
_FRAME = struct.Struct("<III")  # magic, flag of parts and length, flag of labels


class ImageHeader(NamedTuple):
    """What an image record says of its picture.

    flag : int             how many labels follow the header; 0 where the one label stands in it
    labels : tuple         floats, at least one
    id, id2 : int          numbers of the picture; id2 is 0 in all known files
    """

    flag: int
    labels: tuple[float, ...]
    id: int
    id2: int


def pack_image(data: Any, label: Any, id: int = 0, id2: int = 0) -> bytes:  # noqa: A002
    """The payload of an image record.

    >>> pack_image(b"....", 3.0, id=7).hex(" ", 4)
    '00000000 00004040 07000000 00000000 00000000 00000000 2e2e2e2e'

    Parameters
    ----------
    data : bytes
        A picture's file, as it is; b"" for a record that only has labels.
    label : number or sequence of numbers
        One label, or several. They are kept as float32.
    id, id2 : int
        0 .. 2^64 - 1.

    Raises
    ------
    DataError
        A label is no number, or one that float32 does not hold; an id is out of range.
    """
    labels = _labels(label)
    alone = np.ndim(label) == 0
    try:
        header = _HEADER.pack(0 if alone else len(labels), labels[0] if alone else 0.0, id, id2)
    except struct.error:
        raise DataError(f"id={id!r}, id2={id2!r}; each is a whole number, 0 .. 2^64 - 1") from None
    more = b"" if alone else struct.pack(f"<{len(labels)}f", *labels)
    return b"".join((header, more, as_bytes("data", data)))


def as_bytes(name: str, value: Any) -> bytes:
    """What is bytes, as bytes; DataError for numbers, text and the like."""
    if isinstance(value, bytes):
        return value
    try:
        return memoryview(value).cast("B").tobytes()
    except TypeError:
        raise DataError(f"{name} is a {kind_text(value)}; it is bytes") from None


def unpack_image(payload: bytes) -> tuple[ImageHeader, bytes]:
    """(ImageHeader, the picture's bytes) of an image record; DataError where it is none.

    >>> unpack_image(pack_image(b"...", [1, 0.5]))
    (ImageHeader(flag=2, labels=(1.0, 0.5), id=0, id2=0), b'...')
    """
    if len(payload) < HEADER:
        raise DataError(f"it is no image record: {len(payload)} bytes, and a header has {HEADER}")
    flag, label, number, more = _HEADER.unpack_from(payload)
    end = HEADER + 4 * flag
    if end > len(payload):
        raise DataError(f"it is no image record: {len(payload)} bytes cannot have {flag} labels")
    labels = struct.unpack_from(f"<{flag}f", payload, HEADER) if flag else (label,)
    return ImageHeader(flag, labels, number, more), payload[end:]


def whole_picture(frame: bytes) -> bytes | None:
    """The picture in the one frame of an image record, copied once; None for all else.

    What `unframed` and `unpack_image` give, without the look for another record inside, which takes
    longer than the copy: decoders leave aside what is behind a picture.
    """
    if len(frame) < _FRAME.size:
        return None
    magic, length, flag = _FRAME.unpack_from(frame)
    end, start = HEAD + length, HEAD + HEADER + 4 * flag
    if magic != MAGIC or end + -length % 4 != len(frame) or start > end:
        return None
    return frame[start:end]


def _labels(label: Any) -> list[float]:
    given = list(label) if isinstance(label, Sequence | np.ndarray) and np.ndim(label) else [label]
    try:
        labels = [float(each) for each in given]
        if isinstance(label, str | bytes) or not labels:
            raise TypeError
        with np.errstate(over="raise"):
            kept = np.array(labels).astype(np.float32)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"label={label!r}; it is a number, or some numbers") from None
    except FloatingPointError:
        raise DataError(f"label={label!r}, which float32 does not hold") from None
    for number, value in zip(given, kept.tolist(), strict=True):
        if isinstance(number, int | np.integer) and value != number:
            raise DataError(
                f"label={number!r}, of which float32, as labels are kept, makes {value:.0f}"
            )
    return labels


_NAME = b"mean_img"
_LIST = 0x112
_DENSE, _PLAIN = 0xF993FAC9, 0xF993FAC8  # of an array: with a kind of storage, and without
_NUMPY = 0xF993FACA  # as _DENSE, of arrays that may have no axes
_DTYPES = ("<f4", "<f8", "<f2", "u1", "<i4", "i1", "<i8")
_MOST_AXES = 32


def read_mean(path: str | PathLike[str]) -> Array:
    """The mean picture in a file or at a URL, as it is kept there: float32 (c, h, w), in general.

    Raises
    ------
    DataError
        It cannot be read, is damaged, or is something else.
    """
    name = fspath(path)
    with open_binary(name) as file:
        data = _Bytes(file.read())
    try:
        arrays = _arrays(data)
    except (struct.error, ValueError) as error:
        raise DataError(f"{name} is no file of a mean picture: {error}") from error
    if len(arrays) > 1 and _NAME.decode() not in arrays:
        raise DataError(f"{name} has the arrays {', '.join(arrays)}, and none is called mean_img")
    return arrays[_NAME.decode()] if _NAME.decode() in arrays else next(iter(arrays.values()))


def write_mean(path: str | PathLike[str], array: Any) -> None:
    """Write a mean picture of the shape (c, h, w), as float32; the file appears when it is whole.

    Raises
    ------
    ShapeError
        It has not three axes.
    OSError
        The file cannot be written.
    """
    mean = np.asarray(array, "<f4", order="C")
    if mean.ndim != 3:
        raise ShapeError(f"a mean picture has the axes (c, h, w), and this shape is {mean.shape}")
    head = struct.pack("<QQQ", _LIST, 0, 1)
    about = struct.pack("<Ii I3q iii", _DENSE, 0, 3, *mean.shape, 1, 0, 0)
    names = struct.pack("<QQ", 1, len(_NAME)) + _NAME
    with replacing(Path(fspath(path))) as file:
        file.write(b"".join((head, about, mean.tobytes(), names)))


class _Bytes:
    """What is left of a file."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def numbers(self, layout: str) -> tuple[int, ...]:
        """The next numbers; struct.error where there are not so many."""
        found = struct.unpack_from(f"<{layout}", self._data, self._at)
        self._at += struct.calcsize(f"<{layout}")
        return found

    def take(self, count: int) -> bytes:
        """The next bytes; ValueError where there are fewer."""
        if not 0 <= count <= len(self._data) - self._at:
            raise ValueError(f"it is cut: {count} bytes are missing after byte {self._at}")
        self._at += count
        return self._data[self._at - count : self._at]


def _arrays(data: _Bytes) -> dict[str, Array]:
    """The arrays of a file by name."""
    kind, _, count = data.numbers("QQQ")
    if kind != _LIST or not count:
        raise ValueError("it does not begin as a list of arrays does")
    arrays = []
    for _ in range(count):
        arrays.append(_array(data))
    names = [data.take(data.numbers("Q")[0]).decode() for _ in range(data.numbers("Q")[0])]
    if not names and count == 1:
        return {_NAME.decode(): arrays[0]}
    return dict(zip(names, arrays, strict=True))


def _array(data: _Bytes) -> Array:
    """The next array, of any version."""
    (magic,) = data.numbers("I")
    if magic in (_DENSE, _NUMPY):
        (storage,) = data.numbers("i")
        if storage:
            raise ValueError(f"it has an array of storage {storage}; only dense ones are read")
    rank = data.numbers("I")[0] if magic in (_DENSE, _NUMPY, _PLAIN) else magic
    if rank > _MOST_AXES:
        raise ValueError(f"an array of it has {rank} axes")
    shape = data.numbers(f"{rank}q" if magic > _MOST_AXES else f"{rank}I")
    _, _, code = data.numbers("iii")
    if not 0 <= code < len(_DTYPES) or min(shape, default=1) < 0:
        raise ValueError(f"it has an array of shape {shape} and dtype number {code}")
    dtype = np.dtype(_DTYPES[code])
    size = int(np.prod(shape, dtype=object)) * dtype.itemsize
    return np.frombuffer(data.take(size), dtype).reshape(shape).copy()

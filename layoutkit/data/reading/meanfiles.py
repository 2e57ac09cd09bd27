"""The file of a mean picture: a list of arrays, one of which is called `mean_img`.

Knows the format, in the three versions that there are; what a mean is for is not known here.
"""

from __future__ import annotations

import struct
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from ...atomic import replacing
from ...errors import DataError, ShapeError
from ...memory import Array
from .urls import opened

__all__ = ["read_mean", "write_mean"]

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
    with opened(name) as file:
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

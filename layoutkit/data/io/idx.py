"""idx files, as MNIST comes in them: arrays of numbers of any type and rank, mapped or unpacked.

A file is two zero bytes, a type, the number of axes, the size of each in four bytes, and the
elements, the last axis running fastest; all of it with the highest byte first. Knows these.
"""

from __future__ import annotations

import gzip
import mmap
import os
import weakref
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, BinaryIO

import numpy as np

from ...errors import DataError
from ...memory import Array
from .filesystem import local_path, open_regular_file

__all__ = ["IdxFile"]

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_PACKED = b"\x1f\x8b"
_PIECE = 1 << 24


class IdxFile:
    """An idx file as an array that cannot be written to; of a packed one in memory.

    `check` is to be asked before elements are read: a file that was cut after it was mapped has no
    bytes to give. Pickles as its path.
    """

    def __init__(self, path: str) -> None:
        local = local_path(path)
        if local is None:
            raise DataError(f"{path} is a URL; idx files are read from this machine")
        self.path = path
        self._mapped_file: int | None = None
        with _explained(path):
            number, self._size = open_regular_file(local)
            with os.fdopen(number, "rb") as file:
                packed = file.read(2) == _PACKED
                file.seek(0)
                self.array = self._unpacked(file) if packed else self._mapped(file)

    def check(self) -> None:
        """DataError where the file has become shorter."""
        if self._mapped_file is not None and os.fstat(self._mapped_file).st_size < self._size:
            raise DataError(f"{self.path} was cut after it was opened; make a new provider")

    def close(self) -> None:
        """Let go of the file; arrays that share its memory stay what they are."""
        if self._mapped_file is not None:
            self._finalizer()
            self._mapped_file = None

    def _mapped(self, file: BinaryIO) -> Array:
        dtype, shape, at = _header(file, self.path)
        found = self._size - at
        _check_size(self.path, dtype, shape, found)
        self._mapped_file = kept = os.dup(file.fileno())
        self._finalizer = weakref.finalize(self, os.close, kept)
        if not prod(shape):
            return np.frombuffer(b"", dtype).reshape(shape)
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(memory, dtype, prod(shape), at).reshape(shape)

    def _unpacked(self, file: BinaryIO) -> Array:
        with gzip.open(file) as stream:
            dtype, shape, _ = _header(stream, self.path)
            wanted = prod(shape) * dtype.itemsize
            data = bytearray()
            # One byte more than wanted, so that a longer file is found out; never all of a bomb.
            while len(data) <= wanted and (piece := stream.read(min(_PIECE, wanted + 1))):
                data += piece
        _check_size(self.path, dtype, shape, len(data))
        array = np.frombuffer(data, dtype).reshape(shape)
        array.flags.writeable = False
        return array

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"])  # type: ignore[misc]


def _header(file: Any, path: str) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """dtype, shape, and where elements begin."""
    head = file.read(4)
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES or not head[3]:
        raise DataError(
            f"{path} is no idx file: it begins with {head.hex(' ') or 'nothing'}, which should be "
            "00 00, a type and the number of axes"
        )
    sizes = file.read(4 * head[3])
    if len(sizes) < 4 * head[3]:
        raise DataError(f"{path} ends inside of its head; get it anew")
    shape = tuple(np.frombuffer(sizes, ">u4").tolist())
    return np.dtype(_TYPES[head[2]]), shape, 4 + len(sizes)


def _check_size(path: str, dtype: np.dtype[Any], shape: tuple[int, ...], found: int) -> None:
    wanted = prod(shape) * dtype.itemsize
    if found != wanted:
        has = f"{found} of them" if found < wanted else "more"
        raise DataError(
            f"{path} says that it has {dtype.name} {shape}, {wanted} bytes, but there are {has}; "
            "get it anew"
        )


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """DataError, with the file's name, for whatever is raised about it."""
    try:
        yield
    except DataError:
        raise
    except (OSError, EOFError, ValueError, zlib.error) as error:
        said = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {said}") from error

"""idx files, the format of MNIST: arrays of any numeric type and rank, mapped or decompressed.

A file consists of two zero bytes, a type code, the number of axes, the size of each axis in four
bytes, and the elements in C order. All numbers are big-endian.
"""

from __future__ import annotations

import gzip
import mmap
import os
import weakref
import zlib
from math import prod
from typing import Any, BinaryIO

import numpy as np

from ..._utils.errors import as_data_errors
from ...errors import DataError
from ...memory import Array
from .filesystem import local_path, open_regular_file
from .npy import MAX_DEFLATE_RATIO

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_PACKED = b"\x1f\x8b"
_PIECE = 1 << 24


class IdxFile:
    """An idx file as a read-only array: memory-mapped, or decompressed in memory.

    Call `check` before reading elements: accessing a mapped file that was truncated crashes the
    process. Pickles as its path.
    """

    def __init__(self, path: str) -> None:
        local = local_path(path)
        if local is None:
            raise DataError(f"{path} is a URL; idx files are read from this machine")
        self.path = path
        self._mapped_file: int | None = None
        with as_data_errors(path, (OSError, EOFError, ValueError, zlib.error)):
            descriptor, self._size = open_regular_file(local)
            with os.fdopen(descriptor, "rb") as file:
                packed = file.read(2) == _PACKED
                file.seek(0)
                self.array = self._decompress(file) if packed else self._map(file)

    def check(self) -> None:
        """Raise DataError if the file has become shorter."""
        if self._mapped_file is not None and os.fstat(self._mapped_file).st_size < self._size:
            raise DataError(f"{self.path} was cut after it was opened; make a new provider")

    def close(self) -> None:
        """Close the file; arrays that share its memory stay valid."""
        if self._mapped_file is not None:
            self._finalizer()
            self._mapped_file = None

    def _map(self, file: BinaryIO) -> Array:
        dtype, shape, offset = _read_header(file, self.path)
        nbytes = self._size - offset
        _check_size(self.path, dtype, shape, nbytes)
        self._mapped_file = descriptor = os.dup(file.fileno())
        self._finalizer = weakref.finalize(self, os.close, descriptor)
        if not prod(shape):
            return np.frombuffer(b"", dtype).reshape(shape)
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(memory, dtype, prod(shape), offset).reshape(shape)

    def _decompress(self, file: BinaryIO) -> Array:
        with gzip.open(file) as stream:
            dtype, shape, _ = _read_header(stream, self.path)
            nbytes = prod(shape) * dtype.itemsize
            if nbytes > MAX_DEFLATE_RATIO * self._size:
                raise DataError(
                    f"{self.path}: {self._size} compressed bytes cannot become the {nbytes} bytes "
                    f"of {dtype.name} {shape}; its header is damaged"
                )
            data = bytearray()
            # One byte more than needed detects a longer file; a zip bomb is never unpacked whole.
            while len(data) <= nbytes and (piece := stream.read(min(_PIECE, nbytes + 1))):
                data += piece
        _check_size(self.path, dtype, shape, len(data))
        array = np.frombuffer(data, dtype).reshape(shape)
        array.flags.writeable = False
        return array

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "shape": self.array.shape}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"])  # type: ignore[misc]
        if self.array.shape != state["shape"]:
            raise DataError(f"{self.path} has changed since it was opened")


def _read_header(file: Any, path: str) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Read the header; return dtype, shape, and the offset of the elements."""
    head = file.read(4)
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES or not head[3]:
        raise DataError(
            f"{path} is not an idx file: it begins with {head.hex(' ') or 'nothing'}, which should "
            "be 00 00, a type and the number of axes"
        )
    sizes = file.read(4 * head[3])
    if len(sizes) < 4 * head[3]:
        raise DataError(f"{path} ends inside of its head; download it again")
    shape = tuple(np.frombuffer(sizes, ">u4").tolist())
    return np.dtype(_TYPES[head[2]]), shape, 4 + len(sizes)


def _check_size(path: str, dtype: np.dtype[Any], shape: tuple[int, ...], nbytes: int) -> None:
    expected = prod(shape) * dtype.itemsize
    if nbytes != expected:
        actual = f"{nbytes} of them" if nbytes < expected else "more"
        raise DataError(
            f"{path} says that it has {dtype.name} {shape}, {expected} bytes, but there are "
            f"{actual}; download it again"
        )

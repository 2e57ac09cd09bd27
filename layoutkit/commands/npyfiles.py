"""Arrays in `.npy` files, read and written one slab at a time.

A slab is everything between two positions of one axis, so the resident memory stays at the size of
a slab however large the file is. It is read, not mapped: a map of a file that someone shortens
meanwhile kills the process, where reading says so. Where slabs are scattered over a file, one that
is small enough is read once, and they are parts of it. A slab that is one run of the file is
written as such: through a map of a new file it takes half as long again, for the page faults, and a
failing disk would kill the process. One that is scattered over the file is copied into maps of it.

Knows where slabs lie. What a file says of its array is read by `data/reading/npy.py`.
"""

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from .. import buffers
from ..atomic import reserve
from ..data.reading.npy import StoredArray
from ..errors import DataError, DtypeError

__all__ = ["NpyFile", "create_npy", "is_npy", "npy_header", "open_npy"]

# How much of a file is mapped at once where a slab is scattered over all of it.
_WINDOW_BYTES = 64 << 20

# Up to so many bytes between the runs of a slab are read with them: beginning another read takes
# Python as long.
_GAP_BYTES = 32 << 10

# A file of scattered slabs is read whole up to here: of each page every slab has a part, and 256 MB
# of chwb took 1.9 times as long where each slab read all pages again.
_WHOLE_BYTES = 256 << 20

# A whole array beyond this is mapped, as it might be larger than the memory.
_MOST_READ = 1 << 30


@dataclass(frozen=True)
class NpyFile:
    """The array in an open `.npy` file; reads and writes slabs of it."""

    file: BinaryIO
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool = False
    _whole: list[NDArray[Any]] = field(default_factory=list, repr=False)  # what was read at once

    def read(self, axis: int | None, start: int, stop: int) -> NDArray[Any]:
        """The slab (all if `axis` is None), in memory; DataError if the file has become shorter."""
        outer, length, inner = self._runs(axis)
        item = self.dtype.itemsize
        if axis is None:
            start, stop = 0, 1
            if inner * item > _MOST_READ:
                return self._shaped(self._mapped_whole(), None)
        if outer > 1 and 0 < outer * length * inner * item <= _WHOLE_BYTES:
            return self._shaped(self._all(axis)[:, start:stop], axis)
        slab = buffers.empty((outer, stop - start, inner), self.dtype)
        if slab.nbytes:
            rows = slab.reshape(outer, -1).view(np.uint8)
            if outer > 1 and length * inner * item - rows.shape[1] <= _GAP_BYTES:
                self._read_windows(rows, axis, start * inner * item)
            else:
                for number, row in enumerate(rows):
                    self._fill(row, (number * length + start) * inner * item)
        return self._shaped(slab, axis)

    def _all(self, axis: int | None) -> NDArray[Any]:
        """The whole array as the runs of an axis, read the first time."""
        if not self._whole:
            found = buffers.empty((math.prod(self.shape),), self.dtype)
            self._fill(found.view(np.uint8), 0)
            self._whole.append(found)
        return self._whole[0].reshape(self._runs(axis))

    def _mapped_whole(self) -> NDArray[Any]:
        try:
            return self._map(None, 0, 1, 0, 1)
        except ValueError as error:  # beyond the end of the file
            raise self._shortened() from error

    def _read_windows(self, rows: NDArray[Any], axis: int | None, start: int) -> None:
        """Read the bytes from `start` on of every row of the file, and leave out the others."""
        _, length, inner = self._runs(axis)
        row = length * inner * self.dtype.itemsize
        for first, last in self._windows(axis):
            window = buffers.empty((last - first, row), np.dtype(np.uint8))
            self._fill(window.reshape(-1), first * row)
            rows[first:last] = window[:, start : start + rows.shape[1]]

    def _fill(self, target: NDArray[Any], position: int) -> None:
        """Read bytes from a position of the array on."""
        self.file.seek(self.offset + position)
        rest = target.data
        while rest:  # the system gives about 2 GiB at once
            count = self.file.readinto(rest)  # type: ignore[attr-defined]
            if not count:
                raise self._shortened()
            rest = rest[count:]

    def _shortened(self) -> DataError:
        return DataError(
            f"{self.file.name}: was shortened while it was read; convert it when nobody writes to "
            "it, or convert a copy"
        )

    def write(self, axis: int | None, start: int, stop: int, values: NDArray[Any]) -> None:
        """Write contiguous `values` as the slab (all if `axis` is None)."""
        outer, _, inner = self._runs(axis)
        if outer == 1:
            self._write_run(start * inner * self.dtype.itemsize, values)
            return
        slab = values.reshape(outer, stop - start, inner)
        for first, last in self._windows(axis):
            self._map(axis, start, stop, first, last)[...] = slab[first:last]

    def _write_run(self, position: int, values: NDArray[Any]) -> None:
        self.file.seek(self.offset + position)
        self.file.write(values.reshape(-1).view(np.uint8).data)

    def _stored_shape(self) -> tuple[int, ...]:
        # A Fortran-ordered file is the C-ordered file of the transposed array.
        return self.shape[::-1] if self.fortran_order else self.shape

    def _stored_axis(self, axis: int) -> int:
        return len(self.shape) - 1 - axis if self.fortran_order else axis

    def _runs(self, axis: int | None) -> tuple[int, int, int]:
        """The file as (outer, length of the axis, inner); a slab is `outer` runs of it."""
        if axis is None:
            return 1, 1, math.prod(self.shape)
        shape, axis = self._stored_shape(), self._stored_axis(axis)
        return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])

    def _windows(self, axis: int | None) -> Iterator[tuple[int, int]]:
        outer, length, inner = self._runs(axis)
        rows = max(1, _WINDOW_BYTES // max(1, length * inner * self.dtype.itemsize))
        for first in range(0, outer, rows):
            yield first, min(first + rows, outer)

    def _map(self, axis: int | None, start: int, stop: int, first: int, last: int) -> NDArray[Any]:
        """Runs `first` to `last` of a slab as a mapped (runs, stop - start, inner) array."""
        _, length, inner = self._runs(axis)
        if axis is None:
            start, stop = 0, 1
        shape = (last - first, stop - start, inner)
        if 0 in shape or not self.dtype.itemsize:
            return np.empty(shape, self.dtype)
        run, item = length * inner, self.dtype.itemsize
        count = (last - first - 1) * run + (stop - start) * inner
        offset = self.offset + (first * run + start * inner) * item
        mode: Any = "r+" if self.file.writable() else "r"
        mapped = np.memmap(self.file, np.uint8, mode, offset, count * item)
        return np.ndarray(shape, self.dtype, mapped, 0, (run * item, inner * item, item))

    def _shaped(self, slab: NDArray[Any], axis: int | None) -> NDArray[Any]:
        shape = list(self._stored_shape())
        if axis is not None:
            shape[self._stored_axis(axis)] = slab.shape[1]
        array = slab.reshape(shape)
        return array.T if self.fortran_order else array


def is_npy(path: Path) -> bool:
    """Whether the file begins as a `.npy` file does."""
    with path.open("rb") as file:
        return file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX


@contextmanager
def open_npy(stored: StoredArray) -> Iterator[NpyFile]:
    """Open an array that lies in a file as it is, to read slabs of it."""
    with stored.path.open("rb", buffering=0) as file:
        yield NpyFile(file, stored.offset or 0, stored.shape, stored.dtype, stored.fortran_order)


def create_npy(file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NpyFile:
    """Write the header of a `.npy` file and claim the space of its array.

    A dtype that the format has no name for (bfloat16, float8) is a DtypeError.
    """
    header = npy_header(shape, dtype)
    reserve(file, len(header) + math.prod(shape) * dtype.itemsize)
    file.write(header)
    file.flush()
    return NpyFile(file, len(header), shape, dtype)


def npy_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """What a `.npy` file begins with; DtypeError for a dtype that the format has no name for."""
    description = npy.dtype_to_descr(dtype)
    if npy.descr_to_dtype(description) != dtype:
        message = (
            f"--dtype {dtype}: the .npy format has no name for it, so a reader could not tell "
            "what the file holds; use float16 or float32"
        )
        raise DtypeError(message)
    fields = {"descr": description, "fortran_order": False, "shape": shape}
    buffer = io.BytesIO()
    try:
        npy.write_array_header_1_0(buffer, fields)
    except ValueError:  # longer than 64 KiB
        npy.write_array_header_2_0(buffer, fields)
    return buffer.getvalue()

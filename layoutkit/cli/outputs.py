"""Where results go: a file here that appears when it is complete, or one at a URL of fsspec.

What goes to a URL is made in a file here first, as its parts are written in any order, and is then
uploaded as a whole. Nobody sees half of it: stores of objects show what has come to its end, and
elsewhere it arrives under a hidden name beside and is renamed.

Arrays in `.npy` files, read and written one slab at a time.

A slab is everything between two positions of one axis, so the resident memory stays at the size of
a slab however large the file is. It is read, not mapped: a map of a file that someone shortens
meanwhile kills the process, where reading says so. Slabs of many short runs are read several at a
time, as a wide slab whose parts they are.

Runs that are long are written as such: through a map of a new file it takes half as long again, for
the page faults, and a failing disk would kill the process. Short ones are copied into maps of it.

Knows where slabs lie. What a file says of its array is read by `data/reading/npy.py`.
"""

from __future__ import annotations

import errno
import io
import math
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from .. import buffers
from .._utils.files import replacing, reserve, resolved
from ..data.io.filesystem import local_path
from ..data.io.npy import StoredArray
from ..errors import ArgumentError, DataError, DtypeError
from ..spec import ArraySpec
from .printing import amount

# How much of a file is mapped at once where a slab is scattered over all of it.
_WINDOW_BYTES = 64 << 20

# Up to so many bytes between the runs of a slab are read with them: beginning another read takes
# Python as long. They come so many at a time, which the cache holds until the runs are taken out.
_GAP_BYTES = 16 << 10
_READ_BYTES = 1 << 20

# A wide slab. Where runs are short, every page has a part of each slab, and 600 MB of chwb took 3.8
# times as long where each slab read all pages again. Two can be in memory at once.
_WIDE_BYTES = 128 << 20

# A run from here on is read and written as such, though it is not the whole slab.
_LONG_RUN = 4 << 10

# A whole array beyond this is mapped, as it might be larger than the memory.
_MOST_READ = 1 << 30


@dataclass
class NpyFile:
    """The array in an open `.npy` file; reads and writes slabs of it."""

    file: BinaryIO
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool = False
    # The axis of the wide slab read last, where it begins, and its runs.
    _wide: tuple[int, int, NDArray[Any]] | None = field(default=None, repr=False)

    def scatters(self, axis: int | None) -> bool:
        """Whether slabs of this axis are more than one run of the file."""
        return self._runs(axis)[0] > 1

    def run(self, axis: int, count: int) -> int:
        """How many bytes lie side by side in a slab of so many positions."""
        return self._runs(axis)[2] * count * self.dtype.itemsize

    def read(self, axis: int | None, start: int, stop: int) -> NDArray[Any]:
        """The slab (all if `axis` is None), in memory; DataError if the file has become shorter."""
        if axis is None:
            start, stop = 0, 1
            if math.prod(self.shape) * self.dtype.itemsize > _MOST_READ:
                return self._shaped(self._mapped_whole(), None)
        elif self.scatters(axis) and self.run(axis, stop - start) < _LONG_RUN:
            return self._shaped(self._part(axis, start, stop), axis)
        return self._shaped(self._slab(axis, start, stop), axis)

    def _part(self, axis: int, start: int, stop: int) -> NDArray[Any]:
        """A scattered slab, which is a part of a wide one: where it is not, the next is read."""
        if self._wide is not None:
            wide_axis, first, wide = self._wide
            if wide_axis == axis and first <= start and stop <= first + wide.shape[1]:
                return wide[:, start - first : stop - first]
            self._wide = None
            del wide  # before there is another
        outer, length, inner = self._runs(axis)
        step = max(1, stop - start)
        fitting = _WIDE_BYTES // max(1, outer * inner * step * self.dtype.itemsize)
        wide = self._slab(axis, start, min(start + step * max(1, fitting), length))
        self._wide = axis, start, wide
        return wide[:, : stop - start]

    def _slab(self, axis: int | None, start: int, stop: int) -> NDArray[Any]:
        """The runs of a slab, read now."""
        outer, length, inner = self._runs(axis)
        item = self.dtype.itemsize
        slab = buffers.empty((outer, stop - start, inner), self.dtype)
        if slab.nbytes:
            rows = slab.reshape(outer, -1).view(np.uint8)
            if outer > 1 and length * inner * item - rows.shape[1] <= _GAP_BYTES:
                self._read_windows(rows, length * inner * item, start * inner * item)
            else:
                for number, row in enumerate(rows):
                    self._fill(row, (number * length + start) * inner * item)
        return slab

    def _mapped_whole(self) -> NDArray[Any]:
        try:
            return self._map(None, 0, 1, 0, 1)
        except ValueError as error:  # beyond the end of the file
            raise self._shortened() from error

    def _read_windows(self, rows: NDArray[Any], length: int, start: int) -> None:
        """Read the bytes from `start` on of every row of `length` bytes."""
        outer, count = rows.shape
        if count == length:
            self._fill(rows.reshape(-1), 0)
            return
        height = max(1, _READ_BYTES // length)
        window = buffers.empty((height, length), np.dtype(np.uint8))
        for first in range(0, outer, height):
            part = window[: min(height, outer - first)]
            self._fill(part.reshape(-1), first * length)
            rows[first : first + height] = part[:, start : start + count]

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
        outer, length, inner = self._runs(axis)
        if outer == 1:
            self._write_run(start * inner * self.dtype.itemsize, values)
            return
        slab = values.reshape(outer, stop - start, inner)
        if (stop - start) * inner * self.dtype.itemsize >= _LONG_RUN:
            for number, run in enumerate(slab):
                self._write_run((number * length + start) * inner * self.dtype.itemsize, run)
            return
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


Destination = Path | str  # a str is a URL

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Stores of objects, where renaming is copying and an object is there when all of it has come.
_OF_OBJECTS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "r2", "tos"}


def destination_of(name: str) -> Destination:
    """The path that a name is, or its URL."""
    local = local_path(name)
    return name if local is None else Path(local)


@contextmanager
def opened_for(destination: Destination) -> Iterator[BinaryIO]:
    """A new file that has its name when the block ends without an exception, and else never."""
    if isinstance(destination, Path):
        with replacing(destination) as file:
            yield file
        return
    with _uploading(destination) as file:
        yield file


def created(file: BinaryIO, result: ArraySpec, destination: Destination) -> NpyFile:
    """The array of a `.npy` file; ArgumentError where the disk has no room for it."""
    try:
        return create_npy(file, result.shape, result.dtype)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        folder, nbytes = folder_beside(destination), math.prod(result.shape) * result.dtype.itemsize
        there, fix = "there", "make room or write it elsewhere"
        if not isinstance(destination, Path):
            there, fix = f"in {folder}, where it is made first", "make room or set TMPDIR"
        message = (
            f"{destination}: no room for {amount(nbytes)} ({error.strerror}; "
            f"{amount(shutil.disk_usage(folder).free)} free {there}); {fix}"
        )
        raise ArgumentError(message) from error


def folder_beside(destination: Destination) -> Path:
    """The folder here in which a result is made."""
    if isinstance(destination, Path):
        return resolved(destination).parent
    return Path(tempfile.gettempdir())


# ---- a file here -------------------------------------------------------------------------


def check_destination(
    sources: Sequence[str], destination: Destination, suffix: str = ".npy"
) -> None:
    """Refuse a destination that could not be written in the end, before any work is done."""
    if str(destination) == "-":
        raise ArgumentError(
            f"-: the result is no stream, as its parts are written in any order; name a {suffix} "
            "file, and read that when it is there"
        )
    if not isinstance(destination, Path):
        if not destination.endswith(suffix):
            raise ArgumentError(f"{destination}: the result is a {suffix} file; name it so")
        if destination in sources:
            raise ArgumentError(f"{destination}: is the source itself; choose another name")
        return
    if destination.suffix != suffix:
        fix = f"; name it {destination.with_suffix(suffix)}" if destination.name else ""
        raise ArgumentError(f"{destination}: the result is a {suffix} file{fix}")
    folder = resolved(destination).parent
    if not folder.is_dir():
        raise ArgumentError(f"{destination}: there is no folder {folder}; create it first")
    if not os.access(folder, os.W_OK):
        message = f"{destination}: the folder {folder} is write-protected; choose another place"
        raise ArgumentError(message)
    if not destination.exists():
        return
    if not destination.is_file():
        raise ArgumentError(f"{destination}: is not a file; choose another name")
    if not os.access(destination, os.W_OK):
        raise ArgumentError(f"{destination}: is write-protected; choose another name")
    if any(Path(source).exists() and destination.samefile(source) for source in sources):
        raise ArgumentError(f"{destination}: is the source itself; choose another name")


# ---- a file at a URL ---------------------------------------------------------------------


@contextmanager
def _uploading(url: str) -> Iterator[BinaryIO]:
    """A new file here, whose bytes are at the URL when the block ends without an exception."""
    system, path = _system(url)
    beside = f"{path.rpartition('/')[0]}/.layoutkit.{secrets.token_hex(8)}.tmp"
    # Now, as who finds out at the end that nothing may be written here has waited for nothing.
    _asked(url, lambda: system.pipe_file(beside, b""))
    try:
        with tempfile.TemporaryDirectory(prefix="layoutkit-") as here:
            made = Path(here) / "x.npy"
            with made.open("w+b") as file:
                yield file
            _asked(url, lambda: _upload(system, made, beside, path))
    finally:
        with suppress(Exception):  # it was renamed, or the connection is gone
            system.rm_file(beside)


def _upload(system: Any, made: Path, beside: str, path: str) -> None:
    if _OF_OBJECTS.isdisjoint(_protocols(system)):
        system.put_file(str(made), beside)
        system.mv(beside, path)
    else:
        system.put_file(str(made), path)


def _system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path there; ArgumentError where nobody knows it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise ArgumentError('fsspec is not installed: pip install "layoutkit[data]"') from error
    if url.startswith(("http://", "https://")):
        raise ArgumentError(f"{url}: web servers are only read from; choose another place")
    system, path = _asked(url, lambda: url_to_fs(url))
    return system, path


def _protocols(system: Any) -> set[str]:
    found = system.protocol
    return {found} if isinstance(found, str) else set(found)


def _asked(url: str, question: Callable[[], Any]) -> Any:
    """What a file system answers; ArgumentError for whatever it raises."""
    try:
        return question()
    except Exception as error:
        raise ArgumentError(
            f"{url}: cannot be written ({type(error).__name__}: {error}); choose another place, or "
            "see to what its file system asks for"
        ) from error

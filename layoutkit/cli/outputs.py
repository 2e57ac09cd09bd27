"""Write results as `.npy` files, local or at an fsspec URL, and read and write them by slabs.

A local file appears under its name when it is complete. A result for a URL is first written to a
local temporary file, because its parts are written in any order, and is then uploaded. Readers
never see an incomplete file: object stores show an object only when its upload has ended, and on
other file systems the upload goes to a hidden temporary name and is renamed.

A slab is the range between two indices along one axis. The resident memory is one slab,
however large the file is. Files are read, not memory-mapped: if another process truncates a mapped
file, the process is killed, whereas reading raises an error. Slabs that consist of many short runs
are read several at a time, as one wide slab.

Long runs are written with `write`: writing through a map of a new file takes 1.5 times as long,
because of page faults, and a disk error would kill the process. Short runs are copied into a map.

The header of a `.npy` file is read by `layoutkit.data.io.npy`.
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
from .._utils.errors import describe_error, explain_missing, name_in_errors
from .._utils.files import replace_atomically, reserve_space, resolve_links
from ..data.io.filesystem import local_path
from ..data.io.npy import StoredArray
from ..errors import ArgumentError, DataError, DtypeError
from ..spec import ArraySpec
from .printing import format_bytes

# Bytes of a file that are mapped at a time if a slab is scattered over all of it.
WINDOW_BYTES = 64 << 20

# Gaps of up to GAP_BYTES between the runs of a slab are read too: another read call would take
# Python as long. READ_BYTES are read at a time, so that the cache holds them until the runs are
# copied.
GAP_BYTES = 16 << 10
READ_BYTES = 1 << 20

# The size of a wide slab. If runs are short, every page contains a part of each slab: 600 MB of
# chwb took 3.8 times as long when each slab read all pages again. Two wide slabs can be in memory
# at once.
WIDE_BYTES = 128 << 20

# Runs of at least this many bytes are read and written one by one.
LONG_RUN = 4 << 10

# An array that is read at once is mapped beyond this size: it might be larger than the memory.
MAX_READ_BYTES = 1 << 30


@dataclass
class NpyFile:
    """The array in an open `.npy` file, read and written by slabs."""

    file: BinaryIO
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool = False
    # The wide slab read last: its axis, its first index, and its runs.
    _wide: tuple[int, int, NDArray[Any]] | None = field(default=None, repr=False)

    def is_scattered(self, axis: int | None) -> bool:
        """Return True if a slab along this axis is more than one run of the file."""
        return self._run_layout(axis)[0] > 1

    def run_bytes(self, axis: int, count: int) -> int:
        """Return the contiguous bytes in a slab of `count` indices along an axis."""
        return self._run_layout(axis)[2] * count * self.dtype.itemsize

    def read(self, axis: int | None, start: int, stop: int) -> NDArray[Any]:
        """Read a slab (all if `axis` is None); raise DataError if the file has been truncated."""
        if axis is None:
            start = 0
            stop = 1
            if math.prod(self.shape) * self.dtype.itemsize > MAX_READ_BYTES:
                return self._reshape_slab(self._map_all(), None)
        elif self.is_scattered(axis) and self.run_bytes(axis, stop - start) < LONG_RUN:
            return self._reshape_slab(self._read_from_wide_slab(axis, start, stop), axis)
        return self._reshape_slab(self._read_slab(axis, start, stop), axis)

    def _read_from_wide_slab(self, axis: int, start: int, stop: int) -> NDArray[Any]:
        """Return a scattered slab from the wide slab in memory; read the next one if needed."""
        if self._wide is not None:
            wide_axis, first, wide = self._wide
            if wide_axis == axis and first <= start and stop <= first + wide.shape[1]:
                return wide[:, start - first : stop - first]
            self._wide = None
            del wide  # release the memory before the next one is read
        outer, length, inner = self._run_layout(axis)
        step = max(1, stop - start)
        fitting = WIDE_BYTES // max(1, outer * inner * step * self.dtype.itemsize)
        wide = self._read_slab(axis, start, min(start + step * max(1, fitting), length))
        self._wide = axis, start, wide
        return wide[:, : stop - start]

    def _read_slab(self, axis: int | None, start: int, stop: int) -> NDArray[Any]:
        outer, length, inner = self._run_layout(axis)
        item = self.dtype.itemsize
        slab = buffers.empty((outer, stop - start, inner), self.dtype)
        if slab.nbytes:
            rows = slab.reshape(outer, -1).view(np.uint8)
            if outer > 1 and length * inner * item - rows.shape[1] <= GAP_BYTES:
                self._read_windows(rows, length * inner * item, start * inner * item)
            else:
                for number, row in enumerate(rows):
                    self._read_into(row, (number * length + start) * inner * item)
        return slab

    def _map_all(self) -> NDArray[Any]:
        try:
            return self._map_runs(None, 0, 1, 0, 1)
        except ValueError as error:  # beyond the end of the file
            raise self._truncated_error() from error

    def _read_windows(self, rows: NDArray[Any], length: int, start: int) -> None:
        outer, count = rows.shape
        if count == length:
            self._read_into(rows.reshape(-1), 0)
            return
        height = max(1, READ_BYTES // length)
        window = buffers.empty((height, length), np.dtype(np.uint8))
        for first in range(0, outer, height):
            rows_read = window[: min(height, outer - first)]
            self._read_into(rows_read.reshape(-1), first * length)
            rows[first : first + height] = rows_read[:, start : start + count]

    def _read_into(self, target: NDArray[Any], position: int) -> None:
        self.file.seek(self.offset + position)
        rest = target.data
        while rest:  # one system call reads at most about 2 GiB
            with name_in_errors(self.file.name):
                count = self.file.readinto(rest)  # type: ignore[attr-defined]
            if not count:
                raise self._truncated_error()
            rest = rest[count:]

    def _truncated_error(self) -> DataError:
        return DataError(
            f"{self.file.name}: was truncated while it was read; convert it when no other "
            "process writes to it, or convert a copy"
        )

    def write(self, axis: int | None, start: int, stop: int, values: NDArray[Any]) -> None:
        """Write contiguous `values` as the slab (all if `axis` is None)."""
        outer, length, inner = self._run_layout(axis)
        if outer == 1:
            self._write_run(start * inner * self.dtype.itemsize, values)
            return
        slab = values.reshape(outer, stop - start, inner)
        if (stop - start) * inner * self.dtype.itemsize >= LONG_RUN:
            for number, run in enumerate(slab):
                self._write_run((number * length + start) * inner * self.dtype.itemsize, run)
            return
        for first, last in self._windows(axis):
            self._map_runs(axis, start, stop, first, last)[...] = slab[first:last]

    def _write_run(self, position: int, values: NDArray[Any]) -> None:
        self.file.seek(self.offset + position)
        self.file.write(values.reshape(-1).view(np.uint8).data)

    def _stored_shape(self) -> tuple[int, ...]:
        # A Fortran-ordered file is the C-ordered file of the transposed array.
        return self.shape[::-1] if self.fortran_order else self.shape

    def _stored_axis(self, axis: int) -> int:
        return len(self.shape) - 1 - axis if self.fortran_order else axis

    def _run_layout(self, axis: int | None) -> tuple[int, int, int]:
        """Return the file as (outer, length of the axis, inner); a slab is `outer` runs."""
        if axis is None:
            return 1, 1, math.prod(self.shape)
        shape = self._stored_shape()
        axis = self._stored_axis(axis)
        return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])

    def _windows(self, axis: int | None) -> Iterator[tuple[int, int]]:
        outer, length, inner = self._run_layout(axis)
        rows = max(1, WINDOW_BYTES // max(1, length * inner * self.dtype.itemsize))
        for first in range(0, outer, rows):
            yield first, min(first + rows, outer)

    def _map_runs(
        self, axis: int | None, start: int, stop: int, first: int, last: int
    ) -> NDArray[Any]:
        """Map runs `first` to `last` of a slab as a (runs, stop - start, inner) array."""
        _, length, inner = self._run_layout(axis)
        if axis is None:
            start = 0
            stop = 1
        shape = (last - first, stop - start, inner)
        if 0 in shape or not self.dtype.itemsize:
            return np.empty(shape, self.dtype)
        run = length * inner
        item = self.dtype.itemsize
        count = (last - first - 1) * run + (stop - start) * inner
        offset = self.offset + (first * run + start * inner) * item
        mode: Any = "r+" if self.file.writable() else "r"
        with name_in_errors(self.file.name):
            mapped = np.memmap(self.file, np.uint8, mode, offset, count * item)
        return np.ndarray(shape, self.dtype, mapped, 0, (run * item, inner * item, item))

    def _reshape_slab(self, slab: NDArray[Any], axis: int | None) -> NDArray[Any]:
        shape = list(self._stored_shape())
        if axis is not None:
            shape[self._stored_axis(axis)] = slab.shape[1]
        array = slab.reshape(shape)
        return array.T if self.fortran_order else array


def is_npy(path: Path) -> bool:
    """Return True if the file begins with the magic bytes of `.npy`."""
    with name_in_errors(path), path.open("rb") as file:
        return file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX


@contextmanager
def open_npy(stored: StoredArray) -> Iterator[NpyFile]:
    """Open an array that is stored uncompressed in a file, to read slabs of it."""
    with stored.path.open("rb", buffering=0) as file:
        yield NpyFile(file, stored.offset or 0, stored.shape, stored.dtype, stored.fortran_order)


def create_npy(file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NpyFile:
    """Write the header of a `.npy` file and reserve the space of its array.

    Raises DtypeError if the format has no name for the dtype (bfloat16, float8).
    """
    header = make_npy_header(shape, dtype)
    reserve_space(file, len(header) + math.prod(shape) * dtype.itemsize)
    file.write(header)
    file.flush()
    return NpyFile(file, len(header), shape, dtype)


def make_npy_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """Return the header of a `.npy` file; raise DtypeError if it has no name for the dtype."""
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

_DISK_FULL_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Object stores, which rename by copying and show an object only after its complete upload.
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "r2", "tos"}


def parse_destination(name: str) -> Destination:
    """Return the path of a local name, or a URL as it is."""
    local = local_path(name)
    return name if local is None else Path(local)


@contextmanager
def open_destination(destination: Destination) -> Iterator[BinaryIO]:
    """Open a new file that gets its name only if the block ends without an exception."""
    if isinstance(destination, Path):
        with replace_atomically(destination) as file:
            yield file
        return
    with _open_upload(destination) as file:
        yield file


def create_result(file: BinaryIO, result: ArraySpec, destination: Destination) -> NpyFile:
    """Create the `.npy` array of a result; raise ArgumentError if the disk is full."""
    try:
        with name_in_errors(destination):
            return create_npy(file, result.shape, result.dtype)
    except OSError as error:
        if error.errno not in _DISK_FULL_ERRORS:
            raise
        folder = staging_folder(destination)
        nbytes = math.prod(result.shape) * result.dtype.itemsize
        where = "there"
        fix = "make room or write it elsewhere"
        if not isinstance(destination, Path):
            where = f"in {folder}, where it is written first"
            fix = "make room or set TMPDIR"
        message = (
            f"{destination}: no room for {format_bytes(nbytes)} ({error.strerror}; "
            f"{format_bytes(shutil.disk_usage(folder).free)} free {where}); {fix}"
        )
        raise ArgumentError(message) from error


def staging_folder(destination: Destination) -> Path:
    """Return the local folder in which a result is written first."""
    if isinstance(destination, Path):
        return resolve_links(destination).parent
    return Path(tempfile.gettempdir())


# ---- local files -------------------------------------------------------------------------


def check_destination(
    sources: Sequence[str], destination: Destination, suffix: str = ".npy"
) -> None:
    """Raise ArgumentError for a destination that cannot be written, before any work is done."""
    if str(destination) == "-":
        raise ArgumentError(
            f"-: the result cannot be a stream, as its parts are written in any order; name a "
            f"{suffix} file, and read that when it is complete"
        )
    if not isinstance(destination, Path):
        if not destination.endswith(suffix):
            raise ArgumentError(
                f"{destination}: the result is a {suffix} file; give it that suffix"
            )
        if destination in sources:
            raise ArgumentError(f"{destination}: is the source itself; choose another name")
        return
    if destination.suffix != suffix:
        fix = f"; name it {destination.with_suffix(suffix)}" if destination.name else ""
        raise ArgumentError(f"{destination}: the result is a {suffix} file{fix}")
    folder = resolve_links(destination).parent
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


# ---- uploads -----------------------------------------------------------------------------


@contextmanager
def _open_upload(url: str) -> Iterator[BinaryIO]:
    """Open a local file that is uploaded to the URL if the block ends without an exception."""
    system, remote_path = _file_system(url)
    temporary_path = f"{remote_path.rpartition('/')[0]}/.layoutkit.{secrets.token_hex(8)}.tmp"
    # Written now, so that a missing permission is an error before the conversion, not after it.
    _checked_call(url, lambda: system.pipe_file(temporary_path, b""))
    try:
        with tempfile.TemporaryDirectory(prefix="layoutkit-") as folder:
            local = Path(folder) / "x.npy"
            with local.open("w+b") as file:
                yield file
            _checked_call(url, lambda: _upload(system, local, temporary_path, remote_path))
    finally:
        with suppress(Exception):  # it was renamed, or the connection is lost
            system.rm_file(temporary_path)


def _upload(system: Any, local: Path, temporary_path: str, remote_path: str) -> None:
    if _OBJECT_STORES.isdisjoint(_protocols(system)):
        system.put_file(str(local), temporary_path)
        system.mv(temporary_path, remote_path)
    else:
        system.put_file(str(local), remote_path)


def _file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it; raise ArgumentError if it is unknown."""
    with explain_missing("URLs need fsspec", "data"):
        from fsspec.core import url_to_fs
    if url.startswith(("http://", "https://")):
        raise ArgumentError(f"{url}: web servers are read-only; choose another place")
    system, path = _checked_call(url, lambda: url_to_fs(url))
    return system, path


def _protocols(system: Any) -> set[str]:
    protocol = system.protocol
    return {protocol} if isinstance(protocol, str) else set(protocol)


def _checked_call(url: str, function: Callable[[], Any]) -> Any:
    """Call a function of a file system; raise ArgumentError for any exception."""
    try:
        return function()
    except Exception as error:
        raise ArgumentError(
            f"{url}: cannot be written ({describe_error(error)}); choose another place, or "
            "provide what its file system needs"
        ) from error

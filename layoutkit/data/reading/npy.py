"""Arrays in `.npy` files and in `.npz` archives: where their elements lie, mapped or read.

The one reader of both formats, for indexes, Samples and the command line. Knows headers and
archives; knows nothing of records, fields and layouts.
"""

from __future__ import annotations

import ast
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy

from ...errors import DataError
from ...memory import Array
from .urls import local_path, read_whole

__all__ = ["StoredArray", "read_npy"]

_LOCAL_HEADER = 30  # bytes of a zip member's header, before its name and extra fields
_LONGEST_HEADER = 10_000  # characters that Python is given to read, as NumPy has it

# What NumPy and zipfile raise for a file that is cut, damaged or something else.
_DAMAGED = (ValueError, TypeError, KeyError, SyntaxError, EOFError, zipfile.BadZipFile, zlib.error)


def read_npy(path: str) -> Any:
    """The array of a `.npy` file, or those of a `.npz` archive by name; their content decides.

    Of a local file StoredArrays, of which no element is read; of a URL NumPy's, in memory.

    Raises
    ------
    OSError
        A local file cannot be opened.
    DataError
        It is neither, or holds pickled objects; a URL cannot be read.
    """
    local = local_path(path)
    if local is None:
        return _loaded(path)
    at = Path(local).absolute()
    with at.open("rb") as file:
        is_archive = file.read(2) == b"PK"
    if not is_archive:
        return StoredArray(at)
    try:
        with zipfile.ZipFile(at) as archive:
            names = archive.namelist()
    except _DAMAGED as error:
        raise _unreadable(at, None, error) from error
    return {name.removesuffix(".npy"): StoredArray(at, name) for name in names}


class Header(NamedTuple):
    """What a file says of its array."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]


class StoredArray:
    """An array in a `.npy` file, or in a member of a `.npz` archive. Only its header is read.

    path, member             where it is; the member's name in the archive, or None
    shape, dtype             as the header says
    fortran_order : bool     the first axis is the one whose elements are side by side
    offset : int or None     where its elements begin in the file; None where it is compressed
    """

    def __init__(self, path: Path, member: str | None = None) -> None:
        self.path, self.member = path, member
        try:
            header, self.offset = _found(path, member)
        except _DAMAGED as error:
            raise _unreadable(path, member, error) from error
        self.shape, self.fortran_order, self.dtype = header
        if self.dtype.hasobject:
            raise _unreadable(path, member, "its elements are pickled objects")
        if min(self.shape, default=0) < 0:
            raise _unreadable(path, member, f"its shape is {self.shape}")

    def mapped(self, writable: bool = False) -> Array:
        """The array in memory that the file is mapped to; what is written to it lands there.

        A compressed one cannot be mapped, and is `loaded`. Raises OSError where the file cannot
        be opened so, DataError where it is too short.
        """
        if self.offset is None:
            return self.loaded()
        if 0 in self.shape or not self.dtype.itemsize:  # which cannot be mapped
            return np.empty(self.shape, self.dtype)
        self.check_length()  # a file that is mapped for writing would be made longer
        order: Any = "F" if self.fortran_order else "C"
        mode: Any = "r+" if writable else "r"
        mapped: Array = np.memmap(self.path, self.dtype, mode, self.offset, self.shape, order)
        return np.asarray(mapped)

    def loaded(self) -> Array:
        """The member of an archive in memory of its own; DataError where it is damaged."""
        try:
            with np.load(self.path) as found:
                array: Array = found[str(self.member).removesuffix(".npy")]
        except _DAMAGED as error:
            raise _unreadable(self.path, self.member, error) from error
        return array

    def check_length(self) -> None:
        """DataError where the file ends before its array does."""
        count = int(np.prod(self.shape, dtype=object))
        missing = (self.offset or 0) + count * self.dtype.itemsize - self.path.stat().st_size
        if missing > 0:
            raise _unreadable(self.path, self.member, f"it is cut: {missing} bytes are missing")


def _loaded(url: str) -> Any:
    """The array or arrays of a URL."""
    file = read_whole(url)
    try:
        found = np.load(file)
        return found if isinstance(found, np.ndarray) else dict(found)
    except _DAMAGED as error:
        raise _unreadable(url, None, error) from error


def _found(path: Path, member: str | None) -> tuple[Header, int | None]:
    """The header, and where the elements begin in the file; None where they are compressed."""
    if member is None:
        with path.open("rb") as file:
            return _header(file), file.tell()
    with zipfile.ZipFile(path) as archive, archive.open(member) as part:
        header, info = _header(part), archive.getinfo(member)
        length = part.tell()
    if info.compress_type != zipfile.ZIP_STORED:
        return header, None
    with path.open("rb") as file:
        file.seek(info.header_offset + _LOCAL_HEADER - 4)
        name, extra = np.frombuffer(file.read(4), "<u2").tolist()
    return header, info.header_offset + _LOCAL_HEADER + name + extra + length


def _header(file: Any) -> Header:
    """What the beginning of a `.npy` file says; ValueError, and others, where it is none."""
    version = npy.read_magic(file)
    if version == (1, 0):
        return Header(*npy.read_array_header_1_0(file))
    if version == (2, 0):
        return Header(*npy.read_array_header_2_0(file))
    if version == (3, 0):
        return _header_3_0(file)
    raise ValueError(f"version {version} of the format is not known here")


def _header_3_0(file: BinaryIO) -> Header:
    """As 2.0, but in UTF-8; NumPy has no public reader for it."""
    length = int.from_bytes(file.read(4), "little")
    if length > _LONGEST_HEADER:
        raise ValueError(f"its header has {length} bytes")
    said = ast.literal_eval(file.read(length).decode())
    return Header(said["shape"], said["fortran_order"], npy.descr_to_dtype(said["descr"]))


def _unreadable(path: Any, member: str | None, why: Any) -> DataError:
    where = path if member is None else f"{member} in {path}"
    return DataError(
        f"{where}: no array can be read from it ({str(why).rstrip('.')}); it has to be complete "
        "and hold plain numbers or text, as numpy.save and numpy.savez write them"
    )

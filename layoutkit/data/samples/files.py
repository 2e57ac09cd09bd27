"""Arrays in `.npy` and `.npz` files: mapped into memory, read when they are selected from."""

from __future__ import annotations

import zipfile
import zlib
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from ...errors import DataError
from ...memory import Array
from .sources import ArraySource

__all__ = ["FileSource", "open_file"]

_LOCAL_HEADER = 30  # bytes of a zip member's header, before its name and extra fields


def open_file(path: Any) -> FileSource | dict[str, FileSource]:
    """The array of a `.npy` file, or those of a `.npz` file by name.

    Raises DataError where the file cannot be opened or is neither.
    """
    at = Path(path).absolute()
    try:
        with at.open("rb") as file:
            is_archive = file.read(2) == b"PK"
        if not is_archive:
            return FileSource(at)
        with zipfile.ZipFile(at) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{at} cannot be opened: {error}") from error
    return {name.removesuffix(".npy"): FileSource(at, name) for name in names}


class FileSource(ArraySource):
    """An array in a `.npy` file, or in a member of a `.npz` file; read-only.

    It is mapped into memory: a read touches what is selected. A compressed member cannot be; it
    is read whole, and kept, when something of it is selected first.
    """

    writable = False

    def __init__(self, path: Path, member: str | None = None) -> None:
        self.path, self.member = path, member
        try:
            header = self._header()
        except (OSError, zipfile.BadZipFile, KeyError) as error:
            raise DataError(f"{path} cannot be opened: {error}") from error
        except (ValueError, TypeError, SyntaxError, EOFError) as error:
            raise self._unreadable(error) from error
        self.shape, self._fortran, self.dtype, self._offset = header
        if self.dtype.hasobject:
            raise self._unreadable("its elements are pickled objects")

    @cached_property
    def array(self) -> Array:  # type: ignore[override]
        """The array, mapped where that is possible."""
        if self._offset is None:
            return self._load()
        if 0 in self.shape or not self.dtype.itemsize:  # which cannot be mapped
            return np.empty(self.shape, self.dtype)
        order: Any = "F" if self._fortran else "C"
        try:
            mapped: Array = np.memmap(self.path, self.dtype, "r", self._offset, self.shape, order)
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error
        return np.asarray(mapped)

    def _load(self) -> Array:
        try:
            with np.load(self.path) as members:
                array: Array = members[str(self.member).removesuffix(".npy")]
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise self._unreadable(error) from error
        array.flags.writeable = False
        return array

    def same(self, other: Any) -> bool:
        """Whether both are one array of one file."""
        ours = (self.path, self.member)
        return isinstance(other, FileSource) and ours == (other.path, other.member)

    def _header(self) -> tuple[tuple[int, ...], bool, Any, int | None]:
        """Shape, Fortran order, dtype, and where the elements begin; None where compressed."""
        if self.member is None:
            with self.path.open("rb") as file:
                return (*_read_header(file), file.tell())
        with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as file:
            header, info = _read_header(file), archive.getinfo(self.member)
            length = file.tell()
        if info.compress_type != zipfile.ZIP_STORED:
            return (*header, None)
        with self.path.open("rb") as archive_file:
            archive_file.seek(info.header_offset + _LOCAL_HEADER - 4)
            name, extra = np.frombuffer(archive_file.read(4), "<u2").tolist()
        return (*header, info.header_offset + _LOCAL_HEADER + name + extra + length)

    def _unreadable(self, why: Any) -> DataError:
        where = self.path if self.member is None else f"{self.member} in {self.path}"
        return DataError(
            f"{where} is no array file ({str(why).rstrip('.')}); it has to be complete and hold "
            "plain elements, as numpy.save and numpy.savez write them"
        )

    def __reduce__(self) -> Any:
        return FileSource, (self.path, self.member)


def _read_header(file: Any) -> tuple[tuple[int, ...], bool, Any]:
    """Shape, Fortran order and dtype of a `.npy` file; ValueError where it is none."""
    version = npy.read_magic(file)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version} of the format is not known here")
    found: tuple[tuple[int, ...], bool, Any] = readers[version](file)
    return found

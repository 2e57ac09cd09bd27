"""Arrays in `.npy` files and `.npz` archives: headers, memory-mapped or loaded arrays.

Sources, Samples and the command line all read both formats through this module.

A header is a Python literal. NumPy passes it to Python's own parser, which deep or long text in a
damaged or hostile file can keep busy or crash in many ways. This module checks its length, tokens
and nesting first, so that only what `numpy.save` may write is parsed.
"""

from __future__ import annotations

import ast
import io
import re
import zipfile
from contextlib import AbstractContextManager
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy

from ..._utils.errors import as_data_errors
from ...errors import DataError
from ...memory import Array
from .filesystem import check_unpacked_size, local_path, read_all

_MAX_HEADER = 10_000  # bytes, as in NumPy
_MAX_DEPTH = 32  # nested brackets; nested record dtypes need two per level
_LENGTH_SIZES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}  # bytes of the header length, by version
_MAX_NBYTES = 1 << 63  # array size that NumPy can represent

# The tokens of a header. Python 2 wrote an L after long integers.
_TOKEN = re.compile(
    r"""\s*(?: (?P<text> [ub]?(?: '(?:[^'\\\n]|\\['"\\nrtxuU])*' | "(?:[^"\\\n]|\\['"\\nrtxuU])*" ))
    | (?P<number> -?\d{1,20} )L? | (?P<word> True|False|None ) | (?P<mark> [][(){},:] ) )\s*""",
    re.VERBOSE,
)


class Header(NamedTuple):
    """The description of an array in its file."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """The bytes of the array, as an unbounded integer."""
        return prod(self.shape) * self.dtype.itemsize


def read_header(file: BinaryIO) -> Header:
    """Read the header of a file, up to its elements.

    Raises ValueError if there is no valid header, and any error of NumPy for its dtype.
    """
    version, length = _read_length(file)
    if length > _MAX_HEADER:
        raise ValueError(f"its header has {length} bytes, more than {_MAX_HEADER}")
    text = _read_exactly(file, length).decode("utf8" if version == (3, 0) else "latin1")
    return _to_header(ast.literal_eval(_tokenized(text)))


def header_length(beginning: bytes) -> int:
    """Return the number of header bytes, from the first 12 bytes; ValueError if it is not .npy."""
    file = io.BytesIO(beginning)
    _, length = _read_length(file)
    return file.tell() + length


def _read_length(file: BinaryIO) -> tuple[tuple[int, int], int]:
    """Read the version, and the number of bytes of the header after both."""
    version = npy.read_magic(file)
    if version not in _LENGTH_SIZES:
        raise ValueError(f"version {version} of the format is not known here")
    return version, int.from_bytes(_read_exactly(file, _LENGTH_SIZES[version]), "little")


def _read_exactly(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise ValueError("it ends within its header")
    return data


def _tokenized(text: str) -> str:
    """Return the header's tokens separated by spaces; ValueError for an invalid token."""
    tokens = []
    pos = 0
    depth = 0
    while pos < len(text):
        match = _TOKEN.match(text, pos)
        if match is None:
            raise ValueError(f"its header cannot be read from {text[pos : pos + 20]!r} on")
        token = match[match.lastgroup or 0]
        pos = match.end()
        depth += (token in "([{") - (token in ")]}")
        if depth > _MAX_DEPTH:
            raise ValueError(f"its header has more than {_MAX_DEPTH} brackets inside of each other")
        tokens.append(token)
    return " ".join(tokens)


def _to_header(literal: Any) -> Header:
    """Return the Header of a literal; ValueError if it does not describe an array."""
    if not isinstance(literal, dict) or literal.keys() != {"descr", "fortran_order", "shape"}:
        raise ValueError("its header does not say descr, fortran_order and shape")
    shape = literal["shape"]
    order = literal["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"its shape is {shape}")
    if not isinstance(order, bool):
        raise ValueError(f"its fortran_order is {order}")
    dtype = npy.descr_to_dtype(literal["descr"])
    if dtype.hasobject:
        raise ValueError("its elements are pickled objects")
    # NumPy must be able to represent the size of an array without elements, too.
    if len(shape) > 64 or prod(map(_at_least_one, (*shape, dtype.itemsize))) >= _MAX_NBYTES:
        raise ValueError(f"its shape is {shape}, which no memory holds")
    if dtype.subdtype is not None:
        raise ValueError(f"its elements are arrays, {dtype}")
    if not dtype.itemsize and prod(shape) > _MAX_HEADER:
        raise ValueError(f"it has {prod(shape)} elements of dtype {dtype}, which have no bytes")
    return Header(shape, order, dtype)


def _at_least_one(size: int) -> int:
    return max(size, 1)


_LOCAL_HEADER = 30  # bytes of a zip member's header, before its name and extra fields
# The largest ratio of a member's size to its size in the archive that deflate can reach.
MAX_DEFLATE_RATIO = 1032


def read_npy(path: str) -> Any:
    """Return the array of a `.npy` file, or a dict of the arrays of a `.npz` archive.

    The content decides which it is, not the suffix. For local files, StoredArrays whose elements
    are not read yet; for URLs, NumPy arrays in memory.
    Raises
    ------
    OSError
        A local file cannot be opened.
    DataError
        It is neither format, or holds pickled objects; a URL cannot be read.
    """
    local = local_path(path)
    if local is None:
        return _read_url(path)
    with _array_errors(path):
        file_path = Path(local).absolute()
        if file_path.exists() and not file_path.is_file():  # opening a pipe, e.g., would block
            raise DataError(f"{path} cannot be read: it is not a file; save the array in one first")
        with file_path.open("rb") as file:
            if file.read(2) != b"PK":
                return StoredArray(file_path)
        with zipfile.ZipFile(file_path) as archive:
            names = archive.namelist()
            return {
                name.removesuffix(".npy"): StoredArray(file_path, name, archive) for name in names
            }


class StoredArray:
    """An array in a `.npy` file or a member of a `.npz` archive. Only its header is read at first.

    path, member             the file, and the member's name in the archive, or None
    shape, dtype             from the header; the file was checked to be long enough for them
    fortran_order : bool     True if the elements are in Fortran order
    offset : int or None     offset of the elements in the file; None if they are compressed
    """

    def __init__(
        self, path: Path, member: str | None = None, archive: zipfile.ZipFile | None = None
    ) -> None:
        self.path = path
        self.member = member
        self.offset: int | None
        with _array_errors(path, member):
            if member is None:
                with path.open("rb") as file:
                    header = read_header(file)
                    self.offset = file.tell()
            elif archive is None:
                with zipfile.ZipFile(path) as own_archive:
                    header, self.offset = _member_header(own_archive, member)
            else:
                header, self.offset = _member_header(archive, member)
        self.shape, self.fortran_order, self.dtype = header
        self._nbytes = header.nbytes
        if self.offset is not None:
            self.check_length()

    def memmap(self, writable: bool = False) -> Array:
        """Return the array memory-mapped; if `writable`, assignments change the file.

        A compressed array cannot be mapped, and is `loaded`. Raises OSError if the file cannot be
        opened in this mode, DataError if it is too short.
        """
        if self.offset is None:
            return self.loaded()
        if 0 in self.shape or not self.dtype.itemsize:  # mmap refuses empty regions
            return np.empty(self.shape, self.dtype)
        self.check_length()  # as mapping a short file for writing would extend it
        order: Any = "F" if self.fortran_order else "C"
        mode: Any = "r+" if writable else "r"
        with _array_errors(self.path, self.member):
            mapped: Array = np.memmap(self.path, self.dtype, mode, self.offset, self.shape, order)
        return np.asarray(mapped)

    def loaded(self) -> Array:
        """Return the member of an archive as an array in memory; DataError if it is damaged."""
        with _array_errors(self.path, self.member), np.load(self.path) as archive:
            array: Array = archive[str(self.member).removesuffix(".npy")]
        return array

    def check_length(self) -> None:
        """Raise DataError if the file ends before its array does."""
        missing = (self.offset or 0) + self._nbytes - self.path.stat().st_size
        with _array_errors(self.path, self.member):
            if missing > 0:
                raise ValueError(f"it is truncated: {missing} bytes are missing")


def _read_url(url: str) -> Any:
    """Return the arrays at a URL, after checking that their headers match the file's size."""
    file = read_all(url)
    with _array_errors(url):
        if file.read(2) != b"PK":
            file.seek(0)
            nbytes = read_header(file).nbytes
            missing = file.tell() + nbytes - file.getbuffer().nbytes
            if missing > 0:
                raise ValueError(f"it is truncated: {missing} bytes are missing")
            file.seek(0)
            return np.load(file)
        with zipfile.ZipFile(file) as archive:
            nbytes = sum(_member_header(archive, name)[0].nbytes for name in archive.namelist())
        check_unpacked_size(url, nbytes)
        file.seek(0)
        return dict(np.load(file))


def _member_header(archive: zipfile.ZipFile, member: str) -> tuple[Header, int | None]:
    """Return the header, and the offset of the elements; None if they are compressed."""
    info = archive.getinfo(member)
    with archive.open(member) as part:
        header = read_header(part)  # type: ignore[arg-type]
        length = part.tell()
    if info.compress_type != zipfile.ZIP_STORED:
        _check_size(header, length, info)
        return header, None
    file: Any = archive.fp
    file.seek(info.header_offset + _LOCAL_HEADER - 4)
    name, extra = np.frombuffer(file.read(4), "<u2").tolist()
    return header, info.header_offset + _LOCAL_HEADER + name + extra + length


def _check_size(header: Header, length: int, info: zipfile.ZipInfo) -> None:
    """Raise ValueError if a member is shorter than its array, or its size is impossible."""
    if length + header.nbytes > info.file_size:
        raise ValueError(
            f"it is truncated: it has {info.file_size} bytes and its array {header.nbytes}"
        )
    deflated = info.compress_type == zipfile.ZIP_DEFLATED
    if deflated and info.file_size > MAX_DEFLATE_RATIO * (info.compress_size + 1):
        raise ValueError(f"{info.compress_size} bytes cannot become {info.file_size}")


def _array_errors(path: object, member: str | None = None) -> AbstractContextManager[None]:
    """Convert errors from damaged or foreign files into DataErrors.

    Any exception counts: NumPy, zipfile and the decompressors raise a dozen exception classes.
    """
    fix = (
        "it has to be complete and hold plain numbers or text, "
        "as numpy.save and numpy.savez write them"
    )
    name = path if member is None else f"{member} in {path}"
    return as_data_errors(name, noun="an array", fix=fix)

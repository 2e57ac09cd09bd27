"""Arrays in `.npy` files and in `.npz` archives: where their elements lie, mapped or read.

The one reader of both formats, for indexes, Samples and the command line. Knows headers and
archives; knows nothing of records, fields and layouts.

What the header of a `.npy` file says of its array, read within bounds.

A header is a Python literal. NumPy gives it to Python's own parser, which deep or long text from a
damaged or hostile file keeps busy, or breaks in many ways. Here its length, its words and its
nesting are looked at first, so that only what `numpy.save` may write is parsed.
"""

from __future__ import annotations

import ast
import io
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy

from ...errors import DataError
from ...memory import Array
from .filesystem import check_unpacked_size, local_path, read_all

_LONGEST = 10_000  # bytes, as NumPy has it
_DEEPEST = 32  # brackets inside of each other; records within records have two a level
_LENGTHS = {(1, 0): 2, (2, 0): 4, (3, 0): 4}  # of the number that says how long the header is
_LARGEST = 1 << 63  # bytes that NumPy counts, whether they are there or not

# The words of a header. Python 2 wrote an L behind long numbers.
_WORD = re.compile(
    r"""\s*(?: (?P<text> [ub]?(?: '(?:[^'\\\n]|\\['"\\nrtxuU])*' | "(?:[^"\\\n]|\\['"\\nrtxuU])*" ))
    | (?P<number> -?\d{1,20} )L? | (?P<word> True|False|None ) | (?P<mark> [][(){},:] ) )\s*""",
    re.VERBOSE,
)


class Header(NamedTuple):
    """What a file says of its array."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """The bytes of the array, as a number of any size."""
        return prod(self.shape) * self.dtype.itemsize


def read_header(file: BinaryIO) -> Header:
    """The header at the beginning of a file, which is then read up to its elements.

    Raises ValueError where there is none, and whatever NumPy has to say of its dtype.
    """
    version = npy.read_magic(file)
    if version not in _LENGTHS:
        raise ValueError(f"version {version} of the format is not known here")
    length = int.from_bytes(_exactly(file, _LENGTHS[version]), "little")
    if length > _LONGEST:
        raise ValueError(f"its header has {length} bytes, more than {_LONGEST}")
    text = _exactly(file, length).decode("utf8" if version == (3, 0) else "latin1")
    return _checked(ast.literal_eval(_plain(text)))


def header_length(beginning: bytes) -> int:
    """How many bytes of a file are its header, by the first 12; ValueError as `read_header`."""
    version = npy.read_magic(io.BytesIO(beginning))
    if version not in _LENGTHS:
        raise ValueError(f"version {version} of the format is not known here")
    here = len(npy.MAGIC_PREFIX) + 2
    stop = here + _LENGTHS[version]
    return stop + int.from_bytes(beginning[here:stop], "little")


def _exactly(file: BinaryIO, count: int) -> bytes:
    found = file.read(count)
    if len(found) < count:
        raise ValueError("it ends within its header")
    return found


def _plain(text: str) -> str:
    """The header word by word, as Python reads it; ValueError at what no header has."""
    words, at, depth = [], 0, 0
    while at < len(text):
        found = _WORD.match(text, at)
        if found is None:
            raise ValueError(f"its header cannot be read from {text[at : at + 20]!r} on")
        word, at = found[found.lastgroup or 0], found.end()
        depth += (word in "([{") - (word in ")]}")
        if depth > _DEEPEST:
            raise ValueError(f"its header has more than {_DEEPEST} brackets inside of each other")
        words.append(word)
    return " ".join(words)


def _checked(said: Any) -> Header:
    """The Header of a literal; ValueError where it does not describe an array."""
    if not isinstance(said, dict) or said.keys() != {"descr", "fortran_order", "shape"}:
        raise ValueError("its header does not say descr, fortran_order and shape")
    shape, order = said["shape"], said["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"its shape is {shape}")
    if not isinstance(order, bool):
        raise ValueError(f"its fortran_order is {order}")
    dtype = npy.descr_to_dtype(said["descr"])
    if dtype.hasobject:
        raise ValueError("its elements are pickled objects")
    # An array without elements has a shape as well, which NumPy has to be able to count.
    if len(shape) > 64 or prod(map(_at_least_one, (*shape, dtype.itemsize))) >= _LARGEST:
        raise ValueError(f"its shape is {shape}, which no memory holds")
    if dtype.subdtype is not None:
        raise ValueError(f"its elements are arrays, {dtype}")
    return Header(shape, order, dtype)


def _at_least_one(size: int) -> int:
    return max(size, 1)


_LOCAL_HEADER = 30  # bytes of a zip member's header, before its name and extra fields
# How much larger than their bytes in the archive members can be: the most that deflate does.
_MOST_DEFLATED = 1032


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
    with _reading(path):
        at = Path(local).absolute()
        if at.exists() and not at.is_file():  # a pipe, for one, would be waited for
            raise DataError(f"{path} cannot be read: it is no file; save the array in one first")
        with at.open("rb") as file:
            if file.read(2) != b"PK":
                return StoredArray(at)
        with zipfile.ZipFile(at) as archive:
            names = archive.namelist()
            return {name.removesuffix(".npy"): StoredArray(at, name, archive) for name in names}


class StoredArray:
    """An array in a `.npy` file, or in a member of a `.npz` archive. Only its header is read.

    path, member             where it is; the member's name in the archive, or None
    shape, dtype             as the header says, believed where the file is long enough for them
    fortran_order : bool     the first axis is the one whose elements are side by side
    offset : int or None     where its elements begin in the file; None where it is compressed
    """

    def __init__(
        self, path: Path, member: str | None = None, archive: zipfile.ZipFile | None = None
    ) -> None:
        self.path, self.member = path, member
        self.offset: int | None
        with _reading(path, member):
            if member is None:
                with path.open("rb") as file:
                    header, self.offset = read_header(file), file.tell()
            elif archive is None:
                with zipfile.ZipFile(path) as open_binary:
                    header, self.offset = _found(open_binary, member)
            else:
                header, self.offset = _found(archive, member)
        self.shape, self.fortran_order, self.dtype = header
        self._nbytes = header.nbytes
        if self.offset is not None:
            self.check_length()

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
        with _reading(self.path, self.member):
            mapped: Array = np.memmap(self.path, self.dtype, mode, self.offset, self.shape, order)
        return np.asarray(mapped)

    def loaded(self) -> Array:
        """The member of an archive in memory of its own; DataError where it is damaged."""
        with _reading(self.path, self.member), np.load(self.path) as found:
            array: Array = found[str(self.member).removesuffix(".npy")]
        return array

    def check_length(self) -> None:
        """DataError where the file ends before its array does."""
        missing = (self.offset or 0) + self._nbytes - self.path.stat().st_size
        if missing > 0:
            raise _unreadable(self.path, self.member, f"it is cut: {missing} bytes are missing")


def _loaded(url: str) -> Any:
    """The array or arrays of a URL, whose headers say no more than is there and may be."""
    file = read_all(url)
    with _reading(url):
        if file.read(2) != b"PK":
            file.seek(0)
            nbytes = read_header(file).nbytes
            missing = file.tell() + nbytes - file.getbuffer().nbytes
            if missing > 0:
                raise ValueError(f"it is cut: {missing} bytes are missing")
            file.seek(0)
            return np.load(file)
        with zipfile.ZipFile(file) as archive:
            nbytes = sum(_found(archive, name)[0].nbytes for name in archive.namelist())
        check_unpacked_size(url, nbytes)
        file.seek(0)
        return dict(np.load(file))


def _found(archive: zipfile.ZipFile, member: str) -> tuple[Header, int | None]:
    """The header, and where the elements begin in the file; None where they are compressed."""
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
    """ValueError where a member is shorter than its array, or cannot be as long as it says."""
    if length + header.nbytes > info.file_size:
        raise ValueError(f"it is cut: it has {info.file_size} bytes and its array {header.nbytes}")
    deflated = info.compress_type == zipfile.ZIP_DEFLATED
    if deflated and info.file_size > _MOST_DEFLATED * (info.compress_size + 1):
        raise ValueError(f"{info.compress_size} bytes cannot become {info.file_size}")


@contextmanager
def _reading(path: Any, member: str | None = None) -> Iterator[None]:
    """DataError for whatever is raised within by a file that is damaged or something else.

    Whatever: NumPy, zipfile and what they decompress with raise a dozen classes of exceptions.
    """
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:  # there, or readable, at all
            raise
        raise _unreadable(path, member, error) from error


def _unreadable(path: Any, member: str | None, why: Any) -> DataError:
    where = path if member is None else f"{member} in {path}"
    return DataError(
        f"{where}: no array can be read from it ({_short(why)}); it has to be complete "
        "and hold plain numbers or text, as numpy.save and numpy.savez write them"
    )


def _short(why: Any) -> str:
    """What is wrong in a few words; of an exception without words, its class."""
    return (str(why).partition("\n")[0].rstrip(".") or type(why).__name__)[:200]

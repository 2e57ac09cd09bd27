"""Which suffix is which format, and who reads it: the one table of them.

Indexes, Samples and the command line ask here, so that a new format of arrays is its reader, in
`reading/`, and a row in ARRAYS. Knows suffixes; what becomes of what was read is not known here.

Tables and columns of pandas, polars and those like them, as arrays of rows.

Knows them by what they have, and that labels may be words; `arrays/` knows what else columns hold.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..backends.dispatch import as_array
from ..errors import ArgumentError, DataError, LayoutkitError
from ..memory import Array
from .io.filesystem import convert_os_errors
from .io.npy import read_npy
from .io.tensor_files import read_pt, read_safetensors
from .io.zarr import is_store, read_zarr

# Takes a path or URL. Gives an array, or arrays by name; they may be StoredArrays, and whatever has
# a shape, a dtype and square brackets.
Reader = Callable[[str], Any]

ARRAYS: dict[str, Reader] = {
    ".npy": read_npy,
    ".npz": read_npy,
    ".safetensors": read_safetensors,
    ".pt": read_pt,
    ".zarr": read_zarr,
}

# What stands between two cells of a row.
TABLES = {".csv": ",", ".tsv": "\t"}

# Files of many records, and the kind of index that they are.
CONTAINERS = {
    ".rec": "image",
    ".tar": "tar",
    ".parquet": "parquet",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
}
_COMPRESSED = (".tgz", ".tbz2", ".txz", ".tzst")  # tar archives, too, which say so when opened

# What counts as a picture in a folder or a glob. Pillow, which reads them, knows more suffixes,
# but some of them (.h5, .mpg, .pdf) name files that are rarely meant as pictures.
PICTURES = frozenset(
    {
        ".avif",
        ".bmp",
        ".gif",
        ".jfif",
        ".jp2",
        ".jpe",
        ".jpeg",
        ".jpg",
        ".pbm",
        ".pgm",
        ".png",
        ".pnm",
        ".ppm",
        ".tga",
        ".tif",
        ".tiff",
        ".webp",
    }
)


def suffix_of(path: str) -> str:
    """The suffix of a path or URL, in small letters."""
    return os.path.splitext(path)[1].lower()  # noqa: PTH122 - URLs, too


def container_of(path: str) -> str | None:
    """The kind of container that a path, URL or pattern of these names; None for none."""
    name = path.rpartition("/")[2].lower()
    if name.endswith(_COMPRESSED) or ".tar." in name:
        return "tar"
    # train.tfrecord-00003-of-00010, x.rec*
    stem = re.split(r"[-*?\[{]", suffix_of(name))[0]
    return CONTAINERS.get(stem)


def reader_of(path: str) -> Reader:
    """Who reads the arrays of a path or URL. Files of an unknown suffix may be NumPy's."""
    return read_zarr if is_store(path) else ARRAYS.get(suffix_of(path), read_npy)


def open_arrays(path: str) -> Any:
    """The array of a file, or several by name; DataError, whatever its reader raises."""
    with explained(path):
        return reader_of(path)(path)


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Say of which file a reader speaks that finds it damaged; DataError, whatever it raises."""
    with convert_os_errors(path):
        try:
            yield
        except (ArgumentError, DataError, OSError, MemoryError):
            raise
        except Exception as error:
            raise DataError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def is_frame(value: Any) -> bool:
    """Whether a value is a table or column, whose own [0] is a column, a table or the label 0."""
    named = any(hasattr(value, name) for name in ("iloc", "get_column", "to_frame"))
    return named and hasattr(value, "to_numpy")


def rows_of(frame: Any, name: str) -> Array:
    """Its rows, by place; DataError for what is neither numbers nor a column of strings.

    `name` is what messages call it.
    """
    if len(frame.shape) == 1:
        words = np.asarray(frame.to_numpy())
        if words.dtype.kind in "OUT" and all(isinstance(word, str) for word in words):
            return words
    try:
        return as_array(frame, name)
    except LayoutkitError as error:
        raise DataError(str(error)) from error

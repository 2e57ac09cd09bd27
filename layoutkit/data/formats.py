"""The tables of file suffixes and their readers; data frames as arrays.

Sources, Samples and the command line use these tables, so a new array format needs only a reader in
`io/` and a row in ARRAY_READERS.

Data frames and columns of pandas, polars and similar libraries are recognized by their methods. A
column of strings becomes an array of labels.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from .._utils.errors import as_data_errors
from ..backends.dispatch import as_array
from ..errors import DataError, LayoutkitError
from ..images.suffixes import IMAGE_SUFFIXES
from ..memory import Array
from .io.npy import read_npy
from .io.tensor_files import read_pt, read_safetensors
from .io.zarr import is_store, read_zarr

# A reader receives a path or URL and returns an array or a dict of arrays. An array may also be a
# StoredArray or another object with a shape, a dtype and indexing.
ArrayReader = Callable[[str], Any]

ARRAY_READERS: dict[str, ArrayReader] = {
    ".npy": read_npy,
    ".npz": read_npy,
    ".safetensors": read_safetensors,
    ".pt": read_pt,
    ".zarr": read_zarr,
}

# The names of an input and its labels or targets, in a mapping, a Dataset and a file of arrays.
FIELD_PAIRS = (("x", "y"), ("input", "target"))

# The delimiter between two cells of a row.
TABLE_DELIMITERS = {".csv": ",", ".tsv": "\t"}

# The kind of source of each suffix of files with many records.
CONTAINER_KINDS = {
    ".rec": "image",
    ".tar": "tar",
    ".parquet": "parquet",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
}
_COMPRESSED = (
    ".tgz",
    ".tbz2",
    ".txz",
    ".tzst",
)  # compressed tar archives, which their source rejects


def lowercase_suffix(path: str) -> str:
    """Return the suffix of a path or URL, in lower case."""
    return os.path.splitext(path)[1].lower()


def is_image_name(path: str) -> bool:
    """Return True if a path or URL has the suffix of an image."""
    return lowercase_suffix(path) in IMAGE_SUFFIXES


def container_kind(path: str) -> str | None:
    """Return the kind of container at a path, URL or pattern; None for other files."""
    name = path.rpartition("/")[2].lower()
    if name.endswith(_COMPRESSED) or ".tar." in name:
        return "tar"
    # train.tfrecord-00003-of-00010, x.rec*
    stem = re.split(r"[-*?\[{]", lowercase_suffix(name))[0]
    return CONTAINER_KINDS.get(stem)


def array_reader(path: str) -> ArrayReader:
    """Return the array reader for a path or URL; NumPy's reader for unknown suffixes."""
    return read_zarr if is_store(path) else ARRAY_READERS.get(lowercase_suffix(path), read_npy)


def open_arrays(path: str) -> Any:
    """Return the array or the dict of arrays of a file; raise DataError if reading fails."""
    with as_data_errors(path):
        return array_reader(path)(path)


def is_dataframe(value: Any) -> bool:
    """Return True for a data frame or column, which is not indexed by position as an array is."""
    has_method = any(hasattr(value, name) for name in ("iloc", "get_column", "to_frame"))
    return has_method and hasattr(value, "to_numpy")


def frame_to_array(frame: Any, name: str) -> Array:
    """Return the rows as an array; raise DataError unless they are numbers or one string column.

    `name` names the data frame in error messages.
    """
    if len(frame.shape) == 1:
        strings = np.asarray(frame.to_numpy())
        if strings.dtype.kind in "OUT" and all(isinstance(string, str) for string in strings):
            return strings
    try:
        return as_array(frame, name)
    except LayoutkitError as error:
        raise DataError(str(error)) from error

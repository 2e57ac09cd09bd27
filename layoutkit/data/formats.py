"""The table of file formats by suffix; data frames as arrays.

Sources, Datasets and the command line use this table, so that a new format is one row. Other
packages add rows, too (`layoutkit.plugins`).

Data frames and columns of pandas, polars and similar libraries are recognized by their methods. A
column of strings becomes an array of labels.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .._utils.errors import as_data_errors
from .._utils.registry import Registry
from .._utils.validation import type_name, with_article
from ..backends.dispatch import as_array
from ..errors import ArgumentError, DataError, LayoutkitError
from ..images.suffixes import DECODERS, PILLOW_SUFFIXES
from ..memory import Array
from .io.npy import read_npy
from .io.tensor_files import read_pt, read_safetensors
from .io.zarr import is_store, read_zarr

# Called with a path or URL. Returns an array, a dict of arrays, or a StoredArray: another object
# with a shape, a dtype and indexing. A function of another package may also return a source of
# records: an Index, or an object with a length and `[i]`.
FormatReader = Callable[[str], Any]


class Format(NamedTuple):
    """The files of one suffix."""

    kind: str  # of their index
    read: FormatReader | None = None  # None: a table or a container, which is opened by its kind
    delimiter: str = ""  # between two cells of a row of a table

    @property
    def is_container(self) -> bool:
        """True for files with many records."""
        return self.read is None and not self.delimiter


def _accept_format(name: str, extension: Any) -> Format:
    """Return the row of a function of another package."""
    if not callable(extension):
        raise ArgumentError(
            f"is {with_article(type_name(extension))}, but a function of a path is needed"
        )
    return Format("tensor", extension)


FORMATS = Registry(
    "layoutkit.formats",
    "the format",
    {
        "csv": Format("csv", delimiter=","),
        "tsv": Format("tsv", delimiter="\t"),
        "npy": Format("tensor", read_npy),
        "npz": Format("tensor", read_npy),
        "safetensors": Format("tensor", read_safetensors),
        "pt": Format("tensor", read_pt),
        "zarr": Format("zarr", read_zarr),
        "rec": Format("image"),
        "tar": Format("tar"),
        "parquet": Format("parquet"),
        "tfrecord": Format("tfrecord"),
        "tfrecords": Format("tfrecord"),
    },
    _accept_format,
)

# The names of an input and its labels or targets, in a mapping, a Dataset and a file of arrays.
FIELD_PAIRS = (("x", "y"), ("input", "target"))

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
    suffix = lowercase_suffix(path)
    return suffix != "" and suffix in DECODERS  # a search of extensions is slow


def find_format(path: str) -> Format | None:
    """Return the format of a path, URL or pattern; None if its suffix is unknown, or of images."""
    suffix = lowercase_suffix(path)
    is_other = not suffix or suffix[1:] in PILLOW_SUFFIXES
    return _container_of(path) or (None if is_other else FORMATS.find(suffix))


def container_kind(path: str) -> str | None:
    """Return the kind of container at a path, URL or pattern; None for other files."""
    row = _container_of(path)
    return None if row is None else row.kind


def _container_of(path: str) -> Format | None:
    name = path.rpartition("/")[2].lower()
    if name.endswith(_COMPRESSED) or ".tar." in name:
        return FORMATS.rows["tar"]
    # train.tfrecord-00003-of-00010, x.rec*
    stem = re.split(r"[-*?\[{]", lowercase_suffix(name))[0]
    row: Format | None = FORMATS.rows.get(stem[1:])
    return row if row is not None and row.is_container else None


def is_array_name(path: str) -> bool:
    """Return True if a path or URL has the suffix of a file of arrays."""
    row = FORMATS.find(lowercase_suffix(path))
    return row is not None and row.read is not None


def format_reader(path: str) -> FormatReader:
    """Return the function that reads a path or URL; NumPy's reader for unknown suffixes."""
    row = FORMATS.find("zarr" if is_store(path) else lowercase_suffix(path))
    return read_npy if row is None or row.read is None else row.read


def open_arrays(path: str, read: FormatReader | None = None) -> Any:
    """Return the result of `read`, by default by the suffix; raise DataError if it fails."""
    with as_data_errors(path):
        return (read or format_reader(path))(path)


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

"""From a source, as users give it, to a store or to a mapping of sources.

Knows what a user may give; formats of files are known by `formats.py`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from ...arrays.adapters import adapter_of, as_array
from ...checks import kind_text
from ...errors import DataError, LayoutkitError
from ..formats import open_arrays
from ..frames import is_frame, rows_of
from ..reading.npy import StoredArray
from .files import FileSource
from .sources import ArraySource, LikeSource, Source
from .stores import Rows, Store, Window
from .unbounded import Infinite, Stream

__all__ = ["open_store"]

_TAKES = (
    "arrays, what has shape, dtype and [], paths of files of arrays, mappings of names to these, "
    "and lists of arrays"
)
_ALSO = (
    "; a Dataset also what has [i] and no length, iterables, and functions that give an iterator"
)


def open_store(source: Any, dataset: bool, write: bool = False) -> Store | Mapping[str, Any]:
    """The store of a source, or a mapping of names to sources; DataError where it is neither.

    write : bool     whether a file is to be written to, if that is possible
    """
    if isinstance(source, Mapping):
        return source
    if isinstance(source, ArraySource | LikeSource):  # of a file
        return Window(source)
    if isinstance(source, str | os.PathLike):
        found = open_arrays(os.fspath(source))
        if isinstance(found, Mapping):
            return {name: _of_file(array, write) for name, array in found.items()}
        return Window(_of_file(found, write))
    array = _array(source)
    if array is not None:
        return Window(array)
    if isinstance(source, list | tuple):
        return Rows([_row(row, at) for at, row in enumerate(source)])
    store = _without_length(source) if dataset else None
    if store is None:
        raise DataError(f"a {kind_text(source)} is no source; a Sample takes {_TAKES}{_ALSO}")
    return store


def _of_file(found: Any, write: bool) -> Source:
    """The source of what a reader gave; what it copied into memory is not to be written to."""
    if isinstance(found, StoredArray):
        return FileSource.of(found, write)
    source = _array(found if hasattr(found, "shape") else np.asarray(found))
    if not isinstance(source, ArraySource):
        return source  # type: ignore[return-value]  # as it has a shape
    array = source.array.view()
    array.flags.writeable = False
    return ArraySource(array)


def _array(source: Any) -> Source | None:
    """What is an array or like one; None for everything else."""
    if isinstance(source, np.generic):
        source = np.asarray(source)
        source.flags.writeable = False  # a scalar cannot be written to
    if is_frame(source):
        source = rows_of(source, "source").view()
        source.flags.writeable = False  # a copy, or what pandas believes to know
    if isinstance(source, np.ndarray) or adapter_of(source) is not None:
        try:
            return ArraySource(as_array(source, "source"))
        except LayoutkitError as error:  # a masked array, or one on another device
            raise DataError(str(error)) from error
    like = all(hasattr(source, name) for name in ("shape", "dtype", "__getitem__"))
    return LikeSource(source) if like and not isinstance(source, type) else None


def _row(row: Any, at: int) -> Store:
    found = _array(row)
    if found is None:
        raise DataError(
            f"item {at} of the list is a {kind_text(row)}; a list has an array for each "
            "sample: pass numpy.asarray(source) for numbers"
        )
    return Window(found)


def _without_length(source: Any) -> Store | None:
    if isinstance(source, Iterator):
        raise DataError(
            f"a {kind_text(source)} can be iterated only once; give the function that makes "
            "it, or a list"
        )
    if isinstance(source, bytes | bytearray):
        return None
    is_type = isinstance(source, type)
    if hasattr(source, "__getitem__") and not hasattr(source, "__len__") and not is_type:
        return Infinite(source)
    if isinstance(source, Iterable) or (hasattr(source, "__getitem__") and not is_type):
        return Stream(partial(iter, source))
    return Stream(partial(_begun, source)) if callable(source) and _callable(source) else None


def _callable(source: Callable[..., Any]) -> bool:
    """Whether it takes no arguments; DataError where it needs some."""
    try:
        inspect.signature(source).bind()
    except TypeError:
        raise DataError(
            f"{source!r} needs arguments; give a function without any, that returns an iterator"
        ) from None
    except ValueError:  # built in, without a signature
        pass
    return True


def _begun(source: Callable[[], Any]) -> Iterator[Any]:
    """The iterator that a function gives; DataError where it gives something else."""
    found = source()
    if not isinstance(found, Iterable):
        raise DataError(f"{source!r} gave a {kind_text(found)}; it has to give an iterator")
    return iter(found)

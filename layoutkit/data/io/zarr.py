"""Arrays in zarr stores, at paths and URLs: opened, and read row by row in whole chunks.

The one reader of the format, for indexes, Samples and the command line. zarr is loaded when a store
is opened, as it is no part of every installation.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from ..._utils import fork
from ...errors import DataError
from ...memory import Array

__all__ = ["MARK", "ChunkedArray", "is_store", "open_store", "read_zarr"]

MARK = "layoutkit"  # the attribute of stores that `layoutkit convert` writes

# Of what was decoded, so many bytes are kept, and always two slabs: rows in order cross from one
# into the next.
_KEPT_BYTES, _KEPT_SLABS = 64 << 20, 2


def is_store(name: str) -> bool:
    """Whether a name is that of a zarr store, `x.zarr`, or of an array in one, `x.zarr/0`."""
    *folders, last = str(name).replace(os.sep, "/").rstrip("/").lower().split("/")
    return last.endswith(".zarr") or (
        "." not in last and any(folder.endswith(".zarr") for folder in folders)
    )


def read_zarr(path: str) -> Any:
    """The array of a store, or those of a group by name; nothing of them is read before.

    Raises
    ------
    DataError
        There is none, it is half written, or zarr is not installed.
    """
    found = _opened(path)
    if not hasattr(found, "array_keys"):
        return ChunkedArray(path)
    return {name: ChunkedArray(f"{path.rstrip('/')}/{name}") for name in sorted(found.array_keys())}


def open_store(path: str) -> Any:
    """The array of a zarr store, as zarr has it; DataError as `read_zarr`, and for a group."""
    found = _opened(path)
    if hasattr(found, "array_keys"):
        names = ", ".join(sorted(found.array_keys())) or "nothing"
        raise DataError(f"{path}: is no array of zarr but a group, of {names}; name one of these")
    mark = found.attrs.get(MARK)
    if mark is not None and not mark["complete"]:
        raise DataError(
            f"{path}: is half written; run `layoutkit convert` once more as before, which goes on "
            f"with it: {mark['of']}"
        )
    return found


def _opened(path: str) -> Any:
    try:
        import zarr
    except ImportError:
        raise DataError(f"{path} needs zarr; pip install 'layoutkit[dask]'") from None
    try:
        return zarr.open(path, mode="r")
    except Exception as error:
        raise DataError(f"{path}: is no array of zarr ({type(error).__name__}: {error})") from error


class ChunkedArray:
    """An array in a zarr store, of which rows are read.

    What is read is whole chunks, and those of the same rows, a slab, are kept for a while: rows in
    order read and decode each chunk once. Rows here and there decode a chunk for each of them, as
    many at a time as zarr does. Safe from many threads; a pickle is the name.

    Attributes
    ----------
    shape, dtype
        As the store says.
    dimension_names : tuple of (str or None), or None
        What the store calls the axes.
    slab : int
        How many rows a chunk has; with shards, these.
    """

    def __init__(self, name: str) -> None:
        self.name, array = name, open_store(name)
        self._array: Any = None
        self.shape, self.dtype = tuple(array.shape), np.dtype(array.dtype)
        self.dimension_names = getattr(array.metadata, "dimension_names", None)
        whole = getattr(array, "shards", None) or array.chunks
        self.slab = max(1, whole[0]) if whole else 1
        nbytes = self.dtype.itemsize * int(np.prod((self.slab, *self.shape[1:])))
        self._most = max(_KEPT_SLABS, _KEPT_BYTES // max(1, nbytes))
        self.renew()
        self._array = array  # None: to be opened
        fork.renew_in_children(self)

    def __reduce__(self) -> Any:
        return ChunkedArray, (self.name,)

    def __getitem__(self, key: Any) -> Array:
        """What a key of ints, slices that go forward and one increasing list selects, read now."""
        first = key[0] if isinstance(key, tuple) and key else key
        if isinstance(key, tuple) and len(key) > 1:
            return self._read(key)
        if isinstance(first, slice):
            return self.take(np.arange(*first.indices(self.shape[0])))
        if isinstance(first, np.ndarray):
            return self.take(first)
        if isinstance(first, int):
            found: Array = self.take(np.array([first]))[0, ...]
            return found
        return self._read(key)

    def take(self, places: Array) -> Array:
        """The rows in places that exist, in their order; a copy."""
        numbers, at = np.unique(places // self.slab, return_inverse=True)
        if len(numbers) > self._most:  # they would push each other out
            rows, order = np.unique(places, return_inverse=True)
            return self._read(rows)[order]
        found = np.empty((len(places), *self.shape[1:]), self.dtype)
        for turn, slab in enumerate(self._slabs(numbers.tolist())):
            here = at == turn
            found[here] = slab[places[here] % self.slab]
        return found

    def _slabs(self, numbers: list[int]) -> list[Array]:
        """The slabs of these numbers; those that are not kept are read in one go."""
        with self._lock:
            lacking = [number for number in numbers if number not in self._kept]
            self._kept.update(zip(lacking, self._fetched(lacking), strict=True))
            found = []
            for number in numbers:
                self._kept.move_to_end(number)
                found.append(self._kept[number])
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
            return found

    def _fetched(self, numbers: list[int]) -> list[Array]:
        sides = [(n * self.slab, min((n + 1) * self.slab, self.shape[0])) for n in numbers]
        if len(sides) < 2:
            return [self._read(slice(*side)) for side in sides]
        block = self._read(np.concatenate([np.arange(*side) for side in sides]))
        ends = np.cumsum([stop - start for start, stop in sides])[:-1]
        # Copies, as windows on all of them would keep all of them.
        return [part.copy() for part in np.split(block, ends)]

    def _read(self, key: Any) -> Array:
        try:
            self._array = self._array or open_store(self.name)
            return np.asarray(self._array.get_orthogonal_selection(key))
        except Exception as error:
            raise DataError(
                f"{self.name} cannot be read: {type(error).__name__}: {error}"
            ) from error

    def renew(self) -> None:
        """Begin anew, also after a fork, as connections and what held the lock are the parent's."""
        self._array = None
        self._kept: OrderedDict[int, Array] = OrderedDict()
        self._lock = threading.Lock()

"""Arrays in zarr stores at paths and URLs, read by row in whole chunks.

Sources, Samples and the command line read zarr through this module. zarr is optional, and imported
when a store is opened.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from ..._utils import fork
from ..._utils.errors import as_data_errors, describe_error, explain_missing
from ...errors import DataError
from ...memory import Array

MARK = "layoutkit"  # the attribute of stores that `layoutkit convert` writes

# Limits of the cache of decoded slabs: it holds this many bytes, but at least two slabs, because
# sequential rows cross from one slab into the next.
CACHE_BYTES = 64 << 20
_CACHE_SLABS = 2


def is_store(name: str) -> bool:
    """Return True for the name of a zarr store, `x.zarr`, or of an array in it, `x.zarr/0`."""
    *folders, last = str(name).replace(os.sep, "/").rstrip("/").lower().split("/")
    return last.endswith(".zarr") or (
        "." not in last and any(folder.endswith(".zarr") for folder in folders)
    )


def read_zarr(path: str) -> Any:
    """Return the array of a store, or a dict of a group's arrays; no elements are read yet.

    Raises
    ------
    DataError
        There is no such array, it is incomplete, or zarr is not installed.
    """
    node = _open(path)
    if not hasattr(node, "array_keys"):
        return ChunkedArray(path)
    return {name: ChunkedArray(f"{path.rstrip('/')}/{name}") for name in sorted(node.array_keys())}


def open_store(path: str) -> Any:
    """Return the `zarr.Array` of a store; DataError if it is a group, incomplete or unreadable."""
    node = _open(path)
    if hasattr(node, "array_keys"):
        names = ", ".join(sorted(node.array_keys())) or "nothing"
        raise DataError(f"{path} is a zarr group of {names}, not an array; name one of these")
    mark = node.attrs.get(MARK)
    if mark is not None and not mark["complete"]:
        raise DataError(
            f"{path} is incomplete; repeat the `layoutkit convert` command that wrote it, which "
            f"resumes: {mark['of']}"
        )
    return node


def _open(path: str) -> Any:
    with explain_missing(f"{path} needs zarr", "dask", DataError):
        import zarr
    try:
        return zarr.open(path, mode="r")
    except Exception as error:
        raise DataError(f"{path} is not a zarr array ({describe_error(error)})") from error


class ChunkedArray:
    """An array in a zarr store that is read by row.

    Whole chunks are read. A slab, which is all chunks of the same rows, is cached, so that
    sequential rows decode each chunk once. Scattered rows decode one chunk each, as many
    concurrently as zarr does. Thread-safe; pickled as its name.

    Attributes
    ----------
    shape, dtype
        As stored.
    dimension_names : tuple of (str or None), or None
        The axis names of the store.
    slab : int
        The number of rows in a chunk, or in a shard if the store has shards.
    window : int
        The number of slabs that are shuffled together.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        array = open_store(name)
        self._array: Any = None
        self.shape = tuple(array.shape)
        self.dtype = np.dtype(array.dtype)
        self.dimension_names = getattr(array.metadata, "dimension_names", None)
        chunks = getattr(array, "shards", None) or array.chunks
        self.slab = max(1, chunks[0]) if chunks else 1
        nbytes = self.dtype.itemsize * int(np.prod((self.slab, *self.shape[1:])))
        # Batches that are read ahead are of two windows, which the cache has to hold.
        self.window = max(1, CACHE_BYTES // 2 // max(1, nbytes))
        self._max_slabs = max(_CACHE_SLABS, 2 * self.window)
        self.reinit()
        self._array = array  # None: open the store at the next read
        fork.reinit_after_fork(self)

    def __reduce__(self) -> Any:
        return ChunkedArray, (self.name,)

    def __getitem__(self, key: Any) -> Array:
        """Return a selection: ints, slices with a positive step, and one increasing list."""
        first = key[0] if isinstance(key, tuple) and key else key
        if isinstance(key, tuple) and len(key) > 1:
            return self._read(key)
        if isinstance(first, slice):
            return self.take(np.arange(*first.indices(self.shape[0])))
        if isinstance(first, np.ndarray):
            return self.take(first)
        if isinstance(first, int):
            return self.take(np.array([first]))[0, ...]
        return self._read(key)

    def take(self, rows: Array) -> Array:
        """Return a copy of the rows at these (valid) indices, in the order of the indices."""
        slabs, slab_index = np.unique(rows // self.slab, return_inverse=True)
        if len(slabs) > self._max_slabs:  # the slabs would evict each other from the cache
            unique_rows, inverse = np.unique(rows, return_inverse=True)
            return self._read(unique_rows)[inverse]
        result = np.empty((len(rows), *self.shape[1:]), self.dtype)
        for index, slab in enumerate(self._slabs(slabs.tolist())):
            mask = slab_index == index
            result[mask] = slab[rows[mask] % self.slab]
        return result

    def _slabs(self, numbers: list[int]) -> list[Array]:
        """Return the slabs with these numbers; slabs that are not cached are read in one call."""
        with self.lock:
            missing = [number for number in numbers if number not in self._cache]
            self._cache.update(zip(missing, self.fetch(missing), strict=True))
            slabs = []
            for number in numbers:
                self._cache.move_to_end(number)
                slabs.append(self._cache[number])
            while len(self._cache) > self._max_slabs:
                self._cache.popitem(last=False)
            return slabs

    def fetch(self, numbers: list[int]) -> list[Array]:
        """Read slabs by their numbers, several at a time."""
        spans = [(n * self.slab, min((n + 1) * self.slab, self.shape[0])) for n in numbers]
        if len(spans) < 2:
            return [self._read(slice(*span)) for span in spans]
        block = self._read(np.concatenate([np.arange(*span) for span in spans]))
        ends = np.cumsum([stop - start for start, stop in spans])[:-1]
        # Copies, because a view would keep the whole block alive.
        return [part.copy() for part in np.split(block, ends)]

    def _read(self, key: Any) -> Array:
        with as_data_errors(self.name):
            self._array = self._array or open_store(self.name)
            return np.asarray(self._array.get_orthogonal_selection(key))

    def reinit(self) -> None:
        """Reset after a fork: connections and held locks belong to the parent process."""
        self._array = None
        self._cache: OrderedDict[int, Array] = OrderedDict()
        self.lock = threading.Lock()

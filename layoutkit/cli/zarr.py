"""Convert into zarr stores, chunk by chunk, on local threads or on a dask cluster.

A chunk of the store is one task: it reads its part of the source, converts it and writes it
completely or not at all. If a worker is killed, other workers redo its chunks; a second run of the
same conversion computes only the missing chunks.

The attributes of a store record its conversion, and whether it is complete. An incomplete store is
continued only by the same conversion.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from .._utils.errors import as_data_errors, explain_missing, name_in_errors
from ..data.io.filesystem import local_path
from ..data.io.npy import header_length, read_header
from ..data.io.reader import RangeFile, Reader
from ..data.io.zarr import MARK, is_store, open_store
from ..errors import ArgumentError, DataError
from ..layout.parsing import is_one
from ..layout.pattern import Pattern
from .streaming import FileJob, check_sign

BLOCK_BYTES = 16 << 20  # size of a chunk, if the source does not have chunks
_MIN_HEADER_BYTES = 64  # minimum size of the header of a .npy file
# Errors of opening something that is not a store.
_NOT_A_STORE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


def convert_to_store(source: str, target: str, job: FileJob, scheduler: str | None = None) -> None:
    """Convert an array of a `.zarr` or `.npy` file or URL into a zarr store.

    Existing chunks are kept if they are from the same conversion.

    Raises
    ------
    ArgumentError, DataError
        Source and target cannot be combined, or the target contains another array.
    """
    start = time.perf_counter()
    with explain_missing("zarr stores need dask and zarr", "dask"):
        import dask.array as da
        import zarr
    converter = job.converter()
    x = _lazy_array(da, source)
    y = converter(x)
    if "casting" not in job.options:
        check_sign(x.dtype, y.dtype, "choose --casting saturate or same_kind")
    y = y.rechunk(tuple(max(sizes) for sizes in y.chunks))
    source_names = open_store(source).metadata.dimension_names if is_store(source) else None
    names = _dimension_names(converter.options.pattern.expand_ellipsis(x.ndim), source_names)
    description = f"{source} {x.shape} {x.dtype} by {converter!r} in chunks of {y.chunksize}"
    with name_in_errors(target):
        store = _open_or_create(zarr, target, y, names, description)
        missing = _missing_chunks(store, y.numblocks)
    _write(y, target, missing, scheduler)
    if lost := _missing_chunks(store, y.numblocks):
        raise DataError(
            f"{target}: {len(lost)} chunks are missing although they were written; run it again"
        )
    with name_in_errors(target):
        store.attrs[MARK] = {"of": description, "complete": True}
    if not job.quiet:
        count = int(np.prod(y.numblocks))
        seconds = time.perf_counter() - start
        existing = f", {count - len(missing)} existed" if len(missing) < count else ""
        print(
            f"{source} {x.shape} {x.dtype} -> {target} {y.shape} {y.dtype}: {len(missing)} chunks "
            f"in {seconds:.2f} s{existing}",
            file=sys.stderr,
        )


def _lazy_array(da: Any, source: str) -> Any:
    """Return the source as a dask array in its own chunks, read by the tasks that convert them."""
    if is_store(source):
        array = open_store(source)
        chunks = getattr(array, "shards", None) or array.chunks
        reader = _StoreReader(source, array.shape, array.dtype)
    else:
        local = local_path(source)
        reader = _RemoteNpyReader(source) if local is None else _MappedNpyReader(local)
        shape = reader.shape
        nbytes = prod(reader.shape) * reader.dtype.itemsize
        rows = max(1, BLOCK_BYTES * shape[0] // max(1, nbytes)) if shape else 1
        chunks = (rows, *shape[1:])
    meta = np.empty(
        (0,) * reader.ndim, reader.dtype
    )  # without it dask reads elements to find the dtype
    return da.from_array(reader, chunks=chunks, name=False, meta=meta)


class _StoreReader:
    """An array that is opened by name in the worker that reads a part of it."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.name = name
        self.shape = tuple(shape)
        self.dtype = dtype
        self.ndim = len(shape)
        self.run = uuid4().hex

    def __getitem__(self, key: Any) -> Any:
        with as_data_errors(self.name):
            return np.asarray(_open_source_store(self.name, self.run)[key])


class _MappedNpyReader(_StoreReader):
    """A reader of a local `.npy` file through a memory map."""

    def __init__(self, path: str) -> None:
        array = self._array(path)
        super().__init__(path, array.shape, array.dtype)

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(self._array(self.name)[key])

    @staticmethod
    def _array(path: str) -> Any:
        with name_in_errors(path):
            return np.load(path, mmap_mode="r", allow_pickle=False)


class _RemoteNpyReader(_StoreReader):
    """A reader of a `.npy` file at a URL, which requests the byte ranges of rows."""

    def __init__(self, url: str) -> None:
        with as_data_errors(url):
            file = RangeFile(url)
            self._version = file.version
            self._offset = header_length(file.read_at(0, _MIN_HEADER_BYTES))
            header = read_header(io.BytesIO(file.read_at(0, self._offset)))
        if header.fortran_order:
            raise ArgumentError(
                f"{url}: is in Fortran order, in which rows are not contiguous; download it first"
            )
        super().__init__(url, header.shape, header.dtype)

    def __getitem__(self, key: Any) -> Any:
        key = key if isinstance(key, tuple) else (key,)
        start, stop, _ = key[0].indices(self.shape[0]) if key else (0, 1, 1)
        row = prod(self.shape[1:]) * self.dtype.itemsize
        offset = self._offset + start * row
        data = Reader().read(self.name, offset, (stop - start) * row, self._version)
        rows = np.frombuffer(data, self.dtype).reshape(-1, *self.shape[1:])
        return rows[(slice(None), *key[1:])] if key else rows.reshape(())


def _dimension_names(pattern: Pattern, source_names: Sequence[str | None] | None) -> list[str]:
    """Return the names of the result's dimensions.

    `source_names` are the names in the source store, or None; names in the pattern take precedence.
    A fold without a name of its own joins the names of its axes.
    """
    source = pattern.source
    target = pattern.target
    if pattern.left.names or pattern.right.names or source_names is None:
        source_names = ()
    group_names = {
        group: name for group, name in zip(source.groups, source_names, strict=False) if name
    }
    return [
        group_names.get(group)
        or "_".join(group_names.get(x) or target.name(x) for x in group if not is_one(x))
        or "1"
        for group in target.groups
    ]


def _open_or_create(zarr: Any, target: str, y: Any, names: list[str], description: str) -> Any:
    """Open the store of an earlier run of the same conversion, or create it."""
    try:
        store = zarr.open_array(target, mode="r+")
    except Exception as error:
        if isinstance(error, OSError) and not isinstance(error, _NOT_A_STORE):
            raise  # such as a disk error: the store may be complete
        if _exists(target):
            raise ArgumentError(
                f"{target}: exists and is not a zarr array; choose another name"
            ) from error
        try:
            return zarr.create_array(
                target,
                shape=y.shape,
                dtype=y.dtype,
                chunks=y.chunksize,
                dimension_names=names,
                attributes={MARK: {"of": description, "complete": False}},
            )
        except BaseException:
            # zarr leaves an empty folder, which the next run could not tell from one of the user.
            with suppress(OSError):
                Path(target).rmdir()
            raise
    mark: Mapping[str, Any] = store.attrs.get(MARK) or {"of": "something else"}
    if mark["of"] != description:
        raise ArgumentError(
            f"{target}: holds another array ({mark['of']}); choose another name, or delete it"
        )
    return store


def _exists(target: str) -> bool:
    if "://" in target:
        with explain_missing("URLs need fsspec", "data"):
            import fsspec
        system, path = fsspec.core.url_to_fs(target)
        return bool(system.exists(path))
    return Path(target).exists()


def _missing_chunks(store: Any, blocks: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the indices of the chunks that are not in the store.

    The store is listed once, in milliseconds; a request for each chunk could take days.
    """
    from zarr.core.sync import sync

    location = store.store_path

    async def list_keys() -> set[str]:
        return {key async for key in location.store.list_prefix(location.path)}

    existing = sync(list_keys())
    keys = {
        index: (location / store.metadata.encode_chunk_key(index)).path
        for index in np.ndindex(*blocks)
    }
    return [index for index, key in keys.items() if key not in existing]


def _write(y: Any, target: str, missing: list[tuple[int, ...]], scheduler: str | None) -> None:
    """Compute and write the missing chunks, on a cluster or on local threads."""
    if not missing:
        return
    from dask.array import optimize

    written = y.map_blocks(
        _write_block,
        write=write_to_store,
        target=_StoreId(target, uuid4().hex),
        chunk_shape=y.chunksize,
        dtype=np.int8,
        meta=np.empty((0,) * y.ndim, np.int8),
        chunks=tuple((1,) * len(sizes) for sizes in y.chunks),
    )
    keys = [(written.name, *index) for index in missing]
    graph = optimize(written.dask, keys)  # merges reading, converting and writing into one task
    if scheduler is None:
        from dask.threaded import get

        get(graph, keys)
        return
    with explain_missing("clusters need distributed", "dask"):
        from distributed import Client, KilledWorker
    with Client(scheduler, set_as_default=False) as client:
        try:
            client.get(graph, keys)
        except KilledWorker as error:
            raise DataError(
                f"{target}: a chunk has killed several workers in a row, perhaps for lack of "
                "memory; give the workers more memory, or the source smaller chunks, and run it "
                "again: written chunks are kept"
            ) from error


class _StoreId(NamedTuple):
    """A store in one run of a conversion; another run may have created it again."""

    name: str
    run: str


def _write_block(
    block: Any, *, write: Any, target: _StoreId, chunk_shape: Sequence[int], block_id: Any
) -> Any:
    """Write a whole chunk and return one element in its place."""
    starts = [index * size for index, size in zip(block_id, chunk_shape, strict=True)]
    spans = zip(starts, block.shape, strict=True)
    write(block, target, tuple(slice(start, start + size) for start, size in spans))
    return np.ones((1,) * block.ndim, np.int8)


def write_to_store(block: Any, target: _StoreId, window: tuple[slice, ...]) -> None:
    """Write one chunk; a worker process of dask calls it."""
    with name_in_errors(target.name):
        _open_target(target)[window] = block


@lru_cache(maxsize=8)
def _open_target(target: _StoreId) -> Any:
    """Open the store to write to; cached, as this takes longer than writing a small chunk."""
    import zarr

    # A missing chunk counts as not converted, so chunks of zeros have to be written, too.
    return zarr.open_array(target.name, mode="r+").with_config({"write_empty_chunks": True})


@lru_cache(maxsize=8)
def _open_source_store(source: str, run: str) -> Any:
    return open_store(source)

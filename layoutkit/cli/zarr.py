"""Conversions into zarr stores, chunk by chunk, on threads here or on a cluster of dask.

A chunk of the store is one task: it reads its part of the source, converts it and writes it, whole
or not at all. So a worker that is killed costs the time of its chunks, which others do again; and
a second run of the same conversion does only the chunks that are not there.

A store says in its attributes of which conversion it is, and whether all of it is there. One half
written is only gone on with by the conversion that began it.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from ..data.formats import explained
from ..data.io.filesystem import local_path
from ..data.io.npy import header_length, read_header
from ..data.io.reader import Reader
from ..data.io.zarr import MARK, is_store, open_store
from ..errors import ArgumentError, DataError
from ..layout.pattern import Pattern
from .streaming import FileJob, check_sign

_BLOCK_BYTES = 16 << 20  # of a chunk, where the source has none
_SHORTEST = 64  # bytes of a header of a .npy file, at least


def convert_to_store(source: str, target: str, job: FileJob, scheduler: str | None = None) -> None:
    """Convert an array of a `.zarr` or `.npy` file or URL into a zarr store.

    Chunks that are there already are left as they are, if they are of the same conversion.

    Raises
    ------
    ArgumentError, DataError
        Source and target do not fit together, or the target is another array.
    """
    began = time.perf_counter()
    with _needed():
        import dask.array as da
        import zarr
    converter = job.converter()
    x = _lazy(da, source)
    y = converter(x)
    if "casting" not in job.options:
        check_sign(x.dtype, y.dtype, "say what becomes of them: --casting saturate, or same_kind")
    y = y.rechunk(tuple(max(sizes) for sizes in y.chunks))
    known = open_store(source).metadata.dimension_names if is_store(source) else None
    names = _names(converter.task.pattern.completed(x.ndim), known)
    said = f"{source} {x.shape} {x.dtype} by {converter!r} in chunks of {y.chunksize}"
    store = _begun(zarr, target, y, names, said)
    missing = _missing(store, y.numblocks)
    _write(y, target, missing, scheduler)
    if lost := _missing(store, y.numblocks):
        raise DataError(f"{target}: {len(lost)} chunks are not there, though written; run it again")
    store.attrs[MARK] = {"of": said, "complete": True}
    if not job.quiet:
        count = int(np.prod(y.numblocks))
        seconds = time.perf_counter() - began
        kept = f", {count - len(missing)} were there" if len(missing) < count else ""
        print(
            f"{source} {x.shape} {x.dtype} -> {target} {y.shape} {y.dtype}: {len(missing)} chunks "
            f"in {seconds:.2f} s{kept}",
            file=sys.stderr,
        )


def _lazy(da: Any, source: str) -> Any:
    """The source as an array of dask, in its own chunks; each is read where it is converted."""
    if is_store(source):
        array = open_store(source)
        chunks = getattr(array, "shards", None) or array.chunks
        reader = _Reader(source, array.shape, array.dtype)
    else:
        local = local_path(source)
        reader = _RemoteNpy(source) if local is None else _Mapped(local)
        shape = reader.shape
        nbytes = prod(reader.shape) * reader.dtype.itemsize
        rows = max(1, _BLOCK_BYTES * shape[0] // max(1, nbytes)) if shape else 1
        chunks = (rows, *shape[1:])
    meta = np.empty((0,) * reader.ndim, reader.dtype)  # else dask reads some to find out
    return da.from_array(reader, chunks=chunks, name=False, meta=meta)


class _Reader:
    """An array that is opened where parts of it are read: in a worker, by its name."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.name = name
        self.shape = tuple(shape)
        self.dtype = dtype
        self.ndim = len(shape)
        self.run = uuid4().hex

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(_read(self.name, self.run)[key])


class _Mapped(_Reader):
    """That of a `.npy` file here."""

    def __init__(self, path: str) -> None:
        array = self._array(path)
        super().__init__(path, array.shape, array.dtype)

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(self._array(self.name)[key])

    @staticmethod
    def _array(path: str) -> Any:
        return np.load(path, mmap_mode="r", allow_pickle=False)


class _RemoteNpy(_Reader):
    """That of a `.npy` file at a URL, of which rows are asked for by their bytes."""

    def __init__(self, url: str) -> None:
        with explained(url):
            reader = Reader()
            self._offset = header_length(reader.read(url, 0, _SHORTEST))
            header = read_header(io.BytesIO(reader.read(url, 0, self._offset)))
        if header.fortran_order:
            raise ArgumentError(
                f"{url}: is in Fortran's order, in which no row lies together; download it first"
            )
        super().__init__(url, header.shape, header.dtype)

    def __getitem__(self, key: Any) -> Any:
        key = key if isinstance(key, tuple) else (key,)
        start, stop, _ = key[0].indices(self.shape[0]) if key else (0, 1, 1)
        row = prod(self.shape[1:]) * self.dtype.itemsize
        data = Reader().read(self.name, self._offset + start * row, (stop - start) * row)
        rows = np.frombuffer(data, self.dtype).reshape(-1, *self.shape[1:])
        return rows[(slice(None), *key[1:])] if key else rows.reshape(())


def _names(pattern: Pattern, known: Sequence[str | None] | None) -> list[str]:
    """The names of dimensions: the source's, else those of axes, and of a fold all that it has.

    `known` are those of the source; where the pattern has names, these count.
    """
    source = pattern.source
    target = pattern.target
    if pattern.left.names or pattern.right.names or known is None:
        known = ()
    there = {group: name for group, name in zip(source.groups, known, strict=False) if name}
    return [
        there.get(group)
        or "_".join(there.get(letter) or target.name(letter) for letter in group)
        or "1"
        for group in target.groups
    ]


def _begun(zarr: Any, target: str, y: Any, names: list[str], said: str) -> Any:
    """The store, made now or by an earlier run of the same conversion."""
    try:
        store = zarr.open_array(target, mode="r+")
    except Exception as error:
        if _is_something(target):
            raise ArgumentError(
                f"{target}: is there and no array of zarr; choose another name"
            ) from error
        return zarr.create_array(
            target, shape=y.shape, dtype=y.dtype, chunks=y.chunksize, dimension_names=names,
            attributes={MARK: {"of": said, "complete": False}},
        )  # fmt: skip
    mark: Mapping[str, Any] = store.attrs.get(MARK) or {"of": "something else"}
    if mark["of"] != said:
        raise ArgumentError(
            f"{target}: holds another array, of {mark['of']}; choose another name, or delete it"
        )
    return store


def _is_something(target: str) -> bool:
    if "://" in target:
        with _needed():
            import fsspec
        system, path = fsspec.core.url_to_fs(target)
        return bool(system.exists(path))
    return Path(target).exists()


def _missing(store: Any, blocks: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The chunks that are not in their store, in which each is whole or not at all.

    The store is listed: to ask for each would take days where an answer takes milliseconds.
    """
    from zarr.core.sync import sync

    place = store.store_path

    async def listed() -> set[str]:
        return {key async for key in place.store.list_prefix(place.path)}

    there = sync(listed())
    keys = {at: (place / store.metadata.encode_chunk_key(at)).path for at in np.ndindex(*blocks)}
    return [at for at, key in keys.items() if key not in there]


def _write(y: Any, target: str, missing: list[tuple[int, ...]], scheduler: str | None) -> None:
    """Compute these chunks, each where it is written: on a cluster, or on threads here."""
    if not missing:
        return
    from dask.array import optimize

    done = y.map_blocks(
        _at, write=_written, target=_Target(target, uuid4().hex), sizes=y.chunksize,
        dtype=np.int8, meta=np.empty((0,) * y.ndim, np.int8),
        chunks=tuple((1,) * len(sizes) for sizes in y.chunks),
    )  # fmt: skip
    keys = [(done.name, *at) for at in missing]
    graph = optimize(done.dask, keys)  # reading, converting and writing as one task
    if scheduler is None:
        from dask.threaded import get

        get(graph, keys)
        return
    with _needed():
        from distributed import Client, KilledWorker
    with Client(scheduler, set_as_default=False) as client:
        try:
            client.get(graph, keys)
        except KilledWorker as error:
            raise DataError(
                f"{target}: one chunk after the other cost its worker's life, perhaps for want of "
                "memory; give them more, or the source smaller chunks, and run it again: what is "
                "written stays"
            ) from error


class _Target(NamedTuple):
    """A store, as one run of a conversion knows it: another run may have made it anew."""

    name: str
    run: str


def _at(block: Any, *, write: Any, target: _Target, sizes: Sequence[int], block_id: Any) -> Any:
    """Write a chunk, whole; what is left of it is one element."""
    starts = [at * size for at, size in zip(block_id, sizes, strict=True)]
    sides = zip(starts, block.shape, strict=True)
    write(block, target, tuple(slice(start, start + size) for start, size in sides))
    return np.ones((1,) * block.ndim, np.int8)


def _written(block: Any, target: _Target, window: tuple[slice, ...]) -> None:
    _opened(target)[window] = block


@lru_cache(maxsize=8)
def _opened(target: _Target) -> Any:
    """The store to write to: to open it takes longer than to write a small chunk."""
    import zarr

    # What is not there is not done; else a chunk of zeros would not be written.
    return zarr.open_array(target.name, mode="r+").with_config({"write_empty_chunks": True})


@lru_cache(maxsize=8)
def _read(source: str, run: str) -> Any:
    """The store to read from, as one run knows it."""
    return open_store(source)


@contextmanager
def _needed() -> Iterator[None]:
    """Say how to get a library that is not installed."""
    try:
        yield
    except ImportError as error:
        fix = 'pip install "layoutkit[dask]"'
        raise ArgumentError(f"{error.name} is not installed: {fix}") from error

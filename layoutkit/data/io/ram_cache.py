"""`RamCache`: values of records in memory that threads and processes share.

On Linux, the memory is a file of memfd_create, which has no name and does not count toward the
limit of /dev/shm. The kernel frees it when the last process that uses it has closed it or ended, by
Ctrl-C or kill, too. On other systems it belongs to one process.

    0                  the words of the header, see `_Word`
    HEADER_BYTES       for each source, the offset of every record's value; 0: it has none
    after the tables   the values, one after the other, until the memory is full

A value is a pickle whose arrays are stored after it as they are (pickle protocol 5), so reading one
gives arrays that share this memory. Nothing is ever removed or moved: readers need no lock.
"""

from __future__ import annotations

import enum
import mmap
import os
import pickle
import struct
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, Self

from ..._utils import fork, system
from ..._utils.errors import reason
from ..._utils.random import make_key
from ..._utils.validation import check_int, type_name, with_article
from ...errors import DataError
from ...threads.limits import available_memory, parse_bytes

HEADER_BYTES = 4096
ALIGNMENT = 64  # of values and their arrays, in bytes
_WORD_BYTES = 8
_DEFAULT_SHARE = 2  # the default limit is the available memory divided by this


class _Word(enum.IntEnum):
    """The positions of 64-bit integers in the header."""

    TOKEN = 0  # random: recognizes the memory when another process opens it
    END = 1  # offset of the first free byte
    RECORDS = 2  # number of values
    USER = 3  # hash of the sources whose records it keeps; 0: none yet
    NUM_KEPT = 4  # number of records to keep of each source, plus 1; 0: not decided yet
    FIRST_TABLE = 5  # offset of the table of the first source; others follow


class CacheUse(NamedTuple):
    """The use of a RamCache: its records, their bytes, and the limit of bytes."""

    records: int
    bytes: int
    limit: int


class RamCache:
    """Memory for the records of the sources of a Batcher, shared by threads and processes.

    ``sampled_batcher(..., cache="ram")`` makes one of its own, which its threads and forked
    children share. Make a RamCache to share it with other processes, such as the workers of a
    DataLoader: it is inherited by fork, and can be pickled and sent to processes of this machine
    while the process that made it has it open.

    >>> import numpy as np
    >>> from layoutkit.data import RamCache, sampled_batcher
    >>> read = lambda record: np.full(4, record.position, np.float32)
    >>> with RamCache("1 MiB") as cache:
    ...     with sampled_batcher({"x": range(6)}, get=read, batch_size=3, cache=cache) as batches:
    ...         for epoch in range(2):
    ...             print([x.input[:, 0].tolist() for x, _ in batches], batches.stats().cache_hits)
    [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] 6
    [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] 6

    In the first epoch, records were read ahead for their sizes, which decide how many are kept.
    A RamCache is for one Batcher, or for several with equal sources, `get` and `size`. Files that
    change while it is open are not read again.

    Parameters
    ----------
    limit : int or str, optional
        The most bytes that it occupies, such as "4 GiB" or "512M"; by default half of the memory
        that is available. Memory is occupied when it is written.

    Raises
    ------
    DataError, ArgumentError
        The limit is invalid, or exceeds the memory that is available now.
    """

    def __init__(self, limit: int | str | None = None) -> None:
        size = _check_limit(limit)
        self._open(_create_file(size), size)
        self._set(_Word.TOKEN, int.from_bytes(os.urandom(7), "little"))
        self._set(_Word.END, HEADER_BYTES)
        _open_caches[self._words[_Word.TOKEN]] = self

    def _open(self, file: int | None, size: int) -> None:
        self._file = file
        self._is_open = True
        self._size = size
        self._lock = threading.Lock()
        self._memory = memoryview(mmap.mmap(-1 if file is None else file, size))
        self._values = self._memory.toreadonly()
        self._words = self._memory[:HEADER_BYTES].cast("q")
        self._tables: list[memoryview] = []  # the offset of each record, by source
        if file is not None:
            self._close_file = weakref.finalize(self, os.close, file)
        fork.reinit_after_fork(self)

    def reinit(self) -> None:
        """Replace the lock, in a forked child; it keeps nothing if the memory is of its parent."""
        self._lock = threading.Lock()
        self._is_open = self._is_open and self._file is not None

    @property
    def use(self) -> CacheUse:
        """The number of records, and the bytes that it occupies of its limit."""
        return CacheUse(self._words[_Word.RECORDS], self._words[_Word.END], self._size)

    @property
    def free_bytes(self) -> int:
        """The bytes that are left for values."""
        return self._size - self._words[_Word.END]

    @property
    def num_kept(self) -> int | None:
        """The number of records to keep of each source; None if it is not decided yet."""
        return self._words[_Word.NUM_KEPT] - 1 if self._words[_Word.NUM_KEPT] else None

    @num_kept.setter
    def num_kept(self, number: int) -> None:
        self._set(_Word.NUM_KEPT, number + 1)

    def use_for(self, identity: str, counts: Sequence[int]) -> None:
        """Keep records of sources of `counts` records, which `identity` describes.

        Raises DataError if the cache is closed, keeps records of other sources, or is too small.
        """
        if not self._is_open:
            raise DataError("this RamCache is closed; make a new one")
        user = make_key("sources", identity, *counts) >> 1 or 1
        num_bytes = sum(_align(count * _WORD_BYTES) for count in counts)
        with self._locked():
            if not self._words[_Word.USER]:
                if HEADER_BYTES + num_bytes > self._size:
                    raise DataError(
                        f"a RamCache of {self._size:,} bytes has no room for the offsets of "
                        f"{max(counts):,} records, {num_bytes:,} bytes; give a larger limit"
                    )
                self._make_tables(counts)
                self._set(_Word.USER, user)
        if self._words[_Word.USER] != user:
            raise DataError(
                "this RamCache keeps the records of other sources, or records that were read in "
                "another way; make a RamCache for each source"
            )
        starts = self._words[_Word.FIRST_TABLE : _Word.FIRST_TABLE + len(counts)].tolist()
        self._tables = [
            self._memory[start : start + count * _WORD_BYTES].cast("q")
            for start, count in zip(starts, counts, strict=True)
        ]

    def _make_tables(self, counts: Sequence[int]) -> None:
        for number, count in enumerate(counts):
            self._set(_Word.FIRST_TABLE + number, self._words[_Word.END])
            self._set(_Word.END, self._words[_Word.END] + _align(count * _WORD_BYTES))

    def read(self, source: int, number: int, copy: bool) -> Any:
        """Return the value of a record, with read-only arrays or copies; None if there is none."""
        values, tables = self._values, self._tables
        offset = tables[source][number] if tables else 0
        if not offset:
            return None
        (count,) = _NUMBER.unpack_from(values, offset)
        sizes = struct.unpack_from(f"{count}q", values, offset + _WORD_BYTES)
        offset += _align(_WORD_BYTES * (1 + count))
        parts = []
        for size in sizes:
            parts.append(values[offset : offset + size])
            offset += _align(size)
        arrays: list[Any] = parts[1:]
        return pickle.loads(parts[0], buffers=[bytearray(x) for x in arrays] if copy else arrays)

    def write(self, source: int, number: int, value: EncodedValue) -> None:
        """Keep the value of a record, if there is room and it is not kept yet."""
        with self._locked():
            if not self._is_open or self._tables[source][number]:
                return
            offset = position = self._words[_Word.END]
            if offset + value.num_bytes > self._size:
                return
            self._set(_Word.END, offset + value.num_bytes)  # first: a process may be killed here
            for part in value.parts:
                self._write_at(position, part)
                position += _align(len(part))
            self._tables[source][number] = offset
            self._set(_Word.RECORDS, self._words[_Word.RECORDS] + 1)

    def _write_at(self, position: int, part: Any) -> None:
        """Write bytes; a call of the system needs half of the time of a copy to new pages."""
        rest = memoryview(part)
        if self._file is None:
            self._memory[position : position + len(rest)] = rest
            return
        while rest:  # one call writes at most about 2 GiB
            count = os.pwrite(self._file, rest, position)
            position, rest = position + count, rest[count:]

    def close(self) -> None:
        """Free the memory, unless another process or an array still uses it.

        Later reads of the Batchers that use it are not kept.
        """
        with self._lock:
            self._is_open = False
            self._tables = []
            self._words = memoryview(bytes(self._words)).cast("q")
            self._memory = self._values = memoryview(b"")
            if self._file is not None:
                self._close_file()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        """Pickle the place of the memory, which another process of this machine can open."""
        if not self._is_open or self._file is None:
            raise DataError(
                "this RamCache is closed, or is of a system other than Linux, so no other process "
                "can open it; make a RamCache there"
            )
        return _open_shared, (os.getpid(), self._file, self._words[_Word.TOKEN])

    def __repr__(self) -> str:
        use = self.use
        return f"<RamCache of {use.records:,} records, {use.bytes:,} of {use.limit:,} bytes>"

    def _set(self, word: int, value: int) -> None:
        self._words[word] = value

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude other threads and processes; the kernel unlocks for a process that is killed."""
        with self._lock:
            file = self._file if self._is_open else None
            with nullcontext() if file is None else system.process_lock(file):
                yield


class EncodedValue(NamedTuple):
    """A value as the bytes that a RamCache stores."""

    parts: list[Any]  # the sizes of the others, the pickle, and the memory of its arrays
    num_bytes: int  # of all parts, each aligned

    def copy(self) -> EncodedValue:
        """Return the value in memory of its own."""
        return self._replace(parts=[bytes(part) for part in self.parts])

    def without_parts(self) -> EncodedValue:
        """Return the size only."""
        return self._replace(parts=[])


def encode(value: Any) -> EncodedValue:
    """Encode a value as bytes; raise DataError if it cannot be pickled."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    except Exception as error:
        raise DataError(
            f"cache= keeps the data of records, but {with_article(type_name(value))} cannot be "
            f"pickled ({error}); return arrays, numbers or bytes, or omit cache="
        ) from error
    parts: list[Any] = [pickled, *[buffer.raw() for buffer in buffers]]
    sizes = [len(part) for part in parts]
    head = struct.pack(f"{1 + len(sizes)}q", len(sizes), *sizes)
    return EncodedValue([head, *parts], _align(len(head)) + sum(map(_align, sizes)))


# The caches that are open in this process, by token: a cache that a process sends to itself, or
# gets twice, is one object, as closing a second file would release the lock of the first.
_open_caches: weakref.WeakValueDictionary[int, RamCache] = weakref.WeakValueDictionary()
_NUMBER = struct.Struct("q")


def _open_shared(process: int, file: int, token: int) -> RamCache:
    """Return the RamCache that another process has open; raise DataError if it has none."""
    known = _open_caches.get(token)
    if known is not None:
        return known
    error = DataError(
        f"process {process}, which sent this RamCache, has closed it or ended, or is on another "
        "machine or in another container; keep it open there, or make a RamCache in each process"
    )
    try:
        descriptor = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
    except (OSError, AttributeError):
        raise error from None
    cache = RamCache.__new__(RamCache)
    try:
        cache._open(descriptor, os.fstat(descriptor).st_size)
    except (OSError, ValueError):  # another file has this number now
        os.close(descriptor)
        raise error from None
    if cache._words[_Word.TOKEN] != token:
        raise error
    _open_caches[token] = cache
    return cache


def _create_file(size: int) -> int | None:
    """Return the descriptor of a new file in memory, without a name; None if there are none."""
    try:
        return system.shared_memory_file(size)
    except OSError as error:
        raise DataError(
            f"the system has no shared memory of {size:,} bytes ({reason(error)}); give a smaller "
            "cache_bytes, or omit cache="
        ) from error


def _check_limit(limit: Any) -> int:
    """Return the limit in bytes; raise DataError or ArgumentError if it is too small or large."""
    free = available_memory()
    if limit is None:
        size = free // _DEFAULT_SHARE
    elif isinstance(limit, str):
        size = parse_bytes("cache_bytes", limit)
    else:
        size = check_int("cache_bytes", limit)
    if size < 2 * HEADER_BYTES:
        raise DataError(f"cache_bytes={limit!r} is too small for a record; give more, as '4 GiB'")
    if size > free:
        raise DataError(
            f"cache_bytes is {size:,}, but {free:,} bytes of memory are available; give "
            f'fewer, as cache_bytes="{free // 2 >> 20} MiB": the records that fit are kept'
        )
    return size


def _align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT

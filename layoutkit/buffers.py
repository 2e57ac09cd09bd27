"""The memory that results live in, reused from batch to batch.

A fresh large array costs far more than the conversion that fills it, because the
system hands out its pages one fault at a time. So a result's memory comes from a pool
of blocks, and a block goes back to the pool when the result is gone:

    >>> from layoutkit import buffers
    >>> sorted(buffers.stats())
    ['held', 'hits', 'idle', 'limit', 'misses']

**Who holds a block.** The array that is handed out is a plain `numpy.ndarray` whose
base is a *released* `pickle.PickleBuffer`: an object from which no memory can be reached.
NumPy makes every view, and every view of a view, point to that one array; so do
memoryviews, DLPack capsules and tensors of other libraries. The block comes back when a
weak reference says that the array itself is gone, and by then nothing that shares its
memory can be alive. (`ndarray` is not a garbage-collected type, so no finaliser can bring
it back to life after its weak references have fired. An object of our own with `__del__`
could be resurrected from a reference cycle while its block is lent again.)

**Concurrency.** That weak reference's callback may run in any thread at any allocation,
even in the middle of one of the pool's own methods, so it must never wait for something
that the interrupted frame holds. There is nothing of the kind: blocks move by single
atomic operations on deques and a set, and the lock is for sums alone (it is re-entrant,
and nothing is called under it). An interrupt between two steps can leave `_total` too
large, which costs a closer look at the limit; one that a signal handler raises at the very
first step of a callback leaves that block lent for good. Memory in use is never lent twice.

**Fork.** A child holds copies of its parent's arrays and gives their blocks to its own
pool. It drops idle blocks: writing into them would copy every page from the parent.

Blocks of memory: their sizes, their alignment and where they come from.

Who uses them, and what becomes of them after that, is the business of `buffers`.
"""

import ctypes
import itertools
import math
import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from pickle import PickleBuffer
from typing import Any

import numpy as np
import numpy.typing as npt

from ._utils import fork
from ._utils.validation import as_int
from .errors import ArgumentError
from .threads.limits import default_idle_bytes

ALIGNMENT = 64
"""Bytes: one cache line and one AVX-512 register, so that stores can stream."""

_SMALLEST = 256
# From one huge page on a block is a mapping of its own, for two measured reasons. A C
# library's heap keeps freed blocks that lie below others: of 20 blocks of 8 MiB, half of
# them freed, no page went back to the system. And a mapping that starts on a huge page
# needs fewer of them: the first touch of 38 MB took 210 faults instead of 722.
_HUGE_PAGE = 2 << 20
_CAN_MAP = hasattr(mmap, "MAP_PRIVATE") and hasattr(mmap, "MAP_ANONYMOUS")


@lru_cache(maxsize=4096)
def size_class(nbytes: int) -> int:
    """Return `nbytes` rounded up to a quarter of a power of two, at least 256.

    Batches vary a little (the last one, a crop); in classes they can share blocks, and
    quarters bound the waste at 25 % of addresses (pages never touched take no memory).
    """
    if nbytes <= _SMALLEST:
        return _SMALLEST
    step = 1 << ((nbytes - 1).bit_length() - 3)
    return -(-nbytes // step) * step


class Block:
    """`size` bytes of memory in `window`, which begins at `address`.

    The rest is for the pool: the weak reference to the array that the block is lent to, how
    often it was lent again, and when (as the pool counts) it was put away last.
    """

    __slots__ = ("address", "hits", "idle_since", "loan", "size", "window")

    def __init__(self, size: int) -> None:
        self.size = size
        self.window = _memory(size)
        self.address: int = self.window.ctypes.data
        self.loan: weakref.ref[npt.NDArray[Any]] | None = None
        self.hits = 0
        self.idle_since = 0


def _memory(size: int) -> npt.NDArray[np.uint8]:
    """Return `size` fresh bytes that start at a multiple of ALIGNMENT."""
    if size >= _HUGE_PAGE and _CAN_MAP:
        return _mapped(size)
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def _mapped(size: int) -> npt.NDArray[np.uint8]:
    """Return memory that goes back to the system as soon as the array is gone."""
    try:
        # Private, unlike mmap's default: a forked child must not write into its parent's.
        pages = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"cannot allocate {size} bytes for a result") from error
    memory = np.frombuffer(pages, np.uint8)
    start = -memory.ctypes.data % _HUGE_PAGE
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages: slower, no less right
            # Whole ones only: one across the end would occupy memory beyond the block.
            pages.madvise(mmap.MADV_HUGEPAGE, start, size - size % _HUGE_PAGE)
    return memory[start : start + size]


def stats() -> dict[str, int]:
    """Return how much memory the pool has lent and keeps, and how often it could help.

    `held` is what arrays in use occupy, `idle` what waits for reuse, `limit` the bound on
    `idle` (all in bytes, in whole blocks, at most a quarter larger than the arrays);
    `hits` and `misses` count the results that got an idle block and those that did not.
    """
    return _pool.stats()


def set_limit(nbytes: int) -> None:
    """Set the bound on idle memory and drop what exceeds it at once, longest idle first.

    The limit starts at LAYOUTKIT_BUFFERS_LIMIT (such as 512M; read when memory is first needed),
    else at 2 GiB or an eighth of the memory of the machine or of the container, whichever is less.
    Zero turns reuse off.
    Memory of arrays in use is not limited. Raises ArgumentError.
    """
    _pool.set_limit(_checked_limit(nbytes))


def clear() -> None:
    """Drop all idle memory. Arrays in use are not touched.

    Page-locked memory and blocks on GPUs that copies between them and the CPU go through are
    dropped too, when those under way are done.
    """
    _pool.clear()
    for drop in tuple(_others):
        drop()


def on_clear(drop: Callable[[], None]) -> None:
    """Call this too where idle memory is dropped."""
    _others.append(drop)


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an uninitialised, writeable C-contiguous array, aligned to 64 bytes."""
    return empty_with_address(shape, dtype)[0]


def empty_with_address(
    shape: tuple[int, ...], dtype: npt.DTypeLike
) -> tuple[npt.NDArray[Any], int]:
    """Return what `empty` does and the address of its first byte.

    Exists because the pool knows the address, and asking an array for it takes 0.8 us.
    The caller has proved that `dtype` holds no Python objects.
    """
    if not isinstance(dtype, np.dtype):
        dtype = np.dtype(dtype)
    block = _pool.take(math.prod(shape) * dtype.itemsize)
    try:
        exporter = PickleBuffer(block.window)  # type: ignore[arg-type]  # NumPy's stubs
        array: npt.NDArray[Any] = np.ndarray(shape, dtype, exporter)  # type: ignore[arg-type]
    except BaseException:
        _pool.give_back(block)
        raise
    exporter.release()
    block.loan = weakref.ref(array, partial(_pool.give_back, block))
    return array, block.address


_others: list[Callable[[], None]] = []  # what drops idle memory that is not the pool's

# A limit that nobody has asked for yet. Importing asks for none, as what LAYOUTKIT_BUFFERS_LIMIT
# says may be wrong, and an import is no place to hear of it.
_UNREAD = -1


class _Pool:
    """Lends blocks and takes them back, from any thread.

    Idle blocks stand on shelves, one for each size; what came back last is lent first,
    because it may still be in the cache. `give_back` may run when the interpreter exits
    and modules are empty already, so whatever it reaches uses no globals.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._limit = _UNREAD
        self._shelves: dict[int, deque[Block]] = {}
        # The only strong references to lent blocks: without them their memory would go.
        self._lent: set[Block] = set()
        self._clock = itertools.count()
        self._total = 0  # bytes of all blocks, lent and idle
        self._misses = 0
        self._forgotten_hits = 0

    def take(self, nbytes: int) -> Block:
        """Lend a block of at least `nbytes` bytes."""
        size = size_class(nbytes)
        try:
            block = self._shelves[size].pop()
            block.hits += 1
        except (KeyError, IndexError):
            block = self._larger(size) or self._fresh(size)
        self._lent.add(block)
        return block

    def give_back(self, block: Block, _: object = None) -> None:
        """Take back a block that nobody uses any more."""
        self._lent.discard(block)
        if block.size > self._limit:  # on a shelf it would push everything else out
            self._forget(block)
            return
        block.idle_since = next(self._clock)
        self._shelves[block.size].append(block)
        if self._total > self._limit:
            self._trim()

    def stats(self) -> dict[str, int]:
        """Count what is lent, what is idle, and what happened so far."""
        lent = tuple(self._lent)
        idle = tuple(block for shelf in tuple(self._shelves.values()) for block in tuple(shelf))
        return {
            "held": sum(block.size for block in lent),
            "idle": sum(block.size for block in idle),
            "limit": self._known_limit(),
            "hits": self._forgotten_hits + sum(block.hits for block in lent + idle),
            "misses": self._misses,
        }

    def set_limit(self, limit: int) -> None:
        """Bound the idle memory from now on."""
        with self._lock:
            self._limit = limit
        self._trim()

    def clear(self) -> None:
        """Drop the idle memory."""
        for shelf in tuple(self._shelves.values()):
            while (block := self._oldest(shelf)) is not None:
                self._forget(block)

    def before_fork(self) -> None:
        """Keep other threads from the sums, so that the child finds them in order.

        After what is being made, as who makes it may give memory back.
        """
        fork.making.acquire()
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Let them in again."""
        self._lock.release()
        fork.making.release()

    def after_fork_in_child(self) -> None:
        """Begin with a new lock: the old one may have waiters that do not exist here."""
        self._lock = threading.RLock()
        self.clear()

    def _larger(self, size: int) -> Block | None:
        """Take an idle block of the next sizes, up to the double."""
        largest = 2 * size
        while (size := size_class(size + 1)) <= largest:
            try:
                block = self._shelves[size].pop()
            except (KeyError, IndexError):
                continue
            block.hits += 1
            return block
        return None

    def _known_limit(self) -> int:
        """The bound on idle memory; nobody has been lent a block before it is known."""
        if self._limit == _UNREAD:
            found = default_idle_bytes()
            with self._lock:
                self._limit = found if self._limit == _UNREAD else self._limit
        return self._limit

    def _fresh(self, size: int) -> Block:
        self._known_limit()
        self._shelves.setdefault(size, deque())
        try:
            block = Block(size)
        except MemoryError:
            self.clear()
            block = Block(size)
        with self._lock:
            self._total += size
            self._misses += 1
        return block

    def _forget(self, block: Block) -> None:
        """Leave a block to the garbage collector, out of all sums."""
        with self._lock:
            self._total -= block.size
            self._forgotten_hits += block.hits

    def _trim(self) -> None:
        """Drop the blocks that have been idle longest until the limit is kept."""
        while sum(size * len(shelf) for size, shelf in tuple(self._shelves.items())) > self._limit:
            shelves = [shelf for shelf in tuple(self._shelves.values()) if shelf]
            oldest = min(shelves, key=self._idle_since, default=None)
            if oldest is not None and (block := self._oldest(oldest)) is not None:
                self._forget(block)

    @staticmethod
    def _oldest(shelf: deque[Block]) -> Block | None:
        """Take what has been idle longest; None if others emptied the shelf meanwhile."""
        try:
            return shelf.popleft()
        except IndexError:
            return None

    @staticmethod
    def _idle_since(shelf: deque[Block]) -> int:
        try:
            return shelf[0].idle_since
        except IndexError:
            return 0


def _checked_limit(nbytes: int) -> int:
    limit = as_int(nbytes)
    if limit is None or limit < 0:
        raise ArgumentError(
            f"set_limit takes the bytes of idle memory to keep, an int of at least 0, not "
            f"{nbytes!r}; 0 turns reuse off"
        )
    return limit


_pool = _Pool()
# An array may outlive this module while the interpreter shuts down. One reference too many
# keeps the pool, and so the memory of every array, until the process ends. (So do the fork
# handlers below, as CPython happens to clear them last, but not every system has them.)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_pool))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_pool.before_fork,
        after_in_parent=_pool.after_fork_in_parent,
        after_in_child=_pool.after_fork_in_child,
    )

"""The memory pool of results.

A new large array costs far more than the conversion that fills it, because of a page fault for
each of its pages. So a result's memory comes from a pool of blocks, and a block returns to the
pool when the result is deleted:

    >>> from layoutkit import buffers
    >>> sorted(buffers.stats())
    ['held', 'hits', 'idle', 'limit', 'misses']

**Lifetime of a block.** A result is a plain `numpy.ndarray` whose base is a *released*
`pickle.PickleBuffer`, from which the memory cannot be reached. NumPy makes that one array the base
of every view and of every view of a view; memoryviews, DLPack capsules and tensors of other
libraries refer to it as well. The block returns when a weak reference to the array dies; then
no object that shares its memory is alive. (`ndarray` is not a garbage-collected type, so no
finalizer can resurrect it after its weak references have fired. An object of a class with
`__del__` could be resurrected from a reference cycle while its block is lent again.)

**Concurrency.** The callback of that weak reference may run in any thread at any allocation, even
inside one of the pool's own methods, so it must not wait for a lock that the interrupted frame
holds. It cannot: blocks move by single atomic operations on deques and a set, and the lock, which
is re-entrant, only protects the counters (nothing is called under it). An interrupt between two
steps can leave `total_bytes` too large, which only makes `_trim` run more often. An interrupt that
a signal handler raises at the first step of a callback leaves that block lent for good. Memory in
use is never lent twice.

**Fork.** A child holds copies of its parent's arrays and returns their blocks to its own pool. It
drops idle blocks: writing into them would copy every page from the parent.
"""

import ctypes
import itertools
import math
import mmap
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from pickle import PickleBuffer
from typing import Any

import numpy as np
import numpy.typing as npt

from ._utils import fork, system
from ._utils.validation import as_int, show
from .errors import ArgumentError
from .threads.limits import default_idle_bytes

ALIGNMENT = 64
"""Bytes of a cache line and of an AVX-512 register, so that streaming stores can be used."""

_SMALLEST = 256
# From the size of a huge page on, a block is a memory mapping of its own, for two measured reasons.
# A C library's heap keeps freed blocks below others: of 20 blocks of 8 MiB, half of them freed, no
# page was returned to the system. And a mapping that starts on a huge page causes fewer page
# faults: the first touch of 38 MB took 210 instead of 722.
_HUGE_PAGE = 2 << 20


def __dir__() -> list[str]:
    return ["clear", "set_limit", "stats"]


@lru_cache(maxsize=4096)
def size_class(nbytes: int) -> int:
    """Return `nbytes` rounded up to a quarter of a power of two, at least 256.

    Batch sizes vary a little (the last batch, a crop), and batches of one size class share blocks.
    Quarters bound the waste at 25 % of addresses (untouched pages occupy no memory).
    """
    if nbytes <= _SMALLEST:
        return _SMALLEST
    step = 1 << ((nbytes - 1).bit_length() - 3)
    return -(-nbytes // step) * step


class Block:
    """A block of `size` bytes: the array `window`, which begins at `address`.

    The other attributes are used by the pool: the weak reference to the array that the block is
    lent to, how often the block was reused, and the pool's clock when it became idle.
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
    if size >= _HUGE_PAGE and system.can_map_privately():
        return _mapped(size)
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def _mapped(size: int) -> npt.NDArray[np.uint8]:
    """Return memory that is returned to the system as soon as the array is deleted."""
    try:
        # Private, unlike mmap's default: a forked child must not write into its parent's memory.
        pages = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"cannot allocate {size} bytes for a result") from error
    memory = np.frombuffer(pages, np.uint8)
    start = -memory.ctypes.data % _HUGE_PAGE
    # Only full huge pages: one across the end would occupy memory beyond the block.
    system.advise_huge_pages(pages, start, size - size % _HUGE_PAGE)
    return memory[start : start + size]


def stats() -> dict[str, int]:
    """Return statistics of the pool.

    `held` is the memory of arrays in use, `idle` the memory kept for reuse, `limit` the bound on
    `idle`, all in bytes of blocks, which are at most a quarter larger than the arrays. `hits`
    counts results that reused an idle block, `misses` the others.
    """
    return pool.stats()


def set_limit(nbytes: int) -> None:
    """Set the bound on idle memory, and free memory beyond it at once, longest idle first.

    The limit starts at LAYOUTKIT_BUFFERS_LIMIT (such as 512M; read when memory is first needed),
    else at 2 GiB or an eighth of the memory of the machine or of the container, whichever is less.
    Zero disables reuse. Memory of arrays in use is not limited. Raises ArgumentError if `nbytes`
    is not an int >= 0.
    """
    pool.set_limit(_checked_limit(nbytes))


def clear() -> None:
    """Free all idle memory. Arrays in use are not affected.

    Page-locked and GPU staging buffers of copies between CPU and GPU are freed too, after the
    pending copies.
    """
    pool.clear()
    for drop in tuple(_clear_hooks):
        drop()


def add_clear_hook(drop: Callable[[], None]) -> None:
    """Register a function that `clear` calls as well."""
    _clear_hooks.append(drop)


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an uninitialized, writeable C-contiguous array, aligned to 64 bytes."""
    return empty_with_address(shape, dtype)[0]


def empty_with_address(
    shape: tuple[int, ...], dtype: npt.DTypeLike
) -> tuple[npt.NDArray[Any], int]:
    """Return an array as `empty` does, and the address of its first byte.

    The pool knows the address; reading it from an array takes 0.8 us. The caller has checked that
    `dtype` does not hold Python objects.
    """
    if not isinstance(dtype, np.dtype):
        dtype = np.dtype(dtype)
    block = pool.take(math.prod(shape) * dtype.itemsize)
    try:
        exporter = PickleBuffer(block.window)  # type: ignore[arg-type]  # NumPy's stubs
        array: npt.NDArray[Any] = np.ndarray(shape, dtype, exporter)  # type: ignore[arg-type]
    except BaseException:
        pool.give_back(block)
        raise
    exporter.release()
    block.loan = weakref.ref(array, partial(pool.give_back, block))
    return array, block.address


_clear_hooks: list[Callable[[], None]] = []  # they free idle memory outside of the pool

# The limit is not read at import: LAYOUTKIT_BUFFERS_LIMIT may be invalid, and an import should not
# raise for it.
_UNREAD = -1


class Pool:
    """A thread-safe pool of blocks.

    Idle blocks are in one list per size; the last returned one is lent first, because it may still
    be in the CPU cache. Methods iterate over `copy()` of a set, deque or dict: the copy is atomic,
    while `tuple()` and `list()` may allocate after they began to iterate, and an allocation may
    collect garbage that returns blocks.

    `give_back` may run when the interpreter exits and modules are empty already, so neither it nor
    its callees use globals.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._limit = _UNREAD
        self._shelves: dict[int, deque[Block]] = {}
        # The only strong references to lent blocks, which keep their memory.
        self.lent: set[Block] = set()
        self._clock = itertools.count()
        self.total_bytes = 0  # bytes of all blocks, lent and idle
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
        self.lent.add(block)
        return block

    def give_back(self, block: Block, _: object = None) -> None:
        """Store a block that is no longer in use."""
        self.lent.discard(block)
        if block.size > self._limit:  # keeping it would evict all other blocks
            self._forget(block)
            return
        block.idle_since = next(self._clock)
        self._shelves[block.size].append(block)
        if self.total_bytes > self._limit:
            self._trim()

    def stats(self) -> dict[str, int]:
        """Return the statistics of `layoutkit.buffers.stats`."""
        lent = [*self.lent.copy()]
        idle = [block for shelf in self._shelves.copy().values() for block in shelf.copy()]
        return {
            "held": sum(block.size for block in lent),
            "idle": sum(block.size for block in idle),
            "limit": self._known_limit(),
            "hits": self._forgotten_hits + sum(block.hits for block in lent + idle),
            "misses": self._misses,
        }

    def set_limit(self, limit: int) -> None:
        """Set the bound on idle memory and free memory beyond it."""
        with self.lock:
            self._limit = limit
        self._trim()

    def clear(self) -> None:
        """Free the idle memory."""
        for shelf in self._shelves.copy().values():
            while (block := self._oldest(shelf)) is not None:
                self._forget(block)

    def before_fork(self) -> None:
        """Acquire the lock, so that the counters are consistent in the child.

        `fork.init_lock` comes first, as its owner may return memory.
        """
        fork.init_lock.acquire()
        self.lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Release the locks."""
        self.lock.release()
        fork.init_lock.release()

    def after_fork_in_child(self) -> None:
        """Replace the lock (threads that wait for it do not exist here); drop idle memory."""
        self.lock = threading.RLock()
        self.clear()

    def _larger(self, size: int) -> Block | None:
        """Remove an idle block of up to twice the size; return None if there is none."""
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
        """Return the bound on idle memory, read before the first block is lent."""
        if self._limit == _UNREAD:
            default = default_idle_bytes()
            with self.lock:
                self._limit = default if self._limit == _UNREAD else self._limit
        return self._limit

    def _fresh(self, size: int) -> Block:
        self._known_limit()
        self._shelves.setdefault(size, deque())
        try:
            block = Block(size)
        except MemoryError:
            self.clear()
            block = Block(size)
        with self.lock:
            self.total_bytes += size
            self._misses += 1
        return block

    def _forget(self, block: Block) -> None:
        """Subtract a block from the counters; the caller drops its last reference."""
        with self.lock:
            self.total_bytes -= block.size
            self._forgotten_hits += block.hits

    def _trim(self) -> None:
        """Drop the blocks that have been idle longest until idle memory is within the limit."""
        while sum(size * len(shelf) for size, shelf in self._shelves.copy().items()) > self._limit:
            shelves = [shelf for shelf in self._shelves.copy().values() if shelf]
            oldest = min(shelves, key=self._idle_since, default=None)
            if oldest is not None and (block := self._oldest(oldest)) is not None:
                self._forget(block)

    @staticmethod
    def _oldest(shelf: deque[Block]) -> Block | None:
        """Remove the block that was idle longest; None if another thread emptied the shelf."""
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
            f"set_limit needs the number of bytes of idle memory, an int >= 0, not "
            f"{show(nbytes)}; 0 disables reuse"
        )
    return limit


pool = Pool()
# An array may outlive this module while the interpreter shuts down. An additional reference keeps
# the pool, and so the memory of every array, until the process ends. (So do the fork handlers
# below, as CPython happens to clear them last, but not every system has them.)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
system.register_at_fork(
    before=pool.before_fork,
    after_in_parent=pool.after_fork_in_parent,
    after_in_child=pool.after_fork_in_child,
)

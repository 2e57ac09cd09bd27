"""Blocks of memory: their sizes, their alignment and where they come from.

Who uses them, and what becomes of them after that, is the business of `buffers`.
"""

import mmap
import weakref
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ALIGNMENT", "Block", "size_class"]

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

"""Memory between guard pages: a read or write outside of the memory ends the process.

A `Room` is between two pages without access rights, at the end or at the beginning of its own
pages, so an access one byte too far faults on one side. On the other side the rest of the pages has
bytes that a test compares with their original values (`Room.twin`).
"""

import ctypes
import mmap
import platform
import sys

import numpy as np

PAGE = mmap.PAGESIZE
NO_RIGHTS = 0
READ = 1


def why_not():
    """Return the reason if this system cannot guard memory, else None."""
    if not hasattr(mmap, "MAP_PRIVATE") or not hasattr(mmap, "MAP_ANONYMOUS"):
        return "this system has no anonymous private mappings"
    if not hasattr(ctypes.CDLL(None), "mprotect"):
        return "the C library has no mprotect"
    return None


class Room:
    """`nbytes` bytes between two guard pages, `slack` bytes away from the nearer one."""

    def __init__(self, nbytes, *, at_end, slack=0):
        inner = max(PAGE, -(-(nbytes + slack) // PAGE) * PAGE)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        whole = np.frombuffer(mmap.mmap(-1, inner + 2 * PAGE, flags=flags), np.uint8)
        _protect(whole[:PAGE], NO_RIGHTS)
        _protect(whole[-PAGE:], NO_RIGHTS)
        self.pages = whole[PAGE:-PAGE]
        self._start = inner - nbytes - slack if at_end else slack

    def array(self, shape, dtype, strides):
        """Return an array whose lowest byte is the first byte of the room."""
        return self._laid(self.pages, shape, dtype, strides)

    def twin(self, raw, array):
        """Return the array at the position of `array` in `raw`, a copy of the pages."""
        return self._laid(raw, array.shape, array.dtype, array.strides)

    def seal(self):
        """Make the pages read-only."""
        _protect(self.pages, READ)

    def _laid(self, raw, shape, dtype, strides):
        low, _ = span(shape, strides, dtype.itemsize)
        return np.ndarray(shape, dtype, raw, self._start - low, strides)


def span(shape, strides, itemsize):
    """Return the begin and end of an array's bytes, relative to its first element."""
    if 0 in shape:
        return 0, 0
    steps = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    return sum(s for s in steps if s < 0), sum(s for s in steps if s > 0) + itemsize


def guarded(shape, dtype, strides, *, at_end, slack=0):
    """Return (room, array), with an array that fills its room completely."""
    dtype = np.dtype(dtype)
    low, high = span(shape, strides, dtype.itemsize)
    room = Room(high - low, at_end=at_end, slack=slack)
    return room, room.array(shape, dtype, strides)


def _protect(pages, rights):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(pages.ctypes.data), ctypes.c_size_t(pages.nbytes), rights):
        raise OSError(ctypes.get_errno(), "mprotect")


# ---- stacks ----------------------------------------------------------------------------------

# What docs/promises.md promises to be enough. Since Python 3.14, the interpreter keeps 48 KiB free,
# and threads of Linux have no less than 128 KiB on AArch64.
_NEEDS_MORE = sys.version_info >= (3, 14) or platform.machine() == "aarch64"
STACK_BYTES = (128 if _NEEDS_MORE else 64) << 10
BELOW_STACK = 1 << 20  # bytes without access rights; frames of kernels are larger than a page


def run_on_stack(work, nbytes):
    """Call `work` in a thread with a stack of `nbytes`; a byte more ends the process.

    The threads of Python have a single guard page, which the frame of a kernel can skip.
    """
    libc = ctypes.CDLL(None)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = np.frombuffer(mmap.mmap(-1, BELOW_STACK + nbytes, flags=flags), np.uint8)
    _protect(memory[:BELOW_STACK], NO_RIGHTS)
    errors = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    def run(_):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    attributes = ctypes.create_string_buffer(256)
    thread = ctypes.c_ulong()
    stack = ctypes.c_void_p(memory.ctypes.data + BELOW_STACK)
    libc.pthread_attr_init(attributes)
    failed = libc.pthread_attr_setstack(attributes, stack, ctypes.c_size_t(nbytes))
    failed = failed or libc.pthread_create(ctypes.byref(thread), attributes, run, None)
    if failed:
        raise OSError(failed, "a thread with a small stack")
    libc.pthread_join(thread, None)
    if errors:
        raise errors[0]

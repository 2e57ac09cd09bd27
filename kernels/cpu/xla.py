"""The kernel "xla": runs a conversion as a foreign function of XLA, without the interpreter.

XLA calls a foreign function with one argument, the address of a call frame (`XLA_FFI_CallFrame` of
`xla/ffi/api/c_api.h`), and expects the address of an error, or 0. `compiler.link_bound` makes such
a function from this kernel and the address of a block:

    VERSION                     the version of the interface: major | minor << 32
    RUN, BOARD                  where jobs of several threads run; 0: this thread runs the job
    THREADS                     the number of threads, the calling one included
    JOB, JOB_UNALIGNED          the jobs of outputs aligned to a cache line, and of other outputs
    SRC_OFFSET, DST_OFFSET      of the first items that the kernel visits
    MADVISE, ADVICE             madvise() and its argument for huge pages, or 0
    NBYTES                      the size of the output
    SRC_TYPE, SRC_COUNT         XLA's number of the dtype of the input, and the number of its items
    DST_TYPE, DST_COUNT         the dtype and items of the output
    ERROR                       arguments of XLA_FFI_Error_Create: the arrays are not as planned

The plan trusts the sizes of both arrays, so a call with any others is an error before it reads or
writes them.

XLA allocates large outputs again in every call. Without huge pages, the page faults of 38 MB took
11 of 13 ms.

A job has the words of `threads.pool.Job`. In a forked child, which has no workers, BOARD is
the address of a word that is 0.
"""

from __future__ import annotations

from numba import uintp

from .atomics import call, call_for_address, call_kernel
from .params import LINE
from .simd import i64_at, i64_put
from .walk import inline
from .xla_params import (
    ADVICE,
    BOARD,
    DST_OFFSET,
    DST_TYPE,
    ERROR,
    JOB,
    JOB_UNALIGNED,
    MADVISE,
    MINIMUM_ALIGNMENT,
    NBYTES,
    RUN,
    SRC_OFFSET,
    SRC_TYPE,
    THREADS,
    VERSION,
)

RETURNS_NUMBER = True  # instead of nothing, as other kernels

# Words of the structs of XLA's interface.
FRAME_EXTENSION, FRAME_API = 1, 2
FRAME_ARGUMENTS, FRAME_RESULTS = 7, 12  # number, types, array of pointers to buffers
API_ERROR_CREATE = 6
BUFFER_TYPE, BUFFER_DATA, BUFFER_RANK, BUFFER_SIZES = 2, 3, 4, 5
EXTENSION_TYPE, EXTENSION_METADATA = 1, 3
METADATA_VERSION, METADATA_TRAITS = 3, 4

METADATA = 1  # the type of the extension with which XLA asks for the version
PAGE = 4096


@inline
def planned_data(frame, list_word, block, type_word):
    """Return the address of the only array of a list; 0 unless its dtype and size are planned."""
    if i64_at(frame, list_word) != 1:
        return 0
    buffer = uintp(i64_at(uintp(i64_at(frame, list_word + 2)), 0))
    sizes = uintp(i64_at(buffer, BUFFER_SIZES))
    count = 1
    for axis in range(i64_at(buffer, BUFFER_RANK)):
        count *= i64_at(sizes, axis)
    number = i64_at(buffer, BUFFER_TYPE) & 0xFFFFFFFF
    if number != i64_at(block, type_word) or count != i64_at(block, type_word + 1):
        return 0
    return i64_at(buffer, BUFFER_DATA)


def build():
    """Return the kernel."""

    def kernel(frame, block, unused_dst, unused_lo, unused_hi):
        extension = uintp(i64_at(frame, FRAME_EXTENSION))
        if extension != 0 and i64_at(extension, EXTENSION_TYPE) & 0xFFFFFFFF == METADATA:
            metadata = uintp(i64_at(extension, EXTENSION_METADATA))
            i64_put(metadata, METADATA_VERSION, i64_at(block, VERSION))
            i64_put(metadata, METADATA_TRAITS, 0)
            return 0
        src = planned_data(frame, FRAME_ARGUMENTS, block, SRC_TYPE)
        dst = planned_data(frame, FRAME_RESULTS, block, DST_TYPE)
        if src == 0 or dst == 0 or dst & (MINIMUM_ALIGNMENT - 1):
            create = uintp(i64_at(uintp(i64_at(frame, FRAME_API)), API_ERROR_CREATE))
            return call_for_address(create, uintp(i64_at(block, ERROR)))
        if i64_at(block, MADVISE):
            start = (dst + PAGE - 1) & -PAGE
            size = (dst + i64_at(block, NBYTES) - start) & -PAGE
            advice = uintp(i64_at(block, ADVICE))
            call(uintp(i64_at(block, MADVISE)), uintp(start), uintp(size), advice, 0)
        src += i64_at(block, SRC_OFFSET)
        dst += i64_at(block, DST_OFFSET)
        job = uintp(i64_at(block, JOB_UNALIGNED if dst & (LINE - 1) else JOB))
        run = uintp(i64_at(block, RUN))
        board = i64_at(uintp(i64_at(block, BOARD)), 0) if run != 0 else 0
        if board != 0:
            call_kernel(run, job, uintp(src), uintp(dst), board, i64_at(block, THREADS))
        else:
            code = uintp(i64_at(job, 0))
            params = uintp(i64_at(job, 1))
            call_kernel(code, params, uintp(src), uintp(dst), 0, i64_at(job, 2))
        return 0

    return kernel

"""The kernel "direct": runs a conversion straight from two array objects.

A call of a conversion takes 3 us of Python, which finds the program for the shapes, strides and
dtypes, and checks that the arrays do not overlap. This kernel does the same with the headers of the
arrays, in less than 0.1 us, for arrays like the ones of an earlier call. For others it does
nothing and returns 0, and the call goes through Python.

It is called as direct(block, x, out) and returns 1 if it has run the conversion. The words of the
block:

    TYPE                        the address of the type of both objects, numpy.ndarray
    ALIGNMENT                   a power of two, minus one, that must divide the output's address
    CODE, PARAMETERS, FIRST, END   the function that converts, and its arguments beside the
                                addresses: a kernel with all its units, or `run` of the thread
                                pool (threadpool.py) with a job, the board and the threads
    X, OUT                      descriptions of the two arrays:
        DTYPE, RANK             the address of the dtype, and the rank
        LOW, HIGH               the first byte and the end, relative to the data pointer
        START                   the offset of the first item that the kernel visits
        AXES                    then all sizes and all strides
"""

from __future__ import annotations

from numba import uintp

from ...memory import WRITEABLE
from .atomics import call_kernel
from .direct_params import (
    ALIGNMENT,
    AXES,
    CODE,
    DTYPE,
    END,
    FIRST,
    HEADER,
    HIGH,
    LOW,
    OUT,
    PARAMETERS,
    RANK,
    START,
    TYPE,
    TYPE_WORD,
    X,
)
from .simd import i64_at
from .walk import inline

RETURNS_NUMBER = True  # instead of nothing, as other kernels

DATA_WORD, RANK_WORD, SIZES_WORD, STRIDES_WORD, DTYPE_WORD, FLAGS_WORD = 0, 1, 2, 3, 5, 6


@inline
def is_as_described(array, header, expected, type_address):
    """Return True if an array has the type, dtype, rank, sizes and strides of a description."""
    if i64_at(array, TYPE_WORD) != type_address:
        return False
    rank = i64_at(expected, RANK)
    if i64_at(header, DTYPE_WORD) != i64_at(expected, DTYPE):
        return False
    if i64_at(header, RANK_WORD) & 0xFFFFFFFF != rank:
        return False
    sizes = uintp(i64_at(header, SIZES_WORD))
    strides = uintp(i64_at(header, STRIDES_WORD))
    for axis in range(rank):
        if i64_at(sizes, axis) != i64_at(expected, AXES + axis):
            return False
        if i64_at(strides, axis) != i64_at(expected, AXES + rank + axis):
            return False
    return True


def build():
    """Return the kernel."""

    def kernel(block, x, out, lo, hi):
        type_address = i64_at(block, TYPE)
        x_expected = uintp(i64_at(block, X))
        out_expected = uintp(i64_at(block, OUT))
        x_header = x + uintp(HEADER)
        out_header = out + uintp(HEADER)
        if not is_as_described(x, x_header, x_expected, type_address):
            return 0
        if not is_as_described(out, out_header, out_expected, type_address):
            return 0
        src = i64_at(x_header, DATA_WORD)
        dst = i64_at(out_header, DATA_WORD)
        begins_later = src + i64_at(x_expected, LOW) >= dst + i64_at(out_expected, HIGH)
        ends_earlier = src + i64_at(x_expected, HIGH) <= dst + i64_at(out_expected, LOW)
        if not (begins_later or ends_earlier):
            return 0
        if i64_at(out_header, FLAGS_WORD) & WRITEABLE == 0:
            return 0
        src += i64_at(x_expected, START)
        dst += i64_at(out_expected, START)
        if dst & i64_at(block, ALIGNMENT):
            return 0
        code = uintp(i64_at(block, CODE))
        parameters = uintp(i64_at(block, PARAMETERS))
        first = i64_at(block, FIRST)
        call_kernel(code, parameters, uintp(src), uintp(dst), first, i64_at(block, END))
        return 1

    return kernel

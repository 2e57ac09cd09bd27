"""Runs kernels for `cuda_shim.Worker`, one after another, under the sanitizer that is preloaded.

Cases come pickled through standard input, each preceded by its length, and the memory that the
kernel may have written, or what went wrong, goes back the same way. Memory is the C library's, of
the exact size and with the asked remainder of its address, so that a sanitizer sees each byte
beyond. Whatever a sanitizer finds ends this process, and its report is on standard error.
"""

import ctypes
import os
import pickle
import sys

ALIGNMENT = 256


def main():
    incoming, outgoing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    while header := incoming.read(8):
        case = pickle.loads(incoming.read(int.from_bytes(header, "little")))
        answer = pickle.dumps(run(**case))
        outgoing.write(len(answer).to_bytes(8, "little") + answer)
        outgoing.flush()


def run(library, params, pointers, buffers, how):
    """(what went wrong or None, the bytes of the first buffer).

    `buffers` are (bytes, remainder of their address), `pointers` are (number of a buffer, offset)
    or None, `how` is what follows the pointers in the arguments of the library's `run`.
    """
    kernel = ctypes.CDLL(library)
    kernel.run.restype = ctypes.c_char_p
    expected = [ctypes.c_size_t.in_dll(kernel, f"{n}_size").value for n in ("params", "pointers")]
    if expected != [len(params), 8 * len(pointers)]:
        given = f"{len(params)} bytes of parameters and {len(pointers)} pointers"
        raise RuntimeError(f"{given}, but the kernel takes {expected} bytes")
    lent = [lend(*buffer) for buffer in buffers]
    words = [0 if at is None else lent[at[0]][1] + at[1] for at in pointers]
    try:
        wrong = kernel.run(params, (ctypes.c_uint64 * len(words))(*words), *how)
        return wrong and wrong.decode(), ctypes.string_at(lent[0][1], len(buffers[0][0]))
    finally:
        for start, _ in lent:
            LIBC.free(ctypes.c_void_p(start))


def lend(data, remainder):
    """(what to free, the address of a copy of `data`)."""
    found = ctypes.c_void_p()
    if LIBC.posix_memalign(ctypes.byref(found), ALIGNMENT, remainder + len(data)):
        raise MemoryError(len(data))
    start = found.value
    ctypes.memmove(start + remainder, data, len(data))
    if hasattr(LIBC, "__asan_poison_memory_region"):  # whole groups of 8 bytes of what is before
        poison = LIBC["__asan_poison_memory_region"]
        poison(ctypes.c_void_p(start), ctypes.c_size_t(remainder))
    return start, start + remainder


LIBC = ctypes.CDLL(None)

if __name__ == "__main__":
    main()

"""The accesses to memory of a kernel that runs on the CPU."""

import ctypes
import re

import numpy as np

from layoutkit.kernels.cuda.launch import source

from . import cuda_shim

MOST_TOUCHES = 1 << 22  # of one trace
_FIELDS = [("place", "u8"), ("address", "u8"), ("thread", "u4"), ("block", "u4"), ("turn", "u4"),
           ("bytes", "u2"), ("write", "u2")]  # fmt: skip
_TRACE = """
#define KEPT __attribute__((section("shim")))
struct Touch {
    unsigned long long place, address;
    unsigned thread, block, turn;
    unsigned short bytes, write;
};
extern "C" {
KEPT Touch *touches;
KEPT unsigned touched, room, block;
}
KEPT unsigned outer_turn[1024], inner_turn[1024];
static void mark_first(unsigned turn) { outer_turn[threadIdx.x] = turn; }
static void mark_turn(unsigned turn) { inner_turn[threadIdx.x] = turn; }
__attribute__((noinline)) void touch(const void *at, unsigned bytes, unsigned write) {
    const unsigned turn = outer_turn[threadIdx.x] * 1024 + inner_turn[threadIdx.x];
    if (touched < room)
        touches[touched++] = {(unsigned long long)__builtin_return_address(0),
                              (unsigned long long)at, threadIdx.x, block, turn,
                              (unsigned short)bytes, (unsigned short)write};
}
"""
_HOOKS = (
    (r"reinterpret_cast<const (\w+) \*>\(memory\)\[i\]",
     r"(touch(memory + i * sizeof(\1), sizeof(\1), 0), \g<0>)"),
    (r"reinterpret_cast<(\w+) \*>\(memory\)\[i\] =",
     r"touch(memory + i * sizeof(\1), sizeof(\1), 1), \g<0>"),
    (r"\*reinterpret_cast<const (\w+) \*>\((src \+ i \* step)\)",
     r"(touch(\2, sizeof(\1), 0), \g<0>)"),
    # Turns tell which accesses of threads that skip some of them belong together.
    (r"(for \(int (first|turn) = \w+; )", r"\1mark_\2(\2), "),
    # A second word is read by all threads of a warp or by none.
    (r"if \(by\) (high\.template read<BYTES>)\(second\)", r"\1(by ? second : first)"),
    (r"\bblockIdx\.x\b", "block"),
)  # fmt: skip


def traced(launch, out, sources, shifts, chosen):
    """Return the memory accesses of blocks, from a run on the CPU, and which are global."""
    text = source(launch.family)
    for pattern, replacement in _HOOKS:
        text = re.sub(pattern, replacement, text)
    path = cuda_shim.compiled(launch.family, launch.defines, "plain", _TRACE + text)
    library = ctypes.CDLL(str(path))
    log = np.empty(MOST_TOUCHES, np.dtype(_FIELDS))
    ctypes.c_void_p.in_dll(library, "touches").value = log.ctypes.data
    ctypes.c_uint.in_dll(library, "room").value = len(log)
    touched, block = (ctypes.c_uint.in_dll(library, name) for name in ("touched", "block"))
    touched.value = 0
    constants = np.frombuffer(launch.coefficients or b"\0", np.uint8)
    pointers = _pointers(launch, (out, *sources), shifts, constants)
    words = (ctypes.c_uint64 * launch.pointers)(*pointers)
    library.run.restype = ctypes.c_char_p
    for number in chosen:
        block.value = number
        wrong = library.run(launch.params, words, 1, launch.block, 0, 0, 0)
        assert not wrong, wrong
    assert touched.value < len(log), "more touches than there is room for"
    found = log[: touched.value]
    is_global = np.zeros(len(found), bool)
    for low, high in map(np.lib.array_utils.byte_bounds, (out, *sources)):
        is_global |= (found["address"] >= low) & (found["address"] < high)
    return found, is_global


def _pointers(launch, arrays, shifts, constants):
    """Return the words of a launch's `Pointers`."""
    pointers = [a.__array_interface__["data"][0] + s for a, s in zip(arrays, shifts, strict=True)]
    pointers.insert(1, constants.ctypes.data)
    return pointers + [0] * (launch.pointers - len(pointers))

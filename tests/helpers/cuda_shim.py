"""Run CUDA kernels on the CPU: compiled by g++ with the header cuda/shim.h, called by ctypes.

    launch(a_launch, pointers)              at once and unchecked: for a fake device
    run(a_launch, output, sources, ...)     in another process, under sanitizers

Every CUDA thread is a fiber. Blocks and threads run in the requested order: "forward", "reverse" or
"random". With `mode="threads"` every CUDA thread is an OS thread, and ThreadSanitizer reports
accesses that no barrier orders. Shared memory is filled with `poison` before each block.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from layoutkit.kernels.cuda.launch import source

HERE = Path(__file__).parent / "cuda"
ORDERS = ("forward", "reverse", "random")
ALIGNMENT = 256  # of the buffers that workers allocate
TIMEOUT = 60  # seconds until a kernel that hangs is killed and reported
REPORTED = 12  # lines of a sanitizer's report that a message has

needs_compiler = pytest.mark.skipif(
    not shutil.which("g++"), reason="needs g++, which compiles CUDA kernels for the CPU"
)

# Kernels access memory as words of any type, as CUDA programs do. Products and sums are rounded
# separately unless the source fuses them.
COMMON = ("-std=c++17", "-g1", "-w", "-fPIC", "-shared", "-fno-strict-aliasing",
          "-ffp-contract=off")  # fmt: skip
MODES = {
    "plain": ("-O1",),
    "checked": (  # not optimized: small cases spend most of their time in the compiler
        "-fsanitize=address,undefined,float-cast-overflow",
        "-fno-sanitize-recover=all",
    ),
    "threads": ("-O1", "-DSHIM_THREADS", "-pthread", "-fsanitize=thread"),
}
PRELOADED = {"checked": ("libasan.so", "libstdc++.so"), "threads": ("libtsan.so", "libstdc++.so")}
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=16",
    "UBSAN_OPTIONS": "print_stacktrace=0",
    "TSAN_OPTIONS": "halt_on_error=1:report_thread_leaks=0",
}


class KernelError(Exception):
    """An error that a sanitizer or the executor of threads reports."""


# ---- compiling ---------------------------------------------------------------------------


_FOLDER = tempfile.TemporaryDirectory(prefix="layoutkit-shim-")  # removed when this process ends
_COMPILERS = ThreadPoolExecutor(2)
_ONE = threading.Lock()


def compiled(family, defines, mode="plain", text=None):
    """Compile a family, or `text` in place of its source; return the path of the library."""
    return compiling(family, defines, mode, text).result()


def compiling(family, defines, mode="plain", text=None):
    """Begin to compile a family, two at a time; return a future of the library's path."""
    with _ONE:
        return _future(family, defines, mode, source(family) if text is None else text)


@cache
def _future(*what):
    return _COMPILERS.submit(_compile, *what)


def _compile(family, defines, mode, text):
    executor = "threads.h" if mode == "threads" else "fibers.h"
    unit = f'#include "shim.h"\n#line 1 "{family}.cu"\n{text}\n#include "{executor}"\n'
    macros = [f"-D{name}={value}" for name, value in (*defines, ("KERNEL", family))]
    flags = [*COMMON, *MODES[mode], *macros, f"-I{HERE}"]
    name = hashlib.sha256("\n".join([unit, *flags]).encode()).hexdigest()[:24]
    library = Path(_FOLDER.name, f"{name}.so")
    done = subprocess.run(
        ["g++", *flags, "-x", "c++", "-", "-o", library], input=unit, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"g++ refuses {family} with {macros}:\n{done.stderr[:4000]}")
    return library


# ---- in this process ---------------------------------------------------------------------


def launch(launched, pointers, text=None):
    """Run a `CudaLaunch` at once; `pointers` are host addresses: output, coefficients, sources."""
    kernel = _loaded(compiled(launched.family, launched.defines, text=text))
    _check_sizes(kernel, launched)
    words = (ctypes.c_uint64 * launched.pointers)(*pointers)
    how = launched.grid, launched.block, 0, 0, 0
    wrong = kernel.run(launched.params, words, *how)
    if wrong:
        raise KernelError(wrong.decode())


@cache
def _loaded(library):
    kernel = ctypes.CDLL(str(library))
    kernel.run.restype = ctypes.c_char_p
    return kernel


def _check_sizes(kernel, launched):
    sizes = [ctypes.c_size_t.in_dll(kernel, f"{n}_size").value for n in ("params", "pointers")]
    assert sizes == [len(launched.params), 8 * launched.pointers]


# ---- in a process with a sanitizer -------------------------------------------------------


def run(
    launched, output, sources, *, shifts=None, mode="checked", order="forward", seed=0, poison=0xA5,
    text=None,
):  # fmt: skip
    """Run a `CudaLaunch` on arrays; its output replaces the contents of `output`.

    The kernel gets copies of all bytes from the first to the last element of each array, at
    addresses with the same remainder by 256. `shifts` are bytes from the first element to
    the pointer that the kernel gets, for the output and each source.

    Raises
    ------
    KernelError
        If a sanitizer reports an error, or threads diverge at a barrier.
    """
    arrays = [output, *sources]
    shifts = shifts or (0,) * len(arrays)
    spans = [np.lib.array_utils.byte_bounds(array) for array in arrays]
    buffers = [(ctypes.string_at(low, high - low), low % ALIGNMENT) for low, high in spans]
    pointers = [
        (number, array.__array_interface__["data"][0] - low + shift)
        for number, (array, (low, _), shift) in enumerate(zip(arrays, spans, shifts, strict=True))
    ]
    coefficients = (len(buffers), 0) if launched.coefficients else None
    if launched.coefficients:
        buffers.append((launched.coefficients, 0))
    pointers.insert(1, coefficients)
    pointers += [None] * (launched.pointers - len(pointers))
    library = compiled(launched.family, launched.defines, mode, text)
    how = launched.grid, launched.block, ORDERS.index(order), seed, poison
    written = worker(mode).run(
        library=str(library), params=launched.params, pointers=pointers, buffers=buffers, how=how
    )
    ctypes.memmove(spans[0][0], written, len(written))


@cache
def worker(mode):
    """Return the worker of a mode; its process starts with the first kernel."""
    return Worker(mode)


class Worker:
    """A process that runs kernels. After a fault, the next kernel gets a new process."""

    def __init__(self, mode):
        self._mode = mode
        self._process = None

    def run(self, **case):
        """Run a kernel; return the first buffer as bytes."""
        if self._process is None:
            self._start()
        data = pickle.dumps(case)
        timer = threading.Timer(TIMEOUT, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(len(data).to_bytes(8, "little") + data)
            self._process.stdin.flush()
            answer = self._read(int.from_bytes(self._read(8), "little"))
        except (EOFError, BrokenPipeError):
            raise KernelError(self._end()) from None
        finally:
            timer.cancel()
        wrong, written = pickle.loads(answer)
        if wrong:
            self._end()  # the fibers of the process will never finish
            raise KernelError(wrong)
        return written

    def _start(self):
        preloaded = " ".join(_library(name) for name in PRELOADED[self._mode])
        command = [sys.executable, "-I", str(HERE / "worker.py")]
        if self._mode == "threads":
            command = [*_unrandomised(), *command]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed with the process)
        self._process = subprocess.Popen(
            command, env={**os.environ, **OPTIONS, "LD_PRELOAD": preloaded},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip

    def _read(self, count):
        data = self._process.stdout.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def _end(self):
        """End the process; return its error report."""
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._errors.seek(0)
        lines = [line for line in self._errors.read().splitlines() if _tells(line)]
        self._errors.close()
        text = "\n".join(lines[:REPORTED])
        code, self._process = self._process.returncode, None
        return text or f"the process ended with {code} (-9: after {TIMEOUT} s)"


@cache
def _unrandomised():
    """Return a command prefix that disables the randomization of addresses for ThreadSanitizer.

    Return no prefix if the system forbids it; on many systems ThreadSanitizer works without it.
    """
    prefix = ["setarch", "-R"]
    allowed = shutil.which("setarch") and not subprocess.run([*prefix, "true"]).returncode
    return prefix if allowed else []


def _tells(line):
    """Return True if a line of a sanitizer's report is informative."""
    return line.strip(" =") and not re.search("makecontext|false positive|/c\\+\\+/", line)


@cache
def _library(name):
    path = subprocess.check_output(["g++", f"-print-file-name={name}"], text=True)
    return str(Path(path.strip()).resolve())

"""The device that rows run on, by default the CPU, and the limit of a row.

The limit is a streaming pass that reads as many bytes and writes as many bytes as the row. It reads
its sources from first to last byte, 64 bytes at a time, and writes the target from first to last
byte, on as many threads as conversions use. The written values depend on every byte that is read,
so that no read can be optimized away. If a row writes four times what it reads, every 64 bytes read
become 256 bytes written. Streaming and plain stores are both tried, and the faster is used.

The limit is not absolute: a conversion can be slightly faster if its order of addresses suits the
memory better. The pass uses the row's own buffers and runs in the same rounds as the variants.

This module also sets how the OpenMP threads of torch and HPTT wait between two operations. By
default they spin for milliseconds, on all CPUs, and slow down the next variant.
`OMP_WAIT_POLICY=passive` makes them sleep at once. OpenMP reads it when its library is loaded, so
it has to be in the environment before torch is imported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from ctypes import CFUNCTYPE, c_char_p, c_ssize_t, c_void_p
from functools import cache
from math import gcd
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import cfunc, types, uintp
from numba.extending import intrinsic

from ..buffers import empty
from ..kernels.cpu.launch import CHUNK_BYTES
from ..kernels.cpu.params import LINE
from ..kernels.cpu.simd import fence, vload, vstore
from ..threads.openmp import libraries
from ..threads.pool import Job
from .protocol import Timer, Variant
from .rows import Row

Array = npt.NDArray[Any]  # or a device array with NumPy's methods
Call = Callable[[], object]


class Device:
    """The CPU. It makes arrays, the limit and variants; a subclass does so on another device.

    Of rows that read and write more than `compared_bytes`, only some samples are compared with the
    expected result: NumPy would take longer to compute all than the measurements take.
    """

    timer: Timer | None = None  # times calls; None: the clock of `measure`
    compared_bytes = 1 << 30

    def using(self) -> AbstractContextManager[Any]:
        """Return the context manager in which rows run."""
        return nullcontext()

    def about(self) -> dict[str, Any]:
        """Return device properties that the numbers depend on."""
        return {}

    def array(self, values: Array) -> Array:
        return values.copy()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array on the device whose memory has been touched."""
        out = empty(shape, dtype)
        out.view(np.uint8).fill(0)
        return out

    def on_host(self, result: Any) -> Any:
        """Return a result of any library as an array on the host."""
        return result

    def limits(
        self, row: Row, sources: Sequence[Sequence[Array]], outs: Sequence[Any]
    ) -> list[Call]:
        """Return the calls of the limit for several sets of buffers, which they stream through."""
        streaming = streaming_is_faster(sources[0], outs[0])
        pairs = zip(sources, outs, strict=True)
        return [limit_pass(arrays, out, streaming) for arrays, out in pairs]

    def variant(
        self, name: str, calls: Sequence[Call], spin_seconds: float, replay: bool
    ) -> Variant:
        """Return a variant with one call per set of buffers. `replay`: measure only device time."""
        return Variant(name, calls, spin_seconds)

    def clear(self) -> None:
        """Release idle memory; the pool of the CPU limits its size itself."""


_PROTOTYPE = CFUNCTYPE(None, c_char_p, c_void_p, c_void_p, c_ssize_t, c_ssize_t)
_VECTOR = ir.VectorType(ir.IntType(64), LINE // 8)
_Array = npt.NDArray[Any]


def limit_pass(sources: Sequence[_Array], target: _Array, streaming: bool) -> Callable[[], None]:
    """Return a call that reads all bytes of `sources` and writes all bytes of `target`.

    The sources have equal sizes; all arrays are contiguous, and the target begins on a cache line.
    Bytes after the last complete group of lines are ignored. `streaming` selects streaming stores.
    """
    read = sources[0].nbytes
    written = target.nbytes
    common = gcd(read, written)
    reads = read // common  # lines of each source in a group
    writes = written // common  # lines of the target in a group
    groups = written // (writes * LINE)
    addresses = np.array([source.ctypes.data for source in sources], np.int64).tobytes()
    bytes_moved = read * len(sources) + written
    grain = max(1, min(CHUNK_BYTES * groups // bytes_moved, groups // 16))
    kernel = _kernel(len(sources), reads, writes, int(streaming))
    job = Job(kernel, addresses, groups, grain, bytes_moved)
    destination = target.ctypes.data

    def run(_keep: object = (sources, target)) -> None:
        job.run(0, destination)

    return run


def streaming_is_faster(sources: Sequence[_Array], target: _Array) -> bool:
    """Return True if streaming stores are faster than plain ones; both are timed."""
    passes = [limit_pass(sources, target, streaming) for streaming in (True, False)]
    return _seconds(passes[0]) < _seconds(passes[1])


def _seconds(call: Callable[[], None]) -> float:
    """Return the shortest time of five calls, after a warm-up call."""
    call()
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


class _Kernel(NamedTuple):
    """A kernel for `Job`: the address of the code, and the code as a Python function."""

    address: int
    run: Any
    code: Any  # keeps it alive


@cache
def _kernel(sources: int, reads: int, writes: int, nt: int) -> _Kernel:
    """Compile a pass: each group is `reads` lines of every source and `writes` of the target."""
    group = _group_intrinsic(sources, reads, writes, nt)
    finish: Any = fence  # an intrinsic, whose annotations do not describe its calls

    def stream(addresses: int, _: int, target: int, lo: int, hi: int) -> None:
        for number in range(lo, hi):
            group(addresses, number * (reads * LINE), target + uintp(number * (writes * LINE)))
        finish()

    signature = types.void(types.uintp, types.uintp, types.uintp, types.intp, types.intp)
    code: Any = cfunc(signature)(stream)
    return _Kernel(code.address, _PROTOTYPE(code.address), code)


def _group_intrinsic(sources: int, reads: int, writes: int, nt: int) -> Any:
    """Return an intrinsic that combines the lines of one group and writes the result."""

    @intrinsic
    def group(typing: Any, addresses: Any, offset: Any, target: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            total = ir.Constant(_VECTOR, None)
            for source in range(sources):
                first = builder.add(vload(builder, args[0], 8 * source, ir.IntType(64), 8), args[1])
                for line in range(reads):
                    total = builder.xor(total, vload(builder, first, line * LINE, _VECTOR))
            for line in range(writes):
                vstore(builder, total, args[2], line * LINE, nt)
            return context.get_dummy_value()

        return types.void(types.uintp, types.intp, types.uintp), codegen

    return group


WAIT_POLICY = "OMP_WAIT_POLICY"


def set_passive_wait_policy() -> str:
    """Set OMP_WAIT_POLICY to passive unless it is set; return a description."""
    policy = os.environ.get(WAIT_POLICY)
    is_late = bool(libraries())
    os.environ.setdefault(WAIT_POLICY, "passive")
    if policy is not None:
        return f"{WAIT_POLICY}={policy}, as set in the environment."
    if is_late:
        return (
            f"{WAIT_POLICY}=passive is set too late, as OpenMP is already loaded: its "
            "threads (torch's) may spin after each call."
        )
    return (
        f"{WAIT_POLICY}=passive: otherwise OpenMP threads (torch's) spin for milliseconds after "
        "each call and slow down the next variant."
    )

"""Where a row runs: what `cases` asks of a device, and the CPU's answers.

The limit of a row: a streaming pass that reads the same bytes and writes the same bytes.

The pass reads its sources from first to last byte, 64 bytes at a time, and writes the target
from first to last byte, on as many threads as conversions use; what it writes is nonsense that
depends on every byte read, so that no read can be left out. Where a row writes four times what
it reads, every 64 bytes read become 256 bytes written. Of streaming and plain stores it uses
those that are faster for the row.

It is not a law of nature: a conversion may beat it by a little, when its order of addresses
happens to suit the memory better. It runs in the row's own buffers and in the same rounds.

How the threads of OpenMP, which torch and HPTT use, wait between two operations.

By default they spin: they look out for more work for milliseconds, on all CPUs, and take one from
whatever is timed next. `OMP_WAIT_POLICY=passive` lets them sleep at once. OpenMP reads it when its
library is loaded, so it has to be in the environment before torch is imported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from ctypes import CFUNCTYPE, c_char_p, c_ssize_t, c_void_p
from functools import cache
from math import gcd
from typing import Any, NamedTuple, Protocol

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

Array = npt.NDArray[Any]  # or a device's own array, which has NumPy's methods
Call = Callable[[], object]


class Device(Protocol):
    """Makes arrays, the limit and variants of a device, and times calls there."""

    @property
    def timer(self) -> Timer | None:
        """What takes samples; None: the clock of `measure`."""

    def using(self) -> AbstractContextManager[Any]:
        """What everything runs in."""

    def about(self) -> dict[str, Any]:
        """What numbers depend on, beside the machine."""

    def array(self, values: Array) -> Array:
        """Return a copy on the device."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array on the device whose memory has been touched."""

    def on_host(self, result: Any) -> Any:
        """Return a result as an array on the host, of whatever library."""

    def limits(
        self, row: Row, sources: Sequence[Sequence[Array]], outs: Sequence[Any]
    ) -> list[Call]:
        """Return the limit's calls for several sets of buffers."""

    def variant(self, name: str, calls: Sequence[Call], lingers: float, replay: bool) -> Variant:
        """Make a variant of calls, one for each set. `replay`: only what the device does counts."""

    def clear(self) -> None:
        """Let go of idle memory."""


class Host:
    """The CPU: NumPy's arrays, calls as they are, the clock of `measure`."""

    timer: Timer | None = None

    def using(self) -> AbstractContextManager[Any]:
        """Needs nothing."""
        return nullcontext()

    def about(self) -> dict[str, Any]:
        """Adds nothing."""
        return {}

    def array(self, values: Array) -> Array:
        """Copy."""
        return values.copy()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Take memory from the pool and touch its pages."""
        out = empty(shape, dtype)
        out.view(np.uint8).fill(0)
        return out

    def on_host(self, result: Any) -> Any:
        """Nothing to do."""
        return result

    def limits(
        self, row: Row, sources: Sequence[Sequence[Array]], outs: Sequence[Any]
    ) -> list[Call]:
        """Stream through the row's own buffers."""
        streaming = streaming_is_faster(sources[0], outs[0])
        pairs = zip(sources, outs, strict=True)
        return [limit_pass(several, out, streaming) for several, out in pairs]

    def variant(self, name: str, calls: Sequence[Call], lingers: float, replay: bool) -> Variant:
        """Take the calls as they are."""
        return Variant(name, calls, lingers)

    def clear(self) -> None:
        """The pool has its limit."""


_PROTOTYPE = CFUNCTYPE(None, c_char_p, c_void_p, c_void_p, c_ssize_t, c_ssize_t)
_VECTOR = ir.VectorType(ir.IntType(64), LINE // 8)
_Array = npt.NDArray[Any]


def limit_pass(sources: Sequence[_Array], target: _Array, streaming: bool) -> Callable[[], None]:
    """Return a call that streams all bytes of `sources` in and all bytes of `target` out.

    The sources are of one size; all arrays are contiguous, and the target begins on a cache
    line. Bytes behind the last whole group of lines are left out. `streaming` says which kind
    of stores to write with.
    """
    read = sources[0].nbytes
    written = target.nbytes
    common = gcd(read, written)
    reads = read // common
    writes = written // common  # lines of each source and of the target
    groups = written // (writes * LINE)
    addresses = np.array([source.ctypes.data for source in sources], np.int64).tobytes()
    moved = read * len(sources) + written
    grain = max(1, min(CHUNK_BYTES * groups // moved, groups // 16))
    kernel = _kernel(len(sources), reads, writes, int(streaming))
    job = Job(kernel, addresses, groups, grain, moved)
    destination = target.ctypes.data

    def run(_keep: object = (sources, target)) -> None:
        job.run(0, destination)

    return run


def streaming_is_faster(sources: Sequence[_Array], target: _Array) -> bool:
    """Try both kinds of stores. The limit is the better one."""
    passes = [limit_pass(sources, target, streaming) for streaming in (True, False)]
    return _seconds(passes[0]) < _seconds(passes[1])


def _seconds(call: Callable[[], None]) -> float:
    """The best of a few calls, after one to warm up."""
    call()
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - began)
    return best


class _Kernel(NamedTuple):
    """What `Job` calls: the address of the code, and the code as a Python function."""

    address: int
    run: Any
    code: Any  # keeps it alive


@cache
def _kernel(sources: int, reads: int, writes: int, nt: int) -> _Kernel:
    """Compile a pass: each group is `reads` lines of every source and `writes` of the target."""
    group = _group(sources, reads, writes, nt)
    finish: Any = fence  # typed as it is written, not as it is called

    def stream(addresses: int, _: int, target: int, lo: int, hi: int) -> None:
        for number in range(lo, hi):
            group(addresses, number * (reads * LINE), target + uintp(number * (writes * LINE)))
        finish()

    signature = types.void(types.uintp, types.uintp, types.uintp, types.intp, types.intp)
    code: Any = cfunc(signature)(stream)
    return _Kernel(code.address, _PROTOTYPE(code.address), code)


def _group(sources: int, reads: int, writes: int, nt: int) -> Any:
    """One group as an instruction: combine all lines read, and write the result over and over."""

    @intrinsic
    def group(typing: Any, addresses: Any, offset: Any, target: Any) -> Any:
        def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
            total = ir.Constant(_VECTOR, None)
            for source in range(sources):
                first = b.add(vload(b, args[0], 8 * source, ir.IntType(64), 8), args[1])
                for line in range(reads):
                    total = b.xor(total, vload(b, first, line * LINE, _VECTOR))
            for line in range(writes):
                vstore(b, total, args[2], line * LINE, nt)
            return context.get_dummy_value()

        return types.void(types.uintp, types.intp, types.uintp), codegen

    return group


VARIABLE = "OMP_WAIT_POLICY"


def made_passive() -> str:
    """Let threads of OpenMP sleep between operations, if nobody said how; return that in words."""
    given = os.environ.get(VARIABLE)
    is_late = bool(libraries())
    os.environ.setdefault(VARIABLE, "passive")
    if given is not None:
        return f"{VARIABLE}={given}, as the environment has it."
    if is_late:
        return (
            f"{VARIABLE}=passive comes too late, as OpenMP is loaded already: its threads "
            "(torch's) may spin after each call."
        )
    return (
        f"{VARIABLE}=passive: else threads of OpenMP (torch's) spin for milliseconds after each "
        "call, on the CPU of whoever is timed next."
    )


def as_found() -> str:
    """Say what the environment has, and leave it so."""
    given = os.environ.get(VARIABLE)
    if given is None:
        return (
            f"{VARIABLE} is not set, and stays so: threads of OpenMP (torch's) spin after each "
            "operation, as they do for everybody."
        )
    return f"{VARIABLE}={given}, as the environment has it. Without it threads of OpenMP spin."

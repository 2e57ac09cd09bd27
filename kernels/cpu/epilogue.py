"""The epilogue: clip, formula, cast or addition of items as they are stored.

An epilogue writes a run of the output: it reads n items that are already in the output's order,
converts them (casts.py) and stores them. One step is 64 bytes of output, whatever the dtypes; LLVM
splits wider or narrower operands into CPU registers. The remainders at both ends of a run are
handled by masked steps, or in a copy on the stack if the CPU has no masks of bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import ir
from numba import types, uintp
from numba.extending import intrinsic

from ...planning.epilogue import DTYPES, computation_dtype
from .casts import COMPUTED, FLOATS, call, cast, clip_to_bounds, element_type, mangle, narrow
from .compiler import cpu_features
from .copy import copy_bytes
from .params import LINE
from .simd import I64, address, i64_at, i64_put, move_vector, stack, undef_like, vload, vstore
from .walk import inline


def masked_load(b: Any, base: Any, type_: Any, mask: Any) -> Any:
    pointer = address(b, base, 0, type_)
    align = ir.Constant(ir.IntType(32), 1)
    empty = ir.Constant(type_, None)
    return call(b, f"llvm.masked.load.{mangle(type_)}.p0", type_, pointer, align, mask, empty)


def masked_store(b: Any, value: Any, base: Any, mask: Any) -> None:
    pointer = address(b, base, 0, value.type)
    align = ir.Constant(ir.IntType(32), 1)
    name = f"llvm.masked.store.{mangle(value.type)}.p0"
    call(b, name, ir.VoidType(), value, pointer, align, mask)


def affine(b: Any, x: Any, coefs: str, factor: Any, term: Any) -> Any:
    """Return x * factor + term, with one (factor, term) for the run or one per item."""
    if coefs == "each":
        a = vload(b, factor, 0, x.type)
        c = vload(b, term, 0, x.type)
    else:
        a, c = (broadcast(b, vload(b, base, 0, x.type.element), x.type) for base in (factor, term))
    return call(b, "llvm.fmuladd." + mangle(x.type), x.type, x, a, c)


def plus(b: Any, x: Any, y: Any) -> Any:
    """Add two vectors; integers wrap."""
    is_float = x.type.element in COMPUTED.values()
    return b.fadd(x, y) if is_float else b.add(x, y)


def broadcast(b: Any, value: Any, type_: Any) -> Any:
    first = b.insert_element(ir.Constant(type_, ir.Undefined), value, ir.Constant(I64, 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), type_.count), None)
    return b.shuffle_vector(first, undef_like(first), zeros)


def clip_to_bounds_at(b: Any, x: Any, name: str, bounds: Any) -> Any:
    """Clip items to the two bounds stored at an address, in the dtype of the items."""
    offsets = (0, DTYPES[name].item)
    low, high = (
        broadcast(b, vload(b, bounds, offset, x.type.element), x.type) for offset in offsets
    )
    return clip_to_bounds(b, x, name, low, high)


def build_step(
    source: str, target: str, coefs: str, saturate: bool, clip: int, streaming: int, masked: bool
) -> Any:
    """Build step(src, dst, factor, term, bounds, count), which writes one cache line of output."""
    count = LINE // DTYPES[target].item
    memory = ir.VectorType(element_type(source), count)
    computed = computation_dtype(source, target)

    def finish(b: Any, x: Any, factor: Any, term: Any, bounds: Any) -> Any:
        if coefs in ("none", "add"):
            x = clip_to_bounds_at(b, x, source, bounds) if clip else x
            return cast(b, x, source, target, saturate)
        x = cast(b, x, source, computed, False)
        x = clip_to_bounds_at(b, x, computed, bounds) if clip == 1 else x
        x = affine(b, x, coefs, factor, term)
        x = clip_to_bounds_at(b, x, computed, bounds) if clip == 2 else x
        if target == "bf" and computed == "f4" and source not in FLOATS:
            # The only NaN that integers can produce is 0 * inf, whose payload is empty.
            return narrow(b, x, "bf", nan=False)
        return cast(b, x, computed, target, saturate)

    def full_line(context: Any, b: Any, signature: Any, args: Any) -> Any:
        src, dst, factor, term, bounds, _ = args
        value = finish(b, vload(b, src, 0, memory), factor, term, bounds)
        if coefs == "add":
            value = plus(b, vload(b, dst, 0, value.type), value)
        vstore(b, value, dst, 0, streaming)
        return context.get_dummy_value()

    def partial_line(context: Any, b: Any, signature: Any, args: Any) -> Any:
        src, dst, factor, term, bounds, n = args
        places = ir.Constant(ir.VectorType(I64, count), list(range(count)))
        mask = b.icmp_signed("<", places, broadcast(b, n, places.type))
        x = masked_load(b, src, memory, mask)
        value = finish(b, x, factor, term, bounds)
        if coefs == "add":
            value = plus(b, masked_load(b, dst, value.type, mask), value)
        masked_store(b, value, dst, mask)
        return context.get_dummy_value()

    @intrinsic
    def one_step(
        typingctx: Any, src: Any, dst: Any, factor: Any, term: Any, bounds: Any, n: Any
    ) -> Any:
        pointers = [types.uintp] * 5
        return types.void(*pointers, types.intp), partial_line if masked else full_line

    return one_step


def build_copied_step(full_line: Any, si: int, di: int, adds: bool) -> Callable[..., None]:
    """Build step(src, dst, factor, term, bounds, count), which writes a part of a line of output.

    A full line is converted in a copy. Without masks of bytes, LLVM tests a mask item by item: 3
    bytes took 0.06 to 0.9 us (AMD EPYC with AVX2, 2026-11-27).
    """
    source_line = LINE // di * si

    @inline
    def copied_step(src: Any, dst: Any, factor: Any, term: Any, bounds: Any, n: Any) -> None:
        x = stack(source_line)
        y = stack(LINE)
        copy_bytes(src, x, n * si)
        if adds:
            copy_bytes(dst, y, n * di)
        full_line(x, y, factor, term, bounds, 0)
        copy_bytes(y, dst, n * di)

    result: Callable[..., None] = copied_step
    return result


# The area of an open line has two lines, since a line of items may begin within the open one. Two
# words follow: the address at which the next run continues the line, and the offset in the line at
# which the first of its runs begins.
OPEN_END, OPEN_FIRST = 2 * LINE // 8, 2 * LINE // 8 + 1
OPEN_LINE = 2 * LINE + 16


@inline
def close_line(line: Any) -> None:
    """Store the open line at `line`, if there is one."""
    end = uintp(i64_at(line, OPEN_END))
    first = uintp(i64_at(line, OPEN_FIRST))
    if end % LINE > first:
        copy_bytes(line + first, end - end % LINE + first, end % LINE - first)
    i64_put(line, OPEN_END, 0)


def build_joining_epilogue(
    source: str, target: str, coefs: str, saturate: bool, clip: int
) -> Callable[..., None]:
    """Build epilogue(src, dst, n, factor, term, bounds, line), which streams runs of full lines.

    If a run continues the last one, their common line is stored once, and it is streamed, too. It
    is kept open at `line`, until a run that does not continue it, or `close_line`. `src` and
    coefficients are read up to a line of output beyond the end of a run. `build_epilogue` describes
    the other arguments.
    """
    si, di, ci = (DTYPES[n].item for n in (source, target, computation_dtype(source, target)))
    count = LINE // di
    move = ci if coefs == "each" else 0
    step = partial(build_step, source, target, coefs, saturate, clip)
    stream_line, keep_line = step(1, False), step(0, False)

    @inline
    def epilogue(
        src: Any, dst: Any, n: Any, factor: Any, term: Any, bounds: Any, line: Any
    ) -> None:
        used = dst % LINE
        if uintp(i64_at(line, OPEN_END)) != dst:
            close_line(line)
            i64_put(line, OPEN_FIRST, used)
        i = 0
        if used > 0:
            keep_line(src, line + used, factor, term, bounds, 0)
            i = min(n, (LINE - used) // di)
            if used + i * di == LINE:
                first = uintp(i64_at(line, OPEN_FIRST))
                if first > 0:
                    copy_bytes(line + first, dst - used + first, LINE - first)
                else:
                    move_vector(line, dst - used, LINE, 1)
                i64_put(line, OPEN_FIRST, 0)
        while i + count <= n:
            pos = uintp(i)
            stream_line(
                src + pos * si, dst + pos * di, factor + pos * move, term + pos * move, bounds, 0
            )
            i += count
        if i < n:
            pos = uintp(i)
            keep_line(src + pos * si, line, factor + pos * move, term + pos * move, bounds, 0)
        i64_put(line, OPEN_END, dst + uintp(n * di))

    result: Callable[..., None] = epilogue
    return result


def build_epilogue(
    source: str, target: str, coefs: str, saturate: bool, clip: int, streaming: int
) -> Callable[..., None]:
    """Build epilogue(src, dst, n, factor, term, bounds, line), which converts a run of n items.

    `coefs` is "none", "run" (one factor and term), "each" (arrays of n factors and terms, each
    followed by a line of padding) or "add" (no formula: the values at dst are added). `clip`: the
    two bounds are of items (1), in the computed dtype, or in their own if there is no formula, or
    of the results of the formula (2). `streaming`: full lines bypass the caches, partial lines at
    both ends do not. `line` is not used.

    Without streaming, the last line of a run ends at the end of the run: it stores some items of
    the line before it again, which is faster than a masked store.
    """
    si, di, ci = (DTYPES[n].item for n in (source, target, computation_dtype(source, target)))
    count = LINE // di
    move = ci if coefs == "each" else 0
    step = partial(build_step, source, target, coefs, saturate, clip)
    full_line = step(streaming, False)
    can_repeat = coefs != "add" and not streaming
    if "avx512bw" in cpu_features():
        partial_line = step(0, True)
    else:
        partial_line = build_copied_step(step(0, False), si, di, coefs == "add")

    @inline
    def epilogue(
        src: Any, dst: Any, n: Any, factor: Any, term: Any, bounds: Any, line: Any
    ) -> None:
        i = 0
        if streaming:
            head = (LINE - dst % LINE) % LINE // di
            if head > 0:
                i = min(n, head)
                partial_line(src, dst, factor, term, bounds, i)
        while i + count <= n:
            pos = uintp(i)
            full_line(
                src + pos * si, dst + pos * di, factor + pos * move, term + pos * move, bounds, 0
            )
            i += count
        if can_repeat and i < n and count <= n:
            pos = uintp(n - count)
            full_line(
                src + pos * si, dst + pos * di, factor + pos * move, term + pos * move, bounds, 0
            )
        elif i < n:
            pos = uintp(i)
            x = src + pos * si
            y = dst + pos * di
            partial_line(x, y, factor + pos * move, term + pos * move, bounds, n - i)

    result: Callable[..., None] = epilogue
    return result

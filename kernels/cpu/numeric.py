"""Casts and the normalising formula on whole vectors, as LLVM IR.

A finished run of the output is written by a `epilogue`: it reads n items that are already in
the output's order, converts them, and stores them. 64 bytes of output are one step, whatever
the dtypes; LLVM cuts wider or narrower operands into registers of the CPU. What is left at
the ends of a run is done by the same code under a mask.

Dtypes have two-letter names: b1 (bool), i1..i8, u1..u8, f2, bf (bfloat16), f4, f8.

- f2 converts in hardware (F16C, NEON); bf is the upper half of an f4, rounded to even;
- f8 -> f2 goes through f4 rounded to odd, which keeps what the second rounding must know;
- float -> integer rounds half to even and saturates, NaN becomes 0. Casts whose result C leaves
  undefined are not made here: the planner sends them to NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types, uintp
from numba.extending import intrinsic

from .simd import I64, address, undef_like, vload, vstore
from .walk import inline
from .words import LINE

FLOATS = ("f2", "bf", "f4", "f8")
COMPUTED = {"f4": ir.FloatType(), "f8": ir.DoubleType()}


def itemsize(name: str) -> int:
    return 2 if name == "bf" else int(name[1])


def element(name: str) -> Any:
    """The LLVM type that a dtype has in memory."""
    memory = {"f2": ir.HalfType(), "bf": ir.IntType(16), **COMPUTED}
    return memory.get(name) or ir.IntType(8 * itemsize(name))


def vector(type_: Any, like: Any) -> Any:
    return ir.VectorType(type_, like.type.count)


def splat(type_: Any, value: Any) -> Any:
    return ir.Constant(type_, [value] * type_.count)


def call(b: Any, name: str, result: Any, *args: Any) -> Any:
    """Call an overloaded LLVM intrinsic by its full name."""
    function = b.module.globals.get(name)
    if function is None:
        signature = ir.FunctionType(result, [a.type for a in args])
        function = ir.Function(b.module, signature, name)
    return b.call(function, args)


def mangled(type_: Any) -> str:
    letter = {ir.HalfType: "f16", ir.FloatType: "f32", ir.DoubleType: "f64"}
    base = type_.element
    return f"v{type_.count}" + (letter.get(type(base)) or f"i{base.width}")


# ---- floats ------------------------------------------------------------------------------


def widen(b: Any, x: Any, name: str) -> Any:
    """A 16-bit float as f4, exactly."""
    if name == "f2":
        return b.fpext(x, vector(COMPUTED["f4"], x))
    words = vector(ir.IntType(32), x)
    return b.bitcast(b.shl(b.zext(x, words), splat(words, 16)), vector(COMPUTED["f4"], x))


def narrow(b: Any, x: Any, name: str, nan: bool = True) -> Any:
    """An f4 as a 16-bit float, rounded to even; `nan`: a NaN with any payload may be among x."""
    if name == "f2":
        return b.fptrunc(x, vector(ir.HalfType(), x))
    words = vector(ir.IntType(32), x)
    bits = b.bitcast(x, words)
    odd = b.and_(b.lshr(bits, splat(words, 16)), splat(words, 1))
    rounded = b.add(bits, b.add(odd, splat(words, 0x7FFF)))
    if nan:  # a full payload must not round up to infinity
        quiet = b.or_(bits, splat(words, 0x400000))
        rounded = b.select(b.fcmp_unordered("uno", x, x), quiet, rounded)
    return b.trunc(b.lshr(rounded, splat(words, 16)), vector(ir.IntType(16), x))


def round_to_odd(b: Any, x: Any) -> Any:
    """An f8 as f4: what does not fit makes the last bit 1, so a second rounding is right."""
    near = b.fptrunc(x, vector(COMPUTED["f4"], x))
    back = b.fpext(near, x.type)
    name = "llvm.fabs." + mangled(x.type)
    beyond = b.fcmp_ordered(">", call(b, name, x.type, back), call(b, name, x.type, x))
    inexact = b.fcmp_ordered("!=", back, x)
    words = vector(ir.IntType(32), x)
    bits = b.bitcast(near, words)
    toward_zero = b.sub(bits, b.zext(beyond, words))
    return b.bitcast(b.or_(toward_zero, b.zext(inexact, words)), near.type)


def float_to_float(b: Any, x: Any, source: str, target: str) -> Any:
    if source in ("f2", "bf"):
        x, source = widen(b, x, source), "f4"
    if source == target:
        return x
    if (source, target) == ("f4", "f8"):
        return b.fpext(x, vector(COMPUTED["f8"], x))
    if source == "f8":
        if target == "f2":
            return narrow(b, round_to_odd(b, x), "f2")
        x = b.fptrunc(x, vector(COMPUTED["f4"], x))
    return x if target == "f4" else narrow(b, x, target)


# ---- integers ----------------------------------------------------------------------------


def bounds(name: str) -> tuple[int, int]:
    bits = 8 * itemsize(name)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if name[0] == "i" else (0, (1 << bits) - 1)


def clip(b: Any, x: Any, source: str, target: str) -> Any:
    """Clamp integers to the target's range, as far as the source can leave it."""
    (low, high), (least, most) = bounds(source), bounds(target)
    compare = b.icmp_signed if source[0] == "i" else b.icmp_unsigned
    if least > low:
        x = b.select(compare("<", x, splat(x.type, least)), splat(x.type, least), x)
    if most < high:
        x = b.select(compare(">", x, splat(x.type, most)), splat(x.type, most), x)
    return x


def resize(b: Any, x: Any, source: str, target: str) -> Any:
    """An integer vector at another width, wrapping as NumPy does."""
    wide = vector(element(target), x)
    if itemsize(target) <= itemsize(source):
        return b.trunc(x, wide) if itemsize(target) < itemsize(source) else x
    return b.sext(x, wide) if source[0] == "i" else b.zext(x, wide)


def to_int(b: Any, x: Any, target: str, computed: str) -> Any:
    """Round half to even, then saturate; NaN becomes 0.

    LLVM has an instruction for this, which it does item by item. Here the value is first brought
    between the bounds, of which the upper one may be no float: what lies beyond the largest float
    below it is replaced at the end.
    """
    x = call(b, "llvm.rint." + mangled(x.type), x.type, x)
    least, most = bounds(target)
    top = largest_float(most, computed)
    low, high = (splat(x.type, float(bound)) for bound in (least, top))
    if least < 0:
        x = b.select(b.fcmp_ordered("ord", x, x), x, splat(x.type, 0.0))
    above = b.select(b.fcmp_ordered(">", x, low), x, low)  # a NaN compares false: low is 0 then
    within = b.select(b.fcmp_ordered("<", above, high), above, high)
    middle = vector(ir.IntType(max(32, 8 * itemsize(target))), x)
    signed = target[0] == "i" or itemsize(target) < 4
    result = (b.fptosi if signed else b.fptoui)(within, middle)
    if top != most:
        result = b.select(b.fcmp_ordered(">", x, high), splat(middle, most), result)
    return b.trunc(result, vector(element(target), x)) if itemsize(target) < 4 else result


def largest_float(bound: int, computed: str) -> int:
    """The largest integer up to `bound` = 2**k - 1 that the computed dtype can hold."""
    digits = 53 if computed == "f8" else 24
    return bound - bound % (1 << max(0, bound.bit_length() - digits))


def to_bool(b: Any, x: Any, source: str) -> Any:
    zero = splat(x.type, 0 if source not in FLOATS else 0.0)
    unequal = b.fcmp_unordered("!=", x, zero) if source in FLOATS else b.icmp_signed("!=", x, zero)
    return b.zext(unequal, vector(ir.IntType(8), x))


def cast(b: Any, x: Any, source: str, target: str, saturate: bool) -> Any:
    """Convert a vector from one dtype to another; the values are NumPy's (or saturated)."""
    if source == target:
        return x
    if source in FLOATS:
        if target in FLOATS:
            return float_to_float(b, x, source, target)
        computed = "f8" if source == "f8" else "f4"
        x = float_to_float(b, x, source, computed)
        return to_bool(b, x, computed) if target == "b1" else to_int(b, x, target, computed)
    if target in FLOATS:
        direct = target if target in COMPUTED else "f4"
        convert = b.sitofp if source[0] == "i" else b.uitofp
        return float_to_float(b, convert(x, vector(COMPUTED[direct], x)), direct, target)
    if target == "b1":
        return to_bool(b, x, source)
    return resize(b, clip(b, x, source, target) if saturate else x, source, target)


# ---- epilogues ---------------------------------------------------------------------------


def masked_load(b: Any, base: Any, type_: Any, mask: Any) -> Any:
    pointer = address(b, base, 0, type_)
    align = ir.Constant(ir.IntType(32), 1)
    empty = ir.Constant(type_, None)
    return call(b, f"llvm.masked.load.{mangled(type_)}.p0", type_, pointer, align, mask, empty)


def masked_store(b: Any, value: Any, base: Any, mask: Any) -> None:
    pointer = address(b, base, 0, value.type)
    align = ir.Constant(ir.IntType(32), 1)
    name = f"llvm.masked.store.{mangled(value.type)}.p0"
    call(b, name, ir.VoidType(), value, pointer, align, mask)


def affine(b: Any, x: Any, source: str, coefs: str, factor: Any, term: Any, computed: str) -> Any:
    """x * factor + term in the computed dtype; one pair for the run, or one for each item."""
    x = cast(b, x, source, computed, False)
    if coefs == "each":
        a, c = vload(b, factor, 0, x.type), vload(b, term, 0, x.type)
    else:
        a, c = (broadcast(b, vload(b, at, 0, x.type.element), x.type) for at in (factor, term))
    return call(b, "llvm.fmuladd." + mangled(x.type), x.type, x, a, c)


def plus(b: Any, x: Any, y: Any) -> Any:
    """The sum of two vectors; integers wrap."""
    is_float = x.type.element in COMPUTED.values()
    return b.fadd(x, y) if is_float else b.add(x, y)


def broadcast(b: Any, value: Any, type_: Any) -> Any:
    first = b.insert_element(ir.Constant(type_, ir.Undefined), value, ir.Constant(I64, 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), type_.count), None)
    return b.shuffle_vector(first, undef_like(first), zeros)


def computed_in(source: str, target: str) -> str:
    return "f8" if "f8" in (source, target) else "f4"


def step(source: str, target: str, coefs: str, saturate: bool, nt: int, masked: bool) -> Any:
    """The intrinsic that finishes one cache line of output: step(src, dst, factor, term, count)."""
    count = LINE // itemsize(target)
    memory = ir.VectorType(element(source), count)
    computed = computed_in(source, target)

    def finish(b: Any, x: Any, factor: Any, term: Any) -> Any:
        if coefs in ("none", "add"):
            return cast(b, x, source, target, saturate)
        x = affine(b, x, source, coefs, factor, term, computed)
        if target == "bf" and source not in FLOATS:
            # The only NaN that integers lead to is 0 * inf, whose payload is empty.
            return narrow(b, x, "bf", nan=False)
        return cast(b, x, computed, target, saturate)

    def whole(context: Any, b: Any, signature: Any, args: Any) -> Any:
        src, dst, factor, term, _ = args
        value = finish(b, vload(b, src, 0, memory), factor, term)
        if coefs == "add":
            value = plus(b, vload(b, dst, 0, value.type), value)
        vstore(b, value, dst, 0, nt)
        return context.get_dummy_value()

    def part(context: Any, b: Any, signature: Any, args: Any) -> Any:
        src, dst, factor, term, n = args
        places = ir.Constant(ir.VectorType(I64, count), list(range(count)))
        mask = b.icmp_signed("<", places, broadcast(b, n, places.type))
        x = masked_load(b, src, memory, mask)
        value = finish(b, x, factor, term)
        if coefs == "add":
            value = plus(b, masked_load(b, dst, value.type, mask), value)
        masked_store(b, value, dst, mask)
        return context.get_dummy_value()

    @intrinsic
    def one_step(typingctx: Any, src: Any, dst: Any, factor: Any, term: Any, n: Any) -> Any:
        pointers = [types.uintp] * 4
        return types.void(*pointers, types.intp), part if masked else whole

    return one_step


def epilogue(source: str, target: str, coefs: str, saturate: bool, nt: int) -> Callable[..., None]:
    """finish(src, dst, n, factor, term): convert a run of n items.

    `coefs` is "none", "run" (one factor and term), "each" (an array of each, n long, with a line
    of slack behind it) or "add" (no formula: what stands at dst is added). `nt`: stream whole
    aligned lines; the ends are stored plainly.
    """
    si, di, ci = itemsize(source), itemsize(target), itemsize(computed_in(source, target))
    count, move = LINE // di, (ci if coefs == "each" else 0)
    whole = step(source, target, coefs, saturate, nt, False)
    part = step(source, target, coefs, saturate, 0, True)

    @inline
    def finish(src, dst, n, factor, term):
        i = 0
        if nt:
            head = (LINE - dst % LINE) % LINE // di
            if head > 0:
                i = min(n, head)
                part(src, dst, factor, term, i)
        while i + count <= n:
            at = uintp(i)
            whole(src + at * si, dst + at * di, factor + at * move, term + at * move, 0)
            i += count
        if i < n:
            at = uintp(i)
            part(src + at * si, dst + at * di, factor + at * move, term + at * move, n - i)

    return finish

"""Casts of vectors, as LLVM IR.

Dtypes have the names of planning/epilogue.py, such as u1 or bf (bfloat16).

- f2 is converted in hardware (F16C, NEON). bf is the upper half of an f4, rounded half to even, by
  integer operations if the CPU has no instruction for it.
- f8 -> f2 goes through f4 rounded to odd, which preserves the bits that the second rounding needs.
- float -> integer rounds half to even and saturates; NaN becomes 0. Casts whose result is undefined
  in C are not handled here: the planner leaves them to NumPy.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ...planning.epilogue import DTYPES
from .compiler import cpu_features
from .simd import shuffle

FLOATS = [row.name for row in DTYPES.values() if row.kind == "f"]
BFLOAT_ITEMS = 32  # items that one AVX-512 instruction rounds to bf
FPCLASS = "llvm.x86.avx512.fpclass.ps.512"
SUBNORMAL = 0x20
COMPUTED = {"f4": ir.FloatType(), "f8": ir.DoubleType()}


def itemsize(name: str) -> int:
    return DTYPES[name].item


def is_signed(name: str) -> bool:
    return DTYPES[name].kind == "i"


def element_type(name: str) -> Any:
    """Return the LLVM type that a dtype has in memory."""
    memory = {"f2": ir.HalfType(), "bf": ir.IntType(16), **COMPUTED}
    return memory.get(name) or ir.IntType(8 * itemsize(name))


def vector_type(type_: Any, like: Any) -> Any:
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


def mangle(type_: Any) -> str:
    letter = {ir.HalfType: "f16", ir.FloatType: "f32", ir.DoubleType: "f64"}
    base = type_.element
    return f"v{type_.count}" + (letter.get(type(base)) or f"i{base.width}")


# ---- floats ------------------------------------------------------------------------------


def widen(b: Any, x: Any, name: str) -> Any:
    """Convert a 16-bit float to f4, exactly."""
    if name == "f2":
        return b.fpext(x, vector_type(COMPUTED["f4"], x))
    words = vector_type(ir.IntType(32), x)
    return b.bitcast(b.shl(b.zext(x, words), splat(words, 16)), vector_type(COMPUTED["f4"], x))


def narrow(b: Any, x: Any, name: str, nan: bool = True) -> Any:
    """Round an f4 to a 16-bit float, half to even. `nan`: x may hold NaNs with any payload."""
    if name == "f2":
        return b.fptrunc(x, vector_type(ir.HalfType(), x))
    if "avx512bf16" in cpu_features() and x.type.count % BFLOAT_ITEMS == 0:
        return round_to_bfloat_by_instruction(b, x, nan)
    return round_to_bfloat_by_integers(b, x, nan)


def round_to_bfloat_by_integers(b: Any, x: Any, nan: bool) -> Any:
    """Round f4 to bf with integer operations only."""
    words = vector_type(ir.IntType(32), x)
    bits = b.bitcast(x, words)
    odd = b.and_(b.lshr(bits, splat(words, 16)), splat(words, 1))
    rounded = b.add(bits, b.add(odd, splat(words, 0x7FFF)))
    if nan:  # a payload of all ones must not round up to infinity
        quiet = b.or_(bits, splat(words, 0x400000))
        rounded = b.select(b.fcmp_unordered("uno", x, x), quiet, rounded)
    return b.trunc(b.lshr(rounded, splat(words, 16)), vector_type(ir.IntType(16), x))


def round_to_bfloat_by_instruction(b: Any, x: Any, nan: bool) -> Any:
    """Round f4 to bf by AVX-512, or by integer operations if there are subnormals.

    The AVX-512 instruction treats subnormals as zeros. Rounding and packing two registers takes 3
    steps with it, and 15 with integer operations.
    """
    half = BFLOAT_ITEMS // 2
    firsts = range(0, x.type.count, half)
    floats = [shuffle(b, x, x, list(range(first, first + half))) for first in firsts]
    bits = ir.VectorType(ir.IntType(1), half)
    subnormals = [call(b, FPCLASS, bits, f, ir.Constant(ir.IntType(32), SUBNORMAL)) for f in floats]
    while len(subnormals) > 1:
        subnormals = [b.or_(*pair) for pair in zip(subnormals[::2], subnormals[1::2], strict=True)]
    has_subnormals = b.icmp_unsigned(
        "!=", b.bitcast(subnormals[0], ir.IntType(half)), ir.IntType(half)(0)
    )
    target = vector_type(ir.IntType(16), x)
    with b.if_else(has_subnormals, likely=False) as (then, otherwise):
        with then:
            by_words = round_to_bfloat_by_integers(b, x, nan)
            then_end = b.block
        with otherwise:
            packed = [
                _pack_bfloat(b, *pair) for pair in zip(floats[::2], floats[1::2], strict=True)
            ]
            while len(packed) > 1:
                packed = [
                    shuffle(b, low, high, list(range(2 * low.type.count)))
                    for low, high in zip(packed[::2], packed[1::2], strict=True)
                ]
            otherwise_end = b.block
    result = b.phi(target)
    result.add_incoming(by_words, then_end)
    result.add_incoming(packed[0], otherwise_end)
    return result


def _pack_bfloat(b: Any, low: Any, high: Any) -> Any:
    """Pack two registers of f4 into one of bf."""
    type_ = ir.VectorType(ir.IntType(16), 2 * low.type.count)
    signature = ir.FunctionType(type_, [low.type, low.type])
    return b.asm(signature, "vcvtne2ps2bf16 $1, $2, $0", "=v,v,v", (low, high), side_effect=False)


def round_to_odd(b: Any, x: Any) -> Any:
    """Round an f8 to f4 so that a second rounding is correct: an inexact result gets last bit 1."""
    near = b.fptrunc(x, vector_type(COMPUTED["f4"], x))
    back = b.fpext(near, x.type)
    name = "llvm.fabs." + mangle(x.type)
    beyond = b.fcmp_ordered(">", call(b, name, x.type, back), call(b, name, x.type, x))
    inexact = b.fcmp_ordered("!=", back, x)
    words = vector_type(ir.IntType(32), x)
    bits = b.bitcast(near, words)
    toward_zero = b.sub(bits, b.zext(beyond, words))
    return b.bitcast(b.or_(toward_zero, b.zext(inexact, words)), near.type)


def float_to_float(b: Any, x: Any, source: str, target: str) -> Any:
    if source not in COMPUTED:
        x = widen(b, x, source)
        source = "f4"
    if source == target:
        return x
    if (source, target) == ("f4", "f8"):
        return b.fpext(x, vector_type(COMPUTED["f8"], x))
    if source == "f8":
        if target == "f2":
            return narrow(b, round_to_odd(b, x), "f2")
        x = b.fptrunc(x, vector_type(COMPUTED["f4"], x))
    return x if target == "f4" else narrow(b, x, target)


# ---- integers ----------------------------------------------------------------------------


def bounds(name: str) -> tuple[int, int]:
    bits = 8 * itemsize(name)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed(name) else (0, (1 << bits) - 1)


def clip(b: Any, x: Any, source: str, target: str) -> Any:
    """Clamp integers to the target's range, on the sides where the source's range exceeds it."""
    (low, high) = bounds(source)
    (lowest, highest) = bounds(target)
    compare = b.icmp_signed if is_signed(source) else b.icmp_unsigned
    if lowest > low:
        x = b.select(compare("<", x, splat(x.type, lowest)), splat(x.type, lowest), x)
    if highest < high:
        x = b.select(compare(">", x, splat(x.type, highest)), splat(x.type, highest), x)
    return x


def clip_to_bounds(b: Any, x: Any, name: str, low: Any, high: Any) -> Any:
    """Clip x to two bounds of its dtype; NaN stays NaN."""
    if name in FLOATS:
        x = b.select(b.fcmp_ordered("<", x, low), low, x)
        return b.select(b.fcmp_ordered(">", x, high), high, x)
    compare = b.icmp_signed if is_signed(name) else b.icmp_unsigned
    x = b.select(compare("<", x, low), low, x)
    return b.select(compare(">", x, high), high, x)


def resize(b: Any, x: Any, source: str, target: str) -> Any:
    """Convert an integer vector to another width, wrapping as NumPy does."""
    wide = vector_type(element_type(target), x)
    if itemsize(target) <= itemsize(source):
        return b.trunc(x, wide) if itemsize(target) < itemsize(source) else x
    return b.sext(x, wide) if is_signed(source) else b.zext(x, wide)


def to_int(b: Any, x: Any, target: str, computed: str) -> Any:
    """Round half to even, then saturate; NaN becomes 0.

    LLVM would expand its saturating instruction item by item. Here the value is clamped to the
    bounds before the conversion. If the upper bound is not representable as a float, values above
    the largest float below the bound are replaced after the conversion.
    """
    x = call(b, "llvm.rint." + mangle(x.type), x.type, x)
    lowest, highest = bounds(target)
    top = largest_float(highest, computed)
    low, high = (splat(x.type, float(bound)) for bound in (lowest, top))
    if lowest < 0:
        x = b.select(b.fcmp_ordered("ord", x, x), x, splat(x.type, 0.0))
    # For unsigned targets, a NaN compares false and becomes low, which is 0.
    above = b.select(b.fcmp_ordered(">", x, low), x, low)
    within = b.select(b.fcmp_ordered("<", above, high), above, high)
    middle = vector_type(ir.IntType(max(32, 8 * itemsize(target))), x)
    signed = is_signed(target) or itemsize(target) < 4
    result = (b.fptosi if signed else b.fptoui)(within, middle)
    if top != highest:
        result = b.select(b.fcmp_ordered(">", x, high), splat(middle, highest), result)
    return b.trunc(result, vector_type(element_type(target), x)) if itemsize(target) < 4 else result


def largest_float(bound: int, computed: str) -> int:
    """Return the largest integer up to `bound` = 2**k - 1 that the computed dtype represents."""
    digits = 53 if computed == "f8" else 24
    return bound - bound % (1 << max(0, bound.bit_length() - digits))


def to_bool(b: Any, x: Any, source: str) -> Any:
    zero = splat(x.type, 0 if source not in FLOATS else 0.0)
    unequal = b.fcmp_unordered("!=", x, zero) if source in FLOATS else b.icmp_signed("!=", x, zero)
    return b.zext(unequal, vector_type(ir.IntType(8), x))


def cast(b: Any, x: Any, source: str, target: str, saturate: bool) -> Any:
    """Convert a vector from one dtype to another: as NumPy does, or saturating."""
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
        convert = b.sitofp if is_signed(source) else b.uitofp
        return float_to_float(b, convert(x, vector_type(COMPUTED[direct], x)), direct, target)
    if target == "b1":
        return to_bool(b, x, source)
    return resize(b, clip(b, x, source, target) if saturate else x, source, target)

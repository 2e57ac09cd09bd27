"""Intrinsics for communication between threads: atomic words, clocks, calls by address."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .simd import I64, address


@intrinsic
def load_acquire(typingctx: Any, addr: Any) -> Any:
    """Load the 64-bit word at an address, with acquire ordering."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.load_atomic(address(b, args[0], 0, I64), "acquire", 8)

    return types.intp(types.uintp), codegen


@intrinsic
def store_release(typingctx: Any, addr: Any, value: Any) -> Any:
    """Store a 64-bit word at an address, with release ordering."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        b.store_atomic(args[1], address(b, args[0], 0, I64), "release", 8)
        return context.get_dummy_value()

    return types.void(types.uintp, types.intp), codegen


@intrinsic
def exchange_if(typingctx: Any, addr: Any, expected: Any, value: Any) -> Any:
    """Store `value` at an address if the word there is `expected`; return True if it was.

    Exchanges are sequentially consistent: all threads see them in one order.
    """

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        pointer = address(b, args[0], 0, I64)
        pair = b.cmpxchg(pointer, args[1], args[2], "seq_cst", "seq_cst")
        return b.extract_value(pair, 1)

    return types.boolean(types.uintp, types.intp, types.intp), codegen


@intrinsic
def fetch_add(typingctx: Any, addr: Any, value: Any) -> Any:
    """Add `value` to the 64-bit word at an address; return the previous value."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.atomic_rmw("add", address(b, args[0], 0, I64), args[1], "acq_rel")

    return types.intp(types.uintp, types.intp), codegen


@intrinsic
def pause(typingctx: Any) -> Any:
    """Tell the CPU that the thread is in a spin-wait loop."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        triple = b.module.triple
        if "x86" in triple:
            hint = ir.FunctionType(ir.VoidType(), [])
            b.call(b.module.declare_intrinsic("llvm.x86.sse2.pause", (), hint), [])
        elif "aarch64" in triple or "arm64" in triple:
            hint = ir.FunctionType(ir.VoidType(), [ir.IntType(32)])
            function = b.module.declare_intrinsic("llvm.aarch64.hint", (), hint)
            b.call(function, [ir.Constant(ir.IntType(32), 1)])
        else:
            b.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def call_kernel(
    typingctx: Any, code: Any, params: Any, src: Any, dst: Any, lo: Any, hi: Any
) -> Any:
    """Call the kernel at address `code`."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        type_ = ir.FunctionType(ir.VoidType(), [I64] * 5)
        b.call(b.inttoptr(args[0], type_.as_pointer()), args[1:])
        return context.get_dummy_value()

    signature = types.void(*[types.uintp] * 4, types.intp, types.intp)
    return signature, codegen


@intrinsic
def call(typingctx: Any, code: Any, first: Any, second: Any, third: Any, fourth: Any) -> Any:
    """Call the C function at address `code`, which may take fewer arguments; return its int."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        type_ = ir.FunctionType(ir.IntType(32), [I64] * 4)
        return b.sext(b.call(b.inttoptr(args[0], type_.as_pointer()), args[1:]), I64)

    return types.intp(*[types.uintp] * 5), codegen


@intrinsic
def call_for_address(typingctx: Any, code: Any, argument: Any) -> Any:
    """Call the C function at address `code`; return the address that it returns."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        type_ = ir.FunctionType(I64, [I64])
        return b.call(b.inttoptr(args[0], type_.as_pointer()), args[1:])

    return types.intp(*[types.uintp] * 2), codegen


@intrinsic
def ticks(typingctx: Any) -> Any:
    """Return the ticks of a clock that has one rate on all cores; the call takes 20 cycles."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        if "aarch64" in b.module.triple or "arm64" in b.module.triple:
            # User programs cannot read LLVM's cycle counter on ARM. This needs no assembler, which
            # llvmlite has for its own architecture only: an x86-64 also compiles for ARM.
            register = b.module.add_metadata(["cntvct_el0"])
            read = ir.FunctionType(I64, [ir.MetaDataType()])
            name = "llvm.read_volatile_register"
            return b.call(b.module.declare_intrinsic(name, (I64,), read), [register])
        clock = ir.FunctionType(I64, [])
        return b.call(b.module.declare_intrinsic("llvm.readcyclecounter", (), clock), [])

    return types.intp(), codegen

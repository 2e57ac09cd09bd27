"""Casts of whole registers, from every dtype to every other one, over full ranges.

LLVM compiles all casts into one object. A kernel for each cast would compile the same loops 250
times, which takes minutes; core/test_formula.py tests kernels with some of the casts.
"""

from ctypes import CFUNCTYPE, c_ssize_t, c_void_p
from itertools import product

import numpy as np
import pytest
from llvmlite import ir

from layoutkit.kernels.cpu import casts, compiler, simd
from layoutkit.kernels.cpu.params import LINE
from layoutkit.planning.epilogue import DTYPES
from layoutkit.spec import as_dtype
from tests.helpers.every_value import assert_cast, every_value, numpys, thinned
from tests.helpers.reference import reference_convert

TYPE = CFUNCTYPE(None, c_void_p, c_void_p, c_ssize_t)


def pairs(saturate):
    """Yield (source, target) of the casts that kernels make; NumPy makes others to integers."""
    for source, target in product(DTYPES.values(), repeat=2):
        integers = source.kind in "biu", target.kind in "iu"
        if source is not target and (integers[1] if saturate else integers != (False, True)):
            yield source.name, target.name


def write(module, source, target, saturate):
    """Write a function name(src, dst, n) that casts n lines of the target at any address."""
    arguments = ir.FunctionType(ir.VoidType(), [simd.I64] * 3)
    function = ir.Function(module, arguments, f"{source}_{target}_{saturate}")
    begin, line, end = (function.append_basic_block(name) for name in ("begin", "line", "end"))
    src, dst, n = function.args
    count = LINE // DTYPES[target].item
    ir.IRBuilder(begin).branch(line)
    b = ir.IRBuilder(line)
    at = b.phi(simd.I64)
    at.add_incoming(simd.I64(0), begin)
    place = b.add(src, b.mul(at, simd.I64(count * DTYPES[source].item)))
    x = simd.vload(b, place, 0, ir.VectorType(casts.element_type(source), count))
    y = casts.cast(b, x, source, target, saturate)
    simd.vstore(b, y, b.add(dst, b.mul(at, simd.I64(LINE))))
    following = b.add(at, simd.I64(1))
    at.add_incoming(following, b.block)
    b.cbranch(b.icmp_signed("<", following, n), line, end)
    ir.IRBuilder(end).ret_void()


@pytest.fixture(scope="module")
def cast():
    """Return cast(values, source, target, saturate), which runs code optimized by LLVM."""
    module = ir.Module()
    for saturate in (False, True):
        for source, target in pairs(saturate):
            write(module, source, target, saturate)
    llvm = compiler._llvm()
    machine = compiler._target_machine()
    found = llvm.parse_assembly(str(module))
    passes = llvm.create_pass_builder(machine, llvm.PipelineTuningOptions(speed_level=3))
    passes.getModulePassManager().run(found, passes)
    engine = llvm.create_mcjit_compiler(found, machine)
    engine.finalize_object()

    def run(values, source, target, saturate):
        lines = -(-values.size * DTYPES[target].item // LINE)
        padded = np.resize(values, lines * LINE // DTYPES[target].item)
        made = np.empty(padded.shape, as_dtype(DTYPES[target].library))
        function = TYPE(engine.get_function_address(f"{source}_{target}_{saturate}"))
        function(padded.ctypes.data, made.ctypes.data, lines)
        return made[: values.size]

    return run


@pytest.mark.budget(1)
@pytest.mark.parametrize("source", DTYPES)
def test_casts_are_numpys(source, cast):
    values = every_value(as_dtype(DTYPES[source].library))
    for target in (pair[1] for pair in pairs(saturate=False) if pair[0] == source):
        expected = numpys(values, as_dtype(DTYPES[target].library))
        assert_cast(cast(values, source, target, False), expected)


@pytest.mark.parametrize("source", DTYPES)
def test_saturating_casts_are_exact(source, cast):
    values = thinned(every_value(as_dtype(DTYPES[source].library)))
    for target in (pair[1] for pair in pairs(saturate=True) if pair[0] == source):
        dtype = as_dtype(DTYPES[target].library)
        with np.errstate(invalid="ignore"):  # signaling NaNs
            expected = reference_convert(values, "b->b", dtype=dtype, casting="saturate")
        np.testing.assert_array_equal(cast(values, source, target, True), expected)

"""Kernels compiled for other CPUs, and the compiler's output for this one.

LLVM compiles for any x86-64 CPU up to this machine's by name and features, so that AVX2 and SSE
code runs here too.
"""

import base64
import json
import platform
import re
import struct
from functools import cache

import pytest

from layoutkit.kernels.cpu import compiler
from tests.helpers.children import finish, python, start
from tests.helpers.instruction_sets import CPUS, lacking, named

pytestmark = pytest.mark.budget(4)

X86 = platform.machine().lower() in ("x86_64", "amd64")
needs_x86 = pytest.mark.skipif(not X86, reason="names CPUs and instructions of x86-64")

# Every kernel family, transposes of every item size on one of the two CPUs, and one cast of each
# kind. A kernel takes seconds to compile, so this is a selection; other tests run all kernels for
# the CPU of this machine.
SWEEP = """
import warnings
import numpy as np
import ml_dtypes
import layoutkit
from layoutkit.kernels.cpu import compiler, launch, tiling
from layoutkit.kernels.cpu.tiling import lanes
from layoutkit.cpu.program import supports_float16

rng = np.random.default_rng(0)
warnings.simplefilter("error")

def compare(y, expected, what):
    y, expected = (np.ascontiguousarray(a).view(np.uint8) for a in (y, expected))
    assert np.array_equal(y, expected), what

def numbers(shape, dtype):
    return rng.integers(0, 120, shape).astype(dtype)

SIZES = ("u1", "u4", "c16") if lanes() == 1 else ("u2", "u4", "u8")
MOVES = [
    ("u1", "bpc->bcp", (2, 150, 3), (0, 2, 1)), ("u4", "bpc->bcp", (2, 67, 4), (0, 2, 1)),
    ("u2", "bcp->bpc", (2, 3, 150), (0, 2, 1)), ("u1", "bpc->bcp", (2, 150, 7), (0, 2, 1)),
    ("u1", "bcp->bpc", (2, 7, 150), (0, 2, 1)), ("u1", "abn->ban", (30, 5, 24), (1, 0, 2)),
    ("u2", "xyz->zyx", (5, 3, 7), (2, 1, 0)), ("u1", "axb->xab", (3, 5, 100), (1, 0, 2)),
    *[(dtype, "xy->yx", (133, 70), (1, 0)) for dtype in SIZES],
]
CASTS = [("u1", "f4"), ("f4", "bfloat16"), ("f2", "f4"), ("f8", "f2"), ("u8", "f4")]

def moves():
    for dtype, pattern, shape, order in MOVES:
        x = numbers(shape, dtype)
        compare(layoutkit.convert(x, pattern, copy=True), x.transpose(order), (pattern, dtype))

def gapped_rows():
    for length in (1, 4, 8, 12, 16, 33):  # 64 bytes are copied by one load and one store
        x = numbers((9, 2, length), "u8")[:, 0]
        compare(layoutkit.convert(x, "ab->ab", copy=True), x, ("gapped rows", length))

def casts():
    for source, target in CASTS:
        x = numbers((3, 119), source)
        compare(layoutkit.convert(x, "bx->bx", dtype=target), x.astype(target), (source, target))

def saturation():
    x = (rng.standard_normal((7, 119)) * 300).astype("f4")
    x[0, :6] = [0.5, 1.5, -0.5, 1e30, -1e30, np.nan]
    for target in ("u1", "i8"):
        y = layoutkit.convert(x, "bx->bx", dtype=target, casting="saturate")
        info = np.iinfo(target)
        bounded = [0 if v != v else min(max(v, info.min), info.max) for v in x.ravel().tolist()]
        exact = [round(v) for v in bounded]
        compare(y, np.array(exact, target).reshape(x.shape), target)

def formula():
    x = numbers((2, 9, 11, 3), "u1")
    mean, std = (1.5, 0.25, 0.75), (0.5, 0.25, 0.125)  # exact, with any rounding
    y = layoutkit.convert(x, "bhwc->bchw", dtype="f4", mean=mean, std=std)
    exact = (x - np.array(mean)) / np.array(std)
    compare(y, exact.transpose(0, 3, 1, 2).astype("f4"), "formula")

launch.STREAM_BYTES = 0
tiling.STREAMED_BYTES = dict.fromkeys(tiling.STREAMED_BYTES, 0)
moves(), gapped_rows(), casts(), saturation(), formula()
# Two threads: the hand-over is compiled for this CPU as well.
layoutkit.set_num_threads(2)
x = numbers((16, 24, 24, 32), "f4")
for _ in range(20):
    compare(layoutkit.convert(x, "bhwc->bchw"), x.transpose(0, 3, 1, 2), "threads")
print(lanes(), supports_float16(), len(compiler.loaded()))
"""


@pytest.fixture(scope="module")
def sweeps():
    """Start both processes at once, because compiling keeps only one core busy."""
    started = {name: start(SWEEP, **named(name)) for name in ("sse2", "avx2") if not lacking(name)}
    yield started
    for process in started.values():
        process.kill()  # if no test has waited for it


@pytest.mark.budget(0)
@needs_x86
@pytest.mark.parametrize("name", ["sse2", "avx2"])
def test_kernels_are_right_on_other_cpus(name, sweeps):
    if name not in sweeps:
        pytest.skip(f"this CPU lacks {lacking(name)}")
    lanes, half, kernels = finish(sweeps[name]).split()
    assert (int(lanes), half) == (CPUS[name][2], str(name == "avx2"))
    assert int(kernels) > 18


@pytest.mark.budget(0)
@needs_x86
def test_without_hardware_for_float16_numpy_converts_it():
    """Code of LLVM for such CPUs would call a library function that does not exist."""
    if lacking("sse4"):
        pytest.skip(f"this CPU lacks {lacking('sse4')}")
    code = (
        SWEEP[: SWEEP.index("launch.STREAM_BYTES")]
        + """
CASTS = [(a, b) for a, b in CASTS if "f2" in (a, b)]
casts()
print(supports_float16())
"""
    )
    assert python(code, **named("sse4")) == "False\n"


# ---- machine code ------------------------------------------------------------------------

# Compiles kernels for the chosen CPU without running them.
LISTING = """
import base64, json, sys
import layoutkit
from layoutkit.kernels.cpu import compiler, launch
from layoutkit.kernels.cpu.tiling import lanes

launch.STREAM_BYTES = 1 << 20  # whatever the caches of this CPU hold

def spec_of(pattern, shape, from_dtype, **keywords):
    plan = layoutkit.plan(pattern, shape, from_dtype, **keywords)
    return launch.prepare(plan.choice, plan.epilogue, 64).spec

CASES = {
    "streaming": spec_of("bwc->bcw", (64, 256, 64), "f4"),
    "plain": spec_of("bhwc->bchw", (2, 4, 4, 64), "f4"),
    "u1-f4": spec_of("bx->bx", (64, 50000), "u1", dtype="f4"),
    "f4-f2": spec_of("bx->bx", (2, 500), "f4", dtype="f2"),
    "f2-f4": spec_of("bx->bx", (2, 500), "f2", dtype="f4"),
    "f8-f2": spec_of("bx->bx", (2, 500), "f8", dtype="f2"),
    "runs": spec_of("abn->ban", (30, 5, 8), "f8"),
}
if lanes() == 2:
    CASES["serve"] = compiler.KernelSpec("threadpool", ("serve",))
found = {}
for name, spec in CASES.items():
    ir = compiler.compile_ir(spec)
    module = compiler._llvm().parse_assembly(ir)
    machine = compiler._target_machine()
    code = base64.b64encode(machine.emit_object(module)).decode()
    found[name] = [machine.emit_assembly(module), code, ir]
print(json.dumps(found))
"""


# The vector registers of CPUs; the first CPU is tested by default.
REGISTERS = [("avx2", "ymm"), ("avx512", "zmm")]
by_register = pytest.mark.parametrize(("name", "register"), REGISTERS)
by_cpu = pytest.mark.parametrize("name", [name for name, _ in REGISTERS])


@cache
def listings(name):
    """Return (assembly, object, IR) of some kernels for a CPU with or without AVX-512."""
    return json.loads(python(LISTING, **named(name)))


def instructions(listing):
    """Extract the instructions of an assembly listing, with single blanks."""
    return [" ".join(line.split()) for line in listing[0].splitlines() if line.startswith("\t")]


def has(listing, pattern):
    return any(re.match(pattern, line) for line in instructions(listing))


@needs_x86
@pytest.mark.budget(0)
@by_register
def test_a_streaming_transpose_stores_past_the_caches_and_fences(name, register):
    kernel = listings(name)["streaming"]
    assert has(kernel, rf"vmovnt(ps|pd|dq) %{register}")
    assert has(kernel, rf"v(punpck|unpck)[lh]\w+ .*%{register}")
    assert has(kernel, "sfence")


@needs_x86
@pytest.mark.budget(0)
@by_register
def test_a_small_transpose_stores_plainly_in_whole_registers(name, register):
    kernel = listings(name)["plain"]
    assert not has(kernel, "v?movnt")
    assert has(kernel, rf"vmovu\w+ %{register}\d+, .*\(")
    assert has(kernel, rf"v(punpck|unpck)[lh]\w+ .*%{register}")


@needs_x86
@pytest.mark.budget(0)
@by_register
def test_bytes_become_floats_in_vectors(name, register):
    kernel = listings(name)["u1-f4"]
    assert has(kernel, rf"vpmovzxbd .*%{register}")
    assert has(kernel, rf"vcvt\w*dq2ps .*%{register}")
    assert has(kernel, rf"vmovnt(ps|pd|dq) %{register}")


@needs_x86
@pytest.mark.budget(0)
@by_register
def test_half_floats_are_converted_in_vectors(name, register):
    assert has(listings(name)["f4-f2"], rf"vcvtps2ph .*%{register}")
    assert has(listings(name)["f2-f4"], rf"vcvtph2ps .*%{register}")
    assert has(listings(name)["f8-f2"], "vcvtps2ph")


@needs_x86
def test_a_waiting_worker_pauses():
    assert has(listings("avx2")["serve"], "pause")


def undefined_symbols(code):
    """Return the names that a 64-bit ELF object needs from the process that loads it."""
    start, size, count = struct.unpack_from("<Q", code, 40) + struct.unpack_from("<HH", code, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, start + i * size) for i in range(count)]
    names = set()
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != 2:  # the table of symbols
            continue
        texts = sections[link][4]
        for at in range(offset + entry, offset + length, entry):
            name, _, _, section = struct.unpack_from("<IBBH", code, at)
            if not section:
                begin = texts + name
                names.add(code[begin : code.index(b"\0", begin)].decode())
    return names


@needs_x86
@pytest.mark.budget(1)
@by_cpu
def test_the_optimizer_never_sees_ir_that_code_generation_has_rewritten(name):
    """LLVM 20 treated rewritten addresses as null pointers, and removed the accesses."""
    for case, (*_, ir) in listings(name).items():
        rewritten = re.findall(r"%(?:sunkaddr|lsr\.iv)", ir)  # names of code generation
        assert not rewritten, case
        assert not re.findall("store [^,]* poison,|, ptr (?:poison|null),", ir), case


@pytest.mark.skipif(platform.system() != "Linux", reason="reads ELF objects")
@needs_x86
@pytest.mark.budget(1)
@by_cpu
def test_objects_ask_for_nothing_but_the_c_library(name):
    for case, (_, code, _) in listings(name).items():
        asked = undefined_symbols(base64.b64decode(code))
        assert asked <= compiler.ALLOWED_SYMBOLS | {"_GLOBAL_OFFSET_TABLE_"}, case

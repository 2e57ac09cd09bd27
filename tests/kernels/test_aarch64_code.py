"""The machine code of the main kernels for AArch64: instructions and spills of their inner loops.

Another process compiles the kernels for AArch64, as the build of a wheel does, and this one reads
the assembly. The speed of real CPUs is not tested.
"""

import json
import re
import sys

import pytest

from tests.helpers.children import python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cross-compiled on Linux only")

# Prints the assembly of kernels, then of slow variants: with LLVM's default code model for JITs, in
# which constants are far away, and with a tile that is moved at once, as on x86-64.
COMPILE = """
import json, re, sys
sys.path.insert(0, "building")
import objects
objects._set_cpu_of_level("armv8-a")
from layoutkit import plan
from layoutkit.kernels.cpu import compiler, launch, simd

def compiled(pattern, shape, source, options):
    conversion = plan(pattern, shape, source, **options)
    spec = launch.prepare(conversion.choice, conversion.epilogue, 64, stream=False).spec
    return compiler._llvm().parse_assembly(compiler.compile_ir(spec))

def emitted(module, model=None):
    machine = compiler._target_machine()
    if model:
        machine = compiler._llvm().Target.from_default_triple().create_target_machine(
            cpu="generic", features="+fp-armv8,+neon", opt=3, codemodel=model, jit=True
        )
    return machine.emit_assembly(module)

cases = json.loads(sys.argv[1])
modules = {name: compiled(*case) for name, case in cases.items()}
normal = {name: emitted(module) for name, module in modules.items()}
slow = {name: emitted(modules[name], "large") for name in ("split", "cast", "formula")}
simd.is_for_x86 = lambda b: True
slow["tile of floats"] = emitted(compiled(*cases["tile of floats"]))
print(json.dumps([normal, slow]))
"""
PIXELS, PLANES, FEATURES = (64, 224, 224, 3), (64, 3, 224, 224), (64, 64, 64, 64)
FORMULA = {"dtype": "f4", "scale": 1 / 255, "mean": (0.5,) * 3, "std": (0.25,) * 3}
# The arguments of a plan, and the most instructions of the inner loop per 64 bytes of the result.
# On 2026-11-27 they were 27, 29, 30, 18, 15, 24, 19 and 70, in this order.
CASES = {
    "split": (("bhwc->bchw", PIXELS, "u1", {}), 37),
    "merge": (("bchw->bhwc", PLANES, "u1", {}), 34),
    "tile of bytes": (("bhwc->bchw", FEATURES, "u1", {}), 35),
    "tile of floats": (("bhwc->bchw", FEATURES, "f4", {}), 21),
    "cast": (("bf->bf", (4096, 4096), "u1", {"dtype": "f4"}), 18),
    "formula": (("bchw->bchw", PLANES, "u1", FORMULA), 28),
    "to float16": (("bf->bf", (4096, 4096), "f4", {"dtype": "f2"}), 22),
    "to bfloat16": (("bf->bf", (4096, 4096), "f4", {"dtype": "bfloat16"}), 80),
}
BRANCH = re.compile(r"(?:b|b\.\w+|cbn?z|tbn?z)\s.*?(\.LBB\S+)$")
VECTORS = re.compile(
    r"st(?:n?p|u?r|\d) (?:\{ )?((?:(?:, )?[qv]\d+(?:\.\d+\w)?)+)(?: \})?, \[(?!sp)"
)
SPILL = re.compile(r"(?:st|ld)u?[rp] q\d+.*\[sp")


@pytest.fixture(scope="module")
def assembly():
    """Return the assembly of CASES by name, and of slow variants of some of them."""
    arguments = json.dumps({name: case for name, (case, _) in CASES.items()})
    return json.loads(python(COMPILE, [arguments], LAYOUTKIT_MACHINE="aarch64"))


def inner_loop(text):
    """Return the loop that stores the most vectors without copying any, and their size in bytes."""
    loops = [loop for loop in inner_loops(text) if not copies(loop)]
    longest = max(loops, key=lambda loop: (stored_bytes(loop), -len(loop)))
    return longest, stored_bytes(longest)


def copies(loop):
    """Return True if a loop stores vectors as it loaded them, as those of parts of lines do."""
    loaded = set()
    for line in loop:
        registers = re.findall(r"\b[qv](\d+)", line)
        if re.match(r"ldn?p|ldu?r", line):
            loaded = loaded - {*registers} if "[sp" in line else loaded | {*registers}
        elif re.match(r"stn?p|stu?r", line):
            if "[sp" not in line and loaded & {*registers}:
                return True
        else:
            loaded -= {*registers[:1]}
    return False


def inner_loops(text):
    """Yield the instructions of each loop that contains no other loop."""
    lines = [" ".join(line.partition("//")[0].split()) for line in text.splitlines()]
    lines = [line for line in lines if line.endswith(":") or (line and line[0] != ".")]
    places = {line[:-1]: number for number, line in enumerate(lines) if line.endswith(":")}
    targets = [(BRANCH.match(line), number) for number, line in enumerate(lines)]
    ends = [(places[found[1]], number) for found, number in targets if found]
    loops = [(first, last) for first, last in ends if first < last]
    for first, last in loops:
        if not any(first <= a and b <= last and (a, b) != (first, last) for a, b in loops):
            yield [line for line in lines[first : last + 1] if not line.endswith(":")]


def stored_bytes(loop):
    """Return the size in bytes of the vectors that a loop stores; st2 interleaves two halves."""
    vectors = [found[1].split(", ") for found in map(VECTORS.match, loop) if found]
    return sum(8 if "8b" in vector else 16 for store in vectors for vector in store)


def per_line(text):
    loop, size = inner_loop(text)
    return 64 * len(loop) / size


def spills(text):
    return sum(SPILL.match(line) is not None for line in inner_loop(text)[0])


@pytest.mark.budget(0)
def test_inner_loops_have_few_instructions_and_no_spills(assembly):
    normal, _ = assembly
    counts = {name: per_line(text) for name, text in normal.items()}
    assert {name: n for name, n in counts.items() if n > CASES[name][1]} == {}, counts
    assert {name: n for name, text in normal.items() if (n := spills(text))} == {}


@pytest.mark.budget(0)
def test_slow_variants_are_found(assembly):
    _, slow = assembly
    assert spills(slow.pop("tile of floats")) > 20
    assert [name for name, text in slow.items() if per_line(text) <= CASES[name][1]] == []

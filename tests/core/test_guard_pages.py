"""Conversions between guard pages: no access outside of the arrays, and correct results.

`make fuzz` runs more of these conversions, from any seed and for other instruction sets.
"""

import os
import platform
import signal
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.children import python
from tests.helpers.guarded import PAGE, guarded, why_not
from tests.helpers.instruction_sets import lacking, named

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=str(why_not())),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="moves are made in forked children"),
]
ROOT = str(Path(__file__).parents[2])
X86 = platform.machine().lower() in ("x86_64", "amd64")

HUNT = """
import sys
sys.path.insert(0, {root!r})
from tests.helpers import fuzz
{plant}
print(fuzz.hunt({seed}, 0, {moves}, {kernels}, {kind!r}) or "right")
"""
# Adds an error to one word of the parameter block of every kernel.
PLANT = """
import dataclasses, struct
from layoutkit.cpu import program
from layoutkit.kernels.cpu import accumulate_launch, launch, params as words
prepare = launch.prepare

def planted(*args, **keywords):
    made = prepare(*args, **keywords)
    params, at = bytearray(made.params), 8 * {word}
    struct.pack_into("q", params, at, struct.unpack_from("q", params, at)[0] + {error})
    return dataclasses.replace(made, params=bytes(params))

launch.prepare = accumulate_launch.prepare = program.prepare = planted
"""


def hunted(moves, *, seed=0, kernels=24, kind="", plant="", **variables):
    """Return the output of a process that runs random conversions after the code `plant`."""
    counts = {"seed": seed, "moves": moves, "kernels": kernels, "kind": kind}
    code = HUNT.format(root=ROOT, plant=plant, **counts)
    return python(code, **variables).strip()


@pytest.mark.budget(1)
@pytest.mark.parametrize("share", [6, 1])
def test_random_moves(share):
    """Few kernels are compiled; moves that need more of them are skipped."""
    kinds = [("conversions", 120, 24), ("sums", 12, 24), ("windows", 40, 24), ("resized", 16, 8)]
    for kind, moves, kernels in kinds:
        assert hunted(moves // share, kind=kind, kernels=max(4, kernels // share)) == "right"


@pytest.mark.skipif(find_spec("jax") is None, reason="foreign functions of XLA need jax")
@pytest.mark.budget(1)
@pytest.mark.parametrize(("moves", "kernels"), [(60, 3), (300, 24)])
def test_foreign_functions_of_xla(moves, kernels):
    assert hunted(moves, kind="foreign", kernels=kernels) == "right"


@pytest.mark.budget(1)
@pytest.mark.parametrize(("moves", "kernels"), [(30, 2), (150, 4)])
def test_moves_on_another_cpu(moves, kernels):
    """Use few kernels, which have to be compiled for AVX2; `make fuzz CPU=sse2` uses all."""
    if not X86 or lacking("avx2"):
        pytest.skip("this CPU has no AVX2")
    found = hunted(moves, seed=1, kernels=kernels, kind="conversions", **named("avx2"))
    assert found == "right"


@pytest.mark.budget(1)
@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("words.RUN_TOTAL", 1),
        ("words.RUN_TOTAL", -1),
        ("words.ROWS_TOTAL", 1),
        ("words.RUN_BLOCK", 1),
        ("2", 1),
        ("3", 1),
    ],
    ids=["run longer", "run shorter", "rows more", "blocks longer", "source step", "output step"],
)
def test_a_planted_error_is_seen(word, error):
    told = hunted(2000, kind="conversions", plant=PLANT.format(word=word, error=error))
    assert "--seed 0 --first" in told
    assert "differ" in told or "SIG" in told


SIGNS = """
import itertools, sys
sys.path.insert(0, {root!r})
import numpy as np
from tests.helpers.guarded import guarded
from layoutkit import Collator

SHAPE, WINDOW = (40, 48, {channels}), dict(h=24, w=20)

def make(at_end):
    x = np.arange(np.prod(SHAPE)).reshape(SHAPE).astype({dtype!r})
    _, y = guarded(SHAPE, x.dtype, x.strides, at_end=at_end)
    y[...] = x
    return y

samples = [make(at_end) for at_end in (False, True)]
flips = [dict(h=h, w=w) for h in (False, True) for w in (False, True)]
for pattern in ("hwc->bchw", "hwc->bhwc", "hwc->chwb"):
    for planned, used in itertools.permutations(flips, 2):
        collator = Collator(pattern, **WINDOW)
        for begin in (dict(h=0, w=0), dict(h=16, w=28)):
            for flip in (planned, planned, used, used):
                batch = collator(samples, offset=begin, flip=flip)
                window = samples[0][begin["h"] :][:24, begin["w"] :][:, :20]
                window = window[:: 1 - 2 * flip["h"], :: 1 - 2 * flip["w"]]
                expected = Collator(pattern)([np.ascontiguousarray(window)] * 2)
                assert np.array_equal(batch, expected), (pattern, planned, used, begin)
print("right")
"""


@pytest.mark.budget(1)
@pytest.mark.parametrize(("dtype", "channels"), [("u1", 8), ("u1", 13), ("u2", 7), ("f4", 3)])
def test_a_plan_of_windows_is_used_for_strides_of_its_signs_only(dtype, channels):
    code = SIGNS.format(root=ROOT, dtype=dtype, channels=channels)
    assert python(code) == "right\n"


# ---- the guard itself ------------------------------------------------------------------------

TOUCH = """
import sys
sys.path.insert(0, {root!r})
from tests.helpers.guarded import guarded
room, x = guarded((5, 3), "u1", (3, 1), at_end={at_end})
x[...] = 1
room.seal()
print(x.sum())
import ctypes, os
child = os.fork()
if not child:
    {touch}
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.parametrize(
    ("at_end", "touch", "dies"),
    [
        (True, "ctypes.string_at(x.ctypes.data + 15, 1)", True),
        (False, "ctypes.string_at(x.ctypes.data - 1, 1)", True),
        (True, "ctypes.memset(x.ctypes.data, 0, 1)", True),
        (True, "ctypes.string_at(x.ctypes.data, 15)", False),
    ],
    ids=["read behind", "read before", "written", "read"],
)
def test_who_touches_what_is_not_his_dies(at_end, touch, dies):
    said = python(TOUCH.format(root=ROOT, at_end=at_end, touch=touch)).split()
    assert said == ["15", str(int(signal.SIGSEGV)) if dies else "0"]


@pytest.mark.parametrize("strides", [(12, 4), (-12, 4), (12, -4), (4, 20), (0, 4), (13, -4)])
@pytest.mark.parametrize("slack", [0, 1, 64])
def test_arrays_fill_their_room(strides, slack):
    for at_end in (True, False):
        room, x = guarded((5, 3), "f4", strides, at_end=at_end, slack=slack)
        x[...] = 7
        low, high = np.lib.array_utils.byte_bounds(x)
        begin = room.pages.ctypes.data
        assert (begin + room.pages.nbytes - high if at_end else low - begin) == slack
        assert room.pages.nbytes % PAGE == 0

"""The exact floating-point instructions of kernels: each one rounds in one way.

A CPU runs another branch of each numeric function, so only the PTX that NVRTC generates shows how a
GPU rounds. The tests compare all instructions in PTX that compute with floats.
"""

import re

import pytest

from tests.helpers.arrays_of import BF16
from tests.helpers.cuda_moves import launch_of, sum_of
from tests.helpers.nvrtc import Compiled, needs_nvrtc

pytestmark = pytest.mark.budget(8)

COLORS = {"mean": [1, 2, 3], "std": [4, 5, 6]}
TO_ODD = {"cvt.rn.f32.f64", "cvt.f64.f32", "neg.f64"}
# Values that are compared after rounding to integers may be flushed to zero: none is subnormal.
WHOLE = {"cvt.rni.f32.f32", "max.ftz.f32", "min.ftz.f32"}


def cast(source, target, **keywords):
    return launch_of("bc->bc", (64, 4096), source, dtype=target, **keywords)


def saturated(source, target):
    return cast(source, target, casting="saturate")


def formula(source, target, **keywords):
    return launch_of("bpc->bpc", (2, 4096, 3), source, dtype=target, **{**COLORS, **keywords})


SPELT = {
    "f4 to bf": (lambda: cast("f4", BF16), {"cvt.rn.bf16.f32"}),
    "bf to f4": (lambda: cast(BF16, "f4"), set()),
    "f4 to f2": (lambda: cast("f4", "f2"), {"cvt.rn.f16.f32"}),
    "f2 to f4": (lambda: cast("f2", "f4"), {"cvt.f32.f16"}),
    "f8 to f4": (lambda: cast("f8", "f4"), {"cvt.rn.f32.f64"}),
    "f4 to f8": (lambda: cast("f4", "f8"), {"cvt.f64.f32"}),
    "f8 to f2": (lambda: cast("f8", "f2"), {*TO_ODD, "cvt.rn.f16.f32"}),
    "f8 to bf": (lambda: cast("f8", BF16), {"cvt.rn.f32.f64", "cvt.rn.bf16.f32"}),
    "u1 to f4": (lambda: cast("u1", "f4"), {"cvt.rn.f32.u16"}),
    "i8 to f4": (lambda: cast("i8", "f4"), {"cvt.rn.f32.s64"}),
    "u1 to bf": (lambda: cast("u1", BF16), {"cvt.rn.f32.u16", "cvt.rn.bf16.f32"}),
    "f4 to u1": (lambda: saturated("f4", "u1"), {"cvt.rni.u8.f32"}),
    "f2 to u8": (
        lambda: saturated("f2", "u8"), {*WHOLE, "cvt.f32.f16", "cvt.rzi.ftz.u64.f32"}
    ),
    "f8 to i8": (
        lambda: saturated("f8", "i8"), {"cvt.rni.f64.f64", "cvt.rzi.s64.f64", "max.f64", "min.f64"}
    ),
    "i4 to u1": (lambda: saturated("i4", "u1"), set()),
    "u1 to f4, normalized": (lambda: formula("u1", "f4"), {"cvt.rn.f32.u16", "fma.rn.f32"}),
    "u1 to bf, normalized": (
        lambda: formula("u1", BF16), {"cvt.rn.f32.u16", "fma.rn.f32", "cvt.rn.bf16.f32"}
    ),
    "f2, normalized": (
        lambda: formula("f2", "f2"), {"cvt.f32.f16", "fma.rn.f32", "cvt.rn.f16.f32"}
    ),
    "f8, normalized": (lambda: formula("f8", "f8"), {"fma.rn.f64"}),
    "f4 to u1, scaled": (
        lambda: launch_of(
            "bp->bp", (2, 4096), "f4", dtype="u1", casting="saturate", scale=255.0
        ),
        {"fma.rn.f32", "cvt.rni.u8.f32"},
    ),
    "sum of f4 and f2": (lambda: sum_of("f4", "f2"), {"cvt.f32.f16", "add.rn.f32"}),
    "sum of bf": (lambda: sum_of(BF16), {"add.rn.f32", "cvt.rn.bf16.f32"}),
    "sum of f8 and f4": (
        lambda: sum_of("f8", "f4", dtype="f8"), {"cvt.f64.f32", "add.f64"}
    ),
    "sum of integers": (lambda: sum_of("i4"), set()),
}  # fmt: skip


@pytest.mark.budget(1)
@needs_nvrtc
@pytest.mark.parametrize("name", SPELT)
def test_floats_are_computed_by_these_instructions_alone(name):
    make, wanted = SPELT[name]
    ptx = Compiled(make(), 90).ptx
    words = r"(?:add|sub|mul|fma|mad|div|rcp|min|max|neg|abs|cvt|ex2|sqrt)"
    assert set(re.findall(rf"\b{words}\.[\w.]*f(?:16|32|64)[\w.]*", ptx)) == wanted

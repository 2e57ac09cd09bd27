"""Barriers of the CUDA kernels, each of which is needed, and the alignment that words need.

A barrier is removed from the source of a kernel family; ThreadSanitizer must report a race. The
helpers' own tests (test_shim.py) find other mistakes in a small kernel.
"""

import re
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from layoutkit import Converter
from layoutkit.kernels.cuda.launch import FAMILIES, CudaLaunch
from layoutkit.kernels.cuda.launch import source as text_of
from tests.helpers import cuda_shim
from tests.helpers.cuda_moves import (
    address,
    by_boxes,
    copied,
    placed,
    planned,
    planned_collate,
    planned_sum,
)
from tests.helpers.cuda_shim import KernelError

pytestmark = [pytest.mark.budget(3), cuda_shim.needs_compiler]
RNG = np.random.default_rng(0)
BARRIER = re.compile(r"__sync(threads|warp)\(\);")


class Case(NamedTuple):
    """A launch to run; `out` is the whole memory of the output, whose rows may end with padding."""

    launch: CudaLaunch
    sources: list
    shifts: tuple
    shape: tuple
    out: np.ndarray


def conversion(pattern, shape, source="u4", padding=(0, 0), shift=0, **keywords):
    """Return a conversion; `padding`: unused elements at the ends of rows of source and output."""
    x = placed((*shape[:-1], shape[-1] + padding[0]), source, shift)[..., : shape[-1]]
    x[...] = RNG.integers(1, 120, shape)
    target = Converter(pattern, channels=keywords.get("channels")).target_shape(shape)
    dtype = keywords.pop("dtype", source)
    whole = placed((*target[:-1], target[-1] + padding[1]), dtype, shift)
    out = whole[..., : target[-1]]
    _, [(launch, _, shifts)] = planned(x, pattern, out, **keywords)
    return Case(launch, [x], shifts, target, whole)


def boxed():
    with by_boxes((), None):
        return conversion("abc->acb", (5, 31, 35), "u1")


def total(*parts, **sizes):
    """Return a sum of parts (layout, dtype), in the layout of the first part."""
    arrays = [
        (copied(RNG.integers(1, 120, [sizes[a] for a in of]).astype(dtype), 0), of)
        for of, dtype in parts
    ]
    launch, out, sources, shifts = planned_sum(arrays, parts[0][0])
    return Case(launch, sources, shifts, out.shape, out)


def collated(shape, **keywords):
    """Return a collation of one sample of bytes."""
    samples = [RNG.integers(1, 120, shape).astype("u1")]
    launch, out, sources, shifts = planned_collate(samples, "hwc->bchw", **keywords)
    return Case(launch, sources, shifts, out.shape, out)


# Few blocks each, as an OS thread per CUDA thread is slow.
CASES = {
    "transpose": lambda: conversion("bwc->bcw", (2, 40, 48), "u1", dtype="f4", mean=[*range(48)]),
    "interleave": lambda: conversion("bpc->bpc", (1, 36, 3), "u1", channels=(2, 0)),
    "lines": lambda: conversion("bpc->bcp", (9, 37, 3), "u1", dtype="f4", mean=[1, 2, 3]),
    "permute": boxed,
    "runs": lambda: conversion("abc->bac", (5, 40, 33), "u1", shift=1),
    # Two dtypes, so that one tile holds all computed values of a box.
    "accumulate": lambda: total(("bc", "i4"), ("cb", "i2"), ("cb", "i4"), b=8, c=12),
    "collate": lambda: collated(
        (9, 11, 3), h=7, w=20, resize="nearest", fit="pad", dtype="f4", mean=[1, 2, 3]
    ),
    "resize": lambda: collated((5, 900, 3), h=4, w=9, resize="area"),
}


@cache
def case_of(family):
    case = CASES[family]()
    assert case.launch.family == family
    return case


def result(case, **how):
    """Run a case; return the whole memory of its output."""
    whole = placed(case.out.shape, case.out.dtype, address(case.out) % 256)
    out = whole[..., : case.shape[-1]]
    cuda_shim.run(case.launch, out, case.sources, shifts=case.shifts, **how)
    return whole


BARRIERS = [
    (family, number)
    for family in FAMILIES
    for number, _ in enumerate(BARRIER.finditer(text_of(family)))
]


def test_barriers_are_where_threads_share_memory():
    counts = {family: len(BARRIER.findall(text_of(family))) for family in FAMILIES}
    shared = {family: "__shared__" in text_of(family) for family in FAMILIES}
    assert {family: count > 0 for family, count in counts.items()} == shared
    assert sum(counts.values()) == len(BARRIERS) >= 4


@pytest.mark.budget(1)
@pytest.mark.parametrize(("family", "number"), BARRIERS)
def test_a_missing_barrier_is_a_race(family, number):
    text = text_of(family)
    barrier = [*BARRIER.finditer(text)][number]
    text = text[: barrier.start()] + ";" + text[barrier.end() :]
    with pytest.raises(KernelError, match="data race"):
        result(case_of(family), text=text, mode="threads", poison=0)


@pytest.mark.parametrize("family", CASES)
def test_kernels_have_no_race(family):
    result(case_of(family), mode="threads", poison=0)


@pytest.mark.parametrize(
    ("family", "side", "pattern", "shape"),
    [
        ("transpose", "LOAD", "bwc->bcw", (2, 64, 1025)),
        ("transpose", "STORE", "bwc->bcw", (2, 1025, 64)),
        ("lines", "WORD", "bpc->bcp", (2, 1025, 3)),
        ("lines", "WORD", "bcp->bpc", (2, 3, 1025)),
        ("gather", "WIDTH", "ab->ab", (5, 101)),
    ],
)
def test_words_wider_than_addresses_allow_are_reported(family, side, pattern, shape):
    """Test that the alignment the host promises is checked at every memory access."""
    case = conversion(pattern, shape, shift=4)
    assert case.launch.family == family
    claimed = dict(case.launch.defines) | {side: "4" if side == "WIDTH" else "16"}
    if side == "STORE":
        claimed["STORE_SHIFTED"] = "0"
    assert claimed != dict(case.launch.defines)
    false = replace(case.launch, defines=tuple(claimed.items()))
    with pytest.raises(KernelError, match="misaligned address"):
        result(case._replace(launch=false))

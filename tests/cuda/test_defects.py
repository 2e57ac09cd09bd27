"""Mistakes planted in the CUDA kernels; the methods of the other tests must find all of them.

A mistake is a replacement in the source of a kernel family. The tests find a mistake if, for any
case of the family and any order of threads, the result is wrong or a sanitizer reports an error. A
missing barrier must also be a race that ThreadSanitizer reports.
"""

import re
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pytest

from layoutkit import Converter
from layoutkit.kernels.cuda import policy
from layoutkit.kernels.cuda.launch import FAMILIES, MAKERS, CudaLaunch, make_transpose
from layoutkit.kernels.cuda.launch import source as text_of
from tests.helpers import cuda_shim
from tests.helpers.cuda_moves import (
    address,
    by_boxes,
    copied,
    placed,
    planned,
    planned_collate,
    planned_in_place,
    planned_sum,
)
from tests.helpers.cuda_shim import ORDERS, KernelError

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


def boxed(*conversion_of, lengths=(), word=None, group=policy.GROUP, **keywords):
    """Return a conversion by boxes (see `by_boxes`) in groups of `group` neighbors."""
    with by_boxes(lengths, word), patch.object(policy, "GROUP", group):
        return conversion(*conversion_of, **keywords)


def tiled(*conversion_of, group=policy.GROUP, **keywords):
    """Return a conversion by the tiles of large arrays in groups of `group` neighbors."""
    with (
        patch.object(policy, "FEW_TILES", 0),
        patch.object(policy, "GROUP", group),
        patch.dict(MAKERS, transpose=(make_transpose,)),
    ):
        return conversion(*conversion_of, **keywords)


def backward(shape, shift, padding=0):
    """Return a copy of rows of bytes, the last one first."""
    x = copied(RNG.integers(1, 120, (shape[0], shape[1] + padding)).astype("u1"), shift)
    x = x[::-1, : shape[1]]
    _, [(launch, out, shifts)] = planned(x, "ab->ab")
    return Case(launch, [x], shifts, shape, out)


def backward_channels(shape):
    """Return a conversion of the first three channels, the last one first."""
    x = copied(RNG.integers(1, 120, shape).astype("u1"), 0)[..., 2::-1]
    _, [(launch, out, shifts)] = planned(x, "bpc->bpc", channels=(0, 2))
    return Case(launch, [x], shifts, out.shape, out)


def total(*parts, **sizes):
    """Return a sum of parts (layout, dtype), in the layout of the first part."""
    arrays = [
        (copied(RNG.integers(1, 120, [sizes[a] for a in of]).astype(dtype), 0), of)
        for of, dtype in parts
    ]
    launch, out, sources, shifts = planned_sum(arrays, parts[0][0])
    return Case(launch, sources, shifts, out.shape, out)


def collated(*shapes, source="u1", pattern="hwc->bchw", shift=0, **keywords):
    """Return a collation of samples with these shapes."""
    samples = [RNG.integers(1, 120, shape).astype(source) for shape in shapes]
    launch, out, sources, shifts = planned_collate(samples, pattern, shift=shift, **keywords)
    return Case(launch, sources, shifts, out.shape, out)


def collated_backward(shape, axis, pattern, **keywords):
    """Return a collation of a sample that is reversed along an axis of its memory."""
    raw = copied(RNG.integers(1, 120, shape).astype("u1"), 0)
    sample = np.flip(raw, axis)
    launch, out, sources, shifts = planned_in_place(raw, [sample], pattern, **keywords)
    return Case(launch, sources, shifts, out.shape, out)


COLORS = {"dtype": "f4", "mean": [1, 2, 3]}

CASES = {
    "transpose": [
        lambda: conversion("bc->cb", (80, 96)),
        lambda: conversion("bc->cb", (80, 77), padding=(3, 0)),
        lambda: conversion("bc->cb", (77, 80), padding=(0, 3)),
        lambda: conversion("bwc->bcw", (2, 65, 80), padding=(16, 3)),
        lambda: conversion("bwc->bcw", (2, 132, 145), "u1", padding=(3, 5)),
        lambda: conversion("bwc->bcw", (1, 132, 145), "u1", padding=(8, 1), shift=9),
        lambda: conversion("bwc->bcw", (1, 245, 391), "u1", shift=9),
        lambda: conversion("bwc->bcw", (1, 240, 384), "u1", shift=9),
        # The last row is in a whole tile.
        lambda: conversion("bwc->bcw", (1, 224, 391), "u1", shift=9),
        # The last group has fewer tiles.
        lambda: tiled("ab->ba", (901, 301), "u4", group=2),
        lambda: tiled("bwc->bcw", (1, 245, 133), "c16", shift=16),
        lambda: conversion("bhwc->cbhw", (3, 5, 8, 65), padding=(3, 0)),
        lambda: conversion("bwc->bcw", (2, 40, 48), "u1", dtype="f4", mean=[*range(48)]),
        lambda: conversion("chw->cwh", (3, 64, 80), "u1", dtype="f4", mean=[1, 2, 3]),
        lambda: conversion("xyz->zyx", (40, 20, 20)),
    ],
    "interleave": [
        lambda: conversion("bpc->bpc", (1, 36, 3), "u1", channels=(2, 0)),
        lambda: conversion("bpc->bpc", (1, 4100, 4), "u1", channels=(3, 0, 1), shift=0),
        lambda: backward_channels((1, 4096, 4)),
        lambda: conversion("bcxp->bcpx", (2, 7, 3, 640), "u1", channels=(1, 0, 3)),
        lambda: conversion("bpc->bcp", (2, 1032, 3)),
        lambda: conversion("bcp->bpc", (2, 3, 1032)),
        lambda: conversion("bpc->bcp", (1, 36, 3), "u1", dtype="f4", mean=[1, 2, 3]),
        lambda: conversion("bpc->bcp", (1, 36, 3), "u1", dtype="f4", scale=0.5, clip=(9, 90)),
    ],
    "lines": [
        lambda: conversion("bpc->bcp", (2, 1031, 6), "u2", shift=2),
        lambda: conversion("bcp->bpc", (2, 6, 1031), "u2", shift=2),
        lambda: conversion("bpc->bcp", (9, 37, 3), "u1", dtype="f4", mean=[1, 2, 3]),
        lambda: conversion("bcp->bpc", (9, 5, 12)),
        lambda: conversion("bpc->bcp", (2, 1031, 12), "u1", channels=(3, 7, 5)),
        lambda: conversion("bcp->bpc", (2, 12, 1031), "u2", channels=(3, 7, 5)),
        lambda: conversion("bcpx->bcxp", (2, 7, 641, 6), "u1", channels=(1, 0, 3)),
    ],
    "permute": [
        lambda: boxed("abc->acb", (5, 31, 35), "u1"),
        lambda: boxed("abcd->dacb", (13, 5, 29, 11), "u1", shift=1),
        lambda: boxed("abcd->cadb", (13, 29, 31, 7), "u1", dtype="f4", mean={"b": [*range(29)]}),
        lambda: boxed("abcd->dacb", (20, 7, 95, 31), "u1", padding=(3, 0), shift=3),
        lambda: boxed("abc->cba", (300, 3, 41), "u2", padding=(0, 3)),
        lambda: boxed("abc->acb", (300, 9, 2)),
        lambda: boxed("abc->acb", (3, 2001, 21), "u1", shift=9),
        lambda: boxed("abc->bca", (2, 30, 40), "u1", shift=1, word=4),
        # The last runs have one item.
        lambda: boxed("abc->acb", (3, 1025, 70), "u1", (0, 3), shift=9, lengths=(512,), word=8),
        lambda: boxed("abc->acb", (300, 9, 20), "u1", padding=(3, 4), shift=1),
        lambda: boxed("abc->acb", (300, 70, 20), "u1", padding=(3, 4), shift=1),
        lambda: boxed("abcd->cadb", (13, 29, 31, 7), "u1", dtype="f4", mean={"c": [*range(31)]}),
        lambda: boxed("ab->ba", (300, 201), "u1", dtype="f4", mean={"a": [*range(300)]}),
        # Both loops are divided, and the last group has fewer boxes.
        lambda: boxed("ab->ba", (901, 301), "u2", (1, 0), lengths=(37, 50), group=2),
    ],
    "runs": [
        lambda: conversion("abc->bac", (5, 40, 33), "u1", shift=1),
        lambda: conversion("dabc->dbac", (2, 1500, 3, 29), "u1", shift=3),
        lambda: conversion("abc->bac", (2, 9000, 17), "u1", shift=3),
        lambda: conversion("abc->bac", (9, 3, 19), "u1", padding=(3, 0), shift=5),
        lambda: backward((7, 33), 1),
        lambda: conversion("bcp->bcp", (2, 9, 145), "u1", channels=(3, 7, 5), shift=3),
        lambda: backward((3, 16391), 9, padding=2),
    ],
    "gather": [
        lambda: conversion("abc->bac", (3, 700, 3)),
        lambda: conversion("abc->bac", (300, 8, 3)),
        lambda: conversion("bcp->bcp", (2, 9, 512), "u1", channels=(3, 7, 5)),
        lambda: conversion("bpc->bpc", (2, 300, 40), "u1", channels=(3, 7, 5, 0, 2, 39)),
        lambda: conversion("abc->abc", (1, 1, 40001), "u1"),
        lambda: conversion("ab->ab", (5, 100), "u1", dtype="f4", scale=0.5),
    ],
    "accumulate": [
        lambda: total(
            ("bwc", "f4"),
            ("cwb", "f4"),
            ("bcw", "f4"),
            ("bwc", "f4"),
            ("cwb", "f4"),
            b=36,
            w=40,
            c=16,
        ),
        lambda: total(("bc", "i4"), ("cb", "i4"), ("cb", "i4"), b=70, c=40),
        lambda: total(("bhwc", "i4"), ("chwb", "i4"), ("wbch", "i4"), b=7, c=20, h=5, w=9),
        lambda: total(("bc", "i4"), ("cb", "f2"), ("bc", "i2"), b=300, c=33),
        # Two dtypes, so that one tile holds all computed values of a box.
        lambda: total(("bc", "i4"), ("cb", "i2"), ("cb", "i4"), b=8, c=12),
    ],
    "collate": [
        lambda: collated((13, 50, 3), (12, 70, 3), h=9, w=40, **COLORS),
        lambda: collated(
            (9, 11, 3),
            (14, 12, 3),
            h=12,
            w=16,
            fill=(1, 2, 3),
            shift=1,
            **COLORS,
            call={"offset": {"h": [-2, 5], "w": [3, -4]}, "flip": {"w": [True, False]}},
        ),
        lambda: collated(*[(20, 30, 3)] * 33, pattern="hwc->chwb", h=5, w=11),
        lambda: collated((3, 9, 11, 2), pattern="thwc->btwhc", h=8, channels=(1, 0, 0)),
        lambda: collated((9, 11, 3), h=7, w=20, resize="nearest", fit="pad", **COLORS),
        lambda: collated((7, 40, 3), source="f4", shift=12, w=40),
        lambda: collated(
            (9, 53, 3),
            (12, 60, 3),
            h=9,
            w=50,
            fill=(1, 2, 3),
            shift=1,
            **COLORS,
            call={"offset": {"w": [-2, 16]}, "flip": {"w": [True, True]}},
        ),
        lambda: collated((9, 53, 3), h=9, w=53, call={"flip": "w"}),
        lambda: collated((3, 7, 40), pattern="chw->bchw", w=50, fill=(1, 2, 3)),
        lambda: collated((7, 40, 3), pattern="hwc->bhwc", **COLORS),
        lambda: collated(*[(6, 7, 3)] * 70, pattern="hwc->chwb", h=2, w=3),
        lambda: collated((9, 16, 4), c=4, fill=7, call={"offset": {"c": 2}}),
        lambda: collated((9, 11, 3), h=7, w=20, resize="nearest", channels=(2, 0, 0)),
        lambda: collated(
            *[(9, 11, 3)] * 2,
            h=7,
            w=20,
            resize="nearest",
            channels=(2, 0, 0),
            call={"flip": {"c": [True, False]}},
        ),
    ],
    "resize": [
        lambda: collated((5, 900, 3), h=4, w=9, resize="area"),
        lambda: collated((20, 24, 3), (9, 30, 3), h=9, w=7, resize="bilinear", **COLORS),
        lambda: collated(
            (9, 11, 5),
            (8, 7, 5),
            source="f2",
            h=12,
            w=20,
            resize="bicubic",
            fit="pad",
            fill=3,
            call={"crop": {"w": 13}, "offset": {"w": -2}},
        ),
        lambda: collated((9, 11, 7), pattern="thw->bthw", t=4, h=12, w=6, resize="bilinear"),
        lambda: collated(
            (30, 9, 60), pattern="thw->bthw", t=12, h=12, w=12, resize="bilinear", fit="pad", fill=3
        ),
        lambda: collated(
            (60, 9, 3), h=12, w=80, resize="area", fit="pad", fill=3, call={"flip": "w"}
        ),
        lambda: collated((5, 1900, 3), (5, 40, 3), pattern="hwc->chwb", h=4, w=9, resize="area"),
        lambda: collated(
            (3, 9, 40),
            pattern="chw->bchw",
            h=6,
            w=20,
            resize="bilinear",
            fill=3,
            call={"crop": {"h": 13}, "offset": {"h": -2}},
        ),
        lambda: collated((40, 30, 20), h=9, w=7, resize="bilinear", dtype="f4", scale=2),
        lambda: collated((20, 30, 4), h=9, w=7, resize="bilinear", channels=(2, 0, 3)),
        lambda: collated(*[(20, 30, 3)] * 35, pattern="hwc->chwb", h=5, w=11, resize="bicubic"),
        *[
            partial(collated_backward, (6, 8, 21), axis, "thw->bthw", t=3, h=4, w=9, resize="area")
            for axis in (0, 1)
        ],
        # Parts of lines that do not begin with whole words, at the edges of a sample and within it.
        lambda: collated((3, 60, 63), h=2, w=1, resize="area"),
        lambda: collated(
            (9, 80, 63),
            h=2,
            w=1,
            resize="area",
            call={"crop": {"h": 3, "w": 14}, "offset": {"h": 3, "w": 20}},
        ),
    ],
}


@cache
def cases_of(family):
    """Return (case, result of the unchanged source) pairs of a family, compiled two at a time."""
    cases = [case() for case in CASES[family]]
    for case in cases:
        assert case.launch.family == family
        cuda_shim.compiling(family, case.launch.defines, "checked")
    return [(case, result(case)) for case in cases]


def result(case, **how):
    """Run a case; return the whole memory of its output."""
    whole = placed(case.out.shape, case.out.dtype, address(case.out) % 256)
    out = whole[..., : case.shape[-1]]
    cuda_shim.run(case.launch, out, case.sources, shifts=case.shifts, **how)
    return whole


POISONS = {"forward": 0xA5, "reverse": 0xFF, "random": 0x00}


def is_found(family_cases, text):
    """Return whether any order of any case gives a wrong result or a report."""
    for case, wanted in family_cases:
        for order in ORDERS:
            try:
                got = result(case, text=text, order=order, poison=POISONS[order], seed=1)
            except KernelError:
                return True
            if not np.array_equal(got, wanted):
                return True
    return False


BARRIERS = [
    (family, number)
    for family in FAMILIES
    for number, _ in enumerate(BARRIER.finditer(text_of(family)))
]


def without_barrier(family, number):
    text = text_of(family)
    barrier = [*BARRIER.finditer(text)][number]
    return text[: barrier.start()] + ";" + text[barrier.end() :]


def test_barriers_are_where_threads_share_memory():
    counts = {family: len(BARRIER.findall(text_of(family))) for family in FAMILIES}
    shared = {family: "__shared__" in text_of(family) for family in FAMILIES}
    assert {family: count > 0 for family, count in counts.items()} == shared
    assert sum(counts.values()) == len(BARRIERS) >= 4


@pytest.mark.budget(0, all=5)
@pytest.mark.parametrize(("family", "number"), BARRIERS)
def test_a_missing_barrier_gives_wrong_results(family, number):
    assert is_found(cases_of(family), without_barrier(family, number))


@pytest.mark.budget(0, all=5)
@pytest.mark.parametrize(("family", "number"), BARRIERS)
def test_a_missing_barrier_is_a_race(family, number):
    """Test the case with the fewest blocks, as an OS thread per CUDA thread is slow."""
    case, _ = min(cases_of(family), key=lambda found: found[0].launch.grid)
    text = without_barrier(family, number)
    with pytest.raises(KernelError, match="data race"):
        result(case, text=text, mode="threads", poison=0)


# (family, text that occurs once in its source, replacement)
MISTAKES = [
    # tile edges
    ("transpose", "(place >= run.count || left", "(place > run.count || left"),
    ("transpose", "!WHOLE && row >= rows.count", "!WHOLE && row > rows.count"),
    ("transpose", "run.count == TILE_RUN && rows", "run.count <= TILE_RUN && rows"),
    ("transpose", "== TILE_RUN && rows.count == TILE_ROWS", "== TILE_RUN"),
    ("transpose", "place + PER_STORE > (int)run.count", "place > (int)run.count"),
    ("transpose", "is_head ? before : (", "is_head ? before - 1 : ("),
    ("transpose", "((int)run.count - before) %", "(int)run.count %"),
    ("transpose", "if (run.count < TILE_RUN) put_ends(false);", ""),
    ("transpose", "if (row >= rows.count) break;", ""),
    # words at any address
    ("transpose", "place >= PER_LOAD && place", "place"),
    ("transpose", "&& place + items + PER_LOAD <=", "&& place + items <="),
    ("transpose", "(uint64)(at - by - lowest)", "(uint64)(at - lowest)"),
    ("transpose", "(uint64)(at - by - lowest) < params.readable", "true"),
    ("transpose", "run_tile, TILE_RUN, OVERLAP", "run_tile, TILE_RUN"),
    ("transpose", "if (place >= TILE_RUN - OVERLAP) continue;", ""),
    ("transpose", "if (run_tile >= params.run.tiles.count) return;", ""),
    ("transpose", "draw(unit, params.groups) * params.group.count;", "draw(unit, params.groups);"),
    ("transpose", "if (WHOLE || END == 1) return;", "if (WHOLE || PER_STORE == 1) return;"),
    ("transpose", "if (STORE_SHIFTED && !run.start) put_ends(true);", ""),
    ("transpose", "(!STORE_SHIFTED || run.start)", "true"),
    ("transpose", "by & half ?", "half & 8 ?"),
    ("transpose", "j & 2 ? 0x7362 : 0x5140", "0x5140"),
    ("transpose", "j & 1 ? 0x7632 : 0x5410", "j & 1 ? 0x7362 : 0x5410"),
    ("transpose", "if (by) high", "if (by & 7) high"),
    ("transpose", "by * 8 & 31", "by * 8 & 15"),
    ("interleave", "if (span.count == CHUNK &&", "if (span.count <= CHUNK &&"),
    ("interleave", "SPAN == SOURCE_CHANNELS ||", "true ||"),
    ("interleave", "SOURCE_CHANNELS + SPAN;", "SOURCE_CHANNELS + SOURCE_CHANNELS;"),
    ("interleave", "(PLANES_ORDERED ? params.lowest : 0)", "0"),
    ("interleave", "+ plane_position(i % CHANNELS)];", "+ i % CHANNELS];"),
    ("lines", "SOURCE_CHANNELS + SPAN;", "SOURCE_CHANNELS + SOURCE_CHANNELS;"),
    ("lines", "pixel + i, plane_position(row.channel)", "pixel + i, row.channel"),
    ("lines", "    return plane_position(channel);", "    return channel;"),
    ("lines", "PLANES_ORDERED ? position(plane)", "true ? position(plane)"),
    ("interleave", "PLANES_ORDERED ? position(plane)", "true ? position(plane)"),
    ("gather", "if (IS_ORDERED && turns.is_ordered)", "if (false)"),
    ("gather", "loop.place(turn, place.at)", "place.at.add(turn, loop.step)"),
    ("runs", "params.outer.first_src() + threadIdx.x", "threadIdx.x"),
    ("interleave", "items - item);\n        piece.template", "items);\n        piece.template"),
    ("lines", "pixel + PER_WORD > count) continue", "pixel > count) continue"),
    ("lines", "pixel >= 0 && pixel + PER_WORD <= count", "pixel >= 0 && pixel <= count"),
    ("lines", "return item < items ? item : -1", "return item"),
    ("lines", "if (SHIFTED) before =", "if (false) before ="),
    ("runs", "params.group.divide(block) * params.group.count", "0"),
    ("runs", "if (block >= params.grouped) return block;", ""),
    ("runs", "* (unsigned)params.apart + along", "* (unsigned)params.apart"),
    ("runs", "by + begin < WORD) low", "by + begin <= 0) low"),
    ("runs", "by + end > WORD) high", "by + end > WORD + 1) high"),
    ("runs", "i < part ? one : two", "one"),
    ("runs", "8 * (part - 4 * bank)", "8 * (part - 1 - 4 * bank)"),
    ("runs", "bits < 32 ? (1u << bits) - 1 : ~0u", "(1u << (bits & 31)) - 1"),
    ("runs", "< params.readable;", "<= params.readable + WORD;"),
    ("runs", "begin >= WORD && part >= 2 * WORD", "begin >= WORD && part >= WORD"),
    ("runs", "begin >= WORD && part >= 2 * WORD", "part >= 2 * WORD"),
    ("runs", "tile.start(run + 1) - part", "tile.start(run + 1)"),
    ("runs", "left < WORDS ? (unsigned)left : WORDS", "WORDS"),
    ("runs", "run = cycles * TILE + skipped", "run = skipped"),
    ("runs", "i <= last; i += THREADS", "i < last; i += THREADS"),
    ("runs", "params.src + params.outer.place(run + i).src", "params.outer.place(run + i).src"),
    ("runs", "(params.dst + params.head) + before", "params.head + before"),
    ("runs", "threadIdx.x < params.head", "threadIdx.x + 1 < params.head"),
    ("runs", "if (threadIdx.x < tail)", "if (threadIdx.x + 1 < tail)"),
    ("gather", "along == params.last ?", "along > params.last ?"),
    ("gather", "if (first.split >= params.stretch)", "if (first.split > params.stretch)"),
    ("gather", "turn * stretch >= count", "turn * stretch > count"),
    ("gather", "whole && split.count == params.stretch * TURNS", "whole"),
    ("gather", "(RUN ? turn * THREADS : 0)", "0"),
    ("gather", "part * THREADS + threadIdx.x", "threadIdx.x"),
    ("accumulate", "place < shared.count[axis];", "place <= shared.count[axis];"),
    ("accumulate", "return inside ? left : 0", "return left"),
    ("accumulate", "return inside ? left : 0", "return inside ? PER_WORD : 0"),
    ("accumulate", "is_whole = is_whole && left >= most;", ""),
    ("accumulate", "exists = exists && start[i] < side.total;", ""),
    *[(family, "left < length ? (unsigned)left : length", "length")
      for family in ("transpose", "interleave", "gather")],
    *[(family, "if (ALL || count >= COUNT) {\n            read", "if (true) {\n            read")
      for family in ("transpose", "interleave", "gather")],
    ("gather", "if (ALL || count >= COUNT) {\n            write", "if (true) {\n            write"),
    # boxes
    ("permute", "loop.total - start < COUNT[i] ? loop.total - start : COUNT[i]", "COUNT[i]"),
    ("permute", "(uint64)draw(unit, loop.boxes) * COUNT[i]", "(uint64)draw(unit, loop.boxes)"),
    ("permute", "(uint64)of_run * COUNT[RUN_END]", "(uint64)of_run"),
    ("permute", "(left < COUNT[RUN_END] ? left : COUNT[RUN_END])", "COUNT[RUN_END]"),
    ("permute", "if (!box.exists) return;", ""),
    ("permute", "draw(unit, params.groups) * params.group.count;", "draw(unit, params.groups);"),
    ("permute", "place.exists && (int)turn < count[i]", "place.exists"),
    ("permute", "row >= ROWS_OF_BOX || !place.exists", "row >= ROWS_OF_BOX"),
    ("permute", "if (!run.exists) continue;", ""),
    ("permute", "begin >= 0 && begin + LOAD <= bytes;", "begin + LOAD <= bytes;"),
    ("permute", "begin >= 0 && begin + LOAD <= bytes;", "begin >= 0;"),
    ("permute", "(uint64)(at - src - box.params.lowest) < box.params.readable", "true"),
    ("permute", "begin + i < 0 || begin + i >= bytes", "begin + i >= bytes"),
    ("permute", "ROW_BYTES / COUNT[ROW_END] * box.count[ROW_END]", "ROW_BYTES"),
    ("permute", "* LOAD - misalignment(at, LOAD);", "* LOAD;"),
    ("permute", "ceiling(ROW_BYTES + LOAD - ROW_ALIGNMENT, LOAD)", "ceiling(ROW_BYTES, LOAD)"),
    ("permute", "ceiling(extent(LOOPS) + 2 * LOAD, LOAD) * LOAD", "extent(LOOPS) / 2"),
    ("permute", "RUN_UNIT * box.count[RUN_END], lane", "RUN_UNIT * COUNT[RUN_END], lane"),
    ("permute", "PER_WORD > COUNT[LOW] + 1", "PER_WORD > COUNT[LOW] + 2"),
    ("permute", "left = COUNT[LOW] - turn;", "left = COUNT[LOW];"),
    ("permute", "start_of(outer + 1)", "start_of(outer)"),
    ("permute", "lane >= begin && lane < end", "lane < end"),
    ("permute", "lane >= begin && lane < end", "lane >= begin"),
    ("permute", "if (!HAS_ENDS) continue;", "continue;"),
    ("permute", "smaller(begin * PER_WORD - before, items);", "begin * PER_WORD - before;"),
    ("permute", "larger(head, end * PER_WORD - before);", "end * PER_WORD - before;"),
    ("permute", "n < PER_WORD ? head : items)", "head)"),
    ("permute", "box.first.coef + run.at.coef;", "run.at.coef;"),
    ("permute", "box.first.coef + run.at.coef;", "box.first.coef;"),
    ("permute", "(at - outer * COUNT[loop]) * box", "at * box"),
    # layout of shared memory
    ("transpose", "(column ^ exchanged)", "(column | exchanged)"),
    ("transpose", "return row * ROW_BYTES +", "return row * (ROW_BYTES - 16) +"),
    ("transpose", "byte tile[TILE_ROWS * ROW_BYTES]", "byte tile[TILE_ROWS * ROW_BYTES - 16]"),
    ("transpose", "byte tile[TILE_ROWS * ROW_BYTES];",
     "byte room[TILE_ROWS * ROW_BYTES + 8], *tile; tile = room + 8;"),
    ("interleave", "byte chunk[CHUNK * larger(SOURCE_CHANNELS, CHANNELS) * ITEM]",
     "byte chunk[CHUNK * ITEM]"),
    ("lines", "ceiling((ITEMS + PER_LINE) * ITEM, 16) * 16", "ITEMS / 2 * ITEM"),
    ("lines", "return (pixel * LINE_CHANNELS + channel) * ITEM",
     "return (pixel + channel) * ITEM"),
    ("interleave", "all.item[i * SOURCE_CHANNELS + plane_position(channel)];",
     "all.item[plane_position(channel) * GROUP + i];"),
    ("accumulate", "tile[TILES][TILE_BYTES]", "tile[TILES][TILE_BYTES / 2]"),
    ("accumulate", "sum = (Part)-0.0;", "sum = (Part)1;"),
    ("accumulate", "slot ^ walk.item[i]", "slot + walk.item[i]"),
    ("accumulate", "slot ^ i * sizeof(piece)", "slot"),
    ("accumulate", "loaded.words[turn + j].item[i]", "loaded.words[turn].item[i]"),
    ("accumulate", "turn += PER_RUN", "turn += 2 * PER_RUN"),
    ("accumulate", "spot.slot ^= linear ^", "spot.slot += linear ^"),
    ("accumulate", "if (TILES == 1) __syncthreads();", ""),
    ("accumulate", "tile = (tile + 1) % TILES;", ""),
    ("accumulate", "first.slot ^ walk.slot[turn]", "first.slot"),
    ("accumulate", "first.offset + walk.offset[turn]", "first.offset"),
    # loops
    ("transpose", "at.add(1, rows.first);", ""),
    ("transpose", "low = (unsigned)start - wraps * axis.inner.count;", "low = 0;"),
    ("transpose", "loop[i].place(n - outer * loop[i].turns.count,", "loop[i].place(outer,"),
    ("gather", "place.at.add(place.split, params.split.low);", ""),
    ("accumulate", "start[i] = take(unit, side.group);", "start[i] = 0;"),
    ("accumulate", "strip << along.lanes | lane", "strip << along.lanes"),
    ("accumulate", "if (other != axis)", "if (true)"),
    ("accumulate", "<< RUN_BITS | turn % PER_RUN", "<< RUN_BITS"),
    ("accumulate", "axis == LAST ? turn : turn / PER_RUN", "turn"),
    ("accumulate", "axis == LAST ? turn : turn / PER_RUN", "turn / PER_RUN"),
    ("accumulate", "DTYPES == 1 << CODE || dtype == CODE", "true"),
    ("accumulate", "pointers.src[part + 1], loaded)", "pointers.src[part], loaded)"),
    # windows, lines and taps
    ("collate", "x >= side.low && x < side.high)", "x >= side.low)"),
    ("collate", "x >= u.low && x < u.high && y", "x >= u.low && y"),
    ("collate", "src += x * side.from;", "src += place * side.from;"),
    ("collate", "fill += place * along", "fill += along"),
    ("resize", "is_covered = is_covered && taps[i].count > 0;", "is_covered = taps[i].count > 0;"),
    ("resize", "line.is_covered && column.taps.count > 0", "line.is_covered"),
    ("resize", "line.sample * tiles + tile.start", "tile.start"),
    ("collate", "before < WORD ? ceiling((int)(WORD - before), BYTES) : 0;", "0;"),
    ("collate", "place_in_pixel(place.at[V]);", "place.at[V];"),
    ("collate", "if (is_reversed) first += (count - 1) * u.from;", ""),
    ("collate", "from = columns - to, to = columns - other;", ""),
    ("collate", "if (place + n < count) put(to", "put(to"),
    ("collate", "const int place = item_of(line, item);", "const int place = item;"),
    ("resize", "tap * PIXEL + position(i))", "tap * PIXEL + i)"),
    ("collate", "(after - WORD) / BYTES", "after / BYTES + WORD"),
    ("resize", "of.end - first - high);", "of.end - first);"),
    ("resize", "(from[i] < 0 ? low : high) +=", "high +="),
    ("collate", "begin = larger(begin, from * PIXEL);", ""),
    ("collate", "if (to < columns) end = smaller(end, to * PIXEL);", ""),
    ("collate", "part * windows.tile[V].loop.step.src;", "0;"),
    ("resize", "if (tap < high) add_tap", "if (tap <= high) add_tap"),
    ("collate", "at - by + WORD, by);", "at - by + WORD, 0);"),
    ("resize", "if (!part.has(item))", "if (item >= part.end)"),
    ("resize", "item < part.count;", "item < part.count - 1;"),
    ("resize", "line.begin > 0 || line.end", "line.end"),
    ("resize", "line.end < line.columns * PIXEL;", "false;"),
    ("resize", "is_in_words && PART * PIXEL % PER == 0", "is_in_words"),
    ("resize", "(begin * PIXEL + item) * BYTES", "item * BYTES"),
    ("resize", "smaller(line.end - skipped, ceiling", "smaller(line.end, ceiling"),
    ("resize", "at + (rest - 1) * from, from, &last", "at, from, &last"),
    ("resize", "rest == 3 ? weight[2] : weight[0];", "weight[0];"),
    ("resize", "if (rest >= 2) add", "if (rest == 2) add"),
    ("resize", "at += AHEAD * from, rest", "rest"),
    ("resize", "taps[0].group(table, tap);", "taps[0].group(table, 0);"),
    ("resize", "(uint64)high << 32 | low) >> 8 * by", "(uint64)high << 32 | low) >> by"),
    ("resize", "before < 0 ? -before : 0;", "0;"),
    ("resize", "smaller(taps.count, count - before);", "taps.count;"),
    ("resize", "longest = larger(longest, lines[r].columns);", "longest = lines[r].columns;"),
    ("resize", "!(has_taps && is_valid", "!(is_valid"),
    ("resize", "|| column.u >= tile.count[U]) return;", ") return;"),
    ("resize", "table + weights + sizeof(Source) * tap);", "table + weights);"),
    ("transpose", "goes_on(params, rows, 0, TILE_ROWS))", "goes_on(params, rows, 0))"),
    ("transpose", "place_of_row = coef + at.coef;", "place_of_row = at.coef;"),
    ("interleave", "bounds.first, bounds.second);", "bounds.first, bounds.first);"),
    ("collate", "if (JOINED) place.at[U] +=", "if (false) place.at[U] +="),
    ("collate", "(uint64)number * TILE_R, number = 0;", "(uint64)number * TILE_R;"),
    ("collate", "(v.low <= 0 && v.high >= PIXEL)", "(v.low <= 0)"),
    ("collate", "MAPS && v.map ?", "MAPS && v.map && !u.map ?"),
    ("resize", "exists && (INSIDE || (x >= side.low", "exists && (INSIDE || (x > side.low"),
    ("resize", "taps[i].first + more < side.high;", "taps[i].first + more <= side.high;"),
]  # fmt: skip


def changed(family, before, after):
    return text_of(family).replace(before, after)


def test_every_mistake_changes_one_place():
    places = [text_of(family).count(before) for family, before, _ in MISTAKES]
    assert places == [1] * len(MISTAKES)


@pytest.mark.budget(0, all=36)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake[0]}: {mistake[2]}")
def test_a_mistake_is_found(mistake):
    assert is_found(cases_of(mistake[0]), changed(*mistake))


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

"""Coefficients along axes that tiles fuse, and odd strides of outer loops."""

from math import prod

import numpy as np
import pytest

from layoutkit import accumulate
from layoutkit.kernels.cuda import launch as launch_module
from layoutkit.kernels.cuda import policy, tiling
from layoutkit.planning.loops import Loop
from tests.helpers import cuda_shim
from tests.helpers.arrays_of import assert_same, random_array
from tests.helpers.cuda_moves import copied, placed, planned, prepared, summed
from tests.helpers.reference import reference_convert

pytestmark = [pytest.mark.budget(2), cuda_shim.needs_compiler]

RNG = np.random.default_rng(0)
SIZES = {"p": 3, "q": 12, "r": 5, "s": 8}  # short, so that an axis of a tile fuses two axes


@pytest.mark.parametrize("axis", SIZES)
@pytest.mark.parametrize("pattern", ["pqrs->rspq", "rspq->pqrs", "prqs->rpsq"])
def test_formulas_along_each_part_of_a_fused_axis(pattern, axis):
    """Test a different constant at each index, with results that are exact with any rounding."""
    mean = (0.5 + np.arange(SIZES[axis])).tolist()
    keywords = {"dtype": "f4", "mean": {axis: mean}}
    shape = [SIZES[a] for a in pattern[:4]]
    x = copied(RNG.integers(0, 120, shape).astype("f4"), 0)
    wanted = reference_convert(x, pattern, **keywords)
    run = prepared(x, pattern, **keywords)
    for order in cuda_shim.ORDERS:
        assert_same(run(order=order, poison=0xFF), wanted)


AXES = ("ROWS_LOOPS", "RUN_LOOPS")


def test_they_were_fused():
    """Test that the test above runs the kernels it is written for."""
    fused = set()
    for pattern in ("pqrs->rspq", "rspq->pqrs"):
        x = copied(np.zeros([SIZES[a] for a in pattern[:4]], "f4"), 0)
        for axis in SIZES:
            mean = {axis: [1.0] * (SIZES[axis] - 1) + [2.0]}
            _, [(launch, _, _)] = planned(x, pattern, dtype="f4", mean=mean)
            defines = dict(launch.defines)
            names = [name for name in AXES if defines.get(name, "1") != "1"]
            fused |= {(name, axis) for name in names}
    assert {name for name, _ in fused} == set(AXES)
    assert len(fused) >= 4


# Planes of whole words, at a multiple of 16 bytes in one batch and at any address in the next.
ODD = [
    ("bnm->bmn", (3, 64, 64), "u4"), ("bnm->bmn", (3, 128, 128), "u1"),
    ("bpc->bcp", (3, 64, 3), "u4"), ("bcp->bpc", (3, 3, 64), "u4"), ("bpc->bcp", (3, 64, 4), "u1"),
    ("bn->bn", (3, 128), "u2"), ("bnm->mbn", (3, 32, 48), "u4"),
]  # fmt: skip


def odd(shape, dtype, extra):
    """Return an array with `extra` unused items after each batch."""
    item, inner = np.dtype(dtype).itemsize, prod(shape[1:])
    room = placed((shape[0] * (inner + extra),), dtype)
    steps = np.zeros(shape, dtype).strides[1:]
    return np.lib.stride_tricks.as_strided(room, shape, ((inner + extra) * item, *steps))


@pytest.mark.budget(0)
@pytest.mark.parametrize("keywords", [{}, {"dtype": "f4"}], ids=["move", "cast"])
@pytest.mark.parametrize(("pattern", "shape", "dtype"), ODD)
def test_batches_that_begin_anywhere(pattern, shape, dtype, keywords):
    values = random_array(RNG, shape, dtype) % 100
    wanted = reference_convert(values, pattern, **keywords)
    runs = []
    for extra in (1, 3, 2):
        x = odd(shape, dtype, extra)
        x[...] = values
        runs.append(prepared(x, pattern, **keywords))
        runs.append(prepared(copied(values, 0), pattern, odd(wanted.shape, wanted.dtype, extra),
                             **keywords))  # fmt: skip
    for run in runs:
        assert_same(run(), wanted)


@pytest.mark.parametrize("which", ["out", "part"])
def test_sums_of_batches_that_begin_anywhere(which):
    shape = (3, 32, 48)
    values = RNG.integers(0, 99, shape).astype("f4")
    part, out = copied(values, 0), None
    if which == "part":
        part = odd(shape, "f4", 1)
        part[...] = values
    else:
        out = odd(shape, "f4", 3)
    parts = [(part, "bnm"), (copied(values.transpose(2, 1, 0), 0), "mnb")]
    wanted = accumulate(parts, "bnm")
    assert_same(summed(parts, "bnm", out=out), wanted)


# Contiguous short rows, with gaps between the images of a line; words of 4, 8 and 16 bytes.
GAPS = [
    ("uvpc->vcup", (301, 2, 3, 13), "u4", 4), ("uvpc->vcup", (301, 2, 2, 19), "u4", 8),
    ("uvpc->vcup", (131, 2, 16, 76), "u1", 16), ("uvpc->vcup", (101, 3, 12, 33), "u2", 8),
    ("uvpc->vcup", (70, 2, 6, 13), "f8", 16), ("uvpc->cvup", (171, 3, 31, 5), "f4", 4),
]  # fmt: skip


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("is_cast", [False, True])
@pytest.mark.parametrize(("pattern", "shape", "dtype", "word"), GAPS)
def test_lines_with_gaps(pattern, shape, dtype, word, is_cast, shift, monkeypatch):
    """Test chunks that begin anywhere in images, with a coefficient for each pixel."""
    monkeypatch.setattr(policy, "FEW_TILES", 0)
    for name in launch_module.MAKERS:  # for some a transpose would be faster
        monkeypatch.setitem(launch_module.MAKERS, name, (launch_module.make_lines,))
    keywords = {"dtype": "f4", "mean": {"p": [*range(shape[2])]}} if is_cast else {}
    shift *= max(4, np.dtype(dtype).itemsize)
    x = copied(RNG.integers(0, 120, shape).astype(dtype), shift)
    [(launch, _, _)] = planned(x, pattern, **keywords)[1]
    assert launch.family == "lines"
    assert dict(launch.defines)["GAP_WORD"] == str(min(word, shift or word))
    wanted = reference_convert(x, pattern, **keywords)
    run = prepared(x, pattern, **keywords)
    for order in cuda_shim.ORDERS:
        assert_same(run(order=order, poison=0xFF), wanted)


@pytest.mark.parametrize(("images", "has_gaps"), [(31, False), (32, True), (33, True)])
def test_the_length_of_rows_that_are_worth_gaps(images, has_gaps):
    """Test that rows of 16 bytes become lines with gaps if 512 bytes are contiguous."""
    images, planes, pixels = Loop(images, 2432, 16), Loop(76, 1, 16 * images), Loop(16, 76, 1)
    found = tiling.find_lines([Loop(2, 1216, 1216 * images.count), images, planes, pixels], 1, 1)
    assert any(one.has_gaps for one in found) == has_gaps


# Rows of images: full sectors, parts of some, and images so small that their rows are short.
ROWS = [
    ("bpc->bcp", (2, 1024, 12), "u2", "transpose"), ("bpc->bcp", (2, 1020, 12), "u2", "transpose"),
    ("bpc->bcp", (2, 1020, 10), "u2", "lines"),
    ("bpc->bcp", (2, 1021, 14), "u1", "lines"),  # of 2 bytes
    ("bpc->bcp", (2, 1023, 13), "u4", "transpose"), ("bpc->bcp", (2, 1023, 14), "u4", "transpose"),
    ("bpc->cbp", (301, 11, 14), "u4", "transpose"), ("bpc->cbp", (301, 16, 14), "u4", "transpose"),
    ("bpc->bcp", (2, 1023, 3), "u1", "lines"),
    ("abpc->bcap", (301, 3, 28, 4), "u2", "transpose"),
    ("abpc->bcap", (33, 3, 512, 4), "u2", "lines"),
]  # fmt: skip


@pytest.mark.parametrize("keywords", [{}, {"dtype": "f4"}], ids=["move", "cast"])
@pytest.mark.parametrize(("pattern", "shape", "dtype", "family"), ROWS)
def test_rows_that_share_sectors_are_transposed(
    pattern, shape, dtype, family, keywords, monkeypatch
):
    monkeypatch.setattr(policy, "FEW_TILES", 0)
    monkeypatch.setattr(launch_module, "find_box", lambda *nest: None)
    x = copied(random_array(RNG, shape, dtype), 0)
    if not keywords:
        [(launch, _, _)] = planned(x, pattern)[1]
        assert launch.family == family
    run = prepared(x, pattern, **keywords)
    assert_same(run(order="reverse", poison=0xFF), reference_convert(x, pattern, **keywords))


def rows_of(count, channels, *, split):
    """Return an array of images: lines with `count` pixels of 4-byte items."""
    planes, pixels = Loop(channels, 4, 4 * count), Loop(count, 4 * channels, 4)
    if not split:
        planes, pixels = (loop._replace(src=loop.dst, dst=loop.src) for loop in (planes, pixels))
    found = tiling.find_lines([Loop(9, 0, 0), planes, pixels], 4, 4)
    return next(one for one in found if one.split == split)


def test_estimates_of_lines():
    """Short rows, unaligned rows, warps on several rows, and chunks with few pixels are slower."""

    def share(count=4096, channels=15, split=True, alignment=4, tile=1024):
        lines = rows_of(count, channels, split=split)
        return tiling.line_share(lines, (4, 4), 4, alignment, tile)

    assert 0.9 < share() < share(alignment=32) < 1
    for split in (True, False):
        assert share(count=20, split=split) < share(count=40, split=split) < share(split=split)
    assert share(channels=12) < share(channels=14) < share()
    assert share(channels=12, split=False) == share(channels=14, split=False) < share(split=False)
    assert share(tile=32) < share(tile=64) < share()


@pytest.mark.parametrize(("channels", "pixels"), [(25, 254), (23, 254), (21, 510)])
def test_the_nearest_number_of_stretches(channels, pixels, monkeypatch):
    """Test chunks of 5.1, 5.6 and 6.1 stretches of 64 pixels in 16 KB; 4 and 8 are possible."""
    monkeypatch.setattr(policy, "FEW_TILES", 0)
    lines = rows_of(4097, channels, split=True)
    assert tiling.choose_chunk(lines, (2, 2), 4, shifted=True) == pixels

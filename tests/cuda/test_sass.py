"""The machine code of sm_90 that NVRTC makes, executed one instruction after the other.

The results equal those of the same source on the CPU, bit for bit. This shows that the speed model
of a GPU (`cuda_model`) counts the instructions that a GPU executes.
"""

import cuda_shim
import numpy as np
import pytest
from cuda_model import executed
from cuda_moves import by_boxes, copied, planned, planned_collate
from nvrtc import Compiled, needs_nvdisasm, needs_nvrtc

pytestmark = [pytest.mark.budget(3), cuda_shim.needs_compiler, needs_nvrtc, needs_nvdisasm]

RNG = np.random.default_rng(0)
COLOURS = {"dtype": "f4", "mean": [1, 2, 3], "std": [4, 5, 6]}
SMALLER, LARGER = {"h": 17, "w": 23}, {"h": 60, "w": 70}


def compare(launch, out, sources, shifts):
    """Compare the results of all blocks; return the blocks."""
    cuda_shim.run(launch, out, sources, shifts=shifts)
    wanted = out.copy()
    out.view(np.uint8)[...] = 0x77
    blocks = executed(Compiled(launch, 90), launch, out, sources, shifts, range(launch.grid))
    np.testing.assert_array_equal(out.view(np.uint8), wanted.view(np.uint8))
    return blocks


@pytest.mark.parametrize(
    ("pattern", "shape", "dtype", "shift", "options"),
    [
        ("bwc->bcw", (2, 128, 64), "u1", 0, {}), ("bwc->bcw", (2, 64, 96), "f4", 0, {}),
        ("bpc->bcp", (2, 4096, 3), "u1", 0, COLOURS), ("bpc->bcp", (2, 4097, 3), "u1", 1, {}),
    ],
)  # fmt: skip
def test_conversions(pattern, shape, dtype, shift, options):
    x = copied(RNG.integers(0, 255, shape).astype(dtype), shift)
    for launch, out, shifts in planned(x, pattern, **options)[1]:
        compare(launch, out, [x], shifts)


@pytest.mark.parametrize(
    ("pattern", "shape", "dtype", "shift", "options"),
    [
        ("uvxw->uvwx", (3, 31, 35, 38), "u1", 1, {}), ("abcd->dbac", (7, 33, 19, 5), "u2", 2, {}),
        ("abcdefg->gebdcfa", (3, 2, 5, 2, 3, 2, 7), "f4", 0, {"dtype": "f8"}),
        ("abc->cab", (13, 29, 7), "u1", 0, {"dtype": "f4", "mean": [*range(7)]}),
    ],
)  # fmt: skip
def test_boxes(pattern, shape, dtype, shift, options):
    x = copied(RNG.integers(0, 255, shape).astype(dtype), shift)
    with by_boxes():
        [(launch, out, shifts)] = planned(x, pattern, **options)[1]
    assert launch.family == "permute"
    compare(launch, out, [x], shifts)


@pytest.mark.parametrize(
    ("pattern", "options"),
    [
        ("hwc->bchw", {"h": 20, "w": 32, **COLOURS}), ("hwc->chwb", {"h": 20, "w": 32}),
        ("hwc->bchw", {"resize": "bilinear", **SMALLER, **COLOURS}),
        ("hwc->bhwc", {"resize": "bicubic", "dtype": "f2", **SMALLER}),
        ("hwc->bhwc", {"resize": "bicubic", **SMALLER}),
        ("hwc->bchw", {"resize": "bicubic", **LARGER}),
        ("hwc->bchw", {"resize": "nearest", "fit": "pad", "fill": 3, **LARGER}),
        ("hwc->chwb", {"resize": "bilinear", "dtype": "f4", **SMALLER}),
    ],
    ids=str,
)  # fmt: skip
def test_windows(pattern, options):
    images = [RNG.integers(0, 255, (37, 50, 3), np.uint8) for _ in range(2)]
    compare(*planned_collate(images, pattern, **options))


def test_longer_loops_issue_more():
    """Test that every iteration is counted; one kernel handles all scales."""
    issued = []
    for height in (40, 80, 160):
        images = [RNG.integers(0, 255, (height, 16, 3), np.uint8)]
        planned_launch = planned_collate(images, "hwc->bchw", h=8, w=8, resize="area")
        (block,) = compare(*planned_launch)
        issued.append(block.issued)
    assert 1.8 < (issued[2] - issued[1]) / (issued[1] - issued[0]) < 2.2

"""The CUDA kernel that accepts any loops, on the CPU under sanitizers."""

from itertools import pairwise
from math import prod

import numpy as np
import pytest

from layoutkit.kernels.cuda import launch as launches
from layoutkit.kernels.cuda import policy
from layoutkit.kernels.cuda.launch import contiguous_source, loops_of_block
from layoutkit.kernels.cuda.policy import LEAST_TURNS, THREADS
from layoutkit.planning.loops import Loop
from tests.helpers import cuda_shim
from tests.helpers.arrays_of import assert_same
from tests.helpers.cuda_moves import copied, planned, prepared
from tests.helpers.cuda_shim import ORDERS
from tests.helpers.reference import reference_convert

pytestmark = [pytest.mark.budget(2), cuda_shim.needs_compiler]
RNG = np.random.default_rng(0)


def check(shape, pattern, **keywords):
    """Convert with the kernel `gather`, with the choices for small and for large arrays."""
    x = copied(RNG.integers(0, 99, shape).astype("i2"), 0)
    wanted = reference_convert(x, pattern, **keywords)
    for order, few in zip(ORDERS, (0, policy.FEW_TILES, 0), strict=True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(policy, "FEW_TILES", few)
            patch.setattr(launches, "find_box", lambda *nest: None)
            [(launch, _, _)] = planned(x, pattern, **keywords)[1]
            assert launch.family == "gather"
            assert_same(prepared(x, pattern, **keywords)(order=order), wanted)


@pytest.mark.budget(0)
@pytest.mark.parametrize("near", [LEAST_TURNS - 1, LEAST_TURNS, LEAST_TURNS + 1, 7, 8, 9, 17])
def test_turns_along_the_nearest_loop(near):
    check((101, near, 3), "abc->bac", dtype="f4")
    check((3, 101, near, 3), "habc->bhac", dtype="f4", mean={"b": list(range(near))})


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("run", [2, 29, THREADS // 2])
def test_loops_that_fill_the_threads(run, more):
    check((THREADS // run + more, 9, run), "abc->bac", dtype="f4")


@pytest.mark.parametrize("count", [THREADS + n for n in (-1, 0, 1)] + [8 * THREADS + 1])
@pytest.mark.parametrize("channels", [3, 5])
def test_coefficients_that_repeat(count, channels):
    check((2, count, channels), "abc->abc", dtype="f4", mean={"c": list(range(channels))})


@pytest.mark.parametrize(
    ("shape", "is_gathered"),
    [
        ((459, 7, 68, 2, 24, 7), True),  # a thread reads rows of 7 items, of 24 blocks
        ((459, 7, 68, 2, 24, 17), False),  # too many lines for the threads of a warp
        ((4, 7, 4, 2, 4, 7), False),  # a small array
    ],
)
def test_short_rows_are_read_by_threads(shape, is_gathered, monkeypatch):
    monkeypatch.setattr(launches, "find_box", lambda *nest: None)
    x = np.zeros(shape, np.float32)
    assert (planned(x, "uvwxyz->zwuvyx")[1][0][0].family == "gather") == is_gathered


def test_contiguous_source():
    rows, near, far = Loop(7, 4, 9), Loop(5, 28, 9), Loop(5, 29, 9)
    assert contiguous_source([near, rows], 4) == 140
    assert contiguous_source([far, rows], 4) == 28
    assert contiguous_source([near, Loop(1, 4, 9)], 4) == 4


def test_a_short_row_of_each_thread(monkeypatch):
    monkeypatch.setattr(policy, "FEW_TILES", 0)
    check((3, 7, 5, 2, 24, 7), "uvwxyz->zwuvyx", dtype="f4")


SIZES = 1, 2, LEAST_TURNS - 1, LEAST_TURNS, 29, THREADS - 1, THREADS, THREADS + 1, 1 << 20, 1 << 30


def test_loops_of_blocks():
    """Test that each loop is in a block or around it, and that threads have different elements."""
    for _ in range(2000):
        counts = [int(n) for n in RNG.choice(SIZES, RNG.integers(1, 6))]
        nest = [Loop(n, int(RNG.integers(-99, 99)), int(RNG.integers(-99, 99))) for n in counts]
        around, split, stretch, inner = loops_of_block(nest)
        assert prod(counts) == prod(loop.count for loop in (*around, split, *inner))
        places = prod(loop.count for loop in inner)
        assert places * stretch <= THREADS or stretch == 1
        assert places < 2**31 - THREADS
        places = [nest.index(loop) for loop in inner]
        assert all(a + 1 == b for a, b in pairwise(places))

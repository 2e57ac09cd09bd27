"""The CUDA kernel of runs of any number of bytes, on the CPU under sanitizers."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layoutkit import ArraySpec, Converter
from layoutkit.kernels.cuda.launch import prepare
from layoutkit.kernels.cuda.policy import RUN_WORDS, WORD
from tests.helpers import cuda_shim
from tests.helpers.arrays_of import assert_same, random_array
from tests.helpers.cuda_moves import copied, placed, planned, prepared
from tests.helpers.cuda_shim import ORDERS
from tests.helpers.reference import reference_convert

pytestmark = [pytest.mark.budget(2), cuda_shim.needs_compiler]
RNG = np.random.default_rng(0)
TILE = RUN_WORDS * WORD


def family(x, pattern, shift=0):
    [(launch, _, _)] = planned(x, pattern, shift=shift)[1]
    return launch.family


def check(x, pattern, shift=0, order="forward"):
    """Convert with the kernel `runs`; check the result, and that no other byte changes."""
    wanted = reference_convert(x, pattern)
    room = placed((wanted.nbytes + 64,), "u1")
    out = room[shift : shift + wanted.nbytes].view(x.dtype).reshape(wanted.shape)
    assert family(x, pattern, shift) == "runs"
    prepared(x, pattern, out)(order=order)
    assert_same(out, wanted)
    assert (room[:shift] == 0x77).all()
    assert (room[shift + wanted.nbytes :] == 0x77).all()


@pytest.mark.parametrize("length", [16, 17, 18, 30, 31, 33, 47, 49, 100, 255, 257, 1023, 4099])
def test_lengths_at_any_address(length):
    x = random_array(RNG, (3, 5, length), "u1")
    for number, (here, there) in enumerate([(1, 0), (0, 1), (15, 15), (3, 14), (9, 7)]):
        check(copied(x, here), "abc->bac", there, ORDERS[number % 3])


@pytest.mark.parametrize("shift", range(16))
def test_every_misalignment(shift):
    x = copied(random_array(RNG, (7, 4, 29), "u1"), shift)
    for there in range(16):
        check(x, "abc->bac", there)


@pytest.mark.parametrize("more", [-33, -17, -16, -1, 0, 1, 15, 16, 17, 32])
def test_edges_of_tiles(more):
    """Test outputs that end before, at and after the end of two tiles."""
    size = 2 * TILE + more
    rows = copied(random_array(RNG, (3, size), "u1"), 1)
    check(rows[::-1, : size - 1], "ab->ab", 5)
    check(rows[:, : size // 3], "ab->ab", 5)


def test_outputs_of_one_whole_word():
    x = copied(random_array(RNG, (2, 16), "u1"), 0)[::-1]
    for there in range(1, 16, 2):
        check(x, "ab->ab", there)


@pytest.mark.parametrize("shape", [(1200, 3, 29), (1130, 4, 29), (3, 700, 3, 61), (2400, 2, 30)])
def test_tiles_of_runs_that_meet_in_the_source(shape):
    """Test tiles that blocks move in groups; the last tiles are not a full group."""
    x = copied(random_array(RNG, shape, "u1"), 3)
    pattern = "abc->bac" if len(shape) == 3 else "dabc->dbac"
    _, [(launch, _, _)] = planned(x, pattern)
    order = np.frombuffer(launch.params, np.uint64)[-9:-7]  # `apart` and `grouped`
    assert order[0] == shape[-3] * shape[-1] // TILE >= 2
    assert 0 < order[1] <= launch.grid
    check(x, pattern)


@pytest.mark.parametrize("dtype", ["u1", "u2"])
def test_items_and_axes(dtype):
    item = np.dtype(dtype).itemsize
    for pattern, shape in [
        ("abc->bac", (9, 5, 33 // item)),
        ("abcd->cbad", (3, 4, 5, 21)),
        ("abcde->dbcae", (2, 3, 2, 4, 19)),
        ("abcd->bacd", (4, 3, 7, 9)),
    ]:
        check(copied(random_array(RNG, shape, dtype), item), pattern, item)


def test_sources_with_gaps_and_backward_axes():
    """Test that words beside a run are not read: sanitizers report reads beyond the source."""
    room = copied(random_array(RNG, (6, 9, 70), "u1"), 1)
    for x in (
        room[..., 3:40],
        room[:, 1:8, :33],
        room[::-1, 1:],
        room[::2, :, 5:69],
        room[:, :, :61][::-1],
    ):
        check(x, "abc->bac", 5)
        check(x, "abc->abc", 2)


@pytest.mark.parametrize("rank", [12, 13])
def test_many_axes_around_runs(rank):
    letters = "abcdefghijklm"[:rank]
    x = copied(random_array(RNG, (*[2] * rank, 17), "u1"), 1)
    target = letters[::2][::-1] + letters[1::2]
    launches = planned(x, f"{letters}z->{target}z")[1]
    assert {launch.family for launch, _, _ in launches} == {"runs"}
    order = [letters.index(a) for a in target]
    got = prepared(x, f"{letters}z->{target}z")()
    assert_same(got, np.ascontiguousarray(x.transpose([*order, rank])))


def test_where_other_kernels_are_used():
    x = random_array(RNG, (5, 6, 48), "u1")
    assert family(copied(x, 1), "abc->bac") == "runs"
    assert family(copied(x, 0), "abc->bac") == "gather"  # words of 16 bytes
    assert family(copied(x, 8), "abc->bac") == "gather"  # of 8 bytes
    assert family(copied(x[..., :15], 1), "abc->bac") != "runs"
    assert family(copied(x[..., :16], 1), "abc->bac") == "runs"
    _, [(launch, _, _)] = planned(copied(x, 1), "abc->bac", placed((6, 5, 49), "u1")[..., :48])
    assert launch.family == "gather"  # the output has gaps


@pytest.mark.parametrize(
    "shape", [(2**30, 3, 17), (3, 2**26, 171), (2, 2, 2**17 - 1), (2, 3, 2**17 + 1)]
)
def test_the_largest_arrays(shape):
    """Test that the numbers that a kernel divides are below 2**31, and every tile has a block."""
    plan = Converter("abc->bac", copy=True).plan(ArraySpec("abc", shape, "u1"))
    launch = prepare(plan.choice, None, 1, 0)
    is_short = shape[2] < 2**31 // TILE
    assert launch.family == ("runs" if is_short and shape[0] * shape[1] < 2**31 else "gather")
    if launch.family == "runs":
        assert launch.grid == -(-(np.prod(shape, dtype=object) // WORD) // RUN_WORDS)


@st.composite
def moves(draw):
    """Draw a pattern that keeps its last axes, sizes, reversed axes, and two misalignments."""
    rank = draw(st.integers(2, 5))
    letters = "abcde"[:rank]
    kept = draw(st.integers(1, rank - 1))
    order = "".join(draw(st.permutations(letters[:-kept]))) + letters[-kept:]
    sizes = [draw(st.integers(1, 6)) for _ in letters[:-1]] + [draw(st.integers(16, 90))]
    backward = [draw(st.booleans()) for _ in letters[:-kept]]
    return (
        f"{letters}->{order}",
        sizes,
        backward,
        draw(st.integers(0, 15)),
        draw(st.integers(0, 15)),
    )


@pytest.mark.budget(0)
@given(moves())
@settings(
    deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)  # fmt: skip
def test_any_runs(case):
    pattern, sizes, backward, here, there = case
    x = copied(random_array(RNG, sizes, "u1"), here)
    x = x[tuple(slice(None, None, -1 if back else 1) for back in backward)]
    wanted = reference_convert(x, pattern)
    out = placed(wanted.shape, "u1", there)
    prepared(x, pattern, out)()
    assert_same(out, wanted)

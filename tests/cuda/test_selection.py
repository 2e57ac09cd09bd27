"""The choice of a GPU kernel, the order of its blocks, and the sectors that they write."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit.kernels.cuda import launch as launches
from layoutkit.kernels.cuda import policy, tiling
from layoutkit.kernels.cuda.launch import CudaLaunch
from layoutkit.planning.loops import Loop
from tests.helpers import cuda_shim
from tests.helpers.arrays_of import assert_same, random_array
from tests.helpers.cuda_moves import by_boxes, copied, planned, prepared
from tests.helpers.cuda_trace import traced
from tests.helpers.reference import reference_convert

pytestmark = [pytest.mark.budget(3), cuda_shim.needs_compiler]
RNG = np.random.default_rng(0)


COUNTS = st.integers(1, policy.MAX_COUNT - 1)


@given(st.lists(st.tuples(COUNTS, st.integers(0, policy.MAX_COUNT - 1)), min_size=1))
def test_divisors_divide_every_number(pairs):
    counts, values = (np.array(column) for column in zip(*pairs, strict=True))
    divisors = tiling.make_divisors(counts)
    stored, multipliers, shifts, _ = divisors.T.astype(np.uint64)
    np.testing.assert_array_equal(stored, counts)
    quotients = values.astype(np.uint64) * multipliers >> shifts
    np.testing.assert_array_equal(quotients, values // counts)


@pytest.mark.parametrize("count", [0, policy.MAX_COUNT])
def test_loops_have_a_turn_and_fewer_than_2_to_the_31(count):
    with pytest.raises(RuntimeError, match=f"{count} turns"):
        tiling.make_divisors(np.array([3, count]))


# ---- the fastest kernel --------------------------------------------------------------------


def made(family, share):
    """Return a maker of launches of this estimated speed."""
    return lambda *choice: CudaLaunch(family, (), b"", 1, share=share)


@pytest.mark.parametrize(
    ("shares", "selected"),
    [
        ([0.5, 0.8, 0.7], 1),
        ([0.8, 0.8, 0.7], 0),  # the first of equally fast ones
        ([None, 0.2, 0.3], 2),
        ([0.5, policy.FAST_SHARE, 1.0], 1),  # fast enough: later kernels are not prepared
    ],
)
def test_the_fastest_kernel_is_selected(shares, selected, monkeypatch):
    makers = [
        (lambda *choice: None) if share is None else made(str(number), share)
        for number, share in enumerate(shares)
    ]
    monkeypatch.setitem(launches.MAKERS, "transpose", tuple(makers))
    x = np.zeros((300, 200), "f4")
    assert planned(x, "ab->ba")[1][0][0].family == str(selected)


def test_without_a_fitting_kernel_items_are_gathered(monkeypatch):
    monkeypatch.setitem(launches.MAKERS, "transpose", ())
    assert planned(np.zeros((300, 200), "f4"), "ab->ba")[1][0][0].family == "gather"


# On an H100 the selected kernel was the fastest, by 0.1 to 0.4 of a copy's speed.
MEASURED = [
    ("abc->acb", (512, 1025, 705), "u1", "transpose"),
    ("ab->ba", (480197, 280), "u2", "transpose"),
    ("abc->acb", (4096, 197, 197), "u2", "lines"),
    ("bhwc->bchw", (256, 225, 225, 3), "u1", "lines"),
    ("bchw->bhwc", (128, 12, 250, 250), "f4", "permute"),
    ("uvwxy->yxuwv", (49152, 3, 7, 10, 4), "f8", "permute"),
    ("uvwxy->wyuxv", (8307, 35, 4, 117, 2), "u1", "permute"),
    ("abc->bac", (262144, 62, 28), "u1", "gather"),  # runs at multiples of 4 bytes
    ("abc->bac", (262144, 48, 35), "u1", "permute"),
    ("abc->bac", (65536, 46, 223), "u1", "runs"),
    ("bhwc->bchw", (512, 56, 56, 64), "f4", "transpose"),
    ("bhwc->chwb", (2048, 224, 224, 3), "u1", "transpose"),
]


@pytest.mark.parametrize(("pattern", "shape", "dtype", "family"), MEASURED)
def test_the_kernel_that_was_fastest(pattern, shape, dtype, family):
    x = np.lib.stride_tricks.as_strided(np.zeros(1, dtype), shape, np.empty(shape, dtype).strides)
    assert planned(x, pattern, np.empty([shape[pattern.index(a)] for a in pattern[-len(shape) :]],
                   dtype))[1][0][0].family == family  # fmt: skip


def share_of_tile(tall=64, wide=64, items=(4, 4), alignments=(32, 32), shared=0, counts=(640, 640)):
    rows = tiling.TileAxis((Loop(counts[0], items[0], 1 << 20),))
    run = tiling.TileAxis((Loop(counts[1], 1 << 20, items[1]),))
    return tiling.tile_share(rows, run, (tall, wide), items, alignments, shared)


def test_estimates_of_tiles():
    """Test that unaligned and short rows are slower, and overlapping or partly empty tiles."""
    assert 0.8 < share_of_tile() < 1
    for worse in (
        {"alignments": (4, 32)}, {"alignments": (32, 16)}, {"alignments": (32, 4)},
        {"tall": 16}, {"wide": 16}, {"shared": 8}, {"counts": (600, 640)}, {"counts": (640, 600)},
    ):  # fmt: skip
        assert share_of_tile(**worse) < share_of_tile(), worse
    assert share_of_tile(alignments=(32, 4)) < share_of_tile(alignments=(4, 32))
    assert share_of_tile(alignments=(32, 4)) < share_of_tile(shared=8)  # at whole sectors


# ---- the order of blocks -------------------------------------------------------------------


def tiles_only(monkeypatch):
    """Transpose by tiles, also small arrays."""
    monkeypatch.setattr(policy, "FEW_TILES", 0)
    monkeypatch.setitem(launches.MAKERS, "transpose", (launches.make_transpose,))


@given(st.integers(1, 10_000), st.integers(1, 100))
def test_groups_of_tiles(along, across):
    group, groups = tiling.tile_groups(along, across)
    assert group * groups >= along > group * (groups - 1)
    assert group <= policy.GROUP or groups == 1
    assert groups == 1 or across > 1
    assert group * groups - along < max(groups, group)  # few blocks without a tile


@pytest.mark.budget(1)
@pytest.mark.parametrize("group", [1, 2, 3])
@pytest.mark.parametrize(
    ("pattern", "shape", "dtype"),
    [
        ("ab->ba", (901, 301), "u1"), ("ab->ba", (901, 301), "u4"), ("ab->ba", (1300, 150), "f8"),
        ("abc->acb", (2, 700, 301), "u2"),
    ],
)  # fmt: skip
def test_tiles_in_groups(pattern, shape, dtype, group, monkeypatch):
    """Test a last group with fewer tiles than the others; blocks without a tile end at once."""
    monkeypatch.setattr(policy, "GROUP", group)
    tiles_only(monkeypatch)
    x = copied(random_array(RNG, shape, dtype), 0)
    [(launch, _, _)] = planned(x, pattern)[1]
    assert launch.family == "transpose"
    for order in cuda_shim.ORDERS:
        assert_same(prepared(x, pattern)(order=order), reference_convert(x, pattern))


@pytest.mark.budget(1)
@pytest.mark.parametrize("group", [1, 2, 3])
def test_boxes_in_groups(group, monkeypatch):
    monkeypatch.setattr(policy, "GROUP", group)
    x = copied(random_array(RNG, (901, 301), "u2"), 0)
    with by_boxes((37, 50)):
        [(launch, _, _)] = planned(x, "ab->ba")[1]
        assert launch.family == "permute"
        assert launch.grid > 9
        for order in cuda_shim.ORDERS:
            assert_same(prepared(x, "ab->ba")(order=order), reference_convert(x, "ab->ba"))


def test_as_many_tiles_as_a_grid_has(monkeypatch):
    tiles_only(monkeypatch)
    plan, [(launch, _, _)] = planned(np.zeros((901, 301), "f4"), "ab->ba")
    arguments = plan.choice, launches.Side(4, 0), launches.Side(4, 0), None
    monkeypatch.setattr(launches, "MAX_COUNT", launch.grid + 1)
    assert launches.make_transpose(*arguments) == launch
    monkeypatch.setattr(launches, "MAX_COUNT", launch.grid)
    assert launches.make_transpose(*arguments) is None


def test_tiles_that_read_whole_lines_run_in_the_order_of_the_output(monkeypatch):
    """Test tiles that share no line of the source with a neighbor: groups would be slower."""
    tiles_only(monkeypatch)

    def last_divisors(columns):
        x = np.zeros((1 << 14, columns), "f4")
        params = planned(x, "ab->ba")[1][0][0].params
        group, groups = np.frombuffer(params[-32:], np.uint32).reshape(2, 4)[:, 0]
        return int(group), int(groups)

    assert last_divisors(320)[1] == 1
    assert last_divisors(321)[1] > 1
    assert last_divisors(321)[0] <= policy.GROUP


# ---- whole sectors -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("u1", (1025, 640)),
        ("u2", (901, 320)),
        ("f4", (500, 320)),
        ("f4", (404, 320)),
        ("f8", (901, 96)),
    ],
)
def test_tiles_meet_between_sectors(dtype, shape, monkeypatch):
    """Test that a block writes whole sectors, except at the two ends of each row."""
    tiles_only(monkeypatch)
    x = copied(np.zeros(shape, dtype), 0)
    [(launch, out, shifts)] = planned(x, "ab->ba")[1]
    assert ("STORE_SHIFTED", "1") in launch.defines
    log, is_global = traced(launch, out, [x], shifts, range(launch.grid))
    stores = log[is_global & (log["write"] == 1)]
    sectors = stores["address"].astype(np.int64) // policy.SECTOR
    blocks = np.unique(stores["block"], return_inverse=True)[1]
    sizes = stores["bytes"].astype(np.int64)
    assert sizes.sum() >= out.nbytes
    _, sector_of_block = np.unique([blocks, sectors], axis=1, return_inverse=True)
    partial = np.bincount(sector_of_block, sizes) < policy.SECTOR
    assert partial.sum() <= 2 * len(out)


@pytest.mark.parametrize("shift", [0, 16])
def test_rows_at_multiples_of_16_bytes(shift, monkeypatch):
    """Test rows that begin within a sector, whose tiles begin at the next sector."""
    tiles_only(monkeypatch)
    x = copied(random_array(RNG, (3, 196, 300), "f4"), shift)
    [(launch, _, _)] = planned(x, "abc->acb", shift=shift)[1]
    assert ("STORE_SHIFTED", "1") in launch.defines
    for order in cuda_shim.ORDERS:
        assert_same(
            prepared(x, "abc->acb", shift=shift)(order=order), reference_convert(x, "abc->acb")
        )

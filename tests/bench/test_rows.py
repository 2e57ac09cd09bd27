"""The rows of the tables on the CPU: the standard table and the sweeps."""

from math import prod

import pytest

from layoutkit.bench.rows import Row, all_rows
from layoutkit.bench.sweeps import (
    LARGEST,
    LONGEST,
    SMALLEST,
    channel_rows,
    floor_rows,
    hptt_rows,
    random_rows,
    run_rows,
    sweep_rows,
)

ROWS = all_rows()


def test_the_twelve_pairs_are_all_ordered_pairs_of_layouts():
    pairs = [row for row in ROWS if row.group == "pairs"]
    assert len({row.pattern for row in pairs}) == 12
    for sizes in ((64, 224, 224, 3), (64, 56, 56, 64), (128, 32, 32, 3), (256, 512, 64)):
        assert len({row.name for row in pairs if row.sizes == sizes}) == 6 * 3


def test_names_are_unique_and_quick_keeps_some_rows_of_each_group():
    quick = all_rows(quick=True)
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert set(quick) < set(ROWS)
    assert {row.group for row in quick} == {row.group for row in ROWS}
    assert len(quick) < 30


@pytest.mark.parametrize(
    ("group", "pattern", "dtype", "channels", "goal"),
    [
        ("pairs", "bhwc->bchw", "float32", 64, 0.85),
        ("pairs", "bcw->bwc", "float32", 64, 0.85),
        ("pairs", "chwb->bhwc", "float32", 64, 0.60),
        ("pairs", "bhwc->chwb", "float32", 3, 0.55),
        ("pairs", "bhwc->bchw", "int16", 64, 0.45),
        ("fused", "bhwc->bchw", "uint8", 3, 0.85),
        ("accumulate", "bchw+chwb+bhwc+bchw->bhwc", "float32", 64, 0.60),
    ],
)
def test_goals(group, pattern, dtype, channels, goal):
    key = group, pattern, dtype, channels
    goals = {
        row.at_least for row in ROWS if (row.group, row.pattern, row.dtype, row.sizes[-1]) == key
    }
    assert goal in goals


def test_sums_have_2_to_8_gradients_in_one_layout_and_in_three():
    rows = [row for row in ROWS if row.kind == "accumulate"]
    kinds = {(len(row.sources), len(set(row.sources)), row.dtype) for row in rows}
    counts = [(2, 1), (4, 1), (4, 3), (8, 1), (8, 3)]
    assert {(*pair, dtype) for pair in counts for dtype in ("float32", "bfloat16")} <= kinds
    assert rows[-1].pattern == "3 bchw+3 chwb+2 bhwc->bhwc"


def test_shapes_and_bytes_of_a_row():
    row = Row("g", "fused", ("bhwc",), "bchw", "bhwc", (2, 4, 5, 3), "uint8", "float32")
    assert (row.bytes_read, row.bytes_written, row.traffic) == (120, 480, 600)
    assert (row.shape("bchw"), row.order("bhwc")) == ((2, 3, 4, 5), (0, 3, 1, 2))
    row = Row("g", "accumulate", ("bc", "cb"), "bc", "bc", (7, 3), "float32", "float32")
    assert (row.bytes_read, row.bytes_written) == (2 * 84, 84)


def test_random_rows_depend_on_the_seed_only_and_move_items():
    rows = list(random_rows(100, seed=3))
    assert rows == list(random_rows(100, seed=3)) != list(random_rows(100, seed=4))
    assert len({row.name for row in rows}) == 100
    assert {row.dtype == row.to_dtype for row in rows} == {True, False}
    for row in rows:
        assert SMALLEST <= row.traffic <= LARGEST
        assert 2 <= len(row.sizes) <= 6
        assert max(row.sizes) <= LONGEST
        order = [axis for axis in row.target if row.shape(axis) != (1,)]
        assert order != sorted(order), row.name


def test_rows_of_hptt_have_its_orders_and_a_quarter_of_its_longest_axis():
    rows = list(hptt_rows())
    assert len(rows) == 57
    # benchmark.exe 5 0 4 2 1 3 32 8 28 28 298: the first axis is the fastest
    (row,) = [row for row in rows if row.sizes == (32, 8, 28, 28, 75)]
    assert (row.sources, row.target) == (("yxwvu",), "xvwyu")
    assert row.shape("yxwvu") == (75, 28, 28, 8, 32)


def test_rows_of_channels_and_runs():
    channels = list(channel_rows())
    assert {row.shape("c")[0] for row in channels} == set(range(2, 65))
    assert len(channels) == 63 * 5 * 2
    assert len(channels[-1].formula["mean"]) == 64
    runs = list(run_rows())
    assert {row.sizes[-1] for row in runs} >= {8, 24, 56, 96, 4096}
    assert all(abs(prod(row.sizes) / 1e6 - 2) < 0.2 for row in runs[: len(runs) // 3])
    assert all(row.at_least for row in floor_rows())


@pytest.mark.parametrize("name", ["hptt57", "channels", "runs"])
def test_quick_sweeps_are_parts_of_the_others(name):
    quick, full = sweep_rows(name, quick=True), sweep_rows(name, quick=False)
    assert set(quick) <= set(full)
    assert 0 < len(quick) < len(full) / 3

"""The rows that no kernel was tuned for, and the summary of their results."""

from math import prod

import pytest

from layoutkit.bench import main
from layoutkit.bench.protocol import Times
from layoutkit.bench.results import Result, sweep_summary
from layoutkit.bench.rows import Row
from layoutkit.bench.run import Sweep
from layoutkit.bench.sweeps import (
    LARGEST,
    LONGEST,
    SMALLEST,
    channel_rows,
    floor_rows,
    hptt_rows,
    random_rows,
    run_rows,
)
from layoutkit.errors import ArgumentError, LayoutkitError


def test_random_rows_are_those_of_their_seed():
    rows = list(random_rows(50, seed=3))
    assert rows == list(random_rows(50, seed=3))
    assert rows != list(random_rows(50, seed=4))
    assert len({row.name for row in rows}) == 50
    for row in rows:
        assert SMALLEST <= row.traffic <= LARGEST
        assert 2 <= len(row.sizes) <= 6
        assert max(row.sizes) <= LONGEST
        assert set(row.target) == set(row.letters)
    assert {row.dtype == row.to_dtype for row in rows} == {True, False}


def test_a_conversion_of_a_user_is_measured_with_its_plan(capsys):
    assert main(quick=True, conversion=("bhwc->bchw", (2, 40, 50, 3), "uint8", "float32")) == 0
    output = capsys.readouterr().out
    assert "bhwc->bchw uint8->float32 (2, 40, 50, 3)" in output
    assert "  kernel    split" in output
    assert "  threads   " in output
    assert "  compiled  " in output
    assert "at worst" not in output


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"conversion": ("b(hw)->bhw", (2, 12), "u1", None)}, "measures axes of one letter each"),
        ({"conversion": ("hw->wh", (2, 12, 3), "u1", None)}, "rank 2"),
        ({"conversion": ("hw->wh", (2, 12), "u1", None), "sweep": "runs"}, "omit it, or the PATTE"),
        ({"conversion": ("hw->wh", (2, 12), "u1", None), "loop": True}, "PATTERN: measures rows"),
    ],
)
def test_conversions_that_are_not_measured(options, match):
    with pytest.raises(LayoutkitError, match=match):
        main(**options)


def test_no_random_row_keeps_the_order_of_its_axes():
    for row in random_rows(200, seed=0):
        order = [axis for axis in row.target if row.shape(axis) != (1,)]
        assert order != sorted(order), row.name


def test_rows_of_hptt_have_its_orders_and_a_quarter_of_its_longest_axis():
    rows = list(hptt_rows())
    assert len(rows) == 57
    assert [len(row.sizes) for row in rows].count(6) == 15
    # benchmark.exe 5 0 4 2 1 3 32 8 28 28 298: the first axis is the fastest
    (row,) = [row for row in rows if row.sizes == (32, 8, 28, 28, 75)]
    assert (row.sources, row.target) == (("yxwvu",), "xvwyu")
    assert row.shape("yxwvu") == (75, 28, 28, 8, 32)


def test_rows_of_channels_and_runs():
    channels = list(channel_rows())
    assert {row.shape("c")[0] for row in channels} == set(range(2, 65))
    assert len(channels) == 63 * 5 * 2
    assert {row.pattern for row in channels} == {"bhwc->bchw", "bchw->bhwc"}
    assert all(row.formula for row in channels if row.kind == "fused")
    assert len(channels[-1].formula["mean"]) == 64
    runs = list(run_rows())
    assert {row.sizes[-1] for row in runs} >= {8, 24, 56, 96, 4096}
    assert all(abs(prod(row.sizes) / 1e6 - 2) < 0.2 for row in runs[: len(runs) // 3])
    assert all(row.at_least for row in floor_rows())


@pytest.mark.parametrize("name", ["hptt57", "channels", "runs"])
def test_quick_sweeps_are_parts_of_the_others(name):
    rows = Sweep(name).rows(quick=True)
    assert 0 < len(rows) < len(Sweep(name).rows(quick=False)) / 3
    assert set(rows) <= set(Sweep(name).rows(quick=False))


def result(ours, **others):
    row = Row("random", "move", ("uv",), "vu", "uv", (round(1e6 * ours), 2), "uint8", "uint8")
    seconds = {"layoutkit": ours, **others}
    return Result(row, {name: Times({0: value}) for name, value in seconds.items()})


def test_the_summary_compares_with_the_fastest_library_of_each_row():
    results = [result(1.0, limit=0.5, NumPy=4.0, torch=2.0), result(2.0, limit=0.5, torch=1.0)]
    lines = sweep_summary(results, ["NumPy", "torch"])
    assert lines[0].startswith("2 rows, 1.00 times as fast as the fastest other library")
    assert "more than 5 % faster in 1 (50.0%), at worst 0.50" in lines[0]
    assert lines[1] == "NumPy: 4.00 (geometric mean of 1 rows), faster in 0, at worst 4.00"
    assert lines[3] == "share of the limit: median 0.38, 5th percentile 0.26, mean 0.38, worst 0.25"
    assert lines[4] == "    0.50 of torch's speed: uv->vu uint8 (2000000, 2)"


def test_sweeps_measure_alone():
    with pytest.raises(ArgumentError, match="--floor: its goals are for CPUs"):
        main(sweep="floor", device="cuda")
    with pytest.raises(ArgumentError, match="--random: measures rows of its own"):
        main(sweep="random", count=3, collate=True)


@pytest.mark.budget(0)
def test_a_short_sweep_is_measured(capsys):
    assert main(quick=True, sweep="random", count=2, seed=5) == 0
    printed = capsys.readouterr().out
    assert "2 rows," in printed
    assert "share of the limit" in printed

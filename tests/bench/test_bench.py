"""The benchmark: protocol on a fake clock, rows of tiny shapes, and output."""

import dataclasses
import gc
import io
import json
from statistics import median

import numpy as np
import pytest

import layoutkit
from layoutkit import bench
from layoutkit.bench import cases, run
from layoutkit.bench.host import limit_pass, streaming_is_faster
from layoutkit.bench.peers import NumPy, OpenCV, TorchPeer, available
from layoutkit.bench.protocol import Budget, Times, Variant, measure, paired_ratio, percentile
from layoutkit.bench.report import Table
from layoutkit.bench.results import Result, as_json, environment, geometric_mean, summary
from layoutkit.bench.rows import Row, all_rows
from layoutkit.buffers import empty
from layoutkit.kernels.cpu.params import LINE

pytestmark = pytest.mark.budget(20)

# ---- The protocol, on a clock that only calls advance --------------------------------------


class Clock:
    def __init__(self):
        self.now = 100.0
        self.log = []

    def __call__(self):
        return self.now

    def call(self, name, seconds):
        def advance():
            self.log.append(name)
            self.now += seconds() if callable(seconds) else seconds

        return advance

    def variant(self, name, seconds, sets=1, spin_seconds=0.0):
        calls = [self.call(f"{name}{number}", seconds) for number in range(sets)]
        return Variant(name, calls, spin_seconds)


def budget(seconds=10.0, warm_up=0.0, low=3, high=10, sample=0.0):
    return Budget(seconds, warm_up, low, high, sample)


def test_every_round_runs_every_variant_once_and_the_first_moves_on():
    clock = Clock()
    variants = [clock.variant(name, 0.01) for name in "abc"]
    measure(variants, budget(low=4, high=4), clock)
    warm_up = clock.log[:3]
    rounds = clock.log[3:]
    assert warm_up == ["a0", "b0", "c0"]
    assert rounds == ["a0", "b0", "c0", "b0", "c0", "a0", "c0", "a0", "b0", "a0", "b0", "c0"]


def test_sets_of_buffers_take_turns_call_by_call():
    clock = Clock()
    measure([clock.variant("a", 0.01, sets=3)], budget(low=5, high=5), clock)
    assert clock.log == ["a0", "a1", "a2", "a0", "a1", "a2", "a0", "a1"]


def test_times_are_per_call_and_short_calls_are_timed_together():
    clock = Clock()
    times = measure([clock.variant("a", 0.25)], budget(low=3, high=3, sample=1.0), clock)
    assert len(clock.log) == 1 + 3 * 4
    assert times["a"].rounds == {0: 0.25, 1: 0.25, 2: 0.25}


def test_warming_up_goes_by_the_clock_and_does_not_count():
    clock = Clock()
    cost = iter([1.0] * 5 + [0.25] * 100)
    times = measure(
        [clock.variant("a", lambda: next(cost))], budget(warm_up=5.0, low=3, high=3), clock
    )
    assert len(clock.log) == 5 + 3
    assert set(times["a"].rounds.values()) == {0.25}


def test_rounds_end_when_the_time_is_up_but_not_before_the_fewest():
    clock = Clock()
    times = measure([clock.variant("a", 1.0)], budget(seconds=5.0, low=2, high=50), clock)
    assert len(times["a"].rounds) == 5
    times = measure([clock.variant("a", 9.0)], budget(seconds=5.0, low=3, high=50), clock)
    assert len(times["a"].rounds) == 3
    times = measure([clock.variant("a", 0.1)], budget(seconds=5.0, low=3, high=7), clock)
    assert len(times["a"].rounds) == 7


def test_a_slow_variant_sits_out_when_it_has_had_its_share():
    clock = Clock()
    variants = [clock.variant("slow", 1.0), clock.variant("fast", 0.01)]
    times = measure(variants, budget(seconds=8.0, low=2, high=30), clock)
    assert len(times["fast"].rounds) == 30
    assert len(times["slow"].rounds) == 4
    assert set(times["slow"].rounds) < set(times["fast"].rounds)


def test_after_a_variant_that_lingers_the_next_one_runs_untimed():
    clock = Clock()
    variants = [clock.variant("noisy", 0.01, spin_seconds=0.05), clock.variant("next", 0.02)]
    times = measure(variants, budget(low=1, high=1), clock)
    assert clock.log[2:] == ["noisy0", "next0", "next0", "next0", "next0"]
    assert times["next"].rounds == pytest.approx({0: 0.02})


def test_the_collector_is_off_while_timing_and_on_again_afterwards():
    seen = []
    measure([Variant("a", [lambda: seen.append(gc.isenabled())])], budget(sample=0.0))
    assert seen
    assert not any(seen)
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        measure([Variant("a", [lambda: 1 / 0])], budget())
    assert gc.isenabled()


def test_median_and_spread():
    times = Times(dict(enumerate([5.0, 1.0, 4.0, 2.0, 3.0])))
    assert (times.median, times.low, times.high) == (3.0, pytest.approx(1.4), pytest.approx(4.6))


@pytest.mark.parametrize("percent", [0, 10, 25, 50, 90, 100])
@pytest.mark.parametrize("count", [1, 2, 5, 10])
def test_percentiles_are_numpys(count, percent):
    values = np.random.default_rng(count).random(count)
    assert percentile(values, percent) == pytest.approx(np.percentile(values, percent))


def test_ratios_are_paired_by_round():
    ours = Times({0: 1.0, 1: 2.0, 2: 10.0, 3: 7.0})
    theirs = Times({0: 3.0, 1: 6.0, 2: 30.0, 9: 1000.0})
    assert paired_ratio(theirs, ours) == 3.0
    assert median(theirs.rounds.values()) / median(ours.rounds.values()) != 3.0


# ---- Rows ----------------------------------------------------------------------------------

ROWS = all_rows()


def test_the_twelve_pairs_are_all_ordered_pairs_of_the_views_layouts():
    pairs = [row for row in ROWS if row.group == "pairs"]
    images = {row.pattern for row in pairs if len(row.sizes) == 4}
    sequences = {row.pattern for row in pairs if len(row.sizes) == 3}
    assert len(images) == len(sequences) == 6
    assert {frozenset(pattern.split("->")) for pattern in images} == {
        frozenset(pair) for pair in [("bhwc", "bchw"), ("bhwc", "chwb"), ("bchw", "chwb")]
    }
    shapes = {(64, 224, 224, 3), (64, 56, 56, 64), (128, 32, 32, 3), (256, 512, 64)}
    assert {row.sizes for row in pairs} == shapes
    for shape in shapes:
        actual = {(row.pattern, row.dtype) for row in pairs if row.sizes == shape}
        assert len(actual) == 6 * 3


def test_rows_have_distinct_names_and_quick_is_a_part():
    assert len({row.name for row in ROWS}) == len(ROWS)
    quick = all_rows(quick=True)
    assert set(quick) < set(ROWS)
    assert {row.group for row in quick} == {row.group for row in ROWS}
    assert len(quick) < 30


@pytest.mark.parametrize(
    ("pattern", "dtype", "channels", "goal"),
    [
        ("bhwc->bchw", "float32", 64, 0.85),
        ("chwb->bchw", "float32", 64, 0.85),
        ("bcw->bwc", "float32", 64, 0.85),
        ("chwb->bhwc", "float32", 64, 0.60),
        ("bhwc->chwb", "float32", 3, 0.55),
        ("bhwc->bchw", "int16", 64, 0.45),
        ("bhwc->bchw", "uint8", 3, 0.45),
    ],
)
def test_goals_are_those_of_the_design(pattern, dtype, channels, goal):
    actual = {
        row.at_least
        for row in ROWS
        if row.group == "pairs"
        and (row.pattern, row.dtype, row.sizes[-1]) == (pattern, dtype, channels)
    }
    assert actual == {goal}


def test_fused_and_accumulate_goals():
    goals = {(row.group, row.to_dtype): row.at_least for row in ROWS if row.at_least}
    assert goals["fused", "float32"] == 0.85
    assert goals["fused", "bfloat16"] == 0.60
    assert goals["accumulate", "float32"] == 0.60


def test_sums_of_few_and_many_gradients_in_one_layout_and_in_three():
    rows = [row for row in ROWS if row.kind == "accumulate"]
    kinds = {(len(row.sources), len(set(row.sources)), row.dtype) for row in rows}
    for dtype in ("float32", "bfloat16"):
        assert {(2, 1, dtype), (4, 1, dtype), (4, 3, dtype), (8, 1, dtype), (8, 3, dtype)} <= kinds
    assert [row.pattern for row in rows if row.at_least] == ["bchw+chwb+bhwc+bchw->bhwc"]
    assert rows[-1].pattern == "3 bchw+3 chwb+2 bhwc->bhwc"


def test_hostile_rows_are_hostile():
    hostile = [row for row in ROWS if row.group == "hostile"]
    assert {row.sizes[0] for row in hostile} >= {1, 255, 4096}
    assert {row.sizes[-1] for row in hostile} >= {5, 17}
    assert any(len(r.sizes) == 4 and r.sizes[1] * r.sizes[2] % 2 for r in hostile)
    assert any(r.sizes[-1] * 4 % 4096 == 0 and r.letters == "bwc" for r in hostile)


def test_bytes_of_a_row():
    row = Row("g", "fused", ("bhwc",), "bchw", "bhwc", (2, 4, 5, 3), "uint8", "float32")
    assert (row.bytes_read, row.bytes_written) == (120, 480)
    assert (row.shape("bchw"), row.order("bhwc")) == ((2, 3, 4, 5), (0, 3, 1, 2))
    row = Row("g", "accumulate", ("bc", "cb"), "bc", "bc", (7, 3), "float32", "float32")
    assert (row.bytes_read, row.bytes_written) == (2 * 84, 84)


SMALL = {64: 5, 224: 6, 56: 4, 128: 3, 32: 7, 256: 6, 512: 9, 4096: 33, 16: 2, 1024: 20, 255: 7}
SMALL |= {112: 5, 55: 3, 57: 7, 223: 9, 225: 3}


def tiny(row):
    return dataclasses.replace(row, sizes=tuple(SMALL.get(size, size) for size in row.sizes))


@pytest.fixture
def _few_sets(monkeypatch):
    monkeypatch.setattr(cases, "MOST_SETS", cases.FEWEST_SETS)


@pytest.mark.budget(10)
@pytest.mark.usefixtures("_few_sets")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_gives_right_results_with_every_library(row):
    peers = available(layoutkit.get_num_threads())
    case = cases.prepare(tiny(row), peers, fresh_peers=True)
    assert case.wrong == []
    names = [variant.name for variant in case.variants]
    assert set(names) >= {"layoutkit", "layoutkit, fresh", "NumPy", "NumPy, fresh"}
    assert ("limit" in names) == (row.kind != "call")
    assert ("Converter" in names) == (row.kind == "call")
    assert ("View, cached get" in names) == (row.kind == "call")
    for variant in case.variants:
        assert len(variant.calls) == cases.FEWEST_SETS
        for call in variant.calls:
            call()


@pytest.mark.parametrize("make", [TorchPeer, OpenCV])
def test_a_library_writes_into_the_output_that_it_is_given(make):
    pytest.importorskip({"TorchPeer": "torch", "OpenCV": "cv2"}[make.__name__])
    peer = make(1)
    fused = [tiny(row) for row in ROWS if row.kind == "fused" and row.to_dtype == "float32"]
    sources = [np.random.default_rng(0).integers(0, 256, fused[0].shape("bhwc"), np.uint8)]
    out = np.zeros(fused[0].shape("bchw"), np.float32)
    call = peer.into(fused[0], sources, out)
    call()
    assert cases.is_right(fused[0], out, cases.reference(fused[0], sources))
    assert peer.version


class Liar(NumPy):
    name = "Liar"

    def into(self, row, sources, out):
        return lambda: None  # leaves the previous values

    def fresh(self, row, sources):
        return lambda: np.zeros(row.shape(row.target), np.float32)


@pytest.mark.usefixtures("_few_sets")
@pytest.mark.parametrize("kind", ["move", "fused", "accumulate", "call"])
def test_a_wrong_result_is_found_and_not_timed(kind):
    row = next(tiny(row) for row in ROWS if row.kind == kind)
    case = cases.prepare(row, [NumPy(), Liar()], fresh_peers=True)
    assert case.wrong == ["Liar", "Liar, fresh"]
    assert {"Liar", "Liar, fresh"}.isdisjoint(variant.name for variant in case.variants)


@pytest.mark.parametrize("wrong_by", [1e-3, np.nan])
def test_one_wrong_element_is_enough(wrong_by):
    row = tiny(next(row for row in ROWS if row.kind == "fused"))
    sources = [np.random.default_rng(0).integers(0, 256, row.shape("bhwc"), np.uint8)]
    expected = cases.reference(row, sources)
    result = expected.copy()
    assert cases.is_right(row, result, expected)
    result[0, 1, 2, 3] += wrong_by
    assert not cases.is_right(row, result, expected)
    assert not cases.is_right(row, expected[:, :, :, :-1], expected)
    assert not cases.is_right(row, expected.astype(np.float64), expected)


# ---- The limit -----------------------------------------------------------------------------


def random_bytes(count, seed=0):
    array = empty((count,), np.uint8)
    array[:] = np.random.default_rng(seed).integers(0, 256, count, np.uint8)
    return array


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("lines", [1, 2, 17, 5000])
def test_the_limit_of_equal_sizes_reads_and_writes_everything(streaming, lines):
    source = random_bytes(lines * LINE)
    target = random_bytes(lines * LINE, 1)
    limit_pass([source], target, streaming)()
    assert np.array_equal(source, target)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("lines", [1, 3, 3000])
def test_the_limit_writes_more_than_it_reads(streaming, lines):
    source = random_bytes(lines * LINE)
    target = random_bytes(4 * lines * LINE, 1)
    limit_pass([source], target, streaming)()
    expected = np.repeat(source.reshape(lines, 1, LINE), 4, axis=1)
    assert np.array_equal(target, expected.ravel())


@pytest.mark.parametrize("streaming", [False, True])
def test_the_limit_reads_more_than_it_writes(streaming):
    source = random_bytes(4 * 700 * LINE)
    target = random_bytes(700 * LINE, 1)
    limit_pass([source], target, streaming)()
    expected = np.bitwise_xor.reduce(source.reshape(700, 4, LINE), axis=1)
    assert np.array_equal(target, expected.ravel())


def test_the_limit_of_several_sources_reads_all_of_them():
    sources = [random_bytes(999 * LINE, seed) for seed in range(4)]
    target = random_bytes(999 * LINE, 9)
    limit_pass(sources, target, streaming=False)()
    assert np.array_equal(target, np.bitwise_xor.reduce(sources, axis=0))


def test_the_limit_leaves_out_less_than_a_line_and_writes_nothing_beyond():
    source = random_bytes(1000)
    memory = random_bytes(1100, 1)
    before = memory.copy()
    limit_pass([source], memory[:1000], streaming=False)()
    assert np.array_equal(memory[:960], source[:960])
    assert np.array_equal(memory[960:], before[960:])


def test_both_kinds_of_stores_are_tried():
    assert streaming_is_faster([random_bytes(1 << 16)], random_bytes(1 << 16)) in (True, False)


# ---- Results, table, files -----------------------------------------------------------------


def result(row=ROWS[0], wrong=(), **seconds):
    times = {name: Times({0: value, 1: value, 2: value}) for name, value in seconds.items()}
    return Result(row, times, wrong)


def test_shares_speeds_and_speedups():
    row = Row("g", "move", ("bc",), "cb", "bc", (1000, 1000), "uint8", "uint8", 0.5)
    actual = result(row, limit=1e-3, layoutkit=2e-3, NumPy=8e-3)
    assert actual.of_limit == pytest.approx(0.5)
    assert actual.reached
    assert actual.speedup("NumPy") == pytest.approx(4)
    assert actual.speedup("torch") is None
    assert actual.gigabytes_per_second("layoutkit") == pytest.approx(1.0)
    assert actual.gigabytes_per_second("torch") is None
    assert not result(row, limit=0.9e-3, layoutkit=2e-3).reached
    assert result(row, layoutkit=2e-3).of_limit is None
    assert result(row, layoutkit=2e-3).reached is None


def test_the_figure_has_the_ratios_of_the_table():
    """Medians of three ratios can be inconsistent if rounds differ: only two can be shown."""
    row = Row("g", "move", ("bc",), "cb", "bc", (1000, 1000), "uint8", "uint8")
    rounds = {"limit": (1.0, 2.0, 9.0), "layoutkit": (2.0, 2.0, 4.0), "NumPy": (3.0, 10.0, 8.0)}
    actual = Result(row, {name: Times(dict(enumerate(times))) for name, times in rounds.items()})
    assert actual.share("NumPy") == actual.of_limit / actual.speedup("NumPy")
    assert actual.share("NumPy") != paired_ratio(actual.times["limit"], actual.times["NumPy"])
    assert actual.share("layoutkit") == actual.of_limit
    assert actual.share("torch") is None


def test_geometric_mean():
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([]) is None


def test_summary_counts_goals_and_names_what_is_slower_or_wrong():
    moves = [row for row in ROWS if row.kind == "move"]
    results = [
        result(moves[0], limit=1.0, layoutkit=1.0, NumPy=2.0),
        result(moves[1], limit=0.1, layoutkit=1.0, NumPy=8.0),
        result(moves[2], ["torch"], limit=1.0, layoutkit=1.0, NumPy=0.5),
        result(ROWS[-1], layoutkit=1.0, NumPy=0.1),
    ]
    total = summary(results, ["NumPy", "torch"])
    assert total["speedup"]["NumPy"] == pytest.approx(2.0)
    assert total["speedup"]["torch"] is None
    assert (total["goals_reached"], total["goals"]) == (2, 3)
    assert total["slower_than"] == [f"{moves[2].name}: NumPy is 2.00 times faster"]
    assert total["wrong"] == [f"{moves[2].name}: torch"]


def test_the_table_shows_what_was_measured():
    stream = io.StringIO()
    table = Table(stream, ["NumPy"])
    table.begin(environment([NumPy()], quick=True))
    row = dataclasses.replace(ROWS[0], at_least=0.6)
    actual = result(row, ["torch"], limit=1e-3, layoutkit=2e-3, NumPy=9e-3)
    table.add(actual)
    table.end([actual])
    text = stream.getvalue()
    line = next(line for line in text.splitlines() if line.startswith(row.name))
    for cell in ("2.000", "50 %", "60 % !", "x4.5"):
        assert cell in line
    assert f"NumPy {np.__version__}" in text
    assert "torch: WRONG RESULT" in text
    assert "rows that reach their goal: 0 of 1" in text
    assert "4.5 times as fast as NumPy" in text


def test_json_holds_every_number():
    row = ROWS[0]
    about = environment([NumPy()], quick=False)
    data = as_json([result(row, limit=1e-3, layoutkit=2e-3, NumPy=4e-3)], about, ["NumPy"])
    data = json.loads(json.dumps(data))
    keys = {"schema", "date", "command", "quick", "cpu", "cpus", "threads", "system", "python"}
    assert set(data) == keys | {"versions", "rows", "summary"}
    (entry,) = data["rows"]
    assert entry["name"] == row.name
    assert entry["of_limit"] == pytest.approx(0.5)
    assert entry["reached"] is (row.at_least <= 0.5)
    assert entry["bytes_read"] == row.bytes_read
    assert set(entry["variants"]) == {"limit", "layoutkit", "NumPy"}
    numbers = entry["variants"]["NumPy"]
    assert numbers["median"] == numbers["p10"] == numbers["p90"] == pytest.approx(4e-3)
    assert numbers["rounds"] == 3
    assert numbers["layoutkit_is_faster"] == pytest.approx(2.0)


@pytest.fixture
def _tiny_bench(monkeypatch, _few_sets):
    kinds = {row.group: tiny(row) for row in ROWS}
    monkeypatch.setattr(run, "all_rows", lambda quick: list(kinds.values()))
    monkeypatch.setattr(run, "QUICK", Budget(0.005, 0.0, 2, 3, 0.0))


@pytest.mark.usefixtures("_tiny_bench")
def test_the_whole_benchmark_writes_table_json_and_figure(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    numbers = tmp_path / "numbers.json"
    figure = tmp_path / "figure.png"
    assert bench.main(quick=True, plot=str(figure), json=str(numbers)) == 0
    text = capsys.readouterr().out
    data = json.loads(numbers.read_text())
    assert [row["group"] for row in data["rows"]] == list(dict.fromkeys(r.group for r in ROWS))
    assert all(row["name"] in text for row in data["rows"])
    assert "OMP_WAIT_POLICY=passive" in data["openmp"]
    assert data["openmp"] in text
    assert all(row["wrong"] == [] for row in data["rows"])
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_only_and_limit_select_the_rows(monkeypatch, capsys, tmp_path):
    rows = [row for row in all_rows() if row.sizes == (128, 32, 32, 3)]
    monkeypatch.setattr(run, "all_rows", lambda quick: rows)
    monkeypatch.setattr(run, "QUICK", budget(seconds=0.0, low=1, high=1))
    path = tmp_path / "results.json"
    selected = [row.name for row in rows if "bchw uint8 (" in row.name]
    assert len(selected) == 2
    assert bench.main(quick=True, only=r"bchw uint8 \(", json=str(path)) == 0
    assert [row["name"] for row in json.loads(path.read_text())["rows"]] == selected
    capsys.readouterr()
    assert bench.main(quick=True, only=r"bchw uint8 \(", limit=0) == 0
    *_, title, first, second = capsys.readouterr().out.splitlines()
    assert title == "not measured in 0 s:"
    assert [first.strip(), second.strip()] == selected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": "bhcw"}, "--only 'bhcw' matches none of the .* rows, such as 'bhwc->bchw float"),
        ({"only": "("}, "--only '.' is not a regular expression"),
        ({"only": "x", "loop": True}, "--only and --limit: apply to tables of rows"),
        ({"limit": 3, "collate": True}, "--collate: prints one table"),
    ],
)
def test_only_and_limit_that_select_nothing(options, message):
    with pytest.raises(layoutkit.ArgumentError, match=message):
        bench.main(quick=True, **options)


@pytest.mark.usefixtures("_tiny_bench")
def test_a_wrong_result_of_ours_is_exit_code_1(monkeypatch, capsys):
    monkeypatch.setattr(layoutkit, "convert", lambda x, pattern, out=None, **_: out)
    assert bench.main(quick=True) == 1
    assert "layoutkit: WRONG RESULT" in capsys.readouterr().out

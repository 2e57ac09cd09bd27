"""The benchmark of conversions: checked variants, the limit, results, and whole runs."""

import dataclasses
import io
import json

import numpy as np
import pytest

import layoutkit
from layoutkit import bench
from layoutkit.bench import cases, run
from layoutkit.bench.host import limit_pass, streaming_is_faster
from layoutkit.bench.peers import NumPy, available
from layoutkit.bench.protocol import Budget, Times, paired_ratio
from layoutkit.bench.report import Report
from layoutkit.bench.results import Result, as_json, environment, summary, sweep_summary
from layoutkit.bench.rows import Row, all_rows
from layoutkit.buffers import empty
from layoutkit.kernels.cpu.params import LINE

pytestmark = pytest.mark.budget(20)

ROWS = all_rows()
SMALL = {64: 5, 224: 6, 56: 4, 128: 3, 32: 7, 256: 6, 512: 9, 4096: 33, 16: 2, 1024: 20, 255: 7}
SMALL |= {112: 5, 55: 3, 57: 7, 223: 9, 225: 3}


def tiny(row):
    return dataclasses.replace(row, sizes=tuple(SMALL.get(size, size) for size in row.sizes))


@pytest.fixture
def _few_sets(monkeypatch):
    monkeypatch.setattr(cases, "MOST_SETS", cases.FEWEST_SETS)


# ---- Variants ------------------------------------------------------------------------------


@pytest.mark.budget(10)
@pytest.mark.usefixtures("_few_sets")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_gives_right_results_with_every_library(row):
    case = cases.prepare(tiny(row), available(layoutkit.get_num_threads()), fresh_peers=True)
    assert (case.wrong, case.failed) == ([], {})
    names = {variant.name for variant in case.variants}
    assert names >= {"layoutkit", "layoutkit, fresh", "NumPy", "NumPy, fresh"}
    is_call = row.kind == "call"
    assert ("limit" in names, "View, cached get" in names) == (not is_call, is_call)
    for variant in case.variants:
        assert len(variant.calls) == cases.FEWEST_SETS
        for call in variant.calls:
            call()


class Liar(NumPy):
    """A peer whose result is the content of the output before, or zeros."""

    name = "Liar"

    def into(self, row, sources, out):
        return lambda: None

    def fresh(self, row, sources):
        return lambda: np.zeros(row.shape(row.target), np.float32)


class Broken(NumPy):
    name = "Broken"

    def into(self, row, sources, out):
        raise ValueError("no such kernel")

    def fresh(self, row, sources):
        return lambda: 1 / 0


@pytest.mark.usefixtures("_few_sets")
@pytest.mark.parametrize("kind", ["move", "fused", "accumulate", "call"])
def test_wrong_and_failed_variants_are_named_and_not_timed(kind):
    row = next(tiny(row) for row in ROWS if row.kind == kind)
    case = cases.prepare(row, [NumPy(), Liar(), Broken()], fresh_peers=True)
    assert case.wrong == ["Liar", "Liar, fresh"]
    assert case.failed == {
        "Broken": "ValueError: no such kernel",
        "Broken, fresh": "ZeroDivisionError: division by zero",
    }
    names = {variant.name for variant in case.variants}
    assert {"layoutkit", "NumPy"} <= names
    assert not any(name.startswith(("Liar", "Broken")) for name in names)


@pytest.mark.parametrize("difference", [1e-3, np.nan])
def test_one_wrong_element_is_enough(difference):
    row = tiny(next(row for row in ROWS if row.kind == "fused"))
    sources = [np.random.default_rng(0).integers(0, 256, row.shape("bhwc"), np.uint8)]
    expected = cases.reference(row, sources)
    result = expected.copy()
    assert cases.is_right(row, result, expected)
    result[0, 1, 2, 3] += difference
    assert not cases.is_right(row, result, expected)
    assert not cases.is_right(row, expected[:, :, :, :-1], expected)
    assert not cases.is_right(row, expected.astype(np.float64), expected)


# ---- The limit -----------------------------------------------------------------------------


def random_bytes(count, seed=0):
    array = empty((count,), np.uint8)
    array[:] = np.random.default_rng(seed).integers(0, 256, count, np.uint8)
    return array


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("lines", [1, 17, 5000])
@pytest.mark.parametrize(
    ("sources", "reads", "writes"), [(1, 1, 1), (1, 1, 4), (1, 4, 1), (4, 1, 1)]
)
def test_the_limit_reads_and_writes_all_bytes(streaming, lines, sources, reads, writes):
    arrays = [random_bytes(lines * reads * LINE, seed) for seed in range(sources)]
    target = random_bytes(lines * writes * LINE, 9)
    limit_pass(arrays, target, streaming)()
    groups = np.bitwise_xor.reduce(arrays, axis=0).reshape(lines, reads, LINE)
    expected = np.bitwise_xor.reduce(groups, axis=1)[:, None].repeat(writes, 1)
    np.testing.assert_array_equal(target, expected.ravel())


def test_the_limit_writes_whole_lines_only():
    source, memory = random_bytes(1000), random_bytes(1100, 1)
    before = memory.copy()
    limit_pass([source], memory[:1000], streaming=False)()
    np.testing.assert_array_equal(memory[:960], source[:960])
    np.testing.assert_array_equal(memory[960:], before[960:])
    assert streaming_is_faster([random_bytes(1 << 16)], random_bytes(1 << 16)) in (True, False)


# ---- Results -------------------------------------------------------------------------------


def result(row=ROWS[0], wrong=(), **seconds):
    times = {name: Times(dict.fromkeys(range(3), value)) for name, value in seconds.items()}
    return Result(row, times, wrong)


def test_shares_speeds_and_speedups():
    row = Row("g", "move", ("bc",), "cb", "bc", (1000, 1000), "uint8", "uint8", 0.5)
    actual = result(row, limit=1e-3, layoutkit=2e-3, NumPy=8e-3)
    assert actual.of_limit == pytest.approx(0.5)
    assert actual.reached
    assert actual.speedup("NumPy") == pytest.approx(4)
    assert actual.gigabytes_per_second("layoutkit") == pytest.approx(1.0)
    assert actual.speedup("torch") is actual.gigabytes_per_second("torch") is None
    assert not result(row, limit=0.9e-3, layoutkit=2e-3).reached
    assert result(row, layoutkit=2e-3).reached is None


def test_the_chart_has_the_ratios_of_the_table():
    """Medians of three ratios can be inconsistent if rounds differ: only two can be shown."""
    rounds = {"limit": (1.0, 2.0, 9.0), "layoutkit": (2.0, 2.0, 4.0), "NumPy": (3.0, 10.0, 8.0)}
    times = {name: Times(dict(enumerate(seconds))) for name, seconds in rounds.items()}
    actual = Result(ROWS[0], times)
    assert actual.share("NumPy") == actual.of_limit / actual.speedup("NumPy")
    assert actual.share("NumPy") != paired_ratio(times["limit"], times["NumPy"])
    assert actual.share("torch") is None


def test_the_summary_counts_goals_and_names_slower_and_wrong_rows():
    moves = [row for row in ROWS if row.kind == "move"]
    results = [
        result(moves[0], limit=1.0, layoutkit=1.0, NumPy=2.0),
        result(moves[1], limit=0.1, layoutkit=1.0, NumPy=8.0),
        result(moves[2], ["torch"], limit=1.0, layoutkit=1.0, NumPy=0.5),
        result(ROWS[-1], layoutkit=1.0, NumPy=0.1),
    ]
    assert summary(results, ["NumPy", "torch"]) == {
        "speedup": {"NumPy": pytest.approx(2.0), "torch": None},
        "goals": 3,
        "goals_reached": 2,
        "slower_than": [f"{moves[2].name}: NumPy is 2.00 times faster"],
        "wrong": [f"{moves[2].name}: torch"],
        "failed": [],
    }


def test_the_summary_of_a_sweep_compares_with_the_fastest_library_of_each_row():
    row = Row("random", "move", ("uv",), "vu", "uv", (1000, 2), "uint8", "uint8")
    results = [
        result(row, layoutkit=1.0, limit=0.5, NumPy=4.0, torch=2.0),
        result(row, layoutkit=2.0, limit=0.5, torch=1.0),
    ]
    lines = sweep_summary(results, ["NumPy", "torch"])
    assert lines[0].startswith("2 rows, 1.00 times as fast as the fastest other library")
    assert "more than 5 % faster in 1 (50.0%), at worst 0.50" in lines[0]
    assert lines[1] == "NumPy: 4.00 (geometric mean of 1 rows), faster in 0, at worst 4.00"
    assert lines[3] == "share of the limit: median 0.38, 5th percentile 0.26, mean 0.38, worst 0.25"
    assert lines[4] == "    0.50 of torch's speed: uv->vu uint8 (1000, 2)"


def test_table_and_json_have_every_number():
    row = dataclasses.replace(ROWS[0], at_least=0.6)
    about = environment([NumPy()], quick=True) | {"openmp": "OMP_WAIT_POLICY"}
    actual = result(row, ["torch"], limit=1e-3, layoutkit=2e-3, NumPy=9e-3)
    stream = io.StringIO()
    report = Report(["NumPy"], stream=stream)
    report.begin(about)
    report.add(actual)
    report.end([actual])
    text = stream.getvalue()
    line = next(line for line in text.splitlines() if line.startswith(row.name))
    assert all(cell in line for cell in ("2.000", "50 %", "60 % !", "x4.5"))
    for words in ("torch: WRONG RESULT", "rows that reach their goal: 0 of 1",
                  "4.5 times as fast as NumPy", f"NumPy {np.__version__}"):  # fmt: skip
        assert words in text
    data = json.loads(json.dumps(as_json([actual], about, ["NumPy"])))
    assert data.keys() >= {"schema", "summary", *about}
    (entry,) = data["rows"]
    assert (entry["name"], entry["reached"], entry["wrong"]) == (row.name, False, ["torch"])
    assert entry["of_limit"] == pytest.approx(0.5)
    numbers = entry["variants"]["NumPy"]
    assert numbers["median"] == numbers["p10"] == numbers["p90"] == pytest.approx(9e-3)
    assert (numbers["rounds"], numbers["layoutkit_is_faster"]) == (3, pytest.approx(4.5))


# ---- Whole runs ----------------------------------------------------------------------------


@pytest.fixture
def _tiny_bench(monkeypatch, _few_sets):
    kinds = {row.group: tiny(row) for row in ROWS}
    monkeypatch.setattr(run, "all_rows", lambda quick: list(kinds.values()))
    monkeypatch.setattr(run, "QUICK", Budget(0.005, 0.0, 2, 3, 0.0))


@pytest.mark.budget(0)
@pytest.mark.usefixtures("_tiny_bench")
def test_a_run_writes_table_json_and_chart(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    numbers, chart = tmp_path / "numbers.json", tmp_path / "figure.png"
    assert bench.main(quick=True, plot=str(chart), json=str(numbers)) == 0
    text = capsys.readouterr().out
    data = json.loads(numbers.read_text())
    assert [row["group"] for row in data["rows"]] == list(dict.fromkeys(r.group for r in ROWS))
    assert all(row["name"] in text and row["wrong"] == [] for row in data["rows"])
    assert "OMP_WAIT_POLICY=passive" in data["openmp"] in text
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_only_and_limit_select_the_rows(monkeypatch, capsys, tmp_path):
    rows = [row for row in all_rows() if row.sizes == (128, 32, 32, 3)]
    monkeypatch.setattr(run, "all_rows", lambda quick: rows)
    monkeypatch.setattr(run, "QUICK", Budget(0.0, 0.0, 1, 1, 0.0))
    path = tmp_path / "results.json"
    selected = [row.name for row in rows if "bchw uint8 (" in row.name]
    assert bench.main(quick=True, only=r"bchw uint8 \(", json=str(path)) == 0
    assert [row["name"] for row in json.loads(path.read_text())["rows"]] == selected
    capsys.readouterr()
    assert bench.main(quick=True, only=r"bchw uint8 \(", limit=0) == 0
    *_, title, first, second = capsys.readouterr().out.splitlines()
    assert title == "not measured in 0 s:"
    assert [first.strip(), second.strip()] == selected


@pytest.mark.usefixtures("_tiny_bench")
def test_a_wrong_result_of_layoutkit_is_exit_code_1(monkeypatch, capsys):
    monkeypatch.setattr(layoutkit, "convert", lambda x, pattern, out=None, **_: out)
    assert bench.main(quick=True) == 1
    assert "layoutkit: WRONG RESULT" in capsys.readouterr().out


def test_one_conversion_is_measured_with_its_plan(capsys):
    conversion = ("bhwc->bchw", (2, 40, 50, 3), "uint8", "float32")
    assert bench.main(quick=True, conversion=conversion) == 0
    output = capsys.readouterr().out
    assert "bhwc->bchw uint8->float32 (2, 40, 50, 3)" in output
    assert all(words in output for words in ("  kernel    split", "  threads   ", "  compiled  "))
    assert "at worst" not in output


@pytest.mark.budget(0)
def test_a_sweep_is_measured(capsys):
    assert bench.main(table="random", quick=True, count=2, seed=5) == 0
    printed = capsys.readouterr().out
    assert "2 rows," in printed
    assert "share of the limit" in printed

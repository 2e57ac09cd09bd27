"""`bench --loop`: turns on a fake clock, rules on made-up times, runs on tiny arrays."""

import importlib.util
import json
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

import layoutkit
from layoutkit import bench, cli
from layoutkit.bench import loop
from layoutkit.bench.loop import (
    Column,
    Situation,
    all_situations,
    make_columns,
    make_loop_row,
    take_turns,
)
from layoutkit.bench.peers import NumPy
from layoutkit.bench.protocol import Budget
from layoutkit.bench.report import markdown
from layoutkit.bench.results import ALL, NUMPY, ONE, PAUSED, TORCH, LoopResult, Spread, load
from layoutkit.errors import ArgumentError

# ---- Turns, on a clock that only calls advance -----------------------------------------------


class Clock:
    def __init__(self):
        self.now = 100.0
        self.log = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.log.append("sleep")
        self.now += seconds

    def call(self, name, seconds):
        def advance():
            self.log.append(f"{name}{layoutkit.get_num_threads()}")
            self.now += seconds

        return advance

    def gap(self):
        self.log.append("gap")
        self.now += 5.0


@pytest.fixture
def clock():
    threads = layoutkit.get_num_threads()
    yield Clock()
    layoutkit.set_num_threads(threads)


def turns(clock, columns, rounds=1, **budget):
    bounds = {"seconds": 0.0, "warm_up": 0.0, "min_rounds": rounds, "max_rounds": rounds} | budget
    return take_turns(columns, clock.gap, Budget(**bounds), clock, clock.sleep)


def test_a_sample_is_the_situation_a_call_the_situation_and_a_timed_call(clock):
    times = turns(clock, [Column("a", clock.call("a", 0.5), 2)])
    assert clock.log == ["gap", "a2", "gap", "a2"] * 2  # an uncounted round, and a counted one
    assert times["a"].rounds == {0: 0.5}


def test_every_other_round_goes_backwards_with_each_columns_threads(clock):
    columns = [Column("a", clock.call("a", 0.5), 1), Column("b", clock.call("b", 0.25), 3)]
    times = turns(clock, columns, rounds=3)
    calls = [name for name in clock.log if name != "gap"]
    assert calls[4:] == ["a1", "a1", "b3", "b3", "b3", "b3", "a1", "a1", "a1", "a1", "b3", "b3"]
    assert set(times["a"].rounds.values()) == {0.5}
    assert set(times["b"].rounds.values()) == {0.25}


def test_a_pause_lies_between_the_situation_and_the_call(clock):
    times = turns(clock, [Column("a", clock.call("a", 0.5), 1, pause=0.03)])
    assert clock.log[:6] == ["gap", "sleep", "a1", "gap", "sleep", "a1"]
    assert times["a"].rounds == {0: 0.5}


def test_who_follows_threads_that_spin_goes_on_untimed_until_they_sleep(clock):
    columns = [Column("n", clock.call("n", 1.0), 1), Column("t", clock.call("t", 1.0), 1, 15.0)]
    turns(clock, columns, rounds=1)
    # The uncounted round runs backwards: n follows t, in turns of 6 seconds.
    calls = [name for name in clock.log if name != "gap"]
    assert calls == ["t1", "t1", "n1", "n1", "n1", "n1", "n1", "n1", "t1", "t1"]


def test_rounds_end_when_the_time_is_up_but_not_before_the_fewest(clock):
    columns = [Column("a", clock.call("a", 1.0), 1)]
    assert len(turns(clock, columns, seconds=40.0, min_rounds=2, max_rounds=9)["a"].rounds) == 3
    assert len(turns(clock, columns, seconds=0.0, min_rounds=2, max_rounds=9)["a"].rounds) == 2


# ---- Situations ------------------------------------------------------------------------------


def test_situations_are_those_that_are_promised():
    names = [situation.name for situation in all_situations()]
    assert len(set(names)) == len(names)
    assert names[:5] == ["back to back"] + [f"{ms} ms of sleep" for ms in (0.1, 1, 5, 50)]
    assert names[5:] == [
        "1 ms of Python",
        "5 ms of Python",
        "a copy of 32 MB",
        "beside a thread",
    ]


def test_sleep_and_python_take_their_time():
    for situation in all_situations():
        if situation.name in ("1 ms of sleep", "1 ms of Python"):
            began = time.perf_counter()
            situation.gap()
            assert time.perf_counter() - began >= 0.001


def test_the_product_of_torch_comes_last_and_with_a_pause():
    torch = pytest.importorskip("torch")
    situation = all_situations(torch)[-1]
    assert (situation.name, situation.paused) == ("right after torch.mm", True)
    assert situation.gap().shape == (loop._SIDE, loop._SIDE)


def test_beside_a_thread_there_is_one_that_converts_until_the_end():
    (situation,) = [item for item in all_situations() if item.name == "beside a thread"]
    called = threading.Event()
    seen = set()

    def call():
        seen.add(threading.get_ident())
        called.set()

    with situation.beside(call):
        assert called.wait(60)
    (thread,) = seen
    assert thread != threading.get_ident()
    assert thread not in {item.ident for item in threading.enumerate()}


# ---- Rules -----------------------------------------------------------------------------------


def result(situation="back to back", megabytes=1, wrong=(), **microseconds):
    names = {"one": ONE, "all": ALL, "numpy": NUMPY, "torch": TORCH, "paused": PAUSED}
    columns = {
        names[name]: Spread(us * 1e-6, us * 0.9e-6, us * 1.5e-6, 9)
        for name, us in microseconds.items()
    }
    return LoopResult(situation, megabytes, "bwc->bcw", columns, wrong)


@pytest.mark.parametrize(
    ("microseconds", "missed"),
    [
        ({"one": 100, "all": 107.9}, []),
        ({"one": 100, "all": 108.1}, [ONE]),
        ({"one": 1, "all": 4}, []),
        ({"one": 100, "all": 60, "torch": 61}, []),
        ({"one": 100, "all": 60, "torch": 59}, [TORCH]),
        ({"one": 100, "all": 60, "numpy": 10}, []),
        ({"one": 100, "all": 60, "torch": 90, "paused": 55}, []),
        ({"one": 100, "all": 60, "torch": 90, "paused": 54}, [PAUSED]),
        ({"one": 10, "all": 60, "torch": 50, "paused": 40}, [ONE, TORCH, PAUSED]),
        ({"one": 100, "torch": 1}, []),
    ],
)
def test_what_a_row_misses(microseconds, missed):
    assert result(**microseconds).missed == missed


def test_the_number_of_samples_fits_the_size():
    assert make_loop_row(1).sizes == (61, 64, 64)
    assert make_loop_row(0.1).bytes_read <= 100_000
    assert make_loop_row(0.001).sizes == (1, 64, 64)
    assert all(abs(make_loop_row(mb).bytes_read / 1e6 - mb) < 0.02 for mb in loop.MEGABYTES)
    assert set(loop.QUICK_MEGABYTES) < set(loop.MEGABYTES)


class Liar(NumPy):
    name = "torch"
    spin_seconds = 0.5

    def into(self, row, sources, out):
        return lambda: None  # leaves the previous values


def test_columns_are_checked_before_they_are_timed():
    row = replace(make_loop_row(0.1), sizes=(2, 8, 8))
    before = layoutkit.get_num_threads()
    actual = make_columns(row, [NumPy(), Liar()], 3)
    assert [(c.name, c.threads) for c in actual.columns] == [(ONE, 1), (ALL, 3), (NUMPY, 3)]
    assert actual.wrong == ["torch"]
    assert layoutkit.get_num_threads() == before


# ---- A run -----------------------------------------------------------------------------------

FEW = [
    Situation("back to back", lambda: None),
    Situation("then a pause", lambda: None, paused=True),
]


@pytest.fixture
def _tiny_loop(monkeypatch):
    threads = layoutkit.get_num_threads()
    monkeypatch.setattr(loop, "QUICK_MEGABYTES", (0.02, 0.05))
    monkeypatch.setattr(loop, "QUICK", Budget(0.0, 0.0, 1, 1))
    monkeypatch.setattr(loop, "PAUSE", 0.0)
    monkeypatch.setattr(loop, "all_situations", lambda torch: FEW)
    yield
    layoutkit.set_num_threads(threads)


@pytest.mark.usefixtures("_tiny_loop")
def test_a_run_prints_its_table_and_saves_what_it_measured(tmp_path, capsys):
    numbers = tmp_path / "loop.json"
    threads = layoutkit.get_num_threads()
    assert cli.main(["bench", "--loop", "--quick", "--json", str(numbers)]) == 0
    assert layoutkit.get_num_threads() == threads
    text = capsys.readouterr().out
    data = json.loads(numbers.read_text())
    assert data["table"] == "loop"
    assert data["openmp"] in text
    assert "is not set: OpenMP threads" in text
    assert [(row["megabytes"], row["situation"]) for row in data["rows"]] == [
        (megabytes, item.name) for megabytes in (0.02, 0.05) for item in FEW
    ]
    assert data["summary"]["rows"] == 4
    first, second = data["rows"][:2]
    has_torch = importlib.util.find_spec("torch") is not None
    assert set(first["columns"]) == {ONE, ALL, NUMPY} | ({TORCH} if has_torch else set())
    assert set(second["columns"]) == set(first["columns"]) | {PAUSED}
    assert set(first["columns"][ALL]) == {"median", "p10", "p90", "rounds"}
    ratio = first["columns"][ALL]["median"] / first["columns"][ONE]["median"]
    assert first["ratios"][f"{ALL} / {ONE}"] == ratio
    line = next(line for line in text.splitlines() if line.startswith("back to back"))
    assert f"{ratio:.2f}" in line


@pytest.mark.usefixtures("_tiny_loop")
def test_the_environment_of_openmp_is_left_as_it_is(monkeypatch, capsys):
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    assert bench.main(quick=True, loop=True) == 0
    assert "OMP_WAIT_POLICY=passive, as set in the environment." in capsys.readouterr().out


@pytest.mark.usefixtures("_tiny_loop")
def test_a_wrong_result_of_ours_is_exit_code_1(monkeypatch, capsys):
    monkeypatch.setattr(loop, "_make_call", lambda row, source, out: lambda: None)
    assert bench.main(quick=True, loop=True) == 1
    assert f"{ALL}: WRONG RESULT, not timed" in capsys.readouterr().out


@pytest.mark.usefixtures("_tiny_loop")
def test_what_was_measured_is_kept_when_it_ends_early(monkeypatch, tmp_path):
    calls = []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return take_turns(*arguments)

    monkeypatch.setattr(loop, "take_turns", interrupted)
    numbers = tmp_path / "loop.json"
    with pytest.raises(KeyboardInterrupt):
        bench.main(quick=True, loop=True, json=str(numbers))
    assert len(json.loads(numbers.read_text())["rows"]) == 1


@pytest.mark.usefixtures("_tiny_loop")
def test_the_figure_is_drawn_by_a_run_and_from_saved_results(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    numbers = tmp_path / "loop.json"
    figures = [tmp_path / "run.png", tmp_path / "saved.png"]
    assert bench.main(quick=True, loop=True, json=str(numbers), plot=str(figures[0])) == 0
    assert bench.main(saved=str(numbers), plot=str(figures[1])) == 0
    assert all(figure.read_bytes().startswith(b"\x89PNG") for figure in figures)
    assert "| back to back |" in capsys.readouterr().out


# ---- From saved results ----------------------------------------------------------------------

ABOUT = {
    "date": "2026-11-22T03:00:00+00:00",
    "command": "layoutkit bench --loop",
    "cpu": "A CPU",
    "cpus": 2,
    "threads": 2,
    "python": "3.11.7",
    "versions": {"layoutkit": "0.1.0", "NumPy": "2.4.6"},
}


def test_markdown_has_situations_down_and_sizes_across():
    results = [
        result(one=100, all=50, torch=80),
        result("right after torch.mm", one=100, all=60, torch=120, paused=50),
        result(megabytes=0.5, one=10, all=30),
    ]
    lines = markdown(results, ABOUT).splitlines()
    assert lines[0].startswith("2026-11-22, `layoutkit bench --loop`, on A CPU, 2 CPUs, 2 threads")
    assert lines[2:] == [
        "| between two calls | 1 MB | 0.5 MB |",
        "|---|---|---|",
        "| back to back | 0.50 / 0.62 | 3.00 ! |",
        "| right after torch.mm | 0.60 / 0.50 |  |",
        "| the same, relative to 30 ms later | 1.20 ! |  |",
        "",
        "2 of 3 rows miss their goal.",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        "{}",
        '{"table": "loop", "schema": 99, "rows": []}',
        '{"table": "loop", "schema": 1, "rows": [{}]}',
        '{"table": "loop", "schema": 1, "rows": []}',
    ],
)
def test_other_files_are_refused(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(
        ArgumentError, match=r"--from: .*other\.json is not a file of layoutkit bench"
    ):
        load(str(path))


def test_a_file_that_is_not_there_is_an_error_of_one_line(tmp_path, capsys):
    assert cli.main(["bench", "--from", str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err.endswith(
        "none.json: No such file or directory; check the path\n"
    )


@pytest.mark.parametrize(
    "options",
    [
        ["--loop", "--device", "cuda"],
        ["--from", "loop.json", "--loop"],
        ["--from", "loop.json", "--quick"],
        ["--from", "loop.json", "--json", "r.json"],
    ],
)
def test_options_that_would_be_ignored_are_refused(options, capsys):
    assert cli.main(["bench", *options]) == 2
    assert "; omit --" in capsys.readouterr().err


def test_the_figure_shows_the_ratios_of_the_table(tmp_path, monkeypatch):
    figure = pytest.importorskip("matplotlib.figure")
    from layoutkit.bench.chart import draw_loop

    drawn = []
    monkeypatch.setattr(figure.Figure, "savefig", lambda self, *_, **__: drawn.append(self))
    results = [result(one=100, all=150, numpy=300), result(megabytes=2, one=100, all=50, torch=80)]
    draw_loop(str(tmp_path / "loop.png"), results, ABOUT)
    lines = {line.get_label(): line for line in drawn[0].axes[0].get_lines()}
    for name in (ALL, NUMPY, TORCH):
        points = [(r.megabytes, r.ratio(name, ONE)) for r in results if name in r.columns]
        np.testing.assert_array_equal(lines[name].get_xydata(), points)
    assert [axes.axison for axes in drawn[0].axes] == [True, False, False, False]

"""`make compare`: the base and its files, rows, processes of two trees, and what has changed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from layoutkit.bench import compare
from layoutkit.bench.compare import BASE, THIS, Comparison, choose_base, describe_tree, extracted
from layoutkit.bench.compare_rows import TEXTS, VALUES, ComparedRow, compared_rows
from layoutkit.bench.compare_worker import Worker
from layoutkit.bench.protocol import Budget, Times
from layoutkit.errors import ArgumentError

HOME = Path(__file__).parents[2]
is_checkout = pytest.mark.skipif(not (HOME / ".git").exists(), reason="the files of no commit")


# ---- the base ------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path):
    """Return a function that calls git in a repository of the commits "one", "two" and "three"."""

    def git(*arguments):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.check_output(command, cwd=tmp_path, text=True).strip()

    git("init", "--quiet")
    for name in ("one", "two", "three"):
        (tmp_path / "file.txt").write_text(name)
        git("add", ".")
        git("commit", "--quiet", "--message", name)
    return git


def test_the_base_is_the_last_release_or_else_the_first_parent(repository, tmp_path):
    assert choose_base(tmp_path) == repository("rev-parse", "HEAD~1")
    repository("tag", "v0.1.0", "HEAD~2")
    repository("tag", "other", "HEAD~1")
    repository("tag", "v0.2.0")  # a release is compared with the one before
    assert choose_base(tmp_path) == repository("rev-parse", "HEAD~2")
    assert choose_base(tmp_path, "other") == repository("rev-parse", "HEAD~1")


@pytest.mark.parametrize("name", ["0123abc", "--all", "HEAD:file.txt"])
def test_an_unknown_commit_is_one_error(repository, tmp_path, name):
    with pytest.raises(ArgumentError, match=f"has no commit {name}; pass one of `git log`"):
        choose_base(tmp_path, name)


def test_a_first_commit_and_a_folder_without_git_have_no_default_base(repository, tmp_path):
    repository("checkout", "--quiet", "HEAD~2")
    with pytest.raises(ArgumentError, match="has no commit HEAD"):
        choose_base(tmp_path)
    with pytest.raises(ArgumentError, match="git log failed in"):
        describe_tree(tmp_path.parent)


def test_uncommitted_files_are_mentioned(repository, tmp_path):
    assert describe_tree(tmp_path).endswith(" three")
    (tmp_path / "file.txt").write_text("four")
    (tmp_path / "new.txt").write_text("")
    assert describe_tree(tmp_path).endswith(" three (with 2 uncommitted files)")
    assert describe_tree(tmp_path, "HEAD~1").endswith(" two")


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, SystemExit])
def test_the_files_of_the_base_are_removed(repository, tmp_path, error):
    (tmp_path / "file.txt").write_text("uncommitted")
    try:
        with extracted(tmp_path, "HEAD~2") as folder:
            assert (folder / "file.txt").read_text() == "one"
            if error is not None:
                raise error
    except (KeyboardInterrupt, SystemExit):
        assert error is not None
    assert not folder.exists()
    assert repository("status", "--porcelain") == "M file.txt"


# ---- rows ----------------------------------------------------------------------------------


def test_rows_are_of_every_kind_and_the_first_rows_are_too():
    rows = compared_rows()
    kinds = {row.kind for row in rows}
    assert kinds >= {"pairs", "fused", "sums", "collate", "resize", "nearest", "random", "loops"}
    assert kinds >= {"channels", "runs", "small calls", "new shapes", "first call"}
    assert len({row.name for row in rows}) == len(rows)
    assert 150 <= len(rows) <= 200
    assert {row.kind for row in rows[: len(kinds)]} == kinds
    quick = compared_rows(quick=True)
    assert {row.kind for row in quick} == kinds
    assert len(quick) < 60


@pytest.mark.budget(1)
@pytest.mark.parametrize(("kind", "title", "setup", "call"), TEXTS)
def test_this_tree_runs_the_rows_that_no_other_table_has(kind, title, setup, call):
    worker = Worker(str(HOME))
    worker.open(setup, call, VALUES)
    assert worker.time(2, "call") > 0


# ---- changes -------------------------------------------------------------------------------


def make_comparison(*ratios):
    row = ComparedRow("kind", f"{ratios}", "", "", {})
    comparison = Comparison(row, "back to back")
    for ratio in ratios:
        rounds = {0: 1.0, 1: 2.0, 2: 9.0}
        slower = {number: ratio * seconds for number, seconds in rounds.items()}
        comparison.passes.append({BASE: Times(rounds), THIS: Times(slower)})
    return comparison


@pytest.mark.parametrize(
    ("ratios", "has_changed", "is_much_slower"),
    [
        ((1.2, 1.25, 1.3), True, False),
        ((0.8, 0.7, 0.75), True, False),
        ((1.05, 1.3, 1.2), False, False),  # the range is 24 %
        ((1.1, 1.25, 1.2), True, False),
        ((0.99, 1.4, 1.4), False, False),  # passes disagree
        ((1.02, 1.021), False, False),  # below the noise of any row
        ((1.5, 1.6), True, True),
        ((1.1, 3.0), False, False),
        ((2.0,), False, True),  # one pass has no spread
    ],
)
def test_a_row_has_changed_if_its_ratio_exceeds_the_range_of_all_passes(
    ratios, has_changed, is_much_slower
):
    comparison = make_comparison(*ratios)
    assert comparison.has_changed == has_changed
    assert comparison.is_much_slower == is_much_slower
    assert comparison.milliseconds(BASE) == 2000


def test_means_are_geometric_and_by_kind():
    measurement = compare.Measurement()
    for ratios in ((2.0, 2.0), (0.5, 0.5), (8.0, 8.0)):
        each = make_comparison(*ratios)
        measurement.comparisons[each.row.name, each.protocol] = each
    means = compare.geometric_means(measurement)
    assert means["back to back"] == pytest.approx({"kind": 2.0, "all": 2.0})
    assert list(means) == ["back to back"]


# ---- processes -----------------------------------------------------------------------------

FAKE = """
import os, time
def work(): time.sleep({seconds})
def fail(): raise ValueError("no such option")
def crash(): os._exit(3)
"""


@pytest.fixture
def trees(tmp_path):
    """Return two trees: the base needs 2 ms, lacks a function, and crashes in another."""
    texts = FAKE.format(seconds=0.002), FAKE.format(seconds=0.04)
    texts = texts[0], texts[1].replace("raise ValueError", "0 and ").replace("os._exit(3)", "0")
    for name, text in zip((BASE, THIS), texts, strict=True):
        (tmp_path / name).mkdir()
        (tmp_path / name / "layoutkit.py").write_text(text)
    return {name: tmp_path / name for name in (BASE, THIS)}


def make_rows(*functions):
    return [ComparedRow("kind", name, "", f"lk.{name}()", {}) for name in functions]


@pytest.fixture
def _short(monkeypatch):
    budget = Budget(0.01, 0.0, min_rounds=2, max_rounds=2, sample=0.0)
    protocols = {key: (name, budget) for key, (name, _) in compare.PROTOCOLS.items()}
    monkeypatch.setattr(compare, "PROTOCOLS", protocols)
    monkeypatch.setattr(compare, "PASSES", 2)


@pytest.mark.budget(0)
@pytest.mark.usefixtures("_short")
def test_rows_are_compared_and_rows_that_the_base_cannot_run_are_new(trees, capsys):
    rows = make_rows("crash", "fail", "work", "missing")
    measurement = compare.measure_trees(rows, trees, quick=False)
    assert measurement.errors == {
        "kind: crash": (BASE, "the process ended with exit code 3"),
        "kind: fail": (BASE, "ValueError: no such option"),
        "kind: missing": (THIS, "AttributeError: module 'layoutkit' has no attribute 'missing'"),
    }
    back_to_back, between = measurement.comparisons.values()
    assert [len(each.passes) for each in (back_to_back, between)] == [2, 2]
    assert (back_to_back.protocol, between.protocol) == ("back to back", "other work between")
    assert back_to_back.has_changed
    assert back_to_back.is_much_slower
    compare.write_report(measurement, rows, quick=False)
    new, failed = (
        capsys.readouterr().out.split("new rows, which the base cannot run:")[1].split("FAILED:")
    )
    assert new.split()[0] == "kind:"
    assert new.count("kind: ") == 2
    assert "missing" in failed
    json.dumps(compare.as_json(measurement))


@pytest.mark.budget(0)
@pytest.mark.usefixtures("_short")
def test_later_quick_passes_have_the_slow_rows_of_the_passes_before(trees):
    rows = make_rows("work", "fail")
    trees[BASE], trees[THIS] = trees[THIS], trees[BASE]
    measurement = compare.measure_trees(rows, trees, quick=True)
    assert {len(each.passes) for each in measurement.comparisons.values()} == {1}
    trees[BASE], trees[THIS] = trees[THIS], trees[BASE]
    measurement = compare.measure_trees(rows, trees, quick=True)
    assert {len(each.passes) for each in measurement.comparisons.values()} == {3}


@pytest.mark.usefixtures("_short")
def test_rows_are_not_begun_after_the_time(trees, monkeypatch, capsys):
    monkeypatch.setattr(compare, "SECONDS", 0.0)
    rows = make_rows("work")
    measurement = compare.measure_trees(rows, trees, quick=False)
    assert measurement.comparisons == {}
    compare.write_report(measurement, rows, quick=False)
    assert "as machine code is kept:\n    kind: work" in capsys.readouterr().out


@pytest.mark.budget(0)
@is_checkout
@pytest.mark.usefixtures("_short")
def test_two_rows_of_this_tree_and_of_its_last_commit(tmp_path, capsys):
    path = tmp_path / "compare.json"
    assert (
        compare.compare("HEAD", False, "small calls: (convert|View, cached get)$", str(path)) == 0
    )
    out = capsys.readouterr().out
    assert f"base: {describe_tree(HOME, 'HEAD')}" in out
    assert f"this: {describe_tree(HOME)}" in out
    report = json.loads(path.read_text())
    assert len(report["rows"]) == 4
    assert report["errors"] == {}
    assert report["means"]["back to back"]["small calls"] > 0


@is_checkout
@pytest.mark.budget(0)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_comparison_leaves_no_files_and_no_processes(tmp_path, number):
    command = [sys.executable, "-m", "layoutkit.bench.compare", "HEAD", "--only", "small"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, cwd=HOME, stderr=subprocess.PIPE) as process:
        assert process.stderr.readline() == b"pass 1: 8 rows\n"
        time.sleep(0.5)
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(number)
        assert process.wait(20) == 128 + number
        assert process.stderr.read() == b""  # which the processes hold open
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_commit_is_one_line_of_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["compare", "nothing"])
    handler = signal.getsignal(signal.SIGTERM)
    assert compare.main() == 2
    assert signal.getsignal(signal.SIGTERM) is handler  # forked children could not be ended
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch("error: compare: .*\n", err)

"""Checks before measuring: options, output files, and how OpenMP threads wait."""

import os

import pytest

from layoutkit import bench
from layoutkit.bench import files, host
from layoutkit.bench.files import check_files
from layoutkit.errors import ArgumentError, LayoutkitError

MATRIX = ("hw->wh", (2, 12), "u1", None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": "bhcw"}, "--only 'bhcw' matches none of the .* rows, such as 'bhwc->bchw float"),
        ({"only": "("}, "--only '.' is not a regular expression"),
        ({"only": "x", "conversion": MATRIX}, "PATTERN: measures one conversion"),
        ({"table": "runs", "conversion": MATRIX}, "PATTERN: measures one conversion"),
        ({"table": "collate", "limit": 3}, "--collate: can only be combined with --quick"),
        ({"table": "loaders", "plot": "x.png"}, "--loaders: .* with --quick, --json and --limit"),
        ({"table": "loaders", "only": "x"}, "--loaders: .* with --quick, --json and --limit"),
        ({"table": "resize", "device": "cuda"}, "--resize: can only be combined with --quick"),
        ({"table": "floor", "device": "cuda"}, "--floor: its goals are for CPUs"),
        ({"conversion": ("b(hw)->bhw", (2, 12), "u1", None)}, "measures axes of one letter each"),
        ({"conversion": ("hw->wh", (2, 12, 3), "u1", None)}, "rank 2"),
    ],
)
def test_options_that_cannot_be_combined(options, message, capsys):
    with pytest.raises(LayoutkitError, match=message):
        bench.main(quick=True, **options)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("option", ["plot", "json"])
def test_files_that_cannot_be_written_are_errors_before_measuring(option, tmp_path, monkeypatch):
    def check(path, message):
        with pytest.raises(ArgumentError, match=f"--{option}: {message}"):
            bench.main(**{option: str(path)})

    check(tmp_path / "missing" / "file.png", "there is no folder .*missing")
    check(tmp_path, ".* is a folder")
    # Root may write everywhere, so file modes would have no effect.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    path = tmp_path / "file.png"
    check(path, "the folder .* is write-protected")
    path.touch()
    check(path, r".*file\.png is write-protected")


def test_a_chart_needs_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    with pytest.raises(ArgumentError, match=r"--plot: needs matplotlib.*layoutkit\[plot\]"):
        check_files(str(tmp_path / "figure.png"), None)


def test_a_chart_has_the_suffix_of_an_image_and_its_own_file(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(ArgumentError, match=r"does not have the suffix of an image.*\.svg"):
        check_files(str(tmp_path / "figure.json"), None)
    name = str(tmp_path / "both.svg")
    with pytest.raises(ArgumentError, match="is the file of --json too"):
        check_files(name, name)
    check_files(str(tmp_path / "figure.SVG"), str(tmp_path / "numbers.json"))
    check_files(None, os.devnull)
    assert list(tmp_path.iterdir()) == []


def test_openmp_is_made_passive_unless_it_is_loaded_or_set(monkeypatch):
    monkeypatch.setattr(host, "libraries", set)
    text = host.set_passive_wait_policy()
    assert text.startswith("OMP_WAIT_POLICY=passive: otherwise OpenMP threads")
    assert os.environ[host.WAIT_POLICY] == "passive"
    monkeypatch.setenv(host.WAIT_POLICY, "active")
    assert "=active, as set in the environment." in host.set_passive_wait_policy()
    assert os.environ[host.WAIT_POLICY] == "active"
    monkeypatch.delenv(host.WAIT_POLICY)
    monkeypatch.setattr(host, "libraries", lambda: {"/lib/libgomp.so.1"})
    assert "is set too late" in host.set_passive_wait_policy()

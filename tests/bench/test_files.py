"""Checks before measuring: output files, and how OpenMP threads wait."""

import os

import pytest

from layoutkit import bench
from layoutkit.bench import files, host
from layoutkit.bench.files import check_files
from layoutkit.errors import ArgumentError


@pytest.mark.parametrize("option", ["plot", "json"])
def test_a_folder_that_is_not_there_is_an_error_before_measuring(option, tmp_path, capsys):
    with pytest.raises(ArgumentError, match=rf"--{option}: there is no folder .*missing"):
        bench.main(**{option: str(tmp_path / "missing" / "file.png")})
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("option", ["plot", "json"])
def test_a_folder_is_no_file(option, tmp_path):
    with pytest.raises(ArgumentError, match=f"--{option}: .* is a folder"):
        check_files(**{"plot": None, "json": None, option: str(tmp_path)})


@pytest.mark.parametrize("option", ["plot", "json"])
def test_what_may_not_be_written_is_an_error(option, tmp_path, monkeypatch):
    # Root may write everywhere, so file modes would have no effect.
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    path = tmp_path / "file.png"
    names = {"plot": None, "json": None, option: str(path)}
    with pytest.raises(ArgumentError, match=f"--{option}: the folder .* is write-protected"):
        check_files(**names)
    path.touch()
    with pytest.raises(ArgumentError, match=rf"--{option}: .*file\.png is write-protected"):
        check_files(**names)


def test_a_figure_needs_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    with pytest.raises(ArgumentError, match=r"--plot: needs matplotlib.*layoutkit\[plot\]"):
        check_files(str(tmp_path / "figure.png"), None)


def test_a_figure_has_a_suffix_of_figures(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(ArgumentError, match=r"does not have the suffix of an image.*\.svg"):
        check_files(str(tmp_path / "figure.json"), None)


def test_one_file_cannot_be_both(tmp_path):
    pytest.importorskip("matplotlib")
    name = str(tmp_path / "both.svg")
    with pytest.raises(ArgumentError, match="is the file of --json too"):
        check_files(name, name)


def test_good_places_pass_and_nothing_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    check_files(str(tmp_path / "figure.SVG"), str(tmp_path / "numbers.json"))
    check_files(None, os.devnull)
    check_files(None, None)
    assert list(tmp_path.iterdir()) == []


# ---- OpenMP ----------------------------------------------------------------------------------


def test_openmp_is_made_passive_before_it_is_loaded(monkeypatch):
    monkeypatch.setattr(host, "libraries", set)
    assert host.set_passive_wait_policy().startswith(
        "OMP_WAIT_POLICY=passive: otherwise OpenMP threads"
    )
    assert os.environ[host.WAIT_POLICY] == "passive"


def test_it_is_said_when_that_comes_too_late(monkeypatch):
    monkeypatch.setattr(host, "libraries", lambda: {"/lib/libgomp.so.1"})
    assert "is set too late" in host.set_passive_wait_policy()


def test_what_somebody_asked_for_stays(monkeypatch):
    monkeypatch.setenv(host.WAIT_POLICY, "active")
    for words in (host.set_passive_wait_policy(), host.describe_wait_policy()):
        assert words.startswith("OMP_WAIT_POLICY=active, as set in the environment.")
    assert os.environ[host.WAIT_POLICY] == "active"


def test_the_loop_leaves_it_and_says_so():
    assert "is not set: OpenMP threads" in host.describe_wait_policy()
    assert host.WAIT_POLICY not in os.environ

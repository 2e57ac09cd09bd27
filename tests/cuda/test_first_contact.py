"""The first hour on a GPU, without one: what is written where steps fail, hang or are not run."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from layoutkit import DeviceError
from layoutkit.cuda.runtime import check_device

SCRIPT = Path(__file__).parents[1] / "gpu" / "first_contact.py"


@pytest.fixture
def contact(monkeypatch):
    spec = importlib.util.spec_from_file_location("first_contact", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "first_contact", module)  # where dataclasses look
    spec.loader.exec_module(module)
    return module


def test_steps_that_fail_or_hang_end_alone(contact, tmp_path, capsys):
    report = tmp_path / "report.md"
    asked = [
        contact.Step("good", ["-c", "print('said')"], 60, needed=True),
        contact.Step("bad", ["-c", "raise SystemExit('it broke')"], 60),
        contact.Step("slow", ["-c", "print('began', flush=True)\nwhile True: pass"], 1),
        contact.Step("needed", ["-c", "raise SystemExit(3)"], 60, needed=True),
        contact.Step("last", ["-c", "print('never')"], 60),
    ]
    assert not contact.run_all(asked, report)
    text = report.read_text()
    for row in ("| good | well |", "| bad | failed (1) |", "| slow | stopped after 1 s |",
                "| needed | failed (3) |", "1 of 5 steps were not run."):  # fmt: skip
        assert row in text
    for said in ("said", "it broke", "began"):
        assert f"```text\n{said}\n```" in text
    assert "never" not in text + capsys.readouterr().out
    assert contact.run_all(asked[:1], report)


def test_what_the_steps_run_is_there(contact):
    found = contact.steps()
    assert len(found) == 7
    assert sum(step.limit for step in found) < 3600
    for step in found:
        for path in (each for each in step.command if each.endswith(".py")):
            assert Path(path).is_file()
        if step.command[0] == "-c":
            compile(step.command[1], step.title, "exec")


def test_without_a_gpu_it_says_so(tmp_path):
    try:
        check_device("cuda:0")
    except DeviceError:
        report = tmp_path / "report.md"
        done = subprocess.run(
            [sys.executable, SCRIPT, "--report", report], capture_output=True, text=True,
            cwd=SCRIPT.parents[2], env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[2])},
            check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert "no GPU: a GPU needs" in report.read_text()
        assert "6 of 7 steps were not run." in report.read_text()
    else:
        pytest.skip("this machine has a GPU")

"""The script of the first contact with a GPU: its report if steps fail, hang or are not run."""

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from layoutkit import DeviceError
from layoutkit.bench.device import device_rows
from layoutkit.bench.run import select_rows
from layoutkit.cuda.runtime import check_device

SCRIPT = Path(__file__).parents[1] / "gpu" / "first_contact.py"


@pytest.fixture
def contact(monkeypatch):
    spec = importlib.util.spec_from_file_location("first_contact", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "first_contact", module)  # dataclasses look the module up here
    spec.loader.exec_module(module)
    return module


@pytest.mark.budget(0)
def test_steps_that_fail_or_hang_do_not_affect_the_others(contact, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(contact, "GRACE", 1.0)
    report = tmp_path / "report.md"
    hang = "while True:\n  try: time.sleep(9)\n  except KeyboardInterrupt: pass"
    selected = [
        contact.Step("good", ["-c", "print('output')"], 60, needed=True),
        contact.Step("bad", ["-c", "raise SystemExit('it broke')"], 60),
        contact.Step("slow", ["-c", "print('begun')\nwhile True: pass"], 1),
        contact.Step("deaf", ["-c", f"import time\nprint('deaf')\n{hang}"], 1),
        contact.Step("needed", ["-c", "raise SystemExit(3)"], 60, needed=True),
        contact.Step("last", ["-c", "print('never')"], 60),
    ]
    assert not contact.run_all(selected, report)
    text = report.read_text()
    rows = (
        "| good | succeeded |", "| bad | failed (1) |", "| slow | stopped after 1 s |",
        "| deaf | stopped after 1 s |", "| needed | failed (3) |", "1 of 6 steps were not run.",
    )  # fmt: skip
    for row in rows:
        assert row in text
    for output in ("output", "it broke", "begun", "deaf"):
        assert f"```text\n{output}\n" in text
    assert "never" not in text + capsys.readouterr().out
    assert contact.run_all(selected[:1], report)


def test_a_step_that_is_stopped_can_write_its_results(contact, tmp_path):
    path = tmp_path / "results"
    program = f"""
import time
try:
    print("measuring")
    time.sleep(60)
finally:
    open({str(path)!r}, "w").write("so far")
"""
    outcome = contact.run(contact.Step("slow", ["-c", program], 2))
    assert outcome.verdict == "stopped after 2 s"
    assert outcome.output.startswith("measuring")
    assert path.read_text() == "so far"


def test_processes_that_a_step_started_end_with_it(contact, tmp_path):
    path = tmp_path / "pid"
    program = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({str(path)!r}, "w").write(str(child.pid))
"""
    assert contact.run(contact.Step("parent", ["-c", program], 30)).verdict == "succeeded"
    status = Path(f"/proc/{path.read_text()}/status")
    deadline = time.monotonic() + 5
    while status.exists() and "State:\tZ" not in status.read_text():  # or a zombie
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_files_and_rows_of_the_steps_exist(contact):
    all_steps = contact.steps()
    assert len(all_steps) == 8
    assert sum(step.limit + contact.GRACE for step in all_steps) < 1_920
    assert max(step.limit for step in all_steps) <= 480
    for step in all_steps:
        for path in (word for word in step.command if word.endswith(".py")):
            assert Path(path).is_file()
        if step.command[0] == "-c":
            compile(step.command[1], step.title, "exec")
    rows = device_rows()
    for pattern in contact.ROWS:
        assert select_rows(rows, pattern)
    assert 10 <= len(select_rows(rows, "|".join(contact.ROWS))) <= 40


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
        assert "7 of 8 steps were not run." in report.read_text()
    else:
        pytest.skip("this machine has a GPU")

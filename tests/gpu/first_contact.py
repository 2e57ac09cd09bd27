"""The first hour on a machine with a GPU: seven steps, each in a process of its own with a limit.

    python tests/gpu/first_contact.py [--report first-contact.md] [--steps 1 2 ...]

From "is there a GPU" to "how fast is it": what comes first is what the rest needs, so without the
first or the second step there are no others. A step that fails or hangs ends alone, and what it
said is in the report, whole. The exit status is 0 where all that was asked for went well.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SHOWN = 15  # lines of a step that are printed; the report has all

LOOK = """
from layoutkit import DeviceError, show_config
from layoutkit.cuda.runtime import check_device, runtime
show_config()
try:
    check_device("cuda:0")
except DeviceError as error:
    raise SystemExit(f"no GPU: {error}")
api = runtime().cupy.cuda.runtime
for n in range(runtime().count):
    found = api.getDeviceProperties(n)
    names = ("major", "minor", "multiProcessorCount", "totalGlobalMem", "l2CacheSize", "ECCEnabled")
    print(n, found["name"].decode(), {name: found.get(name) for name in names})
print("driver", api.driverGetVersion(), "runtime", api.runtimeGetVersion())
"""

FIRST = """
import time
import numpy as np
from layoutkit import convert
from layoutkit.cuda.runtime import runtime
cupy = runtime().cupy
x = np.arange(2 * 30 * 31 * 3, dtype=np.uint8).reshape(2, 30, 31, 3)
there = cupy.asarray(x)
for turn in ("first", "second"):
    began = time.perf_counter()
    y = convert(there, "bhwc->bchw")
    cupy.cuda.Device().synchronize()
    print(f"{turn} conversion: {(time.perf_counter() - began) * 1e3:.2f} ms")
    np.testing.assert_array_equal(y.get(), x.transpose(0, 3, 1, 2))
print("the values are right")
"""


@dataclass(frozen=True)
class Step:
    """What is run, and for how many seconds at most."""

    title: str
    command: list[str]
    limit: int
    needed: bool = False  # by all that follow


def steps() -> list[Step]:
    """All of them, in order."""
    code, pytest = ["-c"], ["-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider"]
    quick = ["-m", "layoutkit", "bench", "--device", "cuda", "--quick"]
    streams = f"{HERE}/test_streams.py"
    moves = "batches or overlap or page_locked"
    libraries = [f"{HERE}/{name}" for name in ("test_torch.py", "test_jax.py")]
    return [
        Step("what is there: GPUs, driver, CuPy", [*code, LOOK], 60, needed=True),
        Step("the first kernel: compiled, launched, right", [*code, FIRST], 120, needed=True),
        Step("values of every family", [*pytest, f"{HERE}/test_small.py"], 300),
        Step("streams, graphs and large arrays", [*pytest, streams, "-k", f"not ({moves})"], 240),
        Step("transfers", [*pytest, streams, "-k", moves], 240),
        Step("two libraries", [*pytest, *libraries], 300),
        Step("speed, a quarter of the rows", [*quick, "--json", "first-contact.json"], 600),
    ]


@dataclass(frozen=True)
class Outcome:
    """How a step went."""

    step: Step
    verdict: str
    seconds: float
    said: str


def run(step: Step) -> Outcome:
    """Run a step until it ends or its time is over."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *step.command], text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=step.limit)
        verdict = "well" if process.returncode == 0 else f"failed ({process.returncode})"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # and what it has started
        said, _ = process.communicate()
        verdict = f"stopped after {step.limit} s"
    return Outcome(step, verdict, time.perf_counter() - began, said.strip())


def run_all(asked: list[Step], report: Path) -> bool:
    """Run steps and write the report after each; whether all went well."""
    outcomes: list[Outcome] = []
    for step in asked:
        print(f"{step.title} (at most {step.limit} s) ...", flush=True)
        outcome = run(step)
        outcomes.append(outcome)
        report.write_text(written(outcomes, len(asked)))
        print("\n".join(f"    {line}" for line in outcome.said.splitlines()[-SHOWN:]))
        print(f"  {outcome.verdict}, {outcome.seconds:.1f} s", flush=True)
        if step.needed and outcome.verdict != "well":
            break
    print(f"{report} tells all of it")
    return len(outcomes) == len(asked) and all(each.verdict == "well" for each in outcomes)


def written(outcomes: list[Outcome], count: int) -> str:
    """The report, in Markdown."""
    lines = ["# First contact with a GPU", "", "| step | outcome | seconds |", "|---|---|---|"]
    lines += [f"| {each.step.title} | {each.verdict} | {each.seconds:.1f} |" for each in outcomes]
    if len(outcomes) < count:
        lines += ["", f"{count - len(outcomes)} of {count} steps were not run."]
    for each in outcomes:
        lines += ["", f"## {each.step.title}", "", "```text", each.said, "```"]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", type=Path, default=Path("first-contact.md"), metavar="FILE")
    parser.add_argument(
        "--steps", type=int, nargs="+", choices=range(1, 8), default=range(1, 8), metavar="N"
    )
    asked = parser.parse_args(arguments)
    found = steps()
    return 0 if run_all([found[n - 1] for n in asked.steps], asked.report) else 1


if __name__ == "__main__":
    sys.exit(main())

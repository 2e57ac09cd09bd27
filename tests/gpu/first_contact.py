"""Check layoutkit on a machine with a GPU: eight steps, each in its own process with a time limit.

    python tests/gpu/first_contact.py [--report first-contact.md] [--steps 1 2 ...]

The steps go from "is there a GPU" to "how fast is it". Without the first and the second step the
others are omitted. A step that fails or hangs does not affect the others, and the report contains
all of its output. The exit status is 0 if all requested steps succeeded.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SHOWN = 15  # lines of a step that are printed; the report has all
GRACE = 15.0  # seconds in which an interrupted step may write its results

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
on_device = cupy.asarray(x)
for turn in ("first", "second"):
    start = time.perf_counter()
    y = convert(on_device, "bhwc->bchw")
    cupy.cuda.Device().synchronize()
    print(f"{turn} conversion: {(time.perf_counter() - start) * 1e3:.2f} ms")
    np.testing.assert_array_equal(y.get(), x.transpose(0, 3, 1, 2))
print("the values are right")
"""


# The copy is the limit of the benchmark: if it is slow, all shares are too high.
CONDITIONS = """
import time
import numpy as np
from layoutkit import Converter
from layoutkit.bench.device import open_cuda, query_conditions
print(query_conditions())
device = open_cuda()
cupy, stream = device.cupy, device.stream
with device.using():
    source, target = (cupy.empty(1 << 30, np.uint8) for _ in range(2))
    source.fill(1)
    copies = [lambda: device.copy(target, source)] * 20
    device.timer(copies)
    seconds = min(device.timer(copies) for _ in range(5)) / len(copies)
    print(f"copy of 1 GiB within the device: {2 * source.nbytes / seconds / 1e12:.2f} TB/s")
    for megabytes in (0.01, 1, 4, 16, 64):
        count = max(1, round(megabytes * 1e6 / 224 / 224 / 3))
        x = cupy.zeros((count, 224, 224, 3), np.uint8)
        converter = Converter("bhwc->bchw", dtype="float32", scale=1 / 255)
        out = converter(x)
        calls = [lambda: converter(x, out=out)] * 50
        stream.synchronize()
        start = time.perf_counter()
        for call in calls:
            call()
        host = (time.perf_counter() - start) / len(calls)
        on_device = min(device.timer(calls) for _ in range(5)) / len(calls)
        print(
            f"{x.nbytes / 1e6:6.2f} MB of uint8 to float32 bchw, without a graph: "
            f"{host * 1e6:.1f} us of the host, {on_device * 1e6:.1f} us in all"
        )
print(query_conditions())
"""

# Plain rows, and rows that were predicted to be far from the limit.
ROWS = (
    r"bhwc->bchw float32 \(\d+, 56, 56, 64",
    r"bchw->bhwc float32 \(\d+, 56, 56, 64",
    r"bhwc->bchw uint8->\w+ \(\d+, 224, 224, 3",
    r"bwc->cwb float32 \(\d+, 512, 64",
    r"bhwc->chwb float32 \(\d+, 224, 224, 3",
    r"bhw->bwh uint8 .*1025, 705",
    r"bh.* uint8 \(\d+, 32, 32, 3",
    r"bh.* uint8 \(\d+, (225, 225|299, 299), 3",
    r"bhwc->bchw int16 \(\d+, 14, 14, 1024",
    r"\+.*bhwc (bfloat16|float32) ",
)


@dataclass(frozen=True)
class Step:
    """A command of Python, and the number of seconds that it may take.

    `needed`: the steps after it are omitted if it fails.
    """

    title: str
    command: list[str]
    limit: int
    needed: bool = False


def steps() -> list[Step]:
    """Return all steps, in order."""
    code, pytest = ["-c"], ["-m", "pytest", "-v", "-ra", "-p", "no:cacheprovider"]
    pytest += ["--durations=10", "-o", "faulthandler_timeout=100"]
    bench = ["-m", "layoutkit", "bench", "--device", "cuda", "--json", "first-contact.json"]
    streams = f"{HERE}/test_streams.py"
    transfers = "batches or overlap or page_locked"
    libraries = [f"{HERE}/{name}" for name in ("test_torch.py", "test_jax.py")]
    return [
        Step("GPUs, driver, CuPy", [*code, LOOK], 60, needed=True),
        Step("the first kernel", [*code, FIRST], 120, needed=True),
        Step("values of every kernel family", [*pytest, f"{HERE}/test_small.py"], 300),
        Step("streams, graphs, large arrays", [*pytest, streams, "-k", f"not ({transfers})"], 240),
        Step("transfers", [*pytest, streams, "-k", transfers], 240),
        Step("other libraries", [*pytest, *libraries], 300),
        Step("clocks, copy speed, cost of calls", [*code, CONDITIONS], 120),
        Step("speed of selected rows", [*bench, "--only", "|".join(ROWS), "--limit", "300"], 400),
    ]


@dataclass(frozen=True)
class Outcome:
    """The result of a step."""

    step: Step
    verdict: str
    seconds: float
    output: str


def run(step: Step) -> Outcome:
    """Run a step until it ends or its time is over.

    At the end of its time the step is interrupted, as by Ctrl-C, and killed some seconds later.
    Its output is not buffered, so none is lost.
    """
    start = time.perf_counter()
    with tempfile.TemporaryFile() as file:
        process = subprocess.Popen(
            [sys.executable, "-u", *step.command],
            start_new_session=True,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        try:
            code = process.wait(timeout=step.limit)
            verdict = "succeeded" if code == 0 else f"failed ({code})"
        except subprocess.TimeoutExpired:
            verdict = f"stopped after {step.limit} s"
        finally:
            _end(process)
        file.seek(0)
        output = file.read().decode(errors="replace").strip()
    return Outcome(step, verdict, time.perf_counter() - start, output)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a process if it still runs, then kill it with all processes that it started."""
    try:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_all(selected: list[Step], report: Path) -> bool:
    """Run steps and write the report after each; return True if all succeeded."""
    outcomes: list[Outcome] = []
    for step in selected:
        print(f"{step.title} (at most {step.limit} s) ...", flush=True)
        outcome = run(step)
        outcomes.append(outcome)
        report.write_text(format_report(outcomes, len(selected)))
        print("\n".join(f"    {line}" for line in outcome.output.splitlines()[-SHOWN:]))
        print(f"  {outcome.verdict}, {outcome.seconds:.1f} s", flush=True)
        if step.needed and outcome.verdict != "succeeded":
            break
    print(f"all output is in {report}")
    return len(outcomes) == len(selected) and all(x.verdict == "succeeded" for x in outcomes)


def format_report(outcomes: list[Outcome], count: int) -> str:
    """Return the report on `count` steps in Markdown."""
    lines = ["# First contact with a GPU", "", "| step | outcome | seconds |", "|---|---|---|"]
    lines += [f"| {x.step.title} | {x.verdict} | {x.seconds:.1f} |" for x in outcomes]
    if len(outcomes) < count:
        lines += ["", f"{count - len(outcomes)} of {count} steps were not run."]
    for outcome in outcomes:
        lines += ["", f"## {outcome.step.title}", "", "```text", outcome.output, "```"]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    all_steps = steps()
    numbers = range(1, len(all_steps) + 1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", type=Path, default=Path("first-contact.md"), metavar="FILE")
    parser.add_argument(
        "--steps", type=int, nargs="+", choices=numbers, default=numbers, metavar="N"
    )
    options = parser.parse_args(arguments)
    selected = [all_steps[number - 1] for number in options.steps]
    return 0 if run_all(selected, options.report) else 1


if __name__ == "__main__":
    sys.exit(main())

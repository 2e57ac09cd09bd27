"""`make compare`: time this tree and an earlier commit in turns.

    python -m layoutkit.bench.compare [COMMIT] [--quick] [--only REGEX] [--json FILE]

Every pass starts a process for each tree (see compare_worker.py). Both open a row, then their calls
are measured alternately by protocol.py: back to back, and after other work (a copy of 32 MB
by NumPy, 5 ms of sleep), which empties caches and lets workers sleep. Passes have new processes,
because the addresses of code and arrays change the speed of a process until it ends. The ratio of a
row is the median of its passes, the spread their range. A row has changed if all passes agree on
the direction, and the ratio differs from 1 by more than the spread.

The commit is extracted into a temporary folder and uses the packages of this environment. Machine
code is cached by its sources, as always, so the next comparison with the commit starts faster.
"""

from __future__ import annotations

import argparse
import io
import json
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from math import log
from multiprocessing import Pipe
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import layoutkit

from ..errors import ArgumentError, LayoutkitError
from .compare_rows import ComparedRow, compared_rows
from .files import check_files
from .host import set_passive_wait_policy
from .protocol import Budget, Times, Variant, measure, paired_ratio
from .report import Column, Table, describe_run
from .results import environment, geometric_mean
from .run import select_rows

TREE = Path(layoutkit.__file__).parents[1]
WORKER = Path(__file__).with_name("compare_worker.py")
BASE, THIS = "base", "this"
# What a process does between samples, and the budget of a row in a pass. A call after other work is
# a sample by itself.
PROTOCOLS = {
    "call": ("back to back", Budget(0.25, 0.0, min_rounds=3, max_rounds=11, sample=2e-3)),
    "work": ("other work between", Budget(0.25, 0.0, min_rounds=3, max_rounds=7, sample=0.0)),
}
SECONDS, PASSES = 560.0, 6  # no row is begun after the seconds
QUICK_SECONDS, QUICK_PASSES = 75.0, 3  # later passes have the rows that are slow so far
NOISE = 0.03  # smaller changes are not listed
MUCH_SLOWER = 1.5


# ---- the other tree ------------------------------------------------------------------------


def run_git(tree: Path, *arguments: str) -> bytes:
    """Return the output of git; raise ArgumentError if it fails."""
    try:
        command = ["git", "-C", str(tree), *arguments]
        return subprocess.run(command, capture_output=True, check=True).stdout
    except FileNotFoundError:
        raise ArgumentError("compare: git is not installed; it reads the other tree") from None
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip()
        raise ArgumentError(f"compare: git {arguments[0]} failed in {tree}: {reason}") from None


def choose_base(tree: Path, name: str | None = None) -> str:
    """Return the hash of a commit: by default the last release, or else the first parent."""
    if name is None:
        last_release = "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^"
        name = "HEAD^"
        with suppress(ArgumentError):
            name = run_git(tree, *last_release).decode().strip()
    try:
        commit = run_git(tree, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
    except ArgumentError:
        raise ArgumentError(
            f"compare: {tree} has no commit {name}; pass one of `git log`, as in "
            "make compare BASE=HEAD~3"
        ) from None
    return commit.decode().strip()


def describe_tree(tree: Path, commit: str | None = None) -> str:
    """Return hash, date and subject of a commit, or of HEAD with the number of changed files."""
    text = run_git(tree, "log", "-1", "--format=%h %cs %s", commit or "HEAD").decode().strip()
    changes = 0 if commit else len(run_git(tree, "status", "--porcelain").splitlines())
    return f"{text} (with {changes} uncommitted files)" if changes else text


@contextmanager
def extracted(tree: Path, commit: str) -> Iterator[Path]:
    """Extract the files of a commit into a temporary folder, which is removed afterwards."""
    archive = io.BytesIO(run_git(tree, "archive", commit))
    with (
        TemporaryDirectory(prefix="layoutkit-base-") as folder,
        tarfile.open(fileobj=archive) as tar,
    ):
        tar.extractall(folder, filter="data")
        yield Path(folder)


# ---- the processes -------------------------------------------------------------------------


class RowError(Exception):
    """The error of a row, with the name of the tree."""


class Process:
    """A process of compare_worker.py with one tree, which starts again after a crash."""

    def __init__(self, name: str, tree: Path, end: float) -> None:
        self.name = name
        self._tree = tree
        self._end = end  # of time.monotonic
        self._start()

    def _start(self) -> None:
        self._pipe, theirs = Pipe()
        command = [sys.executable, str(WORKER), str(self._tree), str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()

    def send(self, method: str, *arguments: Any) -> None:
        """Begin a call of a method of the process."""
        with suppress(BrokenPipeError):  # `receive` reports that the process has ended
            self._pipe.send((method, arguments))

    def receive(self) -> Any:
        """Return the result of the call; raise RowError, or TimeoutError if there is no time."""
        if not self._pipe.poll(max(0.0, self._end - time.monotonic())):
            raise TimeoutError
        try:
            result, error = self._pipe.recv()
        except (EOFError, ConnectionError):
            self.close()
            error = f"the process ended with exit code {self._process.returncode}"
            self._start()
        if error is not None:
            raise RowError(self.name, error)
        return result

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.kill()
        self._process.wait()


@contextmanager
def started(trees: Mapping[str, Path], end: float) -> Iterator[list[Process]]:
    """Start a process for each tree, and end them afterwards."""
    processes: list[Process] = []
    try:
        for name, tree in trees.items():
            processes.append(Process(name, tree, end))
        yield processes
    finally:
        for process in processes:
            process.close()


# ---- measuring -----------------------------------------------------------------------------


@dataclass
class Comparison:
    """The times of a row by one protocol, in both trees, for each pass."""

    row: ComparedRow
    protocol: str
    passes: list[Mapping[str, Times]] = field(default_factory=list)

    def milliseconds(self, tree: str) -> float:
        """Return the median time of a call, over the medians of all passes."""
        return 1e3 * median(times[tree].median for times in self.passes)

    @property
    def ratios(self) -> list[float]:
        """The time of this tree divided by the time of the base, for each pass."""
        return [paired_ratio(times[THIS], times[BASE]) for times in self.passes]

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def spread(self) -> float:
        """The largest ratio of a pass divided by the smallest, minus 1."""
        return max(self.ratios) / min(self.ratios) - 1

    @property
    def has_changed(self) -> bool:
        """True if passes agree on the direction, and the ratio exceeds the spread."""
        agree = len(self.passes) > 1 and (min(self.ratios) > 1 or max(self.ratios) < 1)
        return agree and abs(log(self.ratio)) > log(1 + max(self.spread, NOISE))

    @property
    def is_much_slower(self) -> bool:
        """True if this tree needs MUCH_SLOWER times the time of the base in every pass."""
        return min(self.ratios) >= MUCH_SLOWER


@dataclass
class Measurement:
    """Comparisons by row name and protocol; tree and text of errors by row name."""

    comparisons: dict[tuple[str, str], Comparison] = field(default_factory=dict)
    errors: dict[str, tuple[str, str]] = field(default_factory=dict)

    def run_pass(self, rows: Sequence[ComparedRow], processes: Sequence[Process]) -> None:
        """Add the times of all rows that both trees can run."""
        for row in rows:
            try:
                open_row(row, processes)
                for between, (protocol, budget) in PROTOCOLS.items():
                    variants = [
                        Variant(process.name, [partial(time_calls, process, between)])
                        for process in processes
                    ]
                    times = measure(variants, budget, timer=_run_timer)
                    key = row.name, protocol
                    self.comparisons.setdefault(key, Comparison(row, protocol)).passes.append(times)
            except RowError as error:
                self.errors[row.name] = error.args


def open_row(row: ComparedRow, processes: Sequence[Process]) -> None:
    """Make the arrays of a row in all processes at the same time; raise the last RowError."""
    for process in processes:
        process.send("open", row.setup, row.call, row.values)
    errors = []
    for process in processes:
        try:
            process.receive()
        except RowError as error:
            errors.append(error)
    if errors:
        raise errors[-1]  # an error of this tree says more than an error of the base


def time_calls(process: Process, between: str, count: int = 1) -> float:
    """Return the seconds of `count` calls in a process."""
    process.send("time", count, between)
    return process.receive()


def _run_timer(calls: Sequence[Any]) -> float:
    """Return the seconds of equal calls, which one message requests."""
    return calls[0](len(calls))


def measure_trees(
    rows: Sequence[ComparedRow], trees: Mapping[str, Path], quick: bool
) -> Measurement:
    """Measure the rows in several passes, until the time is over."""
    end = time.monotonic() + (QUICK_SECONDS if quick else SECONDS)
    measurement = Measurement()
    with suppress(TimeoutError):
        for number in range(QUICK_PASSES if quick else PASSES):
            if not rows:
                break
            print(f"pass {number + 1}: {len(rows)} rows", file=sys.stderr)
            with started(trees, end) as processes:
                measurement.run_pass(rows, processes)
            measured = measurement.comparisons.values()
            names = {each.row.name for each in measured if each.is_much_slower or not quick}
            rows = [row for row in reversed(rows) if row.name in names]  # arrays move in memory
    return measurement


# ---- the report ----------------------------------------------------------------------------

COLUMNS = (
    Column("base ms", 11, lambda each: f"{each.milliseconds(BASE):.4g}"),
    Column("this ms", 11, lambda each: f"{each.milliseconds(THIS):.4g}"),
    Column("ratio", 8, lambda each: f"{each.ratio:.2f}"),
    Column("spread", 8, lambda each: f"{each.spread:.0%}"),
)


def geometric_means(measurement: Measurement) -> dict[str, dict[str, float | None]]:
    """Return the geometric means of ratios by protocol and kind; "all" is every kind."""
    ratios: dict[str, dict[str, list[float]]] = {}
    for each in measurement.comparisons.values():
        by_kind = ratios.setdefault(each.protocol, {})
        for kind in ("all", each.row.kind):
            by_kind.setdefault(kind, []).append(each.ratio)
    return {
        protocol: {kind: geometric_mean(values) for kind, values in by_kind.items()}
        for protocol, by_kind in ratios.items()
    }


def write_report(measurement: Measurement, rows: Sequence[ComparedRow], quick: bool) -> None:
    """Print the rows that changed, the means of all kinds, and the rows without times."""
    table = Table(82, COLUMNS)
    table.write_headings(f"{MUCH_SLOWER} times as slow" if quick else "changed beyond the spread")
    for each in sorted(measurement.comparisons.values(), key=lambda each: -each.ratio):
        if each.is_much_slower if quick else each.has_changed:
            table.write_row(each.row.name, each, f"  {each.protocol}")
    for protocol, means in geometric_means(measurement).items():
        cells = [f"{kind} {mean:.3f}" for kind, mean in means.items() if mean]
        table.write_line(f"\ngeometric means of ratios, {protocol}:\n    {', '.join(cells)}")
    for tree, title in (BASE, "new rows, which the base cannot run:"), (THIS, "FAILED:"):
        errors = measurement.errors.items()
        table.write_items(title, [f"{name}: {text}" for name, (of, text) in errors if of == tree])
    measured = [each for each in measurement.comparisons.values() if quick or len(each.passes) > 1]
    complete = {each.row.name for each in measured} | measurement.errors.keys()
    missing = [row.name for row in rows if row.name not in complete]
    table.write_items("too few passes in the time; run again, as machine code is kept:", missing)


def as_json(measurement: Measurement) -> dict[str, Any]:
    """Return all numbers as values for `json.dumps`."""
    rows = [
        {
            "name": each.row.name,
            "protocol": each.protocol,
            "milliseconds": {tree: each.milliseconds(tree) for tree in (BASE, THIS)},
            "ratios": each.ratios,
            "changed": each.has_changed,
        }
        for each in measurement.comparisons.values()
    ]
    return {"rows": rows, "errors": measurement.errors, "means": geometric_means(measurement)}


def compare(commit: str | None, quick: bool, only: str | None, path: str | None) -> int:
    """Measure, print and write a comparison.

    Return 1 if a row fails in this tree, or if a quick comparison has slower rows in all passes.
    """
    check_files(None, path)
    base = choose_base(TREE, commit)
    rows = compared_rows(quick)
    if only is not None:
        rows = select_rows(rows, only)
    about = environment([], quick) | {"openmp": set_passive_wait_policy()}
    about |= {BASE: describe_tree(TREE, base), THIS: describe_tree(TREE)}
    print(f"{describe_run(about)}\nbase: {about[BASE]}\nthis: {about[THIS]}\n", flush=True)
    with extracted(TREE, base) as folder:
        measurement = measure_trees(rows, {BASE: folder, THIS: TREE}, quick)
    write_report(measurement, rows, quick)
    if path is not None:
        text = json.dumps(about | as_json(measurement), indent=1)
        Path(path).write_text(text + "\n", encoding="utf-8")
    slower = [each for each in measurement.comparisons.values() if each.is_much_slower]
    has_failed = any(tree == THIS for tree, _ in measurement.errors.values())
    return int(has_failed or (quick and any(len(each.passes) > 1 for each in slower)))


def main() -> int:
    """Run the command that the docstring of the module describes."""
    parser = argparse.ArgumentParser(prog="compare", description="compare two trees")
    parser.add_argument("commit", nargs="?", help="default: the last release, or the first parent")
    parser.add_argument("--quick", action="store_true", help="some rows, in 90 seconds")
    parser.add_argument("--only", metavar="REGEX", help="rows whose names contain a match")
    parser.add_argument("--json", metavar="FILE", help="write all numbers")
    arguments = parser.parse_args()
    try:
        return compare(arguments.commit, arguments.quick, arguments.only, arguments.json)
    except LayoutkitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # removes the folder, as Ctrl-C does
    sys.exit(main())

"""Print tables row by row, as they are measured.

`Table` prints every table. `Report` prints the table of conversions: the machine and the versions,
the rows, and a summary.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

from .cases import LIMIT
from .entries import FRESH, OURS
from .results import Result, summary, sweep_summary

NAME_WIDTH = 52  # letters of the names of conversions
_EXPLANATION = """\
Medians over interleaved rounds; outputs are reused unless fresh. The limit reads and writes
the same bytes sequentially. x: the time relative to layoutkit's time, the median of the
ratios of all rounds, not the ratio of two medians. goal: the share of the limit that
layoutkit should reach on an idle machine, with ! if it was missed."""


class Column(NamedTuple):
    """A column of a table: its heading, its width, and the text of its cell for a row."""

    heading: str
    width: int
    cell: Callable[[Any], str | None]  # None is printed as a dash


class Table:
    """A table printed to `stream`: each row has a name of `width` letters and a cell per column."""

    def __init__(self, width: int, columns: Sequence[Column], stream: TextIO | None = None) -> None:
        self._width = width
        self._columns = columns
        self._stream = stream or sys.stdout

    def write_headings(self, title: str) -> None:
        """Write the title of the column of names, and the headings of the other columns."""
        cells = "".join(column.heading.rjust(column.width) for column in self._columns)
        self.write_line(title.ljust(self._width) + cells)

    def write_row(self, name: str, item: Any, remark: str = "") -> None:
        """Write the cells of an item, and a remark."""
        cells = "".join((cell(item) or "-").rjust(width) for _, width, cell in self._columns)
        self.write_line(name.ljust(self._width) + cells + remark)

    def write_line(self, text: str = "") -> None:
        """Write a line and flush the stream."""
        print(text.rstrip(), file=self._stream, flush=True)

    def write_items(self, title: str, items: Iterable[str]) -> None:
        """Write a title and a line for each item; nothing if there are no items."""
        lines = [f"    {item}" for item in items]
        if lines:
            self.write_line("\n".join([title, *lines]))


class Report:
    """The table of conversions; `peers` are the other libraries, one column each."""

    def __init__(
        self, peers: Sequence[str], *, is_sweep: bool = False, stream: TextIO | None = None
    ) -> None:
        self._table = Table(NAME_WIDTH, _make_columns(peers), stream)
        self._peers = peers
        self._is_sweep = is_sweep
        self._group = ""

    def begin(self, about: Mapping[str, Any]) -> None:
        """Write the date, the machine and the versions."""
        self._table.write_line(describe_run(about) + "\n\n" + _EXPLANATION)
        if "gpu" in about:
            self._table.write_line(
                "Timed by events on the GPU, in CUDA graphs; fresh outputs without a graph."
            )

    def add(self, result: Result) -> None:
        """Write one row, and the heading of its group before the first row of it."""
        is_call = result.row.kind == "call"
        if result.row.group != self._group:
            self._group = result.row.group
            self._table.write_line()
            write = self._table.write_line if is_call else self._table.write_headings
            write(self._group)
        if is_call:
            for name, times in result.times.items():
                spread = f"({times.low * 1e6:.2f}-{times.high * 1e6:.2f})"
                label = f"{name}: {result.row.name}".ljust(NAME_WIDTH)
                self._table.write_line(f"{label}{times.median * 1e6:8.2f} us {spread}")
        else:
            self._table.write_row(result.row.name, result)
        for name in result.wrong:
            self._table.write_line(f"    {name}: WRONG RESULT, not timed")
        for name, reason in result.failed.items():
            self._table.write_line(f"    {name}: FAILED, {reason}")
        for name, note in result.notes.items():
            self._table.write_line(f"    {name}: {note}")

    def end(self, results: Sequence[Result]) -> None:
        """Write the summary of all rows."""
        total = summary(results, self._peers)
        self._table.write_line()
        if self._is_sweep:
            for line in sweep_summary(results, self._peers):
                self._table.write_line(line)
            below = [r.row.name for r in results if r.reached is False]
            self._table.write_items("below their goal:", below)
        else:
            for name, speedup in total["speedup"].items():
                if speedup is not None:
                    moves = "all moves (geometric mean)" if len(results) > 1 else "this move"
                    text = f"{moves}: {speedup:.1f} times as fast as {name}"
                    self._table.write_line(text)
            if total["goals"]:
                goals = f"{total['goals_reached']} of {total['goals']}"
                text = f"rows that reach their goal: {goals}; fewer on a busy machine"
                self._table.write_line(text)
            self._table.write_items("faster than layoutkit:", total["slower_than"])
        self._table.write_items("wrong results:", total["wrong"])
        self._table.write_items("failed:", total["failed"])


def describe_run(about: Mapping[str, Any]) -> str:
    """Return lines with the date, the command, the machine and the versions."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = [
        f"{about['date']}  {about['command']}",
        f"{about['cpu']}, {about['cpus']} CPUs, {about['threads']} threads",
        f"{about['system']}, Python {about['python']}, {versions}",
    ]
    if "gpu" in about:
        lines.append(_describe_gpu(about["gpu"]))
    return "\n".join([*lines, about["openmp"]])


def _describe_gpu(gpu: Mapping[str, Any]) -> str:
    memory = gpu["memory_bytes"] / 2**30
    cache = gpu["l2_bytes"] / 2**20
    driver = f"driver {gpu['driver']} (CUDA {gpu['driver_cuda']})"
    conditions = f"\n{gpu['conditions']}" if gpu.get("conditions") else ""
    return (
        f"{gpu['name']}, {memory:.0f} GiB, second-level cache {cache:.0f} MiB; "
        f"{driver}, CUDA runtime {gpu['runtime_cuda']}{conditions}"
    )


def _make_columns(peers: Sequence[str]) -> list[Column]:
    """Return all columns but the names."""
    columns = [
        Column("limit GB/s", 11, lambda result: _speed(result, LIMIT)),
        Column("GB/s", 7, lambda result: _speed(result, OURS)),
        Column("ms", 8, lambda result: _milliseconds(result, OURS)),
        Column("p10-p90", 14, _spread),
        Column("of limit", 9, lambda result: _percent(result.of_limit)),
        Column("goal", 8, _goal),
        Column("fresh ms", 9, lambda result: _milliseconds(result, FRESH)),
    ]
    for name in peers:
        columns.append(Column(name, 9, _ratio_cell(name, OURS)))
        columns.append(Column("fresh", 8, _ratio_cell(f"{name}, fresh", FRESH)))
    return columns


def _ratio_cell(name: str, ours: str) -> Callable[[Result], str | None]:
    def cell(result: Result) -> str | None:
        ratio = result.speedup(name, ours)
        return None if ratio is None else f"x{ratio:.1f}"

    return cell


def _speed(result: Result, name: str) -> str | None:
    speed = result.gigabytes_per_second(name)
    return None if speed is None else f"{speed:.1f}"


def _milliseconds(result: Result, name: str) -> str | None:
    return f"{result.times[name].median * 1e3:.3f}" if name in result.times else None


def _spread(result: Result) -> str | None:
    times = result.times.get(OURS)
    return None if times is None else f"{times.low * 1e3:.2f}-{times.high * 1e3:.2f}"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.0f} %"


def _goal(result: Result) -> str:
    """Return the goal, with ! if it was missed."""
    return (_percent(result.row.at_least) or "-") + (" !" if result.reached is False else "  ")

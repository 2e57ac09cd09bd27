"""Print benchmark results: tables on a stream, row by row, and Markdown from saved results.

`Table` is the table of `layoutkit bench`, `LoopTable` is for `--loop`; both begin with the machine
and the versions that the numbers depend on. `--from` prints saved `--loop` results as Markdown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TextIO

from .cases import LIMIT
from .entries import FRESH, OURS
from .files import check_files
from .results import (
    ALL,
    NUMPY,
    ONE,
    PAUSED,
    TORCH,
    LoopResult,
    Result,
    load,
    loop_summary,
    summary,
    sweep_summary,
)

Cell = Callable[[Result], str]
_LABEL = 52
_EXPLANATION = (
    "Medians over interleaved rounds; outputs are reused unless fresh. The limit reads and writes",
    "the same bytes sequentially. x: the multiple of layoutkit's time, the median over rounds",
    "of the ratio, not the ratio of two medians. goal: the share of the limit that",
    "layoutkit should reach on an idle machine, with ! where it did not here.",
)


class Table:
    """The main table, written to `stream`; `peers` are the other libraries, one column each."""

    def __init__(self, stream: TextIO, peers: Sequence[str], *, is_sweep: bool = False) -> None:
        self._stream = stream
        self._peers = peers
        self._is_sweep = is_sweep
        self._group = ""
        self._columns = _columns(peers)

    def begin(self, about: Mapping[str, Any]) -> None:
        """Write date, machine and versions."""
        versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
        self._line(f"{about['date']}  {about['command']}")
        self._line(f"{about['cpu']}, {about['cpus']} CPUs, {about['threads']} threads")
        self._line(f"{about['system']}, Python {about['python']}, {versions}")
        if "gpu" in about:
            self._line(_describe_gpu(about["gpu"]))
        if "openmp" in about:
            self._line(about["openmp"])
        self._line()
        for line in _EXPLANATION:
            self._line(line)
        if "gpu" in about:
            self._line("Timed by events on the GPU, in CUDA graphs; fresh outputs without a graph.")

    def add(self, result: Result) -> None:
        """Write one row, under the heading of its group."""
        if result.row.group != self._group:
            self._group = result.row.group
            self._heading(calls=result.row.kind == "call")
        if result.row.kind == "call":
            self._calls(result)
        else:
            cells = "".join(cell(result).rjust(width) for _, width, cell in self._columns)
            self._line(result.row.name.ljust(_LABEL) + cells)
        for name in result.wrong:
            self._line(f"    {name}: WRONG RESULT, not timed")
        for name, reason in result.failed.items():
            self._line(f"    {name}: FAILED, {reason}")
        for name, note in result.notes.items():
            self._line(f"    {name}: {note}")

    def end(self, results: Sequence[Result]) -> None:
        """Write the summary of all rows."""
        total = summary(results, self._peers)
        self._line()
        if self._is_sweep:
            for line in sweep_summary(results, self._peers):
                self._line(line)
            self._list("below their goal:", [r.row.name for r in results if r.reached is False])
            self._list("wrong results:", total["wrong"])
            self._list("failed:", total["failed"])
            return
        for name, speedup in total["speedup"].items():
            if speedup is not None:
                self._line(f"all moves (geometric mean): {speedup:.1f} times as fast as {name}")
        self._line(
            f"rows that reach their goal: {total['goals_reached']} of {total['goals']}; fewer on a "
            "busy machine"
        )
        self._list("faster than layoutkit:", total["slower_than"])
        self._list("wrong results:", total["wrong"])
        self._list("failed:", total["failed"])

    def _heading(self, calls: bool) -> None:
        self._line()
        headings = "" if calls else _headings(self._columns)
        self._line(self._group.ljust(_LABEL) + headings)

    def _calls(self, result: Result) -> None:
        for name, times in result.times.items():
            spread = f"({times.low * 1e6:.2f}-{times.high * 1e6:.2f})"
            label = f"{name}: {result.row.name}"
            self._line(f"{label.ljust(_LABEL)}{times.median * 1e6:8.2f} us {spread}")

    def _list(self, title: str, items: Iterable[str]) -> None:
        for number, item in enumerate(items):
            if number == 0:
                self._line(title)
            self._line(f"    {item}")

    def _line(self, text: str = "") -> None:
        print(text.rstrip(), file=self._stream, flush=True)


def _headings(columns: Sequence[tuple[str, int, Any]]) -> str:
    return "".join(heading.rjust(width) for heading, width, _ in columns)


def _describe_gpu(gpu: Mapping[str, Any]) -> str:
    memory = gpu["memory_bytes"] / 2**30
    cache = gpu["l2_bytes"] / 2**20
    driver = f"driver {gpu['driver']} (CUDA {gpu['driver_cuda']})"
    conditions = f"\n{gpu['conditions']}" if gpu.get("conditions") else ""
    return (
        f"{gpu['name']}, {memory:.0f} GiB, second-level cache {cache:.0f} MiB; "
        f"{driver}, CUDA runtime {gpu['runtime_cuda']}{conditions}"
    )


def _columns(peers: Sequence[str]) -> list[tuple[str, int, Cell]]:
    """Return heading, width and content of all columns after the row's name."""
    columns: list[tuple[str, int, Cell]] = [
        ("limit GB/s", 11, lambda result: _number(result.gigabytes_per_second(LIMIT))),
        ("GB/s", 7, lambda result: _number(result.gigabytes_per_second(OURS))),
        ("ms", 8, lambda result: _milliseconds(result, OURS)),
        ("p10-p90", 14, _spread_cell),
        ("of limit", 9, lambda result: _percent(result.of_limit)),
        ("goal", 8, _goal_cell),
        ("fresh ms", 9, lambda result: _milliseconds(result, FRESH)),
    ]
    for name in peers:
        columns.append((name, 9, _ratio_cell(name, OURS)))
        columns.append(("fresh", 8, _ratio_cell(f"{name}, fresh", FRESH)))
    return columns


def _ratio_cell(name: str, ours: str) -> Cell:
    def cell(result: Result) -> str:
        ratio = result.speedup(name, ours)
        return "-" if ratio is None else f"x{ratio:.1f}"

    return cell


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _milliseconds(result: Result, name: str) -> str:
    return f"{result.times[name].median * 1e3:.3f}" if name in result.times else "-"


def _spread_cell(result: Result) -> str:
    if OURS not in result.times:
        return "-"
    times = result.times[OURS]
    return f"{times.low * 1e3:.2f}-{times.high * 1e3:.2f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _goal_cell(result: Result) -> str:
    """Return the goal, with a mark if it was missed."""
    mark = " !" if result.reached is False else "  "
    return _percent(result.row.at_least) + mark


LoopCell = Callable[[LoopResult], str]
_LOOP_LABEL = 22
_HEADER = """\
Microseconds of one call: medians and 90th percentiles; x / y: the quotient of two medians. Before
each timed call: the situation, one conversion, and the situation again. ! marks rows in which all
threads took more than 1.05 times one thread's time plus 3 us, more than torch's copy, or, right
after torch.mm, more than 1.1 times their time 30 ms later."""


class LoopTable:
    """The table of `--loop`, written to `stream` as rows are measured."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._megabytes = 0.0
        self._columns = _loop_columns()

    def begin(self, about: Mapping[str, Any]) -> None:
        """Write date, machine and versions."""
        for line in (*_describe_run(about), "", *_HEADER.splitlines()):
            self._line(line)

    def add(self, result: LoopResult) -> None:
        """Write one row, under the heading of its size."""
        if result.megabytes != self._megabytes:
            self._megabytes = result.megabytes
            self._line()
            self._line(f"{result.megabytes:g} MB: {result.name}")
            self._line(" " * _LOOP_LABEL + _headings(self._columns))
            for name in result.wrong:
                self._line(f"    {name}: WRONG RESULT, not timed")
        cells = "".join(cell(result).rjust(width) for _, width, cell in self._columns)
        missed = f"  ! {', '.join(result.missed)}" if result.missed else ""
        self._line(result.situation.ljust(_LOOP_LABEL) + cells + missed)

    def end(self, results: Sequence[LoopResult]) -> None:
        """Write the summary of all rows."""
        total = loop_summary(results)
        self._line()
        self._line(f"rows that miss: {len(total['missed'])} of {total['rows']}")
        for name, slower_than in total["missed"].items():
            self._line(f"    {name}: slower than {', '.join(slower_than)}")
        for name in total["wrong"]:
            self._line(f"wrong result: {name}")

    def _line(self, text: str = "") -> None:
        print(text.rstrip(), file=self._stream, flush=True)


def _loop_columns() -> list[tuple[str, int, LoopCell]]:
    """Return heading, width and content of all columns after the situation."""
    columns: list[tuple[str, int, LoopCell]] = []
    for heading, name in (("1 thread", ONE), ("all", ALL), ("NumPy", NUMPY), ("torch", TORCH)):
        columns += [
            (heading, 10, _microseconds_cell(name, "median")),
            ("p90", 9, _microseconds_cell(name, "p90")),
        ]
        columns += [("all / 1", 9, _loop_ratio_cell(ONE))] if name == ALL else []
    columns.append(("all / torch", 13, _loop_ratio_cell(TORCH)))
    columns += [("30 ms later", 13, _microseconds_cell(PAUSED, "median"))]
    columns += [
        ("p90", 9, _microseconds_cell(PAUSED, "p90")),
        ("all / later", 13, _loop_ratio_cell(PAUSED)),
    ]
    return columns


def _microseconds_cell(name: str, statistic: str) -> LoopCell:
    def cell(result: LoopResult) -> str:
        spread = result.columns.get(name)
        return "-" if spread is None else f"{getattr(spread, statistic) * 1e6:.1f}"

    return cell


def _loop_ratio_cell(other: str) -> LoopCell:
    return lambda result: _loop_number(result.ratio(ALL, other))


def _loop_number(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _describe_run(about: Mapping[str, Any]) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return [
        f"{about['date']}  {about['command']}",
        f"{about['cpu']}, {about['cpus']} CPUs, {about['threads']} threads",
        f"{about['system']}, Python {about['python']}, {versions}",
        about["openmp"],
    ]


def markdown(results: Sequence[LoopResult], about: Mapping[str, Any]) -> str:
    """Return the table of docs/performance.md: a row per situation, a column per size."""
    sizes = list(dict.fromkeys(result.megabytes for result in results))
    lines = [_run_summary(about), "", "| between two calls | " + _cells(f"{s:g} MB" for s in sizes)]
    lines.append("|---" * (len(sizes) + 1) + "|")
    for situation in dict.fromkeys(result.situation for result in results):
        by_size = {r.megabytes: r for r in results if r.situation == situation}
        row = [by_size.get(size) for size in sizes]
        lines.append(f"| {situation} | " + _cells(map(_ratios, row)))
        if any(result and PAUSED in result.columns for result in row):
            lines.append("| the same, relative to 30 ms later | " + _cells(map(_paused_ratio, row)))
    total = loop_summary(results)
    lines += ["", f"{len(total['missed'])} of {total['rows']} rows miss their goal."]
    return "\n".join(lines) + "\n"


def _run_summary(about: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    machine = f"{about['cpu']}, {about['cpus']} CPUs, {about['threads']} threads"
    software = f"Python {about['python']}, {versions}"
    return f"{about['date'][:10]}, `{about['command']}`, on {machine}; {software}."


def _cells(texts: Any) -> str:
    return " | ".join(texts) + " |"


def _ratios(result: LoopResult | None) -> str:
    """Return the ratios to one thread and to torch's copy, with a mark if one misses its goal."""
    if result is None:
        return ""
    ratios = [result.ratio(ALL, name) for name in (ONE, TORCH)]
    mark = " !" if {ONE, TORCH} & set(result.missed) else ""
    return " / ".join(_loop_number(ratio) for ratio in ratios if ratio is not None) + mark


def _paused_ratio(result: LoopResult | None) -> str:
    if result is None:
        return ""
    return _loop_number(result.ratio(ALL, PAUSED)) + (" !" if PAUSED in result.missed else "")


def show_saved(path: str, plot: str | None) -> int:
    """Print saved results as Markdown and draw the chart; raise ArgumentError for other files."""
    check_files(plot, None)
    results, about = load(path)
    sys.stdout.write(markdown(results, about))
    if plot is not None:
        from .chart import draw_loop

        draw_loop(plot, results, about)
    return 0

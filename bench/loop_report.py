"""The tables of `layoutkit bench --loop`: as it runs, and in Markdown from saved results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from .loop_results import ALL, NUMPY, ONE, PAUSED, TORCH, LoopResult, summary

__all__ = ["LoopTable", "markdown"]

Cell = Callable[[LoopResult], str]
_LABEL = 22
_HEADER = """\
Microseconds of one call: medians and 90th percentiles; x / y: the quotient of two medians. Before
each timed call: the situation, one conversion, and the situation again. ! all threads took more
than 1.05 times one thread and 3 us; more than torch's copy; or, right after torch.mm, more than
1.1 times what they take 30 ms later."""


class LoopTable:
    """Writes to `stream`, line by line as rows are measured."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._megabytes = 0.0
        self._columns = _columns()

    def begin(self, about: Mapping[str, Any]) -> None:
        """Say when, where and with what."""
        for line in (*_where(about), "", *_HEADER.splitlines()):
            self._line(line)

    def add(self, result: LoopResult) -> None:
        """Write one row, under the heading of its size."""
        if result.megabytes != self._megabytes:
            self._megabytes = result.megabytes
            self._line()
            self._line(f"{result.megabytes:g} MB: {result.name}")
            heads = "".join(head.rjust(width) for head, width, _ in self._columns)
            self._line(" " * _LABEL + heads)
            for name in result.wrong:
                self._line(f"    {name}: WRONG RESULT, not timed")
        cells = "".join(cell(result).rjust(width) for _, width, cell in self._columns)
        missed = f"  ! {', '.join(result.missed)}" if result.missed else ""
        self._line(result.situation.ljust(_LABEL) + cells + missed)

    def end(self, results: Sequence[LoopResult]) -> None:
        """Write what all rows together say."""
        total = summary(results)
        self._line()
        self._line(f"rows that miss: {len(total['missed'])} of {total['rows']}")
        for name, others in total["missed"].items():
            self._line(f"    {name}: slower than {', '.join(others)}")
        for name in total["wrong"]:
            self._line(f"wrong result: {name}")

    def _line(self, text: str = "") -> None:
        print(text.rstrip(), file=self._stream, flush=True)


def _columns() -> list[tuple[str, int, Cell]]:
    """Heading, width and content of all columns behind the situation."""
    columns: list[tuple[str, int, Cell]] = []
    for head, name in (("1 thread", ONE), ("all", ALL), ("NumPy", NUMPY), ("torch", TORCH)):
        columns += [
            (head, 10, _microseconds(name, "median")),
            ("p90", 9, _microseconds(name, "p90")),
        ]
        columns += [("all / 1", 9, _quotient(ONE))] if name == ALL else []
    columns.append(("all / torch", 13, _quotient(TORCH)))
    columns += [("30 ms later", 13, _microseconds(PAUSED, "median"))]
    columns += [("p90", 9, _microseconds(PAUSED, "p90")), ("all / later", 13, _quotient(PAUSED))]
    return columns


def _microseconds(name: str, which: str) -> Cell:
    def cell(result: LoopResult) -> str:
        spread = result.columns.get(name)
        return "-" if spread is None else f"{getattr(spread, which) * 1e6:.1f}"

    return cell


def _quotient(other: str) -> Cell:
    return lambda result: _number(result.ratio(ALL, other))


def _number(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _where(about: Mapping[str, Any]) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return [
        f"{about['date']}  {about['command']}",
        f"{about['cpu']}, {about['cpus']} CPUs, {about['threads']} threads",
        f"{about['system']}, Python {about['python']}, {versions}",
        about["openmp"],
    ]


def markdown(results: Sequence[LoopResult], about: Mapping[str, Any]) -> str:
    """The table of docs/performance.md: situations down, sizes across."""
    sizes = list(dict.fromkeys(result.megabytes for result in results))
    lines = [_sentence(about), "", "| between two calls | " + _cells(f"{s:g} MB" for s in sizes)]
    lines.append("|---" * (len(sizes) + 1) + "|")
    for situation in dict.fromkeys(result.situation for result in results):
        found = {r.megabytes: r for r in results if r.situation == situation}
        row = [found.get(size) for size in sizes]
        lines.append(f"| {situation} | " + _cells(map(_ratios, row)))
        if any(result and PAUSED in result.columns for result in row):
            lines.append("| the same, by what it takes 30 ms later | " + _cells(map(_later, row)))
    total = summary(results)
    lines += ["", f"{len(total['missed'])} of {total['rows']} rows miss what is wanted."]
    return "\n".join(lines) + "\n"


def _sentence(about: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    machine = f"{about['cpu']}, {about['cpus']} CPUs, {about['threads']} threads"
    software = f"Python {about['python']}, {versions}"
    return f"{about['date'][:10]}, `{about['command']}`, on {machine}; {software}."


def _cells(texts: Any) -> str:
    return " | ".join(texts) + " |"


def _ratios(result: LoopResult | None) -> str:
    """By one thread's median, by that of torch's copy, and a mark where one of them misses."""
    if result is None:
        return ""
    ratios = [result.ratio(ALL, name) for name in (ONE, TORCH)]
    mark = " !" if {ONE, TORCH} & set(result.missed) else ""
    return " / ".join(_number(ratio) for ratio in ratios if ratio is not None) + mark


def _later(result: LoopResult | None) -> str:
    if result is None:
        return ""
    return _number(result.ratio(ALL, PAUSED)) + (" !" if PAUSED in result.missed else "")

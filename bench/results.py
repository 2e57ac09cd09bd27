"""Benchmark results: one `Result` or `LoopResult` per row, their summary, and JSON files.

`Result` is a row of `layoutkit bench`, `LoopResult` a row of `--loop`, measured now or loaded from
a file. `environment` describes the machine that the numbers hold for.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import exp, log
from pathlib import Path
from typing import Any

import layoutkit

from ..errors import ArgumentError
from .cases import LIMIT
from .entries import OURS
from .peers import Peer
from .protocol import Times, paired_ratio
from .rows import Row

SCHEMA = 1


@dataclass(frozen=True)
class Result:
    """The times of a row's variants. Ratios are paired: computed within rounds.

    `wrong` names variants whose result was wrong; `failed` has the error messages of others, and
    `notes` remarks about the times of a variant.
    """

    row: Row
    times: Mapping[str, Times]
    wrong: Sequence[str] = field(default=())
    failed: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def of_limit(self) -> float | None:
        """The share of the limit's speed that layoutkit reaches."""
        return self._ratio(LIMIT, OURS)

    def speedup(self, name: str, ours: str = OURS) -> float | None:
        """Return how many times faster layoutkit is than another variant."""
        return self._ratio(name, ours)

    def share(self, name: str) -> float | None:
        """Return the share of the limit's speed that another variant reaches, for the chart.

        It is computed from the two numbers of the table, so that in the chart, too, layoutkit is
        `speedup` times as far: medians over rounds of three ratios would be inconsistent.
        """
        ours = self.of_limit
        ratio = self.speedup(name)
        return None if ours is None or ratio is None else ours / ratio

    def gigabytes_per_second(self, name: str) -> float | None:
        """Return the row's traffic per second by the median, or None without that variant."""
        if name not in self.times:
            return None
        return self.row.traffic / self.times[name].median / 1e9

    @property
    def reached(self) -> bool | None:
        """True if the row's goal was reached; None without a goal or a measurement."""
        if self.row.at_least is None or self.of_limit is None:
            return None
        return self.of_limit >= self.row.at_least

    def _ratio(self, slower: str, faster: str) -> float | None:
        if slower not in self.times or faster not in self.times:
            return None
        return paired_ratio(self.times[slower], self.times[faster])


def geometric_mean(values: Sequence[float]) -> float | None:
    """Return the geometric mean, or None without values."""
    return exp(sum(map(log, values)) / len(values)) if values else None


def summary(results: Sequence[Result], peers: Sequence[str]) -> dict[str, Any]:
    """Return speedups over all moves, goals reached, and rows where another library is faster."""
    moves = [result for result in results if result.row.kind == "move"]
    goals = [result.reached for result in results if result.reached is not None]
    return {
        "speedup": {name: geometric_mean(_speedups(moves, name)) for name in peers},
        "goals": len(goals),
        "goals_reached": sum(goals),
        "slower_than": [
            f"{result.row.name}: {name} is {1 / ratio:.2f} times faster"
            for result in results
            for name in peers
            if result.row.kind != "call"
            if (ratio := result.speedup(name)) is not None and ratio < 1
        ],
        "wrong": [f"{result.row.name}: {name}" for result in results for name in result.wrong],
        "failed": [f"{result.row.name}: {name}" for result in results for name in result.failed],
    }


def _speedups(results: Sequence[Result], name: str) -> list[float]:
    ratios = [result.speedup(name) for result in results]
    return [ratio for ratio in ratios if ratio is not None]


def environment(peers: Sequence[Peer], quick: bool) -> dict[str, Any]:
    """Return date, command, machine and versions, on which every number depends."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "quick": quick,
        "cpu": cpu_name(),
        "cpus": os.cpu_count(),
        "threads": layoutkit.get_num_threads(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {"layoutkit": layoutkit.__version__, **{p.name: p.version for p in peers}},
    }


def cpu_name() -> str:
    """Return the CPU's name from the system."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def as_json(
    results: Sequence[Result], about: Mapping[str, Any], peers: Sequence[str]
) -> dict[str, Any]:
    """Return all numbers in a form that `json.dump` accepts. Times are seconds per call."""
    rows = [_row_as_json(result) for result in results]
    return {"schema": SCHEMA, **about, "rows": rows, "summary": summary(results, peers)}


def _row_as_json(result: Result) -> dict[str, Any]:
    row = result.row
    return {
        "name": row.name,
        "group": row.group,
        "pattern": row.pattern,
        "letters": row.letters,
        "sizes": list(row.sizes),
        "dtype": row.dtype,
        "to_dtype": row.to_dtype,
        "bytes_read": row.bytes_read,
        "bytes_written": row.bytes_written,
        "of_limit": result.of_limit,
        "at_least": row.at_least,
        "reached": result.reached,
        "wrong": list(result.wrong),
        "failed": dict(result.failed),
        "notes": dict(result.notes),
        "variants": {name: _times_as_json(result, name) for name in result.times},
    }


def _times_as_json(result: Result, name: str) -> dict[str, Any]:
    times = result.times[name]
    return {
        "median": times.median,
        "p10": times.low,
        "p90": times.high,
        "rounds": len(times.rounds),
        "gb_per_s": result.gigabytes_per_second(name),
        "layoutkit_is_faster": result.speedup(name),
    }


ONE = "1 thread"
ALL = "all threads"
NUMPY = "NumPy"
TORCH = "torch"
PAUSED = "all threads, 30 ms later"
# All threads may take MOST_OF_ONE times as long as one thread plus MORE_THAN_ONE seconds, the time
# to check whether the other threads are awake.
MOST_OF_ONE = 1.05
MORE_THAN_ONE = 3e-6
# While threads of another library are awake, they may take this many times as long as afterwards.
MOST_OF_PAUSED = 1.1


@dataclass(frozen=True)
class Spread:
    """Seconds of one call, over `rounds` rounds."""

    median: float
    p10: float
    p90: float
    rounds: int

    @classmethod
    def of(cls, times: Times) -> Spread:
        """Return the spread of measured times."""
        return cls(times.median, times.low, times.high, len(times.rounds))


@dataclass(frozen=True)
class LoopResult:
    """A row: an array of `megabytes`, described by `name`, in one situation.

    `columns` are the times by column name; `wrong` names columns whose result was wrong, which were
    not timed.
    """

    situation: str
    megabytes: float
    name: str
    columns: Mapping[str, Spread]
    wrong: Sequence[str] = field(default=())

    def ratio(self, name: str, other: str) -> float | None:
        """Return the median of `name` divided by that of `other`, as in table, chart and JSON."""
        if name not in self.columns or other not in self.columns:
            return None
        return self.columns[name].median / self.columns[other].median

    @property
    def missed(self) -> list[str]:
        """The columns that all threads should not be slower than, but are."""
        return [other for other in (ONE, TORCH, PAUSED) if self._is_slower_than(other)]

    def _is_slower_than(self, other: str) -> bool:
        if ALL not in self.columns or other not in self.columns:
            return False
        allowed = {
            ONE: lambda seconds: seconds * MOST_OF_ONE + MORE_THAN_ONE,
            TORCH: lambda seconds: seconds,
            PAUSED: lambda seconds: seconds * MOST_OF_PAUSED,
        }
        return bool(self.columns[ALL].median > allowed[other](self.columns[other].median))


def loop_summary(results: Sequence[LoopResult]) -> dict[str, Any]:
    """Return the number of rows, the rows that miss their goals, and the wrong results."""
    return {
        "rows": len(results),
        "missed": {
            f"{result.megabytes:g} MB, {result.situation}": result.missed
            for result in results
            if result.missed
        },
        "wrong": sorted({f"{r.megabytes:g} MB: {name}" for r in results for name in r.wrong}),
    }


def loop_as_json(results: Sequence[LoopResult], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return all numbers in a form that `json.dump` accepts. Times are seconds."""
    rows = [_loop_row_as_json(result) for result in results]
    return {
        "schema": SCHEMA,
        "table": "loop",
        **about,
        "rows": rows,
        "summary": loop_summary(results),
    }


def _loop_row_as_json(result: LoopResult) -> dict[str, Any]:
    ratios = {f"{ALL} / {other}": result.ratio(ALL, other) for other in (ONE, TORCH, PAUSED)}
    return {**asdict(result), "ratios": ratios, "missed": result.missed}


def load(path: str) -> tuple[list[LoopResult], dict[str, Any]]:
    """Read a file of `loop_as_json`: the results, and the environment.

    Raises
    ------
    ArgumentError
        The file is not from `layoutkit bench --loop --json`.
    OSError
        The file cannot be read.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        if (data["table"], data["schema"]) != ("loop", SCHEMA):
            raise ValueError
        results = [_result(row) for row in data["rows"]]
        about = {key: value for key, value in data.items() if key not in ("rows", "summary")}
        (
            about["date"],
            about["command"],
            about["versions"].items(),
        )  # raises if a field of the header is missing
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArgumentError(
            f"--from: {path} is not a file of layoutkit bench --loop --json; give one that is"
        ) from error
    return results, about


def _result(row: Mapping[str, Any]) -> LoopResult:
    columns = {name: Spread(**spread) for name, spread in row["columns"].items()}
    return LoopResult(row["situation"], row["megabytes"], row["name"], columns, row["wrong"])

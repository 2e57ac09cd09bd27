"""What was measured, in numbers: one `Result` per row, and the machine that it holds for.

What `layoutkit bench --loop` measured: medians and their ratios, from a run or a saved one.
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
    """The times of a row's variants. Ratios are paired: of the same rounds.

    `wrong` names those whose result was wrong; `failed` says why others have none, and `notes`
    what to know about the times of a variant.
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
        """How many times faster than another variant layoutkit is."""
        return self._ratio(name, ours)

    def share(self, name: str) -> float | None:
        """The share of the limit's speed that another variant reaches, as the picture shows it.

        By the two numbers of the table, so that in the picture, too, layoutkit is `speedup` times
        as far: medians over rounds of three quotients would not agree with each other.
        """
        ours = self.of_limit
        ratio = self.speedup(name)
        return None if ours is None or ratio is None else ours / ratio

    def gigabytes_per_second(self, name: str) -> float | None:
        """The row's traffic per second by the median, or None without that variant."""
        if name not in self.times:
            return None
        return self.row.traffic / self.times[name].median / 1e9

    @property
    def reached(self) -> bool | None:
        """Whether the row's goal was reached; None if it has none or was not measured."""
        if self.row.at_least is None or self.of_limit is None:
            return None
        return self.of_limit >= self.row.at_least

    def _ratio(self, slower: str, faster: str) -> float | None:
        if slower not in self.times or faster not in self.times:
            return None
        return paired_ratio(self.times[slower], self.times[faster])


def geometric_mean(values: Sequence[float]) -> float | None:
    """The geometric mean, or None of no values."""
    return exp(sum(map(log, values)) / len(values)) if values else None


def summary(results: Sequence[Result], peers: Sequence[str]) -> dict[str, Any]:
    """Speedups over all moves together, goals reached, rows where somebody else is faster."""
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
    """Date, command, machine and versions: what every number depends on."""
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
    """The CPU's name as the system knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def as_json(
    results: Sequence[Result], about: Mapping[str, Any], peers: Sequence[str]
) -> dict[str, Any]:
    """All numbers, in a form that `json.dump` takes. Times are seconds per call."""
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
# All threads may take so many times as long as one, and so many seconds more: what it takes to
# look whether the others are awake.
MOST_OF_ONE = 1.05
MORE_THAN_ONE = 3e-6
# Beside threads of others that are awake, so many times as long as when they sleep again.
MOST_OF_PAUSED = 1.1


@dataclass(frozen=True)
class Spread:
    """Seconds of one call, over so many rounds."""

    median: float
    p10: float
    p90: float
    rounds: int

    @classmethod
    def of(cls, times: Times) -> Spread:
        """Of what was measured."""
        return cls(times.median, times.low, times.high, len(times.rounds))


@dataclass(frozen=True)
class LoopResult:
    """A row: an array of `megabytes`, which `name` describes, in one situation.

    `columns` are the times by the names above; `wrong` names those whose result was wrong, which
    were not timed.
    """

    situation: str
    megabytes: float
    name: str
    columns: Mapping[str, Spread]
    wrong: Sequence[str] = field(default=())

    def ratio(self, name: str, other: str) -> float | None:
        """The median of `name` by that of `other`: the only ratio of table, picture and JSON."""
        if name not in self.columns or other not in self.columns:
            return None
        return self.columns[name].median / self.columns[other].median

    @property
    def missed(self) -> list[str]:
        """What all threads were slower than, and should not be."""
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
    """How many rows there are, which missed what, and what was wrong."""
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
    """All numbers, in a form that `json.dump` takes. Times are seconds."""
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
    """Read what `as_json` gave: the results, and what they depend on.

    Raises
    ------
    ArgumentError
        The file is none of `layoutkit bench --loop --json`.
    OSError
        It cannot be read.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        if (data["table"], data["schema"]) != ("loop", SCHEMA):
            raise ValueError
        results = [_result(row) for row in data["rows"]]
        about = {key: value for key, value in data.items() if key not in ("rows", "summary")}
        about["date"], about["command"], about["versions"].items()  # what a header needs
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArgumentError(
            f"--from: {path} is no file of layoutkit bench --loop --json; give one that is"
        ) from error
    return results, about


def _result(row: Mapping[str, Any]) -> LoopResult:
    columns = {name: Spread(**spread) for name, spread in row["columns"].items()}
    return LoopResult(row["situation"], row["megabytes"], row["name"], columns, row["wrong"])

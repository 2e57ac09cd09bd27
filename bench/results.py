"""What was measured, in numbers: one `Result` per row, and the machine that it holds for."""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from pathlib import Path
from typing import Any

import layoutkit

from .cases import LIMIT
from .entries import OURS
from .peers import Peer
from .protocol import Times, paired_ratio
from .rows import Row

__all__ = ["Result", "as_json", "environment", "geometric_mean", "summary"]

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
        ours, ratio = self.of_limit, self.speedup(name)
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

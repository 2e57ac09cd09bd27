"""Benchmark results: a `Result` per row, their summary, and the contents of JSON files."""

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
from .protocol import Times, paired_ratio, percentile
from .rows import Row

SCHEMA = 1


@dataclass(frozen=True)
class Result:
    """The times of a row's variants; a ratio of two variants is the median of its rounds.

    `wrong` names variants whose result was wrong. `failed` holds error messages, and `notes`
    remarks about times, by variant name.
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
        """Return the speed of layoutkit relative to another variant."""
        return self._ratio(name, ours)

    def share(self, name: str) -> float | None:
        """Return the share of the limit's speed that another variant reaches, for the chart.

        It is `of_limit` / `speedup`, so that the chart agrees with the table. The median over
        rounds of the variant's own share would differ from that.
        """
        ours = self.of_limit
        ratio = self.speedup(name)
        return None if ours is None or ratio is None else ours / ratio

    def gigabytes_per_second(self, name: str) -> float | None:
        """Return the traffic of the row divided by the median time of a variant, or None."""
        if name not in self.times:
            return None
        return self.row.traffic / self.times[name].median / 1e9

    def fastest_peer(self, peers: Sequence[str]) -> tuple[float, str] | None:
        """Return the fastest other library, and its time divided by layoutkit's."""
        ratios = [(ratio, name) for name in peers if (ratio := self.speedup(name)) is not None]
        return min(ratios, default=None)

    @property
    def reached(self) -> bool | None:
        """The outcome of the row's goal: True if reached, None without a goal or measurement."""
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
    """Return mean speedups of moves, goals reached, and rows where another library is faster."""
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


MUCH = 0.95  # of layoutkit's time: a library that needs less is counted as faster
WORST = 20  # rows that are listed


def sweep_summary(results: Sequence[Result], peers: Sequence[str]) -> list[str]:
    """Return lines about all rows: compared with the fastest other library, and with the limit."""
    lines = []
    compared = [
        (*best, result.row.name)
        for result in results
        if (best := result.fastest_peer(peers)) is not None
    ]
    if compared:
        ratios = [ratio for ratio, _, _ in compared]
        slower = sum(ratio < MUCH for ratio in ratios)
        mean = geometric_mean(ratios)
        lines += [
            f"{len(ratios)} rows, {mean:.2f} times as fast as the fastest other library (geometric "
            f"mean); it is more than 5 % faster in {slower} ({slower / len(ratios):.1%}), "
            f"at worst {min(ratios):.2f}"
        ]
    for name in peers:
        ratios = _speedups(results, name)
        if ratios:
            lines.append(
                f"{name}: {geometric_mean(ratios):.2f} (geometric mean of {len(ratios)} rows), "
                f"faster in {sum(ratio < 1 for ratio in ratios)}, at worst {min(ratios):.2f}"
            )
    by_limit = [(share, r.row.name) for r in results if (share := r.of_limit) is not None]
    if by_limit:
        shares = [share for share, _ in by_limit]
        median, low = percentile(shares, 50), percentile(shares, 5)
        lines.append(
            f"share of the limit: median {median:.2f}, 5th percentile {low:.2f}, "
            f"mean {sum(shares) / len(shares):.2f}, worst {min(shares):.2f}"
        )
    for ratio, peer, name in sorted(compared)[:WORST]:
        lines.append(f"    {ratio:.2f} of {peer}'s speed: {name}")
    for share, name in sorted(by_limit)[:WORST]:
        lines.append(f"    {share:.2f} of the limit: {name}")
    return lines


def _speedups(results: Sequence[Result], name: str) -> list[float]:
    ratios = [result.speedup(name) for result in results]
    return [ratio for ratio in ratios if ratio is not None]


def environment(peers: Sequence[Peer], quick: bool) -> dict[str, Any]:
    """Return the date, command, machine and versions of a measurement."""
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
    """Return the name of the CPU as the operating system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def as_json(
    results: Sequence[Result], about: Mapping[str, Any], peers: Sequence[str]
) -> dict[str, Any]:
    """Return all numbers as values for `json.dump`; times are seconds per call."""
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

"""Benchmark results: one `Result` or `LoopResult` per row, their summary, and JSON files.

`Result` is a row of `layoutkit bench`, `LoopResult` a row of `--loop`, measured now or loaded from
a file. `environment` describes the machine and the versions that were measured.
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
        """Return how many times faster layoutkit is than another variant."""
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


ONE = "1 thread"
ALL = "all threads"
NUMPY = "NumPy"
TORCH = "torch"
PAUSED = "all threads, 30 ms later"
# The goal for all threads is at most MOST_OF_ONE times the time of one thread plus MORE_THAN_ONE
# seconds, in which the caller's thread checks if the other threads are awake.
MOST_OF_ONE = 1.05
MORE_THAN_ONE = 3e-6
# The goal for all threads while threads of another library spin: at most this many times the time
# after those threads sleep.
MOST_OF_PAUSED = 1.1


@dataclass(frozen=True)
class Spread:
    """The percentiles of the seconds of one call, over `rounds` rounds."""

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
    """The row of one array, of `megabytes` and described by `name`, in one situation.

    `columns` holds the times by column name; `wrong` names the columns that were not timed because
    their result was wrong.
    """

    situation: str
    megabytes: float
    name: str
    columns: Mapping[str, Spread]
    wrong: Sequence[str] = field(default=())

    def ratio(self, name: str, other: str) -> float | None:
        """Return the median time of column `name` divided by the median of `other`, or None."""
        if name not in self.columns or other not in self.columns:
            return None
        return self.columns[name].median / self.columns[other].median

    @property
    def missed(self) -> list[str]:
        """The columns for which the times of all threads miss the goal."""
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
    """Return the number of rows, the rows that miss goals, and the columns with wrong results."""
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
    """Return all numbers as values for `json.dump`; times are seconds."""
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
    """Return the results and the environment in a JSON file of `layoutkit bench --loop`.

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
        # Raises if a field of the header is missing.
        _ = about["date"], about["command"], about["versions"].items()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArgumentError(
            f"--from: {path} is not a file of layoutkit bench --loop --json; give one that is"
        ) from error
    return results, about


def _result(row: Mapping[str, Any]) -> LoopResult:
    columns = {name: Spread(**spread) for name, spread in row["columns"].items()}
    return LoopResult(row["situation"], row["megabytes"], row["name"], columns, row["wrong"])

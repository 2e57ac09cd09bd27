"""What `layoutkit bench --loop` measured: medians and their ratios, from a run or a saved one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from .protocol import Times

__all__ = [
    "ALL",
    "NUMPY",
    "ONE",
    "PAUSED",
    "TORCH",
    "LoopResult",
    "Spread",
    "as_json",
    "load",
    "summary",
]

SCHEMA = 1
ONE, ALL, NUMPY, TORCH = "1 thread", "all threads", "NumPy", "torch"
PAUSED = "all threads, 30 ms later"
# All threads may take so many times as long as one, and so many seconds more: what it takes to
# look whether the others are awake.
MOST_OF_ONE, MORE_THAN_ONE = 1.05, 3e-6
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


def summary(results: Sequence[LoopResult]) -> dict[str, Any]:
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


def as_json(results: Sequence[LoopResult], about: Mapping[str, Any]) -> dict[str, Any]:
    """All numbers, in a form that `json.dump` takes. Times are seconds."""
    rows = [_row_as_json(result) for result in results]
    return {"schema": SCHEMA, "table": "loop", **about, "rows": rows, "summary": summary(results)}


def _row_as_json(result: LoopResult) -> dict[str, Any]:
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

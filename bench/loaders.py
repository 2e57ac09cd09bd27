"""`--loaders`: records per second from files to batches, compared with other data loaders.

Every table of loader_cases.py is measured with several numbers of workers: threads of layoutkit,
DALI and grain, processes of torch's DataLoader. With 0 workers, the thread of the loop does all
work. Loaders take turns (see protocol.py); a sample is an epoch. Every loader first has to deliver
every record once. Loaders whose libraries are not installed are omitted and named. A share is
relative to the speed of another line: 0.5 is half as fast.
"""

from __future__ import annotations

import json as json_format
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .files import check_files
from .host import set_passive_wait_policy
from .loader_cases import Epoch, LoaderCase, loader_cases
from .protocol import Budget, Times, Variant, measure, paired_ratio
from .report import Column, Table, describe_run
from .results import SCHEMA, environment


@dataclass(frozen=True)
class _Line:
    """The times of one loader, and of all loaders."""

    count: int  # of records
    times: Times
    by_name: dict[str, Times]


def run_loaders(quick: bool, json: str | None = None, limit: float | None = None) -> int:
    """Measure and print all tables; return 0, or exit with an error if records are missing.

    `json` is a file for all numbers, and no number of workers is begun after `limit` seconds.
    """
    end = float("inf") if limit is None else time.monotonic() + limit
    check_files(None, json)
    about = environment([], quick) | {"openmp": set_passive_wait_policy()}
    print(describe_run(about))
    tables: list[dict[str, Any]] = []
    try:
        for make_case in loader_cases(quick):
            if time.monotonic() < end:
                with tempfile.TemporaryDirectory() as folder:
                    tables.append(print_case(make_case(Path(folder)), 1 if quick else 5, end))
    finally:
        if json is not None:
            text = json_format.dumps({"schema": SCHEMA, **about, "tables": tables}, indent=1)
            Path(json).write_text(text + "\n", encoding="utf-8")
    return 0


def print_case(case: LoaderCase, rounds: int, end: float = float("inf")) -> dict[str, Any]:
    """Measure all loaders of a case, print a line for each, the fastest first, and return all.

    No number of workers is begun after the time `end`.
    """
    columns = [Column(f"{case.unit}/s", 12, lambda line: f"{line.count / line.times.median:,.0f}")]
    columns += [Column(f"of {name}", len(name) + 6, _share(name)) for name in case.shares]
    table = Table(36, columns)
    table.write_line(f"\n{case.title}, {rounds} rounds")
    table.write_headings("workers")
    lines: list[dict[str, Any]] = []
    for workers in case.workers:
        if time.monotonic() >= end:
            table.write_line(f"{workers:7}  not measured: the time is up")
            break
        times = measure_case(case, workers, rounds)
        for name in sorted(times, key=lambda name: times[name].median):
            table.write_row(f"{workers:7}  {name}", _Line(case.count, times[name], times))
            seconds = {
                "median": times[name].median,
                "p10": times[name].low,
                "p90": times[name].high,
            }
            lines.append({"workers": workers, "name": name, **seconds})
    table.write_items("not installed:", case.missing)
    described = {"title": case.title, "unit": case.unit, "count": case.count}
    return {**described, "rounds": rounds, "missing": case.missing, "lines": lines}


def _share(name: str) -> Callable[[_Line], str]:
    return lambda line: f"{paired_ratio(line.by_name[name], line.times):.2f}"


def measure_case(case: LoaderCase, workers: int, rounds: int) -> dict[str, Times]:
    """Return the times of an epoch by the names of loaders and baselines."""
    budget = Budget(seconds=0.0, warm_up=0.0, min_rounds=rounds, max_rounds=rounds, sample=0.0)
    with ExitStack() as stack:
        epochs = case.epochs(workers, stack)
        calls = case.baselines(workers, stack)
        calls |= {name: partial(_run_through, epoch) for name, epoch in epochs.items()}
        return measure([Variant(name, [call]) for name, call in calls.items()], budget)


def _run_through(epoch: Epoch) -> None:
    deque(epoch(), maxlen=0)

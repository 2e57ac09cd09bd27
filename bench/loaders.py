"""`--loaders`: records per second from files to batches, compared with other data loaders.

Every table of loader_cases.py is measured with several numbers of workers: threads of layoutkit,
DALI and grain, processes of torch's DataLoader. With 0 workers, the thread of the loop does all
work. Loaders take turns (see protocol.py); a sample is an epoch. Every loader first has to deliver
every record once. Loaders whose libraries are not installed are omitted. A share is relative to the
speed of another line: 0.5 is half as fast.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .host import set_passive_wait_policy
from .loader_cases import Epoch, LoaderCase, loader_cases
from .protocol import Budget, Times, Variant, measure, paired_ratio
from .report import Column, Table, describe_run
from .results import environment


@dataclass(frozen=True)
class _Line:
    """The times of one loader, and of all loaders."""

    count: int  # of records
    times: Times
    by_name: dict[str, Times]


def run_loaders(quick: bool) -> int:
    """Measure and print all tables; return 0, or exit with an error if records are missing."""
    print(describe_run(environment([], quick) | {"openmp": set_passive_wait_policy()}))
    for make_case in loader_cases(quick):
        with tempfile.TemporaryDirectory() as folder:
            print_case(make_case(Path(folder)), rounds=1 if quick else 5)
    return 0


def print_case(case: LoaderCase, rounds: int) -> None:
    """Measure all loaders of a case and print a line for each, the fastest first."""
    columns = [Column(f"{case.unit}/s", 12, lambda line: f"{line.count / line.times.median:,.0f}")]
    columns += [Column(f"of {name}", len(name) + 6, _share(name)) for name in case.shares]
    table = Table(36, columns)
    table.write_line(f"\n{case.title}, {rounds} rounds")
    table.write_headings("workers")
    for workers in case.workers:
        times = measure_case(case, workers, rounds)
        for name in sorted(times, key=lambda name: times[name].median):
            table.write_row(f"{workers:7}  {name}", _Line(case.count, times[name], times))


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

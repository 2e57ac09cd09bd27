"""Measure all rows one after the other, and report the results."""

from __future__ import annotations

import json as json_format
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import layoutkit

from ..config import warmup
from ..errors import ArgumentError
from ..kernels.cpu.compiler import loaded
from .cases import prepare
from .device import adapt_to_device, device_peers, device_rows, open_cuda
from .entries import FRESH, OURS
from .files import check_files
from .host import Device, set_passive_wait_policy
from .peers import Peer, available
from .protocol import Budget, measure
from .report import Report
from .results import Result, as_json, environment
from .rows import Row, all_rows
from .sweeps import sweep_rows

FULL = Budget(seconds=2.5, warm_up=0.05)
QUICK = Budget(seconds=0.6, warm_up=0.02, min_rounds=3)
# Sweeps have hundreds of rows. A row has many rounds even so, as the times of peers vary more.
SWEEP = Budget(seconds=0.6, warm_up=0.01, max_rounds=30)
# Times of a GPU vary less than times of the shared cores of a server, so a second is enough. GPU
# samples are longer, because the first launch of a sample takes some microseconds to begin.
DEVICE_FULL = Budget(seconds=1.0, warm_up=0.02, sample=3e-3)
DEVICE_QUICK = Budget(seconds=0.3, warm_up=0.01, min_rounds=3, sample=3e-3)


ORIGINS = {
    "cached": "in an earlier process",
    "shipped": "in the wheel",
    "compiled": "now; later processes load it",
}


@dataclass(frozen=True)
class Setup:
    """The device, rows, peers and budget of a run."""

    device: Device
    rows: Sequence[Row]
    peers: Sequence[Peer]
    budget: Budget
    fresh_peers: bool = False
    has_goals: bool = True  # the summary is about goals; otherwise about the fastest library


def main_setup(device: str, quick: bool) -> Setup:
    """Return the main table of "cpu" or "cuda"."""
    if device != "cpu":
        gpu = open_cuda()
        budget = DEVICE_QUICK if quick else DEVICE_FULL
        return Setup(gpu, device_rows(quick), device_peers(gpu), budget, not quick)
    peers = available(layoutkit.get_num_threads())
    return Setup(Device(), all_rows(quick), peers, QUICK if quick else FULL, not quick)


def sweep_setup(device: str, quick: bool, sweep: str, count: int, seed: int) -> Setup:
    """Return the rows of a sweep; "random" has `count` rows from `seed`."""
    rows = sweep_rows(sweep, quick, count, seed)
    if device != "cpu":
        gpu = open_cuda()
        rows = [*map(adapt_to_device, rows)]
        return Setup(gpu, rows, device_peers(gpu), DEVICE_QUICK, has_goals=False)
    peers = [] if sweep == "floor" else available(layoutkit.get_num_threads())
    return Setup(Device(), rows, peers, QUICK if quick else SWEEP, has_goals=False)


def row_setup(device: str, quick: bool, row: Row) -> Setup:
    """Return one row, of arrays of the given sizes on any device."""
    if device != "cpu":
        gpu = open_cuda()
        return Setup(gpu, [row], device_peers(gpu), DEVICE_QUICK)
    peers = available(layoutkit.get_num_threads())
    return Setup(Device(), [row], peers, QUICK if quick else SWEEP)


def run(
    make_setup: Callable[[], Setup],
    quick: bool,
    plot: str | None,
    json: str | None,
    only: str | None = None,
    seconds: float | None = None,
) -> int:
    """Measure, print the table, write the files; return 1 if layoutkit fails or is wrong.

    `only` selects the rows by a regular expression in their names, and no row is begun after
    `seconds`. The rows of the sweep "floor" must also reach their goals. An interrupted run writes
    the files with the results so far.
    """
    end = float("inf") if seconds is None else time.monotonic() + seconds
    check_files(plot, json)
    openmp = set_passive_wait_policy()  # before a library with OpenMP threads is imported
    setup = make_setup()
    if only is not None:
        setup = replace(setup, rows=select_rows(setup.rows, only))
    names = [peer.name for peer in setup.peers]
    about = environment(setup.peers, quick) | setup.device.about() | {"openmp": openmp}
    report = Report(names, is_sweep=not setup.has_goals)
    report.begin(about)
    results: list[Result] = []
    try:
        for result in measured(setup, end):
            report.add(result)
            results.append(result)
    finally:
        _write(results, about, names, plot, json)
    report.end(results)
    if len(results) < len(setup.rows):
        rest = "\n    ".join(row.name for row in setup.rows[len(results) :])
        print(f"not measured in {seconds:g} s:\n    {rest}")
    excluded = {name for result in results for name in (*result.wrong, *result.failed)}
    is_below = any(r.reached is False for r in results if r.row.group == "floor")
    return int(not excluded.isdisjoint((OURS, FRESH)) or is_below)


def show_plan(row: Row) -> None:
    """Print the plan of a row, the number of threads, and where its kernels came from."""
    conversion = layoutkit.plan(row.pattern, row.sizes, row.dtype, dtype=row.to_dtype)
    print(f"\n{conversion}\n  threads   {layoutkit.get_num_threads()}")
    used = {str(job) for job in warmup(row.pattern, row.sizes, row.dtype, dtype=row.to_dtype)}
    for kernel in loaded():
        if str(kernel.spec) in used:
            print(f"  compiled  {ORIGINS[kernel.origin]}: {kernel.spec}")


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_NamedRow = TypeVar("_NamedRow", bound=_Named)


def select_rows(rows: Sequence[_NamedRow], only: str) -> list[_NamedRow]:
    """Return the rows whose names contain a match of the regular expression `only`."""
    try:
        pattern = re.compile(only)
    except re.error as error:
        raise ArgumentError(f"--only {only!r} is not a regular expression: {error}") from None
    selected = [row for row in rows if pattern.search(row.name)]
    if not selected:
        raise ArgumentError(
            f"--only {only!r} matches none of the {len(rows)} rows, such as {rows[0].name!r}; "
            "a parenthesis is written as \\("
        )
    return selected


def measured(setup: Setup, end: float = float("inf")) -> Iterator[Result]:
    """Yield the checked results row by row, of the rows that begin before the time `end`.

    Release the buffers of a row before the next row.
    """
    for row in setup.rows:
        if time.monotonic() >= end:
            return
        with setup.device.using():
            result = _measure_row(row, setup)
        yield result
        setup.device.clear()


def _measure_row(row: Row, setup: Setup) -> Result:
    fresh_peers = setup.fresh_peers or row.kind == "fused"
    case = prepare(row, setup.peers, fresh_peers, setup.device)
    # The cost of a call is host time, on any device.
    timer = None if row.kind == "call" else setup.device.timer
    times = measure(case.variants, setup.budget, timer=timer)
    notes = {variant.name: variant.note for variant in case.variants if variant.note}
    return Result(row, times, case.wrong, case.failed, notes)


def _write(
    results: Sequence[Result],
    about: dict[str, Any],
    peers: Sequence[str],
    plot: str | None,
    json: str | None,
) -> None:
    if json is not None:
        text = json_format.dumps(as_json(results, about, peers), indent=1)
        Path(json).write_text(text + "\n", encoding="utf-8")
    if plot is not None:
        from .chart import draw

        draw(plot, results, about)

"""From rows to the report: measure one row after the other, and say what came of it."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import layoutkit

from .cases import prepare
from .device import device_peers, device_rows, open_cuda
from .entries import FRESH, OURS
from .files import check_files
from .host import Device, Host, set_passive_wait_policy
from .peers import Peer, available
from .protocol import Budget, measure
from .report import Table
from .results import Result, as_json, environment
from .rows import Row, all_rows

FULL = Budget(seconds=2.5, warm_up=0.05)
QUICK = Budget(seconds=0.6, warm_up=0.02, min_rounds=3)
# A GPU is not shared as the cores of a server are, so a second says as much; its samples are
# longer, for the first launch of each takes some microseconds to arrive.
DEVICE_FULL = Budget(seconds=1.0, warm_up=0.02, sample=3e-3)
DEVICE_QUICK = Budget(seconds=0.3, warm_up=0.01, min_rounds=3, sample=3e-3)


@dataclass(frozen=True)
class _Setting:
    """Where to measure what, with whom and for how long."""

    device: Device
    rows: Sequence[Row]
    peers: Sequence[Peer]
    budget: Budget


def run(
    quick: bool, plot: str | None, json: str | None, device: str, with_others: bool = False
) -> int:
    """Measure, print the table, write the files; return 1 if a result of ours is wrong or missing.

    Files are also written, with what there is, if it ends before all rows are measured.
    """
    check_files(plot, json)
    openmp = set_passive_wait_policy()  # before any library is imported that has such threads
    setting = _on_cpu(quick, with_others) if device == "cpu" else _on_cuda(quick)
    names = [peer.name for peer in setting.peers]
    about = environment(setting.peers, quick) | setting.device.about() | {"openmp": openmp}
    table = Table(sys.stdout, names)
    table.begin(about)
    results: list[Result] = []
    try:
        for result in measured(setting, fresh_peers=not quick):
            table.add(result)
            results.append(result)
    finally:
        _write(results, about, names, plot, json)
    table.end(results)
    lost = [name for result in results for name in (*result.wrong, *result.failed)]
    return int(OURS in lost or FRESH in lost)


def _on_cpu(quick: bool, with_others: bool) -> _Setting:
    threads = layoutkit.get_num_threads()
    peers = available(threads)
    if with_others:
        from .peers import optional_peers

        peers += optional_peers(threads)
    return _Setting(Host(), all_rows(quick), peers, QUICK if quick else FULL)


def _on_cuda(quick: bool) -> _Setting:
    device = open_cuda()
    budget = DEVICE_QUICK if quick else DEVICE_FULL
    return _Setting(device, device_rows(quick), device_peers(device), budget)


def measured(setting: _Setting, fresh_peers: bool) -> Iterator[Result]:
    """Prepare, check and measure row by row; one row's buffers are gone before the next."""
    for row in setting.rows:
        with setting.device.using():
            result = _measured(row, setting, fresh_peers or row.kind == "fused")
        yield result
        setting.device.clear()


def _measured(row: Row, setting: _Setting, fresh_peers: bool) -> Result:
    case = prepare(row, setting.peers, fresh_peers, setting.device)
    # What a call costs is the host's time, on any device.
    timer = None if row.kind == "call" else setting.device.timer
    times = measure(case.variants, setting.budget, timer=timer)
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

"""From rows to the report: measure one row after the other, and say what came of it."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import layoutkit

from .cases import FRESH, OURS, prepare
from .peers import Peer, available
from .protocol import Budget, measure
from .report import Table
from .results import Result, as_json, environment
from .rows import Row, all_rows

__all__ = ["run"]

FULL = Budget(seconds=2.5, warm_up=0.05)
QUICK = Budget(seconds=0.6, warm_up=0.02, min_rounds=3)


def run(quick: bool, plot: str | None, json: str | None) -> int:
    """Measure, print the table, write the files; return 1 if a result of ours was wrong."""
    peers = available(layoutkit.get_num_threads())
    names = [peer.name for peer in peers]
    about = environment(peers, quick)
    table = Table(sys.stdout, names)
    table.begin(about)
    results = []
    for result in measured(all_rows(quick), peers, quick):
        table.add(result)
        results.append(result)
    table.end(results)
    _write(results, about, names, plot, json)
    return int(any(name in (OURS, FRESH) for result in results for name in result.wrong))


def measured(rows: Iterable[Row], peers: Sequence[Peer], quick: bool) -> Iterator[Result]:
    """Prepare, check and measure row by row; one row's buffers are gone before the next."""
    budget = QUICK if quick else FULL
    for row in rows:
        case = prepare(row, peers, fresh_peers=not quick or row.kind == "fused")
        yield Result(row, measure(case.variants, budget), tuple(case.wrong))


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

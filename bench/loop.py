"""`layoutkit bench --loop`: conversions between other things that a program does.

The rows of the big table are timed back to back, by workers that are awake. Here every size is
timed in every situation of `situations`, since what it costs to have a second thread depends on
whether it is awake, and on who else is. For each sample:

1. the situation, then one conversion, so that the workers' history is that of this situation and
   this number of threads, and not of the column before;
2. the situation again, then one conversion that is timed.

All columns of a row take turns, and every other round goes backwards. So only torch itself and
NumPy, which has one thread, follow torch's copy; they go on with 1. until its threads sleep.
"""

from __future__ import annotations

import json as json_format
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import layoutkit

from ..buffers import empty
from .cases import is_right, reference
from .files import check_files
from .host import Array, Call, describe_wait_policy
from .peers import NumPy, Peer, TorchPeer
from .protocol import Budget, Clock, Times, no_collector
from .report import LoopTable
from .results import ALL, NUMPY, ONE, PAUSED, TORCH, LoopResult, Spread, environment, loop_as_json
from .rows import Row
from .situations import PAUSE, Situation, all_situations

MEGABYTES = (0.1, 0.5, 1, 2, 4, 8, 16, 64, 100)  # of the array that is read; as much is written
QUICK_MEGABYTES = (0.5, 4, 16)
FULL = Budget(seconds=4.0, warm_up=0.0, min_rounds=15, max_rounds=101)
QUICK = Budget(seconds=0.5, warm_up=0.0, min_rounds=5, max_rounds=25)


@dataclass(frozen=True)
class Column:
    """One way to do a row's work, with so many threads of layoutkit's.

    `lingers`: seconds for which its own threads spin after a call. `pause`: seconds between the
    situation and the call.
    """

    name: str
    call: Call
    threads: int
    lingers: float = 0.0
    pause: float = 0.0


@dataclass(frozen=True)
class Columns:
    """All ways to do a row's work, a conversion of ours for somebody else, and who was wrong."""

    columns: Sequence[Column]
    others: Call
    wrong: Sequence[str]


def run_loop(quick: bool, plot: str | None, json: str | None) -> int:
    """Measure, print the table, write the files; return 1 if a result of ours is wrong.

    Files are also written, with what there is, if it ends before all rows are measured.
    """
    check_files(plot, json)
    peers, torch = _peers(layoutkit.get_num_threads())
    about = environment(peers, quick) | {"openmp": describe_wait_policy()}
    table = LoopTable(sys.stdout)
    table.begin(about)
    results: list[LoopResult] = []
    try:
        for result in measured(quick, peers, all_situations(torch)):
            table.add(result)
            results.append(result)
    finally:
        _write(results, about, plot, json)
    table.end(results)
    return int(any({ONE, ALL} & set(result.wrong) for result in results))


def _peers(threads: int) -> tuple[list[Peer], Any]:
    """NumPy, and torch where it is installed; then its module."""
    try:
        import torch
    except ImportError:
        return [NumPy()], None
    return [NumPy(), TorchPeer(threads)], torch


def measured(
    quick: bool, peers: Sequence[Peer], situations: Sequence[Situation]
) -> Iterator[LoopResult]:
    """Every size in every situation."""
    threads = layoutkit.get_num_threads()
    for megabytes in QUICK_MEGABYTES if quick else MEGABYTES:
        row = loop_row(megabytes)
        found = columns_of(row, peers, threads)
        for situation in situations:
            with _threads_as_before(threads), situation.beside(found.others):
                times = _times(found.columns, situation, QUICK if quick else FULL)
            spreads = {name: Spread.of(each) for name, each in times.items()}
            yield LoopResult(situation.name, megabytes, row.name, spreads, found.wrong)


def loop_row(megabytes: float) -> Row:
    """The conversion: float32, 64 places of 64 channels a sample, as many samples as fit."""
    batch = max(1, int(megabytes * 1e6) // (4 * 64 * 64))
    return Row("loop", "move", ("bwc",), "bcw", "bwc", (batch, 64, 64), "float32", "float32")


@contextmanager
def _threads_as_before(threads: int) -> Iterator[None]:
    try:
        yield
    finally:
        layoutkit.set_num_threads(threads)


def columns_of(row: Row, peers: Sequence[Peer], threads: int) -> Columns:
    """Make arrays and columns; leave out those whose result is wrong."""
    source, out = _arrays(row)
    candidates = [
        Column(ONE, _layoutkit_call(row, source, out), 1),
        Column(ALL, _layoutkit_call(row, source, out), threads),
    ]
    for peer in peers:
        call = peer.into(row, [source], out)
        if call is not None:
            name = {"NumPy": NUMPY, "torch": TORCH}.get(peer.name, peer.name)
            candidates.append(Column(name, call, threads, peer.lingers))
    expected = reference(row, [source])
    right = [column for column in candidates if _is_right(column, row, out, expected)]
    wrong = [column.name for column in candidates if column not in right]
    return Columns(right, _layoutkit_call(row, *_arrays(row)), wrong)


def _arrays(row: Row) -> tuple[Array, Array]:
    source = np.random.default_rng(0).random(row.shape(row.sources[0]), np.float32)
    out = empty(row.shape(row.target), np.float32)
    out.fill(0)  # touches its pages
    return source, out


def _layoutkit_call(row: Row, source: Array, out: Array) -> Call:
    return partial(layoutkit.Converter(row.pattern), source, out=out)


def _is_right(column: Column, row: Row, out: Array, expected: Array) -> bool:
    out.view(np.uint8).fill(0xA5)  # so that nobody is right by what was there before
    with _threads_as_before(layoutkit.get_num_threads()):
        layoutkit.set_num_threads(column.threads)
        column.call()
    return is_right(row, out, expected)


def _times(columns: Sequence[Column], situation: Situation, budget: Budget) -> dict[str, Times]:
    if situation.paused:
        paused = [replace(c, name=PAUSED, pause=PAUSE) for c in columns if c.name == ALL]
        columns = (
            [c for c in columns if c.name in (ONE, ALL)] + paused + list(_peer_columns(columns))
        )
    return take_turns(columns, situation.gap, budget)


def _peer_columns(columns: Sequence[Column]) -> Iterator[Column]:
    return (column for column in columns if column.name not in (ONE, ALL))


def take_turns(
    columns: Sequence[Column],
    gap: Call,
    budget: Budget,
    clock: Clock = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Times]:
    """Time all columns by the protocol above, after a round that does not count."""
    times = {column.name: Times() for column in columns}
    with no_collector():
        began = quiet = clock()
        for number in range(-1, budget.max_rounds):
            if number >= budget.min_rounds and clock() - began >= budget.seconds:
                break
            for column in columns if number % 2 == 0 else reversed(columns):
                seconds = _sample(column, gap, quiet, clock, sleep)
                quiet = clock() + column.lingers
                if number >= 0:
                    times[column.name].rounds[number] = seconds
    return times


def _sample(
    column: Column, gap: Call, quiet: float, clock: Clock, sleep: Callable[[float], None]
) -> float:
    """Take one sample, once the column before is `quiet`."""

    def arrive() -> None:
        gap()
        if column.pause:
            sleep(column.pause)

    layoutkit.set_num_threads(column.threads)
    while True:
        arrive()
        column.call()
        if clock() >= quiet:
            break
    arrive()
    began = clock()
    column.call()
    return clock() - began


def _write(
    results: Sequence[LoopResult], about: dict[str, Any], plot: str | None, json: str | None
) -> None:
    if json is not None:
        text = json_format.dumps(loop_as_json(results, about), indent=1)
        Path(json).write_text(text + "\n", encoding="utf-8")
    if plot is not None:
        from .chart import draw_loop

        draw_loop(plot, results, about)

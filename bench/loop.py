"""`layoutkit bench --loop`: conversions between other operations of a program.

The rows of the main table are timed back to back, with worker threads that are awake. Here every
size is timed in every situation of `all_situations`, because the cost of a second thread depends on
whether it is awake, and on other threads. For each sample:

1. the situation, then one untimed conversion, so that the state of the worker threads results from
   this situation and number of threads, not from the previous column;
2. the situation again, then one timed conversion.

All columns of a row take turns, and every other round runs in reverse order. So only torch itself
and NumPy, which has one thread, run right after torch; they repeat step 1 until torch's threads
sleep.
"""

from __future__ import annotations

import json as json_format
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
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

MEGABYTES = (0.1, 0.5, 1, 2, 4, 8, 16, 64, 100)  # size of the source; the result is as large
QUICK_MEGABYTES = (0.5, 4, 16)
FULL = Budget(seconds=4.0, warm_up=0.0, min_rounds=15, max_rounds=101)
QUICK = Budget(seconds=0.5, warm_up=0.0, min_rounds=5, max_rounds=25)

PAUSE = 0.03  # seconds after which OpenMP threads sleep (libgomp: after a few milliseconds)
_SLEEPS = (0.1, 1, 5, 50)  # milliseconds
_BUSY = (1, 5)  # milliseconds
_LARGE = 8_000_000  # float32 items: 32 MB exceed a core's caches and, on most CPUs, all caches
_SIDE = 700  # of square matrices, whose product takes a few milliseconds


# ---- situations: the operations between two conversions ----------------------------------


@dataclass(frozen=True)
class Situation:
    """An operation before each call (`gap`), and a background activity during all calls.

    `beside` returns the context manager of the background activity; its argument is a conversion
    that the activity may call. `paused`: also measure a call `PAUSE` seconds after the gap.
    """

    name: str
    gap: Call
    beside: Callable[[Call], AbstractContextManager[Any]] = nullcontext
    paused: bool = False


def all_situations(torch: Any = None) -> list[Situation]:
    """Return all situations in the order of the table; the last one only if `torch` is given."""
    situations = [Situation("back to back", _do_nothing)]
    situations += [Situation(f"{ms} ms of sleep", partial(time.sleep, ms / 1e3)) for ms in _SLEEPS]
    situations += [Situation(f"{ms} ms of Python", partial(_run_python, ms / 1e3)) for ms in _BUSY]
    situations += [
        Situation("a copy of 32 MB", _make_copy(_LARGE)),
        Situation("beside a thread", _do_nothing, beside=_convert_in_background),
    ]
    if torch is not None:
        situations.append(
            Situation("right after torch.mm", _make_product(torch, _SIDE), paused=True)
        )
    return situations


def _do_nothing() -> None:
    """Do nothing between two calls."""


def _run_python(seconds: float) -> int:
    """Keep the interpreter busy for `seconds`; return the number of iterations."""
    end = time.perf_counter() + seconds
    count = 0
    while time.perf_counter() < end:
        count += 1
    return count


def _make_copy(count: int) -> Call:
    """Return a copy of `count` items, which evicts the conversion's data from the caches."""
    source = np.ones(count, np.float32)
    return partial(np.copyto, np.empty_like(source), source)


def _make_product(torch: Any, side: int) -> Call:
    """Return a matrix product on all of torch's threads, which spin afterwards."""
    left = torch.rand(side, side)
    right = torch.rand(side, side)
    return partial(torch.mm, left, right)


@contextmanager
def _convert_in_background(call: Call) -> Iterator[None]:
    """Call the conversion repeatedly on a second Python thread."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            call()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


# ---- measuring ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A variant of a row, with the number of layoutkit's threads.

    `spin_seconds`: seconds for which the library's threads spin after a call. `pause`: seconds
    between the situation and the call.
    """

    name: str
    call: Call
    threads: int
    spin_seconds: float = 0.0
    pause: float = 0.0


@dataclass(frozen=True)
class Columns:
    """The correct variants of a row, a background conversion, and the names of wrong variants."""

    columns: Sequence[Column]
    background: Call
    wrong: Sequence[str]


def run_loop(quick: bool, plot: str | None, json: str | None) -> int:
    """Measure, print the table, write the files; return 1 if a result of layoutkit is wrong.

    If the run is interrupted, the files are written with the results so far.
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
    """Return the peers NumPy and, if installed, torch; and the module `torch` or None."""
    try:
        import torch
    except ImportError:
        return [NumPy()], None
    return [NumPy(), TorchPeer(threads)], torch


def measured(
    quick: bool, peers: Sequence[Peer], situations: Sequence[Situation]
) -> Iterator[LoopResult]:
    """Yield the result of every size in every situation."""
    threads = layoutkit.get_num_threads()
    for megabytes in QUICK_MEGABYTES if quick else MEGABYTES:
        row = make_loop_row(megabytes)
        columns = make_columns(row, peers, threads)
        for situation in situations:
            with _restore_num_threads(threads), situation.beside(columns.background):
                times = _measure_columns(columns.columns, situation, QUICK if quick else FULL)
            spreads = {name: Spread.of(samples) for name, samples in times.items()}
            yield LoopResult(situation.name, megabytes, row.name, spreads, columns.wrong)


def make_loop_row(megabytes: float) -> Row:
    """Return a float32 row of `megabytes`, in samples of 64 positions of 64 channels."""
    batch = max(1, int(megabytes * 1e6) // (4 * 64 * 64))
    return Row("loop", "move", ("bwc",), "bcw", "bwc", (batch, 64, 64), "float32", "float32")


@contextmanager
def _restore_num_threads(threads: int) -> Iterator[None]:
    try:
        yield
    finally:
        layoutkit.set_num_threads(threads)


def make_columns(row: Row, peers: Sequence[Peer], threads: int) -> Columns:
    """Return the columns of a row without those whose result is wrong."""
    source, out = _make_arrays(row)
    candidates = [
        Column(ONE, _make_call(row, source, out), 1),
        Column(ALL, _make_call(row, source, out), threads),
    ]
    for peer in peers:
        call = peer.into(row, [source], out)
        if call is not None:
            name = {"NumPy": NUMPY, "torch": TORCH}.get(peer.name, peer.name)
            candidates.append(Column(name, call, threads, peer.spin_seconds))
    expected = reference(row, [source])
    correct = [column for column in candidates if _is_right(column, row, out, expected)]
    wrong = [column.name for column in candidates if column not in correct]
    return Columns(correct, _make_call(row, *_make_arrays(row)), wrong)


def _make_arrays(row: Row) -> tuple[Array, Array]:
    source = np.random.default_rng(0).random(row.shape(row.sources[0]), np.float32)
    out = empty(row.shape(row.target), np.float32)
    out.fill(0)  # touches its pages
    return source, out


def _make_call(row: Row, source: Array, out: Array) -> Call:
    return partial(layoutkit.Converter(row.pattern), source, out=out)


def _is_right(column: Column, row: Row, out: Array, expected: Array) -> bool:
    out.view(np.uint8).fill(0xA5)  # so that the result of an earlier column cannot pass
    with _restore_num_threads(layoutkit.get_num_threads()):
        layoutkit.set_num_threads(column.threads)
        column.call()
    return is_right(row, out, expected)


def _measure_columns(
    columns: Sequence[Column], situation: Situation, budget: Budget
) -> dict[str, Times]:
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
    """Return the times of all columns by the protocol of this module; discard the first round."""
    times = {column.name: Times() for column in columns}
    with no_collector():
        start = quiet_after = clock()
        for round_index in range(-1, budget.max_rounds):
            if round_index >= budget.min_rounds and clock() - start >= budget.seconds:
                break
            for column in columns if round_index % 2 == 0 else reversed(columns):
                seconds = _sample(column, gap, quiet_after, clock, sleep)
                quiet_after = clock() + column.spin_seconds
                if round_index >= 0:
                    times[column.name].rounds[round_index] = seconds
    return times


def _sample(
    column: Column, gap: Call, quiet_after: float, clock: Clock, sleep: Callable[[float], None]
) -> float:
    """Return the seconds of one call, timed when the threads of the previous column sleep."""

    def prepare() -> None:
        gap()
        if column.pause:
            sleep(column.pause)

    layoutkit.set_num_threads(column.threads)
    while True:
        prepare()
        column.call()
        if clock() >= quiet_after:
            break
    prepare()
    start = clock()
    column.call()
    return clock() - start


def _write(
    results: Sequence[LoopResult], about: dict[str, Any], plot: str | None, json: str | None
) -> None:
    if json is not None:
        text = json_format.dumps(loop_as_json(results, about), indent=1)
        Path(json).write_text(text + "\n", encoding="utf-8")
    if plot is not None:
        from .chart import draw_loop

        draw_loop(plot, results, about)

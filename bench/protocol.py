"""How everything is timed: one helper for all rows and all libraries.

Shared machines change speed by a factor of two within minutes, caches flatter whoever runs
last, and fresh memory costs more than the work. Hence:

- **Interleaved.** Every round runs every variant once, the first one moving on from round to
  round. What is compared was measured within the same fraction of a second.
- **Paired.** "x % of the limit" is the median, over rounds, of the quotient within a round.
- **Rotated.** Each variant has several sets of buffers and takes the next one at every call.
- **Warm.** Variants run for a while, by the clock, before anything counts; so pages have been
  touched, code is compiled, and the clock frequency has settled.
- **Undisturbed.** Some libraries' threads spin for milliseconds after a call and would take a
  core from whoever comes next (torch's: 3 to 5 ms, which cost the next variant up to half its
  speed on two cores). That one runs untimed until they sleep.
- **Reused.** Outputs exist before; variants that make their own are separate and named so.
- **Medians**, with the 10th and 90th percentile as the spread.

A variant that is many times slower than the others would eat the time of all: once it has had
its share (and `min_rounds` samples) it sits out.
"""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from statistics import median

Call = Callable[[], object]
Clock = Callable[[], float]
Timer = Callable[[Sequence[Call]], float]  # makes the calls and says how many seconds they took


@dataclass(frozen=True)
class Variant:
    """One way to do a row's work: a call for each set of buffers.

    `lingers`: seconds for which its threads may keep a core busy after a call. `batch`: how many
    times each call does the work. `note`: what a reader has to know about the numbers.
    """

    name: str
    calls: Sequence[Call]
    lingers: float = 0.0
    batch: int = 1
    note: str = ""


@dataclass(frozen=True)
class Budget:
    """How long a row may take: seconds of rounds, seconds of warming up per variant.

    A sample that would be shorter than `sample` seconds is taken over several calls.
    """

    seconds: float
    warm_up: float
    min_rounds: int = 5
    max_rounds: int = 100
    sample: float = 1e-3


@dataclass
class Times:
    """Seconds that one variant needs for the work once, by the number of the round."""

    rounds: dict[int, float] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """The 50th percentile."""
        return median(self.rounds.values())

    @property
    def low(self) -> float:
        """The 10th percentile."""
        return percentile(self.rounds.values(), 10)

    @property
    def high(self) -> float:
        """The 90th percentile."""
        return percentile(self.rounds.values(), 90)


def measure(
    variants: Sequence[Variant],
    budget: Budget,
    clock: Clock = time.perf_counter,
    timer: Timer | None = None,
) -> dict[str, Times]:
    """Time all variants by the protocol above; return the times by variant name.

    `timer` takes the samples, and without one `clock` does. How long a row may take goes by
    `clock` in any case.
    """
    timer = timer or _timer_of(clock)
    players = [_Player(variant, budget, clock, timer) for variant in variants]
    with no_collector():
        for player in players:
            player.warm_up()
        _play(players, budget, clock)
    return {player.variant.name: player.times for player in players}


def _timer_of(clock: Clock) -> Timer:
    def timer(calls: Sequence[Call]) -> float:
        began = clock()
        for call in calls:
            call()
        return clock() - began

    return timer


def _play(players: Sequence["_Player"], budget: Budget, clock: Clock) -> None:
    """Play rounds until time is up."""
    share = budget.seconds / max(1, len(players))
    began = disturbed_until = clock()
    for number in range(budget.max_rounds):
        if number >= budget.min_rounds and clock() - began >= budget.seconds:
            break
        for player in _rotated(players, number):
            if len(player.times.rounds) < budget.min_rounds or player.spent < share:
                player.run_until(disturbed_until)
                player.sample(number)
                disturbed_until = clock() + player.variant.lingers


def paired_ratio(times: Times, other: Times) -> float:
    """The median of times / other over the rounds that both took part in."""
    common = times.rounds.keys() & other.rounds.keys()
    return median(times.rounds[number] / other.rounds[number] for number in common)


def percentile(values: Iterable[float], percent: float) -> float:
    """Interpolate linearly between the two nearest values."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (ordered[above] - ordered[below]) * (place - below))


class _Player:
    """A variant in the middle of being measured."""

    def __init__(self, variant: Variant, budget: Budget, clock: Clock, timer: Timer) -> None:
        self.variant = variant
        self.times = Times()
        self.spent = 0.0
        self._budget = budget
        self._clock = clock
        self._timer = timer
        self._next = 0
        self._repeats = 1

    def warm_up(self) -> None:
        """Run by the timer, every set of buffers at least once; decide on calls per sample."""
        count = 0
        elapsed = 0.0
        while elapsed < self._budget.warm_up or count < len(self.variant.calls):
            elapsed += self._timer(self._take(1))
            count += 1
        if elapsed > 0:
            self._repeats = max(1, ceil(self._budget.sample * count / elapsed))

    def run_until(self, moment: float) -> None:
        """Run untimed."""
        while self._clock() < moment:
            self._take(1)[0]()

    def sample(self, number: int) -> None:
        """Take the sample of one round."""
        calls = self._take(self._repeats)
        elapsed = self._timer(calls)
        self.times.rounds[number] = elapsed / (len(calls) * self.variant.batch)
        self.spent += elapsed

    def _take(self, count: int) -> list[Call]:
        """The next `count` calls in rotation."""
        calls = self.variant.calls
        first = self._next
        self._next = (first + count) % len(calls)
        return [calls[number % len(calls)] for number in range(first, first + count)]


def _rotated(players: Sequence[_Player], number: int) -> Sequence[_Player]:
    first = number % max(1, len(players))
    return [*players[first:], *players[:first]]


@contextmanager
def no_collector() -> Iterator[None]:
    """Keep the garbage collector from running inside of somebody's sample."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

"""The measuring protocol for all rows and all libraries.

Shared machines change speed by a factor of two within minutes, data that is still in the caches
favors a variant, and page faults of new memory take longer than the conversion. Hence:

- **Interleaved.** Every round runs every variant once, and the first variant changes from round to
  round. So compared numbers are measured within the same fraction of a second.
- **Paired.** "x % of the limit" is the median, over rounds, of the ratio within a round.
- **Rotated.** Each variant has several sets of buffers and uses the next one for every call.
- **Warm.** Variants run for some time before the measurement, so that pages are touched, code is
  compiled, and the clock frequency has settled.
- **Undisturbed.** The threads of some libraries spin for milliseconds after a call and slow down
  the next variant (torch's: 3 to 5 ms, which cost the next variant up to half its speed on two
  cores). The next variant runs untimed until those threads sleep.
- **Reused.** Outputs are allocated before the measurement. Variants whose calls allocate their
  outputs are separate variants with other names.
- **Medians**, with the 10th and 90th percentile as the spread.

A variant that is many times slower than the others would use up the time of all. So a variant is
skipped after it has used its share of the time and has `min_rounds` samples.
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
Timer = Callable[[Sequence[Call]], float]  # runs the calls and returns the seconds that they took


@dataclass(frozen=True)
class Variant:
    """One way to do the work of a row: a call for each set of buffers.

    `spin_seconds`: the seconds for which its threads may keep a core busy after a call. `batch`:
    the number of times that each call does the work. `note`: a remark about the times.
    """

    name: str
    calls: Sequence[Call]
    spin_seconds: float = 0.0
    batch: int = 1
    note: str = ""


@dataclass(frozen=True)
class Budget:
    """The time for a row: seconds of rounds, and seconds of warm-up per variant.

    A sample that would be shorter than `sample` seconds is taken over several calls.
    """

    seconds: float
    warm_up: float
    min_rounds: int = 5
    max_rounds: int = 100
    sample: float = 1e-3


@dataclass
class Times:
    """Seconds that one variant needs to do the work once, by round index."""

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
    """Time all variants by the protocol of this module; return the times by variant name.

    `timer` measures the samples, by default with `clock`. The budget is always measured by `clock`.
    """
    timer = timer or _make_timer(clock)
    measurements = [_Measurement(variant, budget, clock, timer) for variant in variants]
    with no_collector():
        for measurement in measurements:
            measurement.warm_up()
        _run_rounds(measurements, budget, clock)
    return {measurement.variant.name: measurement.times for measurement in measurements}


def _make_timer(clock: Clock) -> Timer:
    def timer(calls: Sequence[Call]) -> float:
        start = clock()
        for call in calls:
            call()
        return clock() - start

    return timer


def _run_rounds(measurements: Sequence["_Measurement"], budget: Budget, clock: Clock) -> None:
    """Run rounds until the seconds or the rounds of the budget are used up."""
    share = budget.seconds / max(1, len(measurements))
    start = quiet_after = clock()
    for round_index in range(budget.max_rounds):
        if round_index >= budget.min_rounds and clock() - start >= budget.seconds:
            break
        for measurement in _rotated(measurements, round_index):
            if len(measurement.times.rounds) < budget.min_rounds or measurement.spent < share:
                measurement.run_until(quiet_after)
                measurement.sample(round_index)
                quiet_after = clock() + measurement.variant.spin_seconds


def paired_ratio(times: Times, other: Times) -> float:
    """Return the median of `times / other` over the rounds that both have."""
    common_rounds = times.rounds.keys() & other.rounds.keys()
    return median(times.rounds[number] / other.rounds[number] for number in common_rounds)


def percentile(values: Iterable[float], percent: float) -> float:
    """Return a percentile, interpolated linearly between the two nearest values."""
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (ordered[above] - ordered[below]) * (position - below))


class _Measurement:
    """The state of the measurement of one variant."""

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
        """Run every set of buffers, for the warm-up time at least; set the calls per sample."""
        count = 0
        elapsed = 0.0
        while elapsed < self._budget.warm_up or count < len(self.variant.calls):
            elapsed += self._timer(self._next_calls(1))
            count += 1
        if elapsed > 0:
            self._repeats = max(1, ceil(self._budget.sample * count / elapsed))

    def run_until(self, end: float) -> None:
        """Run untimed until the clock reads `end`."""
        while self._clock() < end:
            self._next_calls(1)[0]()

    def sample(self, number: int) -> None:
        calls = self._next_calls(self._repeats)
        elapsed = self._timer(calls)
        self.times.rounds[number] = elapsed / (len(calls) * self.variant.batch)
        self.spent += elapsed

    def _next_calls(self, count: int) -> list[Call]:
        calls = self.variant.calls
        first = self._next
        self._next = (first + count) % len(calls)
        return [calls[number % len(calls)] for number in range(first, first + count)]


def _rotated(measurements: Sequence[_Measurement], number: int) -> Sequence[_Measurement]:
    first = number % max(1, len(measurements))
    return [*measurements[first:], *measurements[:first]]


@contextmanager
def no_collector() -> Iterator[None]:
    """Disable the garbage collector, which could run inside a sample."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

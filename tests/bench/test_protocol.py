"""The measuring protocol, on a clock that only calls advance."""

import gc

import numpy as np
import pytest

from layoutkit.bench.protocol import Budget, Times, Variant, measure, paired_ratio, percentile


class Clock:
    def __init__(self):
        self.now = 100.0
        self.log = []

    def __call__(self):
        return self.now

    def variant(self, name, seconds, sets=1, spin_seconds=0.0):
        def call(number):
            self.log.append(f"{name}{number}")
            self.now += seconds() if callable(seconds) else seconds

        return Variant(name, [lambda n=n: call(n) for n in range(sets)], spin_seconds)


@pytest.fixture
def clock():
    return Clock()


def budget(seconds=10.0, warm_up=0.0, low=3, high=10, sample=0.0):
    return Budget(seconds, warm_up, low, high, sample)


def test_every_round_runs_every_variant_once_and_starts_with_the_next(clock):
    variants = [clock.variant(name, 0.01) for name in "abc"]
    measure(variants, budget(low=4, high=4), clock)
    assert "".join(clock.log).replace("0", "") == "abc" + "abc" + "bca" + "cab" + "abc"


def test_sets_of_buffers_are_used_in_turns(clock):
    measure([clock.variant("a", 0.01, sets=3)], budget(low=5, high=5), clock)
    assert clock.log == ["a0", "a1", "a2", "a0", "a1", "a2", "a0", "a1"]


def test_short_calls_are_timed_together_and_times_are_per_call(clock):
    times = measure([clock.variant("a", 0.25)], budget(low=3, high=3, sample=1.0), clock)
    assert len(clock.log) == 1 + 3 * 4
    assert times["a"].rounds == {0: 0.25, 1: 0.25, 2: 0.25}


def test_the_warm_up_is_not_counted(clock):
    cost = iter([1.0] * 5 + [0.25] * 100)
    variants = [clock.variant("a", lambda: next(cost))]
    times = measure(variants, budget(warm_up=5.0, low=3, high=3), clock)
    assert len(clock.log) == 5 + 3
    assert set(times["a"].rounds.values()) == {0.25}


@pytest.mark.parametrize(
    ("seconds", "bounds", "rounds"), [(1.0, (2, 50), 5), (9.0, (3, 50), 3), (0.1, (3, 7), 7)]
)
def test_rounds_end_with_the_time_but_not_before_the_minimum(clock, seconds, bounds, rounds):
    times = measure([clock.variant("a", seconds)], budget(5.0, 0.0, *bounds), clock)
    assert len(times["a"].rounds) == rounds


def test_a_slow_variant_is_skipped_after_its_share(clock):
    variants = [clock.variant("slow", 1.0), clock.variant("fast", 0.01)]
    times = measure(variants, budget(seconds=8.0, low=2, high=30), clock)
    assert (len(times["fast"].rounds), len(times["slow"].rounds)) == (30, 4)


def test_the_variant_after_spinning_threads_runs_untimed_until_they_sleep(clock):
    variants = [clock.variant("noisy", 0.01, spin_seconds=0.05), clock.variant("next", 0.02)]
    times = measure(variants, budget(low=1, high=1), clock)
    assert clock.log[2:] == ["noisy0", "next0", "next0", "next0", "next0"]
    assert times["next"].rounds == pytest.approx({0: 0.02})


def test_a_timer_measures_samples_whose_calls_repeat_the_work():
    lengths = []

    def timer(calls):
        lengths.append(len(calls))
        return 0.5 * len(calls)

    variant = Variant("a", [lambda: None] * 3, batch=4)
    times = measure([variant], budget(warm_up=1.0, low=2, high=2, sample=1.0), timer=timer)
    assert lengths == [1, 1, 1, 2, 2]
    assert times["a"].rounds == {0: 0.125, 1: 0.125}


def test_the_collector_is_disabled_while_timing_only():
    states = []
    measure([Variant("a", [lambda: states.append(gc.isenabled())])], budget())
    assert set(states) == {False}
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        measure([Variant("a", [lambda: 1 / 0])], budget())
    assert gc.isenabled()


@pytest.mark.parametrize("count", [1, 2, 5, 10])
def test_percentiles_are_those_of_numpy(count):
    values = np.random.default_rng(count).random(count)
    for percent in (0, 10, 25, 50, 90, 100):
        assert percentile(values, percent) == pytest.approx(np.percentile(values, percent))


def test_ratios_are_paired_by_round():
    ours = Times({0: 1.0, 1: 2.0, 2: 10.0, 3: 7.0})
    theirs = Times({0: 3.0, 1: 6.0, 2: 30.0, 9: 1000.0})
    assert paired_ratio(theirs, ours) == 3.0 != theirs.median / ours.median

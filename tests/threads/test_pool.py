"""The worker pool: from many threads, with too few or too many workers, and interrupted."""

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import layoutkit
from layoutkit import Converter, set_num_threads
from layoutkit.kernels.cpu import threadpool_state
from layoutkit.kernels.cpu.threadpool_state import (
    ASLEEP,
    BUSY,
    LATENCY,
    SKIP,
    SLEEP_COUNT,
    SPIN_TICKS,
    WAKE_TICKS,
    PoolState,
)
from layoutkit.threads import limits
from layoutkit.threads import pool as workers
from tests.helpers.children import python

SHAPE = (16, 24, 24, 32)  # 1.2 MB of float32: enough for worker threads


@pytest.fixture(autouse=True)
def usual_threads():
    before = limits.chosen_threads
    yield
    limits.chosen_threads = before


@pytest.fixture
def pool(monkeypatch):
    """Return a new pool for two threads, without workers yet, that wakes workers for every job."""
    fresh = workers.Pool()
    fresh.load()
    fresh.state.words[WAKE_TICKS] = 0
    monkeypatch.setattr(workers, "pool", fresh)
    set_num_threads(2)
    return fresh


def batch(seed=0):
    return np.random.default_rng(seed).random(SHAPE, np.float32)


def check(x, y):
    np.testing.assert_array_equal(y, x.transpose(0, 3, 1, 2))


def convert_often(x, times=3):
    for _ in range(times):
        check(x, layoutkit.convert(x, "bhwc->bchw"))


def in_threads(work, count):
    """Run work(number) in `count` threads; raise their exceptions."""
    failures = []

    def run(number):
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    started = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(count)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(timeout=60)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 256])
def test_any_number_of_threads_gives_the_same(count):
    set_num_threads(count)
    convert_often(batch())


def test_the_number_may_change_between_calls(pool):
    x = batch()
    for count in (2, 1, 5, 3, 8, 2):
        set_num_threads(count)
        convert_often(x, 2)
    assert pool.workers == 7


# ---- many callers ------------------------------------------------------------------------


def test_eight_threads_convert_at_once():
    set_num_threads(2)

    def work(number):
        x = batch(number)
        pattern, order = [("bhwc->bchw", (0, 3, 1, 2)), ("bhwc->chwb", (3, 1, 2, 0))][number % 2]
        converter = Converter(pattern)
        for _ in range(20):
            np.testing.assert_array_equal(converter(x), x.transpose(order))

    in_threads(work, 8)


def test_while_the_pool_is_taken_a_call_works_alone(pool):
    """A nested call needs no worker, as in a signal handler that interrupts a call."""
    x = batch()
    with pool.start_lock:
        convert_often(x)
    assert pool.workers == 0
    convert_often(x)
    assert pool.workers == 1


def test_while_another_caller_has_the_board_a_call_works_alone(pool):
    x = batch()
    convert_often(x)
    wait_for(lambda: asleep(pool) == pool.workers)
    before = naps(pool)
    pool.state.words[BUSY] = 1
    convert_often(x)
    assert (naps(pool), asleep(pool)) == (before, pool.workers)
    pool.state.words[BUSY] = 0
    check_workers_wake(pool, x)


def test_an_error_in_the_middle_gives_the_pool_back(pool, monkeypatch):
    x = batch()

    def fail(workers):
        raise KeyboardInterrupt

    monkeypatch.setattr(pool, "start_workers", fail)
    with pytest.raises(KeyboardInterrupt):
        layoutkit.convert(x, "bhwc->bchw")
    monkeypatch.undo()
    convert_often(x)
    assert not pool.start_lock.locked()


# ---- workers -----------------------------------------------------------------------------


def asleep(pool):
    """Return the number of sleeping workers."""
    return sum(int(pool.state.line(worker)[ASLEEP]) for worker in range(1, pool.workers + 1))


def naps(pool):
    """Return how often each worker went to sleep."""
    return [int(pool.state.line(worker)[SLEEP_COUNT]) for worker in range(1, pool.workers + 1)]


def wait_for(condition):
    limit = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < limit, "it does not happen"
        time.sleep(0.0002)


def check_workers_wake(pool, x):
    """Check that all workers fall asleep after a while, and that a job wakes the first two."""
    convert_often(x, 1)
    wait_for(lambda: asleep(pool) == pool.workers)
    pool.state.words[SKIP] = 0  # reset, in case a worker was late before
    before = naps(pool)
    convert_often(x, 1)
    wait_for(
        lambda: (
            [a > b for a, b in zip(naps(pool), before, strict=True)][:2]
            == [True] * min(2, pool.workers)
        )
    )


def test_workers_sleep_and_wake(pool):
    set_num_threads(4)
    for _ in range(5):
        check_workers_wake(pool, batch())
    assert pool.workers == 3


def test_who_sleeps_is_woken_beside_who_does_not(pool):
    x = batch()
    set_num_threads(4)
    check_workers_wake(pool, x)
    wait_for(lambda: asleep(pool) == pool.workers)
    line = pool.state.line(1)
    for latency, woken in ((1 << 40, False), (0, True)):
        pool.state.words[[LATENCY, SKIP]] = latency, 0
        before = naps(pool)
        line[ASLEEP] = 0  # marked as awake; as it sleeps, the caller takes its chunks
        convert_often(x, 1)
        line[ASLEEP] = 1
        time.sleep(0.01)
        wait_for(lambda: asleep(pool) == pool.workers)
        assert (naps(pool)[1] > before[1]) is woken


def test_a_worker_measures_how_long_waking_it_takes(pool):
    x = batch()
    convert_often(x, 1)
    wait_for(lambda: asleep(pool) == pool.workers)
    pool.state.words[[WAKE_TICKS, LATENCY, SKIP]] = 1 << 62, 0, 0
    convert_often(x, 1)
    wait_for(lambda: pool.state.words[LATENCY] > 0)


def test_jobs_without_a_pause_wake_workers_after_a_while(pool):
    """Each job is too short to wake a worker for, but the workers stay awake for the next ones."""
    x = batch()
    converter = Converter("bhwc->bchw")
    out = converter(x)
    wait_for(lambda: asleep(pool) == pool.workers)
    pool.state.words[LATENCY] = 20 * min(
        ticks_of(pool, lambda: converter(x, out=out)) for _ in range(9)
    )
    # Callers now accept longer pauses between jobs, in which other processes have this CPU. Workers
    # read this time when they start, so they still fall asleep soon.
    pool.state.words[SPIN_TICKS] *= 10_000

    def wakes_a_worker():
        before = naps(pool)
        converter(x, out=out)
        return asleep(pool) < pool.workers or naps(pool) > before

    wait_for(lambda: asleep(pool) == pool.workers)
    assert any(wakes_a_worker() for _ in range(10_000))


def ticks_of(pool, function):
    """Return the time of a call in ticks of the pool's clock."""
    start = time.perf_counter()
    function()
    ticks_per_second = int(pool.state.words[SPIN_TICKS]) / workers.SPIN_SECONDS
    return int((time.perf_counter() - start) * ticks_per_second)


def interrupt_at(step, *functions):
    """Return a tracer that raises KeyboardInterrupt at the step-th line of these functions.

    A line counts once: Python handles no signal when it returns to a `with` to leave the block.
    """
    codes = {function.__code__ for function in functions}
    seen = set()

    def local(frame, event, argument):
        if event == "line" and frame.f_lineno not in seen:
            seen.add(frame.f_lineno)
            if len(seen) > step:
                raise KeyboardInterrupt
        return local

    return lambda frame, event, argument: local if frame.f_code in codes else None


def test_an_interrupt_at_any_step_leaves_the_pool_whole(pool):
    x = batch()
    convert_often(x)
    for step in range(100):
        wait_for(lambda: asleep(pool) == pool.workers)
        sys.settrace(interrupt_at(step, workers.Pool.run))
        try:
            layoutkit.convert(x, "bhwc->bchw")
        except KeyboardInterrupt:
            pass
        else:
            break
        finally:
            sys.settrace(None)
        assert not pool.start_lock.locked()
        check_workers_wake(pool, x)
    assert 2 < step < 99


def test_without_new_threads_the_caller_works_alone(pool, monkeypatch):
    tried = []
    set_num_threads(4)
    monkeypatch.setattr(PoolState, "start", lambda *asked: tried.append(asked))
    convert_often(batch())
    assert len(tried) == 1
    assert pool.workers == 0


def test_with_fewer_threads_than_asked_those_are_used(pool, monkeypatch):
    real = PoolState.start
    monkeypatch.setattr(
        PoolState, "start", lambda self, number, code: number <= 2 and real(self, number, code)
    )
    set_num_threads(6)
    convert_often(batch())
    assert pool.workers == 2


def test_more_threads_than_cpus_still_finish_soon():
    x = batch()
    converter = Converter("bhwc->bchw")
    out = converter(x)

    def seconds(count):
        set_num_threads(count)
        times = []
        for _ in range(50):
            began = time.perf_counter()
            converter(x, out=out)
            times.append(time.perf_counter() - began)
        return sorted(times)[25]

    alone = seconds(1)
    # The factor of 20 is far less than a wait for the time slice of a descheduled thread.
    assert min(seconds(4 * os.cpu_count()) for _ in range(3)) < 20 * alone + 0.002


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timer")
def test_conversions_in_a_signal_handler(pool):
    """The handler interrupts conversions between any two steps, with and without the lock held."""
    x = batch(1)
    y = batch(2)
    convert_often(x)
    answers = []
    is_over = threading.Event()  # from then on no handler sets the timer again
    converter = Converter("bhwc->bchw")
    out = np.empty((16, 32, 24, 24), np.float32)

    def handler(*_):
        answers.append(converter(y).sum() > 0)
        if not is_over.is_set():
            signal.setitimer(signal.ITIMER_REAL, 0.001)

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    try:
        limit = time.monotonic() + 30
        while len(answers) < 50 and time.monotonic() < limit:
            check(x, converter(x, out=out))
    finally:
        is_over.set()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(answers) >= 50
    assert all(answers)


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
import layoutkit
# One that comes while memory is given back is said and lost, as Python has it: others follow.
sys.unraisablehook = lambda _: None
x = np.random.default_rng(0).random((16, 24, 24, 32), np.float32)
layoutkit.set_num_threads(2)
expected = x.transpose(0, 3, 1, 2)
converter = layoutkit.Converter("bhwc->bchw")
converter(x)
me = os.getpid()

def interrupt(wait):
    while not seen.wait(wait):
        os.kill(me, signal.SIGINT)

for i in range(20):
    seen = threading.Event()
    thread = threading.Thread(target=interrupt, args=(0.01 + i * 1e-4,))
    try:
        thread.start()
        while True:
            converter(x)
    except KeyboardInterrupt:
        pass
    while thread.is_alive():
        try:
            seen.set()
            thread.join()
        except KeyboardInterrupt:
            pass
    assert (converter(x) == expected).all()
print("usable")
"""


def test_interrupts_leave_a_usable_library():
    assert python(INTERRUPTED) == "usable\n"


LITTLE_STACK = """
import threading
import numpy as np
import layoutkit
threading.stack_size(128 << 10)  # the least on AArch64
layoutkit.set_num_threads(4)
x = np.random.default_rng(0).random((16, 24, 24, 32), np.float32)
parts = [(x, "bhwc"), (np.ascontiguousarray(x.transpose(0, 3, 1, 2)), "bchw")]
for _ in range(300):
    assert (layoutkit.convert(x, "bhwc->bchw", scale=2.0) == 2 * x.transpose(0, 3, 1, 2)).all()
    layoutkit.accumulate(parts, "bhwc")
print(threading.stack_size())
"""


def test_workers_have_the_stack_that_kernels_need():
    """Workers have enough stack even if the program sets a smaller size; sums once crashed."""
    assert python(LITTLE_STACK) == f"{128 << 10}\n"


def test_threads_that_load_the_pool_together_share_its_state(monkeypatch):
    """A second state would leave the workers of the first one without work."""
    made = []

    class Counted(PoolState):
        def __init__(self, *arguments):
            made.append(1)
            time.sleep(0.02)  # the other threads wait for the lock meanwhile
            super().__init__(*arguments)

    monkeypatch.setattr(threadpool_state, "PoolState", Counted)
    fresh = workers.Pool()
    barrier = threading.Barrier(8)

    def work(_):
        barrier.wait()
        fresh.load()

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(work, range(8)))
    assert len(made) == 1
    assert fresh.state_address == fresh.state.address

"""The lock for late imports, and functions that run once under it."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pytest

from layoutkit import Collator, Converter, accumulation
from layoutkit._utils import fork
from layoutkit.threads import pool


def test_run_once_runs_once_when_threads_call_together():
    calls = []
    barrier = threading.Barrier(8)

    @fork.run_once
    def load():
        calls.append(1)
        time.sleep(0.02)  # the other threads wait for the lock meanwhile
        return object()

    def work(_):
        barrier.wait()
        return load()

    with ThreadPoolExecutor(8) as executor:
        results = list(executor.map(work, range(8)))
    assert len(calls) == 1
    assert len({id(result) for result in results}) == 1


def test_run_once_tries_again_after_an_error():
    outcomes = iter([ImportError("once"), "module"])

    @fork.run_once
    def load():
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    with pytest.raises(ImportError, match="once"):
        load()
    assert (load(), load()) == ("module", "module")


# ---- threads that meet while objects are made ----------------------------------------------


class Gate:
    """Stands in for `init_lock`; stops a thread once, before it takes or after it frees the lock.

    The thread then holds no `init_lock`, and another thread may meet what it has made so far.
    """

    def __init__(self, lock, stop):
        self.lock = lock
        self.stop = stop
        self.steps = self.depth = 0
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.stopped = None  # the thread

    def step(self):
        self.steps += 1
        if self.steps == self.stop:
            self.reached.set()
            assert self.opened.wait(10), "the other thread waits for this one"

    def __enter__(self):
        if threading.current_thread() is self.stopped:
            if not self.depth:
                self.step()
            self.depth += 1
        self.lock.acquire()

    def __exit__(self, *error):
        self.lock.release()
        if threading.current_thread() is self.stopped:
            self.depth -= 1
            if not self.depth:
                self.step()


IMAGES = np.random.default_rng(0).integers(0, 256, (8, 64, 96, 3), np.uint8)
FORMULA = {"dtype": "float32", "mean": (1, 2, 3)}
BOUNDS = count(1000)


def new_conversion():
    converter = Converter("bhwc->bchw", threads=2, **FORMULA)
    return lambda: converter(IMAGES)


def new_padding():
    converter = Converter("bhwc->bchw", pad_to={"h": 70}, threads=2)
    return lambda: converter(IMAGES)


def new_gradient():
    converter = Converter("bhwc->bchw", threads=2, **FORMULA)
    gradient = IMAGES.transpose(0, 3, 1, 2).astype("f4")
    return lambda: converter.backward(gradient, like=IMAGES.astype("f4"))


def new_batch(**options):
    collator = Collator("hwc->bchw", h=48, w=32, threads=2, **options, **FORMULA)
    return lambda: collator(list(IMAGES))


def new_resized_batch():
    return new_batch(resize="bilinear")


def new_sum():
    add = accumulation.Accumulator(("bhwc", "bchw"), "bchw", dtype="float32")
    parts = [IMAGES.astype("f4"), IMAGES.transpose(0, 3, 1, 2).astype("f4")]
    return lambda: add(parts)


def new_trace():
    jax = pytest.importorskip("jax", reason="foreign functions of XLA need jax")
    # An upper bound that no item reaches, for a foreign function of its own.
    converter = Converter("bhwc->bchw", threads=2, clip=(0, next(BOUNDS)), **FORMULA)
    # Functions of their own, since a thread that traces a function keeps others from tracing it.
    return lambda: np.asarray(jax.jit(lambda x: converter(x))(IMAGES))


ALONE = [new_conversion, new_padding, new_gradient, new_batch, new_resized_batch, new_sum]


@pytest.mark.parametrize(
    "makes",
    [*[(make,) for make in ALONE], (new_conversion, new_trace), (new_trace, new_conversion)],
    ids=lambda makes: " and ".join(make.__name__.removeprefix("new_") for make in makes),
)
def test_a_thread_uses_no_object_that_another_is_making(makes, monkeypatch):
    """Stop one thread at each step into and out of the lock, and work in another thread."""
    expected = [make()() for make in makes]
    lock = fork.init_lock
    monkeypatch.setattr(pool, "SERIAL_BYTES", 0)
    monkeypatch.setattr(pool, "KEEP_GIL_BYTES", 0)
    for stop in range(1, 200):
        monkeypatch.setattr(pool, "pool", pool.Pool())
        gate = Gate(lock, stop)
        works = [make() for make in makes]
        results = meet(gate, works[0], works[-1], monkeypatch)
        np.testing.assert_array_equal(results[0], expected[-1], err_msg=f"at step {stop}")
        np.testing.assert_array_equal(results[1], expected[0], err_msg=f"after step {stop}")
        if not gate.reached.is_set():
            return
    raise AssertionError("too many steps")


def meet(gate, stopped_work, work, monkeypatch):
    """Return the results of this thread, and of a thread that a gate stops meanwhile."""
    stopped_results = []
    gate.stopped = threading.Thread(
        target=lambda: stopped_results.append(stopped_work()), daemon=True
    )
    with monkeypatch.context() as context:
        context.setattr(fork, "init_lock", gate)
        gate.stopped.start()
        while not gate.reached.wait(0.0005) and gate.stopped.is_alive():
            pass
        try:
            result = work()
        finally:
            gate.opened.set()
            gate.stopped.join(10)
    assert stopped_results, f"an error in the stopped thread, at step {gate.stop}"
    return result, stopped_results[0]

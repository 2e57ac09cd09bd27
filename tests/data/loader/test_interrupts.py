"""Interrupts at every possible point: correct states, and no remaining threads."""

import itertools
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import layoutkit.data
from layoutkit import DataError
from layoutkit.data import open_index, sampled_batcher
from tests.helpers.batches_of import forget_others, our_threads

HOME = str(Path(layoutkit.data.__file__).parent)
N, WIDTH = 11, 2
EVENTS = ("call", "c_call", "c_return")  # Python handles no signals between these events
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored")


@contextmanager
def interrupted(number):
    """Raise KeyboardInterrupt at call `number` in layoutkit.data; yield the calls so far."""
    seen = []

    def look(frame, event, called):
        if getattr(called, "__name__", "") in ("__enter__", "__exit__"):
            return  # no signals here either: `with` always releases its object
        if event in EVENTS and frame.f_code.co_filename.startswith(HOME):
            seen.append(frame.f_code.co_name)
            if len(seen) == number:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        yield seen
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)


def process(x, out):
    return None if x[0] in (3, 4) else x


@pytest.fixture(params=["linear", "uniform", "refill", "parts"])
def made(request, tmp_path):
    for part in range(3):
        (tmp_path / f"{part}").write_text("aa\nbb\ncc\n")
    source = f"file://{tmp_path}" if request.param == "parts" else np.arange(N * 1.0)[:, None]
    index = open_index(source)
    refill = request.param == "refill"
    kind = {"linear": "linear", "uniform": "uniform", "refill": "linear", "parts": "part-linear"}

    def make(**more):
        return sampled_batcher(
            index,
            batch_size=WIDTH,
            sampler=kind[request.param],
            num_batches=4 if request.param == "uniform" else None,
            processor=process,
            refill=refill,
            num_workers=0,
            progress=True,
            **more,
        )

    return make


def told(batches):
    """Return the indices and the inputs of batches."""
    return [
        (batch.index.tolist(), None if batch.input is None else batch.input.input.tolist())
        for batch in batches
    ]


@pytest.mark.budget(0)
def test_a_state_after_an_interrupt_is_that_behind_what_was_handed_out(made):
    with made() as whole:
        wanted, dropped = told(whole), whole.dropped
    states = [{**made().state_dict()}]
    with made() as batches:
        states += [batches.state_dict() for _ in batches]
    for number in itertools.count(1, 3):
        held, loop = [], made()
        with interrupted(number) as seen:
            for batch in loop:
                held.append(batch)  # keeps the batches before the interrupt
        state = loop.state_dict()
        if state["epoch"] == 1:
            assert told(held) == wanted
        else:
            assert state == states[len(held)]
        fresh = made()
        fresh.load_state_dict(state)
        if state["epoch"] == 0:
            assert told([*held, *fresh]) == wanted
            assert fresh.dropped == dropped
        if len(seen) < number:
            return


def test_a_load_that_is_interrupted_loads_all_or_nothing(made):
    batches = made()
    loop = iter(batches)
    old = [next(loop) and batches.state_dict() for _ in range(2)][1]
    other = made()
    new = [other.state_dict() for _ in other][-1]
    for number in itertools.count(1):
        again = made()
        again.load_state_dict(old)
        with interrupted(number) as seen:
            again.load_state_dict(new)
        assert again.state_dict() in (old, new)
        if len(seen) < number:
            return


def test_a_loop_that_was_interrupted_skips_nothing(made):
    """A loop that continues after an interrupt raises an error, or yields the very next batch."""
    with made() as whole:
        wanted = told(whole)
    for number in itertools.count(1, 3):
        loop = iter(made())
        held = [next(loop)]
        with interrupted(number) as seen:
            held.append(next(loop))
        try:
            held.extend(loop)
        except DataError as error:
            assert "is over" in str(error)  # noqa: PT017  # both ends are right
        assert told(held) == wanted[: len(held)]
        if len(seen) < number:
            return


def test_no_thread_stays_behind():
    forget_others()
    wanted = list(range(N))
    for number in itertools.count(1, 2):
        batches = sampled_batcher(np.arange(N), batch_size=WIDTH, num_workers=3)
        with interrupted(number) as seen:
            next(iter(batches))
        found = [x for batch in batches for x in batch.input.input.tolist()]
        assert found == wanted
        batches.close()
        deadline = time.monotonic() + 10
        while our_threads() and time.monotonic() < deadline:
            time.sleep(0.001)
        assert our_threads() == []
        if len(seen) < number:
            return

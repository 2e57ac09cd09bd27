"""The lock for late imports, and functions that run once under it."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from layoutkit._utils import fork


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

"""Interrupts and asynchronous exceptions at random moments, and kills of the command."""

import contextlib
import ctypes
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from layoutkit import ImageView, accumulate, buffers, convert, get_num_threads, set_num_threads
from layoutkit import buffers as blocks

pytestmark = pytest.mark.budget(4)

SHAPE = (16, 24, 24, 32)  # 1.2 MB of float32: enough for worker threads
X = np.random.default_rng(0).integers(0, 99, SHAPE).astype("f4")
PLANES = X.transpose(0, 3, 1, 2).copy()


class Cut(Exception):
    """The exception that is raised in the middle of an operation."""


def check_convert():
    np.testing.assert_array_equal(convert(X, "bhwc->bchw"), PLANES)


def check_accumulate():
    total = accumulate([(X, "bhwc"), (PLANES, "bchw")], "bchw")
    np.testing.assert_array_equal(total, 2 * PLANES)


def check_view():
    view = ImageView("bhwc", X)
    planes = view.forward_get("bchw")
    np.testing.assert_array_equal(planes, PLANES)
    view.backward_put("bchw", planes)
    view.backward_put("bhwc", X)
    np.testing.assert_array_equal(view.backward_get(), 2 * X)


WORK = [check_convert, check_accumulate, check_view]


@pytest.fixture(autouse=True)
def two_threads():
    before = get_num_threads()
    set_num_threads(2)
    for work in WORK:  # loads the kernels; test_process tests first conversions
        work()
    yield
    set_num_threads(before)


@pytest.fixture
def check_memory(monkeypatch):
    """Return a function that checks that all memory of the pool was freed.

    A block stays allocated if an exception is raised at the first step of the callback that frees
    the block, which Python reports to `sys.unraisablehook`, or in the step between the allocation
    of the block and the creation of the array.
    """
    lost = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: lost.append(told.object.args[0].size))
    before = held()

    def check():
        assert held() - before <= sum(lost) + 2 * blocks.size_class(X.nbytes)

    return check


def held():
    """Return the pool's bytes in use after a garbage collection."""
    gc.collect()
    return buffers.stats()["held"]


def raise_in(thread):
    """Raise Cut in another thread, between any two of its steps."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Cut))


@pytest.mark.parametrize("work", WORK)
def test_asynchronous_exceptions_leave_all_right(work, check_memory):
    chance = random.Random(1)
    ending = threading.Event()
    cuts = []

    def loop():
        while not ending.is_set():
            try:
                work()
            except Cut:
                cuts.append(1)

    thread = threading.Thread(target=surviving(loop, ending), daemon=True)
    thread.start()
    limit = time.monotonic() + 3
    while len(cuts) < 100 and time.monotonic() < limit:
        raise_in(thread)
        time.sleep(chance.random() * 0.004)
    ending.set()
    thread.join(60)
    assert not thread.is_alive(), "a thread hangs"
    assert len(cuts) > 10
    for after in WORK:
        after()
    check_memory()


def surviving(loop, ending):
    """Return a function that restarts the loop, as the exception may also stop the loop itself."""

    def run():
        while not ending.is_set():
            with contextlib.suppress(Cut):
                loop()

    return run


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timer")
@pytest.mark.parametrize("work", WORK)
def test_interrupts_leave_all_right(work, check_memory):
    chance = random.Random(2)
    cuts = 0

    def interrupt(*_):
        raise Cut

    was = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(150):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + chance.random() * 0.004)
                work()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Cut:
                cuts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, was)
    assert cuts > 10
    for after in WORK:
        after()
    check_memory()


# ---- kills -----------------------------------------------------------------------------------

RUN = "import sys; from layoutkit.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="elsewhere a hidden file is left")
def test_a_killed_command_leaves_its_file_whole_or_absent(tmp_path):
    source = tmp_path / "x.npy"
    target = tmp_path / "y.npy"
    np.save(source, np.broadcast_to(X, (8, *SHAPE)).reshape(-1, *SHAPE[1:]))
    whole = seconds_of_a_run(source, target)
    wanted = target.read_bytes()
    chance = random.Random(3)
    target.unlink()
    for _ in range(8):
        with command(source, target) as process:
            time.sleep(chance.uniform(0.3, 1.1) * whole)
            process.kill()
        assert not target.exists() or target.read_bytes() == wanted
        assert sorted(os.listdir(tmp_path)) in (["x.npy"], ["x.npy", "y.npy"])
        target.unlink(missing_ok=True)


def seconds_of_a_run(source, target):
    began = time.monotonic()
    with command(source, target) as process:
        assert process.wait(60) == 0
    return time.monotonic() - began


def command(source, target):
    words = ["convert", str(source), str(target), "bhwc->bchw", "--quiet", "--chunk", "1"]
    return subprocess.Popen([sys.executable, "-c", RUN, *words], stderr=subprocess.DEVNULL)

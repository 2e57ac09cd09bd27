"""The worker pool: from many threads, with too few or too many workers, and interrupted."""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from children import python

import layoutkit
from layoutkit import ArgumentError, Converter, get_num_threads, limits, set_num_threads, threads

SHAPE = (16, 24, 24, 32)  # 1.2 MB of float32: enough to be handed over


@pytest.fixture(autouse=True)
def usual_threads():
    before = threads._threads
    yield
    threads._threads, threads._default = before, None


@pytest.fixture
def pool(monkeypatch):
    """A pool of its own, without workers yet, that notes when a worker begins to look for jobs."""
    fresh = threads.Pool()
    fresh.load()
    fresh.looks, serve = [], fresh._serve

    def noted(*words):
        fresh.looks.append(words)
        serve(*words)

    fresh._serve = noted
    monkeypatch.setattr(threads, "pool", fresh)
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
    """Run work(number) in `count` threads; what they raise is raised."""
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


# ---- how many ----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 7, 256])
def test_any_number_of_threads_gives_the_same(count):
    set_num_threads(count)
    assert get_num_threads() == count
    convert_often(batch())


def test_the_number_may_change_between_calls(pool):
    x = batch()
    for count in (2, 1, 5, 3, 8, 2):
        set_num_threads(count)
        convert_often(x, 2)
    assert len(pool._wake) == 7


@pytest.mark.parametrize("wrong", [0, -1, 257, 2.0, "2", None, True, 1 << 70])
def test_other_numbers_are_refused(wrong):
    with pytest.raises(ArgumentError, match="set_num_threads"):
        set_num_threads(wrong)


@pytest.fixture
def unset(monkeypatch):
    """A process in which nobody has said how many threads there are, of three CPUs."""
    monkeypatch.setattr(threads, "_threads", None)
    monkeypatch.setattr(threads, "_default", None)
    for name in (limits.THREADS, limits.OTHERS_THREADS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(limits, "OF_PROCESS", Path("/there/is/no/such/file"))
    monkeypatch.setattr(limits.os, "sched_getaffinity", lambda pid: {1, 4, 5}, raising=False)
    monkeypatch.setattr(limits, "is_worker", lambda: False)
    return monkeypatch


@pytest.mark.parametrize(("text", "expected"), [("1", 1), (" 7 ", 7), ("256", 256)])
def test_the_variable_sets_the_number(unset, text, expected):
    unset.setenv(limits.THREADS, text)
    unset.setenv(limits.OTHERS_THREADS, "2")
    assert get_num_threads() == expected


@pytest.mark.parametrize("text", ["0", "257", "two", "-1", "1.5", "2,2", "²", "1" * 5000])
def test_a_wrong_variable_is_named(unset, text):
    unset.setenv(limits.THREADS, text)
    with pytest.raises(ArgumentError, match=limits.THREADS):
        get_num_threads()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2", 2), ("5,2", 5), (" 1 ", 1), ("999", 256), ("0", 3), ("", 3), ("all", 3), ("-1", 3)],
)
def test_the_variable_of_others_is_next(unset, text, expected):
    unset.setenv(limits.OTHERS_THREADS, text)
    unset.setenv(limits.THREADS, " ")
    assert get_num_threads() == expected


def test_without_a_variable_all_cpus_of_the_process_are_used(unset):
    assert get_num_threads() == 3


def test_a_worker_process_uses_one(unset):
    unset.setattr(limits, "is_worker", lambda: True)
    assert get_num_threads() == 1
    threads._default = None
    unset.setenv(limits.OTHERS_THREADS, "2")
    assert get_num_threads() == 2


@pytest.mark.parametrize("loaded", [False, True])
def test_workers_of_torch_are_known_without_importing_it(monkeypatch, loaded):
    torch = SimpleNamespace(get_worker_info=lambda: loaded or None)
    monkeypatch.setitem(sys.modules, "torch.utils.data", torch)
    assert limits.is_worker() is loaded


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_multiprocessing_use_one(method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    code = f"""
import multiprocessing, os
import layoutkit
from layoutkit import limits
for name in (limits.THREADS, limits.OTHERS_THREADS): os.environ.pop(name, None)
layoutkit.get_num_threads()
with multiprocessing.get_context({method!r}).Pool(1) as pool:
    print(pool.apply(layoutkit.get_num_threads), limits.is_worker())
"""
    assert python(code) == "1 False\n"


# ---- containers --------------------------------------------------------------------------

V1 = "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/docker/x\n"
GIB = 1 << 30
CONTAINERS = {
    "version 2": ("0::/\n", {"cpu.max": "150000 100000", "memory.max": GIB}, 2, GIB),
    "version 2, of an outer group": (
        "0::/a/b\n",
        {"a/cpu.max": "100000 100000", "a/b/cpu.max": "200000 100000", "a/memory.max": GIB},
        1,
        GIB,
    ),
    "version 2, no limit": ("0::/\n", {"cpu.max": "max 100000", "memory.max": "max"}, 3, None),
    "version 2, named from outside": ("0::/../../x\n", {"cpu.max": "200000 100000"}, 2, None),
    "less than a CPU": ("0::/\n", {"cpu.max": "10000 100000"}, 1, None),
    "more than there are": ("0::/\n", {"cpu.max": "900000 100000"}, 3, None),
    "version 1": (
        V1,
        {
            "cpu,cpuacct/docker/x/cpu.cfs_quota_us": 200000,
            "cpu,cpuacct/docker/x/cpu.cfs_period_us": 100000,
            "memory/docker/x/memory.limit_in_bytes": GIB,
        },
        2,
        GIB,
    ),
    "version 1, seen from inside": (
        V1,
        {
            "cpu/cpu.cfs_quota_us": 100000,
            "cpu/cpu.cfs_period_us": 100000,
            "memory/memory.limit_in_bytes": GIB,
        },
        1,
        GIB,
    ),
    "version 1, no limit": (
        V1,
        {
            "cpu/cpu.cfs_quota_us": -1,
            "cpu/cpu.cfs_period_us": 100000,
            "memory/memory.limit_in_bytes": 9223372036854771712,
        },
        3,
        None,
    ),
    "nonsense": ("0::/\n", {"cpu.max": "a b", "memory.max": ""}, 3, None),
}


@pytest.mark.parametrize(("groups", "files", "cpus", "memory"), CONTAINERS.values(), ids=CONTAINERS)
def test_the_quota_of_a_container_is_kept(unset, tmp_path, groups, files, cpus, memory):
    of_process = tmp_path / "cgroup"
    of_process.write_text(groups)
    for name, content in files.items():
        path = tmp_path / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    unset.setattr(limits, "OF_PROCESS", of_process)
    unset.setattr(limits, "GROUPS", tmp_path / "fs")
    assert get_num_threads() == cpus
    pages = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 4 * GIB}
    unset.setattr(limits.os, "sysconf", pages.__getitem__)
    unset.delenv(limits.IDLE_BYTES, raising=False)
    assert limits.default_idle_bytes() == (memory or 4 * GIB) // 8


@pytest.mark.parametrize(
    ("text", "expected"), [("0", 0), ("1000", 1000), ("512M", 512 << 20), (" 2g ", 2 << 30),
                           ("3 KiB", 3 << 10), ("1GB", 1 << 30)],
)  # fmt: skip
def test_a_variable_bounds_idle_memory(monkeypatch, text, expected):
    monkeypatch.setenv(limits.IDLE_BYTES, text)
    assert limits.default_idle_bytes() == expected


@pytest.mark.parametrize("text", ["-1", "much", "1.5", "1X", "M", "²", "1" * 5000])
def test_a_wrong_bound_is_named(monkeypatch, text):
    monkeypatch.setenv(limits.IDLE_BYTES, text)
    with pytest.raises(ArgumentError, match=f"{limits.IDLE_BYTES}.*512M"):
        limits.default_idle_bytes()


def test_the_bound_is_that_of_the_pool():
    code = "from layoutkit import buffers; print(buffers.stats()['limit'])"
    assert python(code, **{limits.IDLE_BYTES: "5K"}) == "5120\n"


FIRST_USES = {
    "memory for a result": "layoutkit.convert(x, 'bc->cb')",
    "memory for a sum": "layoutkit.accumulate([(x, 'bc'), (x, 'bc')], 'bc')",
    "the statistics": "layoutkit.buffers.stats()",
    "the configuration": "layoutkit.show_config()",
}


@pytest.mark.parametrize("use", FIRST_USES.values(), ids=FIRST_USES)
def test_a_wrong_bound_is_raised_at_the_first_use_of_the_pool_and_not_at_import(use):
    code = f"""
import numpy as np
import layoutkit
x = np.ones((2, 3))
layoutkit.convert(x, "bc->bc")  # needs no memory
layoutkit.convert(x, "bc->cb", out=np.empty((3, 2)))  # neither does this
for _ in range(2):
    try: {use}
    except layoutkit.ArgumentError as error: print(error)
layoutkit.buffers.set_limit(5000)
{use.replace("show_config()", "get_num_threads()")}
"""
    lines = python(code, **{limits.IDLE_BYTES: "much"}).splitlines()
    assert [line.startswith(f"{limits.IDLE_BYTES}: 'much' is no") for line in lines] == [True] * 2


# ---- workers that end --------------------------------------------------------------------


class Ended(BaseException):
    """What another thread raises in a worker."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_that_an_exception_has_ended_is_replaced(pool):
    converter, x = Converter("bhwc->bchw"), batch(0)
    converter(x)
    for _ in range(3):
        ended = pool._threads[0]
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(ended.ident), ctypes.py_object(Ended)
        )
        deadline = time.monotonic() + 20
        while pool._threads[0] is ended and time.monotonic() < deadline:
            np.testing.assert_array_equal(converter(x), x.transpose(0, 3, 1, 2))
            time.sleep(0.002)  # longer than a worker looks for jobs
        assert pool._threads[0] is not ended
        assert pool._threads[0].is_alive()
    assert len(pool._threads) == len(pool._wake)


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
    """As a signal handler's call does that interrupts another one in the same thread."""
    x = batch()
    with pool._lock:
        convert_often(x)
    assert not pool._wake
    convert_often(x)
    assert len(pool._wake) == 1


def test_an_error_in_the_middle_gives_the_pool_back(pool, monkeypatch):
    x = batch()

    def fail(workers):
        raise KeyboardInterrupt

    monkeypatch.setattr(pool, "_start", fail)
    with pytest.raises(KeyboardInterrupt):
        layoutkit.convert(x, "bhwc->bchw")
    monkeypatch.undo()
    convert_often(x)
    assert not pool._lock.locked()


# ---- workers -----------------------------------------------------------------------------


def asleep(pool):
    """The flags of the workers that sleep."""
    flags = pool.board[threads.WORDS_PER_LINE + threads._ASLEEP :: threads.WORDS_PER_LINE]
    return flags[: len(pool._wake)]


def wait_for(condition):
    limit = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < limit, "it does not happen"
        time.sleep(0.0002)


def check_workers_wake(pool, x):
    """All workers fall asleep after a while, and a job wakes them."""
    convert_often(x, 1)
    wait_for(lambda: asleep(pool).all())
    before = len(pool.looks)
    convert_often(x, 1)
    wait_for(lambda: len(pool.looks) >= before + len(pool._wake))


def test_workers_sleep_and_wake(pool):
    set_num_threads(4)
    for _ in range(5):
        check_workers_wake(pool, batch())
    assert len(pool._wake) == 3


def interrupt_at(step, *functions):
    """A tracer that raises KeyboardInterrupt at the step-th line that these functions come to.

    A line counts once: back on a `with` to leave it, no signal is looked at.
    """
    codes, seen = {function.__code__ for function in functions}, set()

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
        wait_for(lambda: asleep(pool).all())
        sys.settrace(interrupt_at(step, threads.Pool.run, threads.Pool._post))
        try:
            layoutkit.convert(x, "bhwc->bchw")
        except KeyboardInterrupt:
            pass
        else:
            break
        finally:
            sys.settrace(None)
        assert not pool._lock.locked()
        check_workers_wake(pool, x)
    assert 5 < step < 99


def test_without_new_threads_the_caller_works_alone(pool, monkeypatch):
    tried = []

    def refuse(self):
        tried.append(self)
        raise RuntimeError("can't start new thread")

    set_num_threads(4)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    convert_often(batch())
    assert len(tried) == 1
    assert not pool._wake


def test_with_fewer_threads_than_asked_those_are_used(pool, monkeypatch):
    real, started = threading.Thread.start, []

    def two_at_most(self):
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(self)
        real(self)

    set_num_threads(6)
    monkeypatch.setattr(threading.Thread, "start", two_at_most)
    convert_often(batch())
    assert len(pool._wake) == 2


def test_more_threads_than_cpus_still_finish_soon():
    x, converter = batch(), Converter("bhwc->bchw")
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
    # Twenty times: a wait for the end of a descheduled thread's time slice would be far more.
    assert min(seconds(4 * os.cpu_count()) for _ in range(3)) < 20 * alone + 0.002


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timer")
def test_conversions_in_a_signal_handler(pool):
    """The handler interrupts conversions between any two steps, the lock held or not."""
    x, y = batch(1), batch(2)
    convert_often(x)
    answers = []
    converter, out = Converter("bhwc->bchw"), np.empty((16, 32, 24, 24), np.float32)

    def handler(*_):
        answers.append(converter(y).sum() > 0)
        signal.setitimer(signal.ITIMER_REAL, 0.001)

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    try:
        limit = time.monotonic() + 30
        while len(answers) < 50 and time.monotonic() < limit:
            check(x, converter(x, out=out))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(answers) >= 50
    assert all(answers)


INTERRUPTED = """
import os, signal, threading, time
import numpy as np
import layoutkit
x = np.random.default_rng(0).random((16, 24, 24, 32), np.float32)
layoutkit.set_num_threads(2)
expected = x.transpose(0, 3, 1, 2)
converter = layoutkit.Converter("bhwc->bchw")
converter(x)
me = os.getpid()
for i in range(20):
    timer = threading.Timer(0.01 + i * 1e-4, os.kill, (me, signal.SIGINT))
    timer.start()
    try:
        while True:
            converter(x)
    except KeyboardInterrupt:
        pass
    timer.join()
    assert (converter(x) == expected).all()
print("usable")
"""


def test_interrupts_leave_a_usable_library():
    assert python(INTERRUPTED) == "usable\n"

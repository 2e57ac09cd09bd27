"""Failures in a Batcher: no hang, no silent loss, and no thread that outlives close()."""

import logging
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from layoutkit import DataError
from layoutkit.data import open_index, sampled_batcher
from layoutkit.data.loader import worker_pool
from tests.helpers.batches_of import our_threads, plain, plain_all
from tests.helpers.loopback import serving

N = 12
X = np.arange(N * 2, dtype=np.float32).reshape(N, 2)
INDEX = open_index(X)


@pytest.fixture(autouse=True)
def _no_thread_stays():
    yield
    deadline = time.monotonic() + 5
    while our_threads() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert our_threads() == []


def test_the_consumer_wakes_for_the_record_that_began_first():
    pool = worker_pool.WorkerPool(3, 60.0)
    now = time.perf_counter()
    for worker, seconds in zip(pool._workers, (1, 50), strict=False):
        worker.assignment = None, SimpleNamespace(current=(0, now - seconds))
    assert 0 < pool._wait_seconds() <= 10


def warnings(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


class Gate:
    """A getter that hangs at some records until `open` is set."""

    def __init__(self, *hanging):
        self.hanging, self.open, self.reached = hanging, threading.Event(), threading.Event()

    def __call__(self, record):
        if record.position in self.hanging:
            self.reached.set()
            self.open.wait(20)
        return record.array


@pytest.fixture
def gate():
    gate = Gate(3, 4)
    yield gate
    gate.open.set()


# ---- a getter that raises ----------------------------------------------------------------


def fail_at(*numbers, error=ValueError):
    def get(record):
        if record.position in numbers:
            raise error(f"bad {record.position}")
        return record.array

    return get


@pytest.mark.parametrize("number", [0, 1, 4])
def test_what_raises_is_left_out_and_named(number, caplog):
    with sampled_batcher(INDEX, batch_size=4, get=fail_at(1, 6), num_workers=number) as batches:
        first, second, third = batches
        assert batches.dropped == 2
    assert (first.count, second.count, third.count) == (3, 3, 4)
    assert first.index.tolist() == [0, 2, 3]
    assert first.input.input.tolist() == X[[0, 2, 3]].tolist()
    [(record, place, error)] = second.dropped
    assert (record, place, str(error)) == (INDEX[6], 6, "bad 6")
    assert warnings(caplog) == [
        "left out record 1: ValueError: bad 1",
        "left out record 6: ValueError: bad 6",
    ]


@pytest.mark.parametrize("number", [0, 1, 4])
@pytest.mark.parametrize("refill", [False, True])
def test_raise_ends_the_loop_at_this_batch(number, refill):
    options = {"batch_size": 4, "num_workers": number, "on_error": "raise", "refill": refill}
    bad = fail_at(6, 5)
    with sampled_batcher(INDEX, get=bad, **options) as batches:
        loop = iter(batches)
        next(loop)
        with pytest.raises(DataError, match=r"record 5.*bad 5") as caught:
            next(loop)
        assert isinstance(caught.value.__cause__, ValueError)
        state = batches.state_dict()
        with pytest.raises(DataError, match="over"):
            next(loop)
    with sampled_batcher(INDEX, get=None, **options) as batches:
        batches.load_state_dict(state)
        assert [batch.index[0] for batch in batches] == [4, 8]


def test_refused_records_are_left_out_with_raise_too():
    def refuse(x, out):
        return None if x[0] == 4 else x

    with sampled_batcher(INDEX, batch_size=4, processor=refuse, on_error="raise") as batches:
        assert [batch.count for batch in batches] == [3, 4, 4]


@pytest.mark.parametrize("number", [1, 3])
def test_what_ends_a_thread_reaches_the_caller(number):
    get = fail_at(5, error=SystemExit)
    with sampled_batcher(INDEX, batch_size=4, get=get, num_workers=number) as batches:
        loop = iter(batches)
        next(loop)
        with pytest.raises(SystemExit):
            next(loop)
        assert next(iter(batches)).count == 4  # the threads still work


# ---- a getter that hangs -----------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("dims", [None, (2,)])
def test_a_record_that_hangs_is_left_out(gate, number, dims, caplog):
    options = {"batch_size": 6, "input_dims": dims, "timeout": 0.05, "num_workers": number}
    get = lambda record: (gate(record), record.position)
    with sampled_batcher(INDEX, get=get, **options) as batches:
        first, second = plain_all(batches)
    assert first["dropped"] == [(3, 3, "TimeoutError"), (4, 4, "TimeoutError")]
    assert (first["index"], second["index"]) == ([0, 1, 2, 5], [6, 7, 8, 9, 10, 11])
    assert first["input"] == X[[0, 1, 2, 5]].tolist()
    assert second["input"] == X[6:].tolist()
    assert (first["target"], second["target"]) == (first["index"], second["index"])
    assert "longer than 0.05 s" in warnings(caplog)[0]
    gate.open.set()


def test_a_late_thread_never_writes_into_a_batch():
    gate, wrote = Gate(1), threading.Event()

    def process(x, out):
        out[...] = x
        if x[0] == 2:
            gate(INDEX[1])
            out[...] = -1
            wrote.set()
        return out

    options = {"batch_size": 4, "input_dims": (2,), "timeout": 0.05, "num_workers": 1}
    with sampled_batcher(INDEX, processor=process, **options) as batches:
        held = list(batches)
        before = [plain(batch) for batch in held]
        gate.open.set()
        assert wrote.wait(5)
        assert [plain(batch) for batch in held] == before
    assert before[0]["input"] == X[[0, 2, 3]].tolist()


def test_hanging_with_refill(gate):
    options = {"batch_size": 4, "timeout": 0.05, "num_workers": 2, "refill": True}
    with sampled_batcher(INDEX, get=gate, **options) as batches:
        assert [batch.index.tolist() for batch in batches] == [[0, 1, 2, 5], [6, 7, 8, 9], [10, 11]]


def test_hanging_with_raise(gate):
    options = {"batch_size": 4, "timeout": 0.05, "num_workers": 2, "on_error": "raise"}
    with sampled_batcher(INDEX, get=gate, **options) as batches:
        with pytest.raises(DataError, match="record 3") as caught:
            next(iter(batches))
        assert isinstance(caught.value.__cause__, TimeoutError)


def test_late_counts_even_if_nobody_was_waiting():
    def slow(record):
        if record.position == 2:
            time.sleep(0.25)
        return record.array

    options = {"batch_size": 4, "timeout": 0.2, "num_workers": 1, "prefetch": 3}
    with sampled_batcher(INDEX, get=slow, **options) as batches:
        loop = iter(batches)
        next(loop)
        time.sleep(0.3)
        found = [plain(batch) for batch in loop]
        assert sum(batch["count"] for batch in found) == 8
        assert batches.dropped == 1


def test_every_thread_hangs_and_the_loop_goes_on():
    gate = Gate(*range(N - 1))
    with sampled_batcher(INDEX, batch_size=4, get=gate, timeout=0.2, num_workers=2) as batches:
        assert [batch.count for batch in batches] == [0, 0, 1]
        assert batches.dropped == N - 1
    gate.open.set()


# ---- close() -----------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, 4])
def test_close_in_mid_epoch(number):
    batches = sampled_batcher(INDEX, batch_size=2, num_workers=number)
    assert our_threads() == []
    loop = iter(batches)
    held = next(loop)
    assert len(our_threads()) == number
    state = batches.state_dict()
    batches.close()
    batches.close()
    assert our_threads() == []
    assert batches.state_dict() == state
    for end in (lambda: next(loop), lambda: iter(batches)):
        with pytest.raises(DataError, match="close"):
            end()
    assert held.input.input.tolist() == X[:2].tolist()


def test_close_waits_for_a_call_that_returns(gate):
    gate.hanging = (1,)
    batches = sampled_batcher(INDEX, batch_size=2, get=gate, num_workers=2)
    threading.Timer(0.05, gate.open.set).start()
    failures = []

    def wait():
        try:
            next(iter(batches))
        except DataError as error:
            failures.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert gate.reached.wait(5)
    batches.close()
    assert our_threads() == []
    waiting.join(5)
    assert len(failures) == 1


def test_close_does_not_wait_for_a_call_that_never_returns(gate, monkeypatch):
    monkeypatch.setattr(worker_pool, "_CLOSE_SECONDS", 0.05)
    batches = sampled_batcher(INDEX, batch_size=2, get=gate, num_workers=2, prefetch=3)
    loop = iter(batches)
    next(loop)
    assert gate.reached.wait(5)
    began = time.monotonic()
    batches.close()
    assert time.monotonic() - began < 2
    assert all(thread.daemon for thread in our_threads())
    gate.open.set()  # ends the thread, as the fixture checks


def test_a_batcher_that_nobody_holds_takes_its_threads_along():
    batches = sampled_batcher(INDEX, batch_size=2, num_workers=2)
    next(iter(batches))
    assert len(our_threads()) == 2
    del batches


def test_an_interrupt_while_waiting_leaves_it_closable(gate):
    import signal

    def interrupt():
        gate.reached.wait(5)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with sampled_batcher(INDEX, batch_size=6, get=gate, num_workers=1) as batches:
        with pytest.raises(KeyboardInterrupt):
            next(iter(batches))
        assert batches.state_dict()["position"] == 0
        gate.open.set()
        assert next(iter(batches)).count == 6


def test_an_interrupt_in_the_callers_own_thread():
    with sampled_batcher(
        INDEX, batch_size=6, get=fail_at(8, error=KeyboardInterrupt), num_workers=0
    ) as batches:
        loop = iter(batches)
        next(loop)
        with pytest.raises(KeyboardInterrupt):
            next(loop)
        assert batches.state_dict()["position"] == 6


# ---- files and servers -------------------------------------------------------------------


@pytest.fixture
def home(site):
    for number in range(4):
        site.files[f"/{number}"] = bytes([number]) * 1000
    with serving(site) as home:
        yield home


def table(folder, rows, columns="filename"):
    path = folder / "index.csv"
    path.write_text("\n".join([columns, *rows]) + "\n")
    return path


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("cached", [False, True])
def test_a_server_that_fails_and_recovers(site, home, tmp_path, number, cached):
    site.script.update({"/0": [500], "/1": ["ok"], "/2": ["cut", 503], "/3": ["reset"]})
    path = table(tmp_path, [f"{home}/{n}" for n in range(4)])
    cache = tmp_path / "cache" if cached else None
    with sampled_batcher(path, batch_size=4, num_workers=number, cache_dir=cache) as batches:
        [batch] = batches
    assert batch.dropped == []
    assert batch.input.input.tolist() == [[n] * 1000 for n in range(4)]


@pytest.mark.parametrize("number", [0, 2])
def test_a_server_that_refuses_or_never_recovers(site, home, tmp_path, number, caplog):
    site.script.update({"/1": [404], "/2": ["cut"] * 9})
    path = table(tmp_path, [f"{home}/{n}" for n in range(4)])
    with sampled_batcher(path, batch_size=4, num_workers=number, retries=2) as batches:
        [batch] = batches
    assert batch.index.tolist() == [0, 3]
    assert [record.url for record, *_ in batch.dropped] == [f"{home}/1", f"{home}/2"]
    assert (site.asked.count("/1"), site.asked.count("/2")) == (1, 3)
    assert [f"{home}/1" in warnings(caplog)[0], "404" in warnings(caplog)[0]] == [True, True]


def test_a_file_that_vanished_and_one_that_is_cut(tmp_path):
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode() * 10)
    index = open_index(table(tmp_path, ["a,0,10", "b,5,5", "c,2,5"], "filename,offset,length"))
    (tmp_path / "a").unlink()
    (tmp_path / "b").write_bytes(b"bbbbbbbb")
    with sampled_batcher(index, batch_size=3) as batches:
        [batch] = batches
    assert batch.input.input.tolist() == [[99] * 5]
    assert [type(error) for *_, error in batch.dropped] == [DataError, DataError]
    assert "3 bytes" in str(batch.dropped[1][2])


def test_a_getter_that_returns_half_a_record():
    def half(record):
        return record.array[:1] if record.position == 2 else record.array

    for dims in (None, (2,)):
        with sampled_batcher(INDEX, batch_size=4, get=half, input_dims=dims) as batches:
            batch = next(iter(batches))
        assert batch.index.tolist() == [0, 1, 3]
        assert "shape" in str(batch.dropped[0][2])


def test_a_processor_that_resizes():
    def resize(x, out):
        return np.resize(x, (int(x[0]) % 3 + 1,))

    with sampled_batcher(INDEX, batch_size=4, processor=resize) as batches:
        shapes = [(b.input.input.shape, b.index.tolist()) for b in batches]
    assert shapes == [((2, 1), [0, 3]), ((1, 1), [6]), ((1, 1), [9])]
    with sampled_batcher(INDEX, batch_size=1, processor=resize) as batches:
        assert [b.input.input.shape[1] for b in batches] == [2 * i % 3 + 1 for i in range(N)]


def test_a_full_disk_does_not_stop_the_batches(home, tmp_path, caplog, monkeypatch):
    from layoutkit.data.io import cache

    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "replace_atomically", full)
    path = table(tmp_path, [f"{home}/{n}" for n in range(4)])
    with sampled_batcher(path, batch_size=4, cache_dir=tmp_path / "c") as batches:
        [batch] = batches
    assert batch.count == 4
    assert len(warnings(caplog)) == 1


def test_a_function_of_the_shape_that_fails():
    def dims(number):
        if number == 1:
            raise ZeroDivisionError("no dims")
        return (2,)

    with sampled_batcher(INDEX, batch_size=4, input_dims=dims) as batches:
        loop = iter(batches)
        assert next(loop).count == 4
        with pytest.raises(ZeroDivisionError):
            next(loop)
        assert batches.state_dict()["position"] == 4

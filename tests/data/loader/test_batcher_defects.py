"""Batchers together with other threads and processes, and unusual results."""

import logging
import os
import signal
import threading
import time

import numpy as np
import pytest

from layoutkit import DataError
from layoutkit.data import sampled_batcher
from layoutkit.data.io.reader import Reader
from layoutkit.data.loader import pending, worker_pool
from tests.helpers.batches_of import our_threads
from tests.helpers.loopback import Site, serving

X = np.arange(24.0).reshape(12, 2)


# ---- several threads -------------------------------------------------------------------------


@pytest.fixture
def waiting():
    """Return a getter that waits, the event of its first call, and the one that it waits for."""
    at, go = threading.Event(), threading.Event()

    def get(record):
        at.set()
        assert go.wait(10)
        return record.array

    return get, at, go


def test_a_loop_that_another_thread_waits_in_is_an_error_and_goes_on(waiting):
    get, at, go = waiting
    with sampled_batcher(X, batch_size=4, get=get, num_workers=2) as batches:
        loop, found = iter(batches), []
        other = threading.Thread(target=lambda: found.extend(batch.count for batch in loop))
        other.start()
        assert at.wait(10)
        with pytest.raises(DataError, match="another thread waits for the next item"):
            next(loop)
        go.set()
        other.join(10)
        assert (found, batches.epoch) == ([4, 4, 4], 1)


@pytest.mark.parametrize("newer", [iter, lambda b: b.reset(), lambda b: b.set_epoch(3)])
def test_something_newer_ends_a_loop_that_another_thread_waits_in(newer, waiting):
    (get, at, go), failures = waiting, []

    def take(loop):
        try:
            next(loop)
        except DataError as error:
            failures.append(str(error))

    with sampled_batcher(X, batch_size=4, get=get, num_workers=2) as batches:
        other = threading.Thread(target=take, args=(iter(batches),))
        other.start()
        assert at.wait(10)
        kept = newer(batches)
        go.set()
        other.join(10)
        assert "is over" in failures[0]
        assert [batch.count for batch in (kept or batches)] == [4, 4, 4]


def test_a_processor_may_not_end_its_own_loop_silently():
    def process(x, out):
        batches.reset()
        return x

    with sampled_batcher(X, batch_size=4, processor=process, num_workers=0) as batches:
        with pytest.raises(DataError, match="is over"):
            next(iter(batches))
        assert batches.dropped == 0


def test_no_thread_outlives_close_however_short_the_limit(monkeypatch):
    def slowly(x, out):
        time.sleep(0.02)
        return x

    for _ in range(3):
        with sampled_batcher(X, batch_size=4, processor=slowly, timeout=0.001, num_workers=4) as b:
            with pytest.raises(DataError, match=r"none of the 12 .* 11 more: TimeoutError"):
                next(iter(b))
            current = {worker.thread for worker in b._pool._workers}
        assert not [thread for thread in current if thread.is_alive()]


@pytest.mark.parametrize("timeout", [1e10, float("inf")])
def test_a_limit_that_no_clock_can_take(timeout, waiting):
    get, at, go = waiting
    with sampled_batcher(X, batch_size=12, get=get, timeout=timeout) as batches:
        threading.Thread(target=lambda: (at.wait(10), time.sleep(0.01), go.set())).start()
        assert next(iter(batches)).count == 12


# ---- a record that is done at the moment of its timeout --------------------------------------


class Moment:
    """A replacement of `_record_start` that reports a worker as late once `ready` has returned."""

    def __init__(self, monkeypatch, ready):
        self._real, self._ready, self._said = worker_pool._record_start, ready, False
        monkeypatch.setattr(worker_pool, "_record_start", self)
        monkeypatch.setattr(worker_pool.WorkerPool, "_wait_seconds", lambda crew: 0.001)
        draw = pending.PendingBatch.take_chunk
        monkeypatch.setattr(
            pending.PendingBatch, "take_chunk", lambda batch, limit: draw(batch, 99)
        )

    def __call__(self, worker):
        if self._said or worker.assignment is None:
            return self._real(worker)
        self._ready(worker.assignment[1])
        self._said = True
        return -1e9


@pytest.mark.parametrize("dims", [None, (2,)])
def test_a_worker_that_has_gone_on_to_another_record_loses_none(monkeypatch, dims):
    at, go, calls = threading.Event(), threading.Event(), []

    def process(x, out):
        calls.append(int(x[0]) // 2)
        if calls == [0, 1]:
            at.set()
            assert go.wait(10)
            x = x * 0 - 1  # too late: the record has timed out
        if out is None:
            return x.copy()
        out[...] = x
        return out

    Moment(monkeypatch, lambda chunk: at.wait(10))
    with sampled_batcher(
        X[:4], batch_size=4, processor=process, timeout=60, num_workers=1, input_dims=dims
    ) as batches:
        [batch] = batches
        go.set()
        time.sleep(0.01)
        assert batch.dropped == []
        assert batch.input.input.tolist() == X[:4].tolist()
    assert sorted(calls) == [0, 1, 1, 2, 3]


def test_a_worker_that_has_come_to_its_end_loses_none(monkeypatch):
    calls, seen = [], threading.Event()

    def process(x, out):
        assert seen.wait(10)
        calls.append(1)
        return x

    def ended(chunk):
        seen.set()
        deadline = time.monotonic() + 10
        while chunk.current or len(calls) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    Moment(monkeypatch, ended)
    with sampled_batcher(X[:4], batch_size=4, processor=process, timeout=60, num_workers=1) as b:
        assert [(batch.count, batch.dropped) for batch in b] == [(4, [])]
    assert len(calls) == 4


# ---- forks -----------------------------------------------------------------------------------


def forked(work):
    """Return the result of `work` in a forked child as text; kill a child that hangs."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        signal.alarm(10)
        try:
            os.write(writing, str(work()).encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        said = file.read().decode()
    assert os.waitpid(pid, 0)[1] == 0, "the child hung"
    return said


@pytest.fixture
def begun():
    """Yield a Batcher and its loop in mid-epoch, while another thread holds the pool's lock."""
    held, go = threading.Event(), threading.Event()

    def hold():
        with batches._pool._lock:
            held.set()
            go.wait(20)

    with sampled_batcher(X, batch_size=2, num_workers=2) as batches:
        loop = iter(batches)
        next(loop)
        holder = threading.Thread(target=hold)
        holder.start()
        assert held.wait(10)
        yield batches, loop
        go.set()
        holder.join(10)


def test_the_loop_of_the_parent_is_an_error_in_a_fork(begun):
    _, loop = begun
    assert "began in another process" in forked(lambda: next(loop))


def test_a_fork_can_close(begun):
    batches, _ = begun
    assert forked(batches.close) == "None"


def test_a_fork_begins_loops_of_its_own(begun):
    batches, _ = begun
    pairs = [[2 * i, 2 * i + 1] for i in range(6)]
    work = lambda: ([b.index.tolist() for b in batches], batches.close(), len(our_threads()))
    assert forked(work) == str((pairs, None, 0))


def test_a_fork_reads_by_connections_of_its_own():
    site = Site()
    site.files["/a"] = b"abc"
    with serving(site) as home:
        reader = Reader()
        assert reader.read(f"{home}/a") == reader.read(f"{home}/a") == b"abc"
        assert forked(lambda: reader.read(f"{home}/a")) == str(b"abc")
        assert reader.read(f"{home}/a") == b"abc"
    first, second, childs, last = site.peers
    assert first == second == last != childs


def test_a_fork_waits_for_no_lock_of_a_cache(tmp_path):
    site = Site()
    site.files["/a"] = b"abc"
    with serving(site) as home:
        source = {"x": [1.0]}
        with sampled_batcher(source, batch_size=1, cache_dir=tmp_path) as batches:
            reader = batches._config.reader
            url = f"{home}/a"
            with reader._cache.download_lock(url), reader._cache._lock:
                assert forked(lambda: reader.read(url)) == str(b"abc")


def test_a_closed_reader_is_closed_in_a_fork_too():
    reader = Reader()
    reader.close()
    assert forked(lambda: reader._stopped.is_set()) == "True"


# ---- results ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 2])
def test_a_target_that_the_processor_uses_again(number):
    buffers = threading.local()

    def process(x, out):
        if not hasattr(buffers, "target"):
            buffers.target = np.zeros(2)
        buffers.target[...] = -x
        return x, buffers.target

    with sampled_batcher(X, batch_size=5, processor=process, num_workers=number) as batches:
        found = np.concatenate([batch.target.input for batch in batches])
    assert found.tolist() == (-X).tolist()


@pytest.mark.parametrize("target", [np.array("text"), np.array([None]), 2**70, "text", None])
def test_a_target_that_is_none_leaves_its_record_out(target):
    def process(x, out):
        return x, (target if x[0] < 8 else 1)

    with sampled_batcher(X, batch_size=4, processor=process) as batches:
        assert [(len(batch.dropped), batch.count) for batch in batches] == [(4, 0), (0, 4), (0, 4)]


class UnspeakableError(Exception):
    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__


@pytest.mark.parametrize("number", [0, 2])
def test_an_error_that_has_no_words(number, caplog):
    def process(x, out):
        if x[0] == 2:
            raise UnspeakableError
        return x

    options = {"batch_size": 6, "processor": process, "num_workers": number}
    with sampled_batcher(X, **options) as batches:
        assert [batch.count for batch in batches] == [5, 6]
    assert [r.getMessage() for r in caplog.records] == ["left out record 1: UnspeakableError"]
    with (
        sampled_batcher(X, on_error="raise", **options) as batches,
        pytest.raises(DataError, match="record 1: UnspeakableError"),
    ):
        next(iter(batches))


def test_a_getter_that_raises_stop_iteration_ends_nothing():
    def stop(record):
        raise StopIteration

    sources = [X, X, X]
    options = {"batch_size": 12, "get": [None, stop, None], "num_workers": 0}
    with sampled_batcher(sources, processor=lambda *x, out: x[2], **options) as batches:
        assert next(iter(batches)).count == 12
    with (
        sampled_batcher(
            sources, processor=lambda *x, out: x[0], on_error="raise", **options
        ) as batches,
        pytest.raises(DataError, match="record 0: StopIteration"),
    ):
        next(iter(batches))


# ---- refill ----------------------------------------------------------------------------------


def test_refill_does_not_go_on_behind_an_error_that_is_raised():
    calls = []

    def get(record):
        calls.append(record.position)
        raise ValueError

    with (
        sampled_batcher(
            X, batch_size=3, get=get, refill=True, on_error="raise", num_workers=0
        ) as batches,
        pytest.raises(DataError, match="record 0: ValueError"),
    ):
        next(iter(batches))
    assert calls == [0, 1, 2]


def test_refill_keeps_no_memory_of_what_is_left_out():
    n, blocks = 600, []

    def process(x, out):
        blocks.append(out)
        if len(blocks) == n:
            alive.append(sum(len(chunk.block) for chunk in pending_batch()._chunks))
        return out if x == n - 1 else None

    def pending_batch():
        return loop._steps.gi_frame.f_locals["run"]._pending[0]

    alive = []
    with sampled_batcher(
        np.arange(n), batch_size=4, processor=process, refill=True, input_dims=(9,), num_workers=0
    ) as batches:
        loop = iter(batches)
        [batch] = loop
    assert (batch.count, batch.index.tolist(), alive) == (1, [n - 1], [0])


def test_the_work_of_refill_grows_with_the_records_alone(monkeypatch):
    """Each round checks only its own records, not the records of earlier rounds again."""
    looked = []
    real = pending.PendingBatch.kept_indices
    monkeypatch.setattr(
        pending.PendingBatch, "kept_indices", lambda batch: looked.append(1) or real(batch)
    )
    with sampled_batcher(
        np.arange(400), batch_size=2, processor=lambda x, out: x if x > 397 else None, refill=True
    ) as batches:
        [batch] = batches
    assert (batch.index.tolist(), len(batch.dropped)) == ([398, 399], 398)
    assert len(looked) == 1


# ---- arguments and states --------------------------------------------------------------------


def test_a_numpy_integer_is_a_shape():
    with sampled_batcher(X, batch_size=2, input_dims=np.int64(2)) as batches:
        assert next(iter(batches)).input.input.shape == (2, 2)


# ---- redirects -------------------------------------------------------------------------------


def test_a_redirect_is_followed():
    site = Site()
    site.files["/there"] = bytes(range(9))
    site.script["/here"] = ["/there", "/there"]
    with serving(site) as home:
        assert Reader().read(f"{home}/here", 2, 3) == bytes([2, 3, 4])
        assert Reader().read(f"{home}/here") == bytes(range(9))
    assert site.asked == ["/here", "/there"] * 2


def test_a_redirect_in_circles_is_no_failure_that_passes(caplog):
    site = Site()
    site.script["/here"] = ["/here"] * 100
    with serving(site) as home, pytest.raises(DataError, match="too many redirects"):
        Reader(retries=3).read(f"{home}/here")
    assert len(site.asked) == 6
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


# ---- a shared cache --------------------------------------------------------------------------


def test_an_answer_that_may_have_been_cut_is_not_kept(tmp_path):
    site = Site()
    site.files["/a"] = bytes(range(200))
    site.script["/a"] = ["open", "open"]  # half of the file, without a length
    with (
        serving(site) as home,
        sampled_batcher(X, batch_size=1, cache_dir=tmp_path) as batches,
    ):
        read = batches._config.reader.read
        assert read(f"{home}/a", 0, 200) == read(f"{home}/a") == bytes(range(200))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_another_process_drops_while_it_is_counted(tmp_path, monkeypatch, caplog):
    from layoutkit.data.io.cache import DiskCache

    names = [f"{number:064x}-3-{'0' * 32}.record" for number in range(3)]
    for name in names:
        (tmp_path / name).write_bytes(b"abc")
    real = os.scandir

    def scandir(path):
        found = list(real(path))
        (tmp_path / names[1]).unlink()
        return found

    monkeypatch.setattr("layoutkit.data.io.cache.os.scandir", scandir)
    cache = DiskCache(tmp_path, 100)
    assert cache.accepts("any")
    assert (cache._total, caplog.records) == (6, [])

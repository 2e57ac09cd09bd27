"""The memory pool: memory in use is never overwritten, and free memory is used again."""

import ctypes
import gc
import itertools
import os
import pickle
import resource
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from layoutkit import buffers
from layoutkit.buffers import empty, empty_with_address, pool, size_class
from layoutkit.errors import ArgumentError, LayoutkitError

MB = 1 << 20
N = 3000
POSIX = hasattr(os, "fork")


@pytest.fixture(autouse=True)
def _clean_pool():
    limit = buffers.stats()["limit"]
    gc.collect()
    buffers.clear()
    yield
    buffers.set_limit(limit)
    buffers.clear()


def filled(value=7, n=N):
    array = empty((n,), np.uint8)
    array[:] = value
    return array


def churn(n=N, value=255, rounds=20):
    """Allocate and overwrite as many blocks of this size as the pool could hold, all at once."""
    arrays = [empty((n,), np.uint8) for _ in range(rounds)]
    for array in arrays:
        array[:] = value


def since(before):
    return {key: value - before[key] for key, value in buffers.stats().items()}


# ---- Allocated arrays ----------------------------------------------------------------------

DTYPES = [
    np.dtype(dtype)
    for dtype in (
        "?",
        "i1",
        "u2",
        "i4",
        "u8",
        "f2",
        "f4",
        "f8",
        "g",
        "c8",
        "c16",
        "M8[ns]",
        "m8[s]",
        "V7",
        "S5",
        "U3",
        ">f4",
        [("a", "u1"), ("b", "f4", (2,))],
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
    )
]


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (5, 7), (2, 3, 4, 5), (33, 1, 65)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_shape_and_dtype_is_contiguous_aligned_and_writeable(shape, dtype):
    array, address = empty_with_address(shape, dtype)
    assert type(array) is np.ndarray
    assert (array.shape, array.dtype) == (shape, dtype)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert array.flags.aligned
    assert array.ctypes.data == address
    assert address % 64 == 0
    zeros = np.zeros(shape, dtype)
    array[...] = zeros
    assert array.tobytes() == zeros.tobytes()


@pytest.mark.parametrize("nbytes", [1, 255, 256, 257, 4096, MB - 1, 2 * MB - 1, 2 * MB, 5 * MB + 3])
def test_the_whole_array_can_be_written_and_read_around_every_threshold(nbytes):
    array, address = empty_with_address((nbytes,), np.uint8)
    array[:] = np.arange(nbytes, dtype=np.uint8)
    assert np.array_equal(array, np.arange(nbytes, dtype=np.uint8))
    assert address % 64 == 0


def test_a_dtype_may_be_given_as_a_word():
    assert empty((2, 3), "int16").dtype == np.int16


def test_two_arrays_at_once_share_nothing():
    arrays = [filled(k) for k in range(50)]
    assert all((array == k).all() for k, array in enumerate(arrays))
    assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(arrays[:10], 2))


@pytest.mark.parametrize("shape", [(2, -3), (1,) * 70])
def test_a_shape_that_numpy_refuses_leaves_the_pool_as_it_was(shape):
    before = buffers.stats()
    with pytest.raises(ValueError, match=r"dimension|negative"):
        empty(shape, np.uint8)
    assert since(before)["held"] == 0


# ---- Memory in use is not overwritten ------------------------------------------------------


def views_of_views(array):
    for _ in range(5):
        array = array[1:]
    return array.reshape(5, -1).T[::-1]


class Interface:
    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


DERIVED = {
    "slice": lambda a: a[10:20],
    "views of views": views_of_views,
    "reshape": lambda a: a.reshape(3, -1),
    "transpose": lambda a: a.reshape(3, -1).T,
    "other dtype": lambda a: a.view(np.uint16),
    "field": lambda a: a.view([("x", "u1"), ("y", "u1")])["y"],
    "matrix": lambda a: a.view(np.matrix),
    "view of a matrix": lambda a: a.view(np.matrix).view(np.ndarray)[0, 5:],
    "recarray": lambda a: a.view([("x", "u1")]).view(np.recarray).x,
    "masked": lambda a: np.ma.masked_array(a, copy=False),
    "broadcast": lambda a: np.broadcast_to(a, (4, N)),
    "as_strided": lambda a: np.lib.stride_tricks.as_strided(a, (10,), (3,)),
    "sliding window": lambda a: np.lib.stride_tricks.sliding_window_view(a, 5),
    "flat": lambda a: a.flat,
    "nditer": lambda a: np.nditer(a),
    "memoryview": memoryview,
    "memoryview of a view": lambda a: memoryview(a[5:])[3:],
    "frombuffer": lambda a: np.frombuffer(a, np.uint8)[4:],
    "array of memoryview": lambda a: np.asarray(memoryview(a)),
    "pickle buffer": pickle.PickleBuffer,
    "raw pickle buffer": lambda a: pickle.PickleBuffer(a).raw(),
    "pickle out of band": lambda a: pickle_out_of_band(a),
    "interface": lambda a: np.asarray(Interface(a))[3:],
    "interface of a memoryview": lambda a: np.asarray(Interface(a)).data,
    "dlpack": lambda a: np.from_dlpack(a),
    "capsule": lambda a: (a.__dlpack__(), a.__array_struct__),
    "ctypes pointer": lambda a: a.ctypes.data_as(ctypes.c_void_p),
    "ctypes array": lambda a: np.ctypeslib.as_ctypes(a),
    "closure": lambda a: lambda: a,
    "bound method": lambda a: a.sum,
    "cycle": lambda a: cycle_around(a),
    "base and view": lambda a: (a[1:].base, a[1:].base.base),
    "torch": lambda a: pytest.importorskip("torch").from_numpy(a),
    "view of torch": lambda a: pytest.importorskip("torch").from_numpy(a)[5:].view(5, -1).numpy(),
}


def pickle_out_of_band(array):
    found = []
    pickle.dumps(array, protocol=5, buffer_callback=found.append)
    return found


def cycle_around(array):
    cycle = [array]
    cycle.append(cycle)
    return cycle


@pytest.mark.parametrize("kind", DERIVED)
def test_whatever_is_derived_from_an_array_keeps_its_memory(kind):
    array, address = empty_with_address((N,), np.uint8)
    array[:] = 7
    gone = weakref.ref(array)
    before = buffers.stats()["held"]
    derived = DERIVED[kind](array)
    del array
    churn()
    assert gone() is not None, "the array itself must live as long as what was made of it"
    assert (gone() == 7).all()
    assert buffers.stats()["held"] == before
    del derived
    gc.collect()
    assert gone() is None
    assert buffers.stats()["held"] == before - size_class(N)
    again = [empty_with_address((N,), np.uint8) for _ in range(30)]
    assert address in [found for _, found in again]


def test_the_bytes_seen_through_a_derived_object_stay():
    array = filled(7)
    held = [memoryview(array)[5:], array[3:].reshape(-1, 1), np.from_dlpack(array)]
    del array
    churn()
    assert all(bytes(memoryview(part)) == b"\x07" * memoryview(part).nbytes for part in held)


def test_no_memory_can_be_reached_through_the_base():
    base = filled().base
    attempts = [memoryview, lambda b: b.raw(), np.frombuffer, lambda b: np.ndarray((3,), "u1", b)]
    for attempt in attempts:
        with pytest.raises(ValueError, match="released"):
            attempt(base)
    assert np.asarray(base).dtype == object  # an array that contains the object


def test_an_array_that_a_finaliser_brings_back_to_life_keeps_its_memory():
    saved = []

    class Phoenix:
        def __del__(self):
            saved.append(self.array)

    for _ in range(5):
        phoenix = Phoenix()
        phoenix.array, phoenix.self = filled(9), phoenix
        phoenix.base = phoenix.array.base
        del phoenix
    gc.collect()
    churn()
    assert len(saved) == 5
    assert all((array == 9).all() for array in saved)


def test_flags_shape_and_dtype_set_by_a_user_do_not_outlive_the_array():
    array = filled()
    address = array.ctypes.data
    array.shape = (3, -1)
    array.setflags(write=False)
    del array
    again, found = empty_with_address((N,), np.uint8)
    assert found == address
    assert again.flags.writeable
    assert again.shape == (N,)


def test_memory_that_is_not_ours_to_resize_is_refused():
    with pytest.raises(ValueError, match="own"):
        filled().resize(10)


# ---- Reuse ---------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [0, 10, N, 3 * MB])
def test_a_dropped_array_gives_its_memory_to_the_next(nbytes):
    array, address = empty_with_address((nbytes,), np.uint8)
    before = buffers.stats()
    del array
    again, same = empty_with_address((nbytes,), np.uint8)
    assert same == address
    assert since(before) == {"held": 0, "idle": 0, "limit": 0, "hits": 1, "misses": 0}
    assert again.nbytes == nbytes


def test_dtype_and_shape_do_not_matter_for_reuse():
    array, address = empty_with_address((8, 100), np.float32)
    del array
    assert empty_with_address((50, 16), ml_dtypes.bfloat16)[1] != 0
    assert empty_with_address((100, 4), np.complex64)[1] == address


def test_what_came_back_last_is_lent_first():
    first = filled()
    second = filled()
    addresses = [first.ctypes.data, second.ctypes.data]
    del first, second
    again = empty_with_address((N,), np.uint8)
    cold = empty_with_address((N,), np.uint8)
    assert [again[1], cold[1]] == addresses[::-1]


def test_a_shorter_last_batch_uses_the_blocks_of_the_full_ones():
    full = empty((64, 1000), np.float32)
    address = full.ctypes.data
    del full
    before = buffers.stats()
    short, found = empty_with_address((40, 1000), np.float32)
    assert found == address
    assert since(before)["misses"] == 0
    assert short.shape == (40, 1000)


def test_a_small_array_does_not_take_a_block_more_than_twice_its_size():
    big = empty((10_000,), np.uint8)
    del big
    before = buffers.stats()
    small = empty((1_000,), np.uint8)
    assert since(before)["misses"] == 1
    assert small.nbytes == 1_000


def test_an_exact_fit_is_preferred():
    exact = empty((4096,), np.uint8)
    larger = empty((5120,), np.uint8)
    address = exact.ctypes.data
    del exact, larger
    _, found = empty_with_address((4096,), np.uint8)
    assert found == address


def test_sizes_grow_by_at_most_a_quarter_and_never_shrink():
    sizes = [size_class(n) for n in range(20_000)]
    assert sizes == sorted(sizes)
    assert all(n <= size <= max(256, 1.25 * n) for n, size in enumerate(sizes))
    assert all(size_class(size) == size for size in sizes)
    assert all(size % 64 == 0 for size in sizes)
    assert len(set(sizes)) < 30


# ---- Sums and limits -----------------------------------------------------------------------


def test_stats_add_up():
    assert set(buffers.stats()) == {"held", "idle", "limit", "hits", "misses"}
    before = buffers.stats()
    size = size_class(N)
    first = filled()
    second = filled()
    assert since(before) == {"held": 2 * size, "idle": 0, "limit": 0, "hits": 0, "misses": 2}
    del first
    assert since(before) == {"held": size, "idle": size, "limit": 0, "hits": 0, "misses": 2}
    third = filled()
    assert since(before) == {"held": 2 * size, "idle": 0, "limit": 0, "hits": 1, "misses": 2}
    del second, third
    assert since(before) == {"held": 0, "idle": 2 * size, "limit": 0, "hits": 1, "misses": 2}
    buffers.clear()
    assert since(before) == {"held": 0, "idle": 0, "limit": 0, "hits": 1, "misses": 2}


def test_equal_batches_miss_once_and_hit_ever_after():
    before = buffers.stats()
    for _ in range(10):
        batch = filled()
        del batch
    assert (since(before)["misses"], since(before)["hits"]) == (1, 9)


def test_a_new_limit_trims_at_once_and_drops_what_was_idle_longest():
    arrays = [filled() for _ in range(10)]
    addresses = [array.ctypes.data for array in arrays]
    while arrays:
        arrays.pop(0)
    size = size_class(N)
    buffers.set_limit(3 * size + size // 2)
    assert buffers.stats()["idle"] == 3 * size
    kept = [empty_with_address((N,), np.uint8) for _ in range(3)]
    assert [address for _, address in kept] == addresses[:-4:-1]


def test_the_longest_idle_goes_first_across_sizes():
    old = empty((100_000,), np.uint8)
    new = empty((1_000,), np.uint8)
    del old, new
    buffers.set_limit(99_000)
    assert buffers.stats()["idle"] == size_class(1_000)


def test_the_limit_holds_when_arrays_come_back():
    size = size_class(N)
    buffers.set_limit(2 * size)
    arrays = [filled() for _ in range(10)]
    assert buffers.stats()["held"] >= 10 * size
    arrays.clear()
    assert buffers.stats()["idle"] == 2 * size


def test_a_block_above_the_limit_does_not_push_the_others_out():
    small = filled()
    buffers.set_limit(10 * N)
    del small
    large = empty((20 * N,), np.uint8)
    del large
    assert buffers.stats()["idle"] == size_class(N)


def test_limit_zero_turns_reuse_off():
    buffers.set_limit(0)
    before = buffers.stats()
    for _ in range(5):
        array = filled()
        del array
    assert since(before) == {"held": 0, "idle": 0, "limit": 0, "hits": 0, "misses": 5}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_dropped_memory_goes_back_to_the_system_even_below_memory_in_use():
    arrays = [filled(n=8 * MB) for _ in range(8)]
    full = resident()
    del arrays[::2]
    buffers.clear()
    assert full - resident() > 30 * MB


def test_clear_leaves_arrays_in_use_alone():
    array = filled(3)
    buffers.clear()
    churn()
    assert (array == 3).all()


@pytest.mark.parametrize("limit", [-1, 1.5, "2", None, True, 1e9, [4]])
def test_a_limit_that_is_no_size_is_an_argument_error(limit):
    before = buffers.stats()["limit"]
    with pytest.raises(ArgumentError, match="bytes") as caught:
        buffers.set_limit(limit)
    assert repr(limit) in str(caught.value)
    assert isinstance(caught.value, LayoutkitError)
    assert buffers.stats()["limit"] == before


def test_a_limit_may_be_a_numpy_integer():
    buffers.set_limit(np.int64(12345))
    assert buffers.stats()["limit"] == 12345
    assert type(buffers.stats()["limit"]) is int


def test_the_default_limit_is_bounded():
    code = "from layoutkit import buffers; print(buffers.stats()['limit'])"
    limit = int(run_python(code).stdout)
    assert 0 < limit <= 2 << 30


# ---- No memory left ------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1 << 50,), (1 << 62,), (1 << 40, 1 << 40)])
def test_too_much_is_a_memory_error_and_the_pool_goes_on(shape):
    before = buffers.stats()
    with pytest.raises(MemoryError):
        empty(shape, np.uint8)
    assert since(before)["held"] == 0
    assert (filled(5) == 5).all()


def test_before_memory_runs_out_idle_memory_is_dropped(monkeypatch):
    array = filled()
    del array
    tries = []

    def refuse_once(size):
        tries.append((size, buffers.stats()["idle"]))
        if len(tries) == 1:
            raise MemoryError
        return np.zeros(size, np.uint8)

    monkeypatch.setattr("layoutkit.buffers._memory", refuse_once)
    assert empty((10 * N,), np.uint8).nbytes == 10 * N
    size = size_class(10 * N)
    assert tries == [(size, tries[0][1]), (size, 0)]
    assert tries[0][1] > 0


# ---- Threads, signals, cycles --------------------------------------------------------------


def in_threads(work, count=8):
    errors = []

    def guarded(k):
        try:
            work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "deadlock"
    assert errors == []


@pytest.fixture
def _frequent_switches():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("_frequent_switches")
def test_eight_threads_never_see_each_others_bytes_and_no_block_is_lost():
    before = buffers.stats()
    rounds = 300

    def work(k):
        for n in range(rounds):
            arrays = [filled(k * 16 + j, 1000 + 100 * ((n + j) % 5)) for j in range(4)]
            keep = arrays[1][10:]
            del arrays[1]
            assert all(
                (array == k * 16 + j).all() for array, j in zip(arrays, (0, 2, 3), strict=True)
            )
            assert (keep == k * 16 + 1).all()

    in_threads(work)
    after = since(before)
    assert after["held"] == 0
    assert after["hits"] + after["misses"] == 8 * rounds * 4
    assert after["misses"] < 200
    assert buffers.stats()["idle"] == pool.total_bytes - buffers.stats()["held"]


@pytest.mark.usefixtures("_frequent_switches")
def test_threads_that_trim_and_clear_meanwhile_break_nothing():
    def work(k):
        for n in range(200):
            if k == 0:
                buffers.set_limit((n % 4) * 5000)
            elif k == 1:
                buffers.clear()
            else:
                array = filled(k)
                view = array[5:]
                del array
                assert (view == k).all()
            assert buffers.stats()["idle"] >= 0

    in_threads(work)
    buffers.set_limit(0)
    assert buffers.stats()["idle"] == 0
    assert pool.total_bytes == buffers.stats()["held"]


def test_an_array_dropped_by_another_thread_comes_back():
    box = [filled()]
    before = buffers.stats()
    in_threads(lambda _: box.clear(), count=1)
    assert since(before)["held"] == -size_class(N)


def test_arrays_in_reference_cycles_come_back_with_the_collector():
    gc.disable()
    try:
        before = buffers.stats()
        for _ in range(10):
            cycle_around(filled())
        assert since(before)["held"] == 10 * size_class(N)
        gc.collect()
        assert since(before)["held"] == 0
    finally:
        gc.enable()


@pytest.mark.usefixtures("_frequent_switches")
def test_finalisers_at_every_allocation_in_every_thread():
    """Cycles are freed wherever the collector runs, also inside the pool's methods."""
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    before = buffers.stats()
    try:

        def work(k):
            for _ in range(100):
                cycle_around(filled(k))
                array = filled(k)
                assert (array == k).all()

        in_threads(work)
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert since(before)["held"] == 0


def test_stats_while_garbage_returns_blocks():
    """An allocation in `stats` may start a collection, whose callbacks change the pool."""
    in_use = [filled() for _ in range(40)]
    idle = [filled(n=3 * N) for _ in range(40)]
    held = sum(size_class(array.nbytes) for array in in_use)
    del idle
    thresholds = gc.get_threshold()
    try:
        for threshold in range(1, 100):
            gc.disable()
            cycle_around(filled())
            cycle_around(filled())
            gc.set_threshold(threshold)
            gc.enable()
            assert buffers.stats()["held"] >= held
            gc.set_threshold(*thresholds)
            gc.collect(1)  # a full collection costs more
    finally:
        gc.enable()
        gc.set_threshold(*thresholds)


def test_giving_back_while_this_thread_holds_the_lock_does_not_wait():
    array = filled()
    before = buffers.stats()

    def work(_):
        nonlocal array
        with pool.lock:
            array = None
            buffers.set_limit(0)  # even the path that needs the lock

    in_threads(work, count=1)
    assert since(before)["held"] == -size_class(N)
    assert buffers.stats()["idle"] == 0


def test_giving_back_while_another_thread_holds_the_lock_does_not_wait():
    array = filled()
    before = buffers.stats()
    held = threading.Event()
    done = threading.Event()

    def hold():
        with pool.lock:
            held.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    box = [array]
    del array
    dropper = threading.Thread(target=box.clear)
    dropper.start()
    dropper.join(10)
    finished = not dropper.is_alive()
    done.set()
    holder.join()
    assert finished
    assert since(before)["held"] == -size_class(N)


@pytest.mark.parametrize("step", ["_fresh", "_trim", "_forget", "_larger"])
def test_a_call_from_within_the_pools_own_methods_is_safe(monkeypatch, step):
    """A signal handler or finalizer may use the pool while a block is allocated or freed."""
    original = getattr(pool, step)
    inside = []
    seen = []

    def interrupted(*args):
        if not inside:
            inside.append(True)
            one = filled(1)
            two = filled(2, 2 * N)
            seen.append((one == 1).all() and (two == 2).all())
            del one, two
            inside.pop()
        return original(*args)

    before = buffers.stats()
    monkeypatch.setattr(pool, step, interrupted)
    buffers.set_limit(4 * N)
    arrays = [filled(k) for k in range(10)]
    assert all((array == k).all() for k, array in enumerate(arrays))
    arrays.clear()
    monkeypatch.undo()
    assert seen
    assert all(seen)
    assert since(before)["held"] == 0
    assert buffers.stats()["idle"] <= 4 * N
    assert pool.total_bytes == buffers.stats()["held"] + buffers.stats()["idle"]


# ---- Fork ----------------------------------------------------------------------------------


def in_child(work):
    """Return the exit code of a forked child that runs `work`; 0 means success."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not POSIX, reason="needs fork")
@pytest.mark.parametrize("nbytes", [N, 3 * MB])
def test_a_child_has_its_own_copies_and_its_own_pool(nbytes):
    idle = filled(1, nbytes)
    array = filled(7, nbytes)
    del idle
    held = buffers.stats()["held"]

    def work():
        assert buffers.stats()["idle"] == 0
        assert buffers.stats()["held"] == held
        churn(nbytes, 99, rounds=3)
        assert (array == 7).all()
        array[:] = 8
        drop = [array[5:]]
        drop.clear()
        again = filled(50, nbytes)
        assert (array == 8).all()
        assert (again == 50).all()

    assert in_child(work) == 0
    assert (array == 7).all()
    churn(nbytes, 42, rounds=3)
    assert (array == 7).all()


@pytest.mark.skipif(not POSIX, reason="needs fork")
def test_a_block_lent_before_the_fork_comes_back_in_parent_and_child_alike():
    box = [filled(7)]
    address = box[0].ctypes.data
    held = buffers.stats()["held"]

    def drop_and_take():
        box.clear()
        assert buffers.stats()["held"] == held - size_class(N)
        again, found = empty_with_address((N,), np.uint8)
        assert found == address
        again[:] = 9

    assert in_child(drop_and_take) == 0
    assert (box[0] == 7).all()
    drop_and_take()


@pytest.mark.budget(0)
@pytest.mark.skipif(not POSIX, reason="needs fork")
def test_a_fork_while_other_threads_use_the_pool():
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            filled(3)

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()

    def work():
        assert (filled(5) == 5).all()
        buffers.set_limit(0)
        buffers.clear()
        assert buffers.stats()["idle"] == 0

    codes = [in_child(work) for _ in range(20)]
    stop.set()
    for thread in threads:
        thread.join()
    assert codes == [0] * 20


@pytest.mark.skipif(not POSIX, reason="needs fork")
def test_a_fork_out_of_a_frame_that_holds_the_lock():
    def work():
        buffers.clear()
        assert (filled(5) == 5).all()

    with pool.lock:
        assert in_child(work) == 0
    in_threads(lambda _: filled(), count=1)  # the parent's lock is free again


# ---- At exit -------------------------------------------------------------------------------


def run_python(code):
    root = str(Path(buffers.__file__).parents[1])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_arrays_that_live_until_the_interpreter_ends_are_readable_and_silent():
    done = run_python(
        """
        import atexit, builtins, sys, threading
        import numpy as np
        from layoutkit import buffers

        class Late:
            def __init__(self, array): self.array = array
            def __del__(self, write=sys.stdout.write, bytes=bytes):
                write("ok " if bytes(self.array) == b"\\x07" * 3000000 else "wrong ")

        def make():
            array = buffers.empty((3000000,), np.uint8); array[:] = 7
            return array

        kept = Late(make())
        sys.kept = Late(make())
        np.kept = Late(make())
        builtins.kept = make()
        buffers.kept = Late(make())
        cycle = [make()]; cycle.append(cycle); cycle.append(Late(make()))
        threading.current_thread().kept = make()
        atexit.register(make)
        buffers.set_limit(100)   # giving back must trim and forget, too
        small = [buffers.empty((10,), np.uint8) for _ in range(5)]
        """
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert set(done.stdout.split()) == {"ok"}
    assert done.stdout.split().count("ok") >= 2


def test_importing_the_pool_imports_numpy_only():
    done = run_python(
        "import sys, layoutkit.buffers; print([m for m in ('numba', 'torch') if m in sys.modules])"
    )
    assert done.stdout.strip() == "[]", done.stderr


# ---- Resident memory -----------------------------------------------------------------------


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_a_thousand_rounds_fault_no_pages_and_leave_resident_memory_flat():
    def round_of_a_training_loop(keep=[]):  # noqa: B006  (last batch's array, as in a loop)
        batch = empty((8 * MB,), np.uint8)
        batch[::4096] = 1
        keep[:] = [batch]

    for _ in range(10):
        round_of_a_training_loop()
    memory = resident()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(1000):
        round_of_a_training_loop()
    new_faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    assert new_faults < 50  # without reuse: 4 with huge pages, 2048 without, in every round
    assert abs(resident() - memory) < 2 * MB

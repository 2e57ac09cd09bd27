"""Caches are bounded: by the number of entries per cache, and by bytes in the process."""

import gc
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from layoutkit import Converter, accumulate
from layoutkit._utils import cache as caching
from layoutkit._utils.cache import (
    MAX_KEPT,
    PROGRAM_SIZE_ESTIMATE,
    Cache,
    cache_clear,
    cache_put,
    cache_replace,
)
from layoutkit.accumulation import Accumulator


@pytest.fixture
def room(monkeypatch):
    """Start with an empty cache that has room for 50 programs."""
    monkeypatch.setattr(caching, "MAX_BYTES", 50 * PROGRAM_SIZE_ESTIMATE)
    monkeypatch.setattr(caching, "counted", type(caching.counted)())
    monkeypatch.setattr(caching, "counted_bytes", 0)


def shaped(n):
    return np.arange(3 * n).reshape(n, 3)


def convert_shapes(converters, sizes):
    for converter in converters:
        for n in sizes:
            np.testing.assert_array_equal(converter(shaped(n)), shaped(n).T)


@pytest.mark.usefixtures("room")
def test_programs_of_all_converters_are_bounded_together():
    converters = [Converter("bc->cb") for _ in range(20)]
    convert_shapes(converters, range(1, 11))
    kept = [len(converter._programs) for converter in converters]
    assert kept == [0] * 15 + [10] * 5  # the oldest programs were evicted
    convert_shapes(converters[:1], range(1, 11))  # planned again
    assert sum(len(converter._programs) for converter in converters) == 50


@pytest.mark.usefixtures("room")
def test_sums_and_programs_share_one_room():
    converter = Converter("bc->cb")
    add = Accumulator(("bc", "cb"), "bc")
    convert_shapes([converter], range(1, 41))
    for n in range(1, 21):
        assert (add([shaped(n), shaped(n).T]) == 2 * shaped(n)).all()
    assert len(add._sums) == 20  # of two parts, 16 KiB each
    assert len(converter._programs) == 10


@pytest.mark.usefixtures("room")
def test_gradients_count():
    converter = Converter("bc->cb")
    for n in range(1, 100):
        converter.backward(shaped(n).T.astype("f4"))
    (back,) = converter._gradient_converters._made.values()
    assert len(back._programs) < 50
    assert caching.counted_bytes <= 50 * PROGRAM_SIZE_ESTIMATE


@pytest.mark.usefixtures("room")
def test_the_latest_stay_however_large_they_are():
    cache = Cache()
    for number in range(10):
        cache_put(cache, number, str(number), 51 * PROGRAM_SIZE_ESTIMATE)
    assert list(cache) == [6, 7, 8, 9]


def test_a_cache_has_a_limited_number_of_entries():
    cache = {}
    for number in range(MAX_KEPT + 3):
        cache_put(cache, number, str(number))
    assert list(cache) == list(range(3, MAX_KEPT + 3))


@pytest.mark.usefixtures("room")
def test_what_is_gone_leaves_its_room():
    first = Converter("bc->cb")
    convert_shapes([first], range(1, 41))
    for _ in range(30):
        convert_shapes([Converter("bc->cb")], range(1, 11))
    gc.collect()
    assert caching.counted_bytes <= 50 * PROGRAM_SIZE_ESTIMATE
    assert len(caching.counted) == 50
    convert_shapes([first], [1])
    assert len(first._programs) == 1


@pytest.mark.usefixtures("room")
def test_a_hit_counts_nothing():
    converter = Converter("bc->cb")
    convert_shapes([converter], [4] * 100)
    assert len(caching.counted) == 1


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("second", ["first", "second"])
def test_a_key_that_is_present_counts_nothing(second):
    """Threads that miss a key at the same time all store a value, some of them the same one."""
    cache = Cache()
    assert cache_put(cache, "key", "first", 100) == "first"
    assert cache_put(cache, "key", second, 100) == "first"
    assert (caching.counted_bytes, len(caching.counted)) == (100, 1)


@pytest.mark.usefixtures("room")
def test_values_that_are_replaced_or_cleared_count_no_longer():
    cache = Cache()
    for nbytes in (100, 300):
        cache_replace(cache, "key", "value", nbytes)
        assert (caching.counted_bytes, len(caching.counted)) == (nbytes, 1)
    cache_clear(cache)
    assert (caching.counted_bytes, len(caching.counted), len(cache)) == (0, 0, 0)


@pytest.mark.usefixtures("room")
def test_many_threads_keep_the_sum_right():
    converters = [Converter("bc->cb") for _ in range(4)]
    work = [
        threading.Thread(target=convert_shapes, args=(converters, range(n, n + 30)))
        for n in range(1, 5)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert (
        caching.counted_bytes == PROGRAM_SIZE_ESTIMATE * len(caching.counted) <= caching.MAX_BYTES
    )
    assert sum(len(converter._programs) for converter in converters) <= 50


@pytest.mark.usefixtures("room")
def test_constants_count_32_bytes_a_channel():
    converter = Converter("bc->cb", dtype="float32", mean=list(range(1000)))
    converter(np.zeros((2, 1000), np.uint8))
    assert caching.counted_bytes == PROGRAM_SIZE_ESTIMATE + 32 * 1000


class SlowNumber(int):
    """A number whose addition takes a while, in which other threads run."""

    def __radd__(self, other):
        time.sleep(0.002)
        return other + int(self)


@pytest.mark.usefixtures("room")
def test_bytes_that_threads_count_together_are_all_counted():
    cache = Cache()
    with ThreadPoolExecutor(8) as executor:
        list(executor.map(lambda n: cache_put(cache, n, n, SlowNumber(100)), range(40)))
    assert caching.counted_bytes == 40 * 100


def bytes_of(work, count):
    work(0)
    tracemalloc.start()
    try:
        for n in range(1, count + 1):
            work(n)
        return tracemalloc.get_traced_memory()[0] / count
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "keywords",
    [{}, {"dtype": "float32", "scale": 0.5}, {"dtype": "float32", "mean": [1, 2, 3]}],
)
def test_a_program_takes_about_what_it_counts_as(keywords):
    converter = Converter("bhwc->bchw", **keywords)
    x = np.zeros((200, 4, 5, 3), np.uint8)
    # The smaller of two, as threads of earlier tests may allocate memory during one of them.
    measured = [bytes_of(lambda n, at=at: converter(x[: at + n]), 90) for at in (1, 100)]
    assert min(measured) < 1.25 * PROGRAM_SIZE_ESTIMATE


def test_a_sum_takes_about_what_it_counts_as():
    x = np.zeros((200, 4, 5, 3), np.float32)
    parts = [(x, "bhwc"), (x.transpose(0, 3, 1, 2).copy(), "bchw")]
    taken = bytes_of(lambda n: accumulate([(a[: n + 1], of) for a, of in parts], "bhwc"), 50)
    assert taken < 1.25 * 2 * PROGRAM_SIZE_ESTIMATE

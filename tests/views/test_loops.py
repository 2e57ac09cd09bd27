"""Training loops: exact to the last bit, in reused memory; threads and forks."""

import multiprocessing
import os
import sys
import threading

import numpy as np
import pytest

from layoutkit import ClassView, ImageView, ListView
from layoutkit.converter import Converter
from tests.helpers.arrays_of import assert_same
from tests.helpers.children import python

RNG = np.random.default_rng(0)
SAMPLES = 70  # batches of 16 and a last one of 6
DATA = RNG.standard_normal((SAMPLES, 6, 5, 3)).astype("f4")
LABELS = RNG.integers(0, 9, (SAMPLES, 2))


def step(view, factor):
    """Return one batch with two consumers; the gradient of factor * (sum(planes^2) + sum(flat))."""
    planes = view.forward_get("bchw")
    flat = view.forward_get("bf", "f8")
    view.backward_put("bchw", planes * np.float32(2 * factor))
    view.backward_put("bf", np.full_like(flat, factor))
    return view.backward_get()


def wanted(x, factor):
    """Return the expected gradient in plain NumPy, in the precision of a view's sums."""
    return ((x * np.float32(2 * factor)).astype("f8") + factor).astype("f4")


@pytest.mark.budget(0)
@pytest.mark.parametrize(
    ("layout", "shapes"),
    [("chwb", [(3, 4, 5, 2), (1, 4, 5, 2), (1, 2, 5, 7)]), ("hbwc", [(3, 2, 4, 5), (6, 2, 4, 5)])],
)
def test_batches_may_differ_in_axes_before_the_batch_axis(layout, shapes):
    view = ImageView()
    for shape in shapes:
        x = RNG.standard_normal(shape)
        view.forward_put(layout, x)
        for target in ("bf", "bchw"):
            result = view.forward_get(target)
            assert_same(result, ImageView(layout, x).forward_get(target))
            view.backward_put(target, result)
        np.testing.assert_array_equal(view.backward_get(), 2 * x)


# ---- a thousand batches ------------------------------------------------------------------


@pytest.mark.parametrize("feed", ["put", "windows", "sub", "sub into", "index into"])
def test_a_thousand_batches_right_to_the_last_bit(feed):
    data = ImageView("bhwc", DATA)
    view = ImageView()
    out = ImageView()
    steps = 0
    while steps < 1000:
        for start, window in zip(range(0, SAMPLES, 16), data.batches(16), strict=True):
            x = DATA[start : start + 16]
            stop = start + 16
            if feed == "put":
                view.forward_put("bhwc", x)
            elif feed == "windows":
                view = window
            elif feed == "sub":
                view = data.sub(start, stop)
            elif feed == "sub into":
                view = data.sub(start, stop, out=out)
            else:
                view = data.index(range(start, min(stop, SAMPLES)), out=out)
            assert_same(step(view, steps % 7), wanted(x, steps % 7))
            steps += 1
    assert_same(data.input, DATA)


def test_gradients_of_batches_that_are_held_stay():
    """All arrays of a hundred batches are kept, so their memory must not be reused."""
    data = ImageView("bhwc", DATA)
    held = []
    for number in range(20):
        for start, window in zip(range(0, SAMPLES, 16), data.batches(16), strict=True):
            held.append((start, number, step(window, number), window.forward_get("bchw")))
    for start, number, gradient, planes in held:
        x = DATA[start : start + 16]
        assert_same(gradient, wanted(x, number))
        assert_same(planes, x.transpose(0, 3, 1, 2).copy())


def test_no_converter_is_made_after_the_first_batch(monkeypatch):
    data = ListView([ImageView("bhwc", DATA), ClassView("bt", LABELS, 9)])
    out = None
    created = []
    init = Converter.__init__
    monkeypatch.setattr(Converter, "__init__", lambda *a, **k: created.append(a) or init(*a, **k))

    def epoch():
        nonlocal out
        for start, window in zip(range(0, SAMPLES, 16), data.batches(16), strict=True):
            out = data.sub(start, start + 16, out=out)
            for view in (window, out, data.index(range(start, min(start + 16, SAMPLES)))):
                image, labels = view.components
                step(image, 3)
                labels.forward_get("b")
                labels.backward_put("b", np.ones(len(labels)))
                labels.backward_put("bt", np.ones((len(labels), 2)))
                labels.backward_get()
                labels.one_hot()
            image.replace("bchw", image.forward_get("bchw"))

    epoch()
    count = len(created)
    assert count > 0
    for _ in range(3):
        epoch()
    assert len(created) == count


# ---- memory, in processes without other allocations -----------------------------------------

LOOP = """
import gc, tracemalloc
import numpy as np
from layoutkit import ImageView, buffers

samples = SAMPLES
x = np.random.default_rng(0).standard_normal((samples, 32, 32, 16)).astype("f4")
data, out = ImageView("bhwc", x), ImageView()

def step(view):
    planes, flat = view.forward_get("bchw"), view.forward_get("bf", "f8")
    view.backward_put("bchw", planes)
    view.backward_put("bf", flat)
    view.backward_get()

def epoch(times):
    for _ in range(times):
        for at, window in zip(range(0, samples, 16), data.batches(16), strict=True):
            step(window)
            step(data.sub(at, at + 16, out=out))
            step(data.index(np.arange(at, min(at + 16, samples)), out=out))

def traced():
    gc.collect()  # what Python keeps for new tuples goes with a full round
    return tracemalloc.get_traced_memory()[0]

"""

FLAT = """
epoch(25)  # Converters prepare direct calls after 64 calls
before = buffers.stats()
tracemalloc.start()
epoch(2)
first = traced()
epoch(20)
last, after = traced(), buffers.stats()
print(after["misses"] - before["misses"], after["held"] - before["held"], last - first)
"""

DROPPED = """
step(data.sub(0, 16))
held = buffers.stats()["held"]
view = data.sub(0, 16)
step(view)
view.forward_get("chwb")
lent = buffers.stats()["held"] - held
del view
print(lent, buffers.stats()["held"] - held)
"""


@pytest.mark.budget(0)
@pytest.mark.parametrize("samples", [48, 60])
def test_a_loop_that_drops_its_arrays_needs_no_new_memory(samples):
    loop = LOOP.replace("SAMPLES", str(samples))
    misses, held, traced = map(int, python(loop + FLAT).split())
    assert (misses, held) == (0, 0)
    assert abs(traced) < 4000  # bytes; one leaked object a batch would be more


def test_a_dropped_view_gives_its_memory_back():
    lent, left = map(int, python(LOOP.replace("SAMPLES", "48") + DROPPED).split())
    assert lent >= 6 * 2**20  # base, planes, columns and sum of 1 MB, features of 2 MB
    assert left == 0


FAULTS = """
import resource
import numpy as np
from layoutkit import ImageView, buffers, set_num_threads

set_num_threads(2)
x = np.random.default_rng(0).standard_normal((55, 56, 56, 12)).astype("f4")
data, view, out = ImageView("bhwc", x), ImageView(), ImageView()
grads = {n: (np.ones((n, 12, 56, 56), "f4"), np.ones((n, 56 * 56 * 12), "f4")) for n in (16, 7)}

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def epoch(times):
    for _ in range(times):
        for at in range(0, 55, 16):
            stop = min(at + 16, 55)
            window = data.sub(at, stop, copy=False)
            data.sub(at, stop, out=out)
            view.forward_put("bhwc", x[at:stop])
            for each in (window, out, view):
                each.forward_get("bchw"), each.forward_get("bf"), each.forward_get("bhwc", "f2")
                each.backward_put("bchw", grads[stop - at][0])
                each.backward_put("bf", grads[stop - at][1])
                each.backward_get()
            data.index(range(at, stop), out=out)

epoch(25)  # as above
before, misses = faults(), buffers.stats()["misses"]
epoch(25)
print(faults() - before, buffers.stats()["misses"] - misses)
"""


@pytest.mark.budget(0)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts page faults")
def test_a_hundred_batches_fault_no_pages():
    pages, misses = map(int, python(FAULTS).split())
    assert misses == 0
    assert pages < 100  # one fresh result would be 588 pages, in each of 100 batches


# ---- threads and forks ---------------------------------------------------------------------


def run(work, count=4):
    """Call `work(number)` in threads that start together; raise their exceptions."""
    start = threading.Barrier(count)
    failed = []

    def one(number):
        start.wait()
        try:
            work(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


def test_threads_that_get_at_once_get_one_object():
    for _ in range(200):
        view = ImageView("bhwc", DATA)
        got = [None] * 4
        words = [("bchw", "f4"), ("b c h w", None), ("bchw", np.float32), (" bchw", None)]

        def get(number, view=view, got=got, words=words):
            got[number] = view.forward_get(*words[number])

        assert run(get) == []
        assert all(result is got[0] for result in got)
        assert_same(got[0], DATA.transpose(0, 3, 1, 2).copy())


def test_threads_with_windows_of_one_view():
    data = ImageView("bhwc", DATA)

    def train(number):
        for _ in range(20):
            for start, window in zip(range(0, SAMPLES, 16), data.batches(16), strict=True):
                assert_same(step(window, number), wanted(DATA[start : start + 16], number))

    assert run(train) == []


def train_once(seed):
    """Run one epoch in another process; return True if it is correct."""
    data = ImageView("bhwc", DATA + np.float32(seed))
    return all(
        np.array_equal(step(window, seed), wanted(window.input, seed))
        for window in data.batches(16)
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_workers_use_the_parents_views():
    data = ImageView("bhwc", DATA)
    step(data, 1)  # plans, results and gradients that the children inherit
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(train_once, range(6)).get(timeout=100) == [True] * 6
    assert_same(data.backward_get(), wanted(DATA, 1))


def make_part(bounds):
    return ImageView("bhwc", DATA).sub(*bounds)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_views_travel_between_processes():
    """A pickled view keeps its base but not its results, as between a loader's workers."""
    method = "fork" if hasattr(os, "fork") else "spawn"
    with multiprocessing.get_context(method).Pool(1) as pool:
        part = pool.map_async(make_part, [(3, 9)]).get(timeout=100)[0]
    assert_same(part.input, DATA[3:9])
    assert_same(step(part, 2), wanted(DATA[3:9], 2))

"""Every function and class of the reference, called from eight threads that switch at any step.

`sys.setswitchinterval(1e-6)` lets Python switch threads about every microsecond.
"""

import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from layoutkit.threads import limits
from tests.helpers.children import python

pytest.importorskip("PIL", reason="Pillow is not installed")
pytest.importorskip("cv2", reason="OpenCV is not installed")

from tests.helpers.public_calls import CALLS, Shared, all_calls, comparable

HOME = Path(__file__).parents[2]
THREADS = 8
# Layers, transformers and loaders of other libraries, which choose the threads themselves.
FRAMEWORKS = ("torch.", "keras.", "sklearn.")


@pytest.fixture
def switching():
    """Make Python switch threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def usual_threads():
    before = limits.chosen_threads, limits.threading_layer
    yield
    limits.chosen_threads, limits.threading_layer = before


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    return all_calls(Shared(tmp_path_factory.mktemp("shared")))


@pytest.fixture(scope="module")
def calls_of_one(tmp_path_factory):
    """Return calls of separate objects, so that the caches of shared objects stay empty."""
    return all_calls(Shared(tmp_path_factory.mktemp("one")))


def test_every_name_of_the_reference_is_called():
    pages = (page.read_text() for page in sorted((HOME / "docs" / "reference").glob("*.md")))
    named = {name for page in pages for name in re.findall(r"^::: layoutkit\.(.+)$", page, re.M)}
    covered = [name for names in CALLS for name in names]
    assert len(covered) == len(set(covered))
    assert {name for name in named if not name.startswith(FRAMEWORKS)} == {*covered, "errors"}


@pytest.mark.usefixtures("usual_threads", "switching")
@pytest.mark.parametrize("names", CALLS, ids=lambda names: names[0])
def test_eight_threads_get_the_result_of_one(calls, calls_of_one, names):
    call = calls[names]
    expected = [comparable(calls_of_one[names](number)) for number in range(THREADS)]
    barrier = threading.Barrier(THREADS)

    def work(number):
        barrier.wait()
        return [comparable(call(number)) == expected[number] for _ in range(2)]

    with ThreadPoolExecutor(THREADS) as executor:
        assert list(executor.map(work, range(THREADS))) == [[True] * 2] * THREADS


FIRST = """
import sys, tempfile, threading
sys.path.insert(0, {root!r})
from tests.helpers.public_calls import Shared, all_calls, comparable
sys.setswitchinterval(1e-6)
with tempfile.TemporaryDirectory() as folder:
    calls = list(all_calls(Shared(folder)).values())
    barrier = threading.Barrier(8)
    results = {{}}
    def work(number):
        barrier.wait()
        turned = range(number * 2, number * 2 + len(calls))
        results[number] = {{n % len(calls): comparable(calls[n % len(calls)]()) for n in turned}}
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    serial = {{n: comparable(call()) for n, call in enumerate(calls)}}
    print("equal:", [results.get(number) == serial for number in range(8)])
"""


def test_the_first_calls_of_a_process_in_eight_threads():
    """Each thread begins with other calls, so threads race for imports, caches and the pool."""
    output = python(FIRST.format(root=str(HOME)), PYTHONPATH=HOME)
    assert output.splitlines()[-1] == f"equal: {[True] * 8}"

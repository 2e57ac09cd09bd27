"""Conversions on the threads of an OpenMP library that the process has already loaded."""

import ctypes.util
import platform
import threading
from types import SimpleNamespace

import pytest

from layoutkit import ArgumentError, set_threading_layer
from layoutkit.threads import limits, openmp
from tests.helpers.children import python
from tests.helpers.open_files import count_open_files

LIBRARY = ctypes.util.find_library("gomp")
needs_library = pytest.mark.skipif(
    LIBRARY is None or platform.system() != "Linux", reason="needs libgomp, and Linux"
)

# `company()` reports the team that gets the next job; `work` keeps the library's team busy.
START = f"""
import ctypes, os, threading, time
import numpy as np
import layoutkit
from layoutkit.threads import limits as threads, openmp, pool as workers
from layoutkit.kernels.cpu.threadpool_state import TEAM, TICKET

workers.LARGE_BYTES = 0
layoutkit.set_num_threads(2)
x = np.random.default_rng(0).random((16, 24, 24, 32), np.float32)
taken = []
has_team = workers.Pool._has_team

def noted(self):
    found = has_team(self)
    taken.extend([self] * found)
    return found

workers.Pool._has_team = noted

def right():
    return bool((layoutkit.convert(x, "bhwc->bchw") == x.transpose(0, 3, 1, 2)).all())

def load():
    library = ctypes.CDLL({LIBRARY!r})
    library.omp_set_num_threads(2)
    return library

def work(library):
    nothing = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
    library.GOMP_parallel(nothing, None, 0, 0)
"""


def run(code, **variables):
    return python(START + code, OMP_WAIT_POLICY="active", **variables)


@pytest.fixture(autouse=True)
def usual_threads():
    before = limits.threading_layer
    yield
    limits.threading_layer = before


@needs_library
def test_an_awake_team_is_given_the_job():
    code = """
library = load()
work(library)
first = right()  # starts a worker of ours
time.sleep(0.2)  # the team goes on looking, as it was told to
print(first, right(), len(taken) > 0, workers.pool.workers)
"""
    assert run(code) == "True True True 1\n"


@needs_library
def test_a_team_that_sleeps_is_left_alone():
    code = """
library = load()
work(library)
right()
time.sleep(0.2)
taken.clear()
print(right(), right(), len(taken))
"""
    assert python(START + code, OMP_WAIT_POLICY="passive") == "True True 0\n"


@needs_library
def test_a_library_without_a_team_gets_none():
    code = """
library = load()
before = len(os.listdir("/proc/self/task"))
print(right(), len(taken), len(os.listdir("/proc/self/task")) - before)
"""
    assert run(code) == "True 0 1\n"  # the new thread is layoutkit's own worker


@needs_library
def test_asked_for_openmp_starts_a_team_and_takes_it_asleep():
    code = """
load()
layoutkit.set_threading_layer("openmp")
print([right() for _ in range(3)], len(taken))
"""
    assert python(START + code, OMP_WAIT_POLICY="passive") == "[True, True, True] 3\n"


@needs_library
def test_own_threads_are_used_when_asked_for():
    code = """
work(load())
layoutkit.set_threading_layer("own")
print(right(), right(), len(taken))
"""
    assert run(code) == "True True 0\n"


@needs_library
def test_other_threads_and_children_use_their_own():
    code = """
work(load())
layoutkit.set_threading_layer("openmp")
right()
taken.clear()
answers = []
thread = threading.Thread(target=lambda: answers.append(right()))
thread.start()
thread.join()
child = os.fork()
if not child:
    os._exit(0 if right() and right() and not taken else 1)
print(answers, len(taken), os.waitpid(child, 0)[1])
"""
    assert run(code) == "[True] 0 0\n"


@needs_library
def test_a_team_of_other_size_is_found_again():
    code = """
library = load()
layoutkit.set_threading_layer("openmp")
answers = [right()]
for size in (4, 1, 3, 2):
    library.omp_set_num_threads(size)
    work(library)
    answers += [right(), right()]
print(set(answers))
"""
    assert run(code) == "{True}\n"


@needs_library
def test_no_more_threads_than_asked_for_take_part():
    code = """
library = load()
library.omp_set_num_threads(8)
layoutkit.set_threading_layer("openmp")
layoutkit.set_num_threads(2)
answer, words = right(), workers.pool.state.words
print(answer, len(taken), int(words[TICKET]), int(words[TEAM]))
"""
    assert run(code) == "True 1 8 2\n"


def test_openmp_needs_a_library(monkeypatch):
    monkeypatch.setattr(limits, "libraries", set)
    with pytest.raises(ArgumentError, match="import torch"):
        set_threading_layer("openmp")
    assert limits.threading_layer == "auto"


@pytest.mark.parametrize("kind", ["tbb", "", None, 2, "OpenMP"])
def test_other_kinds_are_refused(kind):
    with pytest.raises(ArgumentError, match="'auto', 'own', 'openmp'"):
        set_threading_layer(kind)


def test_libraries_are_found_in_the_map_of_the_process(tmp_path, monkeypatch):
    lines = [
        "7f00-7f01 r-xp 00000000 00:2a 11   /opt/a b/lib/libgomp-24e2ab19.so.1.0.0",
        "7f01-7f02 r--p 00000000 00:2a 11   /opt/a b/lib/libgomp-24e2ab19.so.1.0.0",
        "7f02-7f03 r-xp 00000000 00:2a 12   /usr/lib/libiomp5.so",
        "7f03-7f04 r-xp 00000000 00:2a 13   /usr/lib/libomp.so.5",
        "7f04-7f05 r-xp 00000000 00:2a 14   /usr/lib/libompl.so",
        "7f05-7f06 r-xp 00000000 00:2a 15   /usr/lib/libcomp.so",
        "7f06-7f07 rw-p 00000000 00:00 0    [heap]",
    ]
    maps = tmp_path / "maps"
    maps.write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(openmp, "MAPS", maps)
    assert openmp.libraries() == {
        "/opt/a b/lib/libgomp-24e2ab19.so.1.0.0",
        "/usr/lib/libiomp5.so",
        "/usr/lib/libomp.so.5",
    }
    monkeypatch.setattr(openmp, "MAPS", tmp_path / "none")
    assert openmp.libraries() == set()


@pytest.mark.skipif(platform.system() != "Linux", reason="needs the threads in /proc")
def test_a_team_that_is_no_longer_used_closes_its_file():
    library = SimpleNamespace(GOMP_parallel=ctypes.CDLL(None).getpid)
    before = count_open_files()
    teams = [openmp.Team(library, threading.get_native_id()) for _ in range(8)]
    assert [team.state() for team in teams] == ["R"] * 8
    assert count_open_files() == before + 8
    teams.clear()
    assert count_open_files() == before

"""Forked children, the end of the interpreter, and memory over a long run."""

import multiprocessing
import os
import platform
import sys
from pathlib import Path

import numpy as np
import pytest

import layoutkit
from tests.helpers.children import python

pytestmark = pytest.mark.budget(6)

SHAPE = (16, 24, 24, 32)  # 1.2 MB of float32: enough for worker threads
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")

START = """
import atexit, os, signal, sys, threading, time
import numpy as np
import layoutkit
from layoutkit.threads import pool as workers
layoutkit.set_num_threads(2)
x = np.random.default_rng(0).random((16, 24, 24, 32), np.float32)

def right(seed=0):
    x = np.random.default_rng(seed).random((16, 24, 24, 32), np.float32)
    return bool((layoutkit.convert(x, "bhwc->bchw") == x.transpose(0, 3, 1, 2)).all())

def in_child(work):
    child = os.fork()
    if not child:
        signal.alarm(60)
        os._exit(0 if work() else 1)
    return child

def wait(child):
    return os.waitpid(child, 0)[1]

"""


def convert_seed(seed):
    x = np.random.default_rng(seed).random(SHAPE, np.float32)
    y = layoutkit.convert(x, "bhwc->bchw")
    return bool((y == x.transpose(0, 3, 1, 2)).all())


# ---- children ----------------------------------------------------------------------------


@pytest.mark.budget(1)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_worker_processes_convert_after_the_parent_has(method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    before = layoutkit.get_num_threads()
    layoutkit.set_num_threads(2)
    try:
        assert convert_seed(0)
        with multiprocessing.get_context(method).Pool(3) as pool:
            assert pool.map_async(convert_seed, range(12)).get(timeout=100) == [True] * 12
        assert convert_seed(0)
    finally:
        layoutkit.set_num_threads(before)


@needs_fork
def test_nested_forks():
    nested = """
def deep(levels):
    return right(levels) and (not levels or wait(in_child(lambda: deep(levels - 1))) == 0)

assert right()
print([wait(in_child(lambda: deep(3))), right()])
"""
    assert python(START + nested) == "[0, True]\n"


@needs_fork
def test_a_child_starts_workers_of_its_own():
    own = """
assert right()
def work():
    return not workers.pool.workers and right() and workers.pool.workers == 1
print(wait(in_child(work)), workers.pool.workers)
"""
    assert python(START + own) == "0 1\n"


@needs_fork
def test_forks_while_other_threads_are_in_the_middle_of_jobs():
    busy = """
ending = threading.Event()
def work(seed):
    while not ending.is_set():
        assert right(seed)
assert right()
started = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
for thread in started: thread.start()
codes = []
for _ in range(15):
    codes.append(wait(in_child(right)))
ending.set()
for thread in started: thread.join()
print(set(codes))
"""
    assert python(START + busy) == "{0}\n"


@needs_fork
def test_a_child_does_not_wait_for_a_lock_that_nobody_holds_there():
    held = """
assert right()
with workers.pool.start_lock:
    child = in_child(lambda: right() and workers.pool.workers == 1)
    print(wait(child))
"""
    assert python(START + held) == "0\n"


@needs_fork
def test_a_fork_in_a_thread():
    forked = """
assert right()
codes = []
thread = threading.Thread(target=lambda: codes.append(wait(in_child(right))))
thread.start()
assert right()
thread.join()
print(codes)
"""
    assert python(START + forked) == "[0]\n"


@needs_fork
def test_a_new_thread_of_a_child_converts():
    """The child replaces the lock for first uses, which the forking thread held."""
    new_thread = """
assert right()
def work():
    results = []
    def convert():
        results.append(layoutkit.convert(x, "bhwc->chwb").shape == (32, 24, 24, 16))
    thread = threading.Thread(target=convert, daemon=True)
    thread.start()
    thread.join(30)
    return results == [True]
print(wait(in_child(work)))
"""
    assert python(START + new_thread) == "0\n"


FIRST = """
import os, signal, sys, threading, time
import numpy as np
import layoutkit
layoutkit.set_num_threads(2)
x = np.ones((16, 24, 24, 32), np.float32)
def first(pattern="bhwc->bchw"):
    half = layoutkit.convert(x, pattern, dtype="float16")
    return layoutkit.accumulate([(x, "bhwc"), (x, "bhwc")], "bhwc")[0, 0, 0, 0] == half.flat[0] + 1
"""
FORK_AT_ANY_TIME = (
    FIRST
    + """
thread = threading.Thread(target=first)
thread.start()
time.sleep(float(sys.argv[1]))
child = os.fork()
if not child:
    signal.alarm(20)
    os._exit(not first())
print(os.waitpid(child, 0)[1])
thread.join()
"""
)


def test_a_first_conversion_imports_no_encoding():
    """Fork does not wait for the import lock of an encoding: 1 of 80 children once hung."""
    seen = """
def encodings():
    return {name for name in sys.modules if name.startswith("encodings.")}
before = encodings()
assert first()
print(sorted(encodings() - before))
"""
    assert python(FIRST + seen) == "[]\n"


@pytest.mark.budget(0)
@needs_fork
def test_children_forked_beside_the_first_conversion_of_another_thread_finish():
    """The other thread imports for a tenth of a second, during which 6 of 40 children once hung."""
    python(FORK_AT_ANY_TIME, sys_argv=["0"])  # compiles the kernels for the runs below
    answers = [python(FORK_AT_ANY_TIME, sys_argv=[str(0.006 * n)]) for n in range(12)]
    assert answers == ["0\n"] * 12


FORK_IN_AN_IMPORT = """
import os, signal, sys, threading, time
import numpy as np
import layoutkit, layoutkit.data
class Tensor:
    def __dlpack__(self, **kwargs): return np.ones((2, 3)).__dlpack__()
    def __dlpack_device__(self): return 1, 0
def use():
    return eval(sys.argv[1])
thread = threading.Thread(target=use)
inside = threading.Event()
def importing(event, args):
    if event == "import" and threading.current_thread() is thread and not inside.is_set():
        if args[0].startswith("layoutkit."):
            inside.set()
            time.sleep(0.3)  # with the import's locks
sys.addaudithook(importing)
thread.start()
if not inside.wait(20): sys.exit("imported nothing")
child = os.fork()
if not child:
    signal.alarm(10)
    use()
    os._exit(0)
print(os.waitpid(child, 0)[1])
thread.join()
"""
FIRST_USES = {
    "views": "layoutkit.ImageView",
    "spaces": "layoutkit.VectorSpace",
    "samples": "layoutkit.data.Dataset",
    "batchers": "layoutkit.data.sampled_batcher",
    "other arrays": "layoutkit.convert(Tensor(), 'bc->cb')",
    "sums of other arrays": "layoutkit.accumulate([(Tensor(), 'bc')], 'cb')",
    "a GPU": "layoutkit.plan('bc->cb', (2, 3), device='cuda')",
}


@needs_fork
@pytest.mark.parametrize("use", FIRST_USES.values(), ids=FIRST_USES)
def test_a_fork_waits_for_the_first_use_of_a_part_in_another_thread(use):
    assert python(FORK_IN_AN_IMPORT, sys_argv=[use]) == "0\n"


IMPORT_ALL = """
import importlib, signal, sys, threading
from layoutkit._utils import fork as forks
holds, ends = threading.Event(), threading.Event()
def hold():
    with forks.init_lock:
        holds.set()
        ends.wait()
thread = threading.Thread(target=hold)
thread.start()
holds.wait()
signal.alarm(60)
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        assert not error.name.startswith("layoutkit"), error
ends.set()
thread.join()
"""


@pytest.mark.budget(0)
def test_no_module_takes_the_lock_while_it_is_imported():
    """A thread that holds the lock and imports such a module could deadlock with another import."""
    home = Path(layoutkit.__file__).parents[1]
    paths = [path for room in ("layoutkit", "kernels") for path in (home / room).rglob("*.py")]
    names = [".".join(path.relative_to(home).with_suffix("").parts) for path in paths]
    names = [name if name.startswith("layoutkit") else f"layoutkit.{name}" for name in names]
    top = ("__init__", "__main__", "cli")  # no module imports the command line
    python(IMPORT_ALL, sys_argv=[n for n in names if not n.endswith(top) and ".cli." not in n])


INTERRUPT = (
    FIRST
    + """
def interrupt():
    time.sleep(float(sys.argv[1]))
    os.kill(os.getpid(), signal.SIGINT)
signal.alarm(30)
threads = [threading.Thread(target=first), threading.Thread(target=interrupt)]
try:
    for thread in threads: thread.start()
    first("bhwc->chwb")
    time.sleep(1)
except KeyboardInterrupt:
    pass
for thread in threads:
    if thread.ident: thread.join()
print(bool(first()), bool(first("bhwc->chwb")))
"""
)


@pytest.mark.budget(0)
@pytest.mark.skipif(os.name == "nt", reason="no signals between processes")
def test_ctrl_c_during_the_first_conversion_beside_that_of_another_thread():
    python(INTERRUPT, sys_argv=["0"])
    answers = [python(INTERRUPT, sys_argv=[str(0.006 * n)]) for n in range(12)]
    assert answers == ["True True\n"] * 12


# ---- the end of the interpreter ----------------------------------------------------------

ENDS = {
    "workers spin": "assert right()",
    "workers sleep": "assert right(); time.sleep(0.05)",
    "sys.exit": "assert right(); sys.exit(0)",
    "atexit": "atexit.register(right); assert right()",
    "atexit, never used before": "atexit.register(right)",
    "daemon threads convert": """
def forever():
    while True: right()
for _ in range(3): threading.Thread(target=forever, daemon=True).start()
time.sleep(0.1)
""",
    "a destructor converts": """
class Late:
    def __init__(self): self.convert, self.x = layoutkit.Converter("bhwc->bchw"), x
    def __del__(self): self.convert(self.x)
late = Late()
late.convert(x)
sys.late = late
""",
}


@pytest.mark.budget(1)
@pytest.mark.parametrize("code", ENDS.values(), ids=ENDS)
def test_the_interpreter_ends_at_once_and_without_a_word(code):
    assert python(START + code) == ""


# ---- memory ------------------------------------------------------------------------------

BATCHES = """
import resource
import numpy as np
import layoutkit

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

layoutkit.set_num_threads(2)
rng = np.random.default_rng(0)
batch = rng.integers(0, 256, (32, 48, 48, 32), np.uint8)
to_planes = layoutkit.Converter("bhwc->bchw", dtype="float32", scale=1 / 255, mean=0.5, std=0.25)

def epoch(batches):
    for number in range(batches):
        x = batch if number % 10 < 9 else batch[:16]  # the last batch of an epoch is shorter
        y = to_planes(x)
        z = layoutkit.convert(y, "bchw->chwb")
        gradient = to_planes.backward(y, like=x)

epoch(30)
layoutkit.buffers.stats()
before, held = faults(), resident()
epoch(1000)
print((faults() - before) // 100, abs(resident() - held) >> 20, layoutkit.buffers.stats()["misses"])
"""


@pytest.mark.budget(0)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.skipif(platform.python_implementation() != "CPython", reason="counts references")
def test_a_thousand_batches_fault_no_pages_and_hold_no_more_memory():
    pages, megabytes, misses = map(int, python(BATCHES).split())
    assert pages == 0  # hundreds of faults; a single fresh result would be 2,304
    assert megabytes <= 1
    assert misses <= 8

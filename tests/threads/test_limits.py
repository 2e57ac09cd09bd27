"""The number of threads, from environment variables, containers and callers."""

import multiprocessing
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from layoutkit import ArgumentError, get_num_threads, set_num_threads
from layoutkit.threads import limits
from layoutkit.threads import limits as threads
from tests.helpers.children import python


@pytest.fixture(autouse=True)
def usual_threads():
    before = threads.chosen_threads
    yield
    threads.chosen_threads, threads.cached_default = before, None


# ---- number of threads -------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 256])
def test_a_number_can_be_set(count):
    set_num_threads(count)
    assert get_num_threads() == count


@pytest.mark.parametrize("wrong", [0, -1, 257, 2.0, "2", None, True, 1 << 70])
def test_other_numbers_are_refused(wrong):
    with pytest.raises(ArgumentError, match="set_num_threads"):
        set_num_threads(wrong)


@pytest.fixture
def unset(monkeypatch):
    """Simulate a process on three CPUs without any setting for the number of threads."""
    monkeypatch.setattr(threads, "chosen_threads", None)
    monkeypatch.setattr(threads, "cached_default", None)
    for name in (limits.THREADS, limits.OTHERS_THREADS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(limits, "PROCESS_CGROUPS", Path("/there/is/no/such/file"))
    monkeypatch.setattr(limits.os, "sched_getaffinity", lambda pid: {1, 4, 5}, raising=False)
    monkeypatch.setattr(limits, "is_worker_process", lambda: False)
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
    unset.setattr(limits, "is_worker_process", lambda: True)
    assert get_num_threads() == 1
    threads.cached_default = None
    unset.setenv(limits.OTHERS_THREADS, "2")
    assert get_num_threads() == 2


@pytest.mark.parametrize("loaded", [False, True])
def test_workers_of_torch_are_known_without_importing_it(monkeypatch, loaded):
    torch = SimpleNamespace(get_worker_info=lambda: loaded or None)
    monkeypatch.setitem(sys.modules, "torch.utils.data", torch)
    assert limits.is_worker_process() is loaded


@pytest.mark.budget(1)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_multiprocessing_use_one(method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    code = f"""
import multiprocessing, os
import layoutkit
from layoutkit.threads import limits
for name in (limits.THREADS, limits.OTHERS_THREADS): os.environ.pop(name, None)
layoutkit.get_num_threads()
with multiprocessing.get_context({method!r}).Pool(1) as pool:
    print(pool.apply(layoutkit.get_num_threads), limits.is_worker_process())
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
    unset.setattr(limits, "PROCESS_CGROUPS", of_process)
    unset.setattr(limits, "CGROUPS", tmp_path / "fs")
    assert get_num_threads() == cpus
    pages = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 4 * GIB}
    unset.setattr(limits.os, "sysconf", pages.__getitem__)
    unset.delenv(limits.IDLE_BYTES, raising=False)
    assert limits.default_idle_bytes() == (memory or 4 * GIB) // 8


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1000", 1000),
        ("512M", 512 << 20),
        (" 2g ", 2 << 30),
        ("3 KiB", 3 << 10),
        ("1GB", 1 << 30),
    ],
)
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


@pytest.mark.budget(1)
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

"""What this process may use: CPUs and memory of the machine, bytes of a file at a URL.

The machine is often shared, and those who share it out say so in different ways: affinity, the
quotas of a container, variables that they set for their workers, and that a process is a worker.
Reads files and variables, imports nothing for it, and starts nothing.

How many threads a conversion may use.

The number of threads is `LAYOUTKIT_NUM_THREADS`, else the first of `OMP_NUM_THREADS`, else one in a
worker process, else the CPUs that affinity and the container's quota allow (`limits.py`).
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from .._utils.validation import as_int
from ..errors import ArgumentError
from .openmp import libraries

THREADS, OTHERS_THREADS = "LAYOUTKIT_NUM_THREADS", "OMP_NUM_THREADS"
IDLE_BYTES = "LAYOUTKIT_BUFFERS_LIMIT"
URL_BYTES = "LAYOUTKIT_URL_LIMIT"
MAX_THREADS = 256
MOST_IDLE, IDLE_SHARE = 2 << 30, 8  # idle memory: at most 2 GiB, at most an eighth of the memory
MOST_AT_URL = 1 << 30  # as of a record: what memory has room for, and a server cannot exceed
UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}  # powers of two
GROUPS = Path("/sys/fs/cgroup")
OF_PROCESS = Path("/proc/self/cgroup")


def default_threads() -> tuple[int, str]:
    """How many threads to use unless somebody sets a number, and who says so."""
    text = os.environ.get(THREADS, "").strip()
    if text:
        return _number_of_threads(text), THREADS
    # Set by dask, Ray, torchrun and others for their workers: "4", or "4,2" for nested loops.
    first = os.environ.get(OTHERS_THREADS, "").split(",")[0].strip()
    if first.isdecimal() and int(first[:9]) > 0:
        return min(int(first[:9]), MAX_THREADS), OTHERS_THREADS
    if is_worker():
        return 1, "one of several worker processes"
    return _cpus()


def default_idle_bytes() -> int:
    """How much idle memory to keep unless somebody sets a limit."""
    text = os.environ.get(IDLE_BYTES, "").strip()
    if not text:
        return min(MOST_IDLE, _memory() // IDLE_SHARE)
    return _bytes(IDLE_BYTES, text, ", or 0 to keep no idle memory")


def most_at_url() -> int:
    """How many bytes a table, an array or a part file at a URL may have."""
    text = os.environ.get(URL_BYTES, "").strip()
    return _bytes(URL_BYTES, text) if text else MOST_AT_URL


def _number_of_threads(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:9]) <= MAX_THREADS:
        raise ArgumentError(
            f"{THREADS}: {text!r} is no number of threads; give a whole number from 1 to "
            f"{MAX_THREADS}"
        )
    return int(text)


def _bytes(name: str, text: str, more: str = "") -> int:
    found = re.fullmatch(r"(\d{1,15})\s*([KMGT]?)(i?B)?", text, re.IGNORECASE | re.ASCII)
    if found is None:
        raise ArgumentError(
            f"{name}: {text!r} is no number of bytes; give one such as 1000000, 512M or 2G{more}"
        )
    return int(found[1]) << UNITS[found[2].upper()]


def is_worker() -> bool:
    """Whether this is one of several processes that share the machine's CPUs.

    Those of `multiprocessing`, and so of `concurrent.futures`, joblib and torch's DataLoader.
    """
    workers: Any = sys.modules.get("multiprocessing.process")
    torch: Any = sys.modules.get("torch.utils.data")
    if workers is not None and workers.parent_process() is not None:
        return True
    return torch is not None and torch.get_worker_info() is not None


# ---- CPUs and memory ---------------------------------------------------------------------


def _cpus() -> tuple[int, str]:
    """The CPUs that affinity and the container's quota allow."""
    if hasattr(os, "sched_getaffinity"):
        count, why = len(os.sched_getaffinity(0)), "affinity"
    else:
        count, why = os.cpu_count() or 1, "all there are"
    quotas = [quota / period for quota, period in _settings("cpu", "cpu.max")]
    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    quotas += [quota / period for quota, period in _settings("cpu", *names)]
    if quotas and min(quotas) < count:
        count, why = math.ceil(min(quotas)), "the quota of the container"
    return min(count, MAX_THREADS), why


def _memory() -> int:
    """The memory that the machine has and the container allows, in bytes."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system, or it will not say
        memory = 8 << 30
    names = ("memory.max", "memory.limit_in_bytes")
    return min([memory, *(limit for name in names for (limit,) in _settings("memory", name))])


def _settings(controller: str, *names: str) -> Iterator[list[int]]:
    """The numbers in files of every group that this process is in; none where there is no limit.

    Control groups lie in each other, and each bounds those inside. A container may see its own as
    the outermost one, or under the name that it has outside, which is then not there.
    """
    for folder in _groups(controller):
        with suppress(OSError, ValueError):  # "max": no limit
            # UTF-8 is there from the start: another encoding is imported, and a child that was
            # forked in that moment waits for ever.
            texts = [(folder / name).read_text(encoding="utf-8") for name in names]
            numbers = [int(word) for text in texts for word in text.split()]
            if min(numbers) > 0:  # -1: no limit
                yield numbers


def _groups(controller: str) -> Iterator[Path]:
    """The folders of the groups that this process is in, of either version, innermost first."""
    try:
        lines = OF_PROCESS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = GROUPS / controllers
        if controllers and not base.exists():  # "cpu,cpuacct" is one folder, under either name
            base = GROUPS / controller
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for count in reversed(range(len(parts) + 1)):
            yield base.joinpath(*parts[:count])


KINDS = ("auto", "own", "openmp")


def set_num_threads(n: int) -> None:
    """Let conversions use `n` threads from now on, the calling one included.

    Raises
    ------
    ArgumentError
        `n` is not a whole number from 1 to 256.
    """
    global _threads
    count = as_int(n)
    if count is None or not 1 <= count <= MAX_THREADS:
        raise ArgumentError(
            f"set_num_threads: {n!r} is no number of threads; give a whole number from 1 to "
            f"{MAX_THREADS}"
        )
    _threads = count


def get_num_threads() -> int:
    """The number of threads that a large conversion uses, the calling one included."""
    global _default
    if _threads is not None:
        return _threads
    if _default is None:
        _default = default_threads()[0]
    return _default


def set_threading_layer(kind: str) -> None:
    """Say whose threads share a large conversion from now on.

    `"own"`: workers of layoutkit. `"openmp"`: the threads of an OpenMP library that is in the
    process already, such as PyTorch's; as many as it has, and at most `get_num_threads()`.
    `"auto"`, the default: those of OpenMP when they are awake, as they are for some milliseconds
    after an operation of PyTorch, else layoutkit's. Only conversions that read and write 12 MiB or
    more ask for others' threads, on Linux, in the main thread, and never in a forked child.

    Raises
    ------
    ArgumentError
        `kind` is none of the three, or `"openmp"` where no OpenMP library is loaded.
    """
    global kind_of_threads
    if kind not in KINDS:
        raise ArgumentError(
            f"set_threading_layer: {kind!r} is none of {', '.join(map(repr, KINDS))}"
        )
    if kind == "openmp" and not libraries():
        raise ArgumentError(
            "set_threading_layer: 'openmp' was asked for, and no OpenMP library is loaded in this process; "
            "import the one whose threads are meant first (import torch), or use 'auto'"
        )
    kind_of_threads = kind


def origin_of_threads() -> str:
    """Who says how many threads there are."""
    return "set_num_threads" if _threads is not None else default_threads()[1]


kind_of_threads = "auto"  # whose
_threads: int | None = None  # what somebody has set
_default: int | None = None  # what is used otherwise, once it is known


def _after_fork() -> None:
    """The child may be one of many."""
    global _default
    _default = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

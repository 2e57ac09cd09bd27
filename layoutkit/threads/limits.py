"""Limits of this process: threads of a conversion, idle memory, and bytes of a file at a URL.

The number of threads is set by `set_num_threads`, else `LAYOUTKIT_NUM_THREADS`, else the first
number of `OMP_NUM_THREADS`, else one in a worker process, else the number of CPUs that affinity and
the container's quota allow.

Limits of a shared machine are read from CPU affinity, container quotas, environment variables and
whether the process is a worker of a process pool. Nothing is imported or started for that.
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

from .._utils import system
from .._utils.validation import check_choice, check_int
from ..errors import ArgumentError
from ..options import MAX_THREADS
from .openmp import libraries

THREADS = "LAYOUTKIT_NUM_THREADS"
OTHERS_THREADS = "OMP_NUM_THREADS"
IDLE_BYTES = "LAYOUTKIT_BUFFERS_LIMIT"
URL_BYTES = "LAYOUTKIT_URL_LIMIT"
# Idle memory: at most 2 GiB and at most an eighth of the machine's memory.
MAX_IDLE_BYTES = 2 << 30
IDLE_SHARE = 8
MOST_AT_URL = 1 << 30  # the limit of a record too: it fits into memory whatever a server sends
UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}  # powers of two
CGROUPS = Path("/sys/fs/cgroup")
PROCESS_CGROUPS = Path("/proc/self/cgroup")


def default_threads() -> tuple[int, str]:
    """Return the number of threads to use by default, and the setting that it comes from."""
    text = os.environ.get(THREADS, "").strip()
    if text:
        return _number_of_threads(text), THREADS
    # Set by dask, Ray, torchrun and others for their workers: "4", or "4,2" for nested loops.
    first = os.environ.get(OTHERS_THREADS, "").split(",")[0].strip()
    if first.isdecimal() and int(first[:9]) > 0:
        return min(int(first[:9]), MAX_THREADS), OTHERS_THREADS
    if is_worker_process():
        return 1, "one of several worker processes"
    return _cpus()


def default_idle_bytes() -> int:
    """Return the default limit of idle memory, in bytes."""
    text = os.environ.get(IDLE_BYTES, "").strip()
    if not text:
        return min(MAX_IDLE_BYTES, total_memory() // IDLE_SHARE)
    return parse_bytes(IDLE_BYTES, text, ", or 0 to keep no idle memory")


def max_url_bytes() -> int:
    """Return the maximum size in bytes of a table, an array or a part file at a URL."""
    text = os.environ.get(URL_BYTES, "").strip()
    return parse_bytes(URL_BYTES, text) if text else MOST_AT_URL


def _number_of_threads(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:9]) <= MAX_THREADS:
        raise ArgumentError(
            f"{THREADS}: {text!r} is not a number of threads; "
            f"give a whole number from 1 to {MAX_THREADS}"
        )
    return int(text)


def parse_bytes(name: str, text: str, more: str = "") -> int:
    """Return the number of bytes in a text such as "512M" or "4 GiB", in powers of two.

    Raises ArgumentError, whose text has the name and ends with `more`, for another text.
    """
    match = re.fullmatch(r"(\d{1,15})\s*([KMGT]?)(i?B)?", text, re.IGNORECASE | re.ASCII)
    if match is None:
        raise ArgumentError(
            f"{name}: {text!r} is not a number of bytes; give one such as 1000000, 512M or 2G{more}"
        )
    return int(match[1]) << UNITS[match[2].upper()]


def is_worker_process() -> bool:
    """Return True if this process is one of several workers that share the machine's CPUs.

    Workers of `multiprocessing` are recognized, and so are workers of `concurrent.futures`, joblib
    and torch's DataLoader.
    """
    workers: Any = sys.modules.get("multiprocessing.process")
    torch: Any = sys.modules.get("torch.utils.data")
    if workers is not None and workers.parent_process() is not None:
        return True
    return torch is not None and torch.get_worker_info() is not None


# ---- CPUs and memory ---------------------------------------------------------------------


def _cpus() -> tuple[int, str]:
    """Return the number of CPUs that affinity and the container's quota allow, and the reason."""
    count = system.count_cpus()
    reason = "all there are" if system.allowed_cpus() is None else "affinity"
    quotas = [quota / period for quota, period in _settings("cpu", "cpu.max")]
    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    quotas += [quota / period for quota, period in _settings("cpu", *names)]
    if quotas and min(quotas) < count:
        count = math.ceil(min(quotas))
        reason = "the quota of the container"
    return min(count, MAX_THREADS), reason


def total_memory() -> int:
    """Return the memory in bytes that the machine has and the container allows."""
    memory = system.machine_memory() or 8 << 30
    names = ("memory.max", "memory.limit_in_bytes")
    return min([memory, *(limit for name in names for (limit,) in _settings("memory", name))])


def available_memory() -> int:
    """Return the memory in bytes that the machine and the container can still give.

    Pages of files that can be read again count as available.
    """
    free = [total_memory()]
    with suppress(OSError, ValueError):  # not Linux
        free.append(_read_table(Path("/proc/meminfo"))["MemAvailable"] << 10)
    for limit, used, cached in [
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ]:
        for folder in _groups("memory"):
            with suppress(OSError, ValueError, KeyError):  # "max": no limit
                most, now = (int((folder / name).read_text("utf-8")) for name in (limit, used))
                free.append(most - now + _read_table(folder / "memory.stat")[cached])
    return max(0, min(free))


def _read_table(path: Path) -> dict[str, int]:
    """Return the numbers in a file of lines such as "MemAvailable: 123 kB" by name."""
    rows = [line.split() for line in path.read_text("utf-8").splitlines()]
    return {row[0].rstrip(":"): int(row[1]) for row in rows if len(row) > 1}


def _settings(controller: str, *names: str) -> Iterator[list[int]]:
    """Yield the numbers in the named files of each cgroup of this process that has a limit.

    Control groups are nested, and each bounds those inside. A container may see its own group as
    the outermost one, or under the name that it has outside, whose folder does not exist inside.
    """
    for folder in _groups(controller):
        with suppress(OSError, ValueError):  # "max": no limit
            # The UTF-8 codec is always loaded. Another encoding would be imported, and a child
            # that is forked during that import waits for ever.
            texts = [(folder / name).read_text(encoding="utf-8") for name in names]
            numbers = [int(word) for text in texts for word in text.split()]
            if min(numbers) > 0:  # -1: no limit
                yield numbers


def _groups(controller: str) -> Iterator[Path]:
    """Yield the cgroup folders of this process (v1 and v2), innermost first."""
    try:
        lines = PROCESS_CGROUPS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = CGROUPS / controllers
        if controllers and not base.exists():  # "cpu,cpuacct" may be linked as "cpu"
            base = CGROUPS / controller
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for count in reversed(range(len(parts) + 1)):
            yield base.joinpath(*parts[:count])


LAYERS = ("auto", "own", "openmp")


def set_num_threads(n: int) -> None:
    """Set the number of threads of conversions, the calling thread included.

    Raises
    ------
    ArgumentError
        `n` is not a whole number from 1 to 256.
    """
    global chosen_threads
    chosen_threads = check_int("set_num_threads: n", n, 1, ArgumentError, MAX_THREADS)


def get_num_threads() -> int:
    """Return the number of threads of a large conversion, the calling thread included."""
    global cached_default
    if chosen_threads is not None:
        return chosen_threads
    if cached_default is None:
        cached_default = default_threads()[0]
    return cached_default


def set_threading_layer(kind: str) -> None:
    """Select the threads that run large conversions.

    `"own"`: workers of layoutkit. `"openmp"`: the threads of an OpenMP library that the process has
    already loaded, such as PyTorch's; as many as it has, and at most `get_num_threads()`.
    `"auto"`, the default: OpenMP threads while they are awake (for some milliseconds after an
    operation of PyTorch), else layoutkit's. OpenMP threads are used only for conversions that read
    and write 12 MiB or more, on Linux, in the main thread, and never in a forked child.

    Raises
    ------
    ArgumentError
        `kind` is not one of the three, or it is `"openmp"` and no OpenMP library is loaded.
    """
    global threading_layer
    check_choice("set_threading_layer: kind", kind, LAYERS, ArgumentError)
    if kind == "openmp" and not libraries():
        raise ArgumentError(
            "set_threading_layer: 'openmp' was requested, but no OpenMP library is loaded in this "
            "process; import the library that has the threads first (import torch), or use 'auto'"
        )
    threading_layer = kind


def threads_origin() -> str:
    """Return the name of the setting that the number of threads comes from."""
    return "set_num_threads" if chosen_threads is not None else default_threads()[1]


threading_layer = "auto"
chosen_threads: int | None = None  # set by set_num_threads
cached_default: int | None = None  # the cached default


def _after_fork() -> None:
    """Read the default again in a forked child, which may be one of many workers."""
    global cached_default
    cached_default = None


system.register_at_fork(after_in_child=_after_fork)

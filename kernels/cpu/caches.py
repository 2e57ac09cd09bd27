"""Sizes of this CPU's caches, and the size from which results bypass them."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path

from ..._utils import system

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
# Bytes of a CPU's share: virtual machines report the L3 cache of the whole socket.
MOST_L3 = 4 << 20
MOST_CPUS = 16  # CPUs whose caches are counted


@cache
def l2_cache_bytes() -> int:
    """Return the size of a core's L2 cache; 1 MiB if the system does not report it."""
    return _cache_bytes(2) or 1 << 20


@cache
def result_cache_bytes() -> int:
    """Return the size in bytes up to which a result probably stays in the caches until it is read.

    The caches are the share of the L3 cache of the CPUs of this process, or else their L2 caches.
    The rest also holds the source: uint8 images of 9.6 MB in 3 channels took 1.2 to 1.4 times as
    long with plain stores as with streaming ones, casts to 6.2 MB 0.6 to 0.8 times (AMD EPYC with
    1 MB of L2 a core and 32 MB of L3, 2026-11-27; docs/experiments.md).
    """
    share = min(MOST_L3, (_cache_bytes(3) or 0) // _cpus_of_l3())
    return min(system.count_cpus(), MOST_CPUS) * max(l2_cache_bytes(), share)


def _cache_bytes(level: int) -> int | None:
    """Return the size of the cache of a level, or None if the system does not report it."""
    with suppress(OSError, ValueError):
        text = (CACHES / f"index{level}" / "size").read_text(encoding="utf-8")
        return int(text.strip().removesuffix("K")) << 10
    return None


def _cpus_of_l3() -> int:
    """Return the number of CPUs that share an L3 cache; 1 if the system does not report it."""
    with suppress(OSError, ValueError):
        text = (CACHES / "index3" / "shared_cpu_map").read_text(encoding="utf-8")
        return max(1, int(text.replace(",", ""), 16).bit_count())
    return 1

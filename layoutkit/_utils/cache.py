"""Bounded caches of plans and programs.

The number of entries of each cache is limited. Values that are large, or made once per shape, are
stored in a `Cache`: one limit for the process bounds the total bytes of all of them, because there
may be many caches (one Converter has several).
"""

from __future__ import annotations

from collections import deque
from typing import Any, TypeVar
from weakref import ref

from . import fork

MAX_KEPT = 512  # entries of a cache, such as the programs of a Converter

# Limits of the process. The latest `_MIN_KEPT` entries are kept, however large they are.
_MAX_BYTES = 64 << 20
_MIN_KEPT = 4
# Estimated bytes of a plan with its jobs, key and entry in `_order`; 5 to 7 KB were measured.
PROGRAM_SIZE_ESTIMATE = 8 << 10

Value = TypeVar("Value")


class Cache(dict[Any, Value]):
    """A dict whose values count against the byte limit of the process."""

    __slots__ = ("__weakref__",)


# A weak reference to the cache, the key and the bytes of every counted value, oldest first. Values
# of a deleted cache are counted until they are the oldest.
_order: deque[tuple[ref[Cache[Any]], Any, int]] = deque()
_total = 0


def cache_put(cache: dict[Any, Value], key: Any, value: Value, nbytes: int = 0) -> Value:
    """Store a value under a key unless the key is present, and return the stored value.

    The oldest entries are removed if the cache is full. `nbytes`, the size of the value, matters
    only in a `Cache`.
    """
    with fork.init_lock:  # so that `_total` is consistent with `_order` in a forked child
        # list() copies the keys atomically; another thread could clear the cache during iteration.
        for oldest in list(cache)[: max(0, len(cache) - MAX_KEPT + 1)]:
            cache.pop(oldest, None)
        is_new = key not in cache
        kept = cache.setdefault(key, value)
        if is_new and isinstance(cache, Cache):
            _count(cache, key, nbytes)
    return kept


def _count(cache: Cache[Any], key: Any, nbytes: int) -> None:
    """Count a value, and remove the oldest values of all caches while the total is too large."""
    global _total
    _order.append((ref(cache), key, nbytes))
    _total += nbytes
    while _total > _MAX_BYTES and len(_order) > _MIN_KEPT:
        cache_ref, oldest, freed = _order.popleft()
        _total -= freed
        (cache_ref() or {}).pop(oldest, None)

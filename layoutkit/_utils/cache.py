"""Bounded caches of plans and programs.

The number of entries of each cache is limited. Values that are large, or made once per shape, are
stored in a `Cache`: one limit for the process bounds the total bytes of all of them, because there
may be many caches (one Converter has several).
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import count
from typing import Any, TypeVar
from weakref import ref

from . import fork

MAX_KEPT = 512  # entries of a cache, such as the programs of a Converter

# Limits of the process. The latest `_MIN_KEPT` entries are kept, however large they are.
MAX_BYTES = 64 << 20
_MIN_KEPT = 4
# Estimated bytes of a plan with its jobs, key and entry in `counted`; 5 to 7 KB were measured.
PROGRAM_SIZE_ESTIMATE = 8 << 10

Value = TypeVar("Value")


class Cache(dict[Any, Value]):
    """A dict whose values count against the byte limit of the process."""

    __slots__ = ("__weakref__", "number")

    def __init__(self) -> None:
        super().__init__()
        self.number = next(_numbers)


_numbers = count()
# A weak reference to the cache and the bytes of every counted value, oldest first, by the number of
# the cache and the key. Values of a deleted cache are counted until they are the oldest.
counted: OrderedDict[tuple[int, Any], tuple[ref[Cache[Any]], int]] = OrderedDict()
counted_bytes = 0


def cache_put(cache: dict[Any, Value], key: Any, value: Value, nbytes: int = 0) -> Value:
    """Store a value under a key unless the key is present, and return the stored value.

    The oldest entries are removed if the cache is full. `nbytes`, the size of the value, matters
    only in a `Cache`.
    """
    with fork.init_lock:  # so that `counted_bytes` is consistent with `counted` in a forked child
        # list() copies the keys atomically; another thread could clear the cache during iteration.
        for oldest in list(cache)[: max(0, len(cache) - MAX_KEPT + 1)]:
            cache.pop(oldest, None)
        is_new = key not in cache
        kept = cache.setdefault(key, value)
        if is_new and isinstance(cache, Cache):
            _count(cache, key, nbytes)
    return kept


def cache_replace(cache: Cache[Value], key: Any, value: Value, nbytes: int) -> None:
    """Store a value in place of the one under a key."""
    with fork.init_lock:
        cache[key] = value
        _count(cache, key, nbytes)


def cache_clear(cache: Cache[Any]) -> None:
    """Remove all values of a cache."""
    with fork.init_lock:
        for key in list(cache):
            cache.pop(key, None)
            _discount(cache, key)


def _count(cache: Cache[Any], key: Any, nbytes: int) -> None:
    """Count a value, and remove the oldest values of all caches while the total is too large."""
    global counted_bytes
    _discount(cache, key)
    counted[cache.number, key] = ref(cache), nbytes
    counted_bytes += nbytes
    while counted_bytes > MAX_BYTES and len(counted) > _MIN_KEPT:
        (_, oldest), (cache_ref, freed) = counted.popitem(last=False)
        counted_bytes -= freed
        (cache_ref() or {}).pop(oldest, None)


def _discount(cache: Cache[Any], key: Any) -> None:
    """Subtract the bytes of the value under a key, if it is counted."""
    global counted_bytes
    counted_bytes -= counted.pop((cache.number, key), (None, 0))[1]

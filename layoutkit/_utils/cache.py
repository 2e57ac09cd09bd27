"""Bounded caches of plans and programs.

Each cache is bounded by its number of entries. Values that are large, or made once per shape, are
stored in a `Cache`: their bytes are also counted against one limit for the whole process, because
there may be many caches (one Converter has several).
"""

from __future__ import annotations

from collections import deque
from typing import Any, TypeVar
from weakref import ref

from . import fork

MAX_KEPT = 512  # entries: programs of a Converter, and converters of `convert`

# Limits of the process. The latest few entries are kept, however large they are.
_MAX_BYTES = 64 << 20
_MIN_KEPT = 4
# An estimate for a plan with its jobs, its key and its entry in `_order`; 5 to 7 KB were measured.
PROGRAM_SIZE_ESTIMATE = 8 << 10

Value = TypeVar("Value")


class Cache(dict[Any, Value]):
    """A dict whose values are counted in bytes. Only a weak reference to it is kept here."""

    __slots__ = ("__weakref__",)


# Cache, key and bytes of all counted values, oldest first. Values of a deleted cache are counted
# until they reach the front.
_order: deque[tuple[ref[Cache[Any]], Any, int]] = deque()
_total = 0


def cache_put(cache: dict[Any, Value], key: Any, value: Value, nbytes: int = 0) -> Value:
    """Store a value under a key unless the key is present, and return the stored value.

    The oldest entries are removed if there are too many. `nbytes` is the size of the value, used
    if the cache is a `Cache`.
    """
    with fork.init_lock:  # so that `_total` and `_order` agree in a forked child
        # list() copies the keys atomically; another thread could clear the cache during iteration.
        for oldest in list(cache)[: max(0, len(cache) - MAX_KEPT + 1)]:
            cache.pop(oldest, None)
        kept = cache.setdefault(key, value)
        if kept is value and isinstance(cache, Cache):
            _count(cache, key, nbytes)
    return kept


def _count(cache: Cache[Any], key: Any, nbytes: int) -> None:
    """Count a value, and remove the oldest values while the total is too large."""
    global _total
    _order.append((ref(cache), key, nbytes))
    _total += nbytes
    while _total > _MAX_BYTES and len(_order) > _MIN_KEPT:
        cache_ref, oldest, freed = _order.popleft()
        _total -= freed
        (cache_ref() or {}).pop(oldest, None)

"""What is kept from call to call, so that it is planned once.

Each cache is bounded by number. What is large, or made for each shape that comes, lies in a `Cache`
and is counted in bytes as well, together with that of all others of this process: there may be
many caches, as one Converter has several.
"""

from __future__ import annotations

from collections import deque
from typing import Any, TypeVar
from weakref import ref

from . import fork

__all__ = ["MAX_KEPT", "PROGRAM_BYTES", "Cache", "remember"]

MAX_KEPT = 512  # programs of a Converter, and converters of `convert`

# Of the process: the latest few are kept, however large they are.
_MAX_BYTES = 64 << 20
_LEAST_KEPT = 4
# Of a plan with its jobs, its key and its place below; measured are 5 to 7 KB.
PROGRAM_BYTES = 8 << 10

Kept = TypeVar("Kept")


class Cache(dict[Any, Kept]):
    """A cache whose values are counted in bytes, for as long as somebody else has it."""

    __slots__ = ("__weakref__",)


# Of all that is counted: cache, key and bytes, what was made first in front. Those of a cache that
# is gone are counted until they get there.
_order: deque[tuple[ref[Cache[Any]], Any, int]] = deque()
_total = 0


def remember(cache: dict[Any, Kept], key: Any, value: Kept, nbytes: int = 0) -> Kept:
    """Keep a value by a key, the oldest going when there are too many; return what is kept.

    nbytes     what the value takes, where the cache is a Cache
    """
    with fork.making:  # so that a child finds sum and order in agreement
        # A list is made at once, whereas others may clear the cache under an iterator.
        for oldest in list(cache)[: max(0, len(cache) - MAX_KEPT + 1)]:
            cache.pop(oldest, None)
        kept = cache.setdefault(key, value)
        if kept is value and isinstance(cache, Cache):
            _count(cache, key, nbytes)
    return kept


def _count(cache: Cache[Any], key: Any, nbytes: int) -> None:
    """Count a value, and let go what was made first while all together are too large."""
    global _total
    _order.append((ref(cache), key, nbytes))
    _total += nbytes
    while _total > _MAX_BYTES and len(_order) > _LEAST_KEPT:
        found, oldest, freed = _order.popleft()
        _total -= freed
        (found() or {}).pop(oldest, None)

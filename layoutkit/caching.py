"""What is kept from call to call, so that it is planned once."""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["MAX_KEPT", "remember"]

# Of one cache: what is large is kept in smaller numbers, though the latest few always are.
_MAX_BYTES = 64 << 20
_LEAST_KEPT = 4

MAX_KEPT = 512  # programs of a Converter, and converters of `convert`

Kept = TypeVar("Kept")


def remember(cache: dict[Any, Kept], key: Any, value: Kept, nbytes: int = 0) -> Kept:
    """Keep a value by a key, the oldest going when there are too many; return what is kept.

    nbytes     what each value of this cache takes, where that may be much
    """
    most = MAX_KEPT if not nbytes else min(MAX_KEPT, max(_LEAST_KEPT, _MAX_BYTES // nbytes))
    # A list is made at once, whereas other threads could change the dict under an iterator.
    for oldest in list(cache)[: max(0, len(cache) - most + 1)]:
        cache.pop(oldest, None)
    return cache.setdefault(key, value)

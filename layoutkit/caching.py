"""What is kept from call to call, so that it is planned once."""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["MAX_KEPT", "remember"]

MAX_KEPT = 512  # programs of a Converter, and converters of `convert`

Kept = TypeVar("Kept")


def remember(cache: dict[Any, Kept], key: Any, value: Kept) -> Kept:
    """Keep a value by a key, the oldest going when there are too many; return what is kept."""
    # A list is made at once, whereas other threads could change the dict under an iterator.
    for oldest in list(cache)[: max(0, len(cache) - MAX_KEPT + 1)]:
        cache.pop(oldest, None)
    return cache.setdefault(key, value)

"""Keywords of a conversion that no module of their own judges: `copy` and the sizes of axes."""

from __future__ import annotations

from typing import Any

from .errors import ArgumentError, ShapeError

__all__ = ["checked_copy", "checked_sizes"]


def checked_copy(copy: Any) -> bool | None:
    """`copy`; ArgumentError unless it is None, True or False."""
    if copy is None or copy is True or copy is False:
        return copy
    raise ArgumentError(f"copy={copy!r}; it is None, True or False")


def checked_sizes(sizes: dict[str, int]) -> dict[str, int]:
    """The sizes; ShapeError for a name that is no axis."""
    for name in sizes:
        if len(name) != 1:
            raise ShapeError(
                f"{name}={sizes[name]!r} is neither a keyword of a conversion nor the size of an "
                "axis, which has one letter; correct its name"
            )
    return sizes

"""Keys as users write them in square brackets: read once, and never again the user's own object.

A part of a key is an int, a slice, None, or an array of indices or bools; an Ellipsis is spelled
out. What a layout, a Sample and a selection make of a key is decided by these parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ...checks import as_int
from ...memory import Array
from ..protocolerrors import OutOfRange

__all__ = [
    "Part",
    "as_positions",
    "expand",
    "field_names",
    "kinds_of",
    "place_of",
    "same_part",
    "spelled_out",
]

Part: TypeAlias = int | slice | Array | None

_TAKES = "ints, slices, None, lists and arrays of ints or bools"


def kinds_of(key: Any) -> tuple[str, ...]:
    """What each part of a key is: "int", "slice", "list" (or a mask) or "other".

    >>> kinds_of(np.s_[0, 1:3, [4, 5]]), kinds_of(...)
    (('int', 'slice', 'list'), ('other',))
    """
    if isinstance(key, tuple) and not key:
        return ("other",)  # all of the data, of whatever rank
    return tuple(map(_kind, key if isinstance(key, tuple) else (key,)))


def spelled_out(key: Any, rank: int) -> Any:
    """A key on data of a rank with full slices in place of its Ellipsis.

    >>> spelled_out(np.s_[..., 0], 3)
    (slice(None, None, None), slice(None, None, None), 0)

    It stays as it is where it has no Ellipsis, or what else is in it may select along several axes.
    """
    parts = key if isinstance(key, tuple) else (key,)
    at = next((at for at, part in enumerate(parts) if part is Ellipsis), None)
    if at is None or "other" in kinds_of((*parts[:at], *parts[at + 1 :], 0)):
        return key
    return (*parts[:at], *[slice(None)] * (rank - len(parts) + 1), *parts[at + 1 :])


def field_names(key: Any) -> str | list[str] | None:
    """The names of fields of a structured dtype that a key asks for; None where it does not."""
    if isinstance(key, str):
        return key
    is_names = isinstance(key, list) and key and all(isinstance(name, str) for name in key)
    return list(key) if is_names else None


def expand(key: Any, shape: Sequence[int]) -> tuple[Part, ...]:
    """The parts of a key on data of `shape`, one for each axis and each None; masks spelled out.

    >>> expand(np.s_[..., -1], (2, 3, 4))
    (slice(None, None, None), slice(None, None, None), -1)

    Raises DataError (also an IndexError) for what is no key, and for one with too many parts.
    """
    parts = [_part(part) for part in (key if isinstance(key, tuple) else (key,))]
    open_ended = [at for at, part in enumerate(parts) if part is Ellipsis]
    if len(open_ended) > 1:
        raise OutOfRange(f"the key {key!r} has more than one '...'; leave all but one out")
    missing = len(shape) - sum(map(_consumed, parts))
    if missing < 0:
        raise OutOfRange(
            f"the key {key!r} selects along {len(shape) - missing} axes, but the data has shape "
            f"{tuple(shape)}; give at most {len(shape)}"
        )
    at = open_ended[0] if open_ended else len(parts)
    full = [*parts[:at], *[slice(None)] * missing, *parts[at + 1 :]]
    return _with_indices(full, shape)


def place_of(part: int, size: int) -> int:
    """An index counted from 0; DataError (also an IndexError) where it is out of range."""
    if not -size <= part < size:
        raise OutOfRange(
            f"index {part} is out of range for an axis of size {size}"
            + (f"; give {-size} to {size - 1}" if size else "; there is nothing to select")
        )
    return part % size


def as_positions(part: Array, size: int) -> Array:
    """Indices of one axis counted from 0, in an array of their own."""
    wrong = part[(part < -size) | (part >= size)]
    if wrong.size:
        place_of(int(wrong[0]), size)
    return np.where(part < 0, part + size, part)


def same_part(a: Any, b: Any) -> bool:
    """Whether two parts of keys, or two selectors, select alike."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return type(a) is type(b) and a.dtype == b.dtype and np.array_equal(a, b)
    return bool(type(a) is type(b) and a == b)


def _part(part: Any) -> Any:
    """One part of a key, out of the reach of whoever wrote it."""
    if part is None or part is Ellipsis:
        return part
    if isinstance(part, slice):
        return _checked_slice(part)
    number = as_int(part)
    if number is not None:
        return number
    try:
        found = np.array(part)
    except (TypeError, ValueError):  # of different lengths
        found = np.array(None)
    if found.size == 0 and not isinstance(part, np.ndarray):
        found = found.astype(np.intp)  # NumPy takes an empty list for floats
    if found.dtype.kind not in "iub":
        raise OutOfRange(f"{part!r} is no key; the data takes {_TAKES}")
    return found if found.dtype.kind == "b" else found.astype(np.intp)


def _checked_slice(part: slice) -> slice:
    try:
        range(0)[part]
    except (TypeError, ValueError) as error:
        raise OutOfRange(f"{part!r} is no slice: {error}") from None
    return part


def _consumed(part: Any) -> int:
    """How many axes of the data a part selects along."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if isinstance(part, np.ndarray) and part.dtype.kind == "b" else 1


def _with_indices(parts: list[Any], shape: Sequence[int]) -> tuple[Part, ...]:
    """The parts with masks of one axis as the indices of what they let through."""
    found: list[Part] = []
    axis = 0
    for part in parts:
        consumed = _consumed(part)
        if isinstance(part, np.ndarray) and part.dtype.kind == "b" and consumed:
            sizes = tuple(shape[axis : axis + consumed])
            if part.shape != sizes:
                raise OutOfRange(
                    f"a mask of shape {part.shape} is on axes of sizes {sizes}; make them equal"
                )
            part = np.flatnonzero(part) if consumed == 1 else part
        found.append(part)
        axis += consumed
    return tuple(found)


def _kind(part: Any) -> str:
    if isinstance(part, slice):
        return "slice"
    if part is None or part is Ellipsis or isinstance(part, str):
        return "other"
    if as_int(part) is not None:
        return "int"
    try:
        return "list" if np.ndim(part) == 1 else "other"
    except ValueError:  # nested lists of different lengths, which are no key
        return "other"

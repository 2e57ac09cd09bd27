"""What a chain of keys selects of an array, as one selection: nothing is read to find it.

Keys that take an int, a slice or a list of each axis are folded into one another, so that
`data[100:200][[3, 1]][0]` is known to be row 103. Whatever else NumPy takes (new axes, masks of
several axes, several lists in one key) is kept as it is, and applied to what the rest selects.

Keys as users write them in square brackets: read once, and never again the user's own object.

A part of a key is an int, a slice, None, or an array of indices or bools; an Ellipsis is spelled
out. What a layout, a Sample and a selection make of a key is decided by these parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from ..._utils.validation import as_int
from ...memory import Array
from ..errors import OutOfRange

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


Selector: TypeAlias = int | range | Array


class Selection:
    """A part of an array of a known shape.

    Attributes
    ----------
    selectors : tuple
        For each axis of the array, independently of the others: an int, which drops the axis, a
        range, or, at most once, an array of indices. All count from 0.
    rest : tuple of keys
        To be applied, one after the other, to what the selectors select.
    shape : tuple
        Of what is selected.
    """

    __slots__ = ("rest", "selectors", "shape")

    def __init__(
        self,
        selectors: tuple[Selector, ...],
        rest: tuple[tuple[Part, ...], ...],
        shape: tuple[int, ...],
    ) -> None:
        self.selectors, self.rest, self.shape = selectors, rest, shape

    @classmethod
    def whole(cls, shape: Sequence[int]) -> Selection:
        """All of an array."""
        sizes = tuple(int(size) for size in shape)
        return cls(tuple(map(range, sizes)), (), sizes)

    def select(self, key: Any) -> Selection:
        """What a key selects of this; DataError (also an IndexError) where it is out of range."""
        parts = expand(key, self.shape)
        if self.rest or not self._folds(parts):
            return Selection(self.selectors, (*self.rest, parts), _shape(self.shape, parts))
        inner = iter(parts)
        selectors = tuple(
            selector if isinstance(selector, int) else _picked(selector, next(inner))
            for selector in self.selectors
        )
        return Selection(selectors, (), _sizes(selectors))

    def with_axes(self, sizes: tuple[int, ...]) -> Selection:
        """The same of an array that has further axes at its end."""
        selectors = self.selectors + tuple(map(range, sizes))
        return Selection(selectors, self.rest, self.shape + sizes)

    def places(self) -> tuple[Array, ...]:
        """Where, among what the selectors select, each selected element is: one array an axis."""
        sizes = _sizes(self.selectors) or (1,)
        places: Any = np.arange(prod(sizes)).reshape(_sizes(self.selectors))
        for parts in self.rest:
            places = places[parts]
        return np.unravel_index(places, sizes)

    def narrowed(self) -> tuple[tuple[Selector, ...], tuple[Array, ...]]:
        """Selectors of little more than the selected elements, each once, and their places there.

        Of the first axis, or of the one with an array of indices, what is needed; of the others
        a range that holds it.
        """
        selectors, places = list(self.selectors), list(self.places())
        kept = [axis for axis, part in enumerate(selectors) if not isinstance(part, int)]
        arrays = [axis for axis in kept if isinstance(selectors[axis], np.ndarray)]
        for n, axis in enumerate(kept):
            selector: Any = selectors[axis]
            at = places[n]
            if axis in (arrays or kept[:1]):
                needed: Any = _picked(selector, at.ravel())
                selectors[axis], inverse = np.unique(needed, return_inverse=True)
                places[n] = inverse.reshape(at.shape)
            elif at.size:
                low, high = int(at.min()), int(at.max())
                selectors[axis], places[n] = selector[low : high + 1], at - low
        return tuple(selectors), tuple(places)

    def same(self, other: Selection) -> bool:
        """Whether both select the same elements of one array, in the same order."""
        ours, theirs = (self.selectors, *self.rest), (other.selectors, *other.rest)
        return len(ours) == len(theirs) and all(
            len(a) == len(b) and all(map(same_part, a, b))
            for a, b in zip(ours, theirs, strict=True)
        )

    def _folds(self, parts: tuple[Part, ...]) -> bool:
        """Whether a key takes an int, a slice or a list of each axis, and NumPy keeps their order.

        NumPy moves the axis of a list to the front when a slice stands between it and an int.
        """
        arrays = [at for at, part in enumerate(parts) if isinstance(part, np.ndarray)]
        if len(arrays) > 1 or any(part is None for part in parts):
            return False
        if not arrays:
            return True
        at = arrays[0]
        if parts[at].ndim != 1:  # type: ignore[union-attr]
            return False
        kept = [selector for selector in self.selectors if not isinstance(selector, int)]
        for n, selector in enumerate(kept):  # an array of another axis stays beside this one
            if isinstance(selector, np.ndarray) and n != at and not isinstance(parts[n], int):
                return False
        dropping = [n for n, part in enumerate(parts) if isinstance(part, int | np.ndarray)]
        adjacent = dropping[-1] - dropping[0] == len(dropping) - 1
        return adjacent or not any(isinstance(part, slice) for part in parts[:at])


def _picked(selector: range | Array, part: Part) -> Selector:
    """What a part of a key selects of what an axis selects already."""
    if isinstance(part, int):
        return int(selector[place_of(part, len(selector))])
    if isinstance(part, slice):
        return selector[part]
    positions = as_positions(part, len(selector))  # type: ignore[arg-type]
    if isinstance(selector, range):
        return selector.start + selector.step * positions
    return selector[positions]


def _sizes(selectors: Sequence[Selector]) -> tuple[int, ...]:
    return tuple(len(selector) for selector in selectors if not isinstance(selector, int))


def _shape(shape: tuple[int, ...], parts: tuple[Part, ...]) -> tuple[int, ...]:
    """The shape of what a key selects, found on an array that takes no memory."""
    try:
        return tuple(np.broadcast_to(np.False_, shape)[parts].shape)
    except (IndexError, ValueError, TypeError) as error:
        raise OutOfRange(f"data of shape {shape} does not take this key: {error}") from None

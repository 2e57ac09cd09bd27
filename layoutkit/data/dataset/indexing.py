"""Keys of arrays, and their composition into one selection without reading data.

The parts of a key are validated and copied once: an int, a slice, None, or an array of indices or
bools; an Ellipsis is expanded. Keys with an int, a slice or a list along each axis are
composed, so `data[100:200][[3, 1]][0]` becomes row 103. Other NumPy keys (new axes, masks
of several axes, several lists in one key) are stored and applied to the composed selection.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from ..._utils.indexing import (
    as_array,
    as_int_array,
    normalize_index,
    normalize_indices,
    normalize_slice,
)
from ..._utils.validation import as_int, show
from ...memory import Array
from ..errors import OutOfRange

Part: TypeAlias = int | slice | Array | None

_SUPPORTED_PARTS = "ints, slices, None, lists and arrays of ints or bools"


def key_types(key: Any) -> tuple[str, ...]:
    """Return the type of each part of a key: "int", "slice", "list" (also for masks) or "other".

    >>> key_types(np.s_[0, 1:3, [4, 5]]), key_types(...)
    (('int', 'slice', 'list'), ('other',))
    """
    if isinstance(key, tuple) and not key:
        return ("other",)  # all of the data, whatever its rank
    return tuple(map(_key_type, key if isinstance(key, tuple) else (key,)))


def expand_ellipsis(key: Any, rank: int) -> Any:
    """Return the key with its Ellipsis replaced by full slices, for data with `rank` axes.

    >>> expand_ellipsis(np.s_[..., 0], 3)
    (slice(None, None, None), slice(None, None, None), 0)

    A key without Ellipsis, or with another part that may select along several axes, is returned
    unchanged.
    """
    parts = key if isinstance(key, tuple) else (key,)
    pos = next((pos for pos, part in enumerate(parts) if part is Ellipsis), None)
    if pos is None or "other" in key_types((*parts[:pos], *parts[pos + 1 :], 0)):
        return key
    return (*parts[:pos], *[slice(None)] * (rank - len(parts) + 1), *parts[pos + 1 :])


def field_names(key: Any) -> str | list[str] | None:
    """Return the key if it is one field name or a list of field names, else None."""
    if isinstance(key, str):
        return key
    is_names = isinstance(key, list) and key and all(isinstance(name, str) for name in key)
    return list(key) if is_names else None


def expand(key: Any, shape: Sequence[int]) -> tuple[Part, ...]:
    """Return the parts of a key for data of `shape`, one per axis and per None; masks as indices.

    >>> expand(np.s_[..., -1], (2, 3, 4))
    (slice(None, None, None), slice(None, None, None), -1)

    Raises DataError (also an IndexError) for an invalid key, or one with too many parts.
    """
    parts = [_part(part) for part in (key if isinstance(key, tuple) else (key,))]
    ellipses = [pos for pos, part in enumerate(parts) if part is Ellipsis]
    if len(ellipses) > 1:
        raise OutOfRange(f"the key {key!r} has more than one '...'; remove all but one")
    missing = len(shape) - sum(map(_num_axes_consumed, parts))
    if missing < 0:
        raise OutOfRange(
            f"the key {key!r} selects along {len(shape) - missing} axes, but the data has shape "
            f"{tuple(shape)}; select along at most {len(shape)}"
        )
    pos = ellipses[0] if ellipses else len(parts)
    expanded = [*parts[:pos], *[slice(None)] * missing, *parts[pos + 1 :]]
    return _with_indices(expanded, shape)


def is_same_part(a: Any, b: Any) -> bool:
    """Return True if two parts of keys, or two selectors, are equal."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return type(a) is type(b) and a.dtype == b.dtype and np.array_equal(a, b)
    return bool(type(a) is type(b) and a == b)


def _part(part: Any) -> Any:
    """Return a validated copy of one part of a key."""
    if part is None or part is Ellipsis:
        return part
    if isinstance(part, slice):
        normalize_slice(part, 0, OutOfRange)
        return part
    number = as_int(part)
    if number is not None:
        return number
    mask = as_array(part)
    if mask is not None and mask.dtype.kind == "b":
        return mask.copy()
    indices = as_int_array(part)
    if indices is None:
        raise OutOfRange(f"{show(part)} is not a valid key; use {_SUPPORTED_PARTS}")
    return indices


def _num_axes_consumed(part: Any) -> int:
    """Return the number of axes of the data that a part selects along."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if isinstance(part, np.ndarray) and part.dtype.kind == "b" else 1


def _with_indices(parts: list[Any], shape: Sequence[int]) -> tuple[Part, ...]:
    """Return the parts with each mask of one axis replaced by the indices of its True elements."""
    expanded: list[Part] = []
    axis = 0
    for part in parts:
        consumed = _num_axes_consumed(part)
        if isinstance(part, np.ndarray) and part.dtype.kind == "b" and consumed:
            sizes = tuple(shape[axis : axis + consumed])
            if part.shape != sizes:
                raise OutOfRange(
                    f"a mask of shape {part.shape} selects along "
                    f"axes of sizes {sizes}; make the shapes equal"
                )
            part = np.flatnonzero(part) if consumed == 1 else part
        expanded.append(part)
        axis += consumed
    return tuple(expanded)


def _key_type(part: Any) -> str:
    if isinstance(part, slice):
        return "slice"
    if part is None or part is Ellipsis or isinstance(part, str):
        return "other"
    if as_int(part) is not None:
        return "int"
    try:
        return "list" if np.ndim(part) == 1 else "other"
    except ValueError:  # nested lists of different lengths, an invalid key
        return "other"


Selector: TypeAlias = int | range | Array


class Selection:
    """A selection of elements of an array of a known shape.

    Attributes
    ----------
    selectors : tuple
        One selector per axis of the array: an int (drops the axis), a range, or an array of
        indices (for at most one axis). They are applied independently; indices are non-negative.
    rest : tuple of keys
        Keys applied, one after the other, to the result of the selectors.
    shape : tuple
        The shape of the selection.
    """

    __slots__ = ("rest", "selectors", "shape")

    def __init__(
        self,
        selectors: tuple[Selector, ...],
        rest: tuple[tuple[Part, ...], ...],
        shape: tuple[int, ...],
    ) -> None:
        self.selectors = selectors
        self.rest = rest
        self.shape = shape

    @classmethod
    def full(cls, shape: Sequence[int]) -> Selection:
        """Return the selection of all elements."""
        sizes = tuple(int(size) for size in shape)
        return cls(tuple(map(range, sizes)), (), sizes)

    def select(self, key: Any) -> Selection:
        """Return this selection composed with a key; raise DataError if the key is out of range."""
        parts = expand(key, self.shape)
        if self.rest or not self._can_compose(parts):
            return Selection(self.selectors, (*self.rest, parts), _shape(self.shape, parts))
        remaining_parts = iter(parts)
        selectors = tuple(
            selector if isinstance(selector, int) else _compose(selector, next(remaining_parts))
            for selector in self.selectors
        )
        return Selection(selectors, (), _sizes(selectors))

    def with_axes(self, sizes: tuple[int, ...]) -> Selection:
        """Return this selection for an array with additional trailing axes."""
        selectors = self.selectors + tuple(map(range, sizes))
        return Selection(selectors, self.rest, self.shape + sizes)

    def positions(self) -> tuple[Array, ...]:
        """Return the elements' positions in the result of the selectors, one array per axis."""
        sizes = _sizes(self.selectors) or (1,)
        positions: Any = np.arange(prod(sizes)).reshape(_sizes(self.selectors))
        for parts in self.rest:
            positions = positions[parts]
        return np.unravel_index(positions, sizes)

    def bounding_selectors(self) -> tuple[tuple[Selector, ...], tuple[Array, ...]]:
        """Return selectors that cover the elements, and the elements' positions in their result.

        Along the axis with an array of indices, or else the first axis, the selector has each
        needed index once; along other axes it is a range that contains all needed indices.
        """
        selectors = list(self.selectors)
        positions = list(self.positions())
        kept_axes = [axis for axis, part in enumerate(selectors) if not isinstance(part, int)]
        array_axes = [axis for axis in kept_axes if isinstance(selectors[axis], np.ndarray)]
        for n, axis in enumerate(kept_axes):
            selector: Any = selectors[axis]
            needed_positions = positions[n]
            if axis in (array_axes or kept_axes[:1]):
                needed: Any = _compose(selector, needed_positions.ravel())
                selectors[axis], inverse = np.unique(needed, return_inverse=True)
                positions[n] = inverse.reshape(needed_positions.shape)
            elif needed_positions.size:
                low = int(needed_positions.min())
                selectors[axis] = selector[low : int(needed_positions.max()) + 1]
                positions[n] = needed_positions - low
        return tuple(selectors), tuple(positions)

    def is_same(self, other: Selection) -> bool:
        """Return True if both select the same elements of an array in the same order."""
        ours = (self.selectors, *self.rest)
        theirs = (other.selectors, *other.rest)
        return len(ours) == len(theirs) and all(
            len(a) == len(b) and all(map(is_same_part, a, b))
            for a, b in zip(ours, theirs, strict=True)
        )

    def _can_compose(self, parts: tuple[Part, ...]) -> bool:
        """Return True if the key can be composed with the selectors.

        The key must consist of an int, a slice or a list per axis, and NumPy must keep the order of
        the axes: NumPy moves a list's axis to the front if a slice is between the list and an int.
        """
        arrays = [pos for pos, part in enumerate(parts) if isinstance(part, np.ndarray)]
        if len(arrays) > 1 or any(part is None for part in parts):
            return False
        if not arrays:
            return True
        pos = arrays[0]
        if parts[pos].ndim != 1:  # type: ignore[union-attr]
            return False
        kept = [selector for selector in self.selectors if not isinstance(selector, int)]
        for n, selector in enumerate(kept):
            # An array of indices already selects along another axis.
            if isinstance(selector, np.ndarray) and n != pos and not isinstance(parts[n], int):
                return False
        dropping = [n for n, part in enumerate(parts) if isinstance(part, int | np.ndarray)]
        adjacent = dropping[-1] - dropping[0] == len(dropping) - 1
        return adjacent or not any(isinstance(part, slice) for part in parts[:pos])


def _compose(selector: range | Array, part: Part) -> Selector:
    if isinstance(part, int):
        return int(selector[normalize_index(part, len(selector), "elements", OutOfRange)])
    if isinstance(part, slice):
        return selector[part]
    positions = normalize_indices(part, len(selector), "elements", OutOfRange)
    return (
        selector.start + selector.step * positions
        if isinstance(selector, range)
        else selector[positions]
    )


def _sizes(selectors: Sequence[Selector]) -> tuple[int, ...]:
    return tuple(len(selector) for selector in selectors if not isinstance(selector, int))


def _shape(shape: tuple[int, ...], parts: tuple[Part, ...]) -> tuple[int, ...]:
    """Return the shape of the selection of a key from an array of `shape`, without allocating."""
    try:
        return tuple(np.broadcast_to(np.False_, shape)[parts].shape)
    except (IndexError, ValueError, TypeError) as error:
        raise OutOfRange(f"data of shape {shape} does not support this key: {error}") from None

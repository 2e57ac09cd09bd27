"""What a chain of keys selects of an array, as one selection: nothing is read to find it.

Keys that take an int, a slice or a list of each axis are folded into one another, so that
`data[100:200][[3, 1]][0]` is known to be row 103. Whatever else NumPy takes (new axes, masks of
several axes, several lists in one key) is kept as it is, and applied to what the rest selects.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from ...memory import Array
from ..protocolerrors import OutOfRange
from .keys import Part, as_positions, expand, place_of, same_part

__all__ = ["Selection", "Selector"]

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

"""Name the axes of a copied tensor: the pattern of the conversion that replaces the copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase

import numpy as np

from ..memory import contiguous_strides

ELEMENTS = np.dtype(np.uint8)  # strides count elements, as torch's do

# Outer and inner letters of axes that a view has split, such as the patches of an image.
_SPLITS = (("y", "p"), ("x", "q"), ("u", "r"), ("v", "s"))
_CHANNELS = 4  # an axis of at most this size is taken for channels


@dataclass(frozen=True)
class Conversion:
    """The arguments of `convert` that replace a copy.

    pattern : str          the pattern
    sizes : tuple          (axis, size) of folded axes of the source
    memory : str | None    the axes in their order in memory if it differs from the result's
    """

    pattern: str
    sizes: tuple[tuple[str, int], ...] = ()
    memory: str | None = None

    @property
    def is_identity(self) -> bool:
        """Return True if the pattern alone changes nothing."""
        left, _, right = self.pattern.partition("->")
        return left == right and self.memory is None

    def undoes(self, other: Conversion) -> bool:
        """Return True if this conversion restores what `other` had."""
        mine = _moved_axes(self)
        theirs = _moved_axes(other)
        inverse = [theirs.index(number) for number in range(len(theirs))]
        return len(mine) == len(theirs) and mine == inverse != list(range(len(mine)))


def _moved_axes(conversion: Conversion) -> list[int]:
    """Return the position in the source's memory order of each axis of the result."""
    left, _, right = conversion.pattern.partition("->")
    left = "".join(filter(str.isalpha, left))
    right = "".join(filter(str.isalpha, conversion.memory or right))
    return [left.index(axis) for axis in right if axis in left]


def memory_order(sizes: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Return the axes from the outermost in memory to the innermost."""
    return sorted(range(len(sizes)), key=lambda axis: (-strides[axis], axis))


def is_moved(sizes: Sequence[int], before: Sequence[int], after: Sequence[int]) -> bool:
    """Return True if axes with these strides have another order in memory afterwards."""
    axes = [axis for axis, size in enumerate(sizes) if size > 1 and before[axis] and after[axis]]
    orders = [sorted(axes, key=lambda axis: -strides[axis]) for strides in (before, after)]
    return orders[0] != orders[1]


def name_conversion(
    base: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    result: Sequence[int],
    result_strides: Sequence[int],
) -> Conversion:
    """Return the conversion that does what a copy does.

    `base` is the shape, in its order in memory, of the tensor that owns the memory; the copied view
    of it has `sizes` and `strides`. `result` is the shape of the copy, which may fold axes, and
    `result_strides` are the strides of the unfolded axes. Raises ValueError if there are more axes
    than letters.
    """
    order = memory_order(sizes, strides)
    groups = _grouped([sizes[axis] for axis in order], base)
    if groups is None:
        groups = [1] * len(order)
        base = [sizes[axis] for axis in order]
    base_letters = _base_letters(base, keeps_first=order[0] == 0)
    letters = [""] * len(order)
    place = 0
    free = _unused_letters(base_letters)
    left = ""
    known = []
    for letter, count in zip(base_letters, groups, strict=True):
        members = order[place : place + count]
        place += count
        names = [letter] if count == 1 else _take_names(count, free)
        for axis, name in zip(members, names, strict=True):
            letters[axis] = name
        known += [(name, sizes[axis]) for axis, name in zip(members[1:], names[1:], strict=True)]
        left += names[0] if count == 1 else f"({''.join(names)})"
    folds = _grouped(sizes, result) or [1] * len(sizes)
    return Conversion(
        f"{left}->{_folded(letters, folds)}",
        tuple(known),
        _memory(letters, sizes, result_strides),
    )


def _memory(letters: Sequence[str], sizes: Sequence[int], strides: Sequence[int]) -> str | None:
    if not is_moved(sizes, contiguous_strides(tuple(sizes), ELEMENTS), strides):
        return None
    return "".join(letters[axis] for axis in memory_order(sizes, strides))


def _grouped(sizes: Sequence[int], wholes: Sequence[int]) -> list[int] | None:
    """Return the lengths of consecutive groups of `sizes` whose products are `wholes`, or None."""
    groups = []
    place = 0
    for number, whole in enumerate(wholes):
        start = place
        product = 1
        last = number == len(wholes) - 1
        while place < len(sizes) and (place == start or product < whole or last):
            product *= sizes[place]
            place += 1
        if product != whole or place == start:
            return None
        groups.append(place - start)
    return groups if place == len(sizes) else None


def _folded(letters: Sequence[str], groups: Sequence[int]) -> str:
    text = ""
    place = 0
    for count in groups:
        names = "".join(letters[place : place + count])
        text += names if count == 1 else f"({names})"
        place += count
    return text


def _base_letters(base: Sequence[int], *, keeps_first: bool) -> str:
    """Return letters for the axes of an array in memory, guessed from its rank and sizes."""
    if len(base) == 2:
        return "hw"
    if len(base) == 3:
        if keeps_first:
            return "bwc"
        return "chw" if base[0] <= _CHANNELS < base[2] else "hwc"
    if len(base) == 4:
        planes = base[2] == base[3] != base[1] or (base[1] <= _CHANNELS < base[3])
        return "bchw" if planes else "bhwc"
    if len(base) > len(ascii_lowercase):
        raise ValueError("a tensor has more axes than there are letters")
    return "bthwc" if len(base) == 5 else ascii_lowercase[: len(base)]


def _unused_letters(used: str) -> list[str]:
    """Return the letters that are not in use, letters of _SPLITS last."""
    split = "".join(map("".join, _SPLITS))
    return sorted(set(ascii_lowercase) - set(used), key=lambda letter: (letter in split, letter))


def _take_names(count: int, free: list[str]) -> list[str]:
    """Return names for the parts of a split axis, and remove them from the free letters."""
    pairs = [list(pair) for pair in _SPLITS if count == 2 and {*pair} <= {*free}]
    names = pairs[0] if pairs else free[:count]
    if len(names) < count:
        raise ValueError("a tensor has more axes than there are letters")
    free[:] = [letter for letter in free if letter not in names]
    return names

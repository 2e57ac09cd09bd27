"""Which channels of x a result has: `channels=`. Pure: integers in and out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

from .._utils.validation import as_int
from ..errors import ArgumentError, PatternError, ShapeError
from ..layout.parsing import Layout
from ..layout.pattern import Move, Pattern
from ..normalize import CHANNEL

__all__ = ["Picks", "checked_channels", "evenly", "picked", "turned"]


class Picks(NamedTuple):
    """Channels of an x of one shape, which are not just all of them in their order.

    letter    of their axis
    order     channels of x, in the order of the result
    count     how many x has; hides tuple.count, which no picks need
    shape     of x
    """

    letter: str
    order: tuple[int, ...]
    count: int  # type: ignore[assignment]
    shape: tuple[int, ...]

    @property
    def is_permutation(self) -> bool:
        """Whether every channel of x is taken once."""
        return len(self.order) == self.count and turned(self.order) is not None

    def whole(self, move: Move) -> Move:
        """A move of what is picked, with the sizes that x has on its side."""
        sizes = zip(move.axes, move.sizes, strict=True)
        found = tuple(self.count if letter == self.letter else size for letter, size in sizes)
        return replace(move, sizes=found, source_shape=self.shape)

    def axis(self, move: Move) -> int:
        """Where the channels are among the axes of x, taken apart."""
        return move.axes.index(self.letter)


def checked_channels(channels: Any, pattern: Pattern) -> tuple[int, ...] | None:
    """The channels as plain ints.

    Raises
    ------
    ArgumentError
        They are no whole numbers from 0.
    PatternError
        x has no axis of channels.
    """
    if channels is None:
        return None
    try:
        found = tuple(map(as_int, channels))
    except TypeError:
        found = ()
    if not found or any(number is None or number < 0 for number in found):
        raise ArgumentError(
            f"channels={channels!r}; it is the channels of x in the order of the result, counted "
            "from 0, such as (2, 1, 0)"
        )
    if CHANNEL not in map(pattern.source.name, pattern.source.letters):
        raise PatternError(
            f'channels={channels!r}, but on the left of "{pattern.text}" there is no axis c; name '
            "it c"
        )
    return found  # type: ignore[return-value]


def picked(
    pattern: Pattern, order: tuple[int, ...], shape: tuple[int, ...], sizes: Mapping[str, int]
) -> tuple[Move, Picks | None]:
    """Where elements of these channels go, and which they are; None where they are all of x.

    Raises ShapeError where x has not these channels, and what `Pattern.resolve` raises.
    """
    letter = _letter(pattern.source)
    spare = len(shape) - pattern.left.ndim
    fits = spare == 0 or (pattern.left.is_open and spare > 0)
    if not fits or letter not in pattern.left.groups:
        move = pattern.resolve(shape, sizes)
        count = move.sizes[move.axes.index(letter)]
        return _moved(move, _picks(pattern, letter, order, count, shape))
    at = pattern.completed(len(shape)).left.groups.index(letter)
    count, others = shape[at], {name: size for name, size in sizes.items() if name != CHANNEL}
    if sizes.get(CHANNEL, count) != count:
        pattern.resolve(shape, sizes)  # for what it raises
    picks = _picks(pattern, letter, order, count, shape)
    return pattern.resolve((*shape[:at], len(order), *shape[at + 1 :]), others), picks


def _picks(
    pattern: Pattern, letter: str, order: tuple[int, ...], count: int, shape: tuple[int, ...]
) -> Picks | None:
    if max(order) >= count:
        raise ShapeError(
            f'"{pattern.text}" on shape {shape}: channels={order} has {max(order)}, but x has '
            f"{count} channels, counted from 0; take those that are there"
        )
    if len(order) == count and order == tuple(range(len(order))):
        return None
    return Picks(letter, order, count, shape)


def _moved(move: Move, picks: Picks | None) -> tuple[Move, Picks | None]:
    """The move of what is picked, where x folds its channels."""
    if picks is None:
        return move, None

    def counted(axes: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
        pairs = zip(axes, sizes, strict=True)
        return tuple(len(picks.order) if axis == picks.letter else size for axis, size in pairs)

    sizes, target_sizes = (
        counted(move.axes, move.sizes),
        counted(move.target_axes, move.target_sizes),
    )
    moved = replace(
        move,
        sizes=sizes,
        target_sizes=target_sizes,
        source_shape=_folded(move.source, sizes),
        target_shape=_folded(move.target, target_sizes),
    )
    return moved, picks


def _folded(layout: Layout, sizes: tuple[int, ...]) -> tuple[int, ...]:
    size = dict(zip(layout.letters, sizes, strict=True))
    return tuple(prod(size[letter] for letter in group) for group in layout.groups)


def _letter(layout: Layout) -> str:
    return next(letter for letter in layout.letters if layout.name(letter) == CHANNEL)


def evenly(order: Sequence[int]) -> tuple[int, int] | None:
    """The first of channels that are evenly apart, and how far; None where they are not."""
    apart = order[1] - order[0] if len(order) > 1 else 1
    if any(b - a != apart for a, b in pairwise(order)):
        return None
    return order[0], apart


def turned(order: Sequence[int]) -> tuple[int, ...] | None:
    """The channels of a result in the order of x; None where they are not all, each once."""
    if sorted(order) != list(range(len(order))):
        return None
    return tuple(sorted(range(len(order)), key=order.__getitem__))

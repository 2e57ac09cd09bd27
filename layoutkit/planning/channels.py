"""The channel selection of a conversion: `channels=`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

from .._utils.validation import as_int, show
from ..errors import ArgumentError, PatternError, ShapeError
from ..layout.parsing import Layout
from ..layout.pattern import Pattern, Permutation
from ..normalize import CHANNEL


class ChannelSelection(NamedTuple):
    """A channel selection that is not the identity, for inputs of one shape.

    letter    the letter of the channel axis
    order     channels of x, in result order
    count     the number of channels of x; hides tuple.count, which is not needed
    shape     the shape of x
    """

    letter: str
    order: tuple[int, ...]
    count: int  # type: ignore[assignment]
    shape: tuple[int, ...]

    @property
    def is_permutation(self) -> bool:
        """True if every channel of x is selected exactly once."""
        return len(self.order) == self.count and invert_permutation(self.order) is not None

    def with_all_channels(self, move: Permutation) -> Permutation:
        """Return the move of the selected channels with the full shape of x as its source."""
        sizes = zip(move.axes, move.sizes, strict=True)
        full_sizes = tuple(self.count if letter == self.letter else size for letter, size in sizes)
        return replace(move, sizes=full_sizes, source_shape=self.shape)

    def axis(self, move: Permutation) -> int:
        """Return the index of the channel axis among the unfolded axes of x."""
        return move.axes.index(self.letter)


def parse_channels(channels: Any, pattern: Pattern) -> tuple[int, ...] | None:
    """Return the channels as plain ints.

    Raises
    ------
    ArgumentError
        They are not whole numbers from 0.
    PatternError
        x does not have a channel axis.
    """
    if channels is None:
        return None
    try:
        numbers = tuple(map(as_int, channels))
    except TypeError:
        numbers = ()
    if not numbers or any(number is None or number < 0 for number in numbers):
        raise ArgumentError(
            f"channels={show(channels)}; give the channels of x in the order of the result, "
            "counted from 0, such as (2, 1, 0)"
        )
    if CHANNEL not in map(pattern.source.name, pattern.source.letters):
        raise PatternError(
            f'channels={show(channels)}, but on the left of "{pattern.text}" there is no axis c; '
            "name it c"
        )
    return numbers  # type: ignore[return-value]


def resolve_selection(
    pattern: Pattern, order: tuple[int, ...], shape: tuple[int, ...], sizes: Mapping[str, int]
) -> tuple[Permutation, ChannelSelection | None]:
    """Return the move of the selected channels, and the selection (None: the identity).

    Raises ShapeError if x does not have these channels, and the errors of `Pattern.resolve`.
    """
    letter = _find_channel_letter(pattern.source)
    spare = len(shape) - pattern.left.ndim
    fits = spare == 0 or (pattern.left.has_ellipsis and spare > 0)
    if not fits or letter not in pattern.left.groups:
        move = pattern.resolve(shape, sizes)
        count = move.sizes[move.axes.index(letter)]
        return _select_in_fold(move, _make_selection(pattern, letter, order, count, shape))
    axis = pattern.expand_ellipsis(len(shape)).left.groups.index(letter)
    count = shape[axis]
    other_sizes = {name: size for name, size in sizes.items() if name != CHANNEL}
    if sizes.get(CHANNEL, count) != count:
        pattern.resolve(shape, sizes)  # raises the error
    picks = _make_selection(pattern, letter, order, count, shape)
    return pattern.resolve((*shape[:axis], len(order), *shape[axis + 1 :]), other_sizes), picks


def _make_selection(
    pattern: Pattern, letter: str, order: tuple[int, ...], count: int, shape: tuple[int, ...]
) -> ChannelSelection | None:
    if max(order) >= count:
        raise ShapeError(
            f'"{pattern.text}" on shape {shape}: channels={show(order)} selects channel '
            f"{max(order)}, but x has the channels 0 to {count - 1}; select only these"
        )
    if len(order) == count and order == tuple(range(len(order))):
        return None
    return ChannelSelection(letter, order, count, shape)


def _select_in_fold(
    move: Permutation, picks: ChannelSelection | None
) -> tuple[Permutation, ChannelSelection | None]:
    if picks is None:
        return move, None

    def counted(axes: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
        pairs = zip(axes, sizes, strict=True)
        return tuple(len(picks.order) if axis == picks.letter else size for axis, size in pairs)

    sizes = counted(move.axes, move.sizes)
    target_sizes = counted(move.target_axes, move.target_sizes)
    moved = replace(
        move,
        sizes=sizes,
        target_sizes=target_sizes,
        source_shape=_find_shape_of_groups(move.source, sizes),
        target_shape=_find_shape_of_groups(move.target, target_sizes),
    )
    return moved, picks


def _find_shape_of_groups(layout: Layout, sizes: tuple[int, ...]) -> tuple[int, ...]:
    size = dict(zip(layout.letters, sizes, strict=True))
    return tuple(prod(size[letter] for letter in group) for group in layout.groups)


def _find_channel_letter(layout: Layout) -> str:
    return next(letter for letter in layout.letters if layout.name(letter) == CHANNEL)


def as_slice(order: Sequence[int]) -> tuple[int, int] | None:
    """Return (start, step) if the channels are evenly spaced, else None."""
    step = order[1] - order[0] if len(order) > 1 else 1
    if any(b - a != step for a, b in pairwise(order)):
        return None
    return order[0], step


def invert_permutation(order: Sequence[int]) -> tuple[int, ...] | None:
    """Return the inverse of a permutation; None if `order` is not a permutation."""
    if sorted(order) != list(range(len(order))):
        return None
    return tuple(sorted(range(len(order)), key=order.__getitem__))

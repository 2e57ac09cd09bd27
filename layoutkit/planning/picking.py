"""The loops and the kernel of a conversion that takes some channels of x. Pure.

Channels that are evenly apart, one alone and one taken again and again among them, are a loop like
any other: of other steps, that begins elsewhere. The others are for kernels that know channels by
a table: they take pixels of two, three or four apart in registers, whichever of these are then
kept, or put them together. Where neither fits, channels have to be copied first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ..axes import Move
from ..formulas import Formula
from ..memory import contiguous
from ..spec import DType
from .channels import Picks, evenly
from .kernels import FEW, LEAST_PIXELS, choose
from .loops import ITEMS, CanonicalLoops, Loop, canonical, steps_of
from .roles import Choice, InnerLoops

__all__ = ["Sides", "found"]

_FAR = 1 << 60  # bytes

Found = tuple[CanonicalLoops, Choice]


class Sides(NamedTuple):
    """What is moved, and how both sides lie.

    picks            the channels of x that are taken; None: all in their order
    strides, out     of x and of the result
    source, target   the dtypes that the kernel reads and writes
    """

    move: Move
    picks: Picks | None
    formula: Formula | None
    strides: tuple[int, ...]
    out: tuple[int, ...]
    source: DType
    target: DType

    @property
    def pure(self) -> bool:
        """Whether bits move unchanged."""
        return self.source == self.target and self.formula is None

    def chosen(self, loops: Sequence[Loop]) -> Found:
        """The shortest form of loops, and the kernel for it."""
        found = canonical(loops, self.source.itemsize, pure=self.pure)
        return found, choose(found, self.target.itemsize, pure=self.pure)

    def loops(self) -> list[Loop]:
        """One loop for each elementary axis, in the source's order; channels as if none followed
        another than the next."""
        move = self.move
        sizes = move.sizes if self.picks is None else self.picks.whole(move).sizes
        source_steps = steps_of(move.source.groups, move.axes, sizes, self.strides)
        steps = steps_of(move.target.groups, move.target_axes, move.target_sizes, self.out)
        target_steps = dict(zip(move.target_axes, steps, strict=True))
        several = self.formula is not None and self.formula.per_channel
        channel = self.formula.letter(move) if self.formula is not None and several else None
        return [
            Loop(count, step, target_steps.get(letter, 0), int(letter == channel))
            for letter, count, step in zip(move.axes, move.sizes, source_steps, strict=True)
        ]


def found(sides: Sides, *, by_table: bool) -> tuple[CanonicalLoops, Choice, bool]:
    """Loops and kernel of a conversion, and whether channels have to be copied before it.

    `by_table`: whether kernels of the device know channels by a table.
    """
    if sides.picks is None:
        return *sides.chosen(sides.loops()), False
    found = _picked(sides, sides.picks, by_table)
    if found is not None:
        return *found, False
    lies = contiguous(sides.move.source_shape, sides.source)
    copied = sides._replace(picks=None, strides=lies)
    return *copied.chosen(copied.loops()), True


def _picked(sides: Sides, picks: Picks, by_table: bool) -> Found | None:
    """Loops and kernel of picked channels; None where no kernel takes them out of x."""
    loops, at, apart = sides.loops(), picks.axis(sides.move), evenly(picks.order)
    loop, few = loops[at], picks.count in FEW and len(set(picks.order)) == len(picks.order)

    def tried(changed: Loop) -> Found:
        return sides.chosen([*loops[:at], changed, *loops[at + 1 :]])

    if by_table and few and loop.src == sides.source.itemsize:
        alone = len(picks.order) == 1  # a plane whose step means nothing, and could be any other's
        whole = loop._replace(count=picks.count, dst=_FAR if alone else loop.dst)
        found, choice = tried(whole)
        if choice.kernel in ("split", "flipsplit") and choice.rows == (whole,):
            return found, replace(choice, rows=(loop._replace(src=0),), order=picks.order)
    if by_table and loop.src == sides.source.itemsize in ITEMS:
        around = [*loops[:at], *loops[at + 1 :]]
        found = canonical(around, sides.source.itemsize, pure=False)
        shuffled = _of_pixels(found, loop, picks.count, picks.order, sides.target.itemsize)
        if shuffled is not None:
            return found, shuffled
    if apart is not None:
        found, choice = tried(loop._replace(src=loop.src * apart[1]))
        return replace(found, src_offset=found.src_offset + apart[0] * loop.src), choice
    if by_table:
        found, choice = tried(loop)
        if choice.kernel == "merge" and choice.run[-1] == loop:
            return found, replace(choice, order=picks.order)
    return None


def _of_pixels(
    found: CanonicalLoops, pixel: Loop, count: int, order: tuple[int, ...], target_item: int
) -> Choice | None:
    """The kernel that takes channels `order` out of pixels of `count` of them and puts them side by
    side; None where it does not fit.

    `found` are the loops around pixels, `pixel` is that of the channels which are taken.
    """
    item = pixel.src
    if not found.loops or pixel.dst != target_item or count > FEW[-1] or len(order) not in FEW:
        return None
    last = found.loops[-1]
    packed = abs(last.src) == count * item and last.dst == len(order) * target_item
    if not packed or last.coef or last.count * item < LEAST_PIXELS:
        return None
    inner = InnerLoops((*found.loops, pixel), item, target_item, False)
    roles = inner.roles((last, pixel), channels=len(order))
    return roles.choice("shuffle", inner, order)

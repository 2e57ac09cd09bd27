"""What the loops of a conversion are to its kernel. Pure: integers in and out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

from .loops import Loop

__all__ = ["Choice", "InnerLoops", "Roles", "length"]

MAX_OUTER = 8  # loops around a block; the caller of a kernel runs what is beyond


def length(loops: Sequence[Loop]) -> int:
    """Places of nested loops."""
    return prod(loop.count for loop in loops)


@dataclass(frozen=True)
class Choice:
    """A kernel and the roles of the loops.

    `run`: loops that are contiguous in the output, outermost first. `rows`: loops that are
    contiguous in the source, where those are others. `outer`: the rest, outermost first.
    """

    kernel: str
    channels: int
    run: tuple[Loop, ...]
    rows: tuple[Loop, ...]
    outer: tuple[Loop, ...]
    source_item: int  # bytes
    target_item: int
    beyond: tuple[Loop, ...] = ()  # outer loops that are too many for a kernel
    order: tuple[int, ...] = ()  # channels of a pixel of x, or planes; (): all in their order

    @property
    def count(self) -> int:
        """Items that one pass over the loops visits."""
        return length((*self.outer, *self.rows, *self.run))


class Roles(NamedTuple):
    """What each loop is to a kernel: see `Choice`. `channels`: of a pixel, where there are some."""

    run: tuple[Loop, ...]
    rows: tuple[Loop, ...]
    outer: tuple[Loop, ...]
    channels: int = 0

    def choice(self, kernel: str, inner: InnerLoops, order: tuple[int, ...] = ()) -> Choice:
        """The choice of a kernel that takes loops so; what it cannot take is beyond it."""
        beyond = [loop for loop in self.outer if not loop.coef][
            : max(0, len(self.outer) - MAX_OUTER)
        ]
        outer = tuple(loop for loop in self.outer if not any(loop is b for b in beyond))
        items = inner.item, inner.target_item
        sides = self.run, self.rows, outer, *items, tuple(beyond), order
        return Choice(kernel, self.channels, *sides)


@dataclass(frozen=True)
class InnerLoops:
    """What a row of the table looks at: canonical loops, the bytes of an item on both sides."""

    loops: tuple[Loop, ...]
    item: int
    target_item: int
    pure: bool  # bits move unchanged: no cast, no formula

    @property
    def last(self) -> Loop:
        """The innermost loop of the output."""
        return self.loops[-1]

    @cached_property
    def row(self) -> Loop | None:
        """The longest loop that is contiguous in the source, where the output has another one."""
        if self.last.dst != self.target_item or self.last.src == self.item:
            return None
        found = [loop for loop in self.loops[:-1] if loop.src == self.item]
        return max(found, key=lambda loop: loop.count) if found else None

    def roles(self, run: Sequence[Loop], rows: Sequence[Loop] = (), *, channels: int = 0) -> Roles:
        """These roles, and all other loops outside."""
        taken = [*run, *rows]
        outer = [loop for loop in self.loops if not any(loop is t for t in taken)]
        return Roles(tuple(run), tuple(rows), tuple(outer), channels)

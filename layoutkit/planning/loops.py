"""The loops of a sum: one nest for the output and all parts, whatever layouts they are in.

A sum visits every element of the output once and needs it from every part. `nest` splits the
output's axes so far that each piece is one step in every part, and then drops, turns around,
orders and fuses loops as `planning.canonical` does for two sides. Pure: integers in and out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import NamedTuple

from ..axes import Move
from .plan import steps_of

__all__ = ["Nest", "Place", "nest"]

Factor = tuple[int, int]  # how many places of an axis, and the bytes from one to the next


class Place(NamedTuple):
    """One loop: its count, the step in the output and the step in each part, in bytes."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which no loop needs
    dst: int
    srcs: tuple[int, ...]


@dataclass(frozen=True)
class Nest:
    """Loops in output order, outermost first, and the offsets of the first element visited."""

    loops: tuple[Place, ...]
    dst_offset: int
    src_offsets: tuple[int, ...]


def nest(
    moves: Sequence[Move], strides: Sequence[tuple[int, ...]], out: tuple[int, ...]
) -> Nest | None:
    """The loops around moves to one shape; `strides` are the parts', `out` the output's.

    None where no nest fits all parts: one that splits an axis of 24 places into 4 by 6, say,
    beside one that splits it into 6 by 4.

    >>> from layoutkit.axes import parse_pattern
    >>> moves = [parse_pattern(p).resolve((2, 3, 4)) for p in ("bcw->bcw", "wcb->bcw")]
    >>> moves[1].target_shape
    (4, 3, 2)
    >>> moves = [parse_pattern("bcw->bcw").resolve((4, 3, 2)), moves[1]]
    >>> nest(moves, [(24, 8, 4), (48, 16, 4)], (24, 8, 4)).loops[0]
    Place(count=4, dst=24, srcs=(24, 4))
    """
    factors = [_factors(move, steps) for move, steps in zip(moves, strides, strict=True)]
    loops: list[Place] = []
    for axis, step in enumerate(out):
        pieces = _split([part[axis] for part in factors])
        if pieces is None:
            return None
        inner = prod(count for count, _ in pieces)
        for count, steps in pieces:
            inner //= count
            loops.append(Place(count, step * inner, steps))
    return _canonical(loops, len(moves))


def _factors(move: Move, strides: tuple[int, ...]) -> list[list[Factor]]:
    """For each axis of the target: the sizes and source steps of its letters, outermost first."""
    source = steps_of(move.source.groups, move.axes, move.sizes, strides)
    step = dict(zip(move.axes, source, strict=True))
    size = dict(zip(move.target_axes, move.target_sizes, strict=True))
    return [
        [(size[letter], step.get(letter, 0)) for letter in group if size[letter] != 1]
        for group in move.target.groups
    ]


def _split(parts: Sequence[list[Factor]]) -> list[tuple[int, tuple[int, ...]]] | None:
    """The common refinement of one axis: (count, a step for each part), outermost first."""
    bounds = {1}
    for factors in parts:
        inner = 1
        for count, _ in reversed(factors):
            inner *= count
            bounds.add(inner)
    edges = sorted(bounds)
    if any(high % low for low, high in pairwise(edges)):
        return None
    spans = reversed(list(pairwise(edges)))
    return [(high // low, tuple(_step(f, low) for f in parts)) for low, high in spans]


def _step(factors: list[Factor], inner: int) -> int:
    """The bytes that a part steps on when its axis goes on by `inner` places."""
    below = 1
    for count, step in reversed(factors):
        if inner < below * count:
            return step * (inner // below)
        below *= count
    raise RuntimeError(f"no factor of {factors} has a step of {inner} places")


def _canonical(loops: list[Place], parts: int) -> Nest:
    """Walk the output forwards, in its order, over as few loops as there can be."""
    dst, srcs = 0, [0] * parts
    turned = []
    for loop in loops:
        if loop.count == 1:
            continue
        if loop.dst < 0:
            dst += (loop.count - 1) * loop.dst
            srcs = [at + (loop.count - 1) * s for at, s in zip(srcs, loop.srcs, strict=True)]
            loop = Place(loop.count, -loop.dst, tuple(-s for s in loop.srcs))
        turned.append(loop)
    turned = turned or [Place(1, 0, (0,) * parts)]
    turned.sort(key=lambda loop: -loop.dst)
    return Nest(tuple(_fuse(turned)), dst, tuple(srcs))


def _fuse(loops: list[Place]) -> list[Place]:
    """Join each loop with its inner neighbour where every side steps on without a gap."""
    fused: list[Place] = []
    for loop in loops:
        if fused and _continues(fused[-1], loop):
            loop = loop._replace(count=loop.count * fused.pop().count)
        fused.append(loop)
    return fused


def _continues(outer: Place, inner: Place) -> bool:
    steps = zip((outer.dst, *outer.srcs), (inner.dst, *inner.srcs), strict=True)
    return all(a == inner.count * b for a, b in steps)

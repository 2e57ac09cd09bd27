"""Conversions of arrays in chunks: how these have to be, what is asked of each, and their plan.

Axes that a conversion only moves keep their chunks, and so does the first axis of a fold. What lies
inside of a fold, and channels that are taken, have to be in one chunk. Knows no library of such.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..layout.parsing import Layout
from ..layout.pattern import Move
from ..normalize import Formula
from .options import Task
from .plan import Plan

__all__ = ["ChunkedPlan", "Chunks", "Rechunked"]

Chunks = tuple[int, ...]  # along an axis
Sides = tuple[tuple[Chunks, ...], tuple[Chunks, ...]]  # of x and of the result


class Rechunked(NamedTuple):
    """What has to be in other chunks before it is converted: along which axes, and its bytes."""

    axes: tuple[str, ...]
    nbytes: int
    chunks: tuple[Chunks, ...]

    def __str__(self) -> str:
        return (
            f"other chunks along {', '.join(self.axes)}: {self.nbytes:,} bytes are put together "
            f"anew; rechunk to {self.chunks} where x is made, or leave these axes whole"
        )


@dataclass(frozen=True)
class ChunkedPlan(Plan):
    """How an array in chunks will be converted, when it is computed; `print` it.

    Attributes
    ----------
    chunks : (before, after)
        Along each axis of x, as it is given, and of the result.
    tasks : int
        How many tasks the conversion adds to the graph, those that rechunk included.
    rechunked : tuple of Rechunked
        What has to be in other chunks first. Empty where every chunk is converted as it is.
    """

    chunks: Sides = ((), ())
    tasks: int = 0
    rechunked: tuple[Rechunked, ...] = ()

    @classmethod
    def of(
        cls, whole: Plan, chunks: Sides, tasks: int, moved: tuple[Rechunked, ...]
    ) -> ChunkedPlan:
        """The plan of the whole, with how it is cut."""
        known = {field.name: getattr(whole, field.name) for field in fields(Plan)}
        return cls(**known, chunks=chunks, tasks=tasks, rechunked=moved)

    @property
    def bytes_rechunked(self) -> int:
        """How many bytes are put together anew before they are converted."""
        return sum(each.nbytes for each in self.rechunked)

    def _details(self) -> list[tuple[str, str]]:
        sides = zip(self.chunks, (self.source, self.target), strict=True)
        largest = [tuple(max(sizes, default=0) for sizes in side) for side in self.chunks]
        nbytes = [
            prod(shape) * spec.dtype.itemsize
            for shape, (_, spec) in zip(largest, sides, strict=True)
        ]
        counts = [prod(map(len, side)) for side in self.chunks]
        lines = [("rechunk", str(each)) for each in self.rechunked]
        lines.append(
            ("chunks", f"{counts[0]:,} of {largest[0]} -> {counts[1]:,} of {largest[1]}, at most")
        )
        lines.append(("a chunk", f"{nbytes[0]:,} bytes read, {nbytes[1]:,} written"))
        return [*super()._details(), *lines, ("tasks", f"{self.tasks:,}")]


# ---- how chunks are cut ------------------------------------------------------------------


def cuts_of(move: Move, chunks: Sequence[Chunks], whole: set[str]) -> dict[str, Chunks]:
    """The chunks of every axis of x, taken apart, as they have to be; `whole` are in one."""
    sizes = dict(zip(move.axes, move.sizes, strict=True))
    inside = {letter for group in move.target.groups for letter in group[1:]} | whole
    cuts: dict[str, Chunks] = {letter: (size,) for letter, size in sizes.items()}
    for group, found in zip(move.source.groups, chunks, strict=True):
        rest = prod(sizes[letter] for letter in group[1:])
        if group[0] not in inside and rest:
            cuts[group[0]] = _counted(found, rest)
    return cuts


def _counted(chunks: Chunks, rest: int) -> Chunks:
    """Chunks in units of `rest`: those that divide one grow to its end."""
    ends, place = [0], 0
    for size in chunks:
        place += size
        end = -(-place // rest)
        if end > ends[-1]:
            ends.append(end)
    return tuple(b - a for a, b in itertools.pairwise(ends)) or (0,)


def folded(layout: Layout, move: Move, cuts: Mapping[str, Chunks]) -> tuple[Chunks, ...]:
    """The chunks along every axis of a side, as folded as it is."""
    found = []
    for group in layout.groups:
        rest = prod(sum(cuts.get(letter, (1,))) for letter in group[1:])
        found.append(tuple(size * rest for size in cuts.get(group[0], (1,))))
    return tuple(found)


class Along(NamedTuple):
    """The constants of a formula where its axis is in several chunks."""

    letter: str
    formulas: tuple[Formula, ...]


def along(formula: Formula | None, move: Move, cuts: Mapping[str, Chunks]) -> Along | None:
    """The constants chunk by chunk; None where all chunks have the same."""
    letter = None if formula is None else formula.letter(move)
    if formula is None or letter is None or len(cuts.get(letter, ())) < 2:
        return None
    if not formula.per_channel:
        return None
    ends = np.cumsum((0, *cuts[letter])).tolist()
    parts = []
    for start, stop in itertools.pairwise(ends):
        cut: dict[str, Any] = {
            name: value[start:stop]
            for name in ("mean", "std")
            if isinstance(value := getattr(formula, name), tuple)
        }
        parts.append(replace(formula, **cut))
    return Along(letter, tuple(parts))


def of_chunks(task: Task, move: Move, cuts: Mapping[str, Chunks]) -> Task:
    """The conversion of a chunk, whose sizes are its own along axes in several."""
    sizes = dict(zip(move.axes, move.sizes, strict=True))
    known = {
        move.source.name(letter): sizes[letter]
        for group in move.source.groups
        if len(group) > 1
        for letter in group
        if letter != group[0] or len(cuts[letter]) == 1
    }
    return task._replace(sizes=known, device=None, threads=task.threads or 1)

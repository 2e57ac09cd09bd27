"""Conversions of chunked arrays: the chunks they need, the conversion of a chunk, and the plan.

Axes that a conversion only moves keep their chunks, and so does the first axis of a fold. The inner
axes of a fold, and an axis whose channels are selected, must be in one chunk.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import isnan, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..layout.parsing import Layout
from ..layout.pattern import Permutation
from ..normalize import Normalization
from .plan import Plan

if TYPE_CHECKING:
    from ..options import ConvertOptions

Chunks = tuple[int, ...]  # along an axis
Sides = tuple[tuple[Chunks, ...], tuple[Chunks, ...]]  # of x and of the result


class Rechunked(NamedTuple):
    """An array that is rechunked before it is converted: the axes, and its size in bytes or nan."""

    axes: tuple[str, ...]
    nbytes: float
    chunks: tuple[Chunks, ...]

    def __str__(self) -> str:
        amount = "all" if isnan(self.nbytes) else f"{self.nbytes:,}"
        return (
            f"other chunks along {', '.join(self.axes)}: {amount} bytes are copied into "
            f"new chunks; rechunk to {self.chunks} where x is made, or leave these axes whole"
        )


@dataclass(frozen=True)
class ChunkedPlan(Plan):
    """The plan of a conversion of a lazy chunked array, for `print`.

    Attributes
    ----------
    chunks : (before, after)
        The chunks along each axis of x, before any rechunking, and of the result.
    tasks : int
        The number of tasks that the conversion adds to the graph, including rechunking.
    rechunked : tuple of Rechunked
        The arrays that are rechunked first. Empty if every chunk is converted as it is.
    """

    chunks: Sides = ((), ())
    tasks: int = 0
    rechunked: tuple[Rechunked, ...] = ()

    @classmethod
    def of(
        cls, plan: Plan, chunks: Sides, tasks: int, rechunked: tuple[Rechunked, ...]
    ) -> ChunkedPlan:
        known = {field.name: getattr(plan, field.name) for field in fields(Plan)}
        return cls(**known, chunks=chunks, tasks=tasks, rechunked=rechunked)

    @property
    def bytes_rechunked(self) -> float:
        """The number of bytes that are rechunked before the conversion; nan if not known."""
        return sum(array.nbytes for array in self.rechunked)

    def _details(self) -> list[tuple[str, str]]:
        sides = zip(self.chunks, (self.source, self.target), strict=True)
        largest = [tuple(max(sizes, default=0) for sizes in side) for side in self.chunks]
        nbytes = [
            prod(shape) * spec.dtype.itemsize
            for shape, (_, spec) in zip(largest, sides, strict=True)
        ]
        counts = [prod(map(len, side)) for side in self.chunks]
        lines = [("rechunk", str(array)) for array in self.rechunked]
        lines.append(
            ("chunks", f"{counts[0]:,} of {largest[0]} -> {counts[1]:,} of {largest[1]}, at most")
        )
        lines.append(("a chunk", f"{nbytes[0]:,} bytes read, {nbytes[1]:,} written"))
        return [*super()._details(), *lines, ("tasks", f"{self.tasks:,}")]


# ---- chunks ------------------------------------------------------------------------------


def find_required_chunks(
    move: Permutation, chunks: Sequence[Chunks], unchunked: set[str]
) -> dict[str, Chunks]:
    """Return the chunks that every unfolded axis of x must have; axes in `unchunked` have one."""
    sizes = dict(zip(move.axes, move.sizes, strict=True))
    unsplit = {letter for group in move.target.groups for letter in group[1:]} | unchunked
    cuts: dict[str, Chunks] = {letter: (size,) for letter, size in sizes.items()}
    for group, axis_chunks in zip(move.source.groups, chunks, strict=True):
        rest = prod(sizes[letter] for letter in group[1:])
        if group[0] not in unsplit and rest:
            cuts[group[0]] = _round_to_units(axis_chunks, rest)
    return cuts


def _round_to_units(chunks: Chunks, rest: int) -> Chunks:
    """Return chunks in units of `rest`: a chunk that ends inside a unit grows to its end."""
    ends = [0]
    stop = 0
    for size in chunks:
        stop += size
        unit_end = -(-stop // rest)
        if unit_end > ends[-1]:
            ends.append(unit_end)
    return tuple(b - a for a, b in itertools.pairwise(ends)) or (0,)


def folded_chunks(
    layout: Layout, move: Permutation, cuts: Mapping[str, Chunks]
) -> tuple[Chunks, ...]:
    """Return the chunks along every axis of a layout, from the chunks of its unfolded axes."""
    folded_chunks = []
    for group in layout.groups:
        rest = prod(sum(cuts.get(letter, (1,))) for letter in group[1:])
        folded_chunks.append(tuple(size * rest for size in cuts.get(group[0], (1,))))
    return tuple(folded_chunks)


class ChunkedConstants(NamedTuple):
    """The constants of a formula whose axis is in several chunks."""

    letter: str
    formulas: tuple[Normalization, ...]


def cut_constants(
    formula: Normalization | None, move: Permutation, cuts: Mapping[str, Chunks]
) -> ChunkedConstants | None:
    """Return the constants per chunk; None if all chunks use equal constants."""
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
    return ChunkedConstants(letter, tuple(parts))


def make_chunk_options(
    options: ConvertOptions, move: Permutation, cuts: Mapping[str, Chunks]
) -> ConvertOptions:
    """Return the conversion of a chunk; sizes of axes that have several chunks are not fixed."""
    sizes = dict(zip(move.axes, move.sizes, strict=True))
    known = {
        move.source.name(letter): sizes[letter]
        for group in move.source.groups
        if len(group) > 1
        for letter in group
        if letter != group[0] or len(cuts[letter]) == 1
    }
    return replace(options, sizes=known, device=None, threads=options.threads or 1)

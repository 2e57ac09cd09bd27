"""The order of a mixture of sources: the source of each position, and its record there.

Of the first n positions, a source has n times its share, to within half the number of sources. The
first source has its rounded share of all positions, the second one its rounded share of the others,
and so on, so the number of each source before any position is a short formula.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..._utils.random import hash64, permute_index
from ...errors import DataError
from ...memory import Array
from ..sources.mixture import MixedIndex
from .orders import Order

_MAX_POSITIONS = 1 << 62


class Phase(NamedTuple):
    """Positions of an epoch in which the same sources take part."""

    start: int
    stop: int
    taken: tuple[int, ...]  # records of each source before the phase
    shares: tuple[int, ...]  # of each source, 0 after its end


@dataclass(frozen=True)
class Mixture:
    """The sources of a mixture, and the phases of an epoch."""

    sizes: Array  # (sources,) uint64, numbers of records
    starts: Array  # (sources,) uint64, numbers of their first records in the index
    phases: tuple[Phase, ...]
    repeats: bool  # sources that end begin again, so the last phase has no end

    @classmethod
    def of(cls, index: MixedIndex) -> Mixture:
        """Return the mixture of an index; raise DataError if an epoch would be too long."""
        sizes = index.sizes.tolist()
        repeats = index.on_end == "repeat"
        if repeats:
            phases = [_whole_phase(sizes, index.shares)]
        else:
            phases = _divide_epoch(sizes, index.shares)
            phases = phases[:1] if index.on_end == "stop" else phases
        as_unsigned = index.sizes.astype(np.uint64), index.starts.astype(np.uint64)
        return cls(*as_unsigned, tuple(phases), repeats)

    @property
    def size(self) -> int:
        """The number of positions until the epoch's end or, if sources repeat, until all ended."""
        return self.phases[-1].stop

    def locate(self, positions: Array) -> tuple[Array, Array]:
        """Return the source of each position, and the number of its records before the position."""
        sources = np.zeros(len(positions), np.int64)
        numbers = np.zeros(len(positions), np.uint64)
        for phase in self.phases:
            is_last = phase is self.phases[-1]  # which may go on
            inside = (positions >= phase.start) & (is_last | (positions < phase.stop))
            local = positions[inside] - np.uint64(phase.start)
            before, after = divide(local, phase.shares), divide(local + np.uint64(1), phase.shares)
            chosen = np.argmax(np.not_equal(before, after), axis=0)
            taken = np.array(phase.taken, np.uint64)[chosen]
            sources[inside] = chosen
            numbers[inside] = taken + np.stack(before)[chosen, np.arange(len(chosen))]
        return sources, numbers


def divide(count: Any, shares: Sequence[int]) -> list[Any]:
    """Return the number of positions of each source among the first `count`, also of an array.

    Exact for arrays of uint64 if the sum of shares is at most 2^32.
    """
    numbers = []
    rest, total = count, sum(shares)
    for share in shares:
        number = _round_share(rest, share, total) if share else rest * 0
        numbers.append(number)
        rest = rest - number
        total -= share
    return numbers


def _round_share(count: Any, share: int, total: int) -> Any:
    """Return count * share / total, rounded, without overflow."""
    return count // total * share + (count % total * share + total // 2) // total


def _whole_phase(sizes: Sequence[int], shares: Sequence[int]) -> Phase:
    """Return the phase until every source has ended once."""

    def is_complete(count: int) -> bool:
        numbers = divide(count, shares)
        return all(number >= size for number, size in zip(numbers, sizes, strict=True))

    stop = _find_first(is_complete)
    return Phase(0, stop, (0,) * len(sizes), tuple(shares))


def _divide_epoch(sizes: Sequence[int], shares: Sequence[int]) -> list[Phase]:
    """Return the phases until all sources have ended; each ends before a record that is missing."""
    phases: list[Phase] = []
    start, taken = 0, (0,) * len(sizes)
    while start < sum(sizes):
        left = [size - number for size, number in zip(sizes, taken, strict=True)]
        now = tuple(share if rest else 0 for share, rest in zip(shares, left, strict=True))

        def is_missing(count: int, now: tuple[int, ...] = now, left: Sequence[int] = left) -> bool:
            return any(n > rest for n, rest in zip(divide(count, now), left, strict=True))

        length = _find_first(is_missing) - 1
        phases.append(Phase(start, start + length, taken, now))
        more = divide(length, now)
        taken = tuple(a + b for a, b in zip(taken, more, strict=True))
        start += length
    return phases


def _find_first(is_reached: Any) -> int:
    """Return the smallest count for which a monotonic condition is true."""
    stop = 1
    while not is_reached(stop):
        stop *= 2
        if stop > _MAX_POSITIONS:
            raise DataError(
                "a source has so little weight that all sources need more than 2^62 records to end "
                'once; give it more, or on_end="stop"'
            )
    return bisect_left(range(stop + 1), True, key=is_reached)


class MixedOrder(Order):
    """The sources of a mixture in their shares, each in its own order."""

    def _numbers(self, positions: Array) -> Array:
        mixture: Mixture = self.plan.material
        sources, numbers = mixture.locate(positions)
        sizes = mixture.sizes[sources]
        places = self._places(sources.astype(np.uint64), numbers // sizes, numbers % sizes, sizes)
        return mixture.starts[sources] + places

    def _places(self, sources: Array, passes: Array, places: Array, sizes: Array) -> Array:
        """Return the record at a place of a pass through each source."""
        return places


class PermutedMixture(MixedOrder):
    """The sources of a mixture in their shares; each record of a source once in each pass."""

    def _places(self, sources: Array, passes: Array, places: Array, sizes: Array) -> Array:
        return permute_index(hash64(hash64(self.key, sources), passes), places, sizes)

"""Choose the boxes of `permute.cu`: iterations of some loops, contiguous in parts on both sides.

A box is read in rows, which are contiguous in the source, and written in runs, which are contiguous
in the output. The loops of a row are the first of those that are contiguous in the source, and the
outermost of them may be divided; the same holds for runs. The speed of each box is estimated: the
sectors that it touches, the instructions of its threads, and the bank conflicts of its look-ups.
Pure: integers in and out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, prod, sqrt
from typing import NamedTuple

import numpy as np

from ...planning.loops import Loop
from . import policy
from .policy import BANK, LINE, SECTOR, THREADS, TILE_BYTES, WARP, WORD
from .tiling import lost_bytes


class BoxCandidate(NamedTuple):
    """A possible box: iterations of its loops, and the loops of rows and of runs, innermost first.

    itemsizes  the sizes in bytes of an item in the source and in the output
    alignment  the alignment in bytes of all rows, and of all runs
    """

    counts: dict[Loop, int]
    row: list[Loop]
    run: list[Loop]
    itemsizes: tuple[int, int]
    alignment: tuple[int, int]

    @property
    def size(self) -> int:
        """The number of items in the box."""
        return prod(self.counts.values())

    @property
    def row_items(self) -> int:
        """The number of items in a row."""
        return prod(self.counts[n] for n in self.row)

    @property
    def run_items(self) -> int:
        """The number of items in a run."""
        return prod(self.counts[n] for n in self.run)

    @property
    def least_bytes(self) -> int:
        """The least size in bytes of the box in shared memory."""
        source, _ = self.itemsizes
        gap = 2 * (WORD - min(WORD, self.alignment[0]))
        return self.size // self.row_items * (self.row_items * source + gap)

    @property
    def fullness(self) -> float:
        """The share of all boxes that is inside of the loops; less if they are small."""
        full = prod(n.count / (-(-n.count // count) * count) for n, count in self.counts.items())
        return full * sqrt(min(1, self.size * self.itemsizes[0] / TILE_BYTES))

    @property
    def sectors(self) -> float:
        """The number of sectors touched, relative to a copy of the same size."""
        source, target = self.itemsizes
        read = policy.ROW_LOST + policy.ROW_CUT * (1 - self.alignment[0] / SECTOR)
        written = lost_bytes(self.alignment[1], is_read=False) / self.run_items
        return policy.SECTORS + (read / self.row_items + written) / (source + target)


@dataclass(frozen=True)
class Box:
    """A box with its loops in the order of the output, outermost first.

    slots      the byte stride of each loop in shared memory
    in_row     True for the loops of a row
    row_end    the number of the outermost loop of a row
    run_loops  the number of loops of a run, which are the innermost ones
    word       the number of items that a thread writes at once
    group      the number of threads that write a run
    shared     the size in bytes of the box in shared memory
    share      the estimated speed relative to a copy
    """

    loops: tuple[Loop, ...]
    counts: tuple[int, ...]
    slots: tuple[int, ...]
    in_row: tuple[bool, ...]
    row_end: int
    run_loops: int
    word: int
    group: int
    alignment: tuple[int, int]
    shared: int
    share: float


def find_box(
    nest: Sequence[Loop], itemsizes: tuple[int, int], addresses: tuple[int, int]
) -> Box | None:
    """Return the fastest box; None if no loop is contiguous on a side.

    `itemsizes`: of the source and of the output, in bytes. `addresses`: of the first items.
    """
    most = policy.MOST_BOX_BYTES
    fitting = (n for n in _candidates(nest, itemsizes, addresses) if n.least_bytes <= most)
    candidates = sorted(fitting, key=lambda candidate: candidate.sectors / candidate.fullness)
    boxes = [
        _box(candidate, 1 << more)
        for candidate in candidates[: policy.TRIED_BOXES]
        for more in range((WORD // max(itemsizes)).bit_length())
    ]
    fitting_boxes = (box for box in boxes if box.shared <= most)
    return max(fitting_boxes, key=lambda box: box.share, default=None)


def _candidates(
    nest: Sequence[Loop], itemsizes: tuple[int, int], addresses: tuple[int, int]
) -> Iterator[BoxCandidate]:
    """Yield all boxes to compare."""
    rows, runs = (_contiguous(nest, side, item) for side, item in enumerate(itemsizes, 1))
    for a, b in product(range(1, len(rows) + 1), range(1, len(runs) + 1)):
        row, run = rows[:a], runs[:b]
        loops = {*row, *run}
        # The outermost loop of a part may be divided, unless the other part goes on beyond it.
        divided = {row[-1]} - {*run[:-1]} | {run[-1]} - {*row[:-1]}
        room = policy.MOST_BOX_BYTES // itemsizes[0] // prod(n.count for n in loops - divided)
        if len(loops) > policy.MOST_BOX_LOOPS or not room:
            continue
        for lengths in product(*(_lengths(n.count, room) for n in divided)):
            if prod(lengths) <= room:
                counts = {n: n.count for n in loops} | dict(zip(divided, lengths, strict=True))
                alignment = _alignments(nest, counts, (row, run), addresses)
                yield BoxCandidate(counts, row, run, itemsizes, alignment)


def _contiguous(nest: Sequence[Loop], side: int, item: int) -> list[Loop]:
    """Return the loops that are contiguous on a side, innermost first."""
    fit = [n for n in nest if n.src > 0 and n.dst > 0 and n.count > 1]
    loops: list[Loop] = []
    length = item
    while following := next((n for n in fit if n[side] == length), None):
        loops.append(following)
        length *= following.count
    return loops


def _lengths(count: int, most: int) -> set[int]:
    """Return candidate lengths: the loop divided by 1 to 16, and 1 or 3 times a power of two."""
    parts = {-(-count // n) for n in range(1, 17)}
    powers = {odd << more for more in range(12) for odd in (1, 3)}
    return {n for n in parts | powers if n <= min(count, most)}


def _alignments(
    nest: Sequence[Loop],
    counts: dict[Loop, int],
    parts: tuple[list[Loop], list[Loop]],
    addresses: tuple[int, int],
) -> tuple[int, int]:
    """Return the alignment in bytes of all rows, and of all runs."""
    alignments = []
    for side, part, address in zip((1, 2), parts, addresses, strict=True):
        steps = [n.steps[side - 1] for n in nest if n not in part]
        steps += [n.steps[side - 1] * counts[n] for n in part if counts[n] < n.count]
        alignments.append(gcd(SECTOR, address, *steps))
    return alignments[0], alignments[1]


# ---- the speed of a box ------------------------------------------------------------------


def _box(candidate: BoxCandidate, word: int) -> Box:
    """Return the box whose threads write `word` items at once."""
    loops = sorted(candidate.counts, key=lambda n: n.dst, reverse=True)
    source, target = candidate.itemsizes
    size = candidate.size
    rows, runs = size // candidate.row_items, size // candidate.run_items
    row_bytes = candidate.row_items * source + WORD - min(WORD, candidate.alignment[0])
    read = rows * -(-row_bytes // WORD)
    words = -(-(candidate.run_items * target + SECTOR - candidate.alignment[1]) // (word * target))
    # Threads that write together write whole sectors.
    wide = [n for n in policy.WRITERS if n * word * target >= SECTOR]
    instructions, group = min((_write_instructions(candidate, word, words, n), n) for n in wide)
    instructions += THREADS * policy.INSTRUCTIONS_PER_THREAD
    instructions += read * policy.INSTRUCTIONS_PER_WORD_READ
    thread = np.arange(THREADS)
    first = thread // group % runs * candidate.run_items + thread % group % words * word
    slots = _slots(loops, candidate, first)
    conflicts = _conflicts(loops, candidate.counts, slots, first)
    shared = sum((candidate.counts[n] - 1) * slots[n] for n in loops) + source + 2 * WORD
    pipe = (read * WORD * 2 + runs * words * word * target) / LINE + size * conflicts / WARP
    copy = size * (source + target) / policy.COPIED_BYTES
    # The three resources work at the same time, and the slowest one limits the others.
    issue = instructions / policy.ISSUED_INSTRUCTIONS
    demands = candidate.sectors, issue / copy, policy.PIPE_SHARE * pipe / copy
    power = policy.SMOOTH_MAXIMUM
    slowness = sum(demand**power for demand in demands) ** (1 / power)
    blocks = min(policy.MOST_BLOCKS, policy.PROCESSOR_BYTES // (shared + policy.RESERVED_BYTES))
    return Box(
        tuple(loops),
        tuple(candidate.counts[n] for n in loops),
        tuple(slots[n] for n in loops),
        tuple(n in candidate.row for n in loops),
        loops.index(candidate.row[-1]),
        len(candidate.run),
        word,
        group,
        candidate.alignment,
        shared,
        candidate.fullness / slowness * (blocks / policy.MOST_BLOCKS) ** policy.BLOCKS_POWER,
    )


def _write_instructions(candidate: BoxCandidate, word: int, words: int, group: int) -> int:
    """Return the number of instructions, over all threads, that write the runs."""
    runs = candidate.size // candidate.run_items
    ends = 2 * word if candidate.alignment[1] < word * candidate.itemsizes[1] else 0
    outer_loops = len(candidate.counts) - len(candidate.run)
    each = policy.INSTRUCTIONS_PER_RUN + policy.INSTRUCTIONS_PER_OUTER_LOOP * outer_loops
    each += -(-words // group) * _word_instructions(candidate, word)
    each += -(-ends // group) * policy.INSTRUCTIONS_PER_END_ITEM
    return -(-runs * group // THREADS) * THREADS * each


def _word_instructions(candidate: BoxCandidate, word: int) -> int:
    """Return the number of instructions of a thread that writes a word."""
    loops = len(candidate.run)
    if loops == 1:
        return 12 + 5 * word // 2
    if word > candidate.counts[candidate.run[0]] + 1:  # each item has its own iteration
        return 12 + (6 + 7 * loops) * word // 2
    return 5 + 7 * loops + 19 * word // 4


def _slots(loops: Sequence[Loop], candidate: BoxCandidate, first: np.ndarray) -> dict[Loop, int]:
    """Return the byte stride of each loop in shared memory.

    Rows keep the alignment that they have in the source, and are so far apart that no two of them
    share a word. Their distances are such that the threads of a warp meet different banks, if
    possible; `first`: the first item that each thread looks up.
    """
    slots = {n: n.src for n in loops if n in candidate.row}
    extent = candidate.row_items * candidate.itemsizes[0]
    for loop in [n for n in reversed(loops) if n not in slots]:
        least = extent + 2 * (WORD - min(WORD, candidate.alignment[0]))
        least += (loop.src - least) % WORD
        last = candidate.counts[loop] - 1
        pitches = [least + WORD * n for n in range(policy.PITCHES)]
        room = policy.MOST_BOX_BYTES - extent
        fit = [pitch for pitch in pitches if last * pitch <= room] or pitches[:1]
        tables = [slots | {loop: pitch} for pitch in fit]
        conflicts = [_conflicts(loops, candidate.counts, table, first) for table in tables]
        slots[loop] = fit[conflicts.index(min(conflicts))]
        extent += last * slots[loop]
    return slots


def _conflicts(
    loops: Sequence[Loop], counts: dict[Loop, int], slots: dict[Loop, int], first: np.ndarray
) -> float:
    """Return the mean number of serialized accesses as a warp looks up an item per thread."""
    place = np.zeros_like(first)
    for loop in reversed(loops):
        first, turn = np.divmod(first, counts[loop])
        place += turn * slots.get(loop, 0)
    # The distinct words of each warp, and their number in each bank.
    warp = np.arange(len(place)) // WARP
    words = np.unique(warp << 32 | place // BANK)
    banks = (words >> 32) * WARP + words % (LINE // BANK)
    return float(np.bincount(banks, minlength=THREADS).reshape(-1, WARP).max(1).mean())

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
from .tiling import BANK, LINE, SECTOR, THREADS, TILE_BYTES, WARP, WORD, lost_bytes

MOST_BYTES = 36 << 10  # of shared memory for a box: a multiprocessor takes six of them
MOST_LOOPS = 6
MOST_BLOCKS = 8  # of a multiprocessor
SHARED_BYTES = 227 << 10  # of a multiprocessor, and what each block takes besides its box
RESERVED_BYTES = 1 << 10
TRIED = 8  # boxes whose conflicts are counted: those that touch the fewest sectors
PITCHES = 8  # distances of rows in shared memory to try
GROUPS = (8, 16, 32, 64, 128, 256)  # threads that write a run

# Bytes that a multiprocessor of an H100 copies in a cycle, and instructions that its threads issue.
COPIED_BYTES = 11.5
INSTRUCTIONS = 128
# What 350 boxes on an H100 have taken (2026-11-26): the sectors of long rows and runs, bytes that
# each row takes in addition, and more if it begins or ends within a sector (for runs see
# `lost_bytes`), and the share of the accesses to shared memory that limits them.
SECTORS = 1.05
ROW_LOST, ROW_CUT = 20, 30
PIPED = 0.65
# Instructions, counted in the machine code: of a thread, of a word that it reads, of a run that it
# writes, without and for each loop around it, and of an item at the end of a run.
FIXED, READ, RUN, AROUND, END = 120, 40, 30, 7, 40


class Parts(NamedTuple):
    """A box: iterations of its loops, and the loops of rows and of runs, innermost first.

    items      the bytes of an item in the source and in the output
    alignment  the bytes of which the addresses of all rows, and of all runs, are multiples
    """

    counts: dict[Loop, int]
    row: list[Loop]
    run: list[Loop]
    items: tuple[int, int]
    alignment: tuple[int, int]

    @property
    def size(self) -> int:
        """The items of the box."""
        return prod(self.counts.values())

    @property
    def row_items(self) -> int:
        """The items of a row."""
        return prod(self.counts[n] for n in self.row)

    @property
    def run_items(self) -> int:
        """The items of a run."""
        return prod(self.counts[n] for n in self.run)

    @property
    def least_bytes(self) -> int:
        """The least bytes of shared memory."""
        source, _ = self.items
        gap = 2 * (WORD - min(WORD, self.alignment[0]))
        return self.size // self.row_items * (self.row_items * source + gap)

    @property
    def fullness(self) -> float:
        """The share of all boxes that is inside of the loops; less if they are small."""
        full = prod(n.count / (-(-n.count // count) * count) for n, count in self.counts.items())
        return full * sqrt(min(1, self.size * self.items[0] / TILE_BYTES))

    @property
    def sectors(self) -> float:
        """The sectors that the box touches, over those of a copy of as many bytes."""
        source, target = self.items
        read = (ROW_LOST + ROW_CUT * (1 - self.alignment[0] / SECTOR)) / self.row_items
        written = lost_bytes(self.alignment[1], is_read=False) / self.run_items
        return SECTORS + (read + written) / (source + target)


@dataclass(frozen=True)
class Box:
    """A box with its loops in the order of the output, outermost first.

    slots      the bytes in shared memory from one iteration of each loop to the next
    in_row     True for the loops of a row
    row_end    the number of the outermost loop of a row
    run_loops  the loops of a run, which are the innermost ones
    word       the items that a thread writes at once
    group      the threads that write a run
    shared     the bytes of shared memory
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
    nest: Sequence[Loop], items: tuple[int, int], addresses: tuple[int, int]
) -> Box | None:
    """Return the fastest box; None if no loop is contiguous on a side.

    `items`: the bytes of an item in the source and in the output. `addresses`: of the first items.
    """
    fitting = (n for n in _candidates(nest, items, addresses) if n.least_bytes <= MOST_BYTES)
    candidates = sorted(fitting, key=lambda parts: parts.sectors / parts.fullness)
    boxes = [
        _box(parts, 1 << more)
        for parts in candidates[:TRIED]
        for more in range((WORD // max(items)).bit_length())
    ]
    return max(
        (box for box in boxes if box.shared <= MOST_BYTES), key=lambda box: box.share, default=None
    )


def _candidates(
    nest: Sequence[Loop], items: tuple[int, int], addresses: tuple[int, int]
) -> Iterator[Parts]:
    """Yield the parts of all boxes to compare."""
    rows, runs = (_contiguous(nest, side, item) for side, item in zip((1, 2), items, strict=True))
    for a, b in product(range(1, len(rows) + 1), range(1, len(runs) + 1)):
        row, run = rows[:a], runs[:b]
        loops = {*row, *run}
        # The outermost loop of a part may be divided, unless the other part goes on beyond it.
        divided = {row[-1]} - {*run[:-1]} | {run[-1]} - {*row[:-1]}
        room = MOST_BYTES // items[0] // prod(n.count for n in loops - divided)
        if len(loops) > MOST_LOOPS or not room:
            continue
        for lengths in product(*(_lengths(n.count, room) for n in divided)):
            if prod(lengths) <= room:
                counts = {n: n.count for n in loops} | dict(zip(divided, lengths, strict=True))
                alignment = _alignments(nest, counts, (row, run), addresses)
                yield Parts(counts, row, run, items, alignment)


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
    """Return the numbers of iterations to try: few equal parts of a loop, and round numbers."""
    parts = {-(-count // n) for n in range(1, 17)}
    powers = {odd << more for more in range(12) for odd in (1, 3)}
    return {n for n in parts | powers if n <= min(count, most)}


def _alignments(
    nest: Sequence[Loop],
    counts: dict[Loop, int],
    parts: tuple[list[Loop], list[Loop]],
    addresses: tuple[int, int],
) -> tuple[int, int]:
    """Return the bytes of which the addresses of all rows, and of all runs, are multiples."""
    alignments = []
    for side, part, address in zip((1, 2), parts, addresses, strict=True):
        steps = [n.steps[side - 1] for n in nest if n not in part]
        steps += [n.steps[side - 1] * counts[n] for n in part if counts[n] < n.count]
        alignments.append(gcd(SECTOR, address, *steps))
    return alignments[0], alignments[1]


# ---- the speed of a box ------------------------------------------------------------------


def _box(parts: Parts, word: int) -> Box:
    """Return a box that writes words of so many items."""
    loops = sorted(parts.counts, key=lambda n: n.dst, reverse=True)
    source, target = parts.items
    size = parts.size
    rows, runs = size // parts.row_items, size // parts.run_items
    read = rows * -(-(parts.row_items * source + WORD - min(WORD, parts.alignment[0])) // WORD)
    words = -(-(parts.run_items * target + SECTOR - parts.alignment[1]) // (word * target))
    # Threads that write together write whole sectors.
    wide = [n for n in GROUPS if n * word * target >= SECTOR]
    instructions, group = min((_write_instructions(parts, word, words, n), n) for n in wide)
    instructions += THREADS * FIXED + read * READ
    thread = np.arange(THREADS)
    first = thread // group % runs * parts.run_items + thread % group % words * word
    slots = _slots(loops, parts, first)
    conflicts = _conflicts(loops, parts.counts, slots, first)
    shared = sum((parts.counts[n] - 1) * slots[n] for n in loops) + source + 2 * WORD
    pipe = (read * WORD * 2 + runs * words * word * target) / LINE + size * conflicts / WARP
    copy = size * (source + target) / COPIED_BYTES
    # The three resources work at the same time, and the slowest one limits the others.
    demands = parts.sectors, instructions / INSTRUCTIONS / copy, PIPED * pipe / copy
    slowness = sum(demand**4 for demand in demands) ** 0.25
    blocks = min(MOST_BLOCKS, SHARED_BYTES // (shared + RESERVED_BYTES))
    return Box(
        tuple(loops),
        tuple(parts.counts[n] for n in loops),
        tuple(slots[n] for n in loops),
        tuple(n in parts.row for n in loops),
        loops.index(parts.row[-1]),
        len(parts.run),
        word,
        group,
        parts.alignment,
        shared,
        parts.fullness / slowness * (blocks / MOST_BLOCKS) ** 0.1,
    )


def _write_instructions(parts: Parts, word: int, words: int, group: int) -> int:
    """Return the instructions of all threads to write runs of so many words in groups."""
    runs = parts.size // parts.run_items
    ends = 2 * word if parts.alignment[1] < word * parts.items[1] else 0
    each = RUN + AROUND * (len(parts.counts) - len(parts.run))
    each += -(-words // group) * _word_instructions(parts, word) + -(-ends // group) * END
    return -(-runs * group // THREADS) * THREADS * each


def _word_instructions(parts: Parts, word: int) -> int:
    """Return the instructions of a thread to write a word."""
    loops = len(parts.run)
    if loops == 1:
        return 12 + 5 * word // 2
    if word > parts.counts[parts.run[0]] + 1:  # each item has its own iteration
        return 12 + (6 + 7 * loops) * word // 2
    return 5 + 7 * loops + 19 * word // 4


def _slots(loops: Sequence[Loop], parts: Parts, first: np.ndarray) -> dict[Loop, int]:
    """Return the bytes in shared memory from one iteration of each loop to the next.

    Rows lie there with the alignment that they have in the source, and so far apart that no two of
    them share a word. Their distances are such that the threads of a warp meet different banks, if
    possible; `first`: the first item that each thread looks up.
    """
    slots = {n: n.src for n in loops if n in parts.row}
    extent = parts.row_items * parts.items[0]
    for loop in [n for n in reversed(loops) if n not in slots]:
        least = extent + 2 * (WORD - min(WORD, parts.alignment[0]))
        least += (loop.src - least) % WORD
        last = parts.counts[loop] - 1
        pitches = [least + WORD * n for n in range(PITCHES)]
        fit = [pitch for pitch in pitches if extent + last * pitch <= MOST_BYTES] or pitches[:1]
        conflicts = [_conflicts(loops, parts.counts, slots | {loop: pitch}, first) for pitch in fit]
        slots[loop] = fit[conflicts.index(min(conflicts))]
        extent += last * slots[loop]
    return slots


def _conflicts(
    loops: Sequence[Loop], counts: dict[Loop, int], slots: dict[Loop, int], first: np.ndarray
) -> float:
    """Return how many accesses follow each other, on average, as a warp looks up an item each."""
    place = np.zeros_like(first)
    for loop in reversed(loops):
        first, turn = np.divmod(first, counts[loop])
        place += turn * slots.get(loop, 0)
    # The distinct words of each warp, and how many of them lie in each bank.
    warp = np.arange(len(place)) // WARP
    words = np.unique(warp << 32 | place // BANK)
    banks = (words >> 32) * WARP + words % (LINE // BANK)
    return float(np.bincount(banks, minlength=THREADS).reshape(-1, WARP).max(1).mean())

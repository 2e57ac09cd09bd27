"""Prepare the launch of a conversion kernel: its machine code, parameter block and work units.

The kernel's Tiling (tiling.py) divides the loops into blocks. This module decides between plain and
streaming stores, and writes the parameter block (params.py). It does not import Numba. The
constants are tuned; docs/performance.md has the measurements.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import chain

from ...planning.epilogue import Epilogue
from ...planning.select import KernelChoice, count_iterations
from .caches import l2_cache_bytes, result_cache_bytes
from .compiler import KernelSpec
from .params import HEAD, LINE, MAX_LOOPS, WORDS
from .tiling import TILINGS, Tiling, has_full_lanes, rows_alignment, streams_single_lines

# Larger outputs bypass the caches: they would be evicted before they are read again, and a plain
# store first reads the line that it is about to overwrite.
STREAM_BYTES = result_cache_bytes()
# Transposes store to 16 and more rows in turn, which the prefetcher does not follow. On AMD they
# bypass the caches from an eighth of this size if rows are full lines, else from half of it: with
# plain stores, 1 to 8 MB took 1.1 to 2.7 times as long, or 1.1 to 1.4 times with other work before
# and a sum of the result after it (EPYC, 2026-11-27). On an Intel Xeon, conversions of 2 to 6 MB
# and sums of their results were faster with plain stores (2026-11-23).
ALIGNED_TRANSPOSES = 8
OTHER_TRANSPOSES = 2
# Bytes that a thread claims at a time. Two threads reached 0.82 of the limit with chunks of this
# size, and 0.77 with small chunks.
CHUNK_BYTES = 1 << 20
_SHARES = 16  # minimum chunks of a job, so that threads end together


@dataclass(frozen=True)
class Launch:
    """A prepared kernel: spec, parameter block, work units, and units per chunk (`grain`)."""

    spec: KernelSpec
    params: bytes
    units: int
    grain: int


def prepare(
    choice: KernelChoice,
    epilogue: Epilogue | None,
    alignment: int,
    stream: bool | None = None,
    source_bytes: int | None = None,
) -> Launch:
    """Return the Launch of a kernel choice.

    `epilogue` None: a pure move of items of `choice.source_item` bytes. `alignment`: a power of
    two, at most a cache line, that divides the output's address. `stream`: bypass the caches if the
    rows allow it; None: only if the output is large. `source_bytes`: the size of the array that the
    source is a part of; None: of the items that the kernel reads.
    """
    items = choice.count
    if source_bytes is None:
        source_bytes = items * choice.source_item
    if stream is None:
        stream = items * choice.target_item >= _stream_bytes(choice, alignment)
    tiling = TILINGS[choice.kernel](choice, epilogue, alignment, stream)
    params, units = _pack_params(tiling, is_cached=source_bytes < l2_cache_bytes())
    bytes_moved = items * (choice.source_item + choice.target_item)
    return Launch(tiling.spec(), params, units, _grain(bytes_moved, units))


def _stream_bytes(choice: KernelChoice, alignment: int) -> int:
    """Return the size in bytes from which the output of a kernel bypasses the caches."""
    if not (streams_single_lines() and has_full_lanes(choice)):
        return STREAM_BYTES
    is_aligned = rows_alignment(choice, alignment) == LINE
    return STREAM_BYTES // (ALIGNED_TRANSPOSES if is_aligned else OTHER_TRANSPOSES)


def choose_shares(count: int, nbytes: int) -> tuple[int, int]:
    """Return the number of shares of each of `count` launches, and the shares per chunk."""
    share = max(1, -(-nbytes // (CHUNK_BYTES * count)), -(-_SHARES // count))
    units = count * share
    return share, max(1, min(CHUNK_BYTES * units // max(1, nbytes), units // _SHARES))


def _pack_params(tiling: Tiling, is_cached: bool) -> tuple[bytes, int]:
    """Return the parameter block and the number of work units.

    `is_cached`: the source fits the L2 cache, so that it is not prefetched.
    """
    run, rows = tiling.axes()
    loops, r_loop, q_loop = tiling.walk(run, rows)
    if len(loops) > MAX_LOOPS:  # kernels would read all other parameters from the wrong words
        raise RuntimeError(f"{len(loops)} loops around a block; kernels accept {MAX_LOOPS}")
    coefficients, coef_rows = tiling.coefficients(run, rows)
    pitch = tiling.pitch(run.longest_block)
    tables, starts = _concatenate(run.table, tiling.row_offsets(rows, pitch), rows.table, coef_rows)
    words = [len(loops), *chain.from_iterable([loop[:4] for loop in loops])]
    words += [0] * (HEAD - len(words))
    words += [r_loop, run.total, run.block, run.blocks - 1, starts[0], run.period, run.step]
    words += [q_loop, rows.total, rows.block, rows.blocks - 1, starts[1]]
    end = WORDS + len(tables)
    bounds = tiling.bounds()
    first = end + len(bounds) // 8
    half = len(coefficients) // 16
    words += [
        pitch,
        starts[2],
        starts[3],
        end,
        first,
        first + half,
        tiling.out_stride,
        tiling.rows_contiguous,
        _source_bytes(tiling.choice),
        tiling.halo(run),
        tiling.run_reach(run),
        not is_cached and tiling.can_prefetch(),
    ]
    params = struct.pack(f"{end}q", *words, *tables) + bounds + coefficients
    return params, count_iterations(loops)


def _source_bytes(choice: KernelChoice) -> int:
    """Return the size in bytes from the first item that a kernel reads to the end of its memory."""
    loops = choice.nest
    return sum([(loop.count - 1) * max(0, loop.src) for loop in loops]) + choice.source_item


def _concatenate(*tables: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Concatenate tables; return their words and the word index of each table."""
    starts: list[int] = []
    words: list[int] = []
    for table in tables:
        starts.append(WORDS + len(words))
        words += table
    return words, starts


def _grain(bytes_moved: int, units: int) -> int:
    """Return the number of work units per chunk."""
    return max(1, min(CHUNK_BYTES * units // max(1, bytes_moved), units // _SHARES))

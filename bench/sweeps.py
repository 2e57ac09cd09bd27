"""Rows that no kernel was tuned for: random moves, HPTT's benchmark, channel counts, run lengths.

`--random`     moves and casts of 2 to 6 axes, in any order, of sizes 1 to 2,048 and 0.1 to 120 MB
`--hptt57`     the 57 float32 permutations of HPTT's benchmark, the longest axis cut to a quarter
`--channels`   bhwc to bchw and back for every channel count from 2 to 64
`--runs`       (a, b, n) bytes to (b, a, n): runs of 8 to 4,096 bytes, which stay contiguous
PATTERN        one conversion, of a shape and dtypes that the user gives
`--floor`      some rows of these and of the standard table, each with a share of the limit that
               it must reach: a third to a half of what an idle machine reaches

Every row is compared with a streaming pass over the same bytes (the limit), NumPy, torch and, if
installed, HPTT; on a GPU, with a device copy, CuPy and torch, and in larger sizes (see device.py).
All permutations are listed in `HPTT57`: order and sizes as in HPTT's benchmark.sh, whose first axis
is the fastest.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from math import exp, log
from string import ascii_lowercase

from ..converter import plan
from ..errors import ArgumentError
from ..layout.pattern import parse_pattern
from ..spec import as_dtype
from .rows import Row

LETTERS = "uvwxyz"
SMALLEST, LARGEST = 1e5, 1.2e8  # bytes of the source and of the result of random rows, together
LONGEST = 2048  # items along an axis of a random row
# The dtypes of random rows: two thirds are moves, one third are casts.
MOVES = ("uint8", "int16", "float32", "float64")
CASTS = (
    ("uint8", "float32"),
    ("int16", "float32"),
    ("float64", "float32"),
    ("float32", "float64"),
    ("int32", "float32"),
    ("uint8", "int32"),
)
CHANNELS = range(2, 65)
RUNS = (8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 136, 160, 192, 224, 256,
        320, 384, 512, 600, 768, 1024, 1536, 2048, 3000, 4096)  # fmt: skip
RUN_MEGABYTES = (2, 8, 64)
HPTT57 = """
10 7264x7264; 10 43408x1216; 10 1216x43408; 021 368x384x384; 021 2144x64x384; 021 368x64x2307;
102 384x384x355; 102 2320x384x59; 102 384x2320x59; 210 384x355x384; 210 2320x59x384;
210 384x59x2320; 0321 80x96x75x96; 0321 464x16x75x96; 0321 80x16x75x582; 2130 96x75x96x75;
2130 608x12x96x75; 2130 96x12x608x75; 2031 96x75x96x75; 2031 608x12x96x75; 2031 96x12x608x75;
1032 96x96x75x75; 1032 608x96x12x75; 1032 96x608x12x75; 3210 96x75x75x96; 3210 608x12x75x96;
3210 96x12x75x608; 04213 32x48x28x28x48; 04213 176x8x28x28x48; 04213 32x8x28x28x298;
32140 48x28x28x48x28; 32140 352x4x28x48x28; 32140 48x4x28x352x28; 20413 48x28x48x28x28;
20413 352x4x48x28x28; 20413 48x4x352x28x28; 13042 48x48x28x28x28; 13042 352x48x4x28x28;
13042 48x352x4x28x28; 43210 48x28x28x28x48; 43210 352x4x28x28x48; 43210 48x4x28x28x352;
032541 16x32x15x32x15x15; 032541 48x10x15x32x15x15; 032541 16x10x15x103x15x15;
320514 32x15x15x32x15x15; 320514 112x5x15x32x15x15; 320514 32x5x15x112x15x15;
204153 32x15x32x15x15x15; 204153 112x5x32x15x15x15; 204153 32x5x112x15x15x15;
325104 32x15x15x32x15x15; 325104 112x5x15x32x15x15; 325104 32x5x15x112x15x15;
543210 32x15x15x15x15x32; 543210 112x5x15x15x15x32; 543210 32x5x15x15x15x112"""


def sweep_rows(name: str, quick: bool, count: int = 0, seed: int = 0) -> list[Row]:
    """Return the rows of a sweep; `quick` keeps some of them."""
    rows: dict[str, Callable[[], Iterable[Row]]] = {
        "random": lambda: random_rows(count, seed),
        "hptt57": lambda: list(hptt_rows())[:: 5 if quick else 1],
        "channels": lambda: channel_rows(quick),
        "runs": lambda: run_rows(quick),
        "floor": floor_rows,
    }
    return list(rows[name]())


def random_rows(count: int, seed: int) -> Iterator[Row]:
    """Yield `count` random moves and casts; none is a view."""
    choose = random.Random(seed)
    yielded = 0
    while yielded < count:
        rank = choose.randint(2, 6)
        source = LETTERS[:rank]
        target = "".join(choose.sample(source, rank))
        dtype = choose.choice(MOVES)
        dtypes = choose.choice(CASTS) if choose.random() < 1 / 3 else (dtype, dtype)
        nbytes = exp(choose.uniform(log(SMALLEST), log(LARGEST)))
        items = nbytes / sum(as_dtype(name).itemsize for name in dtypes)
        sizes = _random_sizes(choose, rank, items)
        row = Row("random", "move", (source,), target, source, sizes, *dtypes)
        within = SMALLEST <= row.traffic <= LARGEST and max(sizes) <= LONGEST
        if within and not _keeps_order(row):
            yielded += 1
            yield row


def own_row(pattern: str, shape: Sequence[int], dtype: str, to_dtype: str | None) -> Row:
    """Return the row of a user's conversion, without a formula.

    Raises ArgumentError for a pattern with folds, `...`, names or ones, and LayoutkitErrors if such
    an array cannot be converted.
    """
    sides = parse_pattern(pattern)
    source, target = sides.left, sides.right
    if any(len(group) > 1 or group not in ascii_lowercase for group in source.groups):
        raise ArgumentError(
            f'"{pattern}" has folds, names, 1 or "..."; bench measures axes of one letter each, as '
            'in "bhwc->bchw"'
        )
    result = plan(pattern, shape, dtype, dtype=to_dtype)
    names = (as_dtype(dtype).name, result.target.dtype.name)
    letters = source.letters
    return Row("conversion", "move", (letters,), target.letters, letters, tuple(shape), *names)


def _random_sizes(choose: random.Random, rank: int, items: float) -> tuple[int, ...]:
    """Return sizes whose product is about `items`, spread evenly on a logarithmic scale."""
    shares = [choose.random() for _ in range(rank)]
    return tuple(max(1, round(items ** (share / sum(shares)))) for share in shares)


def _keeps_order(row: Row) -> bool:
    """Return True if the axes longer than 1 keep their order: a flat copy, or a view."""
    long_axes = [axis for axis in row.target if row.shape(axis) != (1,)]
    return long_axes == sorted(long_axes)


def hptt_rows() -> Iterator[Row]:
    """Yield the permutations of HPTT's benchmark as rows, whose last axis is the fastest."""
    for text in HPTT57.split(";"):
        order, extents = text.split()
        sizes = [int(size) for size in extents.split("x")]
        longest = sizes.index(max(sizes))
        sizes[longest] = -(-sizes[longest] // 4)
        letters = LETTERS[: len(sizes)]
        target = "".join(letters[int(axis)] for axis in order)
        sides = (letters[::-1],), target[::-1], letters
        yield Row("hptt57", "move", *sides, tuple(sizes), "float32", "float32")


def channel_rows(quick: bool = False) -> Iterator[Row]:
    """Yield bhwc to bchw and back for all channel counts; the larger side has about 24 MB."""
    moves = [(name, name) for name in ("uint8", "int16", "float32")]
    formulas = [(name, "float32") for name in ("uint8", "uint16")]
    counts = CHANNELS[3::7] if quick else CHANNELS
    for dtypes, count in product((*moves, *formulas), counts):
        side = round((24e6 / (8 * count * as_dtype(dtypes[1]).itemsize)) ** 0.5)
        kind = "fused" if dtypes in formulas else "move"
        for source, target in (("bhwc", "bchw"), ("bchw", "bhwc")):
            sizes = (8, side, side, count)
            yield Row("channels", kind, (source,), target, "bhwc", sizes, *dtypes)


def run_rows(quick: bool = False) -> Iterator[Row]:
    """Yield (a, b, n) bytes to (b, a, n), with 16 runs along b."""
    for megabytes, nbytes in product(RUN_MEGABYTES, RUNS[::4] if quick else RUNS):
        sizes = (round(megabytes * 1e6 / (16 * nbytes)), 16, nbytes)
        yield Row("runs", "move", ("uvw",), "vuw", "uvw", sizes, "uint8", "uint8")


def floor_rows() -> Iterator[Row]:
    """Yield the rows of `--floor`, with a third to a half of the usual share as the goal."""
    moves: list[tuple[str, str, str, tuple[int, ...], str, float]] = [
        ("bhwc", "bchw", "bhwc", (64, 56, 56, 64), "float32", 0.25),
        ("bhwc", "bchw", "bhwc", (64, 112, 112, 8), "float32", 0.35),
        ("bhwc", "bchw", "bhwc", (64, 224, 224, 3), "uint8", 0.30),
        ("bchw", "bhwc", "bhwc", (64, 224, 224, 3), "uint8", 0.30),
        ("bhwc", "bchw", "bhwc", (16, 224, 224, 13), "uint8", 0.16),
        ("bchw", "bhwc", "bhwc", (16, 224, 224, 7), "int16", 0.25),
        ("uvw", "vuw", "uvw", (20000, 16, 24), "uint8", 0.28),
        ("uvw", "vuw", "uvw", (5000, 16, 96), "uint8", 0.22),
        ("uvw", "vuw", "uvw", (8000, 16, 256), "uint8", 0.35),
        ("hw", "wh", "hw", (2048, 2048), "float32", 0.20),
        ("uvwxy", "yxwvu", "uvwxy", (12, 28, 28, 28, 48), "float32", 0.12),
        ("uvwxyz", "zyxwvu", "uvwxyz", (8, 15, 15, 15, 15, 32), "float32", 0.08),
    ]
    for source, target, letters, sizes, dtype, goal in moves:
        yield Row("floor", "move", (source,), target, letters, sizes, dtype, dtype, goal)
    sizes = (32, 224, 224, 3)
    for to_dtype, goal in (("float32", 0.28), ("bfloat16", 0.22)):
        yield Row("floor", "fused", ("bhwc",), "bchw", "bhwc", sizes, "uint8", to_dtype, goal)

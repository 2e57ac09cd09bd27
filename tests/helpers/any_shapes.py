"""Conversions that no kernel was tuned for, in sizes for a GPU."""

import random

from layoutkit.bench.device import adapt_to_device
from layoutkit.bench.sweeps import channel_rows, own_row, random_rows


def coverage_rows(count, seed):
    """Yield rows that no kernel was tuned for: a half random, a quarter each channels and runs.

    The random and channel rows come from `bench`, in the sizes for a GPU; channels are 5 to 31,
    and runs 17 to 255 bytes that stay contiguous.
    """
    choose = random.Random(seed)
    rows = [*random_rows(count - 2 * (count // 4), seed)]
    channels = [row for row in channel_rows() if 5 <= row.sizes[-1] <= 31]
    rows += choose.sample(channels, count // 4)
    for _ in range(count // 4):
        shape = (65536, choose.randint(2, 64), choose.randint(17, 255))
        rows.append(own_row("uvw->vuw", shape, "uint8", None))
    yield from map(adapt_to_device, rows)

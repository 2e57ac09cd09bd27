"""`BatcherCache`: the records of a Batcher that a RamCache keeps, read and decoded.

Each record has a rank, a random permutation of its number, and the records of the lowest ranks are
kept. Their number is decided before the first batch: records of the lowest ranks, which are kept in
any case, are read for their sizes. So every run, process and resumed loop keeps the same records.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..._utils import fork
from ..._utils.random import make_key, permute_index, unpermute_index
from ...memory import Array
from ..io.ram_cache import EncodedValue, RamCache, encode

_SAMPLE = 128  # records that are read to estimate the size of all
_MOST_SAMPLED = 256 << 20  # bytes of them in memory; others are read again
_DEVIATIONS = 3  # standard errors added to the mean size, so that the kept records fit
_RANKS = make_key("kept records")


class KeptRecords:
    """The records of one source that a RamCache keeps.

    Parameters
    ----------
    source, count : int
        The position of the source among the sources of the cache, and its number of records.
    copies : bool
        Return copies, which a function of the caller may modify.
    """

    def __init__(self, cache: RamCache, source: int, count: int, copies: bool) -> None:
        self.hits = 0  # reads from the cache in the latest loop
        self._cache = cache
        self._source = source
        self.count = count
        self._copies = copies
        # Until their number is decided, the records that were read, by number.
        self._sample: dict[int, EncodedValue] = {}
        self._num_sampled = 0  # bytes of them
        self.reinit()
        fork.reinit_after_fork(self)

    def reinit(self) -> None:
        """Replace the lock, in a forked child."""
        self._lock = threading.Lock()

    def read(self, number: int) -> Any:
        """Return the data of a record; None if it is not kept."""
        value = self._cache.read(self._source, number, self._copies)
        if value is not None:
            with self._lock:
                self.hits += 1
        return value

    def keep(self, number: int, value: Any, is_new: bool) -> None:
        """Keep the data of a record, if its rank is low enough.

        is_new : no one else uses the memory of the data, as a function `get` may do.
        """
        num_kept = self._cache.num_kept
        if num_kept is None:
            self._add_to_sample(number, encode(value), is_new)
        elif num_kept >= self.count or permute_index(_RANKS, number, self.count) < num_kept:
            self._cache.write(self._source, number, encode(value))

    def _add_to_sample(self, number: int, value: EncodedValue, is_new: bool) -> None:
        with self._lock:
            self._num_sampled += value.num_bytes
            if self._num_sampled > _MOST_SAMPLED:
                self._sample[number] = value.without_parts()
            else:
                self._sample[number] = value if is_new else value.copy()

    @cached_property
    def sampled_numbers(self) -> list[int]:
        """The numbers of the records of the lowest ranks, in order."""
        ranks = np.arange(min(_SAMPLE, self.count), dtype=np.uint64)
        numbers: list[int] = unpermute_index(_RANKS, ranks, self.count).tolist()
        return numbers

    def take_sample(self) -> list[EncodedValue | None]:
        """Return the records of the lowest ranks, None for those that could not be read."""
        sample, self._sample = self._sample, {}
        return [sample.get(number) for number in self.sampled_numbers]

    def keep_sample(self, sample: Sequence[EncodedValue | None]) -> None:
        """Keep these records of the lowest ranks."""
        for number, value in zip(self.sampled_numbers, sample, strict=False):
            if value is not None and value.parts:
                self._cache.write(self._source, number, value)


@dataclass(frozen=True)
class BatcherCache:
    """The cache of a Batcher, and the records of each of its sources that it keeps."""

    cache: RamCache
    records: tuple[KeptRecords | None, ...]  # by source; None: its records are in memory already
    is_own: bool  # no other Batcher uses the cache, so it is closed with this one

    @property
    def hits(self) -> int:
        """The number of records that the latest loop read from the cache."""
        return sum(records.hits for records in self.records if records is not None)

    def begin_loop(self, read: Callable[[int, list[int]], None]) -> None:
        """Count hits from 0; before the first loop, decide the number of records to keep.

        `read` is called with the number of a source, and the numbers of records to read.
        """
        kept = {records: i for i, records in enumerate(self.records) if records is not None}
        for records in kept:
            records.hits = 0
        if self.cache.num_kept is not None:
            return
        for records, source in kept.items():
            read(source, records.sampled_numbers)
        samples = [records.take_sample() for records in kept]
        sizes = np.zeros(max(map(len, samples)), np.int64)
        for sample in samples:
            sizes[: len(sample)] += [value.num_bytes if value else 0 for value in sample]
        count = max(records.count for records in kept)
        num_kept = self.cache.num_kept = estimate_num_kept(sizes, count, self.cache.free_bytes)
        for records, sample in zip(kept, samples, strict=True):
            records.keep_sample(sample[:num_kept])


def estimate_num_kept(sizes: Array, count: int, room: int) -> int:
    """Return how many of `count` records fit into `room` bytes.

    sizes : (n,) int64    of the first n records in bytes, 0 for records that could not be read
    """
    ends = np.cumsum(sizes)
    num_fit = int(np.searchsorted(ends, room, side="right"))
    known = sizes[sizes > 0]
    if num_fit < len(sizes) or len(sizes) == count or not len(known):
        return num_fit if len(known) else count
    size = known.mean() + _DEVIATIONS * known.std() / math.sqrt(len(known))
    return min(count, num_fit + int((room - ends[-1]) / size))
